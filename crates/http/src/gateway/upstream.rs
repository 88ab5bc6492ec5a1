//! The connection to what is behind the gateway, and what is known when it fails.
//!
//! A request is sent at most once. When there is no answer, what matters is whether the upstream
//! may have begun: [`SendError::NotSent`] is said only when it is certain that no byte of the
//! request was written, and every doubt is [`SendError::Unknown`]. Nothing here repeats a request,
//! reads the body of an answer, or decides what becomes of a key.
//!
//! Why another connection may be tried: only when hyper gives the request back, and hyper does that
//! only while the request waits in front of a connection, before its first byte is written. Once a
//! connection has taken it, no error brings it back. Where nothing but HTTP/1.1 can be spoken the
//! connections are ours (`lines.rs`); where TLS may agree on HTTP/2 they are those of hyper's pool.

mod body;
mod dial;
mod lines;
mod options;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body::Body;
use http_body_util::Full;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use onetake_core::Tenant;
use tokio::time::timeout;

pub use self::body::UpstreamBody;
pub use self::dial::Roots;
use self::dial::{Dial, DialError, find};
use self::lines::Lines;
pub use self::options::UpstreamOptions;
use super::forward::HostSent;
use super::places::{Places, Taken};
use crate::carry::BoxError;
use crate::room::{Room, Share};

/// The most requests that one upstream may be given at once, and the most idle connections.
pub const IN_FLIGHT_MAX: usize = 65_536;
/// The longest limit of time.
pub const WITHIN_MAX: Duration = Duration::from_secs(60 * 60);
/// How often a silent HTTP/2 connection is asked whether it is alive, and how soon it must answer.
const PING_EVERY: Duration = Duration::from_secs(20);
const PONG_WITHIN: Duration = Duration::from_secs(10);
/// The largest head of an answer over HTTP/2. Over HTTP/1.1 hyper has a limit of the same order.
const HEAD_BYTES_MAX: u32 = 256 * 1024;

/// An upstream that cannot be used as it was described.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// The URL does not begin with `http` or `https`.
    #[error("an upstream is a URL with a scheme, such as `http://127.0.0.1:9000`")]
    Scheme,
    /// The port is none.
    #[error("the port of an upstream is a number from 1 to 65535")]
    Port,
    /// The URL has a name or a password in it.
    #[error("an upstream's URL has no name and no password; send them in a header")]
    Credentials,
    /// The URL has a query.
    #[error("an upstream's URL has no query; the caller's is passed on")]
    Query,
    /// A limit is out of bounds.
    #[error("{what} must be from {min} to {max}")]
    OutOfBounds {
        /// Which setting.
        what: &'static str,
        /// The least that is allowed.
        min: &'static str,
        /// The most that is allowed.
        max: &'static str,
    },
    /// This machine trusts no certificate authority.
    #[error("this machine has no trusted certificates; install them, or name those to trust")]
    NoRoots,
    /// A certificate to trust cannot be read.
    #[error("certificate {at} of those to trust cannot be read; it must be DER of X.509")]
    Certificate {
        /// Its place in the list.
        at: usize,
    },
}

/// Why a request did not even begin to reach the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NotSentCause {
    /// Nobody listens there.
    #[error("the upstream refused the connection")]
    Refused,
    /// Its name has no address.
    #[error("the name of the upstream was not found")]
    Name,
    /// There is no way to it.
    #[error("the upstream cannot be reached")]
    Unreachable,
    /// It does not speak TLS, or cannot be believed.
    #[error("the TLS handshake with the upstream failed")]
    Tls,
    /// No connection was made within its limit.
    #[error("the upstream did not take the connection in time")]
    ConnectTimeout,
    /// There was no connection before the whole limit had passed.
    #[error("there was no connection to the upstream in time")]
    NoConnection,
    /// The connection was closed while the request still waited in front of it.
    #[error("the upstream closed the connection before the request began")]
    Closed,
    /// The request is for another host, or for a tunnel.
    #[error("the request is not one for this upstream")]
    NotForHere,
}

