//! What an operator asks of a store itself: its numbers, and a copy of it.
//!
//! A store offers this beside its records. It is never on the path of a walk, and a store that
//! cannot do something says so.

use std::collections::BTreeMap;
use std::path::Path;

use onetake_core::Code;
use onetake_engine::{Memory, StoreError};
use serde::{Deserialize, Serialize};

/// The numbers of a store, each under the name that it has there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Which store it is.
    pub store: String,
    /// Its numbers.
    pub numbers: BTreeMap<String, u64>,
}

/// A copy that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// Where it is.
    pub path: String,
    /// How large it is.
    pub bytes: u64,
}

/// Keys that were changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotated {
    /// Which master key the keys are wrapped by now; says nothing of the key itself.
    pub master: String,
}

/// Why upkeep could not be done. Nothing of the store was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpkeepError {
    /// This store cannot do it.
    #[error("{0}")]
    NotSupported(&'static str),
    /// The path cannot be used: it exists, or cannot be made.
    #[error("the path cannot be used: {0}")]
    Path(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl UpkeepError {
    /// The stable code of this failure.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::NotSupported(_) => Code::NotSupported,
            Self::Path(_) => Code::RequestInvalid,
            Self::Store(error) => error.code(),
        }
    }
}

/// What a store offers beside its records.
///
/// # Cancel safety
/// Dropping the future of `backup` may leave part of a copy behind, which is never taken for a
/// whole one. `stats` only reads.
pub trait Upkeep: Send + Sync + 'static {
    /// Its numbers. Cheap: nothing that reads every record.
    fn stats(&self) -> impl Future<Output = Result<Stats, UpkeepError>> + Send;

    /// Makes a copy at `to`, which must not exist: the store as it was at one moment.
    fn backup(&self, to: &Path) -> impl Future<Output = Result<Backup, UpkeepError>> + Send;

    /// Seals with a new key from now on, under the master key that is configured by now.
    fn rotate(&self) -> impl Future<Output = Result<Rotated, UpkeepError>> + Send;
}

impl Upkeep for Memory {
    async fn stats(&self) -> Result<Stats, UpkeepError> {
        let numbers = BTreeMap::from([("records".to_owned(), self.len() as u64)]);
        Ok(Stats { store: "memory".to_owned(), numbers })
    }

    async fn backup(&self, _to: &Path) -> Result<Backup, UpkeepError> {
        Err(UpkeepError::NotSupported("a store in memory has nothing that could be copied"))
    }

    async fn rotate(&self) -> Result<Rotated, UpkeepError> {
        Err(UpkeepError::NotSupported("a store in memory is not sealed"))
    }
}
