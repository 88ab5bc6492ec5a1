//! What every thread of an open store shares: the files, the memory, the line of work, the clock.
//!
//! It holds no policy of its own. Whether the store is lost is said once, here, and never taken
//! back: only opening it again can tell what the disk holds.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use onetake_core::{Slot, Timestamp};
use onetake_engine::StoreError;
use tokio::sync::Notify;

use super::batch::{Pending, PendingSlots, Writes};
use super::crash::point;
use super::disk::Disk;
use super::expiry::Expiry;
use super::front::{Fresh, Front};
use super::log::{Frame, Log, Space, Yard};
use super::options::{OnLoss, Options};
use super::queue::Queue;
use super::tally::Tally;
use super::time::StoreClock;
use super::writer::Op;

pub(super) struct Shared {
    pub(super) folder: PathBuf,
    pub(super) disk: Disk,
    pub(super) front: Front,
    pub(super) queue: Queue<Op>,
    pub(super) clock: StoreClock,
    pub(super) expiry: Arc<Expiry>,
    pub(super) options: Options,
    log: Mutex<Log>,
    /// Where files of the log wait.
    pub(super) yard: Arc<Yard>,
    tally: Mutex<Tally>,
    /// Whether the tally is complete.
    pub(super) counted: AtomicBool,
    /// Rung when it is.
    pub(super) all_counted: Notify,
    /// Why the store is lost, once it is.
    pub(super) fate: OnceLock<String>,
    pub(super) batches: AtomicU64,
    pub(super) written: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        folder: PathBuf,
        (disk, log): (Disk, Log),
        clock: StoreClock,
        expiry: Arc<Expiry>,
        options: Options,
        tally: Option<Tally>,
    ) -> Self {
        Self {
            folder,
            disk,
            front: Front::new(options.front),
            queue: Queue::new(options.queue),
            clock,
            expiry,
            yard: log.yard(),
            log: Mutex::new(log),
            counted: AtomicBool::new(tally.is_some()),
            all_counted: Notify::new(),
            tally: Mutex::new(tally.unwrap_or_default()),
            options,
            fate: OnceLock::new(),
            batches: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    pub(super) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().expect("invariant: no panic under the lock")
    }

    /// Refuses when the store is lost.
    pub(super) fn alive(&self) -> Result<(), StoreError> {
        match self.fate.get() {
            None => Ok(()),
            Some(fate) => Err(StoreError::Unavailable(fate.clone())),
        }
    }

    /// Says that the store is lost, and stops the process if that was asked for.
    pub(super) fn end(&self, why: &str) {
        let fate = format!("the store is lost until it is opened again: {why}");
        tracing::error!(store = %self.folder.display(), "{fate}");
        drop(self.fate.set(fate.clone()));
        match self.options.on_loss {
            OnLoss::Refuse => {}
            OnLoss::Stop => {
                // The log may be buffered or absent; the last words must be heard.
                eprintln!("onetake: {fate}; stopping, so that nothing is answered from memory");
                std::process::abort();
            }
        }
    }

    /// Free bytes on the disk of the store; `None` where the system does not tell.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let space = rustix::fs::statvfs(&self.folder).ok()?;
        Some(space.f_bavail.saturating_mul(space.f_frsize))
    }

    /// The end of the log. Only the thread that writes asks for it while the store is open.
    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("invariant: no panic under the lock")
    }

    /// Keeps what the store wrote of itself until it comes into the tables.
    pub(super) fn note(&self, notes: Vec<(Vec<u8>, Vec<u8>)>) {
        let mut recent = self.disk.recent.change();
        for (word, value) in notes {
            recent.put(Space::Meta, word.into(), Some(value.into()));
        }
    }

    /// Writes one batch; once it is durable, makes it visible and returns.
    pub(super) fn write(
        &self,
        writes: Writes,
        slots: PendingSlots,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let slots: Vec<_> = slots.into_iter().collect();
        let count = writes.len() + slots.len();
        point("writing");
        let frame = self.framed(&slots, &writes);
        let frame = self.log().write(frame);
        let frame = frame.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        drop(writes);
        point("synced");
        // Nobody reads meanwhile, so that whoever reads several places sees one moment.
        let mut recent = self.disk.recent.change();
        let mut values = frame.values();
        let fresh = values.by_ref().take(slots.len());
        for ((slot, pending), (_, key, bytes)) in slots.into_iter().zip(fresh) {
            let Pending { record, pins, .. } = pending;
            let fresh = Fresh { frame: frame.number, key, bytes };
            self.front.settle(&slot, record, fresh, now, pins);
        }
        let mut put = Vec::new();
        for (space, key, value) in values {
            if space == Space::Docs && value.is_some() {
                put.push(key.clone());
            }
            recent.put(space, key, value);
        }
        self.disk.floors.put(put.iter().map(|key| &**key));
        point("shown");
        drop(recent);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.written.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }

    /// One batch as the log keeps it, the slots first.
    fn framed(&self, slots: &[(Slot, Pending)], writes: &Writes) -> Frame {
        let size = |key: &Vec<u8>, value: Option<&Vec<u8>>| key.len() + value.map_or(0, Vec::len);
        let bytes = slots.iter().map(|(_, it)| size(&it.key, it.bytes.as_ref())).sum::<usize>()
            + writes.iter().map(|(_, key, value)| size(key, value.as_ref())).sum::<usize>();
        let mut frame = self.log().frame(slots.len() + writes.len(), bytes);
        for (_, pending) in slots {
            frame.add(Space::Slots, &pending.key, pending.bytes.as_deref());
        }
        for (space, key, value) in writes {
            frame.add(*space, key, value.as_deref());
        }
        frame
    }
}
