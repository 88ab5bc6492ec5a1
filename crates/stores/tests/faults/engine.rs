//! What the storage engine does when the disk fails: the facts that the embedded store rests on.
//!
//! Never proves anything about our own store. When one of these fails after an update of the
//! engine, read its changes and think again.

use std::fs::File;
use std::path::Path;

use fjall::{Database, Error, Keyspace, KeyspaceCreateOptions, PersistMode};
use onetake_stores::inspect::{JournalEnd, discard_torn_tail, inspect_journals};

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

fn commit(db: &Database, keyspace: &Keyspace, key: u32) -> fjall::Result<()> {
    let mut batch = db.batch().durability(Some(PersistMode::SyncData));
    batch.insert(keyspace, key.to_be_bytes(), key.to_be_bytes().repeat(100));
    batch.insert(keyspace, [b"twin".as_slice(), &key.to_be_bytes()].concat(), b"");
    batch.commit()
}

/// Opens what a power loss has left, as the store would, and says what is there.
fn committed_in(dir: &Path) -> Vec<u32> {
    for report in inspect_journals(dir).unwrap() {
        assert!(!matches!(report.end, JournalEnd::Damaged { .. }), "{report:?}");
        discard_torn_tail(&report).unwrap();
    }
    let (_db, keyspace) = open(dir).unwrap();
    let has = |key: &[u8]| keyspace.contains_key(key).unwrap();
    let is_there = |key: &u32| {
        let (one, other) = (key.to_be_bytes(), [b"twin".as_slice(), &key.to_be_bytes()].concat());
        assert_eq!(has(&one), has(&other), "half of a batch");
        has(&one)
    };
    (0..20).filter(is_there).collect()
}

#[test]
fn a_batch_whose_commit_returned_survives_every_power_loss() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    sync_keyspaces(disk.path());
    let mut seeds = 0..200;
    for key in 0..10 {
        commit(&db, &keyspace, key).unwrap();
        // Not synced, so that there is something to lose.
        keyspace.insert([b'u', 0, 0, 0, 0], vec![7; 3000]).unwrap();
        for seed in seeds.by_ref().take(20) {
            let left = disk.after_power_loss(seed);
            let found = committed_in(left.path());
            assert_eq!(found, (0..=key).collect::<Vec<_>>(), "seed {seed}");
        }
        if key % 3 == 2 {
            keyspace.rotate_memtable_and_wait().unwrap();
        }
    }
}

#[test]
fn a_power_loss_while_the_first_one_is_recovered_loses_nothing_either() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    sync_keyspaces(disk.path());
    for key in 0..3 {
        commit(&db, &keyspace, key).unwrap();
    }
    keyspace.insert("unsynced", vec![7; 3000]).unwrap();
    for seed in 0..50 {
        let once = disk.after_power_loss(seed);
        assert_eq!(committed_in(once.path()), [0, 1, 2], "seed {seed}");
        let twice = once.after_power_loss(seed + 1000);
        assert_eq!(committed_in(twice.path()), [0, 1, 2], "seed {seed}");
    }
}

#[test]
fn committed_batches_may_vanish_silently_until_the_folder_of_the_keyspaces_is_synced() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    commit(&db, &keyspace, 0).unwrap();
    let is_lost = |seed| committed_in(disk.after_power_loss(seed).path()).is_empty();
    assert!((0..20).any(is_lost), "the engine syncs it by now: the store need not");
    sync_keyspaces(disk.path());
    assert!(!(0..20).any(is_lost));
}

#[test]
fn a_commit_is_one_sync_of_the_journal() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    let (all, journal) = (disk.syncs(), disk.syncs_of("0.jnl"));
    commit(&db, &keyspace, 0).unwrap();
    assert_eq!((disk.syncs() - all, disk.syncs_of("0.jnl") - journal), (1, 1));
}

