//! One execution: the handler is called, and what it returned becomes a report and a response.
//!
//! The report is what is remembered; the response is for the caller of this very attempt, who alone
//! gets what is never kept: cookies, credentials, streams. The response is laid down before the
//! report is made, so that it is at hand once the report is durable. One that is too large to be
//! kept is on its way to the caller meanwhile, and its end waits (`carry.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version, header};
use http_body::Body;
use onetake_core::{Cause, Header, Outcome, Report, Status};
use tokio::time::timeout;

use crate::body::DoorBody;
use crate::carry::{BoxError, Carrier, carry};
use crate::hops::{self, OF_ONE_CONNECTION};
use crate::read::{Read, read};

/// What a handler came to.
#[derive(Debug)]
pub(crate) enum Ended<R, E> {
    /// It responded.
    Responded(Response<R>),
    /// It failed without a response; the policy says what becomes of that.
    Failed(E),
    /// Nothing was sent, so nothing can have happened. The response is for this caller only.
    #[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "only a gateway can tell"))]
    NotSent(Response<Bytes>),
    /// It was sent, and nobody can say what came of it. The response is for this caller only.
    #[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "only a gateway can tell"))]
    Unknown(Response<Bytes>),
}

/// What the caller of an execution gets.
pub(crate) type Live<R, E> = Result<Response<DoorBody<R>>, E>;

/// Where an execution says that it has begun, and lays down what its caller gets.
#[derive(Debug)]
pub(crate) struct Place<R, E>(Arc<Laid<R, E>>);

#[derive(Debug)]
struct Laid<R, E> {
    is_begun: AtomicBool,
    /// Whether the end of an answer of unknown length is told by the end of its connection.
    ends_by_hanging_up: bool,
    live: Mutex<Found<R, E>>,
}

/// What lies there, and who looks for it.
#[derive(Debug)]
struct Found<R, E> {
    live: Option<Live<R, E>>,
    /// Whether it is for the caller to have at once.
    is_answering: bool,
    /// Whether nobody comes for it any more.
    is_left: bool,
    waker: Option<Waker>,
}

impl<R, E> Clone for Place<R, E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R, E> Place<R, E> {
    /// A place for the answer to a request of this version.
    pub(crate) fn new(version: Version) -> Self {
        let found = Found { live: None, is_answering: false, is_left: false, waker: None };
        let (is_begun, live) = (AtomicBool::new(false), Mutex::new(found));
        Self(Arc::new(Laid { is_begun, ends_by_hanging_up: version < Version::HTTP_11, live }))
    }

    /// Says that the handler is about to be called.
    pub(crate) fn begin(&self) {
        self.0.is_begun.store(true, Ordering::SeqCst);
    }

    /// Whether the handler was called, whatever came of it.
    pub(crate) fn is_begun(&self) -> bool {
        self.0.is_begun.load(Ordering::SeqCst)
    }

