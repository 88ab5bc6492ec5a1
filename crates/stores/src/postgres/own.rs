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
    pub(super) held: Held,
}

/// Whether the node keeps a claim alive. One that nobody renewed in time must not be kept any more,
/// or the node would keep it alive for as long as it renews others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// It does.
    Kept,
    /// It may: nobody knows whether the claim, or the letting go of it, was written.
    Perhaps,
    /// It does not.
    LetGo,
}

/// A claim that lapsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lapsed {
    pub(super) slot: Vec<u8>,
    pub(super) write: u128,
}

/// The claims of this process by slot.
#[derive(Debug, Default)]
pub(super) struct Own(Mutex<HashMap<Vec<u8>, Owned>>);

impl Own {
    fn map(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Owned>> {
        self.0.lock().expect("invariant: no panic under the lock")
    }

    /// Does something with the claim in `slot`, if it is this one.
    fn with<T>(&self, slot: &[u8], write: u128, act: impl FnOnce(&mut Owned) -> T) -> Option<T> {
        self.map().get_mut(slot).filter(|owned| owned.write == write).map(act)
    }

    pub(super) fn get(&self, slot: &[u8]) -> Option<Owned> {
        self.map().get(slot).copied()
    }

    /// Notes a claim that was just made.
    pub(super) fn put(&self, slot: Vec<u8>, write: u128, until: i64) {
        self.map().insert(slot, Owned { write, renewal: 0, until, held: Held::Kept });
    }

    /// Notes a claim of which nobody knows whether it was made, or that turned out to be there. It
    /// has to be renewed like any other, or to be let go.
    pub(super) fn put_unsure(&self, slot: Vec<u8>, write: u128, until: i64) {
        let mut map = self.map();
        if map.get(&slot).is_none_or(|owned| owned.write != write) {
            map.insert(slot, Owned { write, renewal: 0, until, held: Held::Perhaps });
        }
    }

    /// Forgets the claim in `slot`: it is settled, or somebody else's by now.
    pub(super) fn forget(&self, slot: &[u8], write: u128) {
        let mut map = self.map();
        if map.get(slot).is_some_and(|owned| owned.write == write) {
            map.remove(slot);
        }
    }

    /// Counts a renewal that is done: the lease ends at `until`, and the node keeps the claim.
    /// Gives how many there were.
    pub(super) fn renewed(&self, slot: &[u8], write: u128, until: i64) -> Option<u32> {
        self.with(slot, write, |owned| {
            owned.renewal = owned.renewal.wrapping_add(1);
            (owned.until, owned.held) = (until, Held::Kept);
            owned.renewal
        })
    }

    /// Some of the claims that the node keeps, or may keep, although nobody renewed them in time. A
    /// renewal that comes now has to ask for it again.
    pub(super) fn take_lapsed(
        &self,
        now: i64,
        count_max: usize,
        is_one: impl Fn(&[u8]) -> bool,
    ) -> Vec<Lapsed> {
        let mut map = self.map();
        let is_lapsed = |slot: &[u8], owned: &Owned| {
            owned.held != Held::LetGo && owned.until < now && is_one(slot)
        };
        let lapsed = map.iter_mut().filter(|(slot, owned)| is_lapsed(slot, owned));
        let lapsed = lapsed.take(count_max).map(|(slot, owned)| {
            owned.held = Held::Perhaps;
            Lapsed { slot: slot.clone(), write: owned.write }
        });
        lapsed.collect()
    }

    /// Notes that the node does not keep the claim any more.
    pub(super) fn let_go(&self, slot: &[u8], write: u128) {
        self.with(slot, write, |owned| owned.held = Held::LetGo);
    }

    /// Forgets claims that lapsed so long ago that no owner comes back.
    pub(super) fn forget_before(&self, then: i64) {
        self.map().retain(|_, owned| owned.held != Held::LetGo || owned.until >= then);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lapsed(slot: &[u8], write: u128) -> Lapsed {
        Lapsed { slot: slot.to_vec(), write }
    }

    fn held(own: &Own, slot: &[u8]) -> Held {
        own.get(slot).unwrap().held
    }

    #[test]
    fn a_claim_that_nobody_renews_lapses_once_and_is_kept_again_when_it_is_renewed() {
        let own = Own::default();
        own.put(b"a".to_vec(), 1, 100);
        own.put(b"b".to_vec(), 2, 300);
        assert_eq!(own.take_lapsed(50, 10, |_| true), []);
        assert_eq!(own.take_lapsed(200, 10, |slot| slot != b"a"), []);
        assert_eq!(own.take_lapsed(200, 10, |_| true), [lapsed(b"a", 1)]);
        assert_eq!(held(&own, b"a"), Held::Perhaps);
        assert_eq!(own.take_lapsed(200, 10, |_| true), [lapsed(b"a", 1)], "until it is certain");
        own.let_go(b"a", 1);
        assert_eq!(own.take_lapsed(200, 10, |_| true), []);
        assert_eq!(own.renewed(b"a", 1, 400), Some(1));
        assert_eq!((own.get(b"a").unwrap().until, held(&own, b"a")), (400, Held::Kept));
        own.forget_before(1_000);
        assert!(own.get(b"a").is_some(), "the node keeps it");
    }

    #[test]
    fn a_claim_that_may_have_been_made_is_let_go_unless_it_is_renewed() {
        let own = Own::default();
        own.put_unsure(b"a".to_vec(), 1, 100);
        assert_eq!(held(&own, b"a"), Held::Perhaps);
        assert_eq!(own.take_lapsed(200, 10, |_| true), [lapsed(b"a", 1)]);
        own.renewed(b"a", 1, 300);
        own.put_unsure(b"a".to_vec(), 1, 100);
        assert_eq!(held(&own, b"a"), Held::Kept, "what is known is not forgotten");
        own.put_unsure(b"a".to_vec(), 2, 100);
        assert_eq!(own.get(b"a").unwrap().write, 2);
    }
}
