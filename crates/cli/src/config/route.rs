//! `[defaults]` and `[[route]]`, checked: what a route says, then the defaults, then what is built
//! in.
//!
//! What a pattern is, and whether two routes meet, is for the gateway to say; here it is told of
//! all of them at once, each with its place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hyper::{Method, Uri};
use onetake::core::{Filters, Pointer, PolicyError};
use onetake::{OnUnknown, Operation, Policy};
use onetake_http::gateway::pattern::Pattern;
use onetake_http::gateway::probe::ProbeUrl;
use onetake_http::gateway::routes::{Routes, RoutesError};
use serde::Serialize;

use super::address::Url;
use super::auth::ScopeRule;
use super::bounds;
use super::dialect::{self, DialectName, Dialects};
use super::problem::{PROBLEMS_MAX, Place, Problems, Spot, nearest, quoted};
use super::raw::{Fingerprint, Route, Settings};
use super::read::{Given, Options, sure};
use super::server::as_usize;
use super::shown;
use super::usable;
use super::value::{Plain, Span, Unknown, Word, choice};

/// The longest that equal requests without a key may count as one.
const WINDOW_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The largest request that is taken: it is held in memory.
const REQUEST_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// The largest response that is kept: beside its headers it must fit into a record.
const RESPONSE_BYTES_MAX: u64 = 15 * 1024 * 1024;

choice! {
    /// Whether a key is needed.
    KeyRule {
        /// A request without one is refused.
        "required" => Required,
        /// A request without one passes unprotected.
        "optional" => Optional,
        /// A request without one is recognised by its content.
        "fingerprint" => Fingerprint,
    }
}

choice! {
    /// What happens when the store cannot be reached.
    StoreDown {
        /// Requests are refused.
        "refuse" => Refuse,
        /// Requests pass unprotected.
        "pass" => Pass,
    }
}

choice! {
    /// The key that the upstream sees.
    ForwardKey {
        /// The caller's.
        "raw" => Raw,
        /// One that no other tenant has.
        "scoped" => Scoped,
    }
}

choice! {
    /// Whether duplicates are answered.
    Mode {
        /// They are.
        "enforce" => Enforce,
        /// They are only reported.
        "observe" => Observe,
    }
}

/// Whether a key is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyUse {
    /// What the dialect says.
    ByDialect,
    /// A request without one is refused.
    Required,
    /// A request without one passes unprotected.
    Optional,
    /// A request without one is recognised by its content.
    Fingerprint {
        /// For so long.
        #[serde(serialize_with = "shown::span")]
        window: Duration,
    },
}

/// What of a request counts.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FingerprintConfig {
    /// Fields of a JSON body that do not.
    #[serde(serialize_with = "shown::display_all")]
    pub(crate) ignore: Vec<Pointer>,
    /// Whether the query does.
    pub(crate) query: bool,
    /// Whether JSON is compared by meaning.
    pub(crate) json: bool,
}

/// What holds for the requests of a route.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RouteSettings {
    /// The contract with callers.
    pub(crate) dialect: DialectName,
    /// Whether a key is needed.
    pub(crate) key: KeyUse,
    /// Lease, retention, limits, and what is final.
    #[serde(serialize_with = "shown::policy")]
    pub(crate) policy: Policy,
    /// Where to ask what came of it, where the outcome is probed.
    #[serde(serialize_with = "shown::display_if")]
    pub(crate) probe: Option<ProbeUrl>,
    /// What happens when the store cannot be reached.
    pub(crate) store_down: StoreDown,
    /// The largest request body.
    pub(crate) max_request: usize,
    /// The largest response that is kept.
    pub(crate) max_stored_response: usize,
    /// What of a request counts.
    pub(crate) fingerprint: FingerprintConfig,
    /// The key that the upstream sees.
    pub(crate) forward_key: ForwardKey,
    /// Whether duplicates are answered.
    pub(crate) mode: Mode,
    /// Whose keys are one space.
    pub(crate) scope: ScopeRule,
    /// What a caller must be allowed to.
    pub(crate) requires: Option<Word>,
}