    fn found(&self) -> MutexGuard<'_, Found<R, E>> {
        self.0.live.lock().expect("invariant: no panic under the lock")
    }

    fn lay(&self, live: Live<R, E>) {
        self.found().live = Some(live);
    }

    /// Lays down what the caller gets at once, although its execution goes on.
    fn lay_at_once(&self, live: Live<R, E>) {
        let mut found = self.found();
        if found.is_left {
            return;
        }
        found.live = Some(live);
        found.is_answering = true;
        let waker = found.waker.take();
        drop(found);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits until the caller is to be answered although the execution goes on.
    pub(crate) fn poll_answering(&self, cx: &Context<'_>) -> Poll<()> {
        let mut found = self.found();
        if found.is_answering {
            return Poll::Ready(());
        }
        if !found.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            found.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    pub(crate) fn take(&self) -> Option<Live<R, E>> {
        self.found().live.take()
    }

    /// Says that nobody comes any more, so that nothing waits here to be taken.
    pub(crate) fn leave(&self) {
        let mut found = self.found();
        found.is_left = true;
        drop(found.live.take());
    }
}

/// The seat of a caller who may come for what is laid down. Whoever goes away, however, leaves it.
#[derive(Debug)]
pub(crate) struct Seat<R, E>(pub(crate) Place<R, E>);

impl<R, E> Drop for Seat<R, E> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Whether a caller is being answered although its execution goes on.
pub(crate) trait Answering: Send + Sync {
    fn is_answering(&self) -> bool;
}

impl<R: Send, E: Send> Answering for Laid<R, E> {
    fn is_answering(&self) -> bool {
        self.live.lock().expect("invariant: no panic under the lock").is_answering
    }
}

impl<R: Send + 'static, E: Send + 'static> Place<R, E> {
    /// Where to look whether the caller is being answered.
    pub(crate) fn answering(&self) -> Arc<dyn Answering> {
        Arc::clone(&self.0) as Arc<dyn Answering>
    }
}

/// Turns what a handler came to into a report, and lays down what its caller gets.
///
/// `limit` covers everything up to the last byte that is kept; what is carried to its caller has
/// limits of its own.
pub(crate) async fn report<R, E>(
    call: impl Future<Output = Ended<R, E>>,
    limit: Option<Duration>,
    bytes_max: usize,
    at: &Place<R, E>,
) -> Report
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    // Made where it is awaited, and what is rare is boxed: every execution has room for all this.
    let made = match limit {
        None => made(call, bytes_max, at).await,
        Some(limit) => match timeout(limit, made(call, bytes_max, at)).await {
            Ok(made) => made,
            Err(_) => return Report::Unknown(Cause::TimedOut),
        },
    };
    match made {
        Made::Report(report) => report,
        Made::Rest(parts, body) => Box::pin(carried(parts, body, at)).await,
    }
}

/// What a handler came to, as far as it is kept.
enum Made<R> {
    Report(Report),
    /// A response that is not kept, on its way.
    Rest(Parts, DoorBody<R>),
}

async fn made<R, E>(
    call: impl Future<Output = Ended<R, E>>,
    bytes_max: usize,
    at: &Place<R, E>,
) -> Made<R>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    let ours = |response: Response<Bytes>| Ok(response.map(DoorBody::whole));
    Made::Report(match call.await {
        Ended::Responded(response) => return responded(response, bytes_max, at).await,
        Ended::Failed(error) => {
            at.lay(Err(error));
            Report::Finished(Outcome::Failure(Bytes::new()))
        }
        Ended::NotSent(response) => {
            let shared = outcome_of(response.status(), response.headers(), response.body());
            at.lay(ours(response));
            Report::NotDispatched(shared)
        }
        Ended::Unknown(response) => {
            at.lay(ours(response));
            Report::Unknown(Cause::Reported)
        }
    })
}

/// What a response that was read whole is as an outcome. A status that does not exist can be passed
/// on and not kept.
pub(crate) fn outcome_of(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> Outcome {
    let Some(status) = Status::new(status.as_u16()) else {
        return Outcome::NotKept { status: None };
    };
    // One copy for all of it. A piece of a connection's buffer would keep that in memory.
    let kept = kept(headers);
    let values = kept.iter().map(|(_, value)| value.len());
    let mut all = BytesMut::with_capacity(values.sum::<usize>() + body.len());
    for (_, value) in &kept {
        all.extend_from_slice(value.as_bytes());
    }
    all.extend_from_slice(body);
    let mut rest = all.freeze();
    let header = |(name, value): &(&HeaderName, &HeaderValue)| Header {
        name: name.as_str().into(),
        value: rest.split_to(value.len()),
    };
    let headers = kept.iter().map(header).collect();
    Outcome::Response { status, headers, body: rest }
}

async fn responded<R, E>(response: Response<R>, bytes_max: usize, at: &Place<R, E>) -> Made<R>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    let (parts, body) = response.into_parts();
    let status = Status::new(parts.status.as_u16());
    let is_kept = status.is_some() && !is_stream(&parts.headers);
    if !is_kept && !is_all(parts.status, &body) {
        return Made::Rest(parts, DoorBody::passed(body));
    }
    let (outcome, body) = match read(body, bytes_max).await {
        (Read::Whole, body) => {
            let body = body.into_bytes();
            (outcome_of(parts.status, &parts.headers, &body), DoorBody::whole(body))
        }
        // Nobody keeps trailers.
        (Read::WithTrailers, body) => (Outcome::NotKept { status }, body.into_body()),
        // The handler broke off inside its own answer. Whatever it had done, it has done.
        (Read::Broken, _) => return Made::Report(Report::Unknown(Cause::Reported)),
        (Read::TooLarge | Read::NoRoom, body) => return Made::Rest(parts, body.into_body()),
    };
    at.lay(Ok(Response::from_parts(parts, body)));
    Made::Report(Report::Finished(outcome))
}

