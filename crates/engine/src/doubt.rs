//! What becomes of an unknown outcome once somebody has found out what happened.
//!
//! Whoever asks elsewhere takes a [`Doubt`] first: the very write of the record that they ask
//! about. What they learn is carried out on that write alone. A record that has moved on since
//! (settled, taken over, released, or renewed by an owner who is alive after all) is left as it is,
//! and the caller looks again. Nothing here asks anybody, and nothing here believes a guess.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onetake_core::{
    Address, Ask, Fence, Grounds, Keeping, Outcome, Policy, Record, Report, Settlement, Standing,
};

use crate::answer::{Answer, Attempt};
use crate::claim::Pending;
use crate::engine::Engine;
use crate::error::RunError;
use crate::lease::{Home, hear};
use crate::store::{Slots, Stamped, Swap};
use crate::wait::News;

/// How often a settlement is repeated while the store cannot say whether it is written.
const TRIES_MAX: u32 = 8;

/// An unknown outcome, as it was seen in the store.
#[derive(Clone)]
pub struct Doubt {
    record: Arc<Record>,
    age: Duration,
}

impl Doubt {
    /// How long the outcome had been unknown when it was seen, by the store's clock.
    #[must_use]
    pub const fn age(&self) -> Duration {
        self.age
    }
}

impl fmt::Debug for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fence = &self.record.fence;
        f.debug_struct("Doubt").field("fence", fence).field("age", &self.age).finish()
    }
}

impl<S: Slots> Engine<S> {
    /// The unknown outcome of the claim `fence` at `address`; `None` when it is no longer that.
    ///
    /// # Errors
    /// A [`RunError`] when the store failed.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn doubt(&self, address: &Address, fence: Fence) -> Result<Option<Doubt>, RunError> {
        let found = self.get(address).await?;
        let theirs = found.filter(|found| found.value.fence == fence);
        Ok(theirs.and_then(|Stamped { now, value: record }| match record.standing(now) {
            Standing::Unknown { since, .. } => {
                let age = now.since(since);
                Some(Doubt { record, age })
            }
            Standing::Free
            | Standing::Live { .. }
            | Standing::Final { .. }
            | Standing::Retryable(_) => None,
        }))
    }

    /// Settles `doubt` with what came of it: `outcome` is durable when this returns, and answers
    /// every further attempt for as long as `policy` keeps one. Gives whether it was written;
    /// `false`: the record has moved on, and nothing was changed.
    ///
    /// Whatever the policy says about statuses, this outcome is kept: it was looked for, and found.
    ///
    /// # Errors
    /// A [`RunError`] when the store failed. The outcome may be recorded or not; look again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome recorded whole or not at all.
    pub async fn settle_doubt(
        &self,
        doubt: &Doubt,
        policy: &Policy,
        outcome: Outcome,
    ) -> Result<bool, RunError> {
        self.refuse_when_stopping()?;
        let settlement = Settlement::Done { outcome: Arc::new(outcome), keeping: Keeping::Final };
        let settlement = settlement.within(self.0.limits.outcome_bytes_max);
        let draft = settlement.draft(&doubt.record, policy, self.0.mint.id());
        for failures in 1..=TRIES_MAX {
            match self.swap(Some(doubt.record.version), &draft).await?.value {
                Swap::Won(record) => {
                    let slot = record.address.slot();
                    self.0.waiters.settle(slot, || News::of(&record, settlement));
                    return Ok(true);
                }
                Swap::Lost(_) => return Ok(false),
                Swap::Unknown => self.pause(failures).await,
            }
        }
        Err(RunError::ClaimUncertain)
    }

    /// Executes `ask` in place of the attempt in `doubt`, as its recovery, because that attempt is
    /// known to have had no effect. `None`: the record has moved on, and nothing was executed.
    ///
    /// The claim replaces exactly the write that was seen, so of all who learned the same only one
    /// executes, and never behind a younger attempt that nobody asked about. What `is_answering`
    /// is for says [`run_answering`](Self::run_answering).
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    ///
    /// # Cancel safety
    /// That of [`run`](Self::run): a claim that was begun is finished, an execution goes on.
    pub async fn recover<F, Fut>(
        &self,
        ask: Ask,
        doubt: &Doubt,
        execute: F,
        is_answering: impl FnOnce() -> bool + Send,
    ) -> Result<Option<Answer>, RunError>
    where
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Report> + Send + 'static,
    {
        self.refuse_when_stopping()?;
        let record = &doubt.record;
        // What is asked must be what that attempt was asked; other content is a mismatch.
        if record.address != ask.address || !ask.asked.is_same(&record.fingerprint) {
            return Ok(None);
        }
        let (policy, span) = (Arc::clone(&ask.policy), self.0.meters.span("recover", &ask.address));
        let mut pending = Pending::new(self.clone(), ask, execute);
        if !pending.is_ready() {
            return Err(RunError::Busy("too many executions at once"));
        }
        let grounds = Grounds {
            expected: Some(record.version),
            attempt: record.attempt.saturating_add(1),
            recovery: true,
            above: Some(record.fence),
        };
        let told = match Box::pin(pending.claim(grounds)).await?.value {
            Swap::Won(claim) => pending.start(claim, Home::Engine),
            Swap::Lost(_) => return Ok(None),
            Swap::Unknown => return Err(RunError::ClaimUncertain),
        };
        let ended = hear(told, &policy, is_answering).await;
        self.0.meters.count(&ended, &span);
        ended.map(Some)
    }
}
