//! Points in time on one store's clock.
//!
//! This file never reads a clock. A [`Timestamp`] means something only beside another one of the
//! same store: a node compares the times of a record with the `now` that came with it, never with
//! its own watch, so a node whose clock is an hour off changes nothing.

use std::fmt;
use std::time::Duration;

/// A copy of a store request that is still under way arrives within this time, or never.
pub const DELIVERY_MAX: Duration = Duration::from_secs(60);

/// A point in time, in milliseconds, on the clock of the store that said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The earliest point in time.
    pub const ZERO: Self = Self(0);

    /// The point `ms` milliseconds after the origin of the store's clock.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the origin of the store's clock.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The point `span` later. Part of a millisecond counts as a whole one, so that a lease or a
    /// retention is never shorter than what was asked for; the far end of time is not passed.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        let ms = u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(ms))
    }

    /// How long it is from `earlier` to here; zero when `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_a_millisecond_never_shortens_a_lease() {
        let start = Timestamp::from_millis(10);
        assert_eq!(start.after(Duration::from_micros(1)).as_millis(), 11);
        assert_eq!(start.after(Duration::from_millis(5)).as_millis(), 15);
        assert_eq!(start.after(Duration::ZERO), start);
    }

    #[test]
    fn the_far_end_of_time_is_not_passed() {
        let late = Timestamp::from_millis(u64::MAX - 1);
        assert_eq!(late.after(Duration::MAX).as_millis(), u64::MAX);
    }

    #[test]
    fn time_since_a_later_point_is_zero() {
        let (early, late) = (Timestamp::from_millis(1), Timestamp::from_millis(9));
        assert_eq!(late.since(early), Duration::from_millis(8));
        assert_eq!(early.since(late), Duration::ZERO);
    }
}
