//! The walk `run`, rule by rule: who executes, who waits, what is remembered, and for how long.

mod common;

use std::time::Duration;

use common::*;
use onetake_core::{
    Cause, Finality, OnInFlight, OnUnknown, Outcome, Phase, Policy, Report, Standing, Status,
    StatusRules,
};
use onetake_engine::{Answer, Clock, Limits, RunError};
use onetake_testkit::faulty::Script;
use tokio::time::{Instant, sleep};

/// K5, C3, C4, W3: look up, claim, execute, store; afterwards the same answer for everyone.
#[tokio::test(start_paused = true)]
async fn k5_w3_c3_c4_the_first_executes_and_every_other_gets_its_outcome() {
    let (bench, count) = (Bench::new(), Count::default());
    let node = bench.node();
    let first = node.run(ask("k"), count.function(Duration::ZERO, value("made"))).await.unwrap();
    assert!(matches!(first, Answer::Executed { expires_at: Some(_), .. }), "{first:?}");
    let second = bench.node().run(ask("k"), never).await.unwrap();
    assert!(matches!(second, Answer::Replayed { .. }), "another process: {second:?}");
    assert_eq!(outcome(&first), outcome(&second));
    assert_eq!(count.get(), 1);
}

/// C5, C7: the function learns its key and attempt, and the same key elsewhere is another
/// operation.
#[tokio::test(start_paused = true)]
async fn c5_c7_the_function_can_read_its_key_and_other_tenants_never_meet_it() {
    let (bench, count) = (Bench::new(), Count::default());
    let node = bench.node();
    let read_key = |attempt: onetake_engine::Attempt| async move {
        let key = attempt.key.unwrap().as_str().to_owned();
        Report::Finished(Outcome::Value(format!("{key} {}", attempt.number).into()))
    };
    let answer = node.run(ask("k-7"), read_key).await.unwrap();
    assert_eq!(outcome(&answer), Some(&value("k-7 1")));
    let other = ask_of("evil", "k-7", "body", policy());
    let answer = node.run(other, count.function(Duration::ZERO, value("own"))).await.unwrap();
    assert!(matches!(answer, Answer::Executed { .. }), "{answer:?}");
    assert_eq!(outcome(&answer), Some(&value("own")));
}

/// K2, W20: other content under a used key changes nothing and reveals nothing.
#[tokio::test(start_paused = true)]
async fn k2_w20_other_content_is_a_mismatch_before_and_after_the_end() {
    let (bench, count) = (Bench::new(), Count::default());
    let node = bench.node();
    let slow = count.function(Duration::from_secs(1), value("made"));
    let first = tokio::spawn({
        let node = node.clone();
        async move { node.run(ask("k"), slow).await }
    });
    settle_down().await;
    let other = |policy| ask_with("k", "other", policy);
    assert_eq!(node.run(other(policy()), never).await, Ok(Answer::Mismatch));
    let openwop = || Policy::openwop().lease(LEASE);
    let early = node.run(other(openwop()), never).await.unwrap();
    assert_eq!(early, Answer::InFlight { retry_after: LEASE }, "in flight first, and at once");
    first.await.unwrap().unwrap();
    assert_eq!(node.run(other(openwop()), never).await, Ok(Answer::Mismatch));
    assert_eq!(count.get(), 1);
}

