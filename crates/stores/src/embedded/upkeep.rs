//! What an operator does with the files of a store: look, verify, copy, change keys.
//!
//! Looking never repairs. A copy is taken of one moment while the store goes on, and is a store of
//! its own, complete or not openable at all. Verifying reads everything and says of each damage
//! where it is, what it means and what to do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fjall::{Keyspace, PersistMode};
use onetake_core::{Phase, Tenant, Timestamp};
use onetake_engine::{Lane, StoreError};
use tokio::sync::oneshot;

use super::Embedded;
use super::disk::{self, Disk, Head, failed};
use super::folder::Folder;
use super::log::{self, Log, Size, Space};
use super::open::{Looked, OpenError, open_to_look};
use super::options::Options;
use super::picture::Picture;
use super::writer::Op;
use crate::seal::{MasterKey, Sealer};

/// How many damaged places a report names; the rest is counted.
const FINDINGS_MAX: usize = 1_000;

/// What a store holds and how it is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Where it is.
    pub folder: PathBuf,
    /// Its time.
    pub now: Timestamp,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// How often it was opened.
    pub boot: u64,
    /// Whether values are sealed.
    pub sealed: bool,
    /// Records that count, and their bytes, about.
    pub records: u64,
    /// See `records`.
    pub bytes: u64,
    /// The same for each tenant.
    pub tenants: Vec<(Tenant, u64, u64)>,
    /// Whether counting has ended; after a crash it takes a moment.
    pub counted: bool,
    /// Slots in memory.
    pub in_memory: usize,
    /// How often the disk was asked for a slot.
    pub loads: u64,
    /// Operations that stand in line.
    pub queued: usize,
    /// Batches since it was opened; each was one sync.
    pub batches: u64,
    /// Values written since it was opened.
    pub written: u64,
    /// Expired records that compaction removed since it was opened.
    pub expired: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Bytes left on that disk, where the system tells.
    pub free_bytes: Option<u64>,
    /// Why it is lost, if it is.
    pub lost: Option<String>,
}

/// One place that is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

/// What verifying found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// Whole batches that only the log had.
    pub batches: u64,
    /// Records that are whole, by phase: claimed, done, released, unknown.
    pub records: [u64; 4],
    /// Documents that are whole.
    pub documents: u64,
    /// Entries of lanes that are whole.
    pub entries: u64,
    /// Counters, cursors and lanes.
    pub numbers: u64,
    /// What is damaged.
    pub findings: Vec<Finding>,
    /// Damaged places beyond those.
    pub more: u64,
}

impl Checked {
    /// Whether nothing is damaged.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.findings.is_empty()
    }

    fn found(&mut self, place: impl Into<String>, what: impl Into<String>, advice: &str) {
        if self.findings.len() >= FINDINGS_MAX {
            self.more += 1;
            return;
        }
        let advice = advice.to_owned();
        self.findings.push(Finding { place: place.into(), what: what.into(), advice });
    }
}

const RESTORE: &str = "restore the newest backup into a new folder; keep this one aside: \
                       it may still tell what was executed since";

/// What copying copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copied {
    /// Values.
    pub values: u64,
    /// Their bytes, keys included.
    pub bytes: u64,
}

