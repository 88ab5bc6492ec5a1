//! The oracle: sees every effect and every answer, and says when a promise was broken.
//!
//! It knows nothing of how the engine works. It holds only what a caller was promised: no second
//! effect without a reason that is on record, no answer that is not durable, the same answer to
//! every further attempt, and nothing of one tenant's in another's answer.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use onetake_core::{
    Cause, Fence, Keeping, OnUnknown, Outcome, Phase, Record, Report, Slot, Standing, Timestamp,
};
use onetake_engine::{Answer, Attempt, Entry, Found, RunError};

use super::Stats;
use super::client::Deal;

/// A promise that was broken, and the history that broke it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The seed; running it again breaks it again.
    pub seed: u64,
    /// Which promise.
    pub promise: String,
    /// The last lines of the history.
    pub history: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.promise)?;
        self.history.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

impl std::error::Error for Broken {}

/// One execution, as the outside world sees it.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    fence: Fence,
    recovery: bool,
    started_ms: u64,
    happened: bool,
    /// What its owner reported, once it did.
    report: Option<Report>,
}

impl Effect {
    pub(super) const fn new(attempt: &Attempt, started_ms: u64) -> Self {
        let (fence, recovery) = (attempt.fence, attempt.recovery);
        Self { fence, recovery, started_ms, happened: false, report: None }
    }
}

/// What a caller was told of one operation, and until when that holds.
#[derive(Debug, Clone)]
struct Promise {
    outcome: Arc<Outcome>,
    body: &'static str,
    made_ms: u64,
    until_ms: u64,
}

/// Everything seen of one operation.
#[derive(Debug, Default)]
struct Account {
    effects: Vec<Effect>,
    promise: Option<Promise>,
    bodies: Vec<&'static str>,
}

#[derive(Debug)]
pub(super) struct Oracle {
    seed: u64,
    accounts: HashMap<Slot, Account>,
    broken: Option<String>,
    log: Vec<String>,
    /// When the store's clock last jumped.
    jumped_ms: Option<u64>,
    pub(super) stats: Stats,
}

/// How long a jump of the clock may be felt by a claim that was on its way.
const JUMP_FELT_MS: u64 = 10_000;

/// Lines of history that a broken promise shows.
const SHOWN: usize = 60;

impl Oracle {
    pub(super) fn new(seed: u64) -> Self {
        let (accounts, log) = (HashMap::new(), Vec::new());
        Self { seed, accounts, broken: None, log, jumped_ms: None, stats: Stats::default() }
    }

    pub(super) fn broken(&self) -> Option<Broken> {
        let promise = self.broken.clone()?;
        let from = self.log.len().saturating_sub(SHOWN);
        Some(Broken { seed: self.seed, promise, history: self.log[from..].to_vec() })
    }

    /// Breaks, unless `holds` or something broke before.
    pub(super) fn demand(&mut self, holds: bool, promise: impl FnOnce() -> String) {
        if !holds && self.broken.is_none() {
            self.broken = Some(promise());
        }
    }

    fn note(&mut self, deal: &Deal, line: &str) {
        let (tenant, key) = (deal.address.tenant().as_str(), deal.address.key().as_str());
        self.log.push(format!("{tenant}/{key} {line}"));
    }

    fn account(&mut self, deal: &Deal) -> &mut Account {
        self.accounts.entry(deal.address.slot().clone()).or_default()
    }

    /// The store's clock has jumped to `now_ms`.
    pub(super) fn jumped(&mut self, now_ms: u64) {
        self.jumped_ms = Some(now_ms);
    }

    /// A request is sent. Gives what had been promised before.
    pub(super) fn asked(&mut self, deal: &Deal, body: &'static str, now_ms: u64) -> u64 {
        self.stats.asked += 1;
        self.note(deal, &format!("{now_ms} asked {body}"));
        self.account(deal).bodies.push(body);
        now_ms
    }

