//! From an executor's report to what is written and what waiters hear.
//!
//! A living owner's report follows the policy; silence never comes here, for it is derived from the
//! lease when the record is read. Nothing in this file can free a key that may have had its effect
//! unless its owner, still alive, said that nothing was sent or that the answer is none to keep.

use std::sync::Arc;
use std::time::Duration;

use crate::finality::Finality;
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::record::{Cause, Draft, Keeping, Phase, Record, Version};

/// What an executor says when it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// It came to an end, with this outcome; the policy says what becomes of it.
    Finished(Outcome),
    /// It came to this for now, whatever the policy says: recorded, told to those who wait, and a
    /// further attempt with the same content executes again.
    Retryable(Outcome),
    /// Nothing was sent, so nothing can have happened. The outcome is for the caller only.
    NotDispatched(Outcome),
    /// It was sent, and nobody can say what came of it.
    Unknown(Cause),
}

/// What a claim comes to: what is written, and what everyone who waited hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// Finished and recorded.
    Done {
        /// What came of it.
        outcome: Arc<Outcome>,
        /// Whether it answers further attempts.
        keeping: Keeping,
    },
    /// The key is free. The outcome, where there is one, is for those who are here now.
    Freed(Option<Arc<Outcome>>),
    /// Nobody can say whether the effect happened.
    Unknown(Cause),
}

impl Settlement {
    /// What `report` comes to under `policy`.
    #[must_use]
    pub fn of(report: Report, policy: &Policy) -> Self {
        match report {
            Report::Finished(outcome) => {
                let finality = policy.finality(&outcome);
                Self::by(finality, Some(Arc::new(outcome)), Cause::Reported)
            }
            Report::Retryable(outcome) => {
                Self::by(Finality::Retryable, Some(Arc::new(outcome)), Cause::Reported)
            }
            Report::NotDispatched(outcome) => Self::Freed(Some(Arc::new(outcome))),
            Report::Unknown(cause) => Self::Unknown(cause),
        }
    }

    /// What an execution that panicked comes to under `policy`.
    #[must_use]
    pub fn of_panic(policy: &Policy) -> Self {
        Self::by(policy.panics(), None, Cause::Panicked)
    }

    fn by(finality: Finality, outcome: Option<Arc<Outcome>>, cause: Cause) -> Self {
        let kept = |keeping| Self::Done {
            outcome: outcome.clone().unwrap_or_else(|| Arc::new(Outcome::NotKept { status: None })),
            keeping,
        };
        match finality {
            Finality::Final => kept(Keeping::Final),
            Finality::Retryable => kept(Keeping::Retryable),
            Finality::Free => Self::Freed(outcome),
            Finality::Unknown => Self::Unknown(cause),
        }
    }

    /// The same, but an outcome of more than `bytes_max` is not kept: it was executed, and everyone
    /// hears that and nothing else.
    #[must_use]
    pub fn within(self, bytes_max: usize) -> Self {
        let not_kept = |outcome: Arc<Outcome>| match &*outcome {
            small if small.weight() <= bytes_max => outcome,
            Outcome::Response { status, .. } => {
                Arc::new(Outcome::NotKept { status: Some(*status) })
            }
            Outcome::Value(_) | Outcome::Failure(_) | Outcome::NotKept { .. } => {
                Arc::new(Outcome::NotKept { status: None })
            }
        };
        match self {
            Self::Done { outcome, keeping } => Self::Done { outcome: not_kept(outcome), keeping },
            other @ (Self::Freed(_) | Self::Unknown(_)) => other,
        }
    }

