//! The layer, through requests: every cell of the table of dialects, and what happens to those who
//! leave, panic, lie about lengths or are somebody else.

mod common;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use bytes::Bytes;
use common::{Count, Heard, ask, door, heard, of, request, speaking};
use http::StatusCode;
use onetake_core::{Finality, Principal, Scope, Status, Tenant};
use onetake_engine::{Engine, Memory};
use onetake_http::{Dialect, Idempotency, Keyless, Mode, OnNoKey, Settings, StoreDown};
use onetake_testkit::faulty::{Fault, Faulty};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tower::ServiceExt;

/// A service that counts and answers with the status in its path.
fn statuses(door: &Idempotency) -> (Router, Count) {
    let counted = Count::default();
    let shared = counted.clone();
    let handler = async move |Path(status): Path<u16>| {
        let number = shared.up();
        (StatusCode::from_u16(status).expect("a status"), format!("take {number}"))
    };
    (Router::new().route("/{status}", any(handler)).layer(door.layer()), counted)
}

/// A service that counts and then panics.
fn panicking(door: &Idempotency) -> (Router, Count) {
    let counted = Count::default();
    let shared = counted.clone();
    let handler = async move || -> Response {
        shared.up();
        panic!("a bug");
    };
    (Router::new().route("/", post(handler)).layer(door.layer()), counted)
}

/// D2, D8, W4, W7, W8, C6: what each dialect makes of each status, seen by a caller who retries.
#[tokio::test]
async fn every_status_of_every_dialect_is_kept_freed_or_tried_again() {
    for dialect in Dialect::all() {
        let (app, count) = statuses(&of(dialect.clone()));
        let mut executed = 0;
        for status in 200..=599 {
            let (uri, key) = (format!("/{status}"), format!("k-{status}"));
            let first = ask(&app, request("POST", &uri, Some(&key), "{}")).await;
            let second = ask(&app, request("POST", &uri, Some(&key), "{}")).await;
            let kept = dialect.statuses.finality(Status::new(status).unwrap()) == Finality::Final;
            executed += if kept { 1 } else { 2 };
            assert_eq!(count.get(), executed, "{} {status}", dialect.name);
            let mark = dialect.replay_mark.0.as_str();
            assert_eq!(first.header(mark), None, "{} {status}", dialect.name);
            assert_eq!(second.header(mark).is_some(), kept, "{} {status}", dialect.name);
            assert_eq!(first.status, second.status);
            assert_eq!(kept, first.body == second.body, "{} {status}", dialect.name);
            assert_eq!(kept, first.header("idempotency-expires").is_some());
        }
    }
}

