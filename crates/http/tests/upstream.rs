//! Requests to real servers on the loopback that misbehave in every way: what is known afterwards.
//!
//! The servers are plain sockets, so that each byte and each close is chosen by the test. No test
//! waits for time to pass, except for limits that it set itself.

#![cfg(feature = "gateway")]
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Uri, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use onetake_http::gateway::forward::upstream_uri;
use onetake_http::gateway::upstream::{
    NotSentCause, SendError, SentCause, Upstream, UpstreamBody, UpstreamError, UpstreamOptions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn at(address: SocketAddr, options: UpstreamOptions) -> Upstream {
    let base = format!("http://{address}").parse().unwrap();
    Upstream::new(base, options).unwrap()
}

async fn listen() -> (TcpListener, Upstream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = at(listener.local_addr().unwrap(), UpstreamOptions::new());
    (listener, upstream)
}

fn post(upstream: &Upstream, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let uri = upstream_uri(upstream.base(), &path.parse().unwrap()).unwrap();
    Request::builder().method(Method::POST).uri(uri).body(Full::new(body.into())).unwrap()
}

async fn body(response: Response<UpstreamBody>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn unknown(why: SentCause) -> Result<(), SendError> {
    Err(SendError::Unknown { why })
}

fn not_sent(why: NotSentCause) -> Result<(), SendError> {
    Err(SendError::NotSent { why })
}

/// Reads up to the blank line, and nothing of a body unless it came along.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut read = Vec::new();
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(read))
}

/// Reads one whole request, whose length is in its head, and gives it as text.
async fn read_request(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let Some(mut read) = read_head(stream).await? else { return Ok(None) };
    let text = String::from_utf8_lossy(&read).to_lowercase();
    let head = text.find("\r\n\r\n").unwrap() + 4;
    let length = text[..head].lines().find_map(|line| line.strip_prefix("content-length: "));
    let whole = head + length.map_or(0, |length| length.parse::<usize>().unwrap());
    while read.len() < whole {
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(String::from_utf8(read).unwrap()))
}

/// Sends one request to a server that reads it whole, answers with these bytes and hangs up.
async fn answered_with(bytes: &'static [u8]) -> Result<Response<UpstreamBody>, SendError> {
    let (listener, upstream) = listen().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await.unwrap().unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        // Held until the client has gone too, so that nothing turns into a reset.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    upstream.send(post(&upstream, "/", "hello")).await
}

#[tokio::test]
async fn a_refused_connection_is_not_sent() {
    // Bound but not listening: refused, and nobody else gets the port meanwhile.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let upstream = at(socket.local_addr().unwrap(), UpstreamOptions::new());
    let answer = upstream.send(post(&upstream, "/", "hello")).await.map(drop);
    assert_eq!(answer, not_sent(NotSentCause::Refused));
}

#[tokio::test]
async fn a_name_without_an_address_is_not_sent() {
    // No label is longer than 63, so that nobody has to be asked.
    let base: Uri = format!("http://{}.invalid:81", "a".repeat(64)).parse().unwrap();
    let upstream = Upstream::new(base, UpstreamOptions::new()).unwrap();
    let answer = upstream.send(post(&upstream, "/", "hello")).await.map(drop);
    assert_eq!(answer, not_sent(NotSentCause::Name));
}

