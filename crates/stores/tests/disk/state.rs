//! What a disk knows: the faults to come, and what is not durable yet.
//!
//! Answers before an operation happens and never performs one itself. Files are known by what the
//! kernel calls an inode, because a name may change hands while a file is open.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::hooks::aside;

/// What reaches a disk whole or not at all.
pub(super) const SECTOR_BYTES: u64 = 512;
const SECTOR: usize = 512;

/// The content of one sector.
pub(super) type Sector = Box<[u8; SECTOR]>;

static DISKS: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());
static DISK_COUNT: AtomicUsize = AtomicUsize::new(0);

/// One disk, as the functions in place of the C library know it.
pub(super) struct Shared {
    root: PathBuf,
    state: Mutex<State>,
}

impl Shared {
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Acts on the state. Whatever `act` reads or writes meanwhile is not watched.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        aside(|| act(&mut lock(&self.state)))
    }
}

pub(super) fn register(root: PathBuf) -> Arc<Shared> {
    let shared = Arc::new(Shared { root, state: Mutex::default() });
    aside(|| lock(&DISKS).push(Arc::clone(&shared)));
    DISK_COUNT.fetch_add(1, Ordering::SeqCst);
    shared
}

pub(super) fn unregister(shared: &Arc<Shared>) {
    DISK_COUNT.fetch_sub(1, Ordering::SeqCst);
    aside(|| lock(&DISKS).retain(|disk| !Arc::ptr_eq(disk, shared)));
}

pub(super) fn is_anything_registered() -> bool {
    DISK_COUNT.load(Ordering::SeqCst) > 0
}

/// The disk that a path lies on.
pub(super) fn disk_of(path: &Path) -> Option<Arc<Shared>> {
    lock(&DISKS).iter().find(|disk| path.starts_with(&disk.root)).cloned()
}

/// A test that panics must not take the others with it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a fault does to the operation that it meets.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    /// It fails with this number and changes nothing.
    Errno(c_int),
    /// It writes only so many bytes and says so.
    Short(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Write,
    Sync,
}

/// A fault to come.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    kind: Kind,
    effect: Effect,
    /// How many operations it still lets pass.
    passes: u64,
    /// What the path must contain.
    only: String,
    stays: bool,
}

impl Fault {
    /// The `nth` write from now on; the next one is the first.
    pub(crate) fn write(nth: u64, effect: Effect) -> Self {
        Self::new(Kind::Write, nth, effect)
    }

    /// The `nth` sync from now on, be it of data, of everything or of a directory.
    pub(crate) fn sync(nth: u64, errno: c_int) -> Self {
        Self::new(Kind::Sync, nth, Effect::Errno(errno))
    }

    fn new(kind: Kind, nth: u64, effect: Effect) -> Self {
        assert!(nth > 0, "the next operation is the first one");
        Self { kind, effect, passes: nth - 1, only: String::new(), stays: false }
    }

    /// Counts and meets only files whose path contains this.
    pub(crate) fn only(mut self, part: &str) -> Self {
        part.clone_into(&mut self.only);
        self
    }

    /// Meets every later operation too.
    pub(crate) fn and_later(mut self) -> Self {
        self.stays = true;
        self
    }
}

/// What becomes of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verdict {
    /// The kernel does it.
    Pass,
    /// The kernel does so much of it.
    Short(usize),
    /// It is done already.
    Done,
    Fail(c_int),
}

/// What is known of a file.
pub(super) struct Known {
    /// A handle of our own, so that it can be read even when its name is gone.
    pub(super) file: File,
    /// How long it was at its last sync.
    pub(super) synced_len: u64,
    /// What its changed sectors held at the last sync.
    pub(super) pending: BTreeMap<u64, Sector>,
    /// The same for those whose sync has failed: a later one will not write them.
    pub(super) doomed: BTreeMap<u64, Sector>,
}

/// What was in a directory at its last sync: the inode of every name, and whether it is a folder.
pub(super) type Listing = BTreeMap<PathBuf, (u64, bool)>;

/// The state of one disk.
#[derive(Default)]
pub(super) struct State {
    pub(super) faults: Vec<Fault>,
    pub(super) is_read_only: bool,
    pub(super) takes_no_direct_writes: bool,
    pub(super) syncs: HashMap<PathBuf, u64>,
    pub(super) writes: u64,
    pub(super) files: HashMap<u64, Known>,
    pub(super) listings: HashMap<PathBuf, Listing>,
}

