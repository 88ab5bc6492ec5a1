//! The files: five keyspaces of one fjall database, and how keys are laid out in them.
//!
//! | keyspace  | key                                         | value |
//! |-----------|---------------------------------------------|-------|
//! | `slots`   | tenant, then the (veiled) digest            | a record |
//! | `docs`    | length of the space, space, key             | a document |
//! | `lanes`   | length of the lane (2 bytes), lane, position | an entry, or a row of entries |
//! | `numbers` | `c` counter, `u` cursor, `l` lane           | a number; three for a lane |
//! | `meta`    | a word                                      | what the store knows of itself |
//!
//! What one transaction appends to a lane is one row, under the position of its last entry: whoever
//! looks for any of them from its own position on comes to that key first.
//!
//! The tables are made in bulk, of what the log has (`takeover.rs`); the journal and the memory of
//! the engine below hold nothing that counts.
//!
//! Nothing here decides anything. Whatever comes from the disk is checked before it leaves this
//! file; what does not add up is an error that names the place, never an absence.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use bytes::Bytes;
use fjall::compaction::Leveled;
use fjall::config::{BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, PinningPolicy};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, LsmError};
use onetake_core::{Draft, Phase, Record, Slot, Timestamp};
use onetake_engine::{Counter, Cursor, Doc, Document, Entry, Lane, Position, StoreError};

use super::batch::Wanted;
use super::expiry::Expiry;
use super::floors::Floors;
use super::log::Space;
use super::recent::{Known, Layers, Recent};
use crate::codec;
use crate::seal::{KeyRing, Sealer};

/// How many keyspaces there are, beside that of the engine itself, which has the number 0.
pub(super) const KEYSPACES: u32 = 5;
/// Where the engine below keeps its tables.
pub(super) const KEYSPACES_FOLDER: &str = "keyspaces";

/// Threads of the engine below, at least. The first of them never merges: it hands such work back
/// to the line and takes it again, without a pause, until another one is free. With two threads
/// that is for as long as the other one merges, a whole core of nothing.
const THREADS_MIN: usize = 3;
/// As many as the engine would choose for a machine with more cores.
const THREADS_MAX: usize = 4;
/// Tables that are brought in before they are merged into the first level. All of that level is
/// written again each time, so twice as many halve that work; but every new key asks all of them.
const FLUSHED_MAX: u8 = 8;
/// The size of a table. The first level has `FLUSHED_MAX` of them.
const TABLE_BYTES: u64 = 64 << 20;

/// A word that means nothing.
const LET_GO: &str = "let go";

/// The open files of a store.
pub(super) struct Disk {
    pub(super) tables: Keyspaces,
    /// `None`: nothing is sealed here, now or later, so nobody need look whether that has changed.
    pub(super) sealing: Option<RwLock<Arc<Sealer>>>,
    /// What is in the log and not in the tables yet, but for records.
    pub(super) recent: Recent,
    pub(super) floors: Floors,
    /// Which opening of the store this is, and when it was.
    pub(super) boot: u64,
    pub(super) opened_at: Timestamp,
    /// When each opening was, this one included.
    pub(super) openings: BTreeMap<u64, Timestamp>,
}

/// What seals and opens values at the moment.
pub(super) enum Sealing {
    Plain,
    Sealed(Arc<Sealer>),
}

impl Deref for Sealing {
    type Target = Sealer;

    fn deref(&self) -> &Sealer {
        match self {
            Self::Plain => &Sealer::Plain,
            Self::Sealed(sealer) => sealer,
        }
    }
}

/// What a lane has: the first entry that counts, the first that is still on disk, the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) first: u64,
    pub(super) oldest: u64,
    pub(super) last: u64,
}

impl Default for Head {
    fn default() -> Self {
        Self { first: 1, oldest: 1, last: 0 }
    }
}

/// The five keyspaces, before anything is known of the store.
pub(super) struct Keyspaces {
    pub(super) db: Database,
    pub(super) slots: Keyspace,
    pub(super) docs: Keyspace,
    pub(super) lanes: Keyspace,
    pub(super) numbers: Keyspace,
    pub(super) meta: Keyspace,
}

impl Keyspaces {
    /// Lets the engine below remove the files of tables that were merged into others. It does that
    /// when a keyspace begins a new table in memory, and none has anything there by itself.
    pub(super) fn let_go(&self) -> Result<(), fjall::Error> {
        self.meta.insert(LET_GO, b"")?;
        self.meta.rotate_memtable()?;
        Ok(())
    }

