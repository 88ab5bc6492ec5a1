//! The store for fleets: PostgreSQL, shared by any number of processes.
//!
//! Many operations share one round trip and one commit. The database keeps the time and holds every
//! record; this process remembers only how often its own claims were renewed. Nothing is answered
//! before its commit has returned, and what a broken connection leaves open is said to be unknown.

mod address;
mod fitness;
mod front;
pub mod inside;
mod ledger;
mod link;
mod listen;
mod looks;
mod mark;
mod options;
mod own;
mod pulse;
mod rows;
mod schema;
mod shared;
mod swaps;
mod sweep;
mod tally;
mod values;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onetake_core::{Code, Draft, Record, Slot, Tenant, Version, tenant_prefix};
use onetake_engine::{
    Commit, Doc, Document, Entry, Found, Journal, Lane, Page, Place, Position, Reply, Slots,
    Stamped, StoreError, Swap, Swept, Tx,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use uuid::Uuid;

use self::address::Address;
use self::front::Front;
use self::ledger::Asked;
use self::link::{Dial, Failed, Link};
use self::listen::Watched;
use self::looks::Look;
pub use self::options::{PostgresOptions, is_schema_name};
use self::own::Own;
use self::pulse::Renewing;
use self::schema::SchemaError;
use self::shared::{LIVES_WITHIN, NOW, Shared, Sql};
use self::swaps::{Op, Part};
use self::sweep::Sweeper;
use self::tally::Tally;
use crate::seal::{MasterKey, SealError};

/// Why a PostgreSQL store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// The address is none.
    #[error("not the address of a PostgreSQL database: {0}")]
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
    /// The tables are sealed otherwise than with the keys that were given.
    #[error(transparent)]
    Seal(#[from] SealError),
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
            Self::Unmigrated | Self::Newer { .. } | Self::Schema(_) => Code::StoreForeign,
        }
    }
}

/// Numbers of a PostgreSQL store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresStats {
    /// Records, as the database estimates.
    pub records_about: u64,
    /// Bytes of all tables and indexes.
    pub bytes: u64,
    /// Processes that hold claims or began lately.
    pub nodes: u64,
    /// Finished records in the memory of this process.
    pub in_memory: u64,
}

/// A store in a PostgreSQL database.
pub struct Postgres {
    writers: Vec<mpsc::Sender<Op>>,
    looks: mpsc::Sender<Look>,
    ledgers: Vec<mpsc::Sender<Asked>>,
    sweeper: Sweeper,
    /// Where there is somebody to listen to.
    watched: Option<Arc<Watched>>,
    shared: Arc<Shared>,
    /// What would go on although nobody asks any more.
    background: Vec<AbortHandle>,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.background.iter().for_each(AbortHandle::abort);
    }
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").field("node", &self.shared.node).finish_non_exhaustive()
    }
}

/// How the connections of a store are made.
fn dial(url: &str, options: &PostgresOptions) -> Result<Arc<Dial>, PostgresError> {
    let (connect_within, reply_within) = (options.connect_within, options.reply_within);
    let (address, timeline) = (Address::read(url)?, AtomicI64::new(0));
    Ok(Arc::new(Dial { address, connect_within, reply_within, timeline }))
}

fn unreachable(failed: Failed) -> PostgresError {
    PostgresError::Unreachable(failed.into())
}

