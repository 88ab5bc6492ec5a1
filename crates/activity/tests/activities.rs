//! The invocation log, rule by rule: retried nodes, rivals, crashed workers, providers.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onetake_activity::{
    AMZN_TOKEN, Activities, Calling, Ending, ExecuteError, IDEMPOTENCY_KEY, IdentityForm,
    InvocationError, Provider, Providers, Site,
};
use onetake_core::{Cause, Tenant};
use onetake_engine::{Engine, Memory, MemoryLimits};
use onetake_testkit::clock::TokioClock;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// A log, and a provider that counts.
struct World {
    log: Activities<Memory>,
    clock: TokioClock,
    calls: Arc<AtomicU32>,
}

impl World {
    fn new() -> Self {
        let clock = TokioClock::new();
        let memory = Memory::with(MemoryLimits::default(), clock.clone());
        Self { log: Activities::new(Engine::new(memory)), clock, calls: Arc::default() }
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The provider answers with how often it was called.
    fn answers(&self) -> impl FnOnce(Calling) -> std::future::Ready<Result<u32, Value>> + use<> {
        let calls = Arc::clone(&self.calls);
        move |_| std::future::ready(Ok(calls.fetch_add(1, Ordering::SeqCst) + 1))
    }
}

fn site(run: &str, attempt: u32) -> Site {
    let tenant = Tenant::new("acme").unwrap();
    Site { tenant, run: run.into(), node: "charge".into(), attempt }
}

/// W12, W13: whatever makes a node run again, the provider is called once.
#[tokio::test]
async fn w13_a_node_that_runs_again_gets_what_its_calls_came_to() {
    let world = World::new();
    for attempt in 0..3 {
        let mut node = world.log.enter(site("run-1", attempt));
        let first = node.call("stripe", &json!({"amount": 5}), world.answers()).await.unwrap();
        // A second call that is intended is another one, although it asks for the same.
        let second = node.call("stripe", &json!({"amount": 5}), world.answers()).await.unwrap();
        assert_eq!((first.value, second.value), (1, 2));
        assert_eq!((first.is_repeat(), second.is_repeat()), (attempt > 0, attempt > 0));
    }
    assert_eq!(world.calls(), 2);
    let mut other = world.log.enter(site("run-2", 0));
    let other = other.call("stripe", &json!({"amount": 5}), world.answers()).await.unwrap();
    assert_eq!(other.value, 3, "another run is another call");
}

/// W10, W11: the log of one tenant says nothing to another.
#[tokio::test]
async fn w11_tenants_share_no_call() {
    let world = World::new();
    for (name, wanted) in [("acme", 1), ("other", 2)] {
        let site = Site { tenant: Tenant::new(name).unwrap(), ..site("run-1", 0) };
        let call = world.log.enter(site).call("stripe", &json!(1), world.answers()).await.unwrap();
        assert_eq!((call.value, call.is_repeat()), (wanted, false), "{name}");
    }
}

/// W14: a refusal of the provider is a result.
#[tokio::test]
async fn w14_a_failure_is_kept_like_a_success() {
    let (world, calls) = (World::new(), Arc::new(AtomicU32::new(0)));
    for is_repeat in [false, true] {
        let calls = Arc::clone(&calls);
        let provider = move |_: Calling| {
            calls.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Err::<u32, _>(json!({"status": 402})))
        };
        let mut node = world.log.enter(site("run-1", 0));
        let refused = node.call("stripe", &json!(1), provider).await.unwrap_err();
        let wanted = ExecuteError::Failed { failure: json!({"status": 402}), repeat: is_repeat };
        assert_eq!(refused, wanted);
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// W14: a failure that is only so for now is recorded as well, and the next call is made again.
#[tokio::test]
async fn w14_a_failure_for_now_is_recorded_and_called_again() {
    let (world, seen) = (World::new(), Arc::new(std::sync::Mutex::new(Vec::new())));
    for is_down in [true, true, false, false] {
        let seen = Arc::clone(&seen);
        let provider = move |call: Calling| {
            seen.lock().unwrap().push((call.attempt.number, call.attempt.recovery));
            let down = || Ending::Retryable(json!({"status": 503}));
            std::future::ready(if is_down { down() } else { Ending::Succeeded(7) })
        };
        let mut node = world.log.enter(site("run-1", 0));
        let call = node.call("openai-chat", &json!(1), provider).await;
        let failed = ExecuteError::Failed { failure: json!({"status": 503}), repeat: false };
        assert_eq!(call.map(|take| take.value), if is_down { Err(failed) } else { Ok(7) });
        let other = |_: Calling| std::future::ready(Ok::<i32, Value>(8));
        let other = world.log.enter(site("run-1", 0)).call("openai-chat", &json!(2), other).await;
        assert_eq!(other.unwrap_err(), ExecuteError::Mismatch, "it is recorded what was asked");
    }
    assert_eq!(*seen.lock().unwrap(), [(1, false), (2, false), (3, false)]);
}

/// W15: fourteen days, or what is set.
#[tokio::test]
async fn w15_results_are_kept_for_fourteen_days_unless_set_otherwise() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let mut world = World::new();
    for (days, wanted) in [(0, 1), (13, 1), (2, 2)] {
        world.clock.jump(DAY * days);
        let mut node = world.log.enter(site("run-1", 0));
        let call = node.call("stripe", &json!(1), world.answers()).await.unwrap();
        assert_eq!(call.value, wanted, "after {days} more days");
    }
    world.log = world.log.with_retention(DAY).unwrap();
    for (days, wanted) in [(0, 3), (2, 4)] {
        world.clock.jump(DAY * days);
        let mut node = world.log.enter(site("run-2", 0));
        let call = node.call("stripe", &json!(1), world.answers()).await.unwrap();
        assert_eq!(call.value, wanted, "after {days} more days");
    }
}

/// W11, W13: of fifty workers that run one node at once one calls, and all get its result.
#[tokio::test(flavor = "multi_thread")]
async fn w13_of_many_executors_one_calls_and_all_hear_of_it() {
    for executors in [2, 50] {
        let (world, gate) = (World::new(), Arc::new(Notify::new()));
        let mut workers = JoinSet::new();
        for _ in 0..executors {
            let (log, calls, gate) =
                (world.log.clone(), Arc::clone(&world.calls), Arc::clone(&gate));
            workers.spawn(async move {
                let slow = move |_: Calling| async move {
                    gate.notified().await;
                    Ok::<_, Value>(calls.fetch_add(1, Ordering::SeqCst) + 1)
                };
                let mut node = log.enter(site("run-1", 0));
                node.call("openai-chat", &json!("hello"), slow).await.unwrap()
            });
        }
        gate.notify_one();
        let results = workers.join_all().await;
        assert!(results.iter().all(|result| result.value == 1), "{results:?}");
        let executed = results.iter().filter(|result| !result.is_repeat()).count();
        assert_eq!((executed, world.calls()), (1, 1));
    }
}

/// X3: nobody knows what came of a call. It is made again, under the same identity, where the
/// provider recognises that; otherwise it is held.
#[tokio::test]
async fn x3_a_call_that_broke_off_is_made_again_only_where_the_provider_recognises_it() {
    let world = World::new();
    for (provider, is_called_again) in [("stripe", true), ("openai-chat", false)] {
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        for _ in 0..2 {
            let seen = Arc::clone(&seen);
            let breaks = move |call: Calling| {
                seen.lock().unwrap().push((call.id.clone(), call.attempt.recovery));
                std::future::ready(Ending::<u32, Value>::Unknown)
            };
            let mut node = world.log.enter(site("run-1", 0));
            let unknown = node.call(provider, &json!(1), breaks).await.unwrap_err();
            let is_unknown =
                matches!(unknown, ExecuteError::Unknown { cause: Cause::Reported, .. });
            assert!(is_unknown, "{provider}: {unknown:?}");
        }
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), if is_called_again { 2 } else { 1 }, "{provider}");
        assert!(seen.iter().all(|(id, _)| *id == seen[0].0), "the same identity: {seen:?}");
        let recoveries: Vec<_> = seen.iter().map(|(_, recovery)| *recovery).collect();
        assert_eq!(recoveries, [false, true][..seen.len()]);
    }
}

