//! What the parts of a store share: its name among the nodes, its claims, and its statements.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use onetake_core::{Draft, Record, Slot};
use onetake_engine::{Stamped, StoreError};
use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use super::front::Front;
use super::link::{self, Dial, Failed};
use super::own::Own;
use super::rows::{COLUMNS, Found, Written, time};
use super::tally::{Counted, Tally};
use crate::seal::joint::Joint;

/// What was read of one slot.
pub(super) type Read = Result<Option<Arc<Record>>, StoreError>;

/// What the parts of a store share.
pub(super) struct Shared {
    pub(super) node: Uuid,
    pub(super) own: Own,
    pub(super) front: Front,
    pub(super) tally: Tally,
    pub(super) sql: Sql,
    pub(super) seal: Arc<Joint>,
    pub(super) dial: Arc<Dial>,
    /// The time of the database, and when it was that here.
    pub(super) clock: Mutex<Option<(i64, Instant)>>,
}

impl Shared {
    /// Notes what time it is by the database.
    pub(super) fn note_now(&self, now: i64) {
        let mut clock = self.clock.lock().expect("invariant: no panic under the lock");
        *clock = Some((now, Instant::now()));
    }

    /// The time of the database, as far as it can be told without asking. Good for deciding what
    /// is worth asking.
    pub(super) fn about_now(&self) -> Option<i64> {
        let clock = *self.clock.lock().expect("invariant: no panic under the lock");
        let (now, noted) = clock?;
        Some(now.saturating_add(i64::try_from(noted.elapsed().as_millis()).unwrap_or(0)))
    }

    /// Learns what the last round of sweeping counted.
    pub(super) async fn count(&self, client: &Client) -> Result<(), Failed> {
        let sql = format!("SELECT tenant, records, bytes FROM {}.tallies", self.sql.schema);
        let rows = client.query_typed(&sql, &[]).await.map_err(|error| link::judge(&error))?;
        let of = |row: &Row| (row.get(0), Counted { records: row.get(1), bytes: row.get(2) });
        self.tally.replace(rows.iter().map(of).collect());
        Ok(())
    }

    /// What `slots` hold at one moment, in the same order.
    pub(super) async fn read_all(
        &self,
        client: &Client,
        slots: &[Vec<u8>],
    ) -> Result<Stamped<Vec<Read>>, Failed> {
        let rows = client.query_typed(&self.sql.reads, &[(&slots, Type::BYTEA_ARRAY)]).await;
        let rows = rows.map_err(|error| link::judge(&error))?;
        let now = rows.first().map_or(0, |row| row.get(0));
        let value =
            rows.iter().map(|row| Found::read(row, 1).map(|found| self.record(&found)).transpose());
        Ok(Stamped { now: time(now), value: value.collect() })
    }

    /// The record in a row, as this process sees it.
    pub(super) fn record(&self, found: &Found) -> Result<Arc<Record>, StoreError> {
        let own = self.own.get(&found.slot);
        let record = found.record(own.as_ref(), self.node, &self.seal.sealer());
        record.map(Arc::new).map_err(|error| self.seal.refusal(&error))
    }

    /// Where `slot` is kept.
    pub(super) fn key(&self, slot: &Slot) -> Vec<u8> {
        self.seal.sealer().place(slot)
    }

    /// What a draft is in a row.
    pub(super) fn written(&self, draft: &Draft) -> Written {
        Written::of(draft, &self.seal.sealer())
    }
}

/// The statements, with the name of the schema in them: a pooler may give each transaction another
/// connection, so nothing may depend on the settings of one.
pub(super) struct Sql {
    pub(super) begin: String,
    /// The same for what has waited before.
    pub(super) begin_briefly: String,
    /// What `begin` sets, for transactions that the driver begins.
    pub(super) settings: String,
    pub(super) swaps: String,
    /// The same as a function that each connection of the server keeps, with its plan: planning the
    /// statement takes longer than carrying it out.
    pub(super) call: String,
    /// Begins a transaction, and makes that function in it.
    pub(super) begin_making: String,
    /// Whether the function can be made. It is a transaction of its own, which has nobody to set
    /// how it is committed, so it is for servers that do so by themselves.
    pub(super) calls: AtomicBool,
    pub(super) reads: String,
    pub(super) beat: String,
    pub(super) keep: String,
    pub(super) let_go: String,
    pub(super) mark: String,
    pub(super) node_of: String,
    pub(super) lock_node: String,
    pub(super) take_over: String,
    pub(super) schema: String,
    /// Where is said what was settled.
    pub(super) channel: String,
}

/// Commits wait for the disk, also where the role has chosen that they do not. What is stronger
/// stays as it is.
const SYNC: &str = "SELECT set_config('synchronous_commit', 'on', true) \
     WHERE current_setting('synchronous_commit') = 'off'";
/// The time of the database in milliseconds.
pub(super) const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
/// A node that has beaten within this time, in milliseconds, lives.
pub(super) const LIVES_WITHIN: i64 = 60_000;

/// What every transaction sets for itself. Without the first ones a batch may be joined by reading
/// the whole table. And nobody waits long for a row: one that is held must not hold up all others.
fn settings() -> String {
    format!(
        "SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; \
         SET LOCAL enable_mergejoin = off; SET LOCAL enable_bitmapscan = off; \
         SET LOCAL jit = off; SET LOCAL lock_timeout = '1s'; \
         SET LOCAL client_min_messages = warning; {SYNC}"
    )
}

