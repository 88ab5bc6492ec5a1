//! Where a test takes place: a schema of its own, one operation, and a table of effects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onetake_activity::Failure;
use onetake_core::{Asked, Key, OnInFlight, Policy, Scope};
use onetake_stores::inside::{Inside, Taken};
use onetake_stores::{Postgres, PostgresOptions};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls, Transaction};

use crate::servers::Server;

static PLACES: AtomicU32 = AtomicU32::new(0);

/// A schema of its own in a shared database.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) schema: String,
    pub(crate) inside: Inside,
    pub(crate) scope: Scope,
    pub(crate) store: Arc<Postgres>,
}

pub(crate) type Told = Taken<Result<u64, Failure>>;

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub(crate) fn refusing() -> Policy {
    Policy::builder().on_in_flight(OnInFlight::Refuse).build().unwrap()
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Place {
    pub(crate) async fn new() -> Self {
        let server = tokio::task::spawn_blocking(Server::shared).await.unwrap();
        let (url, number) = (server.url(), PLACES.fetch_add(1, Ordering::SeqCst));
        let schema = format!("inside_{number}");
        let options = PostgresOptions::new().accept_loss(true).schema(&schema);
        let store = Arc::new(Postgres::open(&url, options).await.unwrap());
        let inside = Inside::named("count").unwrap().in_schema(&schema).unwrap();
        let scope = Scope::tenant_named("acme").unwrap();
        let effects = format!("CREATE TABLE {schema}.effects (key text NOT NULL, by text)");
        connect(&url).await.batch_execute(&effects).await.unwrap();
        Self { url, schema, inside, scope, store }
    }

    pub(crate) async fn with(policy: Policy) -> Self {
        let mut place = Self::new().await;
        place.inside = place.inside.with_policy(policy);
        place
    }

    pub(crate) async fn connect(&self) -> Client {
        connect(&self.url).await
    }

    /// An effect: one more row, and the number of rows is its value.
    pub(crate) async fn count_up(&self, tx: &Transaction<'_>, key: &str) -> Result<u64, Failure> {
        let insert = format!("INSERT INTO {}.effects (key) VALUES ($1)", self.schema);
        tx.query_typed(&insert, &[(&key, Type::TEXT)]).await?;
        let count = format!("SELECT count(*) FROM {}.effects WHERE key = $1", self.schema);
        let count: i64 = tx.query_typed_one(&count, &[(&key, Type::TEXT)]).await?.get(0);
        Ok(u64::try_from(count)?)
    }

    /// Counts up once for `name`, inside `tx`.
    pub(crate) async fn once(&self, tx: &mut Transaction<'_>, name: &str) -> Told {
        self.once_asking(tx, name, "the same").await
    }

    pub(crate) async fn once_asking(
        &self,
        tx: &mut Transaction<'_>,
        name: &str,
        asked: &'static str,
    ) -> Told {
        let effect = async |tx: &mut Transaction<'_>| self.count_up(tx, name).await;
        self.inside.execute_in(tx, &self.scope, &key(name), Asked::raw(asked), effect).await
    }

    /// How many effects of `name` are committed.
    pub(crate) async fn effects(&self, name: &str) -> i64 {
        let count = format!("SELECT count(*) FROM {}.effects WHERE key = $1", self.schema);
        self.connect().await.query_one(&count, &[&name]).await.unwrap().get(0)
    }
}

/// The number of the process that serves this transaction.
pub(crate) async fn pid(tx: &Transaction<'_>) -> i32 {
    tx.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
}

/// Returns once somebody waits for the transaction of `pid`.
pub(crate) async fn until_somebody_waits(client: &Client, pid: i32) {
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))";
    loop {
        let count: i64 = client.query_one(waits, &[&pid]).await.unwrap().get(0);
        if count > 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
}
