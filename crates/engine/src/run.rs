//! The walk for effects outside our store: claim, execute, complete, answer.
//!
//! ```text
//! Ask ──claim──▶ won ──▶ execute ──complete──▶ Answer
//!         └────▶ lost ──decide──▶ replay · mismatch · in flight · unknown ──▶ Answer
//!                   └──▶ execute ──▶ claim again, naming what was seen
//! ```
//!
//! The first store call is the claim, so a new key costs two writes and a replay none; what the
//! store has in memory answers before that, without a claim or a task. This file never executes
//! anything itself and never answers before the outcome is durable: `lease.rs` executes,
//! `settle.rs` records and only then tells.

use std::sync::Arc;

use onetake_core::{Ask, Grounds, Record, Report, decide};
use tracing::Instrument;

use crate::answer::{Answer, Attempt, Step};
use crate::claim::Pending;
use crate::engine::Engine;
use crate::error::RunError;
use crate::lease::{Home, Told, hear};
use crate::store::{Slots, Stamped, Swap};
use crate::waiting::Waiting;

/// How often one attempt may lose its claim to rivals before it is refused as busy.
const RIVALS_MAX: u32 = 64;

/// Where a walk ends for its caller: with an answer, or listening to an execution.
enum Walked {
    Answered(Answer),
    Executing(Told),
}

impl<S: Slots> Engine<S> {
    /// Runs `execute` at most once at a time for the slot of `ask`, never again once its outcome is
    /// kept, and answers every attempt with that outcome.
    ///
    /// `execute` runs in a task of the engine under a lease that is renewed while it lives. What it
    /// reports is durable before this returns it. If it falls silent the outcome is unknown, and
    /// the policy of the operation says what may happen then.
    ///
    /// # Errors
    /// A [`RunError`] when the promise could not be kept. Except for
    /// [`RunError::ExecutedNotRecorded`], [`RunError::Fenced`] and [`RunError::Lost`], nothing was
    /// executed by this attempt.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing but who hears the answer: a claim that was begun is
    /// finished, an execution goes on, and its outcome is recorded. A seat among the waiters is
    /// given back.
    pub async fn run<F, Fut>(&self, ask: Ask, execute: F) -> Result<Answer, RunError>
    where
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Report> + Send + 'static,
    {
        if let Some(answer) = self.at_hand(&ask) {
            return answer;
        }
        self.run_answering(ask, execute, || false, Home::Engine).await
    }

    /// Like [`run`](Self::run), for an execution that may begin to answer its caller by itself
    /// before it ends: a caller of whom `is_answering` says so is kept to the end, whatever the
    /// policy says, because the end of that answer depends on what is recorded.
    ///
    /// Whoever asks this way has looked what is [at hand](Self::at_hand), or need not be quick, and
    /// chooses where the execution lives.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    ///
    /// # Cancel safety
    /// That of [`run`](Self::run).
    // A block and not an async function, which would hold its arguments twice.
    pub fn run_answering<F, Fut, A>(
        &self,
        ask: Ask,
        execute: F,
        is_answering: A,
        home: Home,
    ) -> impl Future<Output = Result<Answer, RunError>> + Send + use<S, F, Fut, A>
    where
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Report> + Send + 'static,
        A: FnOnce() -> bool + Send,
    {
        let engine = self.clone();
        let policy = Arc::clone(&ask.policy);
        let span = self.0.meters.span("run", &ask.address);
        // Boxed, so that a caller who only listens any more holds little.
        let walk = Box::pin(walk(Pending::new(self.clone(), ask, execute), home));
        async move {
            engine.refuse_when_stopping()?;
            engine.start_sweeper();
            let ended = match walk.instrument(span.clone()).await {
                Ok(Walked::Answered(answer)) => Ok(answer),
                Ok(Walked::Executing(told)) => hear(told, &policy, is_answering).await,
                Err(error) => Err(error),
            };
            engine.0.meters.count(&ended, &span);
            ended
        }
    }

