//! A miniature inbox of partner confirmations: two uniques in one commit.
//!
//! The slot is (partner, correlation id), the window is a document. A delivery is accepted once for
//! each of both; it never answers "in flight", and it never changes anything twice.

use std::time::Duration;

use bytes::Bytes;
use onetake_core::{Ask, Outcome, Phase, Policy, Tenant, tenant_prefix};
use onetake_engine::{
    Answer, Counter, Doc, Effects, Engine, Found, Journal, Lane, Place, Position, RunError, Write,
};
use tokio::task::JoinSet;

use super::{engine, text};
use crate::conformance::hear::{all_of, found};
use crate::make::{address_of, ask_under};
use crate::{Rig, Shared};

/// One confirmation as a partner sends it.
#[derive(Debug, Clone)]
pub struct Confirmation {
    /// Who sends it.
    pub partner: &'static str,
    /// The partner's name for this delivery.
    pub correlation: String,
    /// What it confirms; one confirmation for each window.
    pub window: &'static str,
    /// How much was moved.
    pub quantity: i64,
}

/// By what a replay was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The same correlation id.
    Correlation,
    /// Another correlation id for a window that is confirmed already.
    Window,
}

/// What a partner hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// It is taken in.
    Accepted,
    /// It was taken in before; nothing changed.
    Replay {
        /// By what it was recognised.
        deduplicated_by: By,
        /// Whether its content is not what came first: worth a warning.
        differs: bool,
    },
}

/// The inbox.
#[derive(Debug, Clone)]
pub struct Inbox<S>(Engine<S>);

impl<S: Journal> Inbox<S> {
    /// Takes in one confirmation: record, window, stock and outgoing event in one commit.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn confirm(&self, confirmation: &Confirmation) -> Result<Received, RunError> {
        let ask = ask_of(confirmation);
        let window = window_of(confirmation);
        let answer = self.0.transact(ask.clone(), |view| {
            if view.doc(&window)?.is_some() {
                return Ok(Effects::new(Outcome::Value("window".into())));
            }
            Ok(Effects::new(Outcome::Value("accepted".into()))
                .put(window.clone(), confirmation.correlation.clone())
                .write(Write::Add(stock(confirmation.partner), confirmation.quantity))
                .write(Write::Append(outgoing(confirmation.partner), confirmation.window.into())))
        });
        let replay = |said: Bytes, differs| Received::Replay {
            deduplicated_by: if said == "window" { By::Window } else { By::Correlation },
            differs,
        };
        match answer.await? {
            Answer::Executed { outcome, .. } if text(&outcome) == "accepted" => {
                Ok(Received::Accepted)
            }
            Answer::Executed { outcome, .. }
            | Answer::Replayed { outcome, .. }
            | Answer::Joined { outcome, .. } => Ok(replay(text(&outcome), false)),
            // The contract wants a replay here, and a mismatch does not carry the outcome.
            Answer::Mismatch => Ok(replay(self.remembered(&ask).await?, true)),
            other @ (Answer::Freed
            | Answer::InFlight { .. }
            | Answer::StillExecuting { .. }
            | Answer::Unknown { .. }) => panic!("no transaction answers {other:?}"),
        }
    }

    async fn remembered(&self, ask: &Ask) -> Result<Bytes, RunError> {
        let found = self.0.get(&ask.address).await?.expect("a mismatch has a record");
        match &found.value.phase {
            Phase::Done { outcome, .. } => Ok(text(outcome)),
            other @ (Phase::Claimed { .. } | Phase::Released { .. } | Phase::Unknown { .. }) => {
                panic!("a transaction is done or nothing: {other:?}")
            }
        }
    }
}

fn ask_of(confirmation: &Confirmation) -> Ask {
    let thirty_days = Duration::from_secs(30 * 24 * 60 * 60);
    let policy = Policy::builder().retention(thirty_days).build().expect("within bounds");
    let address = address_of(confirmation.partner, "confirm", &confirmation.correlation);
    ask_under(&address, format!("{} {}", confirmation.window, confirmation.quantity), policy)
}

fn of(partner: &str, name: &str) -> Bytes {
    let mut key = tenant_prefix(&Tenant::new(partner).unwrap());
    key.extend_from_slice(name.as_bytes());
    key.into()
}

fn window_of(confirmation: &Confirmation) -> Doc {
    Doc { space: "windows", key: of(confirmation.partner, confirmation.window) }
}

fn stock(partner: &str) -> Counter {
    Counter(of(partner, "stock"))
}

fn outgoing(partner: &str) -> Lane {
    Lane(of(partner, "outgoing"))
}

fn confirmation(correlation: &str, window: &'static str) -> Confirmation {
    Confirmation { partner: "wms-1", correlation: correlation.into(), window, quantity: 5 }
}

const REPLAY: Received = Received::Replay { deduplicated_by: By::Correlation, differs: false };
const BY_WINDOW: Received = Received::Replay { deduplicated_by: By::Window, differs: false };

