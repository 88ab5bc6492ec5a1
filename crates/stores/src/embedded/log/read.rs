//! Reads the log when a store is opened, and tells a torn end from damage.
//!
//! Frames are written one at a time, and the next one only once the one before it is on the disk.
//! So a frame that is not whole is the torn end of a crash exactly when no later frame exists, and
//! nobody was told of it; if one does, it was whole once, and that is damage. There is no third
//! case: a frame carries a checksum that nobody can make who only chooses values.
//!
//! Never writes, and never repairs. Keeps what it read in memory: the needed part of a log is a few
//! segments.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::frame::{self, ALIGN, LogId, Value};
use super::mark::{self, From};
use super::segment::{self, Begun, HEAD_BYTES};
use crate::embedded::folder::sync_folder;

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub(in crate::embedded) enum ReadError {
    #[error("{0}")]
    Damaged(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// One segment that is needed.
#[derive(Debug)]
struct Needed {
    bytes: Vec<u8>,
    /// The bodies of its frames that are needed.
    bodies: Vec<Range<usize>>,
}

/// What a log holds.
#[derive(Debug)]
pub(in crate::embedded) struct Contents {
    segments: Vec<Needed>,
    pub(super) mark: mark::Found,
    /// What comes behind it.
    pub(in crate::embedded) end: From,
    /// Files that are needed until the mark has moved on, and files that are not.
    pub(super) used: Vec<PathBuf>,
    pub(super) free: Vec<PathBuf>,
    /// Whether a frame that nobody was told of was left unfinished, and where.
    pub(in crate::embedded) torn: Option<(PathBuf, usize)>,
}

impl Contents {
    pub(super) const fn id(&self) -> LogId {
        self.mark.id
    }

    /// Where it ended when it was last written.
    pub(in crate::embedded) const fn closed_at(&self) -> From {
        From { segment: self.end.segment - 1, frame: self.end.frame }
    }

    /// Makes durable what was read. A process that was killed may have left it in the memory of the
    /// system only, and whatever is done next rests on it.
    pub(in crate::embedded) fn sync(&self, folder: &Path) -> io::Result<()> {
        for path in &self.used {
            fs::File::open(path)?.sync_all()?;
        }
        mark::sync(folder)?;
        sync_folder(folder)
    }

    /// How many frames are needed.
    pub(in crate::embedded) fn frames(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bodies.len() as u64).sum()
    }

    /// Every value that is needed, in the order in which they were written.
    pub(in crate::embedded) fn values(&self) -> impl Iterator<Item = Value<'_>> {
        let bodies = self
            .segments
            .iter()
            .flat_map(|segment| segment.bodies.iter().map(|body| &segment.bytes[body.clone()]));
        bodies.flat_map(frame::values).map(|value| value.expect("invariant: read before"))
    }
}

fn damaged<T>(what: impl Into<String>) -> Result<T, ReadError> {
    Err(ReadError::Damaged(what.into()))
}

/// Reads the log in `folder`.
pub(in crate::embedded) fn read(folder: &Path) -> Result<Contents, ReadError> {
    if !folder.is_dir() {
        return damaged("its log is gone");
    }
    let Some(mark) = mark::read(folder)? else {
        return damaged("the mark of its log cannot be read");
    };
    let (mut numbered, mut free) = (Vec::new(), Vec::new());
    for path in segment::files(folder)? {
        let file = path.file_name().unwrap_or_default().display();
        match segment::begun(&path)? {
            Begun::As(head) if head.id == mark.id && head.number >= mark.from.segment => {
                numbered.push((head, path));
            }
            // What it held is in the tables.
            Begun::As(_) => free.push(path),
            Begun::Blank if !was_written(&path, &mark)? => free.push(path),
            Begun::Blank | Begun::Unreadable => {
                return damaged(format!("the head of {file} cannot be read"));
            }
        }
    }
    numbered.sort_unstable_by_key(|(head, _)| head.number);
    let mut reading = Reading::new(mark);
    for (at, (head, path)) in numbered.iter().enumerate() {
        let wanted = mark.from.segment.saturating_add(at as u64);
        if head.number != wanted {
            return damaged(format!("segment {wanted} of its log is gone"));
        }
        reading.segment(head, path, at + 1 == numbered.len())?;
    }
    if numbered.is_empty() {
        return damaged(format!("segment {} of its log is gone", mark.from.segment));
    }
    let Some(frame) = reading.next.filter(|next| *next >= mark.from.frame) else {
        return damaged("its log ends before what was taken over from it");
    };
    let segment = mark.from.segment.checked_add(numbered.len() as u64);
    let Some(segment) = segment.filter(|_| frame < u64::MAX / 2) else {
        return damaged("its log counts further than anybody can write");
    };
    let end = From { segment, frame };
    let used = numbered.into_iter().map(|(_, path)| path).collect();
    Ok(Contents { segments: reading.segments, mark, end, used, free, torn: reading.torn })
}

