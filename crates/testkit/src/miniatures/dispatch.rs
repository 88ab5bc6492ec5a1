//! A miniature ordered dispatch: one lane, one cursor, one delivery in flight, dead letters.
//!
//! A worker claims the lane by a document that holds its fence and its lease. Only the head is ever
//! handed out; every way forward moves the head in the same commit. Nothing is sent here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use onetake_core::{Timestamp, Version};
use onetake_engine::{
    Commit, Cursor, Doc, Document, Found, Journal, Lane, Mint, Place, Position, StoreError, Tx,
    Write,
};
use tokio::task::JoinSet;

use crate::conformance::hear::{all_of, committed, found};
use crate::make::{BRIEF, LONG, tx};
use crate::{Rig, Shared};

/// Attempts before an event is dead.
const ATTEMPTS_MAX: u32 = 3;

/// One event in the hands of a worker. The version of the lane's document is its fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Where it stands.
    pub position: Position,
    /// What is to be delivered.
    pub value: Bytes,
    /// Which attempt this is, counted from 1.
    pub attempt: u32,
    fence: Version,
}

/// What the lane's document says: until when somebody has the head, and how often it was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Held {
    until: Timestamp,
    attempt: u32,
}

impl Held {
    fn to_bytes(self) -> Bytes {
        let mut bytes = self.until.as_millis().to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.attempt.to_be_bytes());
        bytes.into()
    }

    fn of(document: Option<&Document>) -> Self {
        let Some(Document { value, .. }) = document else { return Self::default() };
        let (until, attempt) = value.split_at(8);
        Self {
            until: Timestamp::from_millis(u64::from_be_bytes(until.try_into().unwrap())),
            attempt: u32::from_be_bytes(attempt.try_into().unwrap()),
        }
    }
}

/// The workers' view of all lanes.
#[derive(Debug)]
pub struct Dispatch<S> {
    store: S,
    mint: Mint,
}

impl<S: Journal> Dispatch<S> {
    /// Takes the head of a lane for `lease`, unless somebody has it or there is none.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn take(
        &self,
        lane: &'static str,
        lease: Duration,
    ) -> Result<Option<Delivery>, StoreError> {
        let places = [Place::Doc(held(lane)), Place::Cursor(cursor(lane))];
        let fetched = self.store.fetch(&places).await?;
        let [Found::Doc(seen), Found::Cursor(at)] = &fetched.value[..] else {
            return Err(StoreError::Corrupt("asked for one thing, got another".into()));
        };
        let before = Held::of(seen.as_ref());
        if before.until > fetched.now {
            return Ok(None);
        }
        let head = self.store.read_lane(&Lane(lane.into()), *at, 1).await?.value.items.pop();
        let Some(head) = head else { return Ok(None) };
        let now_held = Held { until: fetched.now.after(lease), attempt: before.attempt + 1 };
        let expected = seen.as_ref().map(|document| document.version);
        let tx = Tx::on_doc(self.mint.id(), held(lane), expected, now_held.to_bytes());
        let fence = tx.version();
        let taken = self.written(tx).await?;
        let (position, value, attempt) = (head.position, head.value, now_held.attempt);
        Ok(taken.then_some(Delivery { position, value, attempt, fence }))
    }

    /// Acknowledges: the next event becomes the head. `false` when the lane is another's by now.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn ack(&self, lane: &'static str, of: &Delivery) -> Result<bool, StoreError> {
        let tx = self.let_go(lane, of, 0);
        self.written(tx.write(Write::Advance(cursor(lane), of.position))).await
    }

    /// Reports a failed delivery: it comes again, or it is dead and the next becomes the head.
    /// `false` when the lane is another's by now.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn fail(&self, lane: &'static str, of: &Delivery) -> Result<bool, StoreError> {
        if of.attempt < ATTEMPTS_MAX {
            return self.written(self.let_go(lane, of, of.attempt)).await;
        }
        let dead = self
            .let_go(lane, of, 0)
            .write(Write::Append(dead_letters(lane), of.value.clone()))
            .write(Write::Advance(cursor(lane), of.position));
        self.written(dead).await
    }

    fn let_go(&self, lane: &'static str, of: &Delivery, attempt: u32) -> Tx {
        let free = Held { until: Timestamp::ZERO, attempt };
        Tx::on_doc(self.mint.id(), held(lane), Some(of.fence), free.to_bytes())
    }

    async fn written(&self, tx: Tx) -> Result<bool, StoreError> {
        let commit = self.store.commit(tx).await?.value;
        Ok(matches!(commit, Commit::Committed { .. } | Commit::Repeated))
    }
}

