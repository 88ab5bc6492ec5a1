//! The audit: who ended which record or run, when, and what it was before and after.
//!
//! An entry is committed with the act that it tells of, so there is no act without an entry and no
//! entry without an act. It names a record by tenant, operation and digest, never by its key, and
//! holds nothing of its content.

use bytes::Bytes;
use onetake_core::{Actor, Operation, Record, Tenant, Timestamp};
use serde::{Deserialize, Serialize};

use super::list::no_reply;
use super::{Kind, OperateError, Row};
use crate::engine::Engine;
use crate::journal::{Journal, Lane, Page, Position, Write};

/// The lane on which acts that end a record are kept.
#[must_use]
pub fn audit_lane() -> Lane {
    Lane(Bytes::from_static(b"audit"))
}

/// The most entries that are read at once.
const ENTRIES_MAX: usize = 1_000;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActName {
    /// Housekeeping ended an unknown that nobody settled.
    UnknownEnded,
    /// An operator freed a key.
    Released,
    /// An operator settled an unknown with an outcome.
    Resolved,
    /// An operator removed what a tenant has.
    Purged,
    /// An operator ended a run of a workflow.
    RunCancelled,
    /// Something that this release does not know.
    #[default]
    #[serde(other)]
    Other,
}

impl ActName {
    /// The word, as in an entry.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownEnded => "unknown_ended",
            Self::Released => "released",
            Self::Resolved => "resolved",
            Self::Purged => "purged",
            Self::RunCancelled => "run_cancelled",
            Self::Other => "other",
        }
    }
}

/// One entry. Fields that a later release adds are left out when read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Audit {
    /// What was done.
    pub act: ActName,
    /// Who did it.
    pub by: String,
    /// Whose records.
    pub tenant: String,
    /// Of which operation, where it was about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Which record, by the digest of its slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// Which claim it was about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
    /// Which execution that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Since when it was unknown, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_since_ms: Option<u64>,
    /// What it was before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Kind>,
    /// What it was afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Kind>,
    /// Whether its owner may have been alive.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// How many records became tombstones, for an act on many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tombstones: Option<usize>,
    /// How many live claims it left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<usize>,
    /// Which run of a workflow, for an act on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

impl Audit {
    /// The entry of an act on one record, found as `record` at `now`.
    pub(crate) fn of_record(act: ActName, by: &str, record: &Record, now: Timestamp) -> Self {
        let row = Row::of(record, now);
        let address = &record.address;
        Self {
            act,
            by: by.to_owned(),
            tenant: address.tenant().as_str().to_owned(),
            operation: Some(address.operation().as_str().to_owned()),
            slot: Some(address.slot().hex()),
            fence: Some(record.fence.to_string()),
            attempt: Some(record.attempt),
            unknown_since_ms: (row.kind == Kind::Unknown).then(|| row.since.as_millis()),
            before: Some(row.kind),
            ..Self::default()
        }
    }

    /// The entry of an act on many records of one tenant.
    pub(super) fn of_many(by: &Actor, tenant: &Tenant, operation: Option<&Operation>) -> Self {
        Self {
            act: ActName::Purged,
            by: by.as_str().to_owned(),
            tenant: tenant.as_str().to_owned(),
            operation: operation.map(|name| name.as_str().to_owned()),
            after: Some(Kind::Free),
            ..Self::default()
        }
    }

    /// The entry of an act that ended the run `run` of `tenant`.
    #[must_use]
    pub fn of_run(by: &Actor, tenant: &Tenant, run: &str) -> Self {
        Self {
            act: ActName::RunCancelled,
            by: by.as_str().to_owned(),
            tenant: tenant.as_str().to_owned(),
            run: Some(run.to_owned()),
            ..Self::default()
        }
    }

    /// The write that puts this entry at the end of the audit, for the commit of the act itself.
    #[must_use]
    pub fn append(&self) -> Write {
        let entry = serde_json::to_vec(self);
        let entry = entry.expect("invariant: names and numbers can be written as JSON");
        Write::Append(audit_lane(), entry.into())
    }
}

/// One entry of the audit, and where and when it was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audited {
    /// Where it stands.
    pub position: Position,
    /// When it was committed, by the store's clock.
    pub at: Timestamp,
    /// What it says. An entry that cannot be read is [`ActName::Other`], never left out.
    pub audit: Audit,
}

impl<S: Journal> Engine<S> {
    /// The audit behind `after`, at most `limit` entries, the oldest first.
    ///
    /// # Errors
    /// When the store fails.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn audit(
        &self,
        after: Position,
        limit: usize,
    ) -> Result<Page<Audited>, OperateError> {
        let (lane, limit) = (audit_lane(), limit.clamp(1, ENTRIES_MAX));
        let read = self.0.store.read_lane(&lane, after, limit);
        let page = self.in_time(read).await.ok_or_else(no_reply)??.value;
        let entries = page.items.into_iter().map(|entry| Audited {
            position: entry.position,
            at: entry.at,
            audit: serde_json::from_slice(&entry.value).unwrap_or_default(),
        });
        Ok(Page { items: entries.collect(), more: page.more })
    }
}
