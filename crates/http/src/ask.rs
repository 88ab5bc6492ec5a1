//! From a request to an [`Ask`]: the key, who asks, what for, and what exactly.
//!
//! Reads headers and a bounded body; never opens a connection and never looks at a store. The
//! tenant comes from whatever the service verified, never from the key, the path or the body.
//! Invariant: two requests that the handler cannot tell apart have the same fingerprint.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use base16ct::lower;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, header};
use http_body::Body;
use onetake_core::{Address, Ask, Asked, Asking, Code, Key, Operation, Scope};
use sfv::{BareItem, Item, Parser};
use tokio::time::timeout;

use crate::body::DoorBody;
use crate::dialect::{Dialect, OnNoKey};
use crate::read::{Read, Reading};
use crate::room::Share;
use crate::settings::{JsonBodies, Keyless, METHOD, PATH, QUERY, Settings};

/// Which route matched, where somebody knows. It names the operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedRoute(pub Arc<str>);

/// The path in its one spelling, where somebody knows it better than the request says it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "only a gateway respells paths"))]
pub(crate) struct AskedPath(pub(crate) Arc<str>);

/// The path that was asked for, whole and in one spelling. A router that nests others has cut its
/// own part off before they see a request.
fn path(parts: &Parts) -> &str {
    let asked = parts.extensions.get::<AskedPath>().map(|path| &*path.0);
    #[cfg(feature = "axum")]
    let asked = asked.or_else(|| {
        let original = parts.extensions.get::<::axum::extract::OriginalUri>();
        original.map(|original| original.0.path())
    });
    asked.unwrap_or_else(|| parts.uri.path())
}

/// Why a request is not answered by the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: Code,
    pub(crate) detail: Cow<'static, str>,
    pub(crate) retry_after: Option<Duration>,
}

impl Refused {
    pub(crate) fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { code, detail: detail.into(), retry_after: None }
    }
}

/// What a request is known by.
#[derive(Debug)]
pub(crate) enum Keyed {
    /// This key.
    Given(Key),
    /// A key made of what is asked.
    Derived,
}

/// Whether requests with this method are ever deduplicated. The others change nothing, so they
/// neither need nor honour a key.
pub(crate) fn changes_something(method: &Method) -> bool {
    !matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::CONNECT
    )
}

/// What `parts` are known by, by the settings of their route; `None` when they pass.
pub(crate) fn keyed(parts: &Parts, settings: &Settings) -> Result<Option<Keyed>, Refused> {
    if !changes_something(&parts.method) {
        return Ok(None);
    }
    match (key(&parts.headers, &settings.dialect)?, settings.keyless) {
        (Some(key), _) => Ok(Some(Keyed::Given(key))),
        (None, Keyless::By(OnNoKey::Pass)) => Ok(None),
        (None, Keyless::Derive(_)) => Ok(Some(Keyed::Derived)),
        (None, Keyless::By(OnNoKey::Refuse)) => {
            let header = &settings.dialect.key_header;
            let detail = format!("send a key of your choice in the header {header}");
            Err(Refused::new(Code::KeyMissing, detail))
        }
    }
}

/// The key that `headers` carry. The bare form and the quoted one are the same key, and parameters
/// behind the quoted one mean nothing.
fn key(headers: &HeaderMap, dialect: &Dialect) -> Result<Option<Key>, Refused> {
    let invalid = |detail: Cow<'static, str>| Refused::new(Code::KeyInvalid, detail);
    let mut lines = headers.get_all(&dialect.key_header).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(invalid("the key was sent twice; send one header line".into()));
    }
    let bytes = line.as_bytes().trim_ascii();
    let text = match bytes.first() {
        Some(b'"') => match Parser::new(bytes).parse::<Item>() {
            Ok(Item { bare_item: BareItem::String(text), .. }) => Cow::Owned(text.as_str().into()),
            Ok(_) | Err(_) => {
                return Err(invalid("the key begins with a quote and is no quoted string".into()));
            }
        },
        // What is not text is refused by the grammar, which says where.
        Some(_) | None => String::from_utf8_lossy(bytes),
    };
    let key = Key::with_grammar(&text, dialect.grammar);
    key.map(Some).map_err(|error| invalid(error.to_string().into()))
}

