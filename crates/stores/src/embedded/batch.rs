//! One batch: what the writer judges together and syncs at once.
//!
//! Every operation is judged against what is durable plus the operations before it in the batch;
//! one that loses leaves no trace and never fails its neighbours. Each place is written at most
//! once, with what it holds after the last operation: the files know no order within a batch.
//! Nothing here touches the disk but to read documents, numbers and lanes; slots were read before
//! they came here.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::ops::RangeInclusive;
use std::sync::Arc;

use onetake_core::{Record, Slot, Timestamp, Verdict, Version, judge};
use onetake_engine::{
    Bound, Check, Commit, Doc, Document, Found, Lane, Position, StoreError, Swap, Tx, Write,
};

use super::disk::{Disk, Head, counter_key, cursor_key, doc_key, entry_key, head_key};
use super::front::Front;
use super::log::Space;
use super::tally::{Bounds, Counted, NoRoom, Tally};
use crate::codec;
use crate::seal::{KeyRing, MasterKey, Sealer};

/// Trimmed entries that one transaction removes from the disk; later ones remove the rest.
pub(super) const TRIMMED_MAX: u64 = 1_024;

/// How full the disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// There is enough.
    Enough,
    /// Only what is held already may grow.
    Little,
    /// Nothing may be written.
    None,
}

/// What a swap wants to write: as it will be read, and as it will lie on the disk.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) record: Arc<Record>,
    pub(super) key: Vec<u8>,
    pub(super) bytes: Vec<u8>,
}

/// What a slot holds once the batch is durable.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) record: Option<Arc<Record>>,
    pub(super) key: Vec<u8>,
    /// `None` removes it.
    pub(super) bytes: Option<Vec<u8>>,
    /// Pins that end with this batch.
    pub(super) pins: u32,
}

/// What each place beside the slots gets, the last word last; `None` removes it.
pub(super) type Writes = Vec<(Space, Vec<u8>, Option<Vec<u8>>)>;
/// Every slot that is written.
pub(super) type PendingSlots = HashMap<Slot, Pending>;

/// What a place holds after the operations so far, and whether one of them wrote it: it goes to the
/// disk once, however often that was.
#[derive(Debug)]
struct Held<T> {
    value: T,
    is_written: bool,
}

impl<T> Held<T> {
    /// As it was before the batch.
    const fn before(value: T) -> Self {
        Self { value, is_written: false }
    }

    /// As an operation wants it.
    const fn written(value: T) -> Self {
        Self { value, is_written: true }
    }
}

/// The operations of one sync.
pub(super) struct Batch<'a> {
    disk: &'a Disk,
    front: &'a Front,
    tally: &'a mut Tally,
    bounds: &'a Bounds,
    room: Room,
    now: Timestamp,
    /// What each slot, document, number and lane holds after the operations so far.
    slots: PendingSlots,
    docs: HashMap<Vec<u8>, Held<Option<Document>>>,
    numbers: HashMap<Vec<u8>, Held<i64>>,
    heads: HashMap<Vec<u8>, Held<Head>>,
    /// Entries of lanes, and notes.
    writes: Writes,
    ring: Option<KeyRing>,
}

/// What the writer knows beside the batch.
pub(super) struct Around<'a> {
    pub(super) disk: &'a Disk,
    pub(super) front: &'a Front,
    pub(super) tally: &'a mut Tally,
    pub(super) bounds: &'a Bounds,
    pub(super) room: Room,
    pub(super) now: Timestamp,
}

impl<'a> Batch<'a> {
    /// A batch of about `ops` operations.
    pub(super) fn new(around: Around<'a>, ops: usize) -> Self {
        let Around { disk, front, tally, bounds, room, now } = around;
        Self {
            disk,
            front,
            tally,
            bounds,
            room,
            now,
            slots: HashMap::with_capacity(ops),
            docs: HashMap::new(),
            numbers: HashMap::new(),
            heads: HashMap::new(),
            writes: Writes::new(),
            ring: None,
        }
    }

    /// What is to be written.
    pub(super) fn writes(self) -> (Writes, PendingSlots) {
        let Self { mut writes, slots, docs, numbers, heads, disk, .. } = self;
        let sealer = disk.sealer();
        for (key, doc) in docs.into_iter().filter(|(_, doc)| doc.is_written) {
            let encode =
                |doc: Document| codec::encode_document(doc.version, &doc.value, &sealer, &key);
            let bytes = doc.value.map(encode);
            writes.push((Space::Docs, key, bytes));
        }
        for (key, number) in numbers.into_iter().filter(|(_, number)| number.is_written) {
            // One at zero is as good as none, so that counters that are used up do not pile up.
            let encode = || codec::encode_number(number.value, &key).to_vec();
            let bytes = (number.value != 0).then(encode);
            writes.push((Space::Numbers, key, bytes));
        }
        for (key, head) in heads.into_iter().filter(|(_, head)| head.is_written) {
            let bytes = head.value.encode(&key);
            writes.push((Space::Numbers, key, Some(bytes)));
        }
        (writes, slots)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
            && self.slots.is_empty()
            && self.docs.values().all(|doc| !doc.is_written)
            && self.numbers.values().all(|number| !number.is_written)
            && self.heads.values().all(|head| !head.is_written)
    }