/// Why there is no answer to a request that the upstream may have read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum SentCause {
    /// The connection ended before the answer did.
    #[error("the upstream closed the connection before it answered")]
    Closed,
    /// The connection was torn down.
    #[error("the connection to the upstream was reset")]
    Reset,
    /// The answer is not HTTP, or not HTTP that was asked for.
    #[error("the upstream's answer cannot be understood")]
    Malformed,
    /// There was no answer in time.
    #[error("the upstream did not answer in time")]
    Timeout,
    /// Anything else.
    #[error("the connection to the upstream failed")]
    Failed,
}

/// Why there is no answer, and above all what may be assumed about the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The upstream has as many requests as it may. Nothing was sent.
    #[error("the upstream has as many requests as it may")]
    Busy,
    /// It is certain that nothing was sent.
    #[error("{why}; nothing was sent")]
    NotSent {
        /// Why.
        why: NotSentCause,
    },
    /// The request may have been executed, or not.
    #[error("{why}; the request may have been executed")]
    Unknown {
        /// Why.
        why: SentCause,
    },
}

impl SendError {
    /// Whether it is certain that nothing was sent.
    #[must_use]
    pub const fn is_unsent(&self) -> bool {
        match self {
            Self::Busy | Self::NotSent { .. } => true,
            Self::Unknown { .. } => false,
        }
    }
}

/// A place among the requests that an upstream may be given at once.
///
/// It is free again once it is dropped. The body of the answer has it, until it is dropped or was
/// read to its end.
#[derive(Debug)]
pub struct Place {
    _taken: Taken,
    _share: Option<Share>,
}

/// A body that can be sent to an upstream.
pub trait SentBody: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static {}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static> SentBody for B {}

/// What is behind the gateway, for requests with bodies of one kind. Clones share connections and
/// places.
pub struct Upstream<B: SentBody = Full<Bytes>>(Arc<Inner<B>>);

impl<B: SentBody> Clone for Upstream<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Inner<B: SentBody> {
    base: Uri,
    /// What requests say that do not name their host.
    host: HeaderValue,
    ways: Ways<B>,
    places: Places,
    /// The same places, by tenant: no one of several may take more than half.
    shares: Room,
    answer_within: Duration,
}

/// How connections are used.
enum Ways<B: SentBody> {
    /// One request at a time on each, in plain sight.
    Lines(Lines<B>),
    /// Several at a time, where the upstream speaks HTTP/2.
    Pool(Client<Dial, B>),
}

impl<B: SentBody> fmt::Debug for Upstream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").field(&self.0.base).finish()
    }
}