    /// The keyspace of a space.
    pub(super) const fn of(&self, space: Space) -> &Keyspace {
        match space {
            Space::Slots => &self.slots,
            Space::Docs => &self.docs,
            Space::Lanes => &self.lanes,
            Space::Numbers => &self.numbers,
            Space::Meta => &self.meta,
        }
    }
}

/// Opens the database in `folder`, with `expiry` for its slots.
pub(super) fn open(
    folder: &Path,
    cache_bytes: u64,
    expiry: &Arc<Expiry>,
) -> Result<Keyspaces, fjall::Error> {
    let for_slots = Arc::clone(expiry);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let db = Database::builder(folder)
        .cache_size(cache_bytes)
        // The journal's checksum is compared with values that are compressed anew. Another release
        // of the compressor might do that differently, and nothing could be opened any more.
        .journal_compression(CompressionType::None)
        .worker_threads(cores.clamp(THREADS_MIN, THREADS_MAX))
        .with_compaction_filter_factories(Arc::new(move |name| {
            (name == "slots").then(|| for_slots.clone().factory())
        }))
        .open()?;
    let merging =
        Leveled::default().with_l0_threshold(FLUSHED_MAX).with_table_target_size(TABLE_BYTES);
    let plain = || KeyspaceCreateOptions::default().compaction_strategy(Arc::new(merging.clone()));
    // Most new keys are nowhere, so every level has a filter, and the filters stay in memory. Those
    // of the tables that were just flushed are asked one by one, so they must hardly ever be wrong.
    let filter = |policy| FilterPolicyEntry::Bloom(policy);
    let flushed = filter(BloomConstructionPolicy::FalsePositiveRate(0.000_1));
    let merged = filter(BloomConstructionPolicy::BitsPerKey(10.0));
    let by_key = || plain().filter_policy(FilterPolicy::new([flushed, flushed, merged]));
    let by_new_key = || {
        let pinned = by_key().filter_block_pinning_policy(PinningPolicy::all(true));
        pinned.index_block_pinning_policy(PinningPolicy::all(true))
    };
    // There may be many more of the others than anybody asks for: of those, only what is young.
    let by_old_key = || {
        let young = || PinningPolicy::new([true, true, false]);
        by_key().filter_block_pinning_policy(young()).index_block_pinning_policy(young())
    };
    let keyspaces = Keyspaces {
        slots: db.keyspace("slots", by_new_key)?,
        docs: db.keyspace("docs", by_old_key)?,
        // Only ever read from a place on.
        lanes: db.keyspace("lanes", plain)?,
        numbers: db.keyspace("numbers", by_old_key)?,
        meta: db.keyspace("meta", KeyspaceCreateOptions::default)?,
        db,
    };
    // The engine does not sync the folder of its keyspaces. Without this a power cut could take
    // whole keyspaces away, and with them everything that was written to them.
    std::fs::File::open(folder.join(KEYSPACES_FOLDER))?.sync_all()?;
    std::fs::File::open(folder)?.sync_all()?;
    Ok(keyspaces)
}

/// Empties the journals of the engine below. It would make of them again what is in its tables
/// already, or in the log; and it takes damage in their middle for their end. One must be left, if
/// an empty one: an engine that finds none begins to count anew, and takes old values for new ones.
pub(super) fn empty_journals(folder: &Path) -> std::io::Result<()> {
    let mut newest: Option<(u64, PathBuf)> = None;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|ending| ending != "jnl") {
            continue;
        }
        let number = path.file_stem().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0);
        std::fs::File::create(&path)?;
        let older = match &newest {
            Some((known, _)) if *known >= number => Some(path),
            Some(_) | None => newest.replace((number, path)).map(|(_, older)| older),
        };
        if let Some(older) = older {
            std::fs::remove_file(older)?;
        }
    }
    if newest.is_none() {
        std::fs::File::create(folder.join("0.jnl"))?;
    }
    Ok(())
}

/// Whether an error says something of the system and nothing of the files.
pub(super) fn is_of_the_system(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::PermissionDenied
            | ErrorKind::OutOfMemory
    )
}

/// Says what the engine below said, in words that name the store.
#[allow(clippy::wildcard_enum_match_arm, reason = "the engine may learn new errors")]
pub(super) fn failed(error: &fjall::Error) -> StoreError {
    match error {
        fjall::Error::Io(error) => StoreError::Unavailable(format!("reading the disk: {error}")),
        fjall::Error::Storage(LsmError::Io(error)) if is_of_the_system(error) => {
            StoreError::Unavailable(format!("the disk refused: {error}"))
        }
        fjall::Error::Poisoned => StoreError::Unavailable("an earlier write failed".into()),
        other => StoreError::Corrupt(other.to_string()),
    }
}