    /// Also writes what the store knows of itself.
    pub(super) fn note(&mut self, word: &str, bytes: Vec<u8>) {
        self.writes.push((Space::Meta, word.into(), Some(bytes)));
    }

    /// Makes a new key, wrapped by `master`. It is on disk before anything is sealed with it.
    pub(super) fn rotate(&mut self, master: &MasterKey) -> Result<(), StoreError> {
        let mut ring = match (&self.ring, &*self.disk.sealer()) {
            (Some(ring), _) | (None, Sealer::Sealed(ring)) => ring.clone(),
            (None, Sealer::Plain) => return Err(StoreError::Malformed("the store is not sealed")),
        };
        ring.rotate();
        self.note("ring", ring.wrap(master));
        self.ring = Some(ring);
        Ok(())
    }

    /// The keys to seal with once this batch is durable, if they are others.
    pub(super) const fn take_ring(&mut self) -> Option<KeyRing> {
        self.ring.take()
    }

    /// Whether `slot` is changed by this batch already.
    pub(super) fn holds(&self, slot: &Slot) -> bool {
        self.slots.contains_key(slot)
    }

    /// Takes over one pin of `slot`, if this batch changes it; says whether it does.
    pub(super) fn takes_pin(&mut self, slot: &Slot) -> bool {
        let pending = self.slots.get_mut(slot);
        pending.map(|pending| pending.pins += 1).is_some()
    }

    /// What `slot` holds now. It must be pinned, and is frozen unless the batch has it already.
    fn freeze(&self, slot: &Slot) -> Option<Arc<Record>> {
        match self.slots.get(slot) {
            Some(pending) => pending.record.clone(),
            None => self.front.freeze(slot),
        }
    }

    /// Undoes `freeze` of a slot that is not written.
    fn thaw(&self, slot: &Slot) {
        if !self.slots.contains_key(slot) {
            self.front.thaw(slot);
        }
    }

    pub(super) fn swap(
        &mut self,
        expected: Option<Version>,
        wanted: Wanted,
    ) -> Result<Swap, StoreError> {
        let record = Arc::clone(&wanted.record);
        let slot = record.address.slot();
        let there = self.freeze(slot);
        let verdict = judge(there.as_ref().map(|there| there.version), expected, record.version);
        let swap = match verdict {
            Verdict::Refuse => Ok(Swap::Lost(there)),
            Verdict::Repeated => Ok(Swap::Won(there.expect("invariant: judged to be there"))),
            Verdict::Write => match self.put(there.as_deref(), wanted) {
                Ok(()) => return Ok(Swap::Won(record)),
                Err(error) => Err(error),
            },
        };
        self.thaw(slot);
        swap
    }

    /// Writes a frozen slot, if a new key has room. What is held may always grow.
    fn put(&mut self, before: Option<&Record>, wanted: Wanted) -> Result<(), StoreError> {
        let Wanted { record, key, bytes } = wanted;
        let (tenant, counted) = (record.address.tenant(), Counted::of(&record));
        match (self.room, before) {
            (Room::None, _) => return Err(StoreError::Unavailable("the disk is full".into())),
            (Room::Little, None) => return Err(StoreError::Full(Bound::Disk)),
            (Room::Enough, None) => {
                let room = self.tally.room(tenant, counted.bytes, self.now, self.bounds);
                room.map_err(|NoRoom { bound, .. }| StoreError::Full(bound))?;
            }
            (Room::Enough | Room::Little, Some(_)) => {}
        }
        self.tally.exchange(tenant, before.map(Counted::of), Some(counted), self.now);
        let slot = record.address.slot().clone();
        self.pend(slot, key, Some(record), Some(bytes));
        Ok(())
    }

    /// Notes what a slot will hold, in place of what an earlier operation wanted there.
    fn pend(
        &mut self,
        slot: Slot,
        key: Vec<u8>,
        record: Option<Arc<Record>>,
        bytes: Option<Vec<u8>>,
    ) {
        match self.slots.entry(slot) {
            MapEntry::Occupied(mut entry) => {
                let pending = entry.get_mut();
                (pending.record, pending.bytes) = (record, bytes);
            }
            MapEntry::Vacant(entry) => {
                entry.insert(Pending { record, key, bytes, pins: 0 });
            }
        }
    }

