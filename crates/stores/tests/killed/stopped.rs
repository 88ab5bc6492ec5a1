//! A process that is stopped beyond its lease and goes on, and one that is kept out.
//!
//! A whole process is stopped by a signal, with everything in it: the execution, its heartbeat and
//! the store. Nothing else can have the store meanwhile, so its only rivals are its own waiters.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onetake_core::{
    Address, Ask, Asked, Key, OnUnknown, Operation, Outcome, Policy, Report, Scope,
};
use onetake_engine::{Answer, Attempt, Engine};
use onetake_stores::{Embedded, OpenError};

use super::ledger;
use crate::common::part::{Part, say};
use crate::common::{options, scratch};

const LEASE: Duration = Duration::from_millis(250);
/// Who wait for the one that executes.
const WAITERS: usize = 4;

/// What is done with a key whose outcome is unknown, and where the process is stopped.
const STOPS: [(&str, &str); 4] =
    [("hold", "before"), ("hold", "after"), ("retry", "before"), ("retry", "after")];

fn ask(on_unknown: &str) -> Ask {
    let scope = Scope::tenant_named("acme").unwrap();
    let operation = Operation::new("orders.create").unwrap();
    let address = Arc::new(Address::new(scope, operation, Key::new("order-1").unwrap()));
    let on_unknown = if on_unknown == "hold" { OnUnknown::Hold } else { OnUnknown::Retry };
    let policy = Policy::builder().lease(LEASE).on_unknown(on_unknown).build().unwrap();
    Ask { address, asked: Asked::raw("body"), policy: Arc::new(policy) }
}

/// Where one attempt takes place, and where it lets itself be stopped.
#[derive(Clone)]
struct Scene {
    engine: Engine<Embedded>,
    folder: std::path::PathBuf,
    ask: Ask,
    stop: String,
}

impl Scene {
    fn open(folder: &Path, on_unknown: &str, stop: &str) -> Self {
        let engine = Engine::new(Embedded::open_with(folder.join("store"), options()).unwrap());
        Self { engine, folder: folder.to_owned(), ask: ask(on_unknown), stop: stop.to_owned() }
    }

    async fn attempt(self) -> String {
        let Self { engine, folder, ask, stop } = self;
        let execute = move |attempt| async move {
            // Code that blocks its thread belongs on another, or it holds up its own heartbeat.
            let effect = tokio::task::spawn_blocking(move || effect(&folder, &stop, &attempt));
            Report::Finished(Outcome::Value(effect.await.unwrap().into()))
        };
        match engine.run(ask, execute).await {
            Ok(
                Answer::Executed { outcome, .. }
                | Answer::Replayed { outcome, .. }
                | Answer::Joined { outcome, .. },
            ) => match &*outcome {
                Outcome::Value(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                Outcome::Response { .. } | Outcome::Failure(_) | Outcome::NotKept { .. } => {
                    "another outcome".into()
                }
            },
            Ok(Answer::Unknown { .. }) => "unknown".into(),
            Ok(other) => format!("answer {other:?}"),
            Err(error) => format!("error {}", error.code().as_str()),
        }
    }
}

/// The effect. The first one says where it is and waits there, until it is told to go on.
fn effect(folder: &Path, stop: &str, attempt: &Attempt) -> String {
    static STOPPED: AtomicBool = AtomicBool::new(false);
    let Attempt { number, recovery, fence, .. } = attempt;
    let wait = || {
        if !STOPPED.swap(true, Ordering::SeqCst) {
            say("here");
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
    };
    if stop == "before" {
        wait();
    }
    let told = if *recovery { "recovery" } else { "first" };
    let effect = ledger::effect(folder, &format!("1 {number} {told} {fence}"));
    if stop == "after" {
        wait();
    }
    format!("effect {effect}")
}

/// The part: one that executes, some that wait for it, and one that asks when all is over.
pub(crate) fn stall(folder: &Path, on_unknown: &str, stop: &str) {
    let scene = Scene::open(folder, on_unknown, stop);
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
        let attempts = (0..=WAITERS).map(|_| tokio::spawn(scene.clone().attempt()));
        for attempt in attempts.collect::<Vec<_>>() {
            say(&format!("answer {}", attempt.await.unwrap()));
        }
        scene.engine.stop(Duration::from_secs(10)).await;
    });
}

/// The part: asks once more, when everything else has ended.
pub(crate) fn look(folder: &Path, on_unknown: &str) {
    let scene = Scene::open(folder, on_unknown, "never");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    say(&format!("answer {}", runtime.block_on(scene.attempt())));
}

