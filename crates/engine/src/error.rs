//! Why a walk could not keep its promise.
//!
//! A refusal (mismatch, in flight, unknown) is an [`crate::Answer`], not an error: the rule worked.
//! An error here means that we, or the store, failed; each has a stable code and a page in
//! `docs/errors`.

use onetake_core::Code;

use crate::store::StoreError;

/// Why a walk could not keep its promise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The store failed, and nothing was executed. Retry later with the same key.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store failed after it had shown a record of this key, so an effect may be under way;
    /// this attempt executed nothing. Retry later with the same key.
    #[error("{0}, after it had shown a record of this key; nothing was executed")]
    Interrupted(StoreError),
    /// The store could not tell whether it holds our claim; nothing was executed. Retry later with
    /// the same key.
    #[error("the store could not say whether the claim was written; nothing was executed")]
    ClaimUncertain,
    /// The operation was executed and its outcome is not durable yet; the engine goes on trying.
    /// Retry later with the same key, never with a new one.
    #[error("executed, but the outcome is not recorded yet")]
    ExecutedNotRecorded,
    /// Another claim replaced this one while it was executing. The effect may have happened twice:
    /// page someone.
    #[error("lost the claim while executing")]
    Fenced,
    /// Too many executions or rivals at once. Nothing was executed.
    #[error("busy: {0}")]
    Busy(&'static str),
    /// This process is stopping. Nothing was executed.
    #[error("stopping: no new executions are taken")]
    Stopping,
    /// The slot holds a record of another address. Nothing was executed.
    #[error("the slot holds the record of another address")]
    Collision,
    /// The task that executed is gone with its runtime. The record says what is known.
    #[error("the execution was lost with its runtime")]
    Lost,
    /// A transaction has effects, but its outcome would not be kept, so a retry would repeat them.
    #[error("a transaction with effects must have an outcome that is kept")]
    EffectsNotKept,
}

impl RunError {
    /// The same, where a record of the key was seen before.
    pub(crate) fn after_a_record(self) -> Self {
        if let Self::Store(error) = self { Self::Interrupted(error) } else { self }
    }

    /// The stable code of this failure.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Store(error) | Self::Interrupted(error) => error.code(),
            Self::ClaimUncertain => Code::StoreUnavailable,
            Self::ExecutedNotRecorded | Self::Lost => Code::ExecutedNotRecorded,
            Self::Fenced => Code::Fenced,
            Self::Busy(_) => Code::Busy,
            Self::Stopping => Code::Stopping,
            Self::Collision => Code::StoreCorrupt,
            Self::EffectsNotKept => Code::PolicyInvalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Bound;

    #[test]
    fn every_failure_has_a_code_that_says_who_must_act() {
        let table = [
            (RunError::from(StoreError::Full(Bound::Tenant)), "store_full"),
            (RunError::from(StoreError::Unavailable("down".into())), "store_unavailable"),
            (RunError::from(StoreError::Corrupt("crc".into())), "store_corrupt"),
            (RunError::Interrupted(StoreError::Full(Bound::Total)), "store_full"),
            (RunError::ClaimUncertain, "store_unavailable"),
            (RunError::ExecutedNotRecorded, "executed_not_recorded"),
            (RunError::Lost, "executed_not_recorded"),
            (RunError::Fenced, "fenced"),
            (RunError::Busy("x"), "busy"),
            (RunError::Stopping, "stopping"),
            (RunError::Collision, "store_corrupt"),
            (RunError::EffectsNotKept, "policy_invalid"),
        ];
        for (error, code) in table {
            assert_eq!(error.code().as_str(), code);
            assert!(!error.to_string().ends_with('.'), "{error}");
        }
    }
}
