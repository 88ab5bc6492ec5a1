//! Sweeping: what goes, what never goes, and that every step is bounded and leads on.
//!
//! A round may begin anywhere in the store, so a case that wants all of it swept asks for two.

use onetake_engine::Slots;

use super::hear::{there, won};
use crate::Rig;
use crate::make::{BRIEF, LONG, Pen};

/// No suite has a store so large that a round takes more steps.
const STEPS_MAX: usize = 10_000;

/// Sweeps two rounds in steps of `limit`; gives how many records went.
async fn swept<S: Slots>(store: &S, limit: usize) -> usize {
    let (mut removed, mut rounds) = (0, 0);
    for _ in 0..STEPS_MAX {
        let step = store.sweep(limit).await.unwrap().value;
        assert!(step.removed <= limit, "a step looks at {limit}, and removed {}", step.removed);
        removed += step.removed;
        rounds += usize::from(step.done);
        if rounds == 2 {
            return removed;
        }
    }
    panic!("a round never ends");
}

/// K8: what has expired goes, once.
pub async fn k8_what_has_expired_goes<R: Rig>(rig: &R) {
    let (store, done, free) = (rig.open().await, Pen::new("done"), Pen::new("free"));
    won(&store, None, done.done(1, 1, BRIEF)).await;
    won(&store, None, free.released(2, 2, BRIEF)).await;
    rig.pass(&store, BRIEF).await;
    assert_eq!(swept(&store, 100).await, 2);
    assert_eq!(there(&store, done.slot()).await, None);
    assert_eq!(there(&store, free.slot()).await, None);
    assert_eq!(swept(&store, 100).await, 0, "and is not counted again");
}

/// A swept key is as good as new.
pub async fn a_swept_key_is_claimed_from_nothing<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    won(&store, None, pen.done(1, 1, BRIEF)).await;
    rig.pass(&store, BRIEF).await;
    assert_eq!(swept(&store, 10).await, 1);
    let claim = won(&store, None, pen.claim(2, LONG)).await;
    assert_eq!(there(&store, pen.slot()).await, Some(claim));
}

/// C8: neither age nor a lapsed lease removes a claim or an unknown, and nothing kept goes early.
pub async fn c8_claims_unknowns_and_what_is_kept_are_never_swept<R: Rig>(rig: &R) {
    let store = rig.open().await;
    let pens = ["live", "lapsed", "unknown", "kept", "tombstone"].map(Pen::new);
    let records = [
        won(&store, None, pens[0].claim(1, LONG)).await,
        won(&store, None, pens[1].claim(2, BRIEF)).await,
        won(&store, None, pens[2].unknown(3, 3)).await,
        won(&store, None, pens[3].done(4, 4, LONG)).await,
        won(&store, None, pens[4].released(5, 5, LONG)).await,
    ];
    rig.pass(&store, BRIEF).await;
    assert_eq!(swept(&store, 2).await, 0);
    for (pen, record) in pens.iter().zip(records) {
        assert_eq!(there(&store, pen.slot()).await, Some(record));
    }
}

/// Many that stay must not keep the sweeper from those behind them.
pub async fn small_steps_reach_everything_round_after_round<R: Rig>(rig: &R) {
    let store = rig.open().await;
    for (wave, limit) in [(1_u128, 1), (2, 3), (3, 100)] {
        for n in 0..60_u128 {
            let id = wave * 1_000 + n;
            let pen = Pen::new(&format!("{wave}-{n}"));
            let draft = if n % 2 == 0 { pen.claim(id, LONG) } else { pen.done(id, id, BRIEF) };
            won(&store, None, draft).await;
        }
        rig.pass(&store, BRIEF).await;
        assert_eq!(swept(&store, limit).await, 30, "wave {wave}");
    }
    for n in 0..60 {
        let stays = there(&store, Pen::new(&format!("1-{n}")).slot()).await.is_some();
        assert_eq!(stays, n % 2 == 0, "record {n}");
    }
}

/// K7: whoever claims an expired key in the middle of a round keeps it.
pub async fn k7_a_key_that_is_claimed_again_is_not_swept<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    let old = won(&store, None, pen.done(1, 1, BRIEF)).await;
    rig.pass(&store, BRIEF).await;
    let claim = won(&store, Some(old.version), pen.claim(2, LONG)).await;
    assert_eq!(swept(&store, 1).await, 0);
    assert_eq!(there(&store, pen.slot()).await, Some(claim));
}
