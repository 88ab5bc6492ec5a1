//! The log: every batch in the order of its making, on the disk before anybody hears of it.
//!
//! It is what makes a write durable; the tables only make it quick to find again. What was written
//! is in memory and here until it is taken over into the tables, in bulk and in the background.
//! Then the mark moves on, and the file that held it is used again. A store that stopped in the
//! middle finds everything since the mark here and takes it over when it is opened: each value is
//! what its place holds, never a difference, so taking over twice is as good as once.
//!
//! Nothing here knows what a value means. Whoever writes is one thread, one frame at a time: that
//! is how a torn end is told from damage (`read.rs`). A write or a sync that fails is never tried
//! again; one that the system refuses before it begins goes another way (`segment.rs`).

mod frame;
mod mark;
mod read;
mod segment;
mod slabs;
#[cfg(test)]
mod tests;
mod yard;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;

pub(super) use self::frame::{Frame, Kept, Space, Value};
pub(super) use self::mark::{From, Mark};
pub(super) use self::read::{Contents, ReadError, read};
pub(super) use self::segment::Blank;
use self::segment::{HEAD_BYTES, Segment};
use self::slabs::Slabs;
pub(super) use self::yard::{Filled, Work, Yard};
use super::crash::point;
use frame::LogId;

/// The first file of a store, so that small stores stay small.
const FIRST_BYTES: usize = 1 << 20;
/// How much larger each file is than the one before, until it is as large as they become. Each
/// becomes a table, and every new key asks them all: small ones should be few.
const GROWTH: usize = 8;
/// The smallest that a file of the log may be.
const SEGMENT_BYTES_MIN: usize = 4 << 10;
/// The largest that it may be: whoever opens a store reads several.
const SEGMENT_BYTES_MAX: usize = 256 << 20;

/// How large files of a log become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(usize);

impl Size {
    pub(super) fn of(bytes: usize) -> Self {
        Self(bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX).next_multiple_of(frame::ALIGN))
    }

    /// That of the first file, and of one where the disk has no room for more.
    pub(super) fn first(self) -> usize {
        self.0.min(FIRST_BYTES)
    }

    /// That of the file after one of so many bytes.
    fn after(self, bytes: usize) -> usize {
        (GROWTH * bytes).min(self.0)
    }

    /// Whether a file of so many bytes is worth keeping.
    pub(super) const fn is_full(self, bytes: usize) -> bool {
        bytes == self.0
    }
}

/// The end of the log, where it is written.
#[derive(Debug)]
pub(super) struct Log {
    folder: PathBuf,
    id: LogId,
    size: Size,
    current: Segment,
    /// The number of the next frame.
    next: u64,
    /// How long the last sync took.
    last_sync: Duration,
    slabs: Slabs,
    yard: Arc<Yard>,
}

impl Log {
    /// Makes the log of a new store, with one frame of these values; gives its end.
    pub(super) fn make(
        folder: &Path,
        size: Size,
        fill: impl FnOnce(&mut Frame),
    ) -> io::Result<From> {
        let (id, from) = (crate::seal::random(), From { segment: 1, frame: 1 });
        let frame = filled(fill);
        let blank = Blank::make(folder, size.first().max(frame.file_bytes()))?;
        let log = Self::begin((folder, size), id, from, blank, frame)?;
        Mark::make(folder, log.id, from)?;
        Ok(log.end())
    }

    /// Goes on behind what was read, with one frame of these values. Everything that was read must
    /// be in the tables: it is given up.
    pub(super) fn go_on(
        folder: &Path,
        size: Size,
        read: &Contents,
        fill: impl FnOnce(&mut Frame),
    ) -> io::Result<(Self, Mark)> {
        let (mut free, frame) = (Vec::new(), filled(fill));
        for path in &read.free {
            free.push((Blank::take(path)?, path));
        }
        // The largest there is, for a store that was busy will be so again.
        let least = size.first().max(frame.file_bytes());
        free.retain(|(blank, _)| (least..=size.0).contains(&blank.bytes));
        free.sort_by_key(|(blank, _)| blank.bytes);
        let (blank, taken) = match free.pop() {
            Some((blank, path)) => (blank, Some(path)),
            None => (Blank::make(folder, least)?, None),
        };
        let log = Self::begin((folder, size), read.id(), read.end, blank, frame)?;
        point("log-begun");
        let mut mark = Mark::open(folder, &read.mark)?;
        mark.set(read.end)?;
        point("log-marked");
        // One of the others is as good as a new file; the rest only takes space.
        let mut others = read.used.iter().chain(read.free.iter()).filter(|it| Some(*it) != taken);
        if let Some(spare) = others.next() {
            let spare = Blank::take(spare)?;
            if (log.current.bytes()..=size.0).contains(&spare.bytes) {
                drop(log.yard.put(spare));
            } else {
                spare.discard()?;
            }
        }
        for path in others {
            std::fs::remove_file(path)?;
        }
        Ok((log, mark))
    }

