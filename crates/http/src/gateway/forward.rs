//! Which headers pass between a caller and an upstream, and which are set on the way.
//!
//! Takes headers and gives headers; opens no connection and reads no body. What belongs to one
//! connection stays on it, in both directions. What a caller says about itself (where it comes
//! from, who it is) reaches the upstream only when a trusted proxy said it, and words that are ours
//! never come from anybody else. Backends that read `a_b` and `a-b` as one name are taken into
//! account: underscores do not make another header of a reserved one.

use std::collections::HashSet;
use std::net::IpAddr;

use bytes::{BufMut, BytesMut};
use http::header::{self, Entry, HeaderName};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Uri, Version};
use ipnet::IpNet;

use crate::hops::{self, OF_ONE_CONNECTION, members};

/// Every header that begins with this is ours alone, in both directions.
const OURS: &str = "onetake-";
/// What a caller's side of the gateway is described by, beside `Forwarded`.
const FORWARDED_FAMILY: &str = "x-forwarded-";
/// Set by some proxies for the one address that a backend should believe.
const REAL_IP: &str = "x-real-ip";
const TRAILERS: &str = "trailers";
/// How many headers a request gets on its way, about.
const ADDED: usize = 10;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Which `Host` an upstream is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostSent {
    /// The upstream's own.
    #[default]
    Upstream,
    /// The one that the caller asked for.
    Caller,
}

/// Where a request came from, as the listener saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The other end of the connection.
    pub peer: IpAddr,
    /// How the caller reached the listener.
    pub scheme: Scheme,
    /// The protocol that it spoke.
    pub version: Version,
}

/// A path that cannot be asked of the upstream. Nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// The request names no path, as `CONNECT` and `OPTIONS *` do.
    #[error("the request names no path")]
    NoPath,
    /// The path and query are too long together with the upstream's own path.
    #[error("the path and query are too long for the upstream")]
    TooLong,
}

/// What happens to headers on their way through.
#[derive(Debug, Clone, Default)]
pub struct Forwarding {
    trusted: Vec<IpNet>,
    identity: Vec<HeaderName>,
    host: HostSent,
}

impl Forwarding {
    /// Trusts no proxy, strips no header but ours, and sends the upstream's own `Host`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Believes what these proxies say about where a request came from.
    #[must_use]
    pub fn trusted_proxies(mut self, trusted: Vec<IpNet>) -> Self {
        self.trusted = trusted;
        self
    }

    /// Strips these headers from every request, because upstreams take them for proven.
    #[must_use]
    pub fn identity_headers(mut self, identity: Vec<HeaderName>) -> Self {
        self.identity = identity;
        self
    }

    /// Sends this `Host`.
    #[must_use]
    pub const fn host(mut self, host: HostSent) -> Self {
        self.host = host;
        self
    }

    /// Whether the upstream is sent the host that the caller asked for.
    pub(super) fn sends_host_of_caller(&self) -> bool {
        matches!(self.host, HostSent::Caller)
    }

    /// Whether `peer` is one of the trusted proxies.
    #[must_use]
    pub fn is_trusted(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.trusted.iter().any(|network| network.contains(&peer))
    }

    /// Makes the headers of a caller's request those of the request to `upstream`.
    ///
    /// `asked` is the target as the caller wrote it. The headers that are ours may be set
    /// afterwards: whatever the caller sent under their names is gone.
    pub fn request(
        &self,
        headers: &mut HeaderMap,
        asked: &Uri,
        caller: &Caller,
        upstream: &Authority,
    ) {
        let host = host_asked(headers, asked);
        let (takes_trailers, trusts) = (takes_trailers(headers), self.is_trusted(caller.peer));
        let named = hops::named(headers);
        strip(headers, |name| {
            // The body is in hand already; nobody needs to be asked whether it may come.
            is_of_connection(name, &named)
                || *name == header::EXPECT
                || self.is_reserved(name.as_str())
                || (!trusts && is_provenance(name.as_str()))
        });
        // At once for all that follow. What is too much is refused where it is added.
        let _ = headers.try_reserve(ADDED);
        if takes_trailers {
            // Without `Connection: TE`: over HTTP/2 that one is not allowed, and over HTTP/1.1
            // nobody misses it.
            headers.insert(header::TE, HeaderValue::from_static(TRAILERS));
        }
        join_cookies(headers);
        describe_caller(headers, caller, host.as_ref());
        append(headers, header::VIA, via(caller.version));
        let host = match self.host {
            HostSent::Upstream => upstream,
            HostSent::Caller => host.as_ref().unwrap_or(upstream),
        };
        headers.insert(header::HOST, value(host.as_str().to_owned()));
    }

