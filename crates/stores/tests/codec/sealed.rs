//! Encryption at rest, from outside (X11).

use onetake_core::{Keeping, Outcome, Record, Version};
use onetake_stores::codec::{
    CodecError, decode_document, decode_entry, decode_record, encode_document, encode_entry,
    encode_record, label,
};
use onetake_stores::seal::{KeyRing, MasterKey, PlainValues, SealError, Sealer};

use crate::samples::{
    MASTER, address, at, claimed, done, place, records, with_checksum, without_checksum,
};

fn master() -> MasterKey {
    MasterKey::new(MASTER)
}

fn secret_record() -> Record {
    let outcome = Outcome::Value("a secret value".into());
    Record { address: address(Some("ann")), ..done(Keeping::Final, outcome) }
}

/// W3
#[test]
fn w3_every_sealed_record_comes_back_as_it_was() {
    let sealer = Sealer::Sealed(KeyRing::fresh());
    for (name, record) in records() {
        let place = place(&record);
        let bytes = encode_record(&record, 7, &sealer, &place);
        assert_eq!(decode_record(&bytes, &sealer, &place), Ok((record.clone(), 7)), "{name}");
        let plain = encode_record(&record, 7, &Sealer::Plain, &place);
        assert_eq!(label(&bytes, &place), label(&plain, &place), "{name}");
        assert_eq!(bytes.len(), plain.len() + 44, "{name}");
    }
}

/// X11
#[test]
fn x11_nothing_of_the_body_can_be_read_in_the_bytes() {
    let sealer = Sealer::Sealed(KeyRing::fresh());
    let record = secret_record();
    let holds = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|w| w == part);
    let hidden = encode_record(&record, 0, &sealer, b"p");
    let plain = encode_record(&record, 0, &Sealer::Plain, b"p");
    let digest = record.fingerprint.digest();
    let key = record.address.key().as_str().as_bytes();
    for part in [b"a secret value", &b"ann"[..], b"orders.create", key, digest] {
        assert!(holds(&plain, part), "the test looks for what is there");
        assert!(!holds(&hidden, part));
    }
}

/// X11: also by one who makes the checksum fit.
#[test]
fn x11_no_byte_of_a_sealed_value_can_be_altered() {
    let sealer = Sealer::Sealed(KeyRing::fresh().with_plain_values(PlainValues::Readable));
    let record = secret_record();
    let place = place(&record);
    let bytes = encode_record(&record, 1, &sealer, &place);
    let mut content = without_checksum(&bytes).to_vec();
    for offset in 0..content.len() {
        for flip in [1, 0x80, 0xff] {
            content[offset] ^= flip;
            let forged = with_checksum(&content, &place);
            assert!(decode_record(&forged, &sealer, &place).is_err(), "byte {offset}");
            content[offset] ^= flip;
        }
    }
    for length in 0..content.len() {
        let forged = with_checksum(&content[..length], &place);
        assert!(decode_record(&forged, &sealer, &place).is_err(), "{length} bytes");
    }
    assert!(decode_record(&with_checksum(&content, &place), &sealer, &place).is_ok());
}

/// X11
#[test]
fn x11_a_sealed_value_opens_at_its_own_place_only() {
    let sealer = Sealer::Sealed(KeyRing::fresh());
    let record = encode_record(&claimed(), 1, &sealer, b"here");
    let document = encode_document(Version::of_write(1), b"v", &sealer, b"here");
    let entry = encode_entry(at(1), b"v", &sealer, b"here");
    let moved = |bytes: &[u8]| with_checksum(without_checksum(bytes), b"there");
    let refused = CodecError::Forged;
    assert_eq!(decode_record(&moved(&record), &sealer, b"there"), Err(refused.clone()));
    assert_eq!(decode_document(&moved(&document), &sealer, b"there"), Err(refused.clone()));
    assert_eq!(decode_entry(&moved(&entry), &sealer, b"there"), Err(refused));
    assert!(decode_document(&document, &sealer, b"here").is_ok());
    assert!(decode_entry(&entry, &sealer, b"here").is_ok());
}

/// X11
#[test]
fn x11_the_same_record_is_never_sealed_to_the_same_bytes() {
    let sealer = Sealer::Sealed(KeyRing::fresh());
    let seal = || encode_record(&claimed(), 1, &sealer, b"p");
    assert_ne!(seal(), seal());
}

