//! Answers that are too large to be kept, or have no foreseeable end: their caller gets them as
//! they come, they end only once the outcome is durable, and nobody who leaves changes anything.

mod common;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use common::{Count, ask, door, request};
use http::StatusCode;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use onetake_core::{Finality, OnInFlight};
use onetake_engine::{Engine, Memory};
use onetake_http::{Dialect, Idempotency, Mode, Settings, SettingsBuilder};
use onetake_testkit::faulty::{Fault, Faulty, Op};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

type Piece = Result<&'static str, std::io::Error>;

/// A body that is fed from outside, and may say how long it is.
struct Fed {
    from: UnboundedReceiver<Piece>,
    left: Option<u64>,
    taken: Count,
}

impl http_body::Body for Fed {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.from.poll_recv(cx).map(|piece| {
            piece.map(|piece| {
                self.taken.up();
                let piece = piece?;
                self.left = self.left.map(|left| left - piece.len() as u64);
                Ok(Frame::data(Bytes::from_static(piece.as_bytes())))
            })
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

/// A service whose one answer is fed by the test, and how many pieces of it were taken.
fn fed(door: &Idempotency, length: Option<u64>) -> (Router, UnboundedSender<Piece>, Count) {
    fed_with(door, length, |_| {})
}

/// The same, with a head of its own.
fn fed_with(
    door: &Idempotency,
    length: Option<u64>,
    head: impl Fn(&mut Response) + Clone + Send + Sync + 'static,
) -> (Router, UnboundedSender<Piece>, Count) {
    let (feed, from) = unbounded_channel();
    let (from, count) = (Arc::new(Mutex::new(Some(from))), Count::default());
    let counted = count.clone();
    let handler = async move || {
        let taken = counted.clone();
        let from = from.lock().expect("no panic").take().expect("it is asked once");
        let mut response = Response::new(Body::new(Fed { from, left: length, taken }));
        head(&mut response);
        response
    };
    (Router::new().route("/", post(handler)).layer(door.layer()), feed, count)
}

fn small() -> SettingsBuilder {
    let policy = Dialect::ietf().policy().on_in_flight(OnInFlight::Refuse);
    Settings::builder(Dialect::ietf()).policy(policy).response_bytes_max(4)
}

fn on(
    fault: impl Fn(Op) -> Fault + Send + Sync + 'static,
    settings: SettingsBuilder,
) -> Idempotency {
    let store = Faulty::new(Arc::new(Memory::new()), fault);
    let door = Idempotency::single_tenant(Engine::new(store), "acme").expect("a name");
    door.with(settings.build().expect("within bounds"))
}

async fn begun(app: &Router) -> Body {
    let response =
        app.clone().oneshot(request("POST", "/", Some("k"), "")).await.expect("a response");
    assert_eq!(response.status(), 200);
    response.into_body()
}

async fn next(body: &mut Body) -> Option<Result<Bytes, axum::Error>> {
    body.frame().await.map(|frame| frame.map(|frame| frame.into_data().expect("no trailers")))
}

async fn retried(app: &Router) -> Option<String> {
    let heard = ask(app, request("POST", "/", Some("k"), "")).await;
    heard.refusal().map(str::to_owned)
}

/// X4: who leaves in the middle of a large answer neither cancels nor settles anything.
#[tokio::test]
async fn x4_who_leaves_a_large_answer_cancels_nothing() {
    let (app, feed, taken) = fed(&door().with(small().build().unwrap()), None);
    feed.send(Ok("large")).unwrap();
    let response = app.clone().oneshot(request("POST", "/", Some("k"), "")).await.unwrap();
    assert!(response.headers().contains_key("idempotency-expires"), "X16");
    let mut body = response.into_body();
    assert_eq!(next(&mut body).await.unwrap().unwrap(), "large");
    assert_eq!(retried(&app).await.as_deref(), Some("in_flight"), "it is not over yet");
    drop(body);
    for _ in 0..10 {
        feed.send(Ok("more")).unwrap();
    }
    while taken.get() < 11 {
        assert!(!feed.is_closed(), "it was given up");
        tokio::task::yield_now().await;
    }
    assert_eq!(retried(&app).await.as_deref(), Some("in_flight"), "nor is it given up");
    drop(feed);
    // Settled by a task of the engine, soon.
    while retried(&app).await.as_deref() == Some("in_flight") {
        tokio::task::yield_now().await;
    }
    assert_eq!(retried(&app).await.as_deref(), Some("result_not_kept"));
}

/// W12: the end of a large answer comes after the record, whether its length is known or not.
#[tokio::test(start_paused = true)]
async fn w12_the_end_of_a_large_answer_waits_until_its_outcome_is_durable() {
    const LONG: Duration = Duration::from_secs(3);
    for length in [None, Some(9)] {
        let slow = |op| if op == Op::Settle { Fault::Delay(LONG) } else { Fault::None };
        let (app, feed, _) = fed(&on(slow, small()), length);
        for piece in ["large", "last"] {
            feed.send(Ok(piece)).unwrap();
        }
        drop(feed);
        let started = Instant::now();
        let mut body = begun(&app).await;
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "large");
        assert!(started.elapsed() < LONG, "what comes before the end does not wait");
        let mut rest = Vec::new();
        while let Some(piece) = next(&mut body).await {
            if length.is_some() {
                assert!(started.elapsed() >= LONG, "with its last piece it would be whole");
            }
            rest.push(piece.unwrap());
        }
        assert_eq!(rest.concat(), b"last");
        assert!(started.elapsed() >= LONG, "{length:?}");
    }
}

/// How the caller of an answer in two pieces knows that it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// By its end.
    Chunks,
    /// By the length of the body.
    Length,
    /// By a length that only the head says.
    Header,
    /// By the end of the connection, which says nothing.
    HangUp,
}

/// What arrives of an answer in two pieces, and how it ends.
async fn heard_of(told: Told, door: &Idempotency) -> (Vec<u8>, Option<String>) {
    let length = (told == Told::Length).then_some(9);
    let (app, feed, _) = fed_with(door, length, move |response| {
        if told == Told::Header {
            response.headers_mut().insert("content-length", 9.into());
        }
    });
    for piece in ["large", "last"] {
        feed.send(Ok(piece)).expect("it is read");
    }
    drop(feed);
    let mut request = request("POST", "/", Some("k"), "");
    if told == Told::HangUp {
        *request.version_mut() = http::Version::HTTP_10;
    }
    let mut body = app.oneshot(request).await.expect("a response").into_body();
    let mut whole = Vec::new();
    loop {
        match next(&mut body).await {
            Some(Ok(piece)) => whole.extend(piece),
            Some(Err(error)) => return (whole, Some(error.to_string())),
            None => return (whole, None),
        }
    }
}

/// W12: an answer whose outcome could not be recorded never arrives as if it were whole, however
/// its caller would know.
#[tokio::test(start_paused = true)]
async fn w12_a_large_answer_without_a_record_breaks_off() {
    for told in [Told::Chunks, Told::Length, Told::Header, Told::HangUp] {
        let fine = on(|_| Fault::None, small());
        assert_eq!(heard_of(told, &fine).await, (b"largelast".to_vec(), None), "{told:?}");
        let down = |op| if op == Op::Settle { Fault::Fail } else { Fault::None };
        let (whole, error) = heard_of(told, &on(down, small())).await;
        assert!(error.is_some_and(|error| error.contains("not recorded")), "{told:?}");
        assert!(told == Told::Chunks || whole.len() < 9, "{told:?}");
    }
}

/// W12: where the head is the whole answer, the head waits.
#[tokio::test(start_paused = true)]
async fn w12_an_answer_without_a_body_waits_for_its_record() {
    for status in [200, 204, 304] {
        let down = |op| if op == Op::Settle { Fault::Fail } else { Fault::None };
        let length = (status == 200).then_some(0);
        let (app, feed, _) = fed_with(&on(down, small()), length, move |response| {
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            let kind = http::HeaderValue::from_static("text/event-stream");
            response.headers_mut().insert("content-type", kind);
        });
        drop(feed);
        assert_eq!(retried(&app).await.as_deref(), Some("executed_not_recorded"), "{status}");
    }
}

/// X4: who leaves before a large answer has begun does not hold it up either.
#[tokio::test]
async fn x4_who_leaves_before_a_large_answer_begins_holds_nothing_up() {
    let begun = Arc::new(Notify::new());
    let bell = Arc::clone(&begun);
    let door = door().with(small().build().unwrap());
    let (app, feed, taken) = fed_with(&door, None, move |_| bell.notify_one());
    let caller = tokio::spawn(app.clone().oneshot(request("POST", "/", Some("k"), "")));
    begun.notified().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    for _ in 0..20 {
        feed.send(Ok("large")).unwrap();
    }
    while taken.get() < 20 {
        tokio::task::yield_now().await;
    }
    drop(feed);
    while retried(&app).await.as_deref() == Some("in_flight") {
        tokio::task::yield_now().await;
    }
    assert_eq!(retried(&app).await.as_deref(), Some("result_not_kept"));
}

/// X1: a body that always has more keeps neither its thread nor the heartbeat of its claim.
#[tokio::test]
async fn x1_a_body_that_never_pauses_lets_others_live() {
    let is_over = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&is_over);
    let handler = async move || Response::new(Body::from_stream(Ready(Arc::clone(&shared))));
    let door = door().with(small().build().unwrap());
    let app = Router::new().route("/", post(handler)).layer(door.layer());
    drop(begun(&app).await);
    // On the only thread that there is: whoever kept it would never let this be answered.
    assert_eq!(retried(&app).await.as_deref(), Some("in_flight"));
    is_over.store(true, Ordering::SeqCst);
    while retried(&app).await.as_deref() == Some("in_flight") {
        tokio::task::yield_now().await;
    }
}