impl<B: SentBody> Upstream<B> {
    /// An upstream at `base`, `http` or `https`, to whose path those of requests are added.
    ///
    /// Opens no connection. HTTP/1.1 is spoken, and HTTP/2 where TLS agrees on it.
    ///
    /// # Errors
    /// An [`UpstreamError`] that says what to change.
    pub fn new(base: Uri, options: UpstreamOptions) -> Result<Self, UpstreamError> {
        options.check()?;
        let is_known = base.scheme().is_some_and(|it| [Scheme::HTTP, Scheme::HTTPS].contains(it));
        let Some(authority) = base.authority().filter(|_| is_known) else {
            return Err(UpstreamError::Scheme);
        };
        if authority.as_str().contains('@') {
            return Err(UpstreamError::Credentials);
        }
        // A port that is none would silently become the usual one.
        let behind_host = authority.as_str().strip_prefix(authority.host());
        if behind_host.is_some_and(|port| !port.is_empty()) && authority.port_u16().is_none() {
            return Err(UpstreamError::Port);
        }
        if base.query().is_some() {
            return Err(UpstreamError::Query);
        }
        // The usual port goes without saying.
        let usual = if base.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 };
        let is_usual = authority.port_u16() == Some(usual);
        let host = if is_usual { authority.host() } else { authority.as_str() };
        let host = HeaderValue::from_str(host).map_err(|_| UpstreamError::Scheme)?;
        let is_plain = base.scheme() == Some(&Scheme::HTTP) || options.host == HostSent::Caller;
        let dial = Dial::new(&base, options.roots, options.host, options.connect_within)?;
        let ways = if is_plain {
            Ways::Lines(Lines::new(dial, base.clone(), options.idle_max, options.idle_for))
        } else {
            let client = Client::builder(TokioExecutor::new())
                .pool_idle_timeout(options.idle_for)
                .pool_max_idle_per_host(options.idle_max)
                .pool_timer(TokioTimer::new())
                .timer(TokioTimer::new())
                .http2_keep_alive_interval(PING_EVERY)
                .http2_keep_alive_timeout(PONG_WITHIN)
                .http2_max_header_list_size(HEAD_BYTES_MAX)
                // Safe, and needed: see the top of this file.
                .retry_canceled_requests(true)
                .build(dial);
            Ways::Pool(client)
        };
        let places = Places::new(options.in_flight_max);
        let answer_within = options.answer_within;
        let shares = Room::new(options.in_flight_max);
        Ok(Self(Arc::new(Inner { base, host, ways, places, shares, answer_within })))
    }

    /// The URL that requests are added to.
    #[must_use]
    pub fn base(&self) -> &Uri {
        &self.0.base
    }

    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        self.0.base.authority().expect("invariant: an upstream has a host")
    }

    /// Whether it has as many requests as it may, or as many of `tenant`.
    pub(crate) fn is_busy(&self, tenant: Option<&Tenant>) -> bool {
        self.0.places.are_taken() || tenant.is_some_and(|tenant| !self.0.shares.has_one_for(tenant))
    }

    /// A place for a request of `tenant`, who shares the upstream with others.
    pub(crate) fn try_place_of(&self, tenant: &Tenant) -> Option<Place> {
        let mut share = self.0.shares.share(tenant);
        let place = self.try_place().filter(|_| share.reach(1))?;
        Some(Place { _share: Some(share), ..place })
    }

    /// A place for one request, if there is one.
    #[must_use]
    pub fn try_place(&self) -> Option<Place> {
        Some(Place { _taken: self.0.places.take()?, _share: None })
    }

    /// Sends a request whose URI is of this upstream, and gives the answer once it begins.
    ///
    /// The body of the answer is the caller's to read, with limits of its own. As long as it is
    /// kept the request counts as in flight.
    ///
    /// # Errors
    /// A [`SendError`]; unless it [is unsent](SendError::is_unsent), the request may have been
    /// executed.
    ///
    /// # Cancel safety
    /// Dropped before it was ready, the request may have been sent, wholly or in part, or not. What
    /// was not written by then never will be, and the place is free again.
    pub async fn send(&self, request: Request<B>) -> Result<Response<UpstreamBody<B>>, SendError> {
        let place = self.try_place().ok_or(SendError::Busy)?;
        self.send_in(place, request, self.0.answer_within).await
    }

    /// Like [`send`](Self::send), in a place that the caller has, and with its own limit until the
    /// answer begins.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), except [`SendError::Busy`].
    ///
    /// # Cancel safety
    /// That of [`send`](Self::send).
    pub async fn send_in(
        &self,
        place: Place,
        request: Request<B>,
        within: Duration,
    ) -> Result<Response<UpstreamBody<B>>, SendError> {
        self.send_waiting(place, &mut Some(request), within).await
    }

    /// Like [`send_in`](Self::send_in), for a request that its caller holds.
    pub(crate) async fn send_waiting(
        &self,
        place: Place,
        waiting: &mut Option<Request<B>>,
        within: Duration,
    ) -> Result<Response<UpstreamBody<B>>, SendError> {
        let Some(request) = waiting.as_mut().filter(|request| self.is_for_here(request)) else {
            return Err(SendError::NotSent { why: NotSentCause::NotForHere });
        };
        frame(request);
        let response = match &self.0.ways {
            Ways::Lines(lines) => {
                self.originate(request);
                match timeout(within, lines.send(waiting, place)).await {
                    Ok(answered) => answered?.map(UpstreamBody::of_line),
                    Err(_) => return Err(too_late(waiting.is_none())),
                }
            }
            Ways::Pool(client) => {
                // Noted by the pool right before a connection is given the request, never before.
                let given = capture_connection(request);
                let request = waiting.take().expect("invariant: it was just looked at");
                let answered = Box::pin(timeout(within, client.request(request))).await;
                let was_given = given.connection_metadata().is_some();
                let answered = answered.map_err(|_| too_late(was_given))?;
                let response = answered.map_err(|error| judge(&error, was_given))?;
                response.map(|body| UpstreamBody::of_pool(body, place))
            }
        };
        // Nobody asked for another protocol, so this answers something else than the request.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(SendError::Unknown { why: SentCause::Malformed });
        }
        Ok(response)
    }

    /// Makes a request one that is written on a connection to its host: the path alone, and a host.
    fn originate(&self, request: &mut Request<B>) {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
        request.headers_mut().entry(header::HOST).or_insert_with(|| self.0.host.clone());
    }

    /// A tunnel is none of an upstream's paths, and a request for another host is a mistake that
    /// must not reach the network.
    fn is_for_here(&self, request: &Request<B>) -> bool {
        let (uri, base) = (request.uri(), &self.0.base);
        request.method() != Method::CONNECT
            && uri.scheme() == base.scheme()
            && uri.authority() == base.authority()
    }
}

