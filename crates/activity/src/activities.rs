//! The invocation log: what the nodes of a workflow run do to the world, each once.
//!
//! A node enters, names its calls in the order in which it intends them, and gets the kept result
//! of every call that was made before: by an earlier attempt, by another worker, or before a crash.
//! The claim is durable before the effect, and the result before the node sees it. Nothing here
//! opens a connection or knows what a workflow is.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use onetake_core::{Asked, Fence, Operation, Policy, PolicyError, Scope, Tenant};
use onetake_engine::{Attempt, Engine, Slots};
use serde::Serialize;

use crate::error::ExecuteError;
use crate::executor::Executor;
use crate::invocation::{IdentityForm, Invocation, InvocationError, InvocationId};
use crate::providers::{Provider, Providers};
use crate::reply::{IntoEnding, Taken};

/// Where the records of calls are: no caller's key is ever among them.
const OPERATION: &str = "activity.invocations";

/// The invocation log of an engine.
pub struct Activities<S> {
    executor: Executor<S>,
    form: IdentityForm,
    providers: Arc<Providers>,
}

impl<S> Clone for Activities<S> {
    fn clone(&self) -> Self {
        let (executor, providers) = (self.executor.clone(), Arc::clone(&self.providers));
        Self { executor, form: self.form, providers }
    }
}

impl<S> std::fmt::Debug for Activities<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Activities").field("form", &self.form).finish_non_exhaustive()
    }
}

impl<S: Slots> Activities<S> {
    /// The log of this engine: results and failures are kept for 14 days, under the current form of
    /// identities.
    #[must_use]
    pub fn new(engine: Engine<S>) -> Self {
        let operation = Operation::new(OPERATION).expect("invariant: it is a name");
        let policy = Policy::activity().build().expect("invariant: its settings are in bounds");
        let executor = Executor::new(engine, operation).with_policy(policy);
        let (form, providers) = (IdentityForm::default(), Arc::default());
        Self { executor, form, providers }
    }

    /// The same log with identities of another form. All that share a log must agree on it.
    #[must_use]
    pub const fn with_form(mut self, form: IdentityForm) -> Self {
        self.form = form;
        self
    }

    /// The same log with another table of providers.
    #[must_use]
    pub fn with_providers(mut self, providers: Providers) -> Self {
        self.providers = Arc::new(providers);
        self
    }

    /// The same log, which keeps results for so long.
    ///
    /// # Errors
    /// A [`PolicyError`] when that is out of bounds.
    pub fn with_retention(mut self, retention: Duration) -> Result<Self, PolicyError> {
        let policy = self.executor.policy().to_builder().retention(retention).build()?;
        self.executor = self.executor.with_policy(policy);
        Ok(self)
    }

    /// The log under other settings, whatever they say of unknown outcomes: that is the provider's.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.executor = self.executor.with_policy(policy);
        self
    }

    /// The same log for somebody who has found out that the call `fence`, whose outcome is unknown,
    /// may be made again: that one is, whatever is known of its provider, and no other.
    #[must_use]
    pub fn recovering(mut self, fence: Fence) -> Self {
        self.executor = self.executor.recovering(fence);
        self
    }

    /// Enters a node, with its first call next. A node that is run again, for whatever reason,
    /// enters again: its calls are counted from the start, and so have the names they had.
    #[must_use]
    pub fn enter(&self, site: Site) -> NodeCalls<S> {
        NodeCalls { activities: self.clone(), site, next: 0, called: HashSet::new() }
    }
}

/// Where a call comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Whose run it is. From verified identity only.
    pub tenant: Tenant,
    /// The run.
    pub run: String,
    /// The node.
    pub node: String,
    /// Which attempt of the node it is, from zero. It is on no record in the current form.
    pub attempt: u32,
}

/// The calls of one node, counted as they are named.
pub struct NodeCalls<S> {
    activities: Activities<S>,
    site: Site,
    next: u32,
    /// The providers that were called, where each may be once.
    called: HashSet<String>,
}

impl<S> std::fmt::Debug for NodeCalls<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { site, next, .. } = self;
        f.debug_struct("NodeCalls").field("site", site).field("next", next).finish_non_exhaustive()
    }
}

/// What an effect is told about the call that it makes.
#[derive(Debug, Clone)]
pub struct Calling {
    /// The identity of the call: for the provider, in [`Provider::header`].
    pub id: InvocationId,
    /// What is known of the provider.
    pub provider: Provider,
    /// The attempt. After a recovery the provider may have been called before.
    pub attempt: Attempt,
}

/// A call that has its name, and how it is executed.
pub(crate) struct Named<S> {
    pub(crate) id: InvocationId,
    pub(crate) provider: Provider,
    pub(crate) executor: Executor<S>,
    pub(crate) scope: Scope,
}

impl<S: Slots> NodeCalls<S> {
    /// Makes the next call, or gives what came of it when it was made before. `request` is what is
    /// asked of the provider: a node that asks for something else under the same identity is not
    /// deterministic, and is told so.
    ///
    /// `effect` runs in a task of its own, so it must own what it uses.
    ///
    /// # Errors
    /// The effect's own failure, which is kept as its result, or why there is none; see
    /// [`ExecuteError`]. [`ExecuteError::Unknown`]: the provider may have been called, and does not
    /// recognise a second call.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing but who hears the result.
    pub async fn call<F, Fut>(
        &mut self,
        provider: &str,
        request: &(impl Serialize + ?Sized),
        effect: F,
    ) -> Taken<Fut::Output>
    where
        F: FnOnce(Calling) -> Fut + Send + 'static,
        Fut: Future<Output: IntoEnding> + Send + 'static,
    {
        let Named { id, provider, executor, scope } = self.next(provider)?;
        let asked = serde_json::to_vec(request).map_err(|_| InvocationError::Request)?;
        let asked = Asked::json(asked).map_err(|_| InvocationError::Request)?;
        let key = id.key().clone();
        let effect = move |attempt| effect(Calling { id, provider, attempt });
        executor.execute(&scope, &key, asked, effect).await
    }

    /// Names the next call, and finds what is known of its provider.
    pub(crate) fn next<E>(&mut self, provider: &str) -> Result<Named<S>, ExecuteError<E>> {
        let id = self.name(provider)?;
        let Activities { executor, providers, .. } = &self.activities;
        let provider = providers.of(provider);
        let policy = executor.policy().to_builder().on_unknown(provider.on_unknown).build()?;
        let executor = executor.clone().with_policy(policy);
        let scope = Scope::tenant_wide(self.site.tenant.clone());
        Ok(Named { id, provider, executor, scope })
    }

    /// Names the next call.
    fn name(&mut self, provider: &str) -> Result<InvocationId, InvocationError> {
        let Site { tenant, run, node, attempt } = &self.site;
        let (ordinal, attempt) = (self.next, *attempt);
        let call = Invocation { tenant, run, node, ordinal, attempt, provider };
        let id = call.id(self.activities.form)?;
        // In the current form the ordinal tells calls apart.
        let is_once = self.activities.form == IdentityForm::Source;
        if is_once && !self.called.insert(provider.to_owned()) {
            return Err(InvocationError::Again);
        }
        self.next += 1;
        Ok(id)
    }
}
