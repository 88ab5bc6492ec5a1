//! Sweeping by hand. The server removes what has expired by itself; who does not want to wait for
//! that can have it done at once.
//!
//! It only ever removes what the script finds expired, by the clock of the server, at the moment of
//! removing it.

use std::collections::VecDeque;

use onetake_engine::{Reply, Stamped, Swept};
use redis::{FromRedisValue, Value};

use super::lane::Shared;
use super::link::{Failed, Link};
use super::ops::Removal;

/// Keys that the server looks at in one step, at least and at most.
const SCAN_MIN: usize = 128;
const SCAN_MAX: usize = 1_024;

/// How far the sweeping has come.
#[derive(Default)]
pub(super) struct Sweeping {
    link: Option<Link>,
    cursor: u64,
    found: VecDeque<Vec<u8>>,
}

impl Sweeping {
    /// One step. A cluster is left to itself: each of its servers forgets on its own.
    pub(super) async fn step(
        &mut self,
        shared: &Shared,
        prefix: &str,
        limit: usize,
    ) -> Reply<Swept> {
        let link = match self.link.take().filter(|link| !link.is_broken()) {
            Some(link) => link,
            None => shared.connect().await?,
        };
        if self.found.is_empty() && !shared.source.is_cluster() {
            self.scan(&link, prefix, &shared.mark, limit)
                .await
                .map_err(|failed| failed.of_read())?;
        }
        let count = self.found.len().min(limit);
        let batch: Vec<_> = self.found.drain(..count).map(Removal).collect();
        let replies = link.run(&shared.script, &batch).await.map_err(|failed| failed.of_read())?;
        let removed = replies.value.iter().filter(|reply| **reply == Value::Int(1)).count();
        self.link = Some(link);
        let done = self.found.is_empty() && self.cursor == 0;
        Ok(Stamped { now: replies.now, value: Swept { removed, done } })
    }

    async fn scan(
        &mut self,
        link: &Link,
        prefix: &str,
        mark: &str,
        limit: usize,
    ) -> Result<(), Failed> {
        let mut command = redis::cmd("SCAN");
        command.arg(self.cursor).arg("MATCH").arg(format!("{prefix}*"));
        command.arg("COUNT").arg(limit.clamp(SCAN_MIN, SCAN_MAX));
        let reply = link.send(&command).await.map_err(|_| Failed::Unsure)?;
        let found = <(u64, Vec<Vec<u8>>)>::from_redis_value(reply);
        let (cursor, keys) = found.map_err(|_| Failed::Unsure)?;
        self.cursor = cursor;
        // All of them are slots but the mark.
        self.found = keys.into_iter().filter(|key| key != mark.as_bytes()).collect();
        Ok(())
    }
}
