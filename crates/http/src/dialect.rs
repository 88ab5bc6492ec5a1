//! What a contract wants on the wire, as data: header names, statuses, and the shape of a refusal.
//!
//! One [`Dialect`] is one row of a table; nothing here reads a request or decides anything. Where
//! two contracts disagree the difference is a value in this file or in the policy, never a branch
//! in a door. Status codes exist only here.

use std::borrow::Cow;

use http::{HeaderName, HeaderValue, StatusCode};
use onetake_core::{
    Code, Finality, KeyGrammar, OnLiveMismatch, OnUnknown, Policy, PolicyBuilder, StatusRules,
};

/// What a request without a key gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnNoKey {
    /// It is refused.
    Refuse,
    /// It passes straight through, and nothing is recorded.
    Pass,
}

/// The shape of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BodyShape {
    /// `application/problem+json` (RFC 9457).
    Problem,
    /// `{"error": word, "message", "details": {"retryAfter"}}`.
    Flat,
    /// `{"error": {"code": WORD, "message"}}`, the word in capitals.
    Nested,
    /// `{"error": {"type": "idempotency_error", "code": word, "message"}}`.
    Typed,
    /// `{"error": message}`.
    Message,
}

/// What one refusal is on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// What the contract calls it; `None`: our own code.
    pub word: Option<Cow<'static, str>>,
}

impl Refusal {
    const fn new(status: StatusCode, word: &'static str) -> Self {
        Self { status, word: Some(Cow::Borrowed(word)) }
    }

    const fn plain(status: StatusCode) -> Self {
        Self { status, word: None }
    }
}

/// What one contract wants on the wire, and what it makes of an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    /// What it is called in a configuration.
    pub name: Cow<'static, str>,
    /// The header that carries the key.
    pub key_header: HeaderName,
    /// Which characters a key may hold.
    pub grammar: KeyGrammar,
    /// What marks an answer that was given before.
    pub replay_mark: (HeaderName, HeaderValue),
    /// What a request without a key gets.
    pub no_key: OnNoKey,
    /// What other content under a known key gets.
    pub mismatch: Refusal,
    /// What a duplicate gets while the first is executing.
    pub in_flight: Refusal,
    /// The shape of every refusal.
    pub body: BodyShape,
    /// Which statuses are kept, freed or unknown.
    pub statuses: StatusRules,
    /// What becomes of a handler that failed without a response.
    pub failures: Finality,
    /// What becomes of a handler that panicked.
    pub panics: Finality,
    /// What other content under a live key is told.
    pub on_live_mismatch: OnLiveMismatch,
    /// What may happen when the outcome is unknown.
    pub on_unknown: OnUnknown,
}

const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const TRUE: HeaderValue = HeaderValue::from_static("true");

impl Dialect {
    /// The draft of the IETF, and the default.
    #[must_use]
    pub fn ietf() -> Self {
        Self {
            name: Cow::Borrowed("ietf"),
            key_header: KEY_HEADER,
            grammar: KeyGrammar::VisibleAscii,
            replay_mark: (REPLAYED, TRUE),
            no_key: OnNoKey::Refuse,
            mismatch: Refusal::plain(StatusCode::UNPROCESSABLE_ENTITY),
            in_flight: Refusal::plain(StatusCode::CONFLICT),
            body: BodyShape::Problem,
            statuses: StatusRules::ietf(),
            failures: Finality::Unknown,
            panics: Finality::Unknown,
            on_live_mismatch: OnLiveMismatch::Mismatch,
            on_unknown: OnUnknown::Hold,
        }
    }

    /// As Stripe does it.
    #[must_use]
    pub fn stripe() -> Self {
        Self {
            name: Cow::Borrowed("stripe"),
            no_key: OnNoKey::Pass,
            mismatch: Refusal::new(StatusCode::BAD_REQUEST, "idempotency_error"),
            in_flight: Refusal::new(StatusCode::CONFLICT, "idempotency_key_in_use"),
            body: BodyShape::Typed,
            statuses: StatusRules::stripe(),
            ..Self::ietf()
        }
    }

