//! Faults that a review found, each with the story that showed it.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::*;
use onetake_core::{
    Draft, OnInFlight, OnUnknown, Outcome, Phase, Policy, PolicyBuilder, Record, Slot, Standing,
    Status, Version,
};
use onetake_engine::{
    Answer, Check, Clock, Commit, Counter, Doc, Effects, Engine, Journal, Lane, Limits, Memory,
    MemoryLimits, Mint, OnFull, Reply, RunError, Slots, StoreError, Swap, Swept, Tried, Tx, View,
    Write,
};
use onetake_testkit::clock::TokioClock;
use onetake_testkit::faulty::{Fault, Faulty, Op, Script};
use tokio::time::{Instant, sleep};

const S: fn(u64) -> Duration = Duration::from_secs;
const MS: fn(u64) -> Duration = Duration::from_millis;

/// A policy whose duplicates wait long enough to see a silent claim lapse, and may recover it.
fn patient() -> PolicyBuilder {
    policy().on_unknown(OnUnknown::Retry).on_in_flight(OnInFlight::Wait(S(60)))
}

/// X1: one renewal that hangs does not cost a living owner its lease, nor delay its time limit.
#[tokio::test(start_paused = true)]
async fn x1_one_hung_renewal_costs_no_lease() {
    for lease in [S(30), S(10), S(1)] {
        let (bench, script, count) = (Bench::new(), Script::default(), Count::default());
        let policy = move || Policy::builder().lease(lease).on_unknown(OnUnknown::Retry);
        script.plan(Op::Renew, Fault::Delay(S(60)));
        let owner = tokio::spawn({
            let node = bench.node_with(&script, Limits::default());
            let function = count.function(lease * 5, value("owner"));
            async move { node.run(ask_with("k", "body", policy()), function).await }
        });
        settle_down().await;
        let refuse = || policy().on_in_flight(OnInFlight::Refuse);
        for _ in 0..40 {
            sleep(lease / 10).await;
            let rival = bench.node().run(ask_with("k", "body", refuse()), never).await.unwrap();
            assert!(matches!(rival, Answer::InFlight { .. }), "{lease:?}: {rival:?}");
        }
        assert_eq!(outcome(&owner.await.unwrap().unwrap()), Some(&value("owner")));
        assert_eq!(count.get(), 1);
    }
}

/// A process that stops waits for a claim that is under way, and begins nothing afterwards.
#[tokio::test(start_paused = true)]
async fn stopping_waits_for_a_claim_under_way_and_begins_nothing_after() {
    let (bench, script, count) = (Bench::new(), Script::default(), Count::default());
    let node = bench.node_with(&script, Limits::default());
    script.plan(Op::Claim, Fault::Delay(MS(100)));
    let call = tokio::spawn({
        let (node, function) = (node.clone(), count.function(MS(10), value("made")));
        async move { node.run(ask("k"), function).await }
    });
    settle_down().await;
    assert_eq!(node.stop(S(10)).await, 0);
    assert_eq!(count.get(), 1, "what was begun is finished");
    assert_eq!(outcome(&call.await.unwrap().unwrap()), Some(&value("made")));

    let silent = || ask_with("silent", "body", patient());
    assert!(matches!(bench.node().try_claim(&silent()).await, Ok(Tried::Claimed(_))));
    let (stopped, inside) = (bench.node(), bench.node());
    let runs = tokio::spawn({
        let stopped = stopped.clone();
        async move { stopped.run(silent(), never).await }
    });
    let transacts = tokio::spawn({
        let inside = inside.clone();
        async move { inside.transact(silent(), |_| Ok(Effects::new(value("t")))).await }
    });
    settle_down().await;
    assert_eq!(stopped.stop(S(1)).await + inside.stop(S(1)).await, 0);
    assert_eq!(runs.await.unwrap(), Err(RunError::Stopping));
    assert_eq!(transacts.await.unwrap(), Err(RunError::Stopping));
}

