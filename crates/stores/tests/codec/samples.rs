//! Records for the tests of the codec, and checksums as `docs/format.md` describes them.
//!
//! Every value here is fixed: the golden files were made from it. Change nothing, add instead.

use std::sync::Arc;

use bytes::Bytes;
use onetake_core::{
    Address, Algorithm, Asking, Cause, Fence, Filters, Fingerprint, Header, Keeping, Key, Method,
    Operation, Outcome, Phase, Pointer, Principal, Record, Scope, Status, Tenant, Timestamp,
    Version,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub(crate) const fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// A key ring that was wrapped by this key is among the golden files.
pub(crate) const MASTER: [u8; 32] = *b"a master key for the tests only.";

pub(crate) fn address(principal: Option<&str>) -> Arc<Address> {
    let tenant = Tenant::new("acme").unwrap();
    let scope = match principal {
        None => Scope::tenant_wide(tenant),
        Some(name) => Scope::of(tenant, Principal::new(name).unwrap()),
    };
    let operation = Operation::new("orders.create").unwrap();
    let key = Key::new("0197f1c2-8d7e-7cc3-98c4-dc0c0c07398f").unwrap();
    Arc::new(Address::new(scope, operation, key))
}

/// An ordinary record in this phase.
pub(crate) fn record(phase: Phase) -> Record {
    Record {
        version: Version { write: 0x0197_f1c2_8d7e_7cc3_98c4_dc0c_0c07_398f, renewal: 3 },
        fence: Fence(0x0197_f1c2_8d7e_7cc3_98c4_dc0c_0c07_3990),
        address: address(None),
        fingerprint: Fingerprint::from_parts(Method::JSON, [0xd1; 32]),
        attempt: 1,
        recovery: false,
        since: at(1_751_871_600_000),
        phase,
    }
}

pub(crate) fn claimed() -> Record {
    record(Phase::Claimed { lease_until: at(1_751_871_630_000) })
}

pub(crate) fn done(keeping: Keeping, outcome: Outcome) -> Record {
    let expires_at = at(1_751_958_000_000);
    record(Phase::Done { outcome: Arc::new(outcome), keeping, expires_at })
}

pub(crate) fn response() -> Outcome {
    let header = |name: &str, value: &'static [u8]| Header {
        name: name.into(),
        value: Bytes::from_static(value),
    };
    let headers = vec![
        header("content-type", b"application/json"),
        header("x-latin-1", b"caf\xe9 \xff\x00"),
        header("x-empty", b""),
        header("x-twice", b"1"),
        header("x-twice", b"2"),
    ];
    let body = (0..=255).collect::<Vec<u8>>().into();
    Outcome::Response { status: Status::new(201).unwrap(), headers, body }
}

fn unknown(cause: Cause) -> Record {
    record(Phase::Unknown { cause })
}

fn filtered() -> Record {
    let pointers = ["/client_time", "/items/0/a~1b"].map(|text| Pointer::parse(text).unwrap());
    let filters = Filters::new(pointers, ["query".into(), "x-region".into()]).unwrap();
    let asking = Asking::new(r#"{"client_time":1}"#).part("query", "a=1");
    let asked = asking.by(Method::new(Algorithm::Json, filters)).unwrap();
    Record { fingerprint: asked.fingerprint().clone(), ..claimed() }
}

fn at_the_ends() -> Record {
    let fingerprint = Fingerprint::from_parts(Method::RAW, [0xff; 32]);
    Record {
        version: Version { write: u128::MAX, renewal: u32::MAX },
        fence: Fence(u128::MAX),
        attempt: u32::MAX,
        recovery: true,
        since: at(u64::MAX),
        fingerprint,
        ..record(Phase::Released { until: at(u64::MAX) })
    }
}

/// Every phase, keeping, cause and kind of outcome, by the name of its golden file.
pub(crate) fn records() -> Vec<(&'static str, Record)> {
    let not_kept = |code: Option<u16>| Outcome::NotKept { status: code.and_then(Status::new) };
    let bare = Outcome::Response {
        status: Status::new(204).unwrap(),
        headers: Vec::new(),
        body: Bytes::new(),
    };
    vec![
        ("claimed", claimed()),
        ("claimed-principal", Record { address: address(Some("ann")), ..claimed() }),
        ("claimed-recovery", Record { recovery: true, attempt: 2, ..claimed() }),
        ("claimed-filters", filtered()),
        ("done-response", done(Keeping::Final, response())),
        ("done-response-bare", done(Keeping::Final, bare)),
        ("done-value", done(Keeping::Final, Outcome::Value("42".into()))),
        ("done-failure", done(Keeping::Final, Outcome::Failure("no stock".into()))),
        ("done-not-kept", done(Keeping::Final, not_kept(None))),
        ("done-not-kept-status", done(Keeping::Final, not_kept(Some(502)))),
        ("done-retryable", done(Keeping::Retryable, response())),
        ("released", record(Phase::Released { until: at(1_751_871_660_001) })),
        ("released-at-the-ends", at_the_ends()),
        ("unknown-silence", unknown(Cause::Silence)),
        ("unknown-timed-out", unknown(Cause::TimedOut)),
        ("unknown-panicked", unknown(Cause::Panicked)),
        ("unknown-reported", unknown(Cause::Reported)),
        ("unknown-unrecovered", unknown(Cause::Unrecovered)),
    ]
}

/// The place of a record in these tests.
pub(crate) fn place(record: &Record) -> Vec<u8> {
    record.address.slot().to_bytes()
}

/// `content` with the checksum that it would have at `place`: what a forger would do.
pub(crate) fn with_checksum(content: &[u8], place: &[u8]) -> Vec<u8> {
    let sum = xxh3_64_with_seed(content, xxh3_64(place));
    [content, &sum.to_be_bytes()].concat()
}

/// A stored value without its checksum.
pub(crate) fn without_checksum(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len() - 8]
}
