//! The writers: each takes the swaps and renewals of its slots in batches, one transaction each.
//!
//! A slot always has the same writer, so two operations of this process on one slot never overlap.
//! All swaps of a batch are one statement: insert where nothing is expected, update where a version
//! is, and whatever was not written is read again and judged. Nobody is told anything before the
//! commit has returned. What depends on the renewals of another node is done alone, under a lock of
//! that node's row; a renewal takes that lock too, so the two can never both win. A swap whose row
//! somebody else's transaction holds for long is told so, and holds up nobody.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onetake_core::{Draft, Record, Timestamp, Verdict, Version, judge};
use onetake_engine::{Reply, Stamped, StoreError, Swap};
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

use super::link::{self, Failed, Link, Typed, in_one_trip};
use super::pulse::{self, Renewing};
use super::rows::{self, Arrays, Found, Written, time};
use super::shared::Shared;
use super::{listen, part};

/// The most operations of one batch.
///
/// All of them may be waited for, and one notification has at most 8,000 bytes.
const BATCH_MAX: usize = 380;
/// The least time between two beats for renewals.
const BEAT_EVERY: Duration = Duration::from_millis(50);
/// How often is looked for claims that nobody renewed.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often a batch is tried that gets in another's way.
const TRIES_MAX: usize = 5;

pub(super) type Ear = oneshot::Sender<Reply<Swap>>;

/// What is asked of a writer.
pub(super) enum Op {
    Swap { expected: Option<Version>, next: Draft, ear: Ear },
    Renew(Renewing),
}

/// Which of the writers one is: the slots of each are its alone.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) index: usize,
    pub(super) count: usize,
}

impl Part {
    fn has(self, slot: &[u8]) -> bool {
        part(slot, self.count) == self.index
    }
}

/// A swap on its way.
struct Swapping {
    expected: Option<Version>,
    next: Draft,
    row: Written,
    asked_at: Instant,
    ear: Ear,
}

/// Works until nobody can ask any more.
pub(super) async fn write(
    shared: Arc<Shared>,
    mine: Part,
    mut ops: mpsc::Receiver<Op>,
    mut link: Link,
) {
    let (mut batch, mut later, mut renewals) = (Vec::new(), Vec::new(), Vec::new());
    let (mut beat_at, mut look_at) = (Instant::now(), Instant::now() + LOOK_EVERY);
    loop {
        if later.is_empty() {
            let wake = if renewals.is_empty() { look_at } else { beat_at.min(look_at) };
            // Whoever was just told may ask for more at once: with that the next batch is larger.
            yield_now().await;
            // Swaps go on; renewals wait for each other, because one beat is enough for all.
            if let Ok(0) = timeout_at(wake, ops.recv_many(&mut batch, BATCH_MAX)).await {
                return;
            }
        }
        for op in batch.drain(..) {
            match op {
                Op::Swap { expected, next, ear } => {
                    let (row, asked_at) = (shared.written(&next), Instant::now());
                    later.push(Swapping { expected, next, row, asked_at, ear });
                }
                Op::Renew(renewing) => renewals.push(renewing),
            }
        }
        // The first operation of each slot; the others have to see what came of it.
        let mut slots = HashSet::new();
        let (now, rest): (Vec<_>, Vec<_>) =
            later.drain(..).partition(|swap: &Swapping| slots.insert(swap.row.slot.clone()));
        later = rest;
        work(&shared, &mut link, now).await;
        if !renewals.is_empty() && Instant::now() >= beat_at {
            pulse::renew(&shared, &mut link, std::mem::take(&mut renewals)).await;
            beat_at = Instant::now() + BEAT_EVERY;
        }
        if Instant::now() >= look_at {
            pulse::let_go(&shared, &mut link, |slot| mine.has(slot)).await;
            look_at = Instant::now() + LOOK_EVERY;
        }
    }
}