    /// An execution begins. `record` is what the store holds at this moment.
    pub(super) fn started(&mut self, deal: &Deal, effect: &Effect, record: Option<&Record>) {
        let (fence, now_ms) = (effect.fence, effect.started_ms);
        self.note(deal, &format!("{now_ms} starts {fence} recovery={}", effect.recovery));
        self.stats.recoveries += usize::from(effect.recovery);
        let owned = record.is_some_and(|record| record.fence == fence && record.is_open());
        // A clock that jumps while a claim is on its way lapses it unseen; a span cannot show that.
        let jumped = self.jumped_ms.is_some_and(|at| now_ms.saturating_sub(at) < JUMP_FELT_MS);
        self.demand(owned || jumped, || format!("{fence} executes without holding the claim"));
        let hold = deal.policy.on_unknown() == OnUnknown::Hold;
        self.demand(!(hold && effect.recovery), || format!("{fence} recovers a held key"));
        let account = self.account(deal);
        let promise = account.promise.clone().filter(|promise| promise.until_ms > now_ms);
        let reason = account.effects.last().is_none_or(|last| last.allows(effect, now_ms, deal));
        account.effects.push(effect.clone());
        self.demand(promise.is_none(), || format!("{fence} executes after a promised outcome"));
        let excused = jumped && !owned;
        self.demand(reason || excused, || {
            format!("{fence} executes again without a reason on record")
        });
    }

    /// The effect itself happens.
    pub(super) fn happened(&mut self, deal: &Deal, fence: Fence, now_ms: u64) {
        self.note(deal, &format!("{now_ms} effect of {fence}"));
        self.stats.effects += 1;
        if let Some(effect) = self.account(deal).of(fence) {
            effect.happened = true;
        }
    }

    /// The executor ends and reports; `None` when it says that nothing was sent, or panics.
    pub(super) fn ended(&mut self, deal: &Deal, fence: Fence, report: Option<&Report>) {
        self.note(deal, &format!("{fence} reports {report:?}"));
        if let Some(effect) = self.account(deal).of(fence) {
            let silent = if effect.happened {
                Report::Unknown(Cause::Panicked)
            } else {
                Report::NotDispatched(Outcome::NotKept { status: None })
            };
            effect.report = Some(report.cloned().unwrap_or(silent));
        }
    }

    /// A caller hears an answer. `record` is what the store holds at this moment.
    pub(super) fn heard(
        &mut self,
        deal: &Deal,
        body: &'static str,
        asked_ms: u64,
        answer: &Result<Answer, RunError>,
        record: Option<&Record>,
        now_ms: u64,
    ) {
        self.stats.answered += 1;
        self.note(deal, &format!("{now_ms} hears {answer:?} (asked {body} at {asked_ms})"));
        match answer {
            Ok(Answer::Executed { outcome, expires_at }) => {
                self.stats.committed += usize::from(deal.inside);
                // A slow reply may be heard only after its retention, when the slot is another's.
                if expires_at.is_none_or(|until| until.as_millis() > now_ms) {
                    self.durable(outcome, expires_at.is_some(), record);
                }
                self.promised(deal, body, asked_ms, outcome, *expires_at, now_ms);
            }
            Ok(Answer::Joined { outcome, expires_at }) => {
                self.stats.joined += 1;
                self.promised(deal, body, asked_ms, outcome, *expires_at, now_ms);
            }
            Ok(Answer::Replayed { outcome, expires_at }) => {
                self.stats.replayed += 1;
                self.promised(deal, body, asked_ms, outcome, Some(*expires_at), now_ms);
            }
            Ok(Answer::Mismatch) => {
                let bodies = &self.account(deal).bodies;
                let other = bodies.iter().any(|other| *other != body);
                self.demand(other, || "a mismatch without another body".into());
            }
            Ok(Answer::Unknown { .. }) => {
                self.stats.unknown += 1;
                self.demand(!deal.inside, || "a transaction can never be unknown".into());
            }
            Err(RunError::Fenced) => self.stats.fenced += 1,
            Err(RunError::Collision | RunError::EffectsNotKept) => {
                self.demand(false, || format!("impossible answer {answer:?}"));
            }
            Ok(Answer::InFlight { .. } | Answer::StillExecuting { .. } | Answer::Freed)
            | Err(_) => {}
        }
    }

    /// Nobody is told to be fenced whose own outcome is on record.
    pub(super) fn fenced(
        &mut self,
        answer: &Result<Answer, RunError>,
        fence: Option<Fence>,
        record: Option<&Record>,
    ) {
        if *answer == Err(RunError::Fenced) {
            let own = record.filter(|record| Some(record.fence) == fence && !record.is_open());
            self.demand(own.is_none(), || format!("fenced by its own record: {own:?}"));
        }
    }

