//! What a node asks of a provider, and what is kept of the answer.
//!
//! A call is checked once, when it is made. What may differ between two attempts of a node is sent
//! and not compared, and the identity of a call is never the node's to choose. Nothing here opens a
//! connection, and nothing of a request or of an answer shows in a `Debug`.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::Scheme;
use http::{Method, Request, Uri};
use http_body_util::Full;
use onetake_core::{Algorithm, Asked, Asking, Filters, Method as Fingerprinting};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The limit of one attempt, unless the call has its own.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Headers of one connection (RFC 9110 §7.6.1), beside what `Connection` names.
static OF_ONE_CONNECTION: [HeaderName; 11] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-authentication-info"),
    HeaderName::from_static("http2-settings"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// What the client says itself of a request: where it goes and how long it is.
static OF_THE_CLIENT: [HeaderName; 3] = [header::CONTENT_LENGTH, header::EXPECT, header::HOST];
/// A provider's word to one browser, which must not reach another.
static OF_A_BROWSER: [HeaderName; 2] = [header::SET_COOKIE, HeaderName::from_static("set-cookie2")];

/// What counts beside the body when two calls are compared.
const PARTS: [&str; 3] = ["method", "url", "headers"];

/// A call that cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpCallError {
    /// The URL is none, or has no host.
    #[error("the URL of a call begins with `http://` or `https://` and names a host")]
    Url,
    /// The URL has a name or a password in it.
    #[error("the URL of a call has no name and no password; send them in a header")]
    Credentials,
    /// A tunnel is no call.
    #[error("a call cannot be a CONNECT")]
    Method,
    /// The body cannot be written as JSON.
    #[error("the body of a call cannot be written as JSON")]
    Json,
}

/// What a node asks of a provider.
#[derive(Clone)]
pub struct HttpCall {
    method: Method,
    url: Uri,
    headers: HeaderMap,
    /// Sent, and not compared.
    aside: HeaderMap,
    body: Bytes,
    pub(super) timeout: Duration,
}

