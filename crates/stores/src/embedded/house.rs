//! Housekeeping of the embedded store, on a thread of its own and never in the way.
//!
//! It counts what is there after a crash, notes the time while nobody writes, tells the compaction
//! what time it is, asks for a compaction when most of what lies on the disk has expired, and
//! notices when work in the background of the engine below has failed. None of it is about truth.

use std::collections::BinaryHeap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fjall::{PersistMode, Readable, Snapshot};
use onetake_core::{Phase, Slot, Tenant, Timestamp, Version};
use onetake_engine::{Reply, StoreError};
use tokio::sync::oneshot;

use super::disk::failed;
use super::shared::Shared;
use super::tally::Counted;
use super::writer::Op;
use crate::codec;

/// How often it looks around.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it notes the time, whoever else does.
const NOTE_EVERY: Duration = Duration::from_secs(60);
/// How often it may compact everything.
const COMPACT_EVERY: Duration = Duration::from_secs(60);
/// How long it waits for the merges of the engine below before it begins one of its own. None of
/// them can go on then, and the engine wastes a core on waiting (see `disk::THREADS_MIN`).
const SETTLE_MAX: Duration = Duration::from_secs(10);
const SETTLE_STEP: Duration = Duration::from_millis(20);
/// A store with fewer values is not worth a compaction.
const COMPACT_FROM: u64 = 100_000;
/// Records that are counted before others get their turn.
const COUNT_STEP: usize = 10_000;

/// Whether the thread is to stop, and the bell that says so.
#[derive(Debug, Default)]
struct Bell {
    stop: Mutex<bool>,
    rung: Condvar,
}

/// The thread that keeps house.
#[derive(Debug)]
pub(super) struct House {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl House {
    /// Begins to keep house.
    ///
    /// `picture` is of the store before anything was written: what is counted in it and what is
    /// counted as it happens make the whole.
    pub(super) fn keep(shared: Arc<Shared>, picture: Snapshot) -> io::Result<Self> {
        let bell = Arc::new(Bell::default());
        let heard = Arc::clone(&bell);
        let thread = std::thread::Builder::new()
            .name("onetake-house".into())
            .spawn(move || keep(&shared, &heard, picture))?;
        Ok(Self { bell, thread: Some(thread) })
    }