/// Says which place does not add up. The key of a place may be a secret, so only its kind and size
/// are named.
fn corrupt(what: &str, key: &[u8], error: &codec::CodecError) -> StoreError {
    StoreError::Corrupt(format!("{what} under a key of {} bytes: {error}", key.len()))
}

pub(super) fn doc_key(doc: &Doc) -> Vec<u8> {
    doc_prefix(doc.space, &doc.key)
}

pub(super) fn doc_prefix(space: &str, prefix: &[u8]) -> Vec<u8> {
    let length = u8::try_from(space.len()).expect("invariant: a space has a short name");
    let mut key = Vec::with_capacity(1 + space.len() + prefix.len());
    key.push(length);
    key.extend_from_slice(space.as_bytes());
    key.extend_from_slice(prefix);
    key
}

pub(super) fn entry_key(lane: &Lane, position: u64) -> Vec<u8> {
    let length = u16::try_from(lane.0.len()).expect("invariant: names of lanes are bounded");
    let mut key = Vec::with_capacity(2 + lane.0.len() + 8);
    key.extend_from_slice(&length.to_be_bytes());
    key.extend_from_slice(&lane.0);
    key.extend_from_slice(&position.to_be_bytes());
    key
}

fn number_key(kind: u8, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + name.len());
    key.push(kind);
    key.extend_from_slice(name);
    key
}

pub(super) fn counter_key(counter: &Counter) -> Vec<u8> {
    number_key(b'c', &counter.0)
}

pub(super) fn cursor_key(cursor: &Cursor) -> Vec<u8> {
    number_key(b'u', &cursor.0)
}

pub(super) fn head_key(lane: &Lane) -> Vec<u8> {
    number_key(b'l', &lane.0)
}

impl Head {
    pub(super) fn encode(self, key: &[u8]) -> Vec<u8> {
        let numbers = [self.first, self.oldest, self.last];
        numbers.iter().flat_map(|n| codec::encode_number(n.cast_signed(), key)).collect()
    }

    fn decode(bytes: &[u8], key: &[u8]) -> Result<Self, codec::CodecError> {
        let number = |index: usize| {
            let range = index * codec::NUMBER_BYTES..(index + 1) * codec::NUMBER_BYTES;
            let part = bytes.get(range).unwrap_or_default();
            codec::decode_number(part, key).map(i64::cast_unsigned)
        };
        Ok(Self { first: number(0)?, oldest: number(1)?, last: number(2)? })
    }
}

impl Disk {
    /// What seals and opens values. It may be another one in a moment, with more keys.
    pub(super) fn sealer(&self) -> Sealing {
        let Some(sealing) = &self.sealing else { return Sealing::Plain };
        let sealer = sealing.read().expect("invariant: no panic under the lock");
        Sealing::Sealed(Arc::clone(&sealer))
    }

    /// Seals with `ring` from now on. It must be on disk.
    pub(super) fn seal_with(&self, ring: KeyRing) {
        if let Some(sealing) = &self.sealing {
            let sealer = Arc::new(Sealer::Sealed(ring));
            *sealing.write().expect("invariant: no panic under the lock") = sealer;
        }
    }

    pub(super) fn slot_key(&self, slot: &Slot) -> Vec<u8> {
        self.sealer().place(slot)
    }

    pub(super) fn encode(&self, record: &Record, key: &[u8]) -> Vec<u8> {
        codec::encode_record(record, self.boot, &self.sealer(), key)
    }

    /// Everything that writing `draft` at `now` takes, so that the writer need not make it.
    pub(super) fn wanted(&self, draft: Draft, now: Timestamp) -> Wanted {
        let record = Arc::new(draft.at(now));
        let key = self.slot_key(record.address.slot());
        let bytes = self.encode(&record, &key);
        Wanted { record, key, bytes }
    }

    /// The record in `slot` on disk.
    pub(super) fn record(&self, slot: &Slot) -> Result<Option<Arc<Record>>, StoreError> {
        let key = self.slot_key(slot);
        let found = self.tables.slots.get(&key).map_err(|error| failed(&error))?;
        found.map(|bytes| self.open_record(&key, &bytes, Some(slot))).transpose()
    }

