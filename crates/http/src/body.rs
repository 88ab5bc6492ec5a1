//! Bodies that are either somebody else's or ours, so that a layer need not copy what it lets pass.
//!
//! A request is as it came or was read whole; a response is the handler's, ours, the rest of the
//! handler's behind what was already read, or one that its execution carries here (`carry.rs`).
//! Nothing here buffers.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::carry::{BoxError, Carried, Settled};

type Framed = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

pin_project! {
    /// A body on its way through the door: as it came, or what was read of it and then the rest,
    /// or as it is carried to its caller.
    #[derive(Debug)]
    pub struct DoorBody<B> {
        #[pin]
        way: Way<B>,
    }
}

pin_project! {
    #[project = WayProjected]
    #[derive(Debug)]
    enum Way<B> {
        Passed { #[pin] body: B, bound: Option<Bound> },
        Begun { begun: Begun<B> },
        Carried { carried: Box<Carried> },
    }
}

/// How much more of a body may pass, and where it is noted that there was more.
#[derive(Debug)]
struct Bound {
    left: usize,
    is_passed: Arc<AtomicBool>,
}

/// A body that did not say beforehand how long it is, and is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body is longer than it may be")]
struct TooLong;

impl Bound {
    fn count(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BoxError> {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let Some(left) = self.left.checked_sub(bytes) else {
            self.is_passed.store(true, Ordering::SeqCst);
            return Err(TooLong.into());
        };
        self.left = left;
        Ok(frame)
    }
}

/// A body of which something was read already.
#[derive(Debug)]
struct Begun<B> {
    read: Bytes,
    rest: Option<Pin<Box<B>>>,
    /// They are rare, and every response has room for this.
    trailers: Option<Box<HeaderMap>>,
}

impl<B> DoorBody<B> {
    pub(crate) const fn passed(body: B) -> Self {
        Self { way: Way::Passed { body, bound: None } }
    }

    /// Ours, and nothing behind it.
    pub(crate) const fn whole(bytes: Bytes) -> Self {
        Self::begun(bytes, None, None)
    }

    /// What was read, and what follows it.
    pub(crate) const fn begun(
        read: Bytes,
        rest: Option<Pin<Box<B>>>,
        trailers: Option<Box<HeaderMap>>,
    ) -> Self {
        Self { way: Way::Begun { begun: Begun { read, rest, trailers } } }
    }

    /// One that its execution carries here.
    pub(crate) fn carried(carried: Carried) -> Self {
        Self { way: Way::Carried { carried: Box::new(carried) } }
    }

    /// The same, if it passes: breaks off after so many bytes, and notes that in `is_passed`.
    #[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "only a gateway passes on"))]
    pub(crate) fn bounded(mut self, bytes_max: usize, is_passed: Arc<AtomicBool>) -> Self {
        if let Way::Passed { bound, .. } = &mut self.way {
            *bound = Some(Bound { left: bytes_max, is_passed });
        }
        self
    }

    /// The same; if it is carried it ends only once `settled` has said so.
    pub(crate) fn ending(mut self, settled: impl FnOnce() -> Settled) -> Self {
        if let Way::Carried { carried } = &mut self.way {
            carried.wait_for(settled());
        }
        self
    }
}

impl<B> Begun<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Framed {
        if !self.read.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.read)))));
        }
        if let Some(rest) = &mut self.rest {
            if let Some(frame) = ready!(rest.as_mut().poll_frame(cx)) {
                return Poll::Ready(Some(frame.map_err(Into::into)));
            }
            self.rest = None;
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(*trailers))))
    }

    fn is_at_end(&self) -> bool {
        let at_end = self.rest.as_ref().is_none_or(Body::is_end_stream);
        self.read.is_empty() && self.trailers.is_none() && at_end
    }

    fn size(&self) -> SizeHint {
        let read = self.read.len() as u64;
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(read.saturating_add(rest.lower()));
        if let Some(upper) = rest.upper() {
            hint.set_upper(read.saturating_add(upper));
        }
        hint
    }
}

impl<B> Body for DoorBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Framed {
        match self.project().way.project() {
            WayProjected::Passed { body, bound } => {
                let frame = ready!(body.poll_frame(cx)).map(|frame| frame.map_err(Into::into));
                Poll::Ready(match bound {
                    Some(bound) => frame.map(|frame| frame.and_then(|frame| bound.count(frame))),
                    None => frame,
                })
            }
            WayProjected::Begun { begun } => begun.poll(cx),
            WayProjected::Carried { carried } => carried.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.way {
            Way::Passed { body, .. } => body.is_end_stream(),
            Way::Begun { begun } => begun.is_at_end(),
            Way::Carried { carried } => carried.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.way {
            Way::Passed { body, .. } => body.size_hint(),
            Way::Begun { begun } => begun.size(),
            Way::Carried { carried } => carried.size(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    #[tokio::test]
    async fn what_was_read_comes_before_the_rest_and_trailers_last() {
        let trailers = HeaderMap::from_iter([(
            http::HeaderName::from_static("x-sum"),
            http::HeaderValue::from_static("7"),
        )]);
        let rest = Box::pin(Full::new(Bytes::from("world")));
        let body = DoorBody::begun("hello ".into(), Some(rest), Some(Box::new(trailers)));
        assert_eq!(body.size_hint().exact(), Some(11));
        assert!(!body.is_end_stream());
        let collected = body.collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["x-sum"], "7");
        assert_eq!(collected.to_bytes(), "hello world");
        let empty = DoorBody::<Full<Bytes>>::whole(Bytes::new());
        assert!(empty.is_end_stream());
        assert_eq!(empty.size_hint().exact(), Some(0));
    }
}
