//! The claims of this process, as far as only it can know: how often each was renewed.
//!
//! A node renews all of its claims with one row, so the row of a claim does not say how often. This
//! map does, for as long as the claim lives; it is a memory and never the judge: who holds a slot
//! is what its row says.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// One claim of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) write: u128,
    pub(super) renewal: u32,
    /// The end of its lease, in milliseconds on the clock of the database.
    pub(super) until: i64,
}

/// The claims of this process by slot.
#[derive(Debug, Default)]
pub(super) struct Own(Mutex<HashMap<Vec<u8>, Owned>>);

impl Own {
    fn map(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Owned>> {
        self.0.lock().expect("invariant: no panic under the lock")
    }

    pub(super) fn get(&self, slot: &[u8]) -> Option<Owned> {
        self.map().get(slot).copied()
    }

    pub(super) fn put(&self, slot: Vec<u8>, owned: Owned) {
        self.map().insert(slot, owned);
    }

    /// Forgets the claim in `slot`: it is settled, or somebody else's by now.
    pub(super) fn forget(&self, slot: &[u8], write: u128) {
        let mut map = self.map();
        if map.get(slot).is_some_and(|owned| owned.write == write) {
            map.remove(slot);
        }
    }

    /// Counts a renewal before it is sent, so that nobody can rely on the version before it.
    pub(super) fn renew(&self, slot: &[u8], write: u128) -> Option<Owned> {
        let mut map = self.map();
        let owned = map.get_mut(slot).filter(|owned| owned.write == write)?;
        owned.renewal = owned.renewal.wrapping_add(1);
        Some(*owned)
    }

    /// Notes the end of a renewed lease.
    pub(super) fn extend(&self, slot: &[u8], write: u128, until: i64) {
        let mut map = self.map();
        if let Some(owned) = map.get_mut(slot).filter(|owned| owned.write == write) {
            owned.until = until;
        }
    }
}
