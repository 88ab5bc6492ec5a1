//! One batch as it lies in the log: all of it or nothing.
//!
//! Numbers are big endian. A frame begins at a multiple of [`ALIGN`] and is filled up to the next
//! one with zeros, so that writing it never touches a sector of the frame before it.
//!
//! ```text
//! head    "OTF1", bytes of the body u32, number u64, check of the head u64, checksum u64
//! body    for each value: space u8, 1 put or 0 removed, length of key u16, of value u32, both
//! ```
//!
//! The check of the head is XXH3 of the log's own random id, the number and the length; the
//! checksum is XXH3 of the body, with that as its seed. So what is left of an older frame in a file
//! that is used again never passes for a new one, and whoever can only choose values can put
//! neither a frame into one nor the head of one.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Frames begin at multiples of this.
pub(in crate::embedded) const ALIGN: usize = 512;
const MAGIC: [u8; 4] = *b"OTF1";
const HEAD: usize = 32;
/// Before the key of a value.
const VALUE_HEAD: usize = 8;

/// What tells the frames of one log from all others.
pub(in crate::embedded) type LogId = [u8; 16];

/// Where a value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::embedded) enum Space {
    Slots,
    Docs,
    Lanes,
    Numbers,
    Meta,
}

impl Space {
    pub(in crate::embedded) const ALL: [Self; 5] =
        [Self::Slots, Self::Docs, Self::Lanes, Self::Numbers, Self::Meta];

    const fn number(self) -> u8 {
        match self {
            Self::Slots => 1,
            Self::Docs => 2,
            Self::Lanes => 3,
            Self::Numbers => 4,
            Self::Meta => 5,
        }
    }
}

/// A frame that is being made.
#[derive(Debug)]
pub(in crate::embedded) struct Frame(BytesMut);

impl Frame {
    /// An empty one in `room`, which should have as many bytes as [`Frame::room`] says.
    pub(super) fn begin(mut room: BytesMut) -> Self {
        room.resize(HEAD, 0);
        Self(room)
    }

    /// Bytes that a frame takes for so many values, whose keys and contents are so many bytes.
    pub(super) const fn room(values: usize, bytes: usize) -> usize {
        HEAD + values * VALUE_HEAD + bytes + ALIGN
    }

    /// Adds a value; `None` removes it.
    pub(in crate::embedded) fn add(&mut self, space: Space, key: &[u8], value: Option<&[u8]>) {
        let key_length = u16::try_from(key.len()).expect("invariant: keys are bounded");
        let bytes = value.unwrap_or_default();
        let length = u32::try_from(bytes.len()).expect("invariant: values are bounded");
        self.0.reserve(VALUE_HEAD + key.len() + bytes.len());
        self.0.extend_from_slice(&[space.number(), u8::from(value.is_some())]);
        self.0.extend_from_slice(&key_length.to_be_bytes());
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(key);
        self.0.extend_from_slice(bytes);
    }

    /// How large a file must be for this frame alone.
    pub(super) fn file_bytes(&self) -> usize {
        super::HEAD_BYTES + self.0.len().next_multiple_of(ALIGN)
    }

    /// The finished frame with this number, as it is written.
    pub(super) fn finish(mut self, id: &LogId, number: u64) -> Kept {
        let body = &self.0[HEAD..];
        let length = u32::try_from(body.len()).expect("invariant: a batch is bounded");
        let check = check(id, number, u64::from(length));
        let checksum = xxh3_64_with_seed(body, check);
        self.0[..4].copy_from_slice(&MAGIC);
        self.0[4..8].copy_from_slice(&length.to_be_bytes());
        self.0[8..16].copy_from_slice(&number.to_be_bytes());
        self.0[16..24].copy_from_slice(&check.to_be_bytes());
        self.0[24..32].copy_from_slice(&checksum.to_be_bytes());
        let end = self.0.len();
        self.0.resize(end.next_multiple_of(ALIGN), 0);
        Kept { number, bytes: self.0.freeze(), end }
    }
}

/// A frame that was made. Its values are parts of it, which take no room of their own.
#[derive(Debug)]
pub(in crate::embedded) struct Kept {
    pub(in crate::embedded) number: u64,
    pub(super) bytes: Bytes,
    /// Where its body ends.
    end: usize,
}

impl Kept {
    /// Its values, as they were added: space, key, and what is there.
    pub(in crate::embedded) fn values(
        &self,
    ) -> impl Iterator<Item = (Space, Bytes, Option<Bytes>)> + '_ {
        values(&self.bytes[HEAD..self.end]).map(|value| {
            let Value { space, key, bytes } = value.expect("invariant: written by this file");
            let part = |part| self.bytes.slice_ref(part);
            (space, part(key), bytes.map(part))
        })
    }
}

fn check(id: &LogId, number: u64, length: u64) -> u64 {
    let mut of = [0; 32];
    of[..16].copy_from_slice(id);
    of[16..24].copy_from_slice(&number.to_be_bytes());
    of[24..].copy_from_slice(&length.to_be_bytes());
    xxh3_64(&of)
}

/// The head of a frame of one log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) number: u64,
    check: u64,
    checksum: u64,
    length: usize,
}

