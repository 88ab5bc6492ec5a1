//! From the name of a dialect in a configuration to the dialect.

use std::borrow::Cow;

use http::StatusCode;
use onetake_http::{BodyShape, Dialect, OnNoKey};

use crate::config::{self, BuiltIn, DialectConfig, DialectName};

/// The dialect that a route speaks.
pub(super) fn of(name: &DialectName) -> Dialect {
    match name {
        DialectName::BuiltIn(built_in) => base(*built_in),
        DialectName::Custom(custom) => own(custom),
    }
}

fn base(built_in: BuiltIn) -> Dialect {
    match built_in {
        BuiltIn::Ietf => Dialect::ietf(),
        BuiltIn::Stripe => Dialect::stripe(),
        BuiltIn::Openwop => Dialect::openwop(),
        BuiltIn::Davepi => Dialect::davepi(),
        BuiltIn::Cnerium => Dialect::cnerium(),
    }
}

/// A dialect of the user's own: its base, and what it says otherwise.
fn own(custom: &DialectConfig) -> Dialect {
    let mut dialect = base(custom.base);
    dialect.name = Cow::Owned(custom.name.clone());
    dialect.statuses = custom.statuses;
    if let Some(header) = &custom.key_header {
        dialect.key_header = header.clone();
    }
    if let Some(header) = &custom.replay_header {
        dialect.replay_mark.0 = header.clone();
    }
    if let Some(value) = &custom.replay_value {
        dialect.replay_mark.1 = value.clone();
    }
    if let Some(no_key) = custom.no_key {
        dialect.no_key = match no_key {
            config::NoKey::Refuse => OnNoKey::Refuse,
            config::NoKey::Pass => OnNoKey::Pass,
        };
    }
    let status = |code: u16| StatusCode::from_u16(code).ok();
    if let Some(code) = custom.mismatch_status.and_then(status) {
        dialect.mismatch.status = code;
    }
    if let Some(code) = custom.in_flight_status.and_then(status) {
        dialect.in_flight.status = code;
    }
    if let Some(body) = custom.body {
        dialect.body = match body {
            config::BodyShape::Problem => BodyShape::Problem,
            config::BodyShape::Flat => BodyShape::Flat,
            config::BodyShape::Nested => BodyShape::Nested,
            config::BodyShape::Message => BodyShape::Message,
        };
    }
    if let Some(grammar) = custom.grammar {
        dialect.grammar = grammar;
    }
    dialect
}