#[tokio::test]
async fn a_request_for_another_host_never_reaches_the_network() {
    let (_listener, upstream) = listen().await;
    let elsewhere = at("127.0.0.1:9".parse().unwrap(), UpstreamOptions::new());
    let mut tunnel = post(&upstream, "/", "");
    *tunnel.method_mut() = Method::CONNECT;
    for request in [post(&elsewhere, "/", "hello"), tunnel] {
        let answer = upstream.send(request).await.map(drop);
        assert_eq!(answer, not_sent(NotSentCause::NotForHere));
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_unread_leaves_no_answer() {
    let (listener, upstream) = listen().await;
    let server = tokio::spawn(async move {
        loop {
            drop(listener.accept().await.unwrap());
        }
    });
    for _ in 0..50 {
        let error = upstream.send(post(&upstream, "/", "hello")).await.unwrap_err();
        // Which of them is a race of kernels; that it is one of them is not.
        assert!(matches!(error, SendError::NotSent { .. } | SendError::Unknown { .. }), "{error}");
    }
    server.abort();
}

#[tokio::test]
async fn a_server_that_reads_and_hangs_up_leaves_an_unknown() {
    let answer = answered_with(b"").await.map(drop);
    assert_eq!(answer, unknown(SentCause::Closed));
    let answer = answered_with(b"HTTP/1.1 200 OK\r\ncontent-le").await.map(drop);
    assert_eq!(answer, unknown(SentCause::Closed));
}

#[tokio::test]
async fn a_server_that_resets_in_the_middle_leaves_an_unknown() {
    let (listener, upstream) = listen().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut half = vec![0; 1024 * 1024];
        stream.read_exact(&mut half).await.unwrap();
        // Unread bytes make the kernel reset the connection.
        drop(stream);
    });
    let big = vec![b'x'; 16 * 1024 * 1024];
    let error = upstream.send(post(&upstream, "/", big)).await.unwrap_err();
    assert!(matches!(error, SendError::Unknown { .. }), "{error}");
    server.await.unwrap();
}

#[tokio::test]
async fn an_answer_that_is_not_http_leaves_an_unknown() {
    for garbage in [
        &b"\x16\x03\x01 garbage\r\n\r\n"[..],
        b"220 mail.example ESMTP\r\n",
        b"HTTP/1.1 twohundred OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ] {
        let answer = answered_with(garbage).await.map(drop);
        assert_eq!(answer, unknown(SentCause::Malformed), "{}", String::from_utf8_lossy(garbage));
    }
}

#[tokio::test]
async fn an_answer_after_the_limit_leaves_an_unknown() {
    let (listener, upstream) = listen().await;
    let (told, wait) = oneshot::channel::<()>();
    let (tells, arrived) = oneshot::channel();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tells.send(read_request(&mut stream).await.unwrap().unwrap()).unwrap();
        wait.await.unwrap();
        let _ = stream.write_all(OK).await;
    });
    let place = upstream.try_place().unwrap();
    let request = post(&upstream, "/", "hello");
    let limit = Duration::from_secs(600);
    let sending = tokio::spawn(async move { upstream.send_in(place, request, limit).await });
    assert!(arrived.await.unwrap().ends_with("hello"));
    // The limit passes once the request has arrived, and not before.
    tokio::time::pause();
    tokio::time::advance(limit).await;
    assert_eq!(sending.await.unwrap().map(drop), unknown(SentCause::Timeout));
    told.send(()).unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn a_request_that_gets_no_connection_within_its_limit_is_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // The kernel takes the connection and nobody reads, so TLS never begins.
    let base: Uri = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    let options = UpstreamOptions::new().roots(tls::nobody());
    let options = options.connect_within(Duration::from_secs(60));
    let patient = Upstream::new(base.clone(), options).unwrap();
    let place = patient.try_place().unwrap();
    let request = post(&patient, "/", "hello");
    let answer = patient.send_in(place, request, Duration::from_millis(100)).await.map(drop);
    assert_eq!(answer, not_sent(NotSentCause::NoConnection));
    let options = UpstreamOptions::new().roots(tls::nobody());
    let hasty = Upstream::new(base, options.connect_within(Duration::from_millis(100))).unwrap();
    let answer = hasty.send(post(&hasty, "/", "hello")).await.map(drop);
    assert_eq!(answer, not_sent(NotSentCause::ConnectTimeout));
}

/// How often each request arrived, by its path.
type Arrivals = Arc<Mutex<HashMap<String, usize>>>;

/// How a server ends a connection on which it has promised to answer more.
#[derive(Clone, Copy)]
enum End {
    AtOnce,
    /// After it has read one more request.
    AfterReading,
}

