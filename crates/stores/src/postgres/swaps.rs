//! The writers: each takes the swaps and renewals of its slots in batches, one transaction each.
//!
//! A slot always has the same writer, so two operations of this process on one slot never overlap.
//! All swaps of a batch are one statement: insert where nothing is expected, update where a version
//! is, and whatever was not written is read again and judged. Nobody is told anything before the
//! commit has returned. What depends on the renewals of another node is done alone, under a lock of
//! that node's row; a renewal takes that lock too, so the two can never both win.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use onetake_core::{Draft, Phase, Record, Verdict, Version, judge};
use onetake_engine::{Reply, Stamped, StoreError, Swap};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::link::{self, Failed, Link};
use super::own::Owned;
use super::rows::{Found, Written, time};
use super::shared::{Read, Shared};

/// The most operations of one batch.
const BATCH_MAX: usize = 512;
/// How often a batch is tried that gets in another's way.
const TRIES_MAX: usize = 5;

pub(super) type Ear = oneshot::Sender<Reply<Swap>>;

pub(super) enum Op {
    Swap { expected: Option<Version>, next: Draft, ear: Ear },
    Renew { slot: Vec<u8>, expected: Version, lease: Duration, ear: Ear },
}

impl Op {
    fn slot(&self) -> Vec<u8> {
        match self {
            Self::Swap { next, .. } => next.address.slot().to_bytes(),
            Self::Renew { slot, .. } => slot.clone(),
        }
    }
}

/// A swap on its way.
struct Swapping {
    expected: Option<Version>,
    next: Draft,
    row: Written,
    ear: Ear,
}

struct Renewing {
    slot: Vec<u8>,
    expected: Version,
    lease: i64,
    ear: Ear,
}

/// Works until nobody can ask any more.
pub(super) async fn write(shared: Arc<Shared>, mut ops: mpsc::Receiver<Op>, mut link: Link) {
    let (mut batch, mut later) = (Vec::new(), Vec::new());
    loop {
        if later.is_empty() && ops.recv_many(&mut batch, BATCH_MAX).await == 0 {
            return;
        }
        later.append(&mut batch);
        // The first operation of each slot; the others have to see what came of it.
        let mut slots = HashSet::new();
        let (now, rest): (Vec<_>, Vec<_>) = later.drain(..).partition(|op| slots.insert(op.slot()));
        later = rest;
        work(&shared, &mut link, now).await;
    }
}

