//! Lists what lies in order: records, documents, entries of lanes. Each page is what the tables
//! have, and what only memory and the log have yet.
//!
//! Where both have a place, memory counts, for it is newer. What a record means is decided
//! elsewhere.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use fjall::{Guard, Readable, Slice, Snapshot};
use onetake_core::{Record, Slot, Tenant, tenant_prefix};
use onetake_engine::{Doc, Document, Entry, Lane, Page, Position, StoreError};

use super::disk::{Disk, doc_prefix, entry_key, failed, head_key};
use super::front::Fresh;
use super::log::Space;
use super::recent::{Layers, Row};
use super::shared::Shared;

/// Fresh values that are looked at beyond a page, so that removed ones do not cut it short.
const FRESH_MORE: usize = 1_024;
/// How large one read of many may become, so that no page holds the whole store.
const PAGE_BYTES_MAX: usize = 64 << 20;

impl Shared {
    /// A page of records: those in the tables, and those that are not there yet.
    pub(super) fn scan_slots(
        &self,
        tenant: Option<&Tenant>,
        after: Option<&Slot>,
        limit: usize,
    ) -> Result<Page<Arc<Record>>, StoreError> {
        let prefix = tenant.map(tenant_prefix).unwrap_or_default();
        let mut after = after.map(|slot| self.disk.slot_key(slot));
        loop {
            let (page, end) = self.scan_behind(&prefix, after, limit)?;
            match end {
                // Nothing but removed ones up to there: whoever asks must be led on.
                Some(end) if page.items.is_empty() && limit > 0 => after = Some(end.to_vec()),
                Some(_) | None => return Ok(page),
            }
        }
    }

    /// A page behind `after`, and where it had to end because too many are fresh.
    fn scan_behind(
        &self,
        prefix: &[u8],
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<(Page<Arc<Record>>, Option<Slice>), StoreError> {
        let is_wanted = |key: &[u8]| {
            key.starts_with(prefix) && after.as_ref().is_none_or(|after| key > after.as_slice())
        };
        // Memory comes first: what leaves it meanwhile is in the tables by then.
        let mut fresh = self.front.fresh(is_wanted);
        let by_key = |one: &(Fresh, _), other: &(Fresh, _)| one.0.key.cmp(&other.0.key);
        // So many are enough for a page; behind the last of them nothing is known to be complete.
        let enough = limit.saturating_add(FRESH_MORE);
        let is_cut = fresh.len() > enough;
        if is_cut {
            fresh.select_nth_unstable_by(enough, by_key);
            fresh.truncate(enough);
        }
        fresh.sort_unstable_by(by_key);
        let end = fresh.last().map(|(fresh, _)| Slice::from(&*fresh.key)).filter(|_| is_cut);
        let fresh = fresh.into_iter().map(|(fresh, record)| (Slice::from(&*fresh.key), record));
        let mut page = self.disk.scan_slots(prefix, after, limit, fresh, end.as_ref())?;
        page.more |= is_cut;
        Ok((page, end))
    }
}

impl Disk {
    /// A page of records behind `after`, of those in the tables and `fresh` ones, which are newer
    /// and come in the order of their keys; `None` among them is a record that was removed.
    /// Nothing behind `end` is looked at.
    fn scan_slots(
        &self,
        prefix: &[u8],
        after: Option<Vec<u8>>,
        limit: usize,
        fresh: impl Iterator<Item = (Slice, Option<Arc<Record>>)>,
        end: Option<&Slice>,
    ) -> Result<Page<Arc<Record>>, StoreError> {
        let from = after.map(|after| next(&after)).unwrap_or_default().max(prefix.to_vec());
        // Tables of records appear whole, so that this picture need not be one of whole batches.
        let at = self.tables.db.snapshot();
        let tables = at.range(&self.tables.slots, from..).map(inner).map(|pair| {
            let (key, bytes) = pair?;
            Ok((key, Known::Table(bytes)))
        });
        let fresh = fresh.map(|(key, record)| (key, record.map(Known::Fresh)));
        paged(until(merged(fresh, tables), end), limit, prefix, |key, known, records| match known {
            Known::Fresh(record) => {
                let size = record.weight();
                records.push(record);
                Ok(size)
            }
            Known::Table(bytes) => {
                records.push(self.open_record(&key, &bytes, None)?);
                Ok(bytes.len())
            }
        })
    }
}

/// Values of one space from one place on, at one moment.
struct Stretch {
    from: Vec<u8>,
    /// What the tables do not have, in order.
    fresh: Vec<Row>,
    /// Behind which place nothing is known to be complete, because too many are fresh.
    end: Option<Slice>,
    tables: Snapshot,
}

impl Stretch {
    /// As much as a page of `limit` takes of what begins with `prefix`, while all else is still.
    fn of(
        (disk, still): (&Disk, &Layers),
        space: Space,
        from: Vec<u8>,
        prefix: &[u8],
        limit: usize,
    ) -> Self {
        let enough = limit.saturating_add(FRESH_MORE);
        let fresh = still.range(space, &from, prefix, enough);
        let end =
            fresh.last().filter(|_| fresh.len() == enough).map(|(key, _)| Slice::from(&**key));
        // Whatever of the fresh ones it shows already, they are laid over it.
        Self { from, fresh, end, tables: disk.tables.db.snapshot() }
    }

