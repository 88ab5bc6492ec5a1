//! The settings of one route: what counts, how much is read, what is kept.
//!
//! Plain values with safe defaults; what they mean is decided elsewhere. A setting that contradicts
//! a promise cannot be built.

use std::sync::Arc;
use std::time::Duration;

use onetake_core::{
    Algorithm, Filters, Method, OnInFlight, Pointer, Policy, PolicyBuilder, PolicyError,
    TooManyFilters,
};

use crate::dialect::{Dialect, OnNoKey};

/// The most bytes of a request, and of a response that is kept, unless said otherwise.
pub const BODY_BYTES_MAX: usize = 10 << 20;
/// How long a body may take to arrive, unless said otherwise.
pub const BODY_WITHIN: Duration = Duration::from_secs(30);

/// The part of what was asked that is the method: an operation may have several.
pub(crate) const METHOD: &str = "method";
/// The part of what was asked that is the path, as far as the operation does not name it.
pub(crate) const PATH: &str = "path";
/// The part of what was asked that is the query.
pub(crate) const QUERY: &str = "query";

/// What a request that carries no key gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keyless {
    /// What the dialect says, or a route against it.
    By(OnNoKey),
    /// A key that is made of what is asked: the same request within this window is a duplicate.
    Derive(Duration),
}

/// What happens to requests while the store is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreDown {
    /// They are refused.
    #[default]
    Refuse,
    /// They pass through unprotected, and that is said.
    Pass,
}

/// Whether the rule is carried out or only watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// It is carried out.
    #[default]
    Enforce,
    /// Everything is recorded and reported, and nothing is ever refused or given again.
    Observe,
}

/// Which bodies are compared by their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonBodies {
    None,
    /// Those whose headers say that they are JSON.
    AsSaid,
    All,
}

/// The settings of one route.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) dialect: Arc<Dialect>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) derived: Arc<Policy>,
    pub(crate) keyless: Keyless,
    pub(crate) json: Method,
    pub(crate) raw: Method,
    pub(crate) json_bodies: JsonBodies,
    pub(crate) request_bytes_max: usize,
    pub(crate) response_bytes_max: usize,
    pub(crate) body_within: Duration,
    /// How long a handler may take, up to the last byte that is kept; the door keeps this limit.
    pub(crate) timeout: Option<Duration>,
    pub(crate) store_down: StoreDown,
    pub(crate) mode: Mode,
}

/// A setting that contradicts a promise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The policy is out of bounds.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Too many fields are to be ignored.
    #[error(transparent)]
    Filters(#[from] TooManyFilters),
}

/// Builds [`Settings`]; what is not set keeps its safe default.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct SettingsBuilder {
    dialect: Dialect,
    policy: Option<PolicyBuilder>,
    keyless: Option<Keyless>,
    ignored: Vec<Pointer>,
    query: bool,
    json_bodies: JsonBodies,
    request_bytes_max: usize,
    response_bytes_max: usize,
    body_within: Duration,
    store_down: StoreDown,
    mode: Mode,
}

impl Settings {
    /// Begins with the safe defaults of `dialect`.
    pub const fn builder(dialect: Dialect) -> SettingsBuilder {
        SettingsBuilder {
            dialect,
            policy: None,
            keyless: None,
            ignored: Vec::new(),
            query: true,
            json_bodies: JsonBodies::AsSaid,
            request_bytes_max: BODY_BYTES_MAX,
            response_bytes_max: BODY_BYTES_MAX,
            body_within: BODY_WITHIN,
            store_down: StoreDown::Refuse,
            mode: Mode::Enforce,
        }
    }

    /// The contract that is spoken on the wire.
    #[must_use]
    pub fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// How long things last and what is final. The limit of an execution is not part of it: the
    /// door keeps that itself, because an answer that has begun may go on.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}

impl Default for Settings {
    fn default() -> Self {
        let built = Self::builder(Dialect::ietf()).build();
        built.expect("invariant: the defaults are within bounds")
    }
}

impl SettingsBuilder {
    /// How long things last and what is final, in place of what the dialect says. Begin with
    /// [`Dialect::policy`].
    pub fn policy(mut self, policy: PolicyBuilder) -> Self {
        self.policy = Some(policy);
        self
    }

    /// What a request without a key gets, in place of what the dialect says.
    pub const fn keyless(mut self, keyless: Keyless) -> Self {
        self.keyless = Some(keyless);
        self
    }

