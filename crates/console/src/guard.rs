//! Who may come in: the right host, no page of another origin, the token; and how many at once.
//!
//! A browser on the same machine is the attacker to think of: any page may send requests to the
//! loopback. So the host must be ours (a name that was made to point here is not), and the origin
//! of a page must be this very listener. The guard answers with a problem and never with a reason
//! that helps to guess.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use onetake_core::Code;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::reply::problem;
use crate::token::Token;
use crate::wire::Problem;

/// Requests at once; further ones are refused.
const REQUESTS_MAX: usize = 64;
/// How long a request may take.
const REQUEST_WITHIN: Duration = Duration::from_secs(30);
/// How long a copy of a whole store may take.
const BACKUP_WITHIN: Duration = Duration::from_secs(60 * 60);
/// The port that an authority need not name.
const HTTP_PORT: u16 = 80;

/// The hosts that a listener is, as `Host` and `Origin` name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Those of a listener on `address`, and the names in `more`, each with its port.
    #[must_use]
    pub fn of(address: SocketAddr, more: &[String]) -> Self {
        let port = address.port();
        let mut names = vec![match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        }];
        // Who listens everywhere listens on the loopback too.
        if address.ip().is_loopback() || address.ip().is_unspecified() {
            names.extend(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned));
        }
        let mut hosts: Vec<_> = names.iter().map(|name| format!("{name}:{port}")).collect();
        if port == HTTP_PORT {
            hosts.extend(names);
        }
        hosts.extend(more.iter().map(|name| name.to_ascii_lowercase()));
        Self(hosts)
    }

    fn has(&self, host: &str) -> bool {
        self.0.iter().any(|known| known.eq_ignore_ascii_case(host))
    }
}

/// Who may come in, and how many at once. Clones share the count.
#[derive(Debug, Clone)]
pub struct Guard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    token: Token,
    hosts: Hosts,
    places: Semaphore,
}

impl Guard {
    /// A guard that lets in who has `token` and asks one of `hosts`.
    #[must_use]
    pub fn new(token: Token, hosts: Hosts) -> Self {
        Self(Arc::new(Inner { token, hosts, places: Semaphore::new(REQUESTS_MAX) }))
    }

    /// Whether a request with these headers may come in.
    fn judge(&self, request: &Request) -> Result<(), Problem> {
        let headers = request.headers();
        let refused = |code, why: &str| Err(problem(code, why));
        // A request line with a whole URL names a host as well, and it counts before the header.
        let named = request.uri().authority().map(Authority::as_str);
        let host = only(headers, &header::HOST);
        let is_ours = |host: &str| self.0.hosts.has(host);
        let Some(host) = host.filter(|host| is_ours(host)) else {
            return refused(Code::HostRefused, "this listener is not the host that was named");
        };
        if named.is_some_and(|named| !is_ours(named)) {
            return refused(Code::HostRefused, "this listener is not the host that was named");
        }
        let has_origin = headers.contains_key(header::ORIGIN);
        let is_own = |origin: &str| origin.strip_prefix("http://") == Some(host);
        if has_origin && !only(headers, &header::ORIGIN).is_some_and(is_own) {
            return refused(Code::OriginRefused, "requests of other pages are not taken");
        }
        let bearer = only(headers, &header::AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start())
        });
        if !bearer.is_some_and(|token| self.0.token.is(token.as_bytes())) {
            return refused(Code::TokenInvalid, "send the token as `Authorization: Bearer`");
        }
        Ok(())
    }
}

/// The value of a header that is there exactly once and is text.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() { None } else { first.to_str().ok() }
}

