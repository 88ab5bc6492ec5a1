//! From what the host has to say to a response: envelopes, statuses, streams.
//!
//! Cannot fail and decides nothing. An error is always `{error, message, details?}` and nothing
//! else.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::{Either, Full};
use onetake_core::{Header, Outcome, Status as KeptStatus};
use onetake_engine::RunError;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::books;
use crate::stream::Frames;

/// The body of a response: all of it, or what is told as it happens.
pub type ReplyBody = Either<Full<Bytes>, Frames>;

/// What a reply says beside its status.
#[derive(Debug, Clone, PartialEq)]
enum Body {
    Nothing,
    /// A value that may still be added to.
    Value(Value),
    /// JSON that is written already.
    Text(Bytes),
}

/// What the host has to say.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    body: Body,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl Reply {
    pub(crate) const fn new(status: StatusCode, body: Value) -> Self {
        Self { status, body: Body::Value(body), headers: Vec::new() }
    }

    /// One that is made often: nothing is put together that is only to be written.
    pub(crate) fn written(status: StatusCode, body: &impl Serialize) -> Self {
        // Kept in memory for a while, so without room to spare.
        let text = Bytes::copy_from_slice(&books::encode(body));
        Self { status, body: Body::Text(text), headers: Vec::new() }
    }

    pub(crate) const fn ok(body: Value) -> Self {
        Self::new(StatusCode::OK, body)
    }

    pub(crate) const fn empty(status: StatusCode) -> Self {
        Self { status, body: Body::Nothing, headers: Vec::new() }
    }

    /// An error.
    pub(crate) fn error(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self::new(status, json!({"error": code, "message": message.into()}))
    }

    /// What was sent is not what the contract says.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::error(StatusCode::BAD_REQUEST, "validation_error", message)
    }

    pub(crate) fn not_found(code: &str, message: impl Into<String>) -> Self {
        Self::error(StatusCode::NOT_FOUND, code, message)
    }

    pub(crate) fn conflict(code: &str, message: impl Into<String>) -> Self {
        Self::error(StatusCode::CONFLICT, code, message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::error(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// The same, with more about it.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        if let Body::Value(body) = &mut self.body {
            let details = body.as_object_mut().map(|members| {
                members.entry("details").or_insert_with(|| Value::Object(Map::new()))
            });
            if let Some(details) = details.and_then(Value::as_object_mut) {
                details.insert(name.to_owned(), value.into());
            }
        }
        self
    }

    /// The same, with one more header.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// What the store could not do.
    pub(crate) fn failed(error: &RunError) -> Self {
        tracing::warn!(%error, "a request could not be answered");
        let code = error.code();
        Self::error(StatusCode::SERVICE_UNAVAILABLE, code.as_str(), "come back later")
            .header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// As it is kept under a key.
    pub(crate) fn outcome(&self) -> Outcome {
        let status = KeptStatus::new(self.status.as_u16());
        let kind = self.has_body().then(|| Header {
            name: "content-type".into(),
            value: Bytes::from_static(b"application/json"),
        });
        let others = self.headers.iter().map(|(name, value)| Header {
            name: name.as_str().into(),
            value: Bytes::copy_from_slice(value.as_bytes()),
        });
        Outcome::Response {
            status: status.expect("invariant: a status is 100 to 599"),
            headers: kind.into_iter().chain(others).collect(),
            body: self.bytes(),
        }
    }

    const fn has_body(&self) -> bool {
        !matches!(self.body, Body::Nothing)
    }

    fn bytes(&self) -> Bytes {
        match &self.body {
            Body::Nothing => Bytes::new(),
            // Kept in memory for a while, so without room to spare.
            Body::Value(value) => Bytes::copy_from_slice(&books::encode(value)),
            Body::Text(text) => text.clone(),
        }
    }

    pub(crate) fn into_response(self) -> Response<ReplyBody> {
        let mut response = Response::new(whole(self.bytes()));
        *response.status_mut() = self.status;
        let headers: &mut HeaderMap = response.headers_mut();
        if self.has_body() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        headers.extend(self.headers);
        response
    }
}

/// A body that is there.
pub(crate) fn whole(bytes: Bytes) -> ReplyBody {
    Either::Left(Full::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_three_members_at_most() {
        let reply = Reply::conflict("c", "m").with("runStatus", "paused").with("n", 1);
        let expected = json!({
            "error": "c", "message": "m", "details": {"runStatus": "paused", "n": 1},
        });
        assert_eq!(reply.body, Body::Value(expected));
        let Outcome::Response { status, headers, body } = reply.outcome() else { panic!() };
        assert_eq!((status.code(), headers.len()), (409, 1));
        assert_eq!(body, reply.bytes());
        assert!(Reply::empty(StatusCode::NO_CONTENT).bytes().is_empty());
    }
}
