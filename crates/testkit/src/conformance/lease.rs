//! Leases: who may renew, what a renewal prevents, and what a stalled executor can no longer do.
//!
//! A lapse is never written; these cases let the store's time pass and look at the same record.

use onetake_core::{Phase, Standing, Version};
use onetake_engine::Slots;

use super::hear::{defeat, lost, there, victory, won};
use crate::Rig;
use crate::make::{BRIEF, LONG, Pen, version};

/// X2: a takeover names the version that it read, and a renewal is a new one.
pub async fn x2_a_renewal_between_read_and_takeover_makes_the_takeover_lose<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    let seen = won(&store, None, pen.claim(1, BRIEF)).await;
    rig.pass(&store, BRIEF).await;
    let renewed = victory(store.renew(pen.slot(), seen.version, LONG).await.unwrap().value);
    let found = lost(&store, Some(seen.version), pen.claim(2, LONG)).await;
    assert_eq!(found.as_ref(), Some(&renewed));
    assert_eq!(there(&store, pen.slot()).await, Some(renewed));
}

/// A renewal changes the version and the lease, and nothing else.
pub async fn a_renewal_changes_version_and_lease_only<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    let claim = won(&store, None, pen.claim(1, BRIEF)).await;
    rig.pass(&store, BRIEF).await;
    let renewed = victory(store.renew(pen.slot(), version(1), LONG).await.unwrap().value);
    assert_eq!(renewed.version, version(1).renewed());
    assert_eq!((renewed.fence, renewed.attempt), (claim.fence, claim.attempt));
    assert_eq!((renewed.since, &renewed.address), (claim.since, &claim.address));
    assert_eq!(renewed.fingerprint, claim.fingerprint);
    assert_eq!(there(&store, pen.slot()).await, Some(renewed));
}

/// Only a claim has a lease.
pub async fn renewing_what_is_settled_loses<R: Rig>(rig: &R) {
    let store = rig.open().await;
    let pens = ["done", "released", "unknown"].map(Pen::new);
    let settled = [
        won(&store, None, pens[0].done(1, 1, LONG)).await,
        won(&store, None, pens[1].released(2, 2, LONG)).await,
        won(&store, None, pens[2].unknown(3, 3)).await,
    ];
    for (pen, record) in pens.iter().zip(settled) {
        let reply = store.renew(pen.slot(), record.version, LONG).await.unwrap();
        assert_eq!(defeat(reply.value).as_ref(), Some(&record));
        assert_eq!(there(&store, pen.slot()).await, Some(record), "and it is as it was");
    }
}

/// Another's claim, nobody's claim, and our own as it was before the last renewal.
pub async fn renewing_anothers_claim_loses<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    let nothing = store.renew(pen.slot(), version(1), LONG).await.unwrap().value;
    assert_eq!(defeat(nothing), None, "there is nothing to renew");
    assert_eq!(there(&store, pen.slot()).await, None, "and nothing is made");
    won(&store, None, pen.claim(1, LONG)).await;
    let renewed = victory(store.renew(pen.slot(), version(1), LONG).await.unwrap().value);
    for wrong in [version(9), version(1), version(1).renewed().renewed()] {
        let reply = store.renew(pen.slot(), wrong, LONG).await.unwrap().value;
        assert_eq!(defeat(reply).as_ref(), Some(&renewed), "expecting {wrong:?}");
    }
}

/// X1: a lapse alone takes nothing away from an owner that is alive after all.
pub async fn x1_a_renewal_after_the_lapse_but_before_a_takeover_wins<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    won(&store, None, pen.claim(1, BRIEF)).await;
    rig.pass(&store, BRIEF).await;
    let read = store.read(pen.slot()).await.unwrap();
    let lapsed = read.value.expect("a lapsed claim is still there");
    assert!(matches!(lapsed.standing(read.now), Standing::Unknown { .. }), "X3: it is unknown");
    let reply = store.renew(pen.slot(), lapsed.version, LONG).await.unwrap();
    let renewed = victory(reply.value);
    assert!(matches!(renewed.standing(reply.now), Standing::Live { .. }), "and alive again");
}

/// Ten renewals in a row, each from the version of the last.
pub async fn a_lease_can_be_renewed_again_and_again<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    let mut claim = won(&store, None, pen.claim(1, LONG)).await;
    for renewal in 1..=10 {
        claim = victory(store.renew(pen.slot(), claim.version, LONG).await.unwrap().value);
        assert_eq!(claim.version, Version { write: 1, renewal });
    }
    let done = won(&store, Some(claim.version), pen.done(2, 1, LONG)).await;
    assert!(matches!(done.phase, Phase::Done { .. }), "and completed from the last");
}

/// X2: what a stalled executor does when it wakes up changes nothing of its successor's.
pub async fn x2_a_stalled_executor_cannot_touch_its_successors_claim<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    won(&store, None, pen.claim(1, BRIEF)).await;
    rig.pass(&store, BRIEF).await;
    let successor = won(&store, Some(version(1)), pen.claim(2, LONG)).await;
    let complete = lost(&store, Some(version(1)), pen.done(3, 1, LONG)).await;
    let release = lost(&store, Some(version(1)), pen.released(4, 1, LONG)).await;
    let unknown = lost(&store, Some(version(1)), pen.unknown(5, 1)).await;
    let renew = defeat(store.renew(pen.slot(), version(1), LONG).await.unwrap().value);
    for found in [complete, release, unknown, renew] {
        assert_eq!(found.as_ref(), Some(&successor), "the stalled one sees who came after");
    }
    assert_eq!(there(&store, pen.slot()).await, Some(successor));
}

/// X2: as long as nobody took over, its owner may still settle a claim that lapsed or is unknown.
pub async fn x2_the_owner_may_settle_what_nobody_took_over<R: Rig>(rig: &R) {
    let (store, lapsed, unknown) = (rig.open().await, Pen::new("lapsed"), Pen::new("unknown"));
    won(&store, None, lapsed.claim(1, BRIEF)).await;
    won(&store, None, unknown.unknown(2, 2)).await;
    rig.pass(&store, BRIEF).await;
    let done = won(&store, Some(version(1)), lapsed.done(3, 1, LONG)).await;
    assert_eq!(there(&store, lapsed.slot()).await, Some(done));
    let done = won(&store, Some(version(2)), unknown.done(4, 2, LONG)).await;
    assert_eq!(there(&store, unknown.slot()).await, Some(done));
}
