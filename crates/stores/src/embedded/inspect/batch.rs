//! Tells whether a whole batch begins at a place in a journal.
//!
//! Looks at the structure first and at the content only when that fits, so that a length which lies
//! costs nothing. Never looks behind the batch, never decompresses a value and never allocates.

use std::io;

use xxhash_rust::xxh3::Xxh3;

use super::Fault;
use super::window::Window;

pub(super) const TAG_START: u8 = 1;
pub(super) const TAG_ITEM: u8 = 2;
const TAG_END: u8 = 3;
pub(super) const TAG_CLEAR: u8 = 4;

/// Tag, number of entries, sequence number.
const START: usize = 13;
pub(super) const START_BYTES: u64 = START as u64;
/// Tag, kind, compression, keyspace and three lengths.
const ITEM: usize = 21;
pub(super) const CLEAR_BYTES: u64 = 9;
/// Tag, checksum, trailer.
const END: usize = 13;
const TRAILER: [u8; 4] = *b"FJL\x03";

/// Sequence numbers have 63 bits; the last one belongs to transactions in flight.
const SEQNO_MAX: u64 = u64::MAX >> 1;

/// How far the sequence number may leap from one batch to the next.
///
/// Flushes and compactions take one each, so a real gap is far smaller; a flipped bit in the upper
/// half is not.
const SEQNO_LEAP_MAX: u64 = 1 << 32;

/// A batch that is whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub(super) seqno: u64,
    pub(super) items: u32,
    /// Where the next one would begin.
    pub(super) end: u64,
}

/// A batch that is not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Broken {
    pub(super) fault: Fault,
    /// Where its trailer ends, if one was reached.
    pub(super) trailer: Option<u64>,
}

/// Which sequence numbers may come next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    least: u64,
    most: u64,
}

impl Order {
    /// After the last one that is known; anything goes where none is.
    pub(super) fn after(last: Option<u64>) -> Self {
        last.map_or(Self { least: 0, most: SEQNO_MAX }, |last| Self {
            least: last.saturating_add(1),
            most: last.saturating_add(SEQNO_LEAP_MAX).min(SEQNO_MAX),
        })
    }

    pub(super) fn allows(self, seqno: u64) -> bool {
        (self.least..=self.most).contains(&seqno)
    }
}

/// The first entry of every batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    pub(super) count: u32,
    pub(super) seqno: u64,
}

/// Any other entry.
#[derive(Debug, Clone, Copy)]
pub(super) enum Entry {
    /// A key and its value. `end` may lie behind the end of the file.
    Item { key_bytes: u16, value_at: u64, end: u64 },
    /// A keyspace that was emptied.
    Clear { end: u64 },
    /// The last one.
    End { checksum: u64, end: u64 },
}

/// Reads the batch at `at`.
pub(super) fn read_batch(
    window: &mut Window,
    at: u64,
    order: Order,
) -> io::Result<Result<Batch, Broken>> {
    let start = match read_start(window, at)? {
        Ok(start) => start,
        Err(fault) => return Ok(Err(Broken { fault, trailer: None })),
    };
    let (checksum, end) = match walk(window, at + START_BYTES, start.count)? {
        Ok(reached) => reached,
        Err(broken) => return Ok(Err(broken)),
    };
    let broken = |fault| Ok(Err(Broken { fault, trailer: Some(end) }));
    if checksum_of(window, at + START_BYTES, end - END as u64)? != checksum {
        return broken(Fault::Checksum);
    }
    if !order.allows(start.seqno) {
        return broken(Fault::Sequence);
    }
    Ok(Ok(Batch { seqno: start.seqno, items: start.count, end }))
}

pub(super) fn read_start(window: &mut Window, at: u64) -> io::Result<Result<Start, Fault>> {
    let Some(bytes) = window.array::<START>(at)? else {
        return Ok(Err(Fault::CutShort));
    };
    let start = Start { count: u32_at(&bytes, 1), seqno: u64_at(&bytes, 5) };
    // The engine writes no empty batch.
    let is_one = bytes[0] == TAG_START && start.count > 0;
    Ok(if is_one { Ok(start) } else { Err(Fault::Unreadable) })
}

