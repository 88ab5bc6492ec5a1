//! The store for fleets: PostgreSQL, shared by any number of processes.
//!
//! Many operations share one round trip and one commit. The database keeps the time and holds every
//! record; this process remembers only how often its own claims were renewed. Nothing is answered
//! before its commit has returned, and what a broken connection leaves open is said to be unknown.

mod address;
mod error;
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
mod takeover;
mod tally;
mod values;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onetake_core::{Draft, Record, Slot, Tenant, Version, tenant_prefix};
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
pub use self::error::PostgresError;
use self::front::Front;
use self::ledger::Asked;
use self::link::{Dial, Failed, Link};
use self::listen::Watched;
use self::looks::Look;
pub use self::options::{PostgresOptions, is_schema_name};
use self::own::Own;
use self::pulse::Renewing;
use self::shared::{LIVES_WITHIN, NOW, Shared, Sql};
use self::swaps::{Op, Part};
use self::sweep::Sweeper;
use self::tally::Tally;
use crate::room::Room;
use crate::seal::MasterKey;

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

/// What a writer is asked. Renewals have a line of their own: they must not wait behind swaps.
struct Writing {
    swaps: mpsc::Sender<Op>,
    renewals: mpsc::Sender<Renewing>,
}

/// A store in a PostgreSQL database.
pub struct Postgres {
    writers: Vec<Writing>,
    looks: mpsc::Sender<Look>,
    ledgers: Vec<mpsc::Sender<Asked>>,
    sweeper: Sweeper,
    /// Where there is somebody to listen to.
    watched: Option<Arc<Watched>>,
    room: Room,
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
    Ok(Arc::new(Dial {
        address: Address::read(url)?,
        connect_within: options.connect_within,
        reply_within: options.reply_within,
        accept_loss: options.accept_loss,
        timeline: AtomicI64::new(0),
        syncs: AtomicBool::new(false),
        open: Arc::default(),
    }))
}

fn unreachable(failed: Failed) -> PostgresError {
    match failed {
        Failed::Unfit(error) => error,
        Failed::Refused(_) | Failed::Again | Failed::Held | Failed::Unsure => {
            PostgresError::Unreachable(failed.into())
        }
    }
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
        let seal = mark::agree(client, &options.schema, &options.keys, options.migrates);
        let seal = Arc::new(within(&options, seal).await?);
        let shared = Shared {
            node: Uuid::now_v7(),
            own: Own::default(),
            front: Front::new(options.front_bytes),
            tally: Tally::new(options.most, options.tenant_most),
            sql: Sql::new(&options.schema),
            seal,
            dial: Arc::clone(&dial_up),
            clock: Mutex::default(),
        };
        within(&options, fitness::explain(client, &shared.sql)).await?;
        within(&options, introduce(client, &shared)).await?;
        shared.count(client).await.map_err(unreachable)?;
        let shared = Arc::new(shared);
        let writers = (0..options.writers).map(|index| {
            let (swaps, asked) = mpsc::channel(options.queue_max);
            let (renewals, renewing) = mpsc::channel(options.queue_max);
            let part = Part { index, count: options.writers };
            tokio::spawn(swaps::write(Arc::clone(&shared), part, asked, renewing, link()));
            Writing { swaps, renewals }
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
        let (seal, schema) = (Arc::clone(&shared.seal), options.schema.clone());
        let following = tokio::spawn(mark::follow(seal, Arc::clone(&first), schema));
        background.push(following.abort_handle());
        let sweeper = Sweeper::new(first, shared.node, &options.schema, server.ranges);
        let watched = listening.map(|dial| {
            let watched = Arc::new(Watched::default());
            let channel = shared.sql.channel.clone();
            let listening = listen::listen(Arc::downgrade(&watched), dial, channel);
            background.push(tokio::spawn(listening).abort_handle());
            watched
        });
        let room = Room::new(options.queue_kib_max);
        Ok(Self { writers, looks, ledgers, sweeper, watched, room, shared, background })
    }

    /// The statements that make the tables of the store at `url`, or bring them up to date; none
    /// when they are. Unless `dry_run`, they are carried out, in one transaction.
    ///
    /// # Errors
    /// A [`PostgresError`] that says what is in the way.
    pub async fn migrate(
        url: &str,
        options: &PostgresOptions,
        dry_run: bool,
    ) -> Result<Vec<String>, PostgresError> {
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
        within(options, mark::agree(client, &options.schema, &options.keys, true)).await?;
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
            "SELECT greatest(c.reltuples::bigint,
                    (SELECT coalesce(sum(records), 0)::bigint FROM {s}.tallies), 0),
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
            return Err(too_many());
        }
        told.await.unwrap_or_else(|_| unsure())
    }

    fn writer(&self, slot: &[u8]) -> &Writing {
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
    let now = beat.map_err(PostgresError::Schema)?.first().map_or(0, |row| row.get(0));
    shared.note_now(now);
    Ok(())
}

fn too_many() -> StoreError {
    StoreError::Unavailable("too many operations wait for the database".into())
}

fn lost<T>() -> Reply<T> {
    Err(StoreError::Unavailable("the store is closing".into()))
}

impl Slots for Postgres {
    async fn read(&self, slot: &Slot) -> Reply<Option<Arc<Record>>> {
        self.shared.seal.is_ours()?;
        let slot = self.shared.key(slot);
        Self::ask(&self.looks, |ear| Look::Slot { slot, ear }, lost).await
    }

    async fn swap(&self, expected: Option<Version>, next: Draft) -> Reply<Swap> {
        self.shared.seal.is_ours()?;
        if next.outcome_weight() > Tx::VALUE_BYTES_MAX {
            return Err(StoreError::TooLarge("a value has more than 16 MiB"));
        }
        let slot = self.shared.key(next.address.slot());
        if expected.is_none() {
            self.shared.tally.admit(rows::tenant_of(&slot))?;
        }
        let room = self.room.take(next.outcome_weight()).map_err(|_| too_many())?;
        let to = &self.writer(&slot).swaps;
        let unsure = || Failed::Unsure.reply(Swap::Unknown);
        Self::ask(to, |ear| Op { expected, next, ear, room }, unsure).await
    }

    async fn renew(&self, slot: &Slot, expected: Version, lease: Duration) -> Reply<Swap> {
        let slot = self.shared.key(slot);
        let unsure = || Failed::Unsure.reply(Swap::Unknown);
        let to = &self.writer(&slot).renewals;
        let renewing = |ear| Renewing { slot, expected, lease, ear };
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
        self.shared.seal.is_ours()?;
        tx.within_bounds()?;
        // One place, one ledger, as far as that goes: fewer locks are waited for.
        let anchor = format!("{:?}", tx.checks().first());
        let to = &self.ledgers[part(anchor.as_bytes(), self.ledgers.len())];
        let unsure = || Failed::Unsure.reply(Commit::Unknown);
        let weight = tx.weight();
        let room = self.room.take(weight).map_err(|_| too_many())?;
        Self::ask(to, |ear| Asked { tx, weight, _room: room, ear }, unsure).await
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
