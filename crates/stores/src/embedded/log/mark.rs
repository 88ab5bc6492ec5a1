//! From which frame on the log is needed: everything before it is in the tables.
//!
//! The file `mark` has two places, written in turn, so that a torn write leaves the mark before it.
//! A mark only ever moves forward, and what it leaves behind is used again only once it is durable.
//!
//! ```text
//! "OTLOGMRK", id of the log, generation u64, segment u64, frame u64, checksum u64
//! ```

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::frame::LogId;
use super::segment::private;
use crate::embedded::folder::sync_folder;

const FILE: &str = "mark";
const MAGIC: &[u8; 8] = b"OTLOGMRK";
const CHECKED: usize = 48;
const PLACE_BYTES: usize = CHECKED + 8;
/// Far enough from each other that no device writes both at once.
const PLACES: [u64; 2] = [0, 4096];
const FILE_BYTES: usize = 8192;

/// Where the part of the log begins that is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::embedded) struct From {
    pub(in crate::embedded) segment: u64,
    pub(in crate::embedded) frame: u64,
}

/// The mark of an open log.
#[derive(Debug)]
pub(in crate::embedded) struct Mark {
    file: File,
    id: LogId,
    generation: u64,
}

impl Mark {
    /// Makes the first one.
    pub(super) fn make(folder: &Path, id: LogId, from: From) -> io::Result<()> {
        let mut file = private().create(true).truncate(true).open(folder.join(FILE))?;
        file.write_all(&[0; FILE_BYTES])?;
        let mut mark = Self { file, id, generation: 0 };
        mark.set(from)?;
        mark.file.sync_all()?;
        sync_folder(folder)
    }

    /// Opens it, to move it on.
    pub(super) fn open(folder: &Path, found: &Found) -> io::Result<Self> {
        let file = private().open(folder.join(FILE))?;
        Ok(Self { file, id: found.id, generation: found.generation })
    }

    /// Moves it; returns when that is durable.
    pub(in crate::embedded) fn set(&mut self, from: From) -> io::Result<()> {
        self.generation = self.generation.wrapping_add(1);
        let place = PLACES[usize::from(self.generation % 2 == 1)];
        self.file.seek(SeekFrom::Start(place))?;
        self.file.write_all(&encode(self.id, self.generation, from))?;
        self.file.sync_data()
    }
}

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) id: LogId,
    generation: u64,
    pub(super) from: From,
}

/// Makes what [`read`] found durable.
pub(super) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder.join(FILE))?.sync_all()
}

/// Reads the newest mark; `None` where no place holds one.
pub(super) fn read(folder: &Path) -> io::Result<Option<Found>> {
    let bytes = match std::fs::read(folder.join(FILE)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let place = |at: u64| decode(bytes.get(usize::try_from(at).ok()?..)?);
    let found = PLACES.into_iter().filter_map(place);
    Ok(found.max_by_key(|found| found.generation))
}

fn encode(id: LogId, generation: u64, from: From) -> [u8; PLACE_BYTES] {
    let mut bytes = [0; PLACE_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..24].copy_from_slice(&id);
    bytes[24..32].copy_from_slice(&generation.to_be_bytes());
    bytes[32..40].copy_from_slice(&from.segment.to_be_bytes());
    bytes[40..48].copy_from_slice(&from.frame.to_be_bytes());
    let checksum = xxh3_64(&bytes[..CHECKED]);
    bytes[CHECKED..].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Found> {
    let bytes = bytes.get(..PLACE_BYTES)?;
    let eight = |at: usize| {
        u64::from_be_bytes(bytes[at..at + 8].try_into().expect("invariant: eight bytes"))
    };
    if &bytes[..8] != MAGIC || eight(CHECKED) != xxh3_64(&bytes[..CHECKED]) {
        return None;
    }
    let id = bytes[8..24].try_into().expect("invariant: sixteen bytes");
    let from = From { segment: eight(32), frame: eight(40) };
    Some(Found { id, generation: eight(24), from })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: LogId = [9; 16];

    /// C8: whatever a power cut leaves of the place that was being written, the other one counts.
    #[test]
    fn c8_a_torn_mark_leaves_the_one_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert_eq!(read(path).unwrap(), None);
        Mark::make(path, ID, From { segment: 1, frame: 1 }).unwrap();
        for step in 2..6 {
            let before = read(path).unwrap().unwrap();
            assert_eq!(before.from.frame, step - 1);
            Mark::open(path, &before).unwrap().set(From { segment: 1, frame: step }).unwrap();
            let mut bytes = std::fs::read(path.join(FILE)).unwrap();
            let place = PLACES[usize::from(step % 2 == 1)];
            bytes[usize::try_from(place).unwrap() + 41] ^= 1;
            let torn = tempfile::tempdir().unwrap();
            std::fs::write(torn.path().join(FILE), bytes).unwrap();
            assert_eq!(read(torn.path()).unwrap().map(|found| found.from), Some(before.from));
        }
    }
}
