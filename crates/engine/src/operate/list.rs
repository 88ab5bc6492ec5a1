//! The list of records, page by page, by what they are now.
//!
//! A page looks at a bounded number of records whatever it finds, so a filter that fits nothing
//! costs no more than one that fits everything. The order is that of the store, not that of time,
//! and records that come or go between two pages are seen or not.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use onetake_core::{Operation, Slot, Tenant, Timestamp, tenant_prefix};

use super::{Kind, OperateError, Row};
use crate::engine::Engine;
use crate::journal::Journal;
use crate::store::StoreError;

/// The most rows of one page.
pub const ROWS_MAX: usize = 1_000;
/// Records that one page looks at, at most.
pub(super) const LOOK_MAX: usize = 10_000;
/// Records that are read at once.
pub(super) const READ_STEP: usize = 500;

/// Which records an operator asks for. Empty: all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// Only those of this tenant.
    pub tenant: Option<Tenant>,
    /// Only those of this operation.
    pub operation: Option<Operation>,
    /// Only those that are this now.
    pub kind: Option<Kind>,
    /// Only those that are what they are for at least this long.
    pub older_than: Option<Duration>,
    /// Only those that are what they are for less than this.
    pub younger_than: Option<Duration>,
}

impl Query {
    fn fits(&self, row: &Row) -> bool {
        self.operation.as_ref().is_none_or(|wanted| row.address.operation() == wanted)
            && self.kind.is_none_or(|wanted| row.kind == wanted)
            && self.older_than.is_none_or(|least| row.age >= least)
            && self.younger_than.is_none_or(|most| row.age < most)
    }
}

/// Where a page ended, as text that only this file reads.
#[derive(Clone, PartialEq, Eq)]
pub struct Bookmark(pub(super) Slot);

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = tenant_prefix(self.0.tenant());
        prefix.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(&self.0.hex())
    }
}

impl fmt::Debug for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bookmark({:?})", self.0)
    }
}

impl FromStr for Bookmark {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let slot = || {
            let (prefix, digest) = text.split_at_checked(text.len().checked_sub(64)?)?;
            let (pairs, []) = prefix.as_bytes().as_chunks::<2>() else { return None };
            let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
            let bytes = pairs.iter().map(byte).collect::<Option<Vec<u8>>>()?;
            let (length, name) = bytes.split_first()?;
            let name = str::from_utf8(name).ok()?;
            let tenant = Tenant::new(name).ok().filter(|_| usize::from(*length) == name.len())?;
            Slot::from_hex(tenant, digest)
        };
        slot().map(Self).ok_or("not a bookmark of an earlier page")
    }
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The rows that fit, in the order of the store.
    pub rows: Vec<Row>,
    /// Where to go on; `None` at the end. A page may be empty and still have more behind it.
    pub next: Option<Bookmark>,
    /// How many records this page looked at.
    pub looked_at: usize,
    /// The store's time of its last look.
    pub now: Timestamp,
}

impl<S: Journal> Engine<S> {
    /// The records that fit `query`, behind `after`, at most `limit` (and [`ROWS_MAX`]) of them.
    /// Looks at a bounded number of records, so go on for as long as there is a bookmark.
    ///
    /// # Errors
    /// When the store fails.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn list(
        &self,
        query: &Query,
        after: Option<&Bookmark>,
        limit: usize,
    ) -> Result<Listed, OperateError> {
        let limit = limit.clamp(1, ROWS_MAX);
        let start = Listed { rows: Vec::new(), next: None, looked_at: 0, now: Timestamp::ZERO };
        let (mut listed, mut last) = (start, after.map(|mark| mark.0.clone()));
        while listed.looked_at < LOOK_MAX {
            let scan = self.0.store.scan_slots(query.tenant.as_ref(), last.as_ref(), READ_STEP);
            let page = self.in_time(scan).await.ok_or_else(no_reply)??;
            listed.now = page.now;
            let (count, more) = (page.value.items.len(), page.value.more);
            for (record, number) in page.value.items.iter().zip(1..) {
                listed.looked_at += 1;
                last = Some(record.address.slot().clone());
                let row = Row::of(record, page.now);
                if query.fits(&row) {
                    listed.rows.push(row);
                }
                if listed.rows.len() == limit && (more || number < count) {
                    listed.next = last.map(Bookmark);
                    return Ok(listed);
                }
            }
            if !more {
                return Ok(listed);
            }
        }
        listed.next = last.map(Bookmark);
        Ok(listed)
    }
}

pub(super) fn no_reply() -> StoreError {
    StoreError::Unavailable("no reply in time".into())
}
