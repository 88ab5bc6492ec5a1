//! The key that says how all others are sealed, for all who share them.
//!
//! It is put once, by whoever opens the store first, and changed only for more keys or another
//! master key. It is looked at again with every new connection: a server that took over may never
//! have heard of it, and then gets it from those who know it. What it means is decided in
//! `seal/joint.rs`.

use std::sync::Arc;

use onetake_engine::StoreError;
use redis::{Cmd, FromRedisValue, Value};

use super::RedisError;
use super::lane::Shared;
use super::link::Link;
use crate::seal::MasterKey;
use crate::seal::joint::{Joint, TRIES_MAX, busy, first_mark, refused};

/// Behind the prefix, where the names of slots are 64 digits.
const NAME: &str = "seal";
/// Puts a mark in the place of another.
const REPLACE: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1";

/// The key of the mark.
pub(super) fn key(prefix: &str) -> String {
    format!("{prefix}{NAME}")
}

async fn ask<T: FromRedisValue>(link: &Link, command: &Cmd) -> Result<T, StoreError> {
    let silent = |why: &str| StoreError::Unavailable(format!("redis did not say: {why}"));
    let reply: Value = link.send(command).await.map_err(|error| silent(error.category()))?;
    T::from_redis_value(reply).map_err(|_| silent("its reply is none"))
}

/// The mark that is there, or `first` if there was none.
async fn fetch(link: &Link, key: &str, first: &[u8]) -> Result<Vec<u8>, StoreError> {
    for _ in 0..TRIES_MAX {
        if let Some(mark) = ask::<Option<Vec<u8>>>(link, redis::cmd("GET").arg(key)).await? {
            return Ok(mark);
        }
        ask::<Value>(link, redis::cmd("SET").arg(key).arg(first).arg("NX")).await?;
    }
    Err(StoreError::Unavailable("redis does not keep the mark of the store".into()))
}

/// Puts `next` where `mark` is, unless something else is there.
async fn replace(link: &Link, key: &str, mark: &[u8], next: &[u8]) -> Result<(), StoreError> {
    let mut command = redis::cmd("EVAL");
    command.arg(REPLACE).arg(1).arg(key).arg(mark).arg(next);
    ask::<i64>(link, &command).await.map(drop)
}

/// Agrees with the mark of the store, or leaves the first one.
pub(super) async fn agree(
    link: &Link,
    key: &str,
    masters: &[MasterKey],
) -> Result<Joint, RedisError> {
    let first = first_mark(masters);
    for _ in 0..TRIES_MAX {
        let mark = fetch(link, key, &first).await.map_err(RedisError::Unreachable)?;
        let joint = Joint::agree(masters, &mark)?;
        let Some(next) = joint.rewrapped() else { return Ok(joint) };
        replace(link, key, &mark, &next).await.map_err(RedisError::Unreachable)?;
    }
    Err(RedisError::Unreachable(busy()))
}

/// Learns what the server behind a connection has for a mark; where it has none, it gets the one
/// that is known.
pub(super) async fn confirm(joint: &Joint, link: &Link, key: &str) -> Result<(), StoreError> {
    let mark = fetch(link, key, &joint.mark()).await?;
    joint.learn(&mark).map_err(refused)?;
    let known = joint.mark();
    if known != mark {
        // A server that took over has lost the later one.
        replace(link, key, &mark, &known).await?;
    }
    Ok(())
}

/// Adds a key, wrapped by `master`, and seals with it once it is stored.
pub(super) async fn rotate(shared: &Shared, master: &MasterKey) -> Result<(), StoreError> {
    let link = shared.connect().await?;
    for _ in 0..TRIES_MAX {
        let next = shared.seal.rotated(master).map_err(refused)?;
        let replaced = replace(&link, &shared.mark, &shared.seal.mark(), &next).await;
        // Also where nobody knows whether it is stored: what is stored tells.
        confirm(&shared.seal, &link, &shared.mark).await?;
        if shared.seal.mark() == next {
            return Ok(());
        }
        replaced?;
    }
    Err(busy())
}

/// Learns of keys that other processes add: every now and then, and at once where a value was met
/// that such a key sealed.
pub(super) async fn follow(shared: Arc<Shared>) {
    let mut link: Option<Link> = None;
    loop {
        shared.seal.a_look_is_due().await;
        let learned = match link.take().filter(|link| !link.is_broken()) {
            Some(there) => {
                let learned = confirm(&shared.seal, &there, &shared.mark).await;
                link = Some(there);
                learned
            }
            // Connecting confirms it.
            None => shared.connect().await.map(|made| link = Some(made)),
        };
        if let Err(error) = learned {
            tracing::warn!(%error, "no news of the keys of the store");
        }
    }
}
