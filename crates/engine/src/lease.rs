//! A claim that was won: its execution, and the lease that keeps it alive.
//!
//! Execution, heartbeat and completion are one future and take turns in it, so none of them can
//! race another, and an execution that is stopped is gone before anything else happens. Nobody who
//! goes away cancels anything here: that future is in a task of the engine, and the caller holds
//! only an ear; or, where the caller asked for it, it is in the caller's task and moves into one of
//! the engine's when the caller goes. Code that blocks its thread also holds up its heartbeat; it
//! belongs in a blocking task.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use onetake_core::{Cause, Policy, Record, Report, Settlement};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::TaskTracker;

use crate::answer::{Answer, Attempt};
use crate::engine::{Engine, Permit, UNSURE};
use crate::error::RunError;
use crate::store::{Slots, Stamped, Swap};

/// Heartbeats in one lease: two may fail before it lapses.
const BEATS_PER_LEASE: u32 = 3;

/// Where an execution lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// In a task of the engine, from the beginning.
    Engine,
    /// In the task of its caller, and in one of the engine once the caller has gone: that spares a
    /// task where many small things are executed.
    ///
    /// For callers who poll their future until it is ready, or drop it: one that is kept and not
    /// polled stands still, and its lease runs out. And for executions that do not mind to be
    /// moved: what their first task knows by itself, as task-locals do, is not there in the second.
    Caller,
}

type Heard = Result<Answer, RunError>;

/// The caller's ear: dropping it stops nothing.
pub(crate) enum Told {
    There(JoinHandle<Heard>),
    Here(Here),
}

/// An execution in the task of its caller.
pub(crate) struct Here {
    /// `None` once it has ended.
    own: Option<Pin<Box<dyn Future<Output = Heard> + Send>>>,
    tasks: TaskTracker,
    runtime: Handle,
}

impl Future for Told {
    type Output = Heard;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Heard> {
        match self.get_mut() {
            Self::There(task) => {
                Pin::new(task).poll(cx).map(|ended| ended.unwrap_or(Err(RunError::Lost)))
            }
            Self::Here(here) => here.poll(cx),
        }
    }
}

impl Here {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Heard> {
        // Taken out meanwhile: what has panicked must not be looked at again.
        let Some(mut own) = self.own.take() else { return Poll::Ready(Err(RunError::Lost)) };
        match catch_unwind(AssertUnwindSafe(|| own.as_mut().poll(cx))) {
            Ok(Poll::Ready(ended)) => Poll::Ready(ended),
            Ok(Poll::Pending) => {
                self.own = Some(own);
                Poll::Pending
            }
            Err(_) => Poll::Ready(Err(RunError::Lost)),
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            drop(self.tasks.spawn_on(own, &self.runtime));
        }
    }
}

/// A claim that was won, and everything that its owner needs.
pub(crate) struct Held<S> {
    /// Given back when the claim is settled; it knows the engine.
    permit: Permit<S>,
    /// The claim as it was last seen; its version changes with every renewal.
    pub(crate) claim: Arc<Record>,
    pub(crate) policy: Arc<Policy>,
    /// When the claim, or its last renewal, was sent: from then on its lease is counted here.
    sent: Instant,
}

/// Another claim has taken the place of ours.
pub(crate) struct Fenced;

impl<S: Slots> Held<S> {
    pub(crate) const fn new(
        permit: Permit<S>,
        claim: Arc<Record>,
        policy: Arc<Policy>,
        sent: Instant,
    ) -> Self {
        Self { permit, claim, policy, sent }
    }

    pub(crate) const fn engine(&self) -> &Engine<S> {
        &self.permit.0
    }

    /// Starts the execution.
    pub(crate) fn start<F, Fut>(self, execute: F, home: Home) -> Told
    where
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Report> + Send + 'static,
    {
        let tasks = self.engine().0.tasks.clone();
        match home {
            Home::Engine => Told::There(tasks.spawn(self.own(execute))),
            Home::Caller => Told::Here(Here {
                own: Some(Box::pin(self.own(execute))),
                tasks,
                runtime: Handle::current(),
            }),
        }
    }

    /// What is rare, or large and soon over, is boxed: a claim that is executing must be small, for
    /// there may be a hundred thousand of them. For the same reason this is a block and not an
    /// async function, which would hold its arguments twice.
    #[allow(clippy::manual_async_fn, reason = "it would be half as large again")]
    fn own<F, Fut>(mut self, execute: F) -> impl Future<Output = Result<Answer, RunError>> + Send
    where
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Report> + Send + 'static,
    {
        async move {
            // Looked at here and not when it was spawned: this task may have been slow to start.
            let late = self.sent.elapsed() >= self.policy.lease() / BEATS_PER_LEASE;
            if late && !self.is_fresh().await {
                let tasks = self.engine().0.tasks.clone();
                tasks.spawn(
                    async move { self.engine().disown(&self.claim, None, &self.policy).await },
                );
                return Err(RunError::ClaimUncertain);
            }
            self.engine().0.meters.executing.increment(1.0);
            let settlement = self.keep(execute).await;
            self.engine().0.meters.executing.decrement(1.0);
            match settlement {
                Ok(settlement) => Box::pin(self.record(settlement)).await,
                Err(Fenced) => Err(self.fenced()),
            }
        }
    }

