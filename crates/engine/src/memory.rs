//! The reference store: everything in memory, gone with the process.
//!
//! It is the model that other stores are tested against, so it is written to be read: one mutex for
//! each shard of slots, one for the books (documents, lanes, counters, cursors), one for the tally
//! of what is held. It keeps no promise across a crash and never pretends to.
//!
//! Locks are taken in one order, so they cannot wait for each other: books, then shards by number,
//! then the tally.

mod books;
mod shard;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use onetake_core::{Draft, Phase, Record, Slot, Tenant, Timestamp, Verdict, Version, judge};

use self::books::Books;
use self::shard::Shard;
pub use self::tally::{MemoryLimits, OnFull};
use self::tally::{NoRoom, Tally};
use crate::clock::{Clock, SystemClock};
use crate::journal::{
    Check, Commit, Doc, Document, Entry, Found, Journal, Lane, Page, Place, Position, Tx, Write,
};
use crate::store::{Reply, Slots, Stamped, StoreError, Swap, Swept};

const SHARDS: usize = 64;
/// How often a swap makes room and tries again before it reports a full store.
const ROOM_TRIES_MAX: usize = 4;
/// How often a full store looks for what has expired.
const FORGET_EVERY: Duration = Duration::from_secs(1);

/// A store in memory: the model that other stores are tested against. Gone with the process.
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    books: Mutex<Books>,
    tally: Mutex<Tally>,
    sweep_from: Mutex<(usize, Option<Slot>)>,
    forgot_at: Mutex<Option<Timestamp>>,
    limits: MemoryLimits,
    clock: Box<dyn Clock>,
}

