//! What the gateway says of itself: that it is well, and the policy of every route.
//!
//! The policy is made once, from what the routes were built of, so it cannot say anything else.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use onetake_core::{KeyGrammar, OnInFlight, OnUnknown, Operation};
use serde_json::{Value, json};

use super::Route;
use crate::dialect::OnNoKey;
use crate::settings::{Keyless, Mode, Settings};

/// The policy of every route that has one, as JSON.
pub(super) fn policy(routes: &[Route]) -> String {
    let told = |route: &Route| route.settings.as_ref().map(|settings| one(route, settings));
    let routes: Vec<Value> = routes.iter().filter_map(told).collect();
    json!({ "version": 1, "routes": routes }).to_string()
}

fn one(route: &Route, settings: &Settings) -> Value {
    let (dialect, policy) = (settings.dialect(), settings.policy());
    let key = match settings.keyless {
        Keyless::By(OnNoKey::Refuse) => "required",
        Keyless::By(OnNoKey::Pass) => "optional",
        Keyless::Derive(_) => "fingerprint",
    };
    let characters = match dialect.grammar {
        KeyGrammar::VisibleAscii => "visible ASCII",
        KeyGrammar::UrlSafe => "letters, digits, '-', '.', '_' and '~'",
    };
    json!({
        "match": route.pattern.to_string(),
        "operation": route.operation.as_ref().map(Operation::as_str),
        "dialect": dialect.name,
        "key": {
            "header": dialect.key_header.as_str(),
            "mode": key,
            "characters": characters,
            "length_max": onetake_core::NAME_BYTES_MAX,
        },
        "replay_header": dialect.replay_mark.0.as_str(),
        "retention_seconds": policy.retention().as_secs(),
        "in_flight": match policy.on_in_flight() {
            OnInFlight::Wait(span) => json!({ "wait_seconds": seconds(span) }),
            OnInFlight::Refuse => json!("refuse"),
        },
        "unknown": match policy.on_unknown() {
            OnUnknown::Hold => "hold",
            OnUnknown::Retry => "retry",
            OnUnknown::Probe => "probe",
        },
        "mode": match settings.mode {
            Mode::Enforce => "enforce",
            Mode::Observe => "observe",
        },
    })
}

fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}

pub(super) fn plain(text: &'static str) -> Response<Bytes> {
    typed("text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

pub(super) fn json(body: Bytes) -> Response<Bytes> {
    typed("application/json", body)
}

fn typed(kind: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