/// W20, D3, C3, K2: other content under a known key is refused, and hears nothing of the first.
#[tokio::test]
async fn other_content_under_a_known_key_is_refused_in_every_dialect() {
    for dialect in Dialect::all() {
        let app = of(dialect.clone());
        let (app, count) = statuses(&app);
        ask(&app, request("POST", "/200", Some("k"), r#"{"a":1}"#)).await;
        let other = ask(&app, request("POST", "/200", Some("k"), r#"{"a":2}"#)).await;
        assert_eq!(other.status, dialect.mismatch.status, "{}", dialect.name);
        assert_eq!(other.refusal(), Some("key_mismatch"));
        assert!(!other.text().contains("take 1"));
        assert_eq!(count.get(), 1);
    }
}

/// C3, D10, K6: no key is refused or passes, by dialect; nothing is recorded.
#[tokio::test]
async fn no_key_is_refused_or_passes_by_dialect() {
    for dialect in Dialect::all() {
        let (app, count) = statuses(&of(dialect.clone()));
        let heard = ask(&app, request("POST", "/200", None, "{}")).await;
        let passes = dialect.no_key == OnNoKey::Pass;
        assert_eq!(heard.status == 200, passes, "{}", dialect.name);
        assert_eq!(heard.refusal(), (!passes).then_some("key_missing"));
        assert_eq!(count.get(), u32::from(passes));
    }
}

/// W1: GET, HEAD and OPTIONS neither need nor honour a key.
#[tokio::test]
async fn w1_methods_that_change_nothing_pass_with_and_without_a_key() {
    let (app, count) = statuses(&door());
    for (number, method) in ["GET", "HEAD", "OPTIONS"].into_iter().cycle().take(6).enumerate() {
        let key = (number % 2 == 0).then_some("k");
        let heard = ask(&app, request(method, "/200", key, "")).await;
        assert_eq!((heard.status, heard.header("idempotent-replayed")), (StatusCode::OK, None));
    }
    assert_eq!(count.get(), 6);
}

/// W3, C4: a replay keeps everything but what belonged to the first caller alone.
#[tokio::test]
async fn w3_c4_a_replay_is_the_same_response_without_its_cookies() {
    let handler = async || {
        let headers = [
            ("location", "/orders/1"),
            ("etag", "\"v1\""),
            ("content-type", "application/xml"),
            ("set-cookie", "session=1"),
            ("www-authenticate", "Basic"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
        ];
        (StatusCode::CREATED, headers, "<order/>")
    };
    let app = Router::new().route("/", post(handler)).layer(door().layer());
    let first = ask(&app, request("POST", "/", Some("k"), "{}")).await;
    assert_eq!(first.header("set-cookie"), Some("session=1"), "the first caller gets all");
    let second = ask(&app, request("POST", "/", Some("\"k\""), "{}")).await;
    assert_eq!((second.status, second.text()), (StatusCode::CREATED, "<order/>"));
    for name in ["location", "etag", "content-type"] {
        assert_eq!(second.header(name), first.header(name), "{name}");
    }
    for name in ["set-cookie", "www-authenticate", "connection", "x-hop"] {
        assert_eq!(second.header(name), None, "{name}");
    }
}

/// W9, X5: of many at once exactly one executes, and all hear the same.
#[tokio::test(flavor = "multi_thread")]
async fn w9_of_many_at_once_one_executes() {
    let (app, count) = statuses(&door());
    let asking = (0..64).map(|_| {
        let app = app.clone();
        tokio::spawn(async move { ask(&app, request("POST", "/201", Some("k"), "{}")).await })
    });
    for heard in asking.collect::<Vec<_>>() {
        let heard = heard.await.unwrap();
        assert_eq!((heard.status, heard.text()), (StatusCode::CREATED, "take 1"));
    }
    assert_eq!(count.get(), 1);
}

/// A service that waits to be let go.
fn waiting(door: &Idempotency) -> (Router, Count, Arc<(Notify, Notify)>) {
    let (count, bells) = (Count::default(), Arc::new((Notify::new(), Notify::new())));
    let (counted, heard) = (count.clone(), Arc::clone(&bells));
    let handler = async move || {
        counted.up();
        heard.0.notify_one();
        heard.1.notified().await;
        "done"
    };
    (Router::new().route("/", post(handler)).layer(door.layer()), count, bells)
}

/// X4: a caller who leaves changes nothing: the execution goes on, and a retry hears its outcome.
#[tokio::test]
async fn x4_a_caller_who_leaves_cancels_nothing() {
    let (app, count, bells) = waiting(&door());
    let asked = app.clone();
    let first =
        tokio::spawn(async move { asked.oneshot(request("POST", "/", Some("k"), "")).await });
    bells.0.notified().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    bells.1.notify_one();
    let heard = ask(&app, request("POST", "/", Some("k"), "")).await;
    assert_eq!((heard.text(), count.get()), ("done", 1));
    assert_eq!(heard.header("idempotent-replayed"), Some("true"));
}

/// W9, D7, W20: while the first executes, a duplicate is told so, in the words of its dialect.
#[tokio::test]
async fn w9_d7_w20_in_flight_is_said_in_every_dialect() {
    for dialect in Dialect::all() {
        let policy = dialect.policy().on_in_flight(onetake_core::OnInFlight::Refuse);
        let settings = Settings::builder(dialect.clone()).policy(policy);
        let (app, count, bells) = waiting(&speaking(settings));
        let asked = app.clone();
        let first =
            tokio::spawn(async move { ask(&asked, request("POST", "/", Some("k"), "1")).await });
        bells.0.notified().await;
        let second = ask(&app, request("POST", "/", Some("k"), "1")).await;
        assert_eq!(second.status, dialect.in_flight.status, "{}", dialect.name);
        assert_eq!(second.refusal(), Some("in_flight"));
        assert!(second.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
        let other = ask(&app, request("POST", "/", Some("k"), "2")).await;
        let expected = if dialect.name == "openwop" { "in_flight" } else { "key_mismatch" };
        assert_eq!(other.refusal(), Some(expected), "{}", dialect.name);
        bells.1.notify_one();
        assert_eq!(first.await.unwrap().text(), "done");
        assert_eq!(count.get(), 1);
    }
}

/// X3: a panic leaves an unknown outcome, and the process alive.
#[tokio::test]
async fn x3_a_handler_that_panics_leaves_an_unknown_outcome() {
    let (app, count) = panicking(&door());
    for _ in 0..2 {
        let heard = ask(&app, request("POST", "/", Some("k"), "")).await;
        assert_eq!(
            (heard.status, heard.refusal()),
            (StatusCode::CONFLICT, Some("outcome_unknown"))
        );
    }
    assert_eq!(count.get(), 1);
}

/// W10, D9: tenants and subjects never meet, and nobody is somebody by accident.
#[tokio::test]
async fn w10_d9_scopes_never_share_a_key() {
    let (app, count) = statuses(&Idempotency::by_extension(Engine::new(Memory::new())));
    let (acme, other) = (Tenant::new("acme").unwrap(), Tenant::new("other").unwrap());
    let ann = Principal::new("ann").unwrap();
    let scopes =
        [Scope::tenant_wide(acme.clone()), Scope::tenant_wide(other), Scope::of(acme, ann)];
    for (number, scope) in scopes.into_iter().enumerate() {
        let mut request = request("POST", "/201", Some("k"), number.to_string());
        request.extensions_mut().insert(scope);
        let heard = ask(&app, request).await;
        assert_eq!(heard.text(), format!("take {}", number + 1), "neither replay nor conflict");
    }
    let heard = ask(&app, request("POST", "/201", Some("k"), "0")).await;
    assert_eq!(
        (heard.status, heard.refusal()),
        (StatusCode::UNAUTHORIZED, Some("identity_missing"))
    );
    assert_eq!(count.get(), 3);
}

/// C7: the same key under two operations never collides, and a route names its operation.
#[tokio::test]
async fn c7_the_same_key_on_two_routes_is_two_operations() {
    let handler = async |Path(id): Path<u16>| id.to_string();
    let app = Router::new()
        .route("/a/{id}", post(handler))
        .route("/b/{id}", post(handler))
        .layer(door().layer());
    assert_eq!(ask(&app, request("POST", "/a/1", Some("k"), "")).await.text(), "1");
    assert_eq!(ask(&app, request("POST", "/b/2", Some("k"), "")).await.text(), "2");
    let other = ask(&app, request("POST", "/a/2", Some("k"), "")).await;
    assert_eq!(other.refusal(), Some("key_mismatch"), "a path parameter is part of what was asked");
}

/// Bodies that are too large, break off or never end are refused, and nothing is executed.
#[tokio::test(start_paused = true)]
async fn bad_bodies_get_clear_answers() {
    let settings = Settings::builder(Dialect::ietf()).request_bytes_max(10);
    let (app, count) = statuses(&speaking(settings));
    let large = ask(&app, request("POST", "/200", Some("k"), "12345678901")).await;
    assert_eq!((large.status.as_u16(), large.refusal()), (413, Some("too_large")));
    let stream = |pieces: Vec<Result<&'static str, std::io::Error>>| {
        Body::from_stream(Pieces(pieces.into_iter()))
    };
    let pieces = vec![Ok("123456"), Ok("78901")];
    let large = ask(&app, request("POST", "/200", Some("k"), stream(pieces))).await;
    assert_eq!(large.refusal(), Some("too_large"));
    let broken = vec![Ok("1"), Err(std::io::Error::other("reset"))];
    let broken = ask(&app, request("POST", "/200", Some("k"), stream(broken))).await;
    assert_eq!((broken.status.as_u16(), broken.refusal()), (400, Some("request_invalid")));
    let endless = Body::from_stream(Endless);
    let slow = ask(&app, request("POST", "/200", Some("k"), endless)).await;
    assert_eq!((slow.status.as_u16(), slow.refusal()), (408, Some("request_timeout")));
    assert_eq!(count.get(), 0);
    assert_eq!(ask(&app, request("POST", "/200", Some("k"), "1")).await.text(), "take 1");
}

/// Deep, doubled, huge and broken JSON reaches the handler as it came.
#[tokio::test]
async fn strange_json_is_the_handlers_business_and_never_merged() {
    let handler = async |body: Bytes| body;
    let app = Router::new().route("/", post(handler)).layer(door().layer());
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let bodies = [
        deep.into_bytes(),
        br#"{"a":1,"a":2}"#.to_vec(),
        b"{\"a\":".to_vec(),
        b"\xff\xfe".to_vec(),
        b"123456789012345678901234567890".to_vec(),
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        let key = format!("k{number}");
        let first = ask(&app, request("POST", "/", Some(&key), body.clone())).await;
        assert_eq!(first.body, body);
        let again = ask(&app, request("POST", "/", Some(&key), body.clone())).await;
        assert_eq!((again.body.as_ref(), again.header("idempotent-replayed")), {
            (body.as_ref(), Some("true"))
        });
    }
    ask(&app, request("POST", "/", Some("n"), "9007199254740993")).await;
    let other = ask(&app, request("POST", "/", Some("n"), "9007199254740992")).await;
    assert_eq!(other.refusal(), Some("key_mismatch"));
}

/// A response that is too large goes to its caller whole; a retry hears that it is not kept.
#[tokio::test]
async fn a_response_that_is_too_large_is_passed_on_and_never_made_twice() {
    let settings = Settings::builder(Dialect::ietf()).response_bytes_max(100);
    let count = Count::default();
    let counted = count.clone();
    let handler = async move || {
        counted.up();
        "x".repeat(1_000)
    };
    let app = Router::new().route("/", post(handler)).layer(speaking(settings).layer());
    assert_eq!(ask(&app, request("POST", "/", Some("k"), "")).await.body.len(), 1_000);
    let again = ask(&app, request("POST", "/", Some("k"), "")).await;
    assert_eq!((again.status, again.refusal()), (StatusCode::CONFLICT, Some("result_not_kept")));
    assert_eq!(count.get(), 1);
}

/// K1: without a key, the same request within the window is a duplicate, where a route asks for it.
#[tokio::test]
async fn k1_requests_without_a_key_are_known_by_what_they_ask() {
    let window = Keyless::Derive(Duration::from_secs(5));
    let (app, count) = statuses(&speaking(Settings::builder(Dialect::ietf()).keyless(window)));
    let first = ask(&app, request("POST", "/201", None, "1")).await;
    let again = ask(&app, request("POST", "/201", None, "1")).await;
    assert_eq!((again.text(), again.header("idempotent-replayed")), (first.text(), Some("true")));
    ask(&app, request("POST", "/201", None, "2")).await;
    ask(&app, request("PUT", "/201", None, "1")).await;
    assert_eq!(count.get(), 3);
}

/// An observed route refuses nobody and says what it would have done.
#[tokio::test]
async fn an_observed_route_only_reports() {
    let (app, count) = statuses(&speaking(Settings::builder(Dialect::ietf()).mode(Mode::Observe)));
    let marks = async |key, body| -> (u16, Option<String>) {
        let heard: Heard = ask(&app, request("POST", "/201", key, body)).await;
        (heard.status.as_u16(), heard.header("onetake-observed").map(str::to_owned))
    };
    assert_eq!(marks(Some("k"), "1").await, (201, None));
    assert_eq!(marks(Some("k"), "1").await, (201, Some("replayed".into())));
    assert_eq!(marks(Some("k"), "2").await, (201, Some("key_mismatch".into())));
    assert_eq!(marks(None, "1").await, (201, Some("key_missing".into())));
    assert_eq!(marks(Some("bad key"), "1").await, (201, Some("key_invalid".into())));
    assert_eq!(count.get(), 5);
    let nobody = Idempotency::by_extension(Engine::new(Memory::new()));
    let small = Settings::builder(Dialect::ietf()).mode(Mode::Observe).request_bytes_max(3);
    let (app, count) = statuses(&nobody.with(small.build().unwrap()));
    let heard = ask(&app, request("POST", "/201", Some("k"), "1")).await;
    assert_eq!(heard.header("onetake-observed"), Some("identity_missing"));
    let heard = ask(&app, request("POST", "/201", Some("k"), "1234")).await;
    assert_eq!(heard.header("onetake-observed"), Some("too_large"));
    assert_eq!(count.get(), 2);
}

/// An observed request is sent once, also when its handler panics.
#[tokio::test]
async fn x3_an_observed_handler_that_panics_is_not_called_twice() {
    let observed = speaking(Settings::builder(Dialect::ietf()).mode(Mode::Observe));
    let (app, count) = panicking(&observed);
    let heard = ask(&app, request("POST", "/", Some("k"), "")).await;
    assert_eq!((heard.status, heard.refusal()), (StatusCode::CONFLICT, Some("outcome_unknown")));
    assert_eq!(count.get(), 1);
}

/// A service with room for 200 bytes, half of them for one tenant; what tells that its handler has
/// begun, and what lets it end.
fn tight(mode: Mode) -> (Router, Arc<Semaphore>, Arc<Semaphore>) {
    let door = speaking(Settings::builder(Dialect::ietf()).mode(mode));
    let (held, letting_go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (begun, gate) = (Arc::clone(&held), Arc::clone(&letting_go));
    let handler = async move |body: Bytes| {
        begun.add_permits(1);
        gate.acquire().await.expect("it is never closed").forget();
        body
    };
    let app = Router::new().route("/", post(handler));
    (app.layer(door.buffered_bytes_max(200).layer()), held, letting_go)
}

/// A request of which 80 bytes have come and more is waited for, and where to send that.
async fn half_sent(app: &Router) -> (mpsc::UnboundedSender<String>, JoinHandle<Heard>) {
    let (send, pieces) = mpsc::unbounded_channel();
    let polled = Arc::new(Semaphore::new(0));
    let slow = Body::from_stream(Slow { pieces, polled: Arc::clone(&polled) });
    send.send("x".repeat(80)).expect("somebody listens");
    let app = app.clone();
    let first = tokio::spawn(async move { ask(&app, request("POST", "/", Some("a"), slow)).await });
    // Once for what is there, once more behind it, and then for the one who waits.
    polled.acquire_many(3).await.expect("it is never closed").forget();
    (send, first)
}

/// X15: all requests together have a bound; whoever passes it is refused before anything happens,
/// and what was read of an observed one is passed on with the rest. What is answered from memory
/// needs none.
#[tokio::test]
async fn x15_requests_have_room_together_and_not_only_each() {
    let (app, held, letting_go) = tight(Mode::Enforce);
    letting_go.add_permits(1);
    let kept = || request("POST", "/", Some("kept"), "x".repeat(30));
    assert_eq!(ask(&app, kept()).await.status, StatusCode::OK);
    held.acquire().await.expect("it is never closed").forget();
    let first = tokio::spawn({
        let app = app.clone();
        async move { ask(&app, request("POST", "/", Some("a"), "x".repeat(80))).await }
    });
    held.acquire().await.expect("it is never closed").forget();
    let full = tokio::select! {
        full = ask(&app, request("POST", "/", Some("b"), "x".repeat(30))) => full,
        _ = held.acquire() => panic!("there was no room for it"),
    };
    assert_eq!((full.status, full.refusal()), (StatusCode::SERVICE_UNAVAILABLE, Some("busy")));
    assert_eq!(full.header("retry-after"), Some("1"));
    assert_eq!(ask(&app, kept()).await.header("idempotent-replayed"), Some("true"));
    letting_go.add_permits(2);
    assert_eq!(first.await.unwrap().body.len(), 80);
    let after = ask(&app, request("POST", "/", Some("b"), "x".repeat(30))).await;
    assert_eq!(after.status, StatusCode::OK, "what was taken is given back");

    let (app, _, letting_go) = tight(Mode::Observe);
    letting_go.add_permits(1);
    let pieces: Vec<_> = (0..10).map(|_| Ok("thirty bytes of one large body")).collect();
    let streamed = Body::from_stream(Pieces(pieces.into_iter()));
    let heard = ask(&app, request("POST", "/", Some("c"), streamed)).await;
    assert_eq!(heard.header("onetake-observed"), Some("busy"));
    assert_eq!(heard.body.len(), 300, "all of it reached the handler");
}

/// X15: what came of a body has room while the rest is waited for.
#[tokio::test]
async fn x15_a_body_that_is_waited_for_has_room_as_it_comes() {
    let (app, _, letting_go) = tight(Mode::Enforce);
    letting_go.add_permits(2);
    let (send, first) = half_sent(&app).await;
    let full = ask(&app, request("POST", "/", Some("b"), "x".repeat(30))).await;
    assert_eq!((full.status, full.refusal()), (StatusCode::SERVICE_UNAVAILABLE, Some("busy")));
    send.send("x".repeat(20)).expect("somebody listens");
    drop(send);
    assert_eq!(first.await.unwrap().body.len(), 100);
    let after = ask(&app, request("POST", "/", Some("b"), "x".repeat(30))).await;
    assert_eq!(after.status, StatusCode::OK, "what was taken is given back");
}

/// X15: what was read of an observed request has room until it is answered, although it had not
/// enough, and all of it reaches the handler.
#[tokio::test]
async fn x15_what_passes_without_enough_room_keeps_what_it_has() {
    let (app, held, letting_go) = tight(Mode::Observe);
    let (send, first) = half_sent(&app).await;
    for _ in 0..2 {
        send.send("x".repeat(30)).expect("somebody listens");
    }
    drop(send);
    held.acquire().await.expect("it is never closed").forget();
    let second = tokio::spawn({
        let app = app.clone();
        async move { ask(&app, request("POST", "/", Some("b"), "x".repeat(30))).await }
    });
    held.acquire().await.expect("it is never closed").forget();
    letting_go.add_permits(3);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!((first.header("onetake-observed"), first.body.len()), (Some("busy"), 140));
    assert_eq!((second.header("onetake-observed"), second.body.len()), (Some("busy"), 30));
    let after = ask(&app, request("POST", "/", Some("c"), "x".repeat(30))).await;
    assert_eq!(after.header("onetake-observed"), None, "what was taken is given back");
}

/// A service error without a response has an outcome that nobody knows, and reaches its caller.
#[tokio::test]
async fn the_error_of_a_service_reaches_its_caller() {
    let inner =
        tower::service_fn(async |_: http::Request<_>| -> Result<Response, std::io::Error> {
            Err(std::io::Error::other("no"))
        });
    let service = tower::ServiceBuilder::new().layer(door().layer()).service(inner);
    let first = service.clone().oneshot(request("POST", "/", Some("k"), "")).await;
    assert_eq!(first.unwrap_err().to_string(), "no");
    let again = service.oneshot(request("POST", "/", Some("k"), "")).await.unwrap();
    let again = heard(again.map(Body::new).into_response()).await;
    assert_eq!(again.refusal(), Some("outcome_unknown"));
}

/// A store that is down refuses, or lets pass, as the route says.
#[tokio::test]
async fn a_store_that_is_down_refuses_or_lets_pass() {
    for passes in [false, true] {
        let store = Faulty::new(Arc::new(Memory::new()), |_| Fault::Fail);
        let door = Idempotency::single_tenant(Engine::new(store), "acme").unwrap();
        let choice = if passes { StoreDown::Pass } else { StoreDown::Refuse };
        let settings = Settings::builder(Dialect::ietf()).store_down(choice).build().unwrap();
        let (app, count) = statuses(&door.with(settings));
        let heard = ask(&app, request("POST", "/201", Some("k"), "")).await;
        assert_eq!((heard.status == 201, count.get() == 1), (passes, passes));
    }
}

struct Pieces(std::vec::IntoIter<Result<&'static str, std::io::Error>>);

impl futures_core::Stream for Pieces {
    type Item = Result<&'static str, std::io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.next())
    }
}

/// Pieces that come later, and how often somebody looked for them.
struct Slow {
    pieces: mpsc::UnboundedReceiver<String>,
    polled: Arc<Semaphore>,
}

impl futures_core::Stream for Slow {
    type Item = Result<String, std::io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.polled.add_permits(1);
        self.pieces.poll_recv(cx).map(|piece| piece.map(Ok))
    }
}

struct Endless;

impl futures_core::Stream for Endless {
    type Item = Result<&'static str, std::io::Error>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Pending
    }
}