impl State {
    /// Where a write of an open file goes: where it is told to, or else where the file stands.
    pub(super) fn place(&mut self, fd: RawFd, told: Option<i64>) -> u64 {
        let told = told.or_else(|| {
            // SAFETY: three numbers, and the file is open.
            let stands = || unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
            (flags(fd) & libc::O_APPEND == 0).then(stands)
        });
        let end = || self.known(fd).file.metadata().map_or(0, |found| found.len());
        told.map_or_else(end, |at| u64::try_from(at).unwrap_or(0))
    }

    pub(super) fn before_write(
        &mut self,
        fd: RawFd,
        path: &Path,
        count: usize,
        at: u64,
    ) -> Verdict {
        self.writes += 1;
        let is_direct = flags(fd) & libc::O_DIRECT != 0;
        if is_direct && self.takes_no_direct_writes {
            return Verdict::Fail(libc::EINVAL);
        }
        let verdict = self.verdict(Kind::Write, path);
        let (verdict, bytes) = match verdict {
            Verdict::Fail(_) => return verdict,
            Verdict::Pass | Verdict::Done => (verdict, count),
            // What goes past the memory of the system goes by sectors.
            Verdict::Short(bytes) if is_direct => {
                let bytes = bytes.next_multiple_of(SECTOR).min(count);
                (Verdict::Short(bytes), bytes)
            }
            Verdict::Short(bytes) => (verdict, bytes.min(count)),
        };
        self.known(fd).keep(at, bytes as u64);
        verdict
    }

    pub(super) fn before_truncate(&mut self, fd: RawFd, path: &Path, len: i64) -> Verdict {
        let verdict = self.before_change(path, false);
        if matches!(verdict, Verdict::Pass) {
            self.known(fd).keep_behind(u64::try_from(len).unwrap_or(0));
        }
        verdict
    }

    /// An operation on a name. One that opens a file and empties it loses what was in there.
    pub(super) fn before_change(&mut self, path: &Path, truncates: bool) -> Verdict {
        if self.is_read_only {
            return Verdict::Fail(libc::EROFS);
        }
        if truncates && let Ok(file) = File::open(path) {
            self.known_file(file).keep_behind(0);
        }
        Verdict::Pass
    }

    /// The kernel is not asked: what is durable here is what this disk says.
    pub(super) fn sync(&mut self, fd: RawFd, path: &Path) -> Verdict {
        let verdict = self.verdict(Kind::Sync, path);
        let succeeds = !matches!(verdict, Verdict::Fail(_));
        if !path.is_dir() {
            self.known(fd).sync(succeeds);
        } else if succeeds {
            self.sync_directory(path);
        }
        self.count(succeeds, path, verdict)
    }

    /// The end of a write that syncs what it has written, and nothing else of its file.
    pub(super) fn sync_part(&mut self, fd: RawFd, path: &Path, at: u64, bytes: u64) -> Verdict {
        let verdict = self.verdict(Kind::Sync, path);
        let succeeds = !matches!(verdict, Verdict::Fail(_));
        self.known(fd).sync_part(at, bytes, succeeds);
        self.count(succeeds, path, verdict)
    }

    fn count(&mut self, succeeds: bool, path: &Path, verdict: Verdict) -> Verdict {
        if !succeeds {
            return verdict;
        }
        *self.syncs.entry(path.to_path_buf()).or_default() += 1;
        Verdict::Done
    }

    /// Takes everything below a directory for durable.
    pub(super) fn sync_everything(&mut self, path: &Path) {
        self.sync_directory(path);
        for (name, (_, is_dir)) in listing(path) {
            let path = path.join(name);
            if is_dir {
                self.sync_everything(&path);
            } else if let Ok(file) = File::open(&path) {
                self.known_file(file).sync(true);
            }
        }
    }

    fn sync_directory(&mut self, path: &Path) {
        let listing = listing(path);
        for (name, (_, is_dir)) in &listing {
            // From now on the file may come back after it was removed, so it has to be kept.
            if !is_dir && let Ok(file) = File::open(path.join(name)) {
                self.known_file(file);
            }
        }
        self.listings.insert(path.to_path_buf(), listing);
    }

