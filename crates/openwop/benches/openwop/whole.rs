//! Runs from their creation to their end: three nodes that do nothing, 64 runs in flight.
//!
//! In one process and without HTTP: each of 64 tasks creates a run through the door, follows its
//! stream of events to `run.completed`, and begins again. What is measured is the host and its
//! store, with those who follow on the same two threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use onetake_engine::Journal;
use onetake_stores::Embedded;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::host::Measured;
use crate::load::CONNECTIONS;
use crate::report::{Bar, Case};
use crate::{Plan, float, folder, percentile_ms, processor_us, runtime, say};

/// Three nodes that do nothing, one after the other.
const WORKFLOW: &str = "conformance-multi-node";

/// What one turn came to.
struct Turn {
    rate: f64,
    processor_us: f64,
    /// In nanoseconds, the shortest first.
    took: Vec<u32>,
}

fn turn<S: Journal>(
    runtime: &Runtime,
    host: &Arc<Measured<S>>,
    keys: &Arc<AtomicU64>,
    plan: &Plan,
) -> Turn {
    let (before, begun) = (processor_us("self"), Instant::now());
    let end = begun + plan.span;
    let mut took = runtime.block_on(async {
        let mut going = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let (host, keys) = (Arc::clone(host), Arc::clone(keys));
            going.spawn(async move {
                let mut took = Vec::new();
                while Instant::now() < end {
                    let begun = Instant::now();
                    let key = keys.fetch_add(1, Ordering::Relaxed);
                    let run = host.create(WORKFLOW, key).await;
                    assert!(host.follow(&run).await, "{run} did not complete");
                    took.push(u32::try_from(begun.elapsed().as_nanos()).unwrap_or(u32::MAX));
                }
                took
            });
        }
        going.join_all().await.concat()
    });
    took.sort_unstable();
    let runs = float(took.len() as u64);
    let processor_us = (processor_us("self") - before) / runs;
    Turn { rate: runs / begun.elapsed().as_secs_f64(), processor_us, took }
}

pub(crate) fn cases(plan: &Plan) -> Vec<Case> {
    let (folder, runtime, keys) = (folder(), runtime(), Arc::new(AtomicU64::new(0)));
    let _inside = runtime.enter();
    let store = Embedded::open(folder.path()).expect("an empty folder");
    let host = Arc::new(runtime.block_on(Measured::open(store)));
    // Nobody's first runs count.
    turn(&runtime, &host, &keys, plan);
    let turns: Vec<Turn> = (0..plan.rounds)
        .map(|round| {
            let turn = turn(&runtime, &host, &keys, plan);
            let (rate, p50) = (turn.rate, percentile_ms(&turn.took, 50));
            say(&format!("round {round}: {rate:.0} runs/s to their end, p50 {p50:.1} ms"));
            turn
        })
        .collect();
    let case = |name: &str, unit, of: &dyn Fn(&Turn) -> f64, bar| {
        let mut values: Vec<f64> = turns.iter().map(of).collect();
        Case::alone(format!("whole: {name}"), unit, &mut values, bar)
    };
    let percentile = |percent| move |turn: &Turn| percentile_ms(&turn.took, percent);
    vec![
        case("three nodes to their end, 64 in flight", "/s", &|t| t.rate, Bar::AtLeast(2_000.0)),
        case("p50 of a run of them", "ms", &percentile(50), Bar::AtMost(15.0)),
        case("p99 of a run of them", "ms", &percentile(99), Bar::None),
        case("processor time of a run", "us", &|turn| turn.processor_us, Bar::None),
    ]
}
