//! Two releases side by side: the older reads what the newer writes, or says that it must not.
//!
//! A later format is imitated: its bytes are made here from today's, as `docs/format.md` allows.

use onetake_core::{Keeping, Outcome};
use onetake_stores::codec::{
    CodecError, decode_document, decode_number, decode_record, encode_document, encode_number,
    encode_record, label,
};
use onetake_stores::seal::Sealer;

use crate::samples::{claimed, done, place, records, with_checksum, without_checksum};

const PLAIN: Sealer = Sealer::Plain;
const HEADER_LENGTH_AT: usize = 4;

/// What a later release might write: a higher format, and `field` at the end of the body.
fn later(bytes: &[u8], reads_from: u8, field: &[u8], place: &[u8]) -> Vec<u8> {
    let mut content = without_checksum(bytes).to_vec();
    content[0] = 9;
    content[1] = reads_from;
    content.extend_from_slice(field);
    with_checksum(&content, place)
}

#[test]
fn an_older_release_reads_a_newer_record_with_optional_fields() {
    for (name, record) in records() {
        let place = place(&record);
        let bytes = encode_record(&record, 7, &PLAIN, &place);
        let newer = later(&bytes, 1, b"\x05\x03abc\x11\x00", &place);
        assert_eq!(decode_record(&newer, &PLAIN, &place), Ok((record, 7)), "{name}");
        assert_eq!(label(&newer, &place), label(&bytes, &place), "{name}");
    }
}

#[test]
fn an_older_release_reads_a_newer_header_with_more_fields() {
    let record = claimed();
    let place = place(&record);
    let bytes = encode_record(&record, 7, &PLAIN, &place);
    let end = usize::from(bytes[HEADER_LENGTH_AT]);
    let mut content = without_checksum(&bytes).to_vec();
    content[0] = 2;
    content.splice(end..end, *b"more");
    content[HEADER_LENGTH_AT] += 4;
    let newer = with_checksum(&content, &place);
    assert_eq!(decode_record(&newer, &PLAIN, &place), Ok((record, 7)));
    assert_eq!(label(&newer, &place), label(&bytes, &place));
}

#[test]
fn an_older_release_refuses_what_it_would_misread_and_says_why() {
    let record = done(Keeping::Final, Outcome::Value("42".into()));
    let place = place(&record);
    let bytes = encode_record(&record, 7, &PLAIN, &place);
    let newer = later(&bytes, 2, b"", &place);
    let error = decode_record(&newer, &PLAIN, &place).unwrap_err();
    assert_eq!(error, CodecError::Newer { format: 9, reads_from: 2 });
    assert_eq!(
        error.to_string(),
        "the value has format 9 and asks for a release that reads format 2; this one reads up to 1"
    );
    assert_eq!(label(&newer, &place), Err(error));
}

#[test]
fn an_unknown_critical_field_is_refused() {
    let record = claimed();
    let place = place(&record);
    let bytes = encode_record(&record, 7, &PLAIN, &place);
    let newer = later(&bytes, 1, b"\x05\x03abc\x86\x00", &place);
    let error = decode_record(&newer, &PLAIN, &place).unwrap_err();
    assert_eq!(error, CodecError::Critical { tag: 0x86 });
    assert_eq!(
        error.to_string(),
        "the value has field 134, which a reader must know and this release does not"
    );
}

#[test]
fn documents_and_numbers_may_grow_as_well() {
    let version = claimed().version;
    let document = encode_document(version, b"v", &PLAIN, b"p");
    let read = decode_document(&later(&document, 1, b"\x01\x01x", b"p"), &PLAIN, b"p");
    assert_eq!(read, Ok((version, "v".into())));
    let number = encode_number(-5, b"p");
    assert_eq!(decode_number(&later(&number, 1, b"\x01\x01x", b"p"), b"p"), Ok(-5));
    let critical = decode_number(&later(&number, 1, b"\x81\x01x", b"p"), b"p");
    assert_eq!(critical, Err(CodecError::Critical { tag: 0x81 }));
    let refused = decode_number(&later(&number, 2, b"", b"p"), b"p");
    assert_eq!(refused, Err(CodecError::Newer { format: 9, reads_from: 2 }));
}
