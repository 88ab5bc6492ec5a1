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

use onetake_core::{Draft, Phase, Record, Timestamp, Verdict, Version, judge};
use onetake_engine::{Reply, Stamped, StoreError, Swap};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

use super::link::{self, Failed, Link, Typed, in_one_trip};
use super::pulse::{self, Renewing};
use super::rows::{self, Arrays, Written, time};
use super::shared::Shared;
use super::{listen, part, takeover};

/// The most operations of one batch.
///
/// All of them may be waited for, and one notification has at most 8,000 bytes.
const BATCH_MAX: usize = 380;
/// A batch is not added to once it is so large.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The least time between two beats for renewals.
const BEAT_EVERY: Duration = Duration::from_millis(50);
/// How often is looked for claims that nobody renewed.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often a batch is tried that gets in another's way.
const TRIES_MAX: usize = 5;

pub(super) type Ear = oneshot::Sender<Reply<Swap>>;

/// A swap that is asked of a writer.
pub(super) struct Op {
    pub(super) expected: Option<Version>,
    pub(super) next: Draft,
    pub(super) ear: Ear,
    /// Held until the reply is given, so that what waits has a bound.
    pub(super) room: Option<OwnedSemaphorePermit>,
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
pub(super) struct Swapping {
    pub(super) expected: Option<Version>,
    next: Draft,
    pub(super) row: Written,
    asked_at: Instant,
    pub(super) ear: Ear,
    _room: Option<OwnedSemaphorePermit>,
}

/// A writer, and what it does beside swaps.
struct Writer {
    shared: Arc<Shared>,
    mine: Part,
    link: Link,
    renewing: mpsc::Receiver<Renewing>,
    renewals: Vec<Renewing>,
    beat_at: Instant,
    look_at: Instant,
}

/// Works until nobody can ask any more.
pub(super) async fn write(
    shared: Arc<Shared>,
    mine: Part,
    mut ops: mpsc::Receiver<Op>,
    renewing: mpsc::Receiver<Renewing>,
    link: Link,
) {
    let (beat_at, look_at) = (Instant::now(), Instant::now() + LOOK_EVERY);
    let renewals = Vec::new();
    let mut writer = Writer { shared, mine, link, renewing, renewals, beat_at, look_at };
    let (mut batch, mut later) = (Vec::new(), Vec::new());
    loop {
        if later.is_empty() {
            // Whoever was just told may ask for more at once: with that the next batch is larger.
            yield_now().await;
            tokio::select! {
                biased;
                count = ops.recv_many(&mut batch, BATCH_MAX) => if count == 0 { return },
                () = writer.is_due() => {}
            }
        }
        for Op { expected, next, ear, room } in batch.drain(..) {
            let (row, asked_at) = (writer.shared.written(&next), Instant::now());
            later.push(Swapping { expected, next, row, asked_at, ear, _room: room });
        }
        // What nobody waits for any more was given up by its caller, who has counted on that.
        later.retain(|swap: &Swapping| !swap.ear.is_closed());
        let (now, rest) = next_of(later);
        let held = writer.work(now).await;
        // Those who want the same must not wait as long, one after the other.
        let (held, rest) = rest.into_iter().partition(|swap| held.contains(&swap.row.slot));
        fail(held, &Failed::Held);
        later = rest;
        writer.look_after().await;
    }
}

/// The next batch: the first operation of each slot, because the others have to see what came of
/// it, as far as they fit. And the rest.
fn next_of(swaps: Vec<Swapping>) -> (Vec<Swapping>, Vec<Swapping>) {
    let (mut slots, mut bytes) = (HashSet::new(), 0);
    swaps.into_iter().partition(|swap| {
        let is_next = slots.insert(swap.row.slot.clone()) && bytes < BATCH_BYTES_MAX;
        bytes += if is_next { swap.row.body.len() } else { 0 };
        is_next
    })
}

impl Writer {
    /// Returns when there is something to do beside swaps. Renewals wait for each other a little,
    /// because one beat is enough for all.
    async fn is_due(&mut self) {
        if self.renewals.is_empty() {
            match timeout_at(self.look_at, self.renewing.recv()).await {
                Ok(Some(one)) => self.renewals.push(one),
                Ok(None) => std::future::pending().await,
                Err(_) => return,
            }
        }
        sleep_until(self.beat_at.min(self.look_at)).await;
    }

    /// Renews, and lets go what nobody renews. Renewals never wait behind swaps, and whatever was
    /// asked for is renewed before anything is let go.
    async fn look_after(&mut self) {
        while let Ok(one) = self.renewing.try_recv() {
            self.renewals.push(one);
        }
        let looks = Instant::now() >= self.look_at;
        if !self.renewals.is_empty() && (looks || Instant::now() >= self.beat_at) {
            let renewals = std::mem::take(&mut self.renewals);
            pulse::renew(&self.shared, &mut self.link, renewals).await;
            self.beat_at = Instant::now() + BEAT_EVERY;
        }
        if looks {
            let mine = self.mine;
            pulse::let_go(&self.shared, &mut self.link, |slot| mine.has(slot)).await;
            self.look_at = Instant::now() + LOOK_EVERY;
        }
    }

