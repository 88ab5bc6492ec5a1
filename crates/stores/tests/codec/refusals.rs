//! What was stored comes back, and whatever else lies there is refused with a word about why.

use onetake_core::{Keeping, Outcome, Record, Version};
use onetake_stores::codec::{
    CodecError, Kind, decode_document, decode_entry, decode_number, decode_record, encode_document,
    encode_entry, encode_number, encode_record, label,
};
use onetake_stores::seal::Sealer;

use crate::samples::{at, claimed, done, place, records, response, with_checksum};

const PLAIN: Sealer = Sealer::Plain;

fn encoded(record: &Record) -> Vec<u8> {
    encode_record(record, 7, &PLAIN, &place(record))
}

/// W3: status, headers and body come back byte for byte, and so does everything else.
#[test]
fn w3_every_record_comes_back_as_it_was() {
    for (name, record) in records() {
        let read = decode_record(&encoded(&record), &PLAIN, &place(&record));
        assert_eq!(read, Ok((record, 7)), "{name}");
    }
}

/// D6: the store compares versions, and reads them from the label.
#[test]
fn d6_a_label_tells_what_the_record_tells() {
    for (name, record) in records() {
        let label = label(&encoded(&record), &place(&record)).unwrap();
        assert_eq!((label.version, label.since), (record.version, record.since), "{name}");
        assert_eq!((label.boot, label.weight as usize), (7, record.weight()), "{name}");
        for now in [0, 1_751_871_645_000, 1_751_871_660_001, 1_751_958_000_000, u64::MAX] {
            assert_eq!(label.is_removable(at(now)), record.is_removable(at(now)), "{name}");
        }
    }
}

/// C8: a claim has a lease and no end, whoever reads only the label.
#[test]
fn c8_the_lease_of_a_claim_is_never_its_end() {
    let record = claimed();
    let label = label(&encoded(&record), &place(&record)).unwrap();
    assert_eq!(label.kind, Kind::Claimed);
    assert_eq!((label.lease_until, label.end), (Some(at(1_751_871_630_000)), None));
    assert!(!label.is_removable(at(u64::MAX)));
}

#[test]
fn a_claim_is_small_and_written_in_one_allocation() {
    let record = claimed();
    let place = place(&record);
    let mut bytes = Vec::new();
    let info = allocation_counter::measure(|| bytes = encode_record(&record, 1, &PLAIN, &place));
    assert_eq!(info.count_total, 1);
    assert!(bytes.len() < 200, "{} bytes", bytes.len());
    let done = done(Keeping::Final, response());
    let info = allocation_counter::measure(|| bytes = encode_record(&done, 1, &PLAIN, &place));
    assert_eq!(info.count_total, 1);
}

#[test]
fn a_label_is_read_without_allocating() {
    let record = done(Keeping::Final, response());
    let (bytes, place) = (encoded(&record), place(&record));
    let info = allocation_counter::measure(|| assert!(label(&bytes, &place).is_ok()));
    assert_eq!(info.count_total, 0);
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    for record in [claimed(), done(Keeping::Final, response())] {
        let (mut bytes, place) = (encoded(&record), place(&record));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_record(&bytes, &PLAIN, &place).is_err(), "bit {bit}");
            assert!(label(&bytes, &place).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..bytes.len() {
            assert!(decode_record(&bytes[..length], &PLAIN, &place).is_err(), "{length} bytes");
            assert!(label(&bytes[..length], &place).is_err(), "{length} bytes");
        }
    }
}

#[test]
fn a_value_under_another_key_is_refused() {
    let record = claimed();
    let bytes = encoded(&record);
    assert_eq!(decode_record(&bytes, &PLAIN, b"elsewhere"), Err(CodecError::Checksum));
    assert_eq!(label(&bytes, b"elsewhere"), Err(CodecError::Checksum));
    let document = encode_document(Version::of_write(1), b"v", &PLAIN, b"here");
    assert_eq!(decode_document(&document, &PLAIN, b"there"), Err(CodecError::Checksum));
    let entry = encode_entry(at(1), b"v", &PLAIN, b"here");
    assert_eq!(decode_entry(&entry, &PLAIN, b"there"), Err(CodecError::Checksum));
    assert_eq!(decode_number(&encode_number(1, b"here"), b"there"), Err(CodecError::Checksum));
}

