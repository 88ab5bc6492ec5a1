//! The process that is killed: a store under load from many tasks, with every answer said aloud.
//!
//! It first retries what it is told to, and says what it hears; then it asks for new operations,
//! often for the same one at the same time, until it is killed or told nothing more. It judges
//! nothing: whoever started it does.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use onetake_core::{
    Address, Ask, Asked, Key, OnUnknown, Operation, Outcome, Policy, Report, Scope,
};
use onetake_engine::{
    Answer, Attempt, Doc, Effects, Engine, Found, Journal as _, Lane, Need, Place, Position, View,
    Write,
};
use onetake_stores::Embedded;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::ledger;
use crate::common::options;
use crate::common::part::say;

/// Tasks that ask at once.
const TASKS: usize = 32;
/// How far back a task looks for an operation that others ask for too.
const RECENT: u64 = 24;

/// What kind of operation a number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An effect outside; unknown is held.
    Pay,
    /// An effect outside; unknown is tried again, and told so.
    Recover,
    /// Effects inside, in one commit with the record.
    Book,
}

pub(crate) const fn kind(operation: u64) -> Kind {
    match operation % 5 {
        3 => Kind::Recover,
        4 => Kind::Book,
        _ => Kind::Pay,
    }
}

/// What the process is told before it begins: how it works, then one line for each retry, then that
/// it may begin.
#[derive(Debug)]
pub(crate) struct Orders {
    pub(crate) seed: u64,
    /// The first operation that nobody has asked for.
    pub(crate) first: u64,
    /// Bytes by which every eighth outcome is longer.
    pub(crate) padding: usize,
    pub(crate) retries: Vec<u64>,
}

impl Orders {
    pub(crate) fn lines(&self) -> Vec<String> {
        let Self { seed, first, padding, retries } = self;
        let mut lines = vec![format!("{seed} {first} {padding}")];
        lines.extend(retries.iter().map(ToString::to_string));
        lines.push("go".into());
        lines
    }

    fn hear() -> Self {
        let mut lines = std::io::stdin().lines().map(Result::unwrap);
        let first = lines.next().expect("orders begin with a line of numbers");
        let numbers: Vec<u64> = first.split(' ').map(|word| word.parse().unwrap()).collect();
        let [seed, first, padding] = numbers.try_into().expect("three numbers");
        let retries = lines.take_while(|line| line != "go").map(|line| line.parse().unwrap());
        let retries = retries.collect();
        Self { seed, first, padding: usize::try_from(padding).unwrap(), retries }
    }
}

#[derive(Clone)]
struct Worker {
    engine: Engine<Embedded>,
    folder: PathBuf,
    padding: usize,
}

/// Plays the part until the process is killed, or its standard input ends.
pub(crate) fn work(folder: &Path) {
    let orders = Orders::hear();
    let store = match Embedded::open_with(folder.join("store"), options()) {
        Ok(store) => store,
        Err(error) => return say(&format!("refused {error}")),
    };
    let worker =
        Worker { engine: Engine::new(store), folder: folder.to_owned(), padding: orders.padding };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(worker.run(Arc::new(orders)));
    say("closed");
}

impl Worker {
    async fn run(self, orders: Arc<Orders>) {
        self.retry(&orders).await;
        say("checked");
        let over = Arc::new(AtomicBool::new(false));
        let (listening, next) = (Arc::clone(&over), Arc::new(AtomicU64::new(orders.first)));
        // Nothing more is told, so the end of the input is all that there is to hear.
        std::thread::spawn(move || {
            std::io::stdin().lines().for_each(drop);
            listening.store(true, Ordering::SeqCst);
        });
        let ask = |task| self.clone().ask(orders.seed + task, Arc::clone(&next), Arc::clone(&over));
        let tasks: Vec<_> = (0..TASKS as u64).map(|task| tokio::spawn(ask(task))).collect();
        for task in tasks {
            task.await.unwrap();
        }
        self.engine.stop(Duration::from_secs(10)).await;
    }

    /// Asks again for everything that it was told to.
    async fn retry(&self, orders: &Arc<Orders>) {
        let next = Arc::new(AtomicUsize::new(0));
        let retry = |worker: Self, orders: Arc<Orders>, next: Arc<AtomicUsize>| async move {
            while let Some(operation) = orders.retries.get(next.fetch_add(1, Ordering::SeqCst)) {
                worker.look_at_booking(*operation).await;
                let answer = worker.attempt(*operation).await;
                say(&format!("again {operation} {answer}"));
            }
        };
        let start = || tokio::spawn(retry(self.clone(), Arc::clone(orders), Arc::clone(&next)));
        let tasks: Vec<_> = (0..TASKS).map(|_| start()).collect();
        for task in tasks {
            task.await.unwrap();
        }
        let mut after = Position(0);
        loop {
            let page = self.engine.store().read_lane(&lane(), after, 1_000).await.unwrap().value;
            for entry in &page.items {
                let operation = std::str::from_utf8(&entry.value).unwrap();
                say(&format!("entry {operation} {}", entry.position.0));
                after = entry.position;
            }
            if !page.more {
                return;
            }
        }
    }

