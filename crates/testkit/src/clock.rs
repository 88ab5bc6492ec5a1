//! A store clock on tokio's virtual time, so that a paused runtime moves the store as well.
//!
//! A test can also make it jump forward while the walks' own timers stay where they are. It never
//! goes back: a store whose clock does breaks its contract.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onetake_core::Timestamp;
use onetake_engine::Clock;
use tokio::time::Instant;

/// Virtual time of the runtime, plus every jump so far. Clones share their jumps.
#[derive(Debug, Clone)]
pub struct TokioClock {
    origin: Instant,
    jumped_ms: Arc<AtomicU64>,
}

impl TokioClock {
    /// Starts at a million milliseconds, within a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: Instant::now(), jumped_ms: Arc::new(AtomicU64::new(1_000_000)) }
    }

    /// Jumps forward; no timer of the runtime notices.
    pub fn jump(&self, span: Duration) {
        let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.jumped_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let jumped = Timestamp::from_millis(self.jumped_ms.load(Ordering::SeqCst));
        // Whole milliseconds, so that a lease does not end a moment before the timer that waits for
        // it.
        jumped.after(Duration::from_millis(
            u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX),
        ))
    }
}