/// A server that answers `answers` requests on each connection and hangs up unannounced.
fn serve_few(listener: TcpListener, answers: usize, end: End) -> Arrivals {
    let arrivals = Arrivals::default();
    let seen = Arc::clone(&arrivals);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                for number in 0_usize.. {
                    if number == answers && matches!(end, End::AtOnce) {
                        return;
                    }
                    let Ok(Some(request)) = read_request(&mut stream).await else { return };
                    let path = request.split(' ').nth(1).unwrap().to_owned();
                    *seen.lock().unwrap().entry(path).or_default() += 1;
                    if number == answers || stream.write_all(OK).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    arrivals
}

/// Sends requests one after the other and notes what was said of each.
async fn ask_on(upstream: Upstream, asker: usize) -> Vec<(String, Result<(), SendError>)> {
    let mut said = Vec::new();
    for number in 0..150 {
        let path = format!("/{asker}-{number}");
        let answer = match upstream.send(post(&upstream, &path, "hello")).await {
            // Whether the body arrives whole is not what is asked here.
            Ok(response) => {
                let _ = response.into_body().collect().await;
                Ok(())
            }
            Err(error) => Err(error),
        };
        said.push((path, answer));
    }
    said
}

/// What was said about a request must be true of how often it arrived.
fn assert_true(answer: Result<(), SendError>, arrived: usize) {
    match answer {
        Ok(()) => assert_eq!(arrived, 1, "an answer to one request"),
        Err(SendError::NotSent { why }) => assert_eq!(arrived, 0, "{why}"),
        Err(SendError::Unknown { .. }) => assert!(arrived <= 1, "sent {arrived} times"),
        Err(error) => panic!("{error}"),
    }
}

/// The race that reverse proxies lose: the server hangs up just as the next request is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_that_closes_while_idle_never_carries_a_request_twice() {
    for (answers, end) in [(1, End::AtOnce), (2, End::AtOnce), (1, End::AfterReading)] {
        let (listener, upstream) = listen().await;
        let arrivals = serve_few(listener, answers, end);
        let askers: Vec<_> =
            (0..4).map(|asker| tokio::spawn(ask_on(upstream.clone(), asker))).collect();
        let mut answered = 0;
        for asker in askers {
            for (path, answer) in asker.await.unwrap() {
                answered += usize::from(answer.is_ok());
                let arrived = arrivals.lock().unwrap().get(&path).copied().unwrap_or(0);
                assert_true(answer, arrived);
            }
        }
        assert!(answered > 0, "a server that answers is heard");
    }
}

#[tokio::test]
async fn a_request_that_was_read_on_a_reused_connection_is_not_sent_again() {
    let (listener, upstream) = listen().await;
    let arrivals = serve_few(listener, 1, End::AfterReading);
    let said = ask_on(upstream, 0).await;
    let unknowns = said.iter().filter(|(_, answer)| *answer == unknown(SentCause::Closed)).count();
    // Every second one, or a few less where the connection was not back in the pool yet.
    assert!(unknowns > 0, "connections are reused");
    let arrivals = arrivals.lock().unwrap();
    assert!(said.iter().all(|(path, _)| arrivals[path] == 1), "each was read, and read once");
}

/// Once the close was seen, it costs nothing: the next request takes a new connection.
#[tokio::test]
async fn a_request_after_an_idle_close_arrives_exactly_once() {
    let (listener, upstream) = listen().await;
    let (told, closed) = oneshot::channel();
    let arrivals = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&arrivals);
    let server = tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        read_request(&mut first).await.unwrap().unwrap();
        first.write_all(OK).await.unwrap();
        first.shutdown().await.unwrap();
        // The client closes its side once it has seen ours.
        assert_eq!(first.read(&mut [0; 64]).await.unwrap(), 0, "nothing came after the close");
        told.send(()).unwrap();
        let (mut second, _) = listener.accept().await.unwrap();
        while read_request(&mut second).await.unwrap().is_some() {
            count.fetch_add(1, Ordering::SeqCst);
            second.write_all(OK).await.unwrap();
        }
    });
    assert_eq!(body(upstream.send(post(&upstream, "/1", "a")).await.unwrap()).await, "ok");
    closed.await.unwrap();
    assert_eq!(body(upstream.send(post(&upstream, "/2", "b")).await.unwrap()).await, "ok");
    drop(upstream);
    server.await.unwrap();
    assert_eq!(arrivals.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_thousand_requests_need_few_connections() {
    let (listener, upstream) = listen().await;
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                while let Ok(Some(_)) = read_request(&mut stream).await {
                    stream.write_all(OK).await.unwrap();
                }
            });
        }
    });
    for _ in 0..1_000 {
        assert_eq!(body(upstream.send(post(&upstream, "/", "hello")).await.unwrap()).await, "ok");
    }
    let connections = connections.load(Ordering::SeqCst);
    assert!(connections <= 20, "{connections} connections");
}

