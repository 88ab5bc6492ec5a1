//! A miniature step of a workflow run: state, event, outbox and the completion of its request in
//! one commit.
//!
//! The request was claimed before, for the step had an effect elsewhere. Finishing it never waits
//! and never leaves a part of itself behind, whoever crashes or comes twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onetake_core::{Ask, Keeping, OnUnknown, Outcome, Policy, Record, Settlement};
use onetake_engine::{
    Answer, Check, Claim, Commit, Doc, Document, Effects, Engine, Found, Journal, Lane, Mint, Page,
    Place, Position, RunError, StoreError, Tried, Tx, Write,
};
use tokio::task::JoinSet;

use super::engine;
use crate::conformance::hear::{all_of, found};
use crate::make::{address_of, ask_under};
use crate::{Rig, Shared};

/// How often a step looks again because its lease was renewed or another step came first.
const ROUNDS_MAX: usize = 64;

/// What became of finishing a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// It is written.
    Written,
    /// It was written before, by this very claim.
    Again,
    /// The claim is no longer ours, so nothing is written.
    Fenced,
}

/// Runs on one store.
#[derive(Debug)]
pub struct Runs<S> {
    engine: Engine<S>,
    mint: Mint,
}

impl<S: Journal> Runs<S> {
    /// Creates a run: its document, its first event, and the record of the request.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn start(&self, ask: Ask, run: &'static str) -> Result<Answer, RunError> {
        let transaction = self.engine.transact(ask, |_| {
            Ok(Effects::new(Outcome::Value(run.into()))
                .put(state(run), "started")
                .write(Write::Append(events(run), "run.started".into())))
        });
        transaction.await
    }

    /// Finishes the step that `claim` executed.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn finish(
        &self,
        claim: &Claim,
        policy: &Policy,
        run: &'static str,
        event: &'static str,
    ) -> Result<Finished, StoreError> {
        let store = self.engine.store();
        let places = [Place::Slot(claim.address.slot().clone()), Place::Doc(state(run))];
        for _ in 0..ROUNDS_MAX {
            let (ours, seen) = match &store.fetch(&places).await?.value[..] {
                [Found::Slot(Some(record)), Found::Doc(seen)] if record.fence == claim.fence => {
                    (Arc::clone(record), seen.clone())
                }
                _ => return Ok(Finished::Fenced),
            };
            if !ours.is_open() {
                return Ok(Finished::Again);
            }
            let step = self.step(&ours, seen.as_ref(), policy, run, event);
            match commit_known(store, step).await? {
                Commit::Committed { .. } | Commit::Repeated => {
                    self.engine.nudge(claim.address.slot());
                    return Ok(Finished::Written);
                }
                Commit::Conflict { .. } | Commit::Unknown => {}
            }
        }
        Err(StoreError::Unavailable("too many rivals".into()))
    }

    fn step(
        &self,
        ours: &Record,
        seen: Option<&Document>,
        policy: &Policy,
        run: &'static str,
        event: &'static str,
    ) -> Tx {
        let (outcome, keeping) = (Arc::new(Outcome::Value(event.into())), Keeping::Final);
        let done = Settlement::Done { outcome, keeping }.draft(ours, policy, self.mint.id());
        Tx::on_slot(Some(ours.version), done)
            .check(Check::Doc(state(run), seen.map(|document| document.version)))
            .write(Write::Put(state(run), event.into()))
            .write(Write::Append(events(run), event.into()))
            .write(Write::Append(outbox(), event.into()))
    }
}

/// Repeats one commit until the store can say whether it is written.
async fn commit_known<S: Journal>(store: &S, tx: Tx) -> Result<Commit, StoreError> {
    for _ in 0..ROUNDS_MAX {
        match store.commit(tx.clone()).await?.value {
            Commit::Unknown => {}
            known @ (Commit::Committed { .. } | Commit::Repeated | Commit::Conflict { .. }) => {
                return Ok(known);
            }
        }
    }
    Ok(Commit::Unknown)
}

fn state(run: &'static str) -> Doc {
    Doc { space: "runs", key: run.into() }
}

fn events(run: &'static str) -> Lane {
    Lane(Bytes::from(format!("events/{run}")))
}

fn outbox() -> Lane {
    Lane("outbox".into())
}

const LEASE: Duration = Duration::from_millis(100);

fn request(key: &str) -> Ask {
    let policy = Policy::builder().lease(LEASE).on_unknown(OnUnknown::Retry).build().unwrap();
    ask_under(&address_of("acme", "runs.step", key), "body", policy)
}

async fn claim<S: Journal>(runs: &Runs<S>, ask: &Ask) -> Claim {
    match runs.engine.try_claim(ask).await.unwrap() {
        Tried::Claimed(claim) => claim,
        Tried::Answered(answer) => panic!("not claimed: {answer:?}"),
    }
}

async fn runs<R: Rig<Store: Journal>>(rig: &R) -> (Runs<Shared<R::Store>>, Shared<R::Store>) {
    let store = Shared::new(rig.open().await);
    (process(&store, 1), store)
}

fn process<S: Journal>(store: &Shared<S>, seed: u64) -> Runs<Shared<S>> {
    Runs { engine: engine(store, seed), mint: Mint::seeded(seed + 100) }
}

async fn lengths<S: Journal>(store: &S, run: &'static str) -> (usize, usize) {
    let length = |page: Page<_>| all_of::<onetake_engine::Entry>(page).len();
    let events = store.read_lane(&events(run), Position(0), 100).await.unwrap().value;
    let outbox = store.read_lane(&outbox(), Position(0), 100).await.unwrap().value;
    (length(events), length(outbox))
}

