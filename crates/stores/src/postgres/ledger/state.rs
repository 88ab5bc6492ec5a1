//! What a batch of transactions finds and leaves behind, without a database: each is judged against
//! what the ones before it left.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use onetake_core::{Phase, Record, Timestamp, Verdict, Version, judge};
use onetake_engine::{Check, Commit, Document, Found, Place, Position, Tx, Write};

use crate::postgres::rows::{self, Written};
use crate::postgres::shared::Shared;

/// What the places of a batch hold, with what its transactions changed so far.
pub(super) struct State {
    pub(super) now: Timestamp,
    pub(super) slots: HashMap<Vec<u8>, Option<Arc<Record>>>,
    pub(super) docs: HashMap<(&'static str, Vec<u8>), Option<Document>>,
    pub(super) counters: HashMap<Vec<u8>, i64>,
    pub(super) cursors: HashMap<Vec<u8>, i64>,
    pub(super) lanes: HashMap<Vec<u8>, i64>,
    pub(super) changed: Changed,
}

/// What is to be written.
#[derive(Default)]
pub(super) struct Changed {
    /// The draft, and the write that it replaces, if any.
    pub(super) slots: BTreeMap<Vec<u8>, Slotted>,
    pub(super) docs: BTreeSet<(&'static str, Vec<u8>)>,
    pub(super) counters: BTreeSet<Vec<u8>>,
    pub(super) cursors: BTreeSet<Vec<u8>>,
    pub(super) entries: Vec<(Vec<u8>, i64, Bytes)>,
    pub(super) trims: BTreeMap<Vec<u8>, i64>,
    pub(super) lanes: BTreeSet<Vec<u8>>,
}

pub(super) struct Slotted {
    pub(super) written: Written,
    pub(super) record: Arc<Record>,
    pub(super) was_there: bool,
    pub(super) replaced: Option<u128>,
}

/// The version of what a slot or a document holds.
fn version(found: &Found) -> Option<Version> {
    match found {
        Found::Slot(record) => record.as_ref().map(|record| record.version),
        Found::Doc(document) => document.as_ref().map(|document| document.version),
        Found::Counter(_) | Found::Cursor(_) => None,
    }
}

fn position(value: i64) -> Position {
    Position(u64::try_from(value).unwrap_or(0))
}

impl State {
    fn found(&self, shared: &Shared, place: &Place) -> Found {
        match place {
            Place::Slot(slot) => Found::Slot(self.slots.get(&shared.key(slot)).cloned().flatten()),
            Place::Doc(doc) => {
                Found::Doc(self.docs.get(&(doc.space, doc.key.to_vec())).cloned().flatten())
            }
            Place::Counter(name) => {
                Found::Counter(self.counters.get(&name.0[..]).copied().unwrap_or(0))
            }
            Place::Cursor(name) => {
                Found::Cursor(position(self.cursors.get(&name.0[..]).copied().unwrap_or(0)))
            }
        }
    }

    /// Carries out one transaction on what the ones before it left, or says why not.
    pub(super) fn judge(&mut self, shared: &Shared, tx: &Tx) -> Commit {
        let mut refused = None;
        for (index, check) in tx.checks().iter().enumerate() {
            let (current, holds) = match check {
                Check::Slot(slot, expected) => {
                    let found = self.found(shared, &Place::Slot(slot.clone()));
                    match judge(version(&found), *expected, tx.version()) {
                        Verdict::Repeated if index == 0 => return Commit::Repeated,
                        verdict @ (Verdict::Write | Verdict::Repeated | Verdict::Refuse) => {
                            (found, verdict == Verdict::Write)
                        }
                    }
                }
                Check::Doc(doc, expected) => {
                    let found = self.found(shared, &Place::Doc(doc.clone()));
                    match judge(version(&found), *expected, tx.version()) {
                        Verdict::Repeated if index == 0 => return Commit::Repeated,
                        verdict @ (Verdict::Write | Verdict::Repeated | Verdict::Refuse) => {
                            (found, verdict == Verdict::Write)
                        }
                    }
                }
                Check::AtLeast(counter, least) => {
                    let found = self.found(shared, &Place::Counter(counter.clone()));
                    let holds = matches!(found, Found::Counter(value) if value >= *least);
                    (found, holds)
                }
            };
            if !holds && refused.is_none() {
                refused = Some(Commit::Conflict { check: index, current });
            }
        }
        refused.unwrap_or_else(|| self.apply(shared, tx))
    }