    /// Whether a name is kept for us or for a proven identity, in any spelling; or is another
    /// spelling of a header that we set.
    fn is_reserved(&self, name: &str) -> bool {
        let has_underscore = name.contains('_');
        let is_like = |identity: &HeaderName| is_like(name, identity.as_str());
        begins_like(name, OURS)
            || self.identity.iter().any(is_like)
            || (has_underscore && is_provenance(name))
    }
}

/// Removes `header` in whatever spelling a backend may take for it.
pub(super) fn strip_spellings(headers: &mut HeaderMap, header: &HeaderName) {
    strip(headers, |name| is_like(name.as_str(), header.as_str()));
}

/// Makes the headers of an upstream's answer, which came over `version`, those for the caller.
pub fn response(headers: &mut HeaderMap, version: Version) {
    let named = hops::named(headers);
    // A refusal of ours must never be taken for the backend's, nor the other way round.
    strip(headers, |name| is_of_connection(name, &named) || begins_like(name.as_str(), OURS));
    append(headers, header::VIA, via(version));
}

/// Where a request goes: the upstream's own path, then path and query as the caller wrote them,
/// byte for byte.
///
/// # Errors
/// A [`UriError`] when there is no path, or too much of it.
pub fn upstream_uri(base: &Uri, asked: &Uri) -> Result<Uri, UriError> {
    let target = asked.path_and_query().ok_or(UriError::NoPath)?;
    if !target.as_str().starts_with('/') {
        return Err(UriError::NoPath);
    }
    let prefix = base.path().trim_end_matches('/');
    let target = if prefix.is_empty() {
        target.clone()
    } else {
        let mut whole = BytesMut::with_capacity(prefix.len() + target.as_str().len());
        whole.put_slice(prefix.as_bytes());
        whole.put_slice(target.as_str().as_bytes());
        PathAndQuery::from_maybe_shared(whole.freeze()).map_err(|_| UriError::TooLong)?
    };
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(target);
    Uri::from_parts(parts).map_err(|_| UriError::TooLong)
}

/// The host that the caller asked for: that of the target if it names one, else of `Host`.
pub(super) fn host_asked(headers: &HeaderMap, asked: &Uri) -> Option<Authority> {
    let mut lines = headers.get_all(header::HOST).iter();
    let only = lines.next().filter(|_| lines.next().is_none());
    let of_header = || Authority::try_from(only?.as_bytes()).ok();
    // A name or a password before the host is no part of it, and nobody's to pass on.
    asked.authority().cloned().or_else(of_header).filter(|host| !host.as_str().contains('@'))
}

/// Whether the caller can read trailers, the one thing in `TE` that is not for one connection.
fn takes_trailers(headers: &HeaderMap) -> bool {
    let is_trailers = |member: &[u8]| member.trim_ascii().eq_ignore_ascii_case(TRAILERS.as_bytes());
    members(headers, &header::TE).any(is_trailers)
}

/// Whether a header belongs to the connection that it came over, whose own one names these.
fn is_of_connection(name: &HeaderName, named: &HashSet<HeaderName>) -> bool {
    OF_ONE_CONNECTION.contains(name) || named.contains(name)
}

