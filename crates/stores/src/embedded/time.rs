//! The clock of the embedded store: it goes on from where it stopped and never goes back.
//!
//! While the process runs it is monotonic, so setting the machine's clock moves nothing. Across a
//! restart it is told by the boot clock of the machine, which nobody can set, as long as the
//! machine was not restarted too. Only after that is the wall clock asked, and believed as far as
//! [`BELIEVED_MAX`]: a wall clock that claims more has probably jumped, and believing it would
//! forget every outcome at once. Time then goes on from where it stopped, and the store says so.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onetake_core::Timestamp;
use onetake_engine::Clock;

/// How long a store may have been closed while the machine was off.
pub(super) const BELIEVED_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What the machine's clocks say at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) wall_ms: u64,
    /// Milliseconds since the machine was started, sleep included.
    pub(super) up_ms: u64,
    /// Which start of the machine that was; empty where the system does not tell.
    pub(super) machine: String,
}

impl Reading {
    pub(super) fn now() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
            up_ms: up_ms(),
            machine: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .map(|id| id.trim().to_owned())
                .unwrap_or_default(),
        }
    }
}

/// Where readings come from. Only a test has another machine than the one it runs on.
#[derive(Clone)]
pub(super) struct Machine(Arc<dyn Fn() -> Reading + Send + Sync>);

impl Machine {
    #[cfg(test)]
    pub(super) fn that_says(reading: impl Fn() -> Reading + Send + Sync + 'static) -> Self {
        Self(Arc::new(reading))
    }

    pub(super) fn read(&self) -> Reading {
        (self.0)()
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self(Arc::new(Reading::now))
    }
}

#[cfg(target_os = "linux")]
fn up_ms() -> u64 {
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(up.tv_sec).unwrap_or(0);
    seconds * 1_000 + u64::try_from(up.tv_nsec).unwrap_or(0) / 1_000_000
}

#[cfg(not(target_os = "linux"))]
fn up_ms() -> u64 {
    0
}

/// When the store last knew the time, kept with its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LastSeen {
    pub(super) store: Timestamp,
    pub(super) up_ms: u64,
    pub(super) machine: String,
}

impl LastSeen {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.store.as_millis().to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.up_ms.to_be_bytes());
        bytes.extend_from_slice(self.machine.as_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (store, rest) = bytes.split_first_chunk()?;
        let (up_ms, machine) = rest.split_first_chunk()?;
        Some(Self {
            store: Timestamp::from_millis(u64::from_be_bytes(*store)),
            up_ms: u64::from_be_bytes(*up_ms),
            machine: String::from_utf8(machine.to_vec()).ok()?,
        })
    }
}

/// How the time at opening was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resumed {
    /// A new store: the wall clock.
    New,
    /// By the machine's own running time.
    Counted,
    /// By the wall clock.
    Believed,
    /// The wall clock said something that cannot be believed; time went on from where it stopped.
    Doubted {
        /// What the wall clock said, as a distance from the last known time.
        claimed: Duration,
        /// Whether it went back.
        back: bool,
    },
}

/// The store's time at opening.
pub(super) fn resume(last: Option<&LastSeen>, reading: &Reading) -> (Timestamp, Resumed) {
    let wall = Timestamp::from_millis(reading.wall_ms);
    let Some(last) = last else { return (wall, Resumed::New) };
    let same_start = !last.machine.is_empty() && last.machine == reading.machine;
    if same_start && reading.up_ms >= last.up_ms {
        let span = Duration::from_millis(reading.up_ms - last.up_ms);
        return (last.store.after(span), Resumed::Counted);
    }
    if wall < last.store {
        let claimed = last.store.since(wall);
        return (last.store, Resumed::Doubted { claimed, back: true });
    }
    let claimed = wall.since(last.store);
    if claimed > BELIEVED_MAX {
        return (last.store, Resumed::Doubted { claimed, back: false });
    }
    (wall, Resumed::Believed)
}

/// The time since opening, and what to add to it. In tests a clock that is told to move.
pub(super) struct StoreClock {
    opened_at: Timestamp,
    source: Source,
    machine: Machine,
}

