//! Takes what is in the log over into the tables, in bulk and on a thread of its own.
//!
//! A key that was claimed and settled meanwhile comes into the tables once, as it is by then. Only
//! when everything of a file of the log is in the tables, and on the disk, does the mark move on,
//! and only then may the file be used again. So whatever stops this in the middle, the log still
//! has it all. None of it decides what anybody is answered: that was done before.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fjall::{Database, Keyspace, PersistMode, Slice};

use super::crash::point;
use super::disk::Keyspaces;
use super::log::{Blank, Filled, Mark, Size, Space, Work};
use super::shared::Shared;

/// How often it looks whether a flush has ended.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Tables of records that may wait to be merged. Usually they are far fewer; every new key asks all
/// of them, and at 256 the engine below would lose count.
const TABLES_MAX: usize = 48;
/// How long a flush may take before it is taken for one that will never end.
const FLUSH_MAX: Duration = Duration::from_secs(60);
/// How long merges may stand still before they are made to go on.
const MERGES_MAX: Duration = Duration::from_secs(10);

/// Why something did not come into the tables.
#[derive(Debug, thiserror::Error)]
pub(super) enum TakeOverError {
    #[error(transparent)]
    Tables(#[from] fjall::Error),
    #[error(transparent)]
    Log(#[from] io::Error),
}

/// The thread that does it.
#[derive(Debug)]
pub(super) struct TakeOver {
    thread: Option<JoinHandle<()>>,
}

impl TakeOver {
    /// Begins.
    pub(super) fn keep(shared: Arc<Shared>, mark: Mark, folder: PathBuf) -> io::Result<Self> {
        let thread = std::thread::Builder::new()
            .name("onetake-tables".into())
            .spawn(move || keep(&shared, mark, &folder))?;
        Ok(Self { thread: Some(thread) })
    }

    /// Takes over all that is left, and ends. Nobody may write any more.
    pub(super) fn stop(&mut self, shared: &Shared) -> bool {
        shared.yard.stop();
        self.thread.take().is_none_or(|thread| thread.join().is_ok())
    }
}

/// One that panics must not leave anyone waiting for it.
struct Guard<'a>(&'a Shared);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let why = "taking over failed; this is a bug of Onetake";
            self.0.yard.give_up(why);
            self.0.end(why);
        }
    }
}

fn keep(shared: &Shared, mut mark: Mark, folder: &Path) {
    let _guard = Guard(shared);
    let mut work = || -> Result<(), TakeOverError> {
        loop {
            match shared.yard.work() {
                Work::Make(bytes) => {
                    if let Some(other) = shared.yard.put(Blank::make(folder, bytes)?) {
                        other.discard()?;
                    }
                }
                Work::TakeOver(filled, asked) => {
                    take_over(shared)?;
                    give_back(shared, &mut mark, filled)?;
                    shared.yard.done(asked);
                }
                Work::Stop => break,
            }
        }
        if shared.fate.get().is_none() {
            take_over(shared)?;
            mark.set(shared.log().end())?;
            point("all-taken-over");
        }
        Ok(())
    };
    if let Err(error) = work() {
        let why = format!("what was written did not come into the tables: {error}");
        shared.yard.give_up(&why);
        if shared.fate.get().is_none() {
            shared.end(&why);
        }
    }
}

/// Lets files be used again whose frames are in the tables.
fn give_back(shared: &Shared, mark: &mut Mark, filled: Vec<Filled>) -> Result<(), TakeOverError> {
    let Some(next) = filled.last().map(|filled| filled.next) else { return Ok(()) };
    point("taken-over");
    mark.set(next)?;
    point("marked");
    for Filled { blank, .. } in filled {
        let is_full = Size::of(shared.options.log_bytes).is_full(blank.bytes);
        let left = if is_full { shared.yard.put(blank) } else { Some(blank) };
        if let Some(blank) = left {
            blank.discard()?;
        }
    }
    Ok(())
}

/// Brings everything that is visible into the tables.
fn take_over(shared: &Shared) -> Result<(), TakeOverError> {
    let disk = &shared.disk;
    let mut fresh = shared.front.take_fresh();
    fresh.sort_unstable_by(|(_, one), (_, other)| one.key.cmp(&other.key));
    if !fresh.is_empty() {
        let records = fresh.iter().map(|(_, fresh)| (fresh.key.clone(), fresh.bytes.clone()));
        ingest(&disk.db, &disk.slots, records)?;
        point("ingested");
    }
    let notes = shared.notes().clone();
    if !notes.is_empty() {
        let mut batch = disk.batch(notes.len());
        for (word, value) in notes.clone() {
            match value {
                Some(value) => batch.insert(&disk.meta, word, value),
                None => batch.remove(&disk.meta, word),
            }
        }
        batch.commit()?;
    }
    flush(&disk.db, [&disk.docs, &disk.lanes, &disk.numbers, &disk.meta])?;
    // What was noted anew meanwhile stays for the next time.
    shared.notes().retain(|word, value| notes.get(word) != Some(value));
    for (slot, fresh) in fresh {
        shared.front.taken_over(&slot, fresh.frame);
    }
    shared.has_new_tables.store(true, Ordering::Release);
    Ok(())
}

