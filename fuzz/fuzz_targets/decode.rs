//! Reads arbitrary bytes as every kind of stored value, for as long as one lets it.
//!
//! The everyday version of this is `crates/stores/tests/codec/properties.rs`. The golden files are
//! good seeds. Nothing here knows what the right answer is, only that there is always one.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use onetake_stores::codec::{
    decode_document, decode_entry, decode_number, decode_record, encode_record, label,
};
use onetake_stores::seal::{KeyRing, MasterKey, PlainValues, Sealer};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The only place of a key ring, so that one place serves for everything.
const PLACE: &[u8] = b"onetake/key-ring";
const CHECKSUM_BYTES: usize = 8;

static SEALERS: LazyLock<[Sealer; 2]> = LazyLock::new(|| {
    let ring = KeyRing::fresh().with_plain_values(PlainValues::Readable);
    [Sealer::Plain, Sealer::Sealed(ring)]
});

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    // Hardly any input has a checksum that fits, and behind it is where the fields are read.
    let content = &bytes[..bytes.len().saturating_sub(CHECKSUM_BYTES)];
    let sum = xxh3_64_with_seed(content, xxh3_64(PLACE));
    read(&[content, &sum.to_be_bytes()].concat());
});

fn read(bytes: &[u8]) {
    for sealer in &*SEALERS {
        if let Ok((record, boot)) = decode_record(bytes, sealer, PLACE) {
            let again = encode_record(&record, boot, sealer, PLACE);
            assert_eq!(decode_record(&again, sealer, PLACE), Ok((record, boot)));
        }
        let _ = decode_document(bytes, sealer, PLACE);
        let _ = decode_entry(bytes, sealer, PLACE);
    }
    let _ = label(bytes, PLACE);
    let _ = decode_number(bytes, PLACE);
    let _ = KeyRing::unwrap(bytes, &[MasterKey::new([7; 32])]);
}
