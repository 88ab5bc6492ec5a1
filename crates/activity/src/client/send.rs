//! One attempt at a call, and what is known when it fails.
//!
//! A request is sent at most once. When there is no answer, what matters is whether the provider
//! may have begun: [`Miss::NotSent`] is said only when it is certain that no byte of the request
//! was written, and every doubt is [`Miss::Lost`]. Nothing here repeats a request, follows a
//! redirect, or decides what becomes of a call.
//!
//! Why the pool below may try another connection: it does so only when hyper gives the request
//! back, and hyper does that only while the request waits in front of a connection, before its
//! first byte is written. Once a connection has taken it, no error brings it back.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::dial::{Dial, DialError, find};
use super::failure::{LostCause, NotSentCause};
use super::settings::{HttpSettings, HttpSettingsError};

/// How often a silent HTTP/2 connection is asked whether it is alive, and how soon it must answer.
const PING_EVERY: Duration = Duration::from_secs(20);
const PONG_WITHIN: Duration = Duration::from_secs(10);
/// The largest head of an answer, to within one read of the connection, and the most headers in it.
const HEAD_BYTES_MAX: u16 = u16::MAX;
const HEADERS_MAX: usize = 256;

/// Why there is no answer, and above all what may be assumed about the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Miss {
    /// It is certain that nothing was sent.
    NotSent(NotSentCause),
    /// The provider may have read it, or not.
    Lost(LostCause),
}

/// An answer that has begun. As long as it is kept, its call counts as in flight.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) response: Response<Incoming>,
    _place: OwnedSemaphorePermit,
}

/// The body of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    Whole(Bytes),
    TooLarge,
}

/// The connections of a client.
#[derive(Debug)]
pub(super) struct Wire {
    client: Client<Dial, Full<Bytes>>,
    places: Arc<Semaphore>,
}

impl Wire {
    pub(super) fn new(settings: &HttpSettings) -> Result<Self, HttpSettingsError> {
        let dial = Dial::new(settings.roots.clone(), settings.connect_within)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(settings.idle_for)
            .pool_max_idle_per_host(settings.idle_max)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .http1_max_buf_size(usize::from(HEAD_BYTES_MAX))
            .http1_max_headers(HEADERS_MAX)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PONG_WITHIN)
            .http2_max_header_list_size(u32::from(HEAD_BYTES_MAX))
            // Safe, and needed: see the top of this file.
            .retry_canceled_requests(true)
            .build(dial);
        Ok(Self { client, places: Arc::new(Semaphore::new(settings.in_flight_max)) })
    }

    /// Sends a request and gives the answer once it begins.
    pub(super) async fn open(
        &self,
        mut request: Request<Full<Bytes>>,
        until: Instant,
    ) -> Result<Opened, Miss> {
        let place = timeout_at(until, Arc::clone(&self.places).acquire_owned()).await;
        let place = place.map_err(|_| Miss::NotSent(NotSentCause::Busy))?;
        let place = place.expect("invariant: the places are never closed");
        // Noted by the pool right before a connection is given the request, and never before.
        let given = capture_connection(&mut request);
        let answered = timeout_at(until, self.client.request(request)).await;
        let was_given = given.connection_metadata().is_some();
        match answered {
            // Nobody asked for another protocol, so this answers something else than the request.
            Ok(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                Err(Miss::Lost(LostCause::Malformed))
            }
            Ok(Ok(response)) => Ok(Opened { response, _place: place }),
            Ok(Err(error)) => Err(judge(&error, was_given)),
            Err(_) if was_given => Err(Miss::Lost(LostCause::Timeout)),
            Err(_) => Err(Miss::NotSent(NotSentCause::NoConnection)),
        }
    }
}

/// What is known about a request that the client below gave up.
fn judge(error: &ClientError, was_given: bool) -> Miss {
    let below = find::<hyper::Error>(error);
    // hyper says "canceled" of a request exactly when it gives it back unwritten.
    let was_given_back = below.is_some_and(hyper::Error::is_canceled);
    if was_given && !was_given_back && !error.is_connect() {
        return Miss::Lost(below.map_or(LostCause::Failed, lost_cause));
    }
    let dialled = find::<DialError>(error).map(|error| error.0);
    Miss::NotSent(dialled.unwrap_or(NotSentCause::Closed))
}

fn lost_cause(error: &hyper::Error) -> LostCause {
    if error.is_parse() {
        return LostCause::Malformed;
    }
    if error.is_timeout() {
        return LostCause::Timeout;
    }
    if error.is_incomplete_message() {
        return LostCause::Closed;
    }
    let source: &(dyn Error + 'static) = error;
    match find::<io::Error>(source).map(io::Error::kind) {
        Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::NotConnected) => LostCause::Closed,
        Some(
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe,
        ) => LostCause::Reset,
        Some(_) | None => LostCause::Failed,
    }
}

/// Reads a body whole, or finds that it has more than `bytes_max`.
pub(super) async fn read(
    body: Incoming,
    bytes_max: usize,
    until: Instant,
) -> Result<Read, LostCause> {
    if body.size_hint().lower() > bytes_max as u64 {
        return Ok(Read::TooLarge);
    }
    let (read, ended) = take(body, bytes_max, until).await;
    match ended {
        Ended::Whole => Ok(Read::Whole(read)),
        Ended::Cut => Ok(Read::TooLarge),
        Ended::Lost(cause) => Err(cause),
    }
}

/// Reads what there is of a body, up to `bytes_max`, however it ends.
pub(super) async fn read_some(body: Incoming, bytes_max: usize, until: Instant) -> Bytes {
    take(body, bytes_max, until).await.0
}

enum Ended {
    Whole,
    /// There was more.
    Cut,
    Lost(LostCause),
}

async fn take(mut body: Incoming, bytes_max: usize, until: Instant) -> (Bytes, Ended) {
    let mut read = BytesMut::new();
    loop {
        let data = match timeout_at(until, body.frame()).await {
            Err(_) => return (read.freeze(), Ended::Lost(LostCause::Timeout)),
            Ok(None) => return (read.freeze(), Ended::Whole),
            Ok(Some(Err(error))) => return (read.freeze(), Ended::Lost(lost_cause(&error))),
            // Trailers are not kept.
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        };
        let room = bytes_max - read.len();
        read.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return (read.freeze(), Ended::Cut);
        }
    }
}
