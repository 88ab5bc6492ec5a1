//! What is remembered of one operation, and what it means at a given time.
//!
//! A record is written whole or not at all. It is drafted with spans ("for 30 s") and gets its
//! points in time from the store that writes it, so only one clock ever speaks about a record. This
//! file never decides what a caller may do; that is `decide.rs`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::outcome::Outcome;
use crate::scope::Address;
use crate::time::Timestamp;

/// Names one claim, for ever: 128 bits, ordered by time, made by the claimant.
///
/// Invariant: a fence is never reused, not even after its record was swept. A counter that restarts
/// at one would let a stalled executor settle its successor's claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(Rust, packed(8))] // There may be a hundred thousand live claims: no padding for 16-byte ids.
pub struct Fence(pub u128);

/// Names one write of a record, and how often its lease was renewed since.
///
/// Whoever replaces a record must name the version that they saw. A renewal changes the version, so
/// a takeover that was prepared before it loses, whatever a store uses to represent renewals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(Rust, packed(8))] // As for `Fence`.
pub struct Version {
    /// The write; unique for ever, made by the writer, so that a repeated write is recognised.
    pub write: u128,
    /// How often the lease was renewed since that write.
    pub renewal: u32,
}

impl Version {
    /// The version of a new write.
    #[must_use]
    pub const fn of_write(write: u128) -> Self {
        Self { write, renewal: 0 }
    }

    /// The version after one more renewal.
    #[must_use]
    pub const fn renewed(self) -> Self {
        Self { write: self.write, renewal: self.renewal.wrapping_add(1) }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({self})")
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", { self.0 })
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({self})")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}+{}", { self.write }, { self.renewal })
    }
}

/// Text that names no claim, or no write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a {what}; copy it whole, it reads like {example}")]
pub struct IdError {
    what: &'static str,
    example: &'static str,
}

const FENCE_EXAMPLE: &str = "0190163d870078c5a3d29e7bcb5b12f4";
const VERSION_EXAMPLE: &str = "0190163d870078c5a3d29e7bcb5b12f4+0";

/// Exactly 32 hexadecimal digits: half an id is a mistake, never another id.
fn id_of(text: &str) -> Option<u128> {
    let is_whole = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_whole.then(|| u128::from_str_radix(text, 16).ok())?
}

impl FromStr for Fence {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        id_of(text).map(Self).ok_or(IdError { what: "fence", example: FENCE_EXAMPLE })
    }
}

impl FromStr for Version {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let parts = text.split_once('+');
        let version = parts.and_then(|(write, renewal)| {
            Some(Self { write: id_of(write)?, renewal: renewal.parse().ok()? })
        });
        version.ok_or(IdError { what: "version", example: VERSION_EXAMPLE })
    }
}

/// Why nobody can say whether the effect happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The executor fell silent: it crashed, stalled or lost its store.
    Silence,
    /// The execution passed its time limit.
    TimedOut,
    /// The execution panicked.
    Panicked,
    /// The executor itself says so: a connection broke after the request was sent, say.
    Reported,
    /// A recovery came to nothing that is kept, so the attempt before it is as unknown as it was.
    Unrecovered,
}

/// Whether a finished record answers further attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Keeping {
    /// It is given to every further attempt.
    Final,
    /// It is on record, but a further attempt with the same content executes again.
    Retryable,
}

/// Where a record stands. `T` is a point in time once stored, a span from now while drafted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Phase<T = Timestamp> {
    /// Claimed: the effect may have been dispatched. Never expires by itself.
    Claimed {
        /// Until when the owner is taken to be alive.
        lease_until: T,
    },
    /// Finished.
    Done {
        /// What came of it.
        outcome: Arc<Outcome>,
        /// Whether it answers further attempts.
        keeping: Keeping,
        /// When it is forgotten.
        expires_at: T,
    },
    /// Free again. The tombstone stays, so that a late copy of the claim cannot take effect.
    Released {
        /// How long the tombstone is kept.
        until: T,
    },
    /// Reported as unknown by its owner. Never expires by itself.
    Unknown {
        /// Why.
        cause: Cause,
    },
}

