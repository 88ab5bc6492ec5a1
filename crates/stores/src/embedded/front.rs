//! What of the store is in memory: every live claim with its lease, and finished records while they
//! are in use.
//!
//! It shows only what is durable. A slot that a write is under way for keeps its old record here
//! until that write is synced; only the writer replaces records, so whoever reads never sees what a
//! power cut could take back. It is bounded: finished records leave it, oldest first. Claims of
//! this process stay, for their leases live nowhere else, and so does what is in the log and not in
//! the tables yet, which the size of the log bounds.
//!
//! Invariant: a slot that is absent here is exactly what the tables say. A reader fetches it
//! without holding the lock, so it must notice when an entry left in the meantime
//! (`Shard::departures`); filing what it read before would bring an old picture back.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use onetake_core::{Phase, Record, Slot, Timestamp};
use onetake_engine::StoreError;

const SHARDS: usize = 64;
/// How often a reader begins again because an entry left its shard meanwhile. Past it, it reads
/// under the lock.
const LOADS_MAX: usize = 4;
/// Slots of a shard of which is known for a moment that they hold nothing.
const ABSENT_MAX: usize = 4;

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

/// What a slot holds that is in the log and not in the tables yet: parts of the frame there.
#[derive(Debug, Clone)]
pub(super) struct Fresh {
    /// The frame that wrote it.
    pub(super) frame: u64,
    pub(super) key: Bytes,
    /// `None`: it was removed.
    pub(super) bytes: Option<Bytes>,
}

/// What a slot durably holds, with what counts of it when room is made: thousands are let go at
/// once, long after anybody last looked at them.
#[derive(Debug)]
struct Held {
    /// `None`: nothing.
    record: Option<Arc<Record>>,
    is_claim: bool,
    weight: usize,
}

impl From<Option<Arc<Record>>> for Held {
    fn from(record: Option<Arc<Record>>) -> Self {
        let is_claim = |record: &Arc<Record>| matches!(record.phase, Phase::Claimed { .. });
        let is_claim = record.as_ref().is_some_and(is_claim);
        let weight = record.as_ref().map_or(0, |record| record.weight());
        Self { record, is_claim, weight }
    }
}

/// One slot that is in memory.
#[derive(Debug)]
struct Filed {
    held: Held,
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
    /// As it must come into the tables, unless it is there.
    fresh: Option<Fresh>,
}

impl Filed {
    fn new(record: Option<Arc<Record>>, since: Timestamp) -> Self {
        Self {
            held: record.into(),
            since,
            pins: 0,
            writing: false,
            own: false,
            used: false,
            in_line: None,
            fresh: None,
        }
    }

