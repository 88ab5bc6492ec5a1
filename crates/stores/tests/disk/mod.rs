//! A disk that fails on demand and forgets what was not synced.
//!
//! The functions in [`hooks`] stand in the place of those of the C library, so that every write and
//! every sync of the standard library in this test binary passes through here. Below the directory
//! of a [`Disk`] they count, fail and remember; everywhere else they only pass on. Never part of
//! what is shipped, and never sees a caller that talks to the kernel directly: `rustix` does, which
//! is why names are compared by looking at the directory and not by watching renames.
//!
//! # What a power loss may do
//!
//! - Of a file, every sector of 512 bytes that was written since its last successful sync is as it
//!   was then or as it is now, each for itself. A file that has grown is as long as now, as long as
//!   then or anything between; one that was cut is as long as now or as then.
//! - What a failed sync has left behind stays in doubt until it is written again and synced, as on
//!   Linux, where a second sync that succeeds says nothing about it.
//! - With [`Names::AsSynced`], the names in a directory are those of its last sync, those of now,
//!   or those of now without some files that are new. A file whose name is lost is lost; one that
//!   was removed or replaced may be there again. With [`Names::Kept`] they are those of now, as on
//!   file systems that write down names together with the first sync of a file.
//!
//! Not modelled: a sector that is torn in itself, operations on names in part (they are undone
//! together, for each directory), memory maps, and programs beside this one.
//!
//! Syncs below the directory do not reach the kernel: whether they hold is decided here.

#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(unsafe_code, reason = "`Cargo.toml` says why, and why nowhere else")]
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod hooks;
mod power;
mod state;

use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

pub(crate) use power::Names;
pub(crate) use state::{Effect, Fault};

/// A directory on a disk that obeys the test.
pub(crate) struct Disk {
    dir: TempDir,
    shared: Arc<state::Shared>,
}

impl Disk {
    /// An empty directory on a disk that works.
    pub(crate) fn new() -> Self {
        Self::of(tempfile::tempdir().unwrap())
    }

    /// The same on a disk that takes nothing that goes past the memory of the system: its sectors
    /// are larger, say.
    pub(crate) fn without_direct_writes() -> Self {
        let disk = Self::new();
        disk.shared.with(|state| state.takes_no_direct_writes = true);
        disk
    }

    /// A directory whose content is durable as it is.
    fn of(dir: TempDir) -> Self {
        // The kernel names files without symbolic links.
        let root = dir.path().canonicalize().unwrap();
        let shared = state::register(root);
        shared.with(|state| state.sync_everything(shared.root()));
        Self { dir, shared }
    }

    pub(crate) fn path(&self) -> &Path {
        self.shared.root()
    }

    /// Lets a later operation fail.
    pub(crate) fn inject(&self, fault: Fault) {
        self.shared.with(|state| state.faults.push(fault));
    }

    /// From now on everything that would change something fails with `EROFS`.
    pub(crate) fn make_read_only(&self) {
        self.shared.with(|state| state.is_read_only = true);
    }

    /// Takes back every fault.
    pub(crate) fn heal(&self) {
        self.shared.with(|state| {
            state.faults.clear();
            state.is_read_only = false;
        });
    }

    /// How many syncs of files and directories have succeeded.
    pub(crate) fn syncs(&self) -> u64 {
        self.shared.with(|state| state.syncs.values().sum())
    }

    /// How many of them were of one file or directory; `""` is the directory of the disk.
    pub(crate) fn syncs_of(&self, relative: &str) -> u64 {
        let path =
            if relative.is_empty() { self.path().into() } else { self.path().join(relative) };
        self.shared.with(|state| state.syncs.get(&path).copied().unwrap_or(0))
    }

    /// How many writes were asked for.
    pub(crate) fn writes(&self) -> u64 {
        self.shared.with(|state| state.writes)
    }

    /// What is left if the power fails now, on a disk of its own; this one goes on.
    pub(crate) fn after_power_loss(&self, seed: u64) -> Self {
        self.after_power_loss_with(seed, Names::AsSynced)
    }

    /// The same, with a word on names.
    pub(crate) fn after_power_loss_with(&self, seed: u64, names: Names) -> Self {
        Self::of(self.shared.with(|state| power::lose(state, self.shared.root(), seed, names)))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        state::unregister(&self.shared);
    }
}

/// Changes the lowest bit of one byte of a file.
pub(crate) fn flip(path: impl AsRef<Path>, offset: u64) {
    let mut file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(&[byte[0] ^ 1]).unwrap();
}

/// Cuts a file off.
pub(crate) fn truncate(path: impl AsRef<Path>, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// The files below a directory, by their path from there.
pub(crate) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path.strip_prefix(dir).unwrap().to_path_buf());
            }
        }
    }
    found.sort();
    found
}