impl Postgres {
    /// Opens the store at `url`, and makes or updates its tables.
    ///
    /// # Errors
    /// A [`PostgresError`] that says what is in the way.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, PostgresError> {
        if !is_schema_name(&options.schema) {
            return Err(PostgresError::SchemaName);
        }
        let dial_up = dial(url, &options)?;
        let listening = options.listen_url.as_deref().map(|url| dial(url, &options)).transpose()?;
        let link = || Link::new(Arc::clone(&dial_up));
        let mut first = link();
        let client = first.client().await.map_err(unreachable)?;
        let mut server = within(&options, fitness::ask(client, options.accept_loss)).await?;
        server.ranges &= !options.old_scans;
        if options.migrates {
            schema::migrate(client, &options.schema).await?;
        } else if !schema::missing(client, &options.schema).await?.is_empty() {
            return Err(PostgresError::Unmigrated);
        }
        let seal = mark::agree(client, &options.schema, &options.keys);
        let seal = Arc::new(within(&options, seal).await?);
        let shared = Shared {
            node: Uuid::now_v7(),
            own: Own::default(),
            front: Front::new(options.front_bytes),
            tally: Tally::new(options.most, options.tenant_most),
            sql: Sql::new(&options.schema, &server),
            seal,
            clock: Mutex::default(),
        };
        within(&options, fitness::explain(client, &shared.sql)).await?;
        within(&options, introduce(client, &shared)).await?;
        shared.count(client).await.map_err(unreachable)?;
        let shared = Arc::new(shared);
        let writers = (0..options.writers).map(|index| {
            let (to, from) = mpsc::channel(options.queue_max);
            let part = Part { index, count: options.writers };
            tokio::spawn(swaps::write(Arc::clone(&shared), part, from, link()));
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
        let first = Arc::new(tokio::sync::Mutex::new(first));
        let beating = tokio::spawn(pulse::beat(Arc::downgrade(&shared), Arc::clone(&first)));
        let mut background = vec![beating.abort_handle()];
        if !options.keys.is_empty() {
            let (seal, schema) = (Arc::clone(&shared.seal), options.schema.clone());
            let following = tokio::spawn(mark::follow(seal, Arc::clone(&first), schema));
            background.push(following.abort_handle());
        }
        let sweeper = Sweeper::new(first, shared.node, &options.schema, server.ranges);
        let watched = listening.map(|dial| {
            let watched = Arc::new(Watched::default());
            let channel = shared.sql.channel.clone();
            let listening = listen::listen(Arc::downgrade(&watched), dial, channel);
            background.push(tokio::spawn(listening).abort_handle());
            watched
        });
        Ok(Self { writers, looks, ledgers, sweeper, watched, shared, background })
    }

    /// The statements that would make the tables of the store at `url`, or bring them up to date;
    /// none when they are. Unless `dry_run`, they are carried out.
    ///
    /// # Errors
    /// A [`PostgresError`] that says what is in the way.
    pub async fn migrate(
        url: &str,
        options: &PostgresOptions,
        dry_run: bool,
    ) -> Result<Vec<&'static str>, PostgresError> {
        if !is_schema_name(&options.schema) {
            return Err(PostgresError::SchemaName);
        }
        let mut link = Link::new(dial(url, options)?);
        let client = link.client().await.map_err(unreachable)?;
        within(options, fitness::ask(client, options.accept_loss)).await?;
        if dry_run {
            return Ok(schema::missing(client, &options.schema).await?);
        }
        let made = schema::migrate(client, &options.schema).await?;
        within(options, mark::agree(client, &options.schema, &options.keys)).await?;
        Ok(made)
    }

    /// Seals with a new key from now on, in this process at once and in the others when they learn
    /// of it, within seconds; what older keys sealed stays readable. `master` wraps it: give it to
    /// all processes before.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] when the store is not sealed; otherwise when the database does not
    /// answer, or another process changed the key ring to one that this one cannot open.
    pub async fn rotate(&self, master: &MasterKey) -> Result<(), StoreError> {
        let mut link = self.sweeper.link.lock().await;
        mark::rotate(&self.shared.seal, &mut link, &self.shared.sql.schema, master).await
    }