    /// The record that this settlement of `claim` writes.
    ///
    /// A recovery settles the attempt before it only with an outcome that is kept. If it comes to
    /// anything less, that attempt is as unknown as it was: freeing the key would forget that its
    /// effect may have happened.
    #[must_use]
    pub fn draft(&self, claim: &Record, policy: &Policy, write: u128) -> Draft {
        let phase = match self {
            Self::Done { keeping: Keeping::Retryable, .. } | Self::Freed(_) if claim.recovery => {
                Phase::Unknown { cause: Cause::Unrecovered }
            }
            Self::Done { outcome, keeping } => Phase::Done {
                outcome: Arc::clone(outcome),
                keeping: *keeping,
                expires_at: policy.retention(),
            },
            Self::Freed(_) => Phase::Released { until: policy.tombstone() },
            Self::Unknown(cause) => Phase::Unknown { cause: *cause },
        };
        Draft {
            version: Version::of_write(write),
            fence: claim.fence,
            address: Arc::clone(&claim.address),
            fingerprint: claim.fingerprint.clone(),
            attempt: claim.attempt,
            recovery: claim.recovery,
            since: Duration::ZERO,
            phase,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finality::StatusRules;
    use crate::outcome::Status;
    use crate::testing::{at, draft};

    fn response(status: u16) -> Outcome {
        let status = Status::new(status).unwrap();
        Outcome::Response { status, headers: Vec::new(), body: "b".into() }
    }

    fn finished(status: u16, rules: &StatusRules) -> Settlement {
        let policy = Policy::builder().statuses(*rules).build().unwrap();
        Settlement::of(Report::Finished(response(status)), &policy)
    }

    fn done(status: u16, keeping: Keeping) -> Settlement {
        Settlement::Done { outcome: Arc::new(response(status)), keeping }
    }

    /// W8, D8, C6: one status, three contracts.
    #[test]
    fn w8_d8_c6_a_report_follows_the_policy() {
        assert_eq!(finished(201, &StatusRules::openwop()), done(201, Keeping::Final));
        assert_eq!(finished(500, &StatusRules::openwop()), done(500, Keeping::Retryable));
        assert_eq!(finished(500, &StatusRules::ietf()), done(500, Keeping::Final));
        let freed = Settlement::Freed(Some(Arc::new(response(500))));
        assert_eq!(finished(500, &StatusRules::davepi()), freed);
        assert_eq!(finished(422, &StatusRules::cnerium()), done(422, Keeping::Final));
        let unknown = StatusRules::ietf().except(&[502], Finality::Unknown);
        assert_eq!(finished(502, &unknown), Settlement::Unknown(Cause::Reported));
    }

    /// W14: a failure that the policy keeps is a result like any other.
    #[test]
    fn w14_k9_a_failure_is_kept_or_frees_the_key_by_policy() {
        let report = || Report::Finished(Outcome::Failure("declined".into()));
        let kept = Settlement::of(report(), &Policy::activity().build().unwrap());
        assert!(matches!(kept, Settlement::Done { keeping: Keeping::Final, .. }));
        let freed = Settlement::of(report(), &Policy::default());
        assert!(matches!(freed, Settlement::Freed(Some(_))));
    }

    #[test]
    fn what_was_not_sent_frees_the_key_in_every_contract() {
        let policy = Policy::builder().statuses(StatusRules::cnerium()).build().unwrap();
        let settled = Settlement::of(Report::NotDispatched(response(502)), &policy);
        assert_eq!(settled, Settlement::Freed(Some(Arc::new(response(502)))));
    }

    #[test]
    fn what_is_only_so_for_now_is_recorded_and_answers_nobody_later_in_every_contract() {
        for statuses in [StatusRules::cnerium(), StatusRules::davepi()] {
            let policy = Policy::activity().statuses(statuses).build().unwrap();
            let settled = Settlement::of(Report::Retryable(response(503)), &policy);
            assert_eq!(settled, done(503, Keeping::Retryable));
        }
    }

    /// X3
    #[test]
    fn x3_a_panic_is_unknown_unless_the_policy_says_otherwise() {
        let panicked = Settlement::of_panic(&Policy::default());
        assert_eq!(panicked, Settlement::Unknown(Cause::Panicked));
        let with = |finality| Policy::builder().panics(finality).build().unwrap();
        assert_eq!(Settlement::of_panic(&with(Finality::Free)), Settlement::Freed(None));
        let kept = Settlement::of_panic(&with(Finality::Final));
        assert!(matches!(kept, Settlement::Done { .. }));
        let timed_out = Settlement::of(Report::Unknown(Cause::TimedOut), &Policy::default());
        assert_eq!(timed_out, Settlement::Unknown(Cause::TimedOut));
    }

    /// X3: what an earlier attempt may have done is not forgotten because a later one did nothing.
    #[test]
    fn x3_a_recovery_that_comes_to_nothing_leaves_the_key_unknown() {
        let phase = Phase::Claimed { lease_until: Duration::from_secs(1) };
        let mut claim = draft(7, phase).at(at(0));
        claim.recovery = true;
        let policy = Policy::default();
        let unrecovered = Phase::Unknown { cause: Cause::Unrecovered };
        for nothing in [Settlement::Freed(None), done(503, Keeping::Retryable)] {
            assert_eq!(nothing.draft(&claim, &policy, 8).phase, unrecovered, "{nothing:?}");
        }
        let kept = done(201, Keeping::Final).draft(&claim, &policy, 8);
        assert!(matches!(kept.phase, Phase::Done { .. }), "an outcome that is kept settles it");
    }

    #[test]
    fn an_outcome_that_is_too_large_is_executed_and_not_kept() {
        let large = done(201, Keeping::Final);
        assert_eq!(large.clone().within(1), large, "one byte is within one byte");
        let outcome = Arc::new(Outcome::NotKept { status: Status::new(201) });
        assert_eq!(large.within(0), Settlement::Done { outcome, keeping: Keeping::Final });
        let value = Arc::new(Outcome::Value("xx".into()));
        let value = Settlement::Done { outcome: value, keeping: Keeping::Final };
        let outcome = Arc::new(Outcome::NotKept { status: None });
        assert_eq!(value.within(1), Settlement::Done { outcome, keeping: Keeping::Final });
        assert_eq!(Settlement::Freed(None).within(0), Settlement::Freed(None));
    }

    #[test]
    fn the_written_record_keeps_the_claim_and_takes_its_times_from_the_policy() {
        let claim = draft(7, Phase::Claimed { lease_until: Duration::from_secs(1) }).at(at(0));
        let policy = Policy::default();
        let written = done(201, Keeping::Final).draft(&claim, &policy, 8);
        assert_eq!((written.fence, written.attempt), (claim.fence, claim.attempt));
        assert_eq!(written.version, Version::of_write(8));
        assert!(
            matches!(written.phase, Phase::Done { expires_at: at, .. } if at == policy.retention())
        );
        let freed = Settlement::Freed(None).draft(&claim, &policy, 8);
        assert_eq!(freed.phase, Phase::Released { until: policy.tombstone() });
        let unknown = Settlement::Unknown(Cause::TimedOut).draft(&claim, &policy, 8);
        assert_eq!(unknown.phase, Phase::Unknown { cause: Cause::TimedOut });
    }
}