/// Carries a response to its caller that is not kept.
async fn carried<R, E>(parts: Parts, body: DoorBody<R>, at: &Place<R, E>) -> Report
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    let status = Status::new(parts.status.as_u16());
    // What belongs to the answer is held as long as it is on its way, whoever listens.
    let _held = parts.extensions.clone();
    // Where the head is the whole answer it waits for the record, and the rest is nobody's.
    let carried = if is_bodiless(parts.status) {
        let carried = Carrier::to_nobody().carry(body).await;
        at.lay(Ok(Response::from_parts(parts, DoorBody::whole(Bytes::new()))));
        carried
    } else {
        let length = parts.headers.get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok());
        let length = length.and_then(|length| length.trim().parse().ok());
        let (from, to) = carry(body.size_hint(), length, at.0.ends_by_hanging_up);
        at.lay_at_once(Ok(Response::from_parts(parts, DoorBody::carried(to))));
        from.carry(body).await
    };
    match carried {
        Ok(()) => Report::Finished(Outcome::NotKept { status }),
        Err(cause) => Report::Unknown(cause),
    }
}

/// Whether a response has nothing behind its head, by its status.
const fn is_bodiless(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Whether the head of a response is all of it.
fn is_all(status: StatusCode, body: &impl Body) -> bool {
    is_bodiless(status) || body.is_end_stream() || body.size_hint().exact() == Some(0)
}

/// Whether `headers` announce a response without a foreseeable end.
pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("text/event-stream"))
}

/// The headers that are kept: neither those of one connection, nor what belongs to one caller, nor
/// what is computed anew.
fn kept(headers: &HeaderMap) -> Vec<(&HeaderName, &HeaderValue)> {
    let named = hops::named(headers);
    let is_kept = |name: &HeaderName| {
        !named.contains(name) && !OF_ONE_CONNECTION.contains(name) && !OF_ONE_CALLER.contains(name)
    };
    headers.iter().filter(|(name, _)| is_kept(name)).collect()
}

/// What belongs to one caller, and the length, which is computed anew.
static OF_ONE_CALLER: [HeaderName; 6] = [
    header::SET_COOKIE,
    HeaderName::from_static("set-cookie2"),
    header::AUTHORIZATION,
    header::WWW_AUTHENTICATE,
    HeaderName::from_static("authentication-info"),
    header::CONTENT_LENGTH,
];

#[cfg(test)]
mod tests {
    use std::future::{poll_fn, ready};

    use http::HeaderValue;
    use http_body_util::{BodyExt, Collected, Full};

    use super::*;

    type Frames = Vec<Result<http_body::Frame<Bytes>, std::io::Error>>;

    struct Stream(std::vec::IntoIter<Result<http_body::Frame<Bytes>, std::io::Error>>);

