//! An attempt that wants to execute, until its claim is decided.
//!
//! The caller may go away while the claim is on its way to the store. Then nobody knows whether it
//! was written, and an orphaned claim would lapse into a needless unknown. So [`Pending`] finishes
//! what was begun: when dropped in the middle of a claim, it repeats the very same write in a task
//! of the engine and, if it wins, executes as if the caller were still there.

use std::marker::PhantomData;
use std::sync::Arc;

use onetake_core::{
    Ask, DELIVERY_MAX, Draft, Grounds, Policy, Record, Report, Settlement, Version,
};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::answer::Attempt;
use crate::engine::{Engine, Permit};
use crate::error::RunError;
use crate::lease::{Held, Home, Told};
use crate::store::{Slots, Stamped, Swap};

/// How often a claim is repeated while the store cannot say whether it is written.
const CLAIM_TRIES_MAX: u32 = 6;

/// A claim on its way: what it expects, what it writes, and since when.
struct Claiming {
    expected: Option<Version>,
    draft: Draft,
    sent: Instant,
}

/// An attempt that wants to execute.
pub(crate) struct Pending<S, F, Fut>
where
    S: Slots,
    F: FnOnce(Attempt) -> Fut + Send + 'static,
    Fut: Future<Output = Report> + Send + 'static,
{
    pub(crate) ask: Ask,
    pub(crate) engine: Engine<S>,
    permit: Option<Permit<S>>,
    execute: Option<F>,
    claiming: Option<Claiming>,
    makes: PhantomData<fn() -> Fut>,
}

impl<S, F, Fut> Pending<S, F, Fut>
where
    S: Slots,
    F: FnOnce(Attempt) -> Fut + Send + 'static,
    Fut: Future<Output = Report> + Send + 'static,
{
    pub(crate) const fn new(engine: Engine<S>, ask: Ask, execute: F) -> Self {
        let execute = Some(execute);
        Self { ask, engine, permit: None, execute, claiming: None, makes: PhantomData }
    }

    /// Whether this process may execute one more; takes the permit if so. It comes before the
    /// claim, so that no claim is ever made that cannot be executed.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.permit = self.permit.take().or_else(|| self.engine.permit());
        self.permit.is_some()
    }

    /// Gives the permit back: whoever waits for another's outcome must not keep others from
    /// executing.
    pub(crate) fn rest(&mut self) {
        self.permit = None;
    }

    /// Tries to claim the slot on `grounds`. Never gives [`Swap::Unknown`].
    pub(crate) async fn claim(&mut self, grounds: Grounds) -> Result<Stamped<Swap>, RunError> {
        let fence = self.engine.0.mint.fence_above(grounds.above);
        let draft = self.ask.claim(grounds, fence, fence.0);
        let claiming = Claiming { expected: grounds.expected, draft, sent: Instant::now() };
        let claiming = self.claiming.insert(claiming);
        let reply = self.engine.claim(claiming, &self.ask.policy).await;
        if !matches!(&reply, Ok(Stamped { value: Swap::Won(_), .. })) {
            self.claiming = None;
        }
        reply
    }

    /// Starts to execute under `claim`, which was won. What comes of it is told where the caller
    /// listens.
    pub(crate) fn start(&mut self, claim: Arc<Record>, home: Home) -> Told {
        let claiming = self.claiming.take().expect("invariant: a won claim was on its way");
        let execute = self.execute.take().expect("invariant: nothing executed before the claim");
        let permit = self.permit.take().expect("invariant: no claim without a permit");
        Held::new(permit, claim, Arc::clone(&self.ask.policy), claiming.sent).start(execute, home)
    }
}

impl<S, F, Fut> Drop for Pending<S, F, Fut>
where
    S: Slots,
    F: FnOnce(Attempt) -> Fut + Send + 'static,
    Fut: Future<Output = Report> + Send + 'static,
{
    fn drop(&mut self) {
        let parts = (self.claiming.take(), self.execute.take(), self.permit.take());
        let (Some(claiming), Some(execute), Some(permit)) = parts else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (engine, policy) = (self.engine.clone(), Arc::clone(&self.ask.policy));
        let finish = async move {
            let reply = engine.claim(&claiming, &policy).await;
            if let Ok(Stamped { value: Swap::Won(claim), .. }) = reply {
                drop(Held::new(permit, claim, policy, claiming.sent).start(execute, Home::Engine));
            }
        };
        self.engine.0.tasks.spawn_on(finish, &runtime);
    }
}

impl<S: Slots> Engine<S> {
    /// Repeats one claim until the store can say whether it is written.
    async fn claim(
        &self,
        claiming: &Claiming,
        policy: &Arc<Policy>,
    ) -> Result<Stamped<Swap>, RunError> {
        let Claiming { expected, draft, .. } = claiming;
        let mut unsure = None;
        for failures in 1..=CLAIM_TRIES_MAX {
            match self.swap(*expected, draft).await {
                Ok(Stamped { value: Swap::Unknown, .. }) => unsure = Some(RunError::ClaimUncertain),
                // This call wrote nothing, but one before it may have.
                Err(error) if unsure.is_some() => unsure = Some(error.into()),
                Err(error) => return Err(error.into()),
                Ok(known) => return Ok(known),
            }
            // Whoever insists for longer could meet its own tombstone.
            if claiming.sent.elapsed() >= DELIVERY_MAX / 2 {
                break;
            }
            Box::pin(self.pause(failures)).await;
        }
        self.disown_later(draft.clone(), *expected, Arc::clone(policy));
        Err(unsure.unwrap_or(RunError::ClaimUncertain))
    }

    /// Takes back a claim in a task of its own.
    pub(crate) fn disown_later(
        &self,
        draft: Draft,
        expected: Option<Version>,
        policy: Arc<Policy>,
    ) {
        let engine = self.clone();
        self.0.tasks.spawn(async move { engine.disown(&draft, expected, &policy).await });
    }

    /// Takes back a claim that nobody will execute, if it is written after all, for as long as a
    /// copy of it may still be under way. Only the claimant may do this, and only because it knows
    /// that nothing was dispatched.
    pub(crate) async fn disown<T: Sync>(
        &self,
        claim: &Record<T>,
        expected: Option<Version>,
        policy: &Policy,
    ) {
        let (started, mut failures) = (Instant::now(), 0);
        while started.elapsed() < DELIVERY_MAX {
            failures += 1;
            self.pause(failures).await;
            let Ok(Stamped { value: found, .. }) = self.read(claim.address.slot()).await else {
                continue;
            };
            // What the claim would replace is still there: it may yet arrive.
            if found.as_ref().map(|there| there.version) == expected {
                continue;
            }
            let ours = found.filter(|there| there.fence == claim.fence && there.is_open());
            let Some(there) = ours else { return };
            let release = Settlement::Freed(None).draft(&there, policy, self.0.mint.id());
            let reply = self.swap(Some(there.version), &release).await;
            if let Ok(Stamped { value: Swap::Won(_), .. }) = reply {
                return self.0.waiters.nudge(claim.address.slot());
            }
        }
    }
}
