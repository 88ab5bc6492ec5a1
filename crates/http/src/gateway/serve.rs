//! Serves a gateway, or any doors, on a listener: bounded connections, none that dawdles, an end on
//! request.
//!
//! Speaks HTTP/1.1 without TLS: HTTP/2 in the clear is rare, and its connections have many more
//! ways to be held open by somebody who says nothing. A proxy in front speaks it for those who need
//! it. Knows nothing of routes, and never keeps the process alive for a client that does not go
//! away.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

use super::forward::Caller;
use super::{Gateway, GatewayBody, Lanes};
use crate::carry::BoxError;

/// How long accepting pauses after it failed; most likely there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a client may leave an answer unread before its connection is closed.
const UNREAD_MAX: Duration = Duration::from_secs(60);

/// Bytes of the head of a request, about as they were sent.
fn head_bytes(request: &Request<Incoming>) -> usize {
    /// What stands between and behind a name and a value.
    const MARKS: usize = 4;
    let line = request.method().as_str().len() + request.uri().path().len();
    let query = request.uri().query().map_or(0, str::len);
    let headers = request.headers().iter();
    headers.fold(line + query, |sum, (name, value)| sum + name.as_str().len() + value.len() + MARKS)
}

/// What answers the requests of a listener.
pub trait Answers: Send + Sync + 'static {
    /// The body of its responses.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;

    /// Answers one request.
    fn answer(
        &self,
        request: Request<Incoming>,
        caller: Caller,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// The response to a request whose head has more than `bytes_max` bytes.
    fn refuse_head(&self, bytes_max: usize) -> Response<Self::Body>;
}

impl Answers for Gateway {
    type Body = GatewayBody;

    fn answer(
        &self,
        request: Request<Incoming>,
        caller: Caller,
    ) -> impl Future<Output = Response<GatewayBody>> + Send {
        Self::answer(self, request, caller)
    }

    fn refuse_head(&self, bytes_max: usize) -> Response<GatewayBody> {
        Self::refuse_head(self, bytes_max)
    }
}

/// The bounds of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// Connections at once; further ones wait to be accepted.
    pub connections_max: usize,
    /// How long a client may take to send the head of a request.
    pub head_within: Duration,
    /// The largest head of a request, in bytes.
    pub head_bytes_max: usize,
    /// How long requests under way may take once the end was asked for.
    pub end_within: Duration,
}

impl Default for Listening {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            head_within: Duration::from_secs(10),
            head_bytes_max: 64 * 1024,
            end_within: Duration::from_secs(30),
        }
    }
}

/// A connection on the lane that it was given to; none when the system does not let it.
fn on_lane(stream: std::net::TcpStream) -> Option<TokioIo<Pin<Box<TimeoutStream<TcpStream>>>>> {
    let taken = TcpStream::from_std(stream);
    let taken = taken.inspect_err(|error| tracing::warn!(%error, "a lane could not take it"));
    let mut stream = TimeoutStream::new(taken.ok()?);
    stream.set_write_timeout(Some(UNREAD_MAX));
    Some(TokioIo::new(Box::pin(stream)))
}

/// Serves `door` on `listener` until `end`, then lets requests under way finish for a while.
///
/// Executions are on the lane of their connection: keep a handle to `lanes` until the engine has
/// stopped.
///
/// # Cancel safety
/// Dropping the future closes the listener and every connection at once; executions go on, as long
/// as there are lanes.
pub async fn serve<D: Answers>(
    listener: TcpListener,
    door: Arc<D>,
    bounds: Listening,
    lanes: &Lanes,
    end: impl Future<Output = ()> + Send,
) {
    let places = Arc::new(Semaphore::new(bounds.connections_max));
    let (graceful, mut connections) = (GracefulShutdown::new(), JoinSet::new());
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_within)
        .max_buf_size(bounds.head_bytes_max.max(8 * 1024));
    let accept = async {
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            let place = place.expect("invariant: the semaphore is never closed");
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Answers are small and wanted at once.
            drop(stream.set_nodelay(true));
            let door = Arc::clone(&door);
            let answer = service_fn(move |request: Request<Incoming>| {
                let door = Arc::clone(&door);
                let version = request.version();
                let caller = Caller { peer: peer.ip(), scheme: Scheme::HTTP, version };
                async move {
                    // The parser's own bound is about its buffer and only roughly about the head.
                    Ok::<_, Infallible>(if head_bytes(&request) > bounds.head_bytes_max {
                        door.refuse_head(bounds.head_bytes_max)
                    } else {
                        door.answer(request, caller).await
                    })
                }
            });
            while connections.try_join_next().is_some() {}
            let (builder, watcher) = (builder.clone(), graceful.watcher());
            let stream = match stream.into_std() {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be dealt out");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let serving = async move {
                let Some(stream) = on_lane(stream) else {
                    // Its place stays taken meanwhile, so they do not come too fast.
                    return sleep(ACCEPT_PAUSE).await;
                };
                let connection = watcher.watch(builder.serve_connection(stream, answer));
                if let Err(error) = connection.await {
                    tracing::debug!(error = %error, "a connection ended early");
                }
                drop(place);
            };
            connections.spawn_on(serving, lanes.next());
        }
    };
    tokio::select! {
        () = accept => {}
        () = end => {}
    }
    drop(listener);
    let _ = timeout(bounds.end_within, graceful.shutdown()).await;
}