    /// A page of what begins with `prefix`, each value opened by `open`.
    fn page<T>(
        self,
        (disk, space): (&Disk, Space),
        limit: usize,
        prefix: &[u8],
        open: impl FnMut(Slice, Slice, &mut Vec<T>) -> Result<usize, StoreError>,
    ) -> Result<Page<T>, StoreError> {
        let Self { from, fresh, end, tables } = self;
        let found = tables.range(disk.tables.of(space), from..).map(inner);
        let both = merged(sliced(&fresh), found);
        let mut page = paged(until(both, end.as_ref()), limit, prefix, open)?;
        page.more |= end.is_some();
        Ok(page)
    }
}

impl Disk {
    /// A page of documents.
    pub(super) fn scan(
        &self,
        space: &'static str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Page<(Doc, Document)>, StoreError> {
        let (whole, skip) = (doc_prefix(space, prefix), 1 + space.len());
        let after = after.map(|after| doc_prefix(space, after)).filter(|after| *after >= whole);
        let still = self.recent.still();
        let (floor, ticket) = self.floors.begin(&whole);
        // Only who begins at the beginning learns where that is.
        let ticket = ticket.filter(|_| after.is_none());
        let from = after.map_or_else(Vec::new, |after| next(&after)).max(floor);
        let mut stretch = Stretch::of((self, &still), Space::Docs, from, &whole, limit);
        drop(still);
        let mut first = None;
        let page = loop {
            let end = stretch.end.clone();
            let page = stretch.page((self, Space::Docs), limit, &whole, |key, value, docs| {
                first.get_or_insert_with(|| key.clone());
                let doc = Doc { space, key: Bytes::copy_from_slice(&key[skip..]) };
                docs.push((doc, self.open_doc(&key, &value)?));
                Ok(value.len())
            })?;
            match end {
                // Nothing but removed ones up to there: whoever asks must be led on.
                Some(end) if page.items.is_empty() && limit > 0 => {
                    let still = self.recent.still();
                    let (at, from) = ((self, &*still), next(&end));
                    stretch = Stretch::of(at, Space::Docs, from, &whole, limit);
                }
                Some(_) | None => break page,
            }
        };
        if let Some(ticket) = ticket {
            let first = first.map(|key| key.to_vec()).or_else(|| behind(&whole));
            if let Some(first) = first.filter(|_| limit > 0) {
                self.floors.found(&whole, ticket, &first);
            }
        }
        Ok(page)
    }

