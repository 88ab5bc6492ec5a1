//! Which store a program runs on: the one place that reads a store's URL and opens what it names.
//!
//! Knows every store by name and no rule of any. A store that is not built in is said so, never
//! replaced by another.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use onetake::core::{Code, Draft, Record, Slot, Tenant, Version};
use onetake::engine::{
    Commit, Doc, Document, Entry, Found, Journal, Lane, Memory, Page, Place, Position, Reply,
    Slots, Stamped, Swap, Swept, Tx,
};
use onetake::stores::seal::MasterKey;
use onetake::stores::{self, Embedded, Options};
use onetake_console::{Backup, Rotated, Stats, Upkeep, UpkeepError};

use crate::check::{CheckReport, Finding, Severity};
use crate::config::StoreConfig;

/// Where the master key of a sealed store is: the key itself, or with `_FILE` the path of it.
const KEY: &str = "ONETAKE_STORE__KEY";
/// The key before it, while it is being replaced.
const OLD_KEY: &str = "ONETAKE_STORE__OLD_KEY";
/// The store that is used when none is named.
pub(crate) const DEFAULT_URL: &str = "embedded:./onetake-data";

/// Where the records are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// In the memory of this process; gone with it.
    Memory,
    /// In one directory, for one process at a time.
    Embedded(PathBuf),
}

impl FromStr for StoreUrl {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let unknown = || OpenError::Url("use `embedded:PATH` or `memory:`".to_owned());
        match text.split_once(':').ok_or_else(unknown)? {
            ("memory", "") => Ok(Self::Memory),
            ("embedded", "") => Err(OpenError::Url("`embedded:` needs a path".to_owned())),
            ("embedded", path) => Ok(Self::Embedded(path.into())),
            ("postgres" | "postgresql", _) => Err(OpenError::NotBuiltIn("postgres")),
            ("redis" | "rediss", _) => Err(OpenError::NotBuiltIn("redis")),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Embedded(path) => write!(f, "embedded:{}", path.display()),
        }
    }
}

impl StoreUrl {
    /// The directory of the store, where it has one.
    pub(crate) fn directory(&self) -> Option<&Path> {
        match self {
            Self::Memory => None,
            Self::Embedded(path) => Some(path),
        }
    }
}

/// Whether a store may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// It must be there: looking at a store never makes one.
    Existing,
    /// It is made where it is not there yet.
    OrNew,
}

/// Why there is no store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenError {
    /// The URL names no store.
    #[error("not the URL of a store: {0}")]
    Url(String),
    /// This program was built without it.
    #[error("the {0} store is not built in yet")]
    NotBuiltIn(&'static str),
    /// There is nothing at its place.
    #[error("there is no store at {}; name one with `--store embedded:PATH`", .0.display())]
    Missing(PathBuf),
    /// Another process holds it.
    #[error("{} holds the store at {}", .holder, .path.display())]
    Locked {
        /// Where it is.
        path: PathBuf,
        /// What that process says of itself, its number first.
        holder: String,
    },
    /// What is there cannot be true.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// It is sealed, and its key is missing or another.
    #[error("{0} (a key is read from ONETAKE_STORE__KEY or ONETAKE_STORE__KEY_FILE)")]
    Key(String),
    /// What is there is no store of this release.
    #[error("{0}")]
    Foreign(String),
    /// It cannot be reached.
    #[error("the store cannot be opened: {0}")]
    Unavailable(String),
}

impl OpenError {
    /// The stable code of this failure.
    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::Url(_) => Code::RequestInvalid,
            Self::NotBuiltIn(_) => Code::NotSupported,
            Self::Missing(_) => Code::StoreMissing,
            Self::Locked { .. } => Code::StoreLocked,
            Self::Damaged(_) => Code::StoreCorrupt,
            Self::Key(_) => Code::StoreSealed,
            Self::Foreign(_) => Code::StoreForeign,
            Self::Unavailable(_) => Code::StoreUnavailable,
        }
    }
}

/// Opens the store that `url` names.
///
/// # Errors
/// An [`OpenError`]; above all [`OpenError::Locked`] when another process holds it.
pub(crate) fn open(url: &StoreUrl, opening: Opening) -> Result<AnyStore, OpenError> {
    match url {
        StoreUrl::Memory => Ok(AnyStore::Memory(Box::default())),
        StoreUrl::Embedded(path) if opening == Opening::Existing && !Embedded::is_at(path) => {
            Err(OpenError::Missing(path.clone()))
        }
        StoreUrl::Embedded(path) => open_embedded(path),
    }
}

/// Opens the store that `config` names, with its bounds.
///
/// # Errors
/// Those of [`open`].
pub(crate) fn open_with(config: &StoreConfig, opening: Opening) -> Result<AnyStore, OpenError> {
    match &config.url {
        StoreUrl::Embedded(path) if opening == Opening::OrNew => {
            open_bounded(path, Options { bounds: config.bounds, ..options()? })
        }
        StoreUrl::Embedded(_) | StoreUrl::Memory => open(&config.url, opening),
    }
}

/// Opens the embedded store in `path`, and makes it where it is not there yet.
fn open_embedded(path: &Path) -> Result<AnyStore, OpenError> {
    open_bounded(path, options()?)
}

fn open_bounded(path: &Path, options: Options) -> Result<AnyStore, OpenError> {
    let opened = Embedded::open_with(path, options);
    opened.map(AnyStore::Embedded).map_err(|error| said(path, &error))
}

