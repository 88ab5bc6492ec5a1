//! An answer that is too large to be kept, or has no foreseeable end, on its way to its caller.
//!
//! The execution carries it, piece by piece, so a caller who leaves or dawdles takes nothing with
//! them: the rest is read and dropped. Whatever ends the answer, its last piece or its end, is held
//! back until the outcome is durable, so whoever has a whole answer can rely on it; any other end
//! breaks the answer off. Nothing is gathered here: at most a few pieces are on their way.

use std::fmt;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use onetake_core::Cause;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, timeout, timeout_at};

/// An error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Pieces on their way.
const PIECES_MAX: usize = 2;
/// How long an answer may be silent, and how long it may still take once nobody listens.
const QUIET_MAX: Duration = Duration::from_secs(300);
/// How long a caller may leave a piece unread.
const UNREAD_MAX: Duration = Duration::from_secs(60);

/// Says whether the outcome is durable, once it is known.
pub(crate) type Settled = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Why an answer that had begun breaks off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum BrokenOff {
    #[error("the answer was left unread, or its execution was given up")]
    Left,
    #[error("the answer was silent for too long")]
    Silent,
    #[error("the outcome of this request is not recorded; come back with the same key")]
    NotRecorded,
}

enum Piece {
    /// More follows.
    Frame(Frame<Bytes>),
    /// Nothing follows.
    Last(Frame<Bytes>),
    /// The end, where no piece was known to be the last.
    End,
}

/// The end at which an answer is carried.
#[derive(Debug)]
pub(crate) struct Carrier {
    /// Where it goes; `None` once nobody listens.
    to: Option<Sender<Result<Piece, BoxError>>>,
    /// Until when something must come.
    until: Instant,
}

/// The end at which an answer arrives.
pub(crate) struct Carried {
    pieces: Receiver<Result<Piece, BoxError>>,
    left: SizeHint,
    settled: Option<Settled>,
    stage: Stage,
}

enum Stage {
    /// Pieces arrive.
    Open,
    /// This is all, once the outcome is durable.
    Ending(Option<Frame<Bytes>>),
    Over,
}

/// Both ends for an answer of this size, as far as it is known.
pub(crate) fn carry(size: SizeHint) -> (Carrier, Carried) {
    let (to, pieces) = channel(PIECES_MAX);
    let carrier = Carrier { to: Some(to), until: Instant::now() + QUIET_MAX };
    (carrier, Carried { pieces, left: size, settled: None, stage: Stage::Open })
}

impl Carrier {
    /// Carries `body` to its end, whether or not anybody listens.
    pub(crate) async fn carry<R>(mut self, body: R) -> Result<(), Cause>
    where
        R: Body<Data = Bytes>,
        R::Error: Into<BoxError>,
    {
        let mut body = pin!(body);
        loop {
            let next = timeout_at(self.until, body.frame()).await;
            let Ok(next) = next.map(|next| next.map(|frame| frame.map_err(Into::into))) else {
                self.give(Err(BrokenOff::Silent.into())).await;
                return Err(Cause::TimedOut);
            };
            let is_last = body.is_end_stream() || body.size_hint().exact() == Some(0);
            match next {
                Some(Ok(frame)) if is_last => self.give(Ok(Piece::Last(frame))).await,
                Some(Ok(frame)) => self.give(Ok(Piece::Frame(frame))).await,
                Some(Err(error)) => {
                    self.give(Err(error)).await;
                    return Err(Cause::Reported);
                }
                None => {
                    self.give(Ok(Piece::End)).await;
                    return Ok(());
                }
            }
        }
    }

    async fn give(&mut self, piece: Result<Piece, BoxError>) {
        let Some(to) = &self.to else { return };
        let is_taken = matches!(timeout(UNREAD_MAX, to.send(piece)).await, Ok(Ok(())));
        self.until = Instant::now() + QUIET_MAX;
        if !is_taken {
            self.to = None;
        }
    }
}

impl Carried {
    /// Ends only once `settled` has said so.
    pub(crate) fn wait_for(&mut self, settled: Settled) {
        self.settled = Some(settled);
    }

    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if matches!(self.stage, Stage::Open) {
            match ready!(self.pieces.poll_recv(cx)) {
                Some(Ok(Piece::Frame(frame))) => return Poll::Ready(Some(Ok(self.counted(frame)))),
                Some(Ok(Piece::Last(frame))) => self.stage = Stage::Ending(Some(frame)),
                Some(Ok(Piece::End)) => self.stage = Stage::Ending(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(self.broken(error)))),
                None => return Poll::Ready(Some(Err(self.broken(BrokenOff::Left.into())))),
            }
        }
        let Stage::Ending(last) = &mut self.stage else { return Poll::Ready(None) };
        let is_settled = match &mut self.settled {
            Some(settled) => ready!(settled.as_mut().poll(cx)),
            None => false,
        };
        if !is_settled {
            return Poll::Ready(Some(Err(self.broken(BrokenOff::NotRecorded.into()))));
        }
        let last = last.take();
        self.stage = Stage::Over;
        Poll::Ready(last.map(|frame| Ok(self.counted(frame))))
    }

    fn broken(&mut self, error: BoxError) -> BoxError {
        self.stage = Stage::Over;
        error
    }

    fn counted(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        let mut left = SizeHint::new();
        left.set_lower(self.left.lower().saturating_sub(bytes));
        if let Some(upper) = self.left.upper() {
            left.set_upper(upper.saturating_sub(bytes));
        }
        self.left = left;
        frame
    }

    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    pub(crate) const fn size(&self) -> SizeHint {
        self.left
    }
}

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carried").field("left", &self.left).finish_non_exhaustive()
    }
}
