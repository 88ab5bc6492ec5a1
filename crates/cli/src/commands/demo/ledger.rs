//! The side effect of the demo: a file that only grows, one line for each payment taken.
//!
//! It knows nothing of keys, claims or retries, and refuses nothing: it is the world outside, which
//! takes a payment twice if it is asked twice.

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
    /// How many lines were written, and where the next one goes.
    pen: Mutex<(usize, File)>,
    _folder: TempDir,
}

impl Ledger {
    /// A new, empty file in a folder of its own.
    pub(super) fn open() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("onetake-demo-").tempdir()?;
        let path = folder.path().join("ledger.jsonl");
        let file = OpenOptions::new().create_new(true).append(true).open(&path)?;
        Ok(Self { path, pen: Mutex::new((0, file)), _folder: folder })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes a payment for `order`. This is the effect: nobody can take it back.
    pub(super) fn charge(&self, order: &str) -> io::Result<Receipt> {
        let mut pen = self.pen.lock().expect("invariant: no panic while writing");
        let receipt = Receipt { number: pen.0 + 1, order: order.to_owned() };
        let mut line = serde_json::to_vec(&receipt)?;
        line.push(b'\n');
        pen.1.write_all(&line)?;
        pen.0 += 1;
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
    fn the_file_goes_away_with_the_ledger() {
        let ledger = Ledger::open().unwrap();
        let path = ledger.path().to_owned();
        assert!(path.exists());
        drop(ledger);
        assert!(!path.exists());
    }
}
