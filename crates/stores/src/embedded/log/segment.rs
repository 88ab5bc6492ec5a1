//! The files of the log: each is written from its beginning to its end, and then used again.
//!
//! A file is filled with zeros before it is used. A sync of what lies in blocks that are already
//! there has nothing to note beside the data itself, which is what makes it cheap; that is also why
//! files are used again instead of being deleted. What a used file held before is told from what
//! it holds now by the numbers of frames, which only grow.
//!
//! Where the system can, what is written goes past its memory straight to the disk, and is there
//! when the write returns (`direct`). Elsewhere it is written and then synced. Either way nothing
//! counts as written before [`Segment::sync`] has returned.
//!
//! ```text
//! head    "OTLOGSEG", layout u32, id of the log, number u64, number of its first frame u64,
//!         bytes of the file u64, checksum u64 of what is before it; zeros up to 512 bytes
//! frames  one after the other
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::frame::{ALIGN, LogId};
use super::slabs;
use crate::embedded::folder::sync_folder;

pub(super) const HEAD_BYTES: usize = ALIGN;
const MAGIC: &[u8; 8] = b"OTLOGSEG";
const LAYOUT: u32 = 1;
const CHECKED: usize = 52;
/// How files of the log are called; the number before it means nothing.
const ENDING: &str = "seg";
/// How much is filled with zeros at a time.
const FILL: usize = 1 << 20;

/// What a segment says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) id: LogId,
    pub(super) number: u64,
    pub(super) first_frame: u64,
    pub(super) bytes: u64,
}

/// What the beginning of a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// It was never written.
    Blank,
    As(Head),
    /// It was written and cannot be read. Sectors are written whole, so no crash does that.
    Unreadable,
}

impl Head {
    fn encode(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&LAYOUT.to_be_bytes());
        bytes[12..28].copy_from_slice(&self.id);
        bytes[28..36].copy_from_slice(&self.number.to_be_bytes());
        bytes[36..44].copy_from_slice(&self.first_frame.to_be_bytes());
        bytes[44..52].copy_from_slice(&self.bytes.to_be_bytes());
        let checksum = xxh3_64(&bytes[..CHECKED]);
        bytes[CHECKED..CHECKED + 8].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let eight = |at: usize| {
            let bytes = bytes.get(at..at + 8)?;
            Some(u64::from_be_bytes(bytes.try_into().expect("invariant: eight bytes")))
        };
        let is_ours = bytes.get(..8)? == MAGIC && bytes.get(8..12)? == LAYOUT.to_be_bytes();
        if !is_ours || eight(CHECKED)? != xxh3_64(bytes.get(..CHECKED)?) {
            return None;
        }
        let id = bytes.get(12..28)?.try_into().expect("invariant: sixteen bytes");
        Some(Self { id, number: eight(28)?, first_frame: eight(36)?, bytes: eight(44)? })
    }
}

/// A file that may be written anew, from its beginning.
#[derive(Debug)]
pub(in crate::embedded) struct Blank {
    path: PathBuf,
    file: File,
    pub(in crate::embedded) bytes: usize,
}

impl Blank {
    /// Makes a new file of so many bytes. It is there, with all its blocks, once this returns.
    pub(in crate::embedded) fn make(folder: &Path, bytes: usize) -> io::Result<Self> {
        let (path, mut file) = free_name(folder)?;
        let filled = fill(&mut file, bytes).and_then(|()| sync_folder(folder));
        if let Err(error) = filled {
            // Half of it would take space and help nobody. Removing it may fail as well.
            drop(std::fs::remove_file(path));
            return Err(error);
        }
        Ok(Self { path, file, bytes })
    }

    /// The same, or a smaller one of at least `least` bytes where the disk has no room for that.
    pub(in crate::embedded) fn make_up_to(
        folder: &Path,
        bytes: usize,
        least: usize,
    ) -> io::Result<Self> {
        as_large_as_fits(bytes, least, |bytes| Self::make(folder, bytes))
    }

    /// Removes the file: it is too small to be used again.
    pub(in crate::embedded) fn discard(self) -> io::Result<()> {
        std::fs::remove_file(self.path)
    }

    /// Takes a file that is there and holds nothing that is needed.
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        Ok(Self { path: path.to_path_buf(), file, bytes })
    }
}

/// What `make` makes of so many bytes, or of half as many and so on while the disk is full.
fn as_large_as_fits<T>(
    mut bytes: usize,
    least: usize,
    make: impl Fn(usize) -> io::Result<T>,
) -> io::Result<T> {
    loop {
        match make(bytes) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && bytes > least => {
                bytes = (bytes / 2).next_multiple_of(ALIGN).max(least);
            }
            result => return result,
        }
    }
}

fn fill(file: &mut File, bytes: usize) -> io::Result<()> {
    let zeros = vec![0; FILL.min(bytes)];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(zeros.len());
        file.write_all(&zeros[..now])?;
        left -= now;
    }
    file.sync_all()
}

/// Creates a file under the first name that is free.
fn free_name(folder: &Path) -> io::Result<(PathBuf, File)> {
    for number in 0_u32.. {
        let path = folder.join(format!("{number}.{ENDING}"));
        match private().create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("no name is free"))
}

