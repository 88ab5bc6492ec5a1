//! What a store offers beyond slots: documents, lanes, counters and cursors, committed with a
//! record.
//!
//! One transaction is written whole or not at all, and may be repeated: every [`Tx`] is anchored in
//! one place that it checks *and* writes, so a copy of it finds its own version there and changes
//! nothing. A plain append without an anchor cannot be expressed.
//!
//! Three duties are left to the doors. An anchor document is not deleted while a copy of its
//! transaction may still be under way: end it with a value, and delete it later. Documents do not
//! expire: whoever needs that keeps timers, which are documents too. Lanes, counters and cursors
//! are found by name only: whoever must list or purge them keeps their names in documents, written
//! with them.

use std::sync::Arc;

use bytes::Bytes;
use onetake_core::{Draft, Record, Slot, Tenant, Timestamp, Version};

use crate::store::{Reply, Slots, StoreError};

/// A document: a space that a door owns, and a key in it. Begin the key with
/// [`onetake_core::tenant_prefix`] where the document belongs to a tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Doc {
    /// The space, such as `runs` or `timers`.
    pub space: &'static str,
    /// The key, ordered bytewise.
    pub key: Bytes,
}

/// A number that many transactions add to without conflict.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Counter(pub Bytes);

/// An ordered log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub Bytes);

/// How far a reader has come in a lane; it only ever moves forward.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor(pub Bytes);

/// A place in a lane: 1 for its first entry, without gaps, in the order of commits. Zero is before
/// the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

/// The content of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Which write this is.
    pub version: Version,
    /// The value.
    pub value: Bytes,
}

/// One entry of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub position: Position,
    /// When it was committed.
    pub at: Timestamp,
    /// The payload.
    pub value: Bytes,
}

/// What must hold for a transaction to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// The slot holds exactly this version, or nothing.
    Slot(Slot, Option<Version>),
    /// The document has exactly this version, or does not exist.
    Doc(Doc, Option<Version>),
    /// The counter is at least this, before the transaction adds to it.
    AtLeast(Counter, i64),
}

/// What a transaction writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// A record into its slot. Only ever beside a check of that slot.
    Slot(Draft),
    /// A document.
    Put(Doc, Bytes),
    /// The end of a document.
    Delete(Doc),
    /// One more entry at the end of a lane.
    Append(Lane, Bytes),
    /// The end of every entry of a lane up to this position. Positions are not used again.
    Trim(Lane, Position),
    /// A counter plus this. Counters wrap nowhere: they stop at the ends of `i64`.
    Add(Counter, i64),
    /// A cursor at this position, unless it is further already.
    Advance(Cursor, Position),
}

/// A transaction: written whole or not at all, and safe to repeat. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tx(Arc<Steps>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Steps {
    version: Version,
    checks: Vec<Check>,
    writes: Vec<Write>,
}

impl Tx {
    /// The most checks, and the most writes, of one transaction.
    pub const STEPS_MAX: usize = 1_024;
    /// The longest key of a document, lane, counter or cursor, in bytes.
    pub const KEY_BYTES_MAX: usize = 1_024;
    /// The largest value of a document or entry, in bytes.
    pub const VALUE_BYTES_MAX: usize = 16 * 1024 * 1024;
    /// The most bytes of all values of one transaction.
    pub const BYTES_MAX: usize = 128 * 1024 * 1024;

    /// A transaction anchored in a slot: it replaces `expected` by `next`.
    #[must_use]
    pub fn on_slot(expected: Option<Version>, next: Draft) -> Self {
        let version = next.version;
        let check = Check::Slot(next.address.slot().clone(), expected);
        Self::of(version, check, Write::Slot(next))
    }

    /// A transaction anchored in a document: it replaces `expected` by `value`. `write` is unique
    /// for ever and becomes the version of everything that the transaction puts.
    #[must_use]
    pub fn on_doc(write: u128, doc: Doc, expected: Option<Version>, value: Bytes) -> Self {
        let check = Check::Doc(doc.clone(), expected);
        Self::of(Version::of_write(write), check, Write::Put(doc, value))
    }

