//! Which store a program runs on: the one place that reads a store's URL and opens what it names.
//!
//! Knows every store by name and no rule of any. One store is never replaced by another.

mod any;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use onetake::core::Code;
use onetake::stores::seal::MasterKey;
use onetake::stores::{
    self, Embedded, Options, Postgres, PostgresError, PostgresOptions, Redis, RedisError,
    RedisOptions,
};

pub(crate) use any::AnyStore;

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
    /// In a PostgreSQL database, for any number of processes.
    Postgres(Address),
    /// In Redis, for any number of processes, and slots only.
    Redis(Address),
}

/// The address of a database. Shown without name, password and parameters.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address(String);

impl Address {
    /// All of it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("postgres", ""));
        let place = rest.split('?').next().unwrap_or_default();
        let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
        write!(f, "{scheme}://{place}")
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for StoreUrl {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let unknown = || {
            let known =
                "use `embedded:PATH`, `postgres://HOST/DATABASE`, `redis://HOST` or `memory:`";
            OpenError::Url(known.to_owned())
        };
        match text.split_once(':').ok_or_else(unknown)? {
            ("memory", "") => Ok(Self::Memory),
            ("embedded", "") => Err(OpenError::Url("`embedded:` needs a path".to_owned())),
            ("embedded", path) => Ok(Self::Embedded(path.into())),
            ("postgres" | "postgresql", rest) if rest.starts_with("//") => {
                Ok(Self::Postgres(Address(text.to_owned())))
            }
            (scheme, rest) if is_redis(scheme) && rest.starts_with("//") => {
                Ok(Self::Redis(Address(text.to_owned())))
            }
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Embedded(path) => write!(f, "embedded:{}", path.display()),
            Self::Postgres(address) | Self::Redis(address) => address.fmt(f),
        }
    }
}

impl StoreUrl {
    /// The directory of the store, where it has one.
    pub(crate) fn directory(&self) -> Option<&Path> {
        match self {
            Self::Memory | Self::Postgres(_) | Self::Redis(_) => None,
            Self::Embedded(path) => Some(path),
        }
    }
}

/// Whether a scheme is one of Redis: with or without TLS, alone, with Sentinel or as a cluster.
fn is_redis(scheme: &str) -> bool {
    let (base, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
    matches!(base, "redis" | "rediss") && matches!(kind, "" | "sentinel" | "cluster")
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
    /// The database is in the way, as it says itself.
    #[error("the store at {at} cannot be opened: {why}")]
    Database {
        /// Where it is, without anything secret.
        at: String,
        /// What it says.
        why: String,
        /// The stable code of that.
        code: Code,
    },
    /// This store cannot do it.
    #[error("{0}")]
    NotSupported(&'static str),
}

impl OpenError {
    /// The stable code of this failure.
    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::Url(_) => Code::RequestInvalid,
            Self::NotSupported(_) => Code::NotSupported,
            Self::Missing(_) => Code::StoreMissing,
            Self::Locked { .. } => Code::StoreLocked,
            Self::Damaged(_) => Code::StoreCorrupt,
            Self::Key(_) => Code::StoreSealed,
            Self::Foreign(_) => Code::StoreForeign,
            Self::Unavailable(_) => Code::StoreUnavailable,
            Self::Database { code, .. } => *code,
        }
    }
}