    /// What is answered is durable, byte for byte, before it is heard.
    fn durable(&mut self, outcome: &Outcome, kept: bool, record: Option<&Record>) {
        let there = match record.map(|record| &record.phase) {
            Some(Phase::Done { outcome: there, keeping: Keeping::Final, .. }) if kept => {
                **there == *outcome
            }
            // A key that was freed, or may be tried again, may be another attempt's by now.
            Some(_) | None => !kept,
        };
        self.demand(there, || format!("answered before it was durable: {outcome:?}"));
    }

    /// An outcome that is kept is the same for everyone who asks while it is.
    fn promised(
        &mut self,
        deal: &Deal,
        body: &'static str,
        asked_ms: u64,
        outcome: &Arc<Outcome>,
        expires_at: Option<Timestamp>,
        now_ms: u64,
    ) {
        let own = match &**outcome {
            Outcome::Value(said) if !deal.inside => {
                said.starts_with(format!("{:?}", deal.address.slot()).as_bytes())
            }
            Outcome::Value(_) | Outcome::Failure(_) => true,
            Outcome::NotKept { .. } | Outcome::Response { .. } => false,
        };
        self.demand(own, || format!("an answer of somebody else: {outcome:?}"));
        let before = self.account(deal).promise.clone();
        // What is kept is the same for all. What is not, or no longer, only who asked before may
        // hear.
        let expires_at = expires_at.filter(|until| until.as_millis() > now_ms);
        let binds = |before: &Promise| expires_at.is_some() || before.made_ms <= asked_ms;
        if let Some(before) = before.filter(|before| before.until_ms > now_ms && binds(before)) {
            let same = *before.outcome == **outcome && before.body == body;
            self.demand(same, || format!("promised {before:?}, then answered {outcome:?}"));
        }
        if let Some(until) = expires_at {
            let (outcome, made_ms) = (Arc::clone(outcome), now_ms);
            let promise = Promise { outcome, body, made_ms, until_ms: until.as_millis() };
            self.account(deal).promise = Some(promise);
        }
    }

    /// When nothing moves any more, nothing is left in the air.
    pub(super) fn at_the_end(&mut self, record: Option<&Record>, now: Timestamp) {
        let live = record.is_some_and(|r| matches!(r.standing(now), Standing::Live { .. }));
        self.demand(!live, || "a claim that nobody owns is still alive".into());
    }

    /// Document, lane, counter and records must agree.
    pub(super) fn books(&mut self, tenant: &str, done: u64, found: &[Found], entries: &[Entry]) {
        let appended = entries.len() as u64;
        let [Found::Doc(sum), Found::Counter(counted)] = found else {
            return self.demand(false, || format!("{tenant}: asked for a sum and a count"));
        };
        let sum = sum.as_ref().map_or_else(|| "0".into(), |doc| doc.value.clone());
        let agree = appended == done
            && *counted == i64::try_from(done).unwrap_or(i64::MAX)
            && sum == done.to_string().as_bytes();
        self.demand(agree, || {
            format!("{tenant}: {done} done, {appended} entries, {counted} counted, sum {sum:?}")
        });
    }
}

impl Account {
    fn of(&mut self, fence: Fence) -> Option<&mut Effect> {
        self.effects.iter_mut().rev().find(|effect| effect.fence == fence)
    }
}

impl Effect {
    /// Whether `next` may execute although this one did before.
    fn allows(&self, next: &Self, now_ms: u64, deal: &Deal) -> bool {
        if next.recovery {
            return deal.policy.on_unknown() == OnUnknown::Retry;
        }
        match &self.report {
            // Its owner, alive, said that the key is free or may be tried again.
            Some(
                Report::NotDispatched(_)
                | Report::Retryable(_)
                | Report::Finished(Outcome::Failure(_)),
            ) => true,
            // Or its outcome was kept and is forgotten by now.
            Some(Report::Finished(_)) => {
                let retention = u64::try_from(deal.policy.retention().as_millis()).unwrap_or(0);
                now_ms >= self.started_ms + retention
            }
            Some(Report::Unknown(_)) | None => false,
        }
    }
}
