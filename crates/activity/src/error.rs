//! Why a call of a function has no value: its own failure, a refusal, or a failure of ours.

use std::fmt;
use std::time::Duration;

use onetake_core::{Cause, Code, Fence, PolicyError, Timestamp};
use onetake_engine::RunError;
use serde::{Deserialize, Serialize};

use crate::invocation::InvocationError;

/// Why a call has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecuteError<E> {
    /// The function failed. Every attempt that this failure answers gets it.
    #[error("the function failed")]
    Failed {
        /// What it failed with.
        failure: E,
        /// Whether this is what an earlier or another attempt came to.
        repeat: bool,
    },
    /// Another worker has claimed the key and is executing.
    #[error("claimed by another worker; come back in {} ms", retry_after.as_millis())]
    ClaimedByAnother {
        /// When to come back, by the real lease.
        retry_after: Duration,
    },
    /// The key was used for something else. Use a new key for a new operation.
    #[error("the key was used before for something else")]
    Mismatch,
    /// The attempt that this one waited for came to nothing that could be shared. Try again.
    #[error("the attempt that was waited for came to nothing; try again")]
    Freed,
    /// This attempt goes on executing, but its caller has been kept long enough.
    #[error("still executing; come back in {} ms", retry_after.as_millis())]
    StillExecuting {
        /// When to come back.
        retry_after: Duration,
    },
    /// An earlier attempt may or may not have had its effect, and nothing is tried again unasked.
    #[error("an earlier attempt may or may not have had its effect")]
    Unknown {
        /// Of which claim.
        fence: Fence,
        /// Since when.
        since: Timestamp,
        /// Why.
        cause: Cause,
    },
    /// The function was executed, but what it returned could not be kept. It is not executed again.
    #[error("executed, but its result could not be kept")]
    ResultNotKept,
    /// What is kept is not of the type that this caller expects.
    #[error("the kept result is of another type: {0}")]
    ResultOfOtherType(String),
    /// A call inside a workflow has no identity; nothing was done.
    #[error(transparent)]
    Invocation(#[from] InvocationError),
    /// A setting of this call is out of bounds; nothing was done.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The promise could not be kept.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl<E> ExecuteError<E> {
    /// The stable code of this error; `None` for the function's own failure.
    pub const fn code(&self) -> Option<Code> {
        Some(match self {
            Self::Failed { .. } => return None,
            Self::ClaimedByAnother { .. } => Code::InFlight,
            Self::Mismatch => Code::KeyMismatch,
            Self::Freed => Code::AttemptFreed,
            Self::StillExecuting { .. } => Code::StillExecuting,
            Self::Unknown { .. } => Code::OutcomeUnknown,
            Self::ResultNotKept => Code::ResultNotKept,
            Self::ResultOfOtherType(_) => Code::ResultOfOtherType,
            Self::Invocation(_) => Code::RequestInvalid,
            Self::Policy(error) => error.code(),
            Self::Run(error) => error.code(),
        })
    }

    /// When to try again with the same key, where waiting helps.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::ClaimedByAnother { retry_after } | Self::StillExecuting { retry_after } => {
                Some(*retry_after)
            }
            Self::Failed { .. }
            | Self::Mismatch
            | Self::Freed
            | Self::Unknown { .. }
            | Self::ResultNotKept
            | Self::ResultOfOtherType(_)
            | Self::Invocation(_)
            | Self::Policy(_)
            | Self::Run(_) => None,
        }
    }
}

/// A failure for functions without an error type that can be written as JSON. Any error becomes one
/// with `?`, keeping its message.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What went wrong.
    pub message: String,
}

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failure({:?})", self.message)
    }
}
