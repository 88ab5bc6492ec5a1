//! The shop of the demo: one operation, its ledger, and a tally of everything that was sent.
//!
//! Here are all the calls into Onetake that the scenes make. Executions count themselves, answers
//! are counted as they are heard, and the audit compares the ledger with what the records admit to.
//! This file never looks at a record to decide what to do; only the audit reads them, at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use onetake::{
    Asked, Attempt, Claim, Embedded, ExecuteError, Executor, Failure, Key, OnInFlight, OnUnknown,
    Outcome, Policy, RunError, Scope, Source, Take, Tried,
};

use super::counts::{Count, Counts};
use super::ledger::{Ledger, Receipt};

/// The shortest lease there is, for the worker that stalls.
pub(super) const SHORT_LEASE: Duration = Duration::from_millis(100);
/// Long enough that no waiter gives up, even on a busy machine.
const WAIT: Duration = Duration::from_secs(30);

/// What a caller hears of one order.
type Heard = Result<Take<Receipt>, ExecuteError<Failure>>;

/// An order: the caller's key for it, and what is asked.
#[derive(Debug, Clone)]
pub(super) struct Order {
    key: Key,
    asked: Asked,
}

impl Order {
    pub(super) fn new(key: &str) -> Result<Self> {
        Self::with_body(key, r#"{"sku":"p1","count":2}"#)
    }

    pub(super) fn with_body(key: &str, body: &'static str) -> Result<Self> {
        Ok(Self { key: Key::new(key)?, asked: Asked::json(body)? })
    }

    fn name(&self) -> &str {
        self.key.as_str()
    }
}

/// A worker that took a payment and then fell silent, without saying what came of it.
pub(super) struct Stalled {
    claim: Claim,
    receipt: Receipt,
}

/// The operation of the shop on the durable store in `folder`.
fn orders(folder: &Path) -> Result<Executor<Embedded>> {
    let policy = Policy::builder().on_in_flight(OnInFlight::Wait(WAIT)).build()?;
    Ok(onetake::open(folder, "orders.create")?.with_policy(policy))
}

/// The shop. Clones share everything.
#[derive(Clone)]
pub(super) struct Shop {
    pub(super) orders: Executor<Embedded>,
    /// What another process left behind, once it was opened here.
    inherited: Arc<OnceLock<Executor<Embedded>>>,
    scope: Scope,
    ledger: Arc<Ledger>,
    tally: Arc<Mutex<Counts>>,
    /// Every receipt that a caller was given.
    given: Arc<Mutex<Vec<Receipt>>>,
}

impl Shop {
    /// A shop with an empty store and an empty ledger.
    pub(super) fn open() -> Result<Self> {
        let ledger = Ledger::open().context("the demo needs a temporary file")?;
        let store = ledger.beside("store");
        Self::with(ledger, &store)
    }

    /// A shop in a process of its own, with the ledger of another.
    pub(super) fn join(ledger: &Path, store: &Path) -> Result<Self> {
        Self::with(Ledger::join(ledger)?, store)
    }

    fn with(ledger: Ledger, store: &Path) -> Result<Self> {
        Ok(Self {
            orders: orders(store)?,
            inherited: Arc::default(),
            scope: Scope::tenant_named("acme")?,
            ledger: Arc::new(ledger),
            tally: Arc::default(),
            given: Arc::default(),
        })
    }

    /// The same shop with the store that another process left behind.
    pub(super) fn inherit(&self, store: &Path) -> Result<Self> {
        let orders = orders(store)?;
        ensure!(self.inherited.set(orders.clone()).is_ok(), "only one store is inherited");
        Ok(Self { orders, ..self.clone() })
    }

    /// Counts what another process says that it did.
    pub(super) fn believe(&self, counts: &[(Count, u64)]) {
        let mut tally = self.tally.lock().expect("invariant: no panic while counting");
        for (count, number) in counts {
            tally.add(*count, *number);
        }
    }

    /// The same shop, where `choice` says what may happen when nobody knows.
    pub(super) fn on_unknown(&self, choice: OnUnknown) -> Result<Self> {
        let policy = self.orders.policy().to_builder().on_unknown(choice).build()?;
        Ok(Self { orders: self.orders.clone().with_policy(policy), ..self.clone() })
    }