/// W9, K10, X5: exactly one of many executes; the others are woken with its outcome the moment it
/// is durable, in this process and in others.
#[tokio::test(start_paused = true)]
async fn w9_k10_x5_a_thousand_duplicates_execute_once_and_are_woken_together() {
    let (bench, count) = (Bench::new(), Count::default());
    let (node, other) = (bench.node(), bench.node());
    let started = Instant::now();
    let callers: Vec<_> = (0..1_000)
        .map(|n| {
            let node = if n % 10 == 9 { other.clone() } else { node.clone() };
            let function = count.function(Duration::from_secs(2), value("made"));
            tokio::spawn(async move {
                (node.run(ask("k"), function).await.unwrap(), started.elapsed(), n)
            })
        })
        .collect();
    let (mut executed, mut joined) = (0, 0);
    for caller in callers {
        let (answer, after, n) = caller.await.unwrap();
        assert_eq!(outcome(&answer), Some(&value("made")));
        match answer {
            Answer::Executed { .. } => executed += 1,
            Answer::Joined { .. } => joined += 1,
            Answer::Replayed { .. } => assert_eq!(n % 10, 9, "only other processes must look"),
            Answer::Freed
            | Answer::Mismatch
            | Answer::InFlight { .. }
            | Answer::StillExecuting { .. }
            | Answer::Unknown { .. } => panic!("{answer:?}"),
        }
        if n % 10 != 9 {
            assert!(after < Duration::from_millis(2_010), "woken, not polled: {after:?}");
        }
    }
    assert_eq!((count.get(), executed), (1, 1));
    assert_eq!(joined, 899);
    assert_eq!(node.waiting() + other.waiting(), 0);
}

/// K10, X5: whoever does not wait, or waits in vain, is told the real lease.
#[tokio::test(start_paused = true)]
async fn k10_x5_a_refusal_tells_when_the_lease_ends() {
    let bench = Bench::new();
    let node = bench.node();
    let endless = |_| async { std::future::pending::<Report>().await };
    let _first = tokio::spawn({
        let node = node.clone();
        async move { node.run(ask("k"), endless).await }
    });
    sleep(Duration::from_millis(500)).await;
    let refuse = policy().on_in_flight(OnInFlight::Refuse);
    let answer = node.run(ask_with("k", "body", refuse), never).await.unwrap();
    assert_eq!(answer, Answer::InFlight { retry_after: Duration::from_millis(2_500) });
    let (wait, asked) = (Duration::from_millis(4_200), Instant::now());
    let patient = policy().on_in_flight(OnInFlight::Wait(wait));
    let answer = node.run(ask_with("k", "body", patient), never).await.unwrap();
    let Answer::InFlight { retry_after } = answer else { panic!("{answer:?}") };
    assert_eq!(asked.elapsed(), wait, "it waited exactly as long as it was told");
    assert!(retry_after <= LEASE && retry_after > Duration::ZERO, "{retry_after:?}");
    assert_eq!(node.waiting(), 0, "the seat is given back");
}

/// X5: waiters are bounded per key, per tenant and in all.
#[tokio::test(start_paused = true)]
async fn x5_waiters_are_bounded_per_key_per_tenant_and_in_all() {
    let bench = Bench::new();
    let waiters = onetake_engine::WaitLimits { per_key: 2, per_tenant: 3, total: 4 };
    let limits = Limits { waiters, ..Limits::default() };
    let node = bench.node_with(&Script::default(), limits);
    let endless = |_| async { std::future::pending::<Report>().await };
    let asks = [("acme", "a"), ("acme", "b"), ("evil", "a"), ("evil", "b"), ("evil", "c")];
    let patient = || policy().on_in_flight(OnInFlight::Wait(Duration::from_secs(60)));
    let call = |(tenant, key): (&str, &str)| {
        let (node, ask) = (node.clone(), ask_of(tenant, key, "body", patient()));
        tokio::spawn(async move { node.run(ask, endless).await })
    };
    let _owners: Vec<_> = asks.map(call).into();
    settle_down().await;
    let mut seated = Vec::new();
    for (at, seats) in [(0, 2), (1, 1), (2, 1), (3, 0), (4, 0)] {
        for n in 0..3 {
            let waiter = call(asks[at]);
            settle_down().await;
            assert_eq!(!waiter.is_finished(), n < seats, "{:?} waiter {n}", asks[at]);
            seated.push(waiter);
        }
    }
    assert_eq!(node.waiting(), 4);
    seated.iter().for_each(tokio::task::JoinHandle::abort);
    settle_down().await;
    assert_eq!(node.waiting(), 0, "whoever goes away gives the seat back");
}

