//! The walk `run` when things go wrong: stalls, lost replies, callers who leave, stores that fail.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use onetake_core::{
    Ask, Cause, OnInFlight, OnUnknown, Outcome, Phase, Record, Report, Standing, Version,
};
use onetake_engine::{
    Answer, Clock, Engine, Home, Journal, Limits, Memory, Position, Reply, RunError, Slots,
    Stamped, Swap, Swept, audit_lane,
};
use onetake_testkit::faulty::{Fault, Op, Script};
use tokio::time::{Instant, sleep, timeout};

fn retry(body: &'static str) -> Ask {
    ask_with("k", body, policy().on_unknown(OnUnknown::Retry))
}

/// X2: an executor that stalls past its lease and is replaced cannot complete its successor's
/// claim.
#[tokio::test(start_paused = true)]
async fn x2_a_stalled_executor_is_fenced_and_its_successors_outcome_stands() {
    let (bench, script) = (Bench::new(), Script::default());
    let stalled = bench.node_with(&script, Limits::default());
    // No heartbeat arrives, and the completion only after the successor has finished.
    for _ in 0..20 {
        script.plan(Op::Renew, Fault::LoseCall);
    }
    let zombie = tokio::spawn({
        let stalled = stalled.clone();
        let function = Count::default().function(LEASE * 3, value("zombie"));
        async move { stalled.run(retry("body"), function).await }
    });
    sleep(LEASE * 2).await;
    let successor = bench.node().run(retry("body"), at_once(value("successor"))).await.unwrap();
    assert!(matches!(successor, Answer::Executed { .. }), "{successor:?}");
    assert_eq!(zombie.await.unwrap(), Err(RunError::Fenced));
    let replay = stalled.run(retry("body"), never).await.unwrap();
    assert_eq!(outcome(&replay), Some(&value("successor")), "the zombie overwrote nothing");
}

/// X2: nor can it settle the claim of a successor that is still executing.
#[tokio::test(start_paused = true)]
async fn x2_a_stalled_executor_cannot_complete_the_claim_of_a_successor_at_work() {
    let (bench, script) = (Bench::new(), Script::default());
    let stalled = bench.node_with(&script, Limits::default());
    for _ in 0..20 {
        script.plan(Op::Renew, Fault::LoseCall);
    }
    let zombie = tokio::spawn({
        let stalled = stalled.clone();
        let function = Count::default().function(LEASE * 2, value("zombie"));
        async move { stalled.run(retry("body"), function).await }
    });
    sleep(LEASE + Duration::from_millis(100)).await;
    let successor = tokio::spawn({
        let node = bench.node();
        let function = Count::default().function(LEASE * 3, value("successor"));
        async move { node.run(retry("body"), function).await }
    });
    assert_eq!(zombie.await.unwrap(), Err(RunError::Fenced));
    let record = bench.peek(&retry("body")).await.unwrap();
    assert!(matches!(record.phase, Phase::Claimed { .. }), "{record:?}");
    assert_eq!(outcome(&successor.await.unwrap().unwrap()), Some(&value("successor")));
}

/// X2: a fence is never reused, not even after its record was released and the count began again.
#[tokio::test(start_paused = true)]
async fn x2_an_executor_of_an_earlier_life_of_the_key_is_fenced() {
    let (bench, script) = (Bench::new(), Script::default());
    let limits = Limits { hold_retention: LEASE, ..Limits::default() };
    let stalled = bench.node_with(&script, limits);
    for _ in 0..20 {
        script.plan(Op::Renew, Fault::LoseCall);
    }
    let zombie = tokio::spawn({
        let stalled = stalled.clone();
        let function = Count::default().function(LEASE * 4, value("zombie"));
        async move { stalled.run(ask("k"), function).await }
    });
    sleep(LEASE * 3).await;
    let node = bench.node_with(&Script::default(), limits);
    assert_eq!(node.end_forgotten_unknowns().await, Ok(1));
    let anew = tokio::spawn({
        let function = Count::default().function(LEASE * 3, value("anew"));
        async move { node.run(ask("k"), function).await }
    });
    assert_eq!(zombie.await.unwrap(), Err(RunError::Fenced));
    assert_eq!(outcome(&anew.await.unwrap().unwrap()), Some(&value("anew")));
}

