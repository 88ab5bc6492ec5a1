//! One operation with its settings, for any async function.

use std::sync::Arc;
use std::time::Duration;

use onetake_core::{
    Asked, Cause, Fence, Finality, Key, NameError, OnInFlight, Operation, Policy, PolicyError,
    Scope, Timestamp,
};
use onetake_engine::{Attempt, Engine, Home, Mint, Slots};

use crate::ask::ask;
use crate::claims::Claims;
use crate::error::ExecuteError;
use crate::reply::{Ending, IntoEnding, Source, Take, Taken, reply, report};

/// One operation with its settings: runs any async function once per key.
pub struct Executor<S> {
    engine: Engine<S>,
    operation: Operation,
    policy: Arc<Policy>,
    /// The unknown outcome that may be executed again.
    recovering: Option<Fence>,
}

impl<S> Clone for Executor<S> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            operation: self.operation.clone(),
            policy: Arc::clone(&self.policy),
            recovering: self.recovering,
        }
    }
}

impl<S> std::fmt::Debug for Executor<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { operation, policy, .. } = self;
        f.debug_struct("Executor")
            .field("operation", operation)
            .field("policy", policy)
            .finish_non_exhaustive()
    }
}

impl<S: Slots> Executor<S> {
    /// The operation `operation` with the default policy.
    #[must_use]
    pub fn new(engine: Engine<S>, operation: Operation) -> Self {
        Self { engine, operation, policy: Arc::default(), recovering: None }
    }

    /// The operation of this name with the default policy.
    ///
    /// # Errors
    /// A [`NameError`] when `operation` is not a name.
    pub fn named(engine: Engine<S>, operation: &str) -> Result<Self, NameError> {
        Ok(Self::new(engine, Operation::new(operation)?))
    }

    /// The same operation under `policy`.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = Arc::new(policy);
        self
    }

    /// The same operation for somebody who has found out that the attempt `fence`, whose outcome
    /// is unknown, had no effect: a call that still finds it so executes in its place, whatever the
    /// policy says of unknown outcomes. Every other attempt is treated as always.
    #[must_use]
    pub const fn recovering(mut self, fence: Fence) -> Self {
        self.recovering = Some(fence);
        self
    }

    /// The settings.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Engine<S> {
        &self.engine
    }

    /// The same operation in single steps, for callers that execute somewhere else.
    #[must_use]
    pub fn claims(&self) -> Claims<S> {
        Claims::new(self.engine.clone(), self.operation.clone(), Arc::clone(&self.policy))
    }

    /// Runs `function` at most once at a time for `key`, never again once its result is kept, and
    /// gives every call the same result. Without a key it is simply run.
    ///
    /// `function` runs in a task of its own, so it must own what it uses.
    ///
    /// # Errors
    /// The function's own failure, a refusal, or a failure of ours; see [`ExecuteError`].
    ///
    /// # Cancel safety
    /// With a key, dropping the future changes nothing but who hears the result. Without one, it
    /// drops the function.
    pub async fn execute<'k, F, Fut>(
        &self,
        scope: &Scope,
        key: impl Into<Option<&'k Key>>,
        asked: Asked,
        function: F,
    ) -> Taken<Fut::Output>
    where
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output: IntoEnding> + Send + 'static,
    {
        self.execute_by(&self.policy, scope, key.into(), asked, function, || false).await
    }

    /// A call with settings of its own; end it with [`Call::execute`].
    pub fn call<'a>(&'a self, scope: &'a Scope, key: &'a Key, asked: Asked) -> Call<'a, S> {
        let policy = Ok(Arc::clone(&self.policy));
        Call { executor: self, scope, key, asked, policy }
    }

    /// Runs `function` under `policy`. A caller of whom `is_answering` says so is kept to the end.
    pub(crate) async fn execute_by<F, Fut>(
        &self,
        policy: &Arc<Policy>,
        scope: &Scope,
        key: Option<&Key>,
        asked: Asked,
        function: F,
        is_answering: impl FnOnce() -> bool + Send,
    ) -> Taken<Fut::Output>
    where
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output: IntoEnding> + Send + 'static,
    {
        let Some(key) = key else { return pass_through(function).await };
        let ask = ask(scope, &self.operation, key, asked, policy);
        // The function is called inside the execution, so that a panic in it is the execution's.
        let execute = |attempt| async move { report(function(attempt).await.into_ending()) };
        let doubt = match self.recovering {
            Some(fence) => self.engine.doubt(&ask.address, fence).await?,
            None => None,
        };
        let Some(doubt) = doubt else {
            if let Some(known) = self.engine.at_hand(&ask) {
                return reply(known);
            }
            return reply(
                self.engine.run_answering(ask, execute, is_answering, Home::Engine).await,
            );
        };
        match self.engine.recover(ask, &doubt, execute, is_answering).await.transpose() {
            Some(ended) => reply(ended),
            // Somebody else was faster; whoever asks again hears what that came to.
            None => Err(ExecuteError::Freed),
        }
    }
}

/// K6: no key, nothing remembered.
async fn pass_through<F, Fut>(function: F) -> Taken<Fut::Output>
where
    F: FnOnce(Attempt) -> Fut,
    Fut: Future<Output: IntoEnding>,
{
    let fence = Mint::default().fence();
    let attempt = Attempt { key: None, fence, number: 1, recovery: false };
    match function(attempt).await.into_ending() {
        Ending::Succeeded(value) => Ok(Take { value, source: Source::PassedThrough }),
        Ending::Failed(failure) | Ending::Retryable(failure) | Ending::NotDispatched(failure) => {
            Err(ExecuteError::Failed { failure, repeat: false })
        }
        Ending::Unknown => {
            let (since, cause) = (Timestamp::ZERO, Cause::Reported);
            Err(ExecuteError::Unknown { fence, since, cause })
        }
    }
}

/// One call with settings of its own.
#[must_use = "a call does nothing until it is executed"]
pub struct Call<'a, S> {
    executor: &'a Executor<S>,
    scope: &'a Scope,
    key: &'a Key,
    asked: Asked,
    policy: Result<Arc<Policy>, PolicyError>,
}

impl<S> std::fmt::Debug for Call<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("key", self.key).finish_non_exhaustive()
    }
}

impl<S: Slots> Call<'_, S> {
    /// How long this call's result is kept.
    pub fn retention(self, retention: Duration) -> Self {
        self.set(|policy| policy.to_builder().retention(retention).build())
    }

    /// Whether this call waits while another worker executes.
    pub fn on_in_flight(self, choice: OnInFlight) -> Self {
        self.set(|policy| policy.to_builder().on_in_flight(choice).build())
    }

    /// Whether this call's failure is kept as a result or frees the key.
    pub fn failures(self, finality: Finality) -> Self {
        self.set(|policy| policy.to_builder().failures(finality).build())
    }

    fn set(mut self, change: impl FnOnce(&Policy) -> Result<Policy, PolicyError>) -> Self {
        self.policy = self.policy.and_then(|policy| change(&policy).map(Arc::new));
        self
    }

    /// Executes as [`Executor::execute`] does.
    ///
    /// # Errors
    /// The same, and [`ExecuteError::Policy`] when a setting is out of bounds: then nothing was
    /// done.
    ///
    /// # Cancel safety
    /// As [`Executor::execute`].
    pub async fn execute<F, Fut>(self, function: F) -> Taken<Fut::Output>
    where
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output: IntoEnding> + Send + 'static,
    {
        let Self { executor, scope, key, asked, policy } = self;
        executor.execute_by(&policy?, scope, Some(key), asked, function, || false).await
    }
}