/// K9, D8: a failure frees the key, so that a retry executes again, also with a corrected body.
#[tokio::test(start_paused = true)]
async fn k9_d8_a_failure_frees_the_key_for_a_corrected_body() {
    let (bench, count) = (Bench::new(), Count::default());
    let node = bench.node();
    let failed = node.run(ask("k"), count.function(Duration::ZERO, failure("no"))).await.unwrap();
    assert!(matches!(failed, Answer::Executed { expires_at: None, .. }), "{failed:?}");
    let record = bench.peek(&ask("k")).await.unwrap();
    assert!(matches!(record.phase, Phase::Released { .. }), "a tombstone, not an absence");
    let corrected = ask_with("k", "corrected", policy());
    let retry = node.run(corrected, count.function(Duration::ZERO, value("yes"))).await.unwrap();
    assert_eq!(outcome(&retry), Some(&value("yes")));
    assert_eq!(count.get(), 2);
}

/// W13, W14: a failure that is kept answers every further attempt, in every process, and the effect
/// is not called again.
#[tokio::test(start_paused = true)]
async fn w13_w14_a_kept_failure_is_not_tried_again() {
    let (bench, count) = (Bench::new(), Count::default());
    let keep = || ask_with("k", "body", Policy::activity());
    let declined = count.function(Duration::ZERO, failure("declined"));
    bench.node().run(keep(), declined).await.unwrap();
    let again = bench.node().run(keep(), never).await.unwrap();
    assert!(matches!(again, Answer::Replayed { .. }), "{again:?}");
    assert_eq!(outcome(&again), Some(&failure("declined")));
    assert_eq!(count.get(), 1);
}

/// W8: a retryable outcome is on record but never given again, and a later success replaces it.
#[tokio::test(start_paused = true)]
async fn w8_a_503_is_recorded_and_executed_again_until_a_success_replaces_it() {
    let bench = Bench::new();
    let node = bench.node();
    let openwop = |body| ask_with("k", body, Policy::openwop());
    let response = |status| {
        let status = Status::new(status).unwrap();
        Outcome::Response { status, headers: Vec::new(), body: "b".into() }
    };
    node.run(openwop("body"), at_once(response(503))).await.unwrap();
    let record = bench.peek(&openwop("body")).await.unwrap();
    assert!(matches!(record.standing(bench.clock.now()), Standing::Retryable(_)));
    assert_eq!(node.run(openwop("other"), never).await, Ok(Answer::Mismatch));
    let retry = node.run(openwop("body"), at_once(response(201))).await.unwrap();
    assert!(matches!(retry, Answer::Executed { expires_at: Some(_), .. }), "{retry:?}");
    let replay = node.run(openwop("body"), never).await.unwrap();
    assert_eq!(outcome(&replay), Some(&response(201)));
}

/// K7, D11: after its retention a key is free, without anyone cleaning up.
#[tokio::test(start_paused = true)]
async fn k7_d11_an_expired_outcome_does_not_exist_although_nobody_swept_it() {
    let (bench, count) = (Bench::new(), Count::default());
    let node = bench.node();
    let run = || node.run(ask("k"), count.function(Duration::ZERO, value("made")));
    assert!(matches!(run().await, Ok(Answer::Executed { .. })));
    bench.clock.jump(RETENTION.saturating_sub(Duration::from_millis(1)));
    assert!(matches!(run().await, Ok(Answer::Replayed { .. })), "one millisecond before");
    bench.clock.jump(Duration::from_millis(1));
    assert!(matches!(run().await, Ok(Answer::Executed { .. })), "exactly at its end");
    assert_eq!(count.get(), 2);
}

