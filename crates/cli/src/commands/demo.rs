//! `onetake demo`: shows on this machine what becomes of retries.
//!
//! Everything is real: an API with a side effect, a file that only grows; the gateway in front of
//! it, a process that is killed with -9; many callers at once; and an audit that reads that file
//! again at the end. Nothing survives the command.
//! The demo never corrects a number: a promise that did not hold is said, and the exit code is 1.

mod api;
mod books;
mod counts;
mod customer;
mod gateway;
mod ledger;
mod scenes;
mod stage;
mod world;

use std::io;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use counts::{Count, Counts};
use stage::Stage;
use world::World;

use crate::out::print;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// End after the table, with exit code 1 if a promise did not hold; without this, the API and
    /// the gateway stay up to be tried until Ctrl-C
    #[arg(long)]
    once: bool,
    /// Print the table as JSON and nothing else, and end; implies --once
    #[arg(long)]
    json: bool,
}

/// Plays the scenes and prints the table, then stays up until it is asked to end.
///
/// # Errors
/// When the demo itself could not run: no temporary folder, no free port, no process.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    Runtime::new()?.block_on(perform(args, &Stage::new(args.json)))
}

async fn perform(args: &Args, stage: &Stage) -> Result<ExitCode> {
    // Before anything is started: a signal that comes early must leave nothing behind.
    let mut ends = Ends::listen().context("signals cannot be heard")?;
    let played = Box::pin(async {
        let mut world = World::open().await?;
        let report = play(&mut world, stage).await?;
        anyhow::Ok((world, report))
    });
    let (world, report) = tokio::select! {
        played = played => played?,
        () = ends.asked() => bail!("interrupted; nothing of the demo is left"),
    };
    for line in &report.broken {
        eprintln!("PROMISE BROKEN: {line}");
    }
    if args.json {
        // What cannot be printed ends the process at once, so nothing else may be left to end.
        drop(world);
        print(&serde_json::to_string_pretty(&report)?);
        return Ok(report.exit_code());
    }
    stage.finale(&report);
    // Nobody can try what nobody reads of.
    if !args.once && stage.is_watched() {
        stage.invitation(&world);
        stage.check()?;
        ends.asked().await;
    }
    drop(world);
    stage.farewell();
    stage.check()?;
    Ok(report.exit_code())
}

/// The ways in which a demo is asked to end.
struct Ends([Signal; 3]);

impl Ends {
    fn listen() -> io::Result<Self> {
        let [term, int, hangup] =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        Ok(Self([signal(term)?, signal(int)?, signal(hangup)?]))
    }

    async fn asked(&mut self) {
        let Self([term, int, hangup]) = self;
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            _ = hangup.recv() => {}
        }
    }
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

async fn play(world: &mut World, stage: &Stage) -> Result<Report> {
    stage.opening(world);
    let mut broken = Vec::new();
    for (scene, number) in scenes::ALL.iter().zip(1..) {
        stage.scene(number, scene.title);
        let before = world.counts()?;
        let played = (scene.play)(world, stage).await;
        played.with_context(|| format!("scene {number} could not be played"))?;
        let did = world.counts()?.since(&before);
        let expected = Counts::of(scene.expected);
        stage.verdict(&did, did == expected);
        if did != expected {
            broken.push(format!("scene {number}: {did}; it should have been {expected}"));
        }
        stage.check()?;
    }
    let audit = world.audit()?;
    broken.extend(audit.broken);
    let mut counts = world.counts()?;
    counts.add(Count::Twice, audit.twice);
    broken.extend(counts.contradiction());
    Ok(Report { counts, broken })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::demo::ledger::Kind;

    fn played(prepare: impl FnOnce(&World)) -> Report {
        let play = async {
            let mut world = World::open().await.unwrap();
            prepare(&world);
            play(&mut world, &Stage::new(true)).await.unwrap()
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
        let report = played(|world| drop(world.ledger().write(Kind::Payment, "order-1").unwrap()));
        assert_eq!(report.counts.get(Count::Twice), 1);
        assert_eq!(report.broken, ["payment for order-1: executed 2 times"]);
        assert!(is_failure(&report));
    }
}
