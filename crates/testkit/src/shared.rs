//! One store in the hands of several: tasks, engines, "processes".
//!
//! A cheap handle that passes every call on and counts commits and conflicts. It never changes a
//! call or a reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onetake_core::{Draft, Record, Slot, Tenant, Version};
use onetake_engine::{
    Commit, Doc, Document, Entry, Found, Journal, Lane, Page, Place, Position, Reply, Slots, Swap,
    Swept, Tx,
};

/// What a shared store was asked to commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Transactions that were written.
    pub committed: u64,
    /// Transactions that found a check that did not hold.
    pub conflicts: u64,
}

/// A handle on one store. Clones share it.
#[derive(Debug)]
pub struct Shared<S>(Arc<Inner<S>>);

#[derive(Debug)]
struct Inner<S> {
    store: S,
    committed: AtomicU64,
    conflicts: AtomicU64,
}

impl<S> Shared<S> {
    /// Shares `store`.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self(Arc::new(Inner { store, committed: AtomicU64::new(0), conflicts: AtomicU64::new(0) }))
    }

    /// The store itself, which a rig wants in order to let time pass.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.0.store
    }

    /// What it was asked to commit so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            committed: self.0.committed.load(Ordering::SeqCst),
            conflicts: self.0.conflicts.load(Ordering::SeqCst),
        }
    }
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Slots> Slots for Shared<S> {
    async fn read(&self, slot: &Slot) -> Reply<Option<Arc<Record>>> {
        self.store().read(slot).await
    }

    async fn swap(&self, expected: Option<Version>, next: Draft) -> Reply<Swap> {
        self.store().swap(expected, next).await
    }

    async fn renew(&self, slot: &Slot, expected: Version, lease: Duration) -> Reply<Swap> {
        self.store().renew(slot, expected, lease).await
    }

    async fn sweep(&self, limit: usize) -> Reply<Swept> {
        self.store().sweep(limit).await
    }
}

impl<S: Journal> Journal for Shared<S> {
    async fn commit(&self, tx: Tx) -> Reply<Commit> {
        let reply = self.store().commit(tx).await;
        match reply.as_ref().map(|stamped| &stamped.value) {
            Ok(Commit::Committed { .. }) => self.0.committed.fetch_add(1, Ordering::SeqCst),
            Ok(Commit::Conflict { .. }) => self.0.conflicts.fetch_add(1, Ordering::SeqCst),
            Ok(Commit::Repeated | Commit::Unknown) | Err(_) => 0,
        };
        reply
    }

    async fn fetch(&self, places: &[Place]) -> Reply<Vec<Found>> {
        self.store().fetch(places).await
    }

    async fn scan(
        &self,
        space: &'static str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Reply<Page<(Doc, Document)>> {
        self.store().scan(space, prefix, after, limit).await
    }

    async fn scan_slots(
        &self,
        tenant: Option<&Tenant>,
        after: Option<&Slot>,
        limit: usize,
    ) -> Reply<Page<Arc<Record>>> {
        self.store().scan_slots(tenant, after, limit).await
    }

    async fn read_lane(&self, lane: &Lane, after: Position, limit: usize) -> Reply<Page<Entry>> {
        self.store().read_lane(lane, after, limit).await
    }
}

#[cfg(test)]
mod tests {
    use onetake_engine::Memory;

    use super::*;
    use crate::make;

    #[tokio::test]
    async fn handles_share_one_store_and_its_counts() {
        let (one, two) = {
            let shared = Shared::new(Memory::new());
            (shared.clone(), shared)
        };
        assert!(matches!(one.commit(make::tx(1)).await.unwrap().value, Commit::Committed { .. }));
        assert_eq!(two.commit(make::tx(1)).await.unwrap().value, Commit::Repeated);
        let rival = Tx::on_doc(2, make::doc("d"), Some(make::version(9)), "v".into());
        assert!(matches!(two.commit(rival).await.unwrap().value, Commit::Conflict { .. }));
        assert_eq!(one.counts(), Counts { committed: 1, conflicts: 1 });
    }
}
