//! Rigs that open embedded stores in folders of their own.
#![allow(clippy::unwrap_used, reason = "only tests use this file")]
#![allow(dead_code, reason = "every test file uses a part of it")]

pub(crate) mod part;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onetake_engine::ManualClock;
use onetake_stores::seal::MasterKey;
use onetake_stores::{Embedded, FrontLimits, OnLoss, Options};
use onetake_testkit::{Rig, wait_out};

use tempfile::TempDir;

/// Settings for tests: nothing that ends the process, no demand on the disk of the machine.
/// With files of the log so small that records come into the tables all the time.
pub(crate) fn options() -> Options {
    let (on_loss, reserve_bytes, log_bytes) = (OnLoss::Refuse, 1 << 20, 16 << 10);
    Options { on_loss, reserve_bytes, log_bytes, ..Options::default() }
}

/// A folder for what processes leave behind that are ended on purpose. In memory where the system
/// has such a place: to a process that ends it is a disk like any other, and no sync takes time.
pub(crate) fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Copies a folder with everything in it. What goes meanwhile is not needed any more.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = (entry.as_ref().unwrap().path(), entry.unwrap().file_name());
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            match fs::copy(&path, to.join(name)) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}

/// Stores on a clock that moves when it is told to.
#[derive(Default)]
pub(crate) struct StandingRig {
    clock: Arc<ManualClock>,
    folders: Mutex<Vec<TempDir>>,
}

/// Stores whose folders go with the rig.
fn folder(folders: &Mutex<Vec<TempDir>>) -> std::path::PathBuf {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    folders.lock().unwrap().push(folder);
    path
}

impl Rig for StandingRig {
    type Store = Embedded;

    async fn open(&self) -> Embedded {
        self.clock.set(1_700_000_000_000);
        let options = Options { clock: Some(self.clock.clone()), ..options() };
        Embedded::open_with(folder(&self.folders), options).unwrap()
    }

    async fn pass(&self, _: &Embedded, span: Duration) {
        self.clock.advance(span);
    }
}

/// Sealed stores that keep almost nothing in memory, on the clock of the machine: nearly every read
/// comes from the disk and through the cipher.
#[derive(Default)]
pub(crate) struct SealedRig {
    folders: Mutex<Vec<TempDir>>,
}

impl Rig for SealedRig {
    type Store = Embedded;

    async fn open(&self) -> Embedded {
        let front = FrontLimits { records_max: 1, bytes_max: 1, keep: Duration::ZERO };
        let options = Options { front, keys: vec![MasterKey::new([7; 32])], ..options() };
        Embedded::open_with(folder(&self.folders), options).unwrap()
    }

    async fn pass(&self, store: &Embedded, span: Duration) {
        wait_out(store, span).await;
    }
}
