//! The functions door, rule by rule: typed results, keys, time to live, failures, rivals, services.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onetake_activity::{Ending, ExecuteError, Executor, Failure, Identity, Source};
use onetake_core::{Asked, Cause, Finality, Key, OnInFlight, OnUnknown, Policy, Scope};
use onetake_engine::{Attempt, Engine, Memory, MemoryLimits};
use onetake_testkit::clock::TokioClock;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};
use tower::{Service, ServiceExt};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u32,
    lines: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum OrderError {
    SoldOut { left: u32 },
}

/// One operation, and how often it was executed.
struct Shop {
    once: Executor<Memory>,
    clock: TokioClock,
    executed: Arc<AtomicU32>,
    scope: Scope,
}

type Ready = std::future::Ready<Result<Order, OrderError>>;

impl Shop {
    fn new() -> Self {
        Self::with(Policy::default())
    }

    fn with(policy: Policy) -> Self {
        let clock = TokioClock::new();
        let memory = Memory::with(MemoryLimits::default(), clock.clone());
        let once = Executor::named(Engine::new(memory), "orders.create").unwrap();
        let (once, scope) = (once.with_policy(policy), Scope::tenant_named("acme").unwrap());
        Self { once, clock, executed: Arc::default(), scope }
    }

    /// The next order, counted.
    fn order(&self) -> impl FnOnce(Attempt) -> Ready + Send + use<> {
        let executed = Arc::clone(&self.executed);
        move |_| {
            let id = executed.fetch_add(1, Ordering::SeqCst) + 1;
            std::future::ready(Ok(Order { id, lines: vec!["p1".into()] }))
        }
    }

