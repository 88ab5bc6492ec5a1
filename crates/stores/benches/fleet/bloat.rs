//! What a table weighs after few keys have been claimed, completed, expired and swept over and over
//! again, beside what it weighed when each of them had been written once.
//!
//! Vacuum goes on by itself; nobody helps it. Between two of its rounds a table has to hold what
//! was removed meanwhile, so under load it is larger than at first. What it must not do is to go
//! on growing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onetake_core::Version;
use onetake_engine::{Slots, Swap};
use onetake_stores::Postgres;

use crate::load::{address, claim, done, fill, won};
use crate::report::{Bar, Case};
use crate::{Stage, TASKS, float, say};

const SCHEMA: &str = "bloat";
const KEYS: u64 = 4_096;
/// The first number of an operation that is not the first of its key.
const LATER: u64 = 1 << 32;
const SWEEP_EVERY: Duration = Duration::from_millis(100);
const SWEEP_MAX: usize = 1_000;
const QUARTERS: u64 = 4;
/// How long a quarter of the load lasts at least: vacuum must have looked around a few times,
/// however quick the machine is.
const QUARTER_MIN: Duration = Duration::from_secs(6);
/// The second half of the load may make the table so many times as large as the first did.
const GROWTH_MAX: f64 = 1.5;

/// Claims `key` as operation `n`, whatever is there, and gives what the claim is to be replaced by.
async fn claimed(store: &Postgres, n: u64, key: u64) -> Version {
    let mut expected = None;
    loop {
        let claim = claim(n, address(key));
        let version = claim.version;
        match store.swap(expected, claim).await.expect("answered").value {
            Swap::Won(_) => return version,
            Swap::Lost(there) => expected = there.map(|there| there.version),
            Swap::Unknown => expected = None,
        }
    }
}

/// One task: its keys in turn, until all of them together have come to number `until`, and for long
/// enough.
async fn work(store: Arc<Postgres>, index: u64, next: Arc<AtomicU64>, until: u64) {
    let begun = Instant::now();
    let mut keys = (0..KEYS).filter(|key| key % (TASKS as u64) == index).cycle();
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= until && begun.elapsed() >= QUARTER_MIN {
            return;
        }
        let key = keys.next().expect("it goes round");
        let version = claimed(&store, LATER + n, key).await;
        let done = done(LATER + n, address(key), Duration::from_millis(1));
        won(&store.swap(Some(version), done).await.expect("completed").value);
    }
}

/// Sweeps until it is told to stop; gives how many records it removed.
async fn sweep(store: Arc<Postgres>, ends: Arc<AtomicBool>) -> usize {
    let mut removed = 0;
    while !ends.load(Ordering::Relaxed) {
        let swept = store.sweep(SWEEP_MAX).await.expect("swept").value;
        removed += swept.removed;
        if swept.done {
            tokio::time::sleep(SWEEP_EVERY).await;
        }
    }
    removed
}

fn bytes(stage: &Stage<'_>) -> f64 {
    let sql = format!("SELECT pg_total_relation_size('{SCHEMA}.slots')");
    stage.postgres.ask(&sql).parse().expect("a number")
}

pub(crate) fn cases(stage: &Stage<'_>) -> Vec<Case> {
    let store = Arc::new(stage.store(SCHEMA));
    let (start, removed, sizes, operations) = stage.runtime.block_on(async {
        fill(&store, KEYS).await;
        let start = bytes(stage);
        let ends = Arc::new(AtomicBool::new(false));
        let sweeper = tokio::spawn(sweep(Arc::clone(&store), Arc::clone(&ends)));
        let (next, mut sizes) = (Arc::new(AtomicU64::new(0)), Vec::new());
        // In steps, so that growth that goes on is told from growth that has ended.
        let quarter = stage.plan.operations / QUARTERS;
        for _ in 0..QUARTERS {
            let until = next.load(Ordering::Relaxed) + quarter / 2;
            let task = |index| work(Arc::clone(&store), index, Arc::clone(&next), until);
            let tasks: Vec<_> = (0..TASKS as u64).map(task).map(tokio::spawn).collect();
            for task in tasks {
                task.await.expect("no panic");
            }
            sizes.push(bytes(stage));
        }
        ends.store(true, Ordering::Relaxed);
        (start, sweeper.await.expect("no panic"), sizes, next.load(Ordering::Relaxed))
    });
    let by_key = |bytes: f64| bytes / float(KEYS);
    let shown: Vec<_> = sizes.iter().map(|bytes| format!("{:.0}", by_key(*bytes))).collect();
    say(&format!(
        "bytes a key: {:.0} at first, then {} by quarters of {operations} operations; \
         {removed} swept",
        by_key(start),
        shown.join(", "),
    ));
    drop(store);
    stage.forget(SCHEMA);
    let largest = |sizes: &[f64]| sizes.iter().copied().fold(0.0, f64::max);
    let (first, second) = sizes.split_at(sizes.len() / 2);
    vec![
        Case::new(
            "PostgreSQL, bytes a key under load; beside the first",
            "B",
            &mut [by_key(largest(second))],
            &mut [by_key(start)],
            Bar::None,
        ),
        Case::alone(
            "PostgreSQL, growth in the second half of that load",
            "x",
            &mut [largest(second) / largest(first)],
            Bar::AtMost(GROWTH_MAX),
        ),
    ]
}