/// What is remembered of one operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record<T = Timestamp> {
    /// Which write this is.
    pub version: Version,
    /// Which claim this record is, or was, about.
    pub fence: Fence,
    /// Whose operation it is. Compared with the asker's, so no collision can answer for another.
    pub address: Arc<Address>,
    /// What was asked.
    pub fingerprint: Fingerprint,
    /// Which execution this is, counted from 1.
    pub attempt: u32,
    /// Whether an earlier attempt, whose outcome nobody knows, may already have had its effect.
    pub recovery: bool,
    /// When this phase began.
    pub since: T,
    /// Where it stands.
    pub phase: Phase<T>,
}

/// A record that is about to be written: its times are spans from the moment of writing.
pub type Draft = Record<Duration>;

impl Draft {
    /// The record as it is once written at `now`, by the clock of the store that writes it.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Record {
        let phase = match self.phase {
            Phase::Claimed { lease_until } => {
                Phase::Claimed { lease_until: now.after(lease_until) }
            }
            Phase::Done { outcome, keeping, expires_at } => {
                Phase::Done { outcome, keeping, expires_at: now.after(expires_at) }
            }
            Phase::Released { until } => Phase::Released { until: now.after(until) },
            Phase::Unknown { cause } => Phase::Unknown { cause },
        };
        Record {
            version: self.version,
            fence: self.fence,
            address: self.address,
            fingerprint: self.fingerprint,
            attempt: self.attempt,
            recovery: self.recovery,
            since: now.after(self.since),
            phase,
        }
    }
}

/// What a record means now. Derived when read, never written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing<'r> {
    /// Its owner is alive.
    Live {
        /// Until when, without a renewal.
        until: Timestamp,
    },
    /// Nobody can say whether the effect happened.
    Unknown {
        /// Since when.
        since: Timestamp,
        /// Why.
        cause: Cause,
    },
    /// It answers further attempts.
    Final {
        /// What came of it.
        outcome: &'r Arc<Outcome>,
        /// Until when it is kept.
        expires_at: Timestamp,
    },
    /// It is on record, but may be executed again.
    Retryable(&'r Arc<Outcome>),
    /// Free: released, or finished so long ago that it is forgotten.
    Free,
}

impl Record {
    /// What this record means at `now`. A claim whose lease has passed *is* unknown.
    #[must_use]
    pub fn standing(&self, now: Timestamp) -> Standing<'_> {
        match &self.phase {
            Phase::Claimed { lease_until } if *lease_until > now => {
                Standing::Live { until: *lease_until }
            }
            Phase::Claimed { lease_until } => {
                Standing::Unknown { since: *lease_until, cause: Cause::Silence }
            }
            Phase::Unknown { cause } => Standing::Unknown { since: self.since, cause: *cause },
            Phase::Done { expires_at, .. } if *expires_at <= now => Standing::Free,
            Phase::Done { outcome, keeping: Keeping::Final, expires_at } => {
                Standing::Final { outcome, expires_at: *expires_at }
            }
            Phase::Done { outcome, keeping: Keeping::Retryable, .. } => {
                Standing::Retryable(outcome)
            }
            Phase::Released { .. } => Standing::Free,
        }
    }

    /// Whether a store may remove this record: finished and forgotten, or a tombstone past its
    /// time. Never a claim and never an unknown, however old.
    ///
    /// A tombstone outlives [`DELIVERY_MAX`](crate::DELIVERY_MAX). A finished record whose
    /// retention is shorter does not: a late copy of its claim may then find an empty slot, lapse,
    /// and be unknown without need, but it can never execute.
    #[must_use]
    pub fn is_removable(&self, now: Timestamp) -> bool {
        match &self.phase {
            Phase::Done { expires_at: end, .. } | Phase::Released { until: end } => *end <= now,
            Phase::Claimed { .. } | Phase::Unknown { .. } => false,
        }
    }

    /// This claim with its lease renewed at `now`; `None` when it is no claim.
    #[must_use]
    pub fn renewed(&self, now: Timestamp, lease: Duration) -> Option<Self> {
        let Phase::Claimed { .. } = self.phase else {
            return None;
        };
        let phase = Phase::Claimed { lease_until: now.after(lease) };
        Some(Self { version: self.version.renewed(), phase, ..self.clone() })
    }

    /// Whether its owner may still settle it: a claim, or an unknown, that nobody took over.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Claimed { .. } | Phase::Unknown { .. })
    }

    /// Bytes that keeping this record costs, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        let address = &self.address;
        let names = address.tenant().as_str().len()
            + address.principal().map_or(0, |name| name.as_str().len())
            + address.operation().as_str().len()
            + address.key().as_str().len();
        RECORD_BYTES + names + self.outcome_weight()
    }
}