/// X1: a claim in single steps whose reply was slow is handed out with a lease that runs.
#[tokio::test(start_paused = true)]
async fn x1_a_slow_claim_is_handed_out_alive() {
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    script.plan(Op::Claim, Fault::DelayReply(LEASE * 2));
    assert!(matches!(node.try_claim(&ask("k")).await, Ok(Tried::Claimed(_))));
    let standing = bench.peek(&ask("k")).await.unwrap();
    assert!(matches!(standing.standing(bench.clock.now()), Standing::Live { .. }));
}

/// A claim that nobody holds is taken back, however late a copy of it arrives.
#[tokio::test(start_paused = true)]
async fn a_claim_that_nobody_holds_is_taken_back_however_late_it_arrives() {
    for late in [S(8), S(40)] {
        let (bench, script) = (Bench::new(), Script::default());
        let node = bench.node_with(&script, Limits::default());
        for _ in 0..6 {
            script.plan(Op::Claim, Fault::Late(late));
        }
        assert_eq!(node.run(ask("k"), never).await, Err(RunError::ClaimUncertain));
        sleep(S(100)).await;
        let retry = bench.node().run(ask("k"), at_once(value("x"))).await;
        assert!(matches!(retry, Ok(Answer::Executed { .. })), "{late:?}: {retry:?}");
    }
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    script.plan(Op::Claim, Fault::LoseReply);
    script.plan(Op::Claim, Fault::Fail);
    assert!(node.try_claim(&ask("k")).await.is_err());
    sleep(S(120)).await;
    assert!(matches!(node.try_claim(&ask("k")).await, Ok(Tried::Claimed(_))));
}

/// Who waited for a silent claim shares what its successor came to, also when that frees the key.
#[tokio::test(start_paused = true)]
async fn a_silent_claim_starts_no_stampede_either() {
    let (bench, count) = (Bench::new(), Count::default());
    let ask = || ask_with("k", "body", patient());
    assert!(matches!(bench.node().try_claim(&ask()).await, Ok(Tried::Claimed(_))));
    let node = bench.node();
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let (node, function) = (node.clone(), count.function(MS(1), failure("busy")));
            tokio::spawn(async move { node.run(ask(), function).await })
        })
        .collect();
    for waiter in waiters {
        assert!(waiter.await.unwrap().is_ok());
    }
    assert_eq!(count.get(), 1, "one of those who waited, and only one");
}

/// "Nothing happened" is not said while an earlier round of the same transaction may still arrive.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_not_said_while_the_commit_may_still_arrive() {
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    let stock = || Counter("stock".into());
    let add = |id, n| onetake_testkit::make::tx(id).write(Write::Add(stock(), n));
    assert!(bench.memory.commit(add(1, 1)).await.is_ok());
    script.plan(Op::Commit, Fault::Late(S(1)));
    let buy = move |view: &View| {
        if view.counter(&stock())? < 1 {
            let status = Status::new(409).unwrap();
            let sold_out = Outcome::Response { status, headers: Vec::new(), body: "".into() };
            return Ok(Effects::new(sold_out));
        }
        let bought = Effects::new(value("bought")).check(Check::AtLeast(stock(), 1));
        Ok(bought.write(Write::Add(stock(), -1)))
    };
    let call = tokio::spawn({
        let node = node.clone();
        async move { node.transact(ask("k"), buy).await }
    });
    settle_down().await;
    assert!(bench.memory.commit(add(2, -1)).await.is_ok(), "sold out meanwhile");
    assert_eq!(call.await.unwrap(), Err(RunError::ExecutedNotRecorded));
}

/// K8: one sweep that hangs does not end sweeping.
#[tokio::test(start_paused = true)]
async fn k8_a_hung_sweep_does_not_end_sweeping() {
    struct Hangs(Memory, AtomicUsize);
    impl Slots for Hangs {
        async fn read(&self, slot: &Slot) -> Reply<Option<Arc<Record>>> {
            self.0.read(slot).await
        }
        async fn swap(&self, expected: Option<Version>, next: Draft) -> Reply<Swap> {
            self.0.swap(expected, next).await
        }
        async fn renew(&self, slot: &Slot, version: Version, lease: Duration) -> Reply<Swap> {
            self.0.renew(slot, version, lease).await
        }
        async fn sweep(&self, limit: usize) -> Reply<Swept> {
            if self.1.fetch_add(1, Ordering::SeqCst) == 0 {
                std::future::pending::<()>().await;
            }
            self.0.sweep(limit).await
        }
    }
    let memory = Memory::with(MemoryLimits::default(), TokioClock::new());
    let engine = Engine::new(Arc::new(Hangs(memory, AtomicUsize::new(0))));
    engine.run(ask("k"), at_once(value("x"))).await.unwrap();
    sleep(RETENTION + S(600)).await;
    assert!(engine.store().0.is_empty());
}

