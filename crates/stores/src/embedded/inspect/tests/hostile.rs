//! Journals that somebody has prepared: values that look like batches, and lengths that lie.
//!
//! Never trusts that a value is harmless, because a client chooses it.

use super::*;

/// A journal whose last batch holds the bytes of a later journal as a value.
fn nested(after: &[u8]) -> (Written, Range<usize>) {
    // These batches have higher numbers than those of the outer journal.
    let inner = (0..20).fold(Written::new(), |written, n: u8| written.batch(&[(&[n], Some(b"x"))]));
    let spans = inner.spans();
    let mut value = inner.bytes()[spans[10].start..].to_vec();
    value.extend(after);
    let outer = Written::new().batch(&[(b"a", Some(b"one"))]).batch(&[(b"b", Some(&value))]);
    let last = outer.spans().pop().unwrap();
    (outer, last)
}

#[test]
fn a_value_that_holds_a_journal_is_a_value() {
    let (outer, last) = nested(b"");
    let report = outer.report();
    assert_eq!(report.batches, 2);
    assert_eq!(report.end, JournalEnd::Clean { at: last.end as u64 });
}

#[test]
fn a_torn_write_of_a_value_that_holds_a_journal_is_torn_and_casts_a_shadow() {
    let (outer, last) = nested(&[b'z'; 100]);
    let bytes = outer.bytes();
    let within = last.end - 13 - 100..last.end;
    for cut in within.clone().skip(1) {
        let end = end_of_bytes(&bytes[..cut]);
        let JournalEnd::Torn { at, shadow, .. } = end else { panic!("cut at {cut}: {end:?}") };
        assert_eq!(at, last.start as u64);
        assert!(shadow.is_some_and(|shadow| last.contains(&usize::try_from(shadow).unwrap())));
    }
    // Cut at the very end of an inner batch it cannot be told from damage, and is called so.
    assert!(matches!(end_of_bytes(&bytes[..within.start]), JournalEnd::Damaged { .. }));
}

#[test]
fn a_wrong_bit_in_a_value_that_holds_a_journal_is_not_taken_for_a_later_batch() {
    let (outer, last) = nested(&[b'z'; 100]);
    let mut bytes = outer.bytes();
    bytes[last.end - 50] ^= 1;
    let end = end_of_bytes(&bytes);
    let JournalEnd::Torn { complete_but_wrong, shadow, .. } = end else { panic!("{end:?}") };
    assert!(complete_but_wrong && shadow.is_some());
}

#[test]
fn a_shadow_does_not_hide_a_later_batch() {
    let (outer, middle) = nested(&[b'z'; 100]);
    let outer = outer.batch(&[(b"c", Some(b"three"))]);
    let mut bytes = outer.bytes();
    bytes[middle.end - 50] ^= 1;
    bytes.extend(b"\x01torn");
    let expected = JournalEnd::Damaged {
        at: middle.start as u64,
        fault: Fault::Checksum,
        resumes_at: Some(middle.end as u64),
    };
    assert_eq!(end_of_bytes(&bytes), expected);
}

#[test]
fn a_length_of_four_gibibytes_takes_no_memory_and_is_a_torn_write() {
    let written = uneven();
    let (mut bytes, last) = (written.bytes(), written.spans().pop().unwrap());
    // Both lengths of the value, so that they agree.
    bytes[last.start + 13 + 13..last.start + 13 + 21].fill(0xFF);
    let end = end_of_bytes(&bytes);
    assert!(matches!(end, JournalEnd::Torn { fault: Fault::CutShort, .. }), "{end:?}");
}

#[test]
fn a_search_that_takes_too_long_ends_as_damage() {
    // A broken batch, then thousands of starts whose only item ends at the same trailer.
    let head = 13 + 21;
    let starts = 8_000_u32;
    let mut bytes = vec![9; 10];
    for index in 0..starts {
        let behind = (starts - index - 1) * head;
        bytes.push(1);
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(5_u64.to_le_bytes());
        bytes.extend([2, 0, 0]);
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend(0_u16.to_le_bytes());
        bytes.extend([behind.to_le_bytes(), behind.to_le_bytes()].concat());
    }
    bytes.push(3);
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend(b"FJL\x03");
    let expected = JournalEnd::Damaged { at: 0, fault: Fault::Unreadable, resumes_at: None };
    assert_eq!(end_of_bytes(&bytes), expected);
}

#[test]
fn a_batch_longer_than_what_is_read_at_once_is_read_whole() {
    let value = noise(900_000);
    let written = Written::new()
        .batch(&[(b"a", Some(&value)), (b"b", Some(&value)), (b"c", Some(b"short"))])
        .batch(&[(b"d", Some(b"last"))]);
    assert_eq!(written.report().batches, 2);
    let mut bytes = written.bytes();
    let end = written.ends()[0];
    bytes[1_000_000] ^= 4;
    let expected = JournalEnd::Damaged { at: 0, fault: Fault::Checksum, resumes_at: Some(end) };
    assert_eq!(end_of_bytes(&bytes), expected);
}