/// X2: an executor that learns from its heartbeat that it was replaced stops at once.
#[tokio::test(start_paused = true)]
async fn x2_a_replaced_executor_is_stopped_by_its_next_heartbeat() {
    let (bench, script) = (Bench::new(), Script::default());
    let stalled = bench.node_with(&script, Limits::default());
    for _ in 0..4 {
        script.plan(Op::Renew, Fault::LoseCall);
    }
    let dropped = Arc::new(());
    let witness = Arc::downgrade(&dropped);
    let zombie = tokio::spawn({
        let stalled = stalled.clone();
        let endless = |_| async move {
            std::future::pending::<()>().await;
            drop(dropped);
            Report::Unknown(Cause::Reported)
        };
        async move { stalled.run(retry("body"), endless).await }
    });
    sleep(LEASE + Duration::from_millis(100)).await;
    let slow = Count::default().function(LEASE, value("successor"));
    let successor = tokio::spawn({
        let node = bench.node();
        async move { node.run(retry("body"), slow).await }
    });
    assert_eq!(zombie.await.unwrap(), Err(RunError::Fenced));
    settle_down().await;
    assert!(witness.upgrade().is_none(), "two at once is what was promised not to happen");
    assert_eq!(outcome(&successor.await.unwrap().unwrap()), Some(&value("successor")));
}

/// X2, X3: nobody took over, so the late owner may still settle what had become unknown.
#[tokio::test(start_paused = true)]
async fn x2_x3_a_late_owner_settles_its_own_unknown() {
    let (bench, script) = (Bench::new(), Script::default());
    let slow = bench.node_with(&script, Limits::default());
    for _ in 0..20 {
        script.plan(Op::Renew, Fault::LoseCall);
    }
    let owner = tokio::spawn({
        let slow = slow.clone();
        let function = Count::default().function(LEASE * 3, value("late"));
        async move { slow.run(ask("k"), function).await }
    });
    sleep(LEASE * 2).await;
    let meanwhile = bench.node().run(ask("k"), never).await.unwrap();
    assert!(matches!(meanwhile, Answer::Unknown { .. }), "{meanwhile:?}");
    assert_eq!(outcome(&owner.await.unwrap().unwrap()), Some(&value("late")));
    let after = bench.node().run(ask("k"), never).await.unwrap();
    assert_eq!(outcome(&after), Some(&value("late")));
}

/// A renewal whose reply is lost changes the version; the completion goes on from what is there.
#[tokio::test(start_paused = true)]
async fn a_lost_renewal_reply_does_not_fence_its_own_owner() {
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    script.plan(Op::Renew, Fault::LoseReply);
    script.plan(Op::Renew, Fault::LoseReply);
    let function = Count::default().function(LEASE, value("made"));
    let answer = node.run(ask("k"), function).await.unwrap();
    assert_eq!(outcome(&answer), Some(&value("made")));
    assert!(script.is_played());
}

/// X4: wherever the caller leaves, the claim is kept, the execution goes on and its outcome is
/// recorded.
#[tokio::test(start_paused = true)]
async fn x4_a_caller_who_leaves_at_any_moment_changes_nothing() {
    let delay = Duration::from_millis(200);
    let points = [
        (Op::Claim, Fault::Delay(delay), "before the claim arrives"),
        (Op::Claim, Fault::DelayReply(delay), "before its reply arrives"),
        (Op::Claim, Fault::Hang, "when its reply never arrives"),
        (Op::Read, Fault::None, "while executing"),
        (Op::Settle, Fault::Delay(delay), "before the completion arrives"),
        (Op::Settle, Fault::DelayReply(delay), "before its reply arrives"),
    ];
    for (op, fault, when) in points {
        for (leave_after, is_here) in
            [0, 50, 120, 199, 250, 310].map(|ms| [(ms, false), (ms, true)]).concat()
        {
            let (bench, script, count) = (Bench::new(), Script::default(), Count::default());
            let node = bench.node_with(&script, Limits::default());
            script.plan(op, fault);
            let function = count.function(Duration::from_millis(100), value("made"));
            let limit = Duration::from_millis(leave_after);
            let left = if is_here {
                timeout(limit, node.run_answering(ask("k"), function, || false, Home::Caller)).await
            } else {
                timeout(limit, node.run(ask("k"), function)).await
            };
            sleep(Duration::from_secs(30)).await;
            let retry = node.run(ask("k"), never).await.unwrap();
            let when = format!("{when}, after {leave_after} ms, in its caller's task: {is_here}");
            assert_eq!(outcome(&retry), Some(&value("made")), "{when}");
            assert_eq!(count.get(), 1, "{when}, {left:?}");
            assert_eq!((node.executing(), node.waiting()), (0, 0), "{when}");
        }
    }
}

