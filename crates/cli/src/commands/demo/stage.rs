//! How the demo speaks: with colour and a moving line on a terminal, plainly when piped, not at all
//! when only JSON is wanted.
//!
//! Never decides anything, and never fails: a reader that went away is no reason to stop.

use std::env;
use std::io::{self, ErrorKind, IsTerminal, Write, stdout};
use std::sync::OnceLock;

use anyhow::{Result, anyhow};

use super::Report;
use super::counts::{Count, Counts, grouped};
use super::world::World;

/// Where the demo is shown.
pub(super) struct Stage {
    is_silent: bool,
    /// Whether a line may be drawn over.
    is_terminal: bool,
    has_colour: bool,
    /// How whoever watches calls this program.
    call: &'static str,
    /// Why the last line could not be written, if so; nothing is written after it.
    trouble: OnceLock<io::Error>,
}

const BOLD: &str = "1";
const DIM: &str = "2";
const GREEN: &str = "32";
const RED: &str = "31";

/// How this program is called: as it was, where `cargo run` started it, which tells it so.
fn call(is_by_cargo: bool) -> &'static str {
    if is_by_cargo { "cargo run --release --" } else { "onetake" }
}

impl Stage {
    /// Looks at standard output once.
    pub(super) fn new(is_silent: bool) -> Self {
        let is_terminal = stdout().is_terminal();
        // https://no-color.org
        let wants_none = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let has_colour = is_terminal && !wants_none;
        let call = call(env::var_os("CARGO").is_some());
        Self { is_silent, is_terminal, has_colour, call, trouble: OnceLock::new() }
    }

    fn line(&self, text: &str) {
        if self.is_silent || self.trouble.get().is_some() {
            return;
        }
        if let Err(error) = writeln!(stdout(), "{text}") {
            // There is none yet, and a second one would say no more.
            let _ = self.trouble.set(error);
        }
    }

    /// Whether everything could be said. A reader that went away has heard enough; a disk that is
    /// full has not.
    ///
    /// # Errors
    /// When the output could not be written.
    pub(super) fn check(&self) -> Result<()> {
        match self.trouble.get() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(anyhow!("the output cannot be written: {error}"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether somebody may still be reading.
    pub(super) fn is_watched(&self) -> bool {
        self.trouble.get().is_none()
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        if self.has_colour { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub(super) fn opening(&self, world: &World) {
        let (api, gateway) = (world.api.address(), world.gateway.address());
        self.line(&self.painted(BOLD, "One operation, one execution: seven scenes"));
        self.line("An orders API takes payments, each of them a line in a ledger that only grows.");
        self.line("In front of it is the gateway, a process of its own with a store on disk.");
        let ledger = world.ledger().path().display();
        let places = format!("API http://{api}, gateway http://{gateway}, ledger {ledger}");
        self.line(&self.painted(DIM, &places));
    }

    pub(super) fn scene(&self, number: usize, title: &str) {
        self.line("");
        self.line(&self.painted(BOLD, &format!("{number}  {title}")));
    }

    /// One thing that happened.
    pub(super) fn say(&self, text: &str) {
        self.line(&format!("   {text}"));
    }

    /// How far something has come. Only a terminal shows it; empty text clears the line again.
    pub(super) fn progress(&self, text: &str) {
        if self.is_terminal && !self.is_silent {
            let _ = write!(stdout(), "\r\u{1b}[2K   {text}\r");
            let _ = stdout().flush();
        }
    }

    /// What a scene came to.
    pub(super) fn verdict(&self, did: &Counts, holds: bool) {
        let (colour, word) = if holds { (GREEN, "ok") } else { (RED, "BROKEN") };
        self.line(&format!("   {}: {did}", self.painted(colour, word)));
    }

    /// The table and the verdict.
    pub(super) fn finale(&self, report: &Report) {
        self.line("");
        self.line(&self.painted(BOLD, "In all"));
        for count in Count::ALL {
            let (label, means) = count.row();
            let number = grouped(report.counts.get(count));
            self.line(&format!("   {label:18}{number:>5}   {}", self.painted(DIM, means)));
        }
        let verdict = match report.broken.len() {
            0 => self.painted(GREEN, "Every promise held."),
            broken => self.painted(RED, &format!("Promises broken: {broken}.")),
        };
        self.line(&format!("\n{verdict}"));
    }

    /// Where to go from here, when nothing stays.
    pub(super) fn farewell(&self) {
        let serve = format!("{} serve --upstream URL", self.call);
        let width = serve.len();
        self.line("\nWhat next:");
        self.line(&format!("  {serve}   the same in front of your own API"));
        self.line(&format!("  {:width$}   the same in ten lines of your own code", "README.md"));
        self.line("Nothing of this demo is left: all of it was in a temporary folder.");
    }

    /// What stays up, and what to try on it.
    pub(super) fn invitation(&self, world: &World) {
        let (api, gateway) = (world.api.address(), world.gateway.address());
        let folder = world.folder().display();
        self.line("");
        self.line(&self.painted(BOLD, "It stays up: try it yourself"));
        self.line(&format!("   gateway   http://{gateway}"));
        self.line(&format!("   API       http://{api}"));
        self.line(&format!("   folder    {folder}"));
        for (what, count) in [
            ("a first order:", 1),
            ("the same again; the API is not asked:", 1),
            ("the same key, another body; refused:", 2),
        ] {
            let body = format!(r#"{{"order":"mine-1","count":{count}}}"#);
            self.line(&format!("\n   {what}"));
            self.line(&format!(
                "curl -i http://{gateway}/orders -H 'Idempotency-Key: mine-1' -d '{body}'"
            ));
        }
        let store = world.gateway.store();
        self.line("\n   what the gateway remembers:");
        self.line(&format!("{} keys list --store embedded:{}", self.call, store.display()));
        self.line("\nCtrl-C ends the gateway and the API, and removes the folder.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(has_colour: bool) -> Stage {
        let (call, trouble) = (call(false), OnceLock::new());
        Stage { is_silent: true, is_terminal: true, has_colour, call, trouble }
    }

    #[test]
    fn colour_is_for_those_who_see_it() {
        assert_eq!(stage(false).painted(RED, "no"), "no");
        assert_eq!(stage(true).painted(RED, "no"), "\u{1b}[31mno\u{1b}[0m");
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure_and_a_full_disk_is() {
        let after = |kind: ErrorKind| {
            let stage = stage(false);
            stage.trouble.set(kind.into()).unwrap();
            (stage.is_watched(), stage.check().is_ok())
        };
        assert_eq!(after(ErrorKind::BrokenPipe), (false, true));
        assert_eq!(after(ErrorKind::StorageFull), (false, false));
        assert!(stage(false).is_watched() && stage(false).check().is_ok());
    }
}