    fn verdict(&mut self, kind: Kind, path: &Path) -> Verdict {
        if self.is_read_only {
            return Verdict::Fail(libc::EROFS);
        }
        let path = path.to_string_lossy();
        let mut met = None;
        self.faults.retain_mut(|fault| {
            let is_meant = fault.kind == kind && path.contains(&fault.only);
            if is_meant && fault.passes > 0 {
                fault.passes -= 1;
                return true;
            }
            // Of two that meet the same operation the older one has its way, the other one waits.
            if !is_meant || met.is_some() {
                return true;
            }
            met = Some(fault.effect);
            fault.stays
        });
        match met {
            None => Verdict::Pass,
            Some(Effect::Errno(errno)) => Verdict::Fail(errno),
            Some(Effect::Short(bytes)) => Verdict::Short(bytes),
        }
    }

    fn known(&mut self, fd: RawFd) -> &mut Known {
        let file = File::open(format!("/proc/self/fd/{fd}")).unwrap();
        self.known_file(file)
    }

    fn known_file(&mut self, file: File) -> &mut Known {
        let inode = file.metadata().unwrap().ino();
        self.files.entry(inode).or_insert_with(|| Known {
            // The disk begins empty, so a file that is not known has never been synced.
            file,
            synced_len: 0,
            pending: BTreeMap::new(),
            doomed: BTreeMap::new(),
        })
    }
}

impl Known {
    /// Keeps what is about to be overwritten.
    fn keep(&mut self, at: u64, bytes: u64) {
        for sector in at / SECTOR_BYTES..(at + bytes).div_ceil(SECTOR_BYTES) {
            if self.pending.contains_key(&sector) {
                continue;
            }
            // What a failed sync has left behind is dirty again; on the disk is still the old.
            let old = self.doomed.remove(&sector).unwrap_or_else(|| self.read(sector));
            self.pending.insert(sector, old);
        }
    }

    /// Keeps what is about to be cut off.
    fn keep_behind(&mut self, len: u64) {
        // A hole reads the same when it is gone.
        for data in data_in(&self.file) {
            let from = data.start.max(len);
            if from < data.end {
                self.keep(from, data.end - from);
            }
        }
    }

    fn sync(&mut self, succeeds: bool) {
        if succeeds {
            self.pending.clear();
            self.synced_len = self.file.metadata().unwrap().len();
        } else {
            self.doomed.append(&mut self.pending);
        }
    }

    fn sync_part(&mut self, at: u64, bytes: u64, succeeds: bool) {
        for sector in at / SECTOR_BYTES..(at + bytes).div_ceil(SECTOR_BYTES) {
            if let Some(old) = self.pending.remove(&sector)
                && !succeeds
            {
                self.doomed.insert(sector, old);
            }
        }
        if succeeds {
            self.synced_len = self.synced_len.max(at + bytes);
        }
    }

    /// One sector as it is now, with zeros behind the end of the file.
    pub(super) fn read(&self, sector: u64) -> Sector {
        let mut bytes = Box::new([0; SECTOR]);
        let mut filled = 0;
        while filled < SECTOR {
            let at = sector * SECTOR_BYTES + filled as u64;
            match self.file.read_at(&mut bytes[filled..], at).unwrap() {
                0 => break,
                read => filled += read,
            }
        }
        bytes
    }
}

/// What is in a directory now.
pub(super) fn listing(path: &Path) -> Listing {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let entry = |entry: fs::DirEntry| {
        let found = entry.metadata().ok()?;
        Some((PathBuf::from(entry.file_name()), (found.ino(), found.is_dir())))
    };
    entries.filter_map(entry).collect()
}

/// Where a file is not a hole. A journal mostly is.
pub(super) fn data_in(file: &File) -> Vec<Range<u64>> {
    // SAFETY: three numbers, and the file is open.
    let seek = |at: i64, what| unsafe { libc::lseek(file.as_raw_fd(), at, what) };
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        let start = seek(at, libc::SEEK_DATA);
        if start < 0 {
            return found;
        }
        at = seek(start, libc::SEEK_HOLE);
        found.push(start.unsigned_abs()..at.unsigned_abs());
    }
}

/// Whether what is written through this file is on the disk when the write returns.
pub(super) fn syncs_itself(fd: RawFd) -> bool {
    flags(fd) & libc::O_DSYNC != 0
}

fn flags(fd: RawFd) -> c_int {
    // SAFETY: two numbers, and the file is open.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }
}
