//! Plays many histories and prints every broken promise as a seed.
//!
//! `sim` plays 10,000 seeds, `sim SEED` one, `--seeds N` and `--from S` choose others.

use std::process::ExitCode;
use std::time::Instant;

use onetake_testkit::sim::{Stats, run};

fn main() -> ExitCode {
    let (from, seeds) = match arguments() {
        Ok(range) => range,
        Err(word) => {
            eprintln!("sim: {word:?} is not understood; try `sim [SEED] [--seeds N] [--from S]`");
            return ExitCode::from(2);
        }
    };
    std::panic::set_hook(Box::new(|_| {})); // Simulated functions panic on purpose.
    let (started, mut stats, mut broken) = (Instant::now(), Stats::default(), 0_u64);
    for seed in from..from.saturating_add(seeds) {
        match run(seed) {
            Ok(history) => stats = stats.plus(history),
            Err(error) => {
                broken += 1;
                println!("{error}");
            }
        }
    }
    println!("{stats:#?}");
    println!("{seeds} histories in {:.1} s, {broken} broken", started.elapsed().as_secs_f64());
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first seed, and how many.
fn arguments() -> Result<(u64, u64), String> {
    let (mut from, mut seeds, mut one) = (0, 10_000, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = |of: &str| {
            let text = words.next().unwrap_or_default();
            text.parse::<u64>().map_err(|_| format!("{of} {text}"))
        };
        match word.as_str() {
            "--seeds" => seeds = number("--seeds")?,
            "--from" => from = number("--from")?,
            other => one = Some(other.parse::<u64>().map_err(|_| other.to_owned())?),
        }
    }
    Ok(one.map_or((from, seeds), |seed| (seed, 1)))
}