/// The settings of an embedded store, with the keys of its seal from the environment.
fn options() -> Result<Options, OpenError> {
    let mut keys = Vec::new();
    for name in [KEY, OLD_KEY] {
        let file = format!("{name}_FILE");
        let key = if let Some(path) = std::env::var_os(&file) {
            MasterKey::from_file(path)
        } else if std::env::var_os(name).is_some() {
            MasterKey::from_env(name)
        } else {
            continue;
        };
        keys.push(key.map_err(|error| OpenError::Key(error.to_string()))?);
    }
    Ok(Options { keys, ..Options::default() })
}

/// What a store says that cannot be opened, as far as commands tell it apart.
#[allow(clippy::wildcard_enum_match_arm, reason = "the store may learn new errors")]
fn said(path: &Path, error: &stores::OpenError) -> OpenError {
    use stores::OpenError as E;
    match error {
        E::Locked { holder, .. } => {
            OpenError::Locked { path: path.to_owned(), holder: holder.clone() }
        }
        E::Damaged { .. } => OpenError::Damaged(error.to_string()),
        E::Sealed { .. } | E::NoKey { .. } | E::NotSealed { .. } => {
            OpenError::Key(error.to_string())
        }
        E::Newer { .. } | E::NotAStore { .. } => OpenError::Foreign(error.to_string()),
        _ => OpenError::Unavailable(error.to_string()),
    }
}

/// Reads everything that the store of `url` holds, and reports what is damaged.
///
/// # Errors
/// An [`OpenError`] when it cannot even be looked at.
pub(crate) fn check(url: &StoreUrl) -> Result<CheckReport, OpenError> {
    match url {
        StoreUrl::Memory => Ok(CheckReport::of(Vec::new(), [("records", 0)])),
        StoreUrl::Embedded(path) if !Embedded::is_at(path) => Err(OpenError::Missing(path.clone())),
        StoreUrl::Embedded(path) => check_embedded(path),
    }
}

/// Checks the embedded store in `path`.
fn check_embedded(path: &Path) -> Result<CheckReport, OpenError> {
    let checked = stores::upkeep::check(path, &options()?).map_err(|error| said(path, &error))?;
    let [claimed, done, released, unknown] = checked.records;
    let counts = [
        ("journal batches", checked.batches),
        ("records done", done),
        ("records released", released),
        // No process holds the store, so whoever claimed them is gone: as `keys list` has it.
        ("records unknown", unknown + claimed),
        ("documents", checked.documents),
        ("lane entries", checked.entries),
        ("counters, cursors and lanes", checked.numbers),
        ("further damage, not listed", checked.more),
    ];
    let findings = checked.findings.into_iter().map(|finding| Finding {
        severity: Severity::Damage,
        place: finding.place,
        what: finding.what,
        advice: finding.advice,
    });
    Ok(CheckReport::of(findings.collect(), counts))
}

/// How long one waits until all records are counted.
const COUNTED_WITHIN: Duration = Duration::from_secs(10);

/// Any store that is built in.
#[derive(Debug)]
pub(crate) enum AnyStore {
    /// In memory.
    Memory(Box<Memory>),
    /// In one directory.
    Embedded(Embedded),
}

/// Does the same with whichever store it is. A new store is one more line here.
macro_rules! each {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            AnyStore::Memory($store) => $call,
            AnyStore::Embedded($store) => $call,
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
        each!(self, store => store.commit(tx).await)
    }

    async fn fetch(&self, places: &[Place]) -> Reply<Vec<Found>> {
        each!(self, store => store.fetch(places).await)
    }

    async fn scan(
        &self,
        space: &'static str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Reply<Page<(Doc, Document)>> {
        each!(self, store => store.scan(space, prefix, after, limit).await)
    }

    async fn scan_slots(
        &self,
        tenant: Option<&Tenant>,
        after: Option<&Slot>,
        limit: usize,
    ) -> Reply<Page<Arc<Record>>> {
        each!(self, store => store.scan_slots(tenant, after, limit).await)
    }

    async fn read_lane(&self, lane: &Lane, after: Position, limit: usize) -> Reply<Page<Entry>> {
        each!(self, store => store.read_lane(lane, after, limit).await)
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
        }
    }

    async fn rotate(&self) -> Result<Rotated, UpkeepError> {
        match self {
            Self::Memory(store) => store.rotate().await,
            Self::Embedded(store) => rotate(store).await,
        }
    }
}

/// Seals with a new key, under the master key that the environment or its file has by now.
async fn rotate(store: &Embedded) -> Result<Rotated, UpkeepError> {
    let options = options().map_err(|error| UpkeepError::Path(error.to_string()))?;
    let Some(master) = options.keys.first() else {
        return Err(UpkeepError::NotSupported("no master key is configured"));
    };
    store.rotate(master).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_one_store_or_is_refused() {
        let of = |text: &str| text.parse::<StoreUrl>();
        assert_eq!(of("memory:"), Ok(StoreUrl::Memory));
        assert_eq!(of("embedded:./a:b"), Ok(StoreUrl::Embedded("./a:b".into())));
        assert_eq!(of(DEFAULT_URL).unwrap().to_string(), DEFAULT_URL);
        for bad in ["", "memory", "memory:x", "embedded:", "embedded", "sqlite:x", "./data"] {
            assert!(matches!(of(bad), Err(OpenError::Url(_))), "{bad}");
        }
        assert_eq!(of("postgres://x"), Err(OpenError::NotBuiltIn("postgres")));
    }

    #[test]
    fn looking_at_a_store_makes_none() {
        let folder = tempfile::tempdir().unwrap();
        let url = StoreUrl::Embedded(folder.path().join("none"));
        assert!(matches!(open(&url, Opening::Existing), Err(OpenError::Missing(_))));
        assert!(matches!(check(&url), Err(OpenError::Missing(_))));
    }
}
