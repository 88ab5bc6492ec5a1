//! Compare and swap: who wins, what a loser is told, and what a repeated write may change.
//!
//! Every case has a store of its own. None looks at times; `time.rs` does.

use onetake_engine::Slots;

use super::hear::{lost, there, won};
use crate::Rig;
use crate::make::{BRIEF, LONG, Pen, version};

/// D6: insert is a swap from nothing.
pub async fn d6_a_swap_from_nothing_wins_and_is_found<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    assert_eq!(there(&store, pen.slot()).await, None, "an empty store holds nothing");
    let claim = won(&store, None, pen.claim(1, LONG)).await;
    assert_eq!(claim.version, version(1));
    assert_eq!(there(&store, pen.slot()).await, Some(claim));
}

/// D6: the store's comparison decides, and the loser need not read.
pub async fn d6_a_lost_swap_returns_what_is_there<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    assert_eq!(lost(&store, Some(version(9)), pen.claim(2, LONG)).await, None, "it is empty");
    assert_eq!(there(&store, pen.slot()).await, None, "and it stays empty");
    let claim = won(&store, None, pen.claim(1, LONG)).await;
    for wrong in [None, Some(version(9)), Some(version(1).renewed())] {
        let found = lost(&store, wrong, pen.claim(2, LONG)).await;
        assert_eq!(found.as_ref(), Some(&claim), "expecting {wrong:?}");
    }
    assert_eq!(there(&store, pen.slot()).await, Some(claim), "a lost swap wrote nothing");
}

/// Claim, complete, and claim again after the completion: each from exactly what was seen.
pub async fn a_swap_that_names_what_is_there_replaces_it<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    won(&store, None, pen.claim(1, LONG)).await;
    let done = won(&store, Some(version(1)), pen.done(2, 1, LONG)).await;
    assert_eq!(there(&store, pen.slot()).await, Some(done));
    let again = won(&store, Some(version(2)), pen.claim(3, LONG)).await;
    assert_eq!(there(&store, pen.slot()).await, Some(again));
}

/// X2: the same fence with a version that has passed is as wrong as any other.
pub async fn x2_the_version_decides_and_not_the_fence<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    won(&store, None, pen.claim(1, LONG)).await;
    let unknown = won(&store, Some(version(1)), pen.unknown(2, 1)).await;
    let found = lost(&store, Some(version(1)), pen.done(3, 1, LONG)).await;
    assert_eq!(found, Some(unknown), "fence 1 is there, but not version 1");
    won(&store, Some(version(2)), pen.done(4, 1, LONG)).await;
}

/// A write whose reply was lost may be repeated for ever.
pub async fn a_repeated_swap_counts_as_won_and_is_left_alone<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    let claim = won(&store, None, pen.claim(1, LONG)).await;
    rig.pass(&store, BRIEF).await;
    assert_eq!(won(&store, None, pen.claim(1, LONG)).await, claim, "with the times of the first");
    let done = won(&store, Some(version(1)), pen.done(2, 1, LONG)).await;
    rig.pass(&store, BRIEF).await;
    assert_eq!(won(&store, Some(version(1)), pen.done(2, 1, LONG)).await, done);
    assert_eq!(there(&store, pen.slot()).await, Some(done));
}

/// The claim was renewed before its repeated copy arrived: still won, and the renewal stays.
pub async fn a_repeated_swap_after_a_renewal_takes_no_lease_back<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    won(&store, None, pen.claim(1, BRIEF)).await;
    let renewed = store.renew(pen.slot(), version(1), LONG).await.unwrap().value;
    let renewed = super::hear::victory(renewed);
    assert_eq!(won(&store, None, pen.claim(1, BRIEF)).await, renewed);
    assert_eq!(there(&store, pen.slot()).await, Some(renewed));
}

/// The late copy finds another version, so it loses.
pub async fn a_claim_that_arrives_twice_cannot_undo_its_completion<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    won(&store, None, pen.claim(1, LONG)).await;
    let done = won(&store, Some(version(1)), pen.done(2, 1, LONG)).await;
    assert_eq!(lost(&store, None, pen.claim(1, LONG)).await.as_ref(), Some(&done));
    assert_eq!(there(&store, pen.slot()).await, Some(done));
}

/// A released key keeps a tombstone, and the tombstone is what a late copy meets.
pub async fn a_late_copy_of_a_claim_cannot_resurrect_a_released_key<R: Rig>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    won(&store, None, pen.claim(1, LONG)).await;
    let released = won(&store, Some(version(1)), pen.released(2, 1, LONG)).await;
    assert_eq!(lost(&store, None, pen.claim(1, LONG)).await.as_ref(), Some(&released));
    assert_eq!(there(&store, pen.slot()).await, Some(released));
}
