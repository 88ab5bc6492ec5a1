//! What the storage engine does when the disk fails: the facts that the embedded store rests on.
//!
//! The store keeps a log of its own and throws the engine's journal away. So all that counts is
//! what the engine has said to be in its tables. Never proves anything about our own store. When
//! one of these fails after an update of the engine, read its changes and think again.

use std::fs::{self, File};
use std::path::Path;

use fjall::{Database, Error, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};

use crate::disk::{Disk, Effect, Fault};

/// How often a test looks whether something in the background has happened.
const LOOKS_MAX: u32 = 10_000_000;

fn open(dir: &Path) -> fjall::Result<(Database, Keyspace)> {
    let db = Database::builder(dir).worker_threads(1).open()?;
    let keyspace = db.keyspace("a", KeyspaceCreateOptions::default)?;
    Ok((db, keyspace))
}

/// Makes the folders of the keyspaces durable, which the engine does not do.
fn sync_keyspaces(dir: &Path) {
    File::open(dir.join("keyspaces")).unwrap().sync_all().unwrap();
}

fn value(key: u32) -> Vec<u8> {
    key.to_be_bytes().repeat(100)
}

fn insert(db: &Database, keyspace: &Keyspace, key: u32) -> fjall::Result<()> {
    let mut batch = db.batch();
    batch.insert(keyspace, key.to_be_bytes(), value(key));
    batch.commit()
}

fn ingest(keyspace: &Keyspace, keys: impl Iterator<Item = u32>) -> fjall::Result<()> {
    let mut ingestion = keyspace.start_ingestion()?;
    for key in keys {
        ingestion.write(key.to_be_bytes(), value(key))?;
    }
    ingestion.finish()
}

/// Ways in which a table cannot be written.
fn of_tables() -> [Fault; 2] {
    let full = Fault::write(1, Effect::Errno(libc::ENOSPC));
    [full.only("/tables/"), Fault::sync(1, libc::EIO).only("/tables/")]
}

/// Empties the journals, and leaves the newest.
fn forget_journals(dir: &Path) {
    let journal = |number: u32| dir.join(format!("{number}.jnl"));
    let numbers: Vec<_> = (0..10).filter(|number| journal(*number).exists()).collect();
    for number in &numbers {
        fs::remove_file(journal(*number)).unwrap();
    }
    File::create(journal(numbers.last().copied().unwrap_or(0))).unwrap();
}

/// Opens what a power loss has left, with an empty journal, and says what is there.
fn tables_in(dir: &Path) -> Vec<u32> {
    forget_journals(dir);
    let (_db, keyspace) = open(dir).unwrap();
    let is_there = |key: &u32| match keyspace.get(key.to_be_bytes()).unwrap() {
        Some(bytes) => {
            assert_eq!(bytes, value(*key));
            true
        }
        None => false,
    };
    (0..20).filter(is_there).collect()
}

#[test]
fn what_was_flushed_or_brought_in_survives_every_power_loss_without_a_journal() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    sync_keyspaces(disk.path());
    let mut seeds = 0..200;
    for key in 0..10 {
        if key % 2 == 0 {
            insert(&db, &keyspace, key).unwrap();
            keyspace.rotate_memtable_and_wait().unwrap();
        } else {
            ingest(&keyspace, std::iter::once(key)).unwrap();
        }
        // Not in a table, so that there is something to lose.
        keyspace.insert([b'u', 0, 0, 0, 0], vec![7; 3000]).unwrap();
        for seed in seeds.by_ref().take(20) {
            let left = disk.after_power_loss(seed);
            assert_eq!(tables_in(left.path()), (0..=key).collect::<Vec<_>>(), "seed {seed}");
            let again = left.after_power_loss(seed + 1_000);
            assert_eq!(tables_in(again.path()), (0..=key).collect::<Vec<_>>(), "seed {seed}");
        }
    }
}

#[test]
fn what_is_brought_in_is_newer_than_all_that_was_there() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    insert(&db, &keyspace, 1).unwrap();
    ingest(&keyspace, 0..3).unwrap();
    let mut ingestion = keyspace.start_ingestion().unwrap();
    ingestion.write_tombstone(1_u32.to_be_bytes()).unwrap();
    ingestion.finish().unwrap();
    keyspace.major_compact().unwrap();
    drop((db, keyspace));
    assert_eq!(tables_in(disk.path()), [0, 2]);
}

