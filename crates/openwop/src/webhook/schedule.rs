//! When a delivery that failed is tried again, and when it is given up.
//!
//! Pure: takes the time and a random number, and gives a time. Knows nothing of what failed.

use std::time::Duration;

use onetake_core::Timestamp;

/// How often and for how long a delivery is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// The longest delay after the first attempt; it doubles with each further one.
    pub(crate) first: Duration,
    /// No delay is longer, unless the receiver asks for it.
    pub(crate) max: Duration,
    /// No attempt begins later than this after the delivery was due first. Shorter than receivers
    /// remember what they have seen, so that the last attempt is not taken for a new event.
    pub(crate) horizon: Duration,
    /// The most attempts.
    pub(crate) attempts_max: u32,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            max: Duration::from_secs(60 * 60),
            horizon: Duration::from_secs(23 * 60 * 60),
            attempts_max: 20,
        }
    }
}

/// What has happened to a delivery that is not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tried {
    /// When it was due first.
    pub(crate) since: Timestamp,
    /// Attempts so far.
    pub(crate) attempts: u32,
    /// How long the receiver asked to be left alone, in its last answer.
    pub(crate) retry_after: Option<Duration>,
}

/// What becomes of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is tried again at this time.
    At(Timestamp),
    /// It is given up.
    Dead(Dead),
}

/// Why a delivery is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Dead {
    /// It was tried as often as it may.
    #[error("the delivery was tried as often as it may")]
    Attempts,
    /// The next attempt would be too late.
    #[error("the next attempt would be later than the receiver remembers")]
    Horizon,
}

impl Schedule {
    /// When a delivery is tried next. `spread` is any number; callers draw it at random.
    ///
    /// The delay is anything from nothing to the doubled one (full jitter), so that the deliveries
    /// that failed together when a receiver went down do not come back together. `Backoff` of
    /// `core` waits for half of it at least, which is right for one caller and wrong for a crowd.
    #[must_use]
    pub(crate) fn next(&self, tried: Tried, now: Timestamp, spread: u64) -> Next {
        if tried.attempts >= self.attempts_max {
            return Next::Dead(Dead::Attempts);
        }
        let asked = tried.retry_after.unwrap_or_default();
        let due = now.after(jittered(self.longest(tried.attempts), spread).max(asked));
        if due.since(tried.since) > self.horizon {
            return Next::Dead(Dead::Horizon);
        }
        Next::At(due)
    }

    /// The longest delay after so many attempts.
    fn longest(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.max)
    }
}

/// Anything from nothing to `longest`, in whole milliseconds.
fn jittered(longest: Duration, spread: u64) -> Duration {
    let ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(spread % ms.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    const SINCE: Timestamp = Timestamp::from_millis(1_000_000);

    fn tried(attempts: u32) -> Tried {
        Tried { since: SINCE, attempts, retry_after: None }
    }

    #[test]
    fn the_longest_delay_doubles_from_a_second_to_an_hour() {
        let schedule = Schedule::default();
        let mut table = String::new();
        for attempts in [0, 1, 2, 3, 6, 11, 12, 13, 19, 20, 21, u32::MAX] {
            // One below the number of milliseconds: the largest remainder.
            let ms = u64::try_from(schedule.longest(attempts).as_millis()).unwrap();
            let next = match schedule.next(tried(attempts), SINCE, ms) {
                Next::At(due) => format!("{:?}", due.since(SINCE)),
                Next::Dead(why) => format!("{why:?}"),
            };
            writeln!(table, "{attempts} {next}").unwrap();
        }
        let expected = "0 1s\n1 1s\n2 2s\n3 4s\n6 32s\n11 1024s\n12 2048s\n13 3600s\n19 3600s\n\
            20 Attempts\n21 Attempts\n4294967295 Attempts\n";
        assert_eq!(table, expected);
    }

    #[test]
    fn the_spread_moves_a_delay_between_nothing_and_all_of_it() {
        let schedule = Schedule::default();
        let delay = |spread| match schedule.next(tried(3), SINCE, spread) {
            Next::At(due) => due.since(SINCE).as_millis(),
            Next::Dead(why) => panic!("{why}"),
        };
        assert_eq!([0, 1, 3_999, 4_000, 4_001].map(delay), [0, 1, 3_999, 4_000, 0]);
        assert!((0..10_000).map(|at| u64::MAX - at).all(|spread| delay(spread) <= 4_000));
    }

    #[test]
    fn a_receiver_that_asks_for_time_gets_it() {
        let schedule = Schedule::default();
        let asking = |s| Tried { retry_after: Some(Duration::from_secs(s)), ..tried(1) };
        let at = |ms| Next::At(Timestamp::from_millis(SINCE.as_millis() + ms));
        assert_eq!(schedule.next(asking(600), SINCE, 999), at(600_000));
        assert_eq!(schedule.next(asking(0), SINCE, 999), at(999));
    }

    #[test]
    fn no_attempt_begins_behind_the_horizon() {
        let schedule = Schedule::default();
        let late = SINCE.after(schedule.horizon);
        assert_eq!(schedule.next(tried(3), late, 0), Next::At(late));
        assert_eq!(schedule.next(tried(3), late, 1), Next::Dead(Dead::Horizon));
        let asking = Tried { retry_after: Some(Duration::from_secs(1)), ..tried(1) };
        assert_eq!(schedule.next(asking, late, 0), Next::Dead(Dead::Horizon));
        // A clock that was set back gives no more than the usual delay.
        assert_eq!(schedule.next(tried(1), Timestamp::ZERO, 0), Next::At(Timestamp::ZERO));
    }
}