async fn work(shared: &Shared, link: &mut Link, swaps: Vec<Swapping>) {
    let (takeovers, swaps): (Vec<_>, Vec<_>) =
        swaps.into_iter().partition(|swap| depends_on_another(shared, swap));
    swap(shared, link, swaps).await;
    for takeover in takeovers {
        take_over(shared, link, takeover).await;
    }
}

/// Whether a swap names a renewal that another node counts.
fn depends_on_another(shared: &Shared, swap: &Swapping) -> bool {
    let own = shared.own.get(&swap.row.slot);
    swap.expected.is_some_and(|expected| {
        let is_own = own.is_some_and(|own| own.write == expected.write);
        expected.renewal != 0 && !is_own
    })
}

/// Whether a swap of a claim of ours names another renewal than the last.
fn is_stale(shared: &Shared, swap: &Swapping) -> bool {
    let own = shared.own.get(&swap.row.slot);
    match (swap.expected, own) {
        (Some(expected), Some(own)) if own.write == expected.write => {
            own.renewal != expected.renewal
        }
        _ => false,
    }
}

pub(super) fn say(ear: Ear, reply: Reply<Swap>) {
    // Whoever asked may have left.
    drop(ear.send(reply));
}

fn fail(swaps: Vec<Swapping>, failed: &Failed) {
    for swap in swaps {
        say(swap.ear, failed.reply(Swap::Unknown));
    }
}

async fn swap(shared: &Shared, link: &mut Link, swaps: Vec<Swapping>) {
    if swaps.is_empty() {
        return;
    }
    for _ in 0..TRIES_MAX {
        let written =
            link.work(async |client: &mut Client| write_all(shared, client, &swaps).await).await;
        match written {
            Ok(written) => return tell(shared, link, swaps, written).await,
            Err(Failed::Again) => {}
            // Whose row is held is found by asking for each alone.
            Err(Failed::Held) if swaps.len() > 1 => {
                for one in swaps {
                    Box::pin(swap(shared, link, vec![one])).await;
                }
                return;
            }
            Err(failed) => return fail(swaps, &failed),
        }
    }
    fail(swaps, &Failed::Again);
}

/// What was written of a batch: the time, and the rows.
struct Wrote {
    now: i64,
    /// Since when and until when, by slot.
    slots: HashMap<Vec<u8>, (i64, i64)>,
}

/// Writes what can be written of `swaps`, in one transaction.
async fn write_all(shared: &Shared, client: &Client, swaps: &[Swapping]) -> Result<Wrote, Failed> {
    let mut order: Vec<_> = swaps.iter().filter(|swap| !is_stale(shared, swap)).collect();
    // In one order for everybody, so that batches wait for each other and never in a circle.
    order.sort_unstable_by(|one, other| one.row.slot.cmp(&other.row.slot));
    let of = |swap: &Swapping| swap.expected.map(|expected| Uuid::from_u128(expected.write));
    let expected: Vec<_> = order.iter().map(|swap| of(swap)).collect();
    let names: Vec<_> = order.iter().map(|swap| listen::name(&swap.row.slot)).collect();
    let arrays = Arrays::of(order.iter().map(|swap| &swap.row), shared.node);
    let [slots, written @ ..] = arrays.typed();
    let mut types = vec![slots, (&expected as _, Type::UUID_ARRAY)];
    types.extend(written);
    types.extend([(&shared.node as _, Type::UUID), (&names as _, Type::INT8_ARRAY)]);
    let rows = send(shared, client, &types).await.map_err(|error| link::judge(&error))?;
    let now = rows.first().map_or(0, |row| row.get(0));
    shared.note_now(now);
    let slots = rows.iter().filter_map(|row| {
        let slot: Option<Vec<u8>> = row.get(1);
        slot.map(|slot| (slot, (row.get(2), row.get(3))))
    });
    Ok(Wrote { now, slots: slots.collect() })
}