async fn work(shared: &Shared, link: &mut Link, ops: Vec<Op>) {
    let (mut swaps, mut takeovers, mut renewals) = (Vec::new(), Vec::new(), Vec::new());
    for op in ops {
        match op {
            Op::Swap { expected, next, ear } => {
                let swap = Swapping { expected, row: Written::of(&next), next, ear };
                if depends_on_another(shared, &swap) {
                    takeovers.push(swap);
                } else {
                    swaps.push(swap);
                }
            }
            Op::Renew { slot, expected, lease, ear } => {
                let lease = i64::try_from(lease.as_micros().div_ceil(1_000)).unwrap_or(i64::MAX);
                renewals.push(Renewing { slot, expected, lease, ear });
            }
        }
    }
    swap(shared, link, swaps).await;
    for takeover in takeovers {
        take_over(shared, link, takeover).await;
    }
    renew(shared, link, renewals).await;
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

fn say(ear: Ear, reply: Reply<Swap>) {
    // Whoever asked may have left.
    drop(ear.send(reply));
}

fn fail(swaps: Vec<Swapping>, failed: &Failed) {
    for swap in swaps {
        say(swap.ear, failure(failed));
    }
}

fn failure(failed: &Failed) -> Reply<Swap> {
    match failed {
        Failed::Refused(error) => Err(error.clone()),
        Failed::Again => Err(StoreError::Unavailable("rivals kept getting in the way".into())),
        // The time is not known either; nobody judges anything by the time of an unknown.
        Failed::Unsure => Ok(Stamped { now: time(0), value: Swap::Unknown }),
    }
}

async fn swap(shared: &Shared, link: &mut Link, swaps: Vec<Swapping>) {
    if swaps.is_empty() {
        return;
    }
    for _ in 0..TRIES_MAX {
        let written = match link.client().await {
            Ok(client) => write_all(shared, client, &swaps).await,
            Err(failed) => return fail(swaps, &failed),
        };
        match written {
            Ok(written) => return tell(shared, link, swaps, written).await,
            Err(Failed::Again) => {}
            Err(failed) => {
                link.drop_client();
                return fail(swaps, &failed);
            }
        }
    }
    fail(swaps, &Failed::Again);
}

/// What was written of a batch: the time, and the rows.
struct Wrote {
    now: i64,
    slots: Vec<(Vec<u8>, i64, i64)>,
}

/// Writes what can be written of `swaps`, in one transaction.
async fn write_all(shared: &Shared, client: &Client, swaps: &[Swapping]) -> Result<Wrote, Failed> {
    let mut order: Vec<_> = swaps.iter().filter(|swap| !is_stale(shared, swap)).collect();
    // In one order for everybody, so that batches wait for each other and never in a circle.
    order.sort_unstable_by(|one, other| one.row.slot.cmp(&other.row.slot));
    let of = |swap: &Swapping| swap.expected.map(|expected| Uuid::from_u128(expected.write));
    let slots: Vec<_> = order.iter().map(|swap| swap.row.slot.as_slice()).collect();
    let expected: Vec<_> = order.iter().map(|swap| of(swap)).collect();
    let writes: Vec<_> = order.iter().map(|swap| swap.row.write).collect();
    let nodes: Vec<_> = order.iter().map(|swap| swap.row.is_claim.then_some(shared.node)).collect();
    let kinds: Vec<_> = order.iter().map(|swap| swap.row.kind).collect();
    let since: Vec<_> = order.iter().map(|swap| swap.row.since).collect();
    let until: Vec<_> = order.iter().map(|swap| swap.row.until).collect();
    let bodies: Vec<_> = order.iter().map(|swap| swap.row.body.as_slice()).collect();
    let types = [
        (&slots as _, Type::BYTEA_ARRAY),
        (&expected as _, Type::UUID_ARRAY),
        (&writes as _, Type::UUID_ARRAY),
        (&nodes as _, Type::UUID_ARRAY),
        (&kinds as _, Type::INT2_ARRAY),
        (&since as _, Type::INT8_ARRAY),
        (&until as _, Type::INT8_ARRAY),
        (&bodies as _, Type::BYTEA_ARRAY),
        (&shared.node as _, Type::UUID),
    ];
    let rows = client.query_typed(&shared.sql.swaps, &types);
    // Sent one behind the other without waiting, so a batch is one round trip.
    let (begun, rows, ended) =
        tokio::join!(client.batch_execute(&shared.sql.begin), rows, client.batch_execute("COMMIT"));
    begun.map_err(|error| link::judge(&error))?;
    let rows = rows.map_err(|error| link::judge(&error))?;
    ended.map_err(|error| link::judge(&error))?;
    let now = rows.first().map_or(0, |row| row.get(0));
    let slots = rows.iter().filter_map(|row| {
        let slot: Option<Vec<u8>> = row.get(1);
        slot.map(|slot| (slot, row.get(2), row.get(3)))
    });
    Ok(Wrote { now, slots: slots.collect() })
}

/// Says what was written, and finds out about the rest.
async fn tell(shared: &Shared, link: &mut Link, swaps: Vec<Swapping>, wrote: Wrote) {
    let now = time(wrote.now);
    let mut rest = Vec::new();
    for swap in swaps {
        match wrote.slots.iter().find(|(slot, ..)| *slot == swap.row.slot) {
            Some((_, since, until)) => {
                let record = settled(shared, &swap, *since, *until);
                say(swap.ear, Ok(Stamped { now, value: Swap::Won(record) }));
            }
            None => rest.push(swap),
        }
    }
    lost(shared, link, rest).await;
}

/// The record that was just written, and notes whose it is.
fn settled(shared: &Shared, swap: &Swapping, since: i64, until: i64) -> Arc<Record> {
    let slot = &swap.row.slot;
    if let Some(expected) = swap.expected {
        shared.own.forget(slot, expected.write);
    }
    if swap.row.is_claim {
        let owned = Owned { write: swap.next.version.write, renewal: 0, until };
        shared.own.put(slot.clone(), owned);
    }
    let record = swap.next.clone().at(time(since.saturating_sub(swap.row.since)));
    Arc::new(record)
}

/// Says what is there instead, to those whose swap wrote nothing.
async fn lost(shared: &Shared, link: &mut Link, swaps: Vec<Swapping>) {
    if swaps.is_empty() {
        return;
    }
    let slots: Vec<_> = swaps.iter().map(|swap| swap.row.slot.clone()).collect();
    let found = match link.client().await {
        Ok(client) => shared.read_all(client, &slots).await,
        Err(failed) => Err(failed),
    };
    let found = match found {
        Ok(found) => found,
        // That nothing was written is known: the statement said so.
        Err(failed) => {
            link.drop_client();
            let error = StoreError::from(failed);
            for swap in swaps {
                say(swap.ear, Err(error.clone()));
            }
            return;
        }
    };
    for (swap, there) in swaps.into_iter().zip(found.value) {
        let reply = there.map(|there| {
            let version = there.as_ref().map(|there| there.version);
            let value = match judge(version, swap.expected, swap.next.version) {
                Verdict::Repeated => there.map_or(Swap::Lost(None), Swap::Won),
                // It was in the way, and is gone again. Whoever asked may ask again.
                Verdict::Write => Swap::Unknown,
                Verdict::Refuse => Swap::Lost(there),
            };
            Stamped { now: found.now, value }
        });
        say(swap.ear, reply);
    }
}

/// Replaces a claim of another node, if that node has not renewed its claims since.
async fn take_over(shared: &Shared, link: &mut Link, swap: Swapping) {
    let taken = match link.client().await {
        Ok(client) => try_take_over(shared, client, &swap).await,
        Err(failed) => Err(failed),
    };
    match taken {
        Ok(Some((now, since, until))) => {
            let record = settled(shared, &swap, since, until);
            say(swap.ear, Ok(Stamped { now: time(now), value: Swap::Won(record) }));
        }
        Ok(None) => lost(shared, link, vec![swap]).await,
        Err(failed) => {
            link.drop_client();
            say(swap.ear, failure(&failed));
        }
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
            ],
        )
        .await
        .map_err(failed)?;
    let Some(written) = written.first() else { return Ok(None) };
    let times = (written.get(0), written.get(1), written.get(2));
    tx.commit().await.map_err(failed)?;
    Ok(Some(times))
}