/// A route.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RouteConfig {
    /// Methods and a path, in their one spelling.
    #[serde(rename = "match", serialize_with = "shown::display")]
    pub(crate) pattern: Pattern,
    /// The name of what is done; none for the match itself.
    #[serde(serialize_with = "shown::operation")]
    pub(crate) operation: Option<Operation>,
    /// Whether requests pass without being looked at: any method, and no operation.
    pub(crate) passes_through: bool,
    /// Where requests are sent.
    #[serde(serialize_with = "shown::display")]
    pub(crate) upstream: Uri,
    /// What holds for them.
    pub(crate) settings: RouteSettings,
    /// Where it was given.
    pub(crate) place: Place,
}

/// What settings are resolved against.
#[derive(Debug)]
pub(super) struct Grounds<'a> {
    /// The dialects of the user's own.
    pub(super) dialects: &'a Dialects,
    /// What `[defaults]` says, above what is built in.
    pub(super) defaults: &'a Settings,
    /// What `[auth]` says.
    pub(super) scope: ScopeRule,
    /// The scopes that callers can have, where that is known and asked.
    pub(super) held: Option<BTreeSet<String>>,
    /// Whether callers have scopes at all.
    pub(super) knows_scopes: bool,
}

/// Checks every `[[route]]`.
pub(super) fn routes(
    raw: Vec<(Given<Route>, Settings)>,
    grounds: &Grounds<'_>,
    problems: &mut Problems,
) -> Vec<RouteConfig> {
    let mut patterns = BTreeMap::<String, Spot>::new();
    let (mut all, mut apart) = (Vec::new(), Vec::new());
    // One that cannot be read is not missing.
    let is_default_wrong = problems.is_told("defaults.upstream");
    for (given, own) in raw {
        if let Some(requires) = own.requires.as_ref().or(grounds.defaults.requires.as_ref()) {
            match &grounds.held {
                _ if !grounds.knows_scopes => usable::unkept(requires, problems),
                Some(held) => usable::required(requires, held, problems),
                None => {}
            }
        }
        let matched = given.value.r#match.as_ref();
        let parsed = matched.and_then(|matched| parsed(matched, problems).zip(Some(matched)));
        let Some((pattern, matched)) = parsed else {
            // Whatever else is wrong with it is told as well.
            drop(settings(own, grounds, problems));
            continue;
        };
        if let Some(first) = patterns.insert(pattern.to_string(), matched.spot.clone()) {
            let first = problems.place(&first);
            matched.refuse(problems, format!("there is a route of this match already, at {first}"));
        } else {
            apart.push((pattern.clone(), matched.clone()));
        }
        let upstream = own.upstream.as_ref().or(grounds.defaults.upstream.as_ref());
        let upstream = upstream.map(|Given { value: Url(upstream), .. }| upstream.clone());
        let is_wrong = || problems.is_told(&format!("{}.upstream", given.option));
        if upstream.is_none() && !is_default_wrong && !is_wrong() {
            let what = "the route has no `upstream`, and [defaults] has none either";
            matched.refuse(problems, what);
        }
        let operation = given.value.operation.as_ref().map(|given| given.value.clone());
        let passes_through = pattern.is_any_method() && operation.is_none();
        refuse_nonsense(&own, &pattern, passes_through, grounds, problems);
        let (settings, place) = (settings(own, grounds, problems), problems.place(&given.spot));
        all.extend(upstream.map(|upstream| RouteConfig {
            pattern,
            operation,
            passes_through,
            upstream,
            settings,
            place,
        }));
    }
    refuse_collisions(apart, problems);
    all
}

fn parsed(given: &Given<Plain>, problems: &mut Problems) -> Option<Pattern> {
    let Plain(text) = &given.value;
    Pattern::parse(text).map_err(|error| given.refuse(problems, error)).ok()
}