#[tokio::test]
async fn an_answer_in_http_1_0_is_read_to_its_end() {
    let answer = answered_with(b"HTTP/1.0 201 Created\r\netag: \"1\"\r\n\r\nall of it").await;
    let response = answer.unwrap();
    assert_eq!((response.version(), response.status().as_u16()), (Version::HTTP_10, 201));
    assert_eq!(body(response).await, "all of it");
}

#[tokio::test]
async fn an_interim_answer_is_not_the_answer() {
    let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n\
        HTTP/1.1 202 Accepted\r\ncontent-length: 4\r\n\r\ndone";
    let response = answered_with(bytes).await.unwrap();
    assert_eq!(response.status(), 202);
    assert_eq!(body(response).await, "done");
}

#[tokio::test]
async fn an_answer_before_the_body_was_read_is_an_answer() {
    let (listener, upstream) = listen().await;
    let (told, wait) = oneshot::channel::<()>();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await.unwrap().unwrap();
        let early = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\
            connection: close\r\n\r\nbig";
        stream.write_all(early).await.unwrap();
        wait.await.unwrap();
    });
    let response = upstream.send(post(&upstream, "/", vec![b'x'; 16 * 1024 * 1024])).await.unwrap();
    assert_eq!(response.status(), 413);
    assert_eq!(body(response).await, "big");
    told.send(()).unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn requests_beyond_the_limit_are_refused_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = UpstreamOptions::new().in_flight_max(2);
    let upstream = at(listener.local_addr().unwrap(), options);
    serve_few(listener, usize::MAX, End::AtOnce);
    let first = upstream.send(post(&upstream, "/", "a")).await.unwrap();
    let place = upstream.try_place().unwrap();
    let busy = upstream.send(post(&upstream, "/", "b")).await.map(drop);
    assert_eq!(busy, Err(SendError::Busy));
    assert!(busy.unwrap_err().is_unsent() && upstream.try_place().is_none());
    let (_head, rest) = first.into_parts();
    assert!(upstream.try_place().is_none(), "as long as its body is kept, so is its place");
    rest.collect().await.unwrap();
    assert!(upstream.try_place().is_some(), "what was read to its end is no longer in flight");
    let request = post(&upstream, "/", "c");
    let answer = upstream.send_in(place, request, Duration::from_secs(30)).await.unwrap();
    assert!(upstream.try_place().is_some());
    drop(answer);
}

#[tokio::test]
async fn a_caller_that_goes_gives_its_place_back_and_ends_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = UpstreamOptions::new().in_flight_max(1);
    let upstream = at(listener.local_addr().unwrap(), options);
    let (told, arrived) = oneshot::channel();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await.unwrap().unwrap();
        told.send(()).unwrap();
        stream.read(&mut [0; 64]).await.unwrap()
    });
    let sender = upstream.clone();
    let sending =
        tokio::spawn(async move { sender.send(post(&sender, "/", "hello")).await.map(drop) });
    arrived.await.unwrap();
    assert!(upstream.try_place().is_none());
    sending.abort();
    assert!(sending.await.unwrap_err().is_cancelled());
    assert!(upstream.try_place().is_some());
    assert_eq!(server.await.unwrap(), 0, "neither a second copy nor anything else");
}

#[tokio::test]
async fn the_length_that_is_sent_is_that_of_the_body() {
    let (listener, upstream) = listen().await;
    let (tells, mut seen) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let tells = tells.clone();
            tokio::spawn(async move {
                while let Ok(Some(request)) = read_request(&mut stream).await {
                    tells.send(request.to_lowercase()).unwrap();
                    stream.write_all(OK).await.unwrap();
                }
            });
        }
    });
    let mut lying = post(&upstream, "/", "hello");
    lying.headers_mut().insert("content-length", "99".parse().unwrap());
    lying.headers_mut().insert("transfer-encoding", "chunked".parse().unwrap());
    *lying.version_mut() = Version::HTTP_2;
    body(upstream.send(lying).await.unwrap()).await;
    let lying = seen.recv().await.unwrap();
    assert!(lying.contains("content-length: 5\r\n") && !lying.contains("transfer-encoding"));
    assert!(lying.starts_with("post / http/1.1\r\n") && lying.ends_with("\r\n\r\nhello"));
    body(upstream.send(post(&upstream, "/", "")).await.unwrap()).await;
    let empty = seen.recv().await.unwrap();
    assert!(empty.contains("content-length: 0\r\n"), "{empty}");
    let mut bare = post(&upstream, "/a%2Fb?c=%41", "");
    *bare.method_mut() = Method::GET;
    body(upstream.send(bare).await.unwrap()).await;
    let bare = seen.recv().await.unwrap();
    assert!(bare.starts_with("get /a%2fb?c=%41 http/1.1\r\n"), "{bare}");
    assert!(!bare.contains("content-length"), "{bare}");
}

