//! Carries out what a command asks: on the store itself, or through the process that holds it.
//!
//! Every command is written once and does not know which of the two it is.

mod runs;

use std::path::PathBuf;

use anyhow::{Context, Result};
use onetake::Engine;
use onetake::engine::operate::What;
use onetake_console::wire::{
    ActDone, AuditAsk, AuditPage, BackupAsk, KeyShown, Keys, ListAsk, PurgeAsk, PurgeDone,
    ReleaseAsk, ResolveAsk,
};
use onetake_console::{Backup, Desk, OPERATOR_DEFAULT, Rotated, Stats, Token};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::admin::{self, AdminFile};
use crate::client::{BACKUP_WITHIN, Call, Client};
use crate::config::{self, AdminConfig, Config, Environment, Source, StoreConfig};
use crate::exit::Fault;
use crate::wiring::{self, AnyStore, DEFAULT_URL, OpenError, Opening, StoreUrl};

pub(crate) use self::runs::RunPlace;

/// Where a command acts, and in whose name.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// The store: `embedded:PATH`, `postgres://HOST/DATABASE`, `redis://HOST`, or `memory:` which
    /// is gone with its process; by default that of the configuration, or else
    /// `embedded:./onetake-data`
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "ONETAKE_STORE__URL",
        hide_env_values = true
    )]
    store: Option<String>,
    /// The configuration that names the store and the admin surface; by default `onetake.toml`,
    /// where there is one
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Go through the running process that this `admin.json` names, whatever the store
    #[arg(long, global = true, value_name = "FILE")]
    admin_file: Option<PathBuf>,
    /// Your name for the audit
    #[arg(long = "as", global = true, value_name = "NAME", env = "ONETAKE_OPERATOR")]
    name: Option<String>,
    /// Print JSON and nothing else
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What a command acts on.
struct Found {
    store: StoreConfig,
    /// The admin surface, where a configuration names it.
    admin: Option<AdminConfig>,
}

impl Target {
    /// Your name for the audit: as given, or that of the user, or the one that everybody has.
    fn name(&self) -> String {
        let user = || std::env::var("USER").ok().filter(|name| !name.is_empty());
        self.name.clone().or_else(user).unwrap_or_else(|| OPERATOR_DEFAULT.to_owned())
    }

    /// The store: what was typed, or what `onetake serve` would open here.
    ///
    /// # Errors
    /// When that is none, or the configuration is wrong.
    pub(crate) fn store(&self) -> Result<StoreConfig> {
        Ok(self.find()?.store)
    }

    fn find(&self) -> Result<Found> {
        if let Some(text) = self.store.as_ref().filter(|text| !text.is_empty()) {
            // Not quoted: it could hold a password.
            let store = text.parse().map_err(|why| Fault::Usage(format!("--store: {why}")))?;
            return Ok(Found { store: with_environment(store)?, admin: None });
        }
        let Some(file) = config::file(self.config.as_deref()) else {
            return Ok(Found { store: with_environment(DEFAULT_URL.parse()?)?, admin: None });
        };
        let config = Config::load(Source::File(&file), &Environment::of_process());
        // A guess could be another store than the one that is served.
        let why = "the store is read from the configuration; mend it, or name it with `--store`";
        let Config { store, admin, .. } = config.context(why)?;
        Ok(Found { store, admin: Some(admin) })
    }
}

/// The store at `url`, with the schema and the acceptance of losses that the environment names.
fn with_environment(url: StoreUrl) -> Result<StoreConfig> {
    let mut config = StoreConfig::of(url);
    let named = |name| std::env::var(name).ok().filter(|it: &String| !it.is_empty());
    if let Some(name) = named("ONETAKE_STORE__SCHEMA") {
        config.schema = name;
    }
    let loss = "ONETAKE_STORE__ACCEPT_LOSS";
    if let Some(text) = named(loss) {
        let why = || Fault::Usage(format!("{loss} is `true` or `false`"));
        config.accept_loss = text.parse().map_err(|_| why())?;
    }
    Ok(config)
}

/// Who carries out what a command asks.
pub(crate) struct Operator {
    by: String,
    hand: Hand,
}

enum Hand {
    /// On the store itself.
    Direct(Desk<AnyStore>),
    /// Through the process that holds it.
    Remote(Client),
}

/// Asks the desk that is at hand.
macro_rules! ask {
    ($operator:expr, $desk:ident => $direct:expr, $client:ident => $remote:expr) => {
        match &$operator.hand {
            Hand::Direct($desk) => Ok($direct.await?),
            Hand::Remote($client) => $client.ask($remote).await,
        }
    };
}

