//! What operators do by hand: look at records, release, resolve and purge them, read who did.
//!
//! Whoever acts names what they saw, and a record that has moved on since is left alone and shown.
//! Every act is one commit with its entry in the audit. Nothing here executes anything or lets
//! anyone execute past the rule, and no key, body or header enters the audit or a log line.

mod act;
mod audit;
mod list;
mod purge;
mod row;

use std::time::Duration;

use onetake_core::{Code, Fence, PolicyError};

pub(crate) use self::act::tombstone;
pub use self::act::{Acted, Seen};
pub use self::audit::{ActName, Audit, Audited, audit_lane};
pub use self::list::{Bookmark, Listed, Query, ROWS_MAX};
pub use self::purge::Purged;
pub use self::row::{Form, Kind, Row, Shown, Summary, What};
use crate::error::RunError;
use crate::store::StoreError;

/// How long a key that was freed by hand keeps its tombstone: longer than any lease, and far longer
/// than any copy of a claim can be under way.
pub(crate) const TOMBSTONE: Duration = Duration::from_secs(60 * 60);

/// Why an operator's act was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperateError {
    /// There is no record. Nothing was changed.
    #[error("there is no record")]
    Missing,
    /// The record is not what the operator decided upon; this is what there is. Nothing was
    /// changed.
    #[error("the record has changed; it is {} now, look at it again", .0.kind)]
    Changed(Box<Row>),
    /// The owner of the claim is alive. Nothing was changed.
    #[error("the claim {fence} is live for {} ms more; its owner may be in the middle of an effect",
        left.as_millis())]
    Live {
        /// Which claim.
        fence: Fence,
        /// How long it lives without a renewal.
        left: Duration,
    },
    /// There is nothing to settle. Nothing was changed.
    #[error("there is nothing left to settle; the record is {}", .0.kind)]
    Settled(Box<Row>),
    /// The store could not say whether the act was written. Say the same again: it is done once.
    #[error("the store could not say whether the act was written; say the same again")]
    Uncertain,
    /// The retention is out of its bounds. Nothing was changed.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The store, or this process, failed. Nothing was changed.
    #[error(transparent)]
    Run(RunError),
}

impl OperateError {
    /// The stable code of this refusal or failure.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Missing => Code::RecordMissing,
            Self::Changed(_) => Code::RecordChanged,
            Self::Live { .. } => Code::ClaimLive,
            Self::Settled(_) => Code::AlreadySettled,
            Self::Uncertain => Code::ActUncertain,
            Self::Policy(error) => error.code(),
            Self::Run(error) => error.code(),
        }
    }

    /// What is there instead, where a record was found.
    #[must_use]
    pub fn there(&self) -> Option<&Row> {
        match self {
            Self::Changed(row) | Self::Settled(row) => Some(row),
            Self::Missing
            | Self::Live { .. }
            | Self::Uncertain
            | Self::Policy(_)
            | Self::Run(_) => None,
        }
    }
}

impl From<RunError> for OperateError {
    fn from(error: RunError) -> Self {
        match error {
            // A transaction calls it that; to an operator it is an act that may be done or not.
            RunError::ExecutedNotRecorded => Self::Uncertain,
            RunError::Store(_)
            | RunError::Interrupted(_)
            | RunError::ClaimUncertain
            | RunError::Fenced
            | RunError::Busy(_)
            | RunError::Stopping
            | RunError::Collision
            | RunError::Lost
            | RunError::EffectsNotKept => Self::Run(error),
        }
    }
}

impl From<StoreError> for OperateError {
    fn from(error: StoreError) -> Self {
        Self::Run(error.into())
    }
}