impl Embedded {
    /// What the store holds and how it is doing.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = self.shared();
        let now = shared.clock.now();
        let (records, bytes) = shared.tally().all(now);
        let mut tenants = shared.tally().tenants(now);
        tenants.sort_unstable();
        Stats {
            folder: self.folder().to_path_buf(),
            now,
            opened_at: shared.disk.opened_at,
            boot: shared.disk.boot,
            sealed: matches!(&*shared.disk.sealer(), Sealer::Sealed(_)),
            records,
            bytes,
            tenants,
            counted: shared.counted.load(Ordering::Acquire),
            in_memory: shared.front.len(),
            loads: shared.front.loads(),
            queued: shared.queue.len(),
            batches: shared.batches.load(Ordering::Relaxed),
            written: shared.written.load(Ordering::Relaxed),
            expired: shared.expiry.removed(),
            disk_bytes: shared.disk.tables.db.disk_space().unwrap_or(0)
                + log::disk_space(&self.0.folder.log()),
            free_bytes: shared.free_bytes(),
            lost: shared.fate.get().cloned(),
        }
    }

    /// Copies the store as it is at one moment into the new folder `to`, while it goes on.
    ///
    /// # Errors
    /// When `to` holds anything already, or a disk fails. An unfinished copy cannot be opened.
    ///
    /// # Cancel safety
    /// The copy goes on and is completed.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<Copied, OpenError> {
        let (store, to) = (self.clone(), to.as_ref().to_path_buf());
        let picture = self.picture().await.map_err(|error| OpenError::Io {
            folder: self.folder().to_path_buf(),
            doing: "copied",
            source: std::io::Error::other(error.to_string()),
        })?;
        elsewhere(move || copy(&store.shared().disk, &picture, &to)).await
    }

    /// What the store holds now.
    async fn picture(&self) -> Result<Picture, StoreError> {
        let answer = self.ask(0, &[], |ear| Op::Picture { ear })?;
        let lost = |_| Err(StoreError::Unavailable("the store is closing".into()));
        answer.await.unwrap_or_else(lost).map(|reply| reply.value)
    }

    /// Reads everything and verifies it, while the store goes on.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn verify(&self) -> Checked {
        let (store, picture) = (self.clone(), self.picture().await);
        elsewhere(move || {
            let mut checked = Checked::default();
            match picture {
                Ok(picture) => verify(&store.shared().disk, &picture, &mut checked),
                Err(error) => checked.found("the store", error.to_string(), RESTORE),
            }
            checked
        })
        .await
    }

    /// Seals with a new key from now on, wrapped by `master`, which may be a new one too. What is
    /// stored stays readable.
    ///
    /// # Errors
    /// When the store is not sealed, or fails.
    ///
    /// # Cancel safety
    /// The key is changed or not; calling again is safe.
    pub async fn rotate(&self, master: &MasterKey) -> Result<(), StoreError> {
        let master = master.clone();
        let answer = self.ask(0, &[], |ear| Op::Rotate { master, ear })?;
        let lost = |_| Err(StoreError::Unavailable("the store is closing".into()));
        answer.await.unwrap_or_else(lost).map(drop)
    }

    /// Waits until all records are counted. After a crash that takes a moment; a store that cannot
    /// count its records says so in its log, and keeps whoever waits.
    ///
    /// # Cancel safety
    /// Only waits.
    pub async fn counted(&self) {
        let shared = self.shared();
        // Listening comes before looking, so that the bell is not missed in between.
        let mut bell = std::pin::pin!(shared.all_counted.notified());
        bell.as_mut().enable();
        if !shared.counted.load(Ordering::Acquire) {
            bell.await;
        }
    }

    /// Lets what has expired leave the disk now instead of when tables are merged anyway.
    ///
    /// # Cancel safety
    /// The compaction goes on.
    pub async fn compact(&self) {
        let store = self.clone();
        elsewhere(move || super::house::compact(store.shared())).await;
    }
}

/// Runs long work on a thread of its own: it would hold up others here.
async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (ear, answer) = oneshot::channel();
    let thread = std::thread::Builder::new().name("onetake-upkeep".into());
    let spawned = thread.spawn(move || drop(ear.send(work())));
    spawned.expect("invariant: the system lets a process have threads");
    answer.await.expect("invariant: work does not panic")
}

/// Verifies a store that no process has open. What is damaged is a finding; only what keeps us from
/// looking is an error.
///
/// # Errors
/// When the folder is locked, is no store, or its key is missing.
pub fn check(folder: impl AsRef<Path>, options: &Options) -> Result<Checked, OpenError> {
    let folder = Folder::lock_existing(folder.as_ref())?;
    let mut checked = Checked::default();
    match open_to_look(&folder, options) {
        Ok(Looked { disk, batches, end }) => {
            checked.batches = batches;
            verify(&disk, &Picture::of_tables(&disk), &mut checked);
            drop(disk);
            // All that was in the log is in the tables, whatever stopped the store before.
            folder.mark_closed(end);
        }
        Err(OpenError::Damaged { what, .. }) => {
            if checked.is_whole() {
                checked.found("the files", what, RESTORE);
            }
        }
        Err(error) => return Err(error),
    }
    Ok(checked)
}

