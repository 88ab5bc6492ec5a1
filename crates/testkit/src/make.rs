//! Short ways to make addresses, asks and drafts for tests.
//!
//! Names are valid by construction or the test ends here; ids are given by the caller, so that a
//! test says which write it means. Nothing here talks to a store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onetake_core::{
    Address, Ask, Asked, Cause, Draft, Fence, Keeping, Key, Operation, Outcome, Phase, Policy,
    Scope, Slot, Tenant, Timestamp, Version,
};
use onetake_engine::{Counter, Cursor, Doc, Lane, Tx};

/// A span that a test lets pass. Short, for on a real clock it is waited out.
pub const BRIEF: Duration = Duration::from_millis(40);
/// A span that no test outlives.
pub const LONG: Duration = Duration::from_secs(60 * 60);

/// A tenant of this name.
#[must_use]
pub fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

/// The address of `key` under one operation of `tenant`.
#[must_use]
pub fn address(tenant: &str, key: &str) -> Arc<Address> {
    address_of(tenant, "orders.create", key)
}

/// The address of `key` under `operation` of `tenant`.
#[must_use]
pub fn address_of(tenant: &str, operation: &str, key: &str) -> Arc<Address> {
    let scope = Scope::tenant_named(tenant).unwrap();
    let (operation, key) = (Operation::new(operation).unwrap(), Key::new(key).unwrap());
    Arc::new(Address::new(scope, operation, key))
}

/// One attempt with the default policy.
#[must_use]
pub fn ask(address: &Arc<Address>, body: impl Into<Bytes>) -> Ask {
    ask_under(address, body, Policy::default())
}

/// One attempt under `policy`.
#[must_use]
pub fn ask_under(address: &Arc<Address>, body: impl Into<Bytes>, policy: Policy) -> Ask {
    Ask { address: Arc::clone(address), asked: Asked::raw(body), policy: Arc::new(policy) }
}

/// A point in time of a store's clock.
#[must_use]
pub const fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// The version of write `id`.
#[must_use]
pub const fn version(id: u128) -> Version {
    Version::of_write(id)
}

/// A document in a space of the test kit.
#[must_use]
pub fn doc(key: impl Into<Bytes>) -> Doc {
    Doc { space: "testkit", key: key.into() }
}

/// A counter.
#[must_use]
pub fn counter(name: impl Into<Bytes>) -> Counter {
    Counter(name.into())
}

/// A lane.
#[must_use]
pub fn lane(name: impl Into<Bytes>) -> Lane {
    Lane(name.into())
}

/// A cursor.
#[must_use]
pub fn cursor(name: impl Into<Bytes>) -> Cursor {
    Cursor(name.into())
}

/// A transaction whose anchor is a new document named after `write`, for what needs no other
/// anchor.
#[must_use]
pub fn tx(write: u128) -> Tx {
    let anchor = Doc { space: "anchors", key: Bytes::copy_from_slice(&write.to_be_bytes()) };
    Tx::on_doc(write, anchor, None, Bytes::new())
}

/// Drafts records for one slot. Write `id` makes version `id`.
#[derive(Debug, Clone)]
pub struct Pen(Arc<Address>);

impl Pen {
    /// A pen for `key` of the tenant `acme`.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Self(address("acme", key))
    }

    /// A pen for this address.
    #[must_use]
    pub const fn of(address: Arc<Address>) -> Self {
        Self(address)
    }

    /// The address.
    #[must_use]
    pub const fn address(&self) -> &Arc<Address> {
        &self.0
    }

    /// The slot.
    #[must_use]
    pub fn slot(&self) -> &Slot {
        self.0.slot()
    }

    /// Any record.
    #[must_use]
    pub fn draft(&self, id: u128, fence: u128, phase: Phase<Duration>) -> Draft {
        Draft {
            version: version(id),
            fence: Fence(fence),
            address: Arc::clone(&self.0),
            fingerprint: Asked::raw("body").fingerprint().clone(),
            attempt: 1,
            recovery: false,
            since: Duration::ZERO,
            phase,
        }
    }

    /// A claim of fence `id`.
    #[must_use]
    pub fn claim(&self, id: u128, lease: Duration) -> Draft {
        self.draft(id, id, Phase::Claimed { lease_until: lease })
    }

    /// The completion of fence `fence`, kept for `keep`.
    #[must_use]
    pub fn done(&self, id: u128, fence: u128, keep: Duration) -> Draft {
        self.done_with(id, fence, keep, Outcome::Value(Bytes::from(format!("outcome {id}"))))
    }

    /// The completion of fence `fence` with this outcome.
    #[must_use]
    pub fn done_with(&self, id: u128, fence: u128, keep: Duration, outcome: Outcome) -> Draft {
        let (outcome, keeping) = (Arc::new(outcome), Keeping::Final);
        self.draft(id, fence, Phase::Done { outcome, keeping, expires_at: keep })
    }

    /// The release of fence `fence`, with a tombstone for `until`.
    #[must_use]
    pub fn released(&self, id: u128, fence: u128, until: Duration) -> Draft {
        self.draft(id, fence, Phase::Released { until })
    }

    /// Fence `fence` reported as unknown.
    #[must_use]
    pub fn unknown(&self, id: u128, fence: u128) -> Draft {
        self.draft(id, fence, Phase::Unknown { cause: Cause::Reported })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pen_writes_for_one_slot_and_says_which_write_it_is() {
        let pen = Pen::new("k");
        let done = pen.done(7, 3, LONG);
        assert_eq!((done.version, done.fence), (version(7), Fence(3)));
        assert_eq!(done.address.slot(), address("acme", "k").slot());
        assert_eq!(pen.claim(3, BRIEF).phase, Phase::Claimed { lease_until: BRIEF });
    }

    #[test]
    fn two_transactions_of_the_kit_never_share_an_anchor() {
        assert_ne!(tx(1).checks(), tx(2).checks());
        assert_eq!(tx(1).version(), version(1));
    }
}
