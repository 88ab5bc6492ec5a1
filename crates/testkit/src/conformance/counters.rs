//! Counters: exact sums from many tasks, and a floor that holds.
//!
//! `Add` exists so that a hot counter does not turn into one winner for each sync; the cases count
//! only what must be true of every store, not how fast it is.

use std::sync::Arc;

use onetake_engine::{Check, Commit, Found, Journal, Place, Write};
use tokio::task::JoinSet;

use super::hear::{committed, found};
use crate::Rig;
use crate::make::{counter, tx};

async fn value<S: Journal>(store: &S, name: &'static str) -> i64 {
    let Found::Counter(value) = found(store, Place::Counter(counter(name))).await else {
        panic!("asked for a counter, got another thing")
    };
    value
}

/// Down to zero and below, and up again.
pub async fn counters_add_and_subtract<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    assert_eq!(value(&store, "c").await, 0);
    for (id, (delta, sum)) in (1..).zip([(5, 5), (-5, 0), (-3, -3), (0, -3), (10, 7)]) {
        committed(&store, tx(id).write(Write::Add(counter("c"), delta))).await;
        assert_eq!(value(&store, "c").await, sum);
    }
    let twice = tx(9).write(Write::Add(counter("c"), 1)).write(Write::Add(counter("c"), 2));
    committed(&store, twice).await;
    assert_eq!(value(&store, "c").await, 10, "each of two additions counts");
}

/// Counters wrap nowhere.
pub async fn counters_stop_at_their_ends<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    for id in [1, 2] {
        committed(&store, tx(id).write(Write::Add(counter("up"), i64::MAX))).await;
        committed(&store, tx(id + 2).write(Write::Add(counter("down"), i64::MIN))).await;
    }
    assert_eq!(value(&store, "up").await, i64::MAX);
    assert_eq!(value(&store, "down").await, i64::MIN);
}

/// No addition is lost, none conflicts with another.
pub async fn additions_from_many_tasks_sum_exactly<R: Rig<Store: Journal>>(rig: &R) {
    let store = Arc::new(rig.open().await);
    let mut tasks = JoinSet::new();
    for task in 0..16_u128 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            for n in 0..50 {
                let delta = i64::try_from(task).unwrap() - 7;
                committed(&*store, tx(task * 1_000 + n).write(Write::Add(counter("c"), delta)))
                    .await;
            }
        });
    }
    assert_eq!(tasks.join_all().await.len(), 16);
    assert_eq!(value(&*store, "c").await, 50 * (0..16).map(|task| task - 7).sum::<i64>());
}

/// Fifty want one of twenty: twenty get one, and nobody ever sees less than nothing.
pub async fn a_floor_holds_under_concurrency<R: Rig<Store: Journal>>(rig: &R) {
    let store = Arc::new(rig.open().await);
    committed(&*store, tx(1).write(Write::Add(counter("stock"), 20))).await;
    let mut buyers = JoinSet::new();
    for id in 100..150 {
        let store = Arc::clone(&store);
        buyers.spawn(async move {
            let take = tx(id)
                .check(Check::AtLeast(counter("stock"), 1))
                .write(Write::Add(counter("stock"), -1));
            let commit = store.commit(take).await.unwrap().value;
            assert!(value(&*store, "stock").await >= 0, "never below the floor");
            commit
        });
    }
    let (mut served, mut refused) = (0, 0);
    for commit in buyers.join_all().await {
        match commit {
            Commit::Committed { .. } => served += 1,
            Commit::Conflict { check: 1, current: Found::Counter(0) } => refused += 1,
            other @ (Commit::Conflict { .. } | Commit::Repeated | Commit::Unknown) => {
                panic!("neither served nor sold out: {other:?}")
            }
        }
    }
    assert_eq!((served, refused), (20, 30));
    assert_eq!(value(&*store, "stock").await, 0);
}