/// The key that `headers` carry, if it is one.
#[cfg(feature = "gateway")]
pub(crate) fn key_of(headers: &HeaderMap, dialect: &Dialect) -> Option<Key> {
    key(headers, dialect).ok().flatten()
}

pub(crate) fn too_large(bytes_max: usize) -> Refused {
    Refused::new(Code::TooLarge, format!("the body has more than {bytes_max} bytes"))
}

/// Refuses a body that says itself that it is too large.
pub(crate) fn announced<B: Body>(body: &B, bytes_max: usize) -> Result<(), Refused> {
    let is_too_large = body.size_hint().lower() > bytes_max as u64;
    if is_too_large { Err(too_large(bytes_max)) } else { Ok(()) }
}

/// The most bytes that are read, if they are there, before a request takes room.
const AT_ONCE_MAX: usize = 64 << 10;

/// A body that was not read, why, and what is left to pass on, if anything is, with its room.
pub(crate) type Unread<B> = (Refused, Option<(DoorBody<B>, Option<Share>)>);

/// Reads a body within the bounds of its route. A small one that is there already takes no room
/// yet; any other takes its share as it comes.
pub(crate) async fn body<B>(
    body: B,
    settings: &Settings,
    share: impl FnOnce() -> Share,
) -> Result<(Bytes, Option<Share>), Unread<B>>
where
    B: Body<Data = Bytes>,
{
    let mut reading = Reading::new(body, settings.request_bytes_max);
    // Most bodies are there already, and need no timer.
    let (read, share) = if let Some(read) = reading.at_once(AT_ONCE_MAX).await {
        (read, None)
    } else {
        let mut share = share();
        // Boxed, so that the others need no room for it.
        let on = Box::pin(timeout(settings.body_within, reading.on(|bytes| share.reach(bytes))));
        let read = on.await.map_err(|_| {
            (Refused::new(Code::RequestTimeout, "the body did not arrive in time"), None)
        })?;
        (read, Some(share))
    };
    let refused = match read {
        // Trailers are no part of what is asked, and what is sent on has a length instead.
        Read::Whole | Read::WithTrailers => return Ok((reading.into_bytes(), share)),
        Read::TooLarge => too_large(settings.request_bytes_max),
        Read::NoRoom => no_room(),
        Read::Broken => {
            let broken = "the body broke off before its end";
            return Err((Refused::new(Code::RequestInvalid, broken), None));
        }
    };
    Err((refused, Some((reading.into_body(), share))))
}

pub(crate) fn no_room() -> Refused {
    let detail = "too many bytes of requests at once; nothing was executed".into();
    Refused { code: Code::Busy, detail, retry_after: Some(Duration::from_secs(1)) }
}

/// What is asked, under which address and by which rules: in a scope, for an operation with a name
/// of its own or by the request.
pub(crate) fn ask(
    parts: &Parts,
    body: &Bytes,
    keyed: Keyed,
    (scope, named): (Scope, Option<Operation>),
    settings: &Settings,
) -> Result<Ask, Refused> {
    let (key, policy) = match keyed {
        Keyed::Given(key) => (key, &settings.policy),
        Keyed::Derived => (derived(parts, body)?, &settings.derived),
    };
    let operation = match named {
        Some(operation) => operation,
        None => operation(parts)?,
    };
    let address = Arc::new(Address::new(scope, operation, key));
    let asked = asked(parts, body, settings);
    Ok(Ask { address, asked, policy: Arc::clone(policy) })
}

/// The operation that `parts` ask for: the method and the route that matched, or the path where no
/// route is known.
fn operation(parts: &Parts) -> Result<Operation, Refused> {
    named(&parts.method, route(parts).unwrap_or_else(|| path(parts)))
}

/// What requests with this method and this path are called.
pub(crate) fn named(method: &Method, path: &str) -> Result<Operation, Refused> {
    let named = Operation::new(&[method.as_str(), path].join(" "));
    // A path that is too long for a name is named by its digest.
    let named = named.or_else(|_| {
        let asked = Asked::raw(path.to_owned());
        let digest = lower::encode_string(asked.fingerprint().digest());
        Operation::new(&format!("{method} sha256:{digest}"))
    });
    named.map_err(|error| Refused::new(Code::RequestInvalid, error.to_string()))
}

