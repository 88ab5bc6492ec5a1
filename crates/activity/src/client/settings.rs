//! How a client calls: plain values with safe defaults and bounds. Opens nothing.

use std::time::Duration;

use onetake_core::{Backoff, Finality, StatusRules};
use rustls::pki_types::CertificateDer;

/// The most calls at once, the most idle connections for a host, and the most attempts.
const COUNT_MAX: usize = 65_536;
/// The longest limit of time.
const WITHIN_MAX: Duration = Duration::from_secs(60 * 60);
/// The most bytes of a body that can be asked for.
const BYTES_MAX: usize = 1024 * 1024 * 1024;

/// What becomes of an answer unless it is set otherwise: kept, except what says that it may well be
/// another one next time.
const STATUSES: StatusRules = StatusRules::all(Finality::Final)
    .span(500..=599, Finality::Retryable)
    .except(&[501, 505], Finality::Final)
    .except(&[408, 425, 429], Finality::Retryable);

/// Whom the certificate of a provider must lead to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Roots {
    /// The certificate authorities that this machine trusts.
    #[default]
    Platform,
    /// These alone.
    Only(Vec<CertificateDer<'static>>),
}

/// A client that cannot be made as it was described.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpSettingsError {
    /// A setting is out of bounds.
    #[error("{what} must be from {min} to {max}")]
    OutOfBounds {
        /// Which setting.
        what: &'static str,
        /// The least that is allowed.
        min: &'static str,
        /// The most that is allowed.
        max: &'static str,
    },
    /// A certificate to trust cannot be read.
    #[error("certificate {at} of those to trust cannot be read; it must be DER of X.509")]
    Certificate {
        /// Its place in the list.
        at: usize,
    },
}

/// How a client calls.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    pub(super) attempts_max: u32,
    pub(super) within: Duration,
    pub(super) backoff: Backoff,
    pub(super) retry_after_max: Duration,
    pub(super) statuses: StatusRules,
    pub(super) response_bytes_max: usize,
    pub(super) in_flight_max: usize,
    pub(super) idle_max: usize,
    pub(super) idle_for: Duration,
    pub(super) connect_within: Duration,
    pub(super) stream_within: Duration,
    pub(super) quiet_max: Duration,
    pub(super) roots: Roots,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            attempts_max: 3,
            within: Duration::from_secs(120),
            backoff: Backoff { first: Duration::from_millis(250), max: Duration::from_secs(10) },
            retry_after_max: Duration::from_secs(30),
            statuses: STATUSES,
            response_bytes_max: 10 * 1024 * 1024,
            in_flight_max: 1_024,
            idle_max: 32,
            // Widespread servers hang up after five idle seconds. Whoever is first never sends
            // into a connection that is about to close, whose outcome nobody would know.
            idle_for: Duration::from_secs(4),
            connect_within: Duration::from_secs(5),
            stream_within: WITHIN_MAX,
            quiet_max: Duration::from_secs(300),
            roots: Roots::Platform,
        }
    }
}

impl HttpSettings {
    /// 3 attempts within 2 minutes, 250 ms to 10 s apart; `Retry-After` up to 30 s; bodies up to
    /// 10 MiB; 1,024 calls at once, 32 idle connections for each host; streams up to an hour.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Tries at most this often before a call ends.
    #[must_use]
    pub const fn attempts_max(mut self, attempts: u32) -> Self {
        self.attempts_max = attempts;
        self
    }

    /// Allows this long for all attempts of a call and the pauses between them.
    #[must_use]
    pub const fn within(mut self, limit: Duration) -> Self {
        self.within = limit;
        self
    }

    /// Spaces attempts like this.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Waits this long where a provider asks for it. One that asks for more ends the call, and its
    /// caller is told when to come back.
    #[must_use]
    pub const fn retry_after_max(mut self, longest: Duration) -> Self {
        self.retry_after_max = longest;
        self
    }

    /// What becomes of an answer, by status: `Final` ones are kept, `Retryable` ones are tried
    /// again, now and later; `Free` ones are as if nothing had been sent, and of `Unknown` ones
    /// nobody can say what came of them. A status above 599 counts as 500.
    ///
    /// By default 408, 425, 429 and 5xx are retryable, except 501 and 505. For a provider behind
    /// which requests may run on although a proxy answered 502 or 504, and which recognises no
    /// second call, those are better `Unknown`.
    #[must_use]
    pub const fn statuses(mut self, rules: StatusRules) -> Self {
        self.statuses = rules;
        self
    }

