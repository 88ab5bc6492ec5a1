//! The stable codes of everything Onetake refuses or fails to do.
//!
//! A code is a promise to callers: it may be added, never renamed. Each has a page in `docs/errors`
//! that says what happened and what to do; `cargo xtask tidy` holds the two lists together. This
//! file knows no status and no wording of an answer: those belong to the dialects.

use std::fmt;

/// A stable code, the same in every door, log and document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The operation needs a key and the caller sent none.
    KeyMissing,
    /// The key, or another part of the address, is not a valid name.
    KeyInvalid,
    /// The key was used before for something else.
    KeyMismatch,
    /// The same operation is being executed right now.
    InFlight,
    /// The attempt that this caller waited for ended without a result that may be kept.
    AttemptFreed,
    /// An earlier attempt may or may not have had its effect.
    OutcomeUnknown,
    /// The execution goes on, but the caller has been kept long enough.
    StillExecuting,
    /// The execution finished, but its outcome is not yet durable.
    ExecutedNotRecorded,
    /// Another claim replaced this one while it was executing.
    Fenced,
    /// The store cannot be reached.
    StoreUnavailable,
    /// The store holds as many records as it may.
    StoreFull,
    /// What the store holds cannot be true.
    StoreCorrupt,
    /// A record or a transaction is larger than any store takes.
    TooLarge,
    /// This process is at its limit of executions or attempts.
    Busy,
    /// This process is stopping.
    Stopping,
    /// The body is not JSON, or not JSON that has one meaning.
    BodyNotCanonical,
    /// The operation was executed, but its result could not be kept.
    ResultNotKept,
    /// The kept result is of another type than the caller expects.
    ResultOfOtherType,
    /// A setting contradicts a promise.
    PolicyInvalid,
    /// The slot that an operator named holds no record.
    RecordMissing,
    /// The record is no longer what the operator decided upon.
    RecordChanged,
    /// The owner of the claim is alive, so an operator may not end it unforced.
    ClaimLive,
    /// There is nothing left to settle: the record has an outcome, or its key is free.
    AlreadySettled,
    /// The store could not say whether an operator's act was written.
    ActUncertain,
    /// A request of an operator cannot be understood.
    RequestInvalid,
    /// The admin surface has no such path or method.
    RouteMissing,
    /// The token of the admin surface is missing or wrong.
    TokenInvalid,
    /// The request names a host that the admin surface is not.
    HostRefused,
    /// The request comes from a page of another origin.
    OriginRefused,
    /// The store in use cannot do this.
    NotSupported,
    /// The request did not arrive whole in time.
    RequestTimeout,
    /// The caller did not say who it is.
    IdentityMissing,
    /// Who the caller says it is cannot be verified.
    IdentityInvalid,
    /// The caller is known, and may not do this.
    IdentityForbidden,
    /// Nobody can verify callers right now.
    IdentityUnavailable,
    /// This tenant has begun as many operations as it may for now.
    NewKeysLimited,
    /// The upstream cannot be reached, so nothing was sent to it.
    UpstreamUnreachable,
    /// The request was sent, and the upstream broke off before it answered.
    UpstreamFailed,
    /// The request was sent, and the upstream did not answer in time.
    UpstreamTimeout,
    /// There is no store at the place that was named.
    StoreMissing,
    /// Another process has the store open.
    StoreLocked,
    /// The store is sealed and its key is missing or another, or it is not sealed at all.
    StoreSealed,
    /// What lies there is no store, or one of a newer release.
    StoreForeign,
    /// The server would not keep what a store promises.
    StoreUnfit,
}