/// Shows where it goes and how much there is: a path, a header or a body may be a secret.
impl fmt::Debug for HttpCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCall")
            .field("method", &self.method)
            .field("host", &self.url.host().unwrap_or_default())
            .field("headers", &(self.headers.len() + self.aside.len()))
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl HttpCall {
    /// A call without a body. One attempt at it may take 30 s.
    ///
    /// # Errors
    /// An [`HttpCallError`] that says what to change.
    pub fn new(method: Method, url: &str) -> Result<Self, HttpCallError> {
        let url: Uri = url.parse().map_err(|_| HttpCallError::Url)?;
        let is_known = url.scheme().is_some_and(|it| [Scheme::HTTP, Scheme::HTTPS].contains(it));
        let Some(authority) = url.authority().filter(|_| is_known) else {
            return Err(HttpCallError::Url);
        };
        if authority.as_str().contains('@') {
            return Err(HttpCallError::Credentials);
        }
        // A port that is none would silently become the usual one.
        let behind_host = authority.as_str().strip_prefix(authority.host());
        let names_port = behind_host.is_some_and(|port| !port.is_empty());
        if authority.host().is_empty() || (names_port && authority.port_u16().is_none()) {
            return Err(HttpCallError::Url);
        }
        if method == Method::CONNECT {
            return Err(HttpCallError::Method);
        }
        let (headers, aside) = (HeaderMap::new(), HeaderMap::new());
        Ok(Self { method, url, headers, aside, body: Bytes::new(), timeout: TIMEOUT })
    }

    /// With one more header. It is part of what is asked: a node that runs again must set the same.
    /// Headers of one connection are not sent, and that of the identity is replaced.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// With a header that may differ when the node runs again, such as a token that was renewed or
    /// the id of a trace: it is sent, and not part of what is asked.
    #[must_use]
    pub fn aside(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.aside.append(name, value);
        self
    }

    /// With this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// With this body as JSON, and a header that says so.
    ///
    /// # Errors
    /// [`HttpCallError::Json`] when it cannot be written.
    pub fn json(mut self, body: &(impl Serialize + ?Sized)) -> Result<Self, HttpCallError> {
        self.body = serde_json::to_vec(body).map_err(|_| HttpCallError::Json)?.into();
        let json = HeaderValue::from_static("application/json");
        self.headers.insert(header::CONTENT_TYPE, json);
        Ok(self)
    }

    /// Allows each attempt this long, its answer included. A stream must begin by then.
    #[must_use]
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// What is asked, as it is compared when the node asks again: JSON by its meaning, anything
    /// else byte by byte.
    pub(super) fn asked(&self, identity: &HeaderName) -> Asked {
        let headers = sendable(&self.headers, identity);
        let mut lines: Vec<_> = headers.iter().collect();
        // Stable, so that the values of one name keep their order.
        lines.sort_by_key(|(name, _)| name.as_str());
        let mut text = Vec::new();
        for (name, value) in lines {
            // Neither can hold a line break, so nothing can move between them.
            text.extend_from_slice(name.as_str().as_bytes());
            text.push(b'\n');
            text.extend_from_slice(value.as_bytes());
            text.push(b'\n');
        }
        let parts = PARTS.map(Arc::from);
        let filters = Filters::new([], parts).expect("invariant: three parts are not too many");
        let [method, url, headers] = PARTS;
        let algorithm = if self.is_json() { Algorithm::Json } else { Algorithm::Raw };
        Asking::new(self.body.clone())
            .part(method, self.method.as_str().to_owned())
            .part(url, self.url.to_string())
            .part(headers, text)
            .later(Fingerprinting::new(algorithm, filters))
    }

    fn is_json(&self) -> bool {
        media_type(&self.headers)
            .is_some_and(|it| it == "application/json" || it.ends_with("+json"))
    }

    /// The request of one attempt.
    pub(super) fn request(&self, identity: &HeaderName, id: HeaderValue) -> Request<Full<Bytes>> {
        let mut headers = self.headers.clone();
        for (name, value) in &self.aside {
            headers.append(name, value.clone());
        }
        let mut headers = sendable(&headers, identity);
        headers.insert(identity, id);
        let has_body = [Method::POST, Method::PUT, Method::PATCH].contains(&self.method);
        if has_body || !self.body.is_empty() {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(self.body.len()));
        }
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = headers;
        request
    }
}

/// Those that a node may set.
fn sendable(headers: &HeaderMap, identity: &HeaderName) -> HeaderMap {
    let mut headers = lasting(headers);
    for name in OF_THE_CLIENT.iter().chain([identity]) {
        headers.remove(name);
    }
    headers
}

/// Those that are not about one connection.
fn lasting(headers: &HeaderMap) -> HeaderMap {
    let lines = headers.get_all(header::CONNECTION).into_iter();
    let named = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let named: Vec<_> =
        named.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect();
    let mut headers = headers.clone();
    for name in OF_ONE_CONNECTION.iter().chain(&named) {
        headers.remove(name);
    }
    headers
}

/// The type of a body, without parameters and in small letters.
pub(super) fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// The headers of an answer that may be kept, as text.
pub(super) fn kept(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut lasting = lasting(headers);
    for name in &OF_A_BROWSER {
        lasting.remove(name);
    }
    lasting.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// A value as text; one that is not UTF-8 is Latin-1, as it has always been in headers.
fn text(value: &HeaderValue) -> String {
    let latin = || value.as_bytes().iter().map(|byte| char::from(*byte)).collect();
    std::str::from_utf8(value.as_bytes()).map_or_else(|_| latin(), str::to_owned)
}

/// What a provider answered, as it is kept and given again.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpResult {
    /// The status.
    pub status: u16,
    /// Names, in small letters, and values. Cookies and what is about the connection are left out.
    pub headers: Vec<(String, String)>,
    /// The body, as it came: nothing is decompressed.
    #[serde(serialize_with = "write_body", deserialize_with = "read_body")]
    pub body: Bytes,
}