/// X3: housekeeping ends unknowns whichever walk came first.
#[tokio::test(start_paused = true)]
async fn x3_housekeeping_does_not_depend_on_which_walk_came_first() {
    let bench = Bench::new();
    let limits = Limits { hold_retention: S(600), ..Limits::default() };
    let node = bench.node_with(&Script::default(), limits);
    node.run(ask("x"), at_once(value("x"))).await.unwrap();
    node.transact(ask("y"), |_| Ok(Effects::new(value("y")))).await.unwrap();
    assert!(matches!(bench.node().try_claim(&ask("k")).await, Ok(Tried::Claimed(_))));
    sleep(limits.unknowns_every * 2).await;
    assert!(!bench.peek(&ask("k")).await.unwrap().is_open());
}

/// A transaction that would hide its own anchor cannot be recognised when repeated, and is refused.
#[tokio::test(start_paused = true)]
async fn a_transaction_that_writes_its_anchor_twice_is_refused() {
    let memory = Bench::new().memory;
    let doc = || Doc { space: "t", key: "a".into() };
    let append = Write::Append(Lane("l".into()), "e".into());
    let tx = Tx::on_doc(7, doc(), None, "v".into()).write(append).write(Write::Delete(doc()));
    let refused = memory.commit(tx).await;
    assert!(matches!(refused, Err(StoreError::Malformed(_))), "{refused:?}");
    let sound = memory.commit(Tx::on_doc(8, doc(), None, "v".into())).await.unwrap().value;
    assert!(matches!(sound, Commit::Committed { .. }));
}

/// D11, W6: what has expired refuses nobody, and a tombstone is not evicted before its time.
#[tokio::test(start_paused = true)]
async fn d11_w6_expired_records_refuse_nobody_and_tombstones_stay() {
    let one = MemoryLimits { tenant_records_max: 1, ..MemoryLimits::default() };
    let clock = TokioClock::new();
    let engine = Engine::new(Memory::with(one, clock.clone()));
    engine.run(ask("x"), at_once(value("x"))).await.unwrap();
    clock.jump(S(3_600));
    assert!(engine.run(ask("y"), at_once(value("y"))).await.is_ok());

    let evict = MemoryLimits { on_full: OnFull::Evict, ..one };
    let (memory, script) = (Arc::new(Memory::with(evict, TokioClock::new())), Script::default());
    let faulty = Arc::new(Faulty::scripted(Arc::clone(&memory), &script));
    let engine = Engine::with(faulty, Limits::default(), Mint::default());
    script.plan(Op::Claim, Fault::Repeat(S(2)));
    engine.run(ask("x"), at_once(failure("freed"))).await.unwrap();
    let refused = engine.run(ask("y"), never).await.unwrap_err();
    assert_eq!(refused.code().as_str(), "store_full");
    sleep(S(10)).await;
    let again = engine.run(ask("x"), at_once(value("x"))).await;
    assert!(matches!(again, Ok(Answer::Executed { .. })), "{again:?}");
}

/// X3: a time limit is kept also while a renewal hangs.
#[tokio::test(start_paused = true)]
async fn x3_a_time_limit_is_kept_while_a_renewal_hangs() {
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    script.plan(Op::Renew, Fault::Delay(S(60)));
    let started = Instant::now();
    let limited = ask_with("k", "body", policy().timeout(S(2)));
    let function = Count::default().function(S(100), value("x"));
    let answer = node.run(limited, function).await.unwrap();
    assert!(matches!(answer, Answer::Unknown { .. }), "{answer:?}");
    assert!(started.elapsed() <= S(3), "{:?}", started.elapsed());
    assert!(matches!(bench.peek(&ask("k")).await.unwrap().phase, Phase::Unknown { .. }));
}
