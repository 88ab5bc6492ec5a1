//! The pulse of this node: one row that says that it lives, and so renews all of its claims.
//!
//! The renewals of a moment are answered by one beat. The beat and the look at the renewed claims
//! are one transaction that holds the node's row: a takeover needs that row, too, so a renewal and
//! a takeover never both win. Claims that nobody renewed are let go here, so that a living node
//! does not keep alive what it has abandoned. Whoever calls this does nothing else with the same
//! slots meanwhile.

use std::sync::{Arc, Weak};
use std::time::Duration;

use onetake_core::{Phase, Record, Version};
use onetake_engine::{Stamped, Swap};
use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::link::{self, Failed, Link, in_one_trip};
use super::own::Held;
use super::rows::time;
use super::shared::{Read, Shared};
use super::swaps::{Ear, say};

/// How often a node says that it lives although it renews nothing.
const IDLE_EVERY: Duration = Duration::from_secs(20);
/// The most abandoned claims that are let go at a time.
const LET_GO_MAX: usize = 256;
/// For how long an owner that fell silent may still come back, in milliseconds.
const COMES_BACK_WITHIN: i64 = 24 * 60 * 60 * 1_000;

/// A lease that is to be renewed.
pub(super) struct Renewing {
    pub(super) slot: Vec<u8>,
    pub(super) expected: Version,
    pub(super) lease: Duration,
    pub(super) ear: Ear,
}

/// Says every now and then that this node lives, although it may renew nothing.
pub(super) async fn beat(shared: Weak<Shared>, link: Arc<Mutex<Link>>) {
    loop {
        sleep(IDLE_EVERY).await;
        let Some(shared) = shared.upgrade() else { return };
        let beat = async |client: &mut Client| {
            once(&shared, client, &[], &[]).await?;
            shared.count(client).await
        };
        // If it fails, the next one is soon.
        drop(link.lock().await.work(beat).await);
    }
}

/// Renews leases: one row for all of them.
pub(super) async fn renew(shared: &Shared, link: &mut Link, renewals: Vec<Renewing>) {
    // Only claims of ours, in the version that was named, can be renewed.
    let is_own = |one: &Renewing| {
        let own = shared.own.get(&one.slot);
        own.is_some_and(|own| {
            own.write == one.expected.write && own.renewal == one.expected.renewal
        })
    };
    let (ours, others): (Vec<_>, Vec<_>) = renewals.into_iter().partition(is_own);
    let is_kept = |slot: &[u8]| shared.own.get(slot).is_some_and(|own| own.held == Held::Kept);
    let lapsed = ours.iter().filter(|one| !is_kept(&one.slot));
    let lapsed: Vec<_> =
        lapsed.map(|one| (one.slot.clone(), Uuid::from_u128(one.expected.write))).collect();
    let slots: Vec<_> = ours.iter().chain(&others).map(|one| one.slot.clone()).collect();
    let beaten = link
        .work(async |client: &mut Client| {
            if ours.is_empty() {
                return Ok((0, shared.read_all(client, &slots).await?));
            }
            once(shared, client, &slots, &lapsed).await
        })
        .await;
    let (at, found) = match beaten {
        Ok(beaten) => beaten,
        Err(failed) => {
            for one in ours.into_iter().chain(others) {
                say(one.ear, failed.reply(Swap::Unknown));
            }
            return;
        }
    };
    let count = ours.len();
    for ((index, one), there) in ours.into_iter().chain(others).enumerate().zip(found.value) {
        let is_ours = index < count;
        let reply = there.map(|there| match there {
            Some(there) if is_ours && is_claim(&there, one.expected.write) => {
                let lease = i64::try_from(one.lease.as_micros().div_ceil(1_000));
                let until = at.saturating_add(lease.unwrap_or(i64::MAX));
                // Counted only now: who hears of a failure asks again with what it knows.
                let renewal = shared.own.renewed(&one.slot, one.expected.write, until);
                Swap::Won(Arc::new(with_lease(&there, renewal.unwrap_or_default(), until)))
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

fn with_lease(claim: &Record, renewal: u32, until: i64) -> Record {
    let version = Version { renewal, ..claim.version };
    Record { version, phase: Phase::Claimed { lease_until: time(until) }, ..claim.clone() }
}

/// Shows that this node lives, and reads what it renews by that. The row of the node is held until
/// the end, so nobody takes a claim over meanwhile, and whoever did before is seen.
async fn once(
    shared: &Shared,
    client: &Client,
    slots: &[Vec<u8>],
    lapsed: &[(Vec<u8>, Uuid)],
) -> Result<(i64, Stamped<Vec<Read>>), Failed> {
    let failed = |error| link::judge(&error);
    let me = [(&shared.node as _, Type::UUID)];
    let places: Vec<_> = lapsed.iter().map(|(slot, _)| slot).collect();
    let writes: Vec<_> = lapsed.iter().map(|(_, write)| *write).collect();
    let kept = [
        (&places as _, Type::BYTEA_ARRAY),
        (&writes as _, Type::UUID_ARRAY),
        (&shared.node as _, Type::UUID),
    ];
    // Sent one behind the other without waiting. Slots before nodes, as everybody locks them.
    let (begun, kept, beat, found, ended) = tokio::join!(
        client.batch_execute(&shared.sql.begin),
        client.query_typed(&shared.sql.keep, &kept),
        client.query_typed(&shared.sql.beat, &me),
        shared.read_all(client, slots),
        client.batch_execute("COMMIT"),
    );
    begun.map_err(failed)?;
    kept.map_err(failed)?;
    let at = beat.map_err(failed)?.first().map_or(0, |row| row.get(0));
    shared.note_now(at);
    let found = found?;
    ended.map_err(failed)?;
    Ok((at, found))
}

/// Lets claims lapse that nobody renewed, of those that `is_mine`. If that fails they are tried
/// again.
pub(super) async fn let_go(shared: &Shared, link: &mut Link, is_mine: impl Fn(&[u8]) -> bool) {
    let Some(now) = shared.about_now() else { return };
    shared.own.forget_before(now.saturating_sub(COMES_BACK_WITHIN));
    let lapsed = shared.own.take_lapsed(now, LET_GO_MAX, is_mine);
    if lapsed.is_empty() {
        return;
    }
    let slots: Vec<_> = lapsed.iter().map(|one| one.slot.as_slice()).collect();
    let writes: Vec<_> = lapsed.iter().map(|one| Uuid::from_u128(one.write)).collect();
    let types = [
        (&slots as _, Type::BYTEA_ARRAY),
        (&writes as _, Type::UUID_ARRAY),
        (&shared.node as _, Type::UUID),
    ];
    let done = link
        .work(async |client: &mut Client| {
            let (sql, first) = (&shared.sql.let_go, &shared.sql.begin);
            let gone = in_one_trip(client, first, sql, &types).await;
            gone.map(drop).map_err(|error| link::judge(&error))
        })
        .await;
    if done.is_ok() {
        for one in lapsed {
            shared.own.let_go(&one.slot, one.write);
        }
    }
}
