//! How a PostgreSQL store is used. Plain values with safe defaults; nothing here connects.

use std::time::Duration;

use super::tally::Most;
use crate::seal::MasterKey;

const GIB: u64 = 1024 * 1024 * 1024;

/// How a PostgreSQL store is used.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    pub(super) schema: String,
    pub(super) writers: usize,
    pub(super) readers: usize,
    pub(super) ledgers: usize,
    pub(super) queue_max: usize,
    pub(super) queue_kib_max: usize,
    pub(super) connect_within: Duration,
    pub(super) reply_within: Duration,
    pub(super) front_bytes: u64,
    pub(super) listen_url: Option<String>,
    pub(super) keys: Vec<MasterKey>,
    pub(super) accept_loss: bool,
    pub(super) migrates: bool,
    pub(super) old_scans: bool,
    pub(super) most: Most,
    pub(super) tenant_most: Most,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: "onetake".into(),
            writers: 2,
            readers: 2,
            ledgers: 2,
            queue_max: 16_384,
            queue_kib_max: 256 * 1_024,
            connect_within: Duration::from_secs(5),
            reply_within: Duration::from_secs(10),
            front_bytes: 64 * 1024 * 1024,
            listen_url: None,
            keys: Vec::new(),
            accept_loss: false,
            migrates: true,
            old_scans: false,
            most: Most { records: 50_000_000, bytes: 64 * GIB },
            tenant_most: Most { records: 10_000_000, bytes: 16 * GIB },
        }
    }
}

/// The longest name of a schema: that of any name in PostgreSQL.
const SCHEMA_BYTES_MAX: usize = 63;

impl PostgresOptions {
    /// Seven connections, and an eighth where there is a [`listen_url`](Self::listen_url); tables
    /// in the schema `onetake`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps the tables in this schema: lower-case letters, digits and underscores.
    #[must_use]
    pub fn schema(mut self, name: &str) -> Self {
        name.clone_into(&mut self.schema);
        self
    }

    /// Hears over this address of what other processes settled. It must lead to the server itself:
    /// a pooler that hands connections around swallows notifications. Without it waiters look for
    /// themselves once a second.
    #[must_use]
    pub fn listen_url(mut self, url: &str) -> Self {
        self.listen_url = Some(url.to_owned());
        self
    }

    /// Seals what is stored with a key ring that the first of these keys wraps; the others may open
    /// it. Sealing begins with new tables, and all who share them need a key. Without one nothing
    /// is sealed.
    #[must_use]
    pub fn keys(mut self, keys: Vec<MasterKey>) -> Self {
        self.keys = keys;
        self
    }

    /// Remembers finished records in so many bytes of memory. They answer for two seconds after
    /// they were last confirmed.
    #[must_use]
    pub const fn front_bytes(mut self, bytes: u64) -> Self {
        self.front_bytes = bytes;
        self
    }

    /// Connects, and waits for replies, within these times. What takes longer is unknown.
    #[must_use]
    pub const fn within(mut self, connect: Duration, reply: Duration) -> Self {
        (self.connect_within, self.reply_within) = (connect, reply);
        self
    }

    /// Refuses new keys beyond so many records and bytes, in all and of one tenant. They are
    /// counted by the sweeper, so about.
    #[must_use]
    pub const fn bounds(mut self, all: (u64, u64), tenant: (u64, u64)) -> Self {
        self.most = Most { records: all.0, bytes: all.1 };
        self.tenant_most = Most { records: tenant.0, bytes: tenant.1 };
        self
    }

    /// Opens also a database that forgets what it has acknowledged when its machine crashes
    /// (`fsync = off`). For tests.
    #[must_use]
    pub const fn accept_loss(mut self, accept: bool) -> Self {
        self.accept_loss = accept;
        self
    }

    /// Whether opening the store makes its tables, or brings them up to date. By default it does;
    /// otherwise one that needs it is not opened.
    #[must_use]
    pub const fn migrates(mut self, migrates: bool) -> Self {
        self.migrates = migrates;
        self
    }

    /// Reads pages as servers before version 14 have to. For tests.
    #[doc(hidden)]
    #[must_use]
    pub const fn old_scans(mut self, old: bool) -> Self {
        self.old_scans = old;
        self
    }
}

/// Whether `name` names a schema without quotes: up to 63 lower-case letters, digits and
/// underscores, a letter first.
#[must_use]
pub fn is_schema_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    begins && name.len() <= SCHEMA_BYTES_MAX && name.chars().all(is_plain)
}
