//! Bytes that a released format wrote, kept for ever: every later release must read them.
//!
//! The files are never rewritten. `ONETAKE_GOLDEN=add cargo test -p onetake-stores` writes those
//! that are missing, which is how a new sample, or a new format, gets its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use onetake_core::Version;
use onetake_stores::codec::{
    decode_document, decode_entries, decode_entry, decode_number, decode_record, encode_document,
    encode_entries, encode_entry, encode_number, encode_record, label,
};
use onetake_stores::seal::{KeyRing, MasterKey, PlainValues, Sealer};

use crate::samples::{MASTER, at, claimed, done, place, records, response};

const PLAIN: Sealer = Sealer::Plain;
const BOOT: u64 = 7;
const NUMBERS: [(&str, i64); 3] =
    [("number", 1_000_000), ("number-negative", -1), ("number-least", i64::MIN)];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

/// The bytes of a golden file. `make` says what a new one would hold.
fn golden(name: &str, make: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = folder().join(format!("{name}.bin"));
    if !path.exists() && std::env::var_os("ONETAKE_GOLDEN").is_some_and(|word| word == "add") {
        fs::write(&path, make()).unwrap();
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// W3
#[test]
fn w3_golden_records_are_read_and_written_as_ever() {
    for (name, record) in records() {
        let place = place(&record);
        let now = || encode_record(&record, BOOT, &PLAIN, &place);
        let bytes = golden(name, now);
        assert_eq!(decode_record(&bytes, &PLAIN, &place), Ok((record.clone(), BOOT)), "{name}");
        assert_eq!(label(&bytes, &place).unwrap().version, record.version, "{name}");
        assert_eq!(bytes, now(), "{name} is written otherwise than it was");
    }
}

#[test]
fn golden_documents_entries_and_numbers_are_read_and_written_as_ever() {
    let version = Version { write: 0x0197_f1c2_8d7e_7cc3_98c4_dc0c_0c07_398f, renewal: 0 };
    let now = || encode_document(version, b"a document", &PLAIN, b"doc");
    let bytes = golden("document", now);
    assert_eq!(decode_document(&bytes, &PLAIN, b"doc"), Ok((version, "a document".into())));
    assert_eq!(bytes, now());

    let time = at(1_751_871_600_000);
    let now = || encode_entry(time, b"an entry", &PLAIN, b"lane");
    let bytes = golden("entry", now);
    assert_eq!(decode_entry(&bytes, &PLAIN, b"lane"), Ok((time, "an entry".into())));
    assert_eq!(bytes, now());

    let values: [&[u8]; 3] = [b"one", b"", b"three"];
    let now = || encode_entries(time, &values, &PLAIN, b"lane");
    let bytes = golden("entries", now);
    let read = values.map(bytes::Bytes::from_static).to_vec();
    assert_eq!(decode_entries(&bytes, &PLAIN, b"lane"), Ok((time, read)));
    assert_eq!(bytes, now());
    let entry = golden("entry", || unreachable!());
    assert_eq!(decode_entries(&entry, &PLAIN, b"lane"), Ok((time, vec!["an entry".into()])));

    for (name, number) in NUMBERS {
        let now = || encode_number(number, b"counter").to_vec();
        let bytes = golden(name, now);
        assert_eq!(decode_number(&bytes, b"counter"), Ok(number), "{name}");
        assert_eq!(bytes, now(), "{name}");
    }
}

fn ring() -> KeyRing {
    let master = MasterKey::new(MASTER);
    let wrapped = golden("key-ring", || {
        let mut ring = KeyRing::fresh().with_plain_values(PlainValues::Readable);
        ring.rotate();
        ring.wrap(&master)
    });
    KeyRing::unwrap(&wrapped, &[master]).unwrap().0
}

/// X11: sealed bytes hold a random number, so they can be read again but not written again.
#[test]
fn x11_golden_sealed_values_are_opened_by_the_golden_key_ring() {
    let ring = ring();
    assert_eq!(ring.generations().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(ring.plain_values(), PlainValues::Readable);
    let sealer = Sealer::Sealed(ring);
    let name = golden("sealed-name", || sealer.name(&[7; 32]).to_vec());
    assert_eq!(sealer.name(&[7; 32])[..], name, "every slot of every sealed store depends on it");

    for (name, record) in [
        ("sealed-claimed", claimed()),
        ("sealed-done", done(onetake_core::Keeping::Final, response())),
    ] {
        let place = place(&record);
        let bytes = golden(name, || encode_record(&record, BOOT, &sealer, &place));
        assert_eq!(decode_record(&bytes, &sealer, &place), Ok((record, BOOT)), "{name}");
    }
    let version = Version::of_write(5);
    let bytes = golden("sealed-document", || encode_document(version, b"value", &sealer, b"doc"));
    assert_eq!(decode_document(&bytes, &sealer, b"doc"), Ok((version, "value".into())));
    let bytes = golden("sealed-entry", || encode_entry(at(6), b"value", &sealer, b"lane"));
    assert_eq!(decode_entry(&bytes, &sealer, b"lane"), Ok((at(6), "value".into())));
    let values: [&[u8]; 2] = [b"one", b"two"];
    let bytes = golden("sealed-entries", || encode_entries(at(6), &values, &sealer, b"lane"));
    let read = values.map(bytes::Bytes::from_static).to_vec();
    assert_eq!(decode_entries(&bytes, &sealer, b"lane"), Ok((at(6), read)));
}

#[test]
fn every_golden_file_is_read_by_a_test_and_told_of_in_the_readme() {
    let mut expected: BTreeSet<String> = records().iter().map(|(name, _)| (*name).into()).collect();
    expected.extend(NUMBERS.map(|(name, _)| name.to_owned()));
    let sealed =
        ["sealed-claimed", "sealed-done", "sealed-document", "sealed-entry", "sealed-entries"];
    let others = ["document", "entry", "entries", "key-ring", "sealed-name"];
    expected.extend(sealed.iter().chain(&others).map(|name| (*name).to_owned()));
    let found: BTreeSet<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".bin").map(str::to_owned))
        .collect();
    assert_eq!(found, expected);
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    for name in found {
        assert!(readme.contains(&format!("| `{name}` |")), "{name} is not told of");
    }
}
