//! How an upstream is used: plain values with safe defaults and bounds. Opens nothing.

use std::time::Duration;

use super::{HostSent, IN_FLIGHT_MAX, Roots, UpstreamError, WITHIN_MAX};

/// How an upstream is used.
#[derive(Debug, Clone)]
pub struct UpstreamOptions {
    pub(super) in_flight_max: usize,
    pub(super) idle_max: usize,
    pub(super) idle_for: Duration,
    pub(super) connect_within: Duration,
    pub(super) answer_within: Duration,
    pub(super) host: HostSent,
    pub(super) roots: Roots,
}

impl Default for UpstreamOptions {
    fn default() -> Self {
        Self {
            in_flight_max: 1_024,
            idle_max: 128,
            // Widespread servers hang up after five idle seconds. Whoever is first never sends
            // into a connection that is about to close, whose outcome nobody would know.
            idle_for: Duration::from_secs(4),
            connect_within: Duration::from_secs(5),
            answer_within: Duration::from_secs(30),
            host: HostSent::Upstream,
            roots: Roots::Platform,
        }
    }
}

impl UpstreamOptions {
    /// 1,024 requests at once, 128 idle connections for 4 s, 5 s to connect and 30 s to answer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the upstream at most this many requests at once; further ones are refused.
    #[must_use]
    pub const fn in_flight_max(mut self, requests: usize) -> Self {
        self.in_flight_max = requests;
        self
    }

    /// Keeps at most this many idle connections.
    #[must_use]
    pub const fn idle_max(mut self, connections: usize) -> Self {
        self.idle_max = connections;
        self
    }

    /// Keeps an idle connection this long; choose less than the upstream itself does.
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

    /// Allows this long until the answer begins, connecting included.
    #[must_use]
    pub const fn answer_within(mut self, limit: Duration) -> Self {
        self.answer_within = limit;
        self
    }

    /// Which `Host` requests carry; with the caller's, HTTP/2 is not spoken.
    #[must_use]
    pub const fn host(mut self, host: HostSent) -> Self {
        self.host = host;
        self
    }

    /// Whom the upstream's certificate must lead to.
    #[must_use]
    pub fn roots(mut self, roots: Roots) -> Self {
        self.roots = roots;
        self
    }

    pub(super) fn check(&self) -> Result<(), UpstreamError> {
        let count = |what, min| Err(UpstreamError::OutOfBounds { what, min, max: "65,536" });
        let time =
            |what| Err(UpstreamError::OutOfBounds { what, min: "1 millisecond", max: "1 hour" });
        let is_out = |limit: Duration| limit < Duration::from_millis(1) || limit > WITHIN_MAX;
        if self.in_flight_max == 0 || self.in_flight_max > IN_FLIGHT_MAX {
            return count("the requests at once", "1");
        }
        if self.idle_max > IN_FLIGHT_MAX {
            return count("the idle connections", "0");
        }
        if is_out(self.connect_within) {
            return time("the limit to connect");
        }
        if is_out(self.answer_within) {
            return time("the limit to answer");
        }
        if is_out(self.idle_for) {
            return time("the time of an idle connection");
        }
        Ok(())
    }
}
