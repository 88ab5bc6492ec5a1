//! The folder of a store: one process at a time, and what lies in it is there whole or not at all.
//!
//! | name | |
//! |---|---|
//! | `FORMAT` | the layout of the folder, as a whole number; written last when a store is made |
//! | `MAKING` | there while a store is made, and of no meaning once `FORMAT` is there |
//! | `CLOSED` | there while the store is closed in order; says where its journals end |
//! | `onetake.lock` | locked by the process that has the store open, and says which |
//! | `data` | the files of the engine below |
//!
//! Nothing here opens those files. The journal among them is read, before the engine replays it;
//! nothing in it is changed but a torn end that nobody was told of.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::crash::point;
use super::disk::{KEYSPACES, KEYSPACES_FOLDER};
use super::inspect::{Fault, JournalEnd, JournalReport, discard_torn_tail, inspect_journals};
use super::open::OpenError;

/// The layout of the folder, as a whole number in the file `FORMAT`.
pub(super) const FORMAT: u32 = 1;
const LOCK_FILE: &str = "onetake.lock";
const FORMAT_FILE: &str = "FORMAT";
/// There while the store is closed in order.
const CLOSED_FILE: &str = "CLOSED";
const DATA_FOLDER: &str = "data";
/// There while a new store is made.
const MAKING_FILE: &str = "MAKING";

/// The folder of a store, locked for this process.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// How its journals ended when it was closed in order; `None` when it was not.
    closed: Option<String>,
    lock: File,
}

impl Drop for Folder {
    /// Closing the file would do, but not while a child that was just started still has a copy.
    fn drop(&mut self) {
        drop(self.lock.unlock());
    }
}

impl Folder {
    pub(super) fn io(&self, doing: &'static str) -> impl Fn(std::io::Error) -> OpenError + use<'_> {
        move |source| OpenError::Io { folder: self.path.clone(), doing, source }
    }

    /// Whether a store is at `path`, whole or damaged.
    pub(super) fn has_store(path: &Path) -> bool {
        path.join(FORMAT_FILE).exists() || path.join(DATA_FOLDER).exists()
    }

    /// Locks a folder that holds a store.
    pub(super) fn lock_existing(path: &Path) -> Result<Self, OpenError> {
        if !Self::has_store(path) {
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
        let closed = match fs::read_to_string(path.join(CLOSED_FILE)) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(io("read")(error)),
        };
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

    /// Says that a store is being made, before anything of it is there.
    pub(super) fn begin_making(&self) -> std::io::Result<()> {
        write_synced(&self.path.join(MAKING_FILE), b"")
    }

    /// Makes the folder of the files, for its owner alone, whoever may read the one around it.
    pub(super) fn make_data(&self) -> std::io::Result<()> {
        create_one(&self.data())
    }

    /// Says that it is made.
    pub(super) fn end_making(&self) -> std::io::Result<()> {
        sync_folder(&self.path)?;
        self.write_format()?;
        fs::remove_file(self.path.join(MAKING_FILE))
    }

    /// Whether a store is there that this release can read; `false` when there is none yet.
    pub(super) fn check_format(&self) -> Result<bool, OpenError> {
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

    /// Looks whether every table folder is there. The engine would delete one that has lost its
    /// list of tables, and make it anew, as if nothing had ever been in it.
    pub(super) fn check_tables(&self) -> Result<(), OpenError> {
        for keyspace in 0..=KEYSPACES {
            let folder = self.data().join(KEYSPACES_FOLDER).join(keyspace.to_string());
            if !folder.join("current").is_file() {
                let what = format!("the list of tables of keyspace {keyspace} is gone");
                return Err(OpenError::Damaged { folder: self.path.clone(), what });
            }
        }
        Ok(())
    }

    /// Reads the journal before the engine below does.
    pub(super) fn check_journal(&self, accept_shadow: bool) -> Result<(), OpenError> {
        let data = self.data();
        let damaged = |what| OpenError::Damaged { folder: self.path.clone(), what };
        let reports = inspect_journals(&data).map_err(self.io("read"))?;
        // The engine would begin a new journal, as if nothing had ever been in the old one.
        if reports.is_empty() {
            return Err(damaged("its journal is gone".into()));
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
                JournalEnd::Torn { at, fault, .. } if self.closed.is_some() => {
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
        // What is cut off between two batches looks whole.
        match &self.closed {
            Some(closed) if *closed != ends(&reports) => {
                Err(damaged("its journal does not end where it did when it was closed".into()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// From here on the store counts as open, until `close`.
    pub(super) fn mark_open(&self) -> Result<(), OpenError> {
        // One that was left behind would make a lost `FORMAT` look like an unfinished store.
        for file in [CLOSED_FILE, MAKING_FILE] {
            match fs::remove_file(self.path.join(file)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(self.io("written")(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        sync_folder(&self.path).map_err(self.io("written"))
    }

    /// Says that a store that was only looked at is as closed as it was before.
    pub(super) fn mark_closed_again(&self) {
        if self.closed.is_some() {
            self.mark_closed();
        }
    }

    /// Says that the store was closed in order.
    pub(super) fn mark_closed(&self) {
        let marked = inspect_journals(&self.data()).and_then(|reports| {
            write_synced(&self.path.join(CLOSED_FILE), ends(&reports).as_bytes())
        });
        if let Err(error) = marked {
            tracing::warn!(%error, "the store could not note that it was closed in order");
        }
    }
}

/// Where each journal ends, as the file `CLOSED` says it.
fn ends(reports: &[JournalReport]) -> String {
    reports.iter().fold(String::new(), |text, report| {
        let (JournalEnd::Clean { at }
        | JournalEnd::Torn { at, .. }
        | JournalEnd::Damaged { at, .. }) = report.end;
        text + &format!("{} {at} {}\n", report.id, report.last_seqno.unwrap_or(0))
    })
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
