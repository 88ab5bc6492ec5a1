//! Any store that is built in, behind one name. Forwards; decides nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onetake::core::{Draft, Record, Slot, Tenant, Version};
use onetake::engine::{
    Commit, Doc, Document, Entry, Found, Journal, Lane, Memory, Page, Place, Position, Reply,
    Slots, Stamped, StoreError, Swap, Swept, Tx,
};
use onetake::stores::seal::MasterKey;
use onetake::stores::{self, Embedded, Postgres, Redis};
use onetake_console::{Backup, Rotated, Stats, Upkeep, UpkeepError};

use super::Address;

/// How long one waits until all records are counted.
const COUNTED_WITHIN: Duration = Duration::from_secs(10);

/// Any store that is built in.
#[derive(Debug)]
pub(crate) enum AnyStore {
    /// In memory.
    Memory(Box<Memory>),
    /// In one directory.
    Embedded(Embedded),
    /// In a database, and where.
    Postgres(Box<Postgres>, Address),
    /// In Redis. Slots only.
    Redis(Box<Redis>),
}

impl AnyStore {
    /// Whether it keeps more than slots: what operators did, documents, lanes.
    pub(crate) const fn has_journal(&self) -> bool {
        !matches!(self, Self::Redis(_))
    }

    /// Whether no other process can have it: what is under way in it is this one's, or nobody's.
    pub(crate) const fn is_alone(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Embedded(_))
    }
}

/// What a store of slots only says of everything else.
const SLOTS_ONLY: StoreError = StoreError::Unsupported(
    "Redis keeps slots only; listing, resolving, releasing and purging keys need an embedded \
     store or PostgreSQL",
);

/// Does the same with whichever store it is. A new store is one more line here.
macro_rules! each {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            AnyStore::Memory($store) => $call,
            AnyStore::Embedded($store) => $call,
            AnyStore::Postgres($store, _) => $call,
            AnyStore::Redis($store) => $call,
        }
    };
}

/// The same with whichever store has a journal.
macro_rules! each_journal {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            AnyStore::Memory($store) => $call,
            AnyStore::Embedded($store) => $call,
            AnyStore::Postgres($store, _) => $call,
            AnyStore::Redis(_) => Err(SLOTS_ONLY),
        }
    };
}

impl Slots for AnyStore {
    fn at_hand(&self, slot: &Slot) -> Option<Stamped<Arc<Record>>> {
        each!(self, store => store.at_hand(slot))
    }

    async fn read(&self, slot: &Slot) -> Reply<Option<Arc<Record>>> {
        each!(self, store => store.read(slot).await)
    }

    async fn swap(&self, expected: Option<Version>, next: Draft) -> Reply<Swap> {
        each!(self, store => store.swap(expected, next).await)
    }

    async fn renew(&self, slot: &Slot, expected: Version, lease: Duration) -> Reply<Swap> {
        each!(self, store => store.renew(slot, expected, lease).await)
    }

    async fn sweep(&self, limit: usize) -> Reply<Swept> {
        each!(self, store => store.sweep(limit).await)
    }

    fn forgets_by_itself(&self) -> bool {
        each!(self, store => store.forgets_by_itself())
    }

    async fn settled(&self, slot: &Slot) {
        each!(self, store => store.settled(slot).await);
    }

    fn remembered_elsewhere(&self) -> Duration {
        each!(self, store => store.remembered_elsewhere())
    }
}

impl Journal for AnyStore {
    async fn commit(&self, tx: Tx) -> Reply<Commit> {
        each_journal!(self, store => store.commit(tx).await)
    }

    async fn fetch(&self, places: &[Place]) -> Reply<Vec<Found>> {
        each_journal!(self, store => store.fetch(places).await)
    }

    async fn scan(
        &self,
        space: &'static str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Reply<Page<(Doc, Document)>> {
        each_journal!(self, store => store.scan(space, prefix, after, limit).await)
    }

    async fn scan_slots(
        &self,
        tenant: Option<&Tenant>,
        after: Option<&Slot>,
        limit: usize,
    ) -> Reply<Page<Arc<Record>>> {
        each_journal!(self, store => store.scan_slots(tenant, after, limit).await)
    }

