//! Opening a store: one process at a time, nothing damaged, nothing newer than this release.
//!
//! The order matters. The lock comes first; then the log is read, and whatever is damaged in it is
//! said before anything is changed; only then are the tables opened, and what the log has and they
//! have not is taken over. The journal of the engine below is emptied unread: everything in it is
//! in the log or in the tables, and the engine takes damage in its middle for a torn end.
//! Opening never repairs: what is damaged is named, and left as it is. Only a store that was never
//! opened to the end, so that nobody was told anything by it, is made anew.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use onetake_core::{Code, Timestamp};
use onetake_engine::StoreError;

use super::crash::point;
use super::disk::{self, Disk, Keyspaces};
use super::expiry::Expiry;
use super::floors::Floors;
use super::folder::{FORMAT, Folder};
use super::log::{Contents, From, Log, Mark, Size, Space, Value};
use super::options::Options;
use super::recent::Recent;
use super::shared::Shared;
use super::takeover;
use super::tally::Tally;
use super::time::{LastSeen, Machine, Resumed, StoreClock, resume};
use crate::codec;
use crate::seal::{KeyRing, MasterKey, SealError, Sealer};

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open.
    #[error(
        "the store in {} is open in another process ({holder}); use that one, or stop it",
        folder.display()
    )]
    Locked {
        /// The folder.
        folder: PathBuf,
        /// What the other process says of itself.
        holder: String,
    },
    /// Another release wrote it, most likely a later one.
    #[error(
        "the store in {} has format {found}; this release knows {FORMAT}: \
         use the release that wrote it, or a newer one",
        folder.display()
    )]
    Newer {
        /// The folder.
        folder: PathBuf,
        /// Its format.
        found: String,
    },
    /// The folder holds something else.
    #[error("{} holds files but no store; name an empty or new folder", folder.display())]
    NotAStore {
        /// The folder.
        folder: PathBuf,
    },
    /// Its files are damaged.
    #[error(
        "the store in {} is damaged: {what}; run `onetake store check` and restore a backup",
        folder.display()
    )]
    Damaged {
        /// The folder.
        folder: PathBuf,
        /// Where and how.
        what: String,
    },
    /// Its seal cannot be opened.
    #[error("the store in {} is sealed: {source}", folder.display())]
    Sealed {
        /// The folder.
        folder: PathBuf,
        /// Why it cannot be opened.
        source: SealError,
    },
    /// It is sealed, and no key was given.
    #[error(
        "the store in {} is sealed; give the master key that it was sealed with",
        folder.display()
    )]
    NoKey {
        /// The folder.
        folder: PathBuf,
    },
    /// It is not sealed, and a key was given.
    #[error(
        "the store in {} is not sealed, and sealing begins with a new store: \
         open it without a key, or name a new folder", folder.display()
    )]
    NotSealed {
        /// The folder.
        folder: PathBuf,
    },
    /// The system refused.
    #[error("the store in {} cannot be {doing}: {source}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

impl OpenError {
    /// The stable code of this failure.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Locked { .. } => Code::StoreLocked,
            Self::Newer { .. } | Self::NotAStore { .. } => Code::StoreForeign,
            Self::Damaged { .. } => Code::StoreCorrupt,
            Self::Sealed { .. } | Self::NoKey { .. } | Self::NotSealed { .. } => Code::StoreSealed,
            Self::Io { .. } => Code::StoreUnavailable,
        }
    }

    /// The same, as what a store says when it is used.
    #[must_use]
    pub fn into_store_error(self) -> StoreError {
        match self {
            Self::Damaged { .. } => StoreError::Corrupt(self.to_string()),
            Self::Locked { .. }
            | Self::Newer { .. }
            | Self::NotAStore { .. }
            | Self::Sealed { .. }
            | Self::NoKey { .. }
            | Self::NotSealed { .. }
            | Self::Io { .. } => StoreError::Unavailable(self.to_string()),
        }
    }
}

