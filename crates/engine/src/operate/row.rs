//! How a record looks to an operator: what it means now, and how much it holds.
//!
//! Derived when read, never stored. A row says how large an outcome is and never what is in it;
//! only [`Shown`] can carry the outcome, and only when it was asked for.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use onetake_core::{
    Address, Cause, Fence, Fingerprint, Outcome, Phase, Record, Slot, Standing, Status, Timestamp,
    Version,
};
use serde::{Deserialize, Serialize};

use super::OperateError;
use crate::engine::Engine;
use crate::store::{Slots, Stamped};

/// What a record is at a given time, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Its owner is alive.
    Live,
    /// Nobody can say whether the effect happened: reported so, or a claim that has lapsed.
    Unknown,
    /// It answers further attempts.
    Done,
    /// It is on record, but may be executed again.
    Retryable,
    /// Released, or finished so long ago that it is forgotten.
    Free,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Live, Self::Unknown, Self::Done, Self::Retryable, Self::Free];

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Unknown => "unknown",
            Self::Done => "done",
            Self::Retryable => "retryable",
            Self::Free => "free",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or("use live, unknown, done, retryable or free")
    }
}

/// Which form an outcome has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// A response.
    Response,
    /// The value of a function.
    Value,
    /// The failure of a function.
    Failure,
    /// It was executed, and what it returned was not kept.
    NotKept,
}

/// An outcome without its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Its form.
    pub form: Form,
    /// The status, where it has one.
    pub status: Option<Status>,
    /// Bytes that keeping it costs.
    pub bytes: usize,
}

impl Summary {
    fn of(outcome: &Outcome) -> Self {
        let (form, status) = match outcome {
            Outcome::Response { status, .. } => (Form::Response, Some(*status)),
            Outcome::Value(_) => (Form::Value, None),
            Outcome::Failure(_) => (Form::Failure, None),
            Outcome::NotKept { status } => (Form::NotKept, *status),
        };
        Self { form, status, bytes: outcome.weight() }
    }
}

/// One record as an operator sees it, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Whose operation it is.
    pub address: Arc<Address>,
    /// Which claim it is, or was, about.
    pub fence: Fence,
    /// Which write it is. Acts name it, so that they change what was seen and nothing else.
    pub version: Version,
    /// Which execution it is, counted from 1.
    pub attempt: u32,
    /// Whether an earlier attempt may already have had its effect.
    pub recovery: bool,
    /// What it is now.
    pub kind: Kind,
    /// Why it is unknown, if it is.
    pub cause: Option<Cause>,
    /// Since when it is that.
    pub since: Timestamp,
    /// How long that is.
    pub age: Duration,
    /// Until when, without a renewal: the end of the lease, the retention or the tombstone.
    pub until: Option<Timestamp>,
    /// What came of it, without its content. Gone once it is forgotten.
    pub outcome: Option<Summary>,
}

impl Row {
    /// What `record` is at `now`.
    #[must_use]
    pub fn of(record: &Record, now: Timestamp) -> Self {
        let (kind, since, cause, outcome) = match record.standing(now) {
            Standing::Live { .. } => (Kind::Live, record.since, None, None),
            Standing::Unknown { since, cause } => (Kind::Unknown, since, Some(cause), None),
            Standing::Final { outcome, .. } => (Kind::Done, record.since, None, Some(outcome)),
            Standing::Retryable(outcome) => (Kind::Retryable, record.since, None, Some(outcome)),
            Standing::Free => (Kind::Free, record.since, None, None),
        };
        let until = match &record.phase {
            Phase::Claimed { lease_until: end }
            | Phase::Done { expires_at: end, .. }
            | Phase::Released { until: end } => Some(*end),
            Phase::Unknown { .. } => None,
        };
        Self {
            address: Arc::clone(&record.address),
            fence: record.fence,
            version: record.version,
            attempt: record.attempt,
            recovery: record.recovery,
            kind,
            cause,
            since,
            age: now.since(since),
            until,
            outcome: outcome.map(|outcome| Summary::of(outcome)),
        }
    }
}

/// Whether the outcome itself is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// Only what there is to say about it.
    Summary,
    /// The outcome as well: it may hold what nobody should read without a reason.
    Content,
}

/// One record with everything an operator needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// What a list says of it.
    pub row: Row,
    /// The store's time when it was read.
    pub now: Timestamp,
    /// What was asked.
    pub fingerprint: Fingerprint,
    /// What came of it, where that was asked for and is still remembered.
    pub outcome: Option<Arc<Outcome>>,
}

impl<S: Slots> Engine<S> {
    /// The record in `slot`; `None` when there is none. Also one that is forgotten and not yet
    /// swept is shown, but never its outcome.
    ///
    /// # Errors
    /// When the store fails.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn show(&self, slot: &Slot, what: What) -> Result<Option<Shown>, OperateError> {
        let Stamped { now, value } = self.read(slot).await?;
        Ok(value.map(|record| {
            let outcome = match (what, record.standing(now)) {
                (What::Content, Standing::Final { outcome, .. } | Standing::Retryable(outcome)) => {
                    Some(Arc::clone(outcome))
                }
                (What::Content | What::Summary, _) => None,
            };
            let fingerprint = record.fingerprint.clone();
            Shown { row: Row::of(&record, now), now, fingerprint, outcome }
        }))
    }
}
