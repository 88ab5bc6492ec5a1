//! What is left of a directory when the power fails.
//!
//! Builds it anew somewhere else, from what was durable and what a seed lets survive. Never changes
//! the disk itself, so that one moment can be lost in many ways.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use super::state::{Known, Listing, SECTOR_BYTES, Sector, State, data_in, listing};

/// Whether a name needs a sync of its directory to stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// Every name is there as it is now.
    Kept,
    /// Only what was synced is sure.
    AsSynced,
}

/// What happens to the changes of one file, or to the names of one directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Luck {
    All,
    Nothing,
    Some,
}

impl Luck {
    fn draw(random: &mut SmallRng) -> Self {
        match random.random_range(0..4) {
            0 => Self::All,
            1 => Self::Nothing,
            _ => Self::Some,
        }
    }
}

pub(super) fn lose(state: &mut State, root: &Path, seed: u64, names: Names) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut random = SmallRng::seed_from_u64(seed);
    let mut open = vec![(root.to_path_buf(), dir.path().to_path_buf())];
    while let Some((from, to)) = open.pop() {
        for (name, (inode, is_dir)) in surviving_names(state, &from, names, &mut random) {
            let (from, to) = (from.join(&name), to.join(&name));
            if is_dir {
                fs::create_dir(&to).unwrap();
                open.push((from, to));
            } else {
                match state.files.get(&inode) {
                    Some(known) => write_file(known, &to, &mut random),
                    // Created and never written nor synced: nothing but its name.
                    None => drop(File::create(&to).unwrap()),
                }
            }
        }
    }
    dir
}

fn surviving_names(state: &State, dir: &Path, names: Names, random: &mut SmallRng) -> Listing {
    let now = listing(dir);
    let synced = match names {
        Names::Kept => return now,
        Names::AsSynced => state.listings.get(dir).cloned().unwrap_or_default(),
    };
    match Luck::draw(random) {
        Luck::All => now,
        Luck::Nothing => synced,
        // A file that is new and not an old one by another name may be missing by itself.
        Luck::Some => {
            let is_old = |inode: u64| synced.values().any(|(old, _)| *old == inode);
            let stays = |(name, (inode, is_dir)): &(PathBuf, (u64, bool))| {
                let replaces = synced.contains_key(name);
                replaces || is_old(*inode) || *is_dir || random.random_bool(0.5)
            };
            now.into_iter().filter(stays).collect()
        }
    }
}

fn write_file(known: &Known, to: &Path, random: &mut SmallRng) {
    let luck = Luck::draw(random);
    let now = known.file.metadata().unwrap().len();
    let len = surviving_len(known.synced_len, now, luck, random);
    let copy = File::create(to).unwrap();
    copy_data(&known.file, &copy);
    for (&sector, old) in known.pending.iter().chain(&known.doomed) {
        let is_kept = match luck {
            Luck::All => true,
            Luck::Nothing => false,
            Luck::Some => random.random_bool(0.5),
        };
        if !is_kept {
            write_sector(&copy, sector, old);
        }
    }
    copy.set_len(len).unwrap();
}

fn surviving_len(synced: u64, now: u64, luck: Luck, random: &mut SmallRng) -> u64 {
    match luck {
        Luck::All => now,
        Luck::Nothing => synced,
        Luck::Some if now <= synced => *[now, synced].get(random.random_range(0..2)).unwrap(),
        Luck::Some => {
            let cut = random.random_range(synced..=now) / SECTOR_BYTES * SECTOR_BYTES;
            *[now, synced, cut.max(synced)].get(random.random_range(0..3)).unwrap()
        }
    }
}

fn write_sector(file: &File, sector: u64, bytes: &Sector) {
    file.write_all_at(bytes.as_slice(), sector * SECTOR_BYTES).unwrap();
}

fn copy_data(from: &File, to: &File) {
    for data in data_in(from) {
        let mut bytes = vec![0; usize::try_from(data.end - data.start).unwrap()];
        from.read_exact_at(&mut bytes, data.start).unwrap();
        to.write_all_at(&bytes, data.start).unwrap();
    }
}
