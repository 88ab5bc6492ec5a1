//! The reference: what a store should hold, as plain maps, one rule a function.
//!
//! It is told what was asked and what the store replied, and panics where the reply is not the one
//! that follows from its maps. It has no clock: points in time are the store's, and only have to
//! lie between the reply before and this one. It shares no code with any store, not even the
//! comparison of versions.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onetake_core::{Draft, Phase, Record, Slot, Timestamp, Version};
use onetake_engine::{
    Check, Commit, Counter, Cursor, Doc, Document, Found, Lane, Place, Position, Swap, Tx, Write,
};

/// When something happened: between two replies of the store.
pub type When = RangeInclusive<Timestamp>;

/// One lane: the last position that was given, and what stands where.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// The last position that was ever given.
    pub last: u64,
    /// The entries that were not trimmed.
    pub entries: BTreeMap<u64, (Bytes, When)>,
}

/// What a store should hold.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Records.
    pub slots: BTreeMap<Slot, Arc<Record>>,
    /// Documents.
    pub docs: BTreeMap<Doc, Document>,
    /// Lanes.
    pub lanes: BTreeMap<Lane, Log>,
    /// Counters.
    pub counters: BTreeMap<Counter, i64>,
    /// Cursors.
    pub cursors: BTreeMap<Cursor, u64>,
}

impl Model {
    /// The version in a slot.
    #[must_use]
    pub fn version(&self, slot: &Slot) -> Option<Version> {
        self.slots.get(slot).map(|record| record.version)
    }

    /// The version of a document.
    #[must_use]
    pub fn doc_version(&self, doc: &Doc) -> Option<Version> {
        self.docs.get(doc).map(|document| document.version)
    }

    /// What a place holds.
    #[must_use]
    pub fn found(&self, place: &Place) -> Found {
        match place {
            Place::Slot(slot) => Found::Slot(self.slots.get(slot).cloned()),
            Place::Doc(doc) => Found::Doc(self.docs.get(doc).cloned()),
            Place::Counter(counter) => {
                Found::Counter(self.counters.get(counter).copied().unwrap_or(0))
            }
            Place::Cursor(cursor) => {
                Found::Cursor(Position(self.cursors.get(cursor).copied().unwrap_or(0)))
            }
        }
    }

    /// A swap was asked, and this was the reply.
    pub fn swap(&mut self, expected: Option<Version>, next: &Draft, reply: &Swap, when: &When) {
        let slot = next.address.slot();
        let there = self.slots.get(slot).cloned();
        match there {
            Some(same) if same.version.write == next.version.write => {
                assert_eq!(reply, &Swap::Won(same), "a repeated write is left alone");
            }
            there if there.as_ref().map(|record| record.version) == expected => {
                let Swap::Won(record) = reply else { panic!("should have won: {reply:?}") };
                self.write(next, record, when);
            }
            there => assert_eq!(reply, &Swap::Lost(there), "something else is there"),
        }
    }

    /// `record` was written from `draft`.
    pub fn write(&mut self, draft: &Draft, record: &Arc<Record>, when: &When) {
        assert!(when.contains(&record.since), "{record:?} written within {when:?}");
        assert_eq!(**record, draft.clone().at(record.since), "as drafted, dated by the store");
        self.slots.insert(draft.address.slot().clone(), Arc::clone(record));
    }

    /// A renewal was asked, and this was the reply.
    pub fn renew(
        &mut self,
        slot: &Slot,
        expected: Version,
        lease: Duration,
        reply: &Swap,
        when: &When,
    ) {
        let there = self.slots.get(slot).cloned();
        let claim = there.clone().filter(|record| {
            record.version == expected && matches!(record.phase, Phase::Claimed { .. })
        });
        let Some(claim) = claim else {
            assert_eq!(reply, &Swap::Lost(there), "there is no such claim");
            return;
        };
        let Swap::Won(renewed) = reply else { panic!("should have won: {reply:?}") };
        let Phase::Claimed { lease_until } = renewed.phase else { panic!("{renewed:?}") };
        let bounds = when.start().after(lease)..=when.end().after(lease);
        assert!(bounds.contains(&lease_until), "{lease_until} within {bounds:?}");
        let version = Version { write: expected.write, renewal: expected.renewal + 1 };
        let phase = Phase::Claimed { lease_until };
        assert_eq!(**renewed, Record { version, phase, ..Record::clone(&claim) });
        self.slots.insert(slot.clone(), Arc::clone(renewed));
    }