/// X3: whoever found out that a call had no effect may have it made again: that one, once. When it
/// breaks off as well, its outcome is unknown anew, and the old word says nothing about it.
#[tokio::test]
async fn x3_a_word_about_one_call_allows_no_other() {
    let world = World::new();
    let calls = Arc::clone(&world.calls);
    let breaks = move || {
        let calls = Arc::clone(&calls);
        move |_: Calling| {
            calls.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ending::<u32, Value>::Unknown)
        }
    };
    let call = async |log: Activities<Memory>| {
        let mut node = log.enter(site("run-1", 0));
        let error = node.call("openai", &json!(1), breaks()).await.unwrap_err();
        let ExecuteError::Unknown { fence, .. } = error else { panic!("{error:?}") };
        fence
    };
    let first = call(world.log.clone()).await;
    let second = call(world.log.clone().recovering(first)).await;
    assert_ne!(first, second, "it was made again");
    assert_eq!(world.calls(), 2);
    let third = call(world.log.clone().recovering(first)).await;
    assert_eq!((third, world.calls()), (second, 2), "the second one is held");
}

/// W16, W17: an effect is told what to put into which header.
#[tokio::test]
async fn w16_w17_an_effect_is_told_how_its_provider_knows_a_call() {
    let own = Providers::default().with("acme-pay", Provider::deduplicating("x-request-id"));
    let log = World::new().log.with_providers(own);
    let mut node = log.enter(site("run-1", 0));
    for (provider, header) in [
        ("anthropic", IDEMPOTENCY_KEY),
        ("aws-sqs", AMZN_TOKEN),
        ("somebody", IDEMPOTENCY_KEY),
        ("acme-pay", "x-request-id"),
    ] {
        let told = |call: Calling| {
            std::future::ready(Ok::<_, Value>((
                call.provider.header.to_owned(),
                call.id.to_string(),
            )))
        };
        let (told, id) = node.call(provider, &json!(1), told).await.unwrap().value;
        assert_eq!(told, header, "{provider}");
        assert_eq!(id.len(), 43, "a digest in base64 without padding");
    }
}

