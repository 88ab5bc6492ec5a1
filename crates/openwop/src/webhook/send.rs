//! One attempt to deliver a webhook, and what came of it.
//!
//! Posts the signed body once, over a connection of its own, within one limit of time for
//! everything. Never follows a redirect, never tries again, and forgets what the receiver says
//! besides its status: when the next attempt is due is decided in `schedule.rs`.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, UNIX_EPOCH};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::dial::{Resolve, Stream, SystemNames, Trust, Unchecked, look_up, open, tls};
use super::guard::{Guard, Rejected, Target};
use super::sign::{Delivery, Secret};

/// How long one attempt takes at most, unless the settings say otherwise.
pub(crate) const WITHIN: Duration = Duration::from_secs(5);
/// The longest limit of time.
pub(crate) const WITHIN_MAX: Duration = Duration::from_secs(60);
/// The longest time that a receiver may ask for.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);
/// What is read of an answer's body, so that a receiver can finish a short one.
const BODY_BYTES_MAX: usize = 4 * 1_024;
/// The largest head of an answer, and the most that is read at once.
const HEAD_BYTES_MAX: usize = 16 * 1_024;

/// Who sends.
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("openwop-webhook-dispatcher/", env!("CARGO_PKG_VERSION")));
/// What every body is.
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A sender that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SenderError {
    /// This machine trusts no certificate authority.
    #[error("this machine has no trusted certificates; install them, or name those to trust")]
    NoRoots,
    /// A certificate to trust cannot be read.
    #[error("certificate {at} of those to trust cannot be read; it must be DER of X.509")]
    Certificate {
        /// Its place in the list.
        at: usize,
    },
    /// No time, or too much.
    #[error("the limit of a delivery must be from 1 ms to {} s", WITHIN_MAX.as_secs())]
    Within,
}

/// Why a receiver gave no answer. It may have read the delivery all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Unreached {
    /// Its name has no address.
    #[error("the name of the receiver was not found")]
    Name,
    /// Nobody listens there.
    #[error("the receiver refused the connection")]
    Refused,
    /// There is no way to it.
    #[error("the receiver cannot be reached")]
    NoRoute,
    /// It does not speak TLS, or cannot be believed.
    #[error("the TLS handshake with the receiver failed")]
    Tls,
    /// The connection ended too early, or the answer is not HTTP.
    #[error("the receiver gave no answer that can be understood")]
    NoAnswer,
    /// It took too long.
    #[error("the receiver did not answer in time")]
    Timeout,
}

/// What came of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The receiver has it: 2xx.
    Acknowledged,
    /// The receiver wants nothing more, ever: 410.
    Gone,
    /// Any other status, a redirect among them.
    Refused {
        /// The status.
        status: u16,
        /// How long the receiver wants to be left alone, an hour at most; of 429 and 503 only.
        retry_after: Option<Duration>,
    },
    /// There was no answer.
    Unreachable(Unreached),
    /// The guard let nothing be sent.
    Forbidden(Rejected),
}

/// Delivers webhooks, one attempt at a time. Has no connection open in between.
pub(crate) struct Sender<R = SystemNames> {
    guard: Guard,
    names: R,
    tls: TlsConnector,
    within: Duration,
}

impl Sender {
    /// A sender that calls what `guard` permits and takes no longer than `within` for an attempt.
    ///
    /// Reads the certificates of the machine, and opens no connection.
    ///
    /// # Errors
    /// A [`SenderError`] that says what to change.
    pub(crate) fn new(guard: Guard, within: Duration, trust: Trust) -> Result<Self, SenderError> {
        if within < Duration::from_millis(1) || within > WITHIN_MAX {
            return Err(SenderError::Within);
        }
        let tls = tls(trust, &guard)?;
        Ok(Self { guard, names: SystemNames, tls, within })
    }
}

impl<R: Resolve> Sender<R> {
    /// The same, with another source of addresses. They are checked like those of any other.
    #[cfg(test)]
    pub(crate) fn with_names<N: Resolve>(self, names: N) -> Sender<N> {
        let Self { guard, tls, within, .. } = self;
        Sender { guard, names, tls, within }
    }

