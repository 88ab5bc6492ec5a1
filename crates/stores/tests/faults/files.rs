//! What the disk does to plain files.
//!
//! Never opens a database: what fails here is the tool.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::disk::{Disk, Effect, Fault, Names, files_below, flip, truncate};

fn sync_dir(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

/// Everything that a file may hold after a power loss.
fn outcomes(disk: &Disk, name: &str) -> BTreeSet<Option<Vec<u8>>> {
    (0..200).map(|seed| fs::read(disk.after_power_loss(seed).path().join(name)).ok()).collect()
}

#[test]
fn a_file_elsewhere_is_left_alone() {
    let (disk, elsewhere) = (Disk::new(), tempfile::tempdir().unwrap());
    disk.make_read_only();
    let mut file = File::create(elsewhere.path().join("a")).unwrap();
    file.write_all(b"passes").unwrap();
    file.sync_all().unwrap();
    assert_eq!((disk.syncs(), disk.writes()), (0, 0));
}

#[test]
fn every_kind_of_write_is_seen_and_done() {
    let disk = Disk::new();
    let path = disk.path().join("a");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"write ").unwrap();
    let pieces = [IoSlice::new(b"vec"), IoSlice::new(b"tor ")];
    assert_eq!(file.write_vectored(&pieces).unwrap(), 7);
    file.write_all_at(b"WR", 0).unwrap();
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"append").unwrap();
    assert_eq!(disk.writes(), 4);
    assert_eq!(fs::read(&path).unwrap(), b"WRite vector append");
}

#[test]
fn syncs_are_counted_by_file_and_in_all() {
    let disk = Disk::new();
    let file = File::create(disk.path().join("a")).unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    sync_dir(disk.path());
    assert_eq!([disk.syncs(), disk.syncs_of("a"), disk.syncs_of("")], [3, 2, 1]);
}

#[test]
fn the_nth_write_fails_and_the_next_one_does_not() {
    let disk = Disk::new();
    let mut file = File::create(disk.path().join("a.log")).unwrap();
    let mut other = File::create(disk.path().join("b")).unwrap();
    disk.inject(Fault::write(2, Effect::Errno(libc::ENOSPC)).only(".log"));
    file.write_all(b"1").unwrap();
    other.write_all(b"1").unwrap();
    assert_eq!(file.write(b"2").unwrap_err().kind(), ErrorKind::StorageFull);
    file.write_all(b"3").unwrap();
    assert_eq!(fs::read(disk.path().join("a.log")).unwrap(), b"13");
}

#[test]
fn a_full_disk_stays_full_until_it_is_healed() {
    let disk = Disk::new();
    let mut file = File::create(disk.path().join("a")).unwrap();
    disk.inject(Fault::write(1, Effect::Errno(libc::ENOSPC)).and_later());
    for _ in 0..3 {
        assert_eq!(file.write(b"x").unwrap_err().kind(), ErrorKind::StorageFull);
    }
    disk.heal();
    file.write_all(b"x").unwrap();
}

#[test]
fn a_short_write_says_how_short_it_was() {
    let disk = Disk::new();
    let mut file = File::create(disk.path().join("a")).unwrap();
    disk.inject(Fault::write(1, Effect::Short(3)));
    assert_eq!(file.write(b"abcdef").unwrap(), 3);
    disk.inject(Fault::write(1, Effect::Short(1)));
    assert_eq!(file.write_vectored(&[IoSlice::new(b"de"), IoSlice::new(b"f")]).unwrap(), 1);
    assert_eq!(fs::read(disk.path().join("a")).unwrap(), b"abcd");
}