/// A stream that is ready until it is told to end.
struct Ready(Arc<AtomicBool>);

impl futures_core::Stream for Ready {
    type Item = Result<&'static str, std::io::Error>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready((!self.0.load(Ordering::SeqCst)).then_some(Ok("large")))
    }
}

/// The limit of an execution ends where its answer begins to be carried.
#[tokio::test(start_paused = true)]
async fn a_slow_caller_does_not_run_out_of_the_time_of_the_execution() {
    let limit = Duration::from_secs(30);
    let settings = small().policy(Dialect::ietf().policy().timeout(limit));
    let (app, feed, _) = fed(&door().with(settings.build().unwrap()), None);
    for _ in 0..20 {
        feed.send(Ok("large")).unwrap();
    }
    drop(feed);
    let mut body = begun(&app).await;
    let mut pieces = 0;
    while let Some(piece) = next(&mut body).await {
        assert_eq!(piece.unwrap(), "large");
        pieces += 1;
        sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(pieces, 20);
    let settings = small().policy(Dialect::ietf().policy().timeout(limit));
    let (app, _feed, _) = fed(&door().with(settings.build().unwrap()), None);
    assert_eq!(retried(&app).await.as_deref(), Some("outcome_unknown"), "nothing ever came");
}

/// Trailers come through behind what is carried, and pieces are small enough to be watched.
#[tokio::test]
async fn a_carried_answer_comes_in_small_pieces_and_with_its_trailers() {
    const BYTES: usize = 1_000_000;
    let handler = async || {
        let trailers = http::HeaderMap::from_iter([(
            http::HeaderName::from_static("x-sum"),
            http::HeaderValue::from_static("7"),
        )]);
        let body = http_body_util::Full::new(Bytes::from(vec![b'x'; BYTES]));
        Response::new(Body::new(body.with_trailers(std::future::ready(Some(Ok(trailers))))))
    };
    let door = door().with(small().build().unwrap());
    let app = Router::new().route("/", post(handler)).layer(door.layer());
    let (mut body, mut bytes, mut sum) = (begun(&app).await, 0, None);
    while let Some(frame) = body.frame().await {
        match frame.unwrap().into_data() {
            Ok(data) => {
                assert!(data.len() <= 64 * 1024, "{}", data.len());
                bytes += data.len();
            }
            Err(frame) => sum = frame.into_trailers().ok(),
        }
    }
    assert_eq!((bytes, sum.unwrap()["x-sum"].as_bytes()), (BYTES, &b"7"[..]));
}

/// X3: a status that a route calls unknown is that, and its caller still gets all of it.
#[tokio::test]
async fn x3_a_large_answer_with_an_unknown_status_is_whole() {
    let statuses = Dialect::ietf().statuses.except(&[500], Finality::Unknown);
    let settings = small().policy(Dialect::ietf().policy().statuses(statuses));
    let door = door().with(settings.build().unwrap());
    let (app, feed, _) = fed_with(&door, None, |response| {
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    });
    feed.send(Ok("large")).unwrap();
    drop(feed);
    let response = app.clone().oneshot(request("POST", "/", Some("k"), "")).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "large");
    assert_eq!(retried(&app).await.as_deref(), Some("outcome_unknown"));
}