    /// The contract of `OpenWOP`.
    #[must_use]
    pub fn openwop() -> Self {
        Self {
            name: Cow::Borrowed("openwop"),
            grammar: KeyGrammar::UrlSafe,
            replay_mark: (HeaderName::from_static("openwop-idempotent-replay"), TRUE),
            no_key: OnNoKey::Pass,
            mismatch: Refusal::new(StatusCode::CONFLICT, "idempotency_key_mismatch"),
            in_flight: Refusal::new(StatusCode::CONFLICT, "idempotency_in_flight"),
            body: BodyShape::Flat,
            statuses: StatusRules::openwop(),
            failures: Finality::Retryable,
            on_live_mismatch: OnLiveMismatch::InFlight,
            on_unknown: OnUnknown::Retry,
            ..Self::ietf()
        }
    }

    /// The contract of `dAvePi`.
    #[must_use]
    pub fn davepi() -> Self {
        Self {
            name: Cow::Borrowed("davepi"),
            replay_mark: (HeaderName::from_static("idempotency-replay"), TRUE),
            no_key: OnNoKey::Pass,
            mismatch: Refusal::new(StatusCode::CONFLICT, "IDEMPOTENCY_CONFLICT"),
            in_flight: Refusal::new(StatusCode::CONFLICT, "IDEMPOTENCY_IN_PROGRESS"),
            body: BodyShape::Nested,
            statuses: StatusRules::davepi(),
            failures: Finality::Free,
            ..Self::ietf()
        }
    }

    /// The contract of Cnerium.
    #[must_use]
    pub fn cnerium() -> Self {
        Self {
            name: Cow::Borrowed("cnerium"),
            mismatch: Refusal::plain(StatusCode::CONFLICT),
            body: BodyShape::Message,
            statuses: StatusRules::cnerium(),
            failures: Finality::Free,
            ..Self::ietf()
        }
    }

    /// The dialects that are built in.
    #[must_use]
    pub fn all() -> [Self; 5] {
        [Self::ietf(), Self::stripe(), Self::openwop(), Self::davepi(), Self::cnerium()]
    }

    /// The built-in dialect of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|dialect| dialect.name == name)
    }

    /// A policy that begins with what this contract says.
    pub fn policy(&self) -> PolicyBuilder {
        // Only one contract has a least retention, and its policy knows it.
        let begun = if self.name == "openwop" { Policy::openwop() } else { Policy::builder() };
        begun
            .statuses(self.statuses)
            .failures(self.failures)
            .panics(self.panics)
            .on_live_mismatch(self.on_live_mismatch)
            .on_unknown(self.on_unknown)
    }

    /// The status of a refusal with `code`.
    #[must_use]
    pub const fn status(&self, code: Code) -> StatusCode {
        match code {
            Code::KeyMismatch => self.mismatch.status,
            Code::InFlight => self.in_flight.status,
            Code::KeyMissing
            | Code::KeyInvalid
            | Code::BodyNotCanonical
            | Code::RequestInvalid
            | Code::PolicyInvalid => StatusCode::BAD_REQUEST,
            Code::IdentityMissing | Code::IdentityInvalid | Code::TokenInvalid => {
                StatusCode::UNAUTHORIZED
            }
            Code::IdentityForbidden | Code::HostRefused | Code::OriginRefused => {
                StatusCode::FORBIDDEN
            }
            Code::RouteMissing | Code::RecordMissing => StatusCode::NOT_FOUND,
            Code::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Code::OutcomeUnknown
            | Code::ResultNotKept
            | Code::ResultOfOtherType
            | Code::RecordChanged
            | Code::ClaimLive
            | Code::AlreadySettled => StatusCode::CONFLICT,
            Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::NewKeysLimited => StatusCode::TOO_MANY_REQUESTS,
            Code::Fenced | Code::StoreCorrupt => StatusCode::INTERNAL_SERVER_ERROR,
            Code::NotSupported => StatusCode::NOT_IMPLEMENTED,
            Code::UpstreamUnreachable | Code::UpstreamFailed => StatusCode::BAD_GATEWAY,
            Code::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
            Code::AttemptFreed
            | Code::StillExecuting
            | Code::ExecutedNotRecorded
            | Code::StoreUnavailable
            | Code::StoreFull
            | Code::Busy
            | Code::Stopping
            | Code::ActUncertain
            | Code::StoreMissing
            | Code::StoreLocked
            | Code::StoreSealed
            | Code::StoreForeign
            | Code::StoreUnfit
            | Code::IdentityUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// What this contract calls a refusal with `code`.
    #[must_use]
    pub fn word(&self, code: Code) -> Cow<'_, str> {
        let named = [(Code::KeyMismatch, &self.mismatch), (Code::InFlight, &self.in_flight)];
        let own = named.into_iter().find(|(of, _)| *of == code);
        let own = own.and_then(|(_, refusal)| refusal.word.as_deref());
        match (own, self.body) {
            (Some(word), _) => Cow::Borrowed(word),
            (None, BodyShape::Nested) => Cow::Owned(code.as_str().to_ascii_uppercase()),
            (
                None,
                BodyShape::Problem | BodyShape::Flat | BodyShape::Typed | BodyShape::Message,
            ) => Cow::Borrowed(code.as_str()),
        }
    }
}

