//! `onetake demo`: shows on this machine what becomes of retries.
//!
//! Everything is real: many tasks at once, a durable store in a temporary folder, a file that only
//! grows as the side effect, a process that is killed, and an audit that reads that file again at
//! the end. Nothing survives the command.
//! The demo never corrects a number: a promise that did not hold is said, and the exit code is 1.

mod counts;
mod ledger;
mod scenes;
mod shop;
mod stage;
mod victim;

use std::process::ExitCode;

use anyhow::Result;
use tokio::runtime::Runtime;

use counts::{Count, Counts};
use shop::Shop;
use stage::Stage;

use crate::out::print;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// End after the table. Today the demo always does; scripts may say so already
    #[arg(long)]
    once: bool,
    /// Print the table as JSON and nothing else
    #[arg(long)]
    json: bool,
    /// Be the process that is killed
    #[arg(long, hide = true)]
    victim: bool,
}

/// Plays the scenes and prints the table.
///
/// # Errors
/// When the demo itself could not run: no temporary file, no threads.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Nothing is kept up after the table yet, so both ways are the same.
    let Args { once: _, json, victim } = *args;
    if victim {
        return victim::die().map(|()| ExitCode::FAILURE);
    }
    let stage = Stage::new(json);
    let report = Runtime::new()?.block_on(async { play(&Shop::open()?, &stage).await })?;
    if json {
        print(&serde_json::to_string_pretty(&report)?);
    } else {
        stage.finale(&report);
    }
    for line in &report.broken {
        eprintln!("PROMISE BROKEN: {line}");
    }
    Ok(report.exit_code())
}

/// What the whole demo came to.
#[derive(Debug, serde::Serialize)]
struct Report {
    #[serde(flatten)]
    counts: Counts,
    /// Every promise that did not hold, in words.
    broken: Vec<String>,
}

impl Report {
    fn exit_code(&self) -> ExitCode {
        if self.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

async fn play(shop: &Shop, stage: &Stage) -> Result<Report> {
    stage.opening(shop.ledger().path());
    let mut broken = Vec::new();
    for (scene, number) in scenes::ALL.iter().zip(1..) {
        stage.scene(number, scene.title);
        let before = shop.counts()?;
        (scene.play)(shop, stage).await?;
        let did = shop.counts()?.since(&before);
        let expected = Counts::of(scene.expected);
        let as_promised = did.is_like(&expected);
        stage.verdict(&did, as_promised);
        if !as_promised {
            broken.push(format!("scene {number}: {did}; it should have been {expected}"));
        }
    }
    let audit = shop.audit().await?;
    broken.extend(audit.broken);
    let mut counts = shop.counts()?;
    counts.add(Count::Unsaid, audit.unsaid);
    broken.extend(counts.contradictions());
    Ok(Report { counts, broken })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(prepare: impl FnOnce(&Shop)) -> Report {
        let play = async {
            let shop = Shop::open().unwrap();
            prepare(&shop);
            play(&shop, &Stage::new(true)).await.unwrap()
        };
        Runtime::new().unwrap().block_on(play)
    }

    fn is_failure(report: &Report) -> bool {
        format!("{:?}", report.exit_code()) == format!("{:?}", ExitCode::FAILURE)
    }

    #[test]
    fn a_demo_whose_promises_held_succeeds() {
        let report = played(|_| ());
        assert_eq!(report.broken, [""; 0]);
        assert!(!is_failure(&report));
    }

    #[test]
    fn a_payment_that_was_taken_behind_the_records_is_found_and_fails_the_demo() {
        let report = played(|shop| drop(shop.ledger().charge("order-1").unwrap()));
        assert_eq!(report.counts.get(Count::Unsaid), 1);
        assert_eq!(report.broken, ["effects that no record admits to: 1"]);
        assert!(is_failure(&report));
    }
}
