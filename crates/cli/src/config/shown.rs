//! How checked values read in JSON: as they would be written in the file.
//!
//! Never shows a secret, only that there is one.

#![allow(clippy::ref_option, reason = "serde hands over the field as it is")]
#![allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]

use std::fmt::Display;
use std::time::{Duration, SystemTime};

use hyper::header::HeaderValue;
use onetake::core::{KeyGrammar, StatusRules};
use onetake::{OnInFlight, OnUnknown, Operation, Policy, Principal, Tenant};
use onetake_console::Token;
use serde::{Serialize, Serializer};

use super::dialect::Grammar;
use super::value::span_text;

/// Shows a value by its text.
pub(super) fn display<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// Shows a value by its text, where there is one.
pub(super) fn display_if<T: Display, S: Serializer>(
    value: &Option<T>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.collect_str(value),
        None => to.serialize_none(),
    }
}

/// Shows values by their texts.
pub(super) fn display_all<T: Display, S: Serializer>(
    values: &[T],
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_seq(values.iter().map(ToString::to_string))
}

/// Shows a span as it would be written.
pub(super) fn span<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&span_text(*span))
}

/// Shows a moment as it would be written, where there is one.
pub(super) fn moment<S: Serializer>(moment: &Option<SystemTime>, to: S) -> Result<S::Ok, S::Error> {
    match moment {
        Some(moment) => to.collect_str(&humantime::format_rfc3339_seconds(*moment)),
        None => to.serialize_none(),
    }
}

/// Shows the name of a tenant.
pub(super) fn tenant<S: Serializer>(tenant: &Tenant, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(tenant.as_str())
}

/// Shows the name of a subject, where there is one.
pub(super) fn principal<S: Serializer>(name: &Option<Principal>, to: S) -> Result<S::Ok, S::Error> {
    name.as_ref().map(Principal::as_str).serialize(to)
}

/// Shows the name of an operation, where there is one.
pub(super) fn operation<S: Serializer>(name: &Option<Operation>, to: S) -> Result<S::Ok, S::Error> {
    name.as_ref().map(Operation::as_str).serialize(to)
}

/// Says only whether there is a token.
pub(super) fn token<S: Serializer>(token: &Option<Token>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(if token.is_some() { "given" } else { "made, and kept in a file" })
}

/// Shows the value of a header, where there is one.
pub(super) fn header<S: Serializer>(value: &Option<HeaderValue>, to: S) -> Result<S::Ok, S::Error> {
    value.as_ref().and_then(|value| value.to_str().ok()).serialize(to)
}

/// Shows what a key may look like, where it is given.
pub(super) fn grammar<S: Serializer>(
    grammar: &Option<KeyGrammar>,
    to: S,
) -> Result<S::Ok, S::Error> {
    let word = grammar.map(|grammar| match grammar {
        KeyGrammar::VisibleAscii => Grammar::VisibleAscii,
        KeyGrammar::UrlSafe => Grammar::UrlSafe,
    });
    word.serialize(to)
}

/// Shows runs of equal statuses, such as `200-299 Final`.
pub(super) fn statuses<S: Serializer>(rules: &StatusRules, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(format!("{rules:?}").lines())
}

/// Shows a policy.
pub(super) fn policy<S: Serializer>(policy: &Policy, to: S) -> Result<S::Ok, S::Error> {
    let in_flight = in_flight_text(policy);
    let shown = serde_json::json!({
        "retention": span_text(policy.retention()),
        "lease": span_text(policy.lease()),
        "timeout": policy.timeout().map(span_text),
        "answer_within": policy.answer_within().map(span_text),
        "in_flight": in_flight,
        "unknown": unknown_text(policy),
    });
    shown.serialize(to)
}

/// What a duplicate gets while the first is executing, as it would be written.
pub(crate) fn in_flight_text(policy: &Policy) -> String {
    match policy.on_in_flight() {
        OnInFlight::Wait(span) => format!("wait {}", span_text(span)),
        OnInFlight::Refuse => "refuse".to_owned(),
    }
}

/// What happens when nobody knows, as it would be written.
pub(crate) const fn unknown_text(policy: &Policy) -> &'static str {
    match policy.on_unknown() {
        OnUnknown::Hold => "hold",
        OnUnknown::Retry => "retry",
        OnUnknown::Probe => "probe",
    }
}