/// Opens the files to look at them. What only the log has is taken over first, as by every opening.
pub(super) fn open_to_look(folder: &Folder, options: &Options) -> Result<Looked, OpenError> {
    if !folder.check_format()? {
        return Err(OpenError::Damaged {
            folder: folder.path().to_path_buf(),
            what: "it was never completed".into(),
        });
    }
    folder.check_tables()?;
    let read = folder.read_log()?;
    folder.mark_open()?;
    let keyspaces = open_files(folder, options, &Arc::new(Expiry::default()))?;
    let (keyspaces, (sealer, _)) = unsealed(folder, keyspaces, &read, &options.keys)?;
    take_over(folder, &keyspaces, &read)?;
    let known = Known::read(&keyspaces, folder)?;
    let opened_at = known.last_seen.map_or(Timestamp::ZERO, |seen| seen.store);
    let opening = Opening { boot: known.boot, opened_at, openings: known.openings };
    let disk = opening.of(keyspaces, sealer);
    Ok(Looked { disk, batches: read.frames(), end: read.closed_at() })
}

/// A store that is only looked at.
pub(super) struct Looked {
    pub(super) disk: Disk,
    /// How many batches only the log had.
    pub(super) batches: u64,
    /// Where its log ends.
    pub(super) end: From,
}

/// Opens everything that the threads of the store share.
pub(super) fn open(
    folder: &Folder,
    options: Options,
    machine: Machine,
) -> Result<(Shared, Mark), OpenError> {
    point("locked");
    if !folder.check_format()? {
        make(folder, &options)?;
    }
    point("format-checked");
    folder.check_tables()?;
    let read = folder.read_log()?;
    point("log-read");
    folder.mark_open()?;
    point("marked-open");
    let expiry = Arc::new(Expiry::default());
    let keyspaces = open_files(folder, &options, &expiry)?;
    point("files-opened");
    let (keyspaces, (sealer, wrapped)) = unsealed(folder, keyspaces, &read, &options.keys)?;
    take_over(folder, &keyspaces, &read)?;
    point("log-taken-over");
    let known = Known::read(&keyspaces, folder)?;
    let (opened_at, resumed) = resume(known.last_seen.as_ref(), &machine.read());
    if let Resumed::Doubted { claimed, back } = resumed {
        tracing::warn!(
            ?claimed,
            back,
            "the machine's clock cannot be believed; the store's time goes on from where it was"
        );
    }
    let clock = match &options.clock {
        None => StoreClock::from(opened_at, machine),
        Some(clock) => StoreClock::given(Arc::clone(clock), machine),
    };
    let boot = known.boot + 1;
    let opened_at = clock.opened_at();
    let mut openings = known.openings;
    openings.insert(boot, opened_at);
    let disk = Opening { boot, opened_at, openings }.of(keyspaces, sealer);
    let mut notes = vec![
        (b"boot".to_vec(), boot.to_be_bytes().to_vec()),
        (opening_key(boot), opened_at.as_millis().to_be_bytes().to_vec()),
        (b"clock".to_vec(), clock.last_seen().encode()),
    ];
    notes.extend(wrapped.map(|ring| (b"ring".to_vec(), ring)));
    let (log, mark) = Log::go_on(&folder.log(), Size::of(options.log_bytes), &read, |frame| {
        for (word, value) in &notes {
            frame.add(Space::Meta, word, Some(value));
        }
    })
    .map_err(folder.io("opened"))?;
    drop(read);
    point("opened");
    let tally = if known.boot == 0 { Some(Tally::default()) } else { known.tally };
    let path = folder.path().to_path_buf();
    let shared = Shared::new(path, (disk, log), clock, expiry, options, tally);
    shared.note(notes);
    Ok((shared, mark))
}

/// A seal that was opened, and how its keys are to be kept from now on, if otherwise.
type Unsealed = (Sealer, Option<Vec<u8>>);

