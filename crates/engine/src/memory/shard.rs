//! The records of one shard, found by their slots. A pointer each, for there may be millions.
//!
//! Order is made when somebody pages through it, which only operators and the sweeper do.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use onetake_core::{Record, Slot};

#[derive(Default)]
pub(super) struct Shard(HashSet<Filed>);

/// A record under its own slot.
struct Filed(Arc<Record>);

impl Borrow<Slot> for Filed {
    fn borrow(&self) -> &Slot {
        self.0.address.slot()
    }
}

impl Hash for Filed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.address.slot().hash(state);
    }
}

impl PartialEq for Filed {
    fn eq(&self, other: &Self) -> bool {
        self.0.address.slot() == other.0.address.slot()
    }
}

impl Eq for Filed {}

impl Shard {
    pub(super) fn get(&self, slot: &Slot) -> Option<&Arc<Record>> {
        self.0.get(slot).map(|filed| &filed.0)
    }

    pub(super) fn insert(&mut self, record: Arc<Record>) {
        self.0.replace(Filed(record));
    }

    pub(super) fn remove(&mut self, slot: &Slot) -> Option<Arc<Record>> {
        self.0.take(slot).map(|filed| filed.0)
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.0.iter().map(|filed| &filed.0)
    }

    /// The first `limit` wanted records behind `after`, in the order of their slots.
    pub(super) fn behind(
        &self,
        after: Option<&Slot>,
        limit: usize,
        wanted: impl Fn(&Record) -> bool,
    ) -> Vec<&Arc<Record>> {
        let behind = |record: &Record| after.is_none_or(|after| record.address.slot() > after);
        let mut found: Vec<_> = self.records().filter(|r| behind(r) && wanted(r)).collect();
        found.sort_unstable_by_key(|record| record.address.slot());
        found.truncate(limit);
        found
    }
}