/// X3: an answer that breaks off on its way to the caller leaves an unknown outcome.
#[tokio::test]
async fn x3_a_large_answer_that_breaks_off_is_unknown() {
    let (app, feed, _) = fed(&door().with(small().build().unwrap()), None);
    feed.send(Ok("large")).unwrap();
    feed.send(Err(std::io::Error::other("reset"))).unwrap();
    let mut body = begun(&app).await;
    assert_eq!(next(&mut body).await.unwrap().unwrap(), "large");
    assert!(next(&mut body).await.unwrap().is_err());
    while retried(&app).await.as_deref() == Some("in_flight") {
        tokio::task::yield_now().await;
    }
    assert_eq!(retried(&app).await.as_deref(), Some("outcome_unknown"));
}

/// An answer that has begun is not cut short because its caller was to be kept a moment only.
#[tokio::test(start_paused = true)]
async fn an_answer_that_has_begun_may_take_longer_than_its_caller_is_kept() {
    let policy = Dialect::ietf().policy().answer_within(Duration::from_secs(1));
    let (app, feed, _) = fed(&door().with(small().policy(policy).build().unwrap()), None);
    feed.send(Ok("large")).unwrap();
    let mut body = begun(&app).await;
    sleep(Duration::from_secs(5)).await;
    feed.send(Ok("last")).unwrap();
    drop(feed);
    assert_eq!(next(&mut body).await.unwrap().unwrap(), "large");
    assert_eq!(next(&mut body).await.unwrap().unwrap(), "last");
    assert!(next(&mut body).await.is_none(), "and ends well");
}

