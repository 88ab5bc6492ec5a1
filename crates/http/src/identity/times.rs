//! The two watches of a gate: one on the wall for expiry, a steady one for ages.
//!
//! Tokens and keys end at a time of day, so a clock that is set right must count. How old fetched
//! keys are must not change when somebody sets the clock. Nothing else here reads a watch.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onetake_core::Timestamp;
use onetake_engine::{Clock, SystemClock};

/// The machine's wall clock, read anew every time.
#[derive(Debug, Clone, Copy, Default)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX))
    }
}

/// The watches that a gate looks at.
#[derive(Clone)]
pub struct Times {
    pub(super) wall: Arc<dyn Clock>,
    pub(super) steady: Arc<dyn Clock>,
}

impl Times {
    /// Those of the machine.
    #[must_use]
    pub fn system() -> Self {
        Self { wall: Arc::new(WallClock), steady: Arc::new(SystemClock::new()) }
    }

    /// One clock for both, for tests: milliseconds since 1970.
    #[must_use]
    pub fn by(clock: Arc<dyn Clock>) -> Self {
        Self { wall: Arc::clone(&clock), steady: clock }
    }
}

impl fmt::Debug for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Times(…)")
    }
}

/// A point of a wall clock as the standard library has it.
pub(super) fn system_time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(at.as_millis())).unwrap_or(UNIX_EPOCH)
}

/// A point of the standard library on a wall clock; what lies before 1970 is 1970.
pub(super) fn timestamp(at: SystemTime) -> Timestamp {
    Timestamp::ZERO.after(at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_goes_to_a_timestamp_and_back() {
        let day = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        assert_eq!(timestamp(day).as_millis(), 1_800_000_000_000);
        assert_eq!(system_time(timestamp(day)), day);
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(1)), Timestamp::ZERO);
    }

    #[test]
    fn the_wall_clock_tells_the_time_of_day() {
        assert!(WallClock.now() > Timestamp::from_millis(1_600_000_000_000));
        assert_eq!(format!("{:?}", Times::system()), "Times(…)");
    }
}
