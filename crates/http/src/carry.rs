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
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout, timeout_at};

/// An error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Pieces on their way.
const PIECES_MAX: usize = 2;
/// The most bytes of one. Small, because a caller is watched by the piece.
const PIECE_BYTES_MAX: usize = 64 * 1024;
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
    /// The end, and what comes with it: what would make the answer whole by itself.
    End(Option<Frame<Bytes>>, Option<Frame<Bytes>>),
}

/// The end at which an answer is carried.
#[derive(Debug)]
pub(crate) struct Carrier {
    /// Where it goes; `None` once nobody listens.
    to: Option<Sender<Result<Piece, BoxError>>>,
    /// Until when something must come.
    until: Instant,
    /// Bytes that the caller still waits for, where it was told how many there are.
    left: Option<u64>,
    /// Whether the caller takes the last byte for the end, without being told that it is.
    holds_back: bool,
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
    Ending([Option<Frame<Bytes>>; 2]),
    /// It is durable.
    Ended([Option<Frame<Bytes>>; 2]),
    Over,
}

/// Both ends for an answer of this size, as far as it is known. `length` is what the caller was
/// told in so many words; `holds_back`: it takes the last byte for the end either way.
pub(crate) fn carry(size: SizeHint, length: Option<u64>, holds_back: bool) -> (Carrier, Carried) {
    let (to, pieces) = channel(PIECES_MAX);
    let until = Instant::now() + QUIET_MAX;
    let left = length.or_else(|| size.exact());
    let carrier = Carrier { to: Some(to), until, left, holds_back };
    (carrier, Carried { pieces, left: size, settled: None, stage: Stage::Open })
}

impl Carrier {
    /// Carries to nobody.
    pub(crate) fn to_nobody() -> Self {
        Self { to: None, until: Instant::now() + QUIET_MAX, left: None, holds_back: false }
    }

    /// Carries `body` to its end, whether or not anybody listens.
    pub(crate) async fn carry<R>(mut self, body: R) -> Result<(), Cause>
    where
        R: Body<Data = Bytes>,
        R::Error: Into<BoxError>,
    {
        let mut body = pin!(body);
        let mut held = None;
        loop {
            // A body that always has more must not keep its thread, nor outlast its time.
            consume_budget().await;
            let next = timeout_at(self.until, body.frame()).await.ok();
            let next = next.filter(|_| Instant::now() < self.until);
            let Some(next) = next.map(|next| next.map(|frame| frame.map_err(Into::into))) else {
                self.give(Err(BrokenOff::Silent.into())).await;
                return Err(Cause::TimedOut);
            };
            match next {
                Some(Ok(frame)) => held = self.pass(held, frame).await,
                Some(Err(error)) => {
                    self.give(Err(error)).await;
                    return Err(Cause::Reported);
                }
                None => {
                    self.give(Ok(Piece::End(held, None))).await;
                    return Ok(());
                }
            }
        }
    }

    /// Passes on what must not wait, and gives back what must.
    async fn pass(
        &mut self,
        held: Option<Frame<Bytes>>,
        frame: Frame<Bytes>,
    ) -> Option<Frame<Bytes>> {
        let mut data = match frame.into_data() {
            Ok(data) => data,
            // Nothing follows trailers.
            Err(trailers) => {
                self.give(Ok(Piece::End(held, Some(trailers)))).await;
                self.to = None;
                return None;
            }
        };
        if let Some(held) = held {
            self.give(Ok(Piece::Frame(held))).await;
        }
        self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
        while data.len() > PIECE_BYTES_MAX {
            let piece = data.split_to(PIECE_BYTES_MAX);
            self.give(Ok(Piece::Frame(Frame::data(piece)))).await;
        }
        let frame = Frame::data(data);
        if self.holds_back || self.left == Some(0) {
            return Some(frame);
        }
        self.give(Ok(Piece::Frame(frame))).await;
        None
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
                Some(Ok(Piece::End(last, trailers))) => {
                    self.stage = Stage::Ending([last, trailers]);
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(self.broken(error)))),
                None => return Poll::Ready(Some(Err(self.broken(BrokenOff::Left.into())))),
            }
        }
        if let Stage::Ending(last) = &mut self.stage {
            let is_settled = match &mut self.settled {
                Some(settled) => ready!(settled.as_mut().poll(cx)),
                None => false,
            };
            if !is_settled {
                return Poll::Ready(Some(Err(self.broken(BrokenOff::NotRecorded.into()))));
            }
            self.stage = Stage::Ended(std::mem::take(last));
        }
        let Stage::Ended(last) = &mut self.stage else { return Poll::Ready(None) };
        let Some(frame) = last.iter_mut().find_map(Option::take) else {
            self.stage = Stage::Over;
            return Poll::Ready(None);
        };
        Poll::Ready(Some(Ok(self.counted(frame))))
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

    pub(crate) fn is_over(&self) -> bool {
        match &self.stage {
            Stage::Open | Stage::Ending(_) => false,
            Stage::Ended(last) => last.iter().all(Option::is_none),
            Stage::Over => true,
        }
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