    /// A commit was asked, and this was the reply. `records` are what the slots that it writes hold
    /// since.
    pub fn commit(
        &mut self,
        tx: &Tx,
        reply: &Commit,
        records: &BTreeMap<Slot, Arc<Record>>,
        when: &When,
    ) {
        if self.holds_copy(tx) {
            assert_eq!(reply, &Commit::Repeated, "an earlier copy is written");
            return;
        }
        let failed = tx.checks().iter().position(|check| !self.holds(check));
        if let Some(check) = failed {
            let current = self.found(&place_of(&tx.checks()[check]));
            assert_eq!(reply, &Commit::Conflict { check, current });
            return;
        }
        let positions = tx.writes().iter().filter_map(|write| self.apply(tx, write, records, when));
        let positions = positions.map(Position).collect();
        assert_eq!(reply, &Commit::Committed { positions });
    }

    /// Whether the anchor of `tx` was last written by `tx` itself.
    fn holds_copy(&self, tx: &Tx) -> bool {
        let there = match &tx.checks()[0] {
            Check::Slot(slot, _) => self.version(slot),
            Check::Doc(doc, _) => self.doc_version(doc),
            Check::AtLeast(..) => None,
        };
        there.is_some_and(|version| version.write == tx.version().write)
    }

    fn holds(&self, check: &Check) -> bool {
        match check {
            Check::Slot(slot, expected) => self.version(slot) == *expected,
            Check::Doc(doc, expected) => self.doc_version(doc) == *expected,
            Check::AtLeast(counter, least) => {
                self.counters.get(counter).copied().unwrap_or(0) >= *least
            }
        }
    }

    /// Applies one write; gives the position of an append.
    fn apply(
        &mut self,
        tx: &Tx,
        write: &Write,
        records: &BTreeMap<Slot, Arc<Record>>,
        when: &When,
    ) -> Option<u64> {
        match write {
            Write::Slot(draft) => self.write(draft, &records[draft.address.slot()], when),
            Write::Put(doc, value) => {
                let document = Document { version: tx.version(), value: value.clone() };
                self.docs.insert(doc.clone(), document);
            }
            Write::Delete(doc) => {
                self.docs.remove(doc);
            }
            Write::Append(lane, value) => {
                let log = self.lanes.entry(lane.clone()).or_default();
                log.last += 1;
                log.entries.insert(log.last, (value.clone(), when.clone()));
                return Some(log.last);
            }
            Write::Trim(lane, through) => {
                let log = self.lanes.entry(lane.clone()).or_default();
                log.entries.retain(|position, _| *position > through.0);
            }
            Write::Add(counter, delta) => {
                let sum = self.counters.entry(counter.clone()).or_default();
                *sum = sum.saturating_add(*delta);
            }
            Write::Advance(cursor, to) => {
                let at = self.cursors.entry(cursor.clone()).or_default();
                *at = to.0.max(*at);
            }
        }
        None
    }
}

/// Whether a record may be swept: only what is finished or free, and only once its time is over.
#[must_use]
pub fn may_go(record: &Record, now: Timestamp) -> bool {
    match &record.phase {
        Phase::Done { expires_at, .. } => *expires_at <= now,
        Phase::Released { until } => *until <= now,
        Phase::Claimed { .. } | Phase::Unknown { .. } => false,
    }
}

/// The place that a check is about.
fn place_of(check: &Check) -> Place {
    match check {
        Check::Slot(slot, _) => Place::Slot(slot.clone()),
        Check::Doc(doc, _) => Place::Doc(doc.clone()),
        Check::AtLeast(counter, _) => Place::Counter(counter.clone()),
    }
}
