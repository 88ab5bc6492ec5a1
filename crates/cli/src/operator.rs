//! Carries out what a command asks: on the store itself, or through the process that holds it.
//!
//! Every command is written once and does not know which of the two it is.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use onetake::Engine;
use onetake::engine::operate::What;
use onetake_console::wire::{
    ActDone, AuditAsk, AuditPage, BackupAsk, KeyShown, Keys, ListAsk, PurgeAsk, PurgeDone,
    ReleaseAsk, ResolveAsk,
};
use onetake_console::{Backup, Desk, OPERATOR_DEFAULT, Rotated, Stats};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::admin::{self, AdminFile};
use crate::client::{BACKUP_WITHIN, Call, Client};
use crate::wiring::{self, AnyStore, DEFAULT_URL, OpenError, Opening, StoreUrl};

/// Where a command acts, and in whose name.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// The store: `embedded:PATH`, or `memory:` which is gone with its process
    #[arg(long, global = true, value_name = "URL", env = "ONETAKE_STORE__URL",
          default_value = DEFAULT_URL)]
    pub(crate) store: StoreUrl,
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

impl Target {
    /// Your name for the audit: as given, or that of the user, or the one that everybody has.
    fn name(&self) -> String {
        let user = || std::env::var("USER").ok().filter(|name| !name.is_empty());
        self.name.clone().or_else(user).unwrap_or_else(|| OPERATOR_DEFAULT.to_owned())
    }
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
    pub(crate) fn at(target: &Target) -> Result<Self> {
        let by = target.name();
        let remote = |file: &Path| -> Result<Hand> {
            let file = AdminFile::read(file)?;
            Ok(Hand::Remote(Client::of(&file, admin::given_token().as_deref())?))
        };
        if let Some(file) = &target.admin_file {
            return Ok(Self { by, hand: remote(file)? });
        }
        let hand = match wiring::open(&target.store, Opening::Existing) {
            Ok(store) => Hand::Direct(Desk::new(Engine::new(store))),
            // The error stays beneath: its exit code says that the store is locked.
            Err(OpenError::Locked { path, holder }) => {
                let file = path.join(admin::FILE_NAME);
                // A file that another process left behind leads to somebody else.
                let is_holders = AdminFile::read(&file)
                    .is_ok_and(|file| holder.starts_with(&format!("process {},", file.pid)));
                let locked = anyhow::Error::new(OpenError::Locked { path, holder });
                if !is_holders {
                    let what = "the process that holds the store has no admin surface here: stop \
                                it, or name its file with `--admin-file`";
                    return Err(locked.context(what));
                }
                remote(&file).map_err(|why| locked.context(format!("{why:#}")))?
            }
            Err(error) => return Err(error.into()),
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
