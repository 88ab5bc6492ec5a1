//! A miniature of interrupts that wait for a person or for their time: a document by token, a
//! document by due time, one end.
//!
//! The timer remembers how far it came, so it never scans what is long past. No timer can slip in
//! behind it: a tick first raises a ceiling, every creation depends on that ceiling, and only then
//! is what lies below it fired. An interrupt ends once, by whoever comes first.

use std::time::Duration;

use bytes::Bytes;
use onetake_core::{Outcome, Timestamp};
use onetake_engine::{
    Answer, Check, Commit, Doc, Document, Effects, Engine, Found, Journal, Lane, Mint, Place,
    Position, RunError, StoreError, Tx, Write,
};
use tokio::task::JoinSet;

use super::{engine, text};
use crate::conformance::hear::all_of;
use crate::make::{BRIEF, LONG, address_of, ask};
use crate::{Rig, Shared};

/// Timers of one page.
const STEP: usize = 16;

/// Interrupts on one store.
#[derive(Debug)]
pub struct Interrupts<S> {
    engine: Engine<S>,
    mint: Mint,
}

/// How far the timer is: everything up to `floor` has fired, nothing is created up to `ceiling`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Progress {
    floor: u64,
    ceiling: u64,
}

impl Progress {
    fn of(document: Option<&Document>) -> Self {
        let Some(Document { value, .. }) = document else { return Self::default() };
        let (floor, ceiling) = value.split_at(8);
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
        Self { floor: number(floor), ceiling: number(ceiling) }
    }

    fn to_bytes(self) -> Bytes {
        [self.floor.to_be_bytes(), self.ceiling.to_be_bytes()].concat().into()
    }
}

impl<S: Journal> Interrupts<S> {
    /// Creates an interrupt that is due after `span`, once for each token.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn create(&self, token: &str, span: Duration) -> Result<Answer, RunError> {
        let ask = ask(&address_of("acme", "interrupt.create", token), "");
        let transaction = self.engine.transact(ask, |view| {
            let progress = Progress::of(view.doc(&progress_doc())?);
            let due = view.now().after(span).as_millis().max(progress.ceiling + 1);
            Ok(Effects::new(Outcome::Value("created".into()))
                .put(interrupt(token), open(due))
                .put(timer(due, token), token.to_owned()))
        });
        transaction.await
    }

    /// Resolves an interrupt. Whoever asks again gets the same answer: `resolved`, or `expired`
    /// when the timer was first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn resolve(&self, token: &str) -> Result<Answer, RunError> {
        let ask = ask(&address_of("acme", "interrupt.resolve", token), "");
        let transaction = self.engine.transact(ask, |view| {
            let Some(found) = view.doc(&interrupt(token))? else {
                return Ok(Effects::new(Outcome::Failure("no such token".into())));
            };
            let Some(due) = due_of(found) else {
                return Ok(Effects::new(Outcome::Value("expired".into())));
            };
            Ok(Effects::new(Outcome::Value("resolved".into()))
                .put(interrupt(token), "resolved")
                .write(Write::Delete(timer(due, token)))
                .write(Write::Append(ends(), format!("resolved {token}").into())))
        });
        transaction.await
    }

    /// Fires what is due; gives how many.
    ///
    /// # Errors
    /// When the store fails; the next tick goes on.
    pub async fn tick(&self) -> Result<usize, StoreError> {
        let Some(progress) = self.raise().await? else { return Ok(0) };
        let (mut fired, mut after) = (0, key(progress.floor, "\u{10ffff}"));
        loop {
            let page = self.store().scan("timers", b"", Some(&after), STEP).await?.value;
            for (doc, found) in &page.items {
                if due_at(doc) <= progress.ceiling {
                    fired += usize::from(self.fire(doc, found).await?);
                }
            }
            match page.items.last() {
                Some((doc, _)) if page.more && due_at(doc) <= progress.ceiling => {
                    after = doc.key.clone();
                }
                Some(_) | None => break,
            }
        }
        self.settle(progress).await?;
        Ok(fired)
    }

    fn store(&self) -> &S {
        self.engine.store()
    }

    async fn progress(&self) -> Result<(Timestamp, Option<Document>), StoreError> {
        let fetched = self.store().fetch(&[Place::Doc(progress_doc())]).await?;
        match fetched.value.into_iter().next() {
            Some(Found::Doc(document)) => Ok((fetched.now, document)),
            _ => Err(StoreError::Corrupt("asked for a document, got another thing".into())),
        }
    }

    /// Raises the ceiling to now: from here on nothing is created below it. `None` when another
    /// tick was first.
    async fn raise(&self) -> Result<Option<Progress>, StoreError> {
        let (now, seen) = self.progress().await?;
        let before = Progress::of(seen.as_ref());
        let next = Progress { ceiling: before.ceiling.max(now.as_millis()), ..before };
        let expected = seen.map(|document| document.version);
        let tx = Tx::on_doc(self.mint.id(), progress_doc(), expected, next.to_bytes());
        Ok(self.written(tx).await?.then_some(next))
    }

    /// Everything up to the ceiling of `done` has fired: the next scan begins there.
    async fn settle(&self, done: Progress) -> Result<(), StoreError> {
        let (_, seen) = self.progress().await?;
        let now = Progress::of(seen.as_ref());
        let next = Progress { floor: now.floor.max(done.ceiling), ..now };
        let expected = seen.map(|document| document.version);
        let tx = Tx::on_doc(self.mint.id(), progress_doc(), expected, next.to_bytes());
        // Losing to another tick only means that the next scan begins a little earlier.
        self.written(tx).await.map(|_| ())
    }

    /// Ends one interrupt by its timer; `false` when it has ended otherwise.
    async fn fire(&self, timer: &Doc, seen: &Document) -> Result<bool, StoreError> {
        let token = String::from_utf8(seen.value.to_vec()).expect("a token is text");
        let doc = interrupt(&token);
        let fetched = self.store().fetch(&[Place::Doc(doc.clone())]).await?.value;
        let [Found::Doc(Some(there))] = &fetched[..] else { return Ok(false) };
        if due_of(there).is_none() {
            return Ok(false);
        }
        let tx = Tx::on_doc(self.mint.id(), doc, Some(there.version), "expired".into())
            .check(Check::Doc(timer.clone(), Some(seen.version)))
            .write(Write::Delete(timer.clone()))
            .write(Write::Append(ends(), format!("expired {token}").into()));
        self.written(tx).await
    }

    async fn written(&self, tx: Tx) -> Result<bool, StoreError> {
        let commit = self.store().commit(tx).await?.value;
        Ok(matches!(commit, Commit::Committed { .. } | Commit::Repeated))
    }
}

