//! What the tests of the walks share: a store on virtual time, engines on it, asks and functions.
//!
//! Every test runs in a paused runtime: time passes only when nothing else can happen, so a test
//! can say exactly when something must be over, and nothing waits for real.

// Each test file uses its own part of this, and none exports it.
#![allow(dead_code, unreachable_pub)]
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onetake_core::{
    Address, Ask, Asked, Key, Operation, Outcome, Policy, PolicyBuilder, Record, Report, Scope,
};
use onetake_engine::{Answer, Attempt, Engine, Limits, Memory, MemoryLimits, Mint, Slots};
use onetake_testkit::clock::TokioClock;
use onetake_testkit::faulty::{Faulty, Script};

pub const LEASE: Duration = Duration::from_secs(3);
pub const RETENTION: Duration = Duration::from_secs(60);

/// One store, and processes on it.
pub struct Bench {
    pub memory: Arc<Memory>,
    pub clock: TokioClock,
}

pub type Node = Engine<Arc<Faulty<Memory>>>;

impl Bench {
    pub fn new() -> Self {
        let clock = TokioClock::new();
        Self { memory: Arc::new(Memory::with(MemoryLimits::default(), clock.clone())), clock }
    }

    /// A process with a perfect connection.
    pub fn node(&self) -> Node {
        self.node_with(&Script::default(), Limits::default())
    }

    /// A process whose calls meet the faults of `script`.
    pub fn node_with(&self, script: &Script, limits: Limits) -> Node {
        let store = Arc::new(Faulty::scripted(Arc::clone(&self.memory), script));
        Engine::with(store, limits, Mint::default())
    }

    /// What the store holds.
    pub async fn peek(&self, ask: &Ask) -> Option<Arc<Record>> {
        self.memory.read(ask.address.slot()).await.unwrap().value
    }
}

pub fn policy() -> PolicyBuilder {
    Policy::builder().lease(LEASE).retention(RETENTION)
}

pub fn ask(key: &str) -> Ask {
    ask_with(key, "body", policy())
}

pub fn ask_with(key: &str, body: &'static str, policy: PolicyBuilder) -> Ask {
    ask_of("acme", key, body, policy)
}

pub fn ask_of(tenant: &str, key: &str, body: &'static str, policy: PolicyBuilder) -> Ask {
    let scope = Scope::tenant_named(tenant).unwrap();
    let operation = Operation::new("orders.create").unwrap();
    let address = Arc::new(Address::new(scope, operation, Key::new(key).unwrap()));
    Ask { address, asked: Asked::raw(body), policy: Arc::new(policy.build().unwrap()) }
}

pub fn value(text: &'static str) -> Outcome {
    Outcome::Value(text.into())
}

pub fn failure(text: &'static str) -> Outcome {
    Outcome::Failure(text.into())
}

/// Counts executions.
#[derive(Clone, Default)]
pub struct Count(Arc<AtomicUsize>);

impl Count {
    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// A function that counts itself and gives `outcome` after `span`.
    pub fn function(
        &self,
        span: Duration,
        outcome: Outcome,
    ) -> impl FnOnce(Attempt) -> Boxed + Send + use<> {
        let count = self.clone();
        move |_| {
            Box::pin(async move {
                count.add();
                tokio::time::sleep(span).await;
                Report::Finished(outcome)
            })
        }
    }
}

pub type Boxed = std::pin::Pin<Box<dyn Future<Output = Report> + Send>>;

/// A function that gives `outcome` at once.
pub fn at_once(outcome: Outcome) -> impl FnOnce(Attempt) -> Boxed + Send {
    move |_| Box::pin(async move { Report::Finished(outcome) })
}

/// A function that must not be called.
pub fn never(_: Attempt) -> Boxed {
    panic!("this attempt must not execute")
}

/// The outcome that an answer carries, whoever executed.
pub fn outcome(answer: &Answer) -> Option<&Outcome> {
    match answer {
        Answer::Executed { outcome, .. }
        | Answer::Replayed { outcome, .. }
        | Answer::Joined { outcome, .. } => Some(outcome),
        Answer::Freed
        | Answer::Mismatch
        | Answer::InFlight { .. }
        | Answer::StillExecuting { .. }
        | Answer::Unknown { .. } => None,
    }
}

/// Lets every task that can go on go on, without time passing.
pub async fn settle_down() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