    /// Decodes a record and checks that it belongs where it was found. A claim of an earlier
    /// process has lapsed at the latest when this one opened the store.
    pub(super) fn open_record(
        &self,
        key: &[u8],
        bytes: &[u8],
        expected: Option<&Slot>,
    ) -> Result<Arc<Record>, StoreError> {
        let decoded = codec::decode_record(bytes, &self.sealer(), key);
        let (mut record, boot) = decoded.map_err(|error| corrupt("a record", key, &error))?;
        // The name of a tenant is in memory once, and not once for each record that is.
        if let Some((slot, address)) = expected.zip(Arc::get_mut(&mut record.address)) {
            address.share(slot);
        }
        let slot = record.address.slot();
        let is_at_home = expected.map_or_else(|| self.slot_key(slot) == key, |want| want == slot);
        if !is_at_home {
            return Err(StoreError::Corrupt("a record lies under the key of another".into()));
        }
        if boot != self.boot
            && let Phase::Claimed { lease_until } = &mut record.phase
        {
            // Renewals were in memory only, so its owner may have lived until the next opening.
            let next = self.openings.range(boot.saturating_add(1)..).next();
            *lease_until = next.map_or(self.opened_at, |(_, opened)| *opened);
        }
        Ok(Arc::new(record))
    }

    /// Opens what a place holds that is no slot: by what is recent, and else by the tables. These
    /// may show more of what is recent at any time, but never more than that.
    fn get<T>(
        &self,
        still: &Layers,
        space: Space,
        key: &[u8],
        open: impl FnOnce(Option<&[u8]>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match still.get(space, key) {
            Known::Here(recent) => open(Some(recent)),
            Known::Removed => open(None),
            Known::Elsewhere => {
                let found = self.tables.of(space).get(key).map_err(|error| failed(&error))?;
                open(found.as_deref())
            }
        }
    }

    /// A document. Some are looked at with every step of a run, and seldom change.
    pub(super) fn doc(&self, still: &Layers, key: &[u8]) -> Result<Option<Document>, StoreError> {
        let found = match still.get(Space::Docs, key) {
            Known::Here(recent) => Some(recent.clone()),
            Known::Removed => None,
            Known::Elsewhere => still.doc_elsewhere(key, || {
                let found = self.tables.docs.get(key).map_err(|error| failed(&error));
                found.map(|found| found.map(|value| Bytes::copy_from_slice(&value)))
            })?,
        };
        found.map(|bytes| self.open_doc(key, &bytes)).transpose()
    }

    pub(super) fn open_doc(&self, key: &[u8], bytes: &[u8]) -> Result<Document, StoreError> {
        codec::decode_document(bytes, &self.sealer(), key)
            .map(|(version, value)| Document { version, value })
            .map_err(|error| corrupt("a document", key, &error))
    }

    /// The entries that lie together under `key`, which is that of the last of them.
    pub(super) fn open_entries(
        &self,
        key: &[u8],
        bytes: &[u8],
    ) -> Result<impl ExactSizeIterator<Item = Entry>, StoreError> {
        let opened = codec::decode_entries(bytes, &self.sealer(), key);
        let (at, values) = opened.map_err(|error| corrupt("an entry", key, &error))?;
        let last = key.last_chunk().copied().map_or(0, u64::from_be_bytes);
        let before = last.checked_sub(values.len() as u64).ok_or_else(|| {
            StoreError::Corrupt("more entries than a lane can have lie together".into())
        })?;
        Ok(values.into_iter().enumerate().map(move |(index, value)| Entry {
            position: Position(before + 1 + index as u64),
            at,
            value,
        }))
    }

    pub(super) fn number(&self, still: &Layers, key: &[u8]) -> Result<i64, StoreError> {
        self.get(still, Space::Numbers, key, |found| open_number(key, found))
    }

    /// The ends of the lane whose number lies under `key`.
    pub(super) fn head(&self, still: &Layers, key: &[u8]) -> Result<Head, StoreError> {
        self.get(still, Space::Numbers, key, |found| open_head(key, found))
    }
}

pub(super) fn open_number(key: &[u8], bytes: Option<&[u8]>) -> Result<i64, StoreError> {
    bytes.map_or(Ok(0), |bytes| {
        codec::decode_number(bytes, key).map_err(|error| corrupt("a number", key, &error))
    })
}

pub(super) fn open_head(key: &[u8], bytes: Option<&[u8]>) -> Result<Head, StoreError> {
    bytes.map_or(Ok(Head::default()), |bytes| {
        Head::decode(bytes, key).map_err(|error| corrupt("the head of a lane", key, &error))
    })
}
