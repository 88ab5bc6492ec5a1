//! The store's clock: it makes spans absolute, goes with every reply, and never goes back.
//!
//! Nothing here compares with a clock of the test's own: a node whose clock is an hour off must not
//! change anything.

use std::sync::Arc;
use std::time::Duration;

use onetake_core::{Phase, Standing, Timestamp};
use onetake_engine::Slots;
use tokio::task::JoinSet;

use super::hear::{there, won, won_at};
use crate::Rig;
use crate::make::{BRIEF, LONG, Pen, version};

async fn now<S: Slots>(store: &S) -> Timestamp {
    store.read(Pen::new("nothing").slot()).await.unwrap().now
}

/// A draft says "for 30 s"; the record says until when, by the clock that said `now`.
pub async fn spans_become_points_on_the_clock_of_the_store<R: Rig>(rig: &R) {
    let store = rig.open().await;
    let before = now(&store).await;
    let (claim, done, free) = (Pen::new("c"), Pen::new("d"), Pen::new("r"));
    let days = Duration::from_secs(10 * 24 * 60 * 60);
    let written = [
        (won_at(&store, None, claim.claim(1, LONG)).await, LONG),
        (won_at(&store, None, done.done(2, 2, days)).await, days),
        (won_at(&store, None, free.released(3, 3, BRIEF)).await, BRIEF),
    ];
    for (reply, span) in written {
        let record = reply.value;
        assert!(before <= record.since && record.since <= reply.now, "written between the two");
        let (Phase::Claimed { lease_until: end }
        | Phase::Done { expires_at: end, .. }
        | Phase::Released { until: end }) = record.phase.clone()
        else {
            panic!("{record:?}")
        };
        assert_eq!(end, record.since.after(span));
        let kept = there(&store, record.address.slot()).await;
        assert_eq!(kept, Some(record), "and a later look shows the same points");
    }
}

/// A lease and a retention are never shorter than what was asked for.
pub async fn part_of_a_millisecond_is_not_cut_off<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    let claim = won(&store, None, pen.claim(1, Duration::from_micros(1_500))).await;
    assert_eq!(claim.phase, Phase::Claimed { lease_until: claim.since.after(BRIEF / 20) });
}

/// X1: a renewed lease begins at the moment of the renewal, not at the end of the old one.
pub async fn x1_a_renewed_lease_begins_when_it_is_renewed<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    won(&store, None, pen.claim(1, LONG)).await;
    rig.pass(&store, BRIEF).await;
    let before = now(&store).await;
    let reply = store.renew(pen.slot(), version(1), LONG).await.unwrap();
    let renewed = super::hear::victory(reply.value);
    let Standing::Live { until } = renewed.standing(reply.now) else { panic!("{renewed:?}") };
    assert!(before.after(LONG) <= until && until <= reply.now.after(LONG), "{until}");
}

/// Also over replies of different kinds, and while time passes.
pub async fn the_time_in_replies_never_goes_back<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    let mut times = vec![now(&store).await];
    for round in 0..5_u128 {
        let expected = (round > 0).then(|| version(round).renewed());
        times.push(won_at(&store, expected, pen.claim(round + 1, LONG)).await.now);
        times.push(store.read(pen.slot()).await.unwrap().now);
        times.push(store.renew(pen.slot(), version(round + 1), LONG).await.unwrap().now);
        times.push(store.sweep(10).await.unwrap().now);
        rig.pass(&store, BRIEF / 10).await;
    }
    assert!(times.is_sorted(), "{times:?}");
    assert!(times[times.len() - 1] >= times[0].after(4 * (BRIEF / 10)), "and time passes");
}

/// What one task was told is never later than what another is told afterwards.
pub async fn the_time_in_replies_never_goes_back_between_tasks<R: Rig>(rig: &R) {
    let store = Arc::new(rig.open().await);
    let latest = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let (store, latest) = (Arc::clone(&store), Arc::clone(&latest));
        tasks.spawn(async move {
            let pen = Pen::new(&format!("k{task}"));
            for _ in 0..50 {
                let told = latest.load(std::sync::atomic::Ordering::SeqCst);
                let now = store.read(pen.slot()).await.unwrap().now.as_millis();
                assert!(now >= told, "{now} ms after {told} ms");
                latest.fetch_max(now, std::sync::atomic::Ordering::SeqCst);
            }
        });
    }
    assert_eq!(tasks.join_all().await.len(), 8);
}

/// D11: the rule judges expiry, by the time that came with the record; a store hides nothing.
pub async fn d11_what_has_expired_is_still_read_until_it_is_swept<R: Rig>(rig: &R) {
    let store = rig.open().await;
    let (done, free) = (Pen::new("done"), Pen::new("free"));
    won(&store, None, done.done(1, 1, BRIEF)).await;
    won(&store, None, free.released(2, 2, BRIEF)).await;
    rig.pass(&store, BRIEF).await;
    for pen in [done, free] {
        let read = store.read(pen.slot()).await.unwrap();
        let record = read.value.expect("nobody has swept yet");
        assert_eq!(record.standing(read.now), Standing::Free, "it counts as forgotten");
        assert!(record.is_removable(read.now));
        won(&store, Some(record.version), pen.claim(record.version.write + 10, LONG)).await;
    }
}