#[test]
fn a_disk_that_became_read_only_refuses_every_change() {
    let disk = Disk::new();
    let (path, other) = (disk.path().join("a"), disk.path().join("b"));
    let mut file = File::create(&path).unwrap();
    file.write_all(b"old").unwrap();
    disk.make_read_only();
    let refused: [io::Result<()>; 8] = [
        file.write_all(b"new"),
        file.sync_all(),
        file.sync_data(),
        file.set_len(0),
        File::create(&other).map(drop),
        fs::rename(&path, &other),
        fs::remove_file(&path),
        fs::create_dir(&other),
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
    assert_eq!(fs::read(&path).unwrap(), b"old");
    disk.heal();
    fs::remove_file(&path).unwrap();
}

#[test]
fn what_was_synced_survives_and_what_was_not_may_be_lost() {
    let disk = Disk::new();
    let mut file = File::create(disk.path().join("a")).unwrap();
    file.write_all(b"sure").unwrap();
    file.sync_data().unwrap();
    sync_dir(disk.path());
    assert_eq!(outcomes(&disk, "a"), [Some(b"sure".to_vec())].into());
    file.write_all(b" and not").unwrap();
    let found = outcomes(&disk, "a");
    assert!(
        found.contains(&Some(b"sure".to_vec())) && found.contains(&Some(b"sure and not".to_vec()))
    );
    assert!(found.iter().flatten().all(|bytes| bytes.starts_with(b"sure")), "{found:?}");
}

#[test]
fn sectors_are_lost_one_by_one_and_never_in_part() {
    let disk = Disk::new();
    let file = File::create(disk.path().join("a")).unwrap();
    file.write_all_at(&[1; 2048], 0).unwrap();
    file.sync_all().unwrap();
    sync_dir(disk.path());
    file.write_all_at(&[2; 2048], 0).unwrap();
    let found = outcomes(&disk, "a");
    assert_eq!(found.len(), 16, "every choice of four sectors");
    for bytes in found.iter().flatten() {
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
    }
}

#[test]
fn a_name_that_was_not_synced_may_be_lost_unless_names_are_kept() {
    let disk = Disk::new();
    let mut file = File::create(disk.path().join("a")).unwrap();
    file.write_all(b"content").unwrap();
    file.sync_all().unwrap();
    assert_eq!(outcomes(&disk, "a"), [None, Some(b"content".to_vec())].into());
    for seed in 0..50 {
        let left = disk.after_power_loss_with(seed, Names::Kept);
        assert_eq!(fs::read(left.path().join("a")).unwrap(), b"content");
    }
}

#[test]
fn a_rename_that_was_not_synced_happens_or_does_not() {
    let disk = Disk::new();
    for (name, content) in [("new", b"new"), ("name", b"old")] {
        let mut file = File::create(disk.path().join(name)).unwrap();
        file.write_all(content).unwrap();
        file.sync_all().unwrap();
    }
    sync_dir(disk.path());
    fs::rename(disk.path().join("new"), disk.path().join("name")).unwrap();
    let (old, new) = (Some(b"old".to_vec()), Some(b"new".to_vec()));
    for seed in 0..50 {
        let left = disk.after_power_loss(seed);
        let found = ["name", "new"].map(|name| fs::read(left.path().join(name)).ok());
        assert!(found == [old.clone(), new.clone()] || found == [new.clone(), None], "{found:?}");
    }
    sync_dir(disk.path());
    assert_eq!(outcomes(&disk, "name"), [new].into());
    assert_eq!(outcomes(&disk, "new"), [None].into());
}

#[test]
fn a_file_that_was_removed_may_be_back() {
    let disk = Disk::new();
    let mut file = File::create(disk.path().join("a")).unwrap();
    file.write_all(b"content").unwrap();
    file.sync_all().unwrap();
    sync_dir(disk.path());
    drop(file);
    fs::remove_file(disk.path().join("a")).unwrap();
    assert_eq!(outcomes(&disk, "a"), [None, Some(b"content".to_vec())].into());
}

#[test]
fn a_cut_that_was_not_synced_may_be_undone() {
    let disk = Disk::new();
    let mut file = File::create(disk.path().join("a")).unwrap();
    file.write_all(b"content").unwrap();
    file.sync_all().unwrap();
    sync_dir(disk.path());
    file.set_len(3).unwrap();
    let found = outcomes(&disk, "a");
    assert!(found.contains(&Some(b"con".to_vec())) && found.contains(&Some(b"content".to_vec())));
    File::create(disk.path().join("a")).unwrap().write_all(b"other").unwrap();
    assert!(outcomes(&disk, "a").contains(&Some(b"content".to_vec())));
}

#[test]
fn what_a_failed_sync_left_behind_is_not_saved_by_the_next_one() {
    let disk = Disk::new();
    let file = File::create(disk.path().join("a")).unwrap();
    file.write_all_at(b"old", 0).unwrap();
    file.sync_all().unwrap();
    sync_dir(disk.path());
    file.write_all_at(b"new", 0).unwrap();
    disk.inject(Fault::sync(1, libc::EIO));
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(libc::EIO));
    file.sync_data().unwrap();
    let both = [Some(b"new".to_vec()), Some(b"old".to_vec())].into();
    assert_eq!(outcomes(&disk, "a"), both);
    // Written again it is like any other write.
    file.write_all_at(b"new", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(outcomes(&disk, "a"), [Some(b"new".to_vec())].into());
}

/// A file that a write syncs by itself, with the two sectors that it held before.
fn synced_by_writes(disk: &Disk) -> (File, File) {
    let path = disk.path().join("a");
    fs::write(&path, [b'-'; 1024]).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    sync_dir(disk.path());
    let itself = OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(&path).unwrap();
    (file, itself)
}

/// Both sectors of that file, each by what it is filled with.
fn fillings(disk: &Disk) -> BTreeSet<[u8; 2]> {
    let filling = |content: Option<Vec<u8>>| {
        let content = content.unwrap();
        let [first, second] = [&content[..512], &content[512..]].map(|sector| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "no sector is torn");
            sector[0]
        });
        [first, second]
    };
    outcomes(disk, "a").into_iter().map(filling).collect()
}