fn progress_doc() -> Doc {
    Doc { space: "timer-progress", key: Bytes::new() }
}

fn interrupt(token: &str) -> Doc {
    Doc { space: "interrupts", key: Bytes::copy_from_slice(token.as_bytes()) }
}

fn key(due: u64, token: &str) -> Bytes {
    [&due.to_be_bytes()[..], token.as_bytes()].concat().into()
}

fn timer(due: u64, token: &str) -> Doc {
    Doc { space: "timers", key: key(due, token) }
}

fn due_at(timer: &Doc) -> u64 {
    u64::from_be_bytes(timer.key[..8].try_into().unwrap())
}

fn ends() -> Lane {
    Lane("interrupt-ends".into())
}

fn open(due: u64) -> Bytes {
    Bytes::from(format!("open {due}"))
}

/// When it is due; `None` when it has ended.
fn due_of(document: &Document) -> Option<u64> {
    std::str::from_utf8(&document.value).unwrap().strip_prefix("open ")?.parse().ok()
}

async fn ended<S: Journal>(store: &S) -> Vec<Bytes> {
    let page = store.read_lane(&ends(), Position(0), 1_000).await.unwrap().value;
    all_of(page).into_iter().map(|entry| entry.value).collect()
}

async fn timers<S: Journal>(store: &S) -> usize {
    all_of(store.scan("timers", b"", None, 1_000).await.unwrap().value).len()
}

async fn interrupts<R: Rig<Store: Journal>>(
    rig: &R,
) -> (Interrupts<Shared<R::Store>>, Shared<R::Store>) {
    let store = Shared::new(rig.open().await);
    (process(&store, 1), store)
}

fn process<S: Journal>(store: &Shared<S>, seed: u64) -> Interrupts<Shared<S>> {
    Interrupts { engine: engine(store, seed), mint: Mint::seeded(seed + 1_000) }
}

/// The word of an answer that carries an outcome.
fn word(answer: &Answer) -> Bytes {
    match answer {
        Answer::Executed { outcome, .. }
        | Answer::Replayed { outcome, .. }
        | Answer::Joined { outcome, .. } => text(outcome),
        other @ (Answer::Freed
        | Answer::Mismatch
        | Answer::InFlight { .. }
        | Answer::StillExecuting { .. }
        | Answer::Unknown { .. }) => panic!("no interrupt answers {other:?}"),
    }
}

/// W1, X8: an interrupt is resolved once; asking again replays, and both indexes are gone together.
pub async fn w1_x8_a_second_resolve_replays<R: Rig<Store: Journal>>(rig: &R) {
    let (interrupts, store) = interrupts(rig).await;
    let unknown = interrupts.resolve("t").await.unwrap();
    assert_eq!(word(&unknown), "no such token");
    for _ in 0..2 {
        assert_eq!(word(&interrupts.create("t", LONG).await.unwrap()), "created");
    }
    assert_eq!(timers(&store).await, 1, "created once, with its timer");
    let first = interrupts.resolve("t").await.unwrap();
    assert!(matches!(first, Answer::Executed { .. }));
    let second = interrupts.resolve("t").await.unwrap();
    assert!(matches!(second, Answer::Replayed { .. }));
    assert_eq!((word(&first), word(&second)), ("resolved".into(), "resolved".into()));
    assert_eq!((ended(&store).await, timers(&store).await), (vec!["resolved t".into()], 0));
}