/// Refuses routes that cannot stand in one table, each at its own place.
fn refuse_collisions(mut apart: Vec<(Pattern, Given<Plain>)>, problems: &mut Problems) {
    // A table tells the first fault, so the route that it names is left out and the rest is asked
    // again; no more often than problems are told.
    for _ in 0..PROBLEMS_MAX {
        let patterns = apart.iter().map(|(pattern, _)| pattern.clone()).collect();
        let Err(error) = Routes::new(patterns) else { return };
        let Some(index) = error.index().filter(|index| *index < apart.len()) else { return };
        let (_, given) = apart.remove(index);
        let other = if let RoutesError::Collide { first, .. } = &error {
            apart.iter().find(|(pattern, _)| pattern.to_string() == *first)
        } else {
            None
        };
        match other.map(|(_, other)| problems.place(&other.spot)) {
            Some(place) => given.refuse(problems, format!("{error} (the other is at {place})")),
            None => given.refuse(problems, error),
        }
    }
}

/// Refuses what its writer believes in, and what means nothing here.
fn refuse_nonsense(
    own: &Settings,
    pattern: &Pattern,
    passes_through: bool,
    grounds: &Grounds<'_>,
    problems: &mut Problems,
) {
    let key = own.key.as_ref().or(grounds.defaults.key.as_ref()).map(|given| given.value);
    let is_by_content = key == Some(KeyRule::Fingerprint) || problems.is_told("defaults.key");
    if let Some(window) = own.window.as_ref().filter(|_| !is_by_content) {
        window.refuse(problems, "this means something with key = \"fingerprint\" only");
    }
    if passes_through {
        refuse_protection(own, problems);
        return;
    }
    if let Some(unknown) = own.unknown.as_ref().or(grounds.defaults.unknown.as_ref()) {
        refuse_strange_names(unknown, pattern, problems);
    }
    let is_safe = |method: &Method| {
        matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
    };
    let is_only_safe = !pattern.is_any_method() && pattern.methods().iter().all(is_safe);
    let asks = |given: &&Given<KeyRule>| given.value != KeyRule::Optional;
    if let Some(given) = own.key.as_ref().filter(asks).filter(|_| is_only_safe) {
        let methods: Vec<_> = pattern.methods().iter().map(Method::as_str).collect();
        let what = format!(
            "{} changes nothing, so a key is neither asked for nor looked at; remove `key`, or \
             match a method that changes something, such as POST",
            methods.join(",")
        );
        given.refuse(problems, what);
    }
}

/// Refuses what a route cannot do that lets everything through: its writer believes in it.
fn refuse_protection(own: &Settings, problems: &mut Problems) {
    for given in own.given() {
        if !["upstream", "timeout", "max_request"].contains(&given.value) {
            let what = "a route of every method without an `operation` passes everything through; \
                        name the operation, or the methods";
            given.refuse(problems, what);
        }
    }
}

/// Refuses a probe with names in it that nothing stands for in the path of `pattern`.
fn refuse_strange_names(given: &Given<Unknown>, pattern: &Pattern, problems: &mut Problems) {
    let Unknown::Probe(url) = &given.value else { return };
    let known: Vec<&str> =
        ["key", "tenant"].into_iter().chain(pattern.names().map(AsRef::as_ref)).collect();
    for name in url.names().filter(|name| !known.contains(name)) {
        let all: Vec<_> = known.iter().map(|name| format!("{{{name}}}")).collect();
        let what = format!(
            "{}: nothing in {} stands for {{{}}}; a probe of it knows {}",
            given.option,
            quoted(&pattern.to_string()),
            quoted(name).trim_matches('`'),
            all.join(", ")
        );
        problems.unknown(&given.spot, &given.option, what, nearest(name, known.iter().copied()));
    }
}

