//! The embedded store: one folder, no server, every answer on disk before it is given.
//!
//! One process opens it at a time. Whoever asks reads for itself, from memory or from the disk; one
//! thread judges and writes, many operations with one sync. Leases live in memory, because they are
//! worth nothing to another process: whatever an earlier one had claimed counts as lapsed from the
//! moment the store is opened. This store never answers what a power cut could take back.

mod batch;
mod crash;
mod disk;
mod expiry;
mod floors;
mod folder;
mod front;
mod house;
mod listing;
mod log;
mod open;
mod options;
mod picture;
mod probe;
mod queue;
mod recent;
mod shared;
mod takeover;
mod tally;
#[cfg(test)]
mod tests;
mod time;
pub mod upkeep;
mod writer;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use onetake_core::{Draft, Phase, Record, Slot, Tenant, Verdict, Version, judge};
use onetake_engine::{
    Bound, Check, Commit, Doc, Document, Entry, Found, Journal, Lane, OnFull, Page, Place,
    Position, Reply, Slots, Stamped, StoreError, Swap, Swept, Tx, Write,
};
use tokio::sync::oneshot;

use self::batch::TRIMMED_MAX;
use self::crash::point;
#[cfg(feature = "crash-points")]
pub use self::crash::point as crash_point;
use self::disk::{counter_key, cursor_key, doc_key};
use self::folder::Folder;
pub use self::front::FrontLimits;
use self::house::House;
pub use self::open::OpenError;
pub use self::options::{OnLoss, Options};
pub use self::queue::QueueLimits;
use self::queue::Turned;
use self::shared::Shared;
use self::takeover::TakeOver;
pub use self::tally::Bounds;
use self::time::Machine;
use self::writer::{Ear, Op, Writer, renewed, renewing};

/// About as large as a new claim is.
const NEW_KEY_BYTES: usize = 512;
/// How often a swap makes room and tries again before it reports a full store.
const ROOM_TRIES_MAX: usize = 4;

/// A durable store in one folder. Cheap to clone; the last clone closes it.
#[derive(Clone)]
pub struct Embedded(Arc<Inner>);

struct Inner {
    /// Taken when the store is closed.
    shared: Option<Arc<Shared>>,
    writer: Option<JoinHandle<()>>,
    takeover: TakeOver,
    house: House,
    folder: Folder,
    sweep_from: std::sync::Mutex<Option<Slot>>,
    /// One makes room at a time, or all would pick the same records.
    evicting: tokio::sync::Mutex<()>,
}

