//! Clocks for stores that keep their own time.
//!
//! The only file of this crate that reads a watch. A store asks its clock once for each reply; the
//! walk never does, it uses the `now` that came with the reply.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use onetake_core::Timestamp;

/// A store's clock.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// Wall time when it was made, and from then on monotonic: setting the machine's clock moves
/// nothing.
#[derive(Debug)]
pub struct SystemClock {
    origin_ms: u64,
    started: Instant,
}

impl SystemClock {
    /// Starts from the machine's wall time.
    #[must_use]
    pub fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let origin_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        Self { origin_ms, started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.origin_ms).after(self.started.elapsed())
    }
}

/// A clock that moves when it is told to, for tests.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Starts at `ms`.
    #[must_use]
    pub const fn at(ms: u64) -> Self {
        Self(AtomicU64::new(ms))
    }

    /// Moves forward.
    pub fn advance(&self, span: Duration) {
        let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.0.fetch_add(ms, Ordering::SeqCst);
    }

    /// Jumps to `ms`, forward or back.
    pub fn set(&self, ms: u64) {
        self.0.store(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

impl<C: Clock> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_when_told_and_not_before() {
        let clock = ManualClock::at(5);
        assert_eq!(clock.now(), Timestamp::from_millis(5));
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.now(), Timestamp::from_millis(1_005));
        clock.set(7);
        assert_eq!(clock.now(), Timestamp::from_millis(7));
    }

    #[test]
    fn a_system_clock_never_goes_back() {
        let clock = SystemClock::new();
        let readings: Vec<_> = (0..1_000).map(|_| clock.now()).collect();
        assert!(readings.is_sorted());
        assert!(readings[0] > Timestamp::from_millis(1_600_000_000_000), "it tells wall time");
    }
}