/// Goes from entry to entry. Answers with the checksum and where the trailer ends.
fn walk(window: &mut Window, mut at: u64, count: u32) -> io::Result<Result<(u64, u64), Broken>> {
    let mut left = count;
    loop {
        let broken = |fault, trailer| Ok(Err(Broken { fault, trailer }));
        match read_entry(window, at)? {
            Ok(Entry::End { checksum, end }) if left == 0 => return Ok(Ok((checksum, end))),
            Ok(Entry::End { end, .. }) => return broken(Fault::Count, Some(end)),
            Ok(Entry::Item { .. } | Entry::Clear { .. }) if left == 0 => {
                return broken(Fault::Count, None);
            }
            Ok(Entry::Item { end, .. } | Entry::Clear { end }) => at = end,
            Err(fault) => return broken(fault, None),
        }
        left -= 1;
    }
}

/// Reads the entry at `at`, which is not a start.
pub(super) fn read_entry(window: &mut Window, at: u64) -> io::Result<Result<Entry, Fault>> {
    let Some(&tag) = window.bytes(at, 1)?.first() else {
        return Ok(Err(Fault::CutShort));
    };
    match tag {
        TAG_ITEM => read_item(window, at),
        TAG_CLEAR => {
            let end = at + CLEAR_BYTES;
            Ok(if end > window.len() { Err(Fault::CutShort) } else { Ok(Entry::Clear { end }) })
        }
        TAG_END => read_end(window, at),
        _ => Ok(Err(Fault::Unreadable)),
    }
}

fn read_item(window: &mut Window, at: u64) -> io::Result<Result<Entry, Fault>> {
    let Some(bytes) = window.array::<ITEM>(at)? else {
        return Ok(Err(Fault::CutShort));
    };
    let key_bytes = u16_at(&bytes, 11);
    let (value_bytes, disk_bytes) = (u32_at(&bytes, 13), u32_at(&bytes, 17));
    if !is_plausible(bytes[1], bytes[2], value_bytes, disk_bytes) {
        return Ok(Err(Fault::Unreadable));
    }
    let value_at = at + ITEM as u64 + u64::from(key_bytes);
    Ok(Ok(Entry::Item { key_bytes, value_at, end: value_at + u64::from(disk_bytes) }))
}

fn read_end(window: &mut Window, at: u64) -> io::Result<Result<Entry, Fault>> {
    let Some(bytes) = window.array::<END>(at)? else {
        return Ok(Err(Fault::CutShort));
    };
    let end = Entry::End { checksum: u64_at(&bytes, 1), end: at + END as u64 };
    Ok(if bytes.ends_with(&TRAILER) { Ok(end) } else { Err(Fault::Trailer) })
}

/// Whether kind, compression and both lengths of a value can belong together.
fn is_plausible(kind: u8, compression: u8, value_bytes: u32, disk_bytes: u32) -> bool {
    let lengths_fit = match compression {
        0 => value_bytes == disk_bytes,
        // LZ4 makes at most 255 bytes of one. Of incompressible bytes its writer makes at most a
        // tenth more, and 20.
        1 => {
            let (value, disk) = (u64::from(value_bytes), u64::from(disk_bytes));
            disk > 0 && value <= disk * 255 && disk <= value + value / 10 + 20
        }
        _ => false,
    };
    match kind {
        0 => lengths_fit,
        // Both kinds of removal have no value.
        1 | 2 => lengths_fit && value_bytes == 0,
        _ => false,
    }
}

fn checksum_of(window: &mut Window, from: u64, to: u64) -> io::Result<u64> {
    let mut hash = Xxh3::new();
    window.each(from, to, |piece| hash.update(piece))?;
    Ok(hash.digest())
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(fixed(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(fixed(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(fixed(bytes, at))
}

fn fixed<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("invariant: every field lies inside its entry")
}
