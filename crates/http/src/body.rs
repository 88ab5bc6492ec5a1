//! Bodies that are either somebody else's or ours, so that a layer need not copy what it lets pass.
//!
//! A request is as it came or was read whole; a response is the handler's, ours, or the rest of the
//! handler's behind what was already read. Nothing here buffers.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

type Framed<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

pin_project! {
    /// A body on its way through the door: as it came, or what was read of it and then the rest.
    #[derive(Debug)]
    pub struct DoorBody<B> {
        #[pin]
        passed: Option<B>,
        begun: Begun<B>,
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
        Self { passed: Some(body), begun }
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
        Self { passed: None, begun: Begun { read: Some(read), rest, trailers } }
    }
}

impl<B: Body<Data = Bytes>> Begun<B> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Framed<B::Error> {
        if let Some(read) = self.read.take().filter(|read| !read.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(read))));
        }
        if let Some(rest) = &mut self.rest {
            if let Some(frame) = ready!(rest.as_mut().poll_frame(cx)) {
                return Poll::Ready(Some(frame));
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

impl<B: Body<Data = Bytes>> Body for DoorBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Framed<B::Error> {
        let this = self.project();
        match this.passed.as_pin_mut() {
            Some(body) => body.poll_frame(cx),
            None => this.begun.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.passed.as_ref().map_or_else(|| self.begun.is_at_end(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.passed.as_ref().map_or_else(|| self.begun.size(), Body::size_hint)
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