/// Lets a request in, or says why not.
pub(crate) async fn admit(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    if let Err(refusal) = guard.judge(&request) {
        return refusal.into_response();
    }
    let Ok(_place) = guard.0.places.try_acquire() else {
        return problem(Code::Busy, "too many requests at once").into_response();
    };
    let is_backup = request.uri().path().ends_with("/backup");
    let limit = if is_backup { BACKUP_WITHIN } else { REQUEST_WITHIN };
    let within = timeout(limit, next.run(request)).await;
    let mut response = within.unwrap_or_else(|_| {
        let why = "no answer in time; what was asked may be done or not";
        problem(Code::ActUncertain, why).into_response()
    });
    // What an operator reads here is for nobody who comes after them to the same browser.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use tower::ServiceExt;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn guard() -> Guard {
        let hosts = Hosts::of(([127, 0, 0, 1], 8081).into(), &["Ops.example:443".to_owned()]);
        Guard::new(Token::new(TOKEN).unwrap(), hosts)
    }

    /// What becomes of a request with these headers.
    fn judged(uri: &str, headers: &[(&str, &str)]) -> &'static str {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let judged = guard().judge(&request.body(Body::empty()).unwrap());
        judged.map_or_else(|problem| problem.known().unwrap().as_str(), |()| "in")
    }

    /// A URI, headers, and what becomes of them.
    type Line<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

    #[test]
    fn who_may_come_in_is_this_table() {
        let (host, token) =
            (("host", "127.0.0.1:8081"), ("authorization", "Bearer 0123456789abcdef"));
        let table: &[Line<'_>] = &[
            ("/", &[host, token], "in"),
            ("/", &[("host", "LOCALHOST:8081"), token], "in"),
            ("/", &[("host", "[::1]:8081"), token], "in"),
            ("/", &[("host", "ops.example:443"), token], "in"),
            ("/", &[host, ("authorization", "bearer  0123456789abcdef")], "in"),
            ("/", &[host, token, ("origin", "http://127.0.0.1:8081")], "in"),
            ("http://127.0.0.1:8081/", &[host, token], "in"),
            ("/", &[token], "host_refused"),
            ("/", &[("host", "127.0.0.1"), token], "host_refused"),
            ("/", &[("host", "127.0.0.1:8082"), token], "host_refused"),
            ("/", &[("host", "evil.example:8081"), token], "host_refused"),
            ("/", &[host, ("host", "evil.example"), token], "host_refused"),
            ("http://evil.example/", &[host, token], "host_refused"),
            ("/", &[host, token, ("origin", "https://evil.example")], "origin_refused"),
            ("/", &[host, token, ("origin", "null")], "origin_refused"),
            ("/", &[host, token, ("origin", "http://localhost:8081")], "origin_refused"),
            ("/", &[host, token, ("origin", "https://127.0.0.1:8081")], "origin_refused"),
            ("/", &[host], "token_invalid"),
            ("/", &[host, ("authorization", "Bearer wrong")], "token_invalid"),
            ("/", &[host, ("authorization", "Basic 0123456789abcdef")], "token_invalid"),
            ("/", &[host, ("authorization", TOKEN)], "token_invalid"),
            ("/", &[host, token, token], "token_invalid"),
        ];
        for (uri, headers, expected) in table {
            assert_eq!(judged(uri, headers), *expected, "{uri} {headers:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_bounded_in_number_and_in_time() {
        let admitting = from_fn_with_state(guard(), admit);
        let router = Router::new().fallback(std::future::pending::<()>).layer(admitting);
        let ask = |path: &str| {
            let request = Request::builder().uri(path).header("host", "127.0.0.1:8081");
            let request = request.header("authorization", format!("Bearer {TOKEN}"));
            router.clone().oneshot(request.body(Body::empty()).unwrap())
        };
        let began = tokio::time::Instant::now();
        let mut slow = tokio::task::JoinSet::new();
        for _ in 1..REQUESTS_MAX {
            slow.spawn(ask("/"));
        }
        slow.spawn(ask("/v1/store/backup"));
        for _ in 0..REQUESTS_MAX {
            tokio::task::yield_now().await;
        }
        let refused = ask("/").await.unwrap();
        assert_eq!((refused.status(), began.elapsed()), (503.try_into().unwrap(), Duration::ZERO));
        while slow.len() > 1 {
            let answer = slow.join_next().await.unwrap().unwrap().unwrap();
            assert_eq!(answer.status(), 503);
            assert_eq!(answer.headers()[header::CACHE_CONTROL], "no-store");
        }
        assert_eq!(began.elapsed().as_secs(), REQUEST_WITHIN.as_secs());
        slow.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!(began.elapsed().as_secs(), BACKUP_WITHIN.as_secs(), "a copy may take longer");
    }

    #[test]
    fn a_listener_is_the_hosts_that_reach_it() {
        let of = |address: &str| Hosts::of(address.parse().unwrap(), &[]).0;
        let loopback = ["localhost:80", "127.0.0.1:80", "[::1]:80", "localhost"];
        assert!(loopback.iter().all(|host| of("127.0.0.1:80").contains(&(*host).to_owned())));
        assert_eq!(of("10.1.2.3:8081"), ["10.1.2.3:8081"]);
        assert_eq!(of("[fd00::1]:8081"), ["[fd00::1]:8081"]);
        assert!(of("0.0.0.0:8081").contains(&"localhost:8081".to_owned()));
    }
}
