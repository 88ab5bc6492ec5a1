//! Deliveries to receivers on this machine, over real connections.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use hmac::{Hmac, KeyInit, Mac};
use hyper::body::Frame;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::*;

const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const BODY: &str = r#"{"runId":"run-1","workspaceId":"w","event":{"type":"run.completed"}}"#;
/// 2023-11-14T22:13:20Z.
const NOW_S: u64 = 1_700_000_000;
/// So long that a test which meets it is a test that fails.
const LONG: Duration = Duration::from_secs(60);

fn relaxed() -> Guard {
    Guard { allow_private: true, ..Guard::default() }
}

/// A sender that may call this machine.
fn sender() -> Sender {
    Sender::new(relaxed(), LONG, Trust::Only(Vec::new())).unwrap()
}

fn delivery() -> Delivery {
    Delivery::new("wh-1", "run.completed", Bytes::from_static(BODY.as_bytes())).unwrap()
}

async fn post<R: Resolve>(sender: &Sender<R>, url: &str) -> Attempt {
    let target = relaxed().registrable(url).unwrap();
    let secret = Secret::new(SECRET.to_owned()).unwrap();
    spawnable(sender.send(&target, &delivery(), &secret, NOW_S)).await
}

/// A dispatcher sends from tasks that move between threads.
fn spawnable<F: Future + Send>(sending: F) -> F {
    sending
}

/// A request as it came over the wire.
struct Received {
    head: String,
    body: Vec<u8>,
}

impl Received {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Reads one request to its end.
async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> Received {
    let mut bytes = Vec::new();
    let head_end = loop {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "the request was cut off");
        if let Some(at) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let mut body = bytes.split_off(head_end);
    let head = String::from_utf8(bytes).unwrap();
    let mut received = Received { head, body: Vec::new() };
    let length: usize = received.header("content-length").unwrap().parse().unwrap();
    while body.len() < length {
        assert_ne!(stream.read_buf(&mut body).await.unwrap(), 0, "the body was cut off");
    }
    received.body = body;
    received
}

/// Answers one request, and gives it.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) -> Received {
    let received = receive(&mut stream).await;
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    received
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A receiver of one delivery.
async fn receiver(answer: &'static str) -> (SocketAddr, JoinHandle<Received>) {
    let (listener, address) = listen().await;
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        serve(stream, answer).await
    });
    (address, serving)
}

const OK: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// A resolver with an answer for each look-up; the last one again for those after it.
struct Says {
    answers: Vec<Vec<SocketAddr>>,
    asked: Arc<AtomicUsize>,
}

impl Says {
    fn new(answers: &[&[SocketAddr]]) -> (Self, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let answers = answers.iter().map(|addresses| addresses.to_vec()).collect();
        (Self { answers, asked: Arc::clone(&asked) }, asked)
    }
}

impl Resolve for Says {
    async fn resolve(&self, _name: &str, _port: u16) -> io::Result<Vec<SocketAddr>> {
        let at = self.asked.fetch_add(1, Ordering::Relaxed).min(self.answers.len() - 1);
        Ok(self.answers[at].clone())
    }
}

#[tokio::test]
async fn a_receiver_can_verify_what_it_is_sent() {
    let (address, serving) = receiver(OK).await;
    let attempt = post(&sender(), &format!("http://{address}/hooks/a?b=c")).await;
    assert_eq!(attempt, Attempt::Acknowledged);
    let received = serving.await.unwrap();
    assert!(received.head.starts_with("POST /hooks/a?b=c HTTP/1.1\r\n"), "{}", received.head);
    assert_eq!(received.body, BODY.as_bytes());
    let agent = concat!("openwop-webhook-dispatcher/", env!("CARGO_PKG_VERSION"));
    for (name, value) in [
        ("Host", address.to_string().as_str()),
        ("Content-Type", "application/json"),
        ("User-Agent", agent),
        ("X-openwop-Webhook-Id", "wh-1"),
        ("X-openwop-Event-Type", "run.completed"),
        ("X-openwop-Signature-Algorithm", "v1"),
    ] {
        assert_eq!(received.header(name), Some(value), "{name}");
    }
    for family in ["X-openwop", "OpenWOP"] {
        let timestamp = received.header(&format!("{family}-Timestamp")).unwrap();
        let signature = received.header(&format!("{family}-Signature")).unwrap();
        let digits = signature.strip_prefix("sha256=").unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
        mac.update(format!("{timestamp}.").as_bytes());
        mac.update(&received.body);
        mac.verify_slice(&base16ct::lower::decode_vec(digits).unwrap()).unwrap();
        assert_eq!(timestamp, NOW_S.to_string());
    }
}

