//! The statements of a call inside a transaction, with the name of the schema in them.
//!
//! Nothing depends on the settings of a connection, and none is left changed.

use std::time::Duration;

use crate::postgres::mark;
use crate::postgres::rows::COLUMNS;
use crate::postgres::shared::NOW;

/// The statements.
#[derive(Debug)]
pub(super) struct Sql {
    pub(super) schema: Box<str>,
    pub(super) mark: String,
    pub(super) take: String,
    pub(super) wait: String,
    pub(super) limit: String,
    pub(super) restore: String,
    pub(super) look: String,
    pub(super) write: String,
}

impl Sql {
    pub(super) fn new(schema: &str) -> Self {
        let s = schema;
        Self {
            mark: mark::select(schema),
            take: "SELECT pg_try_advisory_xact_lock($1)".to_owned(),
            wait: "SELECT pg_advisory_xact_lock($1)".to_owned(),
            // What the limit was, and whether this transaction sees one moment only.
            limit: "WITH was AS MATERIALIZED (SELECT current_setting('lock_timeout') AS value,
                        current_setting('transaction_isolation') <> 'read committed' AS fixed)
                    SELECT value, fixed, set_config('lock_timeout', $1, true) FROM was"
                .to_owned(),
            restore: "SELECT set_config('lock_timeout', $1, true)".to_owned(),
            look: format!(
                "SELECT {NOW}, {COLUMNS} FROM (VALUES (1)) AS one(n)
                 LEFT JOIN {s}.slots s ON s.slot = $1
                 LEFT JOIN {s}.nodes n ON n.node = s.node"
            ),
            // A record that was swept since it was seen is as free as it was.
            write: format!(
                "INSERT INTO {s}.slots AS o (slot, write, node, kind, since, until, body)
                 SELECT $1, $2, NULL, $3, now + $4, now + $5, $6 FROM (SELECT {NOW} AS now) clock
                 ON CONFLICT (slot) DO UPDATE SET write = excluded.write, node = NULL,
                    kind = excluded.kind, since = excluded.since, until = excluded.until,
                    body = excluded.body
                 WHERE o.write = $7 AND o.node IS NULL RETURNING 1"
            ),
            schema: schema.into(),
        }
    }

    /// A limit as the database takes it. Zero would be none at all.
    pub(super) fn millis(within: Duration) -> String {
        format!("{}ms", within.as_millis().clamp(1, 3_600_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_always_has_a_limit() {
        assert_eq!(Sql::millis(Duration::ZERO), "1ms");
        assert_eq!(Sql::millis(Duration::from_micros(2_500)), "2ms");
        assert_eq!(Sql::millis(Duration::MAX), "3600000ms");
    }
}
