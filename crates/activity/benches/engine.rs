//! What the walk costs on the memory store, beside the least that could do the same job.
//!
//! `cargo xtask bench engine` prints this as a table and keeps it as JSON. Every case has a
//! baseline that is measured in the same run, in turns, so that a busy machine slows both. Medians
//! of rounds.

#[path = "../../../bench/report.rs"]
mod report;

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onetake_activity::{Executor, Failure};
use onetake_core::{
    Address, Ask, Asked, Key, OnInFlight, Operation, Outcome, Policy, Report, Scope,
};
use onetake_engine::{Engine, Limits, Memory, Mint};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use report::{Bar, Case, median, status_mib, write};

const ROUNDS: usize = 5;
const KEYS: usize = 10_000;
const WORKERS: usize = 2;

fn main() {
    // Memory first: what later cases leave behind would count as theirs.
    let memory = live_claims_memory();
    let cases = [
        replay_latency(),
        replay_rate(),
        replay_allocations(),
        new_key_latency(),
        waiters_woken(),
        memory,
    ];
    write("engine", "", &cases);
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(WORKERS).enable_time().build().expect("a runtime")
}

fn key(n: usize) -> Key {
    Key::new(&format!("order-{n}")).expect("a key")
}

fn scope() -> Scope {
    Scope::tenant_named("acme").expect("a name")
}

fn asked() -> Asked {
    Asked::raw("2 of p1")
}

/// An executor whose store knows `KEYS` finished keys.
fn filled(runtime: &Runtime) -> Executor<Memory> {
    let once = Executor::named(Engine::new(Memory::new()), "orders.create").expect("a name");
    runtime.block_on(async {
        for n in 0..KEYS {
            let made = |_| async { Ok::<_, Failure>(7_u64) };
            once.execute(&scope(), &key(n), asked(), made).await.expect("executed");
        }
    });
    once
}

async fn replay(once: &Executor<Memory>, scope: &Scope, key: &Key, asked: &Asked) -> u64 {
    let made = |_| async { Ok::<_, Failure>(0_u64) };
    once.execute(scope, key, asked.clone(), made).await.expect("replayed").value
}

/// The least that a replay could be: a map behind a mutex, and a result to decode.
struct Least(Mutex<HashMap<String, Vec<u8>>>);

impl Least {
    fn filled() -> Self {
        Self(Mutex::new((0..KEYS).map(|n| (format!("order-{n}"), b"7".to_vec())).collect()))
    }

    fn get(&self, key: &Key) -> u64 {
        let kept = self.0.lock().expect("no panic").get(key.as_str()).cloned().expect("kept");
        serde_json::from_slice(&kept).expect("a number")
    }
}

/// The median of single calls, in microseconds.
fn micros(mut call: impl FnMut(usize)) -> f64 {
    let mut times: Vec<f64> = (0..20_000)
        .map(|n| {
            let started = Instant::now();
            call(n);
            started.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    median(&mut times)
}

fn replay_latency() -> Case {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let (once, least) = (filled(&runtime), Least::filled());
    let (scope, asked, keys) = (scope(), asked(), (0..KEYS).map(key).collect::<Vec<_>>());
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        for _ in 0..ROUNDS {
            // Each call is one poll: a replay never waits.
            let mut times = Vec::new();
            for n in 0..20_000 {
                let started = Instant::now();
                black_box(replay(&once, &scope, &keys[n * 7 % KEYS], &asked).await);
                times.push(started.elapsed().as_secs_f64() * 1e6);
            }
            ours.push(median(&mut times));
            bare.push(micros(|n| {
                black_box(least.get(&keys[n * 7 % KEYS]));
            }));
        }
    });
    Case::new("replay through execute, p50", "us", &mut ours, &mut bare, Bar::AtMost(2.0))
}

