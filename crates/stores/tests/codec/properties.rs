//! Any record comes back, and no bytes at all make the codec panic: the everyday version of the
//! fuzz target, which goes on from here for as long as one lets it.
//!
//! Random bytes alone would all fail by their checksum, so most cases here have one that fits.

use std::sync::Arc;

use bytes::Bytes;
use onetake_core::{
    Address, Algorithm, Cause, Fence, Filters, Fingerprint, Header, Keeping, Key, Method,
    Operation, Outcome, Phase, Pointer, Principal, Record, Scope, Status, Tenant, Version,
};
use onetake_stores::codec::{
    decode_document, decode_entries, decode_entry, decode_number, decode_record, encode_document,
    encode_entries, encode_entry, encode_number, encode_record, label,
};
use onetake_stores::seal::{KeyRing, MasterKey, PlainValues, Sealer};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::samples::{MASTER, at, with_checksum, without_checksum};

fn any_bytes(max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

fn any_address() -> impl Strategy<Value = Arc<Address>> {
    let name = || "\\PC{1,60}";
    (name(), option::of(name()), name(), "[!-~]{1,255}").prop_map(|(tenant, who, what, key)| {
        let tenant = Tenant::new(&tenant).unwrap();
        let scope = match who {
            None => Scope::tenant_wide(tenant),
            Some(who) => Scope::of(tenant, Principal::new(&who).unwrap()),
        };
        let operation = Operation::new(&what).unwrap();
        Arc::new(Address::new(scope, operation, Key::new(&key).unwrap()))
    })
}

fn any_fingerprint() -> impl Strategy<Value = Fingerprint> {
    let algorithm = select(vec![Algorithm::Raw, Algorithm::Json]);
    let pointers = vec("(/([a-c0-9]|~0|~1|ü){0,9}){1,4}", 0..4);
    let parts = vec("\\PC{0,200}", 0..4);
    (algorithm, pointers, parts, any::<[u8; 32]>()).prop_map(|(how, pointers, parts, digest)| {
        let pointers = pointers.iter().map(|text| Pointer::parse(text).unwrap());
        let filters = Filters::new(pointers, parts.iter().map(|part| Arc::from(&**part)));
        Fingerprint::from_parts(Method::new(how, filters.unwrap()), digest)
    })
}

fn any_status() -> impl Strategy<Value = Status> {
    (Status::MIN..=Status::MAX).prop_map(|code| Status::new(code).unwrap())
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    let header = ("[a-z0-9-]{0,20}", any_bytes(200))
        .prop_map(|(name, value)| Header { name: name.as_str().into(), value });
    prop_oneof![
        (any_status(), vec(header, 0..6), any_bytes(600))
            .prop_map(|(status, headers, body)| Outcome::Response { status, headers, body }),
        any_bytes(600).prop_map(Outcome::Value),
        any_bytes(600).prop_map(Outcome::Failure),
        option::of(any_status()).prop_map(|status| Outcome::NotKept { status }),
    ]
}

fn any_phase() -> impl Strategy<Value = Phase> {
    let causes =
        vec![Cause::Silence, Cause::TimedOut, Cause::Panicked, Cause::Reported, Cause::Unrecovered];
    let keeping = select(vec![Keeping::Final, Keeping::Retryable]);
    prop_oneof![
        any::<u64>().prop_map(|ms| Phase::Claimed { lease_until: at(ms) }),
        any::<u64>().prop_map(|ms| Phase::Released { until: at(ms) }),
        select(causes).prop_map(|cause| Phase::Unknown { cause }),
        (any_outcome(), keeping, any::<u64>()).prop_map(|(outcome, keeping, ms)| Phase::Done {
            outcome: Arc::new(outcome),
            keeping,
            expires_at: at(ms),
        }),
    ]
}

fn any_record() -> impl Strategy<Value = Record> {
    let ids = any::<(u128, u32, u128, u32, bool, u64)>();
    (ids, any_address(), any_fingerprint(), any_phase()).prop_map(
        |((write, renewal, fence, attempt, recovery, since), address, fingerprint, phase)| Record {
            version: Version { write, renewal },
            fence: Fence(fence),
            address,
            fingerprint,
            attempt,
            recovery,
            since: at(since),
            phase,
        },
    )
}

fn any_sealer() -> impl Strategy<Value = Sealer> {
    prop_oneof![
        Just(Sealer::Plain),
        any::<bool>().prop_map(|rotated| {
            let mut ring = KeyRing::fresh().with_plain_values(PlainValues::Readable);
            if rotated {
                ring.rotate();
            }
            Sealer::Sealed(ring)
        }),
    ]
}

/// Reads bytes as everything that they could be. What is read must be written as it was read.
fn read_as_anything(bytes: &[u8], place: &[u8]) {
    let sealers =
        [Sealer::Plain, Sealer::Sealed(KeyRing::fresh().with_plain_values(PlainValues::Readable))];
    for sealer in &sealers {
        if let Ok((record, boot)) = decode_record(bytes, sealer, place) {
            let again = encode_record(&record, boot, &Sealer::Plain, place);
            assert_eq!(decode_record(&again, sealer, place), Ok((record, boot)));
        }
        let _ = decode_document(bytes, sealer, place);
        let _ = decode_entry(bytes, sealer, place);
        let _ = decode_entries(bytes, sealer, place);
    }
    let _ = label(bytes, place);
    let _ = decode_number(bytes, place);
    let _ = KeyRing::unwrap(bytes, &[MasterKey::new(MASTER)]);
}

proptest! {
    #[test]
    fn w3_any_record_comes_back(
        record in any_record(),
        boot: u64,
        sealer in any_sealer(),
        place in any_bytes(80),
    ) {
        let bytes = encode_record(&record, boot, &sealer, &place);
        let label = label(&bytes, &place).unwrap();
        prop_assert_eq!((label.version, label.since), (record.version, record.since));
        prop_assert_eq!(label.is_removable(at(9 << 60)), record.is_removable(at(9 << 60)));
        prop_assert_eq!(decode_record(&bytes, &sealer, &place), Ok((record, boot)));
    }

    #[test]
    fn any_flipped_bit_or_cut_of_any_record_is_refused(
        record in any_record(),
        sealer in any_sealer(),
        place in any_bytes(80),
        spot: Index,
        bit in 0..8_u8,
    ) {
        let mut bytes = encode_record(&record, 0, &sealer, &place);
        let spot = spot.index(bytes.len());
        prop_assert!(decode_record(&bytes[..spot], &sealer, &place).is_err());
        bytes[spot] ^= 1 << bit;
        prop_assert!(decode_record(&bytes, &sealer, &place).is_err());
        prop_assert!(label(&bytes, &place).is_err());
    }

    #[test]
    fn any_document_entry_and_number_comes_back(
        write: u128,
        number: i64,
        value in any_bytes(600),
        sealer in any_sealer(),
        place in any_bytes(80),
    ) {
        let version = Version::of_write(write);
        let document = encode_document(version, &value, &sealer, &place);
        let read = decode_document(&document, &sealer, &place);
        prop_assert_eq!(read, Ok((version, value.clone())));
        let entry = encode_entry(at(7), &value, &sealer, &place);
        prop_assert_eq!(decode_entry(&entry, &sealer, &place), Ok((at(7), value.clone())));
        let parts: Vec<&[u8]> = value.chunks(1 + usize::from(write.to_be_bytes()[0])).collect();
        let entries = encode_entries(at(7), &parts, &sealer, &place);
        let read = decode_entries(&entries, &sealer, &place).map(|(at, read)| (at, read.concat()));
        prop_assert_eq!(read, Ok((at(7), value.to_vec())));
        prop_assert_eq!(decode_number(&encode_number(number, &place), &place), Ok(number));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..300), place in any_bytes(20)) {
        read_as_anything(&bytes, &place);
        read_as_anything(&with_checksum(&bytes, &place), &place);
        for kind in [1, 2, 3, 4, 16, 17, 18, 32] {
            let start = [1, 1, kind, 0, 5];
            read_as_anything(&with_checksum(&[&start[..], &bytes].concat(), &place), &place);
        }
    }

    #[test]
    fn no_well_summed_forgery_of_a_record_makes_it_panic(
        record in any_record(),
        place in any_bytes(20),
        changes in vec(any::<(Index, u8)>(), 1..4),
        cut: Option<Index>,
        tail in any_bytes(20),
    ) {
        let bytes = encode_record(&record, 0, &Sealer::Plain, &place);
        let mut content = without_checksum(&bytes).to_vec();
        for (spot, byte) in changes {
            let spot = spot.index(content.len());
            content[spot] = byte;
        }
        if let Some(cut) = cut {
            content.truncate(cut.index(content.len()));
        }
        content.extend_from_slice(&tail);
        read_as_anything(&with_checksum(&content, &place), &place);
    }
}
