//! Points in time as they are written on the wire.
//!
//! Only writes them; nothing here reads a clock.

use std::time::{Duration, UNIX_EPOCH};

/// The last moment that the format has a word for.
const LAST_MS: u64 = 253_402_300_799_999;

/// `ms` milliseconds since 1970, as RFC 3339 has it.
#[must_use]
pub(crate) fn rfc3339(ms: u64) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(ms.min(LAST_MS));
    humantime::format_rfc3339_millis(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_a_point_in_time() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(u64::MAX), "9999-12-31T23:59:59.999Z");
    }
}