    /// Goes on with what a caller began in a task of the engine, whoever drops what.
    pub fn keep(&self, begun: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.tasks.spawn(begun));
    }

    /// The answer to `ask`, if it is a replay or a mismatch of what the store has in memory. `None`
    /// says nothing: [`run`](Self::run) finds out, and answers this way by itself. For a
    /// door that can spare itself some work when nothing is executed, and then asks by
    /// [`run_answering`](Self::run_answering).
    pub fn at_hand(&self, ask: &Ask) -> Option<Result<Answer, RunError>> {
        if let Err(stopping) = self.refuse_when_stopping() {
            return Some(Err(stopping));
        }
        let Stamped { now, value: found } = self.0.store.at_hand(ask.address.slot())?;
        let answer = match belongs(Some(&found), ask) {
            Ok(()) => match Step::of(decide(ask, Some(&found), now), now) {
                Step::Say(answer @ (Answer::Replayed { .. } | Answer::Mismatch)) => Ok(answer),
                Step::Say(_) | Step::Wait { .. } | Step::Execute(_) => return None,
            },
            Err(collision) => Err(collision),
        };
        self.0.meters.count(&answer, &self.0.meters.span("at hand", &ask.address));
        Some(answer)
    }
}

/// The walk itself, until it is answered or executing.
#[allow(clippy::manual_async_fn, reason = "it would hold what is pending twice")]
fn walk<S, F, Fut>(
    mut pending: Pending<S, F, Fut>,
    home: Home,
) -> impl Future<Output = Result<Walked, RunError>> + Send
where
    S: Slots,
    F: FnOnce(Attempt) -> Fut + Send + 'static,
    Fut: Future<Output = Report> + Send + 'static,
{
    async move {
        let (mut grounds, mut waiting, mut rivals) = (Grounds::FIRST, Waiting::default(), 0);
        // Whoever has seen a record never again takes the store for one that knows of none.
        let mut seen = false;
        let failed = |error: RunError, seen| if seen { error.after_a_record() } else { error };
        loop {
            // Whoever waits only looks; whoever may execute claims at once, without looking first.
            let ready = !waiting.is_seated() && pending.is_ready();
            let Stamped { now, value: found } = if ready {
                pending.engine.refuse_when_stopping()?;
                match pending.claim(grounds).await.map_err(|error| failed(error, seen))? {
                    Stamped { value: Swap::Won(claim), .. } => {
                        return Ok(Walked::Executing(pending.start(claim, home)));
                    }
                    Stamped { now, value: Swap::Lost(found) } => Stamped { now, value: found },
                    Stamped { value: Swap::Unknown, .. } => return Err(RunError::ClaimUncertain),
                }
            } else {
                let read = pending.engine.read(pending.ask.address.slot()).await;
                read.map_err(|error| failed(error.into(), seen))?
            };
            seen |= found.is_some();
            belongs(found.as_deref(), &pending.ask)?;
            match Step::of(decide(&pending.ask, found.as_deref(), now), now) {
                Step::Say(answer) => return Ok(Walked::Answered(answer)),
                Step::Wait { same, lease_left } => {
                    pending.rest();
                    if let Some(answer) =
                        waiting.attend(&pending.engine, &pending.ask, same, lease_left).await
                    {
                        return Ok(Walked::Answered(answer));
                    }
                }
                Step::Execute(next) => {
                    if let Some(answer) = waiting.share(found.as_deref(), now) {
                        return Ok(Walked::Answered(answer));
                    }
                    if rivals == RIVALS_MAX || !pending.is_ready() {
                        return Err(RunError::Busy("too many executions or rivals at once"));
                    }
                    (grounds, rivals) = (next, rivals + 1);
                    waiting.leave();
                }
            }
        }
    }
}

/// No digest, however it came to be equal, may answer for another address.
pub(crate) fn belongs(found: Option<&Record>, ask: &Ask) -> Result<(), RunError> {
    match found {
        Some(record) if record.address != ask.address => Err(RunError::Collision),
        Some(_) | None => Ok(()),
    }
}