/// Makes one table of these records, which come in the order of their keys; `None` removes one.
fn ingest<T: Into<Slice>>(
    db: &Database,
    slots: &Keyspace,
    records: impl Iterator<Item = (T, Option<T>)>,
) -> Result<(), fjall::Error> {
    wait_for_merges(db, slots, MERGES_MAX)?;
    let mut ingestion = slots.start_ingestion()?;
    for (key, value) in records {
        match value {
            Some(value) => ingestion.write(key, value)?,
            None => ingestion.write_tombstone(key)?,
        }
    }
    ingestion.finish()
}

/// Waits while too many tables of records are not merged yet. What is brought in passes by the
/// brakes of the engine below, and it can count only so many.
fn wait_for_merges(
    db: &Database,
    slots: &Keyspace,
    patience: Duration,
) -> Result<(), fjall::Error> {
    let (mut fewest, mut since) = (usize::MAX, Instant::now());
    loop {
        let tables = slots.l0_table_count();
        if tables < TABLES_MAX {
            return Ok(());
        }
        if tables < fewest {
            (fewest, since) = (tables, Instant::now());
        }
        db.persist(PersistMode::Buffer)?;
        // The engine looks for work when something is brought in, which is what waits here.
        if since.elapsed() > patience {
            slots.major_compact()?;
            since = Instant::now();
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Writes what the engine below has in memory to tables.
pub(super) fn flush(db: &Database, keyspaces: [&Keyspace; 4]) -> Result<(), fjall::Error> {
    for keyspace in keyspaces {
        keyspace.rotate_memtable()?;
    }
    for keyspace in keyspaces {
        let begun = Instant::now();
        // Waiting without looking would be for ever when the flush has failed.
        while keyspace.sealed_memtable_count() > 0 {
            db.persist(PersistMode::Buffer)?;
            if begun.elapsed() > FLUSH_MAX {
                return Err(fjall::Error::Poisoned);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
    Ok(())
}

/// What places hold in the end; `None`: nothing.
pub(super) type Last<'a> = BTreeMap<(Space, &'a [u8]), Option<&'a [u8]>>;

/// Brings these values into the tables of files that were just opened.
pub(super) fn bring(keyspaces: &Keyspaces, last: &Last<'_>) -> Result<(), fjall::Error> {
    let Keyspaces { db, slots, docs, lanes, numbers, meta } = keyspaces;
    let mut records = last.iter().filter(|((space, _), _)| *space == Space::Slots).peekable();
    if records.peek().is_some() {
        ingest(db, slots, records.map(|((_, key), value)| (*key, *value)))?;
    }
    let mut batch = db.batch();
    for ((space, key), value) in last {
        let keyspace = match space {
            Space::Slots => continue,
            Space::Docs => docs,
            Space::Lanes => lanes,
            Space::Numbers => numbers,
            Space::Meta => meta,
        };
        match value {
            Some(value) => batch.insert(keyspace, *key, *value),
            None => batch.remove(keyspace, *key),
        }
    }
    batch.commit()?;
    flush(db, [docs, lanes, numbers, meta])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fjall::KeyspaceCreateOptions;
    use fjall::compaction::Leveled;

    use super::*;

    /// C8: more tables than the engine below can count would be forgotten with the next opening. If
    /// it does not merge them by itself, it is made to, and nothing is lost over it.
    #[test]
    fn c8_tables_that_nobody_merges_never_become_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let db = Database::builder(folder.path()).open().unwrap();
        let never = || {
            let merging = Arc::new(Leveled::default().with_l0_threshold(u8::MAX));
            KeyspaceCreateOptions::default().compaction_strategy(merging)
        };
        let slots = db.keyspace("slots", never).unwrap();
        let tables = u32::try_from(TABLES_MAX).unwrap() + 5;
        for key in 0..tables {
            let mut ingestion = slots.start_ingestion().unwrap();
            // Ranges that overlap, as those of digests do.
            ingestion.write(key.to_be_bytes(), b"value").unwrap();
            ingestion.write((1_000 + key).to_be_bytes(), b"value").unwrap();
            ingestion.finish().unwrap();
        }
        assert!(slots.l0_table_count() >= TABLES_MAX, "{} tables", slots.l0_table_count());
        wait_for_merges(&db, &slots, Duration::ZERO).unwrap();
        assert!(slots.l0_table_count() < TABLES_MAX);
        assert_eq!(slots.len().unwrap(), 2 * TABLES_MAX + 10);
    }
}
