//! What comes back is what was given, byte for byte, for its own tenant only.
//!
//! The cases go to the ends of every field: a codec that loses one bit of a record fails here.

use std::sync::Arc;

use bytes::Bytes;
use onetake_core::{
    Address, Algorithm, Asking, Cause, Draft, Fence, Filters, Header, Keeping, Key, Method,
    Operation, Outcome, Phase, Pointer, Principal, Scope, Status, Version,
};

use super::hear::{there, won};
use crate::Rig;
use crate::make::{LONG, Pen, address, tenant};

fn every_byte() -> Bytes {
    (0..=255).collect::<Vec<u8>>().into()
}

fn response(status: u16, headers: Vec<Header>, body: Bytes) -> Outcome {
    Outcome::Response { status: Status::new(status).unwrap(), headers, body }
}

fn outcomes() -> Vec<Outcome> {
    let header = |name: &str, value: &'static [u8]| Header {
        name: name.into(),
        value: Bytes::from_static(value),
    };
    let mebibyte: Vec<u8> = (0..=250).cycle().take(1 << 20).collect();
    let headers = vec![
        header("content-type", b"application/json"),
        header("x-latin-1", b"caf\xe9 \xff\x00"),
        header("x-empty", b""),
        header("x-twice", b"1"),
        header("x-twice", b"2"),
    ];
    vec![
        response(200, Vec::new(), Bytes::new()),
        response(201, headers, every_byte()),
        response(599, vec![header("x-order", b"first")], mebibyte.clone().into()),
        response(100, Vec::new(), Bytes::from_static(b"\xff\xfe not UTF-8 \x80")),
        Outcome::Value(Bytes::new()),
        Outcome::Value(mebibyte.into()),
        Outcome::Failure(Bytes::new()),
        Outcome::Failure(every_byte()),
        Outcome::NotKept { status: None },
        Outcome::NotKept { status: Status::new(502) },
    ]
}

/// W3, C4: status, headers and body are given again exactly: empty, large, and no text at all.
pub async fn w3_c4_outcomes_come_back_byte_for_byte<R: Rig>(rig: &R) {
    let store = rig.open().await;
    for (id, outcome) in (1..).zip(outcomes()) {
        let pen = Pen::new(&format!("k{id}"));
        let kept = won(&store, None, pen.done_with(id, id, LONG, outcome.clone())).await;
        let read = there(&store, pen.slot()).await.expect("it was just written");
        let Phase::Done { outcome: found, .. } = &read.phase else { panic!("{read:?}") };
        assert!(**found == outcome, "outcome {id} came back changed");
        assert!(read == kept, "record {id} came back changed");
    }
}

/// Every phase, cause and keeping, and numbers at their ends.
pub async fn every_field_of_a_record_comes_back<R: Rig>(rig: &R) {
    let store = rig.open().await;
    let outcome = || Arc::new(Outcome::Value("v".into()));
    let causes = [Cause::Silence, Cause::TimedOut, Cause::Panicked, Cause::Reported];
    let keepings = [Keeping::Final, Keeping::Retryable];
    let phases =
        causes.map(|cause| Phase::Unknown { cause }).into_iter().chain(keepings.map(|keeping| {
            Phase::Done { outcome: outcome(), keeping, expires_at: LONG * 24 * 365 * 10 }
        }));
    for (n, phase) in phases.enumerate() {
        let pen = Pen::new(&format!("k{n}"));
        let draft = Draft {
            version: Version::of_write(u128::MAX - n as u128),
            fence: Fence(u128::MAX / 3 + n as u128),
            attempt: u32::MAX,
            ..pen.draft(1, 1, phase.clone())
        };
        let written = won(&store, None, draft.clone()).await;
        assert_eq!(*written, draft.at(written.since), "{phase:?}");
        assert_eq!(there(&store, pen.slot()).await, Some(written));
    }
}

/// The longest names, names that are no ASCII, a principal, and a fingerprint with filters.
pub async fn every_part_of_an_address_and_a_fingerprint_comes_back<R: Rig>(rig: &R) {
    let store = rig.open().await;
    let filters =
        Filters::new([Pointer::parse("/client_time").unwrap()], ["query".into()]).unwrap();
    let body = Asking::new(r#"{"client_time":1}"#).part("query", "a=1");
    let asked = body.by(Method::new(Algorithm::Json, filters)).unwrap();
    for name in ["a".repeat(255), "b".to_owned(), "čtyři/ß:%_\\'\"".to_owned()] {
        let principals = [None, Some(Principal::new(&name).unwrap())];
        for (id, principal) in (1..).zip(principals) {
            let scope = match principal {
                None => Scope::tenant_wide(tenant(&name)),
                Some(principal) => Scope::of(tenant(&name), principal),
            };
            let key = Key::new(&"!".repeat(255)).unwrap();
            let address = Address::new(scope, Operation::new(&name).unwrap(), key);
            let pen = Pen::of(Arc::new(address));
            let fingerprint = asked.fingerprint().clone();
            let claim = Draft { fingerprint: fingerprint.clone(), ..pen.claim(id, LONG) };
            let written = won(&store, None, claim).await;
            let read = there(&store, pen.slot()).await.expect("it was just written");
            assert_eq!((&read.address, &read.fingerprint), (pen.address(), &fingerprint));
            assert_eq!(read, written);
        }
    }
}

/// W10: one key in two tenants is two records, also where one name begins with the other.
pub async fn w10_tenants_never_share_a_key<R: Rig>(rig: &R) {
    let store = rig.open().await;
    let names = ["acme", "acme-2", "acm", "Acme", "a"];
    for (id, name) in (1..).zip(names) {
        won(&store, None, Pen::of(address(name, "k")).claim(id, LONG)).await;
    }
    for (id, name) in (1..).zip(names) {
        let pen = Pen::of(address(name, "k"));
        let read = there(&store, pen.slot()).await.expect("each has its own");
        assert_eq!((read.fence, &read.address), (Fence(id), pen.address()));
    }
    let acme = Pen::of(address("acme", "k"));
    won(&store, Some(Version::of_write(1)), acme.released(10, 1, LONG)).await;
    let other = there(&store, Pen::of(address("acme-2", "k")).slot()).await;
    assert_eq!(other.map(|record| record.fence), Some(Fence(2)), "and nobody moves another's");
}

/// C7: one key under two operations is two records.
pub async fn c7_operations_never_share_a_key<R: Rig>(rig: &R) {
    let store = rig.open().await;
    let pens = ["orders.create", "orders.cancel"]
        .map(|operation| Pen::of(crate::make::address_of("acme", operation, "k")));
    won(&store, None, pens[0].claim(1, LONG)).await;
    won(&store, None, pens[1].claim(2, LONG)).await;
    let fences = [
        there(&store, pens[0].slot()).await.map(|record| record.fence),
        there(&store, pens[1].slot()).await.map(|record| record.fence),
    ];
    assert_eq!(fences, [Some(Fence(1)), Some(Fence(2))]);
}
