//! The mark in the tables that says how they are sealed, for all who share them.
//!
//! It is put once, by whoever makes the tables or opens them first, and changed only for more keys
//! or another master key. What it means is decided in `seal/joint.rs`.

use std::sync::Arc;

use onetake_engine::StoreError;
use tokio::sync::Mutex;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::PostgresError;
use super::link::{self, Link};
use crate::seal::MasterKey;
use crate::seal::joint::{Joint, TRIES_MAX, busy, first_mark, refused};

/// Agrees with the mark of the tables in `schema`. Whoever may make tables leaves the first one.
pub(super) async fn agree(
    client: &mut Client,
    schema: &str,
    masters: &[MasterKey],
    is_maker: bool,
) -> Result<Joint, PostgresError> {
    let database = PostgresError::Schema;
    if fetch(client, schema).await.map_err(database)?.is_none() {
        if !is_maker {
            return Err(PostgresError::Unmigrated);
        }
        put(client, schema, &first_mark(masters)).await.map_err(database)?;
    }
    for _ in 0..TRIES_MAX {
        let mark = fetch(client, schema).await.map_err(database)?;
        let mark = mark.ok_or(PostgresError::Unmarked)?;
        let joint = Joint::agree(masters, &mark)?;
        // Who only looks changes nothing.
        let Some(next) = joint.rewrapped().filter(|_| is_maker) else { return Ok(joint) };
        if replace(client, schema, &mark, &next).await.map_err(database)? {
            joint.learn(&next)?;
            return Ok(joint);
        }
    }
    Err(PostgresError::Unreachable(busy()))
}

async fn fetch(client: &Client, schema: &str) -> Result<Option<Vec<u8>>, Error> {
    let rows = client.query_typed(&select(schema), &[]).await?;
    Ok(rows.first().map(|row| row.get(0)))
}

/// The statement that reads the mark.
pub(super) fn select(schema: &str) -> String {
    format!("SELECT mark FROM {schema}.seals")
}

/// Puts the first mark, unless somebody else did, or there are records: nobody knows how those are
/// sealed. It must outlast whatever is sealed by it.
async fn put(client: &mut Client, schema: &str, mark: &[u8]) -> Result<(), Error> {
    let tx = link::transaction(client).await?;
    tx.batch_execute("SET LOCAL synchronous_commit = on").await?;
    let sql = format!(
        "INSERT INTO {schema}.seals (mark)
         SELECT $1 WHERE NOT EXISTS (SELECT FROM {schema}.slots) ON CONFLICT DO NOTHING"
    );
    tx.query_typed(&sql, &[(&mark, Type::BYTEA)]).await?;
    tx.commit().await
}

/// Puts `next` where `mark` is. `false`: something else is there.
async fn replace(
    client: &mut Client,
    schema: &str,
    mark: &[u8],
    next: &[u8],
) -> Result<bool, Error> {
    let tx = link::transaction(client).await?;
    tx.batch_execute("SET LOCAL synchronous_commit = on").await?;
    let sql = format!("UPDATE {schema}.seals SET mark = $2 WHERE mark = $1 RETURNING 1");
    let types = [(&mark as _, Type::BYTEA), (&next as _, Type::BYTEA)];
    let is_done = !tx.query_typed(&sql, &types).await?.is_empty();
    tx.commit().await?;
    Ok(is_done)
}

/// Adds a key, wrapped by `master`, and seals with it once it is stored.
pub(super) async fn rotate(
    joint: &Joint,
    link: &mut Link,
    schema: &str,
    master: &MasterKey,
) -> Result<(), StoreError> {
    for _ in 0..TRIES_MAX {
        let (mark, next) = (joint.mark(), joint.rotated(master).map_err(refused)?);
        let replaced = link
            .work(async |client: &mut Client| {
                replace(client, schema, &mark, &next).await.map_err(|error| link::judge(&error))
            })
            .await;
        // Also where nobody knows whether it is stored: what is stored tells.
        confirm(joint, link, schema).await?;
        if joint.mark() == next {
            return Ok(());
        }
        replaced?;
    }
    Err(busy())
}

/// Learns the mark of the tables. Where they have none, or one from before, they get the one that
/// is known.
async fn confirm(joint: &Joint, link: &mut Link, schema: &str) -> Result<(), StoreError> {
    let found = link
        .work(async |client: &mut Client| {
            fetch(client, schema).await.map_err(|error| link::judge(&error))
        })
        .await?;
    if let Some(mark) = &found {
        joint.learn(mark).map_err(refused)?;
    }
    let known = joint.mark();
    if found.as_ref() == Some(&known) {
        return Ok(());
    }
    let put_back = async |client: &mut Client| {
        let done = match &found {
            Some(mark) => replace(client, schema, mark, &known).await,
            None => put_back(client, schema, &known).await,
        };
        done.map(drop).map_err(|error| link::judge(&error))
    };
    Ok(link.work(put_back).await?)
}

async fn put_back(client: &mut Client, schema: &str, mark: &[u8]) -> Result<bool, Error> {
    let sql = format!("INSERT INTO {schema}.seals (mark) VALUES ($1) ON CONFLICT DO NOTHING");
    client.query_typed(&sql, &[(&mark, Type::BYTEA)]).await.map(|_| true)
}

/// Learns of keys that other processes add: every now and then, and at once where a value was met
/// that such a key sealed.
pub(super) async fn follow(joint: Arc<Joint>, link: Arc<Mutex<Link>>, schema: String) {
    loop {
        joint.a_look_is_due().await;
        // All under one lock, so that nothing that was just changed here is overtaken.
        let confirmed = confirm(&joint, &mut *link.lock().await, &schema).await;
        if let Err(error) = confirmed {
            tracing::warn!(%error, "no news of the keys of the store");
        }
    }
}