fn replay_rate() -> Case {
    let runtime = runtime();
    let (once, least) = (filled(&runtime), Arc::new(Least::filled()));
    let keys: Arc<Vec<_>> = Arc::new((0..KEYS).map(key).collect());
    let span = Duration::from_millis(600);
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (ours_once, ours_keys) = (once.clone(), Arc::clone(&keys));
        ours.push(rate(&runtime, span, move |worker| {
            let (once, keys) = (ours_once.clone(), Arc::clone(&ours_keys));
            let (scope, asked) = (scope(), asked());
            async move {
                for n in 0..100 {
                    let key = &keys[(worker * 31 + n * 7) % KEYS];
                    black_box(replay(&once, &scope, key, &asked).await);
                }
            }
        }));
        let (bare_least, bare_keys) = (Arc::clone(&least), Arc::clone(&keys));
        bare.push(rate(&runtime, span, move |worker| {
            let (least, keys) = (Arc::clone(&bare_least), Arc::clone(&bare_keys));
            async move {
                for n in 0..100 {
                    black_box(least.get(&keys[(worker * 31 + n * 7) % KEYS]));
                }
            }
        }));
    }
    Case::new("replay through execute, two cores", "/s", &mut ours, &mut bare, Bar::AtLeast(5e5))
}

/// Calls a second, when each worker does batches of a hundred for `span`.
fn rate<F, Fut>(runtime: &Runtime, span: Duration, batch: F) -> f64
where
    F: Fn(usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let started = Instant::now();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let batch = batch.clone();
            runtime.spawn(async move {
                let mut calls = 0_u32;
                while started.elapsed() < span {
                    batch(worker + calls as usize).await;
                    calls += 100;
                }
                calls
            })
        })
        .collect();
    let calls: u32 = workers.into_iter().map(|w| runtime.block_on(w).expect("no panic")).sum();
    f64::from(calls) / started.elapsed().as_secs_f64()
}

fn replay_allocations() -> Case {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let once = filled(&runtime);
    let (scope, asked, key) = (scope(), asked(), key(5));
    // A number is decoded without allocating, so everything counted is ours.
    let count = |calls: u32| {
        let info = allocation_counter::measure(|| {
            runtime.block_on(async {
                for _ in 0..calls {
                    black_box(replay(&once, &scope, &key, &asked).await);
                }
            });
        });
        info.count_total
    };
    let _warm = count(100);
    let more = |calls: u32| u32::try_from(count(calls + 1) - count(1)).expect("a few thousand");
    let per_call = |calls: u32| f64::from(more(calls)) / f64::from(calls);
    let mut ours: Vec<f64> = (0..ROUNDS).map(|_| per_call(1_000)).collect();
    let bar = Bar::AtMost(2.0);
    Case::new("replay, allocations beyond the outcome", "", &mut ours, &mut [1.0], bar)
}

fn ask(operation: &Operation, n: usize, policy: &Arc<Policy>) -> Ask {
    let address = Arc::new(Address::new(scope(), operation.clone(), key(n)));
    Ask { address, asked: asked(), policy: Arc::clone(policy) }
}

fn new_key_latency() -> Case {
    let runtime = runtime();
    let engine = Engine::new(Memory::new());
    let operation = Operation::new("orders.create").expect("a name");
    let policy = Arc::new(Policy::default());
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (engine, operation, policy) = (engine.clone(), operation.clone(), Arc::clone(&policy));
        let times = runtime.spawn(async move {
            let mut times = Vec::new();
            for n in 0..20_000 {
                let ask = ask(&operation, round * 20_000 + n, &policy);
                let started = Instant::now();
                let empty = |_| async { Report::Finished(Outcome::Value("".into())) };
                black_box(engine.run(ask, empty).await.expect("executed"));
                times.push(started.elapsed().as_secs_f64() * 1e6);
            }
            times
        });
        ours.push(median(&mut runtime.block_on(times).expect("no panic")));
        // The least that detached execution could be: one task that another waits for.
        let times = runtime.spawn(async move {
            let mut times = Vec::new();
            for _ in 0..20_000 {
                let started = Instant::now();
                tokio::spawn(async {}).await.expect("no panic");
                times.push(started.elapsed().as_secs_f64() * 1e6);
            }
            times
        });
        bare.push(median(&mut runtime.block_on(times).expect("no panic")));
    }
    let name = "new key through run, empty function, p50";
    Case::new(name, "us", &mut ours, &mut bare, Bar::AtMost(15.0))
}

const WAITERS: usize = 1_000;

