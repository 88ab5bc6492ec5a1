//! The copy of the tree that bugs are planted in.
//!
//! Lives in the target directory and is kept from run to run, so that cargo rebuilds only what has
//! changed. Invariant: between two bugs, it is the tree, but for the version of its packages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Planted;

/// Where the version of all packages is.
const MANIFEST: &str = "Cargo.toml";
/// What is added to it. Cargo tells packages apart by name, version and path from the root, so one
/// of the copy and one of the tree would be the same to it. It would then ask the copy whether what
/// was built is still good, and not see what changed in the tree.
const PLANTED: &str = "+planted";

/// A copy of the tree that belongs to this process alone.
pub(super) struct Copy {
    pub(super) root: PathBuf,
    /// Held for as long as the copy is used.
    _lock: File,
}

/// A file before and after a bug was planted in it.
pub(super) struct Edited {
    before: String,
    after: String,
}

impl Copy {
    /// Makes `<folder>/tree` the same as the given files.
    pub(super) fn sync(from: &Path, files: &[String], folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let lock = File::create(folder.join("lock"))?;
        lock.try_lock().context("somebody else is planting bugs")?;
        let root = folder.join("tree");
        fs::create_dir_all(&root)?;
        let wanted: BTreeSet<PathBuf> = files.iter().map(|file| root.join(file)).collect();
        remove_others(&root, &wanted)?;
        for file in files {
            let read = fs::read(from.join(file)).map_err(anyhow::Error::from);
            let wanted = if file == MANIFEST { read.and_then(apart) } else { read };
            wanted
                .and_then(|wanted| write_if_different(&root.join(file), &wanted))
                .with_context(|| format!("cannot copy {file}"))?;
        }
        Ok(Self { root, _lock: lock })
    }

    /// What planting a bug would make of the files it touches.
    pub(super) fn edited(&self, bug: &Planted) -> Result<BTreeMap<&'static str, Edited>> {
        let files: BTreeSet<&'static str> = bug.edits.iter().map(|edit| edit.file).collect();
        let edited = |file: &'static str| {
            let before = fs::read_to_string(self.root.join(file))
                .with_context(|| format!("`{}` is stale: cannot read {file}", bug.name))?;
            let after = bug.edit(file, &before)?;
            Ok((file, Edited { before, after }))
        };
        files.into_iter().map(edited).collect()
    }

    /// Acts while a bug is planted, and takes it out again whatever happened.
    pub(super) fn while_planted<T>(
        &self,
        bug: &Planted,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let edited = self.edited(bug)?;
        let planted = edited.iter().try_for_each(|(file, text)| self.write(file, &text.after));
        let result = planted.and_then(|()| act());
        // Written rather than renamed back: cargo rebuilds what has a new time of change.
        edited.iter().try_for_each(|(file, text)| self.write(file, &text.before))?;
        result
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        fs::write(self.root.join(file), text).with_context(|| format!("cannot write {file}"))
    }
}

/// The manifest with a version of its own.
fn apart(manifest: Vec<u8>) -> Result<Vec<u8>> {
    let text = String::from_utf8(manifest)?;
    let (before, version) =
        text.split_once("\nversion = \"").context("the manifest names no version")?;
    let (version, after) = version.split_once('"').context("the version has no end")?;
    Ok(format!("{before}\nversion = \"{version}{PLANTED}\"{after}").into_bytes())
}

/// What is the same keeps its time of change, and cargo its build.
fn write_if_different(to: &Path, wanted: &[u8]) -> Result<()> {
    if fs::read(to).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    Ok(fs::write(to, wanted)?)
}

/// A file that has left the tree would still be found by cargo, which looks for targets by name.
fn remove_others(folder: &Path, wanted: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_on_the_way = wanted.iter().any(|file| file.starts_with(&path));
        match (path.is_dir(), is_on_the_way) {
            (true, true) => remove_others(&path, wanted)?,
            (true, false) => fs::remove_dir_all(&path)?,
            (false, true) => {}
            (false, false) => fs::remove_file(&path)?,
        }
    }
    Ok(())
}