/// Renews leases: one row for all of them.
async fn renew(shared: &Shared, link: &mut Link, renewals: Vec<Renewing>) {
    if renewals.is_empty() {
        return;
    }
    // Only claims of ours, in the version that was named, can be renewed.
    let is_own = |one: &Renewing| {
        let own = shared.own.get(&one.slot);
        own.is_some_and(|own| {
            own.write == one.expected.write && own.renewal == one.expected.renewal
        })
    };
    let (ours, others): (Vec<_>, Vec<_>) = renewals.into_iter().partition(is_own);
    for one in &ours {
        shared.own.renew(&one.slot, one.expected.write);
    }
    let slots: Vec<_> = ours.iter().chain(&others).map(|one| one.slot.clone()).collect();
    let beaten = match link.client().await {
        Ok(client) => beat(shared, client, !ours.is_empty(), &slots).await,
        Err(failed) => Err(failed),
    };
    let beaten = match beaten {
        Ok(beaten) => beaten,
        Err(failed) => {
            link.drop_client();
            for one in ours.into_iter().chain(others) {
                say(one.ear, failure(&failed));
            }
            return;
        }
    };
    let (at, found) = beaten;
    let count = ours.len();
    for ((index, one), there) in ours.into_iter().chain(others).enumerate().zip(found.value) {
        let is_ours = index < count;
        let reply = there.map(|there| match there {
            Some(there) if is_ours && is_claim(&there, one.expected.write) => {
                let until = at.saturating_add(one.lease);
                shared.own.extend(&one.slot, one.expected.write, until);
                Swap::Won(Arc::new(with_lease(&there, until)))
            }
            there => {
                if is_ours {
                    shared.own.forget(&one.slot, one.expected.write);
                }
                Swap::Lost(there)
            }
        });
        say(one.ear, reply.map(|value| Stamped { now: found.now, value }));
    }
}

fn is_claim(there: &Record, write: u128) -> bool {
    there.version.write == write && matches!(there.phase, Phase::Claimed { .. })
}

fn with_lease(claim: &Record, until: i64) -> Record {
    Record { phase: Phase::Claimed { lease_until: time(until) }, ..claim.clone() }
}

/// Shows that this node lives, and reads what it renews by that. The row of the node is held until
/// the end, so nobody takes a claim over meanwhile, and whoever did before is seen.
async fn beat(
    shared: &Shared,
    client: &Client,
    is_needed: bool,
    slots: &[Vec<u8>],
) -> Result<(i64, Stamped<Vec<Read>>), Failed> {
    let failed = |error| link::judge(&error);
    if !is_needed {
        return Ok((0, shared.read_all(client, slots).await?));
    }
    let me = [(&shared.node as _, Type::UUID)];
    let beat = client.query_typed(&shared.sql.beat, &me);
    let (begun, beat, found, ended) = tokio::join!(
        client.batch_execute(&shared.sql.begin),
        beat,
        shared.read_all(client, slots),
        client.batch_execute("COMMIT"),
    );
    begun.map_err(failed)?;
    let at = beat.map_err(failed)?.first().map_or(0, |row| row.get(0));
    let found = found?;
    ended.map_err(failed)?;
    Ok((at, found))
}
