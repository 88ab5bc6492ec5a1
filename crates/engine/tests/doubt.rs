//! What is learned about an unknown outcome holds for the very attempt that was asked about.
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod common;

use common::*;
use onetake_core::{Actor, Ask, Cause, Fence, OnUnknown, Report};
use onetake_engine::operate::Seen;
use onetake_engine::{Answer, Attempt, Doubt, Limits, RunError, Tried};
use onetake_testkit::faulty::{Fault, Op, Script};
use tokio::time::sleep;

fn probed(key: &str) -> Ask {
    ask_with(key, "body", policy().on_unknown(OnUnknown::Probe))
}

/// Says that nobody knows, at once.
fn nobody_knows(_: Attempt) -> Boxed {
    Box::pin(async { Report::Unknown(Cause::Reported) })
}

async fn fence_of(node: &Node, ask: &Ask) -> Fence {
    let answer = node.run(ask.clone(), never).await.unwrap();
    let Answer::Unknown { fence, .. } = answer else { panic!("it is unknown, not {answer:?}") };
    fence
}

/// An attempt whose outcome is unknown, and the doubt about it.
async fn doubted(node: &Node, ask: &Ask) -> Doubt {
    let first = node.run(ask.clone(), nobody_knows).await.unwrap();
    assert!(matches!(first, Answer::Unknown { .. }));
    let fence = fence_of(node, ask).await;
    node.doubt(&ask.address, fence).await.unwrap().expect("it is in doubt")
}

/// X3: an outcome that was found out is kept, and given to everybody.
#[tokio::test(start_paused = true)]
async fn x3_what_was_found_out_is_the_outcome() {
    let (bench, ask) = (Bench::new(), probed("k"));
    let node = bench.node();
    let doubt = doubted(&node, &ask).await;
    assert!(node.settle_doubt(&doubt, &ask.policy, value("found")).await.unwrap());
    let again = bench.node().run(ask.clone(), never).await.unwrap();
    assert!(matches!(again, Answer::Replayed { .. }));
    assert_eq!(outcome(&again), Some(&value("found")));
    assert!(!node.settle_doubt(&doubt, &ask.policy, value("other")).await.unwrap());
    assert!(node.recover(ask.clone(), &doubt, never, || false).await.unwrap().is_none());
    let fence = Fence(7);
    assert!(node.doubt(&ask.address, fence).await.unwrap().is_none(), "nobody doubts it now");
}

/// X3: how long it has been unknown is the store's to say, also for a claim that fell silent.
#[tokio::test(start_paused = true)]
async fn x3_x1_a_silent_claim_is_in_doubt_since_its_lease_ended() {
    let (bench, ask) = (Bench::new(), probed("k"));
    let node = bench.node();
    let claimed = node.try_claim(&ask).await.unwrap();
    let Tried::Claimed(claim) = claimed else { panic!("it is free") };
    assert!(node.doubt(&ask.address, claim.fence).await.unwrap().is_none(), "it is alive");
    sleep(LEASE * 3).await;
    let doubt = node.doubt(&ask.address, claim.fence).await.unwrap().unwrap();
    assert_eq!(doubt.age(), LEASE * 2);
    assert!(node.doubt(&ask.address, Fence(1)).await.unwrap().is_none(), "of another claim");
}

/// X2: an owner who is alive after all is neither settled over nor replaced.
#[tokio::test(start_paused = true)]
async fn x2_an_owner_who_wakes_up_keeps_its_claim() {
    let (bench, ask) = (Bench::new(), probed("k"));
    let node = bench.node();
    let claimed = node.try_claim(&ask).await.unwrap();
    let Tried::Claimed(claim) = claimed else { panic!("it is free") };
    sleep(LEASE * 2).await;
    let doubt = node.doubt(&ask.address, claim.fence).await.unwrap().unwrap();
    node.renew_claim(&ask.address, claim.fence, &ask.policy).await.unwrap();
    assert!(!node.settle_doubt(&doubt, &ask.policy, value("found")).await.unwrap());
    assert!(node.recover(ask.clone(), &doubt, never, || false).await.unwrap().is_none());
    let report = Report::Finished(value("own"));
    let settled = node.settle_claim(&ask.address, claim.fence, &ask.policy, report).await.unwrap();
    assert_eq!(outcome(&settled), Some(&value("own")));
}

/// X2: of all who learned that there was no effect one executes, told that it is a recovery.
#[tokio::test(start_paused = true)]
async fn x2_of_all_who_learned_the_same_one_executes() {
    let (bench, ask, count) = (Bench::new(), probed("k"), Count::default());
    let (one, two) = (bench.node(), bench.node());
    let doubt = doubted(&one, &ask).await;
    let counted = count.clone();
    let recovery = move |attempt: Attempt| -> Boxed {
        assert!(attempt.recovery && attempt.number == 2);
        Box::pin(async move {
            counted.add();
            Report::Finished(value("recovered"))
        })
    };
    let first = one.recover(ask.clone(), &doubt, recovery, || false).await.unwrap().unwrap();
    assert_eq!(outcome(&first), Some(&value("recovered")));
    assert!(two.recover(ask.clone(), &doubt, never, || false).await.unwrap().is_none());
    assert_eq!(outcome(&two.run(ask, never).await.unwrap()), Some(&value("recovered")));
    assert_eq!(count.get(), 1);
}

/// X2: what was learned of one attempt never counts for a younger one, though both are unknown.
#[tokio::test(start_paused = true)]
async fn x2_a_younger_unknown_is_not_recovered_on_old_news() {
    let (bench, ask) = (Bench::new(), probed("k"));
    let node = bench.node();
    let doubt = doubted(&node, &ask).await;
    let seen = Seen::Record(bench.peek(&ask).await.unwrap().version);
    let by = Actor::new("ann").unwrap();
    bench.node().release(&by, ask.address.slot(), seen).await.unwrap();
    let younger = doubted(&node, &ask).await;
    assert!(node.recover(ask.clone(), &doubt, never, || false).await.unwrap().is_none());
    assert!(!node.settle_doubt(&doubt, &ask.policy, value("old")).await.unwrap());
    assert!(node.settle_doubt(&younger, &ask.policy, value("new")).await.unwrap());
}

/// K2: other content does not recover an attempt.
#[tokio::test(start_paused = true)]
async fn k2_other_content_recovers_nothing() {
    let (bench, ask) = (Bench::new(), probed("k"));
    let node = bench.node();
    let doubt = doubted(&node, &ask).await;
    let other = ask_with("k", "other", policy().on_unknown(OnUnknown::Probe));
    assert!(node.recover(other, &doubt, never, || false).await.unwrap().is_none());
    assert!(node.recover(probed("another"), &doubt, never, || false).await.unwrap().is_none());
    assert!(format!("{doubt:?}").starts_with("Doubt { fence: "));
}

/// A store that lost its reply is asked again, and one that fails settles nothing that was said.
#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_repeated_and_a_failure_is_said() {
    let (bench, ask, script) = (Bench::new(), probed("k"), Script::default());
    let node = bench.node_with(&script, Limits::default());
    let doubt = doubted(&node, &ask).await;
    script.plan(Op::Settle, Fault::LoseReply);
    assert!(node.settle_doubt(&doubt, &ask.policy, value("found")).await.unwrap());
    let ask = probed("l");
    let doubt = doubted(&node, &ask).await;
    node.stop(LEASE).await;
    let refused = node.settle_doubt(&doubt, &ask.policy, value("found")).await;
    assert_eq!(refused, Err(RunError::Stopping));
    assert_eq!(node.recover(ask, &doubt, never, || false).await, Err(RunError::Stopping));
}
