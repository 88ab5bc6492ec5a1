//! The rule: what one attempt may do, given what is remembered and the store's time.
//!
//! [`decide`] is total and pure. It cannot fail, wait, or look anything up; the same arguments
//! always give the same answer. Every door and every store obeys this one function, and none has a
//! rule of its own.

use std::sync::Arc;

use crate::fingerprint::Asked;
use crate::outcome::Outcome;
use crate::policy::{OnLiveMismatch, OnUnknown, Policy};
use crate::record::{Cause, Draft, Fence, Phase, Record, Standing, Version};
use crate::scope::Address;
use crate::time::Timestamp;

/// One attempt: whose it is, what it asks, and the settings of its operation.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Scope, operation and key.
    pub address: Arc<Address>,
    /// What is asked.
    pub asked: Asked,
    /// The settings of the operation.
    pub policy: Arc<Policy>,
}

/// On what grounds an attempt may execute: what it replaces, and how many came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grounds {
    /// The version that the claim must find in the slot.
    pub expected: Option<Version>,
    /// Which execution this is, counted from 1.
    pub attempt: u32,
    /// Whether an earlier attempt may already have had its effect.
    pub recovery: bool,
    /// The fence that the new one must be above, so that later claims have greater fences whatever
    /// the clocks of their claimants say.
    pub above: Option<Fence>,
}

impl Grounds {
    /// Nothing is there, as far as is known.
    pub const FIRST: Self = Self { expected: None, attempt: 1, recovery: false, above: None };
}

/// What one attempt may do.
///
/// A new kind of decision must break every door, so this is no open-ended list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a decision does nothing until it is carried out"]
pub enum Decision<'r> {
    /// Claim the slot on these grounds and execute.
    Execute(Grounds),
    /// Give this outcome again.
    Replay {
        /// What came of it.
        outcome: &'r Arc<Outcome>,
        /// Until when it is kept.
        expires_at: Timestamp,
    },
    /// The key was used for something else.
    Mismatch,
    /// The same operation is being executed.
    InFlight {
        /// By which claim.
        fence: Fence,
        /// Until when its lease runs.
        until: Timestamp,
        /// Whether it was asked the same. Only then is it worth waiting for.
        same: bool,
    },
    /// Nobody can say whether the effect happened, and the policy does not allow another try.
    Unknown {
        /// Of which claim.
        fence: Fence,
        /// Since when.
        since: Timestamp,
        /// Why.
        cause: Cause,
    },
}

/// Decides what `ask` may do when its slot holds `found` at the store's time `now`.
///
#[doc = include_str!("decide.md")]
pub fn decide<'r>(ask: &Ask, found: Option<&'r Record>, now: Timestamp) -> Decision<'r> {
    let Some(record) = found else {
        return Decision::Execute(Grounds::FIRST);
    };
    let same = || ask.asked.is_same(&record.fingerprint);
    let again = |recovery| {
        let attempt = record.attempt.saturating_add(1);
        let (expected, above) = (Some(record.version), Some(record.fence));
        Decision::Execute(Grounds { expected, attempt, recovery, above })
    };
    match record.standing(now) {
        Standing::Free => {
            let (expected, above) = (Some(record.version), Some(record.fence));
            Decision::Execute(Grounds { expected, above, ..Grounds::FIRST })
        }
        Standing::Live { until } => match (same(), ask.policy.on_live_mismatch()) {
            (false, OnLiveMismatch::Mismatch) => Decision::Mismatch,
            (same, OnLiveMismatch::Mismatch | OnLiveMismatch::InFlight) => {
                Decision::InFlight { fence: record.fence, until, same }
            }
        },
        _ if !same() => Decision::Mismatch,
        Standing::Final { outcome, expires_at } => Decision::Replay { outcome, expires_at },
        Standing::Retryable(_) => again(false),
        Standing::Unknown { since, cause } => match ask.policy.on_unknown() {
            OnUnknown::Retry => again(true),
            OnUnknown::Hold | OnUnknown::Probe => {
                Decision::Unknown { fence: record.fence, since, cause }
            }
        },
    }
}

