//! The service that the layer makes: the handler behind it runs at most once per key.
//!
//! The handler is called in a task of the engine, on a clone that is made ready there; a caller
//! that goes away takes nothing with it.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use onetake_engine::Attempt;
use tower_service::Service;

use crate::body::DoorBody;
use crate::carry::BoxError;
use crate::execute::Ended;
use crate::idempotency::Idempotency;
use crate::walk::{Handler, answer};

/// A service whose handler runs at most once per key. Made by
/// [`IdempotencyLayer`](crate::IdempotencyLayer).
#[derive(Debug, Clone)]
pub struct IdempotencyService<S>(Arc<Behind<S>>);

/// In one piece: it is cloned for every request, often more than once.
#[derive(Debug)]
struct Behind<S> {
    door: Arc<Idempotency>,
    /// Cloned where it is called: within an execution, if there is a key. Replays need none.
    inner: Mutex<S>,
}

impl<S> IdempotencyService<S> {
    pub(crate) fn new(inner: S, door: Arc<Idempotency>) -> Self {
        Self(Arc::new(Behind { door, inner: Mutex::new(inner) }))
    }
}

/// Any tower service as a handler, with the door before it.
struct Inner<S>(Arc<Behind<S>>);

impl<S> Clone for Inner<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Deref for Inner<S> {
    type Target = Idempotency;

    fn deref(&self) -> &Idempotency {
        &self.0.door
    }
}

impl<S, B, R> Handler<B> for Inner<S>
where
    S: Service<Request<DoorBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Body = R;
    type Error = S::Error;

    async fn call(
        self,
        mut request: Request<DoorBody<B>>,
        attempt: Option<Attempt>,
    ) -> Ended<R, S::Error> {
        if let Some(attempt) = attempt {
            request.extensions_mut().insert(attempt);
        }
        // Whoever panics in there was cloning, and has changed nothing.
        let mut inner = self.0.inner.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ready = std::future::poll_fn(|cx| inner.poll_ready(cx)).await;
        let ended = match ready {
            Ok(()) => inner.call(request).await,
            Err(error) => Err(error),
        };
        ended.map_or_else(Ended::Failed, Ended::Responded)
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<DoorBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<DoorBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Replays need no handler, so nobody waits for one here.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = Inner(Arc::clone(&self.0));
        Box::pin(answer(inner.clone(), request, inner))
    }
}
