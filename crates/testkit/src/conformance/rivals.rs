//! Many at once: of all who want the same thing, exactly one gets it.
//!
//! These cases run tasks on several threads; which one wins is open, that it is one is not.

use std::sync::Arc;

use onetake_core::Record;
use onetake_engine::{Slots, Swap};
use tokio::task::JoinSet;

use super::hear::{defeat, there, won};
use crate::Rig;
use crate::make::{BRIEF, LONG, Pen, version};

const RIVALS: u128 = 1_000;

/// Lets `RIVALS` tasks swap from the same version at once; gives who won and what the others found.
async fn race<S: Slots>(
    store: &Arc<S>,
    pen: &Pen,
    expected: Option<u128>,
    first: u128,
) -> (Vec<Arc<Record>>, Vec<Option<Arc<Record>>>) {
    let mut rivals = JoinSet::new();
    for id in first..first + RIVALS {
        let (store, claim) = (Arc::clone(store), pen.claim(id, LONG));
        rivals.spawn(async move { store.swap(expected.map(version), claim).await.unwrap().value });
    }
    let (mut winners, mut losers) = (Vec::new(), Vec::new());
    for swap in rivals.join_all().await {
        match swap {
            Swap::Won(record) => winners.push(record),
            other @ (Swap::Lost(_) | Swap::Unknown) => losers.push(defeat(other)),
        }
    }
    (winners, losers)
}

/// W9, D6: a thousand concurrent rivals claim once, and all others see that claim.
pub async fn w9_d6_of_a_thousand_rivals_exactly_one_wins<R: Rig>(rig: &R) {
    let (store, pen) = (Arc::new(rig.open().await), Pen::new("k"));
    let (winners, losers) = race(&store, &pen, None, 1).await;
    assert_eq!(winners.len(), 1);
    assert!(losers.iter().all(|found| found.as_ref() == Some(&winners[0])));
    assert_eq!(there(&*store, pen.slot()).await.as_ref(), Some(&winners[0]));
}

/// X2: a lapsed claim is taken over once, however many see that it lapsed.
pub async fn x2_of_a_thousand_takeovers_exactly_one_wins<R: Rig>(rig: &R) {
    let (store, pen) = (Arc::new(rig.open().await), Pen::new("k"));
    won(&*store, None, pen.claim(1, BRIEF)).await;
    rig.pass(&store, BRIEF).await;
    let (winners, losers) = race(&store, &pen, Some(1), 2).await;
    assert_eq!(winners.len(), 1);
    assert!(losers.iter().all(|found| found.as_ref() == Some(&winners[0])));
    assert_eq!(there(&*store, pen.slot()).await.as_ref(), Some(&winners[0]));
}

/// X2: a heartbeat and a takeover of the same claim at the same moment: one of them, never both.
pub async fn x2_a_heartbeat_and_a_takeover_never_both_win<R: Rig>(rig: &R) {
    let store = Arc::new(rig.open().await);
    for round in 0..100_u128 {
        let pen = Pen::new(&format!("k{round}"));
        let id = 1 + 2 * round;
        won(&*store, None, pen.claim(id, LONG)).await;
        let beat = tokio::spawn({
            let (store, pen) = (Arc::clone(&store), pen.clone());
            async move { store.renew(pen.slot(), version(id), LONG).await.unwrap().value }
        });
        let takeover = tokio::spawn({
            let (store, claim) = (Arc::clone(&store), pen.claim(id + 1, LONG));
            async move { store.swap(Some(version(id)), claim).await.unwrap().value }
        });
        let swaps = [beat.await.unwrap(), takeover.await.unwrap()];
        let there = there(&*store, pen.slot()).await.expect("one of them is there");
        for swap in &swaps {
            let (Swap::Won(seen) | Swap::Lost(Some(seen))) = swap else { panic!("{swap:?}") };
            assert_eq!(seen, &there, "both see the one that won");
        }
        let wins = swaps.iter().filter(|swap| matches!(swap, Swap::Won(_))).count();
        assert_eq!(wins, 1, "round {round}");
    }
}

/// The same write sent many times at once, as by a client that retries without waiting: all copies
/// count as won, and it is written once.
pub async fn copies_of_one_write_all_win_and_write_once<R: Rig>(rig: &R) {
    let (store, pen) = (Arc::new(rig.open().await), Pen::new("k"));
    let mut copies = JoinSet::new();
    for _ in 0..100 {
        let (store, claim) = (Arc::clone(&store), pen.claim(1, LONG));
        copies.spawn(async move { won(&*store, None, claim).await });
    }
    let records = copies.join_all().await;
    let there = there(&*store, pen.slot()).await.expect("it is written");
    assert!(records.iter().all(|record| *record == there), "one write, one time");
}
