//! Proves what is said of a journal, on journals that the engine itself has written.
//!
//! Never describes the format a second time: every byte comes from the engine, and a test changes
//! some of them.

mod engine;
mod hostile;
mod mutation;

use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use tempfile::TempDir;

use super::*;

/// A store with one keyspace.
struct Written {
    dir: TempDir,
    db: Database,
    keyspace: Keyspace,
}

/// What a batch does: a key, and a value or nothing for a removal.
type Item<'a> = (&'a [u8], Option<&'a [u8]>);

impl Written {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::builder(dir.path()).worker_threads(1).open().unwrap();
        let keyspace = db.keyspace("a", KeyspaceCreateOptions::default).unwrap();
        Self { dir, db, keyspace }
    }

    /// Commits a batch as the store does.
    fn batch(self, items: &[Item<'_>]) -> Self {
        let mut batch = self.db.batch().durability(Some(PersistMode::SyncData));
        for (key, value) in items {
            match value {
                Some(value) => batch.insert(&self.keyspace, *key, *value),
                None => batch.remove(&self.keyspace, *key),
            }
        }
        batch.commit().unwrap();
        self
    }

    fn close(self) -> TempDir {
        self.dir
    }

    fn report(&self) -> JournalReport {
        inspect_one(self.dir.path())
    }

    /// Where each batch ends.
    fn ends(&self) -> Vec<u64> {
        let mut window = Window::over(File::open(self.dir.path().join("0.jnl")).unwrap()).unwrap();
        let (mut at, mut ends) = (0, Vec::new());
        while let Ok(batch) = read_batch(&mut window, at, Order::after(None)).unwrap() {
            at = batch.end;
            ends.push(at);
        }
        ends
    }

    /// The journal without the zeros behind it.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let journal = File::open(self.dir.path().join("0.jnl")).unwrap();
        journal.take(*self.ends().last().unwrap()).read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Where each batch begins and ends, as positions in [`Written::bytes`].
    fn spans(&self) -> Vec<Range<usize>> {
        let ends: Vec<_> = self.ends().iter().map(|end| usize::try_from(*end).unwrap()).collect();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts.zip(ends.iter()).map(|(start, end)| start..*end).collect()
    }
}

/// Bytes that no compression makes shorter.
fn noise(len: usize) -> Vec<u8> {
    let step = |n: u64| n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
    std::iter::successors(Some(1), |n| Some(step(*n)))
        .map(|n| n.to_be_bytes()[0])
        .take(len)
        .collect()
}

/// A directory with journals of the given content, numbered from 0.
fn journals_of(contents: &[&[u8]]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (id, content) in contents.iter().enumerate() {
        fs::write(dir.path().join(format!("{id}.jnl")), content).unwrap();
    }
    dir
}

fn inspect_one(dir: &Path) -> JournalReport {
    let mut reports = inspect_journals(dir).unwrap();
    assert_eq!(reports.len(), 1);
    reports.remove(0)
}

/// How a journal of this content ends.
///
/// A test asks thousands of times, so every thread has one directory for it.
fn end_of_bytes(bytes: &[u8]) -> JournalEnd {
    report_on(bytes).end
}

fn report_on(bytes: &[u8]) -> JournalReport {
    thread_local! {
        static SCRATCH: TempDir = journals_of(&[b""]);
    }
    SCRATCH.with(|dir| {
        // Overwritten and not truncated first: some file systems sync what was truncated.
        let journal = OpenOptions::new().write(true).open(dir.path().join("0.jnl")).unwrap();
        (&journal).write_all(bytes).unwrap();
        journal.set_len(bytes.len() as u64).unwrap();
        inspect_one(dir.path())
    })
}

/// Five batches: one item, several, a removal, a value that gets compressed, one item.
fn five() -> Written {
    let long: Vec<u8> =
        (0..600_u32).flat_map(|n| (n % 7 * n).to_le_bytes()).chain([1; 3000]).collect();
    Written::new()
        .batch(&[(b"a", Some(b"one"))])
        .batch(&[(b"b", Some(b"two")), (b"c", Some(b"three")), (b"d", Some(b""))])
        .batch(&[(b"a", None)])
        .batch(&[(b"e", Some(&long))])
        .batch(&[(b"f", Some(b"five"))])
}