    /// Carries out swaps of different slots. Gives the slots that somebody else holds.
    async fn work(&mut self, swaps: Vec<Swapping>) -> HashSet<Vec<u8>> {
        let shared = Arc::clone(&self.shared);
        let (takeovers, swaps): (Vec<_>, Vec<_>) =
            swaps.into_iter().partition(|swap| depends_on_another(&shared, swap));
        let mut held = HashSet::new();
        let left = swap(&shared, &mut self.link, swaps, Patience::Usual).await;
        // Whose row is held is found by asking for each alone.
        for one in left {
            self.look_after().await;
            let still = swap(&shared, &mut self.link, vec![one], Patience::Little).await;
            held.extend(still.iter().map(|swap| swap.row.slot.clone()));
            fail(still, &Failed::Held);
        }
        for takeover in takeovers {
            self.look_after().await;
            takeover::take_over(&shared, &mut self.link, takeover).await;
        }
        held
    }
}

/// How long one waits for a row that somebody else holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    Usual,
    /// It has been waited for before.
    Little,
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

pub(super) fn fail(swaps: Vec<Swapping>, failed: &Failed) {
    for swap in swaps {
        say(swap.ear, failed.reply(Swap::Unknown));
    }
}

/// Carries out swaps of different slots in one transaction, and tells what came of them. Gives back
/// those of a batch of which somebody else holds one.
async fn swap(
    shared: &Shared,
    link: &mut Link,
    swaps: Vec<Swapping>,
    patience: Patience,
) -> Vec<Swapping> {
    let mut failed = Failed::Again;
    for _ in 0..TRIES_MAX {
        if swaps.is_empty() || swaps.iter().all(|swap| swap.ear.is_closed()) {
            return Vec::new();
        }
        let written = link
            .work(async |client: &mut Client| write_all(shared, client, &swaps, patience).await)
            .await;
        match written {
            Ok(written) => {
                tell(shared, link, swaps, written).await;
                return Vec::new();
            }
            Err(Failed::Again) => {}
            Err(Failed::Held) => return swaps,
            Err(other) => {
                failed = other;
                break;
            }
        }
    }
    if matches!(failed, Failed::Unsure) {
        note_unsure(shared, &swaps);
    }
    fail(swaps, &failed);
    Vec::new()
}

/// Notes claims that may be there: if so, they are to be renewed, or to be let go in the end.
pub(super) fn note_unsure(shared: &Shared, swaps: &[Swapping]) {
    let now = shared.about_now().unwrap_or(0);
    for swap in swaps.iter().filter(|swap| swap.row.is_claim) {
        let until = now.saturating_add(swap.row.until);
        shared.own.put_unsure(swap.row.slot.clone(), swap.next.version.write, until);
    }
}

/// What was written of a batch: the time, and the rows.
struct Wrote {
    now: i64,
    /// Since when and until when, by slot.
    slots: HashMap<Vec<u8>, (i64, i64)>,
}

/// Writes what can be written of `swaps`, in one transaction.
async fn write_all(
    shared: &Shared,
    client: &Client,
    swaps: &[Swapping],
    patience: Patience,
) -> Result<Wrote, Failed> {
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
    let rows = send(shared, client, &types, patience).await;
    let rows = rows.map_err(|error| link::judge(&error))?;
    let now = rows.first().map_or(0, |row| row.get(0));
    shared.note_now(now);
    let slots = rows.iter().filter_map(|row| {
        let slot: Option<Vec<u8>> = row.get(1);
        slot.map(|slot| (slot, (row.get(2), row.get(3))))
    });
    Ok(Wrote { now, slots: slots.collect() })
}

/// Sends a batch, which is one transaction and one round trip.
async fn send(
    shared: &Shared,
    client: &Client,
    types: &[Typed<'_>],
    patience: Patience,
) -> Result<Vec<Row>, Error> {
    let sql = &shared.sql;
    if patience == Patience::Little {
        return in_one_trip(client, &sql.begin_briefly, &sql.swaps, types).await;
    }
    if sql.calls.load(Ordering::Relaxed) && shared.dial.syncs.load(Ordering::Relaxed) {
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
pub(super) fn settled(
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
pub(super) async fn lost(shared: &Shared, link: &mut Link, swaps: Vec<Swapping>) {
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
                        repeated.push((swap, there));
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
    repeated: Vec<(Swapping, Arc<Record>)>,
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
    for (swap, there) in repeated {
        // Whether this node keeps it nobody knows, so the first renewal asks for it.
        if let Phase::Claimed { lease_until } = there.phase {
            let (slot, until) = (swap.row.slot, rows::millis(lease_until));
            shared.own.put_unsure(slot, there.version.write, until);
        }
        let value = if beaten.is_ok() { Swap::Won(there) } else { Swap::Unknown };
        say(swap.ear, Ok(Stamped { now, value }));
    }
}