    /// Renews a claim that this batch writes; in memory only, as every renewal.
    pub(super) fn renew(
        &mut self,
        slot: &Slot,
        renew: impl FnOnce(&Record) -> Option<Record>,
    ) -> Swap {
        let pending = &mut self.slots.get_mut(slot).expect("invariant: asked before").record;
        match pending.as_deref().and_then(renew).map(Arc::new) {
            Some(renewed) => {
                *pending = Some(Arc::clone(&renewed));
                Swap::Won(renewed)
            }
            None => Swap::Lost(pending.clone()),
        }
    }

    /// Removes `slot` if it still holds `version`; says whether it did.
    pub(super) fn remove(&mut self, slot: &Slot, version: Version) -> bool {
        let there = self.freeze(slot);
        let is_same = there.as_ref().is_some_and(|there| there.version == version);
        if let Some(there) = there.filter(|_| is_same) {
            self.tally.exchange(slot.tenant(), Some(Counted::of(&there)), None, self.now);
            self.pend(slot.clone(), self.disk.slot_key(slot), None, None);
        }
        self.thaw(slot);
        is_same
    }

    pub(super) fn commit(&mut self, tx: &Tx, slots: &[Slot]) -> Result<Commit, StoreError> {
        for slot in slots {
            self.freeze(slot);
        }
        let commit = self.commit_frozen(tx);
        for slot in slots {
            self.thaw(slot);
        }
        commit
    }

    fn commit_frozen(&mut self, tx: &Tx) -> Result<Commit, StoreError> {
        if self.room == Room::None {
            return Err(StoreError::Unavailable("the disk is full".into()));
        }
        for (index, check) in tx.checks().iter().enumerate() {
            let (verdict, current) = self.examine(check, tx.version())?;
            match verdict {
                // Only the anchor proves that the whole transaction was written before.
                Verdict::Repeated if index == 0 => return Ok(Commit::Repeated),
                Verdict::Write => {}
                Verdict::Repeated | Verdict::Refuse => {
                    return Ok(Commit::Conflict { check: index, current });
                }
            }
        }
        self.load(tx)?;
        self.make_room(tx)?;
        let (mut positions, mut writes) = (Vec::new(), tx.writes().iter().peekable());
        while let Some(write) = writes.next() {
            let Write::Append(lane, value) = write else {
                self.apply(write, tx.version());
                continue;
            };
            // What is appended together lies together.
            let mut values: Vec<&[u8]> = vec![value];
            let is_next =
                |write: &&Write| matches!(write, Write::Append(other, _) if other == lane);
            while let Some(Write::Append(_, value)) = writes.next_if(is_next) {
                values.push(value);
            }
            positions.extend(self.append(lane, &values).map(Position));
        }
        Ok(Commit::Committed { positions })
    }

    /// Whether `check` holds, and what is there.
    fn examine(&mut self, check: &Check, next: Version) -> Result<(Verdict, Found), StoreError> {
        Ok(match check {
            Check::Slot(slot, expected) => {
                let there = self.freeze(slot);
                let version = there.as_ref().map(|record| record.version);
                (judge(version, *expected, next), Found::Slot(there))
            }
            Check::Doc(doc, expected) => {
                let there = self.doc(doc)?;
                let version = there.as_ref().map(|doc| doc.version);
                (judge(version, *expected, next), Found::Doc(there))
            }
            Check::AtLeast(counter, least) => {
                let there = self.number(counter_key(counter))?;
                let verdict = if there >= *least { Verdict::Write } else { Verdict::Refuse };
                (verdict, Found::Counter(there))
            }
        })
    }

    fn doc(&mut self, doc: &Doc) -> Result<Option<Document>, StoreError> {
        match self.docs.entry(doc_key(doc)) {
            MapEntry::Occupied(entry) => Ok(entry.get().value.clone()),
            MapEntry::Vacant(entry) => {
                let there = self.disk.doc(&self.disk.recent.still(), entry.key())?;
                Ok(entry.insert(Held::before(there)).value.clone())
            }
        }
    }

    fn number(&mut self, key: Vec<u8>) -> Result<i64, StoreError> {
        match self.numbers.entry(key) {
            MapEntry::Occupied(entry) => Ok(entry.get().value),
            MapEntry::Vacant(entry) => {
                let there = self.disk.number(&self.disk.recent.still(), entry.key())?;
                Ok(entry.insert(Held::before(there)).value)
            }
        }
    }

