//! Opening a store: one process at a time, nothing damaged, nothing newer than this release.
//!
//! The order matters. The lock comes first; then the journal of the files is read by us, before the
//! engine below replays it, for that engine takes damage in the middle of a journal for its torn
//! end and cuts off everything behind it; only then are the files opened. Opening never repairs:
//! what is damaged is named, and left as it is. Only a store that was never opened to the end, so
//! that nobody was told anything by it, is made anew.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use onetake_core::Timestamp;
use onetake_engine::StoreError;

use super::crash::point;
use super::disk::{self, Disk, Keyspaces};
use super::expiry::Expiry;
use super::floors::Floors;
use super::inspect::{Fault, JournalEnd, discard_torn_tail, inspect_journals};
use super::options::Options;
use super::shared::Shared;
use super::tally::Tally;
use super::time::{LastSeen, Reading, Resumed, StoreClock, resume};
use crate::codec;
use crate::seal::{KeyRing, MasterKey, SealError, Sealer};

/// The layout of the folder, as a whole number in the file `FORMAT`.
const FORMAT: u32 = 1;
const LOCK_FILE: &str = "onetake.lock";
const FORMAT_FILE: &str = "FORMAT";
/// There while the store is closed in order.
const CLOSED_FILE: &str = "CLOSED";
const DATA_FOLDER: &str = "data";
/// There while a new store is made.
const MAKING_FILE: &str = "MAKING";

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open.
    #[error("the store in {} is open in another process ({holder}); use that one, or stop it", folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
        /// What the other process says of itself.
        holder: String,
    },
    /// A later release wrote it.
    #[error("the store in {} has format {found}; this release knows {FORMAT}: use a newer release", folder.display())]
    Newer {
        /// The folder.
        folder: PathBuf,
        /// Its format.
        found: String,
    },
    /// The folder holds something else.
    #[error("{} holds files but no store; name an empty or new folder", folder.display())]
    NotAStore {
        /// The folder.
        folder: PathBuf,
    },
    /// Its files are damaged.
    #[error("the store in {} is damaged: {what}; run `onetake store check` and restore a backup", folder.display())]
    Damaged {
        /// The folder.
        folder: PathBuf,
        /// Where and how.
        what: String,
    },
    /// Its seal cannot be opened.
    #[error("the store in {} is sealed: {source}", folder.display())]
    Sealed {
        /// The folder.
        folder: PathBuf,
        /// Why it cannot be opened.
        source: SealError,
    },
    /// It is sealed, and no key was given.
    #[error("the store in {} is sealed; give the master key that it was sealed with", folder.display())]
    NoKey {
        /// The folder.
        folder: PathBuf,
    },
    /// It is not sealed, and a key was given.
    #[error(
        "the store in {} is not sealed, and sealing begins with a new store: \
         back it up into a sealed one", folder.display()
    )]
    NotSealed {
        /// The folder.
        folder: PathBuf,
    },
    /// The system refused.
    #[error("the store in {} cannot be {doing}: {source}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

impl OpenError {
    /// The same, as what a store says when it is used.
    #[must_use]
    pub fn into_store_error(self) -> StoreError {
        match self {
            Self::Damaged { .. } => StoreError::Corrupt(self.to_string()),
            Self::Locked { .. }
            | Self::Newer { .. }
            | Self::NotAStore { .. }
            | Self::Sealed { .. }
            | Self::NoKey { .. }
            | Self::NotSealed { .. }
            | Self::Io { .. } => StoreError::Unavailable(self.to_string()),
        }
    }
}

/// The folder of a store, locked for this process.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Whether it was closed in order.
    closed: bool,
    lock: File,
}

impl Drop for Folder {
    /// Closing the file would do, but not while a child that was just started still has a copy.
    fn drop(&mut self) {
        drop(self.lock.unlock());
    }
}

