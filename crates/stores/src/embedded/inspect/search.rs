//! Looks behind a batch that is not whole for one that is.
//!
//! Decides between torn and damaged, and in doubt for damaged. Never looks longer than a fixed
//! multiple of the file, so that nobody can make a start endless by what he has stored.

use std::io;

use super::JournalEnd;
use super::batch::{
    Broken, CLEAR_BYTES, Entry, Order, START_BYTES, TAG_CLEAR, TAG_ITEM, TAG_START, read_batch,
    read_entry, read_start,
};
use super::window::Window;

/// How many times the length of the file may be looked at in one search.
///
/// An honest journal needs two or three. This is about a second for the largest one.
const BUDGET_FILES: u64 = 64;

/// What a search may look at in any case, however short the file.
const BUDGET_BYTES_MIN: u64 = 16 * 1024 * 1024;

/// The longest key for which an item of a broken batch is believed. Ours are far shorter.
const KEY_BYTES_MAX: u16 = 4096;

/// Whole batches in a row.
struct Chain {
    from: u64,
    to: u64,
}

/// Judges the batch at `at`, which is broken, by what lies between it and `written`.
pub(super) fn behind(
    window: &mut Window,
    at: u64,
    order: Order,
    broken: &Broken,
    written: u64,
) -> io::Result<JournalEnd> {
    let fault = broken.fault;
    let budget = window.len().saturating_mul(BUDGET_FILES).max(BUDGET_BYTES_MIN);
    let work_max = window.work().saturating_add(budget);
    let mut search = Search { window, written, work_max };
    let (mut from, mut shadow) = (at + 1, None);
    loop {
        match search.next_chain(from, order)? {
            Found::Chain(chain) => {
                let is_last = chain.to >= written;
                if is_last || !search.is_in_one_value(at, order, &chain)? {
                    let resumes_at = Some(chain.from);
                    return Ok(JournalEnd::Damaged { at, fault, resumes_at });
                }
                shadow = shadow.or(Some(chain.from));
                from = chain.to;
            }
            Found::Nothing => {
                let complete_but_wrong = broken.trailer.is_some();
                let bytes = written - at;
                return Ok(JournalEnd::Torn { at, bytes, fault, complete_but_wrong, shadow });
            }
            Found::Exhausted => {
                return Ok(JournalEnd::Damaged { at, fault, resumes_at: None });
            }
        }
    }
}

enum Found {
    Chain(Chain),
    Nothing,
    Exhausted,
}

struct Search<'w> {
    window: &'w mut Window,
    /// Where the last byte that is not zero ends.
    written: u64,
    /// How much work the window may have done when the next candidate is read.
    work_max: u64,
}

impl Search<'_> {
    /// The first whole batch at or behind `from`, with all that follow it directly.
    fn next_chain(&mut self, mut from: u64, order: Order) -> io::Result<Found> {
        while let Some(at) = self.next_start(from)? {
            from = at + 1;
            if !self.is_worth_reading(at, order)? {
                continue;
            }
            if self.window.work() > self.work_max {
                return Ok(Found::Exhausted);
            }
            if let Some(chain) = self.chain_at(at, order)? {
                return Ok(Found::Chain(chain));
            }
        }
        Ok(Found::Nothing)
    }

    fn next_start(&mut self, from: u64) -> io::Result<Option<u64>> {
        let mut at = from;
        while at < self.written {
            let bytes = self.window.bytes(at, 1)?;
            if bytes.is_empty() {
                break;
            }
            if let Some(place) = bytes.iter().position(|byte| *byte == TAG_START) {
                return Ok(Some(at + place as u64));
            }
            at += bytes.len() as u64;
        }
        Ok(None)
    }

    /// A cheap look that spares the dear one nearly everywhere.
    fn is_worth_reading(&mut self, at: u64, order: Order) -> io::Result<bool> {
        let Ok(start) = read_start(self.window, at)? else {
            return Ok(false);
        };
        let room = self.written.saturating_sub(at) / CLEAR_BYTES;
        let next = self.window.bytes(at + START_BYTES, 1)?.first();
        let is_followed = next.is_some_and(|tag| [TAG_ITEM, TAG_CLEAR].contains(tag));
        Ok(is_followed && u64::from(start.count) <= room && order.allows(start.seqno))
    }

    fn chain_at(&mut self, from: u64, mut order: Order) -> io::Result<Option<Chain>> {
        let mut to = from;
        loop {
            match read_batch(self.window, to, order)? {
                Ok(batch) => {
                    to = batch.end;
                    order = Order::after(Some(batch.seqno));
                }
                Err(_) => return Ok((to > from).then_some(Chain { from, to })),
            }
        }
    }

    /// Whether the chain lies inside one value of the broken batch, as far as that can be read.
    fn is_in_one_value(&mut self, at: u64, order: Order, chain: &Chain) -> io::Result<bool> {
        match read_start(self.window, at)? {
            Ok(start) if order.allows(start.seqno) => {}
            Ok(_) | Err(_) => return Ok(false),
        }
        let mut place = at + START_BYTES;
        while place < chain.from {
            match read_entry(self.window, place)? {
                Ok(Entry::Item { key_bytes, value_at, end }) => {
                    if key_bytes > KEY_BYTES_MAX {
                        return Ok(false);
                    }
                    if (value_at..end).contains(&chain.from) {
                        return Ok(chain.to <= end);
                    }
                    place = end;
                }
                Ok(Entry::Clear { end }) => place = end,
                Ok(Entry::End { .. }) | Err(_) => return Ok(false),
            }
        }
        Ok(false)
    }
}
