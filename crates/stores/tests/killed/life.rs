//! One store and everything that happens to it: kill after kill, and what must hold after each.
//!
//! When a process is killed depends on what it has said, drawn from a seed; where that finds it is
//! chance. What it said counts as heard, what it asked and did not hear is retried by the next one.
//! This file knows neither the store nor the engine: it compares what was said with what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use super::ledger::{self, Effect};
use super::worker::{Kind, Orders, kind};
use crate::common::part::Part;
use crate::common::scratch;

/// Answers that a process gives, at most, before it is killed.
const HEARD_MAX: usize = 80;
/// Older operations that are retried after each kill, beside all that the last process asked for.
const SAMPLE: usize = 200;

/// When a process is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// While it opens the store, so long after it began.
    Opening(Duration),
    /// After so many answers to retries.
    Checking(usize),
    /// After so many answers to what it asked for.
    Working(usize),
    /// While it closes the store, so long after it was told to.
    Closing(Duration),
}

/// What is known of one operation.
#[derive(Debug, Default)]
struct Known {
    /// What was heard, if it was a value; it must never change.
    value: Option<String>,
    /// Whether nobody knows what came of it; it must stay so.
    unknown: bool,
}

/// What happened in all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) kills: u64,
    pub(crate) operations: u64,
    pub(crate) effects: u64,
    pub(crate) unknown: u64,
    pub(crate) recovered: u64,
}

/// One store, from its making to its last check.
pub(crate) struct Life {
    folder: TempDir,
    seed: u64,
    rng: SmallRng,
    /// Takes the effects; ends with this.
    _ledger: Part,
    known: BTreeMap<u64, Known>,
    /// What must be retried after the next kill: asked for, or answered for the first time.
    owed: BTreeSet<u64>,
    /// Entries of the lane of bookings, by operation.
    entries: BTreeMap<u64, u64>,
    heard: usize,
    counts: Counts,
}

impl Life {
    /// Begins a life. Every second one is spent on a disk, where a sync takes its time.
    pub(crate) fn new(seed: u64) -> Self {
        let on_disk = seed.is_multiple_of(2);
        let folder = if on_disk { tempfile::tempdir().unwrap() } else { scratch() };
        let mut ledger = Part::start(&part("ledger", folder.path()), &[]);
        assert_eq!(ledger.hear().as_deref(), Some("open"));
        Self {
            folder,
            seed,
            rng: SmallRng::seed_from_u64(seed),
            _ledger: ledger,
            known: BTreeMap::new(),
            owed: BTreeSet::new(),
            entries: BTreeMap::new(),
            heard: 0,
            counts: Counts::default(),
        }
    }

    /// Kills so many processes, then looks at everything once more.
    pub(crate) fn run(mut self, kills: u64) -> Result<Counts, String> {
        for kill in 1..=kills {
            let moment = self.moment();
            self.kill_one(moment).and_then(|()| self.look()).map_err(|what| {
                let seed = self.seed;
                format!("seed {seed}, kill {kill} ({moment:?}): {what}")
            })?;
            self.counts.kills += 1;
        }
        self.check_all().and_then(|()| self.look()).map_err(|what| {
            let seed = self.seed;
            format!("seed {seed}, after {kills} kills: {what}")
        })?;
        let counts = &mut self.counts;
        counts.operations = self.known.len() as u64;
        counts.unknown = self.known.values().filter(|known| known.unknown).count() as u64;
        Ok(*counts)
    }

    fn moment(&mut self) -> Moment {
        let soon = Duration::from_micros(self.rng.random_range(0..20_000));
        match self.rng.random_range(0..10) {
            0 => Moment::Opening(soon),
            1 => Moment::Checking(self.rng.random_range(1..=HEARD_MAX)),
            2 => Moment::Closing(soon),
            _ => Moment::Working(self.rng.random_range(1..=HEARD_MAX)),
        }
    }

    /// Every tenth life has outcomes that fill the journals of the store.
    fn orders(&mut self, retries: Vec<u64>) -> Orders {
        let padding = if self.seed.is_multiple_of(10) { 1 << 20 } else { 1 << 10 };
        let first = self.known.last_key_value().map_or(1, |(last, _)| last + 1);
        Orders { seed: self.rng.random::<u64>() >> 1, first, padding, retries }
    }

    /// What the next process retries: all that the last one may have left, and some of the rest.
    fn retries(&mut self) -> Vec<u64> {
        let all: Vec<_> = self.known.keys().copied().collect();
        let mut retries = self.owed.clone();
        for _ in 0..SAMPLE.min(all.len()) {
            retries.insert(all[self.rng.random_range(0..all.len())]);
        }
        retries.into_iter().collect()
    }

    fn start(&mut self, retries: Vec<u64>) -> Part {
        (self.heard, self.entries) = (0, BTreeMap::new());
        let orders = self.orders(retries).lines();
        let mut worker = Part::start(&part("worker", self.folder.path()), &[]);
        for line in orders {
            worker.tell(&line);
        }
        worker
    }

    fn kill_one(&mut self, moment: Moment) -> Result<(), String> {
        let retries = self.retries();
        let mut worker = self.start(retries);
        match moment {
            Moment::Opening(soon) => pass(soon),
            Moment::Checking(answers) => {
                self.hear_until(&mut worker, |life, line| {
                    life.heard >= answers || line == "checked"
                })?;
            }
            Moment::Working(answers) => {
                self.hear_until(&mut worker, |_, line| line == "checked")?;
                self.heard = 0;
                self.hear_until(&mut worker, |life, _| life.heard >= answers)?;
            }
            Moment::Closing(soon) => {
                self.hear_until(&mut worker, |_, line| line == "checked")?;
                worker.hang_up();
                pass(soon);
            }
        }
        worker.kill();
        let (_, rest) = worker.end();
        rest.iter().try_for_each(|line| self.note(line))
    }

