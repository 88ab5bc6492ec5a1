//! The tables, and how they came to be: one step for each version, in order, each written once.
//!
//! Steps run in one transaction under a lock that every starting process takes, so that a fleet
//! may start at once. A step says which older release can go on with what it leaves, so that a
//! fleet can be upgraded one process after the other. Nothing here reads or writes a record.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row};

/// What one version of the tables adds. Never changed once released.
pub(super) struct Step {
    pub(super) sql: &'static str,
    /// The oldest version whose release can go on with the tables as they are after it: as a rule
    /// the one before, which is what a step must be written for.
    oldest: i32,
}

pub(super) const STEPS: &[Step] = &[
    Step {
        oldest: 1,
        sql: r#"
CREATE TABLE slots (
    slot  bytea PRIMARY KEY,
    write uuid NOT NULL,
    -- Who claimed it, as long as it is a claim that its node keeps alive.
    node  uuid,
    kind  smallint NOT NULL,
    -- Points in time are milliseconds since 1970, by the clock of this database.
    since bigint NOT NULL,
    until bigint NOT NULL,
    -- Whether another process waits to be told when a claim is settled.
    waited boolean NOT NULL DEFAULT false,
    body  bytea NOT NULL
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE nodes (
    node uuid PRIMARY KEY,
    beat bigint NOT NULL,
    at   bigint NOT NULL
) WITH (fillfactor = 10);
-- How much each tenant has, as counted by the last round of sweeping.
CREATE TABLE tallies (
    tenant  bytea PRIMARY KEY,
    records bigint NOT NULL,
    bytes   bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE docs (
    space text COLLATE "C" NOT NULL,
    key   bytea NOT NULL,
    write uuid NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (space, key)
);
CREATE TABLE lanes (
    lane bytea PRIMARY KEY,
    last bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE entries (
    lane     bytea NOT NULL,
    position bigint NOT NULL,
    at       bigint NOT NULL,
    value    bytea NOT NULL,
    PRIMARY KEY (lane, position)
);
CREATE TABLE counters (
    name  bytea PRIMARY KEY,
    value bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE cursors (
    name     bytea PRIMARY KEY,
    position bigint NOT NULL
) WITH (fillfactor = 50);
"#,
    },
    Step {
        oldest: 2,
        sql: r"
-- How values are sealed, as whoever came first decided: by a wrapped key ring, or not at all.
CREATE TABLE seals (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    mark bytea NOT NULL
);
-- What is there already is not sealed.
INSERT INTO seals (mark)
SELECT '' WHERE EXISTS (SELECT FROM slots) OR EXISTS (SELECT FROM nodes);
",
    },
];

/// Any number; the same in every release.
const LOCK: i64 = 0x006f_6e65_7461_6b65;

/// What stands in the way of the tables.
#[derive(Debug, thiserror::Error)]
pub(super) enum SchemaError {
    #[error("the tables are of version {found}; this release knows up to {known}")]
    Newer { found: i32, known: i32 },
    #[error(transparent)]
    Database(#[from] Error),
}

fn known() -> i32 {
    i32::try_from(STEPS.len()).expect("invariant: there are few steps")
}

/// Where the tables are, and which version they have. Never in the way of what is there.
fn frame(schema: &str) -> String {
    format!(
        "CREATE SCHEMA IF NOT EXISTS {schema};
SET LOCAL search_path TO {schema};
CREATE TABLE IF NOT EXISTS versions (
    version integer PRIMARY KEY,
    oldest  integer NOT NULL,
    at      timestamptz NOT NULL DEFAULT now()
);"
    )
}

/// What brings the tables in `schema` up to date, in order: a script that anybody may carry out by
/// hand, in one transaction.
fn script(schema: &str, missing: &[(i32, &Step)]) -> Vec<String> {
    if missing.is_empty() {
        return Vec::new();
    }
    let of = |(version, Step { sql, oldest }): &(i32, &Step)| {
        let sql = sql.trim();
        format!("{sql}\nINSERT INTO versions (version, oldest) VALUES ({version}, {oldest});")
    };
    std::iter::once(frame(schema)).chain(missing.iter().map(of)).collect()
}

/// Makes the tables, or brings them up to date. Gives what was done.
pub(super) async fn migrate(client: &mut Client, schema: &str) -> Result<Vec<String>, SchemaError> {
    if missing(client, schema).await?.is_empty() {
        // Nothing is to be made, so nobody needs the right to make it.
        return Ok(Vec::new());
    }
    let tx = client.transaction().await?;
    tx.query_typed("SELECT pg_advisory_xact_lock($1)", &[(&LOCK, Type::INT8)]).await?;
    tx.batch_execute(&frame(schema)).await?;
    // Another process may have been faster. Asked of the table itself: whether there is one may be
    // remembered by this connection from before.
    let script = script(schema, &Found::of(&tx.query_typed(VERSION, &[]).await?).missing()?);
    for sql in script.iter().skip(1) {
        tx.batch_execute(sql).await?;
    }
    tx.commit().await?;
    Ok(script)
}

const VERSION: &str = "SELECT coalesce(max(version), 0), coalesce(max(oldest), 0) FROM versions";

/// What would bring the tables up to date. Changes nothing.
pub(super) async fn missing(client: &Client, schema: &str) -> Result<Vec<String>, SchemaError> {
    Ok(script(schema, &found(client, schema).await?.missing()?))
}

async fn found(client: &Client, schema: &str) -> Result<Found, SchemaError> {
    let table = format!("{schema}.versions");
    let sql = "SELECT to_regclass($1) IS NOT NULL";
    let rows = client.query_typed(sql, &[(&table, Type::TEXT)]).await?;
    if rows.first().is_some_and(|row| row.get(0)) {
        let sql = VERSION.replace("versions", &table);
        return Ok(Found::of(&client.query_typed(&sql, &[]).await?));
    }
    Ok(Found { version: 0, oldest: 0 })
}

/// What the tables say of themselves.
struct Found {
    version: i32,
    oldest: i32,
}

impl Found {
    fn of(rows: &[Row]) -> Self {
        let (version, oldest) = rows.first().map_or((0, 0), |row| (row.get(0), row.get(1)));
        Self { version, oldest }
    }

    /// The steps that this release would add, with their versions. Tables of a newer release are
    /// used as they are where that release has allowed for it.
    fn missing(&self) -> Result<Vec<(i32, &'static Step)>, SchemaError> {
        if self.version > known() && self.oldest > known() {
            return Err(SchemaError::Newer { found: self.version, known: known() });
        }
        let done = usize::try_from(self.version).unwrap_or(0);
        Ok((1..).zip(STEPS).skip(done).collect())
    }
}