impl Code {
    /// Every code, in the order of the list above.
    pub const ALL: [Self; 44] = [
        Self::KeyMissing,
        Self::KeyInvalid,
        Self::KeyMismatch,
        Self::InFlight,
        Self::AttemptFreed,
        Self::OutcomeUnknown,
        Self::StillExecuting,
        Self::ExecutedNotRecorded,
        Self::Fenced,
        Self::StoreUnavailable,
        Self::StoreFull,
        Self::StoreCorrupt,
        Self::TooLarge,
        Self::Busy,
        Self::Stopping,
        Self::BodyNotCanonical,
        Self::ResultNotKept,
        Self::ResultOfOtherType,
        Self::PolicyInvalid,
        Self::RecordMissing,
        Self::RecordChanged,
        Self::ClaimLive,
        Self::AlreadySettled,
        Self::ActUncertain,
        Self::RequestInvalid,
        Self::RouteMissing,
        Self::TokenInvalid,
        Self::HostRefused,
        Self::OriginRefused,
        Self::NotSupported,
        Self::RequestTimeout,
        Self::IdentityMissing,
        Self::IdentityInvalid,
        Self::IdentityForbidden,
        Self::IdentityUnavailable,
        Self::NewKeysLimited,
        Self::UpstreamUnreachable,
        Self::UpstreamFailed,
        Self::UpstreamTimeout,
        Self::StoreMissing,
        Self::StoreLocked,
        Self::StoreSealed,
        Self::StoreForeign,
        Self::StoreUnfit,
    ];

    /// The type of a problem (RFC 9457) with this code. Its page is `docs/errors/<code>.md`.
    #[must_use]
    pub fn problem_type(self) -> String {
        format!("urn:onetake:error:{}", self.as_str())
    }

    /// The code as callers see it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KeyMissing => "key_missing",
            Self::KeyInvalid => "key_invalid",
            Self::KeyMismatch => "key_mismatch",
            Self::InFlight => "in_flight",
            Self::AttemptFreed => "attempt_freed",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::StillExecuting => "still_executing",
            Self::ExecutedNotRecorded => "executed_not_recorded",
            Self::Fenced => "fenced",
            Self::StoreUnavailable => "store_unavailable",
            Self::StoreFull => "store_full",
            Self::StoreCorrupt => "store_corrupt",
            Self::TooLarge => "too_large",
            Self::Busy => "busy",
            Self::Stopping => "stopping",
            Self::BodyNotCanonical => "body_not_canonical",
            Self::ResultNotKept => "result_not_kept",
            Self::ResultOfOtherType => "result_of_other_type",
            Self::PolicyInvalid => "policy_invalid",
            Self::RecordMissing => "record_missing",
            Self::RecordChanged => "record_changed",
            Self::ClaimLive => "claim_live",
            Self::AlreadySettled => "already_settled",
            Self::ActUncertain => "act_uncertain",
            Self::RequestInvalid => "request_invalid",
            Self::RouteMissing => "route_missing",
            Self::TokenInvalid => "token_invalid",
            Self::HostRefused => "host_refused",
            Self::OriginRefused => "origin_refused",
            Self::NotSupported => "not_supported",
            Self::RequestTimeout => "request_timeout",
            Self::IdentityMissing => "identity_missing",
            Self::IdentityInvalid => "identity_invalid",
            Self::IdentityForbidden => "identity_forbidden",
            Self::IdentityUnavailable => "identity_unavailable",
            Self::NewKeysLimited => "new_keys_limited",
            Self::UpstreamUnreachable => "upstream_unreachable",
            Self::UpstreamFailed => "upstream_failed",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::StoreMissing => "store_missing",
            Self::StoreLocked => "store_locked",
            Self::StoreSealed => "store_sealed",
            Self::StoreForeign => "store_foreign",
            Self::StoreUnfit => "store_unfit",
        }
    }

    /// The code that reads `text`, where this release knows it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed_once_and_reads_like_a_word() {
        let mut seen: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        for code in &seen {
            assert!(code.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{code}");
        }
        seen.sort_unstable();
        let count = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), count, "two codes read the same");
        assert_eq!(Code::Fenced.to_string(), "fenced");
        assert!(Code::ALL.into_iter().all(|code| Code::parse(code.as_str()) == Some(code)));
        assert_eq!(Code::parse("no_such_code"), None);
    }
}
