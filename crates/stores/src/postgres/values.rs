//! Documents and entries in their columns: as they are, or sealed and bound to their place.

use bytes::Bytes;
use onetake_core::{Timestamp, Version};
use onetake_engine::{Document, Entry, Position, StoreError};
use uuid::Uuid;

use super::rows::{millis, time};
use super::shared::Shared;
use crate::codec::{self, CodecError};
use crate::seal::Sealer;

/// The place of a document. The space is a word of ours and holds no zero.
fn of_document(space: &str, key: &[u8]) -> Vec<u8> {
    [space.as_bytes(), b"\0", key].concat()
}

/// The place of an entry.
fn of_entry(lane: &[u8], position: i64) -> Vec<u8> {
    [b"+lane\0", lane, &position.to_be_bytes()].concat()
}

const OTHER: CodecError = CodecError::Malformed("its columns are those of another value");

impl Shared {
    /// The column of a document.
    pub(super) fn put_document(&self, space: &str, key: &[u8], document: &Document) -> Bytes {
        match &*self.seal.sealer() {
            Sealer::Plain => document.value.clone(),
            sealer @ Sealer::Sealed(_) => {
                let place = of_document(space, key);
                codec::encode_document(document.version, &document.value, sealer, &place).into()
            }
        }
    }

    /// The document in a column.
    pub(super) fn document(
        &self,
        space: &str,
        key: &[u8],
        write: Uuid,
        stored: Vec<u8>,
    ) -> Result<Document, StoreError> {
        let version = Version::of_write(write.as_u128());
        let value = match &*self.seal.sealer() {
            Sealer::Plain => Ok(stored.into()),
            sealer @ Sealer::Sealed(_) => {
                let opened = codec::decode_document(&stored, sealer, &of_document(space, key));
                opened.and_then(|(of, value)| if of == version { Ok(value) } else { Err(OTHER) })
            }
        };
        let value = value.map_err(|error| self.seal.refusal(&error))?;
        Ok(Document { version, value })
    }

    /// The column of an entry.
    pub(super) fn put_entry(
        &self,
        lane: &[u8],
        position: i64,
        at: Timestamp,
        value: &Bytes,
    ) -> Bytes {
        match &*self.seal.sealer() {
            Sealer::Plain => value.clone(),
            sealer @ Sealer::Sealed(_) => {
                codec::encode_entry(at, value, sealer, &of_entry(lane, position)).into()
            }
        }
    }

    /// The entry in a row.
    pub(super) fn entry(
        &self,
        lane: &[u8],
        position: i64,
        at: i64,
        stored: Vec<u8>,
    ) -> Result<Entry, StoreError> {
        let value = match &*self.seal.sealer() {
            Sealer::Plain => Ok(stored.into()),
            sealer @ Sealer::Sealed(_) => {
                let opened = codec::decode_entry(&stored, sealer, &of_entry(lane, position));
                opened.and_then(|(of, value)| if millis(of) == at { Ok(value) } else { Err(OTHER) })
            }
        };
        let value = value.map_err(|error| self.seal.refusal(&error))?;
        let position = Position(u64::try_from(position).unwrap_or(0));
        Ok(Entry { position, at: time(at), value })
    }
}