#[test]
fn a_write_that_syncs_itself_saves_what_it_wrote_and_nothing_else() {
    let disk = Disk::new();
    let (file, itself) = synced_by_writes(&disk);
    let before = disk.syncs();
    file.write_all_at(&[b'1'; 512], 0).unwrap();
    itself.write_all_at(&[b'2'; 512], 512).unwrap();
    assert_eq!(disk.syncs(), before + 1);
    assert_eq!(fillings(&disk), [*b"-2", *b"12"].into());
    file.sync_data().unwrap();
    assert_eq!(fillings(&disk), [*b"12"].into());
}

#[test]
fn a_write_that_could_not_sync_itself_is_in_doubt() {
    let disk = Disk::new();
    let (file, itself) = synced_by_writes(&disk);
    disk.inject(Fault::sync(1, libc::EIO));
    let failed = itself.write_all_at(&[b'2'; 512], 512).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(libc::EIO));
    file.sync_data().unwrap();
    assert_eq!(fillings(&disk), [*b"--", *b"-2"].into());
}

#[test]
fn a_seed_always_loses_the_same() {
    let disk = Disk::new();
    for name in ["a", "b", "c"] {
        fs::write(disk.path().join(name), [7; 3000]).unwrap();
    }
    let left = |seed| {
        let dir = disk.after_power_loss(seed);
        let content = |name: &std::path::PathBuf| fs::read(dir.path().join(name)).unwrap();
        let files = files_below(dir.path());
        files.iter().map(content).collect::<Vec<_>>()
    };
    assert_eq!(left(3), left(3));
}

#[test]
fn two_disks_do_not_know_each_other() {
    let (one, two) = (Disk::new(), Disk::new());
    one.make_read_only();
    fs::write(two.path().join("a"), b"fine").unwrap();
    assert!(fs::write(one.path().join("a"), b"not").is_err());
    assert_eq!(files_below(one.path()), [""; 0].map(std::path::PathBuf::from));
}

#[test]
fn a_bit_can_be_flipped_and_a_file_be_cut() {
    let disk = Disk::new();
    let path = disk.path().join("a");
    fs::write(&path, b"abc").unwrap();
    flip(&path, 1);
    truncate(&path, 2);
    assert_eq!(fs::read(&path).unwrap(), b"ac");
}