/// Opens the seal before anything in the store is changed: whoever has not its keys may come again
/// and again.
fn unsealed(
    folder: &Folder,
    keyspaces: Keyspaces,
    read: &Contents,
    keys: &[MasterKey],
) -> Result<(Keyspaces, Unsealed), OpenError> {
    let is_ring = |value: &Value<'_>| value.space == Space::Meta && value.key == b"ring";
    let ring = if let Some(newest) = read.values().filter(is_ring).last() {
        newest.bytes.map(<[u8]>::to_vec)
    } else {
        let kept = keyspaces.meta.get("ring").map_err(|error| lost(folder, &error))?;
        kept.map(|bytes| bytes.to_vec())
    };
    match unseal(folder, keys, ring.as_deref()) {
        Ok(unsealed) => Ok((keyspaces, unsealed)),
        Err(refused) => {
            drop(keyspaces);
            folder.leave_as_found(read.closed_at());
            Err(refused)
        }
    }
}

/// Brings into the tables what only the log has. Whatever stops this, it can begin again.
fn take_over(folder: &Folder, keyspaces: &Keyspaces, read: &Contents) -> Result<(), OpenError> {
    if let Some((file, at)) = &read.torn {
        let file = file.file_name().unwrap_or_default().display();
        tracing::info!(%file, at, "a batch that nobody was told of is left out");
    }
    let mut last = BTreeMap::new();
    for value in read.values() {
        last.insert((value.space, value.key), value.bytes);
    }
    takeover::bring(keyspaces, &last).map_err(|error| lost(folder, &error))
}

/// Which opening of a store this is, and when.
struct Opening {
    boot: u64,
    opened_at: Timestamp,
    openings: BTreeMap<u64, Timestamp>,
}

impl Opening {
    /// The files `keyspaces`, read and written through `sealer`.
    fn of(self, keyspaces: Keyspaces, sealer: Sealer) -> Disk {
        let Self { boot, opened_at, openings } = self;
        Disk {
            tables: keyspaces,
            sealing: match sealer {
                Sealer::Plain => None,
                with_keys @ Sealer::Sealed(_) => Some(RwLock::new(Arc::new(with_keys))),
            },
            recent: Recent::default(),
            floors: Floors::default(),
            boot,
            opened_at,
            openings,
        }
    }
}