impl Head {
    /// The head at the beginning of `bytes`, if there is one of the log `id`.
    pub(super) fn read(bytes: &[u8], id: &LogId) -> Option<Self> {
        let head = bytes.get(..HEAD)?;
        let eight = |range: Range<usize>| {
            u64::from_be_bytes(head[range].try_into().expect("invariant: eight bytes"))
        };
        if head[..4] != MAGIC {
            return None;
        }
        let length = u32::from_be_bytes(head[4..8].try_into().expect("invariant: four bytes"));
        let (number, check) = (eight(8..16), eight(16..24));
        let is_ours = check == self::check(id, number, u64::from(length));
        is_ours.then(|| Self { number, check, checksum: eight(24..32), length: length as usize })
    }

    /// Its body, if all of it is there as it was written.
    pub(super) fn body<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let body = bytes.get(HEAD..HEAD.checked_add(self.length)?)?;
        (xxh3_64_with_seed(body, self.check) == self.checksum).then_some(body)
    }

    /// Where the next frame begins, counted from the beginning of this one.
    pub(super) const fn end(&self) -> usize {
        (HEAD + self.length).next_multiple_of(ALIGN)
    }
}

/// A value of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::embedded) struct Value<'a> {
    pub(in crate::embedded) space: Space,
    pub(in crate::embedded) key: &'a [u8],
    /// `None`: it is removed.
    pub(in crate::embedded) bytes: Option<&'a [u8]>,
}

/// The values of a body, in order; `Err` where it cannot be read, which its checksum does not
/// allow unless another release wrote it.
pub(super) fn values(mut body: &[u8]) -> impl Iterator<Item = Result<Value<'_>, ()>> {
    std::iter::from_fn(move || {
        if body.is_empty() {
            return None;
        }
        let Some((value, rest)) = value(body) else {
            body = &[];
            return Some(Err(()));
        };
        body = rest;
        Some(Ok(value))
    })
}

fn value(body: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let (head, rest) = body.split_at_checked(VALUE_HEAD)?;
    let space = Space::ALL.into_iter().find(|space| space.number() == head[0])?;
    let key_length = u16::from_be_bytes([head[2], head[3]]);
    let length = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    let (key, rest) = rest.split_at_checked(usize::from(key_length))?;
    let (bytes, rest) = rest.split_at_checked(length as usize)?;
    let bytes = match head[1] {
        1 => Some(bytes),
        0 if bytes.is_empty() => None,
        _ => return None,
    };
    Some((Value { space, key, bytes }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: LogId = [7; 16];

    fn frame(number: u64) -> Vec<u8> {
        let mut frame = Frame::begin(BytesMut::new());
        frame.add(Space::Slots, b"key", Some(b"value"));
        frame.add(Space::Meta, b"", Some(b""));
        frame.add(Space::Docs, b"gone", None);
        let kept = frame.finish(&ID, number);
        let part = |text: &'static str| Bytes::from(text);
        let values = [
            (Space::Slots, part("key"), Some(part("value"))),
            (Space::Meta, part(""), Some(part(""))),
            (Space::Docs, part("gone"), None),
        ];
        assert_eq!(kept.values().collect::<Vec<_>>(), values);
        kept.bytes.to_vec()
    }

    #[test]
    fn a_frame_reads_as_it_was_written() {
        let bytes = frame(3);
        assert_eq!(bytes.len(), ALIGN);
        let head = Head::read(&bytes, &ID).unwrap();
        assert_eq!((head.number, head.end()), (3, ALIGN));
        let body = head.body(&bytes).unwrap();
        let read: Vec<_> = values(body).collect::<Result<_, ()>>().unwrap();
        let value = |space, key, bytes| Value { space, key, bytes };
        assert_eq!(
            read,
            [
                value(Space::Slots, b"key".as_slice(), Some(b"value".as_slice())),
                value(Space::Meta, b"", Some(b"")),
                value(Space::Docs, b"gone", None),
            ]
        );
    }

    /// C8: no single changed byte of a frame goes unnoticed, but for its filling.
    #[test]
    fn c8_every_changed_byte_is_noticed() {
        let whole = frame(3);
        let filled = HEAD + Head::read(&whole, &ID).unwrap().length;
        for at in 0..filled {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            let read = Head::read(&bytes, &ID).filter(|head| head.number == 3);
            assert!(read.and_then(|head| head.body(&bytes)).is_none(), "byte {at}");
        }
    }

    /// What another log wrote, or this one under another number, is no frame of it.
    #[test]
    fn a_frame_belongs_to_one_log_and_one_number() {
        let mut bytes = frame(3);
        assert!(Head::read(&bytes, &ID).is_some());
        assert_eq!(Head::read(&bytes, &[8; 16]), None);
        bytes[15] = 4;
        assert_eq!(Head::read(&bytes, &ID), None);
    }

    #[test]
    fn a_body_that_cannot_be_read_says_so() {
        for body in [&b"\x01"[..], b"\x09\x01\0\0\0\0\0\0", b"\x01\x02\0\0\0\0\0\0"] {
            assert_eq!(values(body).collect::<Vec<_>>(), [Err(())], "{body:?}");
        }
        let cut = b"\x01\x01\0\x03\0\0\0\x05key";
        assert_eq!(values(cut).collect::<Vec<_>>(), [Err(())]);
    }
}
