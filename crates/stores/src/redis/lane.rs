//! The lanes: each sends what waits for it in batches, one script call each, on a connection of its
//! own.
//!
//! A few batches are under way at once; what is asked meanwhile waits and makes the next one
//! larger. Nothing is sent twice, and what was not sent is answered as soon as that is known.

use std::sync::Arc;

use onetake_engine::StoreError;
use redis::Value;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::yield_now;

use super::address::Source;
use super::link::{Failed, Link, Running, is_final};
use super::ops::Op;
use super::{mark, settings};
use crate::seal::joint::Joint;

/// The most operations of one batch: the server does nothing else meanwhile.
const BATCH_MAX: usize = 128;
/// A batch is not added to once it is so large.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Batches under way on one connection: one that runs, and those on their way to the server and
/// back. More would only make each of them smaller.
const UNDER_WAY_MAX: usize = 4;
/// In a cluster every operation is a batch of its own, for each may live on another server.
const UNDER_WAY_MAX_IN_CLUSTER: usize = 256;

/// What the script says of an operation that must be sent again.
const AGAIN: Value = Value::Int(-1);

/// What the lanes of a store share.
pub(super) struct Shared {
    pub(super) source: Source,
    pub(super) script: Running,
    pub(super) accept_loss: bool,
    pub(super) seal: Joint,
    /// The key of the mark.
    pub(super) mark: String,
}

impl Shared {
    /// A new connection to a server that keeps what it acknowledges. Looked at every time: after a
    /// failover it is another server.
    pub(super) async fn connect(&self) -> Result<Link, StoreError> {
        let unavailable = |why: String| StoreError::Unavailable(why);
        let link = self.source.connect().await.map_err(|error| unavailable(error.to_string()))?;
        if !self.accept_loss {
            let checked = settings::check(&link).await;
            checked.map_err(|error| unavailable(error.to_string()))?;
        }
        mark::confirm(&self.seal, &link, &self.mark).await?;
        Ok(link)
    }
}

/// Works until nobody can ask any more.
pub(super) async fn work(shared: Arc<Shared>, mut ops: mpsc::Receiver<Op>, link: Option<Link>) {
    let is_cluster = shared.source.is_cluster();
    let under_way = if is_cluster { UNDER_WAY_MAX_IN_CLUSTER } else { UNDER_WAY_MAX };
    let under_way = Arc::new(Semaphore::new(under_way));
    let batch_max = if is_cluster { 1 } else { BATCH_MAX };
    let (mut link, mut waiting) = (link, Vec::new());
    loop {
        let room = Arc::clone(&under_way).acquire_owned().await;
        let room = room.expect("invariant: it is never closed");
        // Whoever was just told may ask for more at once: with that the next batch is larger.
        yield_now().await;
        let Some(batch) = next(&mut ops, &mut waiting, batch_max).await else { return };
        if link.as_ref().is_none_or(Link::is_broken) {
            link = match shared.connect().await {
                Ok(link) => Some(link),
                Err(error) => {
                    refuse(&mut ops, &mut waiting, batch, &error);
                    continue;
                }
            };
        }
        let link = link.clone().expect("invariant: it was just made");
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            exchange(&link, &shared, batch).await;
            drop(room);
        });
    }
}

/// The next batch, of those who still wait; `None` once nobody can ask any more.
async fn next(
    ops: &mut mpsc::Receiver<Op>,
    waiting: &mut Vec<Op>,
    batch_max: usize,
) -> Option<Vec<Op>> {
    loop {
        if waiting.is_empty() && ops.recv_many(waiting, batch_max).await == 0 {
            return None;
        }
        waiting.retain(|op| !op.is_forsaken());
        let mut bytes = 0;
        let fits = waiting.iter().take_while(|op| {
            let before = bytes;
            bytes += op.weight();
            before < BATCH_BYTES_MAX
        });
        let count = fits.count();
        if count > 0 {
            let rest = waiting.split_off(count);
            let mut batch = std::mem::replace(waiting, rest);
            // New keys first, as the script wants them. All of a batch is asked at the same time,
            // so no order among them was promised to anyone.
            batch.sort_by_key(|op| !op.is_new());
            return Some(batch);
        }
    }
}

/// There is no connection: everyone who waits for it hears so now, not one connection limit later.
fn refuse(ops: &mut mpsc::Receiver<Op>, waiting: &mut Vec<Op>, batch: Vec<Op>, error: &StoreError) {
    let failed = Failed::Refused(error.clone());
    for op in batch.into_iter().chain(waiting.drain(..)) {
        op.fail(&failed);
    }
    // What comes while this goes on waits for the next attempt.
    for _ in 0..ops.len() {
        let Ok(op) = ops.try_recv() else { return };
        op.fail(&failed);
    }
}

/// Sends one batch, and tells everyone in it what came of it. Those whose reply would have made it
/// too large are sent again behind the others: nothing was done for them. At least one is answered
/// each time, so this ends.
async fn exchange(link: &Link, shared: &Shared, mut batch: Vec<Op>) {
    while !batch.is_empty() {
        let replies = match link.run(&shared.script, &batch).await {
            Ok(replies) => replies,
            Err(failed) => return batch.into_iter().for_each(|op| op.fail(&failed)),
        };
        let count = batch.len();
        let mut again = Vec::new();
        for (op, value) in batch.into_iter().zip(replies.value) {
            if value == AGAIN && again.len() + 1 < count {
                again.push(op);
                continue;
            }
            let refused = op.tell(replies.now, value, &shared.seal);
            if refused.is_some_and(|text| is_final(&text)) {
                link.give_up();
            }
        }
        batch = again;
    }
}
