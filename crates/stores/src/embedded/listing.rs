//! Lists records: those in the tables, and those that only memory and the log have yet.
//!
//! Where both have a place, memory counts, for it is newer. What a record means is decided
//! elsewhere.

use std::cmp::Ordering;
use std::sync::Arc;

use fjall::{Readable, Slice};
use onetake_core::{Record, Slot, Tenant, tenant_prefix};
use onetake_engine::{Page, StoreError};

use super::disk::{Disk, inner, paged};
use super::front::Fresh;
use super::shared::Shared;

/// Fresh records that are looked at beyond a page, so that removed ones do not cut it short.
const FRESH_MORE: usize = 1_024;

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
        let end = fresh.last().map(|(fresh, _)| fresh.key.clone()).filter(|_| is_cut);
        let fresh = fresh.into_iter().map(|(fresh, record)| (fresh.key, record));
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
        // The first key behind `after` is `after` and one more byte of zero.
        let after = after.map(|after| [after.as_slice(), &[0]].concat());
        let from = after.unwrap_or_default().max(prefix.to_vec());
        // Tables of records appear whole, so that this picture need not be one of whole batches.
        let at = self.db.snapshot();
        let tables = at.range(&self.slots, from..).map(inner).map(|pair| {
            let (key, bytes) = pair?;
            Ok((key, Known::Table(bytes)))
        });
        let fresh = fresh.map(|(key, record)| (key, record.map(Known::Fresh)));
        let both = merged(fresh, tables).take_while(|pair| {
            pair.as_ref().map_or(true, |(key, _)| end.is_none_or(|end| key <= end))
        });
        paged(both, limit, prefix, |key, known| match known {
            Known::Fresh(record) => {
                let size = record.weight();
                Ok((record, size))
            }
            Known::Table(bytes) => {
                let record = self.open_record(&key, &bytes, None)?;
                Ok((record, bytes.len()))
            }
        })
    }
}

/// A record, by where it is known from.
enum Known {
    Fresh(Arc<Record>),
    Table(Slice),
}

/// Two rows in the order of their keys, as one. Where both have a key the fresh one counts, and
/// `None` there is something that was removed. A table that cannot be read is said before anything
/// that is behind it.
pub(super) fn merged<V, E>(
    fresh: impl Iterator<Item = (Slice, Option<V>)>,
    tables: impl Iterator<Item = Result<(Slice, V), E>>,
) -> impl Iterator<Item = Result<(Slice, V), E>> {
    let (mut fresh, mut tables) = (fresh.peekable(), tables.peekable());
    std::iter::from_fn(move || {
        loop {
            let order = match (fresh.peek(), tables.peek()) {
                (None, _) | (Some(_), Some(Err(_))) => Ordering::Greater,
                (Some(_), None) => Ordering::Less,
                (Some((fresh, _)), Some(Ok((table, _)))) => fresh.cmp(table),
            };
            if order == Ordering::Greater {
                return tables.next();
            }
            if order == Ordering::Equal {
                tables.next();
            }
            if let Some((key, Some(value))) = fresh.next() {
                return Some(Ok((key, value)));
            }
        }
    })
}