enum Source {
    Machine(std::time::Instant),
    Given(Arc<dyn Clock>),
}

impl StoreClock {
    /// Goes on from `opened_at`.
    pub(super) fn from(opened_at: Timestamp, machine: Machine) -> Self {
        Self { opened_at, source: Source::Machine(std::time::Instant::now()), machine }
    }

    /// Says what `clock` says.
    pub(super) fn given(clock: Arc<dyn Clock>, machine: Machine) -> Self {
        Self { opened_at: clock.now(), source: Source::Given(clock), machine }
    }

    pub(super) const fn opened_at(&self) -> Timestamp {
        self.opened_at
    }

    pub(super) fn now(&self) -> Timestamp {
        match &self.source {
            // Whole milliseconds that have passed: `after` would round up and run ahead.
            Source::Machine(started) => {
                let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.opened_at.after(Duration::from_millis(ms))
            }
            Source::Given(clock) => clock.now(),
        }
    }

    /// What to keep with the data. The machine is read first: however long this process stands
    /// still in between, time does not go back when it goes on from here.
    pub(super) fn last_seen(&self) -> LastSeen {
        let Reading { up_ms, machine, .. } = self.machine.read();
        LastSeen { store: self.now(), up_ms, machine }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 60 * 60 * 1_000;
    const YEAR: u64 = 365 * DAY;
    const T: u64 = 1_700_000_000_000;

    fn last() -> LastSeen {
        LastSeen { store: Timestamp::from_millis(T), up_ms: 5_000, machine: "a".into() }
    }

    fn at(wall_ms: u64, up_ms: u64, machine: &str) -> Reading {
        Reading { wall_ms, up_ms, machine: machine.into() }
    }

    fn resumed(reading: &Reading) -> (u64, Resumed) {
        let (now, how) = resume(Some(&last()), reading);
        (now.as_millis(), how)
    }

    /// C8, D11: a wall clock that jumps by a year forgets nothing and brings nothing back.
    #[test]
    fn c8_d11_a_jump_of_a_year_moves_nothing_across_a_restart_of_the_process() {
        for wall in [T + YEAR, T - YEAR, 0, u64::MAX] {
            assert_eq!(resumed(&at(wall, 8_000, "a")), (T + 3_000, Resumed::Counted));
        }
    }

    #[test]
    fn c8_after_a_restart_of_the_machine_a_wall_clock_is_believed_within_reason() {
        assert_eq!(resumed(&at(T + DAY, 10, "b")), (T + DAY, Resumed::Believed));
        let week = u64::try_from(BELIEVED_MAX.as_millis()).unwrap();
        assert_eq!(resumed(&at(T + week, 10, "b")), (T + week, Resumed::Believed));
        let (now, how) = resumed(&at(T + YEAR, 10, "b"));
        let claimed = Duration::from_millis(YEAR);
        assert_eq!((now, how), (T, Resumed::Doubted { claimed, back: false }));
        let (now, how) = resumed(&at(T - YEAR, 10, "b"));
        assert_eq!((now, how), (T, Resumed::Doubted { claimed, back: true }), "never back");
    }

    #[test]
    fn a_system_that_does_not_name_its_starts_is_asked_for_the_wall_clock() {
        let last = LastSeen { machine: String::new(), ..last() };
        let (now, how) = resume(Some(&last), &at(T + 1, 9_000, ""));
        assert_eq!((now.as_millis(), how), (T + 1, Resumed::Believed));
        assert_eq!(resume(None, &at(7, 0, "")), (Timestamp::from_millis(7), Resumed::New));
    }

    #[test]
    fn the_last_known_time_is_kept_whole() {
        let seen = LastSeen { machine: "3f-boot".into(), ..last() };
        assert_eq!(LastSeen::decode(&seen.encode()), Some(seen));
        assert_eq!(LastSeen::decode(&[0; 15]), None);
    }

    #[test]
    fn the_machine_says_how_long_it_has_run() {
        let (one, other) = (Reading::now(), Reading::now());
        assert_eq!(one.machine, other.machine);
        assert!(other.up_ms >= one.up_ms);
        assert!(one.wall_ms > 1_600_000_000_000);
    }
}