/// The route that matched, where somebody knows.
fn route(parts: &Parts) -> Option<&str> {
    let route = parts.extensions.get::<MatchedRoute>().map(|route| &*route.0);
    #[cfg(feature = "axum")]
    let route = route.or_else(|| {
        let matched = parts.extensions.get::<::axum::extract::MatchedPath>();
        matched.map(::axum::extract::MatchedPath::as_str)
    });
    route
}

/// What is asked. JSON counts by its meaning; what has no single meaning, such as a member that
/// comes twice, counts byte by byte.
fn asked(parts: &Parts, body: &Bytes, settings: &Settings) -> Asked {
    let asking = asking(parts, body);
    let counts_by_meaning = match settings.json_bodies {
        JsonBodies::None => false,
        JsonBodies::AsSaid => is_json(&parts.headers),
        JsonBodies::All => true,
    };
    if counts_by_meaning {
        return asking.later(settings.json.clone());
    }
    let raw = asking.by(settings.raw.clone());
    raw.expect("invariant: bytes always have a fingerprint")
}

fn asking(parts: &Parts, body: &Bytes) -> Asking {
    let asking = Asking::new(body.clone())
        .part(METHOD, method(&parts.method))
        .part(PATH, path(parts).to_owned());
    match parts.uri.query() {
        Some(query) => asking.part(QUERY, query.to_owned()),
        None => asking,
    }
}

fn method(method: &Method) -> Bytes {
    match *method {
        Method::POST => Bytes::from_static(b"POST"),
        Method::PUT => Bytes::from_static(b"PUT"),
        Method::PATCH => Bytes::from_static(b"PATCH"),
        Method::DELETE => Bytes::from_static(b"DELETE"),
        ref other => Bytes::copy_from_slice(other.as_str().as_bytes()),
    }
}

/// K1: a key made of the method, the path, the query and the body.
fn derived(parts: &Parts, body: &Bytes) -> Result<Key, Refused> {
    let asked = asking(parts, body).raw().expect("invariant: three parts are not too many");
    let digest = lower::encode_string(asked.fingerprint().digest());
    let key = Key::new(&format!("derived-{digest}"));
    key.map_err(|error| Refused::new(Code::KeyInvalid, error.to_string()))
}