    /// No more orders, counted.
    fn sold_out(&self) -> impl FnOnce(Attempt) -> Ready + Send + use<> {
        let executed = Arc::clone(&self.executed);
        move |_| {
            executed.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Err(OrderError::SoldOut { left: 0 }))
        }
    }

    fn executed(&self) -> u32 {
        self.executed.load(Ordering::SeqCst)
    }
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn body() -> Asked {
    Asked::json(r#"{"sku":"p1"}"#).unwrap()
}

/// K4, K5: any async function gets its typed result remembered.
#[tokio::test(start_paused = true)]
async fn k4_k5_every_call_gets_the_same_typed_result() {
    let shop = Shop::new();
    let first = shop.once.execute(&shop.scope, &key("k"), body(), shop.order()).await.unwrap();
    assert_eq!(first.value, Order { id: 1, lines: vec!["p1".into()] });
    assert_eq!((first.source, first.is_repeat()), (Source::Executed, false));
    let second = shop.once.execute(&shop.scope, &key("k"), body(), shop.order()).await.unwrap();
    assert_eq!(second.value, first.value);
    assert_eq!((second.source, second.is_repeat()), (Source::Replayed, true));
    assert_eq!(shop.executed(), 1);
}

/// K6, D10: without a key it is simply run, and nothing is recorded.
#[tokio::test(start_paused = true)]
async fn k6_without_a_key_every_call_executes_and_nothing_is_recorded() {
    let shop = Shop::new();
    for n in 1..=3 {
        let take = shop.once.execute(&shop.scope, None, body(), shop.order()).await.unwrap();
        assert_eq!((take.value.id, take.source), (n, Source::PassedThrough));
    }
    let failed = shop.once.execute(&shop.scope, None, body(), shop.sold_out()).await;
    let failure = OrderError::SoldOut { left: 0 };
    assert_eq!(failed, Err(ExecuteError::Failed { failure, repeat: false }));
    assert!(shop.once.engine().store().is_empty());
}

/// K2: one key, one request.
#[tokio::test(start_paused = true)]
async fn k2_another_request_under_a_used_key_is_refused() {
    let shop = Shop::new();
    shop.once.execute(&shop.scope, &key("k"), body(), shop.order()).await.unwrap();
    let other = Asked::json(r#"{"sku":"p2"}"#).unwrap();
    let refused = shop.once.execute(&shop.scope, &key("k"), other, shop.order()).await;
    assert_eq!(refused, Err(ExecuteError::Mismatch));
    assert_eq!(refused.unwrap_err().code().unwrap().as_str(), "key_mismatch");
    let same = Asked::json(r#"{ "sku" : "p1" }"#).unwrap();
    assert!(shop.once.execute(&shop.scope, &key("k"), same, shop.order()).await.is_ok());
    assert_eq!(shop.executed(), 1);
}

/// K7: time to live per executor and per call; afterwards the key is free without any cleanup.
#[tokio::test(start_paused = true)]
async fn k7_time_to_live_per_executor_and_per_call() {
    let hour = Duration::from_secs(3_600);
    let shop = Shop::with(Policy::builder().retention(hour).build().unwrap());
    let (long, short) = (key("long"), key("short"));
    shop.once.execute(&shop.scope, &long, body(), shop.order()).await.unwrap();
    let call = shop.once.call(&shop.scope, &short, body()).retention(hour / 60);
    call.execute(shop.order()).await.unwrap();
    shop.clock.jump(hour / 60);
    let again = shop.once.execute(&shop.scope, &short, body(), shop.order()).await.unwrap();
    assert_eq!(again.source, Source::Executed, "its own minute is over");
    let kept = shop.once.execute(&shop.scope, &long, body(), shop.order()).await.unwrap();
    assert_eq!(kept.source, Source::Replayed, "the executor's hour is not");
    shop.clock.jump(hour);
    let free = shop.once.execute(&shop.scope, &long, body(), shop.order()).await.unwrap();
    assert_eq!(free.source, Source::Executed);
    let bad = shop.once.call(&shop.scope, &short, body()).retention(Duration::ZERO);
    let refused = bad.execute(shop.order()).await.unwrap_err();
    assert_eq!(refused.code().unwrap().as_str(), "policy_invalid");
}

/// K9: a failure frees the key. W14: or it is kept as a result, typed, by policy or by call.
#[tokio::test(start_paused = true)]
async fn k9_w14_failures_free_the_key_or_are_kept_typed() {
    let shop = Shop::new();
    let failure = || OrderError::SoldOut { left: 0 };
    let failed = shop.once.execute(&shop.scope, &key("k"), body(), shop.sold_out()).await;
    assert_eq!(failed, Err(ExecuteError::Failed { failure: failure(), repeat: false }));
    let retry = shop.once.execute(&shop.scope, &key("k"), body(), shop.order()).await.unwrap();
    assert_eq!((retry.source, shop.executed()), (Source::Executed, 2));

    let k2 = key("k2");
    let keep = || shop.once.call(&shop.scope, &k2, body()).failures(Finality::Final);
    let first = keep().execute(shop.sold_out()).await;
    assert_eq!(first, Err(ExecuteError::Failed { failure: failure(), repeat: false }));
    let second = keep().execute(shop.order()).await;
    assert_eq!(second, Err(ExecuteError::Failed { failure: failure(), repeat: true }));
    assert_eq!(shop.executed(), 3);
}

/// K10: a second worker gets the result if it is there, else a typed refusal with a delay, or it
/// waits.
#[tokio::test(start_paused = true)]
async fn k10_a_second_worker_waits_or_is_told_when_to_come_back() {
    let shop = Shop::new();
    let slow = |_| async {
        sleep(Duration::from_secs(5)).await;
        Ok::<_, Failure>(42)
    };
    let first = tokio::spawn({
        let (once, scope) = (shop.once.clone(), shop.scope.clone());
        async move { once.execute(&scope, &key("k"), body(), slow).await }
    });
    sleep(Duration::from_secs(1)).await;
    let (scope, k) = (&shop.scope, key("k"));
    let refuse = shop.once.call(scope, &k, body()).on_in_flight(OnInFlight::Refuse);
    let refused = refuse.execute(slow).await.unwrap_err();
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(29)), "{refused}");
    assert_eq!(refused.code().unwrap().as_str(), "in_flight");
    let joined = shop.once.execute(scope, &k, body(), slow).await.unwrap();
    assert_eq!((joined.value, joined.source), (42, Source::Joined));
    assert_eq!(first.await.unwrap().unwrap().source, Source::Executed);
}

/// X4: dropping the call drops nothing but the ear.
#[tokio::test(start_paused = true)]
async fn x4_a_dropped_call_is_executed_and_remembered_all_the_same() {
    let shop = Shop::new();
    let (executed, k) = (Arc::clone(&shop.executed), key("k"));
    let slow = move |_| async move {
        sleep(Duration::from_secs(3)).await;
        Ok::<_, Failure>(executed.fetch_add(1, Ordering::SeqCst))
    };
    let call = shop.once.execute(&shop.scope, &k, body(), slow);
    assert!(timeout(Duration::from_secs(1), call).await.is_err());
    let never = |_| async { Err::<u32, _>(Failure::new("must not execute")) };
    let retry = shop.once.execute(&shop.scope, &k, body(), never).await.unwrap();
    assert_eq!((retry.value, shop.executed()), (0, 1));
}

/// A result that cannot be kept was still executed: it is said so, and never executed again.
#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_written_is_not_executed_again() {
    let shop = Shop::new();
    for _ in 0..2 {
        let executed = Arc::clone(&shop.executed);
        let odd = move |_| async move {
            executed.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Failure>(BTreeMap::from([((1, 2), 3)]))
        };
        let result = shop.once.execute(&shop.scope, &key("k"), body(), odd).await;
        assert_eq!(result, Err(ExecuteError::ResultNotKept));
    }
    assert_eq!(shop.executed(), 1);
}

/// Any error becomes a kept failure with `?`.
#[tokio::test(start_paused = true)]
async fn any_error_becomes_a_failure_with_its_message() {
    let shop = Shop::new();
    let parse = |_| async { Ok::<u32, Failure>("x".parse::<u32>()?) };
    let failed = shop.once.execute(&shop.scope, &key("k"), body(), parse).await;
    let Err(ExecuteError::Failed { failure, .. }) = failed else { panic!("{failed:?}") };
    assert_eq!(failure.to_string(), "invalid digit found in string");
}

