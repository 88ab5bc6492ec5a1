//! Why a call inside a transaction has no value, and what the database said.
//!
//! Whatever it is, the effect left nothing in the transaction. Nothing here holds a key or a value.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use onetake_core::{Cause, Code, Fence, Timestamp};
use onetake_engine::StoreError;

use crate::seal::SealError;

/// Why a call has no value. In every case nothing that the effect wrote is left in the transaction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InsideError<E> {
    /// The effect failed. Its writes are undone.
    #[error("the effect failed")]
    Failed {
        /// What it failed with.
        failure: E,
        /// Whether this is what an earlier attempt came to.
        repeat: bool,
    },
    /// Another transaction, or another worker, has the key. The transaction can still be used.
    #[error("claimed by another transaction; come back in {} ms", retry_after.as_millis())]
    ClaimedByAnother {
        /// When to come back: by the real lease, where there is one.
        retry_after: Duration,
    },
    /// The key was used for something else. The transaction can still be used.
    #[error("the key was used before for something else")]
    Mismatch,
    /// An attempt outside of a transaction may or may not have had its effect. It is never tried
    /// again here, whatever the policy says: that would not be exactly once.
    #[error("an earlier attempt may or may not have had its effect")]
    Unknown {
        /// Of which claim.
        fence: Fence,
        /// Since when.
        since: Timestamp,
        /// Why.
        cause: Cause,
    },
    /// An attempt outside of a transaction was executed, but what it returned was not kept.
    #[error("executed, but its result could not be kept")]
    ResultNotKept,
    /// What is kept is not of the type that this caller expects.
    #[error("the kept result is of another type: {0}")]
    ResultOfOtherType(String),
    /// What the effect returned cannot be written as JSON, so its writes are undone.
    #[error("the result cannot be written as JSON, so nothing was done")]
    ResultNotKeepable,
    /// What the effect returned is too large to be kept, so its writes are undone.
    #[error("the result has {bytes} bytes and at most {max} are kept, so nothing was done")]
    ResultTooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        max: usize,
    },
    /// Two transactions got in each other's way: a serialization failure or a deadlock. Roll back
    /// and run the whole transaction again.
    #[error("two transactions got in each other's way; run the whole transaction again: {0}")]
    Clash(#[source] DatabaseError),
    /// The tables of Onetake are not there.
    #[error(
        "there are no tables of Onetake in the schema {schema}; \
         make them with `onetake store migrate` or `Postgres::open`"
    )]
    TablesMissing {
        /// Where they were looked for.
        schema: String,
    },
    /// The tables are sealed otherwise than with the keys that were given.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// What the store holds cannot be true.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database refused, or is gone. Roll back.
    #[error("{0}")]
    Database(#[source] DatabaseError),
}

impl<E> InsideError<E> {
    /// The stable code of this error; `None` for the effect's own failure.
    pub const fn code(&self) -> Option<Code> {
        Some(match self {
            Self::Failed { .. } => return None,
            Self::ClaimedByAnother { .. } => Code::InFlight,
            Self::Mismatch => Code::KeyMismatch,
            Self::Unknown { .. } => Code::OutcomeUnknown,
            Self::ResultNotKept => Code::ResultNotKept,
            Self::ResultOfOtherType(_) => Code::ResultOfOtherType,
            Self::ResultNotKeepable => Code::PolicyInvalid,
            Self::ResultTooLarge { .. } => Code::TooLarge,
            Self::Clash(_) => Code::Busy,
            Self::TablesMissing { .. } => Code::StoreMissing,
            Self::Seal(_) => Code::StoreSealed,
            Self::Store(error) => error.code(),
            Self::Database(_) => Code::StoreUnavailable,
        })
    }

    /// When to try again with the same key, where waiting helps.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::ClaimedByAnother { retry_after } => Some(*retry_after),
            Self::Failed { .. }
            | Self::Mismatch
            | Self::Unknown { .. }
            | Self::ResultNotKept
            | Self::ResultOfOtherType(_)
            | Self::ResultNotKeepable
            | Self::ResultTooLarge { .. }
            | Self::Clash(_)
            | Self::TablesMissing { .. }
            | Self::Seal(_)
            | Self::Store(_)
            | Self::Database(_) => None,
        }
    }

    /// Whether the whole transaction should be rolled back and run again at once.
    pub const fn is_clash(&self) -> bool {
        matches!(self, Self::Clash(_))
    }

    /// What an error of the database means to a call on the tables of `schema`.
    pub(super) fn of(error: DatabaseError, schema: &str) -> Self {
        match error.sqlstate() {
            Some("40001" | "40P01") => Self::Clash(error),
            Some("42P01" | "3F000") => Self::TablesMissing { schema: schema.to_owned() },
            Some(_) | None => Self::Database(error),
        }
    }
}

/// What the database, or the connection to it, said. Its source is the error of the driver.
pub struct DatabaseError {
    sqlstate: Option<Box<str>>,
    message: Box<str>,
    source: Box<dyn Error + Send + Sync>,
}

impl DatabaseError {
    /// An error of a driver, with the code and the words of the database where they are its own.
    pub(super) fn new(
        said: Option<(&str, &str)>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        let message = said.map_or("the connection to the database broke", |(_, message)| message);
        let sqlstate = said.map(|(sqlstate, _)| sqlstate.into());
        Self { sqlstate, message: message.into(), source: Box::new(source) }
    }

    /// The five characters with which PostgreSQL names a condition; `None` when the connection
    /// broke.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_deref()
    }

    /// Whether a wait for a lock came to its end.
    pub(super) fn is_wait_over(&self) -> bool {
        self.sqlstate() == Some("55P03")
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sqlstate {
            Some(sqlstate) => write!(f, "the database refused: {} ({sqlstate})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// What it says and no more: details of the database may quote values.
impl fmt::Debug for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseError({self})")
    }
}

impl Error for DatabaseError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.source.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(sqlstate: &str) -> InsideError<()> {
        let source = std::io::Error::other("the details");
        InsideError::of(DatabaseError::new(Some((sqlstate, "no")), source), "onetake")
    }

    #[test]
    fn an_error_of_the_database_says_who_must_act() {
        for (sqlstate, code, clash) in [
            ("40001", "busy", true),
            ("40P01", "busy", true),
            ("42P01", "store_missing", false),
            ("3F000", "store_missing", false),
            ("25P02", "store_unavailable", false),
        ] {
            let error = said(sqlstate);
            assert_eq!(error.code().map(Code::as_str), Some(code), "{sqlstate}");
            assert_eq!(error.is_clash(), clash, "{sqlstate}");
        }
        let missing = said("42P01").to_string();
        assert!(missing.contains("onetake store migrate"), "{missing}");
    }

    #[test]
    fn what_the_database_says_is_shown_without_its_details() {
        let InsideError::Database(error) = said("25P02") else { panic!("no other kind") };
        assert_eq!(error.to_string(), "the database refused: no (25P02)");
        assert_eq!(format!("{error:?}"), "DatabaseError(the database refused: no (25P02))");
        assert!(error.source().is_some(), "whoever wants the driver's own error finds it");
    }
}