/// What is written after an opening with an empty journal counts, and not what was there before.
#[test]
fn with_an_empty_journal_the_engine_goes_on_counting() {
    let disk = Disk::new();
    let (mut db, mut keyspace) = open(disk.path()).unwrap();
    for round in 0..6_u32 {
        let (key, value) = (b"key".as_slice(), round.to_be_bytes());
        let is_seen = |db: &Database, keyspace: &Keyspace| {
            let seen = db.snapshot().get(keyspace, key).unwrap().unwrap();
            assert_eq!(seen, value, "round {round}");
        };
        if round % 2 == 0 {
            keyspace.insert(key, value).unwrap();
            keyspace.rotate_memtable_and_wait().unwrap();
        } else {
            let mut ingestion = keyspace.start_ingestion().unwrap();
            ingestion.write(key, value).unwrap();
            ingestion.finish().unwrap();
        }
        is_seen(&db, &keyspace);
        drop((db, keyspace));
        forget_journals(disk.path());
        (db, keyspace) = open(disk.path()).unwrap();
        is_seen(&db, &keyspace);
    }
}

#[test]
fn tables_may_vanish_silently_until_the_folder_of_the_keyspaces_is_synced() {
    let disk = Disk::new();
    let (_db, keyspace) = open(disk.path()).unwrap();
    ingest(&keyspace, 0..1).unwrap();
    let is_lost = |seed| tables_in(disk.after_power_loss(seed).path()).is_empty();
    assert!((0..20).any(is_lost), "the engine syncs it by now: the store need not");
    sync_keyspaces(disk.path());
    assert!(!(0..20).any(is_lost));
}

#[test]
fn values_that_cannot_be_brought_in_are_said_to_be_so_and_the_rest_stays() {
    for fault in of_tables() {
        let disk = Disk::new();
        let (db, keyspace) = open(disk.path()).unwrap();
        sync_keyspaces(disk.path());
        ingest(&keyspace, 0..2).unwrap();
        disk.inject(fault);
        assert!(ingest(&keyspace, 2..4).is_err());
        drop((db, keyspace));
        disk.heal();
        assert_eq!(tables_in(disk.path()), [0, 1]);
    }
}

#[test]
fn a_flush_that_fails_in_the_background_stops_everything() {
    for fault in of_tables() {
        let disk = Disk::new();
        let (db, keyspace) = open(disk.path()).unwrap();
        sync_keyspaces(disk.path());
        insert(&db, &keyspace, 0).unwrap();
        disk.inject(fault);
        // Not `rotate_memtable_and_wait`: it would wait for a flush that never comes.
        keyspace.rotate_memtable().unwrap();
        let looks = (0..LOOKS_MAX).find(|_| {
            std::thread::yield_now();
            matches!(db.persist(PersistMode::Buffer), Err(Error::Poisoned))
        });
        assert!(looks.is_some(), "the failure never showed");
        assert!(matches!(insert(&db, &keyspace, 1), Err(Error::Poisoned)));
        assert!(keyspace.contains_key(0_u32.to_be_bytes()).unwrap());
    }
}

#[test]
fn a_disk_that_became_read_only_stops_every_change_and_lets_the_database_be_dropped() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    ingest(&keyspace, 0..1).unwrap();
    disk.make_read_only();
    assert!(ingest(&keyspace, 1..2).is_err());
    assert!(keyspace.contains_key(0_u32.to_be_bytes()).unwrap());
    drop((db, keyspace));
    assert!(open(disk.path()).is_err());
}

#[test]
fn an_empty_journal_is_taken_for_one_in_which_nothing_was_written() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    insert(&db, &keyspace, 0).unwrap();
    drop((db, keyspace));
    assert_eq!(tables_in(disk.path()), [0; 0]);
}

/// Why one journal must be left: without any the engine counts from the beginning again.
#[test]
fn without_any_journal_what_is_there_is_not_seen() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    insert(&db, &keyspace, 0).unwrap();
    insert(&db, &keyspace, 1).unwrap();
    keyspace.rotate_memtable_and_wait().unwrap();
    drop((db, keyspace));
    fs::remove_file(disk.path().join("0.jnl")).unwrap();
    let (db, keyspace) = open(disk.path()).unwrap();
    let seen = db.snapshot().get(&keyspace, 1_u32.to_be_bytes()).unwrap();
    assert!(seen.is_none(), "the engine goes on by itself by now: the store need not care");
}
