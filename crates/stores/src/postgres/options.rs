//! How a PostgreSQL store is used. Plain values with safe defaults; nothing here connects.

use std::time::Duration;

/// How a PostgreSQL store is used.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    pub(super) schema: String,
    pub(super) writers: usize,
    pub(super) readers: usize,
    pub(super) ledgers: usize,
    pub(super) queue_max: usize,
    pub(super) connect_within: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: "onetake".into(),
            writers: 2,
            readers: 2,
            ledgers: 2,
            queue_max: 16_384,
            connect_within: Duration::from_secs(5),
        }
    }
}

/// The longest name of a schema: that of any name in PostgreSQL.
const SCHEMA_BYTES_MAX: usize = 63;

impl PostgresOptions {
    /// Six connections, tables in the schema `onetake`.
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

    /// Whether the schema is a name that needs no quotes.
    pub(super) fn has_schema_name(&self) -> bool {
        let name = self.schema.as_bytes();
        let begins = name.first().is_some_and(u8::is_ascii_lowercase);
        let is_plain =
            |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
        begins && name.len() <= SCHEMA_BYTES_MAX && name.iter().all(is_plain)
    }
}