#[test]
fn documents_entries_and_numbers_come_back() {
    let version = Version { write: u128::MAX, renewal: 9 };
    for value in [&b""[..], b"v", &[0xff; 300]] {
        let document = encode_document(version, value, &PLAIN, b"p");
        let (found, read) = decode_document(&document, &PLAIN, b"p").unwrap();
        assert_eq!((found, &*read), (version, value));
        let entry = encode_entry(at(u64::MAX), value, &PLAIN, b"p");
        let (found, read) = decode_entry(&entry, &PLAIN, b"p").unwrap();
        assert_eq!((found, &*read), (at(u64::MAX), value));
    }
    for number in [0, 1, -1, i64::MIN, i64::MAX] {
        assert_eq!(decode_number(&encode_number(number, b"p"), b"p"), Ok(number));
    }
}

#[test]
fn one_kind_is_never_taken_for_another() {
    let document = encode_document(Version::of_write(1), b"v", &PLAIN, b"p");
    let entry = encode_entry(at(1), b"v", &PLAIN, b"p");
    let number = encode_number(1, b"p");
    let found = |found, expected| CodecError::Kind { found, expected };
    assert_eq!(decode_record(&document, &PLAIN, b"p").unwrap_err(), found(16, "record"));
    assert_eq!(label(&entry, b"p").unwrap_err(), found(17, "record"));
    assert_eq!(decode_document(&entry, &PLAIN, b"p").unwrap_err(), found(17, "document"));
    assert_eq!(decode_entry(&number, &PLAIN, b"p").unwrap_err(), found(18, "entry"));
    assert_eq!(decode_number(&document, b"p").unwrap_err(), found(16, "number"));
}

/// Takes the body of a record apart and puts it together again with another byte.
#[test]
fn a_well_summed_value_with_an_impossible_field_says_which() {
    const BODY: usize = 53;
    let spoilt = |record: &Record, offset: usize, byte: u8| {
        let (mut bytes, place) = (encoded(record), place(record));
        bytes[offset] = byte;
        let forged = with_checksum(&bytes[..bytes.len() - 8], &place);
        decode_record(&forged, &PLAIN, &place).unwrap_err().to_string()
    };
    let value = done(Keeping::Final, Outcome::Value("42".into()));
    let names = 4 + 13 + 36;
    let outcome = BODY + 55 + 4 + names + 2;
    assert_eq!(spoilt(&value, 3, 9), "the value is malformed: it is sealed in no known way");
    assert_eq!(
        spoilt(&value, BODY + 20, 2),
        "the value is malformed: its recovery is neither yes nor no"
    );
    assert_eq!(
        spoilt(&value, BODY + 21, 3),
        "the value is malformed: its keeping is none that is known"
    );
    assert_eq!(
        spoilt(&claimed(), BODY + 21, 1),
        "the value is malformed: its phase has no keeping and no cause"
    );
    assert_eq!(
        spoilt(&value, BODY + 22, 3),
        "the value is malformed: its fingerprint was made in no known way"
    );
    assert_eq!(
        spoilt(&value, BODY + 56, b'\n'),
        "the value holds a name that is none: the tenant holds a character at byte 0 that is not \
         allowed: use text without control characters"
    );
    assert_eq!(spoilt(&value, BODY + 55, 255), "the value ends in the middle of a field");
    assert_eq!(spoilt(&value, outcome - 2, 65), "the value is malformed: it has too many filters");
    assert_eq!(
        spoilt(&value, outcome, 5),
        "the value is malformed: its outcome is of no known kind"
    );
    let bare = done(Keeping::Final, response());
    assert_eq!(spoilt(&bare, outcome + 1, 9), "the value is malformed: its status is none");
}

/// What is allocated is bounded by what was given, whatever lengths it claims.
#[test]
fn a_huge_count_of_headers_allocates_next_to_nothing() {
    let record = done(Keeping::Final, response());
    let (bytes, place) = (encoded(&record), place(&record));
    let headers = 53 + 55 + 4 + (4 + 13 + 36) + 2 + 3;
    assert_eq!(bytes[headers], 5, "the number of headers stands here");
    let huge = [&bytes[..headers], &[0xff, 0xff, 0xff, 0xff, 0x7f], &bytes[headers + 1..]].concat();
    let forged = with_checksum(&huge[..huge.len() - 8], &place);
    let info = allocation_counter::measure(|| {
        assert!(decode_record(&forged, &PLAIN, &place).is_err());
    });
    assert!(info.bytes_max < 8 * 1024, "{} bytes", info.bytes_max);
}