    /// Says which of the record and the document of a booking there are, before it is retried.
    async fn look_at_booking(&self, operation: u64) {
        if kind(operation) == Kind::Book {
            let slot = address(operation).slot().clone();
            let places = [Place::Slot(slot), Place::Doc(doc(operation))];
            let found = self.engine.store().fetch(&places).await.unwrap().value;
            let [Found::Slot(record), Found::Doc(document)] = found.as_slice() else {
                unreachable!("a store answers what it was asked")
            };
            say(&format!("there {operation} {} {}", record.is_some(), document.is_some()));
        }
    }

    /// Asks for one operation after the other.
    async fn ask(self, seed: u64, next: Arc<AtomicU64>, over: Arc<AtomicBool>) {
        let mut rng = SmallRng::seed_from_u64(seed);
        while !over.load(Ordering::SeqCst) {
            let operation = if rng.random_bool(0.5) {
                next.fetch_add(1, Ordering::SeqCst)
            } else {
                // Somebody else's, which may be under way, answered or unknown.
                let newest = next.load(Ordering::SeqCst);
                newest.saturating_sub(rng.random_range(1..RECENT))
            };
            say(&format!("asked {operation}"));
            let answer = self.attempt(operation).await;
            say(&format!("heard {operation} {answer}"));
        }
    }

    async fn attempt(&self, operation: u64) -> String {
        let policy = match kind(operation) {
            Kind::Recover => Policy::builder().on_unknown(OnUnknown::Retry),
            Kind::Pay | Kind::Book => Policy::builder(),
        };
        let policy = Arc::new(policy.build().unwrap());
        let asked = Asked::raw(format!("body of {operation}"));
        let ask = Ask { address: address(operation), asked, policy };
        let answer = match kind(operation) {
            Kind::Pay | Kind::Recover => {
                let worker = self.clone();
                let execute = move |attempt| async move { worker.effect(operation, attempt).await };
                self.engine.run(ask, execute).await
            }
            Kind::Book => self.engine.transact(ask, |view| self.booking(operation, view)).await,
        };
        answer.map_or_else(|error| format!("error {error}"), |answer| said(&answer))
    }

    async fn effect(&self, operation: u64, attempt: Attempt) -> Report {
        let Attempt { number, recovery, fence, .. } = attempt;
        let told = if recovery { "recovery" } else { "first" };
        let what = format!("{operation} {number} {told} {fence}");
        let folder = self.folder.clone();
        let effect = tokio::task::spawn_blocking(move || ledger::effect(&folder, &what));
        let number = effect.await.unwrap();
        Report::Finished(self.outcome(operation, &format!("effect {number}")))
    }

    fn booking(&self, operation: u64, view: &View) -> Result<Effects, Need> {
        view.doc(&doc(operation))?;
        let name = operation.to_string();
        Ok(Effects::new(self.outcome(operation, "booked"))
            .put(doc(operation), name.clone())
            .write(Write::Append(lane(), name.into())))
    }

    /// An outcome whose first line is `text`, and long for some.
    fn outcome(&self, operation: u64, text: &str) -> Outcome {
        let mut bytes = format!("{text}\n").into_bytes();
        if operation.is_multiple_of(8) {
            let mut rng = SmallRng::seed_from_u64(operation);
            bytes.extend(std::iter::repeat_with(|| rng.random::<u8>()).take(self.padding));
        }
        Outcome::Value(bytes.into())
    }
}

fn address(operation: u64) -> Arc<Address> {
    let scope = Scope::tenant_named(&format!("tenant-{}", operation % 3)).unwrap();
    let key = Key::new(&format!("order-{operation}")).unwrap();
    Arc::new(Address::new(scope, Operation::new("orders.create").unwrap(), key))
}

fn doc(operation: u64) -> Doc {
    Doc { space: "bookings", key: operation.to_string().into() }
}

fn lane() -> Lane {
    Lane(Bytes::from_static(b"bookings"))
}

/// An answer in words that are the same for everyone who gets the same bytes.
fn said(answer: &Answer) -> String {
    match answer {
        Answer::Executed { outcome, .. }
        | Answer::Replayed { outcome, .. }
        | Answer::Joined { outcome, .. } => match &**outcome {
            Outcome::Value(bytes) => {
                let mut hash = DefaultHasher::new();
                bytes.hash(&mut hash);
                let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
                let (line, hash) = (String::from_utf8_lossy(line), hash.finish());
                format!("value {line} of {} bytes as {hash:016x}", bytes.len())
            }
            Outcome::Response { .. } | Outcome::Failure(_) | Outcome::NotKept { .. } => {
                "another outcome".into()
            }
        },
        Answer::Freed => "freed".into(),
        Answer::Mismatch => "mismatch".into(),
        Answer::InFlight { .. } => "in flight".into(),
        Answer::StillExecuting { .. } => "still executing".into(),
        Answer::Unknown { fence, .. } => format!("unknown {fence}"),
    }
}
