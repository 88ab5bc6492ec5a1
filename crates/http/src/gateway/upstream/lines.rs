//! Connections to an upstream that is spoken to in plain HTTP/1.1, each driven by whoever uses it.
//!
//! A line has no task of its own: the request that took it drives it until its answer has ended,
//! and then lays it on the shelf for the next one. So nothing is handed from task to task, and a
//! request that is dropped takes its line along. Only a request that may still be on its way when
//! its answer comes, because it is large, has a task that goes on with it. Nobody watches a line on
//! the shelf; whoever takes it looks first whether it still holds, and those that nobody takes are
//! closed in time.
//!
//! A request that a line gave back goes to the next one: hyper gives back only what waited in front
//! of a connection, before its first byte was written. Nothing else is ever sent twice.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tower_service::Service;

use super::super::lanes;
use super::super::places::Places;
use super::dial::{Dial, Stream};
use super::{NotSentCause, Place, SendError, SentBody, WITHIN_MAX, sent_cause};

/// How many lines of the shelf may give one request back before a new one is opened for it.
const GIVEN_BACK_MAX: usize = 8;

/// The most bytes of a request that is taken for written when its answer begins. What is left of it
/// all the same is written when the answer has ended.
const SMALL_BYTES_MAX: u64 = 64 * 1024;
/// How many such requests may be written behind their answers at once, and for how long.
const REMAINING_MAX: usize = 256;
const REMAINING_WITHIN: Duration = Duration::from_secs(60);

/// Lanes with a board of their own.
const BOARDS: usize = 64;

/// Lines to one upstream.
pub(super) struct Lines<B: SentBody> {
    dial: Dial,
    base: Uri,
    shelf: Arc<Shelf<B>>,
}

impl<B: SentBody> Lines<B> {
    pub(super) fn new(dial: Dial, base: Uri, idle_max: usize, idle_for: Duration) -> Self {
        let board = |_| Mutex::new(Board { lines: VecDeque::new(), closing: None });
        let (boards, idle) = (std::array::from_fn(board), AtomicUsize::new(0));
        let remaining = Places::new(REMAINING_MAX);
        let shelf = Shelf { boards, idle, remaining, idle_max, idle_for };
        Self { dial, base, shelf: Arc::new(shelf) }
    }

    /// Sends the request in `waiting`, which is in origin form, and gives its answer once it
    /// begins. While there is none in `waiting`, the upstream may have read of it.
    pub(super) async fn send(
        &self,
        waiting: &mut Option<Request<B>>,
        place: Place,
    ) -> Result<Response<Answered<B>>, SendError> {
        for given_back in 0.. {
            let may_be_kept = given_back < GIVEN_BACK_MAX;
            let kept = if may_be_kept { self.kept().await } else { None };
            let (mut line, is_new) = match kept {
                Some(line) => (line, false),
                // Boxed, because it is rare and large.
                None => match Box::pin(self.open()).await {
                    Ok(line) => (line, true),
                    // Another request may be through by now.
                    Err(error) if may_be_kept => (self.kept().await.ok_or(error)?, false),
                    Err(error) => return Err(error),
                },
            };
            let request = waiting.take().expect("invariant: it waits until a line takes it");
            let bytes = request.body().size_hint().exact();
            let is_small = bytes.is_some_and(|bytes| bytes <= SMALL_BYTES_MAX);
            let mut error = match line.ask(request).await {
                Ok(response) => {
                    let home = Arc::clone(&self.shelf);
                    let line = if is_small {
                        Some((line, place))
                    } else {
                        home.go_on(line, WITHIN_MAX, place);
                        None
                    };
                    return Ok(response.map(|incoming| Answered { incoming, line, home }));
                }
                Err(error) => error,
            };
            *waiting = error.take_message();
            if waiting.is_none() {
                return Err(SendError::Unknown { why: sent_cause(error.error()) });
            }
            if is_new {
                break;
            }
        }
        Err(SendError::NotSent { why: NotSentCause::Closed })
    }

    /// A line from the shelf that still holds.
    async fn kept(&self) -> Option<Box<Line<B>>> {
        loop {
            let mut line = self.shelf.take()?;
            if poll_fn(|cx| Poll::Ready(line.is_free(cx))).await {
                return Some(line);
            }
        }
    }

