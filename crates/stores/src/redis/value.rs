//! Between the value of a key and a record.
//!
//! The version, the kind and the times stand in front, where the script compares and writes them:
//! only the server says what time it is. The rest is the encoding that all stores share, whose own
//! times count from zero. Nothing here talks to a server; `ops.lua` has the layout.

use onetake_core::{Draft, Phase, Record, Slot, Timestamp, Version};

use crate::codec::{CodecError, Reader, decode_record, encode_record};
use crate::seal::Sealer;

/// The layout of values that this release writes, and the only one that it reads.
const LAYOUT: u8 = 1;
/// The bytes of a version.
const VERSION_BYTES: usize = 16 + 4;
/// The longest span, in milliseconds: scripts count in doubles, and the sum of a time and a span
/// must be exact. That is more than a hundred thousand years.
const SPAN_MS_MAX: u64 = 1 << 52;

/// The digits of the kinds.
const CLAIMED: &[u8] = b"1";
const DONE: &[u8] = b"2";
const RELEASED: &[u8] = b"3";
const UNKNOWN: &[u8] = b"4";

/// What a draft is on its way to the server. Times are spans in milliseconds.
pub(super) struct Written {
    /// The digit of its kind.
    pub(super) kind: &'static [u8],
    pub(super) since_ms: u64,
    pub(super) until_ms: u64,
    pub(super) body: Vec<u8>,
}

impl Written {
    pub(super) fn of(draft: &Draft, sealer: &Sealer) -> Self {
        let record = draft.clone().at(Timestamp::ZERO);
        let (kind, until) = match &record.phase {
            Phase::Claimed { lease_until } => (CLAIMED, *lease_until),
            Phase::Done { expires_at, .. } => (DONE, *expires_at),
            Phase::Released { until } => (RELEASED, *until),
            Phase::Unknown { .. } => (UNKNOWN, Timestamp::ZERO),
        };
        let place = sealer.place(draft.address.slot());
        Self {
            kind,
            since_ms: span_ms(record.since),
            until_ms: span_ms(until),
            body: encode_record(&record, 0, sealer, &place),
        }
    }

    /// How long the server keeps it, or how long its lease is.
    pub(super) fn kept_ms(&self, grace_ms: u64) -> u64 {
        let expires = self.kind == DONE || self.kind == RELEASED;
        if expires { self.until_ms.saturating_add(grace_ms) } else { self.until_ms }
    }

    /// The record as the script wrote it at `now`.
    pub(super) fn at(&self, draft: Draft, now: Timestamp) -> Record {
        let mut record = draft.at(now);
        let at = |span_ms| Timestamp::from_millis(now.as_millis().saturating_add(span_ms));
        set_times(&mut record, at(self.since_ms), at(self.until_ms));
        record
    }
}

/// A span that counts from zero, as far as spans go.
pub(super) fn span_ms(span: Timestamp) -> u64 {
    span.as_millis().min(SPAN_MS_MAX)
}

fn set_times(record: &mut Record, since: Timestamp, until: Timestamp) {
    record.since = since;
    match &mut record.phase {
        Phase::Claimed { lease_until: end }
        | Phase::Done { expires_at: end, .. }
        | Phase::Released { until: end } => *end = until,
        Phase::Unknown { .. } => {}
    }
}

/// A version as the script compares it.
pub(super) fn version_bytes(version: Version) -> [u8; VERSION_BYTES] {
    let mut bytes = [0; VERSION_BYTES];
    bytes[..16].copy_from_slice(&{ version.write }.to_be_bytes());
    bytes[16..].copy_from_slice(&{ version.renewal }.to_be_bytes());
    bytes
}

/// The record in a value that was found in `slot`.
pub(super) fn record(value: &[u8], slot: &Slot, sealer: &Sealer) -> Result<Record, CodecError> {
    let mut fields = Reader::new(value);
    if fields.u8()? != LAYOUT {
        return Err(CodecError::Malformed("its layout is none that this release knows"));
    }
    let version = Version { write: fields.u128()?, renewal: fields.u32()? };
    let (_kind, _waited) = (fields.u8()?, fields.u8()?);
    let (since, until) = (fields.u64()?, fields.u64()?);
    let (mut record, _) = decode_record(fields.rest(), sealer, &sealer.place(slot))?;
    if record.address.slot() != slot {
        return Err(CodecError::Malformed("it lies under a key that is not its own"));
    }
    record.version = version;
    set_times(&mut record, Timestamp::from_millis(since), Timestamp::from_millis(until));
    Ok(record)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use onetake_testkit::make::{LONG, Pen};

    use super::*;

    fn read(value: &[u8], pen: &Pen) -> Result<Record, CodecError> {
        record(value, pen.slot(), &Sealer::Plain)
    }

    fn value(draft: &Draft, now: u64) -> Vec<u8> {
        let written = Written::of(draft, &Sealer::Plain);
        let mut value = vec![LAYOUT];
        value.extend_from_slice(&version_bytes(draft.version));
        value.extend_from_slice(written.kind);
        value.push(b'0');
        value.extend_from_slice(&(now + written.since_ms).to_be_bytes());
        value.extend_from_slice(&(now + written.until_ms).to_be_bytes());
        value.extend_from_slice(&written.body);
        value
    }

    #[test]
    fn a_record_comes_back_with_the_times_of_the_server() {
        let pen = Pen::new("k");
        let drafts =
            [pen.claim(1, LONG), pen.done(2, 1, LONG), pen.released(3, 1, LONG), pen.unknown(4, 1)];
        for draft in drafts {
            let stored = value(&draft, 5_000);
            let now = Timestamp::from_millis(5_000);
            assert_eq!(
                read(&stored, &pen),
                Ok(Written::of(&draft, &Sealer::Plain).at(draft.clone(), now))
            );
            assert_eq!(read(&stored, &pen), Ok(draft.at(now)));
        }
    }

    #[test]
    fn no_span_is_longer_than_a_script_can_add() {
        let pen = Pen::new("k");
        let draft = pen.done(1, 1, Duration::MAX);
        let written = Written::of(&draft, &Sealer::Plain);
        assert_eq!(written.until_ms, SPAN_MS_MAX);
        let stored = value(&draft, 7);
        let now = Timestamp::from_millis(7);
        assert_eq!(read(&stored, &pen), Ok(written.at(draft, now)));
    }

    #[test]
    fn what_is_no_record_is_corrupt_and_never_nothing() {
        let (pen, other) = (Pen::new("k"), Pen::new("other"));
        let stored = value(&pen.claim(1, LONG), 0);
        for end in 0..stored.len() {
            assert!(read(&stored[..end], &pen).is_err(), "cut at {end}");
        }
        assert!(read(&stored, &other).is_err(), "under another key");
        let mut newer = stored;
        newer[0] = LAYOUT + 1;
        assert!(matches!(read(&newer, &pen), Err(CodecError::Malformed(_))));
    }
}
