//! What of the store is in memory: every live claim with its lease, and finished records while they
//! are in use.
//!
//! It shows only what is durable. A slot that a write is under way for keeps its old record here
//! until that write is synced; only the writer replaces records, so whoever reads never sees what a
//! power cut could take back. It is bounded: finished records leave it, oldest first, and claims of
//! this process stay, for their leases live nowhere else.
//!
//! Invariant: a slot that is absent here is exactly what the disk says. A reader fetches it without
//! holding the lock, so it must notice when an entry left in the meantime (`Shard::departures`);
//! filing what it read before would bring an old picture back.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use onetake_core::{Phase, Record, Slot, Timestamp};
use onetake_engine::StoreError;

const SHARDS: usize = 64;
/// How often a reader begins again because an entry left its shard meanwhile. Past it, it reads
/// under the lock.
const LOADS_MAX: usize = 4;

/// How much of what is finished stays in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontLimits {
    /// Finished records. Claims of this process are not counted: they must be here.
    pub records_max: usize,
    /// Bytes of finished records, about.
    pub bytes_max: usize,
    /// How long an entry answers before the disk is asked again.
    pub keep: Duration,
}

impl Default for FrontLimits {
    fn default() -> Self {
        Self { records_max: 10_000, bytes_max: 64 << 20, keep: Duration::from_secs(60 * 60) }
    }
}

/// One slot that is in memory.
#[derive(Debug)]
struct Filed {
    /// What the slot durably holds; `None`: nothing.
    record: Option<Arc<Record>>,
    since: Timestamp,
    /// Writes that were asked for and not yet judged. Such an entry stays.
    pins: u32,
    /// The writer is busy with it, so nobody else may change it.
    writing: bool,
    /// It was written or renewed by this process.
    own: bool,
    /// It answered since the last look for room.
    used: bool,
    /// It stands in the line of those that may leave, counted with so many bytes.
    in_line: Option<usize>,
}

impl Filed {
    fn new(record: Option<Arc<Record>>, since: Timestamp) -> Self {
        Self { record, since, pins: 0, writing: false, own: false, used: false, in_line: None }
    }

    /// A claim of this process must stay: its lease is nowhere else.
    fn may_leave(&self) -> bool {
        let is_claim =
            matches!(self.record.as_deref(), Some(Record { phase: Phase::Claimed { .. }, .. }));
        self.pins == 0 && !self.writing && !(is_claim && self.own)
    }

    fn weight(&self) -> usize {
        self.record.as_ref().map_or(0, |record| record.weight())
    }
}

#[derive(Debug, Default)]
struct Shard {
    filed: HashMap<Slot, Filed>,
    /// Those that may leave, in the order in which they came.
    line: VecDeque<Slot>,
    /// Bytes of those in the line.
    bytes: usize,
    /// How often an entry has left.
    departures: u64,
}

/// The part of a store that is in memory.
#[derive(Debug)]
pub(super) struct Front {
    shards: Box<[Mutex<Shard>]>,
    limits: FrontLimits,
    loads: AtomicU64,
}

/// What a look at a slot showed.
#[derive(Debug)]
pub(super) struct Seen {
    /// What it durably holds.
    pub(super) record: Option<Arc<Record>>,
    /// Whether it stays in memory until [`Front::unpin`].
    pub(super) pinned: bool,
}

