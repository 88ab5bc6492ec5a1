//! From an answer to a response: what callers see, in the words of their dialect.
//!
//! Cannot fail and decides nothing. What is given again is exactly what was kept; a refusal carries
//! its code in a header of ours, so that nobody takes it for the backend's.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use httpdate::HttpDate;
use onetake_core::{Code, Header, Outcome, Timestamp};
use onetake_engine::{Answer, RunError};
use serde_json::{Value, json};

use crate::ask::Refused;
use crate::dialect::{BodyShape, Dialect};

/// Names the code of a refusal of ours.
pub const REFUSED: HeaderName = HeaderName::from_static("onetake-refused");
/// Until when the answer is kept (X16).
pub const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
/// Says what an observed request would have got.
pub const OBSERVED: HeaderName = HeaderName::from_static("onetake-observed");

/// Where the format of dates ends.
const YEAR_10_000_MS: u64 = 253_402_300_800_000;

/// What a caller gets: the response that was just made, or one that stands for itself.
#[derive(Debug)]
pub(crate) enum Said {
    /// This attempt executed; its own response is at hand, and is kept until then.
    Own(Option<Timestamp>),
    /// This response.
    Whole(Response<Bytes>),
}

/// What `ended` is on the wire.
pub(crate) fn say(ended: Result<Answer, RunError>, dialect: &Dialect) -> Said {
    let refused = match ended {
        Ok(Answer::Executed { expires_at, .. }) => return Said::Own(expires_at),
        Ok(Answer::Replayed { outcome, expires_at }) => {
            return Said::Whole(again(&outcome, Some(expires_at), dialect));
        }
        Ok(Answer::Joined { outcome, expires_at }) => {
            return Said::Whole(again(&outcome, expires_at, dialect));
        }
        Ok(Answer::Freed) => Refused {
            retry_after: Some(Duration::from_secs(1)),
            ..Refused::new(
                Code::AttemptFreed,
                "the attempt that ran came to nothing; retry with this key",
            )
        },
        Ok(Answer::Mismatch) => {
            Refused::new(Code::KeyMismatch, "this key was used before, for another request")
        }
        Ok(Answer::InFlight { retry_after }) => Refused {
            retry_after: Some(retry_after),
            ..Refused::new(
                Code::InFlight,
                "a request with this key is being executed; come back with the same key",
            )
        },
        Ok(Answer::StillExecuting { retry_after }) => Refused {
            retry_after: Some(retry_after),
            ..Refused::new(
                Code::StillExecuting,
                "this request is still being executed; come back with the same key",
            )
        },
        Ok(Answer::Unknown { .. }) => Refused::new(
            Code::OutcomeUnknown,
            "an earlier attempt with this key may or may not have taken effect; it is not tried \
             again until somebody who knows has settled it, so do not send it with another key",
        ),
        Err(error) => failed(&error),
    };
    Said::Whole(refuse(&refused, dialect))
}

/// Why the rule could not be kept. The words of a store are for the log, not for callers.
fn failed(error: &RunError) -> Refused {
    let code = error.code();
    #[allow(clippy::wildcard_enum_match_arm, reason = "the other codes are no failures of a walk")]
    let detail = match code {
        Code::StoreUnavailable => "the store cannot be reached; nothing was executed",
        Code::StoreFull => "the store takes no new keys at the moment; nothing was executed",
        Code::ExecutedNotRecorded => {
            "this request was executed and its outcome is not recorded yet; come back with the \
             same key, never with a new one"
        }
        Code::Fenced => {
            "another attempt, or an operator, took this key over while it was being executed; the \
             effect may happen twice"
        }
        Code::Busy => "too much is being executed at the moment; nothing was executed",
        Code::Stopping => "this server is stopping; nothing was executed",
        Code::TooLarge => "the request is larger than the store takes",
        _ => "the promise could not be kept; nothing was executed",
    };
    tracing::warn!(%code, %error, "a keyed request failed");
    Refused { code, detail: detail.into(), retry_after: Some(Duration::from_secs(1)) }
}

/// The response of an earlier attempt.
fn again(outcome: &Outcome, expires_at: Option<Timestamp>, dialect: &Dialect) -> Response<Bytes> {
    let mut response = whole(outcome, expires_at, dialect);
    if matches!(outcome, Outcome::Response { .. }) {
        let (name, value) = &dialect.replay_mark;
        response.headers_mut().insert(name, value.clone());
    }
    response
}