/// Sends a batch, which is one transaction and one round trip.
async fn send(shared: &Shared, client: &Client, types: &[Typed<'_>]) -> Result<Vec<Row>, Error> {
    let sql = &shared.sql;
    if sql.calls.load(Ordering::Relaxed) {
        match client.query_typed(&sql.call, types).await {
            Err(error) if is_missing(&error) => {}
            called => return called,
        }
        // Nothing was written. In one transaction, so that a pooler does not part the two.
        match in_one_trip(client, &sql.begin_making, &sql.call, types).await {
            Err(error) if is_forbidden(&error) => sql.calls.store(false, Ordering::Relaxed),
            called => return called,
        }
    }
    in_one_trip(client, &sql.begin, &sql.swaps, types).await
}

/// Whether this connection of the server does not have the function yet.
fn is_missing(error: &Error) -> bool {
    let missing = [SqlState::UNDEFINED_FUNCTION, SqlState::INVALID_SCHEMA_NAME];
    error.code().is_some_and(|code| missing.contains(code))
}

/// Whether we may not make functions for ourselves, or the server has no language for them.
fn is_forbidden(error: &Error) -> bool {
    let forbidden = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::UNDEFINED_OBJECT];
    error.code().is_some_and(|code| forbidden.contains(code))
}

/// Says what was written, and finds out about the rest.
async fn tell(shared: &Shared, link: &mut Link, swaps: Vec<Swapping>, wrote: Wrote) {
    let (now, mut rest) = (time(wrote.now), Vec::new());
    for swap in swaps {
        match wrote.slots.get(&swap.row.slot) {
            Some((since, until)) => {
                let record = settled(shared, &swap, now, *since, *until);
                say(swap.ear, Ok(Stamped { now, value: Swap::Won(record) }));
            }
            None => rest.push(swap),
        }
    }
    lost(shared, link, rest).await;
}

/// The record that was just written, and notes whose it is.
fn settled(
    shared: &Shared,
    swap: &Swapping,
    now: Timestamp,
    since: i64,
    until: i64,
) -> Arc<Record> {
    let slot = &swap.row.slot;
    match swap.expected {
        Some(expected) => shared.own.forget(slot, expected.write),
        None => shared.tally.add(rows::tenant_of(slot), swap.row.body.len() + slot.len()),
    }
    if swap.row.is_claim {
        shared.own.put(slot.clone(), swap.next.version.write, until);
    }
    let record = Arc::new(swap.next.clone().at(time(since.saturating_sub(swap.row.since))));
    shared.front.note(slot, &Stamped { now, value: Arc::clone(&record) }, swap.asked_at);
    record
}

/// Says what is there instead, to those whose swap wrote nothing.
async fn lost(shared: &Shared, link: &mut Link, swaps: Vec<Swapping>) {
    if swaps.is_empty() {
        return;
    }
    let slots: Vec<_> = swaps.iter().map(|swap| swap.row.slot.clone()).collect();
    let asked_at = Instant::now();
    let found = link.work(async |client: &mut Client| shared.read_all(client, &slots).await).await;
    let found = match found {
        Ok(found) => found,
        // That nothing was written is known: the statement said so.
        Err(failed) => {
            let error = StoreError::from(failed);
            for swap in swaps {
                say(swap.ear, Err(error.clone()));
            }
            return;
        }
    };
    let (mut repeated, now) = (Vec::new(), found.now);
    for (swap, there) in swaps.into_iter().zip(found.value) {
        let value = match there {
            Ok(there) => {
                if let Some(record) = &there {
                    let there = Stamped { now, value: Arc::clone(record) };
                    shared.front.note(&swap.row.slot, &there, asked_at);
                }
                let version = there.as_ref().map(|there| there.version);
                match (judge(version, swap.expected, swap.next.version), there) {
                    (Verdict::Repeated, Some(there)) => {
                        repeated.push((swap.ear, there));
                        continue;
                    }
                    // It was in the way, and is gone again. Whoever asked may ask again.
                    (Verdict::Write, _) => Ok(Swap::Unknown),
                    (Verdict::Refuse | Verdict::Repeated, there) => Ok(Swap::Lost(there)),
                }
            }
            Err(error) => Err(error),
        };
        say(swap.ear, value.map(|value| Stamped { now, value }));
    }
    confirm(shared, link, now, repeated).await;
}