impl Memory {
    /// An empty store with the default bounds and the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with(MemoryLimits::default(), SystemClock::new())
    }

    /// An empty store.
    #[must_use]
    pub fn with(limits: MemoryLimits, clock: impl Clock) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            books: Mutex::default(),
            tally: Mutex::default(),
            sweep_from: Mutex::default(),
            forgot_at: Mutex::default(),
            limits,
            clock: Box::new(clock),
        }
    }

    /// How many records it holds, expired ones that nobody swept included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tally.lock().expect("invariant: no panic under the lock").records()
    }

    /// Whether it holds no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn stamp<T>(&self, value: T) -> Stamped<T> {
        Stamped { now: self.clock.now(), value }
    }

    fn shard(&self, slot: &Slot) -> MutexGuard<'_, Shard> {
        self.shard_number(Self::number(slot))
    }

    fn shard_number(&self, number: usize) -> MutexGuard<'_, Shard> {
        self.shards[number].lock().expect("invariant: no panic under the lock")
    }

    fn number(slot: &Slot) -> usize {
        usize::from(slot.digest()[0]) % SHARDS
    }

    /// Writes `record` into its slot and keeps the tally; refuses a new slot when the bounds say
    /// so. What is already held may always grow: an outcome must never be refused.
    fn put(&self, shard: &mut Shard, record: Record) -> Result<Arc<Record>, NoRoom> {
        let before = shard.get(record.address.slot()).map(|there| there.weight());
        let mut tally = self.tally.lock().expect("invariant: no panic under the lock");
        tally.exchange(record.address.tenant(), before, record.weight(), &self.limits)?;
        let record = Arc::new(record);
        shard.insert(Arc::clone(&record));
        Ok(record)
    }

    /// Undoes a `put`.
    fn put_back(&self, shard: &mut Shard, slot: &Slot, before: Option<Arc<Record>>) {
        match before {
            None => self.remove(shard, slot),
            Some(record) => {
                let restored = self.put(shard, Record::clone(&record));
                assert!(
                    restored.is_ok(),
                    "invariant: what replaces a held record is never refused"
                );
            }
        }
    }

    fn remove(&self, shard: &mut Shard, slot: &Slot) {
        if let Some(record) = shard.remove(slot) {
            let mut tally = self.tally.lock().expect("invariant: no panic under the lock");
            tally.forget(slot.tenant(), record.weight());
        }
    }

    /// Removes the oldest finished records of a tenant until there is room, and one in a hundred of
    /// them at least, so that a full store does not search for room on every new key. Removes
    /// nothing when that would not be enough. Never a live or unknown one, and never another
    /// tenant's.
    fn make_room(&self, needed: &NoRoom) -> bool {
        let (tenant, now) = (&needed.tenant, self.clock.now());
        let mut finished = Vec::new();
        for number in 0..SHARDS {
            let shard = self.shard_number(number);
            // A tombstone keeps late copies away until its time; what is finished may go before.
            let may_go = |r: &Record| matches!(r.phase, Phase::Done { .. }) || r.is_removable(now);
            let own = shard.records().filter(|r| r.address.tenant() == tenant && may_go(r));
            finished.extend(own.map(|record| (record.since, Arc::clone(record))));
        }
        finished.sort_unstable_by(|(a, x), (b, y)| {
            a.cmp(b).then_with(|| x.address.slot().cmp(y.address.slot()))
        });
        let least = needed.records.max(finished.len().div_ceil(100));
        let (mut goes, mut bytes) = (0, 0);
        while goes < finished.len() && (goes < least || bytes < needed.bytes) {
            bytes += finished[goes].1.weight();
            goes += 1;
        }
        if goes < needed.records || bytes < needed.bytes {
            return false;
        }
        for (_, listed) in &finished[..goes] {
            let slot = listed.address.slot();
            let mut shard = self.shard(slot);
            // It may have been claimed again since it was listed.
            if shard.get(slot).is_some_and(|there| there.version == listed.version) {
                self.remove(&mut shard, slot);
            }
        }
        goes > 0
    }

    /// Removes what has expired, for it does not exist and must not refuse anyone; gives whether
    /// anything went. At most once a second, so that a full store is not searched for every new
    /// key.
    fn forget_expired(&self) -> bool {
        let now = self.clock.now();
        let mut last = self.forgot_at.lock().expect("invariant: no panic under the lock");
        if last.is_some_and(|last| now.since(last) < FORGET_EVERY) {
            return false;
        }
        *last = Some(now);
        let before = self.len();
        for number in 0..SHARDS {
            let mut shard = self.shard_number(number);
            let gone = shard.behind(None, usize::MAX, |record| record.is_removable(now));
            let gone: Vec<_> = gone.into_iter().map(|r| r.address.slot().clone()).collect();
            for slot in &gone {
                self.remove(&mut shard, slot);
            }
        }
        self.len() < before
    }

    fn swap_once(&self, expected: Option<Version>, next: &Draft) -> Result<Stamped<Swap>, NoRoom> {
        let mut shard = self.shard(next.address.slot());
        let there = shard.get(next.address.slot());
        let reply = match judge(there.map(|record| record.version), expected, next.version) {
            Verdict::Refuse => Swap::Lost(there.cloned()),
            Verdict::Repeated => {
                Swap::Won(Arc::clone(there.expect("invariant: judged to be there")))
            }
            Verdict::Write => Swap::Won(self.put(&mut shard, next.clone().at(self.clock.now()))?),
        };
        Ok(self.stamp(reply))
    }

    /// Runs `attempt`, which writes up to `slots` new ones, and makes room as often as it needs and
    /// the settings allow.
    fn with_room<T>(
        &self,
        slots: usize,
        attempt: impl Fn() -> Result<T, NoRoom>,
    ) -> Result<T, StoreError> {
        for _ in 0..slots + ROOM_TRIES_MAX {
            let needed = match attempt() {
                Ok(reply) => return Ok(reply),
                Err(needed) => needed,
            };
            let evict = self.limits.on_full == OnFull::Evict;
            let has_room = self.forget_expired() || (evict && self.make_room(&needed));
            if !has_room {
                return Err(StoreError::Full(needed.bound));
            }
        }
        Err(StoreError::Unavailable("rivals took the room that was made".into()))
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("records", &self.len()).finish_non_exhaustive()
    }
}