impl Sql {
    pub(super) fn new(schema: &str) -> Self {
        let s = schema;
        let channel = format!("onetake_{:016x}", xxh3_64(schema.as_bytes()));
        let settings = settings();
        // Whatever the role has for a default: a snapshot from before a lock would be too old.
        let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED; {settings}");
        let swaps = swaps(s, &channel);
        let name = format!("pg_temp.onetake_{:016x}", xxh3_64(swaps.as_bytes()));
        Self {
            begin_briefly: format!("{begin}; SET LOCAL lock_timeout = '50ms'"),
            begin,
            settings,
            call: format!(
                "SELECT * FROM {name}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
                 AS r(now bigint, slot bytea, since bigint, until bigint, told bigint)"
            ),
            begin_making: format!(
                "BEGIN ISOLATION LEVEL READ COMMITTED; {}",
                function(&name, &swaps)
            ),
            calls: AtomicBool::new(true),
            swaps,
            reads: format!(
                "SELECT {NOW}, {COLUMNS} FROM unnest($1::bytea[]) WITH ORDINALITY AS i(slot, place)
                 LEFT JOIN {s}.slots s ON s.slot = i.slot
                 LEFT JOIN {s}.nodes n ON n.node = s.node ORDER BY i.place"
            ),
            beat: format!(
                "INSERT INTO {s}.nodes AS n (node, beat, at) VALUES ($1, 1, {NOW})
                 ON CONFLICT (node) DO UPDATE SET beat = n.beat + 1, at = {NOW} RETURNING at"
            ),
            keep: format!(
                "UPDATE {s}.slots o SET node = $3
                 FROM unnest($1::bytea[], $2::uuid[]) AS i(slot, write)
                 WHERE o.slot = i.slot AND o.write = i.write AND o.kind = 1 AND o.node IS NULL"
            ),
            let_go: format!(
                "UPDATE {s}.slots o SET node = NULL
                 FROM unnest($1::bytea[], $2::uuid[]) AS i(slot, write)
                 WHERE o.slot = i.slot AND o.write = i.write AND o.node = $3"
            ),
            mark: format!(
                "WITH marked AS (
                    UPDATE {s}.slots SET waited = true
                    WHERE slot = ANY($1) AND kind = 1 AND NOT waited RETURNING slot)
                 SELECT slot FROM marked UNION
                 SELECT slot FROM {s}.slots WHERE slot = ANY($1) AND kind = 1 AND waited"
            ),
            // Slots before nodes, as everybody locks them.
            node_of: format!(
                "SELECT node FROM {s}.slots WHERE slot = $1 AND write = $2 FOR UPDATE"
            ),
            lock_node: format!("SELECT beat FROM {s}.nodes WHERE node = $1 FOR UPDATE"),
            take_over: format!(
                "UPDATE {s}.slots SET write = $4, node = $5, kind = $6,
                    since = now + $7, until = now + $8, body = $9,
                    waited = waited AND $6 <> 1
                 FROM (SELECT {NOW} AS now) clock
                 WHERE slot = $1 AND write = $2 AND node = $3
                 RETURNING now, since, until,
                    CASE WHEN waited THEN pg_notify('{channel}', $10)::text END"
            ),
            schema: schema.to_owned(),
            channel,
        }
    }
}

/// A function that carries out `swaps` with a plan that is made once, by the settings of every
/// batch. It belongs to one connection of the server and ends with it, so it is none of the things
/// that have to be migrated, and a pooler may hand the connection to anybody: by its name, which is
/// that of its text, it means the same to all.
fn function(name: &str, swaps: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION {name}(bytea[], uuid[], uuid[], uuid[], smallint[], bigint[],
            bigint[], bytea[], uuid, bigint[])
         RETURNS SETOF record LANGUAGE plpgsql
         SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
         SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
         SET lock_timeout = '1s'
         AS $function$ BEGIN RETURN QUERY {swaps}; END $function$"
    )
}

/// All swaps of a batch: those that expect nothing are inserted, the others updated where what they
/// expect is there. Whoever waits for one of them in another process is told, once for all.
fn swaps(s: &str, channel: &str) -> String {
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now),
         input AS MATERIALIZED (
            SELECT * FROM unnest($1::bytea[], $2::uuid[], $3::uuid[], $4::uuid[],
                $5::smallint[], $6::bigint[], $7::bigint[], $8::bytea[], $10::bigint[])
            AS i(slot, expected, write, node, kind, since, until, body, name)),
         inserted AS (
            INSERT INTO {s}.slots (slot, write, node, kind, since, until, body)
            SELECT i.slot, i.write, i.node, i.kind, now + i.since, now + i.until, i.body
            FROM input i, clock WHERE i.expected IS NULL
            ON CONFLICT (slot) DO NOTHING RETURNING slot, since, until),
         updated AS (
            UPDATE {s}.slots o SET write = i.write, node = i.node, kind = i.kind,
                since = now + i.since, until = now + i.until, body = i.body,
                waited = o.waited AND i.kind <> 1
            FROM input i, clock
            WHERE o.slot = i.slot AND o.write = i.expected
                AND (o.node IS NULL OR o.node = $9)
            RETURNING o.slot, o.since, o.until, o.waited, i.name),
         told AS (
            SELECT pg_notify('{channel}', names) FROM (
                SELECT string_agg(name::text, ',') AS names FROM updated WHERE waited) w
            WHERE names IS NOT NULL),
         done AS (
            SELECT slot, since, until FROM inserted
            UNION ALL SELECT slot, since, until FROM updated)
         SELECT now, slot, since, until, (SELECT count(*) FROM told)
         FROM clock LEFT JOIN done ON true"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_means_something_else_has_another_name() {
        let (one, other) = (Sql::new("one"), Sql::new("other"));
        assert_ne!(one.call, other.call);
        assert_eq!(one.call, Sql::new("one").call);
        assert!(
            one.begin_making.contains("one.slots") && other.begin_making.contains("other.slots")
        );
    }
}