    async fn open(&self) -> Result<Box<Line<B>>, SendError> {
        let mut dial = self.dial.clone();
        let dialled = match poll_fn(|cx| dial.poll_ready(cx)).await {
            Ok(()) => dial.call(self.base.clone()).await,
            Err(error) => Err(error),
        };
        let stream = dialled.map_err(|error| SendError::NotSent { why: error.0 })?;
        let closed = |_| SendError::NotSent { why: NotSentCause::Closed };
        let (sender, connection) = http1::handshake(stream).await.map_err(closed)?;
        Ok(Box::new(Line { sender, connection: Some(connection), since: Instant::now() }))
    }
}

/// One connection, with at most one request on it.
struct Line<B: SentBody> {
    sender: SendRequest<B>,
    /// Gone once it has ended: what still waited in front of it is given back when it goes.
    connection: Option<Connection<Stream, B>>,
    /// When it was laid on the shelf.
    since: Instant,
}

impl<B: SentBody> Line<B> {
    /// Whether another request can be sent.
    fn is_free(&mut self, cx: &mut Context<'_>) -> bool {
        drive(&mut self.connection, cx);
        self.connection.is_some() && self.sender.is_ready()
    }

    fn ask(&mut self, request: Request<B>) -> Asking<'_, B, impl Future<Output = Asked<B>>> {
        let answer = self.sender.try_send_request(request);
        Asking { answer, connection: &mut self.connection }
    }
}

/// What became of a request; it is given back if nothing of it was written.
type Asked<B> = Result<Response<Incoming>, TrySendError<Request<B>>>;

pin_project! {
    /// A request on its line. By hand, because an async function would hold the request twice.
    struct Asking<'l, B, F>
    where
        B: SentBody,
    {
        #[pin]
        answer: F,
        connection: &'l mut Option<Connection<Stream, B>>,
    }
}

impl<B: SentBody, F: Future<Output = Asked<B>>> Future for Asking<'_, B, F> {
    type Output = Asked<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Asked<B>> {
        let this = self.project();
        drive(this.connection, cx);
        this.answer.poll(cx)
    }
}

/// Writes what there is to write and reads what there is to read. Whoever asked hears from the
/// request itself why a connection has ended.
fn drive<B: SentBody>(connection: &mut Option<Connection<Stream, B>>, cx: &mut Context<'_>) {
    if let Some(open) = connection
        && Pin::new(open).poll(cx).is_ready()
    {
        *connection = None;
    }
}

/// Lines that wait for their next request.
struct Shelf<B: SentBody> {
    /// One for each lane, so that a line stays on the thread that it was opened on; the first for
    /// whatever is no lane. Lanes beyond their number share them: it works, and costs a little.
    boards: [Mutex<Board<B>>; BOARDS],
    /// Lines on all of them.
    idle: AtomicUsize,
    /// For lines whose small requests are still being written, although they are answered.
    remaining: Places,
    idle_max: usize,
    idle_for: Duration,
}

struct Board<B: SentBody> {
    /// The one that was laid down last is last, and taken first: it is the most likely to hold.
    lines: VecDeque<Box<Line<B>>>,
    /// The task that closes what nobody takes, as long as there is anything.
    closing: Option<AbortHandle>,
}