/// X1, X4: an execution that lost its caller goes on under a lease that is renewed, a stopping
/// engine waits for it, and what it came to is recorded.
#[tokio::test(start_paused = true)]
async fn x1_x4_an_execution_that_was_moved_keeps_its_lease_and_is_waited_for() {
    let (bench, count) = (Bench::new(), Count::default());
    let (node, other) = (bench.node(), bench.node());
    let long = count.function(5 * LEASE, value("made"));
    let left = timeout(LEASE / 2, node.run_answering(ask("k"), long, || false, Home::Caller)).await;
    assert!(left.is_err() && node.executing() == 1);
    sleep(3 * LEASE).await;
    let refusing = || policy().on_in_flight(OnInFlight::Refuse);
    let rival = other.run(ask_with("k", "body", refusing()), never).await;
    assert!(matches!(rival, Ok(Answer::InFlight { .. })), "still ours: {rival:?}");
    assert_eq!(node.stop(5 * LEASE).await, 0, "it ended in time");
    let retry = other.run(ask("k"), never).await.unwrap();
    assert_eq!((outcome(&retry), count.get()), (Some(&value("made")), 1));
}

/// X3: what panics in its caller's task takes nothing along; its outcome is unknown.
#[tokio::test(start_paused = true)]
async fn x3_a_panic_in_the_task_of_the_caller_is_unknown_and_harms_nobody() {
    let bench = Bench::new();
    let node = bench.node();
    for is_at_once in [true, false] {
        let key = format!("k-{is_at_once}");
        let panics = move |_: onetake_engine::Attempt| {
            assert!(!is_at_once, "on purpose");
            async { panic!("on purpose") }
        };
        let answer = node.run_answering(ask(&key), panics, || false, Home::Caller).await;
        assert!(matches!(answer, Ok(Answer::Unknown { .. })), "{answer:?}");
        assert_eq!(node.executing(), 0);
    }
}

/// X4, X5: a waiter who leaves gives back the seat and wakes, frees and changes nothing.
#[tokio::test(start_paused = true)]
async fn x4_x5_a_waiter_who_leaves_changes_nothing() {
    let (bench, count) = (Bench::new(), Count::default());
    let node = bench.node();
    let owner = tokio::spawn({
        let (node, function) = (node.clone(), count.function(LEASE, value("made")));
        async move { node.run(ask("k"), function).await }
    });
    settle_down().await;
    let before = bench.peek(&ask("k")).await.unwrap();
    for _ in 0..3 {
        let left = timeout(Duration::from_millis(10), node.run(ask("k"), never)).await;
        assert!(left.is_err(), "it was waiting");
    }
    assert_eq!(node.waiting(), 0);
    assert_eq!(bench.peek(&ask("k")).await.unwrap(), before);
    assert_eq!(outcome(&owner.await.unwrap().unwrap()), Some(&value("made")));
}

/// W12: durable before answered: as long as the completion is on its way, nobody hears the outcome.
#[tokio::test(start_paused = true)]
async fn w12_nobody_hears_an_outcome_before_it_is_durable() {
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    let late = Duration::from_secs(2);
    script.plan(Op::Settle, Fault::Delay(late));
    let started = Instant::now();
    let owner = tokio::spawn({
        let node = node.clone();
        async move { (node.run(ask("k"), at_once(value("made"))).await, started.elapsed()) }
    });
    settle_down().await;
    let waiter = tokio::spawn({
        let node = node.clone();
        async move { (node.run(ask("k"), never).await, started.elapsed()) }
    });
    for heard in [owner, waiter] {
        let (answer, after) = heard.await.unwrap();
        assert_eq!(outcome(&answer.unwrap()), Some(&value("made")));
        assert!(after >= late, "heard after {after:?}, durable after {late:?}");
    }
}

