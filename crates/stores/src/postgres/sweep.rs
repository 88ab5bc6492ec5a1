//! Removes what has expired, some pages of the table at a time, and counts what is left on the way.
//!
//! Pages are read as they lie on the disk, from where the last step stopped, so a round reads the
//! table once and in order, whatever the keys are. Of a fleet only the oldest node that lives does
//! so. It deletes what expired and nothing else, and holds no row that anybody waits for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use onetake_engine::{Reply, Stamped, StoreError, Swept};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::link::{self, Failed, Link};
use super::rows::time;
use super::shared::{LIVES_WITHIN, NOW};
use super::tally::{Counted, Tally};

/// How many pages a step looks at, at most.
const PAGES: i64 = 64;
/// How many rows a page may have.
const LINES: i64 = 291;
/// Before the first row of a table.
const FIRST: &str = "(0,0)";
/// A node that has shown no life for so long, in milliseconds, is forgotten.
const NODE_IS_GONE_AFTER: i64 = 7 * 24 * 60 * 60 * 1_000;

/// Where a round is, and what it has counted so far.
#[derive(Debug)]
struct Round {
    place: String,
    counted: HashMap<Vec<u8>, Counted>,
}

impl Round {
    fn new() -> Self {
        Self { place: FIRST.to_owned(), counted: HashMap::new() }
    }
}

/// The sweeper of one process.
pub(super) struct Sweeper {
    pub(super) link: Arc<tokio::sync::Mutex<Link>>,
    node: Uuid,
    round: Mutex<Round>,
    step: String,
    nodes: String,
    schema: String,
}

impl Sweeper {
    /// `ranges`: whether the server finds a range of pages without reading all of them.
    pub(super) fn new(
        link: Arc<tokio::sync::Mutex<Link>>,
        node: Uuid,
        schema: &str,
        ranges: bool,
    ) -> Self {
        Self {
            link,
            node,
            round: Mutex::new(Round::new()),
            step: step(schema, ranges),
            nodes: format!("DELETE FROM {schema}.nodes WHERE at < {NOW} - {NODE_IS_GONE_AFTER}"),
            schema: schema.to_owned(),
        }
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.round.lock().expect("invariant: no panic under the lock")
    }

    /// One step. At the end of a round `tally` learns what was counted.
    pub(super) async fn sweep(&self, limit: usize, tally: &Tally) -> Reply<Swept> {
        let mut link = self.link.lock().await;
        let after = self.round().place.clone();
        let until = page_of(&after) + PAGES;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let types = [
            (&after as _, Type::TEXT),
            (&until as _, Type::INT8),
            (&limit as _, Type::INT8),
            (&self.node as _, Type::UUID),
        ];
        let look = async |client: &mut Client| {
            let rows = client.query_typed(&self.step, &types).await;
            rows.map_err(|error| link::judge(&error))
        };
        let rows = link.work(look).await?;
        let Some(row) = rows.first() else {
            return Err(StoreError::Unavailable("the database says nothing".into()));
        };
        let (looked, gone, is_ours): (i64, i64, bool) = (row.get(1), row.get(2), row.get(4));
        let last: Option<String> = row.get(3);
        let done = !is_ours || (looked < limit && until >= row.get::<_, i64>(5));
        let ended = {
            let mut round = self.round();
            count(&mut round.counted, row);
            round.place = match last {
                Some(last) if looked == limit => last,
                Some(_) | None => format!("({until},0)"),
            };
            done.then(|| std::mem::replace(&mut *round, Round::new()))
        };
        if let Some(round) = ended.filter(|_| is_ours) {
            tally.replace(round.counted.clone());
            let end = async |client: &mut Client| self.publish(client, &round.counted).await;
            link.work(end).await?;
        }
        let removed = usize::try_from(gone).unwrap_or(0);
        Ok(Stamped { now: time(row.get(0)), value: Swept { removed, done } })
    }

