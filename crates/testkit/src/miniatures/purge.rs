//! A miniature purge: everything of one tenant goes, nothing of any other.
//!
//! Records become tombstones first, so that a late copy of a claim finds one, and are swept later.
//! A live claim is left alone and reported: its owner may be in the middle of an effect. Every step
//! is a commit of its own on the purge's document, so a purge that is cut off is simply begun
//! again.

use std::time::Duration;

use bytes::Bytes;
use onetake_core::{
    Ask, Draft, Outcome, Phase, Policy, Record, Report, Slot, Standing, Tenant, Timestamp, Version,
    tenant_prefix,
};
use onetake_engine::{
    Answer, Commit, Counter, Doc, Effects, Engine, Found, Journal, Lane, Mint, Place, Position,
    RunError, StoreError, Swap, Tried, Tx, Write,
};

use super::engine;
use crate::conformance::hear::{all_of, found, lost};
use crate::make::{BRIEF, Pen, address_of, ask_under, tenant, version};
use crate::{Rig, Shared};

/// Documents, or names, of one step.
const STEP: usize = 50;

/// What a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    /// Records that became tombstones.
    pub records: usize,
    /// Documents, lanes and counters that went.
    pub others: usize,
    /// Live claims that were left alone. Purge again when they have ended.
    pub live: usize,
}

/// A door with something of every kind. The store cannot list lanes and counters, so the door keeps
/// their names as documents.
#[derive(Debug)]
pub struct Ledger<S> {
    engine: Engine<S>,
    mint: Mint,
}

impl<S: Journal> Ledger<S> {
    /// Books `amount` under `key`: record, document, entry, sum and names in one commit.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn book(&self, tenant: &str, key: &str, amount: i64) -> Result<Answer, RunError> {
        let ask = ask(tenant, key);
        let of = ask.address.tenant().clone();
        let (name, doc) = (name_of(&of), doc_of(&of, key));
        let transaction = self.engine.transact(ask, |view| {
            let effects = Effects::new(Outcome::Value("booked".into()))
                .put(doc.clone(), key.to_owned())
                .write(Write::Append(lane_of(&of), key.to_owned().into()))
                .write(Write::Add(sum_of(&of), amount));
            Ok(match view.doc(&name)? {
                None => effects.put(name.clone(), "lane and sum"),
                Some(_) => effects,
            })
        });
        transaction.await
    }

    /// Purges `tenant`; records keep their tombstones for `tombstone`.
    ///
    /// # Errors
    /// When the store fails; purging again goes on.
    pub async fn purge(&self, tenant: &Tenant, tombstone: Duration) -> Result<Purged, StoreError> {
        let mut purged = Purged::default();
        let mut after: Option<Slot> = None;
        loop {
            let page = self.store().scan_slots(Some(tenant), after.as_ref(), STEP).await?;
            for record in &page.value.items {
                self.bury(record, page.now, tombstone, &mut purged).await?;
            }
            after = page.value.items.last().map(|record| record.address.slot().clone());
            if !page.value.more {
                break;
            }
        }
        for space in ["ledger", "names"] {
            while let done @ 1.. = self.clear(tenant, space).await? {
                purged.others += done;
            }
        }
        Ok(purged)
    }

    fn store(&self) -> &S {
        self.engine.store()
    }

    /// Turns one record into a tombstone, unless it lives or has moved on since it was listed.
    async fn bury(
        &self,
        record: &Record,
        now: Timestamp,
        tombstone: Duration,
        purged: &mut Purged,
    ) -> Result<(), StoreError> {
        match record.standing(now) {
            Standing::Live { .. } => purged.live += 1,
            Standing::Free if matches!(record.phase, Phase::Released { .. }) => {}
            Standing::Free
            | Standing::Unknown { .. }
            | Standing::Final { .. }
            | Standing::Retryable(_) => {
                let released = Draft {
                    version: Version::of_write(self.mint.id()),
                    fence: record.fence,
                    address: record.address.clone(),
                    fingerprint: record.fingerprint.clone(),
                    attempt: record.attempt,
                    recovery: false,
                    since: Duration::ZERO,
                    phase: Phase::Released { until: tombstone },
                };
                match self.store().swap(Some(record.version), released).await?.value {
                    Swap::Won(_) => purged.records += 1,
                    Swap::Lost(_) | Swap::Unknown => purged.live += 1,
                }
            }
        }
        Ok(())
    }

    /// Removes one step of the documents of `tenant` in `space`, and what the names among them
    /// name.
    async fn clear(&self, tenant: &Tenant, space: &'static str) -> Result<usize, StoreError> {
        let prefix = tenant_prefix(tenant);
        let documents = self.store().scan(space, &prefix, None, STEP).await?.value.items;
        if documents.is_empty() {
            return Ok(0);
        }
        let progress = Doc { space: "purges", key: prefix.into() };
        let places = [Place::Doc(progress.clone()), Place::Counter(sum_of(tenant))];
        let found = self.store().fetch(&places).await?.value;
        let [Found::Doc(seen), Found::Counter(sum)] = &found[..] else {
            return Err(StoreError::Corrupt("asked for one thing, got another".into()));
        };
        let expected = seen.as_ref().map(|document| document.version);
        let mut tx = Tx::on_doc(self.mint.id(), progress, expected, space.into());
        for (doc, _) in &documents {
            tx = tx.write(Write::Delete(doc.clone()));
        }
        if space == "names" {
            tx = tx
                .write(Write::Trim(lane_of(tenant), Position(u64::MAX)))
                .write(Write::Add(sum_of(tenant), -sum));
        }
        match self.store().commit(tx).await?.value {
            Commit::Committed { .. } | Commit::Repeated => Ok(documents.len()),
            Commit::Conflict { .. } | Commit::Unknown => {
                Err(StoreError::Unavailable("another purge is under way".into()))
            }
        }
    }
}