impl Folder {
    fn io(&self, doing: &'static str) -> impl Fn(std::io::Error) -> OpenError + use<'_> {
        move |source| OpenError::Io { folder: self.path.clone(), doing, source }
    }

    /// Locks a folder that holds a store.
    pub(super) fn lock_existing(path: &Path) -> Result<Self, OpenError> {
        if !path.join(DATA_FOLDER).exists() {
            let source = std::io::Error::new(std::io::ErrorKind::NotFound, "there is no store");
            return Err(OpenError::Io { folder: path.to_path_buf(), doing: "found", source });
        }
        Self::lock(path)
    }

    /// Creates and locks a folder for a new store; whatever is in it already must not be touched.
    pub(super) fn lock_new(path: &Path) -> Result<Self, OpenError> {
        let is_empty = fs::read_dir(path).map_or(true, |mut files| files.next().is_none());
        if !is_empty {
            let source = std::io::Error::new(
                std::io::ErrorKind::AlreadyExists,
                "it holds files already; name a new folder",
            );
            return Err(OpenError::Io { folder: path.to_path_buf(), doing: "made", source });
        }
        Self::lock(path)
    }

    /// Creates the folder where there is none, and locks it.
    pub(super) fn lock(path: &Path) -> Result<Self, OpenError> {
        let io = |doing| move |source| OpenError::Io { folder: path.to_path_buf(), doing, source };
        create_private(path).map_err(io("created"))?;
        let path = path.canonicalize().map_err(io("found"))?;
        let is_ours = path.join(FORMAT_FILE).exists() || path.join(LOCK_FILE).exists();
        if !is_ours && fs::read_dir(&path).map_err(io("listed"))?.next().is_some() {
            return Err(OpenError::NotAStore { folder: path });
        }
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join(LOCK_FILE))
            .map_err(io("locked"))?;
        if let Err(refused) = lock.try_lock() {
            return Err(match refused {
                TryLockError::WouldBlock => {
                    let mut holder = String::new();
                    drop(lock.read_to_string(&mut holder));
                    OpenError::Locked { folder: path, holder: holder.trim().to_owned() }
                }
                TryLockError::Error(source) => io("locked")(source),
            });
        }
        sign(&mut lock).map_err(io("locked"))?;
        let closed = path.join(CLOSED_FILE).exists();
        Ok(Self { path, closed, lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path.join(DATA_FOLDER)
    }

    /// Writes the format. A copy gets it last, so that half a copy is no store.
    pub(super) fn write_format(&self) -> std::io::Result<()> {
        write_synced(&self.path.join(FORMAT_FILE), format!("{FORMAT}\n").as_bytes())
    }

    /// Whether a store is there that this release can read; `false` when there is none yet.
    fn check_format(&self) -> Result<bool, OpenError> {
        let damaged =
            |what: &str| Err(OpenError::Damaged { folder: self.path.clone(), what: what.into() });
        let has_data = self.data().exists();
        match fs::read_to_string(self.path.join(FORMAT_FILE)) {
            Ok(text) if text.trim().parse() == Ok(FORMAT) && has_data => Ok(true),
            // To begin anew here would be to forget everything.
            Ok(text) if text.trim().parse() == Ok(FORMAT) => damaged("its files are gone"),
            Ok(text) => Err(OpenError::Newer {
                folder: self.path.clone(),
                found: text.trim().chars().take(40).collect(),
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // A folder with data but without a format lost its file, unless it was being made.
                if has_data && !self.path.join(MAKING_FILE).exists() {
                    return damaged("the file FORMAT is missing");
                }
                Ok(false)
            }
            Err(error) => Err(self.io("read")(error)),
        }
    }

    /// Reads the journal before the engine below does.
    fn check_journal(&self, accept_shadow: bool) -> Result<(), OpenError> {
        let data = self.data();
        if !data.exists() {
            return Ok(());
        }
        let damaged = |what| OpenError::Damaged { folder: self.path.clone(), what };
        let reports = inspect_journals(&data).map_err(self.io("read"))?;
        let keyspaces = data.join(disk::KEYSPACES_FOLDER);
        // The engine would begin a new journal, as if nothing had ever been in the old one.
        if reports.is_empty() && keyspaces.exists() {
            return Err(damaged("its journal is gone".into()));
        }
        // It would make an empty list of keyspaces, and delete those that are not in it.
        if keyspaces.exists() && !keyspaces.join("0").exists() {
            return Err(damaged("the list of its keyspaces is gone".into()));
        }
        for report in &reports {
            let file = report.file.file_name().unwrap_or_default().display().to_string();
            if report.missing_before > 0 {
                return Err(damaged(format!("a journal before {file} is gone")));
            }
            match report.end {
                JournalEnd::Clean { .. } => {}
                JournalEnd::Damaged { at, fault, resumes_at } => {
                    let rest = resumes_at.map(|at| format!("; it goes on at byte {at}"));
                    let rest = rest.unwrap_or_default();
                    return Err(damaged(format!(
                        "journal {file} at byte {at}: {}{rest}",
                        said(fault)
                    )));
                }
                JournalEnd::Torn { at, shadow: Some(shadow), .. } if !accept_shadow => {
                    return Err(damaged(format!(
                        "journal {file} is cut off at byte {at}, and what looks like a later batch \
                         lies at byte {shadow}; either a value holds the bytes of a journal, or \
                         there is damage as well: set `accept_shadow` if you are sure"
                    )));
                }
                JournalEnd::Torn { at, fault, .. } if self.closed => {
                    return Err(damaged(format!(
                        "journal {file} at byte {at}: {}, although the store was closed in order",
                        said(fault)
                    )));
                }
                JournalEnd::Torn { at, bytes, .. } => {
                    tracing::info!(file, at, bytes, "a batch that nobody was told of is cut off");
                    discard_torn_tail(report).map_err(self.io("mended"))?;
                }
            }
        }
        Ok(())
    }

    /// From here on the store counts as open, until `close`.
    fn mark_open(&self) -> Result<(), OpenError> {
        match fs::remove_file(self.path.join(CLOSED_FILE)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(self.io("written")(error))
            }
            Ok(()) | Err(_) => sync_folder(&self.path).map_err(self.io("written")),
        }
    }

    /// Says that the store was closed in order.
    pub(super) fn mark_closed(&self) {
        let marked = write_synced(&self.path.join(CLOSED_FILE), b"in order\n");
        if let Err(error) = marked {
            tracing::warn!(%error, "the store could not note that it was closed in order");
        }
    }
}

/// What is wrong with a batch of a journal, in words.
pub(super) const fn said(fault: Fault) -> &'static str {
    match fault {
        Fault::CutShort => "the file ends in the middle of a batch",
        Fault::Unreadable => "a batch holds what cannot be read",
        Fault::Count => "a batch has more or fewer entries than it says",
        Fault::Trailer => "a batch is not ended",
        Fault::Checksum => "the checksum of a batch does not match",
        Fault::Sequence => "a batch is out of order",
    }
}

/// Opens the files to look at them. Nothing is written but what the engine below mends by itself.
pub(super) fn open_to_look(folder: &Folder, options: &Options) -> Result<Disk, OpenError> {
    if !folder.check_format()? {
        return Err(OpenError::Damaged {
            folder: folder.path.clone(),
            what: "it was never completed".into(),
        });
    }
    folder.check_journal(options.accept_shadow)?;
    let keyspaces = open_files(folder, options, &Arc::new(Expiry::default()))?;
    let known = Known::read(&keyspaces, folder)?;
    let sealer = unseal(folder, &keyspaces, &options.keys, known.ring.as_deref(), false)?;
    let Keyspaces { db, slots, docs, lanes, numbers, meta } = keyspaces;
    let sealing = RwLock::new(Arc::new(sealer));
    let opened_at = known.last_seen.map_or(Timestamp::ZERO, |seen| seen.store);
    let (floors, boot) = (Floors::default(), known.boot);
    let latest = RwLock::new(db.snapshot());
    Ok(Disk { db, slots, docs, lanes, numbers, meta, sealing, latest, floors, boot, opened_at })
}

/// Opens everything that the threads of the store share.
pub(super) fn open(folder: &Folder, options: Options) -> Result<Shared, OpenError> {
    point("locked");
    if !folder.check_format()? {
        make(folder, &options)?;
    }
    point("format-checked");
    folder.check_journal(options.accept_shadow)?;
    point("journal-checked");
    folder.mark_open()?;
    point("marked-open");
    let expiry = Arc::new(Expiry::default());
    let keyspaces = open_files(folder, &options, &expiry)?;
    point("files-opened");
    let known = Known::read(&keyspaces, folder)?;
    let reading = Reading::now();
    let (opened_at, resumed) = resume(known.last_seen.as_ref(), &reading);
    if let Resumed::Doubted { claimed, back } = resumed {
        tracing::warn!(
            ?claimed,
            back,
            "the machine's clock cannot be believed; the store's time goes on from where it was"
        );
    }
    let clock = match &options.clock {
        None => StoreClock::from(opened_at),
        Some(clock) => StoreClock::given(Arc::clone(clock)),
    };
    let sealer = unseal(folder, &keyspaces, &options.keys, known.ring.as_deref(), known.boot == 0)?;
    let boot = known.boot + 1;
    let Keyspaces { db, slots, docs, lanes, numbers, meta } = keyspaces;
    let opened_at = clock.opened_at();
    let floors = Floors::default();
    let sealing = RwLock::new(Arc::new(sealer));
    let latest = RwLock::new(db.snapshot());
    let disk =
        Disk { db, slots, docs, lanes, numbers, meta, sealing, latest, floors, boot, opened_at };
    let mut batch = disk.batch();
    batch.insert(&disk.meta, "boot", boot.to_be_bytes());
    batch.insert(&disk.meta, "clock", super::writer::last_seen(opened_at).encode());
    batch.commit().map_err(|error| lost(folder, &error))?;
    disk.publish();
    point("opened");
    let tally = if known.boot == 0 { Some(Tally::default()) } else { known.tally };
    Ok(Shared::new(folder.path.clone(), disk, clock, expiry, options, tally))
}

/// Makes a new store. Nothing was ever answered from one whose making was cut off, so it may be
/// thrown away; that it was being made is said before it begins, and its format is written last.
fn make(folder: &Folder, options: &Options) -> Result<(), OpenError> {
    let io = |doing| folder.io(doing);
    write_synced(&folder.path.join(MAKING_FILE), b"").map_err(io("made"))?;
    match fs::remove_dir_all(folder.data()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(io("made")(error));
        }
        Ok(()) | Err(_) => {}
    }
    let made = disk::open(&folder.data(), options.cache_bytes, &Arc::new(Expiry::default()));
    drop(made.map_err(|error| lost(folder, &error))?);
    sync_folder(&folder.path).map_err(io("made"))?;
    folder.write_format().map_err(io("made"))?;
    fs::remove_file(folder.path.join(MAKING_FILE)).map_err(io("made"))
}

