//! Money moves exactly once: a transfer whose key, whose writes and whose receipt are one commit.
//!
//! ```text
//! cargo run -p onetake-stores --features postgres --example transfer -- URL
//! cargo run -p onetake-stores --features postgres --example transfer -- URL KEY FROM TO AMOUNT
//! ```
//!
//! The first line makes two accounts and shows what is in them, the second moves money. Run it
//! twice with one key, kill it wherever you like and run it again: the money moves once, and every
//! run that ends prints the same receipt. It talks to nothing but the database, so there is nothing
//! that a rollback could not undo.

use std::process::ExitCode;

use onetake_core::{Asked, Key, Scope};
use onetake_stores::inside::{Ending, Inside, InsideError, Take};
use onetake_stores::{Postgres, PostgresOptions};
use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, NoTls, Transaction};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) amount: i64,
}

/// What everyone hears who asks for the same transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) number: i64,
    pub(crate) left: i64,
}

/// Why no money moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// A retry with this key hears the same, although there may be enough by then.
    NotEnough { left: i64 },
    /// There is no such account; a retry may find one.
    NoAccount,
    /// The database did not do it; a retry may.
    Database(String),
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error.to_string())
    }
}

pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// A bank with its accounts in the same database as the records.
pub(crate) struct Bank {
    client: Client,
    transfers: Inside,
    scope: Scope,
}

impl Bank {
    /// Connects, and makes what tables are missing.
    pub(crate) async fn open(url: &str) -> Result<Self, Failed> {
        // Makes the tables of Onetake; in production `onetake store migrate` does so once.
        drop(Postgres::open(url, PostgresOptions::new()).await?);
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let accounts = "
            BEGIN; SELECT pg_advisory_xact_lock(7);
            CREATE TABLE IF NOT EXISTS accounts (name text PRIMARY KEY, balance bigint NOT NULL);
            CREATE TABLE IF NOT EXISTS transfers (
                number bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL,
                amount bigint NOT NULL);
            INSERT INTO accounts VALUES ('ann', 1000), ('bob', 1000) ON CONFLICT DO NOTHING;
            COMMIT";
        client.batch_execute(accounts).await?;
        let (transfers, scope) = (Inside::named("transfer")?, Scope::tenant_named("bank")?);
        Ok(Self { client, transfers, scope })
    }

    /// Moves money once for `key`. `step` hears how far it came.
    pub(crate) async fn transfer(
        &mut self,
        key: &Key,
        order: &Order,
        step: &(dyn Fn(&str) + Sync),
    ) -> Result<Take<Receipt>, InsideError<Refusal>> {
        let asked = serde_json::to_vec(order).map_err(|_| InsideError::ResultNotKeepable)?;
        let begun = self.client.transaction().await;
        let mut tx = begun.map_err(|error| InsideError::Database(error.into()))?;
        step("begun");
        let effect = async |tx: &mut Transaction<'_>| {
            let moved = transfer(tx, key, order, step).await;
            Ending::refusing(moved, |refusal| matches!(refusal, Refusal::NotEnough { .. }))
        };
        let asked = Asked::raw(asked);
        let taken = self.transfers.execute_in(&mut tx, &self.scope, key, asked, effect).await;
        step("taken");
        // A refusal that is remembered is in the transaction too. Anything else left nothing in it.
        tx.commit().await.map_err(|error| InsideError::Database(error.into()))?;
        step("committed");
        taken
    }

    /// What is in the accounts.
    pub(crate) async fn balances(&self) -> Result<Vec<(String, i64)>, tokio_postgres::Error> {
        let rows =
            self.client.query("SELECT name, balance FROM accounts ORDER BY name", &[]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// How often money moved for `key`.
    pub(crate) async fn moved(&self, key: &Key) -> Result<i64, tokio_postgres::Error> {
        let count = "SELECT count(*) FROM transfers WHERE key = $1";
        Ok(self.client.query_one(count, &[&key.as_str()]).await?.get(0))
    }
}

/// The writes of a transfer. This function knows nothing of keys that come twice.
async fn transfer(
    tx: &Transaction<'_>,
    key: &Key,
    order: &Order,
    step: &(dyn Fn(&str) + Sync),
) -> Result<Receipt, Refusal> {
    let Order { from, to, amount } = order;
    // In one order for everybody, so that transfers wait for each other and never in a circle.
    let both = "SELECT name, balance FROM accounts WHERE name IN ($1, $2) ORDER BY name FOR UPDATE";
    let rows = tx.query(both, &[from, to]).await?;
    let balance = rows.iter().find(|row| row.get::<_, String>(0) == *from);
    let (Some(balance), 2) = (balance, rows.len()) else { return Err(Refusal::NoAccount) };
    let left = balance.get::<_, i64>(1) - amount;
    if left < 0 || *amount <= 0 {
        return Err(Refusal::NotEnough { left: left + amount });
    }
    let add = "UPDATE accounts SET balance = balance + $2 WHERE name = $1";
    tx.execute(add, &[from, &-amount]).await?;
    step("withdrawn");
    tx.execute(add, &[to, amount]).await?;
    let note = "INSERT INTO transfers (key, amount) VALUES ($1, $2) RETURNING number";
    let number = tx.query_one(note, &[&key.as_str(), amount]).await?.get(0);
    Ok(Receipt { number, left })
}

async fn run(arguments: &[String]) -> Result<(), Failed> {
    let (url, order) = match arguments {
        [url] => (url, None),
        [url, key, from, to, amount] => {
            let order = Order { from: from.clone(), to: to.clone(), amount: amount.parse()? };
            (url, Some((Key::new(key)?, order)))
        }
        _ => return Err("give the URL of a database, and KEY FROM TO AMOUNT for a transfer".into()),
    };
    let mut bank = Bank::open(url).await?;
    if let Some((key, order)) = order {
        match bank.transfer(&key, &order, &|step| println!("  {step}")).await {
            Ok(take) if take.is_repeat() => println!("done before: {:?}", take.value),
            Ok(take) => println!("done: {:?}", take.value),
            Err(InsideError::Failed { failure, repeat: true }) => {
                println!("no, again: {failure:?}");
            }
            Err(InsideError::Failed { failure, repeat: false }) => println!("no: {failure:?}"),
            Err(error) => return Err(error.to_string().into()),
        }
        println!("times that money moved for this key: {}", bank.moved(&key).await?);
    }
    for (name, balance) in bank.balances().await? {
        println!("{name}: {balance}");
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(Failed::from).and_then(|runtime| runtime.block_on(run(&arguments)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
