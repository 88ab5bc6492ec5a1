//! How the demo speaks: with colour and a moving line on a terminal, plainly when piped, not at all
//! when only JSON is wanted.
//!
//! Never decides anything, and never fails: a reader that went away is no reason to stop.

use std::env;
use std::io::{IsTerminal, Write, stdout};
use std::path::Path;

use super::Report;
use super::counts::{Count, Counts, grouped};
use crate::out::print;

/// Where the demo is shown.
pub(super) struct Stage {
    is_silent: bool,
    /// Whether a line may be drawn over.
    is_terminal: bool,
    has_colour: bool,
}

const BOLD: &str = "1";
const DIM: &str = "2";
const GREEN: &str = "32";
const RED: &str = "31";

const NEXT: &str = "\
What next:
  README.md          the same in ten lines of your own code
  cargo xtask test   the proofs, and known bugs planted to see them fail
Nothing of this demo is left: its stores and its ledger were in a temporary folder.";

impl Stage {
    /// Looks at standard output once.
    pub(super) fn new(is_silent: bool) -> Self {
        let is_terminal = stdout().is_terminal();
        // https://no-color.org
        let wants_none = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { is_silent, is_terminal, has_colour: is_terminal && !wants_none }
    }

    fn line(&self, text: &str) {
        if !self.is_silent {
            print(text);
        }
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        if self.has_colour { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub(super) fn opening(&self, ledger: &Path) {
        self.line(&self.painted(BOLD, "One operation, one execution: seven scenes"));
        self.line("The side effect is a payment: one line in a ledger that only grows,");
        self.line(&self.painted(DIM, &ledger.display().to_string()));
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

    /// The table, the verdict and where to go from here.
    pub(super) fn finale(&self, report: &Report) {
        self.line("");
        self.line(&self.painted(BOLD, "In all"));
        for count in Count::ALL {
            let (label, means) = count.row();
            let number = grouped(report.counts.get(count));
            self.line(&format!("   {label:24}{number:>7}   {}", self.painted(DIM, means)));
        }
        let verdict = match report.broken.len() {
            0 => self.painted(GREEN, "Every promise held."),
            broken => self.painted(RED, &format!("Promises broken: {broken}.")),
        };
        self.line(&format!("\n{verdict}\n\n{NEXT}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_those_who_see_it() {
        let stage = |has_colour| Stage { is_silent: true, is_terminal: true, has_colour };
        assert_eq!(stage(false).painted(RED, "no"), "no");
        assert_eq!(stage(true).painted(RED, "no"), "\u{1b}[31mno\u{1b}[0m");
    }
}