    impl Body for Stream {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
            std::task::Poll::Ready(self.0.next())
        }
    }

    async fn reported(frames: Frames, bytes_max: usize) -> (Report, Option<Bytes>) {
        let place = Place::<Stream, ()>::new(Version::HTTP_11);
        let (laid, response) = (place.clone(), Response::new(Stream(frames.into_iter())));
        let mut reporting = tokio::spawn(async move {
            report(ready(Ended::Responded(response)), None, bytes_max, &laid).await
        });
        let reported = tokio::select! {
            reported = &mut reporting => Some(reported.unwrap()),
            () = poll_fn(|cx| place.poll_answering(cx)) => None,
        };
        let body = match place.take() {
            Some(Ok(response)) => {
                let body = response.into_body().ending(|| Box::pin(ready(true)));
                body.collect().await.ok().map(Collected::to_bytes)
            }
            Some(Err(())) | None => None,
        };
        let report = match reported {
            Some(reported) => reported,
            None => reporting.await.unwrap(),
        };
        (report, body)
    }

    #[allow(clippy::unnecessary_wraps, reason = "other frames are errors")]
    fn data(text: &'static str) -> Result<http_body::Frame<Bytes>, std::io::Error> {
        Ok(http_body::Frame::data(Bytes::from_static(text.as_bytes())))
    }

    #[tokio::test]
    async fn a_response_is_kept_whole_or_not_at_all_and_its_caller_always_gets_it() {
        let (report, body) = reported(vec![data("a"), data("b"), data("c")], 3).await;
        let Report::Finished(Outcome::Response { body: kept, .. }) = report else { panic!() };
        assert_eq!((kept, body), ("abc".into(), Some("abc".into())));
        let (report, body) = reported(vec![data("ab"), data("cd"), data("ef")], 3).await;
        let status = Status::new(200);
        assert_eq!(report, Report::Finished(Outcome::NotKept { status }));
        assert_eq!(body, Some("abcdef".into()));
        let trailers = Ok(http_body::Frame::trailers(HeaderMap::new()));
        let (report, body) = reported(vec![data("ab"), trailers], 3).await;
        assert_eq!(report, Report::Finished(Outcome::NotKept { status }));
        assert_eq!(body, Some("ab".into()));
    }

    /// What is kept is a few bytes of its own, not a window into the buffer of a connection.
    #[tokio::test]
    async fn a_kept_body_holds_no_more_memory_than_it_says() {
        let buffer = Bytes::from(vec![b'x'; 16 * 1024]);
        let piece = buffer.slice(..3);
        let (report, body) = reported(vec![Ok(http_body::Frame::data(piece.clone()))], 100).await;
        let Report::Finished(Outcome::Response { body: kept, .. }) = report else { panic!() };
        assert_eq!((&kept, body.as_ref()), (&piece, Some(&piece)));
        assert_ne!(kept.as_ptr(), piece.as_ptr());
    }

    /// X3: an answer that breaks off in its middle says nothing about what was done.
    #[tokio::test]
    async fn x3_a_response_that_breaks_off_is_an_unknown_outcome() {
        let broken = Err(std::io::Error::other("reset"));
        let (report, body) = reported(vec![data("ab"), broken], 100).await;
        assert_eq!((report, body), (Report::Unknown(Cause::Reported), None));
    }

    /// W3: everything but cookies, credentials and what belongs to one connection.
    #[test]
    fn w3_cookies_credentials_and_hops_are_never_kept() {
        let keeps = ["content-type", "date", "etag", "location", "vary", "x-own"];
        let drops = [
            "set-cookie",
            "set-cookie2",
            "authorization",
            "www-authenticate",
            "authentication-info",
            "content-length",
            "keep-alive",
            "proxy-connection",
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-authentication-info",
            "http2-settings",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "x-hop",
        ];
        let mut headers = HeaderMap::new();
        for name in keeps.into_iter().chain(drops) {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        headers.insert("connection", HeaderValue::from_static("close, X-Hop"));
        let mut names: Vec<_> = kept(&headers).iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, keeps);
    }

    #[tokio::test]
    async fn an_event_stream_is_never_read_ahead() {
        let place = Place::<Full<Bytes>, ()>::new(Version::HTTP_11);
        let mut response = Response::new(Full::new(Bytes::from("data: 1\n\n")));
        let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        let _reporting = tokio::spawn({
            let place = place.clone();
            async move { report(ready(Ended::Responded(response)), None, 100, &place).await }
        });
        poll_fn(|cx| place.poll_answering(cx)).await;
        assert!(place.take().is_some_and(|live| live.is_ok()));
    }
}