fn ask(tenant: &str, key: &str) -> Ask {
    let policy = Policy::builder().lease(LEASE).build().unwrap();
    ask_under(&address_of(tenant, "ledger.book", key), "body", policy)
}

const LEASE: Duration = Duration::from_millis(100);

fn of(tenant: &Tenant, rest: &str) -> Bytes {
    let mut key = tenant_prefix(tenant);
    key.extend_from_slice(rest.as_bytes());
    key.into()
}

fn doc_of(tenant: &Tenant, key: &str) -> Doc {
    Doc { space: "ledger", key: of(tenant, key) }
}

fn name_of(tenant: &Tenant) -> Doc {
    Doc { space: "names", key: of(tenant, "") }
}

fn lane_of(tenant: &Tenant) -> Lane {
    Lane(of(tenant, "entries"))
}

fn sum_of(tenant: &Tenant) -> Counter {
    Counter(of(tenant, "sum"))
}

/// What a tenant has: finished records, documents, entries, and the sum.
async fn holdings<S: Journal>(store: &S, tenant: &Tenant) -> (usize, usize, usize, Found) {
    let page = store.scan_slots(Some(tenant), None, 1_000).await.unwrap().value;
    let kept =
        all_of(page).iter().filter(|record| matches!(record.phase, Phase::Done { .. })).count();
    let docs = store.scan("ledger", &tenant_prefix(tenant), None, 1_000).await.unwrap().value;
    let entries = store.read_lane(&lane_of(tenant), Position(0), 1_000).await.unwrap().value;
    let sum = found(store, Place::Counter(sum_of(tenant))).await;
    (kept, all_of(docs).len(), all_of(entries).len(), sum)
}

async fn ledger<R: Rig<Store: Journal>>(rig: &R) -> (Ledger<Shared<R::Store>>, Shared<R::Store>) {
    let store = Shared::new(rig.open().await);
    let ledger = Ledger { engine: engine(&store, 1), mint: Mint::seeded(2) };
    for tenant in ["acme", "acme-2"] {
        for n in 0..120 {
            let booked = ledger.book(tenant, &format!("k{n}"), 2).await.unwrap();
            assert!(matches!(booked, Answer::Executed { .. }), "{booked:?}");
        }
    }
    (ledger, store)
}

