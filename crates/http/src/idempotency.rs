//! What a service holds of Onetake: an engine, who asks, and the settings of a route.
//!
//! A cheap handle; clones share the engine. It is the same for the layer, for durable routes and
//! for the gateway. The type of the store ends here, so that no signature of a user's has to name
//! it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use http::request::Parts;
use onetake_core::{Ask, NameError, Operation, Report, Scope};
use onetake_engine::{Answer, Attempt, Engine, RunError, Slots};

use crate::layer::IdempotencyLayer;
use crate::settings::Settings;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the engine is given to execute.
pub(crate) type Execution = Box<dyn FnOnce(Attempt) -> Boxed<'static, Report> + Send>;

/// An engine on some store.
pub(crate) trait Walk: Send + Sync {
    fn run(&self, ask: Ask, execution: Execution) -> Boxed<'_, Result<Answer, RunError>>;
}

impl<S: Slots> Walk for Engine<S> {
    fn run(&self, ask: Ask, execution: Execution) -> Boxed<'_, Result<Answer, RunError>> {
        Box::pin(Self::run(self, ask, execution))
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
        Self { walk: Arc::new(engine), identify: Arc::new(identify), settings }
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

    /// The same, for an operation with a name of its own.
    ///
    /// # Errors
    /// A [`NameError`] when `operation` is not a name.
    pub fn operation(&self, operation: &str) -> Result<Self, NameError> {
        let operation = Operation::new(operation)?;
        Ok(self.with(Settings::clone(&self.settings).named(operation)))
    }

    /// A layer for any tower stack.
    #[must_use]
    pub fn layer(&self) -> IdempotencyLayer {
        IdempotencyLayer(self.clone())
    }

    pub(crate) fn scope(&self, parts: &Parts) -> Option<Scope> {
        (self.identify)(parts)
    }
}