/// Makes what is written say how long it is, in one way and by the body that is there.
fn frame<B: Body>(request: &mut Request<B>) {
    // What came with the caller's request is about the caller's connection.
    request.extensions_mut().clear();
    *request.version_mut() = Version::HTTP_11;
    let bytes = request.body().size_hint().exact();
    let has_body = [Method::POST, Method::PUT, Method::PATCH].contains(request.method());
    let headers = request.headers_mut();
    headers.remove(header::TRANSFER_ENCODING);
    match bytes {
        // A body that passes through without a known length goes in chunks.
        None => {
            headers.remove(header::CONTENT_LENGTH);
        }
        Some(0) if !has_body && !headers.contains_key(header::CONTENT_LENGTH) => {}
        Some(bytes) => {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
        }
    }
}

/// What is known about a request that has no answer in time.
const fn too_late(was_given: bool) -> SendError {
    if was_given {
        SendError::Unknown { why: SentCause::Timeout }
    } else {
        SendError::NotSent { why: NotSentCause::NoConnection }
    }
}

/// What is known about a request that the client below gave up.
fn judge(error: &ClientError, was_given: bool) -> SendError {
    let below = find::<hyper::Error>(error);
    // hyper says "canceled" of a request exactly when it gives it back unwritten.
    let was_given_back = below.is_some_and(hyper::Error::is_canceled);
    if was_given && !was_given_back && !error.is_connect() {
        return SendError::Unknown { why: below.map_or(SentCause::Failed, sent_cause) };
    }
    let dialled = find::<DialError>(error).map(|error| error.0);
    SendError::NotSent { why: dialled.unwrap_or(NotSentCause::Closed) }
}

fn sent_cause(error: &hyper::Error) -> SentCause {
    if error.is_parse() {
        return SentCause::Malformed;
    }
    if error.is_timeout() {
        return SentCause::Timeout;
    }
    if error.is_incomplete_message() {
        return SentCause::Closed;
    }
    let kind = find::<io::Error>(error).map(io::Error::kind);
    let closed = [io::ErrorKind::UnexpectedEof, io::ErrorKind::NotConnected];
    let reset = [
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::BrokenPipe,
    ];
    match kind {
        Some(kind) if closed.contains(&kind) => SentCause::Closed,
        Some(kind) if reset.contains(&kind) => SentCause::Reset,
        Some(_) | None => SentCause::Failed,
    }
}