impl<B: SentBody> Shelf<B> {
    /// That of the lane that this runs on.
    fn own(&self) -> MutexGuard<'_, Board<B>> {
        let board = &self.boards[lanes::number() % BOARDS];
        board.lock().expect("invariant: no panic under the lock")
    }

    fn take(&self) -> Option<Box<Line<B>>> {
        let line = self.own().lines.pop_back()?;
        self.idle.fetch_sub(1, Ordering::AcqRel);
        // Closed by us a moment before the upstream would: see `UpstreamOptions::idle_for`.
        (line.since.elapsed() < self.idle_for).then_some(line)
    }

    /// Drives a line until its request and its answer are through, in a task that ends with them or
    /// with its limit, and then lays it down. Until then it holds what came `along`.
    fn go_on(
        self: &Arc<Self>,
        mut line: Box<Line<B>>,
        within: Duration,
        along: impl Send + 'static,
    ) {
        let Ok(runtime) = Handle::try_current() else { return };
        let home = Arc::downgrade(self);
        drop(runtime.spawn(async move {
            let through = poll_fn(|cx| match line.is_free(cx) {
                true => Poll::Ready(true),
                false if line.connection.is_none() => Poll::Ready(false),
                false => Poll::Pending,
            });
            let is_free = timeout(within, through).await.unwrap_or(false);
            drop(along);
            if let Some(home) = home.upgrade().filter(|_| is_free) {
                home.lay(line);
            }
        }));
    }

    /// Keeps a line whose answer has ended, if it can be used again and there is room.
    fn lay(self: &Arc<Self>, mut line: Box<Line<B>>) {
        // Nobody waits for it any more, so nobody need be woken.
        if !line.is_free(&mut Context::from_waker(Waker::noop())) {
            let remains = line.connection.is_some().then(|| self.remaining.take()).flatten();
            if let Some(remains) = remains {
                self.go_on(line, REMAINING_WITHIN, remains);
            }
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        if self.idle.fetch_add(1, Ordering::AcqRel) >= self.idle_max {
            self.idle.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        line.since = Instant::now();
        let mut board = self.own();
        board.lines.push_back(line);
        // That of a runtime that has ended closes nothing any more.
        if board.closing.as_ref().is_none_or(AbortHandle::is_finished) {
            let task = runtime.spawn(close_idle(Arc::downgrade(self), self.idle_for));
            board.closing = Some(task.abort_handle());
        }
    }

    /// Takes the lines of this lane that nobody took in time; says when to look again, if there are
    /// more.
    #[allow(clippy::vec_box, reason = "they are boxed already, and only pass through")]
    fn overdue(&self, now: Instant) -> (Vec<Box<Line<B>>>, Option<Instant>) {
        let mut board = self.own();
        let fresh = board.lines.partition_point(|line| line.since + self.idle_for <= now);
        let gone: Vec<_> = board.lines.drain(..fresh).collect();
        let next = board.lines.front().map(|line| line.since + self.idle_for);
        if next.is_none() {
            board.closing = None;
        }
        self.idle.fetch_sub(gone.len(), Ordering::AcqRel);
        (gone, next)
    }
}

async fn close_idle<B: SentBody>(shelf: Weak<Shelf<B>>, idle_for: Duration) {
    let mut next = Instant::now() + idle_for;
    loop {
        tokio::time::sleep_until(next).await;
        let Some(shelf) = shelf.upgrade() else { return };
        // Closed here, and not under the lock.
        match shelf.overdue(Instant::now()) {
            (_gone, Some(later)) => next = later,
            (_gone, None) => return,
        }
    }
}

impl<B: SentBody> Drop for Shelf<B> {
    fn drop(&mut self) {
        for board in &mut self.boards {
            if let Some(closing) = board.get_mut().ok().and_then(|board| board.closing.take()) {
                closing.abort();
            }
        }
    }
}

/// The body of an answer, which drives the line that it comes over and lays it back at its end.
pub(super) struct Answered<B: SentBody> {
    incoming: Incoming,
    /// And the place of its request. `None` once it was laid back, or where a task drives it.
    line: Option<(Box<Line<B>>, Place)>,
    home: Arc<Shelf<B>>,
}

impl<B: SentBody> Answered<B> {
    fn lay_back(&mut self) {
        if let Some((line, _place)) = self.line.take() {
            self.home.lay(line);
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut polled = Pin::new(&mut self.incoming).poll_frame(cx);
        if let (Poll::Pending, Some((line, _))) = (&polled, &mut self.line) {
            drive(&mut line.connection, cx);
            polled = Pin::new(&mut self.incoming).poll_frame(cx);
        }
        // Nothing comes behind trailers.
        let is_over = match &polled {
            Poll::Ready(Some(Ok(frame))) => frame.is_trailers(),
            Poll::Ready(None) => true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => false,
        };
        if is_over {
            self.lay_back();
        }
        polled
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl<B: SentBody> Drop for Answered<B> {
    fn drop(&mut self) {
        // One that was not read to its end is worth nothing to anybody else.
        if self.incoming.is_end_stream() {
            self.lay_back();
        }
    }
}