impl Ask {
    /// The claim that this attempt writes on `grounds`.
    #[must_use]
    pub fn claim(&self, grounds: Grounds, fence: Fence, write: u128) -> Draft {
        Draft {
            version: Version::of_write(write),
            fence,
            address: Arc::clone(&self.address),
            fingerprint: self.asked.fingerprint().clone(),
            attempt: grounds.attempt,
            recovery: grounds.recovery,
            since: std::time::Duration::ZERO,
            phase: Phase::Claimed { lease_until: self.policy.lease() },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::Duration;

    use super::*;
    use crate::fingerprint::Asked;
    use crate::policy::PolicyBuilder;
    use crate::record::Keeping;
    use crate::testing::{address, at, done, draft, released};

    const SECOND: Duration = Duration::from_secs(1);

    fn ask(body: &'static str, policy: PolicyBuilder) -> Ask {
        let policy = Arc::new(policy.build().unwrap());
        Ask { address: address("k"), asked: Asked::raw(body), policy }
    }

    fn name(decision: &Decision<'_>) -> &'static str {
        match decision {
            Decision::Execute(Grounds { recovery: false, .. }) => "execute",
            Decision::Execute(Grounds { recovery: true, .. }) => "execute as recovery",
            Decision::Replay { .. } => "replay",
            Decision::Mismatch => "mismatch",
            Decision::InFlight { .. } => "in flight",
            Decision::Unknown { .. } => "unknown",
        }
    }

    /// Everything that a slot can hold, as seen at 500 ms.
    fn everything_found() -> Vec<(&'static str, Option<Record>)> {
        let (soon, past) = (SECOND, Duration::from_millis(500));
        let claimed = |lease_until| draft(1, Phase::Claimed { lease_until }).at(at(0));
        vec![
            ("nothing", None),
            ("claimed, lease alive", Some(claimed(soon))),
            ("claimed, lease lapsed", Some(claimed(past))),
            (
                "unknown, as reported",
                Some(draft(1, Phase::Unknown { cause: Cause::Reported }).at(at(0))),
            ),
            ("done, final", Some(done(1, Keeping::Final, soon).at(at(0)))),
            ("done, retryable", Some(done(1, Keeping::Retryable, soon).at(at(0)))),
            ("done, past its retention", Some(done(1, Keeping::Final, past).at(at(0)))),
            ("released", Some(released(1, soon).at(at(0)))),
        ]
    }

    /// The answers of all policies to one find, in words: one word when they agree, both when not.
    fn cell(body: &'static str, found: Option<&Record>) -> String {
        let words = |vary: fn(PolicyBuilder, bool) -> PolicyBuilder| {
            let [a, b] = [false, true].map(|which| {
                name(&decide(&ask(body, vary(Policy::builder(), which)), found, at(500)))
            });
            (a, b)
        };
        let (hold, retry) = words(|policy, retry| {
            policy.on_unknown(if retry { OnUnknown::Retry } else { OnUnknown::Hold })
        });
        let (at_once, later) = words(|policy, later| {
            let choice = if later { OnLiveMismatch::InFlight } else { OnLiveMismatch::Mismatch };
            policy.on_live_mismatch(choice)
        });
        match (hold == retry, at_once == later) {
            (true, true) => hold.to_owned(),
            (true, false) => format!("{at_once}, or {later} (1)"),
            (false, true) => format!("{hold}, or {retry} (2)"),
            (false, false) => unreachable!("no find depends on both settings"),
        }
    }

    /// C3, K2, W8, W9, W20: the rule is the table in the documentation, cell by cell.
    #[test]
    fn c3_k2_w8_w9_the_rule_is_the_documented_table() {
        let mut table = String::new();
        for (label, found) in everything_found() {
            let (same, other) = (cell("body", found.as_ref()), cell("other", found.as_ref()));
            writeln!(table, "| {label:<24} | {same:<35}| {other:<27}|").unwrap();
        }
        let documented: String = include_str!("decide.md")
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .flat_map(|line| [line, "\n"])
            .collect();
        assert_eq!(table, documented, "\nwritten:\n{table}\ndocumented:\n{documented}");
    }

    #[test]
    fn probing_holds_the_key_as_well() {
        let unknown = draft(1, Phase::Unknown { cause: Cause::TimedOut }).at(at(7));
        let probe = ask("body", Policy::builder().on_unknown(OnUnknown::Probe));
        let decision = decide(&probe, Some(&unknown), at(8));
        let expected = Decision::Unknown { fence: Fence(1), since: at(7), cause: Cause::TimedOut };
        assert_eq!(decision, expected);
    }

    /// X3: another try after an unknown outcome says that it is one, and counts on.
    #[test]
    fn x3_a_recovery_is_told_so_and_expects_exactly_what_was_seen() {
        let mut lapsed = draft(9, Phase::Claimed { lease_until: SECOND }).at(at(0));
        lapsed.attempt = 3;
        let retry = ask("body", Policy::builder().on_unknown(OnUnknown::Retry));
        let expected = Some(Version::of_write(9));
        assert_eq!(
            decide(&retry, Some(&lapsed), at(1_000)),
            Decision::Execute(Grounds {
                expected,
                attempt: 4,
                recovery: true,
                above: Some(Fence(9))
            })
        );
    }

    #[test]
    fn a_freed_or_forgotten_key_begins_again_at_attempt_one() {
        let mut free = released(9, SECOND).at(at(0));
        free.attempt = 3;
        let (expected, above) = (Some(Version::of_write(9)), Some(Fence(9)));
        let grounds = Grounds { expected, above, ..Grounds::FIRST };
        let decision = decide(&ask("other", Policy::builder()), Some(&free), at(1));
        assert_eq!(decision, Decision::Execute(grounds));
    }

    /// W3, C4: what is given again is the very outcome that was kept.
    #[test]
    fn w3_c4_a_replay_is_the_kept_outcome_with_its_expiry() {
        let record = done(1, Keeping::Final, SECOND).at(at(0));
        let Decision::Replay { outcome, expires_at } =
            decide(&ask("body", Policy::builder()), Some(&record), at(1))
        else {
            panic!("a finished record answers")
        };
        assert_eq!(**outcome, Outcome::Value("ok".into()));
        assert_eq!(expires_at, at(1_000));
    }

    #[test]
    fn x1_w20_in_flight_tells_the_real_lease_and_whether_it_was_asked_the_same() {
        let claim = draft(4, Phase::Claimed { lease_until: SECOND }).at(at(0));
        let in_flight = |same| Decision::InFlight { fence: Fence(4), until: at(1_000), same };
        let decision = decide(&ask("body", Policy::builder()), Some(&claim), at(1));
        assert_eq!(decision, in_flight(true));
        let decision = decide(&ask("other", Policy::openwop()), Some(&claim), at(1));
        assert_eq!(decision, in_flight(false), "W20: in flight first, and not worth waiting for");
    }

    #[test]
    fn a_claim_carries_the_lease_and_not_the_retention() {
        let ask = ask("body", Policy::builder().lease(SECOND));
        let claim = ask.claim(Grounds { attempt: 2, ..Grounds::FIRST }, Fence(5), 6);
        assert_eq!(claim.phase, Phase::Claimed { lease_until: SECOND });
        assert_eq!((claim.fence, claim.attempt, claim.recovery), (Fence(5), 2, false));
        let recovery = Grounds { recovery: true, ..Grounds::FIRST };
        assert!(ask.claim(recovery, Fence(5), 6).recovery, "the record remembers it");
        assert_eq!(claim.version, Version::of_write(6));
        assert_eq!(&claim.fingerprint, ask.asked.fingerprint());
    }
}
