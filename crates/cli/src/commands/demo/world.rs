//! Everything that the scenes play with: a folder, a ledger, the orders API and the gateway.
//!
//! Whoever drops it ends the gateway first, then the API, and removes the folder last. It decides
//! nothing.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::api::Api;
use super::books::{Audit, Books};
use super::counts::{Count, Counts};
use super::customer::Customer;
use super::gateway::Gateway;
use super::ledger::Ledger;

/// The world of one demo.
pub(super) struct World {
    pub(super) gateway: Gateway,
    pub(super) api: Api,
    ledger: Arc<Ledger>,
    books: Arc<Books>,
    folder: TempDir,
}

impl World {
    /// An empty ledger, the API on it, and the gateway in front.
    pub(super) async fn open() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("onetake-demo-").tempdir();
        let folder = folder.context("the demo needs a temporary folder")?;
        let ledger = Ledger::create(folder.path().join("ledger.jsonl"));
        let ledger = Arc::new(ledger.context("the demo needs a file for its ledger")?);
        let books = Arc::new(Books::default());
        let api = Api::open(Arc::clone(&ledger), Arc::clone(&books)).await?;
        let gateway = Gateway::start(folder.path(), api.address()).await?;
        Ok(Self { gateway, api, ledger, books, folder })
    }

    /// Somebody who sends orders to the gateway as it is now.
    pub(super) fn customer(&self) -> Customer {
        Customer::new(self.gateway.address(), Arc::clone(&self.books))
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What was counted so far, with the lines that the ledger has now.
    pub(super) fn counts(&self) -> Result<Counts> {
        let mut counts = self.books.counts();
        counts.add(Count::LedgerLines, u64::try_from(self.ledger.read()?.len())?);
        Ok(counts)
    }

    /// Reads the ledger again and compares it with what callers were given.
    pub(super) fn audit(&self) -> Result<Audit> {
        Ok(self.books.audit(&self.ledger.read()?))
    }
}