/// X10: nothing of the tenant is left, not even a record once its tombstones are swept; nothing of
/// the other, whose name begins the same, is touched.
pub async fn x10_a_purge_leaves_nothing_of_one_tenant_and_all_of_others<R: Rig<Store: Journal>>(
    rig: &R,
) {
    let (ledger, store) = ledger(rig).await;
    let (acme, other) = (tenant("acme"), tenant("acme-2"));
    let full = (120, 120, 120, Found::Counter(240));
    assert_eq!(holdings(&store, &acme).await, full);
    let purged = ledger.purge(&acme, BRIEF).await.unwrap();
    assert_eq!(purged, Purged { records: 120, others: 121, live: 0 });
    assert_eq!(holdings(&store, &acme).await, (0, 0, 0, Found::Counter(0)));
    assert_eq!(holdings(&store, &other).await, full, "untouched");
    assert_eq!(ledger.purge(&acme, BRIEF).await, Ok(Purged::default()), "and again: nothing");
    rig.pass(store.store(), BRIEF).await;
    // A store may have swept some of them by itself.
    let swept = ledger.engine.cleanup().await.unwrap();
    assert!(swept <= 120, "{swept}");
    let left = store.scan_slots(Some(&acme), None, 10).await.unwrap().value;
    assert!(all_of(left).is_empty(), "the tombstones are swept");
    let booked = ledger.book("acme", "k1", 2).await.unwrap();
    assert!(matches!(booked, Answer::Executed { .. }), "a purged key counts as new");
}

/// X10, X4: a live claim is left to its owner, whose completion is still recorded.
pub async fn x10_x4_a_purge_leaves_a_live_claim_to_its_owner<R: Rig<Store: Journal>>(rig: &R) {
    let (ledger, store) = ledger(rig).await;
    let policy = Policy::default();
    let live = ask_under(&address_of("acme", "ledger.book", "live"), "body", policy.clone());
    let Tried::Claimed(claim) = ledger.engine.try_claim(&live).await.unwrap() else { panic!() };
    let purged = ledger.purge(&tenant("acme"), BRIEF).await.unwrap();
    assert_eq!((purged.records, purged.live), (120, 1));
    let report = Report::Finished(Outcome::Value("done".into()));
    let settled = ledger.engine.settle_claim(&live.address, claim.fence, &policy, report).await;
    assert!(matches!(settled, Ok(Answer::Executed { .. })), "{settled:?}");
    let purged = ledger.purge(&tenant("acme"), BRIEF).await.unwrap();
    assert_eq!((purged.records, purged.live), (1, 0), "the next purge takes it");
    assert_eq!(holdings(&store, &tenant("acme")).await.0, 0);
}

/// X10, X2: who lapsed and was purged is fenced when it wakes, and leaves nothing behind.
pub async fn x10_x2_a_purged_executor_is_fenced<R: Rig<Store: Journal>>(rig: &R) {
    let (ledger, store) = ledger(rig).await;
    let lapsing = self::ask("acme", "lapsing");
    let Tried::Claimed(claim) = ledger.engine.try_claim(&lapsing).await.unwrap() else { panic!() };
    rig.pass(store.store(), LEASE).await;
    let purged = ledger.purge(&tenant("acme"), Duration::from_secs(60)).await.unwrap();
    assert_eq!((purged.records, purged.live), (121, 0), "lapsed is unknown, and it ends here");
    let report = Report::Finished(Outcome::Value("late".into()));
    let policy = &lapsing.policy;
    let late = ledger.engine.settle_claim(&lapsing.address, claim.fence, policy, report).await;
    assert_eq!(late, Err(RunError::Fenced));
    let pen = Pen::of(lapsing.address.clone());
    let tombstone = lost(&store, None, pen.claim(1, LEASE)).await.expect("a tombstone is there");
    assert!(matches!(tombstone.phase, Phase::Released { .. }), "a late copy of a claim finds it");
    assert_ne!(tombstone.version, version(1));
}
