//! A miniature stock: many reservations at once on one hot counter.
//!
//! A reservation demands that enough is left and takes it, in the commit of its own record. It
//! never reads a document, so reservations do not conflict with each other while there is enough.

use onetake_core::Outcome;
use onetake_engine::{
    Answer, Check, Counter, Effects, Engine, Found, Journal, Place, RunError, Write,
};
use tokio::task::JoinSet;

use super::{engine, text};
use crate::conformance::hear::{committed, found};
use crate::make::{address_of, ask, tx};
use crate::{Rig, Shared};

/// What a buyer hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// It is theirs, now or since an earlier attempt with the same key.
    Yes,
    /// There is not enough. Not remembered: the same key may try again.
    SoldOut,
}

/// The stock of one article.
#[derive(Debug, Clone)]
pub struct Stock<S>(Engine<S>);

impl<S: Journal> Stock<S> {
    /// Reserves `n` under `key`, once.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn reserve(&self, key: &str, n: i64) -> Result<Reserved, RunError> {
        let ask = ask(&address_of("acme", "stock.reserve", key), n.to_string());
        let answer = self.0.transact(ask, |view| {
            if view.counter(&left())? < n {
                return Ok(Effects::new(Outcome::Failure("sold out".into())));
            }
            Ok(Effects::new(Outcome::Value("reserved".into()))
                .check(Check::AtLeast(left(), n))
                .write(Write::Add(left(), -n)))
        });
        match answer.await? {
            Answer::Executed { outcome, .. }
            | Answer::Replayed { outcome, .. }
            | Answer::Joined { outcome, .. } => Ok(match &text(&outcome)[..] {
                b"reserved" => Reserved::Yes,
                _ => Reserved::SoldOut,
            }),
            other @ (Answer::Freed
            | Answer::Mismatch
            | Answer::InFlight { .. }
            | Answer::StillExecuting { .. }
            | Answer::Unknown { .. }) => panic!("no reservation answers {other:?}"),
        }
    }
}

fn left() -> Counter {
    Counter("stock".into())
}

async fn in_stock<S: Journal>(store: &S) -> i64 {
    match found(store, Place::Counter(left())).await {
        Found::Counter(n) => n,
        other @ (Found::Slot(_) | Found::Doc(_) | Found::Cursor(_)) => panic!("{other:?}"),
    }
}

async fn stocked<R: Rig<Store: Journal>>(rig: &R, n: i64) -> Shared<R::Store> {
    let store = Shared::new(rig.open().await);
    committed(&store, tx(1).write(Write::Add(left(), n))).await;
    store
}

/// So many buyers at once, in two processes; gives how many got one.
async fn buy<S: Journal>(store: &Shared<S>, buyers: usize) -> usize {
    let stocks = [Stock(engine(store, 1)), Stock(engine(store, 2))];
    let mut all = JoinSet::new();
    for n in 0..buyers {
        let (stock, store) = (stocks[n % 2].clone(), store.clone());
        all.spawn(async move {
            let reserved = stock.reserve(&format!("buyer-{n}"), 1).await.unwrap();
            assert!(in_stock(&store).await >= 0, "never below zero");
            reserved
        });
    }
    let heard = all.join_all().await;
    heard.into_iter().filter(|reserved| *reserved == Reserved::Yes).count()
}

/// X8: none is lost, and none gets in another's way: as many commits as reservations.
pub async fn x8_concurrent_reservations_do_not_conflict<R: Rig<Store: Journal>>(rig: &R) {
    let store = stocked(rig, 1_000).await;
    assert_eq!(buy(&store, 200).await, 200);
    assert_eq!(in_stock(&store).await, 800);
    let counts = store.counts();
    assert_eq!((counts.committed, counts.conflicts), (1 + 200, 0), "no conflict storm");
}

/// X8: the last ones are not sold twice, and being too late costs at most one vain commit each.
pub async fn x8_the_last_ones_are_not_sold_twice<R: Rig<Store: Journal>>(rig: &R) {
    let store = stocked(rig, 20).await;
    assert_eq!(buy(&store, 60).await, 20);
    assert_eq!(in_stock(&store).await, 0);
    let counts = store.counts();
    assert_eq!(counts.committed, 1 + 20);
    assert!(counts.conflicts <= 40, "{counts:?}");
}

/// C5: a retry of a reservation takes nothing more; being sold out is not remembered.
pub async fn c5_a_retry_takes_nothing_more<R: Rig<Store: Journal>>(rig: &R) {
    let store = stocked(rig, 3).await;
    let stock = Stock(engine(&store, 1));
    for _ in 0..3 {
        assert_eq!(stock.reserve("a", 2).await, Ok(Reserved::Yes));
        assert_eq!(in_stock(&store).await, 1);
    }
    assert_eq!(stock.reserve("b", 2).await, Ok(Reserved::SoldOut));
    committed(&store, tx(2).write(Write::Add(left(), 1))).await;
    assert_eq!(stock.reserve("b", 2).await, Ok(Reserved::Yes), "after more came in");
    assert_eq!(in_stock(&store).await, 0);
}