/// Short batches only, all of one length that is a power of two.
fn even() -> Written {
    let value = [7; 16];
    let written = ["k", "l", "m", "n"]
        .iter()
        .fold(Written::new(), |written, key| written.batch(&[(key.as_bytes(), Some(&value))]));
    assert_eq!(written.ends(), [64, 128, 192, 256]);
    written
}

/// A batch with a long value between short ones, so that a wrong length can swallow a whole batch.
fn uneven() -> Written {
    Written::new()
        .batch(&[(b"k", Some(b"first"))])
        .batch(&[(b"key", Some(&[9; 300]))])
        .batch(&[(b"l", Some(b"last"))])
}

#[test]
fn a_journal_that_was_closed_ends_clean_and_counts_its_batches() {
    let written = five();
    let at = *written.ends().last().unwrap();
    let dir = written.close();
    let report = inspect_one(dir.path());
    assert_eq!((report.batches, report.items), (5, 7));
    assert_eq!(report.end, JournalEnd::Clean { at });
    // Reopened, it has lost the zeros, and goes on with the next batch.
    let db = Database::builder(dir.path()).open().unwrap();
    assert_eq!(fs::metadata(&report.file).unwrap().len(), at);
    assert_eq!(inspect_one(dir.path()), report);
    let keyspace = db.keyspace("a", KeyspaceCreateOptions::default).unwrap();
    keyspace.insert("g", "six").unwrap();
    drop((keyspace, db));
    let longer = inspect_one(dir.path());
    assert_eq!(longer.batches, 6);
    assert!(longer.last_seqno > report.last_seqno);
}

#[test]
fn a_copy_of_a_store_that_is_still_open_ends_clean() {
    let written = five();
    let copy = tempfile::tempdir().unwrap();
    fs::copy(written.dir.path().join("0.jnl"), copy.path().join("0.jnl")).unwrap();
    let report = inspect_one(copy.path());
    assert_eq!(report.batches, 5);
    assert_eq!(report.end, JournalEnd::Clean { at: *written.ends().last().unwrap() });
}

#[test]
fn a_store_without_a_journal_has_nothing_to_report() {
    assert_eq!(inspect_journals(journals_of(&[]).path()).unwrap(), []);
}

#[test]
fn an_empty_journal_is_clean() {
    assert_eq!(end_of_bytes(b""), JournalEnd::Clean { at: 0 });
    assert_eq!(end_of_bytes(&vec![0; 100_000]), JournalEnd::Clean { at: 0 });
}

#[test]
fn a_journal_cut_anywhere_in_its_last_batch_is_torn() {
    for written in [five(), even(), uneven()] {
        let (bytes, last) = (written.bytes(), written.spans().pop().unwrap());
        for cut in last.clone() {
            for zeros in [0, 1, 5000] {
                let mut torn = bytes[..cut].to_vec();
                torn.extend(std::iter::repeat_n(0, zeros));
                let (end, at) = (end_of_bytes(&torn), last.start as u64);
                let is_empty = cut == last.start;
                match end {
                    JournalEnd::Clean { at: found } => assert!(is_empty && found == at),
                    JournalEnd::Torn { at: found, complete_but_wrong, shadow, bytes, .. } => {
                        assert!(!is_empty && !complete_but_wrong && shadow.is_none(), "{end:?}");
                        assert!(found == at && bytes <= (cut - last.start) as u64, "{end:?}");
                    }
                    JournalEnd::Damaged { .. } => panic!("cut at {cut}: {end:?}"),
                }
            }
        }
    }
}

