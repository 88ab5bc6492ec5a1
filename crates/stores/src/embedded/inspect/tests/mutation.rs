//! Changes every bit of a journal in turn, and random stretches of it.
//!
//! Never accepts silence: what is not reported is listed here, with the reason why it cannot be.

use proptest::prelude::*;

use super::*;

/// The eight bytes of a batch that no checksum covers and that may change without a contradiction.
fn seqno_bytes(start: usize) -> Range<usize> {
    start + 5..start + 13
}

fn flipped(bytes: &[u8], at: usize, bit: u32) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    flipped[at] ^= 1 << bit;
    flipped
}

#[test]
fn a_flipped_bit_in_a_batch_that_is_not_the_last_is_always_damage() {
    for written in [five(), even(), uneven()] {
        let (bytes, spans) = (written.bytes(), written.spans());
        let numbers: Vec<u64> = spans.iter().map(|span| seqno(&bytes, span.start)).collect();
        for (index, span) in spans.iter().enumerate().take(spans.len() - 1) {
            for (at, bit) in span.clone().flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let changed = flipped(&bytes, at, bit);
                let mut numbers = numbers.clone();
                numbers[index] = seqno(&changed, span.start);
                let end = end_of_bytes(&changed);
                let is_unseen =
                    seqno_bytes(span.start).contains(&at) && numbers.is_sorted_by(|a, b| a < b);
                match end {
                    // The number is wrong and the order is not, which is all it is for.
                    JournalEnd::Clean { .. } => assert!(is_unseen, "byte {at}, bit {bit}"),
                    JournalEnd::Damaged { at: found, .. } => {
                        let next = spans[index + 1].start as u64;
                        assert!(found == span.start as u64 || found == next, "{end:?}");
                    }
                    JournalEnd::Torn { .. } => panic!("byte {at}, bit {bit}: {end:?}"),
                }
            }
        }
    }
}

#[test]
fn a_flipped_bit_is_damage_even_if_the_zeros_of_the_allocation_follow() {
    let written = uneven();
    let (mut bytes, middle) = (written.bytes(), written.spans()[1].clone());
    bytes.extend([0; 10_000]);
    for (at, bit) in middle.clone().flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        if !seqno_bytes(middle.start).contains(&at) {
            let end = end_of_bytes(&flipped(&bytes, at, bit));
            assert!(matches!(end, JournalEnd::Damaged { .. }), "byte {at}, bit {bit}: {end:?}");
        }
    }
}

#[test]
fn a_flipped_bit_in_the_last_batch_is_torn_and_says_whether_the_trailer_is_there() {
    let written = uneven();
    let (bytes, last) = (written.bytes(), written.spans().pop().unwrap());
    let trailer = last.end - 13..last.end;
    for (at, bit) in last.clone().flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        match end_of_bytes(&flipped(&bytes, at, bit)) {
            JournalEnd::Torn { complete_but_wrong, fault, .. } => {
                assert!(fault != Fault::Checksum || complete_but_wrong);
                let is_closing = at == trailer.start || at >= trailer.end - 4;
                assert!(!is_closing || !complete_but_wrong, "byte {at}, bit {bit}");
            }
            JournalEnd::Clean { .. } => assert!(seqno_bytes(last.start).contains(&at)),
            JournalEnd::Damaged { fault, .. } => {
                assert!(fault == Fault::Sequence && seqno_bytes(last.start).contains(&at));
            }
        }
    }
}

#[test]
fn a_batch_that_is_missing_a_few_bytes_in_the_middle_is_damage() {
    let written = five();
    let (bytes, spans) = (written.bytes(), written.spans());
    for cut in spans[1].clone() {
        for gone in [1, 2, 13, 40] {
            let mut shorter = bytes.clone();
            shorter.drain(cut..(cut + gone).min(spans[1].end));
            let end = end_of_bytes(&shorter);
            assert!(matches!(end, JournalEnd::Damaged { .. }), "{gone} bytes at {cut}: {end:?}");
        }
    }
}

fn seqno(bytes: &[u8], start: usize) -> u64 {
    u64::from_le_bytes(*bytes[seqno_bytes(start)].first_chunk().unwrap())
}

/// A journal that was written once and is changed many times.
fn sample() -> &'static (Vec<u8>, usize) {
    static SAMPLE: std::sync::OnceLock<(Vec<u8>, usize)> = std::sync::OnceLock::new();
    SAMPLE.get_or_init(|| {
        let written = five();
        let last = written.spans().pop().unwrap().start;
        (written.bytes(), last)
    })
}

proptest! {
    #[test]
    fn no_change_makes_it_panic_or_count_more_than_was_written(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        cut in any::<prop::sample::Index>(),
        tail in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut bytes = sample().0.clone();
        for (place, byte) in changes {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        bytes.extend(tail);
        let report = report_on(&bytes);
        prop_assert!(report.batches <= 5);
    }

    #[test]
    fn anything_at_all_can_be_inspected(bytes in prop::collection::vec(0_u8..6, 0..400)) {
        report_on(&bytes);
    }

    #[test]
    fn a_stretch_of_rubbish_before_the_last_batch_is_never_taken_for_a_torn_write(
        place in any::<prop::sample::Index>(),
        rubbish in prop::collection::vec(any::<u8>(), 1..512),
    ) {
        let (bytes, last) = sample();
        let at = place.index(*last);
        let end = (at + rubbish.len()).min(*last);
        let mut changed = bytes.clone();
        changed[at..end].copy_from_slice(&rubbish[..end - at]);
        let found = end_of_bytes(&changed);
        prop_assert!(!matches!(found, JournalEnd::Torn { .. }), "{found:?}");
    }
}
