//! The least that could stand in front of an API: a reverse proxy of hyper's parts.
//!
//! Connections to the upstream are pooled and bodies stream. It adds no header, removes none,
//! limits nothing and remembers nothing.

use std::net::SocketAddr;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

/// What asks an upstream.
pub(crate) fn client() -> Client<HttpConnector, Incoming> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new()).build(connector)
}

/// Passes everything on to `upstream`.
pub(crate) async fn serve(listener: TcpListener, upstream: SocketAddr) {
    let client = client();
    listen(listener, move |request| client.request(sent_to(upstream, request))).await;
}

/// Answers whatever comes with `answer`.
pub(crate) async fn listen<F>(
    listener: TcpListener,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
) where
    F: Future<Output = Result<Response<Incoming>, Error>> + Send + 'static,
{
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let service = service_fn(answer.clone());
        // Ends with its connection, and with the process.
        drop(tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service)));
    }
}

/// The request as the upstream gets it.
pub(crate) fn sent_to(upstream: SocketAddr, mut request: Request<Incoming>) -> Request<Incoming> {
    *request.uri_mut() = there(upstream, request.uri());
    request
}

fn there(upstream: SocketAddr, asked: &Uri) -> Uri {
    let path = asked.path_and_query().map_or("/", |path| path.as_str());
    let built = Uri::builder().scheme("http").authority(upstream.to_string());
    built.path_and_query(path).build().expect("a path that was asked for")
}
