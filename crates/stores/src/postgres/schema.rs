//! The tables, and how they came to be: one step for each version, in order, each written once.
//!
//! Steps run in one transaction under a lock that every starting process takes, so that a fleet
//! may start at once. Nothing here reads or writes a record.

use tokio_postgres::{Client, Error};

/// What one version of the tables adds. Never changed once released.
pub(super) const STEPS: &[&str] = &[r#"
CREATE TABLE slots (
    slot  bytea PRIMARY KEY,
    write uuid NOT NULL,
    -- Who claimed it, as long as it is a claim that its node keeps alive.
    node  uuid,
    kind  smallint NOT NULL,
    -- Points in time are milliseconds since 1970, by the clock of this database.
    since bigint NOT NULL,
    until bigint NOT NULL,
    body  bytea NOT NULL
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE nodes (
    node uuid PRIMARY KEY,
    beat bigint NOT NULL,
    at   bigint NOT NULL
) WITH (fillfactor = 10);
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
"#];

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

/// Makes the tables, or brings them up to date. Gives the steps that were missing.
pub(super) async fn migrate(client: &mut Client, schema: &str) -> Result<i32, SchemaError> {
    let tx = client.transaction().await?;
    tx.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    tx.batch_execute(&format!(
        "CREATE SCHEMA IF NOT EXISTS {schema}; SET LOCAL search_path TO {schema};
         CREATE TABLE IF NOT EXISTS versions (
            version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());"
    ))
    .await?;
    let row = tx.query_one("SELECT coalesce(max(version), 0) FROM versions", &[]).await?;
    let found: i32 = row.get(0);
    if found > known() {
        return Err(SchemaError::Newer { found, known: known() });
    }
    for (step, version) in STEPS.iter().zip(1..).skip(usize::try_from(found).unwrap_or(0)) {
        tx.batch_execute(step).await?;
        tx.execute("INSERT INTO versions (version) VALUES ($1)", &[&version]).await?;
    }
    tx.commit().await?;
    Ok(known() - found)
}
