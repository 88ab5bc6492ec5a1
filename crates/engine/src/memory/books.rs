//! Documents, lanes, counters and cursors of the reference store.
//!
//! Plain maps without a lock of their own; `memory.rs` holds the lock and decides what may be
//! written.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound::{Excluded, Included, Unbounded};

use bytes::Bytes;
use onetake_core::Timestamp;

use crate::journal::{Counter, Cursor, Doc, Document, Entry, Lane, Page, Position, Tx, Write};

#[derive(Debug, Default)]
pub(super) struct Books {
    docs: BTreeMap<Doc, Document>,
    lanes: HashMap<Lane, Log>,
    counters: HashMap<Counter, i64>,
    cursors: HashMap<Cursor, Position>,
}

#[derive(Debug, Default)]
struct Log {
    entries: VecDeque<Entry>,
    /// The last position that was ever given; trimming does not take it back.
    last: u64,
}

impl Books {
    pub(super) fn doc(&self, doc: &Doc) -> Option<&Document> {
        self.docs.get(doc)
    }

    pub(super) fn counter(&self, counter: &Counter) -> i64 {
        self.counters.get(counter).copied().unwrap_or(0)
    }

    pub(super) fn cursor(&self, cursor: &Cursor) -> Position {
        self.cursors.get(cursor).copied().unwrap_or_default()
    }

    pub(super) fn scan(
        &self,
        space: &'static str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Page<(Doc, Document)> {
        let doc = |key: &[u8]| Doc { space, key: Bytes::copy_from_slice(key) };
        let start = match after {
            Some(after) if after >= prefix => Excluded(doc(after)),
            Some(_) | None => Included(doc(prefix)),
        };
        let matching = self
            .docs
            .range((start, Unbounded))
            .take_while(|(doc, _)| doc.space == space && doc.key.starts_with(prefix))
            .map(|(doc, document)| (doc.clone(), document.clone()));
        page(matching, limit)
    }

    pub(super) fn read_lane(&self, lane: &Lane, after: Position, limit: usize) -> Page<Entry> {
        let entries = self.lanes.get(lane).into_iter().flat_map(|log| {
            let from = log.entries.partition_point(|entry| entry.position <= after);
            log.entries.range(from..).cloned()
        });
        page(entries, limit)
    }

    /// Writes everything of `tx` but its slots; gives the positions of its appends.
    pub(super) fn apply(&mut self, tx: &Tx, now: Timestamp) -> Vec<Position> {
        let mut positions = Vec::new();
        for write in tx.writes() {
            match write {
                Write::Slot(_) => {}
                Write::Put(doc, value) => {
                    let document = Document { version: tx.version(), value: value.clone() };
                    self.docs.insert(doc.clone(), document);
                }
                Write::Delete(doc) => {
                    self.docs.remove(doc);
                }
                Write::Append(lane, value) => {
                    let log = self.lanes.entry(lane.clone()).or_default();
                    log.last += 1;
                    let position = Position(log.last);
                    log.entries.push_back(Entry { position, at: now, value: value.clone() });
                    positions.push(position);
                }
                Write::Trim(lane, through) => {
                    if let Some(log) = self.lanes.get_mut(lane) {
                        let gone = log.entries.partition_point(|e| e.position <= *through);
                        log.entries.drain(..gone);
                    }
                }
                Write::Add(counter, delta) => {
                    let sum = self.counter(counter).saturating_add(*delta);
                    // A counter at zero is as good as none, so that used-up ones do not pile up.
                    if sum == 0 {
                        self.counters.remove(counter);
                    } else {
                        self.counters.insert(counter.clone(), sum);
                    }
                }
                Write::Advance(cursor, to) => {
                    let at = self.cursors.entry(cursor.clone()).or_default();
                    *at = (*at).max(*to);
                }
            }
        }
        positions
    }
}

fn page<T>(items: impl Iterator<Item = T>, limit: usize) -> Page<T> {
    let mut items: Vec<T> = items.take(limit.saturating_add(1)).collect();
    let more = items.len() > limit;
    items.truncate(limit);
    Page { items, more }
}
