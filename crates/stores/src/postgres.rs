//! The store for fleets: PostgreSQL, shared by any number of processes.
//!
//! Many operations share one round trip and one commit. The database keeps the time and holds every
//! record; this process remembers only how often its own claims were renewed. Nothing is answered
//! before its commit has returned, and what a broken connection leaves open is said to be unknown.

mod ledger;
mod link;
mod looks;
mod options;
mod own;
mod rows;
mod schema;
mod shared;
mod swaps;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onetake_core::{Draft, Record, Slot, Tenant, Version, tenant_prefix};
use onetake_engine::{
    Commit, Doc, Document, Entry, Found, Journal, Lane, Page, Place, Position, Reply, Slots,
    Stamped, StoreError, Swap, Swept, Tx,
};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config};
use uuid::Uuid;

use self::ledger::Asked;
use self::link::{Failed, Link};
use self::looks::Look;
pub use self::options::PostgresOptions;
use self::own::Own;
use self::rows::time;
use self::schema::SchemaError;
use self::shared::{NOW, Shared, Sql};
use self::swaps::Op;

/// Why a PostgreSQL store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// The address is none.
    #[error("not the address of a PostgreSQL database: {0}")]
    Address(#[source] tokio_postgres::Error),
    /// The schema needs a name without quotes.
    #[error("a schema is named with up to 63 lower-case letters, digits and underscores")]
    SchemaName,
    /// The database cannot be reached.
    #[error("{0}")]
    Unreachable(StoreError),
    /// The tables are of a later release.
    #[error("the tables are of version {found}; this release knows up to {known}")]
    Newer {
        /// The version of the tables.
        found: i32,
        /// The last that this release knows.
        known: i32,
    },
    /// The tables could not be made.
    #[error("the tables cannot be made or brought up to date: {0}")]
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

/// A store in a PostgreSQL database.
pub struct Postgres {
    writers: Vec<mpsc::Sender<Op>>,
    looks: mpsc::Sender<Look>,
    ledgers: Vec<mpsc::Sender<Asked>>,
    sweeper: tokio::sync::Mutex<Link>,
    swept: Mutex<Vec<u8>>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").field("node", &self.shared.node).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Opens the store at `url`, and makes or updates its tables.
    ///
    /// # Errors
    /// A [`PostgresError`] that says what is in the way.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, PostgresError> {
        if !options.has_schema_name() {
            return Err(PostgresError::SchemaName);
        }
        let config: Config = url.parse().map_err(PostgresError::Address)?;
        let config = Arc::new(config);
        let link = || Link::new(Arc::clone(&config), options.connect_within);
        let mut first = link();
        let unreachable = |failed: Failed| PostgresError::Unreachable(failed.into());
        let client = first.client().await.map_err(unreachable)?;
        schema::migrate(client, &options.schema).await?;
        let node = Uuid::now_v7();
        let shared = Shared { node, own: Own::default(), sql: Sql::new(&options.schema) };
        introduce(client, &shared).await?;
        let shared = Arc::new(shared);
        let writers = (0..options.writers).map(|_| {
            let (to, from) = mpsc::channel(options.queue_max);
            tokio::spawn(swaps::write(Arc::clone(&shared), from, link()));
            to
        });
        let writers = writers.collect();
        let (looks, asked) = mpsc::channel(options.queue_max);
        let asked = Arc::new(tokio::sync::Mutex::new(asked));
        for _ in 0..options.readers {
            tokio::spawn(looks::show(Arc::clone(&shared), Arc::clone(&asked), link()));
        }
        let ledgers = (0..options.ledgers).map(|_| {
            let (to, from) = mpsc::channel(options.queue_max);
            tokio::spawn(ledger::keep(Arc::clone(&shared), from, link()));
            to
        });
        let ledgers = ledgers.collect();
        let sweeper = tokio::sync::Mutex::new(first);
        Ok(Self { writers, looks, ledgers, sweeper, swept: Mutex::default(), shared })
    }

    /// Asks one of the workers, and waits for its answer.
    async fn ask<W, T>(
        to: &mpsc::Sender<W>,
        work: impl FnOnce(oneshot::Sender<Reply<T>>) -> W + Send,
        unsure: impl FnOnce() -> Reply<T>,
    ) -> Reply<T> {
        let (ear, told) = oneshot::channel();
        if to.try_send(work(ear)).is_err() {
            return Err(StoreError::Unavailable(
                "too many operations wait for the database".into(),
            ));
        }
        told.await.unwrap_or_else(|_| unsure())
    }

    fn writer(&self, slot: &[u8]) -> &mpsc::Sender<Op> {
        &self.writers[part(slot, self.writers.len())]
    }
}

/// Which of so many has these bytes; always the same.
fn part(bytes: &[u8], count: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    usize::try_from(hasher.finish() % (count as u64)).unwrap_or(0)
}