    /// Sends `delivery` to `target` once, signed with `secret` at `unix_s`: the wall time in
    /// seconds, which the receiver compares with its own.
    ///
    /// # Cancel safety
    /// Dropped before it was ready, the delivery may have been sent, wholly or in part, or not.
    /// Nothing goes on behind it: connection and answer are dropped with it.
    pub(crate) async fn send(
        &self,
        target: &Target,
        delivery: &Delivery,
        secret: &Secret,
        unix_s: u64,
    ) -> Attempt {
        let deadline = Instant::now() + self.within;
        let late = Attempt::Unreachable(Unreached::Timeout);
        let looked_up = timeout_at(deadline, look_up(&self.guard, &self.names, target)).await;
        let addresses = match looked_up {
            Err(_) => return late,
            Ok(Err(Unchecked::Forbidden(why))) => return Attempt::Forbidden(why),
            Ok(Err(Unchecked::Unknown)) => return Attempt::Unreachable(Unreached::Name),
            Ok(Ok(addresses)) => addresses,
        };
        let opening = open(&addresses, target, &self.tls, deadline);
        let stream = match timeout_at(deadline, opening).await {
            Err(_) => return late,
            Ok(Err(why)) => return Attempt::Unreachable(why),
            Ok(Ok(stream)) => stream,
        };
        let request = request(target, delivery, secret, unix_s);
        match exchange(stream, request, deadline).await {
            Ok((status, headers)) => judge(status, &headers, unix_s),
            Err(why) => Attempt::Unreachable(why),
        }
    }
}

/// The delivery as it is sent: signed, and for this target.
fn request(
    target: &Target,
    delivery: &Delivery,
    secret: &Secret,
    unix_s: u64,
) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(delivery.body().clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from(target.path().clone());
    let headers = request.headers_mut();
    headers.insert(HOST, target.authority().clone());
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(USER_AGENT, AGENT);
    headers.extend(delivery.headers(secret, unix_s));
    request
}

/// Sends the request and gives the head of the answer.
async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
    deadline: Instant,
) -> Result<(StatusCode, HeaderMap), Unreached> {
    let handshake =
        http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(|_| Unreached::NoAnswer)?;
    alongside(connection, async {
        let answered = timeout_at(deadline, sender.send_request(request)).await;
        let answered = answered.map_err(|_| Unreached::Timeout)?;
        let (head, body) =
            answered.map(Response::<Incoming>::into_parts).map_err(|_| Unreached::NoAnswer)?;
        // The receiver has spoken: whatever becomes of the rest, the status counts.
        let _ = timeout_at(deadline, drain(body)).await;
        Ok((head.status, head.headers))
    })
    .await
}

/// Runs `work`, and the connection that it needs as long as there is one.
async fn alongside<W: Future>(connection: impl Future, work: W) -> W::Output {
    let (mut connection, mut work) = (pin!(connection), pin!(work));
    tokio::select! {
        done = &mut work => return done,
        _ = &mut connection => {}
    }
    // What the connection has received before it ended is still there.
    work.await
}

/// Reads the beginning of a body and drops it.
async fn drain<B: Body + Unpin>(mut body: B) {
    let mut bytes = 0;
    while bytes < BODY_BYTES_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        bytes += frame.data_ref().map_or(0, Buf::remaining);
    }
}

/// What a status means.
fn judge(status: StatusCode, headers: &HeaderMap, unix_s: u64) -> Attempt {
    if status.is_success() {
        return Attempt::Acknowledged;
    }
    if status == StatusCode::GONE {
        return Attempt::Gone;
    }
    let may_ask = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
    let asked = headers.get(RETRY_AFTER).filter(|_| may_ask.contains(&status));
    let retry_after = asked.and_then(|value| retry_after(value, unix_s));
    Attempt::Refused { status: status.as_u16(), retry_after }
}

/// Seconds, or a date; `None` for anything else.
fn retry_after(value: &HeaderValue, unix_s: u64) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // So many digits that it is no number any more: as long as can be.
        let asked = text.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs);
        return Some(asked.min(RETRY_AFTER_MAX));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let now = UNIX_EPOCH.checked_add(Duration::from_secs(unix_s))?;
    // A date that has passed asks for nothing.
    Some(date.duration_since(now).unwrap_or_default().min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests;