    /// One that only replaces its anchor.
    fn of(version: Version, check: Check, write: Write) -> Self {
        Self(Arc::new(Steps { version, checks: vec![check], writes: vec![write] }))
    }

    /// Its steps, to add to them.
    fn steps(&mut self) -> &mut Steps {
        Arc::make_mut(&mut self.0)
    }

    /// Also demands this.
    #[must_use]
    pub fn check(mut self, check: Check) -> Self {
        self.steps().checks.push(check);
        self
    }

    /// Also writes this.
    #[must_use]
    pub fn write(mut self, write: Write) -> Self {
        self.steps().writes.push(write);
        self
    }

    /// The version of everything that this transaction puts.
    #[must_use]
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// What must hold, the anchor first.
    #[must_use]
    pub fn checks(&self) -> &[Check] {
        &self.0.checks
    }

    /// What is written, in order.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.0.writes
    }

    /// Bytes of all values that it writes.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.writes().iter().map(|write| write_size(write).1).sum()
    }

    /// Whether this is a transaction that every store takes: within the bounds that all of them
    /// share, and with a check beside every record that it writes. Stores ask before they begin.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] or [`StoreError::Malformed`], naming the part.
    pub fn within_bounds(&self) -> Result<(), StoreError> {
        if self.checks().len() > Self::STEPS_MAX || self.writes().len() > Self::STEPS_MAX {
            return Err(StoreError::TooLarge("a transaction has more than 1,024 steps"));
        }
        let sizes =
            self.checks().iter().map(check_size).chain(self.writes().iter().map(write_size));
        let (key, value) = sizes.fold((0, 0), |(k, v), (key, value)| (k.max(key), v.max(value)));
        if key > Self::KEY_BYTES_MAX {
            return Err(StoreError::TooLarge("a key has more than 1,024 bytes"));
        }
        if value > Self::VALUE_BYTES_MAX {
            return Err(StoreError::TooLarge("a value has more than 16 MiB"));
        }
        if self.weight() > Self::BYTES_MAX {
            return Err(StoreError::TooLarge("a transaction has more than 128 MiB of values"));
        }
        let unchecked = self.writes().iter().any(|write| match write {
            Write::Slot(draft) => !self
                .checks()
                .iter()
                .any(|check| matches!(check, Check::Slot(slot, _) if slot == draft.address.slot())),
            Write::Put(..)
            | Write::Delete(_)
            | Write::Append(..)
            | Write::Trim(..)
            | Write::Add(..)
            | Write::Advance(..) => false,
        });
        if unchecked {
            return Err(StoreError::Malformed("a record is written without a check of its slot"));
        }
        if self.writes().iter().skip(1).any(|write| self.touches_anchor(write)) {
            return Err(StoreError::Malformed("the anchor of a transaction is written twice"));
        }
        Ok(())
    }

    /// Whether `write` would hide the version by which a copy of this transaction is recognised.
    fn touches_anchor(&self, write: &Write) -> bool {
        match (&self.checks()[0], write) {
            (Check::Slot(slot, _), Write::Slot(draft)) => draft.address.slot() == slot,
            (Check::Doc(doc, _), Write::Put(other, _) | Write::Delete(other)) => doc == other,
            _ => false,
        }
    }
}

/// Bytes of the key, and of the value, of one step.
fn check_size(check: &Check) -> (usize, usize) {
    match check {
        Check::Slot(..) => (0, 0),
        Check::Doc(doc, _) => (doc.key.len(), 0),
        Check::AtLeast(counter, _) => (counter.0.len(), 0),
    }
}

fn write_size(write: &Write) -> (usize, usize) {
    match write {
        Write::Slot(draft) => (0, draft.outcome_weight()),
        Write::Put(doc, value) => (doc.key.len(), value.len()),
        Write::Delete(doc) => (doc.key.len(), 0),
        Write::Append(lane, value) => (lane.0.len(), value.len()),
        Write::Trim(lane, _) => (lane.0.len(), 0),
        Write::Add(counter, _) => (counter.0.len(), 0),
        Write::Advance(cursor, _) => (cursor.0.len(), 0),
    }
}