#[test]
fn a_last_batch_of_which_a_sector_was_never_written_is_torn() {
    let written = Written::new().batch(&[(b"k", Some(b"first"))]);
    let written = written.batch(&[(b"l", Some(&noise(1500))), (b"m", Some(&[1; 300]))]);
    let (bytes, last) = (written.bytes(), written.spans().pop().unwrap());
    // Sectors reach the disk in any order, and the batch may begin anywhere in the first one.
    let first = last.clone().skip(1).map(|to| last.start..to);
    let others = last.clone().map(|from| from..(from + 512).min(last.end));
    for hole in first.chain(others) {
        let mut holed = bytes.clone();
        holed[hole.clone()].fill(0);
        match end_of_bytes(&holed) {
            JournalEnd::Torn { at, .. } => assert_eq!(at, last.start as u64),
            end @ (JournalEnd::Clean { .. } | JournalEnd::Damaged { .. }) => {
                assert!(holed == bytes || hole == last, "{hole:?}: {end:?}");
            }
        }
    }
}

#[test]
fn a_stretch_of_zeros_over_a_batch_that_is_not_the_last_is_damage() {
    let written = five();
    let (bytes, ends) = (written.bytes(), written.ends());
    for (index, span) in written.spans().iter().enumerate().take(4) {
        let mut holed = bytes.clone();
        holed[span.clone()].fill(0);
        let expected = JournalEnd::Damaged {
            at: span.start as u64,
            fault: Fault::Unreadable,
            resumes_at: Some(ends[index]),
        };
        assert_eq!(end_of_bytes(&holed), expected);
    }
}

#[test]
fn a_sealed_journal_may_not_be_torn_once_a_later_one_was_written() {
    let written = five();
    let (bytes, spans) = (written.bytes(), written.spans());
    let (sealed, active) = bytes.split_at(spans[3].start);
    let whole = inspect_journals(journals_of(&[sealed, active]).path()).unwrap();
    assert_eq!(whole.iter().map(|report| report.batches).collect::<Vec<_>>(), [3, 2]);
    let (at, torn) = (spans[2].start as u64, &sealed[..sealed.len() - 1]);
    let found = inspect_journals(journals_of(&[torn, active]).path()).unwrap();
    let damaged = JournalEnd::Damaged { at, fault: Fault::CutShort, resumes_at: None };
    assert_eq!(found[0].end, damaged);
    assert!(matches!(found[1].end, JournalEnd::Clean { .. }));
    // A torn batch in the later one is a later write too.
    let found = inspect_journals(journals_of(&[torn, &active[..20]]).path()).unwrap();
    assert_eq!(found[0].end, damaged);
    assert!(matches!(found[1].end, JournalEnd::Torn { .. }));
    // Nothing was written behind it: the failed write of an engine that has stopped.
    let found = inspect_journals(journals_of(&[torn, &[0; 64], b""]).path()).unwrap();
    assert!(matches!(found[0].end, JournalEnd::Torn { at: found, .. } if found == at));
}

#[test]
fn sequence_numbers_go_on_from_one_journal_to_the_next() {
    let written = five();
    let (bytes, spans) = (written.bytes(), written.spans());
    let (older, newer) = bytes.split_at(spans[3].start);
    let swapped = inspect_journals(journals_of(&[newer, older]).path()).unwrap();
    let expected = JournalEnd::Damaged { at: 0, fault: Fault::Sequence, resumes_at: Some(0) };
    assert_eq!(swapped[1].end, expected);
}

#[test]
fn a_journal_that_has_vanished_is_counted() {
    let written = five();
    let (bytes, spans) = (written.bytes(), written.spans());
    let dir = journals_of(&[&bytes[..spans[0].end], b"", &bytes[spans[3].start..]]);
    fs::remove_file(dir.path().join("1.jnl")).unwrap();
    let missing: Vec<_> =
        inspect_journals(dir.path()).unwrap().iter().map(|report| report.missing_before).collect();
    assert_eq!(missing, [0, 1]);
}

#[test]
fn journals_are_read_by_number_and_not_by_name() {
    let dir = journals_of(&[b"".as_slice(); 11]);
    let ids: Vec<_> =
        inspect_journals(dir.path()).unwrap().iter().map(|report| report.id).collect();
    assert_eq!(ids, (0..11).collect::<Vec<_>>());
}

#[test]
fn a_journal_without_a_number_is_an_error() {
    let dir = journals_of(&[]);
    fs::write(dir.path().join("copy.jnl"), b"").unwrap();
    let error = inspect_journals(dir.path()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().ends_with("copy.jnl is no name of a journal"), "{error}");
}
