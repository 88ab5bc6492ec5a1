//! Why an HTTP call has no result, as it is recorded and told: above all, what may be assumed.
//!
//! Nothing here holds anything of a request. What a provider said is part of a failure only where
//! it answered.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::call::HttpResult;

/// Why nothing of a request was sent.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    thiserror::Error,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NotSentCause {
    /// Nobody listens there.
    #[error("the provider refused the connection")]
    Refused,
    /// Its name has no address.
    #[error("the name of the provider was not found")]
    Name,
    /// There is no way to it.
    #[error("the provider cannot be reached")]
    Unreachable,
    /// It does not speak TLS, or cannot be believed.
    #[error("the TLS handshake with the provider failed")]
    Tls,
    /// No connection was made within its limit.
    #[error("the provider did not take the connection in time")]
    ConnectTimeout,
    /// There was no connection before the limit of the attempt had passed.
    #[error("there was no connection to the provider in time")]
    NoConnection,
    /// The connection was closed while the request still waited in front of it.
    #[error("the provider closed the connection before the request began")]
    Closed,
    /// Too many other calls were under way.
    #[error("as many calls as may be were under way")]
    Busy,
}

/// Why there is no answer to a request that the provider may have read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum LostCause {
    /// The connection ended before the answer did.
    #[error("the provider closed the connection before its answer was whole")]
    Closed,
    /// The connection was torn down.
    #[error("the connection to the provider was reset")]
    Reset,
    /// The answer is not HTTP, or not HTTP that was asked for.
    #[error("the provider's answer cannot be understood")]
    Malformed,
    /// There was no whole answer in time.
    #[error("the provider did not answer in time")]
    Timeout,
    /// Its status means, by the settings, that nobody can say what came of the call.
    #[error("the provider's status leaves open what came of the call")]
    Status,
    /// Anything else.
    #[error("the connection to the provider failed")]
    Failed,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamEnd {
    /// The provider ended it.
    Complete,
    /// It broke off, was silent for too long, or lasted too long.
    BrokenOff,
    /// Its reader went away, or left it unread for too long.
    Abandoned,
}

/// Why an HTTP call has no result. That nobody knows what came of it is
/// [`ExecuteError::Unknown`](crate::ExecuteError::Unknown) instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "failure", rename_all = "snake_case")]
#[non_exhaustive]
pub enum HttpFailure {
    /// The provider answered every attempt, and this is the last answer: not now. The next call
    /// under the same identity is made again.
    #[error("the provider answered {}, {attempts} attempts in all", answer.status)]
    Unavailable {
        /// What it answered last; its body may be cut short.
        answer: HttpResult,
        /// How long it asked to be left alone.
        retry_after_ms: Option<u64>,
        /// How often it was called.
        attempts: u32,
    },
    /// It is certain that nothing was sent. The next call under the same identity is made again.
    #[error("{why}; nothing was sent, {attempts} attempts in all")]
    NotSent {
        /// Why, the last time.
        why: NotSentCause,
        /// How often it was tried.
        attempts: u32,
    },
    /// The call was made, but its answer is too large to be kept. It is never made again.
    #[error("the call was made and answered {status}, with a body of more than {bytes_max} bytes")]
    TooLarge {
        /// What was answered.
        status: u16,
        /// The bound.
        bytes_max: usize,
    },
    /// The call was made, and what came of it was passed on as it came, to somebody else. The next
    /// call under the same identity is made again.
    #[error("the call was made and answered {status}, and its stream has passed by")]
    Streamed {
        /// What was answered.
        status: u16,
        /// How the stream ended.
        ended: StreamEnd,
    },
}

impl HttpFailure {
    /// Whether the next call under the same identity is made again.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::NotSent { .. } | Self::Streamed { .. } => true,
            Self::TooLarge { .. } => false,
        }
    }

    /// How long the provider asked to be left alone.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after_ms: Some(ms), .. } => Some(Duration::from_millis(*ms)),
            Self::Unavailable { retry_after_ms: None, .. }
            | Self::NotSent { .. }
            | Self::TooLarge { .. }
            | Self::Streamed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W14, W18: what is recorded of a failure is readable, and for ever so.
    #[test]
    fn w14_w18_failures_have_a_form_for_ever() {
        let answer = HttpResult { status: 503, headers: Vec::new(), body: "busy".into() };
        let table = [
            (
                HttpFailure::Unavailable { answer, retry_after_ms: Some(1_500), attempts: 3 },
                concat!(
                    r#"{"failure":"unavailable","#,
                    r#""answer":{"status":503,"headers":[],"body":{"text":"busy"}},"#,
                    r#""retry_after_ms":1500,"attempts":3}"#,
                ),
                true,
            ),
            (
                HttpFailure::NotSent { why: NotSentCause::Refused, attempts: 2 },
                r#"{"failure":"not_sent","why":"refused","attempts":2}"#,
                true,
            ),
            (
                HttpFailure::TooLarge { status: 200, bytes_max: 10 },
                r#"{"failure":"too_large","status":200,"bytes_max":10}"#,
                false,
            ),
            (
                HttpFailure::Streamed { status: 200, ended: StreamEnd::BrokenOff },
                r#"{"failure":"streamed","status":200,"ended":"broken_off"}"#,
                true,
            ),
        ];
        for (failure, json, is_retryable) in table {
            assert_eq!(serde_json::to_string(&failure).unwrap(), json);
            assert_eq!(serde_json::from_str::<HttpFailure>(json).unwrap(), failure);
            assert_eq!(failure.is_retryable(), is_retryable, "{failure}");
            let asked = failure.retry_after().map(|wait| wait.as_millis());
            assert_eq!(asked, json.contains("1500").then_some(1_500));
        }
    }
}
