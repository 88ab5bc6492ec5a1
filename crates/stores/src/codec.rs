//! How everything that is kept becomes bytes and is read back; `docs/format.md` has the tables.
//!
//! All durable stores share this file, so a record means the same in each of them. It is pure: it
//! never reads a file, a clock or a setting. Reading is total: whatever the bytes are, the answer
//! is the value that was written or an error, never a panic, and never a guess.

mod body;
mod fields;
mod frame;

use bytes::Bytes;
use onetake_core::{NameError, Phase, Record, Timestamp, Version};

pub(crate) use fields::Reader;
pub(crate) use frame::{
    Body, FORMAT, PLAIN, Parts, SEALED, begin, begin_body, end_header, finish, open, put_count,
};

use crate::seal::Sealer;

/// The bytes of an encoded number.
pub const NUMBER_BYTES: usize = 5 + 8 + 8;

/// Why bytes are not the value that belongs at their place. Nothing can be said about that value:
/// an error here never means that there is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// Fewer bytes than any value has.
    #[error("the value is damaged: {bytes} bytes are too few to be one")]
    Short {
        /// How many there are.
        bytes: usize,
    },
    /// The checksum is that of other bytes, or of another place.
    #[error("the value is damaged, or lies under a key that is not its own: its checksum differs")]
    Checksum,
    /// A later release wrote it, and said that this one would misread it.
    #[error(
        "the value has format {format} and asks for a release that reads format {reads_from}; \
         this one reads up to {FORMAT}"
    )]
    Newer {
        /// The format that it was written in.
        format: u8,
        /// The oldest format whose readers may read it.
        reads_from: u8,
    },
    /// Something else lies at this place, or a kind that this release does not know.
    #[error("a value of kind {found} lies where a {expected} belongs")]
    Kind {
        /// The number of the kind that was found.
        found: u8,
        /// What should be there.
        expected: &'static str,
    },
    /// A field goes beyond the end of the value.
    #[error("the value ends in the middle of a field")]
    Cut,
    /// A field holds what no writer puts there.
    #[error("the value is malformed: {0}")]
    Malformed(&'static str),
    /// A field that must not be passed over.
    #[error("the value has field {tag}, which a reader must know and this release does not")]
    Critical {
        /// The number of the field.
        tag: u8,
    },
    /// A name in it would be refused from a caller.
    #[error("the value holds a name that is none: {0}")]
    Name(#[from] NameError),
    /// It is sealed, and the store was opened without a key.
    #[error("the value is sealed (key generation {generation}); open the store with its key")]
    Sealed {
        /// The generation of the key that sealed it.
        generation: u32,
    },
    /// It is sealed by a key that the key ring does not have.
    #[error("the value is sealed by key generation {generation}, which is not in the key ring")]
    NoGeneration {
        /// The generation of the key that sealed it.
        generation: u32,
    },
    /// It is not sealed, and the key ring does not allow that.
    #[error("the value is not sealed, and this store reads only what is")]
    NotSealed,
    /// It was sealed otherwise, elsewhere, or by another key of the same generation.
    #[error("the sealed value does not open: it was altered, or lies under a key not its own")]
    Forged,
}

/// Which phase a record is in, as its label tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// [`Phase::Claimed`].
    Claimed,
    /// [`Phase::Done`].
    Done,
    /// [`Phase::Released`].
    Released,
    /// [`Phase::Unknown`].
    Unknown,
}

/// What is known of a stored record without opening it, so without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// The phase.
    pub kind: Kind,
    /// Which write it is.
    pub version: Version,
    /// When the phase began.
    pub since: Timestamp,
    /// Until when the owner of a claim is taken to be alive. No end: a claim never expires.
    pub lease_until: Option<Timestamp>,
    /// When a finished record, or a tombstone, is forgotten. Claims and unknowns have none.
    pub end: Option<Timestamp>,
    /// The start of the process that wrote it, as its store counts them.
    pub boot: u64,
    /// What keeping it costs, as [`Record::weight`] said when it was written.
    pub weight: u32,
}

impl Label {
    /// Whether a store may remove the record; what [`Record::is_removable`] says of the whole.
    #[must_use]
    pub fn is_removable(&self, now: Timestamp) -> bool {
        self.end.is_some_and(|end| end <= now)
    }
}

mod number {
    //! The kinds of values by their numbers. Stored, so no number is ever given another meaning.

    pub(crate) const CLAIMED: u8 = 1;
    pub(crate) const DONE: u8 = 2;
    pub(crate) const RELEASED: u8 = 3;
    pub(crate) const UNKNOWN: u8 = 4;
    pub(crate) const DOCUMENT: u8 = 16;
    pub(crate) const ENTRY: u8 = 17;
    pub(crate) const NUMBER: u8 = 18;
    pub(crate) const ENTRIES: u8 = 19;
    pub(crate) const KEY_RING: u8 = 32;
}

