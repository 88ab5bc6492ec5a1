//! The data keys of a store, by generation, and how the master key wraps them.
//!
//! A key ring is made once for a store and lives as long as it. Rotation adds a generation; older
//! ones stay until nothing is sealed by them. The key that hides names never changes, for a name
//! that changed would be another slot. The ring is written nowhere but into its wrapping.

use std::fmt;

use zeroize::Zeroizing;

use super::cipher::{self, NONCE_BYTES, Secret, TAG_BYTES};
use super::{KeyId, MasterKey, SealError};
use crate::codec::{self, CodecError, KEY_RING, Reader, SEALED, put_count};

/// A key ring has one place, whatever store it is in.
const PLACE: &[u8] = b"onetake/key-ring";

/// Whether a store with keys reads values that are not sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlainValues {
    /// They are an error: somebody put them there.
    Refused,
    /// They are from before encryption was switched on.
    Readable,
}

#[derive(Clone)]
struct Generation {
    number: u32,
    key: Secret,
}

/// The data keys of one store, and the key that hides its names.
#[derive(Clone)]
pub struct KeyRing {
    name_key: Secret,
    /// In ascending order, and never empty: the last is current.
    generations: Vec<Generation>,
    plain: PlainValues,
}

/// Shows which generations there are, and no key.
impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generations: Vec<u32> = self.generations().collect();
        write!(f, "KeyRing(generations {generations:?}, plain values {:?})", self.plain)
    }
}

impl KeyRing {
    /// New keys, for a store that holds nothing yet.
    #[must_use]
    pub fn fresh() -> Self {
        Self {
            name_key: cipher::secret(),
            generations: vec![Generation { number: 1, key: cipher::secret() }],
            plain: PlainValues::Refused,
        }
    }

    /// This ring with another rule for values that are not sealed. [`PlainValues::Readable`] is for
    /// a store that held values before it had keys, until all of them are written anew. The rule is
    /// wrapped with the keys, so nobody without the master key can loosen it.
    #[must_use]
    pub fn with_plain_values(self, plain: PlainValues) -> Self {
        Self { plain, ..self }
    }

    /// Whether values that are not sealed are read.
    #[must_use]
    pub const fn plain_values(&self) -> PlainValues {
        self.plain
    }

    /// The generation that seals what is written.
    #[must_use]
    pub fn current(&self) -> u32 {
        self.newest().number
    }

    /// Every generation that can be opened, in ascending order.
    #[must_use]
    pub fn generations(&self) -> impl ExactSizeIterator<Item = u32> {
        self.generations.iter().map(|generation| generation.number)
    }

    /// Adds a generation, which seals from now on. What older ones sealed stays readable. Wrap and
    /// store the ring before anything is sealed by it: what a lost key sealed is lost.
    pub fn rotate(&mut self) {
        let number = self.current().checked_add(1).expect("invariant: nobody rotates that often");
        self.generations.push(Generation { number, key: cipher::secret() });
    }

    /// Drops the generations before `generation`, but never the current one. What they sealed can
    /// no longer be read by anybody.
    pub fn forget_before(&mut self, generation: u32) {
        let first = generation.min(self.current());
        self.generations.retain(|kept| kept.number >= first);
    }

    /// This ring for a store to keep: it opens only with `master`.
    #[must_use]
    pub fn wrap(&self, master: &MasterKey) -> Vec<u8> {
        let body = 1 + 32 + 5 + (4 + 32) * self.generations.len();
        // Room for all of it, so that no key is left behind in memory that was grown out of.
        let room = 5 + KeyId::BYTES + NONCE_BYTES + body + TAG_BYTES + 8;
        let mut out = codec::begin(KEY_RING, SEALED, room);
        out.extend_from_slice(&master.id().0);
        codec::end_header(&mut out);
        out.extend_from_slice(&cipher::nonce());
        let start = out.len();
        out.push(match self.plain {
            PlainValues::Refused => 0,
            PlainValues::Readable => 1,
        });
        out.extend_from_slice(&*self.name_key);
        put_count(&mut out, self.generations.len());
        for Generation { number, key } in &self.generations {
            out.extend_from_slice(&number.to_be_bytes());
            out.extend_from_slice(&**key);
        }
        cipher::seal(master.secret(), &mut out, start, PLACE);
        codec::finish(out, PLACE)
    }

    /// The ring in `wrapped`, and which of `masters` opened it. When that is not the first, an
    /// operator is changing the master key: wrap the ring by the first, and store it.
    ///
    /// # Errors
    /// [`SealError::WrongKey`] when none of `masters` wrapped it, [`SealError::Ring`] when it is
    /// damaged or too new.
    pub fn unwrap(wrapped: &[u8], masters: &[MasterKey]) -> Result<(Self, usize), SealError> {
        let parts = codec::open(wrapped, PLACE)?.expect(KEY_RING, "key ring")?;
        if parts.sealing != SEALED {
            return Err(CodecError::NotSealed.into());
        }
        let wrapped_by = KeyId(parts.header().array()?);
        let which = masters.iter().position(|master| master.id() == wrapped_by);
        let which = which.ok_or(SealError::WrongKey { wrapped_by })?;
        let tail = Reader::new(parts.tail);
        let body = cipher::open(masters[which].secret(), &[parts.head, PLACE], tail)?;
        Ok((Self::read(&Zeroizing::new(body))?, which))
    }