    /// Fields of a JSON body that do not count when requests are compared.
    pub fn ignore(mut self, fields: impl IntoIterator<Item = Pointer>) -> Self {
        self.ignored.extend(fields);
        self
    }

    /// Whether the query is part of what was asked; it is by default.
    pub const fn query(mut self, counts: bool) -> Self {
        self.query = counts;
        self
    }

    /// Whether JSON bodies are compared by their meaning; they are by default. Otherwise, and for
    /// every other kind of body, the bytes are compared.
    pub const fn json(mut self, by_meaning: bool) -> Self {
        self.json_bodies = if by_meaning { JsonBodies::AsSaid } else { JsonBodies::None };
        self
    }

    /// Takes every body for JSON, whatever its headers say: for a door that reads nothing else.
    pub const fn all_json(mut self) -> Self {
        self.json_bodies = JsonBodies::All;
        self
    }

    /// The most bytes of a request.
    pub const fn request_bytes_max(mut self, bytes: usize) -> Self {
        self.request_bytes_max = bytes;
        self
    }

    /// The most bytes of a response that is kept; a larger one is passed on, and only that it was
    /// made is remembered.
    pub const fn response_bytes_max(mut self, bytes: usize) -> Self {
        self.response_bytes_max = bytes;
        self
    }

    /// How long the body of a request may take to arrive.
    pub const fn body_within(mut self, within: Duration) -> Self {
        self.body_within = within;
        self
    }

    /// What happens while the store is down.
    pub const fn store_down(mut self, choice: StoreDown) -> Self {
        self.store_down = choice;
        self
    }

    /// Whether the rule is carried out or only watched.
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Checks everything.
    ///
    /// # Errors
    /// A [`SettingsError`] that says which setting contradicts what.
    pub fn build(self) -> Result<Settings, SettingsError> {
        let mut policy = self.policy.unwrap_or_else(|| self.dialect.policy());
        if self.mode == Mode::Observe {
            // Whoever is only watched is neither sent away nor kept waiting.
            policy = policy.answer_at_the_end().on_in_flight(OnInFlight::Refuse);
        }
        let timeout = policy.clone().build()?.timeout();
        // An answer that has begun goes on while it is taken; only the door knows when that is.
        let policy = policy.no_timeout().build()?;
        let keyless = self.keyless.unwrap_or(Keyless::By(self.dialect.no_key));
        let derived = match keyless {
            Keyless::By(_) => policy.clone(),
            Keyless::Derive(window) => policy.to_builder().retention(window).build()?,
        };
        let parts = [Some(METHOD), Some(PATH), self.query.then_some(QUERY)];
        let parts = || parts.into_iter().flatten().map(Arc::from);
        let (json, raw) = (Filters::new(self.ignored, parts())?, Filters::new([], parts())?);
        Ok(Settings {
            dialect: Arc::new(self.dialect),
            policy: Arc::new(policy),
            derived: Arc::new(derived),
            keyless,
            json: Method::new(Algorithm::Json, json),
            raw: Method::new(Algorithm::Raw, raw),
            json_bodies: self.json_bodies,
            request_bytes_max: self.request_bytes_max,
            response_bytes_max: self.response_bytes_max,
            body_within: self.body_within,
            timeout,
            store_down: self.store_down,
            mode: self.mode,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_contradicts_a_promise_cannot_be_built() {
        let short = Dialect::openwop().policy().retention(Duration::from_secs(60));
        let built = Settings::builder(Dialect::openwop()).policy(short).build();
        assert!(matches!(built, Err(SettingsError::Policy(_))));
        let many = (0..100).map(|n| Pointer::parse(&format!("/{n}")).unwrap());
        let built = Settings::builder(Dialect::ietf()).ignore(many).build();
        assert!(matches!(built, Err(SettingsError::Filters(_))));
    }

    #[test]
    fn a_dialect_says_what_no_key_means_unless_the_route_does() {
        let of = |dialect: Dialect| Settings::builder(dialect).build().unwrap().keyless;
        assert_eq!(of(Dialect::ietf()), Keyless::By(OnNoKey::Refuse));
        assert_eq!(of(Dialect::stripe()), Keyless::By(OnNoKey::Pass));
        let own = Settings::builder(Dialect::ietf()).keyless(Keyless::By(OnNoKey::Pass));
        assert_eq!(own.build().unwrap().keyless, Keyless::By(OnNoKey::Pass));
    }
}
