//! What the walk asks of a store: read a slot, swap it, renew a lease, forget what has expired.
//!
//! A store compares versions and keeps time; it never interprets a rule. Three sentences hold for
//! every implementation, and the conformance suite in `onetake-testkit` checks them:
//!
//! 1. What is answered is durable: once `swap` says won, a crash of any process changes nothing.
//! 2. Every reply carries the store's own `now`, and only that clock judges leases and expiry.
//! 3. A store that cannot tell whether it wrote says [`Swap::Unknown`]. An `Err` means that this
//!    call wrote nothing.

use std::sync::Arc;
use std::time::Duration;

use onetake_core::{Code, Draft, Record, Slot, Timestamp, Version};

/// A reply, and the store's time when it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamped<T> {
    /// The store's time.
    pub now: Timestamp,
    /// The reply.
    pub value: T,
}

/// What became of a write that named the version it expected.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a lost swap wrote nothing"]
pub enum Swap {
    /// It is written, now or by an earlier copy of the same write.
    Won(Arc<Record>),
    /// Something else is there; this is what.
    Lost(Option<Arc<Record>>),
    /// It may be written or not. The same write may be repeated until the reply is another one.
    Unknown,
}

/// Which bound a full store has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The bound of the asker's tenant.
    Tenant,
    /// The bound of the whole store.
    Total,
    /// The room that is left on its disk.
    Disk,
}

/// Why a store could not do its part. In every case this call wrote nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It cannot be reached, or its queue is full. Try again later.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// It holds as much as it may, so new keys are refused.
    #[error("store full: the bound of {} is reached", match .0 {
        Bound::Tenant => "this tenant",
        Bound::Total => "the whole store",
        Bound::Disk => "its disk",
    })]
    Full(Bound),
    /// A record, a transaction or a name is larger than any store takes.
    #[error("too large for the store: {0}")]
    TooLarge(&'static str),
    /// A transaction breaks a rule of transactions. A mistake in the door that made it.
    #[error("malformed transaction: {0}")]
    Malformed(&'static str),
    /// What it holds cannot be true. Someone must look.
    #[error("store corrupt: {0}")]
    Corrupt(String),
    /// This kind of store cannot do it.
    #[error("not supported by this store: {0}")]
    Unsupported(&'static str),
}

impl StoreError {
    /// The stable code of this failure.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Unavailable(_) => Code::StoreUnavailable,
            Self::Full(_) => Code::StoreFull,
            Self::TooLarge(_) => Code::TooLarge,
            Self::Malformed(_) => Code::PolicyInvalid,
            Self::Corrupt(_) => Code::StoreCorrupt,
            Self::Unsupported(_) => Code::NotSupported,
        }
    }
}

/// How far one step of sweeping came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Records that were removed.
    pub removed: usize,
    /// Whether the step reached the end of the store; the next one begins again.
    pub done: bool,
}

/// A reply of a store, or why there is none.
pub type Reply<T> = Result<Stamped<T>, StoreError>;

/// Slots with compare-and-swap: all that the walk `run` needs.
///
/// # Cancel safety
/// Dropping any of these futures may leave the write done or not, exactly as [`Swap::Unknown`]
/// would.
pub trait Slots: Send + Sync + 'static {
    /// What `slot` holds, expired or not. The rule judges expiry, by the `now` of the reply.
    fn read(&self, slot: &Slot) -> impl Future<Output = Reply<Option<Arc<Record>>>> + Send;

    /// Replaces what the slot of `next` holds by `next`, only if its version is `expected` (`None`:
    /// only if it is empty). A slot that holds this very write already counts as won and is left
    /// alone; see [`onetake_core::judge`].
    ///
    /// Once it is won, the record survives a crash; a claim that was won is found by whoever comes
    /// after, and its effect is then known to be possible.
    fn swap(
        &self,
        expected: Option<Version>,
        next: Draft,
    ) -> impl Future<Output = Reply<Swap>> + Send;

    /// Extends the lease of the claim in `slot` to `lease` from the store's now, only if its
    /// version is `expected`. The renewed claim has a new version, so a takeover prepared before it
    /// loses.
    ///
    /// A lease need not be durable: a store that one process locks may keep it in memory.
    fn renew(
        &self,
        slot: &Slot,
        expected: Version,
        lease: Duration,
    ) -> impl Future<Output = Reply<Swap>> + Send;

    /// Looks at up to `limit` records, from where the last step stopped, and removes those that
    /// [`Record::is_removable`] allows. About space, never about truth: expiry is judged on read.
    fn sweep(&self, limit: usize) -> impl Future<Output = Reply<Swept>> + Send;

    /// What `slot` holds, if this process has it in memory and it is as true as a read would be.
    /// `None` says nothing: the store may still hold it.
    fn at_hand(&self, slot: &Slot) -> Option<Stamped<Arc<Record>>> {
        let _ = slot;
        None
    }

    /// Whether what has expired leaves this store without anyone calling [`Slots::sweep`], so that
    /// nobody need walk through all of it every minute.
    fn forgets_by_itself(&self) -> bool {
        false
    }

    /// Waits until the claim in `slot` may have been settled by another process. A store that never
    /// hears of that waits forever; whoever waits looks now and then anyway.
    fn settled(&self, slot: &Slot) -> impl Future<Output = ()> + Send {
        let _ = slot;
        std::future::pending()
    }

    /// For how long another process may go on answering from memory with a finished record that
    /// was replaced by now.
    fn remembered_elsewhere(&self) -> Duration {
        Duration::ZERO
    }
}

/// A shared store is a store.
impl<S: Slots> Slots for Arc<S> {
    fn read(&self, slot: &Slot) -> impl Future<Output = Reply<Option<Arc<Record>>>> + Send {
        S::read(self, slot)
    }

    fn swap(
        &self,
        expected: Option<Version>,
        next: Draft,
    ) -> impl Future<Output = Reply<Swap>> + Send {
        S::swap(self, expected, next)
    }

    fn renew(
        &self,
        slot: &Slot,
        expected: Version,
        lease: Duration,
    ) -> impl Future<Output = Reply<Swap>> + Send {
        S::renew(self, slot, expected, lease)
    }

    fn sweep(&self, limit: usize) -> impl Future<Output = Reply<Swept>> + Send {
        S::sweep(self, limit)
    }

    fn at_hand(&self, slot: &Slot) -> Option<Stamped<Arc<Record>>> {
        S::at_hand(self, slot)
    }

    fn forgets_by_itself(&self) -> bool {
        S::forgets_by_itself(self)
    }

    fn settled(&self, slot: &Slot) -> impl Future<Output = ()> + Send {
        S::settled(self, slot)
    }

    fn remembered_elsewhere(&self) -> Duration {
        S::remembered_elsewhere(self)
    }
}