/// K8: expired records go, by hand or unasked; live, lapsed and unknown ones never do.
#[tokio::test(start_paused = true)]
async fn k8_what_has_expired_is_swept_and_nothing_else() {
    let bench = Bench::new();
    let limits = Limits { sweep_every: Duration::from_secs(5), sweep_step: 3, ..Limits::default() };
    let node = bench.node_with(&Script::default(), limits);
    for n in 0..100 {
        node.run(ask(&format!("done-{n}")), at_once(value("x"))).await.unwrap();
    }
    let unknown = |_| async { Report::Unknown(Cause::Reported) };
    node.run(ask("unknown"), unknown).await.unwrap();
    assert_eq!(node.cleanup().await, Ok(0));
    assert_eq!(bench.memory.len(), 101);
    bench.clock.jump(RETENTION);
    assert_eq!(node.cleanup().await, Ok(100));
    assert_eq!(bench.memory.len(), 1, "an unknown is never swept");
    node.run(ask("later"), at_once(value("x"))).await.unwrap();
    bench.clock.jump(RETENTION);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(bench.memory.len(), 1, "the sweeper went unasked");
}

/// X1: a heartbeat keeps a long execution alive, many leases long.
#[tokio::test(start_paused = true)]
async fn x1_a_living_execution_keeps_its_lease_however_long_it_takes() {
    let (bench, count) = (Bench::new(), Count::default());
    let node = bench.node();
    let long = count.function(LEASE * 20, value("made"));
    let owner = tokio::spawn({
        let node = node.clone();
        async move { node.run(ask("k"), long).await }
    });
    let refuse = || ask_with("k", "body", policy().on_in_flight(OnInFlight::Refuse));
    for _ in 0..19 {
        sleep(LEASE).await;
        let answer = bench.node().run(refuse(), never).await.unwrap();
        assert!(matches!(answer, Answer::InFlight { .. }), "{answer:?}");
    }
    assert_eq!(outcome(&owner.await.unwrap().unwrap()), Some(&value("made")));
    assert_eq!(count.get(), 1);
}

/// X1, X3: a crash is noticed when the lease ends, not when the retention does, and is told as
/// unknown.
#[tokio::test(start_paused = true)]
async fn x1_x3_after_a_crash_the_key_is_unknown_within_the_lease() {
    let bench = Bench::new();
    let dying = bench.node();
    let endless = |_| async { std::future::pending::<Report>().await };
    let owner = tokio::spawn({
        let dying = dying.clone();
        async move { dying.run(ask("k"), endless).await }
    });
    settle_down().await;
    dying.store().kill();
    owner.abort();
    let started = Instant::now();
    let answer = bench.node().run(ask("k"), never).await.unwrap();
    assert!(matches!(answer, Answer::Unknown { cause: Cause::Silence, .. }), "{answer:?}");
    assert!(started.elapsed() <= LEASE + Duration::from_millis(5), "{:?}", started.elapsed());
    let other = ask_with("k", "other", policy());
    assert_eq!(bench.node().run(other, never).await, Ok(Answer::Mismatch));
}

/// X3, K10: with `Retry` one of those who waited takes over, is told so, and the rest share its
/// outcome.
#[tokio::test(start_paused = true)]
async fn x3_k10_one_waiter_recovers_a_silent_claim_and_the_others_share_it() {
    let (bench, count) = (Bench::new(), Count::default());
    let dying = bench.node();
    let retry = || ask_with("k", "body", policy().on_unknown(OnUnknown::Retry));
    let owner = tokio::spawn({
        let dying = dying.clone();
        async move { dying.run(retry(), |_| std::future::pending::<Report>()).await }
    });
    settle_down().await;
    dying.store().kill();
    owner.abort();
    let node = bench.node();
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let (node, count) = (node.clone(), count.clone());
            tokio::spawn(async move {
                let recover = move |attempt: onetake_engine::Attempt| async move {
                    assert!(attempt.recovery && attempt.number == 2, "{attempt:?}");
                    count.add();
                    sleep(Duration::from_millis(10)).await;
                    Report::Finished(value("recovered"))
                };
                node.run(retry(), recover).await.unwrap()
            })
        })
        .collect();
    for waiter in waiters {
        assert_eq!(outcome(&waiter.await.unwrap()), Some(&value("recovered")));
    }
    assert_eq!(count.get(), 1);
}