#[tokio::test]
async fn the_status_says_what_came_of_a_delivery() {
    let refused = |status, retry_after: Option<u64>| Attempt::Refused {
        status,
        retry_after: retry_after.map(Duration::from_secs),
    };
    let cases = [
        ("200 OK\r\nContent-Length: 2\r\n\r\nok", Attempt::Acknowledged),
        ("202 Accepted\r\n\r\n", Attempt::Acknowledged),
        // The body is cut off, but the receiver has spoken.
        ("200 OK\r\nContent-Length: 99\r\n\r\nok", Attempt::Acknowledged),
        ("410 Gone\r\n\r\n", Attempt::Gone),
        ("400 Bad Request\r\nRetry-After: 7\r\n\r\n", refused(400, None)),
        ("500 Oops\r\n\r\n", refused(500, None)),
        ("429 Slow Down\r\nRetry-After: 7\r\n\r\n", refused(429, Some(7))),
        ("503 Later\r\nRetry-After: 86400\r\n\r\n", refused(503, Some(3_600))),
        ("503 Later\r\n\r\n", refused(503, None)),
    ];
    for (answer, expected) in cases {
        let answer = &*Box::leak(format!("HTTP/1.1 {answer}").into_boxed_str());
        let (address, serving) = receiver(answer).await;
        assert_eq!(post(&sender(), &format!("http://{address}/")).await, expected, "{answer}");
        serving.await.unwrap();
    }
}

#[test]
fn a_receiver_asks_for_seconds_or_until_a_date_and_for_an_hour_at_most() {
    let cases = [
        ("0", Some(0)),
        ("120", Some(120)),
        (" 120 ", Some(120)),
        ("3600", Some(3_600)),
        ("3601", Some(3_600)),
        ("99999999999999999999999999", Some(3_600)),
        ("Tue, 14 Nov 2023 22:14:20 GMT", Some(60)),
        ("Tue, 14 Nov 2023 22:13:20 GMT", Some(0)),
        ("Mon, 13 Nov 2023 22:13:20 GMT", Some(0)),
        ("Wed, 14 Nov 2029 22:13:20 GMT", Some(3_600)),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1.5", None),
        ("soon", None),
    ];
    for (text, expected) in cases {
        let value = HeaderValue::from_str(text).unwrap();
        assert_eq!(retry_after(&value, NOW_S), expected.map(Duration::from_secs), "{text:?}");
    }
    let date = HeaderValue::from_static("Tue, 14 Nov 2023 22:14:20 GMT");
    assert_eq!(retry_after(&date, u64::MAX), None);
}

#[tokio::test]
async fn a_redirect_is_a_refusal_and_is_not_followed() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let answer = format!(
        "HTTP/1.1 307 Elsewhere\r\nLocation: http://{}/\r\nContent-Length: 0\r\n\r\n",
        other.local_addr().unwrap(),
    );
    let (address, serving) = receiver(Box::leak(answer.into_boxed_str())).await;
    let attempt = post(&sender(), &format!("http://{address}/")).await;
    assert_eq!(attempt, Attempt::Refused { status: 307, retry_after: None });
    serving.await.unwrap();
    assert_nobody_called(&other);
}

/// A connection that was made waits in the queue of the listener before the caller knows of it.
fn assert_nobody_called(listener: &std::net::TcpListener) {
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_receiver_that_never_answers_is_left_at_the_limit() {
    // Connections are taken by the kernel, and nobody ever reads from them.
    let (_listener, address) = listen().await;
    let within = Duration::from_millis(20);
    let sender = Sender::new(relaxed(), within, Trust::Only(Vec::new())).unwrap();
    for scheme in ["http", "https"] {
        let attempt = post(&sender, &format!("{scheme}://{address}/")).await;
        assert_eq!(attempt, Attempt::Unreachable(Unreached::Timeout), "{scheme}");
    }
}

#[tokio::test]
async fn a_body_without_an_end_is_not_read_to_it() {
    const BYTES_MAX: usize = 64 * 1_024 * 1_024;
    let (listener, address) = listen().await;
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        receive(&mut stream).await;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES_MAX}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let (block, mut written) = (vec![b'x'; 64 * 1_024], 0);
        while written < BYTES_MAX && stream.write_all(&block).await.is_ok() {
            written += block.len();
        }
        written
    });
    assert_eq!(post(&sender(), &format!("http://{address}/")).await, Attempt::Acknowledged);
    // Sockets hold some of it; the rest found nobody.
    assert!(serving.await.unwrap() < BYTES_MAX);
}