/// Shows how much there is, never what.
impl fmt::Debug for HttpResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, headers, body } = self;
        write!(f, "HttpResult({status}, {} headers, {} bytes)", headers.len(), body.len())
    }
}

impl HttpResult {
    /// Whether the provider did what it was asked.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self.status, 200..=299)
    }

    /// The first value of a header, whose name is in small letters.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut named = self.headers.iter().filter(|(it, _)| it == name);
        named.next().map(|(_, value)| value.as_str())
    }

    /// The body, read as JSON.
    ///
    /// # Errors
    /// When it is none, or of another shape.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

/// A body in the log: readable where it can be.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Body<'a> {
    Text(Cow<'a, str>),
    Base64(Cow<'a, str>),
}

fn write_body<S: Serializer>(body: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    let written = match std::str::from_utf8(body) {
        Ok(text) => Body::Text(text.into()),
        Err(_) => Body::Base64(STANDARD.encode(body).into()),
    };
    written.serialize(to)
}

fn read_body<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    match Body::deserialize(from)? {
        Body::Text(text) => Ok(text.into_owned().into()),
        // The decoder's own words could quote the body.
        Body::Base64(text) => {
            let bytes = STANDARD.decode(&*text).map_err(|_| D::Error::custom("not base64"))?;
            Ok(bytes.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: HeaderName = HeaderName::from_static("idempotency-key");

    fn call() -> HttpCall {
        HttpCall::new(Method::POST, "https://api.example/v1/charges?q=1").unwrap()
    }

    fn set(call: HttpCall, name: &'static str, value: &'static str) -> HttpCall {
        call.header(HeaderName::from_static(name), HeaderValue::from_static(value))
    }

    #[test]
    fn a_call_that_cannot_be_made_is_refused_when_it_is_described() {
        let refused = |method, url| HttpCall::new(method, url).err();
        for url in
            ["", "/v1", "api.example", "ftp://a", "http://a:99999/", "http://:80/", "http:///"]
        {
            assert_eq!(refused(Method::GET, url), Some(HttpCallError::Url), "{url}");
        }
        let url = "https://me:secret@api.example";
        assert_eq!(refused(Method::GET, url), Some(HttpCallError::Credentials));
        assert_eq!(refused(Method::CONNECT, "http://a"), Some(HttpCallError::Method));
        assert_eq!(refused(Method::GET, "http://[::1]:8080/x"), None);
        let map = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert_eq!(call().json(&map).err(), Some(HttpCallError::Json));
    }

    /// K2: everything that a node sets tells two calls apart, and nothing else does.
    #[test]
    fn k2_a_call_is_its_method_url_headers_and_body() {
        let first = set(call(), "x-a", "1").body("b");
        let is_same = |other: &HttpCall| other.asked(&ID).is_same(first.asked(&ID).fingerprint());
        assert!(is_same(&first));
        let get = HttpCall::new(Method::GET, "https://api.example/v1/charges?q=1").unwrap();
        let elsewhere = HttpCall::new(Method::POST, "https://api.example/v1/charges?q=2").unwrap();
        for other in [
            set(get, "x-a", "1").body("b"),
            set(elsewhere, "x-a", "1").body("b"),
            set(call(), "x-a", "2").body("b"),
            set(first.clone(), "x-b", ""),
            set(first.clone(), "x-a", "1"),
            call().body("b"),
            first.clone().body("c"),
        ] {
            assert!(!is_same(&other), "{other:?}");
        }
        let token = HeaderValue::from_static("bearer of today");
        let renewed = first.clone().aside(header::AUTHORIZATION, token);
        let named = set(set(first.clone(), "idempotency-key", "mine"), "connection", "close");
        for same in [renewed, named, first.clone().timeout(Duration::from_secs(1))] {
            assert!(is_same(&same), "{same:?}");
        }
        let order = |call, one, other| set(set(call, one, "1"), other, "1");
        let (ab, ba) = (order(call(), "x-a", "x-b"), order(call(), "x-b", "x-a"));
        assert!(ba.asked(&ID).is_same(ab.asked(&ID).fingerprint()), "the order of names is none");
    }

    /// D5
    #[test]
    fn d5_json_is_compared_by_its_meaning_and_anything_else_by_its_bytes() {
        let json = |body: &'static str| set(call(), "content-type", "application/json").body(body);
        let first = json(r#"{"a":1,"b":2}"#);
        let again = json(r#"{ "b": 2, "a": 1.0 }"#);
        assert!(again.asked(&ID).is_same(first.asked(&ID).fingerprint()));
        let strange = json("{no json");
        assert!(strange.asked(&ID).is_same(json("{no json").asked(&ID).fingerprint()));
        let plain = call().body(r#"{"a":1,"b":2}"#);
        let other = call().body(r#"{"b":2,"a":1}"#);
        assert!(!other.asked(&ID).is_same(plain.asked(&ID).fingerprint()));
    }

    /// W16
    #[test]
    fn w16_a_request_carries_its_identity_and_nothing_of_another_connection() {
        let named = set(set(call(), "idempotency-key", "mine"), "idempotency-key", "too");
        let call = set(set(named, "connection", "x-hop"), "x-hop", "1")
            .header(header::HOST, HeaderValue::from_static("evil.example"))
            .header(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"))
            .aside(header::AUTHORIZATION, HeaderValue::from_static("token"))
            .aside(ID, HeaderValue::from_static("aside"))
            .body("body");
        let request = call.request(&ID, HeaderValue::from_static("id"));
        let mut sent: Vec<_> =
            request.headers().iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
        sent.sort();
        let wanted =
            [r#"authorization: "token""#, r#"content-length: "4""#, r#"idempotency-key: "id""#];
        assert_eq!(sent, wanted);
    }

    #[test]
    fn a_result_is_readable_json_and_comes_back_as_it_was() {
        let result = |body: &'static [u8]| HttpResult {
            status: 200,
            headers: vec![("content-type".into(), "text/plain".into())],
            body: Bytes::from_static(body),
        };
        let head = r#"{"status":200,"headers":[["content-type","text/plain"]],"body":"#;
        for (body, kept) in [
            (&b"caf\xc3\xa9\n"[..], "{\"text\":\"café\\n\"}}"),
            (b"", r#"{"text":""}}"#),
            (b"\xff\x00", r#"{"base64":"/wA="}}"#),
        ] {
            let json = serde_json::to_string(&result(body)).unwrap();
            assert_eq!(json, format!("{head}{kept}"));
            assert_eq!(serde_json::from_str::<HttpResult>(&json).unwrap(), result(body));
        }
        let damaged = format!(r#"{head}{{"base64":"secret!"}}}}"#);
        let error = serde_json::from_str::<HttpResult>(&damaged).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn cookies_and_headers_of_the_connection_are_not_kept() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-type", &b"text/plain"[..]),
            ("set-cookie", b"session=1"),
            ("connection", b"close, X-Hop"),
            ("x-hop", b"1"),
            ("transfer-encoding", b"chunked"),
            ("x-latin", b"caf\xe9"),
            ("x-utf", b"caf\xc3\xa9"),
        ] {
            headers.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        let mut kept = kept(&headers);
        kept.sort();
        let wanted = [("content-type", "text/plain"), ("x-latin", "café"), ("x-utf", "café")];
        assert_eq!(kept, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    /// X11
    #[test]
    fn x11_neither_a_call_nor_a_result_shows_its_content() {
        let call = HttpCall::new(Method::POST, "https://api.example/secret?secret=1").unwrap();
        let call = set(call, "authorization", "secret").body("secret");
        let body = Bytes::from_static(b"secret");
        let headers = vec![("x-a".into(), "secret".into())];
        let result = HttpResult { status: 200, headers, body };
        for shown in [format!("{call:?}"), format!("{result:?}")] {
            assert!(!shown.contains("secret") && shown.contains('6'), "{shown}");
        }
    }
}