/// Says of writes that an earlier copy of them is there, once it is sure that it stays there: that
/// copy may have become visible without having reached the standby that it was to reach. A commit
/// of our own, which waits for everything before it, tells.
async fn confirm(
    shared: &Shared,
    link: &mut Link,
    now: Timestamp,
    repeated: Vec<(Ear, Arc<Record>)>,
) {
    if repeated.is_empty() {
        return;
    }
    let beaten = link
        .work(async |client: &mut Client| {
            let me = [(&shared.node as _, Type::UUID)];
            let beat = in_one_trip(client, &shared.sql.begin, &shared.sql.beat, &me).await;
            beat.map(drop).map_err(|error| link::judge(&error))
        })
        .await;
    for (ear, there) in repeated {
        let value = if beaten.is_ok() { Swap::Won(there) } else { Swap::Unknown };
        say(ear, Ok(Stamped { now, value }));
    }
}

/// Replaces a claim of another node, if that node has not renewed its claims since.
async fn take_over(shared: &Shared, link: &mut Link, swap: Swapping) {
    let taken =
        link.work(async |client: &mut Client| try_take_over(shared, client, &swap).await).await;
    match taken {
        Ok(Some((now, since, until))) => {
            let now = time(now);
            let record = settled(shared, &swap, now, since, until);
            say(swap.ear, Ok(Stamped { now, value: Swap::Won(record) }));
        }
        Ok(None) => lost(shared, link, vec![swap]).await,
        Err(failed) => say(swap.ear, failed.reply(Swap::Unknown)),
    }
}

async fn try_take_over(
    shared: &Shared,
    client: &mut Client,
    swap: &Swapping,
) -> Result<Option<(i64, i64, i64)>, Failed> {
    let failed = |error| link::judge(&error);
    let Some(expected) = swap.expected else { return Ok(None) };
    let write = Uuid::from_u128(expected.write);
    let tx = client.transaction().await.map_err(failed)?;
    tx.batch_execute(&shared.sql.settings).await.map_err(failed)?;
    let node = tx
        .query_typed(&shared.sql.node_of, &[(&swap.row.slot, Type::BYTEA), (&write, Type::UUID)])
        .await
        .map_err(failed)?;
    let Some(node) = node.first().and_then(|row| row.get::<_, Option<Uuid>>(0)) else {
        return Ok(None);
    };
    let beat =
        tx.query_typed(&shared.sql.lock_node, &[(&node, Type::UUID)]).await.map_err(failed)?;
    if Found::renewal_of(beat.first().map(|row| row.get(0))) != expected.renewal {
        return Ok(None);
    }
    let row = &swap.row;
    let me = row.is_claim.then_some(shared.node);
    let written = tx
        .query_typed(
            &shared.sql.take_over,
            &[
                (&row.slot, Type::BYTEA),
                (&write, Type::UUID),
                (&node, Type::UUID),
                (&row.write, Type::UUID),
                (&me, Type::UUID),
                (&row.kind, Type::INT2),
                (&row.since, Type::INT8),
                (&row.until, Type::INT8),
                (&row.body, Type::BYTEA),
                (&listen::name(&row.slot).to_string(), Type::TEXT),
            ],
        )
        .await
        .map_err(failed)?;
    let Some(written) = written.first() else { return Ok(None) };
    let times = (written.get(0), written.get(1), written.get(2));
    tx.commit().await.map_err(failed)?;
    Ok(Some(times))
}