    /// The numbers of the store. Nothing is counted: the database keeps estimates.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn stats(&self) -> Result<PostgresStats, StoreError> {
        let s = &self.shared.sql.schema;
        let sql = format!(
            "SELECT greatest(c.reltuples, 0)::bigint,
                (SELECT coalesce(sum(pg_total_relation_size(t.oid)), 0)::bigint FROM pg_class t
                    WHERE t.relnamespace = c.relnamespace AND t.relkind = 'r'),
                (SELECT count(*) FROM {s}.nodes WHERE at > {NOW} - $1)
             FROM pg_class c WHERE c.oid = '{s}.slots'::regclass"
        );
        let mut link = self.sweeper.link.lock().await;
        let asked = async |client: &mut Client| {
            let rows = client.query_typed(&sql, &[(&LIVES_WITHIN, Type::INT8)]).await;
            rows.map_err(|error| link::judge(&error))
        };
        let rows = link.work(asked).await?;
        let number = |at: usize| {
            rows.first().map_or(0, |row| u64::try_from(row.get::<_, i64>(at)).unwrap_or(0))
        };
        let in_memory = self.shared.front.len();
        Ok(PostgresStats {
            records_about: number(0),
            bytes: number(1),
            nodes: number(2),
            in_memory,
        })
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

/// Waits no longer than a reply may take. Making tables may take longer; nothing else may.
async fn within<T>(
    options: &PostgresOptions,
    work: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, PostgresError> {
    let silent = "the database does not answer, or waits for a standby that does not";
    let silent = || PostgresError::Unreachable(StoreError::Unavailable(silent.into()));
    tokio::time::timeout(options.reply_within, work).await.unwrap_or_else(|_| Err(silent()))
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
        let slot = self.shared.key(slot);
        Self::ask(&self.looks, |ear| Look::Slot { slot, ear }, lost).await
    }

    async fn swap(&self, expected: Option<Version>, next: Draft) -> Reply<Swap> {
        if next.outcome_weight() > Tx::VALUE_BYTES_MAX {
            return Err(StoreError::TooLarge("a value has more than 16 MiB"));
        }
        let slot = self.shared.key(next.address.slot());
        if expected.is_none() {
            self.shared.tally.admit(rows::tenant_of(&slot))?;
        }
        let to = self.writer(&slot);
        let unsure = || Failed::Unsure.reply(Swap::Unknown);
        Self::ask(to, |ear| Op::Swap { expected, next, ear }, unsure).await
    }

    async fn renew(&self, slot: &Slot, expected: Version, lease: Duration) -> Reply<Swap> {
        let slot = self.shared.key(slot);
        let unsure = || Failed::Unsure.reply(Swap::Unknown);
        let to = self.writer(&slot);
        let renewing = |ear| Op::Renew(Renewing { slot, expected, lease, ear });
        Self::ask(to, renewing, unsure).await
    }

    async fn sweep(&self, limit: usize) -> Reply<Swept> {
        self.sweeper.sweep(limit, &self.shared.tally).await
    }

    fn at_hand(&self, slot: &Slot) -> Option<Stamped<Arc<Record>>> {
        self.shared.front.look(&self.shared.key(slot))
    }

    async fn settled(&self, slot: &Slot) {
        let slot = self.shared.key(slot);
        let seat = self.watched.as_ref().and_then(|watched| watched.join(&slot));
        let Some((mut watching, is_first)) = seat else { return std::future::pending().await };
        if is_first && !self.mark(slot).await {
            return;
        }
        watching.told().await;
    }

    fn remembered_elsewhere(&self) -> Duration {
        front::CONFIRMED_FOR
    }
}

impl Postgres {
    /// Marks the claim in `slot` as waited for. `false`: there is none, or not any more.
    async fn mark(&self, slot: Vec<u8>) -> bool {
        let (ear, told) = oneshot::channel();
        let is_sent = self.looks.try_send(Look::Mark { slot, ear }).is_ok();
        !is_sent || told.await.unwrap_or(true)
    }
}

impl Journal for Postgres {
    async fn commit(&self, tx: Tx) -> Reply<Commit> {
        tx.within_bounds()?;
        // One place, one ledger, as far as that goes: fewer locks are waited for.
        let anchor = format!("{:?}", tx.checks().first());
        let to = &self.ledgers[part(anchor.as_bytes(), self.ledgers.len())];
        let unsure = || Failed::Unsure.reply(Commit::Unknown);
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
        let after = after.map(|slot| self.shared.key(slot));
        Self::ask(&self.looks, |ear| Look::Slots { prefix, after, limit, ear }, lost).await
    }

    async fn read_lane(&self, lane: &Lane, after: Position, limit: usize) -> Reply<Page<Entry>> {
        let lane = lane.0.to_vec();
        Self::ask(&self.looks, |ear| Look::Lane { lane, after, limit, ear }, lost).await
    }
}