    fn begin(
        (folder, size): (&Path, Size),
        id: LogId,
        from: From,
        blank: Blank,
        frame: Frame,
    ) -> io::Result<Self> {
        let current = Segment::begin(blank, id, from.segment, from.frame)?;
        let yard = Arc::new(Yard::default());
        let folder = folder.to_path_buf();
        let last_sync = Duration::ZERO;
        let (next, slabs) = (from.frame, Slabs::new(size.0));
        let mut log = Self { folder, id, size, current, next, last_sync, slabs, yard };
        log.write(frame)?;
        Ok(log)
    }

    /// Where files wait.
    pub(super) fn yard(&self) -> Arc<Yard> {
        Arc::clone(&self.yard)
    }

    /// How long the last sync took.
    pub(super) const fn last_sync(&self) -> Duration {
        self.last_sync
    }

    /// Where the next frame will be.
    pub(super) const fn end(&self) -> From {
        From { segment: self.current.number, frame: self.next }
    }

    /// An empty frame, with room for so many values whose keys and contents are so many bytes.
    pub(super) fn frame(&mut self, values: usize, bytes: usize) -> Frame {
        Frame::begin(self.slabs.take(Frame::room(values, bytes)))
    }

    /// Writes one frame, and gives it back with its number once it is durable.
    ///
    /// All that was written before must be visible in memory: it may be taken over from now on.
    pub(super) fn write(&mut self, frame: Frame) -> io::Result<Kept> {
        let number = self.next;
        let kept = frame.finish(&self.id, number);
        let frame = &*kept.bytes;
        let filled = if self.current.left() < frame.len() {
            let usual = self.size.after(self.current.bytes());
            let blank = next_blank(&self.folder, &self.yard, usual, HEAD_BYTES + frame.len())?;
            let next = Segment::begin(blank, self.id, self.current.number + 1, number)?;
            Some(std::mem::replace(&mut self.current, next))
        } else {
            None
        };
        let begun = Instant::now();
        self.current.write(frame)?;
        point("log-written");
        self.current.sync()?;
        self.last_sync = begun.elapsed();
        self.next += 1;
        // Only now: the mark must never name a segment that a power cut can take away.
        if let Some(filled) = filled {
            let next = From { segment: self.current.number, frame: number };
            self.yard.fill(Filled { blank: filled.into_blank(), next });
        }
        if self.current.left() < self.current.bytes() / 2 {
            self.yard.want(self.size.after(self.current.bytes()));
        }
        Ok(kept)
    }
}

/// Bytes that the files of a log take.
pub(super) fn disk_space(folder: &Path) -> u64 {
    let files = segment::files(folder).unwrap_or_default();
    files.iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

fn filled(fill: impl FnOnce(&mut Frame)) -> Frame {
    let mut frame = Frame::begin(BytesMut::new());
    fill(&mut frame);
    frame
}

/// A file of the `usual` size, or one of its own for a frame that needs more.
fn next_blank(folder: &Path, yard: &Yard, usual: usize, needed: usize) -> io::Result<Blank> {
    if needed > usual {
        // No more of these than are taken over.
        yard.catch_up()?;
        return Blank::make(folder, needed);
    }
    let blank = yard.take(usual)?;
    if blank.bytes >= needed {
        return Ok(blank);
    }
    // One that was left from before may be smaller.
    blank.discard()?;
    Blank::make_up_to(folder, usual, needed)
}