/// What a place holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A slot's record.
    Slot(Option<Arc<Record>>),
    /// A document.
    Doc(Option<Document>),
    /// A counter; zero before anything was added.
    Counter(i64),
    /// A cursor; zero before it was moved.
    Cursor(Position),
}

/// A place that can be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A slot.
    Slot(Slot),
    /// A document.
    Doc(Doc),
    /// A counter.
    Counter(Counter),
    /// A cursor.
    Cursor(Cursor),
}

/// What became of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a conflict wrote nothing"]
pub enum Commit {
    /// It is written; here are the positions of its appends, in order.
    Committed {
        /// One position for each append.
        positions: Vec<Position>,
    },
    /// An earlier copy of it is written. Where its appends stand is not known here.
    Repeated,
    /// Nothing is written, because this check does not hold.
    Conflict {
        /// The index of the check.
        check: usize,
        /// What the place holds instead.
        current: Found,
    },
    /// It may be written or not. The same transaction may be repeated.
    Unknown,
}

/// Some of what there is, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items, in order.
    pub items: Vec<T>,
    /// Whether there are more behind the last.
    pub more: bool,
}

/// Transactions over slots, documents, lanes, counters and cursors.
///
/// # Cancel safety
/// Dropping the future of `commit` may leave the transaction written or not, exactly as
/// [`Commit::Unknown`] would. The others only read.
pub trait Journal: Slots {
    /// Writes `tx` whole, if every check holds; else nothing. Checks are judged against what is
    /// durable plus the transactions before it; a conflict never fails a neighbour.
    fn commit(&self, tx: Tx) -> impl Future<Output = Reply<Commit>> + Send;

    /// What all `places` hold at one moment, in the same order.
    fn fetch(&self, places: &[Place]) -> impl Future<Output = Reply<Vec<Found>>> + Send;

    /// The documents of `space` whose keys begin with `prefix`, behind `after`, at most `limit`.
    fn scan(
        &self,
        space: &'static str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> impl Future<Output = Reply<Page<(Doc, Document)>>> + Send;

    /// The records of `tenant` (or of all), behind `after`, at most `limit`, expired ones included.
    /// In an order of the store's own, always the same: one that seals its slots cannot keep ours.
    fn scan_slots(
        &self,
        tenant: Option<&Tenant>,
        after: Option<&Slot>,
        limit: usize,
    ) -> impl Future<Output = Reply<Page<Arc<Record>>>> + Send;

    /// The entries of `lane` behind `after`, at most `limit`.
    fn read_lane(
        &self,
        lane: &Lane,
        after: Position,
        limit: usize,
    ) -> impl Future<Output = Reply<Page<Entry>>> + Send;
}

/// A shared journal is a journal.
impl<S: Journal> Journal for Arc<S> {
    fn commit(&self, tx: Tx) -> impl Future<Output = Reply<Commit>> + Send {
        S::commit(self, tx)
    }

    fn fetch(&self, places: &[Place]) -> impl Future<Output = Reply<Vec<Found>>> + Send {
        S::fetch(self, places)
    }

    fn scan(
        &self,
        space: &'static str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> impl Future<Output = Reply<Page<(Doc, Document)>>> + Send {
        S::scan(self, space, prefix, after, limit)
    }

    fn scan_slots(
        &self,
        tenant: Option<&Tenant>,
        after: Option<&Slot>,
        limit: usize,
    ) -> impl Future<Output = Reply<Page<Arc<Record>>>> + Send {
        S::scan_slots(self, tenant, after, limit)
    }

    fn read_lane(
        &self,
        lane: &Lane,
        after: Position,
        limit: usize,
    ) -> impl Future<Output = Reply<Page<Entry>>> + Send {
        S::read_lane(self, lane, after, limit)
    }
}
