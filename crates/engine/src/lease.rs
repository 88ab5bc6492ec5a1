//! A claim that was won: its execution, detached from the caller, and the lease that keeps it alive.
//!
//! The execution runs in a task of its own, so code that blocks a thread does not stop its heartbeat.
//! Heartbeat and completion take turns in one other task and never race each other. Nobody who goes
//! away cancels anything here: the caller holds only an ear.

use std::sync::Arc;

use onetake_core::{Ask, Cause, Policy, Record, Report, Settlement};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::answer::{Answer, Attempt};
use crate::engine::Engine;
use crate::error::RunError;
use crate::store::{Slots, Stamped, Swap};

/// Heartbeats in one lease: two may fail before it lapses.
const BEATS_PER_LEASE: u32 = 3;

/// What the caller of an execution hears.
pub(crate) type Told = oneshot::Receiver<Result<Answer, RunError>>;
/// Where it is said, once.
pub(crate) type Tell = oneshot::Sender<Result<Answer, RunError>>;

/// A claim that was won, and everything that its owner needs.
pub(crate) struct Held<S> {
    pub(crate) engine: Engine<S>,
    pub(crate) ask: Ask,
    /// The claim as it was last seen; its version changes with every renewal.
    pub(crate) claim: Arc<Record>,
    /// Given back when the claim is settled.
    _permit: OwnedSemaphorePermit,
}

/// Another claim has taken the place of ours.
pub(crate) struct Fenced;

impl<S: Slots> Held<S> {
    pub(crate) const fn new(
        engine: Engine<S>,
        ask: Ask,
        claim: Arc<Record>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { engine, ask, claim, _permit: permit }
    }

    /// Starts the execution in tasks of the engine. The claim was sent at `sent`.
    pub(crate) fn start<F, Fut>(self, sent: Instant, execute: F) -> Told
    where
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Report> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let tasks = self.engine.0.tasks.clone();
        tasks.spawn(self.own(sent, execute, tell));
        told
    }

    async fn own<F, Fut>(mut self, sent: Instant, execute: F, tell: Tell)
    where
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Report> + Send + 'static,
    {
        if !self.is_fresh(sent).await {
            let _ = tell.send(Err(RunError::ClaimUncertain));
            return self.engine.disown(&self.claim, &self.ask.policy).await;
        }
        self.engine.0.meters.executing.increment(1.0);
        let attempt = self.attempt();
        // The closure is called inside the task, so that a panic in it is the execution's, not ours.
        let execution = tokio::spawn(async move { execute(attempt).await });
        let settlement = self.keep(execution).await;
        self.engine.0.meters.executing.decrement(1.0);
        match settlement {
            Ok(settlement) => self.record(settlement, tell).await,
            Err(Fenced) => self.fenced(tell),
        }
    }

    /// Whether the lease certainly runs. A claim whose reply was slow may have lapsed on the way, and
    /// nothing was dispatched yet: then it is renewed first, or given up. Counted from when the call
    /// was sent, on a watch that only measures spans.
    async fn is_fresh(&mut self, sent: Instant) -> bool {
        let lease = self.ask.policy.lease();
        if sent.elapsed() < lease / BEATS_PER_LEASE {
            return true;
        }
        let sent = Instant::now();
        matches!(self.beat().await, Ok(true)) && sent.elapsed() < lease / BEATS_PER_LEASE
    }

    fn attempt(&self) -> Attempt {
        Attempt {
            key: Some(self.ask.address.key().clone()),
            fence: self.claim.fence,
            number: self.claim.attempt,
            recovery: self.claim.recovery,
        }
    }

    /// Renews the lease until the execution ends or its time is up.
    async fn keep(&mut self, mut execution: JoinHandle<Report>) -> Result<Settlement, Fenced> {
        let policy = Arc::clone(&self.ask.policy);
        let limit = policy.timeout().map(|limit| Instant::now() + limit);
        loop {
            tokio::select! {
                biased;
                ended = &mut execution => return Ok(settlement(ended, &policy)),
                () = at(limit), if limit.is_some() => {
                    execution.abort();
                    // It ends at its next await. Until then it may still have its effect, so nobody
                    // may begin again; but code that blocks for ever must not hold the key for ever.
                    let _ = timeout(policy.lease(), &mut execution).await;
                    return Ok(Settlement::Unknown(Cause::TimedOut));
                }
                () = sleep(policy.lease() / BEATS_PER_LEASE) => {}
            }
            if let Err(Fenced) = self.beat().await {
                // A successor may be executing. Two at once is what we promised not to do.
                execution.abort();
                return Err(Fenced);
            }
        }
    }

    /// Renews the lease once. Gives whether the store confirmed it; a store that is down is no reason
    /// to give up, for the claim is ours until somebody takes it over.
    pub(crate) async fn beat(&mut self) -> Result<bool, Fenced> {
        let slot = self.ask.address.slot();
        let lease = self.ask.policy.lease();
        match self.engine.renew(slot, self.claim.version, lease).await {
            Ok(Stamped { value: Swap::Won(claim), .. }) => {
                self.claim = claim;
                Ok(true)
            }
            Ok(Stamped { value: Swap::Lost(found), .. }) => self.adopt(found).map(|()| false),
            Ok(Stamped { value: Swap::Unknown, .. }) | Err(_) => {
                self.engine.0.meters.renewals_failed.increment(1);
                Ok(false)
            }
        }
    }

    /// After a lost write: goes on from what is there, if it is still this very claim (a reply was
    /// lost, say), open and not taken over or resolved by anyone.
    pub(crate) fn adopt(&mut self, found: Option<Arc<Record>>) -> Result<(), Fenced> {
        match found {
            Some(there) if there.fence == self.claim.fence && there.is_open() => {
                self.claim = there;
                Ok(())
            }
            Some(_) | None => Err(Fenced),
        }
    }
}

/// Waits for a point in time; only ever asked when there is one.
async fn at(limit: Option<Instant>) {
    if let Some(limit) = limit {
        sleep_until(limit).await;
    }
}

fn settlement(ended: Result<Report, JoinError>, policy: &Policy) -> Settlement {
    match ended {
        Ok(report) => Settlement::of(report, policy),
        Err(error) if error.is_panic() => Settlement::of_panic(policy),
        // Only a runtime that is shutting down cancels an execution, and how far it came is unknown.
        Err(_) => Settlement::Unknown(Cause::Silence),
    }
}

impl<S: Slots> Engine<S> {
    /// Waits for the answer of an execution, as long as the policy keeps a caller.
    pub(crate) async fn hear(&self, told: Told, policy: &Policy) -> Result<Answer, RunError> {
        let heard = match policy.answer_within() {
            None => told.await,
            Some(limit) => match timeout(limit, told).await {
                Ok(heard) => heard,
                Err(_) => return Ok(Answer::StillExecuting { retry_after: policy.lease() }),
            },
        };
        heard.unwrap_or(Err(RunError::Lost))
    }
}