/// If the outcome cannot be recorded the caller hears so, never the outcome; the engine goes on
/// trying, keeps the lease, and a retry gets the outcome.
#[tokio::test(start_paused = true)]
async fn executed_but_not_recorded_is_said_so_and_recorded_later() {
    let (bench, script, count) = (Bench::new(), Script::default(), Count::default());
    let node = bench.node_with(&script, Limits::default());
    for _ in 0..30 {
        script.plan(Op::Settle, Fault::Fail);
    }
    let function = count.function(Duration::ZERO, value("made"));
    let answer = node.run(ask("k"), function).await;
    assert_eq!(answer, Err(RunError::ExecutedNotRecorded));
    let record = bench.peek(&ask("k")).await.unwrap();
    let standing = record.standing(bench.clock.now());
    assert!(matches!(standing, Standing::Live { .. }), "the lease is kept: {standing:?}");
    let retry = ask_with(
        "k",
        "body",
        policy().on_in_flight(onetake_core::OnInFlight::Wait(Duration::from_secs(600))),
    );
    let retry = node.run(retry, never).await.unwrap();
    assert_eq!(outcome(&retry), Some(&value("made")));
    assert_eq!(count.get(), 1);
    assert!(script.is_played());
}

/// A completion whose reply is lost is repeated, and counts once.
#[tokio::test(start_paused = true)]
async fn a_completion_whose_reply_is_lost_is_recognised_as_its_own() {
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    script.plan(Op::Settle, Fault::LoseReply);
    script.plan(Op::Settle, Fault::LoseReply);
    let answer = node.run(ask("k"), at_once(value("made"))).await.unwrap();
    assert!(matches!(answer, Answer::Executed { .. }), "{answer:?}");
}

/// A completion that finds its key resolved by an operator is fenced, not taken for its own.
#[tokio::test(start_paused = true)]
async fn a_completion_is_not_swallowed_when_somebody_else_settled_the_same_fence() {
    let bench = Bench::new();
    let node = bench.node();
    let owner = tokio::spawn({
        // Over before its first heartbeat, so that it is the completion that finds out.
        let (node, function) = (node.clone(), Count::default().function(LEASE / 6, value("mine")));
        async move { node.run(ask("k"), function).await }
    });
    settle_down().await;
    let claim = bench.peek(&ask("k")).await.unwrap();
    let resolved = onetake_core::Settlement::Done {
        outcome: Arc::new(value("resolved")),
        keeping: onetake_core::Keeping::Final,
    };
    let draft = resolved.draft(&claim, &ask("k").policy, 77);
    let won = bench.memory.swap(Some(claim.version), draft).await.unwrap().value;
    assert!(matches!(won, Swap::Won(_)));
    assert_eq!(owner.await.unwrap(), Err(RunError::Fenced), "same fence, another write");
    let replay = node.run(ask("k"), never).await.unwrap();
    assert_eq!(outcome(&replay), Some(&value("resolved")));
}

/// The store never says whether the claim was written: nothing is executed, and what was written
/// after all is taken back.
#[tokio::test(start_paused = true)]
async fn an_uncertain_claim_executes_nothing_and_is_taken_back() {
    for fault in [Fault::LoseReply, Fault::LoseCall] {
        let (bench, script) = (Bench::new(), Script::default());
        let node = bench.node_with(&script, Limits::default());
        for _ in 0..6 {
            script.plan(Op::Claim, fault);
        }
        assert_eq!(node.run(ask("k"), never).await, Err(RunError::ClaimUncertain));
        sleep(Duration::from_secs(5)).await;
        let retry = node.run(ask("k"), at_once(value("made"))).await.unwrap();
        assert!(matches!(retry, Answer::Executed { .. }), "{fault:?}: {retry:?}");
    }
}

/// A claim whose reply comes after its lease is renewed before anything is dispatched; if somebody
/// took over meanwhile, nothing is.
#[tokio::test(start_paused = true)]
async fn a_claim_that_lapsed_on_its_way_back_dispatches_nothing_without_a_renewal() {
    let (bench, script) = (Bench::new(), Script::default());
    let slow = bench.node_with(&script, Limits::default());
    script.plan(Op::Claim, Fault::DelayReply(LEASE * 2));
    let first = tokio::spawn({
        let slow = slow.clone();
        async move { slow.run(retry("body"), never).await }
    });
    sleep(LEASE + Duration::from_millis(1)).await;
    let taken = Count::default().function(LEASE * 4, value("taken over"));
    let successor = tokio::spawn({
        let node = bench.node();
        async move { node.run(retry("body"), taken).await }
    });
    assert_eq!(first.await.unwrap(), Err(RunError::ClaimUncertain));
    assert_eq!(outcome(&successor.await.unwrap().unwrap()), Some(&value("taken over")));

    script.plan(Op::Claim, Fault::DelayReply(LEASE * 2));
    let alone = slow.run(ask("k2"), at_once(value("renewed first"))).await.unwrap();
    assert_eq!(outcome(&alone), Some(&value("renewed first")));
}

