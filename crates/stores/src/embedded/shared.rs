//! What every thread of an open store shares: the files, the memory, the line of work, the clock.
//!
//! It holds no policy of its own. Whether the store is lost is said once, here, and never taken
//! back: only opening it again can tell what the disk holds.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};

use onetake_core::Timestamp;
use onetake_engine::StoreError;
use tokio::sync::Notify;

use super::batch::{Pending, PendingSlots, Writes};
use super::crash::point;
use super::disk::{Disk, failed};
use super::expiry::Expiry;
use super::front::{Fresh, Front};
use super::log::{Log, Space, Yard};
use super::options::{OnLoss, Options};
use super::queue::Queue;
use super::tally::Tally;
use super::time::StoreClock;
use super::writer::Op;

/// What the store writes of itself: words, and what they hold.
pub(super) type Notes = HashMap<Vec<u8>, Option<Vec<u8>>>;

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
    notes: Mutex<Notes>,
    /// Held while what one batch wrote becomes visible, so that whoever reads several places sees
    /// one moment.
    pub(super) moment: RwLock<()>,
    /// Whether there are tables that the last picture does not show.
    pub(super) has_new_tables: AtomicBool,
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
            notes: Mutex::default(),
            moment: RwLock::default(),
            has_new_tables: AtomicBool::new(false),
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

    /// What the store wrote of itself that is not in the tables yet.
    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().expect("invariant: no panic under the lock")
    }

    /// Keeps what the store wrote of itself until it comes into the tables.
    pub(super) fn note(&self, notes: Vec<(Vec<u8>, Vec<u8>)>) {
        self.notes().extend(notes.into_iter().map(|(word, value)| (word, Some(value))));
    }

    /// Writes one batch; once it is durable, makes it visible and returns.
    pub(super) fn write(
        &self,
        writes: Writes,
        slots: PendingSlots,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let count = writes.len() + slots.len();
        point("writing");
        let frame = self.log().write(|frame| {
            for pending in slots.values() {
                frame.add(Space::Slots, &pending.key, pending.bytes.as_deref());
            }
            for ((space, key), value) in &writes {
                frame.add(*space, key, value.as_deref());
            }
        });
        let frame = frame.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        point("synced");
        let moment = self.moment.write().expect("invariant: no panic under the lock");
        self.show(writes)?;
        for (slot, pending) in slots {
            let Pending { record, key, bytes, pins } = pending;
            self.front.settle(&slot, record, Fresh { frame, key, bytes }, now, pins);
        }
        drop(moment);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.written.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Makes visible what is durable. The engine below need not sync it: the log has it.
    fn show(&self, writes: Writes) -> Result<(), StoreError> {
        let disk = &self.disk;
        let (mut batch, mut put) = (disk.batch(writes.len()), Vec::new());
        for ((space, key), value) in writes {
            let keyspace = match space {
                Space::Docs => &disk.docs,
                Space::Lanes => &disk.lanes,
                Space::Numbers => &disk.numbers,
                // Only the next opening reads these.
                Space::Slots | Space::Meta => {
                    self.notes().insert(key, value);
                    continue;
                }
            };
            match value {
                Some(value) => {
                    if space == Space::Docs {
                        put.push(key.clone());
                    }
                    batch.insert(keyspace, key, value);
                }
                None => batch.remove(keyspace, key),
            }
        }
        if batch.is_empty() {
            if self.has_new_tables.swap(false, Ordering::AcqRel) {
                disk.publish();
            }
            return Ok(());
        }
        // Before it is visible, so that no scan begins behind what it could see, and after, so that
        // no scan with an older picture has the last word.
        for key in &put {
            disk.floors.put(key);
        }
        batch.commit().map_err(|error| failed(&error))?;
        disk.publish();
        point("shown");
        for key in put {
            disk.floors.put(&key);
        }
        Ok(())
    }
}