#[test]
fn a_rotation_keeps_what_is_there_readable() {
    let mut ring = KeyRing::fresh();
    let old = encode_entry(at(1), b"old", &Sealer::Sealed(ring.clone()), b"p");
    ring.rotate();
    assert_eq!((ring.current(), ring.generations().len()), (2, 2));
    let rotated = Sealer::Sealed(ring.clone());
    let new = encode_entry(at(1), b"new", &rotated, b"p");
    let read = |bytes: &[u8], sealer: &Sealer| decode_entry(bytes, sealer, b"p").map(|(_, v)| v);
    assert_eq!(read(&old, &rotated).as_deref(), Ok(&b"old"[..]));
    assert_eq!(read(&new, &rotated).as_deref(), Ok(&b"new"[..]));
    ring.forget_before(99);
    assert_eq!(ring.generations().collect::<Vec<_>>(), [2], "the current one always stays");
    let forgetful = Sealer::Sealed(ring);
    assert_eq!(read(&old, &forgetful), Err(CodecError::NoGeneration { generation: 1 }));
    assert_eq!(read(&new, &forgetful).as_deref(), Ok(&b"new"[..]));
}

#[test]
fn a_key_ring_comes_back_from_its_wrapping() {
    let mut ring = KeyRing::fresh().with_plain_values(PlainValues::Readable);
    let old = encode_entry(at(1), b"old", &Sealer::Sealed(ring.clone()), b"p");
    ring.rotate();
    let wrapped = ring.wrap(&master());
    let (read, which) =
        KeyRing::unwrap(&wrapped, &[MasterKey::new([9; 32]), master()]).expect("one of them fits");
    assert_eq!(which, 1);
    assert_eq!(format!("{read:?}"), format!("{ring:?}"));
    let (ours, theirs) = (Sealer::Sealed(ring), Sealer::Sealed(read));
    assert_eq!(ours.name(&[7; 32]), theirs.name(&[7; 32]));
    assert!(decode_entry(&old, &theirs, b"p").is_ok());
    let new = encode_entry(at(1), b"new", &ours, b"p");
    assert!(decode_entry(&new, &theirs, b"p").is_ok());
}

#[test]
fn a_wrong_master_key_is_told_by_the_id_of_the_right_one() {
    let wrapped = KeyRing::fresh().wrap(&master());
    for masters in [vec![], vec![MasterKey::new([9; 32])]] {
        let error = KeyRing::unwrap(&wrapped, &masters).unwrap_err();
        let id = master().id();
        assert_eq!(
            error.to_string(),
            format!("the key ring was wrapped by master key {id}, which is not at hand")
        );
    }
}

/// X11: also by one who makes the checksum fit.
#[test]
fn x11_no_byte_of_a_key_ring_can_be_altered() {
    let wrapped = KeyRing::fresh().wrap(&master());
    let place = b"onetake/key-ring";
    let mut content = without_checksum(&wrapped).to_vec();
    assert!(KeyRing::unwrap(&with_checksum(&content, place), &[master()]).is_ok());
    for offset in 0..content.len() {
        content[offset] ^= 1;
        let forged = with_checksum(&content, place);
        assert!(KeyRing::unwrap(&forged, &[master()]).is_err(), "byte {offset}");
        let unsummed = [&content[..], &wrapped[content.len()..]].concat();
        let error = KeyRing::unwrap(&unsummed, &[master()]).unwrap_err();
        assert!(matches!(error, SealError::Ring(CodecError::Checksum)), "byte {offset}");
        content[offset] ^= 1;
    }
}

/// X11: whoever writes plain values into a sealed store is found out, unless that is how it began.
#[test]
fn x11_plain_values_are_read_only_where_the_ring_allows_it() {
    let plain = encode_entry(at(1), b"v", &Sealer::Plain, b"p");
    let strict = Sealer::Sealed(KeyRing::fresh());
    assert_eq!(decode_entry(&plain, &strict, b"p"), Err(CodecError::NotSealed));
    let switched_on = KeyRing::fresh().with_plain_values(PlainValues::Readable);
    let (_, read) = decode_entry(&plain, &Sealer::Sealed(switched_on), b"p").unwrap();
    assert_eq!(&*read, b"v");
    let sealed = encode_entry(at(1), b"v", &strict, b"p");
    let no_key = decode_entry(&sealed, &Sealer::Plain, b"p").unwrap_err();
    assert_eq!(no_key, CodecError::Sealed { generation: 1 });
}

/// X11: the digest of a guessed key tells nothing to one who has no keys.
#[test]
fn x11_a_sealed_name_is_stable_and_hides_the_digest() {
    let digest = [7; 32];
    assert_eq!(Sealer::Plain.name(&digest), digest);
    let mut ring = KeyRing::fresh();
    let name = Sealer::Sealed(ring.clone()).name(&digest);
    assert_ne!(name, digest);
    ring.rotate();
    ring.forget_before(2);
    assert_eq!(Sealer::Sealed(ring).name(&digest), name, "or every slot would move");
    assert_ne!(Sealer::Sealed(KeyRing::fresh()).name(&digest), name);
}

/// X11
#[test]
fn x11_neither_sealer_nor_ring_shows_a_key() {
    let sealer = Sealer::Sealed(KeyRing::fresh());
    let shown = format!("{sealer:?} {:?}", Sealer::Plain);
    assert_eq!(shown, "Sealed(KeyRing(generations [1], plain values Refused)) Plain");
}