/// X4: a caller who does not read on is left, and what it has never looks whole.
#[tokio::test(start_paused = true)]
async fn x4_a_caller_who_dawdles_holds_nothing_up() {
    let (app, feed, _) = fed(&door().with(small().build().unwrap()), None);
    for _ in 0..20 {
        feed.send(Ok("large")).unwrap();
    }
    drop(feed);
    let mut body = begun(&app).await;
    sleep(Duration::from_secs(61)).await;
    assert_eq!(retried(&app).await.as_deref(), Some("result_not_kept"));
    let error = loop {
        match next(&mut body).await {
            Some(Ok(_)) => {}
            Some(Err(error)) => break error,
            None => panic!("it ended as if it were whole"),
        }
    };
    assert!(error.to_string().contains("unread"), "{error}");
}

/// An answer that nobody hears and that never ends is given up, and says so.
#[tokio::test(start_paused = true)]
async fn an_endless_answer_without_a_caller_ends_as_unknown() {
    let (app, feed, _) = fed(&door().with(small().build().unwrap()), None);
    feed.send(Ok("large")).unwrap();
    drop(begun(&app).await);
    while feed.send(Ok("more")).is_ok() {
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(retried(&app).await.as_deref(), Some("outcome_unknown"));
    let (app, feed, _) = fed(&door().with(small().build().unwrap()), None);
    feed.send(Ok("large")).unwrap();
    let mut body = begun(&app).await;
    assert_eq!(next(&mut body).await.unwrap().unwrap(), "large");
    let error = next(&mut body).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("silent"), "{error}");
}

/// Whoever is only watched gets its whole answer, recorded or not.
#[tokio::test(start_paused = true)]
async fn an_observed_answer_is_whole_whatever_becomes_of_its_record() {
    let down = |op| if op == Op::Settle { Fault::Fail } else { Fault::None };
    let (app, feed, _) = fed(&on(down, small().mode(Mode::Observe)), None);
    for piece in ["large", "last"] {
        feed.send(Ok(piece)).unwrap();
    }
    drop(feed);
    assert_eq!(begun(&app).await.collect().await.unwrap().to_bytes(), "largelast");
}
