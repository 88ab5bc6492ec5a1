//! What every thread of an open store shares: the files, the memory, the line of work, the clock.
//!
//! It holds no policy of its own. Whether the store is lost is said once, here, and never taken
//! back: only opening it again can tell what the disk holds.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use onetake_engine::StoreError;
use tokio::sync::Notify;

use super::batch::{PendingSlots, Space, Writes};
use super::crash::point;
use super::disk::{Disk, failed};
use super::expiry::Expiry;
use super::front::Front;
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
        disk: Disk,
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

    /// Writes one batch and returns when it is durable.
    pub(super) fn write(&self, writes: Writes, slots: &mut PendingSlots) -> Result<(), StoreError> {
        let disk = &self.disk;
        let count = writes.len() + slots.len();
        let mut batch = disk.batch(count);
        let mut put = Vec::new();
        for pending in slots.values_mut() {
            let key = pending.key.clone();
            match pending.bytes.take() {
                Some(bytes) => batch.insert(&disk.slots, key, bytes),
                None => batch.remove(&disk.slots, key),
            }
        }
        for ((space, key), value) in writes {
            let keyspace = match space {
                Space::Docs => &disk.docs,
                Space::Lanes => &disk.lanes,
                Space::Numbers => &disk.numbers,
                Space::Meta => &disk.meta,
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
        point("writing");
        // Before it is visible, so that no scan begins behind what it could see, and after, so that
        // no scan with an older picture has the last word.
        for key in &put {
            disk.floors.put(key);
        }
        batch.commit().map_err(|error| failed(&error))?;
        disk.publish();
        point("written");
        for key in put {
            disk.floors.put(&key);
        }
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.written.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }
}
