//! The walk `transact`: record and effects in one commit, computed again when others came first.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod common;

use std::time::Duration;

use common::*;
use onetake_core::{OnInFlight, OnUnknown, Outcome, Policy, Status};
use onetake_engine::{
    Answer, Check, Claim, Counter, Doc, Effects, Found, Journal, Lane, Limits, Need, Place,
    Position, RunError, Tried, View, Write,
};
use onetake_testkit::faulty::{Fault, Op, Script};
use tokio::time::timeout;

const LANE: Lane = Lane(bytes::Bytes::from_static(b"events"));

fn doc(name: &'static str) -> Doc {
    Doc { space: "test", key: name.into() }
}

fn number(view: &View, name: &'static str) -> Result<u64, Need> {
    let text = view.doc(&doc(name))?.map(|doc| String::from_utf8(doc.value.to_vec()).unwrap());
    Ok(text.map_or(0, |text| text.parse().unwrap()))
}

/// One more on a document that all share, and one entry.
fn increment(view: &View) -> Result<Effects, Need> {
    let sum = (number(view, "sum")? + 1).to_string();
    Ok(Effects::new(Outcome::Value(sum.clone().into()))
        .put(doc("sum"), sum.clone())
        .write(Write::Append(LANE, sum.into())))
}

async fn sum(bench: &Bench) -> (String, usize) {
    let places = [Place::Doc(doc("sum"))];
    let found = bench.memory.fetch(&places).await.unwrap().value;
    let Found::Doc(document) = &found[0] else { panic!("asked for a document") };
    let sum =
        document.as_ref().map_or("0".into(), |doc| String::from_utf8(doc.value.to_vec()).unwrap());
    let entries = bench.memory.read_lane(&LANE, Position(0), 10_000).await.unwrap().value.items;
    (sum, entries.len())
}

/// X8, P3: record, state and outgoing event commit together, once; a replay changes nothing.
#[tokio::test(start_paused = true)]
async fn x8_p3_record_and_effects_commit_together_and_once() {
    let bench = Bench::new();
    let node = bench.node();
    let first = node.transact(ask("k"), increment).await.unwrap();
    assert!(matches!(first, Answer::Executed { expires_at: Some(_), .. }), "{first:?}");
    for _ in 0..3 {
        let again = bench.node().transact(ask("k"), increment).await.unwrap();
        assert!(matches!(again, Answer::Replayed { .. }), "{again:?}");
        assert_eq!(outcome(&again), outcome(&first));
    }
    let other = ask_with("k", "other", policy());
    assert_eq!(node.transact(other, increment).await, Ok(Answer::Mismatch));
    assert_eq!(sum(&bench).await, ("1".into(), 1));
}

/// What a transaction read is checked by its commit, so concurrent ones are as if one came after
/// another.
#[tokio::test(start_paused = true)]
async fn x8_d6_concurrent_transactions_on_one_document_lose_nothing() {
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    for n in 0..20 {
        script.plan(Op::Read, Fault::Delay(Duration::from_millis(n % 5)));
        script.plan(Op::Commit, Fault::Delay(Duration::from_millis(n % 7)));
    }
    let calls: Vec<_> = (0..20)
        .map(|n| {
            let node = node.clone();
            tokio::spawn(async move { node.transact(ask(&format!("k{n}")), increment).await })
        })
        .collect();
    let mut sums = Vec::new();
    for call in calls {
        let answer = call.await.unwrap().unwrap();
        let Some(Outcome::Value(text)) = outcome(&answer).cloned() else { panic!("{answer:?}") };
        sums.push(String::from_utf8(text.to_vec()).unwrap().parse::<u64>().unwrap());
    }
    sums.sort_unstable();
    assert_eq!(sums, (1..=20).collect::<Vec<_>>());
    assert_eq!(sum(&bench).await, ("20".into(), 20));
}

/// Many transactions of one key at once: one commits, the others get its outcome.
#[tokio::test(start_paused = true)]
async fn w9_concurrent_transactions_of_one_key_commit_once() {
    let bench = Bench::new();
    let (a, b) = (bench.node(), bench.node());
    let calls: Vec<_> = (0..100)
        .map(|n| {
            let node = if n % 2 == 0 { a.clone() } else { b.clone() };
            tokio::spawn(async move { node.transact(ask("k"), increment).await })
        })
        .collect();
    for call in calls {
        assert_eq!(outcome(&call.await.unwrap().unwrap()), Some(&value("1")));
    }
    assert_eq!(sum(&bench).await, ("1".into(), 1));
}