    /// Tells the other nodes what was counted, and forgets nodes that are long gone.
    async fn publish(
        &self,
        client: &mut Client,
        counted: &HashMap<Vec<u8>, Counted>,
    ) -> Result<(), Failed> {
        let failed = |error| link::judge(&error);
        let tenants: Vec<_> = counted.keys().collect();
        let records: Vec<_> = counted.values().map(|one| one.records).collect();
        let bytes: Vec<_> = counted.values().map(|one| one.bytes).collect();
        let s = &self.schema;
        let insert = format!(
            "INSERT INTO {s}.tallies (tenant, records, bytes)
             SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[])
             ON CONFLICT (tenant) DO UPDATE SET records = excluded.records, bytes = excluded.bytes"
        );
        let tx = client.transaction().await.map_err(failed)?;
        let others = format!("DELETE FROM {s}.tallies WHERE NOT tenant = ANY ($1)");
        tx.query_typed(&others, &[(&tenants, Type::BYTEA_ARRAY)]).await.map_err(failed)?;
        let types = [
            (&tenants as _, Type::BYTEA_ARRAY),
            (&records as _, Type::INT8_ARRAY),
            (&bytes as _, Type::INT8_ARRAY),
        ];
        tx.query_typed(&insert, &types).await.map_err(failed)?;
        tx.query_typed(&self.nodes, &[]).await.map_err(failed)?;
        tx.commit().await.map_err(failed)
    }
}

/// The page of a place in a table.
fn page_of(place: &str) -> i64 {
    let page = place.trim_start_matches('(').split(',').next();
    page.and_then(|page| page.parse().ok()).unwrap_or(0)
}

/// Adds what a step saw of each tenant.
fn count(counted: &mut HashMap<Vec<u8>, Counted>, row: &Row) {
    let tenants: Vec<Vec<u8>> = row.get::<_, Option<_>>(6).unwrap_or_default();
    let records: Vec<i64> = row.get::<_, Option<_>>(7).unwrap_or_default();
    let bytes: Vec<i64> = row.get::<_, Option<_>>(8).unwrap_or_default();
    for ((tenant, records), bytes) in tenants.into_iter().zip(records).zip(bytes) {
        let one = counted.entry(tenant).or_default();
        one.records += records;
        one.bytes += bytes;
    }
}

fn step(s: &str, ranges: bool) -> String {
    // Before version 14 a range of pages would be looked for in all of them.
    let on_pages = if ranges {
        "ctid < ('(' || $2 || ',0)')::tid".to_owned()
    } else {
        format!(
            "ctid = ANY (ARRAY(SELECT ('(' || page || ',' || line || ')')::tid
                FROM generate_series($2 - {PAGES}, $2 - 1) page, generate_series(1, {LINES}) line))"
        )
    };
    // The last 32 bytes of a slot are its digest; what is before them is its tenant's. Rows that
    // somebody holds are left to the next round: who waits for nobody is in nobody's way, although
    // rows come in another order here than in a batch.
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now),
         mine AS MATERIALIZED (
            SELECT 1 FROM clock WHERE $4 = (
                SELECT node FROM {s}.nodes WHERE at > now - {LIVES_WITHIN}
                ORDER BY node LIMIT 1)),
         looked AS MATERIALIZED (
            SELECT ctid AS place, slot, write, kind IN (2, 3) AND until <= now AS ends,
                octet_length(body) + octet_length(slot) AS bytes
            FROM {s}.slots, clock
            WHERE EXISTS (SELECT 1 FROM mine) AND ctid > $1::text::tid AND {on_pages}
            ORDER BY ctid LIMIT $3),
         ended AS MATERIALIZED (
            SELECT o.slot, o.write FROM looked l JOIN {s}.slots o
                ON o.slot = l.slot AND o.write = l.write
            WHERE l.ends FOR UPDATE OF o SKIP LOCKED),
         gone AS (
            DELETE FROM {s}.slots o USING ended e
            WHERE o.slot = e.slot AND o.write = e.write RETURNING 1),
         tenants AS (
            SELECT substring(slot for octet_length(slot) - 32) AS tenant, count(*) AS records,
                sum(bytes)::bigint AS bytes
            FROM looked WHERE NOT ends GROUP BY 1)
         SELECT now, (SELECT count(*) FROM looked), (SELECT count(*) FROM gone),
            (SELECT place::text FROM looked ORDER BY place DESC LIMIT 1),
            EXISTS (SELECT 1 FROM mine),
            pg_relation_size('{s}.slots') / current_setting('block_size')::bigint,
            (SELECT array_agg(tenant ORDER BY tenant) FROM tenants),
            (SELECT array_agg(records ORDER BY tenant) FROM tenants),
            (SELECT array_agg(bytes ORDER BY tenant) FROM tenants)
         FROM clock"
    )
}
