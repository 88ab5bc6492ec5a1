//! The side effect of the demo: a file that only grows, one line for each payment taken.
//!
//! It knows nothing of keys, claims or retries, and refuses nothing: it is the world outside, which
//! takes a payment twice if it is asked twice. Another process may hold the same file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// One payment that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Receipt {
    /// Which payment of all; no two have the same number.
    pub(super) number: usize,
    /// For which order.
    pub(super) order: String,
}

/// The file, and the folder that goes away with it.
#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    pen: Mutex<File>,
    /// Where everything of the demo is; goes away with the ledger that made it.
    folder: Option<TempDir>,
}

impl Ledger {
    /// A new, empty file in a folder of its own.
    pub(super) fn open() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("onetake-demo-").tempdir()?;
        let path = folder.path().join("ledger.jsonl");
        let file = OpenOptions::new().create_new(true).append(true).open(&path)?;
        Ok(Self { path, pen: Mutex::new(file), folder: Some(folder) })
    }

    /// The file that another process made.
    pub(super) fn join(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path)?;
        Ok(Self { path: path.to_path_buf(), pen: Mutex::new(file), folder: None })
    }

    /// A folder of this name beside the file, which goes away with it.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        let home = self.folder.as_ref().map_or(Path::new("."), TempDir::path);
        home.join(name)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes a payment for `order`. This is the effect: nobody can take it back.
    pub(super) fn charge(&self, order: &str) -> io::Result<Receipt> {
        let mut pen = self.pen.lock().expect("invariant: no panic while writing");
        let receipt = Receipt { number: self.read()?.len() + 1, order: order.to_owned() };
        let mut line = serde_json::to_vec(&receipt)?;
        line.push(b'\n');
        pen.write_all(&line)?;
        Ok(receipt)
    }

    /// Every payment, from the file itself.
    pub(super) fn read(&self) -> io::Result<Vec<Receipt>> {
        let text = fs::read_to_string(&self.path)?;
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// The payment for `order`, if one was taken.
    pub(super) fn find(&self, order: &str) -> io::Result<Option<Receipt>> {
        Ok(self.read()?.into_iter().find(|receipt| receipt.order == order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_world_takes_a_payment_as_often_as_it_is_asked() {
        let ledger = Ledger::open().unwrap();
        assert_eq!(ledger.read().unwrap(), []);
        let first = ledger.charge("order-1").unwrap();
        let second = ledger.charge("order-1").unwrap();
        assert_ne!(first, second);
        assert_eq!(ledger.read().unwrap(), [first.clone(), second]);
        assert_eq!(ledger.find("order-1").unwrap(), Some(first));
        assert_eq!(ledger.find("order-2").unwrap(), None);
    }

    #[test]
    fn two_processes_may_write_to_one_file() {
        let ledger = Ledger::open().unwrap();
        let other = Ledger::join(ledger.path()).unwrap();
        let receipts = [ledger.charge("a").unwrap(), other.charge("b").unwrap()];
        assert_eq!(ledger.read().unwrap(), receipts);
        drop(other);
        assert!(ledger.path().exists(), "it belongs to the one that made it");
    }

    #[test]
    fn the_file_goes_away_with_the_ledger() {
        let ledger = Ledger::open().unwrap();
        let path = ledger.path().to_owned();
        assert!(path.exists());
        drop(ledger);
        assert!(!path.exists());
    }
}
