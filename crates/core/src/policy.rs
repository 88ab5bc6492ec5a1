//! The settings of one operation, checked once: how long, what is final, wait or refuse.
//!
//! Where contracts disagree, the difference is a value here, never a branch in a door. A built
//! [`Policy`] cannot contradict a promise: its lease and retention are within bounds, and its
//! tombstones outlive every request that could still be under way.

use std::time::Duration;

use crate::Code;
use crate::finality::{Finality, StatusRules};
use crate::outcome::Outcome;
use crate::time::DELIVERY_MAX;

/// What a duplicate gets while the first is still executing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnInFlight {
    /// It waits for the first one's outcome, at most this long.
    Wait(Duration),
    /// It is refused at once.
    Refuse,
}

/// What may happen when nobody can say whether the effect happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnUnknown {
    /// Nothing, until an operator or a late completion settles it.
    Hold,
    /// A further attempt executes again, told that it is a recovery.
    Retry,
    /// The door asks elsewhere what happened, and settles it.
    Probe,
}

/// What other content under a live key is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnLiveMismatch {
    /// At once that the key was used for something else.
    Mismatch,
    /// That the key is in flight; the mismatch only once the first is done.
    InFlight,
}

/// The settings of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    lease: Duration,
    retention: Duration,
    timeout: Option<Duration>,
    answer_within: Option<Duration>,
    on_in_flight: OnInFlight,
    on_unknown: OnUnknown,
    on_live_mismatch: OnLiveMismatch,
    statuses: StatusRules,
    failures: Finality,
    panics: Finality,
    /// The least retention that the contract allows.
    retention_min: Duration,
}

/// A setting that contradicts a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A lease, retention or limit is out of bounds.
    #[error("{what} is {} ms; it must be from {} ms to {} ms",
        given.as_millis(), min.as_millis(), max.as_millis())]
    OutOfBounds {
        /// Which setting.
        what: &'static str,
        /// What was given.
        given: Duration,
        /// The least that is allowed.
        min: Duration,
        /// The most that is allowed.
        max: Duration,
    },
}