    /// Whether the lease of a late claim certainly runs after all. It may have lapsed on the way,
    /// and nothing was dispatched yet, so it is renewed first, or given up. Counted from when the
    /// call is sent, on a watch that only measures spans.
    async fn is_fresh(&mut self) -> bool {
        let renewed = Box::pin(self.beat()).await;
        matches!(renewed, Ok(true)) && self.sent.elapsed() < self.policy.lease() / BEATS_PER_LEASE
    }

    /// Executes, and renews the lease until that ends, its time is up, or somebody took the claim
    /// over. When this returns, nothing of the execution is left.
    async fn keep<F, Fut>(&mut self, execute: F) -> Result<Settlement, Fenced>
    where
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Report> + Send + 'static,
    {
        let limit = self.policy.timeout().map(|limit| Instant::now() + limit);
        // A panic in the function itself is the execution's, not ours, as one in its future is.
        let told = attempt(&self.claim);
        let Ok(execution) = catch_unwind(AssertUnwindSafe(|| execute(told))) else {
            return Ok(Settlement::of_panic(&self.policy));
        };
        let mut execution = pin!(execution);
        let mut execution = poll_fn(move |cx| caught(execution.as_mut(), cx));
        loop {
            let next = next_beat(&self.policy, self.sent, limit);
            if let Ok(ended) = timeout_at(next, &mut execution).await {
                return Ok(self.settlement(ended));
            }
            if limit.is_some_and(|limit| Instant::now() >= limit) {
                return Ok(Settlement::Unknown(Cause::TimedOut));
            }
            let mut beat = Box::pin(self.beat());
            // Boxed, and told after the choice: otherwise every claim that is executing would have
            // room for it.
            let ended = tokio::select! {
                biased;
                beaten = &mut beat => {
                    beaten?;
                    None
                }
                ended = &mut execution => Some(Box::new(ended)),
            };
            if let Some(ended) = ended {
                // The completion comes after the renewal that is on its way, never beside it.
                let _ = beat.await;
                return Ok(self.settlement(*ended));
            }
        }
    }

    /// What an execution comes to, also when it panicked.
    fn settlement(&self, ended: Result<Report, Panicked>) -> Settlement {
        match ended {
            Ok(report) => Settlement::of(report, &self.policy),
            Err(Panicked) => Settlement::of_panic(&self.policy),
        }
    }

    /// Renews the lease once. Gives whether the store confirmed it; a store that is down is no
    /// reason to give up, for the claim is ours until somebody takes it over.
    pub(crate) async fn beat(&mut self) -> Result<bool, Fenced> {
        self.sent = Instant::now();
        let (slot, lease) = (self.claim.address.slot(), self.policy.lease());
        let renewal = self.engine().renew(slot, self.claim.version, lease);
        // A renewal that hangs must not take the place of the next one.
        match timeout(lease / BEATS_PER_LEASE, renewal).await.unwrap_or(UNSURE) {
            Ok(Stamped { value: Swap::Won(claim), .. }) => {
                self.claim = claim;
                Ok(true)
            }
            Ok(Stamped { value: Swap::Lost(found), .. }) => self.adopt(found).map(|()| false),
            Ok(Stamped { value: Swap::Unknown, .. }) | Err(_) => {
                self.engine().0.meters.renewals_failed.increment(1);
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

/// What an execution is told about itself.
fn attempt(claim: &Record) -> Attempt {
    let key = Some(claim.address.key().clone());
    let Record { fence, attempt: number, recovery, .. } = *claim;
    Attempt { key, fence, number, recovery }
}

/// When to renew next, counted from when the last renewal was sent, or when the time is up, if that
/// comes first.
fn next_beat(policy: &Policy, sent: Instant, limit: Option<Instant>) -> Instant {
    let beat = sent + policy.lease() / BEATS_PER_LEASE;
    limit.map_or(beat, |limit| limit.min(beat))
}

/// An execution panicked. It is never looked at again.
struct Panicked;

/// Looks whether an execution has ended, also by a panic.
fn caught(
    execution: Pin<&mut impl Future<Output = Report>>,
    cx: &mut Context<'_>,
) -> Poll<Result<Report, Panicked>> {
    match catch_unwind(AssertUnwindSafe(|| execution.poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    }
}

/// Waits for the answer of an execution, as long as the policy keeps a caller. One who is being
/// answered already is kept to the end.
pub(crate) async fn hear(
    mut told: Told,
    policy: &Policy,
    is_answering: impl FnOnce() -> bool,
) -> Result<Answer, RunError> {
    match policy.answer_within() {
        None => told.await,
        Some(limit) => match Box::pin(timeout(limit, &mut told)).await {
            Ok(heard) => heard,
            Err(_) if is_answering() => told.await,
            Err(_) => Ok(Answer::StillExecuting { retry_after: policy.lease() }),
        },
    }
}
