//! Encryption at rest: who holds the files of a store, but not its master key, learns no key, name,
//! fingerprint or outcome from them (X11).
//!
//! Values are sealed by data keys, and the data keys are wrapped by the master key, so that the
//! master key can be changed without touching a value. A seal covers the place and the label of a
//! value. It never notices an old value put back at its own place, or one removed: for that the
//! files would have to be somebody else's.

mod cipher;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod joint;
mod master;
mod ring;

use std::fmt;
use std::path::PathBuf;

pub use master::{KeyId, MasterKey};
use onetake_core::{Slot, tenant_prefix};
pub use ring::{KeyRing, PlainValues};

use crate::codec::{Body, CodecError, PLAIN, Parts, Reader, SEALED};
#[cfg(feature = "embedded")]
pub(crate) use cipher::random;
use cipher::{NONCE_BYTES, TAG_BYTES};

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The text is no key.
    #[error("a master key is 32 bytes, as 64 hexadecimal digits or in standard base64")]
    KeyText,
    /// The variable is not set.
    #[error("the environment variable {name} holds no text; put the master key there")]
    Variable {
        /// The name of the variable.
        name: String,
    },
    /// The file cannot be read.
    #[error("the key file {path} cannot be read: {source}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is not for its owner alone.
    #[error("the key file {path} is open to others (mode {mode:03o}); chmod 600 it, or stricter")]
    Exposed {
        /// The path of the file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The key ring was wrapped by another master key.
    #[error("the key ring was wrapped by master key {wrapped_by}, which is not at hand")]
    WrongKey {
        /// Which key would open it.
        wrapped_by: KeyId,
    },
    /// The store is sealed, and no key was given.
    #[error("the store is sealed; it opens with its master key only (ONETAKE_STORE__KEY_FILE)")]
    NoKey,
    /// A key was given, and the store is not sealed.
    #[error("the store is not sealed; sealing begins with a new store, or without the key")]
    NotSealed,
    /// The key ring in the store is another one than before.
    #[error("the store has the key ring of another store; what it had before was lost or replaced")]
    OtherStore,
    /// The wrapped key ring cannot be read.
    #[error("the key ring cannot be read: {0}")]
    Ring(#[from] CodecError),
}

/// Seals what is written and opens what is read, or leaves both as they are.
#[derive(Clone)]
pub enum Sealer {
    /// Values are stored as they are.
    Plain,
    /// Values are sealed by the current generation of this key ring.
    Sealed(KeyRing),
}

/// Shows whether there are keys, and no key.
impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("Plain"),
            Self::Sealed(ring) => write!(f, "Sealed({ring:?})"),
        }
    }
}

impl Sealer {
    /// The name of a digest on disk: itself, or a keyed hash of it. The digest of a guessable
    /// idempotency key would give the key away; nobody can compute the keyed hash of a guess.
    #[must_use]
    pub fn name(&self, digest: &[u8; 32]) -> [u8; 32] {
        match self {
            Self::Plain => *digest,
            Self::Sealed(ring) => ring.name(digest),
        }
    }

    /// Where a slot is kept: under its tenant, by the name of its digest.
    pub(crate) fn place(&self, slot: &Slot) -> Vec<u8> {
        let mut place = tenant_prefix(slot.tenant());
        place.extend_from_slice(&self.name(slot.digest()));
        place
    }

    /// The byte that says how a body is stored.
    pub(crate) const fn sealing(&self) -> u8 {
        match self {
            Self::Plain => PLAIN,
            Self::Sealed(_) => SEALED,
        }
    }

    /// Bytes that a seal adds.
    pub(crate) const fn overhead(&self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Sealed(_) => size_of::<u32>() + NONCE_BYTES + TAG_BYTES,
        }
    }

    /// Writes what stands between header and body.
    pub(crate) fn begin(&self, out: &mut Vec<u8>) {
        match self {
            Self::Plain => {}
            Self::Sealed(ring) => {
                out.extend_from_slice(&ring.current().to_be_bytes());
                out.extend_from_slice(&cipher::nonce());
            }
        }
    }

    /// Seals the body, which begins at `start` and goes to the end of `out`.
    pub(crate) fn seal(&self, out: &mut Vec<u8>, start: usize, place: &[u8]) {
        match self {
            Self::Plain => {}
            Self::Sealed(ring) => cipher::seal(ring.current_key(), out, start, place),
        }
    }

    /// The body of a stored value.
    pub(crate) fn open<'a>(&self, parts: &Parts<'a>, place: &[u8]) -> Result<Body<'a>, CodecError> {
        match (parts.sealing, self) {
            (PLAIN, Self::Plain) => Ok(Body::Stored(parts.tail)),
            (PLAIN, Self::Sealed(ring)) => match ring.plain_values() {
                PlainValues::Readable => Ok(Body::Stored(parts.tail)),
                PlainValues::Refused => Err(CodecError::NotSealed),
            },
            (SEALED, Self::Plain) => {
                Err(CodecError::Sealed { generation: Reader::new(parts.tail).u32()? })
            }
            (SEALED, Self::Sealed(ring)) => {
                let mut tail = Reader::new(parts.tail);
                let generation = tail.take(size_of::<u32>())?;
                let number = Reader::new(generation).u32()?;
                let key =
                    ring.key(number).ok_or(CodecError::NoGeneration { generation: number })?;
                let clear = [parts.head, generation, place];
                Ok(Body::Opened(cipher::open(key, &clear, tail)?.into()))
            }
            _ => Err(CodecError::Malformed("it is sealed in no known way")),
        }
    }
}
