//! How long to wait before the next try: doubling, capped, spread by a number the caller draws.
//!
//! Pure: no clock and no randomness of its own, so a simulation can replay it.

use std::time::Duration;

/// Doubling delays between a first and a largest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub first: Duration,
    /// No delay is longer.
    pub max: Duration,
}

impl Backoff {
    /// The delay after `failures` failures in a row, between half of the doubled delay and all of
    /// it. `spread` is any number; callers draw it at random so that they do not come back in step.
    #[must_use]
    pub fn delay(self, failures: u32, spread: u64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let full = self.first.saturating_mul(1 << doublings).min(self.max);
        let half = full / 2;
        let steps = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).saturating_add(1);
        half.saturating_add(Duration::from_micros(spread % steps)).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(10), max: Duration::from_secs(1) };

    #[test]
    fn delays_double_up_to_the_cap_and_never_beyond() {
        let longest = |failures| BACKOFF.delay(failures, 0).saturating_mul(2);
        assert_eq!(longest(1), Duration::from_millis(10));
        assert_eq!(longest(2), Duration::from_millis(20));
        assert_eq!(longest(5), Duration::from_millis(160));
        assert_eq!(longest(20), Duration::from_secs(1));
        assert_eq!(longest(u32::MAX), Duration::from_secs(1));
    }

    #[test]
    fn the_spread_moves_a_delay_between_half_and_all_of_it() {
        for spread in [0, 1, 77, 5_000, u64::MAX] {
            let delay = BACKOFF.delay(1, spread);
            assert!(delay >= Duration::from_millis(5) && delay <= Duration::from_millis(10));
        }
        assert_ne!(BACKOFF.delay(3, 1), BACKOFF.delay(3, 2_000));
    }
}
