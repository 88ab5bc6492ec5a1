//! Processes that are killed, stopped and kept out while they use an embedded store.
//!
//! Where `crash_points.rs` ends a process at every point that has a name, this file does it at any
//! moment, under load, with the effects in another process. A kill takes nothing away that was
//! written and not synced: what a power cut does is not shown here.
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod common;
#[path = "killed/ledger.rs"]
mod ledger;
#[path = "killed/life.rs"]
mod life;
#[path = "killed/stopped.rs"]
mod stopped;
#[path = "killed/worker.rs"]
mod worker;

use std::path::Path;
use std::time::Instant;

use self::common::part;
use self::life::Life;

/// Kills on one store before the next one is made.
const KILLS_OF_A_LIFE: u64 = 50;

#[test]
fn a_process_that_is_asked_to_plays_its_part() {
    let Some(asked) = part::asked() else { return };
    let (part, folder) = asked.split_once(' ').unwrap();
    let folder = Path::new(folder);
    match part.split('-').collect::<Vec<_>>().as_slice() {
        ["ledger"] => ledger::keep(folder),
        ["worker"] => worker::work(folder),
        ["hold"] => stopped::hold(folder),
        ["stall", on_unknown, stop] => stopped::stall(folder, on_unknown, stop),
        ["look", on_unknown] => stopped::look(folder, on_unknown),
        _ => panic!("{part} is no part"),
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// K12, W12, X3: whenever a process is killed, no operation has had an effect twice unsaid, and
/// what was answered is answered again byte for byte.
#[test]
fn k12_w12_x3_a_process_that_is_killed_at_any_moment_breaks_no_promise() {
    let kills = number("ONETAKE_KILLS").unwrap_or(KILLS_OF_A_LIFE);
    let first = number("ONETAKE_SEED").unwrap_or(1);
    let (begun, lives) = (Instant::now(), kills.div_ceil(KILLS_OF_A_LIFE));
    for (life, seed) in (0..lives).zip(first..) {
        let kills = KILLS_OF_A_LIFE.min(kills - life * KILLS_OF_A_LIFE);
        match Life::new(seed).run(kills) {
            Ok(counts) => println!("seed {seed}: {counts:?}, {:.1?} in all", begun.elapsed()),
            Err(what) => panic!(
                "{what}\n    again: ONETAKE_SEED={seed} ONETAKE_KILLS={kills} \
                 cargo test -p onetake-stores --test killed"
            ),
        }
    }
}