/// A late copy of a claim finds a tombstone and takes no effect.
#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_claim_cannot_resurrect_a_released_key() {
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    script.plan(Op::Claim, Fault::Repeat(Duration::from_secs(5)));
    node.run(ask("k"), at_once(failure("freed"))).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    let record = bench.peek(&ask("k")).await.unwrap();
    assert!(matches!(record.phase, Phase::Released { .. }), "{record:?}");
    assert!(matches!(node.run(ask("k"), at_once(value("x"))).await, Ok(Answer::Executed { .. })));
}

/// A store that is down refuses new keys; nothing is executed unrecorded.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_executes_nothing() {
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    script.plan(Op::Claim, Fault::Fail);
    let answer = node.run(ask("k"), never).await;
    assert_eq!(answer.unwrap_err().code().as_str(), "store_unavailable");
    assert!(bench.peek(&ask("k")).await.is_none());
}

/// Unknown outcomes that nobody settles end after the hold retention, with an audit entry in the
/// same commit; younger ones and live claims stay.
#[tokio::test(start_paused = true)]
async fn x3_forgotten_unknowns_end_with_an_audit_entry() {
    let bench = Bench::new();
    let limits =
        Limits { hold_retention: Duration::from_secs(3_600), sweep_step: 2, ..Limits::default() };
    let node = bench.node_with(&Script::default(), limits);
    let unknown = |_| async { Report::Unknown(Cause::Reported) };
    for key in ["a", "b", "c"] {
        node.run(ask(key), unknown).await.unwrap();
    }
    node.run(ask("done"), at_once(value("x"))).await.unwrap();
    bench.clock.jump(Duration::from_secs(3_599));
    node.run(ask("young"), unknown).await.unwrap();
    assert_eq!(node.end_forgotten_unknowns().await, Ok(0));
    bench.clock.jump(Duration::from_secs(1));
    assert_eq!(node.end_forgotten_unknowns().await, Ok(3));
    let audit = bench.memory.read_lane(&audit_lane(), Position(0), 10).await.unwrap().value.items;
    assert_eq!(audit.len(), 3);
    let entry = String::from_utf8(audit[0].value.to_vec()).unwrap();
    assert!(
        entry.contains(r#""act":"unknown_ended""#) && entry.contains("orders.create"),
        "{entry}"
    );
    assert!(!entry.contains(r#""a""#), "the caller's key is nowhere: {entry}");
    assert!(matches!(node.run(ask("a"), at_once(value("new"))).await, Ok(Answer::Executed { .. })));
    assert!(matches!(node.run(ask("young"), never).await, Ok(Answer::Unknown { .. })));
    node.keep_house();
    bench.clock.jump(Duration::from_secs(3_600));
    sleep(limits.unknowns_every + Duration::from_secs(1)).await;
    let unasked = node.run(ask("young"), at_once(value("new"))).await;
    assert!(matches!(unasked, Ok(Answer::Executed { .. })), "{unasked:?}");
    assert!(matches!(node.run(ask("young"), never).await, Ok(Answer::Replayed { .. })));
}

/// A store whose slots answer with somebody else's record.
struct Confused(Memory, Arc<Record>);

impl Slots for Confused {
    async fn read(&self, slot: &onetake_core::Slot) -> Reply<Option<Arc<Record>>> {
        self.0.read(slot).await
    }
    async fn swap(&self, _: Option<Version>, _: onetake_core::Draft) -> Reply<Swap> {
        let now = self.1.since;
        Ok(Stamped { now, value: Swap::Lost(Some(Arc::clone(&self.1))) })
    }
    async fn renew(&self, slot: &onetake_core::Slot, v: Version, d: Duration) -> Reply<Swap> {
        self.0.renew(slot, v, d).await
    }
    async fn sweep(&self, limit: usize) -> Reply<Swept> {
        self.0.sweep(limit).await
    }
}

/// The parts of an address are compared, so not even equal digests can answer for another
/// operation.
#[tokio::test(start_paused = true)]
async fn no_collision_can_answer_for_another_address() {
    let bench = Bench::new();
    let theirs = ask_of("evil", "k", "body", policy());
    bench.node().run(theirs.clone(), at_once(Outcome::Value("secret".into()))).await.unwrap();
    let record = bench.peek(&theirs).await.unwrap();
    let engine = Engine::new(Confused(Memory::new(), record));
    assert_eq!(engine.run(ask("k"), never).await, Err(RunError::Collision));
}