/// What a partner's deliveries have come to: stock, and events that went out.
async fn books<S: Journal>(store: &S, partner: &str) -> (Found, usize) {
    let stock = found(store, Place::Counter(stock(partner))).await;
    let page = store.read_lane(&outgoing(partner), Position(0), 1_000).await.unwrap().value;
    (stock, all_of(page).len())
}

async fn inbox<R: Rig<Store: Journal>>(rig: &R) -> (Inbox<Shared<R::Store>>, Shared<R::Store>) {
    let store = Shared::new(rig.open().await);
    (Inbox(engine(&store, 1)), store)
}

/// P3: a replay is told so and changes nothing.
pub async fn p3_a_replay_changes_nothing<R: Rig<Store: Journal>>(rig: &R) {
    let (inbox, store) = inbox(rig).await;
    let first = confirmation("c-1", "w-1");
    assert_eq!(inbox.confirm(&first).await, Ok(Received::Accepted));
    for _ in 0..3 {
        assert_eq!(inbox.confirm(&first).await, Ok(REPLAY));
    }
    assert_eq!(books(&store, "wms-1").await, (Found::Counter(5), 1));
    assert_eq!(store.counts().committed, 1, "a replay does not even write");
}

/// P9: another correlation id on a known window is a replay too, and stays one.
pub async fn p9_two_confirmations_of_one_window_are_one<R: Rig<Store: Journal>>(rig: &R) {
    let (inbox, store) = inbox(rig).await;
    assert_eq!(inbox.confirm(&confirmation("c-1", "w-1")).await, Ok(Received::Accepted));
    for _ in 0..2 {
        assert_eq!(inbox.confirm(&confirmation("c-2", "w-1")).await, Ok(BY_WINDOW));
    }
    assert_eq!(inbox.confirm(&confirmation("c-3", "w-2")).await, Ok(Received::Accepted));
    assert_eq!(books(&store, "wms-1").await, (Found::Counter(10), 2));
}

/// P2: neither a correlation id nor a window of one partner means anything for another.
pub async fn p2_partners_do_not_share_ids_or_windows<R: Rig<Store: Journal>>(rig: &R) {
    let (inbox, store) = inbox(rig).await;
    for partner in ["wms-1", "wms-10", "wms"] {
        let theirs = Confirmation { partner, ..confirmation("c-1", "w-1") };
        assert_eq!(inbox.confirm(&theirs).await, Ok(Received::Accepted), "{partner}");
        assert_eq!(books(&store, partner).await, (Found::Counter(5), 1));
    }
}

/// The contract is silent about another payload under the same id: a replay, with a warning.
pub async fn p3_another_payload_under_the_same_id_is_a_replay<R: Rig<Store: Journal>>(rig: &R) {
    let (inbox, store) = inbox(rig).await;
    assert_eq!(inbox.confirm(&confirmation("c-1", "w-1")).await, Ok(Received::Accepted));
    let other = Confirmation { quantity: 99, ..confirmation("c-1", "w-1") };
    let warned = Received::Replay { deduplicated_by: By::Correlation, differs: true };
    assert_eq!(inbox.confirm(&other).await, Ok(warned));
    assert_eq!(books(&store, "wms-1").await, (Found::Counter(5), 1));
}

/// Delivers all at once, through two engines on one store; gives how many were accepted.
async fn deliver<S: Journal>(store: &Shared<S>, all: Vec<Confirmation>) -> usize {
    let mut deliveries = JoinSet::new();
    let engines = [engine(store, 10), engine(store, 11)];
    for (n, confirmation) in all.into_iter().enumerate() {
        let inbox = Inbox(engines[n % 2].clone());
        deliveries.spawn(async move { inbox.confirm(&confirmation).await.unwrap() });
    }
    let heard = deliveries.join_all().await;
    heard.iter().filter(|received| **received == Received::Accepted).count()
}

/// P3: copies of one delivery at once, in two processes.
pub async fn p3_of_concurrent_copies_one_is_accepted<R: Rig<Store: Journal>>(rig: &R) {
    let store = Shared::new(rig.open().await);
    assert_eq!(deliver(&store, vec![confirmation("c-1", "w-1"); 40]).await, 1);
    assert_eq!(books(&store, "wms-1").await, (Found::Counter(5), 1));
}

/// P9: different ids for one window at once, in two processes.
pub async fn p9_of_concurrent_confirmations_of_one_window_one_is_accepted<
    R: Rig<Store: Journal>,
>(
    rig: &R,
) {
    let store = Shared::new(rig.open().await);
    let all = (0..40).map(|n| confirmation(&format!("c-{n}"), "w-1")).collect();
    assert_eq!(deliver(&store, all).await, 1);
    assert_eq!(books(&store, "wms-1").await, (Found::Counter(5), 1));
}