    /// Keeps bodies of at most this many bytes. The engine has a bound of its own, for the whole
    /// result as JSON.
    #[must_use]
    pub const fn response_bytes_max(mut self, bytes: usize) -> Self {
        self.response_bytes_max = bytes;
        self
    }

    /// Makes at most this many calls at once; further ones wait their turn.
    #[must_use]
    pub const fn in_flight_max(mut self, calls: usize) -> Self {
        self.in_flight_max = calls;
        self
    }

    /// Keeps at most this many idle connections for each host.
    #[must_use]
    pub const fn idle_max(mut self, connections: usize) -> Self {
        self.idle_max = connections;
        self
    }

    /// Keeps an idle connection this long; choose less than the providers do.
    #[must_use]
    pub const fn idle_for(mut self, time: Duration) -> Self {
        self.idle_for = time;
        self
    }

    /// Allows this long for name, TCP and TLS together.
    #[must_use]
    pub const fn connect_within(mut self, limit: Duration) -> Self {
        self.connect_within = limit;
        self
    }

    /// Lets a stream last this long.
    #[must_use]
    pub const fn stream_within(mut self, limit: Duration) -> Self {
        self.stream_within = limit;
        self
    }

    /// Lets a stream be silent, or unread, for this long.
    #[must_use]
    pub const fn quiet_max(mut self, limit: Duration) -> Self {
        self.quiet_max = limit;
        self
    }

    /// Whom the certificates of providers must lead to.
    #[must_use]
    pub fn roots(mut self, roots: Roots) -> Self {
        self.roots = roots;
        self
    }

    pub(super) fn check(&self) -> Result<(), HttpSettingsError> {
        let attempts = usize::try_from(self.attempts_max).unwrap_or(usize::MAX);
        let counts = [
            ("the attempts of a call", attempts, 1, "1", COUNT_MAX, "65,536"),
            ("the calls at once", self.in_flight_max, 1, "1", COUNT_MAX, "65,536"),
            ("the idle connections of a host", self.idle_max, 0, "0", COUNT_MAX, "65,536"),
            ("the bytes of a response", self.response_bytes_max, 0, "0", BYTES_MAX, "1 GiB"),
        ];
        for (what, given, least, min, most, max) in counts {
            if given < least || given > most {
                return Err(HttpSettingsError::OutOfBounds { what, min, max });
            }
        }
        let times = [
            ("the limit of a call", self.within),
            ("the longest pause", self.backoff.max),
            ("the limit to connect", self.connect_within),
            ("the time of an idle connection", self.idle_for),
            ("the limit of a stream", self.stream_within),
            ("the silence of a stream", self.quiet_max),
        ];
        for (what, given) in times {
            if given < Duration::from_millis(1) || given > WITHIN_MAX {
                let (min, max) = ("1 millisecond", "1 hour");
                return Err(HttpSettingsError::OutOfBounds { what, min, max });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W14: a refusal that lasts is kept, and what may pass is tried again.
    #[test]
    fn w14_which_answers_are_kept_is_a_table() {
        let table = format!("{STATUSES:?}");
        let lines: Vec<_> = table.lines().collect();
        let wanted = [
            "100-407 Final",
            "408-408 Retryable",
            "409-424 Final",
            "425-425 Retryable",
            "426-428 Final",
            "429-429 Retryable",
            "430-499 Final",
            "500-500 Retryable",
            "501-501 Final",
            "502-504 Retryable",
            "505-505 Final",
            "506-599 Retryable",
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn settings_out_of_bounds_are_refused_by_name() {
        assert_eq!(HttpSettings::new().check(), Ok(()));
        let refused = |settings: HttpSettings| match settings.check() {
            Err(HttpSettingsError::OutOfBounds { what, .. }) => what,
            Err(HttpSettingsError::Certificate { .. }) | Ok(()) => "nothing",
        };
        let new = HttpSettings::new;
        assert_eq!(refused(new().attempts_max(0)), "the attempts of a call");
        assert_eq!(refused(new().in_flight_max(0)), "the calls at once");
        assert_eq!(refused(new().idle_max(COUNT_MAX + 1)), "the idle connections of a host");
        assert_eq!(refused(new().response_bytes_max(usize::MAX)), "the bytes of a response");
        assert_eq!(refused(new().within(Duration::ZERO)), "the limit of a call");
        assert_eq!(refused(new().stream_within(Duration::MAX)), "the limit of a stream");
        assert_eq!(refused(new().idle_max(0).response_bytes_max(0)), "nothing");
    }
}