impl PolicyError {
    /// The stable code of this refusal.
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::PolicyInvalid
    }
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Policy {
    /// Begins with the safe defaults: a lease of 30 s, a retention of 24 h, duplicates wait 10 s,
    /// an unknown outcome is held, failures free the key.
    pub const fn builder() -> PolicyBuilder {
        PolicyBuilder(Self {
            lease: Duration::from_secs(30),
            retention: DAY,
            timeout: None,
            answer_within: None,
            on_in_flight: OnInFlight::Wait(Duration::from_secs(10)),
            on_unknown: OnUnknown::Hold,
            on_live_mismatch: OnLiveMismatch::Mismatch,
            statuses: StatusRules::ietf(),
            failures: Finality::Free,
            panics: Finality::Unknown,
            retention_min: Duration::from_millis(1),
        })
    }

    /// The contract of `OpenWOP`: kept at least 24 hours, 5xx executed again, other content under a
    /// live key hears "in flight" first, an unknown outcome is tried again.
    pub const fn openwop() -> PolicyBuilder {
        Self::builder()
            .retention_min(DAY)
            .statuses(StatusRules::openwop())
            .on_unknown(OnUnknown::Retry)
            .on_live_mismatch(OnLiveMismatch::InFlight)
    }

    /// The record of an activity inside a workflow: kept 14 days, failures kept as well.
    pub const fn activity() -> PolicyBuilder {
        let fortnight = Duration::from_secs(14 * 24 * 60 * 60);
        Self::builder().retention(fortnight).failures(Finality::Final)
    }

    /// Begins with these settings.
    pub const fn to_builder(&self) -> PolicyBuilder {
        PolicyBuilder(Self { ..*self })
    }

    /// How long a claim lives without a renewal.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// How long a finished record is kept.
    #[must_use]
    pub const fn retention(&self) -> Duration {
        self.retention
    }

    /// How long an execution may take; past it the outcome is unknown.
    #[must_use]
    pub const fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// How long a caller is kept; past it the execution goes on without them.
    #[must_use]
    pub const fn answer_within(&self) -> Option<Duration> {
        self.answer_within
    }

    /// What a duplicate gets while the first is executing.
    #[must_use]
    pub const fn on_in_flight(&self) -> OnInFlight {
        self.on_in_flight
    }

    /// What may happen when the outcome is unknown.
    #[must_use]
    pub const fn on_unknown(&self) -> OnUnknown {
        self.on_unknown
    }

    /// What other content under a live key is told.
    #[must_use]
    pub const fn on_live_mismatch(&self) -> OnLiveMismatch {
        self.on_live_mismatch
    }

    /// What becomes of an execution that panicked.
    #[must_use]
    pub const fn panics(&self) -> Finality {
        self.panics
    }

    /// How long a released key keeps its tombstone: longer than any copy of a claim can be under
    /// way.
    #[must_use]
    pub fn tombstone(&self) -> Duration {
        let wait = match self.on_in_flight {
            OnInFlight::Wait(wait) => wait,
            OnInFlight::Refuse => Duration::ZERO,
        };
        let request = self.timeout.unwrap_or(wait).max(wait).max(DELIVERY_MAX);
        self.lease.saturating_add(request)
    }

    /// What becomes of `outcome`.
    #[must_use]
    pub fn finality(&self, outcome: &Outcome) -> Finality {
        match outcome {
            Outcome::Response { status, .. } | Outcome::NotKept { status: Some(status) } => {
                self.statuses.finality(*status)
            }
            // Not kept, yet executed: that its result is lost must not free it.
            Outcome::Value(_) | Outcome::NotKept { status: None } => Finality::Final,
            Outcome::Failure(_) => self.failures,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::builder().build().expect("invariant: the defaults are within bounds")
    }
}

/// Builds a [`Policy`]; what is not set keeps its safe default.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct PolicyBuilder(Policy);

impl PolicyBuilder {
    /// How long a claim lives without a renewal: 100 ms to 1 h.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.0.lease = lease;
        self
    }

    /// How long a finished record is kept, at most ten years.
    pub const fn retention(mut self, retention: Duration) -> Self {
        self.0.retention = retention;
        self
    }

    /// The least retention that the contract allows. It can be raised, never lowered.
    pub const fn retention_min(mut self, min: Duration) -> Self {
        if min.as_nanos() > self.0.retention_min.as_nanos() {
            self.0.retention_min = min;
        }
        self
    }

    /// How long an execution may take; past it the outcome is unknown. No limit by default.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout = Some(timeout);
        self
    }

    /// Lets an execution take as long as it does, which is the default.
    pub const fn no_timeout(mut self) -> Self {
        self.0.timeout = None;
        self
    }

    /// How long a caller is kept. No limit by default.
    pub const fn answer_within(mut self, limit: Duration) -> Self {
        self.0.answer_within = Some(limit);
        self
    }

    /// Keeps a caller as long as its execution takes, which is the default.
    pub const fn answer_at_the_end(mut self) -> Self {
        self.0.answer_within = None;
        self
    }

    /// Whether a duplicate waits or is refused.
    pub const fn on_in_flight(mut self, choice: OnInFlight) -> Self {
        self.0.on_in_flight = choice;
        self
    }

    /// What may happen when the outcome is unknown.
    pub const fn on_unknown(mut self, choice: OnUnknown) -> Self {
        self.0.on_unknown = choice;
        self
    }

    /// What other content under a live key is told.
    pub const fn on_live_mismatch(mut self, choice: OnLiveMismatch) -> Self {
        self.0.on_live_mismatch = choice;
        self
    }

    /// What becomes of a response, by status.
    pub const fn statuses(mut self, rules: StatusRules) -> Self {
        self.0.statuses = rules;
        self
    }

    /// What becomes of a function's failure.
    pub const fn failures(mut self, finality: Finality) -> Self {
        self.0.failures = finality;
        self
    }

    /// What becomes of an execution that panicked: unknown by default, for nobody knows how far it
    /// came.
    pub const fn panics(mut self, finality: Finality) -> Self {
        self.0.panics = finality;
        self
    }

    /// Checks the settings against their bounds.
    ///
    /// # Errors
    /// A [`PolicyError`] that names the setting and its bounds.
    pub fn build(self) -> Result<Policy, PolicyError> {
        let Self(policy) = self;
        let ten_years = DAY * 3_650;
        let bounds = [
            ("the lease", Some(policy.lease), SECOND / 10, HOUR),
            ("the retention", Some(policy.retention), policy.retention_min, ten_years),
            ("the timeout", policy.timeout, SECOND / 1_000, DAY),
            ("the limit of an answer", policy.answer_within, SECOND / 1_000, DAY),
            (
                "the wait of a duplicate",
                match policy.on_in_flight {
                    OnInFlight::Wait(wait) => Some(wait),
                    OnInFlight::Refuse => None,
                },
                SECOND / 1_000,
                HOUR,
            ),
        ];
        for (what, given, min, max) in bounds {
            match given {
                Some(given) if given < min || given > max => {
                    return Err(PolicyError::OutOfBounds { what, given, min, max });
                }
                Some(_) | None => {}
            }
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Status;

    #[test]
    fn d11_the_defaults_are_24_hours_and_a_lease_of_seconds() {
        let policy = Policy::default();
        assert_eq!(policy.retention(), DAY);
        assert_eq!(policy.lease(), Duration::from_secs(30));
        assert_eq!(policy.on_unknown(), OnUnknown::Hold);
        assert_eq!(policy.on_in_flight(), OnInFlight::Wait(Duration::from_secs(10)));
        assert_eq!((policy.timeout(), policy.answer_within()), (None, None));
    }

    /// W5
    #[test]
    fn w5_openwop_keeps_at_least_24_hours() {
        let error = Policy::openwop().retention(Duration::from_secs(86_399)).build().unwrap_err();
        assert_eq!(error.code().as_str(), "policy_invalid");
        assert_eq!(
            error.to_string(),
            "the retention is 86399000 ms; it must be from 86400000 ms to 315360000000 ms"
        );
        assert_eq!(Policy::openwop().retention(DAY * 2).build().unwrap().retention(), DAY * 2);
        assert!(Policy::builder().retention(SECOND).build().is_ok(), "other contracts may");
        let derived = Policy::openwop().build().unwrap().to_builder().retention(SECOND).build();
        assert!(derived.is_err(), "the least retention goes with the policy");
        let lowered = Policy::openwop().retention_min(SECOND).retention(SECOND).build();
        assert!(lowered.is_err(), "and cannot be lowered");
    }

    /// W14, W15
    #[test]
    fn w14_w15_activities_keep_failures_and_last_14_days() {
        let policy = Policy::activity().build().unwrap();
        assert_eq!(policy.retention(), DAY * 14);
        assert_eq!(policy.finality(&Outcome::Failure("declined".into())), Finality::Final);
    }

    #[test]
    fn settings_out_of_bounds_are_refused_by_name() {
        let refused = |builder: PolicyBuilder| match builder.build() {
            Err(PolicyError::OutOfBounds { what, .. }) => what,
            Ok(_) => "nothing",
        };
        assert_eq!(refused(Policy::builder().lease(Duration::ZERO)), "the lease");
        assert_eq!(refused(Policy::builder().lease(HOUR + SECOND)), "the lease");
        assert_eq!(refused(Policy::builder().retention(Duration::ZERO)), "the retention");
        assert_eq!(refused(Policy::builder().retention(DAY * 4_000)), "the retention");
        assert_eq!(refused(Policy::builder().timeout(Duration::ZERO)), "the timeout");
        let wait = OnInFlight::Wait(HOUR * 2);
        assert_eq!(refused(Policy::builder().on_in_flight(wait)), "the wait of a duplicate");
        let forever = Policy::builder().answer_within(Duration::MAX);
        assert_eq!(refused(forever), "the limit of an answer");
    }

    /// K9: a failed function frees its key, unless the policy keeps failures.
    #[test]
    fn k9_failures_free_the_key_unless_they_are_kept() {
        let failure = Outcome::Failure("no".into());
        assert_eq!(Policy::default().finality(&failure), Finality::Free);
        let keep = Policy::builder().failures(Finality::Final).build().unwrap();
        assert_eq!(keep.finality(&failure), Finality::Final);
        assert_eq!(keep.finality(&Outcome::Value("yes".into())), Finality::Final);
    }

    #[test]
    fn an_executed_operation_whose_result_was_lost_is_never_freed_by_that() {
        let policy = Policy::default();
        assert_eq!(policy.finality(&Outcome::NotKept { status: None }), Finality::Final);
        let status = Status::new(503);
        assert_eq!(policy.finality(&Outcome::NotKept { status }), Finality::Free);
    }

    #[test]
    fn a_tombstone_outlives_the_lease_and_every_request_under_way() {
        let policy = Policy::builder()
            .lease(Duration::from_secs(5))
            .timeout(Duration::from_secs(600))
            .build()
            .unwrap();
        assert_eq!(policy.tombstone(), Duration::from_secs(605));
        assert_eq!(Policy::default().tombstone(), Duration::from_secs(90));
    }
}