/// Removes every header whose name is one of those.
fn strip(headers: &mut HeaderMap, is_one: impl Fn(&HeaderName) -> bool) {
    let names: Vec<_> = headers.keys().filter(|name| is_one(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Whether a header says where a request came from.
fn is_provenance(name: &str) -> bool {
    is_like(name, header::FORWARDED.as_str())
        || begins_like(name, FORWARDED_FAMILY)
        || is_like(name, REAL_IP)
}

/// Whether two names are one to a backend that cannot tell underscores from hyphens.
fn is_like(name: &str, known: &str) -> bool {
    name.len() == known.len() && begins_like(name, known)
}

fn begins_like(name: &str, known: &str) -> bool {
    let alike = |(one, two): (u8, u8)| one == two || (one == b'_' && two == b'-');
    name.len() >= known.len() && name.bytes().zip(known.bytes()).all(alike)
}

/// Adds this hop to `Forwarded` (RFC 7239) and to the older headers of the same meaning.
fn describe_caller(headers: &mut HeaderMap, caller: &Caller, host: Option<&Authority>) {
    let peer = caller.peer.to_canonical();
    let (ip, proto) = (peer.to_string(), caller.scheme.as_str());
    let (opens, closes) = if peer.is_ipv6() { ("\"[", "]\"") } else { ("", "") };
    let host = host.map(Authority::as_str);
    // An authority has neither quotes nor backslashes, so it needs no escapes.
    let [before, named, behind] = host.map_or([""; 3], |host| [";host=\"", host, "\""]);
    let hop = ["for=", opens, &ip, closes, before, named, behind, ";proto=", proto].concat();
    append(headers, header::FORWARDED, value(hop));
    append(headers, X_FORWARDED_FOR, value(ip));
    if let Some(host) = host {
        append(headers, X_FORWARDED_HOST, value(host.to_owned()));
    }
    append(headers, X_FORWARDED_PROTO, value(proto.to_owned()));
}

/// Makes one line of the cookies that HTTP/2 may send in several (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if let Entry::Occupied(mut lines) = headers.entry(header::COOKIE)
        && lines.iter().nth(1).is_some()
    {
        let line = joined(lines.iter(), b"; ");
        lines.insert(line);
    }
}

/// Adds a member to a list header, in one line: many backends read no more than the first.
fn append(headers: &mut HeaderMap, name: HeaderName, member: HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(place) => {
            place.insert(member);
        }
        Entry::Occupied(mut lines) => {
            let line = joined(lines.iter().chain([&member]), b", ");
            lines.insert(line);
        }
    }
}

fn joined<'v>(lines: impl Iterator<Item = &'v HeaderValue>, between: &[u8]) -> HeaderValue {
    let lines: Vec<_> = lines.map(HeaderValue::as_bytes).collect();
    let line = HeaderValue::from_bytes(&lines.join(between));
    line.expect("invariant: header values joined by text are one")
}

