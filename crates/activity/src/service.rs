//! Any [`tower::Service`], executed once per key.
//!
//! The inner service is cloned for each execution and made ready inside it, so a caller that goes
//! away takes nothing with it. Where a policy allows a recovery, the service must be told that it
//! is one: see [`OnceService::telling`].

use std::pin::Pin;
use std::task::{Context, Poll};

use onetake_engine::{Attempt, Slots};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::{Service, ServiceExt};

use crate::ask::Identity;
use crate::error::ExecuteError;
use crate::executor::Executor;
use crate::reply::{Ending, IntoEnding, Take};

/// A service whose calls are executed once per key. Made by [`Executor::wrap`].
pub struct OnceService<S, Svc, I, R> {
    executor: Executor<S>,
    inner: Svc,
    identify: I,
    tell: fn(&mut R, &Attempt),
}

impl<S, Svc: Clone, I: Clone, R> Clone for OnceService<S, Svc, I, R> {
    fn clone(&self) -> Self {
        let (executor, tell) = (self.executor.clone(), self.tell);
        Self { executor, inner: self.inner.clone(), identify: self.identify.clone(), tell }
    }
}

impl<S, Svc, I, R> std::fmt::Debug for OnceService<S, Svc, I, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnceService").field("executor", &self.executor).finish_non_exhaustive()
    }
}

impl<S: Slots> Executor<S> {
    /// Wraps `service`: every request is first asked, by `identify`, who it is.
    #[must_use]
    pub fn wrap<Svc, I, R>(&self, service: Svc, identify: I) -> OnceService<S, Svc, I, R>
    where
        I: Fn(&R) -> Identity,
    {
        OnceService { executor: self.clone(), inner: service, identify, tell: |_, _| {} }
    }
}

impl<S, Svc, I, R> OnceService<S, Svc, I, R> {
    /// Writes into each request which attempt it is, before the inner service gets it: a header,
    /// say. Needed where the policy has `OnUnknown::Retry`, for a recovery must know that it is
    /// one.
    #[must_use]
    pub fn telling(mut self, tell: fn(&mut R, &Attempt)) -> Self {
        self.tell = tell;
        self
    }
}

impl<S, Svc, I, R> Service<R> for OnceService<S, Svc, I, R>
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

    fn call(&mut self, mut request: R) -> Self::Future {
        let Identity { scope, key, asked } = (self.identify)(&request);
        let (executor, inner, tell) = (self.executor.clone(), self.inner.clone(), self.tell);
        Box::pin(async move {
            let serve = move |attempt: Attempt| async move {
                tell(&mut request, &attempt);
                let mut inner = inner;
                // Nothing was sent to a service that is not ready.
                let ready = match inner.ready().await {
                    Ok(ready) => ready,
                    Err(failure) => return Ending::NotDispatched(failure),
                };
                ready.call(request).await.into_ending()
            };
            executor.execute(&scope, key.as_ref(), asked, serve).await
        })
    }
}
