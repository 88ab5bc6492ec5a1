//! From what an operator typed to the words of the engine, each checked once.
//!
//! Refuses and never repairs: a name, a span or a bookmark that is not one is said so, with the
//! name of the field. Reads nothing from a store.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use bytes::Bytes;
use onetake_core::{
    Actor, Code, Fence, Header, NameError, Operation, Outcome, Slot, Status, Tenant, Version,
};
use onetake_engine::operate::{Bookmark, Form, Query, Seen};

use crate::reply::problem;
use crate::wire::{Content, ListAsk, Problem, ReleaseAsk, ResolveAsk};

/// Who acts when nobody says a name.
pub const OPERATOR_DEFAULT: &str = "admin";

fn invalid(field: &str, why: impl std::fmt::Display) -> Problem {
    problem(Code::RequestInvalid, format!("{field}: {why}"))
}

fn named<T>(text: &str, new: impl Fn(&str) -> Result<T, NameError>) -> Result<T, Problem> {
    new(text).map_err(|error| problem(error.code(), error.to_string()))
}

/// The tenant called `text`.
pub(crate) fn tenant(text: &str) -> Result<Tenant, Problem> {
    named(text, Tenant::new)
}

/// The operation called `text`, where there is one.
pub(crate) fn operation(text: Option<&String>) -> Result<Option<Operation>, Problem> {
    text.map(|text| named(text, Operation::new)).transpose()
}

/// The operator called `text`.
pub(crate) fn actor(text: Option<&str>) -> Result<Actor, Problem> {
    named(text.unwrap_or(OPERATOR_DEFAULT), Actor::new)
}

/// The slot of `tenant` whose digest reads `digits`.
pub(crate) fn slot(name: &str, digits: &str) -> Result<Slot, Problem> {
    Slot::from_hex(tenant(name)?, digits)
        .ok_or_else(|| invalid("slot", "must have 64 hexadecimal digits"))
}

/// Where an earlier page ended.
pub(crate) fn bookmark(text: Option<&String>) -> Result<Option<Bookmark>, Problem> {
    text.map(|text| text.parse().map_err(|why| invalid("after", why))).transpose()
}

/// The span that `text` names.
pub(crate) fn span(field: &str, text: &str) -> Result<Duration, Problem> {
    humantime::parse_duration(text).map_err(|why| invalid(field, why))
}

/// Which records are asked for.
pub(crate) fn query(ask: &ListAsk) -> Result<Query, Problem> {
    let age = |field: &str, text: Option<&String>| text.map(|text| span(field, text)).transpose();
    let kind = ask.phase.as_ref().map(|text| text.parse().map_err(|why| invalid("phase", why)));
    Ok(Query {
        tenant: ask.tenant.as_deref().map(tenant).transpose()?,
        operation: operation(ask.operation.as_ref())?,
        kind: kind.transpose()?,
        older_than: age("older_than", ask.older_than.as_ref())?,
        younger_than: age("younger_than", ask.younger_than.as_ref())?,
    })
}

/// What a release was decided upon.
pub(crate) fn seen(ask: &ReleaseAsk) -> Result<Seen, Problem> {
    let force = "a live claim ends only with its `fence` and `force`";
    match (&ask.seen, &ask.fence, ask.force) {
        (Some(version), None, false) => self::version(version).map(Seen::Record),
        (None, Some(fence), true) => {
            let fence = fence.parse::<Fence>().map_err(|why| invalid("fence", why))?;
            Ok(Seen::Claim(fence))
        }
        (None, Some(_), false) | (None | Some(_), None, true) => Err(invalid("force", force)),
        (Some(_), Some(_), _) => Err(invalid("seen", "name the version or the fence, not both")),
        (None, None, false) => Err(invalid("seen", "name the version that you saw")),
    }
}

fn version(text: &str) -> Result<Version, Problem> {
    text.parse().map_err(|why| invalid("seen", why))
}

/// What an unknown is resolved to: the version that was seen, the outcome, how long it is kept.
pub(crate) fn resolution(ask: &ResolveAsk) -> Result<(Version, Outcome, Duration), Problem> {
    let (seen, keep) = (version(&ask.seen)?, span("keep", &ask.keep)?);
    let status = ask
        .status
        .map(|code| Status::new(code).ok_or_else(|| invalid("status", "must be from 100 to 599")));
    let status = status.transpose()?;
    let has_headers = !ask.content.headers.is_empty();
    let (headers, body) = (headers(&ask.content)?, body(&ask.content)?);
    let outcome = match ask.form {
        Form::Response => {
            let status = status.ok_or_else(|| invalid("status", "a response needs one"))?;
            Outcome::Response { status, headers, body: body.unwrap_or_default() }
        }
        Form::NotKept if body.is_none() && !has_headers => Outcome::NotKept { status },
        Form::NotKept => return Err(invalid("content", "what is not kept has none")),
        Form::Value | Form::Failure if status.is_some() || has_headers => {
            return Err(invalid("status", "only a response has a status and headers"));
        }
        Form::Value => Outcome::Value(body.unwrap_or_default()),
        Form::Failure => Outcome::Failure(body.unwrap_or_default()),
    };
    Ok((seen, outcome, keep))
}

fn headers(content: &Content) -> Result<Vec<Header>, Problem> {
    let header = |field: &crate::wire::Field| {
        // The reason would show the name, which may be a value that slipped into the wrong place.
        let name = HeaderName::try_from(field.name.as_str());
        let name = name.map_err(|_| invalid("headers", "one has no name of a header"))?;
        let value = HeaderValue::try_from(field.value.0.as_str());
        let value = value.map_err(|_| invalid("headers", "one has a value that none may have"))?;
        let value = Bytes::copy_from_slice(value.as_bytes());
        Ok(Header { name: name.as_str().into(), value })
    };
    content.headers.iter().map(header).collect()
}

fn body(content: &Content) -> Result<Option<Bytes>, Problem> {
    match (&content.body, &content.body_hex) {
        (Some(_), Some(_)) => Err(invalid("body", "give it as text or as digits, not both")),
        (Some(text), None) => Ok(Some(text.0.clone().into())),
        (None, Some(digits)) => {
            let (pairs, rest) = digits.0.as_bytes().as_chunks::<2>();
            let byte = |pair: &[u8; 2]| {
                let is_pair = pair.iter().all(u8::is_ascii_hexdigit);
                let text = str::from_utf8(pair).ok().filter(|_| is_pair)?;
                u8::from_str_radix(text, 16).ok()
            };
            let bytes = pairs.iter().map(byte).collect::<Option<Vec<u8>>>();
            let bytes = bytes.filter(|_| rest.is_empty());
            let bytes = bytes.ok_or_else(|| invalid("body_hex", "not hexadecimal digits"))?;
            Ok(Some(bytes.into()))
        }
        (None, None) => Ok(None),
    }
}
