//! Durable routes for axum: `router.durable_post("/orders", "orders.create", handler)`.
//!
//! A durable route is a plain handler that runs at most once per key (C1, C5). It need not know;
//! if it wants to, it extracts [`Take`]. The [`Idempotency`] comes from the state of the router, so
//! a route without one does not compile.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRef, FromRequestParts};
use axum::handler::Handler as AxumHandler;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use http::request::Parts;
use http::{Request, StatusCode};
use onetake_core::{Key, Operation};
use onetake_engine::Attempt;

use crate::body::DoorBody;
use crate::execute::Ended;
use crate::idempotency::Idempotency;
use crate::walk::{Handler, answer};

/// Which take this is: the key, the number of the attempt, and whether it is a recovery.
///
/// Extract it in a handler behind the layer or on a durable route.
#[derive(Debug, Clone)]
pub struct Take(pub Attempt);

impl Take {
    /// The caller's key. Never log it.
    #[must_use]
    pub const fn key(&self) -> Option<&Key> {
        self.0.key.as_ref()
    }

    /// Which execution this is, counted from 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.0.number
    }

    /// Whether an earlier attempt may already have had its effect.
    #[must_use]
    pub const fn is_recovery(&self) -> bool {
        self.0.recovery
    }
}

/// There is no take, because the request did not come through Onetake, or carried no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this request did not come through a durable route with a key")]
pub struct NoTake;

impl IntoResponse for NoTake {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for Take {
    type Rejection = NoTake;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoTake> {
        parts.extensions.get::<Attempt>().cloned().map(Self).ok_or(NoTake)
    }
}

impl<S: Sync> axum::extract::OptionalFromRequestParts<S> for Take {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get::<Attempt>().cloned().map(Self))
    }
}

/// A handler that runs at most once per key.
#[derive(Clone)]
struct Durable<H> {
    handler: H,
    operation: Operation,
}

/// A handler of axum with its state, behind the door.
struct Inner<H, S, T> {
    handler: H,
    state: S,
    extracts: std::marker::PhantomData<fn() -> T>,
}

impl<H: Clone, S: Clone, T> Clone for Inner<H, S, T> {
    fn clone(&self) -> Self {
        let (handler, state) = (self.handler.clone(), self.state.clone());
        Self { handler, state, extracts: std::marker::PhantomData }
    }
}

impl<H, S, T> Handler<Body> for Inner<H, S, T>
where
    H: AxumHandler<T, S>,
    S: Clone + Send + Sync + 'static,
    T: 'static,
{
    type Body = Body;
    type Error = Infallible;

    async fn call(
        self,
        mut request: Request<DoorBody<Body>>,
        attempt: Option<Attempt>,
    ) -> Ended<Body, Infallible> {
        if let Some(attempt) = attempt {
            request.extensions_mut().insert(attempt);
        }
        Ended::Responded(self.handler.call(request.map(Body::new), self.state).await)
    }
}

impl<H, S, T> AxumHandler<T, S> for Durable<H>
where
    H: AxumHandler<T, S>,
    S: Clone + Send + Sync + 'static,
    Idempotency: FromRef<S>,
    T: 'static,
{
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request<Body>, state: S) -> Self::Future {
        let door = Box::new(Idempotency::from_ref(&state).named(self.operation));
        let extracts = std::marker::PhantomData;
        let inner = Inner { handler: self.handler, state, extracts };
        let answering = answer(door, request, inner);
        Box::pin(async move {
            match answering.await {
                Ok(response) => response.map(Body::new),
                Err(never) => match never {},
            }
        })
    }
}

/// Durable routes, in the chain of a router.
pub trait DurableRoutes<S>: Sized
where
    S: Clone + Send + Sync + 'static,
    Idempotency: FromRef<S>,
{
    /// Requests with these methods are executed once per key, as `operation`.
    ///
    /// # Panics
    /// When `operation` is not a name, as axum does for a path.
    #[must_use]
    fn durable<H, T>(self, at: MethodFilter, path: &str, operation: &str, handler: H) -> Self
    where
        H: AxumHandler<T, S>,
        T: 'static;

    /// A POST that is executed once per key, as `operation`.
    ///
    /// # Panics
    /// As [`durable`](Self::durable) does.
    #[must_use]
    fn durable_post<H, T>(self, path: &str, operation: &str, handler: H) -> Self
    where
        H: AxumHandler<T, S>,
        T: 'static,
    {
        self.durable(MethodFilter::POST, path, operation, handler)
    }

    /// A PUT that is executed once per key, as `operation`.
    ///
    /// # Panics
    /// As [`durable`](Self::durable) does.
    #[must_use]
    fn durable_put<H, T>(self, path: &str, operation: &str, handler: H) -> Self
    where
        H: AxumHandler<T, S>,
        T: 'static,
    {
        self.durable(MethodFilter::PUT, path, operation, handler)
    }

    /// A PATCH that is executed once per key, as `operation`.
    ///
    /// # Panics
    /// As [`durable`](Self::durable) does.
    #[must_use]
    fn durable_patch<H, T>(self, path: &str, operation: &str, handler: H) -> Self
    where
        H: AxumHandler<T, S>,
        T: 'static,
    {
        self.durable(MethodFilter::PATCH, path, operation, handler)
    }

    /// A DELETE that is executed once per key, as `operation`.
    ///
    /// # Panics
    /// As [`durable`](Self::durable) does.
    #[must_use]
    fn durable_delete<H, T>(self, path: &str, operation: &str, handler: H) -> Self
    where
        H: AxumHandler<T, S>,
        T: 'static,
    {
        self.durable(MethodFilter::DELETE, path, operation, handler)
    }
}

impl<S> DurableRoutes<S> for Router<S>
where
    S: Clone + Send + Sync + 'static,
    Idempotency: FromRef<S>,
{
    fn durable<H, T>(self, at: MethodFilter, path: &str, operation: &str, handler: H) -> Self
    where
        H: AxumHandler<T, S>,
        T: 'static,
    {
        let operation = Operation::new(operation).unwrap_or_else(|error| {
            panic!("{operation:?} is not the name of an operation: {error}")
        });
        self.route(path, on(at, Durable { handler, operation }))
    }
}