/// How this gateway is called in `Via`, behind the protocol that it was reached by.
const fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_09 => "0.9 onetake",
        Version::HTTP_10 => "1.0 onetake",
        Version::HTTP_2 => "2 onetake",
        Version::HTTP_3 => "3 onetake",
        _ => "1.1 onetake",
    })
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("invariant: addresses and authorities are visible ASCII")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Headers as lines of text, in alphabetical order.
    fn lines(headers: &HeaderMap) -> Vec<String> {
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))
        };
        let mut lines: Vec<_> = headers.iter().map(line).collect();
        lines.sort();
        lines
    }

    fn headers(lines: &[&str]) -> HeaderMap {
        let pair = |line: &&str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
        };
        lines.iter().map(pair).collect()
    }

    fn from(peer: &str) -> Caller {
        let peer = peer.parse().unwrap();
        Caller { peer, scheme: Scheme::HTTP, version: Version::HTTP_11 }
    }

    fn forwarding() -> Forwarding {
        Forwarding::new()
            .trusted_proxies(vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()])
            .identity_headers(vec![HeaderName::from_static("x-user")])
    }

    /// The headers that reach an upstream, without those that every request gets.
    fn reaches(sent: &[&str]) -> Vec<String> {
        let mut found = headers(sent);
        let asked = Uri::from_static("/orders");
        let upstream = Authority::from_static("api.internal:9000");
        forwarding().request(&mut found, &asked, &from("192.0.2.7"), &upstream);
        for name in ["forwarded", "x-forwarded-for", "x-forwarded-proto", "via", "host"] {
            assert!(found.remove(name).is_some(), "{name}");
        }
        lines(&found)
    }

    #[test]
    fn what_belongs_to_one_connection_stays_on_it() {
        let sent = [
            "connection: close, X-Hop , ,content-md5",
            "connection: x-second",
            "x-hop: 1",
            "content-md5: 1",
            "x-second: 1",
            "keep-alive: timeout=5",
            "proxy-connection: keep-alive",
            "proxy-authenticate: Basic",
            "proxy-authorization: Basic abc",
            "te: gzip",
            "trailer: x-sum",
            "transfer-encoding: chunked",
            "upgrade: websocket",
            "http2-settings: AAMAAABk",
            "expect: 100-continue",
            "accept: */*",
            "content-length: 5",
            "cookie: a=1",
            "cookie: b=2",
        ];
        let expected = ["accept: */*", "content-length: 5", "cookie: a=1; b=2"];
        assert_eq!(reaches(&sent), expected);
        let mut answer = headers(&sent[..14]);
        answer.insert(header::ETAG, HeaderValue::from_static("\"1\""));
        response(&mut answer, Version::HTTP_10);
        assert_eq!(lines(&answer), ["etag: \"1\"", "via: 1.0 onetake"]);
    }

    #[test]
    fn only_trailers_are_left_of_what_a_caller_accepts_in_transfer() {
        assert_eq!(reaches(&["te: gzip;q=0.5, Trailers", "connection: te"]), ["te: trailers"]);
        assert_eq!(reaches(&["te: deflate", "te: trailers"]), ["te: trailers"]);
        assert_eq!(reaches(&["te: trailersx"]), [""; 0]);
    }

    #[test]
    fn a_caller_cannot_speak_in_our_name_or_claim_an_identity() {
        let sent = [
            "onetake-attempt: 7",
            "onetake-recovery: true",
            "onetake-tenant: acme",
            "onetake-principal: root",
            "onetake-refused: busy",
            "onetake-anything: 1",
            "onetake_tenant: acme",
            "x-user: root",
            "x_user: root",
            "x-user-agent: mine",
            "idempotency-key: k",
            "onetaken: 1",
        ];
        let expected = ["idempotency-key: k", "onetaken: 1", "x-user-agent: mine"];
        assert_eq!(reaches(&sent), expected);
        let mut answer = headers(&["onetake-refused: in_flight", "onetake_refused: 1"]);
        response(&mut answer, Version::HTTP_11);
        assert_eq!(lines(&answer), ["via: 1.1 onetake"]);
    }

    const TOLD: [&str; 12] = [
        "host: shop.example",
        "forwarded: for=198.51.100.1;proto=https",
        "forwarded: for=10.0.0.9",
        "x-forwarded-for: 198.51.100.1",
        "x-forwarded-for: 10.0.0.9",
        "x-forwarded-host: www.example",
        "x-forwarded-proto: https",
        "x-forwarded-port: 443",
        "x-real-ip: 198.51.100.1",
        "x_forwarded_for: 6.6.6.6",
        "x_real_ip: 6.6.6.6",
        "via: 2 edge",
    ];

    fn told_by(peer: &str) -> Vec<String> {
        let mut found = headers(&TOLD);
        let upstream = Authority::from_static("api.internal:9000");
        forwarding().request(&mut found, &Uri::from_static("/"), &from(peer), &upstream);
        lines(&found)
    }

    #[test]
    fn what_a_stranger_says_about_its_way_is_replaced() {
        let expected = [
            "forwarded: for=192.0.2.7;host=\"shop.example\";proto=http",
            "host: api.internal:9000",
            "via: 2 edge, 1.1 onetake",
            "x-forwarded-for: 192.0.2.7",
            "x-forwarded-host: shop.example",
            "x-forwarded-proto: http",
        ];
        assert_eq!(told_by("192.0.2.7"), expected);
    }

    #[test]
    fn what_a_trusted_proxy_says_about_the_way_is_kept_and_goes_on() {
        let line = "forwarded: for=198.51.100.1;proto=https, for=10.0.0.9, ";
        let expected = [
            &format!("{line}for=10.1.2.3;host=\"shop.example\";proto=http"),
            "host: api.internal:9000",
            "via: 2 edge, 1.1 onetake",
            "x-forwarded-for: 198.51.100.1, 10.0.0.9, 10.1.2.3",
            "x-forwarded-host: www.example, shop.example",
            "x-forwarded-port: 443",
            "x-forwarded-proto: https, http",
            "x-real-ip: 198.51.100.1",
        ];
        assert_eq!(told_by("10.1.2.3"), expected);
        assert_eq!(told_by("::ffff:10.1.2.3"), expected, "the same peer on a dual listener");
        let told = told_by("fd00::7");
        assert!(told[0].ends_with("for=\"[fd00::7]\";host=\"shop.example\";proto=http"));
        assert!(!forwarding().is_trusted("11.0.0.1".parse().unwrap()));
    }

    #[test]
    fn the_host_is_the_upstreams_unless_the_callers_is_wanted() {
        let host = |sent: HostSent, asked: &str, lines: &[&str]| {
            let mut found = headers(lines);
            let upstream = Authority::from_static("api.internal");
            let asked: Uri = asked.parse().unwrap();
            let forwarding = Forwarding::new().host(sent);
            forwarding.request(&mut found, &asked, &from("192.0.2.7"), &upstream);
            assert_eq!(found.get_all("host").iter().count(), 1);
            let told = found.get("x-forwarded-host").map_or("", |value| value.to_str().unwrap());
            format!("{} {told}", found["host"].to_str().unwrap())
        };
        let one = ["host: a.example:81"];
        assert_eq!(host(HostSent::Upstream, "/", &one), "api.internal a.example:81");
        assert_eq!(host(HostSent::Caller, "/", &one), "a.example:81 a.example:81");
        assert_eq!(host(HostSent::Caller, "http://b.example/", &one), "b.example b.example");
        assert_eq!(host(HostSent::Caller, "/", &[]), "api.internal ");
        let bad = ["host: a.example", "host: b.example"];
        assert_eq!(host(HostSent::Caller, "/", &bad), "api.internal ");
        assert_eq!(host(HostSent::Caller, "/", &["host: u:p@a.example"]), "api.internal ");
        assert_eq!(host(HostSent::Caller, "/", &["host: a\"b"]), "api.internal ");
    }

    #[test]
    fn the_upstreams_path_comes_before_the_callers() {
        let uri = |base: &str, asked: &str| {
            upstream_uri(&base.parse().unwrap(), &asked.parse().unwrap())
                .map(|uri| uri.to_string())
                .map_err(|error| error.to_string())
        };
        let table = [
            ("http://h:1", "/a/b?x=%2f&y", "http://h:1/a/b?x=%2f&y"),
            ("http://h:1/", "/a//b/?", "http://h:1/a//b/?"),
            ("https://h/api/", "/a", "https://h/api/a"),
            ("https://h/api", "/%41%2a", "https://h/api/%41%2a"),
            ("http://h", "http://evil.example/a?q", "http://h/a?q"),
            ("http://h", "//evil.example/a", "http://h//evil.example/a"),
        ];
        for (base, asked, expected) in table {
            assert_eq!(uri(base, asked).as_deref(), Ok(expected));
        }
        assert_eq!(uri("http://h", "*").unwrap_err(), "the request names no path");
        assert_eq!(uri("http://h", "h:443").unwrap_err(), "the request names no path");
        let long = format!("/{}", "a".repeat(65_000));
        assert!(uri("http://h", &long).is_ok());
        let base = format!("http://h/{}", "b".repeat(1_000));
        assert_eq!(
            uri(&base, &long).unwrap_err(),
            "the path and query are too long for the upstream"
        );
    }

    proptest! {
        #[test]
        fn path_and_query_arrive_byte_for_byte(asked in "/[!-~]{0,60}") {
            prop_assume!(!asked.contains('#'));
            if let Ok(uri) = asked.parse::<Uri>() {
                let sent = upstream_uri(&Uri::from_static("http://h/base/"), &uri).unwrap();
                prop_assert_eq!(sent.path_and_query().unwrap().as_str(), format!("/base{asked}"));
                prop_assert_eq!(sent.host(), Some("h"));
            }
        }
    }
}
