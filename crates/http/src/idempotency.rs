//! What a service holds of Onetake: an engine, who asks, and the settings of a route.
//!
//! A cheap handle; clones share the engine. It is the same for the layer, for durable routes and
//! for the gateway. The type of the store ends here, so that no signature of a user's has to name
//! it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use http::request::Parts;
use onetake_core::{
    Address, Ask, Fence, NameError, Operation, Outcome, Policy, Report, Scope, Standing, Tenant,
};
use onetake_engine::{Answer, Attempt, Doubt, Engine, Home, RunError, Slots};

use crate::execute::Answering;
use crate::layer::IdempotencyLayer;
use crate::new_keys::NewKeys;
use crate::room::{BUFFERED_BYTES_MAX, Room};
use crate::settings::Settings;

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the engine is given to execute.
pub(crate) struct Execution {
    pub(crate) run: Box<dyn FnOnce(Attempt) -> Boxed<'static, Report> + Send>,
    /// Whether it already answers its caller.
    pub(crate) answering: Arc<dyn Answering>,
    /// Where it lives.
    pub(crate) home: Home,
}

/// An engine on some store.
pub(crate) trait Walk: Send + Sync {
    fn run(&self, ask: Ask, execution: Execution) -> Boxed<'static, Result<Answer, RunError>>;

    /// Goes on with what was begun, whoever drops what.
    fn keep(&self, begun: Boxed<'static, ()>);

    /// The answer to `ask`, if it takes nothing but memory.
    fn at_hand(&self, ask: &Ask) -> Option<Result<Answer, RunError>>;

    /// Whether an attempt at `address` would be the first that the store knows of.
    fn is_new<'a>(&'a self, address: &'a Address) -> Boxed<'a, bool>;

    /// The unknown outcome of the claim `fence`, as long as it is that.
    #[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "only a gateway asks"))]
    fn doubt<'a>(
        &'a self,
        address: &'a Address,
        fence: Fence,
    ) -> Boxed<'a, Result<Option<Doubt>, RunError>>;

    /// Makes `outcome` what came of it; whether nobody was faster.
    #[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "only a gateway asks"))]
    fn settle<'a>(
        &'a self,
        doubt: &'a Doubt,
        policy: &'a Policy,
        outcome: Outcome,
    ) -> Boxed<'a, Result<bool, RunError>>;

    /// Executes in place of an attempt that had no effect; `None`: somebody was faster.
    fn recover(
        self: Arc<Self>,
        ask: Ask,
        doubt: Doubt,
        execution: Execution,
    ) -> Boxed<'static, Result<Option<Answer>, RunError>>;

    /// Whether the store answers.
    #[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "only a gateway is asked"))]
    fn ready<'a>(&'a self, probe: &'a Address) -> Boxed<'a, Result<(), RunError>>;
}

impl<S: Slots> Walk for Engine<S> {
    fn run(&self, ask: Ask, execution: Execution) -> Boxed<'static, Result<Answer, RunError>> {
        let Execution { run, answering, home } = execution;
        Box::pin(self.run_answering(ask, run, move || answering.is_answering(), home))
    }

    fn keep(&self, begun: Boxed<'static, ()>) {
        Self::keep(self, begun);
    }

    fn at_hand(&self, ask: &Ask) -> Option<Result<Answer, RunError>> {
        Self::at_hand(self, ask)
    }

    fn is_new<'a>(&'a self, address: &'a Address) -> Boxed<'a, bool> {
        Box::pin(async move {
            match self.get(address).await {
                Ok(found) => found
                    .is_none_or(|found| matches!(found.value.standing(found.now), Standing::Free)),
                // Whatever ails the store is said by the walk.
                Err(_) => false,
            }
        })
    }

    fn doubt<'a>(
        &'a self,
        address: &'a Address,
        fence: Fence,
    ) -> Boxed<'a, Result<Option<Doubt>, RunError>> {
        Box::pin(Self::doubt(self, address, fence))
    }

    fn settle<'a>(
        &'a self,
        doubt: &'a Doubt,
        policy: &'a Policy,
        outcome: Outcome,
    ) -> Boxed<'a, Result<bool, RunError>> {
        Box::pin(self.settle_doubt(doubt, policy, outcome))
    }

    fn recover(
        self: Arc<Self>,
        ask: Ask,
        doubt: Doubt,
        execution: Execution,
    ) -> Boxed<'static, Result<Option<Answer>, RunError>> {
        let Execution { run, answering, home: _ } = execution;
        Box::pin(async move {
            let is_answering = move || answering.is_answering();
            Self::recover(&self, ask, &doubt, run, is_answering).await
        })
    }

    fn ready<'a>(&'a self, probe: &'a Address) -> Boxed<'a, Result<(), RunError>> {
        Box::pin(async move { self.get(probe).await.map(drop) })
    }
}