fn held(lane: &'static str) -> Doc {
    Doc { space: "lanes", key: lane.into() }
}

fn cursor(lane: &'static str) -> Cursor {
    Cursor(lane.into())
}

fn dead_letters(lane: &'static str) -> Lane {
    Lane(Bytes::from(format!("dead/{lane}")))
}

async fn dispatch<R: Rig<Store: Journal>>(
    rig: &R,
    events: u64,
) -> (Dispatch<Shared<R::Store>>, Shared<R::Store>) {
    let store = Shared::new(rig.open().await);
    for (lane, offset) in [("w1", 0), ("w2", 1_000)] {
        for n in 1..=events {
            let event = Write::Append(Lane(lane.into()), n.to_string().into());
            committed(&store, tx(u128::from(offset + n)).write(event)).await;
        }
    }
    (Dispatch { store: store.clone(), mint: Mint::seeded(1) }, store)
}

async fn stands<S: Journal>(store: &S, lane: &'static str) -> (u64, usize) {
    let Found::Cursor(at) = found(store, Place::Cursor(cursor(lane))).await else { panic!() };
    let dead = store.read_lane(&dead_letters(lane), Position(0), 100).await.unwrap().value;
    (at.0, all_of(dead).len())
}

/// P6: the next event waits until the previous is acknowledged.
pub async fn p6_only_the_head_is_handed_out_and_only_once<R: Rig<Store: Journal>>(rig: &R) {
    let (worker, store) = dispatch(rig, 2).await;
    let first = worker.take("w1", LONG).await.unwrap().expect("there is a head");
    assert_eq!((first.position, first.attempt), (Position(1), 1));
    assert_eq!(worker.take("w1", LONG).await, Ok(None), "it is in flight");
    assert_eq!(worker.ack("w1", &first).await, Ok(true));
    let second = worker.take("w1", LONG).await.unwrap().expect("the next is the head");
    assert_eq!((second.position, second.attempt), (Position(2), 1));
    assert_eq!(worker.ack("w1", &first).await, Ok(false), "an ack that comes twice");
    assert_eq!(worker.ack("w1", &second).await, Ok(true));
    assert_eq!(worker.take("w1", LONG).await, Ok(None), "the lane is done");
    assert_eq!(stands(&store, "w1").await, (2, 0));
}

/// P6, X2: of many workers at once one gets the head.
pub async fn p6_of_many_workers_one_gets_the_head<R: Rig<Store: Journal>>(rig: &R) {
    let (_, store) = dispatch(rig, 1).await;
    let mut workers = JoinSet::new();
    for seed in 10..60 {
        let worker = Dispatch { store: store.clone(), mint: Mint::seeded(seed) };
        workers.spawn(async move { worker.take("w1", LONG).await.unwrap() });
    }
    let taken = workers.join_all().await.into_iter().flatten().count();
    assert_eq!(taken, 1);
}