pub(crate) use number::KEY_RING;

/// What every value has beside its fields: the fixed start, the checksum, and room for lengths.
const FRAME_BYTES: usize = 5 + 8 + 12;
/// About as many bytes as a count has.
const COUNT_BYTES: usize = 3;

/// A record as it is stored under `place`. `boot` counts the starts of the process, for stores
/// that keep such a count.
#[must_use]
pub fn encode_record(record: &Record, boot: u64, sealer: &Sealer, place: &[u8]) -> Vec<u8> {
    let (kind, end) = match &record.phase {
        Phase::Claimed { lease_until } => (number::CLAIMED, *lease_until),
        Phase::Done { expires_at, .. } => (number::DONE, *expires_at),
        Phase::Released { until } => (number::RELEASED, *until),
        Phase::Unknown { .. } => (number::UNKNOWN, Timestamp::ZERO),
    };
    let room = FRAME_BYTES + LABEL_BYTES + sealer.overhead() + body::room(record);
    let mut out = begin(kind, sealer.sealing(), room);
    put_version(&mut out, record.version);
    out.extend_from_slice(&record.since.as_millis().to_be_bytes());
    out.extend_from_slice(&end.as_millis().to_be_bytes());
    out.extend_from_slice(&boot.to_be_bytes());
    let weight = u32::try_from(record.weight()).unwrap_or(u32::MAX);
    out.extend_from_slice(&weight.to_be_bytes());
    let start = begin_body(&mut out, sealer);
    body::write(&mut out, record);
    sealer.seal(&mut out, start, place);
    finish(out, place)
}

/// The record that was stored under `place`, and the boot that wrote it.
///
/// The slot of its address is computed from the names, not read: whoever looked for a slot compares
/// it with the one that was found (`no-collision-answers`).
///
/// # Errors
/// A [`CodecError`]; the record may exist, and nothing may be concluded about it.
pub fn decode_record(
    bytes: &[u8],
    sealer: &Sealer,
    place: &[u8],
) -> Result<(Record, u64), CodecError> {
    let parts = open(bytes, place)?;
    let label = read_label(&parts)?;
    let body = sealer.open(&parts, place)?;
    Ok((body::read(&body, &label)?, label.boot))
}

/// What is known of the record stored under `place`, without a key and without allocating. The
/// checksum is compared, but a seal is not: a label is no proof of who wrote it.
///
/// # Errors
/// A [`CodecError`]. Who removes what has expired keeps what it cannot read.
pub fn label(bytes: &[u8], place: &[u8]) -> Result<Label, CodecError> {
    read_label(&open(bytes, place)?)
}

/// A document as it is stored under `place`.
#[must_use]
pub fn encode_document(version: Version, value: &[u8], sealer: &Sealer, place: &[u8]) -> Vec<u8> {
    let room = FRAME_BYTES + VERSION_BYTES + sealer.overhead() + value.len();
    let mut out = begin(number::DOCUMENT, sealer.sealing(), room);
    put_version(&mut out, version);
    finish_value(out, value, sealer, place)
}

/// The document that was stored under `place`.
///
/// # Errors
/// A [`CodecError`]; the document may exist, and nothing may be concluded about it.
pub fn decode_document(
    bytes: &[u8],
    sealer: &Sealer,
    place: &[u8],
) -> Result<(Version, Bytes), CodecError> {
    let parts = open(bytes, place)?.expect(number::DOCUMENT, "document")?;
    let version = version(&mut parts.header())?;
    Ok((version, read_value(&parts, sealer, place)?))
}

/// An entry of a lane as it is stored under `place`.
#[must_use]
pub fn encode_entry(at: Timestamp, value: &[u8], sealer: &Sealer, place: &[u8]) -> Vec<u8> {
    let room = FRAME_BYTES + 8 + sealer.overhead() + value.len();
    let mut out = begin(number::ENTRY, sealer.sealing(), room);
    out.extend_from_slice(&at.as_millis().to_be_bytes());
    finish_value(out, value, sealer, place)
}

/// The entry of a lane that was stored under `place`.
///
/// # Errors
/// A [`CodecError`]; the entry may exist, and nothing may be concluded about it.
pub fn decode_entry(
    bytes: &[u8],
    sealer: &Sealer,
    place: &[u8],
) -> Result<(Timestamp, Bytes), CodecError> {
    let parts = open(bytes, place)?.expect(number::ENTRY, "entry")?;
    let at = Timestamp::from_millis(parts.header().u64()?);
    Ok((at, read_value(&parts, sealer, place)?))
}

