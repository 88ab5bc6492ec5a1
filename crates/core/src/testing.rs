//! Short ways to make records in the tests of this crate. Never part of the library.

use std::sync::Arc;
use std::time::Duration;

use crate::fingerprint::Asked;
use crate::outcome::Outcome;
use crate::record::{Draft, Fence, Keeping, Phase, Version};
use crate::scope::{Address, Key, Operation, Scope};
use crate::time::Timestamp;

pub(crate) const fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

pub(crate) fn address(key: &str) -> Arc<Address> {
    let scope = Scope::tenant_named("acme").unwrap();
    let operation = Operation::new("orders.create").unwrap();
    Arc::new(Address::new(scope, operation, Key::new(key).unwrap()))
}

pub(crate) fn draft(id: u128, phase: Phase<Duration>) -> Draft {
    Draft {
        version: Version::of_write(id),
        fence: Fence(id),
        address: address("k"),
        fingerprint: Asked::raw("body").fingerprint().clone(),
        attempt: 1,
        recovery: false,
        since: Duration::ZERO,
        phase,
    }
}

pub(crate) fn done(id: u128, keeping: Keeping, expires_at: Duration) -> Draft {
    let outcome = Arc::new(Outcome::Value("ok".into()));
    draft(id, Phase::Done { outcome, keeping, expires_at })
}

pub(crate) fn released(id: u128, until: Duration) -> Draft {
    draft(id, Phase::Released { until })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