    fn read(body: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(body);
        let plain = match reader.u8()? {
            0 => PlainValues::Refused,
            1 => PlainValues::Readable,
            _ => return Err(CodecError::Malformed("its rule for plain values is none")),
        };
        let name_key = Zeroizing::new(reader.array()?);
        let mut generations: Vec<Generation> = Vec::new();
        for _ in 0..reader.count()? {
            let number = reader.u32()?;
            let key = Zeroizing::new(reader.array()?);
            if generations.last().is_some_and(|last| number <= last.number) {
                return Err(CodecError::Malformed("its generations are out of order"));
            }
            generations.push(Generation { number, key });
        }
        if generations.is_empty() {
            return Err(CodecError::Malformed("it has no generation"));
        }
        reader.extensions()?;
        Ok(Self { name_key, generations, plain })
    }

    /// Whether this ring hides names by the same key as `other` and opens all that `other` opens.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(super) fn extends(&self, other: &Self) -> bool {
        let has = |one: &Generation| self.key(one.number).is_some_and(|key| *key == one.key);
        self.name_key == other.name_key && other.generations.iter().all(has)
    }

    fn newest(&self) -> &Generation {
        self.generations.last().expect("invariant: a ring always has a generation")
    }

    pub(super) fn current_key(&self) -> &Secret {
        &self.newest().key
    }

    pub(super) fn key(&self, generation: u32) -> Option<&Secret> {
        // Most of what is read was sealed lately.
        let mut newest_first = self.generations.iter().rev();
        newest_first.find(|kept| kept.number == generation).map(|kept| &kept.key)
    }

    pub(super) fn name(&self, digest: &[u8; 32]) -> [u8; 32] {
        cipher::keyed_hash(&*self.name_key, digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body of a ring: its rule for plain values, its generations, and what comes after.
    fn body(plain: u8, generations: &[u32], rest: &[u8]) -> Vec<u8> {
        let mut out = vec![plain];
        out.extend_from_slice(&[7; 32]);
        put_count(&mut out, generations.len());
        for number in generations {
            out.extend_from_slice(&number.to_be_bytes());
            out.extend_from_slice(&[8; 32]);
        }
        out.extend_from_slice(rest);
        out
    }

    #[test]
    fn a_ring_is_read_only_if_it_could_have_been_written() {
        let read = |plain, generations: &[u32], rest: &[u8]| {
            KeyRing::read(&body(plain, generations, rest)).map(|ring| format!("{ring:?}"))
        };
        let shown = |text: &str| Ok(text.to_owned());
        let malformed = |text| Err(CodecError::Malformed(text));
        assert_eq!(read(0, &[1], b""), shown("KeyRing(generations [1], plain values Refused)"));
        assert_eq!(
            read(1, &[3, 9], b"\x01\x00"),
            shown("KeyRing(generations [3, 9], plain values Readable)")
        );
        assert_eq!(read(2, &[1], b""), malformed("its rule for plain values is none"));
        assert_eq!(read(0, &[], b""), malformed("it has no generation"));
        assert_eq!(read(0, &[2, 1], b""), malformed("its generations are out of order"));
        assert_eq!(read(0, &[2, 2], b""), malformed("its generations are out of order"));
        assert_eq!(read(0, &[1], b"\x81\x00"), Err(CodecError::Critical { tag: 0x81 }));
        assert_eq!(read(0, &[1], b"\x01"), Err(CodecError::Cut));
        let whole = body(0, &[1, 2], b"");
        for length in 0..whole.len() {
            assert!(KeyRing::read(&whole[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_generation_is_never_numbered_like_one_before() {
        let mut ring = KeyRing::fresh();
        ring.rotate();
        ring.forget_before(2);
        ring.rotate();
        assert_eq!(ring.generations().collect::<Vec<_>>(), [2, 3]);
        assert_ne!(*ring.key(2).unwrap(), *ring.key(3).unwrap());
        assert!(ring.key(1).is_none());
        ring.forget_before(0);
        assert_eq!(ring.generations().len(), 2, "there is nothing before the first");
    }

    /// X11
    #[test]
    fn x11_a_wrapping_holds_no_key_and_differs_each_time() {
        let (ring, master) = (KeyRing::fresh(), MasterKey::new([5; 32]));
        let wrapped = ring.wrap(&master);
        let holds = |part: &[u8]| wrapped.windows(part.len()).any(|window| window == part);
        assert!(!holds(&ring.name_key[..]) && !holds(&ring.current_key()[..]));
        assert!(!holds(&master.secret()[..]));
        assert_ne!(wrapped, ring.wrap(&master));
    }
}
