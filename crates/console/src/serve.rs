//! Serves the admin surface on a listener: few connections, none that dawdles, an end on request.
//!
//! Speaks HTTP/1.1 only. Knows nothing of routes, and never keeps the process alive for a client
//! that does not go away.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections at once; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 128;
/// How long a client may take to send the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// The largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How long requests under way may take once the end was asked for.
const END_WITHIN: Duration = Duration::from_secs(5);
/// How long accepting pauses after it failed; most likely there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` on `listener` until `end`, then lets requests under way finish for a while.
///
/// # Cancel safety
/// Dropping the future closes the listener and every connection at once.
pub async fn serve(listener: TcpListener, router: Router, end: impl Future<Output = ()> + Send) {
    let (places, graceful) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), GracefulShutdown::new());
    let mut connections = JoinSet::new();
    let accept = async {
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            let place = place.expect("invariant: the semaphore is never closed");
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_WITHIN)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
            let connection = graceful.watch(connection);
            while connections.try_join_next().is_some() {}
            connections.spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection of the admin surface ended early");
                }
                drop(place);
            });
        }
    };
    tokio::select! {
        () = accept => {}
        () = end => {}
    }
    drop(listener);
    let _ = timeout(END_WITHIN, graceful.shutdown()).await;
}
