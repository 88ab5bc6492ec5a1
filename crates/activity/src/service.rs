//! Any [`tower::Service`], executed once per key.
//!
//! The inner service is cloned for each execution and made ready inside it, so a caller that goes
//! away takes nothing with it.

use std::pin::Pin;
use std::task::{Context, Poll};

use onetake_engine::Slots;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::{Service, ServiceExt};

use crate::ask::Identity;
use crate::error::ExecuteError;
use crate::executor::Executor;
use crate::reply::Take;

/// A service whose calls are executed once per key. Made by [`Executor::wrap`].
#[derive(Debug, Clone)]
pub struct OnceService<S, Svc, I> {
    executor: Executor<S>,
    inner: Svc,
    identify: I,
}

impl<S: Slots> Executor<S> {
    /// Wraps `service`: every request is first asked, by `identify`, who it is.
    #[must_use]
    pub fn wrap<Svc, I>(&self, service: Svc, identify: I) -> OnceService<S, Svc, I> {
        OnceService { executor: self.clone(), inner: service, identify }
    }
}

impl<S, Svc, I, R> Service<R> for OnceService<S, Svc, I>
where
    S: Slots,
    Svc: Service<R> + Clone + Send + 'static,
    Svc::Future: Send,
    Svc::Response: Serialize + DeserializeOwned + Send + 'static,
    Svc::Error: Serialize + DeserializeOwned + Send + 'static,
    I: Fn(&R) -> Identity,
    R: Send + 'static,
{
    type Response = Take<Svc::Response>;
    type Error = ExecuteError<Svc::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    /// Always ready: a replay must not wait for the inner service.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let Identity { scope, key, asked } = (self.identify)(&request);
        let (executor, inner) = (self.executor.clone(), self.inner.clone());
        Box::pin(async move {
            let serve = |_attempt| inner.oneshot(request);
            executor.execute(&scope, key.as_ref(), asked, serve).await
        })
    }
}
