//! An answer that is passed on as it comes: its body is never gathered and never stored.
//!
//! The execution carries it, piece by piece, so that its end is recorded whoever reads it. A reader
//! who goes away ends it: the provider's connection is closed, and the record says "abandoned". A
//! reader hears of the end only once it is recorded.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::call::{HttpResult, kept};
use super::failure::{HttpFailure, StreamEnd};
use super::send::Opened;
use super::settings::HttpSettings;
use crate::error::ExecuteError;
use crate::reply::Take;

/// Pieces on their way, each as large as one read of the connection.
const PIECES_MAX: usize = 2;

/// What the call of a stream comes to, once that is recorded.
pub(super) type Recorded =
    Pin<Box<dyn Future<Output = Result<Take<HttpResult>, ExecuteError<HttpFailure>>> + Send>>;

/// The reader's half of a stream, before it is told how the end is recorded.
#[derive(Debug)]
pub(super) struct Begun {
    status: u16,
    headers: Vec<(String, String)>,
    pieces: mpsc::Receiver<Bytes>,
}

/// Why a stream has no further piece although it is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// It broke off, was silent for too long, or lasted too long. That is recorded, and the next
    /// call under the same identity is made again.
    #[error("the stream broke off")]
    BrokenOff,
    /// It was left unread for too long. That is recorded, and the next call under the same identity
    /// is made again.
    #[error("the stream was left unread for too long")]
    Unread,
    /// How it ended could not be recorded. What was read of it is not to be relied on.
    #[error("the end of the stream is not recorded")]
    NotRecorded,
}

/// An answer that comes piece by piece. Dropping it ends the call, which is recorded as abandoned.
pub struct HttpStream {
    status: u16,
    headers: Vec<(String, String)>,
    pieces: mpsc::Receiver<Bytes>,
    /// `None` once the end was told.
    recorded: Option<Recorded>,
}

impl fmt::Debug for HttpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpStream").field("status", &self.status).finish_non_exhaustive()
    }
}

impl HttpStream {
    pub(super) fn new(begun: Begun, recorded: Recorded) -> Self {
        let Begun { status, headers, pieces } = begun;
        Self { status, headers, pieces, recorded: Some(recorded) }
    }

    /// The status, which is one of success.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// Names, in small letters, and values.
    #[must_use]
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// The next piece. `None` once the stream is complete and that is recorded.
    ///
    /// # Errors
    /// A [`StreamError`] when it ended any other way; afterwards there is nothing more.
    ///
    /// # Cancel safety
    /// Dropping the future loses no piece.
    pub async fn next(&mut self) -> Option<Result<Bytes, StreamError>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`next`](Self::next) for those who poll.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        if let Some(piece) = ready!(self.pieces.poll_recv(cx)) {
            return Poll::Ready(Some(Ok(piece)));
        }
        let Some(recorded) = &mut self.recorded else { return Poll::Ready(None) };
        let ended = ready!(recorded.as_mut().poll(cx));
        self.recorded = None;
        let error = match ended {
            Err(ExecuteError::Failed { failure: HttpFailure::Streamed { ended, .. }, .. }) => {
                match ended {
                    StreamEnd::Complete => return Poll::Ready(None),
                    StreamEnd::BrokenOff => StreamError::BrokenOff,
                    StreamEnd::Abandoned => StreamError::Unread,
                }
            }
            Ok(_) | Err(_) => StreamError::NotRecorded,
        };
        Poll::Ready(Some(Err(error)))
    }
}

/// Passes an answer on until it ends, and says how it did.
pub(super) async fn pass(
    opened: Opened,
    to: oneshot::Sender<Begun>,
    settings: &HttpSettings,
) -> StreamEnd {
    let (head, mut body) = opened.response.into_parts();
    let (reader, pieces) = mpsc::channel(PIECES_MAX);
    let (status, headers) = (head.status.as_u16(), kept(&head.headers));
    if to.send(Begun { status, headers, pieces }).is_err() {
        return StreamEnd::Abandoned;
    }
    let end = Instant::now() + settings.stream_within;
    let until = || end.min(Instant::now() + settings.quiet_max);
    loop {
        let next = tokio::select! {
            biased;
            () = reader.closed() => return StreamEnd::Abandoned,
            next = timeout_at(until(), body.frame()) => next,
        };
        let data = match next {
            Ok(None) => return StreamEnd::Complete,
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            Ok(Some(Err(_))) | Err(_) => return StreamEnd::BrokenOff,
        };
        if data.is_empty() {
            continue;
        }
        // A stream that always has more must not outlast its time.
        if Instant::now() >= end {
            return StreamEnd::BrokenOff;
        }
        if !matches!(timeout_at(until(), reader.send(data)).await, Ok(Ok(()))) {
            return StreamEnd::Abandoned;
        }
    }
}
