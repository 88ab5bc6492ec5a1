//! What the exit codes mean, and which one an error has.
//!
//! The meanings are a promise to scripts: a code may be added, never given another meaning.

use std::process::ExitCode;

use onetake::Code;
use onetake_console::wire::Problem;

use crate::config::ConfigErrors;
use crate::wiring::OpenError;

/// For the end of `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0  done
  1  failed
  2  not understood: a word, a value or a combination that is none
  3  nothing found: there is no such record
  4  refused: the record has changed, its owner is alive, or it is settled
  5  the store cannot be reached, is locked, or could not say whether it wrote
  6  damaged: what the store holds cannot be true
  7  the run failed
  8  the run was cancelled
  9  the run has not ended: it was left, or nobody drives it";

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It is done.
    Done = 0,
    /// It failed.
    Failed = 1,
    /// It was not understood.
    Usage = 2,
    /// There is no such record.
    NothingFound = 3,
    /// The act does not fit what is there.
    Refused = 4,
    /// The store cannot be reached, is locked, or could not say whether it wrote.
    Unavailable = 5,
    /// What the store holds cannot be true.
    Damaged = 6,
    /// The run that was followed failed.
    RunFailed = 7,
    /// The run that was followed was cancelled.
    RunCancelled = 8,
    /// The run that was followed has not ended.
    RunOpen = 9,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command could not even ask.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// What was typed makes no sense together.
    #[error("{0}")]
    Usage(String),
    /// The process that holds the store, or a host of workflows, does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// A host of workflows refused.
    #[error("{code}: {message}")]
    Refused {
        /// The status of its answer.
        status: u16,
        /// Its code.
        code: String,
        /// What it says.
        message: String,
    },
}

impl Exit {
    /// The exit code of `error`.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if let Some(problem) = error.downcast_ref::<Problem>() {
            return problem.known().map_or(Self::Failed, Self::of_code);
        }
        if let Some(fault) = error.downcast_ref::<Fault>() {
            return match fault {
                Fault::Usage(_) => Self::Usage,
                Fault::Unreachable(_) => Self::Unavailable,
                Fault::Refused { status, .. } => Self::of_status(*status),
            };
        }
        if error.is::<ConfigErrors>() {
            return Self::Usage;
        }
        error.downcast_ref::<OpenError>().map_or(Self::Failed, |error| match error {
            OpenError::Url(_) => Self::Usage,
            OpenError::NotSupported(_) => Self::Failed,
            OpenError::Missing(_)
            | OpenError::Locked { .. }
            | OpenError::Key(_)
            | OpenError::Foreign(_)
            | OpenError::Unavailable(_) => Self::Unavailable,
            OpenError::Database { code, .. } => Self::of_code(*code),
            OpenError::Damaged(_) => Self::Damaged,
        })
    }

    /// The exit code of what a host of workflows answers.
    const fn of_status(status: u16) -> Self {
        match status {
            400 | 413 | 415 | 422 => Self::Usage,
            404 | 410 => Self::NothingFound,
            409 => Self::Refused,
            429 | 502..=504 => Self::Unavailable,
            _ => Self::Failed,
        }
    }

    const fn of_code(code: Code) -> Self {
        match code {
            Code::RecordMissing => Self::NothingFound,
            Code::RecordChanged | Code::ClaimLive | Code::AlreadySettled => Self::Refused,
            Code::KeyMissing
            | Code::KeyInvalid
            | Code::PolicyInvalid
            | Code::TooLarge
            | Code::BodyNotCanonical
            | Code::RequestInvalid => Self::Usage,
            Code::StoreUnavailable
            | Code::StoreFull
            | Code::Busy
            | Code::Stopping
            | Code::ActUncertain
            | Code::StoreMissing
            | Code::StoreLocked
            | Code::StoreSealed
            | Code::StoreForeign
            | Code::StoreUnfit => Self::Unavailable,
            Code::StoreCorrupt => Self::Damaged,
            Code::KeyMismatch
            | Code::InFlight
            | Code::AttemptFreed
            | Code::OutcomeUnknown
            | Code::StillExecuting
            | Code::ExecutedNotRecorded
            | Code::Fenced
            | Code::ResultNotKept
            | Code::ResultOfOtherType
            | Code::RouteMissing
            | Code::TokenInvalid
            | Code::HostRefused
            | Code::OriginRefused
            | Code::NotSupported
            | Code::RequestTimeout
            | Code::IdentityMissing
            | Code::IdentityInvalid
            | Code::IdentityForbidden
            | Code::IdentityUnavailable
            | Code::NewKeysLimited
            | Code::UpstreamUnreachable
            | Code::UpstreamFailed
            | Code::UpstreamTimeout => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_in_the_help() {
        let all = [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::NothingFound,
            Exit::Refused,
            Exit::Unavailable,
            Exit::Damaged,
            Exit::RunFailed,
            Exit::RunCancelled,
            Exit::RunOpen,
        ];
        for (exit, number) in all.into_iter().zip(0..) {
            assert_eq!(exit as u8, number);
            assert!(HELP.contains(&format!("\n  {number}  ")), "{number}");
        }
    }

    #[test]
    fn an_error_keeps_its_exit_code_under_more_words() {
        let locked =
            anyhow::Error::new(OpenError::Locked { path: "x".into(), holder: String::new() })
                .context("while looking");
        assert_eq!(Exit::of(&locked), Exit::Unavailable);
        let usage = anyhow::Error::new(Fault::Usage("no".to_owned()));
        assert_eq!(Exit::of(&usage), Exit::Usage);
        assert_eq!(Exit::of(&anyhow::anyhow!("anything")), Exit::Failed);
    }
}