/// Opens the store that `config` names.
///
/// # Errors
/// An [`OpenError`]; above all [`OpenError::Locked`] when another process holds it.
pub(crate) async fn open(config: &StoreConfig, opening: Opening) -> Result<AnyStore, OpenError> {
    match &config.url {
        StoreUrl::Memory => Ok(AnyStore::Memory(Box::default())),
        StoreUrl::Embedded(path) if opening == Opening::OrNew => {
            open_bounded(path, Options { bounds: config.bounds, ..options()? })
        }
        StoreUrl::Embedded(path) if !Embedded::is_at(path) => Err(OpenError::Missing(path.clone())),
        StoreUrl::Embedded(path) => open_bounded(path, options()?),
        StoreUrl::Postgres(address) => {
            let options = of_fleet(config)?.migrates(opening == Opening::OrNew);
            let opened = Postgres::open(address.expose(), options).await;
            let store = opened.map_err(|error| at(address, &error))?;
            Ok(AnyStore::Postgres(Box::new(store), address.clone()))
        }
        StoreUrl::Redis(address) => {
            let options = RedisOptions::new()
                .prefix(&format!("{}:", config.schema))
                .accept_loss(config.accept_loss)
                .keys(master_keys()?);
            let opened = Redis::open(address.expose(), options).await;
            let store = opened.map_err(|error| OpenError::Database {
                at: address.to_string(),
                why: error.to_string(),
                code: code_of(&error),
            })?;
            Ok(AnyStore::Redis(Box::new(store)))
        }
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the store may learn new errors")]
fn code_of(error: &RedisError) -> Code {
    match error {
        RedisError::Address | RedisError::Prefix => Code::RequestInvalid,
        RedisError::Seal(_) => Code::StoreSealed,
        RedisError::Loss(_) | RedisError::Script(_) => Code::StoreUnfit,
        _ => Code::StoreUnavailable,
    }
}

/// How a store that a fleet shares is used.
fn of_fleet(config: &StoreConfig) -> Result<PostgresOptions, OpenError> {
    let most = config.bounds;
    let options = PostgresOptions::new()
        .bounds(
            (most.records_max, most.bytes_max),
            (most.tenant_records_max, most.tenant_bytes_max),
        )
        .schema(&config.schema)
        .accept_loss(config.accept_loss)
        .keys(master_keys()?);
    Ok(match &config.listen_url {
        Some(url) => options.listen_url(url.expose()),
        None => options,
    })
}

fn at(address: &Address, error: &PostgresError) -> OpenError {
    OpenError::Database { at: address.to_string(), why: error.to_string(), code: error.code() }
}

/// The statements that the tables of the store need to be up to date; carried out unless `dry_run`.
///
/// # Errors
/// An [`OpenError`] when the store has no tables, or cannot be reached.
pub(crate) async fn migrate(config: &StoreConfig, dry_run: bool) -> Result<Vec<String>, OpenError> {
    match &config.url {
        StoreUrl::Memory | StoreUrl::Embedded(_) | StoreUrl::Redis(_) => {
            Err(OpenError::NotSupported(
                "this store has no tables: it brings itself up to date when it is opened",
            ))
        }
        StoreUrl::Postgres(address) => {
            let migrated = Postgres::migrate(address.expose(), &of_fleet(config)?, dry_run).await;
            migrated.map_err(|error| at(address, &error))
        }
    }
}

fn open_bounded(path: &Path, options: Options) -> Result<AnyStore, OpenError> {
    let opened = Embedded::open_with(path, options);
    opened.map(AnyStore::Embedded).map_err(|error| said(path, &error))
}

/// The settings of an embedded store.
fn options() -> Result<Options, OpenError> {
    Ok(Options { keys: master_keys()?, ..Options::default() })
}

/// The keys of the seal, from the environment or from files that it names.
fn master_keys() -> Result<Vec<MasterKey>, OpenError> {
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
    Ok(keys)
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
        StoreUrl::Postgres(_) | StoreUrl::Redis(_) => Err(OpenError::NotSupported(
            "a server checks its own files: pg_amcheck and data checksums, redis-check-aof",
        )),
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
        for good in ["redis://x", "rediss://x:1/2", "redis+sentinel://a,b/m", "redis+cluster://a"] {
            assert!(matches!(of(good), Ok(StoreUrl::Redis(_))), "{good}");
        }
        assert!(matches!(of("redis+other://x"), Err(OpenError::Url(_))));
        assert!(matches!(of("postgres:x"), Err(OpenError::Url(_))));
    }

    #[test]
    fn the_address_of_a_database_is_shown_without_its_secrets() {
        let url: StoreUrl = "postgres://me:s3cret@db1:5432,db2/app?password=x".parse().unwrap();
        assert_eq!(url.to_string(), "postgres://db1:5432,db2/app");
        assert_eq!(format!("{url:?}"), "Postgres(postgres://db1:5432,db2/app)");
    }

    #[tokio::test]
    async fn looking_at_a_store_makes_none() {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig::of(StoreUrl::Embedded(folder.path().join("none")));
        let opened = open(&config, Opening::Existing).await;
        assert!(matches!(opened, Err(OpenError::Missing(_))));
        assert!(matches!(check(&config.url), Err(OpenError::Missing(_))));
    }
}
