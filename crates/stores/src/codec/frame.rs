//! What all stored values have in common: how they begin, where their body is, their checksum.
//!
//! The first five bytes and the last eight never change their meaning, in no format: they are what
//! lets an old release say "too new" instead of "damaged". Nothing here knows what a body holds.

use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{CodecError, Reader};
use crate::seal::Sealer;

pub(crate) use super::fields::put_count;

/// The format that this release writes, and the newest that it reads in full.
pub(crate) const FORMAT: u8 = 1;
/// The oldest format whose readers may read what this release writes.
const READS_FROM: u8 = 1;

/// The body is as it is.
pub(crate) const PLAIN: u8 = 0;
/// The body is sealed with `XChaCha20-Poly1305`.
pub(crate) const SEALED: u8 = 1;

/// Format, oldest reader, kind, sealing, and the length of the header.
const START_BYTES: usize = 5;
const HEADER_LENGTH_AT: usize = 4;
const CHECKSUM_BYTES: usize = 8;

/// Begins a value. The fields of the header come next.
pub(crate) fn begin(kind: u8, sealing: u8, room: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(room);
    out.extend_from_slice(&[FORMAT, READS_FROM, kind, sealing, 0]);
    out
}

/// Ends the header. Answers where the body begins, behind what its seal needs.
pub(crate) fn begin_body(out: &mut Vec<u8>, sealer: &Sealer) -> usize {
    end_header(out);
    sealer.begin(out);
    out.len()
}

/// Notes how long the header has become.
pub(crate) fn end_header(out: &mut [u8]) {
    out[HEADER_LENGTH_AT] = u8::try_from(out.len()).expect("invariant: headers are short");
}

/// Ends a value with its checksum.
pub(crate) fn finish(mut out: Vec<u8>, place: &[u8]) -> Vec<u8> {
    let sum = checksum(&out, place);
    out.extend_from_slice(&sum.to_be_bytes());
    out
}

/// The place is the seed, so that the same bytes elsewhere have another checksum.
fn checksum(content: &[u8], place: &[u8]) -> u64 {
    xxh3_64_with_seed(content, xxh3_64(place))
}

/// A value whose checksum matched, cut at its borders.
#[derive(Debug, Clone)]
pub(crate) struct Parts<'a> {
    pub(crate) kind: u8,
    pub(crate) sealing: u8,
    /// From the first byte to the end of the header.
    pub(crate) head: &'a [u8],
    /// Between header and checksum: the body, with its seal around it.
    pub(crate) tail: &'a [u8],
}

impl<'a> Parts<'a> {
    /// The fields of the header. What later formats added behind them is passed over.
    pub(crate) fn header(&self) -> Reader<'a> {
        Reader::new(self.head.get(START_BYTES..).unwrap_or_default())
    }

    /// This value, if it is of that kind.
    pub(crate) const fn expect(self, kind: u8, expected: &'static str) -> Result<Self, CodecError> {
        if self.kind == kind {
            Ok(self)
        } else {
            Err(CodecError::Kind { found: self.kind, expected })
        }
    }
}

/// Compares the checksum before anything is believed, then the format.
pub(crate) fn open<'a>(bytes: &'a [u8], place: &[u8]) -> Result<Parts<'a>, CodecError> {
    let short = CodecError::Short { bytes: bytes.len() };
    let (content, sum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(short.clone())?;
    let start: &[u8; START_BYTES] = content.first_chunk().ok_or(short)?;
    if checksum(content, place) != u64::from_be_bytes(*sum) {
        return Err(CodecError::Checksum);
    }
    let [format, reads_from, kind, sealing, header_length] = *start;
    if reads_from > FORMAT {
        return Err(CodecError::Newer { format, reads_from });
    }
    if format < reads_from || reads_from == 0 {
        return Err(CodecError::Malformed("its format contradicts itself"));
    }
    let header_length = usize::from(header_length).max(START_BYTES);
    let (head, tail) = content.split_at_checked(header_length).ok_or(CodecError::Cut)?;
    Ok(Parts { kind, sealing, head, tail })
}

/// The body of a value, as it lies in the store or as it was opened.
#[derive(Debug)]
pub(crate) enum Body<'a> {
    Stored(&'a [u8]),
    Opened(Bytes),
}

impl Body<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Stored(bytes) => bytes,
            Self::Opened(bytes) => bytes,
        }
    }

    /// A part of this body to keep: copied out of the store, or shared with what was opened.
    pub(crate) fn share(&self, part: &[u8]) -> Bytes {
        match self {
            Self::Stored(_) => Bytes::copy_from_slice(part),
            Self::Opened(bytes) => bytes.slice_ref(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(start: [u8; 5], content: &[u8]) -> Vec<u8> {
        finish([&start[..], content].concat(), b"place")
    }

    #[test]
    fn a_value_is_cut_at_its_borders() {
        let bytes = framed([1, 1, 9, 0, 7], b"hhbody");
        let parts = open(&bytes, b"place").unwrap();
        assert_eq!((parts.kind, parts.sealing), (9, PLAIN));
        assert_eq!(parts.header().rest(), b"hh");
        assert_eq!(parts.tail, b"body");
    }

    #[test]
    fn a_value_that_is_too_short_or_lies_elsewhere_is_refused() {
        let bytes = framed([1, 1, 9, 0, 5], b"");
        assert!(open(&bytes, b"place").is_ok());
        assert_eq!(open(&bytes, b"plaice").unwrap_err(), CodecError::Checksum);
        for length in 0..bytes.len() {
            let error = open(&bytes[..length], b"place").unwrap_err();
            assert_eq!(error, CodecError::Short { bytes: length });
        }
    }

    #[test]
    fn a_format_that_is_too_new_is_told_from_damage() {
        let open = |start| open(&framed(start, b""), b"place").map(|_| ());
        assert_eq!(open([2, 1, 9, 0, 5]), Ok(()), "newer, and readable");
        assert_eq!(open([3, 2, 9, 0, 5]), Err(CodecError::Newer { format: 3, reads_from: 2 }));
        let odd = CodecError::Malformed("its format contradicts itself");
        assert_eq!(open([0, 1, 9, 0, 5]), Err(odd.clone()));
        assert_eq!(open([1, 0, 9, 0, 5]), Err(odd));
        assert_eq!(open([1, 1, 9, 0, 6]), Err(CodecError::Cut), "a header beyond the end");
        assert_eq!(open([1, 1, 9, 0, 0]), Ok(()), "the start itself is always there");
    }
}