/// X3: a function may say that nothing was sent, or that nobody knows.
#[tokio::test(start_paused = true)]
async fn x3_a_function_may_say_that_nothing_was_sent_or_that_nobody_knows() {
    let shop = Shop::with(Policy::activity().build().unwrap());
    let refused = |_| async { Ending::<u32, _>::NotDispatched(Failure::new("refused")) };
    let first = shop.once.execute(&shop.scope, &key("k"), body(), refused).await;
    assert!(matches!(first, Err(ExecuteError::Failed { .. })), "{first:?}");
    let unknown = |_| async { Ending::<u32, Failure>::Unknown };
    let second = shop.once.execute(&shop.scope, &key("k"), body(), unknown).await;
    let is_unknown = |e: &ExecuteError<Failure>| {
        matches!(e, ExecuteError::Unknown { cause: Cause::Reported, .. })
    };
    assert!(is_unknown(&second.unwrap_err()), "the key was free although failures are kept");
    let held = shop.once.execute(&shop.scope, &key("k"), body(), refused).await;
    assert!(is_unknown(&held.unwrap_err()), "and now it is held");
}

/// X3: a recovery is told so, with its attempt.
#[tokio::test(start_paused = true)]
async fn x3_a_recovery_knows_its_attempt() {
    let policy = Policy::builder().on_unknown(OnUnknown::Retry).build().unwrap();
    let shop = Shop::with(policy);
    let unknown = |_| async { Ending::<u32, Failure>::Unknown };
    let _ = shop.once.execute(&shop.scope, &key("k"), body(), unknown).await;
    let recover =
        |attempt: Attempt| async move { Ok::<_, Failure>((attempt.number, attempt.recovery)) };
    let take = shop.once.execute(&shop.scope, &key("k"), body(), recover).await.unwrap();
    assert_eq!(take.value, (2, true));
}

/// K4: any tower service is a function; a replay does not reach it.
#[tokio::test(start_paused = true)]
async fn k4_a_wrapped_service_is_called_once_per_key() {
    let shop = Shop::new();
    let executed = Arc::clone(&shop.executed);
    let inner = tower::service_fn(move |sku: String| {
        let executed = Arc::clone(&executed);
        async move {
            executed.fetch_add(1, Ordering::SeqCst);
            if sku == "gone" { Err(OrderError::SoldOut { left: 0 }) } else { Ok(sku.len()) }
        }
    });
    let scope = shop.scope.clone();
    let mut service = shop.once.wrap(inner, move |sku: &String| Identity {
        scope: scope.clone(),
        key: (sku != "keyless").then(|| key(&format!("order-{sku}"))),
        asked: Asked::raw(sku.clone()),
    });
    for source in [Source::Executed, Source::Replayed, Source::Replayed] {
        let take = service.ready().await.unwrap().call("p1".into()).await.unwrap();
        assert_eq!((take.value, take.source), (2, source));
    }
    for _ in 0..2 {
        let take = service.ready().await.unwrap().call("keyless".into()).await.unwrap();
        assert_eq!(take.source, Source::PassedThrough);
    }
    let failed = service.ready().await.unwrap().call("gone".into()).await;
    let failure = OrderError::SoldOut { left: 0 };
    assert_eq!(failed, Err(ExecuteError::Failed { failure, repeat: false }));
    assert_eq!(shop.executed(), 4);
}

/// X3: a service that recovers is told so in its request.
#[tokio::test(start_paused = true)]
async fn x3_a_wrapped_service_is_told_that_it_recovers() {
    let policy = Policy::builder().on_unknown(OnUnknown::Retry).build().unwrap();
    let shop = Shop::with(policy);
    let unknown = |_| async { Ending::<(u32, bool), Failure>::Unknown };
    let _ = shop.once.execute(&shop.scope, &key("k"), Asked::raw("order"), unknown).await;
    let inner = tower::service_fn(|request: (u32, bool)| async move { Ok::<_, Failure>(request) });
    let scope = shop.scope.clone();
    let identify = move |_: &(u32, bool)| Identity {
        scope: scope.clone(),
        key: Some(key("k")),
        asked: Asked::raw("order"),
    };
    let tell = |request: &mut (u32, bool), attempt: &Attempt| {
        *request = (attempt.number, attempt.recovery);
    };
    let service = shop.once.wrap(inner, identify).telling(tell);
    assert_eq!(service.oneshot((0, false)).await.unwrap().value, (2, true));
}

/// C7: two tenants and two operations never share a key.
#[tokio::test(start_paused = true)]
async fn c7_tenants_and_operations_never_share_a_key() {
    let shop = Shop::new();
    shop.once.execute(&shop.scope, &key("k"), body(), shop.order()).await.unwrap();
    let evil = Scope::tenant_named("evil").unwrap();
    let take = shop.once.execute(&evil, &key("k"), body(), shop.order()).await.unwrap();
    assert_eq!((take.value.id, take.source), (2, Source::Executed));
    let pay = Executor::named(shop.once.engine().clone(), "payments.create").unwrap();
    let take = pay.execute(&shop.scope, &key("k"), body(), shop.order()).await.unwrap();
    assert_eq!((take.value.id, take.source), (3, Source::Executed));
}