    /// A page of a lane.
    pub(super) fn read_lane(
        &self,
        lane: &Lane,
        after: Position,
        limit: usize,
    ) -> Result<Page<Entry>, StoreError> {
        let still = self.recent.still();
        let head = self.head(&still, &head_key(lane))?;
        let first = head.first.max(after.0.saturating_add(1));
        let prefix = &entry_key(lane, 0)[..2 + lane.0.len()];
        let (at, from) = ((self, &*still), entry_key(lane, first));
        let stretch = Stretch::of(at, Space::Lanes, from, prefix, limit);
        drop(still);
        stretch.page((self, Space::Lanes), limit, prefix, |key, value, entries| {
            let opened = self.open_entries(&key, &value)?;
            entries.extend(opened.filter(|entry| entry.position.0 >= first));
            Ok(value.len())
        })
    }
}

/// A record, by where it is known from.
enum Known {
    Fresh(Arc<Record>),
    Table(Slice),
}

/// Two rows in the order of their keys, as one. Where both have a key the newer one counts. What
/// cannot be read is said before anything that is behind it.
pub(super) fn laid_over<K: Ord, V, E>(
    newer: impl Iterator<Item = Result<(K, V), E>>,
    older: impl Iterator<Item = Result<(K, V), E>>,
) -> impl Iterator<Item = Result<(K, V), E>> {
    let (mut newer, mut older) = (newer.peekable(), older.peekable());
    std::iter::from_fn(move || {
        let next = match (newer.peek(), older.peek()) {
            (Some(Err(_)), _) | (Some(Ok(_)), None) => Ordering::Less,
            (None, _) | (Some(Ok(_)), Some(Err(_))) => Ordering::Greater,
            (Some(Ok((new, _))), Some(Ok((old, _)))) => new.cmp(old),
        };
        let old = if next.is_ge() { older.next() } else { None };
        if next.is_le() { newer.next() } else { old }
    })
}

/// What is fresh, laid over what the tables have; `None` among it is something that was removed.
pub(super) fn merged<V, E>(
    fresh: impl Iterator<Item = (Slice, Option<V>)>,
    tables: impl Iterator<Item = Result<(Slice, V), E>>,
) -> impl Iterator<Item = Result<(Slice, V), E>> {
    let tables = tables.map(|pair| pair.map(|(key, value)| (key, Some(value))));
    laid_over(fresh.map(Ok), tables)
        .filter_map(|pair| pair.map(|(key, value)| Some((key, value?))).transpose())
}

/// Rows of memory, as tables have theirs.
pub(super) fn sliced(rows: &[Row]) -> impl Iterator<Item = (Slice, Option<Slice>)> {
    rows.iter().map(|(key, value)| (Slice::from(&**key), value.as_deref().map(Slice::from)))
}

/// What is not behind `end`.
fn until<V, E>(
    pairs: impl Iterator<Item = Result<(Slice, V), E>>,
    end: Option<&Slice>,
) -> impl Iterator<Item = Result<(Slice, V), E>> {
    pairs.take_while(move |pair| {
        pair.as_ref().map_or(true, |(key, _)| end.is_none_or(|end| key <= end))
    })
}

/// The first key behind `key`.
fn next(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The first key behind everything that begins with `prefix`; `None` when there is none.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

fn inner(guard: Guard) -> Result<(Slice, Slice), StoreError> {
    guard.into_inner().map_err(|error| failed(&error))
}

/// Opens what was found until the prefix, the limit or the size of a page ends it. `open` adds what
/// it opens, which may be several, and says how large it is.
fn paged<T, V>(
    found: impl Iterator<Item = Result<(Slice, V), StoreError>>,
    limit: usize,
    prefix: &[u8],
    mut open: impl FnMut(Slice, V, &mut Vec<T>) -> Result<usize, StoreError>,
) -> Result<Page<T>, StoreError> {
    let (mut items, mut bytes) = (Vec::new(), 0);
    for pair in found {
        let (key, value) = pair?;
        if !key.starts_with(prefix) {
            break;
        }
        if items.len() >= limit || (bytes > PAGE_BYTES_MAX && !items.is_empty()) {
            items.truncate(limit);
            return Ok(Page { items, more: true });
        }
        bytes += open(key, value, &mut items)?;
    }
    let more = items.len() > limit;
    items.truncate(limit);
    Ok(Page { items, more })
}