#[tokio::test]
async fn of_a_body_only_the_beginning_is_read() {
    struct Long<'a>(&'a AtomicUsize);

    impl Body for Long<'_> {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            // It has an end, so that a reader without a limit fails and does not hang.
            if self.0.fetch_add(1, Ordering::Relaxed) > 1_000 {
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 1_024])))))
        }
    }

    let frames = AtomicUsize::new(0);
    drain(Long(&frames)).await;
    assert_eq!(frames.load(Ordering::Relaxed), BODY_BYTES_MAX / 1_024);
}

#[tokio::test]
async fn a_head_without_an_end_is_no_answer() {
    let (listener, address) = listen().await;
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        receive(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
        while stream.write_all(b"X-Padding: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n").await.is_ok() {}
    });
    let attempt = post(&sender(), &format!("http://{address}/")).await;
    assert_eq!(attempt, Attempt::Unreachable(Unreached::NoAnswer));
    serving.await.unwrap();
}

#[tokio::test]
async fn a_connection_that_ends_and_a_port_without_a_listener_are_told_apart() {
    let (listener, address) = listen().await;
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        receive(&mut stream).await;
    });
    let url = format!("http://{address}/");
    assert_eq!(post(&sender(), &url).await, Attempt::Unreachable(Unreached::NoAnswer));
    // The listener is gone with its task.
    serving.await.unwrap();
    assert_eq!(post(&sender(), &url).await, Attempt::Unreachable(Unreached::Refused));
}

#[tokio::test]
async fn a_name_that_leads_to_this_machine_is_forbidden_unless_private_targets_are_allowed() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap();
    let public: SocketAddr = "8.8.8.8:443".parse().unwrap();
    let forbidden = Attempt::Forbidden(Rejected::Resolved("a loopback address"));
    let strict = || Sender::new(Guard::default(), LONG, Trust::Only(Vec::new())).unwrap();
    // One address is enough, wherever it stands.
    for addresses in [&[here][..], &[public, here], &[here, public]] {
        let (names, _) = Says::new(&[addresses]);
        let sender = strict().with_names(names);
        assert_eq!(post(&sender, "https://hook.example/").await, forbidden, "{addresses:?}");
    }
    assert_nobody_called(&listener);

    let (address, serving) = receiver(OK).await;
    let (names, _) = Says::new(&[&[address]]);
    let sender = sender().with_names(names);
    assert_eq!(post(&sender, "http://hook.example/").await, Attempt::Acknowledged);
    assert_eq!(serving.await.unwrap().header("host"), Some("hook.example"));
}

#[tokio::test]
async fn the_resolver_of_the_machine_is_checked_like_any_other() {
    let (address, serving) = receiver(OK).await;
    let url = format!("http://localhost:{}/", address.port());
    assert_eq!(post(&sender(), &url).await, Attempt::Acknowledged);
    serving.await.unwrap();
    // The operator lets the name through, and not the addresses behind it.
    let guard = Guard { allowed: vec!["localhost".parse().unwrap()], ..Guard::default() };
    let sender = Sender::new(guard, LONG, Trust::Only(Vec::new())).unwrap();
    let attempt = post(&sender, "https://localhost/").await;
    assert_eq!(attempt, Attempt::Forbidden(Rejected::Resolved("a loopback address")));
}

#[tokio::test]
async fn a_target_of_looser_times_is_forbidden_by_the_guard_of_today() {
    let strict = Sender::new(Guard::default(), LONG, Trust::Only(Vec::new())).unwrap();
    for (url, why) in [
        ("http://8.8.8.8/", Rejected::Scheme),
        ("https://127.0.0.1/", Rejected::Address("a loopback address")),
        ("https://localhost/", Rejected::Name),
    ] {
        assert_eq!(post(&strict, url).await, Attempt::Forbidden(why), "{url}");
    }
}