#[test]
fn an_upstream_that_cannot_be_used_says_why() {
    let new = |base: &str, options| {
        Upstream::<Full<Bytes>>::new(base.parse().unwrap(), options)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let scheme = "an upstream is a URL with a scheme, such as `http://127.0.0.1:9000`";
    let credentials = "an upstream's URL has no name and no password; send them in a header";
    let query = "an upstream's URL has no query; the caller's is passed on";
    let plain = UpstreamOptions::new;
    let (none, much) = (Duration::ZERO, Duration::from_secs(3_601));
    let table = [
        ("ftp://h/", plain(), scheme),
        ("/orders", plain(), scheme),
        ("h:9000", plain(), scheme),
        ("http://user:pw@h", plain(), credentials),
        ("http://h/a?b", plain(), query),
        ("http://h:99999", plain(), "the port of an upstream is a number from 1 to 65535"),
        ("http://h", plain().in_flight_max(0), "the requests at once must be from 1 to 65,536"),
        ("http://h", plain().idle_max(65_537), "the idle connections must be from 0 to 65,536"),
        (
            "http://h",
            plain().answer_within(none),
            "the limit to answer must be from 1 millisecond to 1 hour",
        ),
        (
            "http://h",
            plain().connect_within(much),
            "the limit to connect must be from 1 millisecond to 1 hour",
        ),
        (
            "http://h",
            plain().idle_for(none),
            "the time of an idle connection must be from 1 millisecond to 1 hour",
        ),
    ];
    for (base, options, expected) in table {
        assert_eq!(new(base, options), Err(expected.to_owned()), "{base}");
    }
    let broken = UpstreamOptions::new().roots(tls::only(vec![7]));
    let error = Upstream::<Full<Bytes>>::new(Uri::from_static("https://h"), broken).unwrap_err();
    assert_eq!(error, UpstreamError::Certificate { at: 0 });
}

/// Upstreams behind TLS.
mod tls {
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use onetake_http::gateway::forward::HostSent;
    use onetake_http::gateway::upstream::Roots;
    use rcgen::CertifiedKey;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_rustls::rustls::{ServerConfig, crypto::ring};

    use super::*;

    /// Nobody is believed.
    pub(super) fn nobody() -> Roots {
        Roots::Only(Vec::new())
    }

    /// Whoever has this certificate is believed.
    pub(super) fn only(certificate: Vec<u8>) -> Roots {
        Roots::Only(vec![CertificateDer::from(certificate)])
    }

    /// A certificate of `localhost`, and a server's side of TLS with it.
    fn server(protocols: &[&[u8]]) -> (Roots, TlsAcceptor) {
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        (only(cert.der().to_vec()), TlsAcceptor::from(Arc::new(config)))
    }

    async fn listen(options: UpstreamOptions) -> (TcpListener, Upstream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let base = format!("https://localhost:{port}").parse().unwrap();
        (listener, Upstream::new(base, options).unwrap())
    }

    #[tokio::test]
    async fn a_server_that_does_not_speak_tls_is_not_sent_anything() {
        let (listener, upstream) = listen(UpstreamOptions::new().roots(nobody())).await;
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = Vec::new();
            stream.read_buf(&mut read).await.unwrap();
            stream.write_all(OK).await.unwrap();
            let _ = stream.read_to_end(&mut read).await;
            read
        });
        let answer = upstream.send(post(&upstream, "/secret-path", "hello")).await.map(drop);
        assert_eq!(answer, not_sent(NotSentCause::Tls));
        assert!(!server.await.unwrap().windows(6).any(|part| part == b"secret"));
    }

    #[tokio::test]
    async fn a_certificate_that_is_not_believed_is_not_sent_anything() {
        let (listener, upstream) = listen(UpstreamOptions::new().roots(nobody())).await;
        let (_, acceptor) = server(&[b"http/1.1"]);
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { return Vec::new() };
            let mut read = Vec::new();
            let _ = stream.read_to_end(&mut read).await;
            read
        });
        let answer = upstream.send(post(&upstream, "/", "hello")).await.map(drop);
        assert_eq!(answer, not_sent(NotSentCause::Tls));
        assert!(server.await.unwrap().is_empty());
    }

    /// Serves HTTP/2 and answers every request with its body; counts connections and requests.
    async fn serve_http2(
        listener: TcpListener,
        acceptor: TlsAcceptor,
        counts: Arc<[AtomicUsize; 2]>,
    ) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counts[0].fetch_add(1, Ordering::SeqCst);
            let (acceptor, counts) = (acceptor.clone(), Arc::clone(&counts));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let echo = service_fn(|request: Request<Incoming>| {
                    counts[1].fetch_add(1, Ordering::SeqCst);
                    async {
                        let body = request.into_body().collect().await?.to_bytes();
                        Ok::<_, hyper::Error>(Response::new(Full::new(body)))
                    }
                });
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = http.serve_connection(TokioIo::new(stream), echo).await;
            });
        }
    }

    #[tokio::test]
    async fn http2_is_spoken_where_tls_agrees_on_it() {
        let (roots, acceptor) = server(&[b"h2", b"http/1.1"]);
        let (listener, upstream) = listen(UpstreamOptions::new().roots(roots)).await;
        let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let serving = tokio::spawn(serve_http2(listener, acceptor, Arc::clone(&counts)));
        for number in 0..20 {
            let text = format!("hello {number}");
            let response = upstream.send(post(&upstream, "/", text.clone())).await.unwrap();
            assert_eq!(response.version(), Version::HTTP_2);
            assert_eq!(body(response).await, text);
        }
        let counts = counts.each_ref().map(|count| count.load(Ordering::SeqCst));
        assert_eq!(counts, [1, 20]);
        serving.abort();
    }

    #[tokio::test]
    async fn http2_that_breaks_after_the_request_leaves_an_unknown() {
        let (roots, acceptor) = server(&[b"h2"]);
        let (listener, upstream) = listen(UpstreamOptions::new().roots(roots)).await;
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let stream = acceptor.accept(stream).await.unwrap();
            let (told, arrived) = oneshot::channel();
            let told = Mutex::new(Some(told));
            let silent = service_fn(|_: Request<Incoming>| {
                told.lock().unwrap().take().expect("one request").send(()).unwrap();
                std::future::pending::<Result<Response<Full<Bytes>>, io::Error>>()
            });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let serving = http.serve_connection(TokioIo::new(stream), silent);
            tokio::select! {
                _ = serving => unreachable!("the client waits for an answer"),
                arrived = arrived => arrived.unwrap(),
            }
        });
        let error = upstream.send(post(&upstream, "/", "hello")).await.unwrap_err();
        assert!(matches!(error, SendError::Unknown { .. }), "{error}");
        server.await.unwrap();
    }

    #[tokio::test]
    async fn http2_is_not_offered_where_the_callers_host_is_sent() {
        let (roots, acceptor) = server(&[b"h2", b"http/1.1"]);
        let options = UpstreamOptions::new().roots(roots).host(HostSent::Caller);
        let (listener, upstream) = listen(options).await;
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut read = Vec::new();
            while !read.ends_with(b"hello") {
                assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
            }
            stream.write_all(OK).await.unwrap();
            stream.flush().await.unwrap();
            String::from_utf8(read).unwrap()
        });
        let mut request = post(&upstream, "/", "hello");
        request.headers_mut().insert("host", "shop.example".parse().unwrap());
        let response = upstream.send(request).await.unwrap();
        assert_eq!((response.version(), body(response).await.as_str()), (Version::HTTP_11, "ok"));
        assert!(server.await.unwrap().contains("host: shop.example\r\n"));
    }
}
