//! Replays from the memory in front of PostgreSQL, beside replays that ask the database.
//!
//! Whether the server was asked is read off its connections: each of them says when it last began
//! or ended anything. The counters of transactions come seconds late, longer than a record may
//! answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onetake_core::Address;
use onetake_engine::Slots;
use onetake_stores::Postgres;

use crate::load::{address, fill, rate};
use crate::report::{Bar, Case, median};
use crate::{Stage, TASKS, WORKERS, float, say};

/// As many as are confirmed in a moment, and stay in memory.
const KEYS: u64 = 512;
/// Well within the time for which a confirmed record answers.
const SPAN: Duration = Duration::from_secs(1);

/// Replays until the time is over, on as many threads as there are workers; gives how many.
fn from_memory(store: &Postgres, addresses: &[Arc<Address>]) -> u64 {
    let started = Instant::now();
    std::thread::scope(|scope| {
        let work = |_| {
            scope.spawn(|| {
                let mut count = 0;
                while started.elapsed() < SPAN {
                    for address in addresses {
                        let found = store.at_hand(address.slot());
                        // Whatever was not at hand is no replay from memory, and not counted.
                        count += u64::from(found.is_some());
                    }
                }
                count
            })
        };
        let workers: Vec<_> = (0..WORKERS).map(work).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    })
}

/// The connections that were asked anything since `then`.
fn asked_since(stage: &Stage<'_>, then: &str) -> u64 {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'
            AND pid <> pg_backend_pid() AND state_change > '{then}'::timestamptz"
    );
    stage.postgres.ask(&sql).parse().expect("a number")
}

pub(crate) fn cases(stage: &Stage<'_>) -> Vec<Case> {
    let (runtime, span) = (stage.runtime, stage.plan.span);
    let (mut rates, mut bare, mut trips) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..stage.plan.rounds {
        // A store of its own, so that no pulse of it falls into the time that is looked at.
        let schema = format!("replays{round}");
        let store = Arc::new(stage.store(&schema));
        runtime.block_on(fill(&store, KEYS));
        let addresses: Vec<_> = (0..KEYS).map(address).collect();
        let then = stage.postgres.ask("SELECT clock_timestamp()");
        let started = Instant::now();
        let count = from_memory(&store, &addresses);
        rates.push(float(count) / started.elapsed().as_secs_f64());
        trips.push(float(asked_since(stage, &then)) / float(count.max(1)));
        let addresses = Arc::new(addresses);
        let next = Arc::new(AtomicU64::new(0));
        bare.push(rate(runtime, span, |_| {
            let (store, next) = (Arc::clone(&store), Arc::clone(&next));
            let addresses = Arc::clone(&addresses);
            Box::new(move || {
                let (store, n) = (Arc::clone(&store), next.fetch_add(1, Ordering::Relaxed));
                let address = Arc::clone(&addresses[usize::try_from(n % KEYS).expect("small")]);
                async move {
                    let found = store.read(address.slot()).await.expect("answered");
                    assert!(found.value.is_some(), "it was completed");
                }
            })
        }));
        drop(store);
        stage.forget(&schema);
    }
    say(&format!("replays: {:.0}/s; {trips:?} round trips each", median(&mut rates.clone())));
    let name = format!("PostgreSQL, replays from memory; beside {TASKS} tasks that read");
    vec![
        Case::new(name, "/s", &mut rates, &mut bare, Bar::None),
        Case::alone("PostgreSQL, round trips a replay", "", &mut trips, Bar::Exactly(0.0)),
    ]
}