impl Front {
    pub(super) fn new(limits: FrontLimits) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, limits, loads: AtomicU64::new(0) }
    }

    /// How often the disk was asked.
    pub(super) fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    /// How many slots are in memory.
    pub(super) fn len(&self) -> usize {
        (0..SHARDS).map(|number| self.numbered(number).filed.len()).sum()
    }

    fn numbered(&self, number: usize) -> MutexGuard<'_, Shard> {
        self.shards[number].lock().expect("invariant: no panic under the lock")
    }

    fn shard(&self, slot: &Slot) -> MutexGuard<'_, Shard> {
        self.numbered(usize::from(slot.digest()[0]) % SHARDS)
    }

    /// What `slot` durably holds, from memory or by `load`, which reads the disk. Stays in memory
    /// until [`Front::unpin`] if `pins` says so of what is there and whether a write of it is under
    /// way.
    pub(super) fn look(
        &self,
        slot: &Slot,
        now: Timestamp,
        pins: impl Fn(Option<&Record>, bool) -> bool,
        load: impl Fn() -> Result<Option<Arc<Record>>, StoreError>,
    ) -> Result<Seen, StoreError> {
        for _ in 0..LOADS_MAX {
            let departures = {
                let mut shard = self.shard(slot);
                if let Some(seen) = self.hit(&mut shard, slot, now, &pins) {
                    return Ok(seen);
                }
                shard.departures
            };
            self.loads.fetch_add(1, Ordering::Relaxed);
            let record = load()?;
            let mut shard = self.shard(slot);
            if let Some(seen) = self.hit(&mut shard, slot, now, &pins) {
                return Ok(seen);
            }
            if shard.departures == departures {
                return Ok(self.file(&mut shard, slot, record, now, &pins));
            }
        }
        let mut shard = self.shard(slot);
        if let Some(seen) = self.hit(&mut shard, slot, now, &pins) {
            return Ok(seen);
        }
        let record = load()?;
        Ok(self.file(&mut shard, slot, record, now, &pins))
    }

    fn hit(
        &self,
        shard: &mut Shard,
        slot: &Slot,
        now: Timestamp,
        pins: impl Fn(Option<&Record>, bool) -> bool,
    ) -> Option<Seen> {
        let filed = shard.filed.get_mut(slot)?;
        if filed.may_leave() && now.since(filed.since) >= self.limits.keep {
            shard.leave(slot);
            return None;
        }
        let pinned = pins(filed.record.as_deref(), filed.writing);
        filed.used = true;
        filed.pins += u32::from(pinned);
        Some(Seen { record: filed.record.clone(), pinned })
    }

    /// Files what was just read. An empty slot is not worth a place, unless somebody writes it.
    fn file(
        &self,
        shard: &mut Shard,
        slot: &Slot,
        record: Option<Arc<Record>>,
        now: Timestamp,
        pins: impl Fn(Option<&Record>, bool) -> bool,
    ) -> Seen {
        let pinned = pins(record.as_deref(), false);
        if record.is_some() || pinned {
            let mut filed = Filed::new(record.clone(), now);
            filed.pins = u32::from(pinned);
            shard.filed.insert(slot.clone(), filed);
            self.line_up(shard, slot);
        }
        Seen { record, pinned }
    }

    /// Lets a pinned slot go.
    pub(super) fn unpin(&self, slot: &Slot) {
        let mut shard = self.shard(slot);
        if let Some(filed) = shard.filed.get_mut(slot) {
            filed.pins -= 1;
        }
        self.line_up(&mut shard, slot);
    }

    /// What is in memory of `slot`, if that is the write `write`; with the lease it has by now.
    pub(super) fn newest(&self, slot: &Slot, write: u128) -> Option<Arc<Record>> {
        let shard = self.shard(slot);
        let record = shard.filed.get(slot)?.record.as_ref()?;
        ({ record.version.write } == write).then(|| Arc::clone(record))
    }

    /// Lets nobody but the writer change a pinned slot; gives what it holds.
    pub(super) fn freeze(&self, slot: &Slot) -> Option<Arc<Record>> {
        let mut shard = self.shard(slot);
        let filed = shard.filed.get_mut(slot).expect("invariant: a pinned slot stays in memory");
        filed.writing = true;
        filed.record.clone()
    }

    /// Says that the writer changed nothing.
    pub(super) fn thaw(&self, slot: &Slot) {
        if let Some(filed) = self.shard(slot).filed.get_mut(slot) {
            filed.writing = false;
        }
    }

    /// Says what a frozen slot durably holds from now on.
    pub(super) fn settle(&self, slot: &Slot, record: Option<Arc<Record>>, now: Timestamp) {
        let shard = &mut *self.shard(slot);
        if let Some(filed) = shard.filed.get_mut(slot) {
            (filed.record, filed.since) = (record, now);
            (filed.writing, filed.own) = (false, true);
            let weight = filed.weight();
            if let Some(counted) = &mut filed.in_line {
                shard.bytes = shard.bytes - *counted + weight;
                *counted = weight;
            }
        }
        self.line_up(shard, slot);
    }

    /// Replaces the record of a claim by `renew` of it, unless a write of it is under way. Gives
    /// what is there then, or `None` when the writer must be asked.
    pub(super) fn renew(
        &self,
        slot: &Slot,
        renew: impl FnOnce(&Record) -> Option<Record>,
    ) -> Option<(bool, Option<Arc<Record>>)> {
        let mut shard = self.shard(slot);
        let filed = shard.filed.get_mut(slot).filter(|filed| !filed.writing)?;
        match filed.record.as_deref().and_then(renew).map(Arc::new) {
            Some(renewed) => {
                (filed.record, filed.own) = (Some(Arc::clone(&renewed)), true);
                Some((true, Some(renewed)))
            }
            None => Some((false, filed.record.clone())),
        }
    }

    /// Puts an entry that may leave into the line, and makes room.
    fn line_up(&self, shard: &mut Shard, slot: &Slot) {
        let Some(filed) = shard.filed.get_mut(slot) else { return };
        if !filed.may_leave() {
            return;
        }
        if filed.record.is_none() {
            shard.leave(slot);
            return;
        }
        if filed.in_line.is_none() {
            let weight = filed.weight();
            filed.in_line = Some(weight);
            shard.bytes += weight;
            shard.line.push_back(slot.clone());
        }
        self.make_room(shard);
    }

    fn make_room(&self, shard: &mut Shard) {
        let records_max = (self.limits.records_max / SHARDS).max(1);
        let bytes_max = self.limits.bytes_max / SHARDS;
        // Each round lets one go or forgives one its use, so twice the line is enough.
        for _ in 0..2 * shard.line.len() {
            if shard.line.len() <= records_max && shard.bytes <= bytes_max {
                return;
            }
            let Some(slot) = shard.line.pop_front() else { return };
            let Some(filed) = shard.filed.get_mut(&slot) else { continue };
            if filed.used && filed.may_leave() && shard.bytes <= bytes_max {
                filed.used = false;
                shard.line.push_back(slot);
                continue;
            }
            shard.bytes -= filed.in_line.take().unwrap_or(0);
            if filed.may_leave() {
                shard.filed.remove(&slot);
                shard.departures += 1;
            }
        }
    }
}

impl Shard {
    /// Removes an entry; its place in the line, if it has one, is skipped later.
    fn leave(&mut self, slot: &Slot) {
        if let MapEntry::Occupied(entry) = self.filed.entry(slot.clone()) {
            let filed = entry.remove();
            if let Some(counted) = filed.in_line {
                self.bytes -= counted;
                self.line.retain(|other| other != slot);
            }
            self.departures += 1;
        }
    }
}
