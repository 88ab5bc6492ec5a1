//! The least that PostgreSQL could be asked for the same job, into the same tables and with the
//! same bytes: one statement for each operation on as many connections as there are tasks, and
//! statements that are full of rows on few connections.
//!
//! Nobody here waits in a queue, is judged, told apart or woken. The second one is no store at all:
//! it always has a full batch at hand, and nobody ever waits for one of its rows alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};
use uuid::Uuid;

use crate::cells::{COLUMNS, Cells, NODE};
use crate::load::{DAY, address, claim, done, for_span, rate};
use crate::{Stage, TASKS, float};

/// The time of the database in milliseconds, as the store asks for it.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
/// So that the batch is never joined by reading the table.
const PINNED: &str = "SET enable_seqscan = off; SET enable_hashjoin = off;
    SET enable_mergejoin = off; SET enable_bitmapscan = off; SET jit = off;
    SET plan_cache_mode = force_generic_plan";

/// A connection.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the server runs");
    tokio::spawn(connection);
    client
}

/// One connection for each task, with both statements prepared.
struct Single {
    client: Client,
    insert: Statement,
    update: Statement,
}

impl Single {
    async fn open(url: String, schema: &str) -> Self {
        let client = connect(&url).await;
        let insert = format!(
            "INSERT INTO {schema}.slots ({COLUMNS})
             SELECT $1, $2, $3, $4, now, now + $5, $6 FROM (SELECT {NOW} AS now) c
             ON CONFLICT (slot) DO NOTHING RETURNING since"
        );
        let insert = client.prepare(&insert).await.expect("a statement");
        let update = format!(
            "UPDATE {schema}.slots SET write = $2, node = $3, kind = $4, since = now,
                until = now + $5, body = $6
             FROM (SELECT {NOW} AS now) c WHERE slot = $1 AND write = $7 RETURNING since"
        );
        let update = client.prepare(&update).await.expect("a statement");
        Self { client, insert, update }
    }

    /// Claims and completes operation `n`.
    async fn new_key(&self, n: u64) {
        let address = address(n);
        let row = Cells::of(claim(n, Arc::clone(&address)));
        let Cells { slot, write: expected, node, kind, until, body } = row;
        let cells: [&(dyn ToSql + Sync); 6] = [&slot, &expected, &node, &kind, &until, &body];
        let written = self.client.query_opt(&self.insert, &cells);
        written.await.expect("claimed").expect("a new key");
        let Cells { slot, write, node, kind, until, body } = Cells::of(done(n, address, DAY));
        let cells: [&(dyn ToSql + Sync); 7] =
            [&slot, &write, &node, &kind, &until, &body, &expected];
        let written = self.client.query_opt(&self.update, &cells);
        written.await.expect("completed").expect("our claim");
    }
}

/// One statement for each operation.
pub(crate) struct OneByOne {
    connections: Vec<Arc<Single>>,
    keys: Arc<AtomicU64>,
}

impl OneByOne {
    pub(crate) fn open(stage: &Stage<'_>, schema: &str) -> Self {
        stage.tables(schema);
        let one = |_| {
            let opened = Single::open(stage.postgres.url(), schema);
            Arc::new(stage.runtime.block_on(opened))
        };
        Self { connections: (0..TASKS).map(one).collect(), keys: Arc::default() }
    }

    /// New keys a second.
    pub(crate) fn rate(&self, runtime: &Runtime, span: Duration) -> f64 {
        rate(runtime, span, |index| {
            let (single, keys) = (Arc::clone(&self.connections[index]), Arc::clone(&self.keys));
            Box::new(move || {
                let (single, n) = (Arc::clone(&single), keys.fetch_add(1, Ordering::Relaxed));
                async move { single.new_key(n).await }
            })
        })
    }
}

/// Rows by their columns.
struct Columns<'a> {
    slots: Vec<&'a [u8]>,
    writes: Vec<Uuid>,
    until: Vec<i64>,
    bodies: Vec<&'a [u8]>,
}

impl<'a> Columns<'a> {
    fn of(rows: &'a [Cells]) -> Self {
        Self {
            slots: rows.iter().map(|row| row.slot.as_slice()).collect(),
            writes: rows.iter().map(|row| row.write).collect(),
            until: rows.iter().map(|row| row.until).collect(),
            bodies: rows.iter().map(|row| row.body.as_slice()).collect(),
        }
    }
}

/// One connection whose every statement is full.
struct Full {
    client: Client,
    both: Statement,
    /// Rows of each kind in one statement.
    rows: u64,
}

