//! Reads the journals of the storage engine before the engine itself does.
//!
//! On opening, the engine takes the first batch that it cannot read for a torn write, cuts the
//! journal there and says nothing. That is right for the last batch of a crash, and it loses
//! acknowledged data when the damage lies further up. So the store asks here first, and refuses to
//! open what is damaged. It never repairs, never writes (but for [`discard_torn_tail`], on demand),
//! never decides whether a store may open, and keeps no more of a journal in memory than one chunk,
//! whatever lengths the file claims.
//!
//! # What is on the disk
//!
//! A journal is a row of batches, then zeros or the end of the file: the engine allocates 64 MiB in
//! advance. Numbers are little-endian.
//!
//! ```text
//! start   01, number of entries u32, sequence number u64
//! item    02, kind u8, compression u8, keyspace u64, length of key u16, of value u32,
//!         of value on disk u32, key, value on disk
//! clear   04, keyspace u64
//! end     03, XXH3 of the entries u64, "FJL" 03
//! ```
//!
//! The checksum covers the entries exactly as they lie on the disk, compressed values included, and
//! **not** the start. A wrong number of entries shows when they are counted. A wrong sequence
//! number shows when it breaks the order: batches get theirs under the lock of the journal, so
//! they grow strictly, with gaps because flushes and compactions take numbers too. That holds as
//! long as nobody clears or deletes a keyspace, which the store never does. A sequence number that
//! is wrong and keeps the order cannot be seen here; order is all it is for, with one exception
//! that only the oldest batch can meet: the engine skips what is not newer than its tables.
//!
//! # Torn or damaged
//!
//! Behind the first batch that is not whole we search for one that is. One write at a time is in
//! flight, so a whole batch behind a broken one proves that the broken one had once been finished,
//! acknowledged or not: that is damage. The proof has one hole: a value may hold the bytes of a
//! journal, by chance or by malice, and a torn write of such a value looks much the same. Therefore
//! a batch that was found counts as damage at once
//!
//! - if it, and what follows it, does not lie inside one value of the broken batch, as far as that
//!   can be read; or
//! - if from there on one batch follows the other up to the very end of what was written. One
//!   fault alone always leaves it so, even one that makes a length swallow what follows.
//!
//! What remains is said by [`JournalEnd::Torn`] as `shadow`: either a torn write of a value that
//! holds journal bytes, or a fault in the middle and a torn write at the end. Doubt that is left
//! elsewhere, as when the search takes too long, is called damage.

mod batch;
mod search;
#[cfg(test)]
mod tests;
mod window;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use batch::{Broken, Order, read_batch};
use window::Window;

/// What one journal holds and how it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalReport {
    /// Where it lies.
    pub file: PathBuf,
    /// Its number, which is its name. The engine counts up by one and deletes the oldest first.
    pub id: u64,
    /// How many numbers are missing between the journal before it and this one. More than none
    /// means that a journal has vanished; for the oldest one nobody knows.
    pub missing_before: u64,
    /// How many whole batches there are before the end described by `end`.
    pub batches: u64,
    /// How many entries they have together.
    pub items: u64,
    /// The sequence number of the last of them.
    pub last_seqno: Option<u64>,
    /// What comes behind the last of them.
    pub end: JournalEnd,
}

/// What comes behind the last whole batch of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalEnd {
    /// Zeros or nothing.
    Clean {
        /// Where the last batch ends.
        at: u64,
    },
    /// A last batch that is not whole, and nothing whole behind it.
    ///
    /// After an unclean stop this is what a torn write looks like. After a clean one it is damage;
    /// only the store knows how it was stopped. The engine refuses to open some of these (a wrong
    /// checksum, a wrong count), so a store that accepts it calls [`discard_torn_tail`] first.
    Torn {
        /// Where that batch begins.
        at: u64,
        /// How many bytes there are from there to the last one that is not zero.
        bytes: u64,
        /// What is wrong with it.
        fault: Fault,
        /// Whether its trailer is there, so that everything was written and something is wrong.
        complete_but_wrong: bool,
        /// Where a whole batch lies inside a value of the broken one. See the module for what that
        /// may mean; whoever prefers a false alarm takes it for damage.
        shadow: Option<u64>,
    },
    /// A batch that had been finished and is no longer whole.
    Damaged {
        /// Where that batch begins.
        at: u64,
        /// What is wrong with it.
        fault: Fault,
        /// Where a later whole batch begins; `at` itself when only the sequence number is wrong.
        /// Nothing when it follows in a later journal, or when the search took too long.
        resumes_at: Option<u64>,
    },
}