async fn stands_at<S: Journal>(store: &S, run: &'static str) -> Option<Bytes> {
    match found(store, Place::Doc(state(run))).await {
        Found::Doc(document) => document.map(|document| document.value),
        other @ (Found::Slot(_) | Found::Counter(_) | Found::Cursor(_)) => panic!("{other:?}"),
    }
}

/// W19: the run, `run.started` and the answer of the request are one commit; a retry creates
/// nothing.
pub async fn w19_a_run_is_created_once_with_its_first_event<R: Rig<Store: Journal>>(rig: &R) {
    let (runs, store) = runs(rig).await;
    let first = runs.start(request("create"), "r1").await.unwrap();
    assert!(matches!(first, Answer::Executed { .. }), "{first:?}");
    let again = runs.start(request("create"), "r2").await.unwrap();
    assert!(matches!(&again, Answer::Replayed { outcome, .. } if super::text(outcome) == "r1"));
    assert_eq!(lengths(&store, "r1").await, (1, 0));
    assert_eq!((lengths(&store, "r2").await, stands_at(&store, "r2").await), ((0, 0), None));
    assert_eq!(store.counts().committed, 1);
}

/// X8: a finished step shows in the state, the events, the outbox and the record, all at once.
pub async fn x8_state_event_outbox_and_completion_are_one_commit<R: Rig<Store: Journal>>(rig: &R) {
    let (runs, store) = runs(rig).await;
    let ask = request("k");
    let claim = claim(&runs, &ask).await;
    assert_eq!((lengths(&store, "r").await, stands_at(&store, "r").await), ((0, 0), None));
    runs.engine.renew_claim(&ask.address, claim.fence, &ask.policy).await.unwrap();
    let finished = runs.finish(&claim, &ask.policy, "r", "charged").await;
    assert_eq!(finished, Ok(Finished::Written), "also after a heartbeat");
    assert_eq!(store.counts().committed, 1, "one commit");
    assert_eq!(lengths(&store, "r").await, (1, 1));
    assert_eq!(stands_at(&store, "r").await, Some("charged".into()));
    let replay = runs.engine.try_claim(&ask).await.unwrap();
    assert!(matches!(replay, Tried::Answered(Answer::Replayed { .. })), "{replay:?}");
}

/// X8: the process died after the commit and before it could say so.
pub async fn x8_a_step_that_is_finished_twice_is_written_once<R: Rig<Store: Journal>>(rig: &R) {
    let (runs, store) = runs(rig).await;
    let ask = request("k");
    let claim = claim(&runs, &ask).await;
    let first = runs.finish(&claim, &ask.policy, "r", "charged").await;
    assert_eq!(first, Ok(Finished::Written));
    let reborn = process(&store, 2);
    let second = reborn.finish(&claim, &ask.policy, "r", "charged").await;
    assert_eq!(second, Ok(Finished::Again));
    assert_eq!(lengths(&store, "r").await, (1, 1));
}

/// X8: many finish the same claim at once; it is written once.
pub async fn x8_of_concurrent_finishers_one_writes<R: Rig<Store: Journal>>(rig: &R) {
    let (runs, store) = runs(rig).await;
    let ask = request("k");
    let claim = claim(&runs, &ask).await;
    let mut finishers = JoinSet::new();
    for seed in 10..30 {
        let (runs, ask, claim) = (process(&store, seed), ask.clone(), claim.clone());
        finishers.spawn(async move { runs.finish(&claim, &ask.policy, "r", "e").await.unwrap() });
    }
    let heard = finishers.join_all().await;
    assert_eq!(heard.iter().filter(|ended| **ended == Finished::Written).count(), 1, "{heard:?}");
    assert!(!heard.contains(&Finished::Fenced));
    assert_eq!(lengths(&store, "r").await, (1, 1));
}

/// X1, X3: the process died before the commit. Nothing shows; the next attempt is told that it is a
/// recovery, and finishes.
pub async fn x3_a_step_that_crashed_before_its_commit_is_recovered<R: Rig<Store: Journal>>(
    rig: &R,
) {
    let (runs, store) = runs(rig).await;
    let ask = request("k");
    assert!(!claim(&runs, &ask).await.recovery);
    rig.pass(store.store(), LEASE).await;
    let reborn = process(&store, 2);
    let second = claim(&reborn, &ask).await;
    assert!(second.recovery, "the first may have had its effect");
    assert_eq!(lengths(&store, "r").await, (0, 0));
    let finished = reborn.finish(&second, &ask.policy, "r", "charged").await;
    assert_eq!(finished, Ok(Finished::Written));
    assert_eq!(lengths(&store, "r").await, (1, 1));
}

/// X2: a stalled process that wakes after the takeover writes no state, no event and no outbox
/// entry.
pub async fn x2_a_step_that_lost_its_claim_writes_nothing<R: Rig<Store: Journal>>(rig: &R) {
    let (stalled, store) = runs(rig).await;
    let ask = request("k");
    let old = claim(&stalled, &ask).await;
    rig.pass(store.store(), LEASE).await;
    let successor = process(&store, 2);
    let new = claim(&successor, &ask).await;
    let woken = stalled.finish(&old, &ask.policy, "r", "late").await;
    assert_eq!(woken, Ok(Finished::Fenced));
    assert_eq!((lengths(&store, "r").await, stands_at(&store, "r").await), ((0, 0), None));
    let finished = successor.finish(&new, &ask.policy, "r", "charged").await;
    assert_eq!(finished, Ok(Finished::Written));
    let woken = stalled.finish(&old, &ask.policy, "r", "late").await;
    assert_eq!(woken, Ok(Finished::Fenced), "nor afterwards");
    assert_eq!(stands_at(&store, "r").await, Some("charged".into()));
}