impl Operator {
    /// Opens the store, or finds the process that holds it.
    ///
    /// # Errors
    /// An [`OpenError`] when there is no store; otherwise when the process that holds it cannot be
    /// found.
    pub(crate) async fn at(target: &Target) -> Result<Self> {
        let by = target.name();
        let given = admin::given_token().map(|text| Token::new(&text)).transpose()?;
        if let Some(file) = &target.admin_file {
            let client = Client::of(&AdminFile::read(file)?, given, None)?;
            return Ok(Self { by, hand: Hand::Remote(client) });
        }
        let Found { store, admin } = target.find()?;
        let token = || admin.as_ref().and_then(|admin| admin.token.clone());
        let hand = match (wiring::open(&store, Opening::Existing).await, &admin) {
            // A store in memory is that of the process that serves it, and of nobody else.
            (Ok(AnyStore::Memory(_)), Some(admin)) => Hand::Remote(configured(admin)?),
            (Ok(store), _) => Hand::Direct(Desk::new(Engine::new(store))),
            // The error stays beneath: its exit code says that the store is locked.
            (Err(OpenError::Locked { path, holder }), _) => {
                let file = AdminFile::read(&path.join(admin::FILE_NAME)).ok();
                // A file that another process left behind leads to somebody else.
                let is_holders =
                    |file: &AdminFile| holder.starts_with(&format!("process {},", file.pid));
                let file = file.filter(is_holders);
                let locked = anyhow::Error::new(OpenError::Locked { path, holder });
                let client = match (file, &admin) {
                    (Some(file), _) => Client::of(&file, given, token()),
                    (None, Some(admin)) if admin.token.is_some() => configured(admin),
                    (None, _) => {
                        let what = "the process that holds the store has no admin surface here: \
                                    stop it, or name its file with `--admin-file`";
                        return Err(locked.context(what));
                    }
                };
                Hand::Remote(client.map_err(|why| locked.context(format!("{why:#}")))?)
            }
            (Err(error), _) => return Err(error.into()),
        };
        Ok(Self { by, hand })
    }

    pub(crate) async fn list(&self, list: &ListAsk) -> Result<Keys> {
        let path = || Ok::<_, anyhow::Error>(format!("/v1/keys?{}", query(list)?));
        ask!(self, desk => desk.list(list), client => Call::get(path()?))
    }

    pub(crate) async fn show(&self, place: &Place, what: What) -> Result<KeyShown> {
        let content = if what == What::Content { "?body=true" } else { "" };
        let path = format!("{}{content}", place.path());
        ask!(self, desk => desk.show(&place.tenant, &place.slot, what), client => Call::get(path))
    }

    pub(crate) async fn release(&self, place: &Place, release: &ReleaseAsk) -> Result<ActDone> {
        let (by, Place { tenant, slot }) = (Some(self.by.as_str()), place);
        ask!(self,
            desk => desk.release(by, tenant, slot, release),
            client => Call::post(format!("{}/release", place.path()), json(release)?, by))
    }

    pub(crate) async fn resolve(&self, place: &Place, resolve: &ResolveAsk) -> Result<ActDone> {
        let (by, Place { tenant, slot }) = (Some(self.by.as_str()), place);
        ask!(self,
            desk => desk.resolve(by, tenant, slot, resolve),
            client => Call::post(format!("{}/resolve", place.path()), json(resolve)?, by))
    }

    pub(crate) async fn purge(&self, purge: &PurgeAsk) -> Result<PurgeDone> {
        let by = Some(self.by.as_str());
        ask!(self,
            desk => desk.purge(by, purge),
            client => Call::post("/v1/purge".to_owned(), json(purge)?, by))
    }

    pub(crate) async fn audit(&self, audit: &AuditAsk) -> Result<AuditPage> {
        let path = || Ok::<_, anyhow::Error>(format!("/v1/audit?{}", query(audit)?));
        ask!(self, desk => desk.audit(audit), client => Call::get(path()?))
    }

    pub(crate) async fn stats(&self) -> Result<Stats> {
        ask!(self, desk => desk.stats(), client => Call::get("/v1/store/stats".to_owned()))
    }

    pub(crate) async fn rotate(&self) -> Result<Rotated> {
        let by = Some(self.by.as_str());
        ask!(self,
            desk => desk.rotate(),
            client => Call::post("/v1/store/rotate".to_owned(), json(&())?, by))
    }

    pub(crate) async fn backup(&self, backup: &BackupAsk) -> Result<Backup> {
        let call = || -> Result<Call<'_>> {
            let path = "/v1/store/backup".to_owned();
            let by = Some(self.by.as_str());
            Ok(Call { within: BACKUP_WITHIN, ..Call::post(path, json(backup)?, by) })
        };
        ask!(self, desk => desk.backup(backup), client => call()?)
    }
}

/// The admin surface that a configuration names.
fn configured(admin: &AdminConfig) -> Result<Client> {
    let file = "name the file of the running process with `--admin-file`";
    match &admin.token {
        Some(token) if admin.listen.port() != 0 => Ok(Client::at(admin.listen, token.clone())),
        Some(_) => {
            let what = format!("the admin surface takes a free port, so nobody knows it: {file}");
            Err(Fault::Usage(what).into())
        }
        None => {
            let what = format!(
                "the store is in the memory of the process that serves it: {file}, or give \
                 `admin.token` so that it can be asked at {}",
                admin.listen
            );
            Err(Fault::Usage(what).into())
        }
    }
}

/// Which record: its tenant, and the digest of its slot.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) tenant: String,
    pub(crate) slot: String,
}

impl Place {
    fn path(&self) -> String {
        let part = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
        format!("/v1/keys/{}/{}", part(&self.tenant), part(&self.slot))
    }
}

fn query(ask: &impl Serialize) -> Result<String> {
    serde_urlencoded::to_string(ask).context("the question cannot be written as a query")
}

fn json(ask: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(ask).context("the question cannot be written as JSON")
}
