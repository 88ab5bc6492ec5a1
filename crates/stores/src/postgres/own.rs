//! The claims of this process, as far as only it can know: how often each was renewed.
//!
//! A node renews all of its claims with one row, so the row of a claim does not say how often. This
//! map does, for as long as the claim lives; it is a memory and never the judge: who holds a slot
//! is what its row says. It is as large as the executions under way, which the engine bounds.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// One claim of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) write: u128,
    pub(super) renewal: u32,
    /// The end of its lease, in milliseconds on the clock of the database.
    pub(super) until: i64,
    /// Whether the node keeps it alive. One that nobody renewed in time is not any more, or the
    /// node would keep it alive for as long as it renews others.
    pub(super) is_kept: bool,
}

/// A claim that lapsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lapsed {
    pub(super) slot: Vec<u8>,
    pub(super) write: u128,
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

    /// Notes a claim that was just made.
    pub(super) fn put(&self, slot: Vec<u8>, write: u128, until: i64) {
        self.map().insert(slot, Owned { write, renewal: 0, until, is_kept: true });
    }

    /// Forgets the claim in `slot`: it is settled, or somebody else's by now.
    pub(super) fn forget(&self, slot: &[u8], write: u128) {
        let mut map = self.map();
        if map.get(slot).is_some_and(|owned| owned.write == write) {
            map.remove(slot);
        }
    }

    /// Counts a renewal before it is sent, so that nobody can rely on the version before it. Says
    /// whether the node keeps the claim.
    pub(super) fn renew(&self, slot: &[u8], write: u128) -> Option<bool> {
        let mut map = self.map();
        let owned = map.get_mut(slot).filter(|owned| owned.write == write)?;
        owned.renewal = owned.renewal.wrapping_add(1);
        Some(owned.is_kept)
    }

    /// Notes the end of a renewed lease. The node keeps the claim, from now on or still.
    pub(super) fn extend(&self, slot: &[u8], write: u128, until: i64) {
        let mut map = self.map();
        if let Some(owned) = map.get_mut(slot).filter(|owned| owned.write == write) {
            (owned.until, owned.is_kept) = (until, true);
        }
    }

    /// Some of the claims that the node keeps although nobody renewed them in time. They count as
    /// not kept from here on: a renewal that comes now has to ask for it.
    pub(super) fn take_lapsed(
        &self,
        now: i64,
        count_max: usize,
        is_one: impl Fn(&[u8]) -> bool,
    ) -> Vec<Lapsed> {
        let mut map = self.map();
        let is_lapsed =
            |slot: &[u8], owned: &Owned| owned.is_kept && owned.until < now && is_one(slot);
        let lapsed = map.iter_mut().filter(|(slot, owned)| is_lapsed(slot, owned));
        let lapsed = lapsed.take(count_max).map(|(slot, owned)| {
            owned.is_kept = false;
            Lapsed { slot: slot.clone(), write: owned.write, until: owned.until }
        });
        lapsed.collect()
    }

    /// Forgets claims that lapsed so long ago that no owner comes back.
    pub(super) fn forget_before(&self, then: i64) {
        self.map().retain(|_, owned| owned.is_kept || owned.until >= then);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_nobody_renews_lapses_once_and_is_kept_again_when_it_is_renewed() {
        let own = Own::default();
        own.put(b"a".to_vec(), 1, 100);
        own.put(b"b".to_vec(), 2, 300);
        assert_eq!(own.take_lapsed(50, 10, |_| true), []);
        assert_eq!(own.take_lapsed(200, 10, |slot| slot != b"a"), []);
        let lapsed = Lapsed { slot: b"a".to_vec(), write: 1, until: 100 };
        assert_eq!(own.take_lapsed(200, 10, |_| true), [lapsed]);
        assert_eq!(own.take_lapsed(200, 10, |_| true), []);
        assert_eq!(own.renew(b"a", 1), Some(false));
        own.extend(b"a", 1, 400);
        assert_eq!(own.renew(b"a", 1), Some(true));
        own.forget_before(1_000);
        assert!(own.get(b"a").is_some(), "the node keeps it");
    }
}
