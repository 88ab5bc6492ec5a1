//! What was counted and what callers were given, and the audit that compares it with the ledger.
//!
//! The API and the callers write into it, each what it saw itself. It never asks the gateway, and
//! never corrects anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use hyper::body::Bytes;

use super::counts::{Count, Counts};
use super::ledger::{Kind, Receipt};

/// An answer with a receipt in it, as a caller got it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) receipt: Receipt,
    pub(super) status: u16,
    pub(super) location: String,
    /// Every byte of it.
    pub(super) body: Bytes,
}

/// What the API and the callers saw.
#[derive(Debug, Default)]
pub(super) struct Books {
    tally: Mutex<Counts>,
    given: Mutex<Vec<Given>>,
}

impl Books {
    pub(super) fn count(&self, count: Count) {
        self.tally().add(count, 1);
    }

    pub(super) fn give(&self, given: Given) {
        self.given().push(given);
    }

    /// What was counted so far.
    pub(super) fn counts(&self) -> Counts {
        *self.tally()
    }

    /// Compares what callers were given with the `lines` of the ledger.
    pub(super) fn audit(&self, lines: &[Receipt]) -> Audit {
        Audit::of(lines, &self.given())
    }

    fn tally(&self) -> MutexGuard<'_, Counts> {
        self.tally.lock().expect("invariant: no panic while counting")
    }

    fn given(&self) -> MutexGuard<'_, Vec<Given>> {
        self.given.lock().expect("invariant: no panic while giving")
    }
}

/// What the books say in the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Audit {
    /// Lines of the ledger beyond the first for the same thing.
    pub(super) twice: u64,
    /// What does not fit, in words.
    pub(super) broken: Vec<String>,
}

impl Audit {
    fn of(lines: &[Receipt], given: &[Given]) -> Self {
        let mut found = BTreeSet::new();
        let mut written: BTreeMap<(Kind, &str), u64> = BTreeMap::new();
        for line in lines {
            *written.entry((line.kind, &line.order)).or_default() += 1;
        }
        for line in lines {
            let times = written[&(line.kind, line.order.as_str())];
            if times > 1 {
                found.insert(format!("{line}: executed {times} times"));
            }
        }
        let mut first: BTreeMap<(Kind, &str), &Given> = BTreeMap::new();
        for answer in given {
            let receipt = &answer.receipt;
            if !lines.contains(receipt) {
                found.insert(format!("{receipt}: a receipt that the ledger lacks"));
            }
            let before = *first.entry((receipt.kind, &receipt.order)).or_insert(answer);
            if before != answer {
                found.insert(format!("{receipt}: two callers got two answers"));
            }
        }
        let twice = written.values().map(|times| times - 1).sum();
        Self { twice, broken: found.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paid(number: usize, order: &str) -> Receipt {
        Receipt { number, kind: Kind::Payment, order: order.to_owned() }
    }

    fn given(receipt: Receipt) -> Given {
        let location = format!("/orders/{}", receipt.number);
        Given { body: Bytes::from(format!("{receipt:?}")), receipt, status: 201, location }
    }

    #[test]
    fn books_that_agree_are_sound() {
        let refund = Receipt { kind: Kind::Refund, ..paid(3, "a") };
        let lines = [paid(1, "a"), paid(2, "b"), refund];
        let answers = [given(paid(1, "a")), given(paid(1, "a")), given(paid(2, "b"))];
        assert_eq!(Audit::of(&lines, &answers), Audit { twice: 0, broken: Vec::new() });
    }

    #[test]
    fn an_order_that_was_paid_twice_is_named() {
        let lines = [paid(1, "a"), paid(2, "a"), paid(3, "a"), paid(4, "b")];
        let audit = Audit::of(&lines, &[]);
        assert_eq!(audit.twice, 2);
        assert_eq!(audit.broken, ["payment for a: executed 3 times"]);
    }

    #[test]
    fn a_receipt_without_a_payment_does_not_pass() {
        let audit = Audit::of(&[], &[given(paid(1, "a"))]);
        assert_eq!(audit.broken, ["payment for a: a receipt that the ledger lacks"]);
    }

    #[test]
    fn a_replay_that_differs_in_one_byte_does_not_pass() {
        let (lines, first) = ([paid(1, "a")], given(paid(1, "a")));
        let other = Given { body: Bytes::from_static(b"else"), ..first.clone() };
        let elsewhere = Given { location: "/orders/2".to_owned(), ..first.clone() };
        for second in [other, elsewhere, Given { status: 200, ..first.clone() }] {
            let audit = Audit::of(&lines, &[first.clone(), second]);
            assert_eq!(audit.broken, ["payment for a: two callers got two answers"]);
        }
    }
}
