//! The side effect of the demo: a file that only grows, one line for each payment or refund.
//!
//! It knows nothing of keys, claims or retries, and refuses nothing: it is the world outside, which
//! takes a payment twice if it is asked twice.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

/// What was done with the money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Payment,
    Refund,
}

impl Kind {
    /// Where it is asked for.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Payment => "/orders",
            Self::Refund => "/refunds",
        }
    }
}

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Receipt {
    /// Which line of all; no two have the same number.
    pub(super) number: usize,
    /// What was done.
    pub(super) kind: Kind,
    /// For which order.
    pub(super) order: String,
}

/// What it is for: `payment for order-1`.
impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Payment => "payment",
            Kind::Refund => "refund",
        };
        write!(f, "{kind} for {}", self.order)
    }
}

/// The file.
#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    pen: Mutex<File>,
}

impl Ledger {
    /// A new, empty file.
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().create_new(true).append(true).open(&path)?;
        Ok(Self { path, pen: Mutex::new(file) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes a payment for `order`, or gives it back. This is the effect: nobody can undo it.
    pub(super) fn write(&self, kind: Kind, order: &str) -> io::Result<Receipt> {
        let mut pen = self.pen();
        let receipt = Receipt { number: self.lines()?.len() + 1, kind, order: order.to_owned() };
        let mut line = serde_json::to_vec(&receipt)?;
        line.push(b'\n');
        pen.write_all(&line)?;
        Ok(receipt)
    }

    /// Every line, from the file itself.
    pub(super) fn read(&self) -> io::Result<Vec<Receipt>> {
        // Whoever reads waits for the pen, for a line that is half written is none.
        let _pen = self.pen();
        self.lines()
    }

    /// The first line for this, if there is one.
    pub(super) fn find(&self, kind: Kind, order: &str) -> io::Result<Option<Receipt>> {
        let is_it = |line: &Receipt| line.kind == kind && line.order == order;
        Ok(self.read()?.into_iter().find(is_it))
    }

    fn lines(&self) -> io::Result<Vec<Receipt>> {
        let text = fs::read_to_string(&self.path)?;
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    fn pen(&self) -> MutexGuard<'_, File> {
        self.pen.lock().expect("invariant: no panic while writing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_world_takes_a_payment_as_often_as_it_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::create(folder.path().join("ledger")).unwrap();
        assert_eq!(ledger.read().unwrap(), []);
        let first = ledger.write(Kind::Payment, "order-1").unwrap();
        let second = ledger.write(Kind::Payment, "order-1").unwrap();
        assert_ne!(first, second);
        assert_eq!(ledger.read().unwrap(), [first.clone(), second]);
        assert_eq!(ledger.find(Kind::Payment, "order-1").unwrap(), Some(first));
        assert_eq!(ledger.find(Kind::Refund, "order-1").unwrap(), None);
        assert_eq!(ledger.find(Kind::Payment, "order-2").unwrap(), None);
    }

    #[test]
    fn a_ledger_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let ledger = Ledger::create(path.clone()).unwrap();
        let line = ledger.write(Kind::Refund, "order-1").unwrap();
        assert!(Ledger::create(path).is_err());
        assert_eq!(ledger.read().unwrap(), [line]);
    }
}
