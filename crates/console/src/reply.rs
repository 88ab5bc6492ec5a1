//! From the words of the engine to the JSON of the admin surface.
//!
//! Every code has its status here, in one complete table. Shows what it is given and decides
//! nothing; content appears only where it was asked for.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use onetake_core::{Algorithm, Cause, Code, Fingerprint, Header, Outcome, Status, Timestamp};
use onetake_engine::operate::{Audited, Listed, OperateError, Purged, Row, Shown};
use onetake_engine::{Page, Position};

use crate::upkeep::UpkeepError;
use crate::wire::{
    AuditPage, AuditRow, Content, Field, KeyRow, KeyShown, Keys, OutcomeRow, PROBLEM_JSON, Problem,
    PurgeDone, Veiled,
};

/// The status of a code.
const fn status(code: Code) -> StatusCode {
    match code {
        Code::KeyMissing
        | Code::KeyInvalid
        | Code::BodyNotCanonical
        | Code::PolicyInvalid
        | Code::RequestInvalid => StatusCode::BAD_REQUEST,
        Code::TokenInvalid | Code::IdentityMissing | Code::IdentityInvalid => {
            StatusCode::UNAUTHORIZED
        }
        Code::OriginRefused | Code::IdentityForbidden => StatusCode::FORBIDDEN,
        Code::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
        Code::NewKeysLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::UpstreamUnreachable | Code::UpstreamFailed => StatusCode::BAD_GATEWAY,
        Code::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        Code::RecordMissing | Code::RouteMissing => StatusCode::NOT_FOUND,
        Code::KeyMismatch
        | Code::InFlight
        | Code::AttemptFreed
        | Code::OutcomeUnknown
        | Code::Fenced
        | Code::RecordChanged
        | Code::ClaimLive
        | Code::AlreadySettled => StatusCode::CONFLICT,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::HostRefused => StatusCode::MISDIRECTED_REQUEST,
        Code::StoreCorrupt | Code::ResultNotKept | Code::ResultOfOtherType => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        Code::NotSupported => StatusCode::NOT_IMPLEMENTED,
        Code::StillExecuting
        | Code::ExecutedNotRecorded
        | Code::StoreUnavailable
        | Code::StoreFull
        | Code::Busy
        | Code::Stopping
        | Code::IdentityUnavailable
        | Code::StoreMissing
        | Code::StoreLocked
        | Code::StoreSealed
        | Code::StoreForeign
        | Code::StoreUnfit
        | Code::ActUncertain => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// A refusal with `code`, saying `detail`.
pub(crate) fn problem(code: Code, detail: impl Into<String>) -> Problem {
    Problem {
        kind: code.problem_type(),
        title: code.as_str().replace('_', " "),
        status: status(code).as_u16(),
        code: code.as_str().to_owned(),
        detail: detail.into(),
        there: None,
    }
}

impl Problem {
    /// A refusal with `code`, saying `detail`.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        problem(code, detail)
    }
}

impl From<OperateError> for Problem {
    fn from(error: OperateError) -> Self {
        let there = error.there().map(|row| Box::new(key_row(row)));
        Self { there, ..problem(error.code(), error.to_string()) }
    }
}

impl From<UpkeepError> for Problem {
    fn from(error: UpkeepError) -> Self {
        problem(error.code(), error.to_string())
    }
}

impl axum::response::IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        let body = serde_json::to_vec(&self);
        let body = body.expect("invariant: text and numbers can be written as JSON");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if self.status == StatusCode::UNAUTHORIZED.as_u16() {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// One page of keys.
pub(crate) fn keys(listed: &Listed) -> Keys {
    Keys {
        keys: listed.rows.iter().map(key_row).collect(),
        next: listed.next.as_ref().map(ToString::to_string),
        looked_at: listed.looked_at,
        now_ms: listed.now.as_millis(),
    }
}

/// One key, without its content.
pub(crate) fn key_row(row: &Row) -> KeyRow {
    let address = &row.address;
    KeyRow {
        tenant: address.tenant().as_str().to_owned(),
        principal: address.principal().map(|name| name.as_str().to_owned()),
        operation: address.operation().as_str().to_owned(),
        key: Veiled(address.key().as_str().to_owned()),
        slot: address.slot().hex(),
        phase: row.kind,
        cause: row.cause.map(|cause| cause_word(cause).to_owned()),
        fence: row.fence.to_string(),
        version: row.version.to_string(),
        attempt: row.attempt,
        recovery: row.recovery,
        since_ms: row.since.as_millis(),
        age_ms: u64::try_from(row.age.as_millis()).unwrap_or(u64::MAX),
        until_ms: row.until.map(Timestamp::as_millis),
        outcome: row.outcome.map(|outcome| OutcomeRow {
            form: outcome.form,
            status: outcome.status.map(Status::code),
            bytes: outcome.bytes,
        }),
    }
}

const fn cause_word(cause: Cause) -> &'static str {
    match cause {
        Cause::Silence => "silence",
        Cause::TimedOut => "timed_out",
        Cause::Panicked => "panicked",
        Cause::Reported => "reported",
        Cause::Unrecovered => "unrecovered",
    }
}

/// One key with everything.
pub(crate) fn key_shown(shown: &Shown) -> KeyShown {
    KeyShown {
        row: key_row(&shown.row),
        fingerprint: fingerprint(&shown.fingerprint),
        content: shown.outcome.as_deref().map(content),
        now_ms: shown.now.as_millis(),
    }
}

fn fingerprint(fingerprint: &Fingerprint) -> String {
    let algorithm = match fingerprint.method().algorithm() {
        Algorithm::Raw => "raw",
        Algorithm::Json => "json",
    };
    format!("{algorithm}:{}", hex(fingerprint.digest()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |hex, b| hex + &format!("{b:02x}"))
}

fn content(outcome: &Outcome) -> Content {
    let (headers, body) = match outcome {
        Outcome::Response { headers, body, .. } => (&headers[..], Some(body)),
        Outcome::Value(bytes) | Outcome::Failure(bytes) => (&[][..], Some(bytes)),
        Outcome::NotKept { .. } => (&[][..], None),
    };
    let field = |header: &Header| Field {
        name: header.name.to_string(),
        value: Veiled(String::from_utf8_lossy(&header.value).into_owned()),
    };
    let text = body.and_then(|body| str::from_utf8(body).ok());
    Content {
        headers: headers.iter().map(field).collect(),
        body: text.map(|text| Veiled(text.to_owned())),
        body_hex: body.filter(|_| text.is_none()).map(|body| Veiled(hex(body))),
    }
}

/// What one call of a purge did.
pub(crate) fn purge_done(purged: &Purged) -> PurgeDone {
    PurgeDone {
        tombstones: purged.tombstones,
        live: purged.live,
        next: purged.next.as_ref().map(ToString::to_string),
    }
}

/// One page of the audit.
pub(crate) fn audit_page(page: Page<Audited>) -> AuditPage {
    let Page { items, more } = page;
    let last = items.last().map(|entry| entry.position);
    let row = |entry: Audited| {
        let Audited { position: Position(position), at, audit } = entry;
        AuditRow { position, at_ms: at.as_millis(), audit }
    };
    AuditPage {
        next: last.filter(|_| more).map(|Position(position)| position),
        entries: items.into_iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_type_and_the_status_of_a_refusal() {
        for code in Code::ALL {
            let problem = problem(code, "why");
            assert_eq!(problem.kind, format!("urn:onetake:error:{code}"));
            assert!((400..600).contains(&problem.status), "{code}: {}", problem.status);
            assert_eq!(problem.known(), Some(code));
        }
    }
}