fn open_files(
    folder: &Folder,
    options: &Options,
    expiry: &Arc<Expiry>,
) -> Result<Keyspaces, OpenError> {
    // The engine below panics on some damage; that must become an answer.
    let opened =
        catch_unwind(AssertUnwindSafe(|| disk::open(&folder.data(), options.cache_bytes, expiry)));
    match opened {
        Ok(Ok(keyspaces)) => Ok(keyspaces),
        Ok(Err(error)) => Err(lost(folder, &error)),
        Err(_) => Err(OpenError::Damaged {
            folder: folder.path.clone(),
            what: "its files cannot be read".into(),
        }),
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the engine may learn new errors")]
fn lost(folder: &Folder, error: &fjall::Error) -> OpenError {
    match error {
        fjall::Error::Io(source) => OpenError::Io {
            folder: folder.path.clone(),
            doing: "opened",
            source: std::io::Error::new(source.kind(), source.to_string()),
        },
        fjall::Error::Locked => {
            OpenError::Locked { folder: folder.path.clone(), holder: "unknown".into() }
        }
        other => OpenError::Damaged { folder: folder.path.clone(), what: other.to_string() },
    }
}

/// What the store wrote about itself.
struct Known {
    boot: u64,
    last_seen: Option<LastSeen>,
    ring: Option<Vec<u8>>,
    tally: Option<Tally>,
}

impl Known {
    fn read(keyspaces: &Keyspaces, folder: &Folder) -> Result<Self, OpenError> {
        let get = |word: &str| keyspaces.meta.get(word).map_err(|error| lost(folder, &error));
        let damaged = |what: &str| OpenError::Damaged {
            folder: folder.path.clone(),
            what: format!("what it knows of {what} cannot be read"),
        };
        let boot = match get("boot")? {
            None => 0,
            Some(bytes) => <[u8; 8]>::try_from(&*bytes)
                .map(u64::from_be_bytes)
                .map_err(|_| damaged("its openings"))?,
        };
        let last_seen = match get("clock")? {
            None => None,
            Some(bytes) => Some(LastSeen::decode(&bytes).ok_or_else(|| damaged("the time"))?),
        };
        let ring = get("ring")?.map(|bytes| bytes.to_vec());
        let tally = get("tally")?.and_then(|bytes| Tally::decode(&bytes, boot));
        Ok(Self { boot, last_seen, ring, tally })
    }
}

/// Finds the keys of the seal, or makes them for a new store.
fn unseal(
    folder: &Folder,
    keyspaces: &Keyspaces,
    keys: &[MasterKey],
    ring: Option<&[u8]>,
    is_new: bool,
) -> Result<Sealer, OpenError> {
    let sealed = |source| OpenError::Sealed { folder: folder.path.clone(), source };
    match (keys.first(), ring) {
        (None, None) => Ok(Sealer::Plain),
        (None, Some(_)) => Err(OpenError::NoKey { folder: folder.path.clone() }),
        (Some(_), None) if !is_new => Err(OpenError::NotSealed { folder: folder.path.clone() }),
        (Some(key), None) => {
            let ring = KeyRing::fresh();
            keep_ring(folder, keyspaces, &ring.wrap(key))?;
            Ok(Sealer::Sealed(ring))
        }
        (Some(key), Some(bytes)) => {
            let (ring, opened_by) = KeyRing::unwrap(bytes, keys).map_err(sealed)?;
            if opened_by != 0 {
                // The first key is the one to use from now on.
                keep_ring(folder, keyspaces, &ring.wrap(key))?;
            }
            Ok(Sealer::Sealed(ring))
        }
    }
}

fn keep_ring(folder: &Folder, keyspaces: &Keyspaces, bytes: &[u8]) -> Result<(), OpenError> {
    let mut batch = keyspaces.db.batch().durability(Some(fjall::PersistMode::SyncAll));
    batch.insert(&keyspaces.meta, "ring", bytes);
    batch.commit().map_err(|error| lost(folder, &error))
}

/// Creates a folder and those above it, for its owner alone, so that a power cut does not take them
/// away again.
fn create_private(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    create_private(above)?;
    match create_one(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => {}
        created => created?,
    }
    sync_folder(above)
}

#[cfg(unix)]
fn create_one(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(path)
}

#[cfg(not(unix))]
fn create_one(path: &Path) -> std::io::Result<()> {
    fs::create_dir(path)
}

/// Says in the lock file who has the store open.
fn sign(lock: &mut File) -> std::io::Result<()> {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(Path::file_name).unwrap_or_default();
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "process {}, {}", std::process::id(), name.display())
}

/// Writes a file that is there whole or not at all.
fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    point("file-created");
    file.write_all(bytes)?;
    file.sync_all()?;
    point("file-written");
    fs::rename(&new, path)?;
    point("file-named");
    path.parent().map_or(Ok(()), sync_folder)
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

/// A value of the store about itself, with a checksum.
pub(super) fn noted(boot: u64, bytes: &[u8]) -> Vec<u8> {
    let version = onetake_core::Version::of_write(u128::from(boot));
    codec::encode_document(version, bytes, &Sealer::Plain, b"note")
}

/// What `noted` made, if it was in the opening `boot`.
pub(super) fn read_note(bytes: &[u8], boot: u64) -> Option<bytes::Bytes> {
    let (version, value) = codec::decode_document(bytes, &Sealer::Plain, b"note").ok()?;
    ({ version.write } == u128::from(boot)).then_some(value)
}