fn is_json(headers: &HeaderMap) -> bool {
    let plain = headers.get(header::CONTENT_ENCODING).is_none_or(|coding| coding == "identity");
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim).unwrap_or_default();
    let is_json = kind.eq_ignore_ascii_case("application/json")
        || kind.rsplit_once('+').is_some_and(|(_, suffix)| suffix.eq_ignore_ascii_case("json"));
    plain && is_json
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(method: &str, uri: &str, headers: &[(&str, &[u8])]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn key_of(values: &[&[u8]]) -> Result<Option<String>, Code> {
        let headers: Vec<_> = values.iter().map(|value| ("idempotency-key", *value)).collect();
        let found = key(&parts("POST", "/", &headers).headers, &Dialect::ietf());
        found.map(|key| key.map(|key| key.as_str().to_owned())).map_err(|refused| refused.code)
    }

    /// X6: bare and quoted forms are one key; parameters mean nothing; two lines are refused.
    #[test]
    fn x6_bare_and_quoted_keys_are_one_key() {
        let is = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(key_of(&[]), Ok(None));
        assert_eq!(key_of(&[b"order-1"]), is("order-1"));
        assert_eq!(key_of(&[b"\"order-1\""]), is("order-1"));
        assert_eq!(key_of(&[b"  \"order-1\"; v=1"]), is("order-1"));
        assert_eq!(key_of(&[b"\"a\\\"b\""]), is("a\"b"));
        assert_eq!(key_of(&[b"8e03978e-40d5-43dd-bc93-6894a57f9324"]).unwrap().unwrap().len(), 36);
        let long = vec![b'k'; 256];
        let bad: [&[u8]; 9] = [
            b"",
            b"\"\"",
            b"\"open",
            b"\"a\" \"b\"",
            b"two words",
            b"tab\there",
            b"\xff\xfe",
            b"\"\xc3\xa4\"",
            &long,
        ];
        for value in bad {
            assert_eq!(key_of(&[value]), Err(Code::KeyInvalid), "{value:?}");
        }
        assert_eq!(key_of(&[b"a", b"a"]), Err(Code::KeyInvalid), "two lines");
    }

    /// W2: the grammar is the dialect's.
    #[test]
    fn w2_a_dialect_may_allow_less() {
        let parts = parts("POST", "/", &[("idempotency-key", b"a/b")]);
        assert!(key(&parts.headers, &Dialect::ietf()).unwrap().is_some());
        assert_eq!(key(&parts.headers, &Dialect::openwop()).unwrap_err().code, Code::KeyInvalid);
    }

    fn asked_of(uri: &str, kind: &str, text: &'static str, settings: &Settings) -> Asked {
        let parts = parts("POST", uri, &[("content-type", kind.as_bytes())]);
        asked(&parts, &Bytes::from_static(text.as_bytes()), settings)
    }

    /// D5: the order of members does not matter, that of arrays does. K2: path and query count.
    #[test]
    fn d5_k2_json_counts_by_its_meaning_and_so_do_path_and_query() {
        let settings = Settings::default();
        let of = |uri, text| asked_of(uri, "application/json; charset=utf-8", text, &settings);
        let first = of("/a?x=1", r#"{"a":1,"b":[1,2]}"#);
        assert!(of("/a?x=1", r#"{ "b":[1,2], "a":1 }"#).is_same(first.fingerprint()));
        assert!(!of("/a?x=1", r#"{"a":1,"b":[2,1]}"#).is_same(first.fingerprint()));
        assert!(!of("/b?x=1", r#"{"a":1,"b":[1,2]}"#).is_same(first.fingerprint()));
        assert!(!of("/a?x=2", r#"{"a":1,"b":[1,2]}"#).is_same(first.fingerprint()));
        let deaf = Settings::builder(Dialect::ietf()).query(false).build().unwrap();
        let of = |uri| asked_of(uri, "application/vnd.x+json", "1", &deaf);
        assert!(of("/a?x=1").is_same(of("/a?x=2").fingerprint()));
    }

    /// What has no single meaning is never merged: it counts byte by byte.
    #[test]
    fn a_member_that_comes_twice_counts_byte_by_byte() {
        let settings = Settings::default();
        let of = |text| asked_of("/", "application/json", text, &settings);
        let twice = of(r#"{"a":1,"a":2}"#);
        assert!(of(r#"{"a":1,"a":2}"#).is_same(twice.fingerprint()));
        assert!(!of(r#"{"a":2}"#).is_same(twice.fingerprint()));
        assert!(!of(r#"{"a":2,"a":1}"#).is_same(twice.fingerprint()));
        assert!(!of("9007199254740993").is_same(of("9007199254740992").fingerprint()));
    }

    /// K1: the derived key is made of method, path, query and body.
    #[test]
    fn k1_a_derived_key_depends_on_all_that_is_asked() {
        let of = |method, uri, text: &'static str| {
            derived(&parts(method, uri, &[]), &Bytes::from_static(text.as_bytes())).unwrap()
        };
        let first = of("POST", "/a?x", "1");
        assert_eq!(of("POST", "/a?x", "1"), first);
        for other in [
            of("PUT", "/a?x", "1"),
            of("POST", "/b?x", "1"),
            of("POST", "/a?y", "1"),
            of("POST", "/a", "1"),
            of("POST", "/a?x", "2"),
        ] {
            assert_ne!(other, first);
        }
    }

    #[test]
    fn a_path_of_any_length_names_an_operation() {
        let long = format!("/{}", "x".repeat(5_000));
        let named = |uri: &str| operation(&parts("POST", uri, &[])).unwrap();
        assert_eq!(named("/orders").as_str(), "POST /orders");
        assert_ne!(named(&long), named(&format!("{long}y")));
        let mut routed = parts("POST", "/orders/7", &[]);
        routed.extensions.insert(MatchedRoute("/orders/{id}".into()));
        assert_eq!(operation(&routed).unwrap().as_str(), "POST /orders/{id}");
    }
}
