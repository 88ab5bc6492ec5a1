//! What the engine itself does with the same journals: the facts that this module rests on.
//!
//! Never proves anything about our own code. When one of these fails after an update of the engine,
//! read its changes and think again.

use super::*;

/// Opens a copy of the store with another journal and says what is in the keyspace.
fn reopened(written: Written, journal: &[u8]) -> Result<Vec<Vec<u8>>, fjall::Error> {
    let dir = written.close();
    fs::write(dir.path().join("0.jnl"), journal).unwrap();
    keys_in(dir.path())
}

fn keys_in(dir: &Path) -> Result<Vec<Vec<u8>>, fjall::Error> {
    let db = Database::builder(dir).worker_threads(1).open()?;
    let keyspace = db.keyspace("a", KeyspaceCreateOptions::default)?;
    keyspace.iter().map(|item| item.key().map(|key| key.to_vec())).collect()
}

#[test]
fn the_engine_drops_what_follows_a_damaged_batch_and_says_nothing() {
    let written = five();
    let (mut bytes, spans) = (written.bytes(), written.spans());
    bytes[spans[1].start] ^= 0x80;
    assert!(matches!(end_of_bytes(&bytes), JournalEnd::Damaged { .. }));
    assert_eq!(reopened(written, &bytes).unwrap(), [b"a"]);
}

#[test]
fn the_engine_refuses_a_last_batch_that_is_complete_but_wrong_until_it_is_discarded() {
    let written = uneven();
    let (mut bytes, last) = (written.bytes(), written.spans().pop().unwrap());
    bytes[last.end - 14] ^= 1;
    let dir = journals_of(&[&bytes]);
    let report = inspect_one(dir.path());
    assert!(matches!(report.end, JournalEnd::Torn { complete_but_wrong: true, .. }));
    assert!(matches!(reopened(written, &bytes), Err(fjall::Error::JournalRecovery(_))));
    assert_eq!(discard_torn_tail(&report).unwrap(), last.len() as u64);
    let after = inspect_one(dir.path());
    assert_eq!(after.end, JournalEnd::Clean { at: last.start as u64 });
    assert_eq!(discard_torn_tail(&after).unwrap(), 0);
    let bytes = fs::read(&after.file).unwrap();
    assert_eq!(reopened(uneven(), &bytes).unwrap(), [b"k".to_vec(), b"key".to_vec()]);
}

#[test]
fn a_number_that_is_wrong_and_keeps_the_order_changes_nothing() {
    let written = Written::new();
    // A flush takes a number, so that there is a gap to hide in.
    let written = written.batch(&[(b"a", Some(b"old"))]);
    written.keyspace.rotate_memtable_and_wait().unwrap();
    let written = written.batch(&[(b"a", Some(b"new"))]).batch(&[(b"b", Some(b"b"))]);
    let numbers: Vec<u64> = numbers_of(&written);
    assert!(numbers[1] > numbers[0] + 1, "no gap in {numbers:?}");
    let (mut bytes, second) = (written.bytes(), written.spans()[1].clone());
    let place = second.start + 5..second.start + 13;
    bytes[place].copy_from_slice(&(numbers[1] - 1).to_le_bytes());
    assert!(matches!(end_of_bytes(&bytes), JournalEnd::Clean { .. }));
    let dir = written.close();
    fs::write(dir.path().join("0.jnl"), bytes).unwrap();
    let db = Database::builder(dir.path()).open().unwrap();
    let keyspace = db.keyspace("a", KeyspaceCreateOptions::default).unwrap();
    assert_eq!(&*keyspace.get("a").unwrap().unwrap(), b"new");
}

fn numbers_of(written: &Written) -> Vec<u64> {
    let bytes = written.bytes();
    let number = |start: usize| u64::from_le_bytes(*bytes[start + 5..].first_chunk().unwrap());
    written.spans().iter().map(|span| number(span.start)).collect()
}

#[test]
fn a_journal_that_the_engine_has_sealed_ends_clean() {
    let dir = tempfile::tempdir().unwrap();
    // Kept small, so that the sealed journal is still there when we look.
    let db = Database::builder(dir.path()).worker_threads(1).open().unwrap();
    let stays = db.keyspace("stays", KeyspaceCreateOptions::default).unwrap();
    let grows = db.keyspace("grows", KeyspaceCreateOptions::default).unwrap();
    stays.insert("kept", "in the oldest journal").unwrap();
    let value = noise(1 << 20);
    for n in 0..65_u32 {
        grows.insert(n.to_be_bytes(), &value).unwrap();
    }
    grows.rotate_memtable_and_wait().unwrap();
    grows.insert("behind", "the seal").unwrap();
    let reports = inspect_journals(dir.path()).unwrap();
    assert!(reports.len() > 1, "{reports:?}");
    assert!(reports.iter().all(|report| matches!(report.end, JournalEnd::Clean { .. })));
    assert!(reports.iter().all(|report| report.missing_before == 0));
}