/// P6: a dead letter and the new head are one commit; there is no moment with neither or both.
pub async fn p6_a_dead_letter_and_the_next_head_are_one_commit<R: Rig<Store: Journal>>(rig: &R) {
    let (worker, store) = dispatch(rig, 2).await;
    let mut last = None;
    for attempt in 1..=ATTEMPTS_MAX {
        let delivery = worker.take("w1", LONG).await.unwrap().expect("it comes again");
        assert_eq!((delivery.position, delivery.attempt), (Position(1), attempt));
        assert_eq!(stands(&store, "w1").await, (0, 0), "neither dead nor done yet");
        let before = store.counts().committed;
        assert_eq!(worker.fail("w1", &delivery).await, Ok(true));
        assert_eq!(store.counts().committed, before + 1);
        last = Some(delivery);
    }
    assert_eq!(stands(&store, "w1").await, (1, 1), "dead, and the head has moved");
    assert_eq!(worker.fail("w1", &last.unwrap()).await, Ok(false), "a report that comes twice");
    assert_eq!(stands(&store, "w1").await, (1, 1));
    let next = worker.take("w1", LONG).await.unwrap().expect("the next is the head");
    assert_eq!((next.position, next.attempt), (Position(2), 1));
}

/// P12, X2: what a crashed worker had comes again; when it wakes, it moves nothing.
pub async fn p12_x2_a_crashed_workers_event_comes_again<R: Rig<Store: Journal>>(rig: &R) {
    let (worker, store) = dispatch(rig, 2).await;
    let stalled = worker.take("w1", BRIEF).await.unwrap().expect("there is a head");
    rig.pass(store.store(), BRIEF).await;
    let again = worker.take("w1", LONG).await.unwrap().expect("it comes again");
    assert_eq!((again.position, again.attempt), (Position(1), 2));
    assert_eq!(worker.ack("w1", &stalled).await, Ok(false));
    assert_eq!(worker.fail("w1", &stalled).await, Ok(false));
    assert_eq!(stands(&store, "w1").await, (0, 0));
    assert_eq!(worker.ack("w1", &again).await, Ok(true));
    assert_eq!(stands(&store, "w1").await, (1, 0));
}

/// P10: one slow warehouse holds up no other.
pub async fn p10_lanes_do_not_wait_for_each_other<R: Rig<Store: Journal>>(rig: &R) {
    let (worker, store) = dispatch(rig, 3).await;
    let slow = worker.take("w1", LONG).await.unwrap();
    assert!(slow.is_some());
    for _ in 0..3 {
        let other = worker.take("w2", LONG).await.unwrap().expect("w2 goes on");
        assert_eq!(worker.ack("w2", &other).await, Ok(true));
    }
    assert_eq!((stands(&store, "w1").await, stands(&store, "w2").await), ((0, 0), (3, 0)));
}

/// P5, P6: workers that succeed and fail as it comes deliver in order, never two at once, and lose
/// nothing.
pub async fn p6_never_two_in_flight_and_nothing_lost<R: Rig<Store: Journal>>(rig: &R) {
    const EVENTS: u64 = 30;
    let (_, store) = dispatch(rig, EVENTS).await;
    let in_flight = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for seed in 10..14 {
        let worker = Dispatch { store: store.clone(), mint: Mint::seeded(seed) };
        let in_flight = Arc::clone(&in_flight);
        workers.spawn(async move {
            while stands(&worker.store, "w1").await.0 < EVENTS {
                tokio::task::yield_now().await;
                let Some(delivery) = worker.take("w1", LONG).await.unwrap() else { continue };
                assert_eq!(in_flight.fetch_add(1, Ordering::SeqCst), 0, "never two in flight");
                tokio::task::yield_now().await;
                in_flight.fetch_sub(1, Ordering::SeqCst);
                // Every third event fails until it is dead.
                let ended = match delivery.position.0 % 3 {
                    0 => worker.fail("w1", &delivery).await,
                    _ => worker.ack("w1", &delivery).await,
                };
                assert_eq!(ended, Ok(true), "nobody else had it");
            }
        });
    }
    assert_eq!(workers.join_all().await.len(), 4);
    assert_eq!(stands(&store, "w1").await, (EVENTS, 10));
    let dead = store.read_lane(&dead_letters("w1"), Position(0), 100).await.unwrap().value;
    let expected = (1..=10).map(|n| Bytes::from((n * 3).to_string()));
    assert!(all_of(dead).into_iter().map(|entry| entry.value).eq(expected), "in order");
}
