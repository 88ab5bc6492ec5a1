//! The same operation in single steps: claim, then renew, complete or release under the fence.
//!
//! For callers that execute somewhere else. Nothing runs in the background: a claimant that falls
//! silent lapses, and its outcome is unknown.

use std::sync::Arc;
use std::time::Duration;

use onetake_core::{
    Address, Asked, Cause, Fence, Key, Operation, Outcome, Policy, Record, Report, Scope,
};
use onetake_engine::{Answer, Claim, Engine, RunError, Slots, Stamped, Tried};
use serde::Serialize;

use crate::ask::ask;
use crate::reply::encode;

/// One operation in single steps.
#[derive(Debug)]
pub struct Claims<S> {
    engine: Engine<S>,
    operation: Operation,
    policy: Arc<Policy>,
}

impl<S> Clone for Claims<S> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            operation: self.operation.clone(),
            policy: Arc::clone(&self.policy),
        }
    }
}

impl<S: Slots> Claims<S> {
    pub(crate) const fn new(engine: Engine<S>, operation: Operation, policy: Arc<Policy>) -> Self {
        Self { engine, operation, policy }
    }

    /// Tries to claim `key`, without waiting.
    ///
    /// # Errors
    /// A [`RunError`] when the store failed.
    ///
    /// # Cancel safety
    /// Dropping the future may leave a claim that nobody holds; it lapses with its lease.
    pub async fn try_claim(
        &self,
        scope: &Scope,
        key: &Key,
        asked: Asked,
    ) -> Result<Tried, RunError> {
        self.engine.try_claim(&ask(scope, &self.operation, key, asked, &self.policy)).await
    }

    /// Renews the lease of `claim`; gives how long it lives now.
    ///
    /// # Errors
    /// [`RunError::Fenced`] when it is no longer this claim's; otherwise the store failed.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the lease renewed or not.
    pub async fn renew(&self, claim: &Claim) -> Result<Duration, RunError> {
        self.engine.renew_claim(&claim.address, claim.fence, &self.policy).await
    }

    /// Records what came of `claim`; the policy says what becomes of it. Saying the same again
    /// changes nothing.
    ///
    /// # Errors
    /// [`RunError::Fenced`] when it is no longer this claim's; otherwise the store failed, and it
    /// must be said again.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the result recorded or not; say it again.
    pub async fn store_result(&self, claim: &Claim, outcome: Outcome) -> Result<Answer, RunError> {
        self.settle(claim, Report::Finished(outcome)).await
    }

    /// Records a typed value, as [`crate::Executor::execute`] would have.
    ///
    /// # Errors
    /// As [`Claims::store_result`].
    ///
    /// # Cancel safety
    /// As [`Claims::store_result`].
    pub async fn store_value<T>(&self, claim: &Claim, value: &T) -> Result<Answer, RunError>
    where
        T: Serialize + Sync,
    {
        self.store_result(claim, encode(value, Outcome::Value)).await
    }

    /// Frees `claim` because nothing was done.
    ///
    /// # Errors
    /// As [`Claims::store_result`].
    ///
    /// # Cancel safety
    /// As [`Claims::store_result`].
    pub async fn release_claim(&self, claim: &Claim) -> Result<(), RunError> {
        let nothing = Outcome::NotKept { status: None };
        self.settle(claim, Report::NotDispatched(nothing)).await.map(drop)
    }

    /// Says of `claim` that nobody knows whether its effect happened.
    ///
    /// # Errors
    /// As [`Claims::store_result`].
    ///
    /// # Cancel safety
    /// As [`Claims::store_result`].
    pub async fn report_unknown(&self, claim: &Claim) -> Result<(), RunError> {
        self.settle(claim, Report::Unknown(Cause::Reported)).await.map(drop)
    }

    /// Settles an unknown outcome after somebody found out what happened: `fence` is the one that
    /// [`crate::ExecuteError::Unknown`] or [`Answer::Unknown`] named. `None` says that nothing
    /// happened and frees the key.
    ///
    /// # Errors
    /// [`RunError::Fenced`] when it was settled or taken over meanwhile; otherwise the store
    /// failed, and it must be said again.
    ///
    /// # Cancel safety
    /// As [`Claims::store_result`].
    pub async fn resolve(
        &self,
        scope: &Scope,
        key: &Key,
        fence: Fence,
        outcome: Option<Outcome>,
    ) -> Result<Answer, RunError> {
        let address = Address::new(scope.clone(), self.operation.clone(), key.clone());
        let nothing = || Report::NotDispatched(Outcome::NotKept { status: None });
        let report = outcome.map_or_else(nothing, Report::Finished);
        self.engine.settle_claim(&address, fence, &self.policy, report).await
    }

    /// Records `outcome` without executing anything; never replaces a live or unknown claim.
    ///
    /// # Errors
    /// A [`RunError`] when the store failed.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the outcome recorded or not.
    pub async fn set(
        &self,
        scope: &Scope,
        key: &Key,
        asked: Asked,
        outcome: Outcome,
    ) -> Result<Answer, RunError> {
        self.engine.set(&ask(scope, &self.operation, key, asked, &self.policy), outcome).await
    }

    /// What is remembered of `key`; nothing when it has expired.
    ///
    /// # Errors
    /// A [`RunError`] when the store failed.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn get(
        &self,
        scope: &Scope,
        key: &Key,
    ) -> Result<Option<Stamped<Arc<Record>>>, RunError> {
        let address = Address::new(scope.clone(), self.operation.clone(), key.clone());
        self.engine.get(&address).await
    }

    /// Removes everything that has expired, of every operation; gives how many records went. A
    /// sweeper does the same unasked.
    ///
    /// # Errors
    /// When the store failed.
    ///
    /// # Cancel safety
    /// Stops between two steps.
    pub async fn cleanup(&self) -> Result<usize, RunError> {
        self.engine.cleanup().await
    }

    async fn settle(&self, claim: &Claim, report: Report) -> Result<Answer, RunError> {
        self.engine.settle_claim(&claim.address, claim.fence, &self.policy, report).await
    }
}