/// Reads every value of every keyspace.
fn verify(disk: &Disk, picture: &Picture, checked: &mut Checked) {
    each(picture.all(disk, Space::Slots), "records", checked, |key, value, checked| {
        let record = disk.open_record(key, value, None)?;
        checked.records[match record.phase {
            Phase::Claimed { .. } => 0,
            Phase::Done { .. } => 1,
            Phase::Released { .. } => 2,
            Phase::Unknown { .. } => 3,
        }] += 1;
        Ok(())
    });
    each(picture.all(disk, Space::Docs), "documents", checked, |key, value, checked| {
        disk.open_doc(key, value)?;
        checked.documents += 1;
        Ok(())
    });
    each(picture.all(disk, Space::Lanes), "lanes", checked, |key, value, checked| {
        checked.entries += disk.open_entries(key, value)?.len() as u64;
        Ok(())
    });
    each(picture.all(disk, Space::Numbers), "numbers", checked, |key, value, checked| {
        checked.numbers += 1;
        match key.split_first() {
            Some((b'l', lane)) => {
                let head = disk::open_head(key, Some(&**value))?;
                check_lane(disk, picture, lane, head)
            }
            Some(_) | None => disk::open_number(key, Some(&**value)).map(drop),
        }
    });
}

/// Every entry between the ends of a lane must be there.
fn check_lane(disk: &Disk, picture: &Picture, lane: &[u8], head: Head) -> Result<(), StoreError> {
    let lane = Lane(bytes::Bytes::copy_from_slice(lane));
    let wanted = (head.last + 1).saturating_sub(head.first);
    let mut there = 0;
    if wanted > 0 {
        let [first, last] = [head.first, head.last].map(|at| disk::entry_key(&lane, at));
        for entries in picture.from(disk, Space::Lanes, &first) {
            // The engine says for ever that it cannot read a block: who goes on counts without end.
            let (key, value) = entries.map_err(|error| failed(&error))?;
            if *key > *last {
                break;
            }
            let opened = disk.open_entries(&key, &value)?;
            there += opened.filter(|entry| entry.position.0 >= head.first).count() as u64;
        }
    }
    if there == wanted {
        return Ok(());
    }
    Err(StoreError::Corrupt(format!("a lane has {there} of {wanted} entries")))
}

fn each(
    pairs: impl Iterator<Item = Result<(fjall::Slice, fjall::Slice), fjall::Error>>,
    name: &str,
    checked: &mut Checked,
    mut look: impl FnMut(&fjall::Slice, &fjall::Slice, &mut Checked) -> Result<(), StoreError>,
) {
    for (number, pair) in pairs.enumerate() {
        let looked = match pair {
            Ok((key, value)) => look(&key, &value, checked),
            Err(error) => {
                // The engine cannot go on behind a block that it cannot read.
                let what = failed(&error).to_string();
                return checked.found(format!("{name}, from number {number} on"), what, RESTORE);
            }
        };
        if let Err(error) = looked {
            checked.found(format!("{name}, number {number}"), error.to_string(), RESTORE);
        }
    }
}

/// Copies the picture of one moment, key by key.
fn copy(disk: &Disk, picture: &Picture, to: &Path) -> Result<Copied, OpenError> {
    let folder = Folder::lock_new(to)?;
    let broken = |error: fjall::Error| {
        let source = std::io::Error::other(failed(&error).to_string());
        OpenError::Io { folder: folder.path().to_path_buf(), doing: "copied", source }
    };
    let io =
        |source| OpenError::Io { folder: folder.path().to_path_buf(), doing: "completed", source };
    folder.make_folders().map_err(io)?;
    let target = disk::open(&folder.data(), 8 << 20, &Arc::default()).map_err(broken)?;
    let mut copied = Copied::default();
    for space in Space::ALL {
        copied.fill(picture.all(disk, space), target.of(space)).map_err(broken)?;
    }
    target.db.persist(PersistMode::SyncAll).map_err(broken)?;
    drop(target);
    let end = Log::make(&folder.log(), Size::of(0), |_| ()).map_err(io)?;
    folder.write_format().map_err(io)?;
    folder.mark_closed(end);
    Ok(copied)
}

impl Copied {
    /// Copies `pairs` into the empty keyspace `into`.
    fn fill(
        &mut self,
        pairs: impl Iterator<Item = Result<(fjall::Slice, fjall::Slice), fjall::Error>>,
        into: &Keyspace,
    ) -> Result<(), fjall::Error> {
        let mut ingestion = into.start_ingestion()?;
        for pair in pairs {
            let (key, value) = pair?;
            self.values += 1;
            self.bytes += (key.len() + value.len()) as u64;
            ingestion.write(key, value)?;
        }
        ingestion.finish()
    }
}