/// A commit whose reply is lost, or that arrives twice, counts once.
#[tokio::test(start_paused = true)]
async fn a_commit_whose_reply_is_lost_counts_once() {
    for fault in [
        Fault::LoseReply,
        Fault::LoseCall,
        Fault::Repeat(Duration::from_secs(1)),
        Fault::Hang,
        Fault::DelayReply(Duration::from_secs(30)),
    ] {
        let (bench, script) = (Bench::new(), Script::default());
        let node = bench.node_with(&script, Limits::default());
        script.plan(Op::Commit, fault);
        let answer = node.transact(ask("k"), increment).await.unwrap();
        assert_eq!(outcome(&answer), Some(&value("1")), "{fault:?}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(sum(&bench).await, ("1".into(), 1), "{fault:?}");
    }
}

/// A store that never says whether it wrote: the caller hears so, and a retry with the key tells.
#[tokio::test(start_paused = true)]
async fn an_uncertain_commit_is_said_so_and_the_retry_tells() {
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    for _ in 0..6 {
        script.plan(Op::Commit, Fault::LoseReply);
    }
    let answer = node.transact(ask("k"), increment).await;
    assert_eq!(answer, Err(RunError::ExecutedNotRecorded));
    let retry = node.transact(ask("k"), increment).await.unwrap();
    assert!(matches!(retry, Answer::Replayed { .. }), "{retry:?}");
    assert_eq!(outcome(&retry), Some(&value("1")));
    assert_eq!(sum(&bench).await, ("1".into(), 1));
}

/// X4: a caller who leaves at any moment leaves the transaction whole or not there at all.
#[tokio::test(start_paused = true)]
async fn x4_a_transaction_whose_caller_leaves_is_whole_or_not_there() {
    for (fault, committed) in [
        (Fault::Delay(Duration::from_secs(1)), false),
        (Fault::DelayReply(Duration::from_secs(1)), true),
    ] {
        let (bench, script) = (Bench::new(), Script::default());
        let node = bench.node_with(&script, Limits::default());
        script.plan(Op::Commit, fault);
        let walk = node.transact(ask("k"), increment);
        assert!(timeout(Duration::from_millis(500), walk).await.is_err());
        let there = sum(&bench).await;
        assert_eq!(there, if committed { ("1".into(), 1) } else { ("0".into(), 0) });
        let retry = node.transact(ask("k"), increment).await.unwrap();
        assert_eq!(outcome(&retry), Some(&value("1")));
        assert_eq!(sum(&bench).await, ("1".into(), 1));
    }
}

/// W7: an outcome that is not kept writes nothing, and one with effects must be kept.
#[tokio::test(start_paused = true)]
async fn w7_a_refusal_writes_nothing_and_effects_need_an_outcome_that_is_kept() {
    let bench = Bench::new();
    let node = bench.node();
    let openwop = || ask_with("k", "body", Policy::openwop());
    let invalid = || {
        let status = Status::new(400).unwrap();
        Outcome::Response { status, headers: Vec::new(), body: "invalid".into() }
    };
    let refused = node.transact(openwop(), |_| Ok(Effects::new(invalid()))).await.unwrap();
    assert!(matches!(refused, Answer::Executed { expires_at: None, .. }), "{refused:?}");
    assert!(bench.memory.is_empty(), "nothing is recorded");
    let sloppy = |_: &View| Ok(Effects::new(invalid()).put(doc("sum"), "1"));
    assert_eq!(node.transact(openwop(), sloppy).await, Err(RunError::EffectsNotKept));
    assert_eq!(sum(&bench).await, ("0".into(), 0));
    let corrected = ask_with("k", "corrected", Policy::openwop());
    assert!(matches!(node.transact(corrected, increment).await, Ok(Answer::Executed { .. })));
}

/// A counter that must not fall below zero is guarded by the commit, not by what was read.
#[tokio::test(start_paused = true)]
async fn a_guarded_counter_never_falls_below() {
    let bench = Bench::new();
    let node = bench.node();
    let stock = || Counter("stock".into());
    let fill = |_: &View| Ok(Effects::new(value("filled")).write(Write::Add(stock(), 5)));
    node.transact(ask("fill"), fill).await.unwrap();
    let reserve = move |view: &View| {
        if view.counter(&stock())? < 1 {
            return Ok(Effects::new(value("sold out")));
        }
        Ok(Effects::new(value("reserved"))
            .check(Check::AtLeast(stock(), 1))
            .write(Write::Add(stock(), -1)))
    };
    let calls: Vec<_> = (0..20)
        .map(|n| {
            let node = node.clone();
            tokio::spawn(async move { node.transact(ask(&format!("r{n}")), reserve).await })
        })
        .collect();
    let mut reserved = 0;
    for call in calls {
        reserved += usize::from(outcome(&call.await.unwrap().unwrap()) == Some(&value("reserved")));
    }
    assert_eq!(reserved, 5);
    let found = bench.memory.fetch(&[Place::Counter(stock())]).await.unwrap().value;
    assert_eq!(found, [Found::Counter(0)]);
}

/// X12: one key is one key for both walks; a transaction waits for a claim of the other walk.
#[tokio::test(start_paused = true)]
async fn x12_a_transaction_waits_for_a_claim_under_the_same_key() {
    let (bench, count) = (Bench::new(), Count::default());
    let node = bench.node();
    let owner = tokio::spawn({
        let (node, function) = (node.clone(), count.function(LEASE, value("run")));
        async move { node.run(ask("k"), function).await }
    });
    settle_down().await;
    let refuse = ask_with("k", "body", policy().on_in_flight(OnInFlight::Refuse));
    let refused = node.transact(refuse, increment).await.unwrap();
    assert!(matches!(refused, Answer::InFlight { .. }), "{refused:?}");
    let joined = node.transact(ask("k"), increment).await.unwrap();
    assert_eq!(outcome(&joined), Some(&value("run")));
    owner.await.unwrap().unwrap();
    assert_eq!(sum(&bench).await, ("0".into(), 0));

    // And the other way round: what a transaction recorded answers a run.
    node.transact(ask("t"), increment).await.unwrap();
    let replay = node.run(ask("t"), never).await.unwrap();
    assert_eq!(outcome(&replay), Some(&value("1")));
}

/// X8, X2: completion and outgoing events of a claim are one commit, once, under its fence only.
#[tokio::test(start_paused = true)]
async fn x8_x2_a_claim_is_completed_with_its_events_in_one_commit() {
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    let ask = || ask_with("k", "body", policy().on_unknown(OnUnknown::Retry));
    let claim = |tried| match tried {
        Tried::Claimed(claim) => claim,
        Tried::Answered(answer) => panic!("not claimed: {answer:?}"),
    };
    let stalled = claim(node.try_claim(&ask()).await.unwrap());
    bench.clock.jump(LEASE);
    let successor = claim(node.try_claim(&ask()).await.unwrap());
    let settle = |claim: Claim| {
        let node = node.clone();
        async move {
            let policy = ask().policy;
            node.settle_claim_with(&claim.address, claim.fence, &policy, increment).await
        }
    };
    assert_eq!(settle(stalled.clone()).await, Err(RunError::Fenced));
    assert_eq!(sum(&bench).await, ("0".into(), 0), "a fenced claimant writes nothing at all");
    script.plan(Op::Commit, Fault::LoseReply);
    let settled = settle(successor.clone()).await.unwrap();
    assert_eq!(outcome(&settled), Some(&value("1")));
    assert_eq!(outcome(&settle(successor).await.unwrap()), Some(&value("1")), "said again");
    assert_eq!(settle(stalled).await, Err(RunError::Fenced));
    assert_eq!(sum(&bench).await, ("1".into(), 1));
    assert_eq!(outcome(&node.run(ask(), never).await.unwrap()), Some(&value("1")));
}

/// A stopping process commits nothing new.
#[tokio::test(start_paused = true)]
async fn a_stopping_engine_commits_nothing_new() {
    let bench = Bench::new();
    let node = bench.node();
    node.stop(Duration::from_secs(1)).await;
    let refused = node.transact(ask("k"), increment).await;
    assert_eq!(refused, Err(RunError::Stopping));
}