/// W11: the form of the first text. Its attempt is that of the node, and a provider is called once.
#[tokio::test]
async fn w11_the_source_form_counts_attempts_of_the_node() {
    let mut world = World::new();
    world.log = world.log.with_form(IdentityForm::Source);
    for (attempt, wanted) in [(0, 1), (0, 1), (1, 2)] {
        let mut node = world.log.enter(site("run-1", attempt));
        let call = node.call("stripe", &json!(1), world.answers()).await.unwrap();
        assert_eq!(call.value, wanted);
        let again = node.call("stripe", &json!(2), world.answers()).await.unwrap_err();
        assert_eq!(again, ExecuteError::Invocation(InvocationError::Again));
        assert_eq!(again.code().map(onetake_core::Code::as_str), Some("request_invalid"));
    }
}

/// A node that asks for something else under the same identity is told so, and nothing is called.
#[tokio::test]
async fn a_node_that_is_not_deterministic_is_noticed() {
    let world = World::new();
    for (amount, is_same) in [(5, true), (6, false)] {
        let mut node = world.log.enter(site("run-1", 0));
        let call = node.call("stripe", &json!({"amount": amount}), world.answers()).await;
        assert_eq!(call.err(), (!is_same).then_some(ExecuteError::Mismatch));
    }
    assert_eq!(world.calls(), 1);
    let mut node = world.log.enter(Site { run: "a\0b".into(), ..site("", 0) });
    let refused = node.call("stripe", &json!(1), world.answers()).await.unwrap_err();
    assert!(matches!(refused, ExecuteError::Invocation(InvocationError::Part { part: "run", .. })));
}