/// The response that `outcome` is, whoever asks for it.
pub(crate) fn whole(
    outcome: &Outcome,
    expires_at: Option<Timestamp>,
    dialect: &Dialect,
) -> Response<Bytes> {
    let Outcome::Response { status, headers, body } = outcome else {
        return refuse(&not_kept(outcome), dialect);
    };
    let mut response = Response::new(body.clone());
    *response.status_mut() = status_of(status.code());
    // At once, with the mark, the expiry and the length that whoever sends it adds; where they are
    // too many that shows below.
    let _ = response.headers_mut().try_reserve(headers.len() + 3);
    for Header { name, value } in headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_maybe_shared(value.clone());
        // They were headers when they were kept, so they are still.
        if let (Ok(name), Ok(value)) = (name, value) {
            response.headers_mut().append(name, value);
        }
    }
    expires(response.headers_mut(), expires_at);
    response
}

fn not_kept(outcome: &Outcome) -> Refused {
    let detail = match outcome {
        Outcome::NotKept { status: Some(status) } => format!(
            "this request was executed and answered {}; the response was too large to be kept, or \
             a stream",
            status.code()
        ),
        Outcome::NotKept { status: None }
        | Outcome::Failure(_)
        | Outcome::Value(_)
        | Outcome::Response { .. } => {
            "this request was executed, and there is no response to give again".to_owned()
        }
    };
    Refused::new(Code::ResultNotKept, detail)
}

fn status_of(code: u16) -> StatusCode {
    StatusCode::from_u16(code).expect("invariant: a kept status is 100 to 599")
}

/// Says until when an answer is kept.
pub(crate) fn expires(headers: &mut HeaderMap, at: Option<Timestamp>) {
    let Some(at) = at.filter(|at| at.as_millis() < YEAR_10_000_MS) else { return };
    let date = HttpDate::from(UNIX_EPOCH + Duration::from_millis(at.as_millis()));
    let mut text = BytesMut::with_capacity("Thu, 01 Jan 1970 00:00:00 GMT".len());
    write!(text, "{date}").expect("invariant: memory takes what is written");
    if let Ok(value) = HeaderValue::from_maybe_shared(text.freeze()) {
        headers.insert(EXPIRES, value);
    }
}

/// A refusal in the words of `dialect`.
pub(crate) fn refuse(refused: &Refused, dialect: &Dialect) -> Response<Bytes> {
    refuse_as(refused, dialect.status(refused.code), dialect)
}

