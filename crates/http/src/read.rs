//! Reading a body whole, within its bounds, without losing what was read when it passes them.
//!
//! Whoever cannot have all of it can still give it on: what was read, and then the rest. Nothing
//! here waits for longer than its caller does, or knows what a body is for.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;

use crate::body::DoorBody;

/// How far a body was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// To its end.
    Whole,
    /// To its end, and there are trailers.
    WithTrailers,
    /// Not to its end: it is too large.
    TooLarge,
    /// Not to its end: there is no room for it.
    NoRoom,
    /// It failed on the way.
    Broken,
}

/// A body that is being read.
pub(crate) struct Reading<B> {
    /// `None` once there is no more.
    rest: Option<Pin<Box<B>>>,
    /// Most bodies are one piece, which need not be copied.
    first: Bytes,
    /// Everything, if there is more than one.
    all: BytesMut,
    /// They are rare, and every request has room for this.
    trailers: Option<Box<HeaderMap>>,
    bytes_max: usize,
    is_broken: bool,
}

impl<B: Body<Data = Bytes>> Reading<B> {
    pub(crate) fn new(body: B, bytes_max: usize) -> Self {
        let (first, all, trailers) = (Bytes::new(), BytesMut::new(), None);
        Self { rest: Some(Box::pin(body)), first, all, trailers, bytes_max, is_broken: false }
    }

    /// Reads what is there already, but not much more than `most` bytes; `None`: that is not all.
    pub(crate) async fn at_once(&mut self, most: usize) -> Option<Read> {
        poll_fn(|cx| {
            Poll::Ready(match self.poll(cx, |bytes| bytes <= most) {
                Poll::Ready(Read::NoRoom) | Poll::Pending => None,
                Poll::Ready(read) => Some(read),
            })
        })
        .await
    }

    /// Reads on, as long as there is room for so many bytes in all.
    pub(crate) async fn on(&mut self, mut has_room: impl FnMut(usize) -> bool) -> Read {
        if !has_room(self.len()) {
            return Read::NoRoom;
        }
        poll_fn(|cx| self.poll(cx, &mut has_room)).await
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut has_room: impl FnMut(usize) -> bool,
    ) -> Poll<Read> {
        while let Some(rest) = &mut self.rest {
            let Some(frame) = ready!(rest.as_mut().poll_frame(cx)) else { break };
            let Ok(frame) = frame else {
                self.is_broken = true;
                break;
            };
            match frame.into_data() {
                Ok(piece) if self.first.is_empty() => self.first = piece,
                Ok(piece) => {
                    if self.all.is_empty() {
                        self.all.extend_from_slice(&self.first);
                    }
                    self.all.extend_from_slice(&piece);
                }
                Err(frame) => {
                    self.trailers = frame.into_trailers().ok().map(Box::new);
                    break;
                }
            }
            if self.len() > self.bytes_max {
                return Poll::Ready(Read::TooLarge);
            }
            if !has_room(self.len()) {
                return Poll::Ready(Read::NoRoom);
            }
        }
        self.rest = None;
        Poll::Ready(match self.trailers {
            _ if self.is_broken => Read::Broken,
            Some(_) => Read::WithTrailers,
            None => Read::Whole,
        })
    }

    fn len(&self) -> usize {
        self.first.len().max(self.all.len())
    }

    /// What was read.
    pub(crate) fn into_bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.freeze() }
    }

    /// What was read, and what was not.
    pub(crate) fn into_body(mut self) -> DoorBody<B> {
        let (rest, trailers) = (self.rest.take(), self.trailers.take());
        DoorBody::begun(self.into_bytes(), rest, trailers)
    }
}

/// Reads at most `bytes_max`, however long that takes.
pub(crate) async fn read<B>(body: B, bytes_max: usize) -> (Read, Reading<B>)
where
    B: Body<Data = Bytes>,
{
    let mut reading = Reading::new(body, bytes_max);
    (reading.on(|_| true).await, reading)
}