/// The answers among `lines`.
fn answers(lines: &[String]) -> Vec<String> {
    lines.iter().filter_map(|line| line.strip_prefix("answer ")).map(str::to_owned).collect()
}

/// X1, X2, X3: a process that was stopped beyond its lease has had one effect, or a second one that
/// was declared; it says what the record says, and whoever asks later hears the same.
#[test]
fn x1_x2_x3_a_process_that_was_stopped_beyond_its_lease_says_what_its_record_says() {
    for (on_unknown, stop) in STOPS {
        let folder = scratch();
        let path = folder.path().to_str().unwrap();
        let mut ledger = Part::start(&format!("ledger {path}"), &[]);
        assert_eq!(ledger.hear().as_deref(), Some("open"));
        let mut stalled = Part::start(&format!("stall-{on_unknown}-{stop} {path}"), &[]);
        assert_eq!(stalled.hear().as_deref(), Some("here"));
        stalled.freeze();
        let_pass(3 * LEASE);
        stalled.thaw();
        stalled.tell("go on");
        let (status, lines) = stalled.end();
        assert!(status.success(), "{status}: {lines:?}");
        let heard = answers(&lines);
        let (_, lines) = Part::start(&format!("look-{on_unknown} {path}"), &[]).end();
        let last = answers(&lines).pop().unwrap();
        let effects = ledger::effects(folder.path());
        let shown = format!("{on_unknown}, {stop}: {heard:?}, then {last:?}, with {effects:?}");
        assert_eq!(heard.len(), 1 + WAITERS, "{shown}");
        let undeclared = effects.iter().filter(|effect| !effect.recovery).count();
        assert!(undeclared <= 1 && (on_unknown == "retry" || effects.len() <= 1), "{shown}");
        // Whoever was told a value was told the value that is on record.
        let values = heard.iter().filter(|answer| answer.starts_with("effect "));
        assert!(values.clone().all(|value| *value == last), "{shown}");
        let others = heard.iter().filter(|answer| !answer.starts_with("effect "));
        let allowed = ["unknown", "error fenced", "error store_unavailable"];
        assert!(others.clone().all(|other| allowed.contains(&other.as_str())), "{shown}");
        let is_on_record = effects.iter().any(|e| last == format!("effect {}", e.number));
        assert!(is_on_record || (last == "unknown" && on_unknown == "hold"), "{shown}");
    }
}

/// The part: has the store open until it is told nothing more.
pub(crate) fn hold(folder: &Path) {
    let _store = Embedded::open_with(folder.join("store"), options()).unwrap();
    say("open");
    std::io::stdin().lines().for_each(drop);
}

/// X2: no process has a store that another one has open, also while that one is stopped; it hears
/// which one that is. Once it is gone, the store opens.
#[test]
fn x2_a_store_that_another_process_has_open_is_locked_and_says_by_whom() {
    let folder = scratch();
    let open = || Embedded::open_with(folder.path().join("store"), options());
    let mut holder = Part::start(&format!("hold {}", folder.path().to_str().unwrap()), &[]);
    assert_eq!(holder.hear().as_deref(), Some("open"));
    let is_named = |refused: &OpenError| {
        let name = format!("process {},", holder.id());
        matches!(refused, OpenError::Locked { holder, .. } if holder.starts_with(&name))
    };
    let refused = open().unwrap_err();
    assert!(is_named(&refused), "{refused}");
    holder.freeze();
    let refused = open().unwrap_err();
    assert!(is_named(&refused), "stopped: {refused}");
    holder.kill();
    drop(holder.end());
    let store = open().unwrap();
    let refused = open().unwrap_err();
    let own = format!("process {},", std::process::id());
    assert!(refused.to_string().contains(&own), "the same process: {refused}");
    drop(store);
    drop(open().unwrap());
}

/// Returns when so much time has passed. A lease is a span of real time, and this test is about
/// what happens when it is over.
fn let_pass(span: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::sleep(span).await });
}

/// A process that is started at this moment has, until it begins, all that its parent had open. A
/// store that was closed is closed nevertheless.
#[test]
fn a_store_that_was_closed_can_be_opened_while_other_processes_are_started() {
    let (folder, over) = (scratch(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                drop(std::process::Command::new("true").status());
            }
        });
        let refused = (0..100).find_map(|_| Embedded::open_with(folder.path(), options()).err());
        over.store(true, Ordering::SeqCst);
        assert!(refused.is_none(), "{}", refused.unwrap());
    });
}