    /// A claim of this process must stay: its lease is nowhere else. So must what the tables do not
    /// have.
    fn may_leave(&self) -> bool {
        let is_own_claim = self.held.is_claim && self.own;
        self.pins == 0 && !self.writing && self.fresh.is_none() && !is_own_claim
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
    /// Slots that became fresh since they were last taken over.
    fresh: Vec<Slot>,
    /// Slots that the tables did not have when so many entries had left: whoever looked and found
    /// nothing most likely comes back to write.
    absent: VecDeque<(Slot, u64)>,
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
                if shard.is_absent(slot) {
                    return Ok(self.file(&mut shard, slot, None, now, &pins));
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

    /// What `slot` durably holds, if that is in memory.
    pub(super) fn at_hand(&self, slot: &Slot, now: Timestamp) -> Option<Arc<Record>> {
        self.hit(&mut self.shard(slot), slot, now, |_, _| false)?.record
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
        let pinned = pins(filed.held.record.as_deref(), filed.writing);
        // What is only read stays in the caches of all processors.
        if !filed.used {
            filed.used = true;
        }
        if pinned {
            filed.pins += 1;
        }
        Some(Seen { record: filed.held.record.clone(), pinned })
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
            if pinned {
                // It comes into the line once it is written. Whoever brings it makes room now, so
                // that the writer need not.
                self.make_room(shard, self.records_max().saturating_sub(1));
            }
        } else {
            shard.note_absent(slot);
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
        let record = shard.filed.get(slot)?.held.record.as_ref()?;
        ({ record.version.write } == write).then(|| Arc::clone(record))
    }

    /// Lets nobody but the writer change a pinned slot; gives what it holds.
    pub(super) fn freeze(&self, slot: &Slot) -> Option<Arc<Record>> {
        let mut shard = self.shard(slot);
        let filed = shard.filed.get_mut(slot).expect("invariant: a pinned slot stays in memory");
        filed.writing = true;
        filed.held.record.clone()
    }

    /// Says that the writer changed nothing.
    pub(super) fn thaw(&self, slot: &Slot) {
        if let Some(filed) = self.shard(slot).filed.get_mut(slot) {
            filed.writing = false;
        }
    }

    /// Says what a frozen slot durably holds from now on, and ends so many of its pins.
    pub(super) fn settle(
        &self,
        slot: &Slot,
        record: Option<Arc<Record>>,
        fresh: Fresh,
        now: Timestamp,
        pins: u32,
    ) {
        let shard = &mut *self.shard(slot);
        if let Some(filed) = shard.filed.get_mut(slot) {
            filed.held = record.into();
            filed.since = now;
            (filed.writing, filed.own) = (false, true);
            filed.pins -= pins;
            if filed.fresh.replace(fresh).is_none() {
                shard.fresh.push(slot.clone());
            }
            let weight = filed.held.weight;
            if let Some(counted) = &mut filed.in_line {
                shard.bytes = shard.bytes - *counted + weight;
                *counted = weight;
            }
        }
        self.line_up(shard, slot);
    }

    /// Everything that the tables do not have, to be taken over, each with its slot.
    pub(super) fn take_fresh(&self) -> Vec<(Slot, Fresh)> {
        let fresh: usize = (0..SHARDS).map(|number| self.numbered(number).fresh.len()).sum();
        // More come while they are gathered; to copy all that for a few of them costs much.
        let mut taken = Vec::with_capacity(fresh + fresh / 8);
        for number in 0..SHARDS {
            let shard = &mut *self.numbered(number);
            for slot in std::mem::take(&mut shard.fresh) {
                if let Some(fresh) = shard.filed.get(&slot).and_then(|filed| filed.fresh.clone()) {
                    taken.push((slot, fresh));
                }
            }
        }
        taken
    }

    /// Says that `slot` is in the tables as the frame `frame` wrote it. What was written since is
    /// still to come.
    pub(super) fn taken_over(&self, slot: &Slot, frame: u64) {
        let shard = &mut *self.shard(slot);
        let Some(filed) = shard.filed.get_mut(slot) else { return };
        if filed.fresh.as_ref().is_some_and(|fresh| fresh.frame == frame) {
            filed.fresh = None;
            self.line_up(shard, slot);
        } else {
            shard.fresh.push(slot.clone());
        }
    }

    /// What the tables do not have, of keys that `is_wanted`, in no order.
    pub(super) fn fresh(
        &self,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Vec<(Fresh, Option<Arc<Record>>)> {
        let mut found = Vec::new();
        for number in 0..SHARDS {
            for filed in self.numbered(number).filed.values() {
                if let Some(fresh) = filed.fresh.as_ref().filter(|fresh| is_wanted(&fresh.key)) {
                    found.push((fresh.clone(), filed.held.record.clone()));
                }
            }
        }
        found
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
        match filed.held.record.as_deref().and_then(renew).map(Arc::new) {
            Some(renewed) => {
                filed.held = Some(Arc::clone(&renewed)).into();
                filed.own = true;
                Some((true, Some(renewed)))
            }
            None => Some((false, filed.held.record.clone())),
        }
    }

    /// Puts an entry that may leave into the line, and makes room.
    fn line_up(&self, shard: &mut Shard, slot: &Slot) {
        let Some(filed) = shard.filed.get_mut(slot) else { return };
        if !filed.may_leave() {
            return;
        }
        if filed.held.record.is_none() {
            shard.leave(slot);
            return;
        }
        if filed.in_line.is_none() {
            let weight = filed.held.weight;
            filed.in_line = Some(weight);
            shard.bytes += weight;
            shard.line.push_back(slot.clone());
        }
        self.make_room(shard, self.records_max());
    }

    /// The most finished records of one shard.
    fn records_max(&self) -> usize {
        (self.limits.records_max / SHARDS).max(1)
    }

    /// Lets the oldest go until there are at most `records_max`, and not too many bytes.
    fn make_room(&self, shard: &mut Shard, records_max: usize) {
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
    /// Notes that the tables have nothing of a slot that is not here.
    fn note_absent(&mut self, slot: &Slot) {
        if self.absent.len() == ABSENT_MAX {
            self.absent.pop_front();
        }
        self.absent.push_back((slot.clone(), self.departures));
    }

    /// Whether a slot that is not here is known to hold nothing. What comes into the tables was
    /// here and has left.
    fn is_absent(&self, slot: &Slot) -> bool {
        self.absent.iter().any(|(other, at)| *at == self.departures && other == slot)
    }

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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use onetake_core::{
        Address, Asked, Draft, Fence, Keeping, Key, Operation, Outcome, Scope, Tenant, Version,
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);
    const LEASE: Duration = Duration::from_secs(30);

    fn record(key: &str, write: u128, phase: Phase<Duration>) -> Arc<Record> {
        let scope = Scope::tenant_wide(Tenant::new("acme").unwrap());
        let operation = Operation::new("orders.create").unwrap();
        let address = Address::new(scope, operation, Key::new(key).unwrap());
        let draft = Draft {
            version: Version::of_write(write),
            fence: Fence(write),
            address: Arc::new(address),
            fingerprint: Asked::raw("x").fingerprint().clone(),
            attempt: 1,
            recovery: false,
            since: Duration::ZERO,
            phase,
        };
        Arc::new(draft.at(NOW))
    }

    fn claim(key: &str, write: u128) -> Arc<Record> {
        record(key, write, Phase::Claimed { lease_until: LEASE })
    }

    fn done(key: &str, write: u128) -> Arc<Record> {
        let outcome = Arc::new(Outcome::Value("v".into()));
        let (keeping, expires_at) = (Keeping::Final, LEASE);
        record(key, write, Phase::Done { outcome, keeping, expires_at })
    }

    fn front(records_max: usize) -> Front {
        Front::new(FrontLimits { records_max, ..FrontLimits::default() })
    }

    /// Writes `record` as the writer does.
    fn write(front: &Front, before: Option<&Arc<Record>>, record: &Arc<Record>) {
        let slot = record.address.slot();
        let load = || Ok(before.cloned());
        assert!(front.look(slot, NOW, |_, _| true, load).unwrap().pinned);
        front.freeze(slot);
        front.settle(slot, Some(Arc::clone(record)), fresh(1), NOW, 1);
        for (slot, fresh) in front.take_fresh() {
            front.taken_over(&slot, fresh.frame);
        }
    }

    fn fresh(frame: u64) -> Fresh {
        Fresh { frame, key: "key".into(), bytes: Some("bytes".into()) }
    }

    fn look(front: &Front, slot: &Slot, disk: Option<&Arc<Record>>) -> Option<Arc<Record>> {
        front.look(slot, NOW, |_, _| false, || Ok(disk.cloned())).unwrap().record
    }

    /// D6: what was read from the disk before another wrote and left memory is an old picture;
    /// filed now, it would let a key be claimed twice.
    #[test]
    fn d6_a_picture_from_before_a_departure_is_never_filed() {
        let front = front(1);
        let (old, new) = (claim("k", 1), done("k", 2));
        let (slot, reads) = (old.address.slot().clone(), Cell::new(0));
        let seen = front.look(
            &slot,
            NOW,
            |_, _| false,
            || {
                reads.set(reads.get() + 1);
                if reads.get() == 1 {
                    // While this one reads, another claims, settles, and the entry leaves memory.
                    write(&front, Some(&old), &new);
                    front.shard(&slot).leave(&slot);
                    return Ok(Some(Arc::clone(&old)));
                }
                Ok(Some(Arc::clone(&new)))
            },
        );
        assert_eq!(seen.unwrap().record, Some(new));
        assert_eq!(reads.get(), 2);
    }

    /// D6: whoever found nothing may write without another look at the disk, but only as long as
    /// nothing left memory that could have come into the tables meanwhile.
    #[test]
    fn d6_what_was_absent_is_looked_for_again_once_something_has_left() {
        let front = front(64);
        let (record, reads) = (done("k", 1), Cell::new(0));
        let slot = record.address.slot();
        let look = |is_pinned: bool, there: Option<&Arc<Record>>| {
            let load = || {
                reads.set(reads.get() + 1);
                Ok(there.cloned())
            };
            front.look(slot, NOW, |_, _| is_pinned, load).unwrap().record
        };
        assert_eq!((look(false, None), reads.get()), (None, 1));
        assert_eq!((look(false, None), reads.get()), (None, 1), "known a moment ago");
        write(&front, None, &record);
        front.shard(slot).leave(slot);
        assert_eq!((look(true, Some(&record)), reads.get()), (Some(record.clone()), 2));
    }

    /// X1: the lease of a claim of this process is nowhere else, so it stays however full it is.
    #[test]
    fn x1_claims_of_this_process_stay_and_finished_records_leave() {
        let front = front(64);
        let claims: Vec<_> = (0..500).map(|n| claim(&format!("c{n}"), n)).collect();
        for claim in &claims {
            write(&front, None, claim);
        }
        for n in 0..500 {
            write(&front, None, &done(&format!("d{n}"), 1_000 + n));
        }
        assert!(front.len() >= 500 && front.len() <= 500 + 64, "{}", front.len());
        for claim in &claims {
            assert_eq!(look(&front, claim.address.slot(), None).as_ref(), Some(claim));
        }
        let of_an_earlier_process = claim("old", 9_999);
        look(&front, of_an_earlier_process.address.slot(), Some(&of_an_earlier_process));
        let slot = of_an_earlier_process.address.slot();
        assert!(front.shard(slot).filed.get(slot).is_none_or(Filed::may_leave), "it may leave");
    }

    /// X2: while the writer is busy with a slot, a renewal must ask the writer who was first.
    #[test]
    fn x2_nobody_renews_what_the_writer_is_busy_with() {
        let front = front(64);
        let claim = claim("k", 1);
        let slot = claim.address.slot();
        write(&front, None, &claim);
        let renew = |record: &Record| record.renewed(NOW, LEASE);
        assert!(matches!(front.renew(slot, renew), Some((true, Some(_)))));
        let pinned = front.look(slot, NOW, |_, _| true, || Ok(None)).unwrap();
        assert!(pinned.pinned);
        front.freeze(slot);
        assert!(front.renew(slot, renew).is_none(), "not now");
        front.thaw(slot);
        assert!(matches!(front.renew(slot, renew), Some((true, Some(_)))));
        assert!(matches!(front.renew(slot, |_| None), Some((false, Some(_)))));
    }

    /// D6: what only the log has stays in memory, or tables would be believed that do not have it.
    #[test]
    fn d6_what_the_tables_do_not_have_stays_in_memory() {
        let front = front(1);
        let records: Vec<_> = (0..100).map(|n| done(&format!("d{n}"), n)).collect();
        for (record, frame) in records.iter().zip(1..) {
            let slot = record.address.slot();
            assert!(front.look(slot, NOW, |_, _| true, || Ok(None)).unwrap().pinned);
            front.freeze(slot);
            front.settle(slot, Some(Arc::clone(record)), fresh(frame), NOW, 1);
        }
        assert_eq!(front.len(), 100);
        let taken = front.take_fresh();
        assert_eq!((taken.len(), front.take_fresh().len()), (100, 0));
        // One is written again while the others are on their way.
        let again = records[0].address.slot();
        front.look(again, NOW, |_, _| true, || Ok(None)).unwrap();
        front.freeze(again);
        front.settle(again, Some(Arc::clone(&records[0])), fresh(200), NOW, 1);
        for (slot, fresh) in taken {
            front.taken_over(&slot, fresh.frame);
        }
        assert!(front.len() <= SHARDS + 1);
        assert_eq!(front.fresh(|_| true).len(), 1);
        let left: Vec<_> = front.take_fresh().into_iter().map(|(_, fresh)| fresh.frame).collect();
        assert_eq!(left, [200]);
    }

    #[test]
    fn bytes_are_bounded_as_well_as_records() {
        let limits = FrontLimits { bytes_max: 64 * 1_000, ..FrontLimits::default() };
        let front = Front::new(limits);
        for n in 0..1_000 {
            write(&front, None, &done(&format!("d{n}"), n));
        }
        let weight = done("d0", 0).weight();
        assert!(front.len() * weight <= 64 * 1_000, "{} of {weight} bytes", front.len());
        let counted: usize = (0..SHARDS).map(|n| front.numbered(n).bytes).sum();
        assert_eq!(counted, front.len() * weight + spread(&front, weight));
    }

    /// Keys differ by a digit or two, and so do their weights.
    fn spread(front: &Front, weight: usize) -> usize {
        let weights = (0..SHARDS).flat_map(|n| {
            front.numbered(n).filed.values().map(|filed| filed.held.weight).collect::<Vec<_>>()
        });
        weights.map(|own| own - weight).sum()
    }
}