struct Reading {
    mark: mark::Found,
    segments: Vec<Needed>,
    /// The number of the frame that must come next.
    next: Option<u64>,
    torn: Option<(PathBuf, usize)>,
}

impl Reading {
    const fn new(mark: mark::Found) -> Self {
        Self { mark, segments: Vec::new(), next: None, torn: None }
    }

    fn segment(
        &mut self,
        head: &segment::Head,
        path: &Path,
        is_last: bool,
    ) -> Result<(), ReadError> {
        let file = path.file_name().unwrap_or_default().display();
        let first = *self.next.get_or_insert(head.first_frame);
        if first != head.first_frame {
            let until = head.first_frame;
            let what = format!("its log has no frames from {first} on until {until}");
            return damaged(format!("{what}, with which {file} begins"));
        }
        let bytes = fs::read(path)?;
        if (bytes.len() as u64) < head.bytes {
            return damaged(format!("{file} is cut off"));
        }
        let (mut at, mut next, mut bodies) = (HEAD_BYTES, first, Vec::new());
        while let Some((head, body)) = whole(&bytes, at, next, &self.mark.id) {
            if frame::values(body).any(|value| value.is_err()) {
                return damaged(format!("{file} at byte {at}: a frame holds what nobody wrote"));
            }
            if next >= self.mark.from.frame {
                let begin = body.as_ptr().addr() - bytes.as_ptr().addr();
                bodies.push(begin..begin + body.len());
            }
            (at, next) = (at + head.end(), next.saturating_add(1));
        }
        if let Some((later, _)) = later(&bytes, at, next, &self.mark.id) {
            let what = "a frame is not whole, and a later one is";
            return damaged(format!("{file} at byte {at}: {what}, at byte {later}"));
        }
        let rest = bytes.get(at..).unwrap_or_default();
        if is_last && frame::Head::read(rest, &self.mark.id).is_some() {
            self.torn = Some((path.to_path_buf(), at));
        }
        self.next = Some(next);
        self.segments.push(Needed { bytes, bodies });
        Ok(())
    }
}

/// Whether more than one frame that is needed was written to a file whose head says that none was.
/// One alone may be a torn beginning: it is written together with the head.
fn was_written(path: &Path, mark: &mark::Found) -> io::Result<bool> {
    let bytes = fs::read(path)?;
    let from = mark.from.frame.saturating_sub(1);
    let first = later(&bytes, 0, from, &mark.id);
    Ok(first.is_some_and(|(at, number)| later(&bytes, at, number, &mark.id).is_some()))
}

/// The frame `number` at `at`, if it is there whole.
fn whole<'a>(
    bytes: &'a [u8],
    at: usize,
    number: u64,
    id: &LogId,
) -> Option<(frame::Head, &'a [u8])> {
    let bytes = bytes.get(at..)?;
    let head = frame::Head::read(bytes, id).filter(|head| head.number == number)?;
    head.body(bytes).map(|body| (head, body))
}

/// Where a whole frame with a later number than `number` lies behind `at`, and its number.
fn later(bytes: &[u8], at: usize, number: u64, id: &LogId) -> Option<(usize, u64)> {
    (at..bytes.len()).step_by(ALIGN).skip(1).find_map(|at| {
        let head = frame::Head::read(&bytes[at..], id).filter(|head| head.number > number)?;
        head.body(&bytes[at..]).map(|_| (at, head.number))
    })
}
