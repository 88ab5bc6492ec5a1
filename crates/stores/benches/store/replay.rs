//! Replays: a swap that loses and is told what is there, from memory and from the disk.
//!
//! In the first case the disk must not be asked at all. In the second nearly every answer is on the
//! disk, behind a memory that is far too small.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onetake_core::{Address, Draft};
use onetake_engine::{Memory, Slots, Swap};
use onetake_stores::{Embedded, FrontLimits, Options};
use tokio::runtime::{Builder, Runtime};

use crate::load::{DAY, address, chosen, claim, done, fill};
use crate::report::{Bar, Case, median};
use crate::{Plan, WORKERS, float, folder, runtime, say};

/// As many as surely stay in memory.
const HOT_KEYS: u64 = 5_000;
const TIMED_CALLS: u64 = 50_000;

fn lost(swap: &Swap) {
    match swap {
        Swap::Lost(Some(_)) => {}
        Swap::Lost(None) | Swap::Won(_) | Swap::Unknown => panic!("a replay found nothing"),
    }
}

async fn replay(store: &impl Slots, draft: Draft) {
    lost(&store.swap(None, draft).await.expect("answered").value);
}

/// The median of single calls, in microseconds.
fn p50(runtime: &Runtime, store: &impl Slots, addresses: &[Arc<Address>]) -> f64 {
    runtime.block_on(async {
        let mut times = Vec::new();
        for n in (0..HOT_KEYS).cycle().take(usize::try_from(TIMED_CALLS).expect("small")) {
            let draft = claim(n, Arc::clone(&addresses[usize::try_from(n).expect("small")]));
            let started = Instant::now();
            replay(store, draft).await;
            times.push(started.elapsed().as_secs_f64() * 1e6);
        }
        median(&mut times)
    })
}

/// Replays a second on as many threads as there are workers; `draft` makes what the nth one wants.
fn rate<S: Slots + Sync>(store: &S, span: Duration, draft: impl Fn(u64) -> Draft + Sync) -> f64 {
    let started = Instant::now();
    let calls: u64 = std::thread::scope(|scope| {
        let work = |worker: u64| {
            let draft = &draft;
            scope.spawn(move || {
                let runtime = Builder::new_current_thread().build().expect("a runtime");
                runtime.block_on(async {
                    let mut calls = 0;
                    while started.elapsed() < span {
                        for _ in 0..100 {
                            replay(store, draft((worker << 40) + calls)).await;
                            calls += 1;
                        }
                    }
                    calls
                })
            })
        };
        let workers: Vec<_> = (0..WORKERS as u64).map(work).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    });
    float(calls) / started.elapsed().as_secs_f64()
}

/// Replays of what is in memory, beside the memory store.
pub(crate) fn hot(plan: &Plan) -> Vec<Case> {
    let (runtime, folder) = (runtime(), folder());
    let store = Embedded::open(folder.path()).expect("an empty folder");
    fill(&runtime, &store, 0, HOT_KEYS, DAY);
    let addresses: Vec<_> = (0..HOT_KEYS).map(address).collect();
    let memory = Memory::new();
    runtime.block_on(async {
        for (n, address) in (0..).zip(&addresses) {
            let swap = memory.swap(None, done(n, Arc::clone(address), DAY)).await;
            assert!(matches!(swap.expect("stored").value, Swap::Won(_)));
        }
    });
    let draft = |n: u64| {
        let n = n % HOT_KEYS;
        claim(n, Arc::clone(&addresses[usize::try_from(n).expect("small")]))
    };
    let before = store.loads();
    let (mut times, mut bare_times, mut rates, mut bare) = (vec![], vec![], vec![], vec![]);
    for _ in 0..plan.rounds {
        times.push(p50(&runtime, &store, &addresses));
        bare_times.push(p50(&runtime, &memory, &addresses));
        rates.push(rate(&store, plan.span / 2, draft));
        bare.push(rate(&memory, plan.span / 2, draft));
    }
    let loads = float(store.loads() - before);
    say(&format!("hot replay: {:.0}/s, {loads} loads", median(&mut rates.clone())));
    let beside = "beside the memory store";
    vec![
        Case::new(
            format!("hot replay, p50; {beside}"),
            "us",
            &mut times,
            &mut bare_times,
            Bar::None,
        ),
        Case::new(
            format!("hot replay, two threads; {beside}"),
            "/s",
            &mut rates,
            &mut bare,
            Bar::None,
        ),
        Case::alone("hot replays that asked the disk", "", &mut [loads], Bar::AtMost(0.0)),
    ]
}

/// Replays of the operations below `records` in the store in `folder`, nearly all from the disk.
pub(crate) fn cold(plan: &Plan, folder: &Path, records: u64) -> Case {
    let front = FrontLimits { records_max: 64, ..FrontLimits::default() };
    let options = Options { front, ..Options::default() };
    let store = Embedded::open_with(folder, options).expect("a store");
    let draft = |n: u64| {
        let n = chosen(n, records);
        claim(n, address(n))
    };
    let mut rates: Vec<_> = (0..plan.rounds).map(|_| rate(&store, plan.span, draft)).collect();
    say(&format!("cold replay on {records} records: {:.0}/s", median(&mut rates.clone())));
    let name = format!("cold replay, {records} records, two threads");
    Case::alone(name, "/s", &mut rates, Bar::AtLeast(100_000.0))
}
