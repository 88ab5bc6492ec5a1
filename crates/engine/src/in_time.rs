//! A call with a time limit that costs little while it is not needed.
//!
//! Written by hand, because an async function would hold the call twice, and there may be a hundred
//! thousand of them. The timer is made when the call has shown that it does not answer at once.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::task::unconstrained;
use tokio::time::{Sleep, sleep};

pin_project! {
    /// What a call came to; `None` when that was not within the limit.
    pub(crate) struct InTime<F> {
        #[pin]
        call: F,
        within: Duration,
        #[pin]
        limit: Option<Sleep>,
    }
}

impl<F> InTime<F> {
    pub(crate) const fn new(call: F, within: Duration) -> Self {
        Self { call, within, limit: None }
    }
}

impl<F: Future> Future for InTime<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Poll::Ready(ended) = this.call.poll(cx) {
            return Poll::Ready(Some(ended));
        }
        if this.limit.is_none() {
            this.limit.set(Some(sleep(*this.within)));
        }
        match this.limit.as_pin_mut() {
            // Also of a call that takes all the time that its task has.
            Some(limit) => pin!(unconstrained(limit)).poll(cx).map(|()| None),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_does_not_answer_is_given_up_and_what_does_is_heard() {
        let within = Duration::from_secs(1);
        assert_eq!(InTime::new(ready(7), within).await, Some(7));
        assert_eq!(InTime::new(pending::<()>(), within).await, None);
        let late = async {
            sleep(within / 2).await;
            8
        };
        assert_eq!(InTime::new(late, within).await, Some(8));
    }
}