/// The same, with a status that says more than that of its code.
pub(crate) fn refuse_as(
    refused: &Refused,
    status: StatusCode,
    dialect: &Dialect,
) -> Response<Bytes> {
    let code = refused.code;
    let seconds = refused.retry_after.map(whole_seconds);
    let body = match dialect.body {
        BodyShape::Problem => problem(refused, status, seconds),
        BodyShape::Flat => {
            let mut body = json!({ "error": dialect.word(code), "message": refused.detail });
            if let Some(seconds) = seconds {
                body["details"] = json!({ "retryAfter": seconds });
            }
            body
        }
        BodyShape::Nested => {
            json!({ "error": { "code": dialect.word(code), "message": refused.detail } })
        }
        BodyShape::Typed => json!({ "error": {
            "type": "idempotency_error",
            "code": dialect.word(code),
            "message": refused.detail,
        } }),
        BodyShape::Message => json!({ "error": refused.detail }),
    };
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status;
    let kind = match dialect.body {
        BodyShape::Problem => "application/problem+json",
        BodyShape::Flat | BodyShape::Nested | BodyShape::Typed | BodyShape::Message => {
            "application/json"
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(REFUSED, HeaderValue::from_static(code.as_str()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(seconds) = seconds {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn problem(refused: &Refused, status: StatusCode, retry_after_s: Option<u64>) -> Value {
    let code = refused.code.as_str();
    let mut body = json!({
        "type": refused.code.problem_type(),
        "title": code.replace('_', " "),
        "status": status.as_u16(),
        "code": code,
        "detail": refused.detail,
    });
    if let Some(seconds) = retry_after_s {
        body["retry_after"] = json!(seconds);
    }
    body
}

/// Whole seconds, rounded up, at least one.
fn whole_seconds(span: Duration) -> u64 {
    let up = u64::from(span.subsec_nanos() > 0);
    span.as_secs().saturating_add(up).max(1)
}

#[cfg(test)]
mod tests {
    use onetake_core::{Cause, Fence, Status};

    use super::*;

    fn shown(answer: &Answer, dialect: &Dialect) -> (u16, Value, Option<String>) {
        let Said::Whole(response) = say(Ok(answer.clone()), dialect) else { panic!("a refusal") };
        let retry = response.headers().get(header::RETRY_AFTER);
        let retry = retry.map(|value| value.to_str().unwrap().to_owned());
        let body = serde_json::from_slice(response.body()).unwrap();
        assert!(response.headers().contains_key(REFUSED));
        (response.status().as_u16(), body, retry)
    }

    /// W9, W20, D3, D7: each contract in its own words.
    #[test]
    fn w9_w20_d3_d7_a_refusal_speaks_the_dialect() {
        let waits = Answer::InFlight { retry_after: Duration::from_millis(18_250) };
        let (status, body, retry) = shown(&waits, &Dialect::openwop());
        assert_eq!((status, retry.as_deref()), (409, Some("19")));
        assert_eq!(body["error"], "idempotency_in_flight");
        assert_eq!(body["details"]["retryAfter"], 19);
        let (status, body, _) = shown(&Answer::Mismatch, &Dialect::davepi());
        assert_eq!((status, &body["error"]["code"]), (409, &json!("IDEMPOTENCY_CONFLICT")));
        let (_, body, _) = shown(&waits, &Dialect::davepi());
        assert_eq!(body["error"]["code"], "IDEMPOTENCY_IN_PROGRESS");
        let (status, body, _) = shown(&Answer::Mismatch, &Dialect::stripe());
        assert_eq!((status, &body["error"]["code"]), (400, &json!("idempotency_error")));
        let (status, body, _) = shown(&Answer::Mismatch, &Dialect::cnerium());
        assert_eq!(status, 409);
        assert!(body["error"].is_string());
        let (status, body, _) = shown(&Answer::Mismatch, &Dialect::ietf());
        assert_eq!((status, &body["type"]), (422, &json!("urn:onetake:error:key_mismatch")));
    }

    /// X3: an unknown outcome has a type of its own.
    #[test]
    fn x3_an_unknown_outcome_is_a_conflict_of_its_own_kind() {
        let unknown =
            Answer::Unknown { fence: Fence(1), since: Timestamp::ZERO, cause: Cause::Silence };
        for dialect in Dialect::all() {
            let (status, _, retry) = shown(&unknown, &dialect);
            assert_eq!((status, retry), (409, None), "{}", dialect.name);
        }
    }

    /// C4: status, headers and body exactly, and X16: until when.
    #[test]
    fn c4_x16_what_is_given_again_is_what_was_kept() {
        let header = |name: &str, value: &'static str| Header {
            name: name.into(),
            value: Bytes::from_static(value.as_bytes()),
        };
        let kept = Outcome::Response {
            status: Status::new(201).unwrap(),
            headers: vec![
                header("location", "/orders/1"),
                header("link", "a"),
                header("link", "b"),
            ],
            body: "made".into(),
        };
        let response = again(&kept, Some(Timestamp::from_millis(1_500)), &Dialect::ietf());
        assert_eq!(response.status(), 201);
        assert_eq!(response.headers()["location"], "/orders/1");
        assert_eq!(response.headers().get_all("link").iter().count(), 2);
        assert_eq!(response.headers()["idempotent-replayed"], "true");
        assert_eq!(response.headers()[EXPIRES], "Thu, 01 Jan 1970 00:00:01 GMT");
        assert_eq!(&**response.body(), b"made");
        let lost = again(&Outcome::NotKept { status: None }, None, &Dialect::ietf());
        assert_eq!(lost.status(), 409);
        assert_eq!(lost.headers()[REFUSED], "result_not_kept");
        let far = again(&kept, Some(Timestamp::from_millis(u64::MAX)), &Dialect::ietf());
        assert_eq!(far.status(), 201);
    }

    #[test]
    fn a_delay_is_whole_seconds_rounded_up_and_at_least_one() {
        let of = |millis| whole_seconds(Duration::from_millis(millis));
        assert_eq!([of(0), of(1), of(1_000), of(1_001)], [1, 1, 1, 2]);
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }
}