/// X3: past its time limit an execution is stopped, and its outcome is unknown.
#[tokio::test(start_paused = true)]
async fn x3_a_timeout_is_unknown_and_frees_nothing() {
    let bench = Bench::new();
    let node = bench.node();
    let limited = || ask_with("k", "body", policy().timeout(Duration::from_secs(5)));
    let endless = |_| async { std::future::pending::<Report>().await };
    let answer = node.run(limited(), endless).await.unwrap();
    assert!(matches!(answer, Answer::Unknown { cause: Cause::TimedOut, .. }), "{answer:?}");
    bench.clock.jump(RETENTION * 1_000);
    let later = node.run(limited(), never).await.unwrap();
    assert!(matches!(later, Answer::Unknown { .. }), "it never expires by itself: {later:?}");
}

/// X3, D8: a panic is unknown, unless the policy says that it frees the key; the process lives on.
#[tokio::test(start_paused = true)]
async fn x3_a_panic_is_unknown_or_frees_the_key_by_policy() {
    let bench = Bench::new();
    let node = bench.node();
    let panics = |_| async { std::panic::panic_any("planned") };
    let answer = node.run(ask("k"), panics).await.unwrap();
    assert!(matches!(answer, Answer::Unknown { cause: Cause::Panicked, .. }), "{answer:?}");
    let early = |_| -> Boxed { std::panic::panic_any("planned, before the future") };
    let answer = node.run(ask("k2"), early).await.unwrap();
    assert!(matches!(answer, Answer::Unknown { cause: Cause::Panicked, .. }), "{answer:?}");
    let free = || ask_with("k3", "body", policy().panics(Finality::Free));
    assert_eq!(node.run(free(), panics).await, Ok(Answer::Freed));
    assert!(matches!(node.run(free(), at_once(value("x"))).await, Ok(Answer::Executed { .. })));
}

/// X3: a recovery that comes to nothing leaves the key unknown; nothing is forgotten.
#[tokio::test(start_paused = true)]
async fn x3_a_refused_recovery_does_not_free_the_key() {
    let bench = Bench::new();
    let node = bench.node();
    let retry = |body| ask_with("k", body, policy().on_unknown(OnUnknown::Retry));
    let unknown = |_| async { Report::Unknown(Cause::Reported) };
    node.run(retry("body"), unknown).await.unwrap();
    let refused = |_| async { Report::NotDispatched(failure("connection refused")) };
    let answer = node.run(retry("body"), refused).await.unwrap();
    assert_eq!(outcome(&answer), Some(&failure("connection refused")));
    assert_eq!(node.run(retry("other"), never).await, Ok(Answer::Mismatch));
    let recover = |attempt: onetake_engine::Attempt| async move {
        assert!(attempt.recovery, "it still is one");
        Report::Finished(value("recovered"))
    };
    let answer = node.run(retry("body"), recover).await.unwrap();
    assert_eq!(outcome(&answer), Some(&value("recovered")));
}

/// Only the owner knows that nothing was sent; then the key is free in every contract.
#[tokio::test(start_paused = true)]
async fn what_was_not_dispatched_frees_the_key_although_the_contract_keeps_everything() {
    let bench = Bench::new();
    let node = bench.node();
    let keep_all = || ask_with("k", "body", policy().statuses(StatusRules::cnerium()));
    let refused = |_| async { Report::NotDispatched(failure("connection refused")) };
    let answer = node.run(keep_all(), refused).await.unwrap();
    assert!(matches!(answer, Answer::Executed { expires_at: None, .. }), "{answer:?}");
    let retry = node.run(keep_all(), at_once(value("made"))).await.unwrap();
    assert!(matches!(retry, Answer::Executed { expires_at: Some(_), .. }), "{retry:?}");
}