impl Default for Dialect {
    fn default() -> Self {
        Self::ietf()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole table as text, so that a reader checks the contract without reading Rust.
    #[test]
    fn the_table_of_dialects_reads_as_the_contracts_do() {
        let row = |dialect: Dialect| {
            let (mark, _) = &dialect.replay_mark;
            let (mismatch, in_flight) = (&dialect.mismatch, &dialect.in_flight);
            format!(
                "{}: {mark} | {:?} | {} {} {:?} | {} {} | {:?} | {:?}",
                dialect.name,
                dialect.no_key,
                mismatch.status.as_u16(),
                dialect.word(Code::KeyMismatch),
                dialect.on_live_mismatch,
                in_flight.status.as_u16(),
                dialect.word(Code::InFlight),
                dialect.body,
                dialect.on_unknown,
            )
        };
        let table: Vec<_> = Dialect::all().into_iter().map(row).collect();
        assert_eq!(
            table,
            [
                "ietf: idempotent-replayed | Refuse | 422 key_mismatch Mismatch | 409 in_flight | \
                 Problem | Hold",
                "stripe: idempotent-replayed | Pass | 400 idempotency_error Mismatch | 409 \
                 idempotency_key_in_use | Typed | Hold",
                "openwop: openwop-idempotent-replay | Pass | 409 idempotency_key_mismatch InFlight \
                 | 409 idempotency_in_flight | Flat | Retry",
                "davepi: idempotency-replay | Pass | 409 IDEMPOTENCY_CONFLICT Mismatch | 409 \
                 IDEMPOTENCY_IN_PROGRESS | Nested | Hold",
                "cnerium: idempotent-replayed | Refuse | 409 key_mismatch Mismatch | 409 in_flight \
                 | Message | Hold",
            ]
        );
    }

    #[test]
    fn every_dialect_builds_a_policy_and_is_found_by_its_name() {
        for dialect in Dialect::all() {
            assert!(dialect.policy().build().is_ok(), "{}", dialect.name);
            assert_eq!(Dialect::named(&dialect.name), Some(dialect));
        }
        assert_eq!(Dialect::named("none"), None);
    }

    /// A refusal never looks like a success, and a caller's mistake is never our fault.
    #[test]
    fn every_code_has_a_status_that_is_a_refusal() {
        for dialect in Dialect::all() {
            for code in Code::ALL {
                let status = dialect.status(code);
                assert!(status.is_client_error() || status.is_server_error(), "{code}");
            }
            for mistake in [Code::KeyMissing, Code::KeyInvalid, Code::KeyMismatch, Code::TooLarge] {
                assert!(dialect.status(mistake).is_client_error(), "{mistake}");
            }
        }
    }
}
