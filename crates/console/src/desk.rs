//! Where an operator's wishes are carried out: the same for the HTTP routes and the command line.
//!
//! Takes and gives the types of [`crate::wire`], so it makes no difference to a caller whether the
//! desk is in this process or behind a listener. Who may come here is not decided here.

use std::path::Path;

use onetake_core::Code;
use onetake_engine::operate::What;
use onetake_engine::{Engine, Journal, Position};

use crate::ask;
use crate::reply::{self, problem};
use crate::upkeep::{Backup, Rotated, Stats, Upkeep};
use crate::wire::{
    ActDone, AuditAsk, AuditPage, BackupAsk, KeyShown, Keys, ListAsk, Problem, PurgeAsk, PurgeDone,
    ReleaseAsk, ResolveAsk,
};

/// Rows or entries of a page, unless said otherwise.
const ROWS_DEFAULT: usize = 100;

/// Where an operator's wishes are carried out. Clones share everything.
#[derive(Debug)]
pub struct Desk<S>(Engine<S>);

impl<S> Clone for Desk<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Journal + Upkeep> Desk<S> {
    /// The desk of `engine`.
    #[must_use]
    pub const fn new(engine: Engine<S>) -> Self {
        Self(engine)
    }

    /// The engine behind it.
    #[must_use]
    pub const fn engine(&self) -> &Engine<S> {
        &self.0
    }

    /// One page of keys.
    ///
    /// # Errors
    /// A [`Problem`]; nothing was changed.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn list(&self, list: &ListAsk) -> Result<Keys, Problem> {
        let (query, after) = (ask::query(list)?, ask::bookmark(list.after.as_ref())?);
        let limit = list.limit.unwrap_or(ROWS_DEFAULT);
        Ok(reply::keys(&self.0.list(&query, after.as_ref(), limit).await?))
    }

    /// The key in `slot` of `tenant`.
    ///
    /// # Errors
    /// A [`Problem`]; nothing was changed.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn show(&self, tenant: &str, slot: &str, what: What) -> Result<KeyShown, Problem> {
        let shown = self.0.show(&ask::slot(tenant, slot)?, what).await?;
        let missing = || problem(Code::RecordMissing, "there is no record");
        shown.as_ref().map(reply::key_shown).ok_or_else(missing)
    }

    /// Frees the key in `slot` of `tenant`, in the name of `by`.
    ///
    /// # Errors
    /// A [`Problem`]; unless it is `act_uncertain`, nothing was changed.
    ///
    /// # Cancel safety
    /// As [`Engine::release`].
    pub async fn release(
        &self,
        by: Option<&str>,
        tenant: &str,
        slot: &str,
        release: &ReleaseAsk,
    ) -> Result<ActDone, Problem> {
        let (by, slot, seen) = (ask::actor(by)?, ask::slot(tenant, slot)?, ask::seen(release)?);
        let acted = self.0.release(&by, &slot, seen).await?;
        Ok(ActDone { row: reply::key_row(&acted.row), repeated: acted.repeated })
    }

    /// Settles the unknown outcome in `slot` of `tenant`, in the name of `by`.
    ///
    /// # Errors
    /// A [`Problem`]; unless it is `act_uncertain`, nothing was changed.
    ///
    /// # Cancel safety
    /// As [`Engine::resolve`].
    pub async fn resolve(
        &self,
        by: Option<&str>,
        tenant: &str,
        slot: &str,
        resolve: &ResolveAsk,
    ) -> Result<ActDone, Problem> {
        let (by, slot) = (ask::actor(by)?, ask::slot(tenant, slot)?);
        let (seen, outcome, keep) = ask::resolution(resolve)?;
        let acted = self.0.resolve(&by, &slot, seen, outcome, keep).await?;
        Ok(ActDone { row: reply::key_row(&acted.row), repeated: acted.repeated })
    }

    /// Purges a tenant, or one operation of it, in the name of `by`: a bounded part at a time.
    ///
    /// # Errors
    /// A [`Problem`]; what was purged before stays purged. Call again.
    ///
    /// # Cancel safety
    /// As [`Engine::purge`].
    pub async fn purge(&self, by: Option<&str>, purge: &PurgeAsk) -> Result<PurgeDone, Problem> {
        let (by, tenant) = (ask::actor(by)?, ask::tenant(&purge.tenant)?);
        let operation = ask::operation(purge.operation.as_ref())?;
        let after = ask::bookmark(purge.after.as_ref())?;
        let purged = self.0.purge(&by, &tenant, operation.as_ref(), after.as_ref()).await?;
        Ok(reply::purge_done(&purged))
    }

    /// One page of the audit.
    ///
    /// # Errors
    /// A [`Problem`]; nothing was changed.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn audit(&self, audit: &AuditAsk) -> Result<AuditPage, Problem> {
        let after = Position(audit.after.unwrap_or(0));
        let page = self.0.audit(after, audit.limit.unwrap_or(ROWS_DEFAULT)).await?;
        Ok(reply::audit_page(page))
    }

    /// The numbers of the store.
    ///
    /// # Errors
    /// A [`Problem`]; nothing was changed.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn stats(&self) -> Result<Stats, Problem> {
        Ok(self.0.store().stats().await?)
    }

    /// Seals with a new key from now on.
    ///
    /// # Errors
    /// A [`Problem`]; the old key is in use then.
    ///
    /// # Cancel safety
    /// The key is changed or not; asking again is safe.
    pub async fn rotate(&self) -> Result<Rotated, Problem> {
        Ok(self.0.store().rotate().await?)
    }

    /// Copies the store, as it is at one moment, to a path that does not exist yet.
    ///
    /// # Errors
    /// A [`Problem`]; there is no copy then, or part of one that is never taken for a whole.
    ///
    /// # Cancel safety
    /// As [`Upkeep::backup`].
    pub async fn backup(&self, backup: &BackupAsk) -> Result<Backup, Problem> {
        let path = Path::new(&backup.path);
        if !path.is_absolute() {
            let why = "path: must be absolute, for it is on the machine that holds the store";
            return Err(problem(Code::RequestInvalid, why));
        }
        Ok(self.0.store().backup(path).await?)
    }
}