/// A freed outcome is shared by all who waited and starts no stampede; only a new request executes.
#[tokio::test(start_paused = true)]
async fn a_freed_outcome_is_shared_by_those_who_waited_and_starts_no_stampede() {
    let (bench, count) = (Bench::new(), Count::default());
    let (node, other) = (bench.node(), bench.node());
    let callers: Vec<_> = (0..100)
        .map(|n| {
            let node = if n >= 90 { other.clone() } else { node.clone() };
            let function = count.function(Duration::from_millis(500), failure("busy"));
            tokio::spawn(async move { node.run(ask("k"), function).await.unwrap() })
        })
        .collect();
    let mut freed = 0;
    for caller in callers {
        let answer = caller.await.unwrap();
        if answer == Answer::Freed {
            freed += 1;
        } else {
            assert_eq!(outcome(&answer), Some(&failure("busy")));
        }
    }
    assert_eq!(count.get(), 1, "nobody who waited executed");
    assert_eq!(freed, 10, "who waited in another process is told to come again");
    let new = node.run(ask("k"), count.function(Duration::ZERO, value("made"))).await.unwrap();
    assert_eq!(outcome(&new), Some(&value("made")));
    assert_eq!(count.get(), 2);
}

/// A process at its limit still answers what it knows, and waiters take nobody's place.
#[tokio::test(start_paused = true)]
async fn a_busy_process_refuses_new_keys_and_still_replays() {
    let bench = Bench::new();
    let limits = Limits { executions_max: 1, ..Limits::default() };
    let node = bench.node_with(&Script::default(), limits);
    node.run(ask("done"), at_once(value("made"))).await.unwrap();
    let slow = Count::default();
    let owner = tokio::spawn({
        let (node, function) = (node.clone(), slow.function(Duration::from_secs(5), value("x")));
        async move { node.run(ask("k"), function).await }
    });
    settle_down().await;
    assert!(matches!(node.run(ask("new"), never).await, Err(RunError::Busy(_))));
    assert!(matches!(node.run(ask("done"), never).await, Ok(Answer::Replayed { .. })));
    let waiter = node.run(ask("k"), never).await.unwrap();
    assert!(matches!(waiter, Answer::Joined { .. }), "{waiter:?}");
    owner.await.unwrap().unwrap();
    assert!(matches!(node.run(ask("new"), at_once(value("x"))).await, Ok(Answer::Executed { .. })));
    assert_eq!(node.executing(), 0);
}

/// `answer_within` lets the caller go; the execution goes on and is recorded.
#[tokio::test(start_paused = true)]
async fn a_caller_who_was_kept_long_enough_is_let_go_and_the_execution_goes_on() {
    let (bench, count) = (Bench::new(), Count::default());
    let node = bench.node();
    let quick = || ask_with("k", "body", policy().answer_within(Duration::from_secs(1)));
    let function = count.function(Duration::from_secs(4), value("made"));
    let answer = node.run(quick(), function).await.unwrap();
    assert_eq!(answer, Answer::StillExecuting { retry_after: LEASE });
    let retry = node.run(quick(), never).await.unwrap();
    assert_eq!(outcome(&retry), Some(&value("made")), "the retry waits for the same execution");
    assert_eq!(count.get(), 1);
}

/// A stopping process takes nothing new, finishes what runs, and says what it could not finish.
#[tokio::test(start_paused = true)]
async fn stopping_refuses_new_work_and_waits_for_what_runs() {
    let (bench, count) = (Bench::new(), Count::default());
    let node = bench.node();
    let call = |key: &str, span| {
        let (node, ask) = (node.clone(), ask(key));
        let function = count.function(Duration::from_secs(span), value("made"));
        tokio::spawn(async move { node.run(ask, function).await })
    };
    let (quick, slow) = (call("quick", 2), call("slow", 1_000));
    settle_down().await;
    let started = Instant::now();
    assert_eq!(node.stop(Duration::from_secs(10)).await, 1, "one did not finish in time");
    assert_eq!(started.elapsed(), Duration::from_secs(10));
    assert_eq!(outcome(&quick.await.unwrap().unwrap()), Some(&value("made")));
    assert_eq!(node.run(ask("new"), never).await, Err(RunError::Stopping));
    slow.abort();
}