impl<T> Record<T> {
    /// Bytes of its outcome, where it has one.
    #[must_use]
    pub fn outcome_weight(&self) -> usize {
        match &self.phase {
            Phase::Done { outcome, .. } => outcome.weight(),
            Phase::Claimed { .. } | Phase::Released { .. } | Phase::Unknown { .. } => 0,
        }
    }
}

/// What a record costs beside its names and its outcome.
const RECORD_BYTES: usize = 160;

/// What a store must do with a write that names the version it expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Write it.
    Write,
    /// It is there already: a repeated write whose reply was lost. Leave it alone, and say won.
    Repeated,
    /// Something else is there. Say what.
    Refuse,
}

/// The whole of compare-and-swap, for every store: replace `current` by `next` only if it is
/// exactly what the writer `expected`.
#[must_use]
pub fn judge(current: Option<Version>, expected: Option<Version>, next: Version) -> Verdict {
    match current {
        // Before the comparison: the repeated write itself changed what is there.
        Some(there) if there.write == next.write => Verdict::Repeated,
        there if there == expected => Verdict::Write,
        _ => Verdict::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{address, at, done, draft, released};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn fences_and_versions_are_read_back_from_what_was_shown() {
        let (fence, version) = (Fence(7 << 90), Version { write: 9 << 90, renewal: 12 });
        assert_eq!(fence.to_string().parse(), Ok(fence));
        assert_eq!(version.to_string().parse(), Ok(version));
        assert_eq!(format!("{version:?}"), format!("Version({version})"));
        assert_eq!(FENCE_EXAMPLE.parse::<Fence>().unwrap().to_string(), FENCE_EXAMPLE);
        assert_eq!(VERSION_EXAMPLE.parse::<Version>().unwrap().to_string(), VERSION_EXAMPLE);
        for bad in ["", "7", "+0000000000000000000000000000007", &FENCE_EXAMPLE[1..], "long"] {
            assert!(bad.parse::<Fence>().is_err(), "{bad:?}");
            assert!(format!("{bad}+0").parse::<Version>().is_err(), "{bad:?}");
        }
        let error = FENCE_EXAMPLE.parse::<Version>().unwrap_err();
        assert!(error.to_string().starts_with("not a version; copy it whole"), "{error}");
    }

    #[test]
    fn a_draft_gets_its_times_from_the_store() {
        let claim = draft(1, Phase::Claimed { lease_until: SECOND }).at(at(5_000));
        assert_eq!(claim.since, at(5_000));
        assert_eq!(claim.phase, Phase::Claimed { lease_until: at(6_000) });
        let done = done(1, Keeping::Final, SECOND).at(at(7));
        assert!(matches!(done.phase, Phase::Done { expires_at, .. } if expires_at == at(1_007)));
        let unknown = draft(1, Phase::Unknown { cause: Cause::TimedOut }).at(at(9));
        assert_eq!(unknown.phase, Phase::Unknown { cause: Cause::TimedOut });
    }

    /// X1: a claim lives by its lease, not by the retention. X3: silence is a state of its own.
    #[test]
    fn x1_x3_a_lapsed_claim_is_unknown_from_the_very_millisecond() {
        let claim = draft(1, Phase::Claimed { lease_until: SECOND }).at(at(0));
        assert_eq!(claim.standing(at(999)), Standing::Live { until: at(1_000) });
        let lapsed = Standing::Unknown { since: at(1_000), cause: Cause::Silence };
        assert_eq!(claim.standing(at(1_000)), lapsed);
        assert_eq!(claim.standing(at(u64::MAX)), lapsed, "and it stays so for ever");
    }

    /// D11: an expired record that is not yet swept does not exist.
    #[test]
    fn d11_done_is_forgotten_at_its_time_swept_or_not() {
        let record = done(1, Keeping::Final, SECOND).at(at(0));
        assert!(matches!(record.standing(at(999)), Standing::Final { .. }));
        assert_eq!(record.standing(at(1_000)), Standing::Free);
    }

    /// C8: nothing but expiry removes a record, and nothing at all removes a claim or an unknown.
    #[test]
    fn c8_only_expired_done_and_released_may_be_removed() {
        let end_of_time = at(u64::MAX);
        let claim = draft(1, Phase::Claimed { lease_until: SECOND }).at(at(0));
        let unknown = draft(1, Phase::Unknown { cause: Cause::Reported }).at(at(0));
        assert!(!claim.is_removable(end_of_time));
        assert!(!unknown.is_removable(end_of_time));
        for record in [done(1, Keeping::Final, SECOND).at(at(0)), released(1, SECOND).at(at(0))] {
            assert!(!record.is_removable(at(999)));
            assert!(record.is_removable(at(1_000)));
        }
        assert_eq!(released(1, SECOND).at(at(0)).standing(at(5)), Standing::Free);
    }

    #[test]
    fn a_renewal_changes_the_version_and_the_lease_and_nothing_else() {
        let claim = draft(1, Phase::Claimed { lease_until: SECOND }).at(at(0));
        let renewed = claim.renewed(at(900), SECOND).unwrap();
        assert_ne!(renewed.version, claim.version);
        assert_eq!({ renewed.version.write }, { claim.version.write });
        assert_eq!(renewed.standing(at(1_500)), Standing::Live { until: at(1_900) });
        assert_eq!((renewed.fence, renewed.since), (claim.fence, claim.since));
        assert_eq!(done(1, Keeping::Final, SECOND).at(at(0)).renewed(at(1), SECOND), None);
    }

    /// X2, D6: the store's comparison decides who wins, and a version is not a fence.
    #[test]
    fn x2_d6_a_swap_wins_only_against_exactly_what_was_seen() {
        let (a, b) = (Version::of_write(1), Version::of_write(2));
        assert_eq!(judge(None, None, a), Verdict::Write);
        assert_eq!(judge(Some(a), Some(a), b), Verdict::Write);
        assert_eq!(judge(Some(a), None, b), Verdict::Refuse, "somebody was first");
        assert_eq!(judge(None, Some(a), b), Verdict::Refuse, "it is gone");
        let renewed = a.renewed();
        assert_eq!(judge(Some(renewed), Some(a), b), Verdict::Refuse, "a renewal came between");
        assert_eq!(judge(Some(renewed), Some(renewed), b), Verdict::Write);
    }

    #[test]
    fn a_repeated_write_counts_as_won_and_undoes_nothing() {
        let (claim, done) = (Version::of_write(1), Version::of_write(2));
        assert_eq!(judge(Some(claim), None, claim), Verdict::Repeated);
        assert_eq!(judge(Some(claim.renewed()), None, claim), Verdict::Repeated, "renewed since");
        assert_eq!(judge(Some(done), None, claim), Verdict::Refuse, "a late copy of the claim");
    }

    #[test]
    fn the_weight_of_a_record_grows_with_its_outcome() {
        let small = released(1, SECOND).at(at(0)).weight();
        let large = done(1, Keeping::Final, SECOND).at(at(0)).weight();
        assert_eq!(large - small, 2, "the outcome of this test has two bytes");
        assert!(small > address("k").key().as_str().len());
    }

    #[test]
    fn an_owner_may_settle_what_is_claimed_or_unknown_only() {
        assert!(draft(1, Phase::Claimed { lease_until: SECOND }).at(at(0)).is_open());
        assert!(draft(1, Phase::Unknown { cause: Cause::TimedOut }).at(at(0)).is_open());
        assert!(!released(1, SECOND).at(at(0)).is_open());
        assert!(!done(1, Keeping::Retryable, SECOND).at(at(0)).is_open());
    }
}