/// X8: what is due fires once, what is not due does not, however often and by how many is ticked.
pub async fn x8_what_is_due_fires_exactly_once<R: Rig<Store: Journal>>(rig: &R) {
    let (interrupts, store) = interrupts(rig).await;
    for n in 0..40 {
        let span = if n % 2 == 0 { BRIEF } else { LONG };
        assert_eq!(word(&interrupts.create(&format!("t{n}"), span).await.unwrap()), "created");
    }
    rig.pass(store.store(), BRIEF).await;
    let mut tickers = JoinSet::new();
    for seed in 10..18 {
        let ticker = process(&store, seed);
        tickers.spawn(async move { ticker.tick().await.unwrap() });
    }
    let fired: usize = tickers.join_all().await.into_iter().sum();
    let late = interrupts.tick().await.unwrap();
    assert_eq!(fired + late, 20);
    assert_eq!((ended(&store).await.len(), timers(&store).await), (20, 20));
    assert_eq!(interrupts.tick().await, Ok(0), "and never again");
    assert_eq!(word(&interrupts.resolve("t0").await.unwrap()), "expired");
    assert_eq!(ended(&store).await.len(), 20);
}

/// X8: the timer goes on from where it was, and yet misses nothing that is created late.
pub async fn x8_a_remembered_cursor_misses_no_timer<R: Rig<Store: Journal>>(rig: &R) {
    let (interrupts, store) = interrupts(rig).await;
    for round in 0..5 {
        let token = format!("t{round}");
        assert_eq!(word(&interrupts.create(&token, Duration::ZERO).await.unwrap()), "created");
        rig.pass(store.store(), BRIEF).await;
        assert_eq!(interrupts.tick().await, Ok(1), "round {round}");
        let (_, seen) = interrupts.progress().await.unwrap();
        let progress = Progress::of(seen.as_ref());
        assert!(progress.floor > 0 && progress.floor == progress.ceiling, "{progress:?}");
        // As if created by a process whose look is older than the tick: due long ago.
        let late = format!("late{round}");
        assert_eq!(word(&interrupts.create(&late, Duration::ZERO).await.unwrap()), "created");
        let page = store.scan("timers", b"", None, 10).await.unwrap().value;
        assert!(all_of(page).iter().all(|(doc, _)| due_at(doc) > progress.floor));
        rig.pass(store.store(), BRIEF).await;
        assert_eq!(interrupts.tick().await, Ok(1), "late in round {round}");
    }
    assert_eq!(timers(&store).await, 0);
}

/// X8: a person and the timer at the same moment: one end, and the person hears which.
pub async fn x8_a_resolve_that_races_with_the_timer_ends_once<R: Rig<Store: Journal>>(rig: &R) {
    let (interrupts, store) = interrupts(rig).await;
    for round in 0..30_u64 {
        let token = format!("t{round}");
        assert_eq!(word(&interrupts.create(&token, BRIEF / 20).await.unwrap()), "created");
        rig.pass(store.store(), BRIEF / 20).await;
        let person = tokio::spawn({
            let (person, token) = (process(&store, 100 + 2 * round), token.clone());
            async move { word(&person.resolve(&token).await.unwrap()) }
        });
        let timer = process(&store, 101 + 2 * round);
        let fired = tokio::spawn(async move { timer.tick().await.unwrap() });
        let (said, fired) = (person.await.unwrap(), fired.await.unwrap());
        let expected = match fired {
            0 => ("resolved", format!("resolved {token}")),
            _ => ("expired", format!("expired {token}")),
        };
        let ends = ended(&store).await;
        assert_eq!((ends.len() as u64, said), (round + 1, expected.0.into()), "one end each");
        assert_eq!(ends.last().unwrap(), &expected.1);
    }
    assert_eq!(timers(&store).await, 0);
}

/// X8: creations in many processes while the timer ticks: everything fires, once.
pub async fn x8_creations_that_race_with_ticks_all_fire<R: Rig<Store: Journal>>(rig: &R) {
    let (interrupts, store) = interrupts(rig).await;
    let mut creators = JoinSet::new();
    for seed in 10..18 {
        let creator = process(&store, seed);
        creators.spawn(async move {
            for n in 0..10 {
                let token = format!("t{seed}-{n}");
                let created = creator.create(&token, Duration::ZERO).await.unwrap();
                assert_eq!(word(&created), "created");
            }
        });
    }
    let mut fired = 0;
    while creators.join_next().await.is_some() {
        rig.pass(store.store(), Duration::from_millis(1)).await;
        fired += interrupts.tick().await.unwrap();
    }
    rig.pass(store.store(), BRIEF).await;
    fired += interrupts.tick().await.unwrap();
    assert_eq!((fired, ended(&store).await.len(), timers(&store).await), (80, 80, 0));
}
