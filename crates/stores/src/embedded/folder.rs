//! The folder of a store: one process at a time, and what lies in it is there whole or not at all.
//!
//! | name | |
//! |---|---|
//! | `FORMAT` | the layout of the folder, as a whole number; written last when a store is made |
//! | `MAKING` | there while a store is made, and of no meaning once `FORMAT` is there |
//! | `CLOSED` | there while the store is closed in order; says where its log ends |
//! | `onetake.lock` | locked by the process that has the store open, and says which |
//! | `log` | what was written, in its order (`log.rs`) |
//! | `data` | the tables, which are the files of the engine below |
//!
//! Nothing here opens those files.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use super::crash::point;
use super::disk::{KEYSPACES, KEYSPACES_FOLDER};
use super::log::{self, Contents, From, ReadError};
use super::open::OpenError;

/// The layout of the folder, as a whole number in the file `FORMAT`. No release ever wrote 1.
pub(super) const FORMAT: u32 = 2;
const LOCK_FILE: &str = "onetake.lock";
const FORMAT_FILE: &str = "FORMAT";
/// There while the store is closed in order.
const CLOSED_FILE: &str = "CLOSED";
const DATA_FOLDER: &str = "data";
const LOG_FOLDER: &str = "log";
/// There while a new store is made.
const MAKING_FILE: &str = "MAKING";

/// The folder of a store, locked for this process.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// How its log ended when it was closed in order; `None` when it was not.
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

    pub(super) fn log(&self) -> PathBuf {
        self.path.join(LOG_FOLDER)
    }

    /// Writes the format. A copy gets it last, so that half a copy is no store.
    pub(super) fn write_format(&self) -> std::io::Result<()> {
        write_synced(&self.path.join(FORMAT_FILE), format!("{FORMAT}\n").as_bytes())
    }

    /// Says that a store is being made, before anything of it is there.
    pub(super) fn begin_making(&self) -> std::io::Result<()> {
        write_synced(&self.path.join(MAKING_FILE), b"")
    }

    /// Makes the folders of the files, for their owner alone, whoever may read the one around them.
    pub(super) fn make_folders(&self) -> std::io::Result<()> {
        create_one(&self.data())?;
        create_one(&self.log())
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
        let damaged = |what| OpenError::Damaged { folder: self.path.clone(), what };
        // Without it the engine would begin a new database beside this one.
        if !self.data().join("version").is_file() {
            return Err(damaged("the version of its tables is gone".into()));
        }
        for entry in fs::read_dir(self.data().join(KEYSPACES_FOLDER)).map_err(self.io("listed"))? {
            let name = entry.map_err(self.io("listed"))?.file_name();
            let number = name.to_str().and_then(|name| name.parse::<u32>().ok());
            if number.is_none_or(|number| number > KEYSPACES) {
                return Err(damaged(format!("nobody knows the tables {}", name.display())));
            }
        }
        for keyspace in 0..=KEYSPACES {
            let folder = self.data().join(KEYSPACES_FOLDER).join(keyspace.to_string());
            if !folder.join("current").is_file() {
                return Err(damaged(format!("the list of tables of keyspace {keyspace} is gone")));
            }
            if !is_list_whole(&folder).map_err(self.io("read"))? {
                return Err(damaged(format!(
                    "the list of tables of keyspace {keyspace} is broken"
                )));
            }
        }
        Ok(())
    }

    /// Reads the log, and looks whether it is whole.
    pub(super) fn read_log(&self) -> Result<Contents, OpenError> {
        let damaged = |what| OpenError::Damaged { folder: self.path.clone(), what };
        let contents = log::read(&self.log()).map_err(|error| match error {
            ReadError::Damaged(what) => damaged(what),
            ReadError::Io(error) => self.io("read")(error),
        })?;
        contents.sync(&self.log()).map_err(self.io("synced"))?;
        // What is cut off between two frames looks whole.
        match &self.closed {
            Some(closed) if *closed != end_of(contents.closed_at()) => {
                Err(damaged("its log does not end where it did when it was closed".into()))
            }
            Some(_) | None => Ok(contents),
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

    /// Says again what [`mark_open`](Self::mark_open) took back, for nothing was changed since.
    pub(super) fn leave_as_found(&self, end: From) {
        if self.closed.is_some() {
            self.mark_closed(end);
        }
    }

    /// Says that the store was closed in order, and where its log ends.
    pub(super) fn mark_closed(&self, end: From) {
        if let Err(error) = write_synced(&self.path.join(CLOSED_FILE), end_of(end).as_bytes()) {
            tracing::warn!(%error, "the store could not note that it was closed in order");
        }
    }
}

/// Whether the list of tables in `folder` is the one that `current` names there: its number, its
/// checksum and a zero, little endian. The engine below keeps that checksum and ignores it.
fn is_list_whole(folder: &Path) -> std::io::Result<bool> {
    let current = fs::read(folder.join("current"))?;
    let Some((number, rest)) = current.split_first_chunk() else { return Ok(false) };
    let Some((checksum, [0])) = rest.split_first_chunk() else { return Ok(false) };
    match fs::read(folder.join(format!("v{}", u64::from_le_bytes(*number)))) {
        Ok(list) => Ok(xxh3_128(&list) == u128::from_le_bytes(*checksum)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Where a log ends, as the file `CLOSED` says it.
fn end_of(end: From) -> String {
    format!("segment {}, frame {}\n", end.segment, end.frame)
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

pub(super) fn sync_folder(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}
