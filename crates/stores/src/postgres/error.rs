//! Why a PostgreSQL store cannot be opened, in words for the operator, with a stable code.

use std::path::PathBuf;

use onetake_core::Code;
use onetake_engine::StoreError;

use super::link::spelled;
use super::schema::SchemaError;
use crate::seal::SealError;

/// Why a PostgreSQL store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// The address is none.
    #[error("not the address of a PostgreSQL database: {}", spelled(.0))]
    Address(#[source] tokio_postgres::Error),
    /// The mode of TLS is none.
    #[error("`sslmode` is one of disable, prefer, require, verify-ca and verify-full")]
    TlsMode,
    /// The certificates of `sslrootcert` cannot be read.
    #[error("the certificates in {} cannot be read: {why}", path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Certificates are to be verified, and none is trusted.
    #[error("this machine trusts no certificates; name some with `sslrootcert`")]
    NoRoots,
    /// The schema needs a name without quotes.
    #[error("a schema is named with up to 63 lower-case letters, digits and underscores")]
    SchemaName,
    /// The database cannot be reached.
    #[error("{0}")]
    Unreachable(StoreError),
    /// The server is older than this store can use.
    #[error("this is PostgreSQL {found}; 13 or later is needed")]
    TooOld {
        /// Its version.
        found: i32,
    },
    /// The server takes no writes.
    #[error("this server is a standby; name the primary, or all of them")]
    Standby,
    /// The server forgets what it acknowledged when its machine crashes.
    #[error("the server runs with `{setting} = off`, and would forget what it acknowledged")]
    Forgets {
        /// What is off.
        setting: &'static str,
    },
    /// The server would read the whole table for every batch.
    #[error("the server plans to read all records for every batch; run ANALYZE, or see the log")]
    Plan,
    /// The tables are not there, or not up to date.
    #[error("the tables are missing or of an earlier release; `onetake store migrate` makes them")]
    Unmigrated,
    /// The tables are of a later release.
    #[error("the tables are of version {found}; this release knows up to {known}")]
    Newer {
        /// The version of the tables.
        found: i32,
        /// The last that this release knows.
        known: i32,
    },
    /// There are records, and nothing says how they are sealed.
    #[error("the mark that says how the records are sealed is gone; restore the table `seals`")]
    Unmarked,
    /// The tables are sealed otherwise than with the keys that were given.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The tables could not be made.
    #[error("the tables cannot be made, brought up to date or used: {}", spelled(.0))]
    Schema(#[source] tokio_postgres::Error),
}

impl From<SchemaError> for PostgresError {
    fn from(error: SchemaError) -> Self {
        match error {
            SchemaError::Newer { found, known } => Self::Newer { found, known },
            SchemaError::Database(error) => Self::Schema(error),
        }
    }
}

impl PostgresError {
    /// The stable code of this failure.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Address(_) | Self::TlsMode | Self::SchemaName => Code::RequestInvalid,
            Self::Roots { .. } | Self::NoRoots | Self::Unreachable(_) | Self::Standby => {
                Code::StoreUnavailable
            }
            Self::TooOld { .. } | Self::Forgets { .. } | Self::Plan => Code::StoreUnfit,
            Self::Seal(_) => Code::StoreSealed,
            Self::Unmarked => Code::StoreCorrupt,
            Self::Unmigrated | Self::Newer { .. } | Self::Schema(_) => Code::StoreForeign,
        }
    }
}
