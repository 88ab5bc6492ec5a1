//! Whether a receiver is left alone for a while, because it failed again and again.
//!
//! Pure: a value for each receiver, and what becomes of it. Who calls, and how many at once, is
//! decided elsewhere; while a circuit is on trial, that should be one.

use std::time::Duration;

use onetake_core::Timestamp;

/// Failures in a row that open a circuit.
pub(crate) const FAILURES_MAX: u32 = 4;
/// How long an open circuit stays so.
pub(crate) const OPEN_FOR: Duration = Duration::from_secs(60 * 60);

/// What is known of a receiver. It is kept as its two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Circuit {
    /// Failures since the last success.
    pub(crate) failures: u32,
    /// Until when nothing is sent, if it was opened since the last success.
    pub(crate) open_until: Option<Timestamp>,
}

/// Whether a receiver may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CircuitState {
    /// It may.
    Closed,
    /// Not before this time.
    Open {
        /// When it may be tried again.
        until: Timestamp,
    },
    /// Once, to see whether it is well again: a failure opens the circuit at once.
    Trial,
}

impl Circuit {
    /// What is left after a call that was acknowledged, even one that began before the circuit was
    /// opened.
    pub(crate) const CLOSED: Self = Self { failures: 0, open_until: None };

    /// Whether the receiver may be called now.
    #[must_use]
    pub(crate) fn state(self, now: Timestamp) -> CircuitState {
        match self.open_until {
            None => CircuitState::Closed,
            Some(until) if now < until => CircuitState::Open { until },
            Some(_) => CircuitState::Trial,
        }
    }

    /// After a call that failed. One that began before the circuit was opened does not keep it
    /// open for longer.
    #[must_use]
    pub(crate) fn failed(self, now: Timestamp) -> Self {
        let failures = self.failures.saturating_add(1);
        let open_until = match self.state(now) {
            CircuitState::Open { until } => Some(until),
            CircuitState::Trial => Some(now.after(OPEN_FOR)),
            CircuitState::Closed => (failures >= FAILURES_MAX).then(|| now.after(OPEN_FOR)),
        };
        Self { failures, open_until }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    /// One line for each step `<minute> <ok|no|->`: how the circuit stands after it.
    fn story(steps: &str) -> String {
        let (mut circuit, mut table) = (Circuit::CLOSED, String::new());
        for step in steps.lines() {
            let (minute, what) = step.trim().split_once(' ').unwrap();
            let now = Timestamp::from_millis(minute.parse::<u64>().unwrap() * 60_000);
            circuit = match what {
                "ok" => Circuit::CLOSED,
                "no" => circuit.failed(now),
                _ => circuit,
            };
            let state = match circuit.state(now) {
                CircuitState::Closed => "closed".to_owned(),
                CircuitState::Trial => "trial".to_owned(),
                CircuitState::Open { until } => format!("open to {}", until.as_millis() / 60_000),
            };
            writeln!(table, "{minute} {what} {state}").unwrap();
        }
        table
    }

    #[test]
    fn four_failures_in_a_row_open_a_circuit_for_an_hour() {
        let steps = "0 no\n1 no\n2 no\n3 no\n4 -\n62 -\n63 -\n64 ok\n65 no\n66 no\n67 no\n68 no";
        assert_eq!(
            story(steps),
            "0 no closed\n1 no closed\n2 no closed\n3 no open to 63\n4 - open to 63\n\
            62 - open to 63\n63 - trial\n64 ok closed\n65 no closed\n66 no closed\n\
            67 no closed\n68 no open to 128\n",
        );
    }

    #[test]
    fn a_success_in_between_starts_the_count_again() {
        let steps = "0 no\n0 no\n0 no\n0 ok\n0 no\n0 no\n0 no\n0 ok";
        assert!(story(steps).lines().all(|line| line.ends_with("closed")));
    }

    #[test]
    fn a_failed_trial_opens_the_circuit_again_at_once() {
        assert!(story("0 no\n0 no\n0 no\n0 no\n90 no").ends_with("90 no open to 150\n"));
    }

    #[test]
    fn calls_that_began_earlier_neither_extend_an_open_circuit_nor_are_lost() {
        let steps = "0 no\n0 no\n0 no\n0 no\n30 no\n31 ok";
        assert!(story(steps).ends_with("30 no open to 60\n31 ok closed\n"));
    }
}