impl Slots for Memory {
    fn at_hand(&self, slot: &Slot) -> Option<Stamped<Arc<Record>>> {
        let found = self.shard(slot).get(slot).cloned();
        found.map(|found| self.stamp(found))
    }

    async fn read(&self, slot: &Slot) -> Reply<Option<Arc<Record>>> {
        let found = self.shard(slot).get(slot).cloned();
        Ok(self.stamp(found))
    }

    async fn swap(&self, expected: Option<Version>, next: Draft) -> Reply<Swap> {
        self.with_room(1, || self.swap_once(expected, &next))
    }

    async fn renew(&self, slot: &Slot, expected: Version, lease: Duration) -> Reply<Swap> {
        let mut shard = self.shard(slot);
        let now = self.clock.now();
        let there = shard.get(slot).cloned();
        let claim = there.as_ref().filter(|there| there.version == expected);
        let reply = match claim.and_then(|claim| claim.renewed(now, lease)).map(Arc::new) {
            Some(renewed) => {
                shard.insert(Arc::clone(&renewed));
                Swap::Won(renewed)
            }
            None => Swap::Lost(there),
        };
        Ok(Stamped { now, value: reply })
    }

    async fn sweep(&self, limit: usize) -> Reply<Swept> {
        let limit = limit.max(1);
        let mut from = self.sweep_from.lock().expect("invariant: no panic under the lock");
        let (number, after) = from.clone();
        let now = self.clock.now();
        let mut shard = self.shard_number(number);
        let seen: Vec<_> = shard
            .behind(after.as_ref(), limit, |_| true)
            .into_iter()
            .map(|record| (record.address.slot().clone(), record.is_removable(now)))
            .collect();
        let gone: Vec<_> = seen.iter().filter(|(_, gone)| *gone).map(|(slot, _)| slot).collect();
        for slot in &gone {
            self.remove(&mut shard, slot);
        }
        let shard_done = seen.len() < limit;
        let done = shard_done && number + 1 == SHARDS;
        let removed = gone.len();
        *from = match seen.last() {
            _ if shard_done => ((number + 1) % SHARDS, None),
            last => (number, last.map(|(slot, _)| slot.clone())),
        };
        Ok(Stamped { now, value: Swept { removed, done } })
    }
}

impl Journal for Memory {
    async fn commit(&self, tx: Tx) -> Reply<Commit> {
        tx.within_bounds()?;
        let slots = tx.writes().iter().filter_map(slot_of).count();
        let commit = self.with_room(slots, || self.commit_once(&tx))?;
        Ok(self.stamp(commit))
    }

    async fn fetch(&self, places: &[Place]) -> Reply<Vec<Found>> {
        let books = self.books.lock().expect("invariant: no panic under the lock");
        let held = self.lock_all(places.iter().filter_map(|place| match place {
            Place::Slot(slot) => Some(slot),
            Place::Doc(_) | Place::Counter(_) | Place::Cursor(_) => None,
        }));
        let found = places.iter().map(|place| match place {
            Place::Slot(slot) => Found::Slot(held.get(slot).cloned()),
            Place::Doc(doc) => Found::Doc(books.doc(doc).cloned()),
            Place::Counter(counter) => Found::Counter(books.counter(counter)),
            Place::Cursor(cursor) => Found::Cursor(books.cursor(cursor)),
        });
        Ok(self.stamp(found.collect()))
    }

    async fn scan(
        &self,
        space: &'static str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Reply<Page<(Doc, Document)>> {
        let books = self.books.lock().expect("invariant: no panic under the lock");
        Ok(self.stamp(books.scan(space, prefix, after, limit)))
    }

    async fn scan_slots(
        &self,
        tenant: Option<&Tenant>,
        after: Option<&Slot>,
        limit: usize,
    ) -> Reply<Page<Arc<Record>>> {
        let mut found = BTreeMap::new();
        let wanted = |record: &Record| tenant.is_none_or(|t| record.address.tenant() == t);
        for number in 0..SHARDS {
            let shard = self.shard_number(number);
            let records = shard.behind(after, limit.saturating_add(1), wanted);
            found.extend(records.into_iter().map(|r| (r.address.slot().clone(), Arc::clone(r))));
        }
        let more = found.len() > limit;
        let items = found.into_values().take(limit).collect();
        Ok(self.stamp(Page { items, more }))
    }