#[tokio::test]
async fn the_address_that_was_checked_is_the_one_that_is_called() {
    let (address, serving) = receiver(OK).await;
    let trap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // A second look-up would be led astray.
    let (names, asked) = Says::new(&[&[address], &[trap.local_addr().unwrap()]]);
    let sender = sender().with_names(names);
    assert_eq!(post(&sender, "http://hook.example:81/").await, Attempt::Acknowledged);
    assert_eq!(serving.await.unwrap().header("host"), Some("hook.example:81"));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_nobody_called(&trap);
}

#[tokio::test]
async fn the_next_address_of_a_name_is_called_when_the_first_does_not_answer() {
    let (closed, dead) = listen().await;
    drop(closed);
    let (address, serving) = receiver(OK).await;
    let (names, _) = Says::new(&[&[dead, address]]);
    let sender = sender().with_names(names);
    assert_eq!(post(&sender, "http://hook.example/").await, Attempt::Acknowledged);
    serving.await.unwrap();
}

#[tokio::test]
async fn a_name_without_an_address_is_not_found() {
    let (names, _) = Says::new(&[&[]]);
    let sender = sender().with_names(names);
    let attempt = post(&sender, "https://hook.example/").await;
    assert_eq!(attempt, Attempt::Unreachable(Unreached::Name));
}

/// A certificate for a name, and a server that shows it.
fn certified(name: &str) -> (CertificateDer<'static>, TlsAcceptor) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let certificate = made.cert.der().clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    (certificate, TlsAcceptor::from(Arc::new(config)))
}

/// A receiver of one delivery over TLS; `None` when the handshake fails.
async fn tls_receiver(acceptor: TlsAcceptor) -> (SocketAddr, JoinHandle<Option<Received>>) {
    let (listener, address) = listen().await;
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = acceptor.accept(stream).await.ok()?;
        Some(serve(stream, OK).await)
    });
    (address, serving)
}

#[tokio::test]
async fn the_certificate_must_name_the_host_of_the_url_and_lead_to_the_trusted() {
    let (certificate, acceptor) = certified("hook.example");
    let (other, _) = certified("hook.example");
    for (url, trusted, is_received) in [
        ("https://hook.example/", &certificate, true),
        ("https://hook.example./", &certificate, true),
        ("https://other.example/", &certificate, false),
        ("https://hook.example/", &other, false),
    ] {
        let (address, serving) = tls_receiver(acceptor.clone()).await;
        // Only this address is excepted, and the guard is strict otherwise.
        let allowed = vec!["127.0.0.1".parse().unwrap()];
        let guard = Guard { allowed, ..Guard::default() };
        let sender = Sender::new(guard, LONG, Trust::Only(vec![trusted.clone()])).unwrap();
        let (names, _) = Says::new(&[&[address]]);
        let attempt = post(&sender.with_names(names), url).await;
        let expected =
            if is_received { Attempt::Acknowledged } else { Attempt::Unreachable(Unreached::Tls) };
        assert_eq!(attempt, expected, "{url}");
        assert_eq!(serving.await.unwrap().is_some(), is_received, "{url}");
    }
}

#[test]
fn a_sender_has_a_limit_of_time_and_certificates_that_can_be_read() {
    let made = |within, trust| Sender::new(Guard::default(), within, trust).err();
    let none = || Trust::Only(Vec::new());
    assert_eq!(made(WITHIN, none()), None);
    assert_eq!(made(WITHIN_MAX, none()), None);
    assert_eq!(made(Duration::ZERO, none()), Some(SenderError::Within));
    assert_eq!(made(WITHIN_MAX + Duration::from_millis(1), none()), Some(SenderError::Within));
    // Whatever this machine trusts: plain HTTP does without.
    assert!(Sender::new(relaxed(), WITHIN, Trust::Platform).is_ok());
    let broken = Trust::Only(vec![CertificateDer::from(vec![1, 2, 3])]);
    assert_eq!(made(WITHIN, broken), Some(SenderError::Certificate { at: 0 }));
}