fn waiters_woken() -> Case {
    let runtime = runtime();
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(runtime.block_on(wake_ours()));
        bare.push(runtime.block_on(wake_bare()));
    }
    let name = "1,000 waiters woken after the completion";
    Case::new(name, "ms", &mut ours, &mut bare, Bar::AtMost(5.0))
}

/// From the moment the function returns to the moment the last of all waiters has the outcome.
async fn wake_ours() -> f64 {
    let engine = Engine::new(Memory::new());
    let operation = Operation::new("orders.create").expect("a name");
    let wait = OnInFlight::Wait(Duration::from_secs(60));
    let policy = Policy::builder().on_in_flight(wait).build().expect("within bounds");
    let (policy, gate) = (Arc::new(policy), Arc::new(Notify::new()));
    let ended = Arc::new(Mutex::new(None));
    let call = || {
        let (engine, ask) = (engine.clone(), ask(&operation, 0, &policy));
        let (gate, ended) = (Arc::clone(&gate), Arc::clone(&ended));
        tokio::spawn(async move {
            let function = |_| async move {
                gate.notified().await;
                *ended.lock().expect("no panic") = Some(Instant::now());
                Report::Finished(Outcome::Value("7".into()))
            };
            black_box(engine.run(ask, function).await.expect("answered"));
            Instant::now()
        })
    };
    let calls: Vec<_> = (0..=WAITERS).map(|_| call()).collect();
    while engine.waiting() < WAITERS {
        tokio::task::yield_now().await;
    }
    gate.notify_one();
    last(calls, || ended.lock().expect("no panic").expect("it ended")).await
}

async fn wake_bare() -> f64 {
    let (gate, seated) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let calls: Vec<_> = (0..WAITERS)
        .map(|_| {
            let (gate, seated) = (Arc::clone(&gate), Arc::clone(&seated));
            tokio::spawn(async move {
                let notified = gate.notified();
                tokio::pin!(notified);
                notified.as_mut().enable();
                seated.fetch_add(1, Ordering::SeqCst);
                notified.await;
                Instant::now()
            })
        })
        .collect();
    while seated.load(Ordering::SeqCst) < WAITERS {
        tokio::task::yield_now().await;
    }
    let started = Instant::now();
    gate.notify_waiters();
    last(calls, || started).await
}

async fn last(calls: Vec<tokio::task::JoinHandle<Instant>>, from: impl Fn() -> Instant) -> f64 {
    let mut last = None;
    for call in calls {
        last = last.max(Some(call.await.expect("no panic")));
    }
    last.expect("somebody waited").duration_since(from()).as_secs_f64() * 1e3
}

const CLAIMS: usize = 100_000;

/// What the engine and the store hold for claims that are executing. Their callers have left: what
/// a caller holds is its own.
fn live_claims_memory() -> Case {
    let bare = {
        let runtime = runtime();
        let before = status_mib("VmRSS");
        let tasks: Vec<_> =
            (0..CLAIMS).map(|_| runtime.spawn(std::future::pending::<()>())).collect();
        let used = status_mib("VmRSS") - before;
        drop(tasks);
        used.max(0.1)
    };
    let runtime = runtime();
    let limits = Limits { executions_max: CLAIMS, ..Limits::default() };
    let engine = Engine::with(Memory::new(), limits, Mint::default());
    let operation = Operation::new("orders.create").expect("a name");
    let policy = Arc::new(Policy::default());
    let before = status_mib("VmRSS");
    let mut callers = Vec::new();
    for n in 0..CLAIMS {
        let (caller, ask) = (engine.clone(), ask(&operation, n, &policy));
        callers.push(runtime.spawn(async move {
            let endless = |_| std::future::pending::<Report>();
            let _ = caller.run(ask, endless).await;
        }));
        if callers.len() == 100 {
            while engine.store().len() <= n {
                std::thread::yield_now();
            }
            callers.drain(..).for_each(|caller| caller.abort());
        }
    }
    while engine.executing() < CLAIMS || engine.store().len() < CLAIMS {
        std::thread::yield_now();
    }
    let used = status_mib("VmRSS") - before;
    runtime.shutdown_background();
    Case::new("100,000 live claims", "MiB", &mut [used], &mut [bare], Bar::AtMost(100.0))
}