    async fn read_lane(&self, lane: &Lane, after: Position, limit: usize) -> Reply<Page<Entry>> {
        let books = self.books.lock().expect("invariant: no panic under the lock");
        Ok(self.stamp(books.read_lane(lane, after, limit)))
    }
}

/// The shards that a transaction touches, locked in the order of their numbers.
struct Held<'m>(BTreeMap<usize, MutexGuard<'m, Shard>>);

impl Held<'_> {
    fn get(&self, slot: &Slot) -> Option<&Arc<Record>> {
        self.0[&Memory::number(slot)].get(slot)
    }

    fn shard(&mut self, slot: &Slot) -> &mut Shard {
        self.0.get_mut(&Memory::number(slot)).expect("invariant: every touched shard is locked")
    }
}

fn slot_of(write: &Write) -> Option<&Slot> {
    match write {
        Write::Slot(draft) => Some(draft.address.slot()),
        Write::Put(..)
        | Write::Delete(_)
        | Write::Append(..)
        | Write::Trim(..)
        | Write::Add(..)
        | Write::Advance(..) => None,
    }
}

impl Memory {
    fn lock_all<'s>(&self, slots: impl Iterator<Item = &'s Slot>) -> Held<'_> {
        let numbers: BTreeSet<_> = slots.map(Self::number).collect();
        Held(numbers.into_iter().map(|n| (n, self.shard_number(n))).collect())
    }

    fn commit_once(&self, tx: &Tx) -> Result<Commit, NoRoom> {
        let mut books = self.books.lock().expect("invariant: no panic under the lock");
        let checked = tx.checks().iter().filter_map(|check| match check {
            Check::Slot(slot, _) => Some(slot),
            Check::Doc(..) | Check::AtLeast(..) => None,
        });
        let mut held = self.lock_all(checked.chain(tx.writes().iter().filter_map(slot_of)));
        for (index, check) in tx.checks().iter().enumerate() {
            let (verdict, current) = examine(&books, &held, check, tx.version());
            match verdict {
                // Only the anchor proves that the whole transaction was written before.
                Verdict::Repeated if index == 0 => return Ok(Commit::Repeated),
                Verdict::Write => {}
                Verdict::Repeated | Verdict::Refuse => {
                    return Ok(Commit::Conflict { check: index, current });
                }
            }
        }
        let now = self.clock.now();
        // Slots first: they alone can be refused, and then nothing at all may have been written.
        let mut written: Vec<(&Slot, Option<Arc<Record>>)> = Vec::new();
        for (write, slot) in tx.writes().iter().filter_map(|write| Some((write, slot_of(write)?))) {
            let Write::Slot(draft) = write else { continue };
            let before = held.get(slot).cloned();
            if let Err(needed) = self.put(held.shard(slot), draft.clone().at(now)) {
                for (slot, before) in written.into_iter().rev() {
                    self.put_back(held.shard(slot), slot, before);
                }
                return Err(needed);
            }
            written.push((slot, before));
        }
        let positions = books.apply(tx, now);
        Ok(Commit::Committed { positions })
    }
}

/// Whether `check` holds, and what is there.
fn examine(books: &Books, held: &Held<'_>, check: &Check, next: Version) -> (Verdict, Found) {
    match check {
        Check::Slot(slot, expected) => {
            let there = held.get(slot).cloned();
            (
                judge(there.as_ref().map(|record| record.version), *expected, next),
                Found::Slot(there),
            )
        }
        Check::Doc(doc, expected) => {
            let there = books.doc(doc).cloned();
            (judge(there.as_ref().map(|doc| doc.version), *expected, next), Found::Doc(there))
        }
        Check::AtLeast(counter, least) => {
            let there = books.counter(counter);
            let verdict = if there >= *least { Verdict::Write } else { Verdict::Refuse };
            (verdict, Found::Counter(there))
        }
    }
}