/// Makes a new store. Nothing was ever answered from one whose making was cut off, so it may be
/// thrown away; that it was being made is said before it begins, and its format is written last.
fn make(folder: &Folder, options: &Options) -> Result<(), OpenError> {
    let io = |doing| folder.io(doing);
    folder.begin_making().map_err(io("made"))?;
    for old in [folder.data(), folder.log()] {
        match fs::remove_dir_all(old) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io("made")(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    folder.make_folders().map_err(io("made"))?;
    let made = disk::open(&folder.data(), options.cache_bytes, &Arc::new(Expiry::default()));
    drop(made.map_err(|error| lost(folder, &error))?);
    point("tables-made");
    let ring = options.keys.first().map(|key| KeyRing::fresh().wrap(key));
    let made = Log::make(&folder.log(), Size::of(options.log_bytes), |frame| {
        frame.add(Space::Meta, b"boot", Some(&0_u64.to_be_bytes()));
        if let Some(ring) = &ring {
            frame.add(Space::Meta, b"ring", Some(ring));
        }
    });
    made.map_err(io("made"))?;
    point("log-made");
    folder.end_making().map_err(io("made"))
}

fn open_files(
    folder: &Folder,
    options: &Options,
    expiry: &Arc<Expiry>,
) -> Result<Keyspaces, OpenError> {
    disk::empty_journals(&folder.data()).map_err(folder.io("opened"))?;
    // The engine below panics on some damage; that must become an answer.
    let opened =
        catch_unwind(AssertUnwindSafe(|| disk::open(&folder.data(), options.cache_bytes, expiry)));
    match opened {
        Ok(Ok(keyspaces)) => Ok(keyspaces),
        Ok(Err(error)) => Err(lost(folder, &error)),
        Err(_) => Err(OpenError::Damaged {
            folder: folder.path().to_path_buf(),
            what: "its files cannot be read".into(),
        }),
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the engine may learn new errors")]
fn lost(folder: &Folder, error: &fjall::Error) -> OpenError {
    match error {
        fjall::Error::Io(source) => OpenError::Io {
            folder: folder.path().to_path_buf(),
            doing: "opened",
            source: std::io::Error::new(source.kind(), source.to_string()),
        },
        fjall::Error::Storage(fjall::LsmError::Io(source)) if disk::is_of_the_system(source) => {
            OpenError::Io {
                folder: folder.path().to_path_buf(),
                doing: "opened",
                source: std::io::Error::new(source.kind(), source.to_string()),
            }
        }
        // Work in the background failed, most likely for want of space; its log says why.
        fjall::Error::Poisoned => OpenError::Io {
            folder: folder.path().to_path_buf(),
            doing: "opened",
            source: std::io::Error::other("its tables could not be written"),
        },
        fjall::Error::Locked => {
            OpenError::Locked { folder: folder.path().to_path_buf(), holder: "unknown".into() }
        }
        other => {
            OpenError::Damaged { folder: folder.path().to_path_buf(), what: other.to_string() }
        }
    }
}

/// Where the time of each opening is kept. There are as many as the store was opened.
const OPENINGS: &[u8] = b"opened/";

fn opening_key(boot: u64) -> Vec<u8> {
    [OPENINGS, &boot.to_be_bytes()].concat()
}

/// What the store wrote about itself.
struct Known {
    boot: u64,
    openings: BTreeMap<u64, Timestamp>,
    last_seen: Option<LastSeen>,
    tally: Option<Tally>,
}

impl Known {
    fn read(keyspaces: &Keyspaces, folder: &Folder) -> Result<Self, OpenError> {
        let get = |word: &str| keyspaces.meta.get(word).map_err(|error| lost(folder, &error));
        let damaged = |what: &str| OpenError::Damaged {
            folder: folder.path().to_path_buf(),
            what: format!("what it knows of {what} cannot be read"),
        };
        // It is written when a store is made: without it everything may be gone.
        let number = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).map(u64::from_be_bytes).ok();
        let boot = get("boot")?.and_then(|bytes| number(&bytes));
        let boot = boot.ok_or_else(|| damaged("its openings"))?;
        let mut openings = BTreeMap::new();
        for guard in keyspaces.meta.prefix(OPENINGS) {
            let (key, value) = guard.into_inner().map_err(|error| lost(folder, &error))?;
            let opening = number(&key[OPENINGS.len()..]).zip(number(&value));
            let (boot, ms) = opening.ok_or_else(|| damaged("its openings"))?;
            openings.insert(boot, Timestamp::from_millis(ms));
        }
        let last_seen = match get("clock")? {
            None => None,
            Some(bytes) => Some(LastSeen::decode(&bytes).ok_or_else(|| damaged("the time"))?),
        };
        let tally = get("tally")?.and_then(|bytes| Tally::decode(&bytes, boot));
        Ok(Self { boot, openings, last_seen, tally })
    }
}

/// Finds the keys of the seal.
fn unseal(folder: &Folder, keys: &[MasterKey], ring: Option<&[u8]>) -> Result<Unsealed, OpenError> {
    let sealed = |source| OpenError::Sealed { folder: folder.path().to_path_buf(), source };
    match (keys.first(), ring) {
        (None, None) => Ok((Sealer::Plain, None)),
        (None, Some(_)) => Err(OpenError::NoKey { folder: folder.path().to_path_buf() }),
        (Some(_), None) => Err(OpenError::NotSealed { folder: folder.path().to_path_buf() }),
        (Some(key), Some(bytes)) => {
            let (ring, opened_by) = KeyRing::unwrap(bytes, keys).map_err(sealed)?;
            // The first key is the one to use from now on.
            let wrapped = (opened_by != 0).then(|| ring.wrap(key));
            Ok((Sealer::Sealed(ring), wrapped))
        }
    }
}

/// A value of the store about itself, with a checksum.
pub(super) fn noted(boot: u64, bytes: &[u8]) -> Vec<u8> {
    let version = onetake_core::Version::of_write(u128::from(boot));
    codec::encode_document(version, bytes, &Sealer::Plain, b"note")
}

/// What `noted` made, if it was in the opening `boot`.
pub(super) fn read_note(bytes: &[u8], boot: u64) -> Option<bytes::Bytes> {
    let (version, value) = codec::decode_document(bytes, &Sealer::Plain, b"note").ok()?;
    ({ version.write } == u128::from(boot)).then_some(value)
}