#[test]
fn after_a_failed_sync_nothing_is_taken_any_more_and_the_batch_may_be_there_or_not() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    sync_keyspaces(disk.path());
    commit(&db, &keyspace, 0).unwrap();
    disk.inject(Fault::sync(1, libc::EIO).only(".jnl"));
    assert!(matches!(commit(&db, &keyspace, 1), Err(Error::Io(_))));
    // The disk works again; the engine does not trust it.
    for key in 2..5 {
        assert!(matches!(commit(&db, &keyspace, key), Err(Error::Poisoned)));
    }
    assert!(matches!(keyspace.insert("a", "b"), Err(Error::Poisoned)));
    assert!(matches!(db.persist(PersistMode::SyncAll), Err(Error::Poisoned)));
    // It can still be read, without the batch.
    assert!(keyspace.contains_key(0_u32.to_be_bytes()).unwrap());
    assert!(!keyspace.contains_key(1_u32.to_be_bytes()).unwrap());
    let found = |seed| committed_in(disk.after_power_loss(seed).path());
    let found: std::collections::BTreeSet<_> = (0..30).map(found).collect();
    assert_eq!(found, [vec![0], vec![0, 1]].into());
}

#[test]
fn a_commit_that_failed_for_want_of_space_is_written_when_the_database_is_dropped() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    commit(&db, &keyspace, 0).unwrap();
    disk.inject(Fault::write(1, Effect::Errno(libc::ENOSPC)).only(".jnl"));
    assert!(matches!(commit(&db, &keyspace, 1), Err(Error::Io(_))));
    assert!(matches!(commit(&db, &keyspace, 2), Err(Error::Poisoned)));
    drop((db, keyspace));
    assert_eq!(committed_in(disk.path()), [0, 1]);
}

#[test]
fn half_a_batch_of_a_full_disk_is_a_torn_write() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    commit(&db, &keyspace, 0).unwrap();
    disk.inject(Fault::write(1, Effect::Short(100)).only(".jnl"));
    disk.inject(Fault::write(2, Effect::Errno(libc::ENOSPC)).only(".jnl").and_later());
    assert!(matches!(commit(&db, &keyspace, 1), Err(Error::Io(_))));
    drop((db, keyspace));
    disk.heal();
    let reports = inspect_journals(disk.path()).unwrap();
    assert!(matches!(reports[0].end, JournalEnd::Torn { bytes: 1..=100, .. }), "{reports:?}");
    assert_eq!(committed_in(disk.path()), [0]);
}

#[test]
fn a_short_write_is_completed() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    disk.inject(Fault::write(1, Effect::Short(7)).only(".jnl"));
    commit(&db, &keyspace, 0).unwrap();
    drop((db, keyspace));
    assert_eq!(committed_in(disk.path()), [0]);
}

#[test]
fn a_disk_that_became_read_only_stops_every_commit_and_lets_the_database_be_dropped() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    commit(&db, &keyspace, 0).unwrap();
    disk.make_read_only();
    assert!(matches!(commit(&db, &keyspace, 1), Err(Error::Io(_))));
    assert!(matches!(commit(&db, &keyspace, 2), Err(Error::Poisoned)));
    assert!(keyspace.contains_key(0_u32.to_be_bytes()).unwrap());
    drop((db, keyspace));
    assert!(open(disk.path()).is_err());
}

#[test]
fn a_flush_that_fails_in_the_background_stops_every_commit_and_loses_nothing() {
    for fault in [
        Fault::write(1, Effect::Errno(libc::ENOSPC)).only("/tables/"),
        Fault::sync(1, libc::EIO).only("/tables/"),
    ] {
        let disk = Disk::new();
        let (db, keyspace) = open(disk.path()).unwrap();
        sync_keyspaces(disk.path());
        commit(&db, &keyspace, 0).unwrap();
        disk.inject(fault);
        // Not `rotate_memtable_and_wait`: it would wait for a flush that never comes.
        keyspace.rotate_memtable().unwrap();
        let looks = (0..LOOKS_MAX).find(|_| {
            std::thread::yield_now();
            matches!(db.persist(PersistMode::Buffer), Err(Error::Poisoned))
        });
        assert!(looks.is_some(), "the failure never showed");
        assert!(matches!(commit(&db, &keyspace, 1), Err(Error::Poisoned)));
        assert!(keyspace.contains_key(0_u32.to_be_bytes()).unwrap());
        drop((db, keyspace));
        assert_eq!(committed_in(disk.path()), [0]);
    }
}

#[test]
fn a_store_without_its_journal_is_opened_as_if_nothing_were_missing() {
    let disk = Disk::new();
    let (db, keyspace) = open(disk.path()).unwrap();
    commit(&db, &keyspace, 0).unwrap();
    drop((db, keyspace));
    std::fs::remove_file(disk.path().join("0.jnl")).unwrap();
    assert_eq!(inspect_journals(disk.path()).unwrap(), []);
    assert_eq!(committed_in(disk.path()), [0; 0]);
}