    async fn read_lane(&self, lane: &Lane, after: Position, limit: usize) -> Reply<Page<Entry>> {
        each_journal!(self, store => store.read_lane(lane, after, limit).await)
    }
}

impl Upkeep for AnyStore {
    async fn stats(&self) -> Result<Stats, UpkeepError> {
        match self {
            Self::Memory(store) => store.stats().await,
            Self::Embedded(store) => {
                // After a crash records are counted again. A wrong number is worse than a late one,
                // and a store that cannot count shows that it has not.
                let _ = tokio::time::timeout(COUNTED_WITHIN, store.counted()).await;
                Ok(numbers(&store.stats()))
            }
            Self::Postgres(store, address) => {
                let stats = store.stats().await?;
                let numbers = [
                    ("records_about", stats.records_about),
                    ("disk_bytes", stats.bytes),
                    ("nodes", stats.nodes),
                    ("in_memory", stats.in_memory),
                ];
                let numbers = numbers.map(|(name, number)| (name.to_owned(), number));
                Ok(Stats { store: address.to_string(), numbers: BTreeMap::from(numbers) })
            }
            Self::Redis(_) => Err(UpkeepError::NotSupported("ask Redis itself: INFO, DBSIZE")),
        }
    }

    async fn backup(&self, to: &Path) -> Result<Backup, UpkeepError> {
        match self {
            Self::Memory(store) => store.backup(to).await,
            Self::Embedded(store) => {
                let copied = store.backup(to).await;
                let copied = copied.map_err(|error| {
                    if matches!(error, stores::OpenError::Damaged { .. }) {
                        return error.into_store_error().into();
                    }
                    UpkeepError::Path(error.to_string())
                })?;
                Ok(Backup { path: to.display().to_string(), bytes: copied.bytes })
            }
            Self::Postgres(..) | Self::Redis(_) => Err(UpkeepError::NotSupported(
                "a server is copied by its own means: pg_dump, a base backup, BGSAVE",
            )),
        }
    }

    async fn rotate(&self) -> Result<Rotated, UpkeepError> {
        match self {
            Self::Memory(store) => store.rotate().await,
            Self::Embedded(store) => rotate(async |master| store.rotate(master).await).await,
            Self::Postgres(store, _) => rotate(async |master| store.rotate(master).await).await,
            Self::Redis(store) => rotate(async |master| store.rotate(master).await).await,
        }
    }
}

/// Seals with a new key, under the master key that the environment or its file has by now.
async fn rotate(
    with: impl AsyncFnOnce(&MasterKey) -> Result<(), StoreError>,
) -> Result<Rotated, UpkeepError> {
    let keys = super::master_keys().map_err(|error| UpkeepError::Path(error.to_string()))?;
    let Some(master) = keys.first() else {
        return Err(UpkeepError::NotSupported("no master key is configured"));
    };
    with(master).await?;
    Ok(Rotated { master: master.id().to_string() })
}

/// The numbers of an embedded store, each under its name.
fn numbers(stats: &stores::upkeep::Stats) -> Stats {
    let mut numbers = BTreeMap::from(
        [
            ("records", stats.records),
            ("bytes", stats.bytes),
            ("tenants", stats.tenants.len() as u64),
            ("counted", u64::from(stats.counted)),
            ("in_memory", stats.in_memory as u64),
            ("loads", stats.loads),
            ("queued", stats.queued as u64),
            ("batches", stats.batches),
            ("written", stats.written),
            ("expired_removed", stats.expired),
            ("disk_bytes", stats.disk_bytes),
            ("opened_times", stats.boot),
            ("sealed", u64::from(stats.sealed)),
            ("lost", u64::from(stats.lost.is_some())),
        ]
        .map(|(name, number)| (name.to_owned(), number)),
    );
    numbers.extend(stats.free_bytes.map(|bytes| ("free_bytes".to_owned(), bytes)));
    Stats { store: format!("embedded:{}", stats.folder.display()), numbers }
}