impl Full {
    async fn open(url: String, schema: &str, rows: u64) -> Self {
        let client = connect(&url).await;
        client.batch_execute(PINNED).await.expect("settings");
        let both = format!(
            "WITH inserted AS (
                INSERT INTO {schema}.slots ({COLUMNS})
                SELECT slot, write, $3, 1, now, now + until, body
                FROM unnest($1::bytea[], $2::uuid[], $4::bigint[], $5::bytea[])
                    AS i(slot, write, until, body), (SELECT {NOW} AS now) c
                ON CONFLICT (slot) DO NOTHING RETURNING 1),
             updated AS (
                UPDATE {schema}.slots o SET write = i.write, node = NULL, kind = 2,
                    since = now, until = now + i.until, body = i.body
                FROM unnest($6::bytea[], $7::uuid[], $8::uuid[], $9::bigint[], $10::bytea[])
                    AS i(slot, expected, write, until, body), (SELECT {NOW} AS now) c
                WHERE o.slot = i.slot AND o.write = i.expected RETURNING 1)
             SELECT (SELECT count(*) FROM inserted), (SELECT count(*) FROM updated)"
        );
        let both = client.prepare(&both).await.expect("a statement");
        Self { client, both, rows }
    }

    /// Claims `claims`, and completes what was claimed before.
    async fn write(&self, claims: &[Cells], expected: &[Uuid], done: &[Cells]) {
        let [new, old] = [claims, done].map(Columns::of);
        let wrote = self
            .client
            .query_one(
                &self.both,
                &[
                    &new.slots,
                    &new.writes,
                    &NODE,
                    &new.until,
                    &new.bodies,
                    &old.slots,
                    &expected,
                    &old.writes,
                    &old.until,
                    &old.bodies,
                ],
            )
            .await
            .expect("written");
        let counts: (i64, i64) = (wrote.get(0), wrote.get(1));
        let wanted = |rows: &[Cells]| i64::try_from(rows.len()).expect("few");
        assert_eq!(counts, (wanted(claims), wanted(done)), "all of them");
    }

    /// Completes keys for `span`, and says how many.
    async fn work(&self, keys: &AtomicU64, goes_on: impl Fn() -> bool) -> u64 {
        let (mut claimed, mut count): (Vec<u64>, _) = (Vec::new(), 0);
        while goes_on() || !claimed.is_empty() {
            let begins = if goes_on() { self.rows } else { 0 };
            let first = keys.fetch_add(begins, Ordering::Relaxed);
            let new: Vec<_> = (first..first + begins).collect();
            let mut claims: Vec<_> =
                new.iter().map(|n| Cells::of(claim(*n, address(*n)))).collect();
            let completes = |n: &u64| {
                (claim(*n, address(*n)).version.write, Cells::of(done(*n, address(*n), DAY)))
            };
            let mut done: Vec<_> = claimed.iter().map(completes).collect();
            // In one order for everybody, as the store has it.
            claims.sort_unstable_by(|one, other| one.slot.cmp(&other.slot));
            done.sort_unstable_by(|one, other| one.1.slot.cmp(&other.1.slot));
            let (expected, done): (Vec<_>, Vec<_>) =
                done.into_iter().map(|(write, row)| (Uuid::from_u128(write), row)).unzip();
            self.write(&claims, &expected, &done).await;
            count += claimed.len() as u64;
            claimed = new;
        }
        count
    }
}

/// Statements full of rows.
pub(crate) struct Batched {
    connections: Vec<Arc<Full>>,
    keys: Arc<AtomicU64>,
}

impl Batched {
    /// `count` connections, with `rows` of each kind in every statement.
    pub(crate) fn open(stage: &Stage<'_>, schema: &str, count: usize, rows: u64) -> Self {
        stage.tables(schema);
        let one =
            |_| Arc::new(stage.runtime.block_on(Full::open(stage.postgres.url(), schema, rows)));
        Self { connections: (0..count).map(one).collect(), keys: Arc::default() }
    }

    /// New keys a second.
    pub(crate) fn rate(&self, runtime: &Runtime, span: Duration) -> f64 {
        let (goes_on, started) = (for_span(span), Instant::now());
        let task = |full: &Arc<Full>| {
            let (full, keys, goes_on) = (Arc::clone(full), Arc::clone(&self.keys), goes_on.clone());
            runtime.spawn(async move { full.work(&keys, goes_on).await })
        };
        let tasks: Vec<_> = self.connections.iter().map(task).collect();
        let count = tasks.into_iter().map(|task| runtime.block_on(task).expect("no panic")).sum();
        float(count) / started.elapsed().as_secs_f64()
    }
}