/// What is wrong with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The file ends before the batch does.
    CutShort,
    /// An entry that cannot be: an unknown kind, or lengths that contradict each other.
    Unreadable,
    /// More or fewer entries than announced.
    Count,
    /// The end lacks the four bytes that close it.
    Trailer,
    /// The entries are not those that the checksum was made of.
    Checksum,
    /// The batch is whole, and its sequence number does not follow the one before.
    Sequence,
}

/// Reads every journal in the directory of a store, oldest first. Changes nothing.
///
/// No journal at all is an empty answer; whether there should be one, the caller must know. The
/// engine would quietly begin a new one.
///
/// # Errors
///
/// When the directory or a file cannot be read, or when a journal has a name without a number. None
/// of this says anything about what the journals hold.
pub fn inspect_journals(store: &Path) -> io::Result<Vec<JournalReport>> {
    let mut reports: Vec<JournalReport> = Vec::new();
    for (id, file) in journals(store)? {
        let before = reports.last();
        let missing_before = before.map_or(0, |before| (id - before.id).saturating_sub(1));
        let order = Order::after(reports.iter().rev().find_map(|report| report.last_seqno));
        let mut window = Window::over(File::open(&file)?)?;
        reports.push(read_journal(&mut window, order)?.into_report(file, id, missing_before));
    }
    condemn_torn_seals(&mut reports);
    Ok(reports)
}

/// Cuts off the batch that a [`JournalEnd::Torn`] describes and makes that durable.
///
/// Does nothing to any other end. Returns how many bytes are gone.
///
/// # Errors
///
/// When the file cannot be written or synced; the tail may be there or not.
pub fn discard_torn_tail(report: &JournalReport) -> io::Result<u64> {
    match report.end {
        JournalEnd::Torn { at, bytes, .. } => {
            let file = OpenOptions::new().write(true).open(&report.file)?;
            file.set_len(at)?;
            file.sync_all()?;
            Ok(bytes)
        }
        JournalEnd::Clean { .. } | JournalEnd::Damaged { .. } => Ok(0),
    }
}

/// What was read of one journal, before it is known which one it was.
struct Read {
    batches: u64,
    items: u64,
    last_seqno: Option<u64>,
    end: JournalEnd,
}

impl Read {
    fn into_report(self, file: PathBuf, id: u64, missing_before: u64) -> JournalReport {
        let Self { batches, items, last_seqno, end } = self;
        JournalReport { file, id, missing_before, batches, items, last_seqno, end }
    }
}

fn journals(store: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(store)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("jnl")) {
            continue;
        }
        let id = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
        let id = id.ok_or_else(|| {
            let what = format!("{} is no name of a journal", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        found.push((id, path));
    }
    found.sort_unstable();
    Ok(found)
}

fn read_journal(window: &mut Window, mut order: Order) -> io::Result<Read> {
    let (mut at, mut batches, mut items, mut last_seqno) = (0, 0, 0, None);
    loop {
        match read_batch(window, at, order)? {
            Ok(batch) => {
                at = batch.end;
                batches += 1;
                items += u64::from(batch.items);
                last_seqno = Some(batch.seqno);
                order = Order::after(last_seqno);
            }
            Err(broken) => {
                let end = end_of(window, at, order, &broken)?;
                return Ok(Read { batches, items, last_seqno, end });
            }
        }
    }
}

fn end_of(window: &mut Window, at: u64, order: Order, broken: &Broken) -> io::Result<JournalEnd> {
    if broken.fault == Fault::Sequence {
        // No torn write leaves a batch whole and changes only its number.
        return Ok(JournalEnd::Damaged { at, fault: broken.fault, resumes_at: Some(at) });
    }
    let written = window.last_byte_from(at)?;
    if written <= at {
        return Ok(JournalEnd::Clean { at });
    }
    search::behind(window, at, order, broken, written)
}

/// Calls an unfinished journal damaged when something was written to a later one.
///
/// The engine syncs a journal before it creates the next. Only when a write had failed, and the
/// engine therefore takes no further one, can a sealed journal end with half a batch.
fn condemn_torn_seals(reports: &mut [JournalReport]) {
    let mut is_written_behind = false;
    for report in reports.iter_mut().rev() {
        if let JournalEnd::Torn { at, fault, .. } = report.end
            && is_written_behind
        {
            report.end = JournalEnd::Damaged { at, fault, resumes_at: None };
        }
        is_written_behind |= report.end != JournalEnd::Clean { at: 0 };
    }
}
