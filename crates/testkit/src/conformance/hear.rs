//! Asks a store and insists on the kind of reply; a suite of sentences needs few other words.
//!
//! A healthy store never says unknown, so here that is a failure of the store. Nothing is retried.

use std::sync::Arc;

use onetake_core::{Draft, Record, Slot, Version};
use onetake_engine::{
    Commit, Found, Journal, Page, Place, Position, Slots, Stamped, StoreError, Swap, Tx,
};

/// What `slot` holds.
pub async fn there<S: Slots>(store: &S, slot: &Slot) -> Option<Arc<Record>> {
    let read = store.read(slot).await.expect("a healthy store reads").value;
    if let Some(at_hand) = store.at_hand(slot) {
        assert_eq!(Some(at_hand.value), read, "what is at hand is as true as a read");
    }
    read
}

/// Swaps, and wins.
pub async fn won<S: Slots>(store: &S, expected: Option<Version>, next: Draft) -> Arc<Record> {
    won_at(store, expected, next).await.value
}

/// Swaps, and wins; with the time of the reply.
pub async fn won_at<S: Slots>(
    store: &S,
    expected: Option<Version>,
    next: Draft,
) -> Stamped<Arc<Record>> {
    let Stamped { now, value } = store.swap(expected, next).await.expect("a healthy store swaps");
    Stamped { now, value: victory(value) }
}

/// Swaps, and loses; gives what is there.
pub async fn lost<S: Slots>(
    store: &S,
    expected: Option<Version>,
    next: Draft,
) -> Option<Arc<Record>> {
    defeat(store.swap(expected, next).await.expect("a healthy store swaps").value)
}

/// The record of a swap that was won.
#[must_use]
pub fn victory(swap: Swap) -> Arc<Record> {
    match swap {
        Swap::Won(record) => record,
        Swap::Lost(there) => panic!("lost to {there:?}"),
        Swap::Unknown => panic!("a healthy store knows what it wrote"),
    }
}

/// What is there instead, after a swap that was lost.
#[must_use]
pub fn defeat(swap: Swap) -> Option<Arc<Record>> {
    match swap {
        Swap::Lost(there) => there,
        Swap::Won(record) => panic!("won {record:?}"),
        Swap::Unknown => panic!("a healthy store knows what it wrote"),
    }
}

/// Commits; gives the positions of the appends.
pub async fn committed<S: Journal>(store: &S, tx: Tx) -> Vec<Position> {
    match store.commit(tx).await.expect("a healthy store commits").value {
        Commit::Committed { positions } => positions,
        other @ (Commit::Repeated | Commit::Conflict { .. } | Commit::Unknown) => {
            panic!("not committed: {other:?}")
        }
    }
}

/// Commits, and is told that an earlier copy is written.
pub async fn repeated<S: Journal>(store: &S, tx: Tx) {
    let commit = store.commit(tx).await.expect("a healthy store commits").value;
    assert_eq!(commit, Commit::Repeated);
}

/// Commits in vain; gives which check did not hold, and what is there instead.
pub async fn conflict<S: Journal>(store: &S, tx: Tx) -> (usize, Found) {
    match store.commit(tx).await.expect("a healthy store commits").value {
        Commit::Conflict { check, current } => (check, current),
        other @ (Commit::Committed { .. } | Commit::Repeated | Commit::Unknown) => {
            panic!("no conflict: {other:?}")
        }
    }
}

/// Commits, and is told that it is too large.
pub async fn too_large<S: Journal>(store: &S, tx: Tx) {
    let reply = store.commit(tx).await;
    assert!(matches!(reply, Err(StoreError::TooLarge(_))), "too large, but: {reply:?}");
}

/// What one place holds.
pub async fn found<S: Journal>(store: &S, place: Place) -> Found {
    let mut found = store.fetch(&[place]).await.expect("a healthy store reads").value;
    assert_eq!(found.len(), 1, "one answer for one place");
    found.swap_remove(0)
}

/// The items of a page that must be the last.
#[must_use]
pub fn all_of<T>(page: Page<T>) -> Vec<T> {
    assert!(!page.more, "there is more behind this page");
    page.items
}