/// Entries of a lane that were appended together, as they are stored under `place`. One alone is
/// stored as any entry.
#[must_use]
pub fn encode_entries(at: Timestamp, values: &[&[u8]], sealer: &Sealer, place: &[u8]) -> Vec<u8> {
    if let [value] = values {
        return encode_entry(at, value, sealer, place);
    }
    let bytes: usize = values.iter().map(|value| COUNT_BYTES + value.len()).sum();
    let room = FRAME_BYTES + 8 + sealer.overhead() + bytes;
    let mut out = begin(number::ENTRIES, sealer.sealing(), room);
    out.extend_from_slice(&at.as_millis().to_be_bytes());
    let start = begin_body(&mut out, sealer);
    put_count(&mut out, values.len());
    for value in values {
        put_count(&mut out, value.len());
        out.extend_from_slice(value);
    }
    sealer.seal(&mut out, start, place);
    finish(out, place)
}

/// The entries of a lane that were stored under `place`, in order: one or several.
///
/// # Errors
/// A [`CodecError`]; the entries may exist, and nothing may be concluded about them.
pub fn decode_entries(
    bytes: &[u8],
    sealer: &Sealer,
    place: &[u8],
) -> Result<(Timestamp, Vec<Bytes>), CodecError> {
    let parts = open(bytes, place)?;
    if parts.kind == number::ENTRY {
        return decode_entry(bytes, sealer, place).map(|(at, value)| (at, vec![value]));
    }
    let parts = parts.expect(number::ENTRIES, "row of entries")?;
    let at = Timestamp::from_millis(parts.header().u64()?);
    let body = sealer.open(&parts, place)?;
    let mut reader = Reader::new(body.bytes());
    // Not believed before they are there: no room is made for so many.
    let count = reader.count()?;
    let mut values = Vec::new();
    for _ in 0..count {
        values.push(body.share(reader.bytes()?));
    }
    reader.extensions()?;
    Ok((at, values))
}

/// A counter, a cursor or the head of a lane as it is stored under `place`. Never sealed: it tells
/// how many, and nothing of what.
#[must_use]
pub fn encode_number(value: i64, place: &[u8]) -> [u8; NUMBER_BYTES] {
    let mut out = begin(number::NUMBER, PLAIN, NUMBER_BYTES);
    out.extend_from_slice(&value.to_be_bytes());
    begin_body(&mut out, &Sealer::Plain);
    finish(out, place).try_into().expect("invariant: a number is always as long")
}

/// The number that was stored under `place`.
///
/// # Errors
/// A [`CodecError`]; the number may be any, so it is not zero.
pub fn decode_number(bytes: &[u8], place: &[u8]) -> Result<i64, CodecError> {
    let parts = open(bytes, place)?.expect(number::NUMBER, "number")?;
    let value = parts.header().i64()?;
    match parts.sealing {
        PLAIN => Reader::new(parts.tail).extensions()?,
        _ => return Err(CodecError::Malformed("a number is never sealed")),
    }
    Ok(value)
}

const VERSION_BYTES: usize = 16 + 4;
const LABEL_BYTES: usize = VERSION_BYTES + 8 + 8 + 8 + 4;

fn put_version(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(&{ version.write }.to_be_bytes());
    out.extend_from_slice(&{ version.renewal }.to_be_bytes());
}

fn version(header: &mut Reader<'_>) -> Result<Version, CodecError> {
    Ok(Version { write: header.u128()?, renewal: header.u32()? })
}

fn read_label(parts: &Parts<'_>) -> Result<Label, CodecError> {
    let kind = match parts.kind {
        number::CLAIMED => Kind::Claimed,
        number::DONE => Kind::Done,
        number::RELEASED => Kind::Released,
        number::UNKNOWN => Kind::Unknown,
        found => return Err(CodecError::Kind { found, expected: "record" }),
    };
    let mut header = parts.header();
    let version = version(&mut header)?;
    let since = Timestamp::from_millis(header.u64()?);
    let time = Timestamp::from_millis(header.u64()?);
    let (boot, weight) = (header.u64()?, header.u32()?);
    let (lease_until, end) = match kind {
        Kind::Claimed => (Some(time), None),
        Kind::Done | Kind::Released => (None, Some(time)),
        Kind::Unknown => (None, None),
    };
    Ok(Label { kind, version, since, lease_until, end, boot, weight })
}

/// The end of a document or entry: its value.
fn finish_value(mut out: Vec<u8>, value: &[u8], sealer: &Sealer, place: &[u8]) -> Vec<u8> {
    let start = begin_body(&mut out, sealer);
    put_count(&mut out, value.len());
    out.extend_from_slice(value);
    sealer.seal(&mut out, start, place);
    finish(out, place)
}

fn read_value(parts: &Parts<'_>, sealer: &Sealer, place: &[u8]) -> Result<Bytes, CodecError> {
    let body = sealer.open(parts, place)?;
    let mut reader = Reader::new(body.bytes());
    let value = body.share(reader.bytes()?);
    reader.extensions()?;
    Ok(value)
}