    /// Retries everything there ever was, and closes the store in order.
    fn check_all(&mut self) -> Result<(), String> {
        let all: Vec<_> = self.known.keys().copied().collect();
        let mut worker = self.start(all.clone());
        worker.hang_up();
        let (status, rest) = worker.end();
        rest.iter().try_for_each(|line| self.note(line))?;
        if !status.success() || !rest.iter().any(|line| line == "closed") {
            return Err(format!("the last process did not close the store: {status}"));
        }
        let booked = all.iter().filter(|one| kind(**one) == Kind::Book);
        let missing: Vec<_> = booked.filter(|one| !self.entries.contains_key(one)).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("no entries for {missing:?}")) }
    }

    /// Notes what `worker` says until `enough` of it was said.
    fn hear_until(
        &mut self,
        worker: &mut Part,
        enough: impl Fn(&Self, &str) -> bool,
    ) -> Result<(), String> {
        loop {
            let Some(line) = worker.hear() else { return Err("the process ended itself".into()) };
            self.note(&line)?;
            if enough(self, &line) {
                return Ok(());
            }
        }
    }

    /// Notes one line, and compares it with what was said before.
    fn note(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.splitn(3, ' ');
        let (word, operation) = (words.next().unwrap_or_default(), words.next());
        let operation = operation.and_then(|text| text.parse::<u64>().ok());
        match (word, operation, words.next()) {
            ("refused", _, _) => Err(line.to_owned()),
            ("asked", Some(operation), None) => {
                self.owed.insert(operation);
                self.known.entry(operation).or_default();
                Ok(())
            }
            ("heard", Some(operation), Some(answer)) => self.hear(operation, answer),
            ("again", Some(operation), Some(answer)) => {
                let known = self.known.entry(operation).or_default();
                // One that is settled now was not before, and must be seen once more.
                if known.value.is_some() || known.unknown {
                    self.owed.remove(&operation);
                }
                self.hear(operation, answer)
            }
            // W12: both or none.
            ("there", Some(_), Some("true true" | "false false")) => Ok(()),
            ("there", Some(operation), Some(parts)) => {
                Err(format!("booking {operation} in parts, record and document: {parts}"))
            }
            ("entry", Some(operation), Some(position)) => {
                match self.entries.insert(operation, position.parse().unwrap()) {
                    None => Ok(()),
                    Some(other) => Err(format!("two entries for {operation}: {other}, {position}")),
                }
            }
            // What the process says of itself, and what the test harness adds at its end.
            _ => Ok(()),
        }
    }

    fn hear(&mut self, operation: u64, answer: &str) -> Result<(), String> {
        self.heard += 1;
        let known = self.known.entry(operation).or_default();
        let is_value = answer.starts_with("value ");
        let is_unknown = answer.starts_with("unknown ") && kind(operation) == Kind::Pay;
        match &known.value {
            Some(value) if value != answer => {
                return Err(format!("{operation} heard {value:?}, and then {answer:?}"));
            }
            None if known.unknown && !is_unknown => {
                return Err(format!("{operation} was unknown, and then {answer:?}"));
            }
            None if !is_value && !is_unknown => {
                return Err(format!("{operation} heard {answer:?}"));
            }
            Some(_) | None => {}
        }
        known.unknown = is_unknown;
        known.value = is_value.then(|| answer.to_owned());
        Ok(())
    }

    /// X3: compares every effect that happened with what was heard.
    fn look(&mut self) -> Result<(), String> {
        let mut effects = BTreeMap::<u64, Vec<Effect>>::new();
        for effect in ledger::effects(self.folder.path()) {
            effects.entry(effect.operation).or_default().push(effect);
        }
        self.counts.effects = effects.values().map(|all| all.len() as u64).sum();
        self.counts.recovered = effects.values().filter(|all| all.len() > 1).count() as u64;
        for (operation, effects) in &effects {
            let attempts: BTreeSet<_> = effects.iter().map(|effect| effect.attempt).collect();
            // The request of a process that was killed may arrive after the one that recovers.
            let undeclared = effects.iter().filter(|effect| !effect.recovery).count();
            let is_allowed = match kind(*operation) {
                Kind::Pay => effects.len() == 1 && undeclared == 1,
                Kind::Recover => undeclared <= 1 && attempts.len() == effects.len(),
                Kind::Book => false,
            };
            if !is_allowed {
                return Err(format!("{operation} had {effects:?}"));
            }
        }
        for (operation, known) in &self.known {
            let Some(value) = &known.value else { continue };
            let happened = effects.get(operation).map_or(&[][..], Vec::as_slice);
            let is_about =
                |effect: &Effect| value.starts_with(&format!("value effect {} of ", effect.number));
            if kind(*operation) != Kind::Book && !happened.iter().any(is_about) {
                return Err(format!("{operation} heard {value:?}, but had {happened:?}"));
            }
        }
        Ok(())
    }
}

fn part(name: &str, folder: &Path) -> String {
    format!("{name} {}", folder.to_str().unwrap())
}

/// Lets a moment pass, too short to sleep for. Where it ends is chance, and meant to be.
fn pass(soon: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < soon {
        std::hint::spin_loop();
    }
}
