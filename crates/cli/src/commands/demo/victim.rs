//! The process that dies: it answers one order, takes the payment for another, and is gone.
//!
//! The signal is SIGKILL, sent by the process to itself in the middle of the effect, so nothing can
//! be tidied up: no destructor runs and no buffer is written. Whoever started it learns from its
//! output how far it came.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use tokio::runtime::Runtime;

use super::shop::{Order, Shop};

/// The order that is answered.
pub(super) const ANSWERED: &str = "order-6";
/// The order whose payment is taken when the process dies.
pub(super) const CUT_OFF: &str = "order-7";
/// What is printed when it is taken.
const TAKEN: &str = "taken";

/// What a victim told before it died, and how that was.
pub(super) struct Told {
    pub(super) receipt: String,
    pub(super) ended: String,
}

/// Starts a victim on the store in `store` and waits until it is dead.
pub(super) fn start(store: &Path, ledger: &Path) -> Result<Told> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words()).env(STORE, store).env(LEDGER, ledger).stdin(Stdio::null());
    let output = command.output().context("the process that is to die cannot be started")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let word = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let (Some(receipt), Some(_)) = (word("answered"), word(TAKEN)) else {
        bail!("it ended too early: {said} {}", String::from_utf8_lossy(&output.stderr));
    };
    ensure!(!output.status.success(), "it survived");
    Ok(Told { receipt: receipt.to_owned(), ended: output.status.to_string() })
}

const STORE: &str = "ONETAKE_DEMO_STORE";
const LEDGER: &str = "ONETAKE_DEMO_LEDGER";

/// How this program is asked to be a victim.
#[cfg(not(test))]
const fn words() -> [&'static str; 2] {
    ["demo", "--victim"]
}

/// How the test program is.
#[cfg(test)]
const fn words() -> [&'static str; 3] {
    ["--exact", "commands::demo::victim::tests::it_dies_if_it_is_asked_to", "--nocapture"]
}

/// Is the victim.
///
/// # Errors
/// When it could not even begin, or survived.
pub(super) fn die() -> Result<()> {
    let path = |name| std::env::var_os(name).with_context(|| format!("{name} is not set"));
    let (store, ledger) = (path(STORE)?, path(LEDGER)?);
    Runtime::new()?.block_on(async {
        let shop = Shop::join(Path::new(&ledger), Path::new(&store))?;
        let heard = shop.send(&Order::new(ANSWERED)?).await;
        say(&format!("answered {}", heard.trim_start_matches("receipt ")))?;
        let (own, order) = (shop.clone(), Order::new(CUT_OFF)?);
        let charged = order.clone();
        let heard = shop
            .send_to(&order, |_attempt| async move {
                let receipt = own.charge(&charged, false)?;
                say(TAKEN)?;
                kill_myself();
                Ok(receipt)
            })
            .await;
        bail!("it survived and heard: {heard}")
    })
}

/// Writes a line past every buffer.
fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn kill_myself() {
    let signal = rustix::process::Signal::KILL;
    // A process that may not even end itself survives, and says so.
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Started by itself this does nothing; started by `start` it is the victim.
    #[test]
    fn it_dies_if_it_is_asked_to() {
        if std::env::var_os(STORE).is_some() {
            let survived = die();
            panic!("{survived:?}");
        }
        assert!(die().is_err(), "unasked it cannot begin");
    }
}
