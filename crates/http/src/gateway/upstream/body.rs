//! The body of what an upstream answered, and the place of its request.
//!
//! The place is given back with the body, wherever that is read or dropped, or once a large request
//! has been written, if that is later. Buffers nothing.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;

use super::lines::Answered;
use super::{Place, SentBody};

/// The body of what an upstream answered. As long as it is kept, its request counts as in flight.
pub struct UpstreamBody<B: SentBody = Full<Bytes>>(Way<B>);

enum Way<B: SentBody> {
    Line(Answered<B>),
    Pool { incoming: Incoming, _place: Place },
}

impl<B: SentBody> UpstreamBody<B> {
    pub(super) const fn of_line(answered: Answered<B>) -> Self {
        Self(Way::Line(answered))
    }

    pub(super) const fn of_pool(incoming: Incoming, place: Place) -> Self {
        Self(Way::Pool { incoming, _place: place })
    }
}

impl<B: SentBody> Body for UpstreamBody<B> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.0 {
            Way::Line(answered) => answered.poll_frame(cx),
            Way::Pool { incoming, .. } => Pin::new(incoming).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Way::Line(answered) => answered.is_end_stream(),
            Way::Pool { incoming, .. } => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Way::Line(answered) => answered.size_hint(),
            Way::Pool { incoming, .. } => incoming.size_hint(),
        }
    }
}

impl<B: SentBody> fmt::Debug for UpstreamBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamBody").finish_non_exhaustive()
    }
}