/// Who asks, as the service verified it; `None` when it did not.
type Identify = dyn Fn(&Parts) -> Option<Scope> + Send + Sync;

/// What a service holds of Onetake. Clones share the engine.
#[derive(Clone)]
pub struct Idempotency {
    pub(crate) walk: Arc<dyn Walk>,
    identify: Arc<Identify>,
    pub(crate) settings: Arc<Settings>,
    /// The name of what is done; `None`: by the request.
    pub(crate) operation: Option<Operation>,
    pub(crate) new_keys: Option<Arc<NewKeys>>,
    pub(crate) room: Room,
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Idempotency {
    /// Keys live in the scope that `identify` finds in a request: what authentication left in its
    /// extensions, for example. A keyed request in which it finds none is refused with 401.
    ///
    /// Never read it from a header or a body that the caller could have written.
    #[must_use]
    pub fn new<S: Slots>(
        engine: Engine<S>,
        identify: impl Fn(&Parts) -> Option<Scope> + Send + Sync + 'static,
    ) -> Self {
        let settings = Arc::new(Settings::default());
        let (walk, identify) = (Arc::new(engine), Arc::new(identify));
        let room = Room::new(BUFFERED_BYTES_MAX);
        Self { walk, identify, settings, operation: None, new_keys: None, room }
    }

    /// Keys live in the [`Scope`] that an earlier layer put into the extensions of a request.
    #[must_use]
    pub fn by_extension<S: Slots>(engine: Engine<S>) -> Self {
        Self::new(engine, |parts| parts.extensions.get::<Scope>().cloned())
    }

    /// All callers share one space of keys. Right for a service with one tenant, wrong for every
    /// other: one caller could hear another's answer.
    ///
    /// # Errors
    /// A [`NameError`] when `tenant` is not a name.
    pub fn single_tenant<S: Slots>(engine: Engine<S>, tenant: &str) -> Result<Self, NameError> {
        let scope = Scope::tenant_named(tenant)?;
        Ok(Self::new(engine, move |_| Some(scope.clone())))
    }

    /// The same engine and callers, with other settings.
    #[must_use]
    pub fn with(&self, settings: Settings) -> Self {
        Self { settings: Arc::new(settings), ..self.clone() }
    }

    /// The same, but a tenant begins at most so many new keys a minute, by `per_minute`; `None`: as
    /// many as it likes. Replays are not counted.
    #[must_use]
    pub fn limit_new_keys(
        mut self,
        per_minute: impl Fn(&Tenant) -> Option<u32> + Send + Sync + 'static,
    ) -> Self {
        self.new_keys = Some(Arc::new(NewKeys::new(per_minute)));
        self
    }

    /// The same, but keyed requests, which are read whole, take at most so many bytes of memory in
    /// all, and those of one tenant half of it; further ones are refused with 503.
    /// [`BUFFERED_BYTES_MAX`] unless said otherwise. Clones that were made before have room of
    /// their own.
    #[must_use]
    pub fn buffered_bytes_max(mut self, bytes: usize) -> Self {
        self.room = Room::new(bytes);
        self
    }

    /// The same, for an operation with a name of its own. Without one it is the method and the
    /// route that matched, or the path where no route is known. The path is part of what was asked
    /// either way.
    #[must_use]
    pub fn named(&self, operation: Operation) -> Self {
        Self { operation: Some(operation), ..self.clone() }
    }

    /// A layer for any tower stack.
    #[must_use]
    pub fn layer(&self) -> IdempotencyLayer {
        IdempotencyLayer(Arc::new(self.clone()))
    }

    pub(crate) fn scope(&self, parts: &Parts) -> Option<Scope> {
        (self.identify)(parts)
    }
}