/// To write a file that nobody else may read.
pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// File systems that are known to keep what such a write promises: ext, XFS, Btrfs, F2FS, ZFS,
/// overlays of these, and that in memory, which keeps nothing anyway. What is served by another
/// program or machine may take the word for it and sync nothing.
#[cfg(target_os = "linux")]
const DIRECT: [u64; 7] =
    [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x2FC1_2FC1, 0x794C_7630, 0x0102_1994];

/// The file at `path`, for writes that pass by the memory of the system and are on the disk when
/// they return. That spares a copy and a second call, and on most disks it is one command instead
/// of two. Not every system and not every file system can do it.
#[cfg(target_os = "linux")]
fn direct(path: &Path) -> Option<File> {
    use rustix::fs::OFlags;

    let kind = u64::try_from(rustix::fs::statfs(path).ok()?.f_type).ok()?;
    let flags = (OFlags::DIRECT | OFlags::DSYNC).bits().cast_signed();
    let mut options = OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(options.write(true), flags);
    DIRECT.contains(&kind).then(|| options.open(path).ok())?
}

#[cfg(not(target_os = "linux"))]
fn direct(_: &Path) -> Option<File> {
    None
}

/// Whether a write was refused because of how its bytes lie. Disks whose sectors are larger than
/// [`ALIGN`] do that.
fn is_unfit(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

fn put(file: &mut File, at: u64, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}

/// The files of the log in `folder`.
pub(super) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == ENDING) {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// How the file at `path` begins.
pub(super) fn begun(path: &Path) -> io::Result<Begun> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES);
    File::open(path)?.take(HEAD_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(match Head::decode(&bytes) {
        Some(head) => Begun::As(head),
        None if bytes.iter().all(|byte| *byte == 0) => Begun::Blank,
        None => Begun::Unreadable,
    })
}

/// The file that is being written.
#[derive(Debug)]
pub(super) struct Segment {
    blank: Blank,
    /// The same file, for writes that are on the disk when they return.
    direct: Option<File>,
    pub(super) number: u64,
    written: usize,
    /// Whether something of it is in the memory of the system and may not be on the disk.
    is_behind: bool,
}

impl Segment {
    /// Begins `blank` as the segment `number`. Not synced.
    pub(super) fn begin(
        blank: Blank,
        id: LogId,
        number: u64,
        first_frame: u64,
    ) -> io::Result<Self> {
        let head = Head { id, number, first_frame, bytes: blank.bytes as u64 };
        let mut bytes = slabs::room(HEAD_BYTES);
        bytes.extend_from_slice(&head.encode());
        let direct = direct(&blank.path);
        let mut segment = Self { blank, direct, number, written: 0, is_behind: false };
        segment.write(&bytes)?;
        Ok(segment)
    }

    pub(super) const fn bytes(&self) -> usize {
        self.blank.bytes
    }

    pub(super) const fn left(&self) -> usize {
        self.blank.bytes.saturating_sub(self.written)
    }

    /// Writes one frame behind those before it. Not synced.
    pub(super) fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let at = self.written as u64;
        self.written += frame.len();
        if let Some(direct) = self.direct.as_mut().filter(|_| slabs::is_aligned(frame)) {
            match put(direct, at, frame) {
                Ok(()) => return Ok(()),
                // Nothing of it was written: the system refuses such a write before it begins. Of
                // the first one whatever goes wrong says that there can be none.
                Err(error) if is_unfit(&error) || at == 0 => self.direct = None,
                Err(error) => return Err(error),
            }
        }
        self.is_behind = true;
        put(&mut self.blank.file, at, frame)
    }

    /// Returns when everything that was written is on the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.is_behind {
            self.blank.file.sync_data()?;
            self.is_behind = false;
        }
        Ok(())
    }

    pub(super) fn into_blank(self) -> Blank {
        self.blank
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_smaller_where_the_disk_is_nearly_full_and_never_too_small() {
        let made = |bytes, least, free| {
            as_large_as_fits(bytes, least, |bytes| match bytes {
                bytes if bytes <= free => Ok(bytes),
                _ => Err(io::Error::from(io::ErrorKind::StorageFull)),
            })
        };
        assert_eq!(made(64 << 20, 1 << 20, 64 << 20).unwrap(), 64 << 20);
        assert_eq!(made(64 << 20, 1 << 20, 40 << 20).unwrap(), 32 << 20);
        assert_eq!(made(3 << 20, 2 << 20, 2 << 20).unwrap(), 2 << 20);
        assert!(made(64 << 20, 1 << 20, 1_000).is_err());
        assert!(as_large_as_fits(8, 1, |_| Err::<(), _>(io::Error::other("broken"))).is_err());
    }

    #[test]
    fn a_head_reads_as_it_was_written_and_any_change_is_noticed() {
        let head = Head { id: [3; 16], number: 5, first_frame: 70, bytes: 4096 };
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes), Some(head));
        for at in 0..CHECKED + 8 {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert_eq!(Head::decode(&changed), None, "byte {at}");
        }
        assert_eq!(Head::decode(&bytes[..40]), None);
        assert_eq!(Head::decode(&[0; HEAD_BYTES]), None);
    }
}
