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
        passed: Option<B>,
        begun: Begun<B>,
        carried: Option<Box<Carried>>,
        bound: Option<Bound>,
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
    read: Option<Bytes>,
    rest: Option<Pin<Box<B>>>,
    trailers: Option<HeaderMap>,
}

impl<B> DoorBody<B> {
    pub(crate) const fn passed(body: B) -> Self {
        let begun = Begun { read: None, rest: None, trailers: None };
        Self { passed: Some(body), begun, carried: None, bound: None }
    }

    /// Ours, and nothing behind it.
    pub(crate) const fn whole(bytes: Bytes) -> Self {
        Self::begun(bytes, None, None)
    }

    /// What was read, and what follows it.
    pub(crate) const fn begun(
        read: Bytes,
        rest: Option<Pin<Box<B>>>,
        trailers: Option<HeaderMap>,
    ) -> Self {
        let begun = Begun { read: Some(read), rest, trailers };
        Self { passed: None, begun, carried: None, bound: None }
    }

    /// One that its execution carries here.
    pub(crate) fn carried(carried: Carried) -> Self {
        Self { carried: Some(Box::new(carried)), ..Self::whole(Bytes::new()) }
    }

    /// The same, if it passes: breaks off after so many bytes, and notes that in `is_passed`.
    #[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "only a gateway passes on"))]
    pub(crate) fn bounded(self, bytes_max: usize, is_passed: Arc<AtomicBool>) -> Self {
        Self { bound: Some(Bound { left: bytes_max, is_passed }), ..self }
    }

    /// The same; if it is carried it ends only once `settled` has said so.
    pub(crate) fn ending(mut self, settled: impl FnOnce() -> Settled) -> Self {
        if let Some(carried) = &mut self.carried {
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
        if let Some(read) = self.read.take().filter(|read| !read.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(read))));
        }
        if let Some(rest) = &mut self.rest {
            if let Some(frame) = ready!(rest.as_mut().poll_frame(cx)) {
                return Poll::Ready(Some(frame.map_err(Into::into)));
            }
            self.rest = None;
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_at_end(&self) -> bool {
        let nothing_read = self.read.as_ref().is_none_or(Bytes::is_empty);
        let at_end = self.rest.as_ref().is_none_or(Body::is_end_stream);
        nothing_read && self.trailers.is_none() && at_end
    }

    fn size(&self) -> SizeHint {
        let read = self.read.as_ref().map_or(0, |read| read.len() as u64);
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
        let this = self.project();
        match (this.passed.as_pin_mut(), this.carried) {
            (Some(body), _) => {
                let frame = ready!(body.poll_frame(cx)).map(|frame| frame.map_err(Into::into));
                Poll::Ready(match this.bound {
                    Some(bound) => frame.map(|frame| frame.and_then(|frame| bound.count(frame))),
                    None => frame,
                })
            }
            (None, Some(carried)) => carried.poll(cx),
            (None, None) => this.begun.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match (&self.passed, &self.carried) {
            (Some(body), _) => body.is_end_stream(),
            (None, Some(carried)) => carried.is_over(),
            (None, None) => self.begun.is_at_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.passed, &self.carried) {
            (Some(body), _) => body.size_hint(),
            (None, Some(carried)) => carried.size(),
            (None, None) => self.begun.size(),
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
        let body = DoorBody::begun("hello ".into(), Some(rest), Some(trailers));
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
