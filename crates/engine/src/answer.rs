//! What the caller hears.
//!
//! An [`Answer`] is a value without a wire: a door turns it into a status, a result or a message.
//! It is no open-ended list: a new answer must break every door.

use std::sync::Arc;
use std::time::Duration;

use onetake_core::{Cause, Decision, Fence, Grounds, Key, Outcome, Timestamp};

/// What the caller of a walk hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// This attempt executed, and this came of it.
    Executed {
        /// What came of it.
        outcome: Arc<Outcome>,
        /// Until when it is kept; `None` when it is not and a retry executes again.
        expires_at: Option<Timestamp>,
    },
    /// An earlier attempt executed; this is what came of it.
    Replayed {
        /// What came of it.
        outcome: Arc<Outcome>,
        /// Until when it is kept.
        expires_at: Timestamp,
    },
    /// Another attempt was executing; this one waited, and shares what came of it.
    Joined {
        /// What came of it.
        outcome: Arc<Outcome>,
        /// Until when it is kept; `None` when it is not and a retry executes again.
        expires_at: Option<Timestamp>,
    },
    /// The attempt that was executing ended without an outcome that could be shared, and the key is
    /// free. A retry executes.
    Freed,
    /// The key was used for something else.
    Mismatch,
    /// The same operation is being executed by someone else.
    InFlight {
        /// When to come back, by the real lease.
        retry_after: Duration,
    },
    /// This attempt is executing and goes on, but the caller has been kept long enough.
    StillExecuting {
        /// When to come back.
        retry_after: Duration,
    },
    /// Nobody can say whether the effect happened, and nothing is tried again unasked.
    Unknown {
        /// Of which claim.
        fence: Fence,
        /// Since when.
        since: Timestamp,
        /// Why.
        cause: Cause,
    },
}

impl Answer {
    /// What it is called in a span.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Executed { .. } => "executed",
            Self::Replayed { .. } => "replayed",
            Self::Joined { .. } => "joined",
            Self::Freed => "freed",
            Self::Mismatch => "mismatch",
            Self::InFlight { .. } => "in_flight",
            Self::StillExecuting { .. } => "still_executing",
            Self::Unknown { .. } => "unknown",
        }
    }
}

/// What an execution is told about itself. It need not look.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The caller's key; `None` for a call that passes through without one.
    pub key: Option<Key>,
    /// Names this claim; forward it where a resource can refuse older fences.
    pub fence: Fence,
    /// Which execution this is, counted from 1.
    pub number: u32,
    /// Whether an earlier attempt may already have had its effect.
    pub recovery: bool,
}

/// What a walk does next: every decision is one of three things to it.
#[derive(Debug)]
pub(crate) enum Step {
    /// Claim on these grounds.
    Execute(Grounds),
    /// Somebody is executing. Whether that is worth waiting for, and how long its lease runs.
    Wait { same: bool, lease_left: Duration },
    /// There is nothing to do but to say this.
    Say(Answer),
}

impl Step {
    /// What `decision`, made at the store's time `now`, asks of a walk.
    pub(crate) fn of(decision: Decision<'_>, now: Timestamp) -> Self {
        match decision {
            Decision::Execute(grounds) => Self::Execute(grounds),
            Decision::InFlight { until, same, .. } => {
                Self::Wait { same, lease_left: until.since(now) }
            }
            Decision::Replay { outcome, expires_at } => {
                Self::Say(Answer::Replayed { outcome: Arc::clone(outcome), expires_at })
            }
            Decision::Mismatch => Self::Say(Answer::Mismatch),
            Decision::Unknown { fence, since, cause } => {
                Self::Say(Answer::Unknown { fence, since, cause })
            }
        }
    }
}