    fn apply(&mut self, shared: &Shared, tx: &Tx) -> Commit {
        let mut positions = Vec::new();
        for write in tx.writes() {
            match write {
                Write::Slot(draft) => {
                    let written = shared.written(draft);
                    let slot = written.slot.clone();
                    let record = Arc::new(draft.clone().at(self.now));
                    let there =
                        self.slots.insert(slot.clone(), Some(Arc::clone(&record))).flatten();
                    let before = self.changed.slots.remove(&slot);
                    let was_there = before.as_ref().map_or(there.is_some(), |one| one.was_there);
                    let replaced = before
                        .and_then(|one| one.replaced)
                        .or_else(|| there.map(|there| there.version.write));
                    let slotted = Slotted { written, record, was_there, replaced };
                    self.changed.slots.insert(slot, slotted);
                }
                Write::Put(doc, value) => {
                    let key = (doc.space, doc.key.to_vec());
                    let document = Document { version: tx.version(), value: value.clone() };
                    self.docs.insert(key.clone(), Some(document));
                    self.changed.docs.insert(key);
                }
                Write::Delete(doc) => {
                    let key = (doc.space, doc.key.to_vec());
                    self.docs.insert(key.clone(), None);
                    self.changed.docs.insert(key);
                }
                Write::Append(lane, value) => {
                    let name = lane.0.to_vec();
                    let last = self.lanes.entry(name.clone()).or_default();
                    *last += 1;
                    positions.push(position(*last));
                    self.changed.entries.push((name.clone(), *last, value.clone()));
                    self.changed.lanes.insert(name);
                }
                Write::Trim(lane, until) => {
                    let name = lane.0.to_vec();
                    let last = self.lanes.get(&name).copied().unwrap_or(0);
                    // What is appended behind it stays, wherever it points.
                    let until = i64::try_from(until.0).unwrap_or(i64::MAX).min(last);
                    self.changed.entries.retain(|(lane, at, _)| *lane != name || *at > until);
                    let trimmed = self.changed.trims.entry(name).or_default();
                    *trimmed = until.max(*trimmed);
                }
                Write::Add(counter, delta) => {
                    let name = counter.0.to_vec();
                    let value = self.counters.entry(name.clone()).or_default();
                    *value = value.saturating_add(*delta);
                    self.changed.counters.insert(name);
                }
                Write::Advance(cursor, to) => {
                    let name = cursor.0.to_vec();
                    let value = self.cursors.entry(name.clone()).or_default();
                    *value = (*value).max(i64::try_from(to.0).unwrap_or(i64::MAX));
                    self.changed.cursors.insert(name);
                }
            }
        }
        Commit::Committed { positions }
    }

    /// Notes the claims of a transaction that was committed before, as far as they are still there.
    pub(super) fn adopt(&self, shared: &Shared, tx: &Tx) {
        for write in tx.writes() {
            let Write::Slot(draft) = write else { continue };
            let slot = shared.key(draft.address.slot());
            let there = self.slots.get(&slot).cloned().flatten();
            let there = there.filter(|there| there.version.write == draft.version.write);
            if let Some(Phase::Claimed { lease_until }) = there.map(|there| there.phase.clone()) {
                shared.own.put_unsure(slot, draft.version.write, rows::millis(lease_until));
            }
        }
    }

    /// Notes which claims are ours now.
    pub(super) fn note(&self, shared: &Shared) {
        for (slot, one) in &self.changed.slots {
            shared.front.forget(slot);
            if let Some(replaced) = one.replaced {
                shared.own.forget(slot, replaced);
            }
            if one.written.is_claim {
                let until = rows::millis(self.now).saturating_add(one.written.until);
                shared.own.put(slot.clone(), one.record.version.write, until);
            }
        }
    }
}