/// What `own` comes to, with the defaults below it.
pub(super) fn settings(
    own: Settings,
    grounds: &Grounds<'_>,
    problems: &mut Problems,
) -> RouteSettings {
    let tables = [&grounds.defaults.statuses, &own.statuses].map(Clone::clone);
    let fingerprints = [&own.fingerprint, &grounds.defaults.fingerprint].map(Clone::clone);
    let raw = own.or(grounds.defaults.clone());
    let dialect = dialect::find(&sure(raw.dialect.clone()), grounds.dialects, problems);
    let mut rules = dialect.statuses();
    for table in tables.iter().flatten() {
        rules = dialect::overridden(&rules, Some(&table.value), problems);
    }
    let policy = policy(&raw, dialect.base().policy().statuses(rules), problems);
    let window = bounds::span(&sure(raw.window), Duration::from_millis(1)..=WINDOW_MAX, problems);
    let key = raw.key.map_or(KeyUse::ByDialect, |given| match given.value {
        KeyRule::Required => KeyUse::Required,
        KeyRule::Optional => KeyUse::Optional,
        KeyRule::Fingerprint => KeyUse::Fingerprint { window },
    });
    let probe = raw.unknown.and_then(|given| match given.value {
        Unknown::Probe(url) => Some(url),
        Unknown::Hold | Unknown::Retry => None,
    });
    let (request, response) = (sure(raw.max_request), sure(raw.max_stored_response));
    RouteSettings {
        dialect,
        key,
        policy,
        probe,
        store_down: sure(raw.store_down).value,
        max_request: as_usize(bounds::size(&request, 1..=REQUEST_BYTES_MAX, problems)),
        max_stored_response: as_usize(bounds::size(&response, 0..=RESPONSE_BYTES_MAX, problems)),
        fingerprint: fingerprint(fingerprints, problems),
        forward_key: sure(raw.forward_key).value,
        mode: sure(raw.mode).value,
        scope: raw.scope.map_or(grounds.scope, |given| given.value),
        requires: raw.requires.map(|given| given.value),
    }
}

/// Builds the policy, and asks it about each setting alone so that every fault is told.
fn policy(raw: &Settings, base: onetake::core::PolicyBuilder, problems: &mut Problems) -> Policy {
    let mut whole = base.clone();
    let mut told = |spot: &Spot, option: &str, built: Result<Policy, PolicyError>| match built {
        Err(PolicyError::OutOfBounds { given, min, max, .. }) => {
            problems.value(spot, option, bounds::out_of(given, min, max));
        }
        Err(error) => problems.value(spot, option, error),
        Ok(_) => {}
    };
    let spans = [
        (&raw.lease, onetake::core::PolicyBuilder::lease as fn(_, _) -> _),
        (&raw.timeout, onetake::core::PolicyBuilder::timeout),
        (&raw.answer_within, onetake::core::PolicyBuilder::answer_within),
        (&raw.retention, onetake::core::PolicyBuilder::retention),
    ];
    for (given, set) in spans {
        let Some(given) = given else { continue };
        let Span(span) = given.value;
        // What is asked about the retention depends on the dialect, so nothing else may differ.
        told(&given.spot, &given.option, set(base.clone(), span).build());
        whole = set(whole, span);
    }
    if let Some(given) = &raw.in_flight {
        told(&given.spot, &given.option, base.on_in_flight(given.value).build());
        whole = whole.on_in_flight(given.value);
    }
    if let Some(given) = &raw.unknown {
        whole = whole.on_unknown(match given.value {
            Unknown::Hold => OnUnknown::Hold,
            Unknown::Retry => OnUnknown::Retry,
            Unknown::Probe(_) => OnUnknown::Probe,
        });
    }
    whole.build().unwrap_or_default()
}

/// What of a request counts: each part from the route, or else from the defaults.
fn fingerprint(
    given: [Option<Given<Fingerprint>>; 2],
    problems: &mut Problems,
) -> FingerprintConfig {
    let none = Fingerprint::default();
    let merged = given
        .into_iter()
        .flatten()
        .fold(none, |above, below| above.or(below.value))
        .or(Fingerprint::built_in());
    let (ignore, json) = (sure(merged.ignore), sure(merged.json).value);
    if !json && !ignore.value.is_empty() {
        ignore.refuse(problems, "fields can be ignored with json = true only");
    }
    if let Err(error) = Filters::new(ignore.value.iter().cloned(), []) {
        ignore.refuse(problems, error);
    }
    FingerprintConfig { ignore: ignore.value, query: sure(merged.query).value, json }
}