    /// Reads what `tx` adds to, so that a failing read comes before anything is changed.
    fn load(&mut self, tx: &Tx) -> Result<(), StoreError> {
        for write in tx.writes() {
            match write {
                Write::Append(lane, _) | Write::Trim(lane, _) => {
                    if let MapEntry::Vacant(entry) = self.heads.entry(head_key(lane)) {
                        let there = self.disk.head(&self.disk.recent.still(), entry.key())?;
                        entry.insert(Held::before(there));
                    }
                }
                Write::Add(counter, _) => {
                    self.number(counter_key(counter))?;
                }
                Write::Advance(cursor, _) => {
                    self.number(cursor_key(cursor))?;
                }
                Write::Slot(_) | Write::Put(..) | Write::Delete(_) => {}
            }
        }
        Ok(())
    }

    /// Writes the slots of `tx`, all or none: they alone can be refused.
    fn make_room(&mut self, tx: &Tx) -> Result<(), StoreError> {
        let mut written: Vec<(Slot, Option<Arc<Record>>, bool)> = Vec::new();
        for write in tx.writes() {
            let Write::Slot(draft) = write else { continue };
            let slot = draft.address.slot().clone();
            let (before, held) = (self.freeze(&slot), self.holds(&slot));
            let wanted = self.disk.wanted(draft.clone(), self.now);
            if let Err(error) = self.put(before.as_deref(), wanted) {
                self.put_back(written);
                return Err(error);
            }
            written.push((slot, before, held));
        }
        Ok(())
    }

    /// Undoes the slots of a transaction that was refused.
    fn put_back(&mut self, written: Vec<(Slot, Option<Arc<Record>>, bool)>) {
        for (slot, before, held) in written.into_iter().rev() {
            let counted = |record: Option<&Arc<Record>>| record.map(|r| Counted::of(r));
            let there = self.slots.get(&slot).and_then(|pending| pending.record.as_ref());
            let (there, there_before) = (counted(there), counted(before.as_ref()));
            self.tally.exchange(slot.tenant(), there, there_before, self.now);
            if held {
                let key = self.disk.slot_key(&slot);
                let bytes = before.as_ref().map(|record| self.disk.encode(record, &key));
                self.pend(slot, key, before, bytes);
            } else {
                self.slots.remove(&slot);
            }
        }
    }

    fn apply(&mut self, write: &Write, version: Version) {
        match write {
            Write::Slot(_) | Write::Append(..) => {}
            Write::Put(doc, value) => {
                let document = Document { version, value: value.clone() };
                self.docs.insert(doc_key(doc), Held::written(Some(document)));
            }
            Write::Delete(doc) => {
                self.docs.insert(doc_key(doc), Held::written(None));
            }
            Write::Trim(lane, through) => self.trim(lane, through.0),
            Write::Add(counter, delta) => {
                let sum = to_change(&mut self.numbers, &counter_key(counter));
                *sum = sum.saturating_add(*delta);
            }
            Write::Advance(cursor, to) => {
                let furthest = to_change(&mut self.numbers, &cursor_key(cursor));
                *furthest = furthest.cast_unsigned().max(to.0).cast_signed();
            }
        }
    }

    /// Adds entries to a lane; gives their positions. They are one value, under the position of the
    /// last of them: whoever looks for any of them finds it from there on.
    fn append(&mut self, lane: &Lane, values: &[&[u8]]) -> RangeInclusive<u64> {
        let head = to_change(&mut self.heads, &head_key(lane));
        let first = head.last + 1;
        head.last += values.len() as u64;
        let last = head.last;
        let place = entry_key(lane, last);
        let bytes = codec::encode_entries(self.now, values, &self.disk.sealer(), &place);
        self.writes.push((Space::Lanes, place, Some(bytes)));
        first..=last
    }

    /// Moves the beginning of a lane, and removes some of what is before it.
    fn trim(&mut self, lane: &Lane, through: u64) {
        let head = to_change(&mut self.heads, &head_key(lane));
        head.first = head.first.max(through.min(head.last).saturating_add(1));
        let end = head.first.min(head.oldest.saturating_add(TRIMMED_MAX));
        let gone = head.oldest..end;
        head.oldest = head.oldest.max(end);
        for position in gone {
            self.writes.push((Space::Lanes, entry_key(lane, position), None));
        }
    }
}

/// What a place holds that was read before, to be changed.
fn to_change<'h, T>(held: &'h mut HashMap<Vec<u8>, Held<T>>, key: &[u8]) -> &'h mut T {
    let held = held.get_mut(key).expect("invariant: read before anything changes");
    held.is_written = true;
    &mut held.value
}
