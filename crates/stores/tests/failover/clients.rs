//! Clients of a store: they repeat what is unknown until it is known, as the engine does, and note
//! what was acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onetake_core::{Draft, Outcome, Phase, Version};
use onetake_engine::{Answer, Engine, Slots, Stamped, Swap};
use onetake_stores::Postgres;
use onetake_testkit::make::{LONG, Pen, ask, version};

/// The number of a completion is that of its claim and this.
const DONE: u128 = 1 << 64;

/// Before something unknown is repeated.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

/// What was acknowledged: a key, and the claim that has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledged {
    pub(crate) key: u64,
    claim: u128,
    is_done: bool,
}

pub(crate) fn pen(key: u64) -> Pen {
    Pen::new(&format!("order-{key}"))
}

/// Repeats a swap until the store can say what became of it. `None` when it does not matter any
/// more.
pub(crate) async fn known(
    store: &Postgres,
    expected: Option<Version>,
    next: Draft,
    over: &AtomicBool,
) -> Option<bool> {
    while !over.load(Ordering::SeqCst) {
        match store.swap(expected, next.clone()).await {
            Ok(Stamped { value: Swap::Won(_), .. }) => return Some(true),
            Ok(Stamped { value: Swap::Lost(_), .. }) => return Some(false),
            Ok(Stamped { value: Swap::Unknown, .. }) | Err(_) => {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        }
    }
    None
}

/// Two processes that fight for every key, and what they were told.
pub(crate) struct Rivals {
    stores: [Arc<Postgres>; 2],
    next: AtomicU64,
    /// How many keys were claimed and completed.
    pub(crate) finished: AtomicU64,
    pub(crate) over: AtomicBool,
}

impl Rivals {
    pub(crate) fn new(one: Postgres, other: Postgres) -> Self {
        let (next, finished, over) = Default::default();
        Self { stores: [Arc::new(one), Arc::new(other)], next, finished, over }
    }

    /// Claims and completes one key after the other, and gives what was acknowledged.
    pub(crate) async fn work(&self) -> Vec<Acknowledged> {
        let mut acknowledged = Vec::new();
        while let Some(one) = self.one().await {
            acknowledged.push(one);
            self.finished.fetch_add(u64::from(one.is_done), Ordering::SeqCst);
        }
        acknowledged
    }

    async fn one(&self) -> Option<Acknowledged> {
        let key = self.next.fetch_add(1, Ordering::SeqCst);
        let (pen, first) = (pen(key), u128::from(key) * 2 + 1);
        let claims = [first, first + 1];
        let rival =
            |at: usize| known(&self.stores[at], None, pen.claim(claims[at], LONG), &self.over);
        let won = tokio::join!(rival(0), rival(1));
        let (Some(mine), Some(theirs)) = won else { return None };
        assert!(mine ^ theirs, "key {key} has {} owners", u8::from(mine) + u8::from(theirs));
        let (claim, winner) = if mine { (first, 0) } else { (first + 1, 1) };
        let done = pen.done(claim | DONE, claim, LONG);
        let expected = Some(version(claim));
        let completed = known(&self.stores[winner], expected, done, &self.over).await;
        assert_ne!(completed, Some(false), "key {key} was taken from its owner");
        Some(Acknowledged { key, claim, is_done: completed.is_some() })
    }
}

/// Whether what was acknowledged is there as it was, and whether a retry hears it.
pub(crate) async fn replays(engine: &Engine<Postgres>, acknowledged: Acknowledged) -> bool {
    let Acknowledged { key, claim, is_done } = acknowledged;
    let pen = pen(key);
    let there = engine.store().read(pen.slot()).await.unwrap().value;
    let Some(there) = there else { return false };
    if !is_done {
        return there.fence.0 == claim;
    }
    if there.version != version(claim | DONE) || !matches!(there.phase, Phase::Done { .. }) {
        return false;
    }
    let never = |_| async { unreachable!("it has happened") };
    let answer = engine.run(ask(pen.address(), "body"), never).await.unwrap();
    let wanted = Outcome::Value(format!("outcome {}", claim | DONE).into());
    matches!(answer, Answer::Replayed { outcome, .. } if *outcome == wanted)
}