impl Embedded {
    /// Opens the store in `folder`, and makes one where there is none.
    ///
    /// # Errors
    /// An [`OpenError`] that says what is in the way and what to do.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(folder, Options::default())
    }

    /// As [`Embedded::open`], with other settings.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub fn open_with(folder: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::open_on(folder.as_ref(), options, Machine::default())
    }

    fn open_on(folder: &Path, options: Options, machine: Machine) -> Result<Self, OpenError> {
        let folder = Folder::lock(folder)?;
        let (shared, mark) = open::open(&folder, options, machine)?;
        let shared = Arc::new(shared);
        let (writer, picture) =
            (Writer::new(Arc::clone(&shared)), shared.disk.tables.db.snapshot());
        let spawn = |name: &str| std::thread::Builder::new().name(name.into());
        let failed =
            |source| OpenError::Io { folder: folder.path().to_path_buf(), doing: "opened", source };
        let writer = spawn("onetake-writer").spawn(move || writer.run()).map_err(failed)?;
        let log = folder.log();
        let takeover = TakeOver::keep(Arc::clone(&shared), mark, log).map_err(failed)?;
        let house = House::keep(Arc::clone(&shared), picture).map_err(failed)?;
        Ok(Self(Arc::new(Inner {
            shared: Some(shared),
            writer: Some(writer),
            takeover,
            house,
            folder,
            sweep_from: std::sync::Mutex::default(),
            evicting: tokio::sync::Mutex::default(),
        })))
    }

    /// Whether there is a store in `folder`. Looks, and makes nothing.
    #[must_use]
    pub fn is_at(folder: impl AsRef<Path>) -> bool {
        Folder::has_store(folder.as_ref())
    }

    /// The folder of this store.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.0.folder.path()
    }

    fn shared(&self) -> &Arc<Shared> {
        self.0.shared.as_ref().expect("invariant: taken only when the last handle goes")
    }

    fn stamp<T>(&self, value: T) -> Stamped<T> {
        Stamped { now: self.shared().clock.now(), value }
    }

    /// Stands an operation in line; gives the ear that will hear of it, or why it cannot be.
    fn ask<T>(
        &self,
        bytes: usize,
        pinned: &[Slot],
        op: impl FnOnce(Ear<T>) -> Op,
    ) -> Result<oneshot::Receiver<Reply<T>>, StoreError> {
        let (ear, answer) = oneshot::channel();
        match self.shared().queue.push(bytes, op(ear)) {
            Ok(()) => Ok(answer),
            Err((turned, _)) => {
                for slot in pinned {
                    self.shared().front.unpin(slot);
                }
                Err(StoreError::Unavailable(match turned {
                    Turned::Full => "too much work stands in line; try again".into(),
                    Turned::Closed => "the store is closing".into(),
                }))
            }
        }
    }

    /// Loads every slot of `slots` into memory, where they stay until the writer lets them go.
    fn pin_all(&self, slots: &[Slot]) -> Result<(), StoreError> {
        let shared = self.shared();
        let now = shared.clock.now();
        for (index, slot) in slots.iter().enumerate() {
            let seen = shared.front.look(slot, now, |_, _| true, || shared.disk.record(slot));
            if let Err(error) = seen {
                for slot in &slots[..index] {
                    shared.front.unpin(slot);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    async fn swap_once(&self, expected: Option<Version>, next: &Draft) -> Reply<Swap> {
        let shared = self.shared();
        shared.alive()?;
        let (now, slot) = (shared.clock.now(), next.address.slot());
        let verdict = |there: Option<&Record>| {
            judge(there.map(|record| record.version), expected, next.version)
        };
        let goes_on =
            |there: Option<&Record>, writing: bool| writing || verdict(there) == Verdict::Write;
        let seen = shared.front.look(slot, now, goes_on, || shared.disk.record(slot))?;
        if !seen.pinned {
            return Ok(self.stamp(match (verdict(seen.record.as_deref()), seen.record) {
                (Verdict::Repeated, Some(record)) => Swap::Won(record),
                (Verdict::Repeated | Verdict::Refuse | Verdict::Write, there) => Swap::Lost(there),
            }));
        }
        let wanted = shared.disk.wanted(next.clone(), now);
        let pinned = [slot.clone()];
        let size = wanted.bytes.len();
        let answer = self.ask(size, &pinned, |ear| Op::Swap { expected, wanted, ear })?;
        // The writer answers everything that stood in line, unless its thread died.
        answer.await.unwrap_or_else(|_| Ok(self.stamp(Swap::Unknown)))
    }

    async fn commit_once(&self, tx: &Tx, slots: Vec<Slot>) -> Reply<Commit> {
        self.shared().alive()?;
        self.pin_all(&slots)?;
        let bytes = weight_of(tx);
        let (tx, pinned) = (tx.clone(), slots.clone());
        let answer = self.ask(bytes, &pinned, |ear| Op::Commit { tx, slots, ear })?;
        answer.await.unwrap_or_else(|_| Ok(self.stamp(Commit::Unknown)))
    }

    /// Removes records that still have the version at which they were listed.
    async fn remove(&self, listed: Vec<(Slot, Version)>) -> Result<usize, StoreError> {
        if listed.is_empty() {
            return Ok(0);
        }
        let slots: Vec<_> = listed.iter().map(|(slot, _)| slot.clone()).collect();
        self.pin_all(&slots)?;
        let answer = self.ask(0, &slots, |ear| Op::Remove { listed, ear })?;
        let lost = |_| Err(StoreError::Unavailable("the store is closing".into()));
        answer.await.unwrap_or_else(lost).map(|reply| reply.value)
    }

    /// Makes room for a new key of `tenant`, if the settings allow that; says whether it did. On
    /// the disk it makes none: what is removed leaves it much later.
    async fn make_room(&self, tenant: &Tenant, bound: Bound) -> Result<bool, StoreError> {
        let shared = self.shared();
        if shared.options.bounds.on_full != OnFull::Evict || bound == Bound::Disk {
            return Ok(false);
        }
        let _turn = self.0.evicting.lock().await;
        let has_room = || {
            let now = shared.clock.now();
            shared.tally().room(tenant, NEW_KEY_BYTES, now, &shared.options.bounds).is_ok()
        };
        // Another may have made room while this one waited for its turn.
        if has_room() {
            return Ok(true);
        }
        let oldest = house::oldest_finished(shared, tenant)?;
        Ok(!oldest.is_empty() && (self.remove(oldest).await? > 0 || has_room()))
    }
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").field("folder", &self.folder()).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        point("closing");
        shared.queue.close();
        shared.expiry.hurry();
        self.house.stop();
        let mut wrote = self.writer.take().is_none_or(|writer| writer.join().is_ok());
        wrote &= self.takeover.stop(&shared);
        let (is_lost, end) = (shared.fate.get().is_some(), shared.log().end());
        // The files are closed with the last thread's hold on them.
        match Arc::try_unwrap(shared) {
            Ok(shared) => drop(shared),
            Err(_) => return,
        }
        point("files-closed");
        if wrote && !is_lost {
            self.folder.mark_closed(end);
        }
        point("closed");
    }
}

/// Every slot that a transaction checks or writes, once.
fn slots_of(tx: &Tx) -> Vec<Slot> {
    let checked = tx.checks().iter().filter_map(|check| match check {
        Check::Slot(slot, _) => Some(slot),
        Check::Doc(..) | Check::AtLeast(..) => None,
    });
    // Every record that is written stands beside a check of its slot.
    let mut slots: Vec<_> = checked.cloned().collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// The tenants of whose records a transaction writes some, once each.
fn written_tenants(tx: &Tx) -> BTreeSet<Tenant> {
    let tenant = |write: &Write| match write {
        Write::Slot(draft) => Some(draft.address.tenant().clone()),
        Write::Put(..)
        | Write::Delete(_)
        | Write::Append(..)
        | Write::Trim(..)
        | Write::Add(..)
        | Write::Advance(..) => None,
    };
    tx.writes().iter().filter_map(tenant).collect()
}

/// Bytes that a step brings to the line beside what it names, about.
const STEP_BYTES: usize = 128;

/// Bytes that a transaction brings to the line, about.
fn weight_of(tx: &Tx) -> usize {
    let check = |check: &Check| match check {
        Check::Slot(..) => 0,
        Check::Doc(doc, _) => doc.key.len(),
        Check::AtLeast(counter, _) => counter.0.len(),
    };
    let write = |write: &Write| match write {
        Write::Slot(draft) => 256 + draft.outcome_weight(),
        Write::Put(doc, value) => doc.key.len() + value.len(),
        Write::Delete(doc) => doc.key.len(),
        Write::Append(lane, value) => lane.0.len() + value.len(),
        // Each entry that it takes away is named.
        Write::Trim(lane, through) => {
            let trimmed = usize::try_from(through.0.min(TRIMMED_MAX)).unwrap_or(0);
            lane.0.len() * (1 + trimmed)
        }
        Write::Add(counter, _) => counter.0.len(),
        Write::Advance(cursor, _) => cursor.0.len(),
    };
    let named: usize = tx.checks().iter().map(check).chain(tx.writes().iter().map(write)).sum();
    named + STEP_BYTES * (tx.checks().len() + tx.writes().len())
}

impl Slots for Embedded {
    fn forgets_by_itself(&self) -> bool {
        true
    }

    fn at_hand(&self, slot: &Slot) -> Option<Stamped<Arc<Record>>> {
        let shared = self.shared();
        shared.alive().ok()?;
        let now = shared.clock.now();
        shared.front.at_hand(slot, now).map(|value| Stamped { now, value })
    }

    async fn read(&self, slot: &Slot) -> Reply<Option<Arc<Record>>> {
        let shared = self.shared();
        shared.alive()?;
        let now = shared.clock.now();
        let seen = shared.front.look(slot, now, |_, _| false, || shared.disk.record(slot))?;
        Ok(self.stamp(seen.record))
    }

    async fn swap(&self, expected: Option<Version>, next: Draft) -> Reply<Swap> {
        for _ in 0..ROOM_TRIES_MAX {
            match self.swap_once(expected, &next).await {
                Err(StoreError::Full(bound)) => {
                    // Boxed, so that everybody else needs no room for it.
                    if !Box::pin(self.make_room(next.address.tenant(), bound)).await? {
                        return Err(StoreError::Full(bound));
                    }
                }
                reply => return reply,
            }
        }
        Err(StoreError::Unavailable("rivals took the room that was made".into()))
    }

    async fn renew(&self, slot: &Slot, expected: Version, lease: Duration) -> Reply<Swap> {
        let shared = self.shared();
        shared.alive()?;
        self.pin_all(std::slice::from_ref(slot))?;
        let now = shared.clock.now();
        if let Some(found) = shared.front.renew(slot, renewing(expected, lease, now)) {
            shared.front.unpin(slot);
            return Ok(Stamped { now, value: renewed(found) });
        }
        // The writer is busy with this slot, so it decides who was first.
        let (slot, pinned) = (slot.clone(), [slot.clone()]);
        let answer = self.ask(0, &pinned, |ear| Op::Renew { slot, expected, lease, ear })?;
        answer.await.unwrap_or_else(|_| Ok(self.stamp(Swap::Unknown)))
    }

    async fn sweep(&self, limit: usize) -> Reply<Swept> {
        let shared = self.shared();
        shared.alive()?;
        let from = self.0.sweep_from.lock().expect("invariant: no panic under the lock").clone();
        let page = shared.scan_slots(None, from.as_ref(), limit.max(1))?;
        let now = shared.clock.now();
        let ended = page.items.iter().filter(|record| record.is_removable(now));
        let listed = ended.map(|r| (r.address.slot().clone(), r.version)).collect();
        let removed = self.remove(listed).await?;
        let last = page.items.last().filter(|_| page.more);
        *self.0.sweep_from.lock().expect("invariant: no panic under the lock") =
            last.map(|record| record.address.slot().clone());
        Ok(self.stamp(Swept { removed, done: !page.more }))
    }
}

impl Journal for Embedded {
    async fn commit(&self, tx: Tx) -> Reply<Commit> {
        tx.within_bounds()?;
        let slots = slots_of(&tx);
        for _ in 0..ROOM_TRIES_MAX + slots.len() {
            match self.commit_once(&tx, slots.clone()).await {
                Err(StoreError::Full(bound)) => {
                    let mut has_room = false;
                    for tenant in written_tenants(&tx) {
                        has_room |= self.make_room(&tenant, bound).await?;
                    }
                    if !has_room {
                        return Err(StoreError::Full(bound));
                    }
                }
                reply => return reply,
            }
        }
        Err(StoreError::Unavailable("rivals took the room that was made".into()))
    }

    async fn fetch(&self, places: &[Place]) -> Reply<Vec<Found>> {
        let shared = self.shared();
        shared.alive()?;
        let now = shared.clock.now();
        // Whatever is written meanwhile becomes visible when this is let go.
        let (disk, still) = (&shared.disk, shared.disk.recent.still());
        let found = places.iter().map(|place| match place {
            Place::Slot(slot) => {
                let seen = shared.front.look(slot, now, |_, _| false, || disk.record(slot))?;
                Ok(Found::Slot(seen.record))
            }
            Place::Doc(doc) => disk.doc(&still, &doc_key(doc)).map(Found::Doc),
            Place::Counter(counter) => {
                disk.number(&still, &counter_key(counter)).map(Found::Counter)
            }
            Place::Cursor(cursor) => {
                let at = disk.number(&still, &cursor_key(cursor))?;
                Ok(Found::Cursor(Position(at.cast_unsigned())))
            }
        });
        let found = found.collect::<Result<_, StoreError>>()?;
        Ok(self.stamp(found))
    }

    async fn scan(
        &self,
        space: &'static str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Reply<Page<(Doc, Document)>> {
        self.shared().alive()?;
        Ok(self.stamp(self.shared().disk.scan(space, prefix, after, limit)?))
    }

    async fn scan_slots(
        &self,
        tenant: Option<&Tenant>,
        after: Option<&Slot>,
        limit: usize,
    ) -> Reply<Page<Arc<Record>>> {
        let shared = self.shared();
        shared.alive()?;
        let mut page = shared.scan_slots(tenant, after, limit)?;
        for record in &mut page.items {
            *record = shared.with_lease(Arc::clone(record));
        }
        Ok(self.stamp(page))
    }

    async fn read_lane(&self, lane: &Lane, after: Position, limit: usize) -> Reply<Page<Entry>> {
        self.shared().alive()?;
        Ok(self.stamp(self.shared().disk.read_lane(lane, after, limit)?))
    }
}

impl Shared {
    /// A claim as it was read from the disk, with the lease that it has in memory.
    fn with_lease(&self, record: Arc<Record>) -> Arc<Record> {
        match record.phase {
            Phase::Claimed { .. } => {
                let newest = self.front.newest(record.address.slot(), record.version.write);
                newest.unwrap_or(record)
            }
            Phase::Done { .. } | Phase::Released { .. } | Phase::Unknown { .. } => record,
        }
    }
}