/// Puts this process among the nodes.
async fn introduce(client: &Client, shared: &Shared) -> Result<(), PostgresError> {
    let beat = client.query_typed(&shared.sql.beat, &[(&shared.node, Type::UUID)]).await;
    beat.map(drop).map_err(PostgresError::Schema)
}

fn lost<T>() -> Reply<T> {
    Err(StoreError::Unavailable("the store is closing".into()))
}

impl Slots for Postgres {
    async fn read(&self, slot: &Slot) -> Reply<Option<Arc<Record>>> {
        let slot = rows::key(slot);
        Self::ask(&self.looks, |ear| Look::Slot { slot, ear }, lost).await
    }

    async fn swap(&self, expected: Option<Version>, next: Draft) -> Reply<Swap> {
        if next.outcome_weight() > Tx::VALUE_BYTES_MAX {
            return Err(StoreError::TooLarge("a value has more than 16 MiB"));
        }
        let to = self.writer(&rows::key(next.address.slot()));
        let unsure = || Ok(Stamped { now: time(0), value: Swap::Unknown });
        Self::ask(to, |ear| Op::Swap { expected, next, ear }, unsure).await
    }

    async fn renew(&self, slot: &Slot, expected: Version, lease: Duration) -> Reply<Swap> {
        let slot = rows::key(slot);
        let to = self.writer(&slot);
        let unsure = || Ok(Stamped { now: time(0), value: Swap::Unknown });
        Self::ask(to, |ear| Op::Renew { slot, expected, lease, ear }, unsure).await
    }

    async fn sweep(&self, limit: usize) -> Reply<Swept> {
        let after = self.swept.lock().expect("invariant: no panic under the lock").clone();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let s = &self.shared.sql.schema;
        let sql = format!(
            "WITH clock AS MATERIALIZED (SELECT {NOW} AS now),
             looked AS MATERIALIZED (
                SELECT slot, write, kind, until FROM {s}.slots WHERE slot > $1
                ORDER BY slot LIMIT $2),
             gone AS (
                DELETE FROM {s}.slots o USING looked l, clock
                WHERE o.slot = l.slot AND o.write = l.write AND l.kind IN (2, 3) AND l.until <= now
                RETURNING 1)
             SELECT now, (SELECT count(*) FROM looked), (SELECT count(*) FROM gone),
                (SELECT slot FROM looked ORDER BY slot DESC LIMIT 1) FROM clock"
        );
        let mut link = self.sweeper.lock().await;
        let rows = {
            let client = link.client().await?;
            let types = [(&after as _, Type::BYTEA), (&limit as _, Type::INT8)];
            client.query_typed(&sql, &types).await
        };
        let rows = rows.map_err(|error| {
            link.drop_client();
            StoreError::from(link::judge(&error))
        })?;
        drop(link);
        let Some(row) = rows.first() else { return lost() };
        let (looked, gone): (i64, i64) = (row.get(1), row.get(2));
        let done = looked < limit;
        let last: Option<Vec<u8>> = row.get(3);
        let next = if done { Vec::new() } else { last.unwrap_or_default() };
        *self.swept.lock().expect("invariant: no panic under the lock") = next;
        let removed = usize::try_from(gone).unwrap_or(0);
        Ok(Stamped { now: time(row.get(0)), value: Swept { removed, done } })
    }
}

impl Journal for Postgres {
    async fn commit(&self, tx: Tx) -> Reply<Commit> {
        tx.within_bounds()?;
        // One place, one ledger, as far as that goes: fewer locks are waited for.
        let anchor = format!("{:?}", tx.checks().first());
        let to = &self.ledgers[part(anchor.as_bytes(), self.ledgers.len())];
        let unsure = || Ok(Stamped { now: time(0), value: Commit::Unknown });
        Self::ask(to, |ear| Asked { tx, ear }, unsure).await
    }

    async fn fetch(&self, places: &[Place]) -> Reply<Vec<Found>> {
        let places = places.to_vec();
        Self::ask(&self.looks, |ear| Look::Fetch { places, ear }, lost).await
    }

    async fn scan(
        &self,
        space: &'static str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Reply<Page<(Doc, Document)>> {
        let (prefix, after) = (prefix.to_vec(), after.map(<[u8]>::to_vec));
        Self::ask(&self.looks, |ear| Look::Scan { space, prefix, after, limit, ear }, lost).await
    }

    async fn scan_slots(
        &self,
        tenant: Option<&Tenant>,
        after: Option<&Slot>,
        limit: usize,
    ) -> Reply<Page<Arc<Record>>> {
        let prefix = tenant.map(tenant_prefix).unwrap_or_default();
        let after = after.map(rows::key);
        Self::ask(&self.looks, |ear| Look::Slots { prefix, after, limit, ear }, lost).await
    }

    async fn read_lane(&self, lane: &Lane, after: Position, limit: usize) -> Reply<Page<Entry>> {
        let lane = lane.0.to_vec();
        Self::ask(&self.looks, |ear| Look::Lane { lane, after, limit, ear }, lost).await
    }
}