    /// Ends it; what it is doing is left where it is.
    pub(super) fn stop(&mut self) {
        *self.bell.stop.lock().expect("invariant: no panic under the lock") = true;
        self.bell.rung.notify_all();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Bell {
    fn is_rung(&self) -> bool {
        *self.stop.lock().expect("invariant: no panic under the lock")
    }

    /// Waits; `true` when the thread is to stop.
    fn wait(&self) -> bool {
        let stop = self.stop.lock().expect("invariant: no panic under the lock");
        let waited = self.rung.wait_timeout_while(stop, LOOK_EVERY, |stop| !*stop);
        *waited.expect("invariant: no panic under the lock").0
    }
}

fn keep(shared: &Shared, bell: &Bell, picture: Snapshot) {
    if !shared.counted.load(Ordering::Acquire)
        && let Err(error) = count(shared, bell, &picture)
    {
        tracing::error!(%error, "the records of the store could not be counted");
    }
    drop(picture);
    let (mut compacted, mut noted): (Option<Instant>, _) = (None, shared.clock.opened_at());
    while !bell.wait() {
        if let Err(error) = shared.disk.tables.db.persist(PersistMode::Buffer) {
            // A flush or a compaction failed. The engine tells only the next writer, and a writer
            // that waits for such a flush would wait for ever.
            if shared.fate.get().is_none() {
                shared.end(&format!("work in the background failed: {error}"));
            }
            continue;
        }
        let now = shared.clock.now();
        shared.expiry.reached(now);
        if now.since(noted) >= NOTE_EVERY {
            noted = now;
            drop(note_time(shared));
        }
        let is_due = compacted.is_none_or(|at| at.elapsed() >= COMPACT_EVERY);
        if is_due && is_mostly_gone(shared, now) {
            compacted = Some(Instant::now());
            compact(shared);
        }
    }
}

/// Keeps the time with the data. The writer does so with whatever it writes; a store that only
/// answers for days must not wake up in the past when the machine was restarted.
pub(super) fn note_time(shared: &Shared) -> oneshot::Receiver<Reply<()>> {
    let ((ear, noted), bytes) = (oneshot::channel(), shared.clock.last_seen().encode());
    let op = Op::Note { word: "clock", bytes, ear };
    // A line that is full is written, and one that is closed ends with a note.
    drop(shared.queue.push(0, op));
    noted
}

/// Whether most of what lies on the disk no longer counts.
fn is_mostly_gone(shared: &Shared, now: Timestamp) -> bool {
    let on_disk = shared.disk.tables.slots.approximate_len() as u64;
    let (records, _) = shared.tally().all(now);
    // A key is written about twice, and more until the tables are merged.
    on_disk > COMPACT_FROM && on_disk > records.saturating_mul(4)
}

/// Merges the tables of records, which lets what has expired go.
pub(super) fn compact(shared: &Shared) {
    let begun = Instant::now();
    shared.expiry.reached(shared.clock.now());
    let before = shared.expiry.removed();
    let compacted = shared.expiry.slowly(|| merge(shared));
    let removed = shared.expiry.removed() - before;
    match compacted {
        Ok(()) => tracing::info!(removed, took = ?begun.elapsed(), "expired records have gone"),
        Err(error) => tracing::warn!(%error, "a compaction failed; it is tried again later"),
    }
}

fn merge(shared: &Shared) -> Result<(), fjall::Error> {
    let disk = &shared.disk;
    if !shared.yard.take_over_now() {
        return Err(fjall::Error::Poisoned);
    }
    let flushed = Instant::now();
    while disk.tables.db.active_compactions() > 0 && flushed.elapsed() < SETTLE_MAX {
        if shared.expiry.is_hurried() {
            return Ok(());
        }
        std::thread::sleep(SETTLE_STEP);
    }
    disk.tables.slots.major_compact()?;
    disk.tables.let_go()
}

/// Counts every record in a picture of the store. Changes since that picture are counted where they
/// happen, so both together are exact.
fn count(shared: &Shared, bell: &Bell, at: &Snapshot) -> Result<(), StoreError> {
    let mut counted = Vec::with_capacity(COUNT_STEP);
    for guard in at.iter(&shared.disk.tables.slots) {
        let (key, value) = guard.into_inner().map_err(|error| failed(&error))?;
        // A damaged record is said when it is read; it must not keep the others from being counted.
        let Ok(label) = codec::label(&value, &key) else { continue };
        if let Some(tenant) = tenant_of(&key) {
            let end = match label.kind {
                codec::Kind::Done | codec::Kind::Released => label.end,
                codec::Kind::Claimed | codec::Kind::Unknown => None,
            };
            counted.push((tenant, Counted::new(label.weight as usize, label.since, end)));
        }
        if counted.len() == COUNT_STEP {
            add(shared, &mut counted);
            if bell.is_rung() {
                return Ok(());
            }
        }
    }
    add(shared, &mut counted);
    shared.counted.store(true, Ordering::Release);
    shared.all_counted.notify_waiters();
    Ok(())
}

fn add(shared: &Shared, counted: &mut Vec<(Tenant, Counted)>) {
    let (now, mut tally) = (shared.clock.now(), shared.tally());
    for (tenant, one) in counted.drain(..) {
        tally.exchange(&tenant, None, Some(one), now);
    }
}

/// The tenant whose record lies under `key`.
pub(super) fn tenant_of(key: &[u8]) -> Option<Tenant> {
    let (length, rest) = key.split_first()?;
    let name = std::str::from_utf8(rest.get(..usize::from(*length))?).ok()?;
    Tenant::new(name).ok()
}

/// The oldest finished records of a tenant: one in a hundred, so that a full store does not search
/// for room on every new key. Never a live or unknown one, and never another tenant's.
pub(super) fn oldest_finished(
    shared: &Shared,
    tenant: &Tenant,
) -> Result<Vec<(Slot, Version)>, StoreError> {
    const PAGE: usize = 1_000;
    let now = shared.clock.now();
    let records = shared.tally().tenants(now).into_iter().find(|(of, ..)| of == tenant);
    let goes = records.map_or(1, |(_, records, _)| records.div_ceil(100).clamp(1, 10_000));
    let goes = usize::try_from(goes).unwrap_or(1);
    // The youngest of the oldest is on top, and leaves for an older one.
    let mut oldest: BinaryHeap<(Timestamp, Slot)> = BinaryHeap::new();
    let mut versions = std::collections::HashMap::new();
    let mut after: Option<Slot> = None;
    loop {
        let page = shared.scan_slots(Some(tenant), after.as_ref(), PAGE)?;
        for record in &page.items {
            // What has expired takes nobody's place, and a tombstone must stay for its time.
            let may_go = matches!(record.phase, Phase::Done { .. }) && !record.is_removable(now);
            if may_go {
                versions.insert(record.address.slot().clone(), record.version);
                oldest.push((record.since, record.address.slot().clone()));
            }
            if oldest.len() > goes
                && let Some((_, slot)) = oldest.pop()
            {
                versions.remove(&slot);
            }
        }
        after = page.items.last().map(|record| record.address.slot().clone());
        if !page.more {
            break;
        }
    }
    Ok(versions.into_iter().collect())
}
