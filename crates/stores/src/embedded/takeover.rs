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
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fjall::{Database, Keyspace, PersistMode};

use super::crash::point;
use super::disk::Keyspaces;
use super::log::{Blank, Filled, Mark, Size, Space, Work};
use super::recent::Rows;
use super::shared::Shared;

/// How often it looks whether merges have come on.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Tables that may wait to be merged. Usually they are far fewer; every new key asks all of them,
/// and at 256 the engine below would lose count.
const TABLES_MAX: usize = 48;
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
                    let least = Size::of(shared.options.log_bytes).first().min(bytes);
                    let blank = Blank::make_up_to(folder, bytes, least)?;
                    if let Some(other) = shared.yard.put(blank) {
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
    let (recent, tables) = (&shared.disk.recent, &shared.disk.tables);
    let mut fresh = shared.front.take_fresh();
    fresh.sort_unstable_by(|(_, one), (_, other)| one.key.cmp(&other.key));
    let records = fresh.iter().map(|(_, fresh)| (&*fresh.key, fresh.bytes.as_deref()));
    ingest(&tables.db, &tables.slots, records)?;
    point("ingested");
    let rows = recent.take();
    for space in Rows::SPACES {
        let rows = rows.of(space).iter().map(|(key, value)| (&**key, value.as_deref()));
        ingest(&tables.db, tables.of(space), rows)?;
    }
    point("recent-ingested");
    drop(rows);
    recent.taken_over();
    tables.let_go()?;
    for (slot, fresh) in fresh {
        shared.front.taken_over(&slot, fresh.frame);
    }
    Ok(())
}

/// Makes one table of these values, which come in the order of their keys; `None` removes one.
fn ingest<'v>(
    db: &Database,
    into: &Keyspace,
    values: impl Iterator<Item = (&'v [u8], Option<&'v [u8]>)>,
) -> Result<(), fjall::Error> {
    let mut values = values.peekable();
    if values.peek().is_none() {
        return Ok(());
    }
    wait_for_merges(db, into, MERGES_MAX)?;
    let mut ingestion = into.start_ingestion()?;
    for (key, value) in values {
        match value {
            Some(value) => ingestion.write(key, value)?,
            None => ingestion.write_tombstone(key)?,
        }
    }
    ingestion.finish()
}

/// Waits while too many tables are not merged yet. What is brought in passes by the brakes of the
/// engine below, and it can count only so many.
fn wait_for_merges(db: &Database, into: &Keyspace, patience: Duration) -> Result<(), fjall::Error> {
    let (mut fewest, mut since) = (usize::MAX, Instant::now());
    loop {
        let tables = into.l0_table_count();
        if tables < TABLES_MAX {
            return Ok(());
        }
        if tables < fewest {
            (fewest, since) = (tables, Instant::now());
        }
        db.persist(PersistMode::Buffer)?;
        // The engine looks for work when something is brought in, which is what waits here.
        if since.elapsed() > patience {
            into.major_compact()?;
            since = Instant::now();
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// What places hold in the end; `None`: nothing.
pub(super) type Last<'a> = BTreeMap<(Space, &'a [u8]), Option<&'a [u8]>>;

/// Brings these values into the tables of files that were just opened.
pub(super) fn bring(keyspaces: &Keyspaces, last: &Last<'_>) -> Result<(), fjall::Error> {
    for space in Space::ALL {
        let values = last.iter().filter(|((other, _), _)| *other == space);
        ingest(&keyspaces.db, keyspaces.of(space), values.map(|((_, key), value)| (*key, *value)))?;
    }
    Ok(())
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