    /// The same shop where claims have the shortest lease, and `choice` says what may happen after.
    pub(super) fn with_short_lease(&self, choice: OnUnknown) -> Result<Self> {
        let policy = self.orders.policy().to_builder().lease(SHORT_LEASE).on_unknown(choice);
        let orders = self.orders.clone().with_policy(policy.build()?);
        Ok(Self { orders, ..self.clone() })
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What was counted so far, with the lines that the ledger has now.
    pub(super) fn counts(&self) -> Result<Counts> {
        let mut counts = *self.tally.lock().expect("invariant: no panic while counting");
        counts.add(Count::LedgerLines, u64::try_from(self.ledger.read()?.len())?);
        Ok(counts)
    }

    fn count(&self, count: Count) {
        self.tally.lock().expect("invariant: no panic while counting").add(count, 1);
    }

    /// Counts an execution. Every one begins here, whatever becomes of it.
    pub(super) fn executing(&self, recovery: bool) {
        self.count(Count::Executed);
        if recovery {
            self.count(Count::Recoveries);
        }
    }

    /// Takes the payment. A recovery looks first whether it is there: being told is for that.
    pub(super) fn charge(&self, order: &Order, recovery: bool) -> io::Result<Receipt> {
        if recovery && let Some(receipt) = self.ledger.find(order.name())? {
            return Ok(receipt);
        }
        self.ledger.charge(order.name())
    }

    /// Sends `order`; gives what the caller hears, in words.
    pub(super) async fn send(&self, order: &Order) -> String {
        let (shop, charged) = (self.clone(), order.clone());
        self.send_to(order, |attempt| async move {
            shop.executing(attempt.recovery);
            Ok(shop.charge(&charged, attempt.recovery)?)
        })
        .await
    }

    /// Sends `order` to be executed by `work`; gives what the caller hears, in words.
    pub(super) async fn send_to<F, Fut>(&self, order: &Order, work: F) -> String
    where
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Receipt, Failure>> + Send + 'static,
    {
        self.count(Count::Sent);
        let heard = self.orders.execute(&self.scope, &order.key, order.asked.clone(), work).await;
        self.hear(&heard)
    }

    /// Counts what a caller heard and puts it into words. Executions have counted themselves.
    fn hear(&self, heard: &Heard) -> String {
        let take = match heard {
            Ok(take) => take,
            Err(ExecuteError::Failed { failure, repeat: false }) => {
                self.count(Count::Failed);
                return format!("the function failed: {failure}");
            }
            Err(error) => {
                // A failure of ours is neither, and shows in the end as an attempt unaccounted for.
                if matches!(error, ExecuteError::Unknown { .. }) {
                    self.count(Count::Unknown);
                }
                if matches!(error, ExecuteError::Mismatch | ExecuteError::ClaimedByAnother { .. }) {
                    self.count(Count::Refused);
                }
                let code = error.code().map_or("failed", onetake::Code::as_str);
                return format!("{code}: {error}");
            }
        };
        self.given.lock().expect("invariant: no panic while giving").push(take.value.clone());
        let how = match take.source {
            Source::Executed | Source::PassedThrough => "executed",
            Source::Replayed => {
                self.count(Count::Replayed);
                "replayed"
            }
            Source::Joined => {
                self.count(Count::Joined);
                "joined"
            }
        };
        format!("receipt {}, {how}", take.value.number)
    }

    /// A worker claims `order` by itself, takes the payment and falls silent; nobody renews for it.
    pub(super) async fn stall(&self, order: &Order) -> Result<Stalled> {
        self.count(Count::Sent);
        let claims = self.orders.claims();
        match claims.try_claim(&self.scope, &order.key, order.asked.clone()).await? {
            Tried::Claimed(claim) => {
                self.executing(claim.recovery);
                let receipt = self.charge(order, claim.recovery)?;
                Ok(Stalled { claim, receipt })
            }
            Tried::Answered(answer) => bail!("a new order could not be claimed: {answer:?}"),
        }
    }

    /// The worker wakes and says at last what came of it; gives what it is told, in words.
    pub(super) async fn wake(&self, stalled: Stalled) -> Result<String> {
        let outcome = Outcome::Value(serde_json::to_vec(&stalled.receipt)?.into());
        match self.orders.claims().store_result(&stalled.claim, outcome).await {
            Ok(_) => Ok("recorded".to_owned()),
            Err(RunError::Fenced) => {
                self.count(Count::Fenced);
                Ok(format!("{}: {}", RunError::Fenced.code(), RunError::Fenced))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Compares the ledger with what the records admit to and with what the callers were given.
    pub(super) async fn audit(&self) -> Result<Audit> {
        let lines = self.ledger.read()?;
        let mut admitted = BTreeMap::new();
        for order in lines.iter().map(|line| &line.order).collect::<BTreeSet<_>>() {
            let mut attempts = 0;
            for store in [Some(&self.orders), self.inherited.get()].into_iter().flatten() {
                let record = store.claims().get(&self.scope, &Key::new(order)?).await?;
                attempts += record.map_or(0, |record| record.value.attempt);
            }
            admitted.insert(order.clone(), attempts);
        }
        let given = self.given.lock().expect("invariant: no panic while giving");
        Ok(Audit::of(&lines, &admitted, &given))
    }
}

/// What the books say in the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Audit {
    /// Effects beyond the executions that their records admit to.
    pub(super) unsaid: u64,
    /// What else does not fit, in words.
    pub(super) broken: Vec<String>,
}

impl Audit {
    /// `admitted` is how many executions the record of each order admits to.
    fn of(lines: &[Receipt], admitted: &BTreeMap<String, u32>, given: &[Receipt]) -> Self {
        let mut taken: BTreeMap<&str, u64> = BTreeMap::new();
        for line in lines {
            *taken.entry(&line.order).or_default() += 1;
        }
        let admits = |order: &str| admitted.get(order).copied().map_or(0, u64::from);
        let unsaid = taken.iter().map(|(order, times)| times.saturating_sub(admits(order))).sum();
        let mut first: BTreeMap<&str, &Receipt> = BTreeMap::new();
        let mut broken = BTreeSet::new();
        for receipt in given {
            if !lines.contains(receipt) {
                broken.insert(format!("{}: a receipt that the ledger lacks", receipt.order));
            }
            if *first.entry(&receipt.order).or_insert(receipt) != receipt {
                broken.insert(format!("{}: two callers got two receipts", receipt.order));
            }
        }
        Self { unsaid, broken: broken.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(number: usize, order: &str) -> Receipt {
        Receipt { number, order: order.to_owned() }
    }

    fn audit(lines: &[Receipt], admitted: &[(&str, u32)], given: &[Receipt]) -> Audit {
        let admitted = admitted.iter().map(|&(order, times)| (order.to_owned(), times)).collect();
        Audit::of(lines, &admitted, given)
    }

    #[test]
    fn books_that_agree_are_sound() {
        let lines = [receipt(1, "a"), receipt(2, "b")];
        let given = [receipt(1, "a"), receipt(1, "a"), receipt(2, "b")];
        let sound = Audit { unsaid: 0, broken: Vec::new() };
        assert_eq!(audit(&lines, &[("a", 1), ("b", 1)], &given), sound);
    }

    #[test]
    fn an_effect_that_no_record_admits_to_is_unsaid() {
        let lines = [receipt(1, "a"), receipt(2, "a"), receipt(3, "b")];
        assert_eq!(audit(&lines, &[("a", 1), ("b", 1)], &[]).unsaid, 1);
        assert_eq!(audit(&lines, &[("a", 1)], &[]).unsaid, 2, "an effect without any record");
        assert_eq!(audit(&lines, &[("a", 2), ("b", 1)], &[]).unsaid, 0, "a declared recovery");
    }

    #[test]
    fn two_receipts_for_one_order_do_not_pass() {
        let lines = [receipt(1, "a"), receipt(2, "a")];
        let found = audit(&lines, &[("a", 2)], &lines);
        assert_eq!(found.broken, ["a: two callers got two receipts"]);
    }

    #[test]
    fn a_receipt_without_a_payment_does_not_pass() {
        let found = audit(&[], &[], &[receipt(1, "a")]);
        assert_eq!(found.broken, ["a: a receipt that the ledger lacks"]);
    }
}
