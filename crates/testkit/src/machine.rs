//! Random sequences against a reference made of plain maps: every reply, and at the end everything.
//!
//! A store calls [`run`] with its rig in one test. It finds what nobody thought to write a case
//! for; it never replaces the cases, which say what is meant.

pub mod model;
pub mod steps;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use onetake_core::{Draft, Record, Slot, Timestamp, Version};
use onetake_engine::{
    Check, Commit, Counter, Cursor, Doc, Journal, Lane, Place, Position, Slots, Stamped,
    StoreError, Tx, Write,
};
use proptest::test_runner::{Config, RngSeed, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use tokio::runtime::{Builder, Runtime};

use self::model::{Model, When, may_go};
use self::steps::{Anchor, Become, DOCS, Demand, Effect, Expect, OTHERS, SLOTS, Sequence, Step};
use crate::Rig;
use crate::make::{self, Pen, tenant, version};

/// No sequence makes a store in which a round of sweeping takes more steps.
const SWEEPS_MAX: usize = 10_000;

/// The longest sequence.
const STEPS_MAX: usize = 60;

/// Runs so many sequences on stores of the rig `R`: the same in every run, unless the environment
/// asks for others (`PROPTEST_RNG_SEED`, `PROPTEST_CASES`). What fails is made as short as it can
/// be.
///
/// # Errors
/// The shortest sequence that fails, and why.
pub fn run<R: Rig<Store: Journal> + Default>(cases: u32) -> Result<(), String> {
    let asked = Config::default();
    let rng_seed = match asked.rng_seed {
        RngSeed::Random => RngSeed::Fixed(0x0e7a_4e00),
        RngSeed::Fixed(seed) => RngSeed::Fixed(seed),
    };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { asked.cases } else { cases };
    let config = Config { cases, rng_seed, failure_persistence: None, ..asked };
    let sequences = Sequence::sequential_strategy(1..STEPS_MAX);
    let ended = TestRunner::new(config.clone()).run(&sequences, |((), steps, seen)| {
        Machine::<R>::test_sequential(config.clone(), (), steps, seen);
        Ok(())
    });
    ended.map_err(|failure| failure.to_string())
}

/// The test: sequences of steps on stores of the rig `R`.
#[derive(Debug)]
pub struct Machine<R>(PhantomData<R>);

impl<R: Rig<Store: Journal> + Default> StateMachineTest for Machine<R> {
    type SystemUnderTest = Bench<R>;
    type Reference = Sequence;

    fn init_test((): &()) -> Bench<R> {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let work = runtime.block_on(Work::begin());
        Bench { runtime, work }
    }

    fn apply(mut bench: Bench<R>, (): &(), step: Step) -> Bench<R> {
        bench.runtime.block_on(bench.work.step(step));
        bench
    }

    fn teardown(mut bench: Bench<R>, (): ()) {
        bench.runtime.block_on(bench.work.end());
    }
}

/// A store, the reference, and a runtime to ask it in.
#[derive(Debug)]
pub struct Bench<R: Rig<Store: Journal>> {
    runtime: Runtime,
    work: Work<R>,
}

/// A write that was sent and may arrive again.
#[derive(Debug, Clone)]
enum Sent {
    Swap(Option<Version>, Box<Draft>),
    Commit(Tx),
}

struct Work<R: Rig<Store: Journal>> {
    rig: R,
    store: R::Store,
    model: Model,
    /// The time of the last reply.
    now: Timestamp,
    ids: u128,
    sent: Vec<Sent>,
    /// What the slots and documents held before.
    stale: BTreeMap<Place, Option<Version>>,
}

impl<R: Rig<Store: Journal>> std::fmt::Debug for Work<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("model", &self.model).finish_non_exhaustive()
    }
}

fn pen(slot: usize) -> Pen {
    let name = if slot < SLOTS - 2 { "acme" } else { "acme-2" };
    Pen::of(make::address(name, &format!("k{slot}")))
}

fn doc(number: usize) -> Doc {
    const KEYS: [&[u8]; DOCS] = [b"a", b"a\xff", b"a\xff\xff", b"b"];
    make::doc(KEYS[number])
}

fn lane(number: usize) -> Lane {
    make::lane(format!("lane{number}"))
}

fn counter(number: usize) -> Counter {
    make::counter(format!("counter{number}"))
}

fn cursor(number: usize) -> Cursor {
    make::cursor(format!("cursor{number}"))
}

impl<R: Rig<Store: Journal> + Default> Work<R> {
    async fn begin() -> Self {
        let rig = R::default();
        let store = rig.open().await;
        Self {
            rig,
            store,
            model: Model::default(),
            now: Timestamp::ZERO,
            ids: 0,
            sent: Vec::new(),
            stale: BTreeMap::new(),
        }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Swap(slot, expect, becomes) => {
                let expected = self.expected(&Place::Slot(pen(slot).slot().clone()), expect);
                let draft = self.draft(slot, becomes);
                self.send(Sent::Swap(expected, Box::new(draft))).await;
            }
            Step::Renew(slot, expect, span) => self.renew(slot, expect, span.duration()).await,
            Step::Commit(anchor, expect, checks, writes) => {
                let tx = self.tx(anchor, expect, &checks, &writes);
                self.send(Sent::Commit(tx)).await;
            }
            Step::Again(back) => {
                let copy = self.sent.iter().rev().nth(back).cloned();
                if let Some(copy) = copy {
                    self.arrive(copy).await;
                }
            }
            Step::Sweep(limit) => {
                self.sweep(limit).await;
            }
            Step::Pass => {
                self.rig.pass(&self.store, make::BRIEF).await;
                self.fetch().await;
            }
            Step::Fetch => self.fetch().await,
            Step::Scan(prefix, limit) => self.scan([b"", &b"a"[..], b"a\xff"][prefix], limit).await,
            Step::ScanSlots(one, limit) => self.scan_slots(one, limit).await,
            Step::ReadLane(lane, after, limit) => self.read_lane(lane, after, limit).await,
        }
    }

    /// Takes the time of a reply: it never goes back. Gives when its work was done.
    fn heard<T>(&mut self, reply: Result<Stamped<T>, StoreError>) -> (T, When) {
        let Stamped { now, value } = reply.expect("a healthy store answers");
        assert!(now >= self.now, "{now} after {}", self.now);
        let when = self.now..=now;
        self.now = now;
        (value, when)
    }

    fn id(&mut self) -> u128 {
        self.ids += 1;
        self.ids
    }

    fn there(&self, place: &Place) -> Option<Version> {
        match place {
            Place::Slot(slot) => self.model.version(slot),
            Place::Doc(doc) => self.model.doc_version(doc),
            Place::Counter(_) | Place::Cursor(_) => None,
        }
    }

    fn expected(&self, place: &Place, expect: Expect) -> Option<Version> {
        match expect {
            Expect::Right => self.there(place),
            Expect::Nothing => None,
            Expect::Stale => self.stale.get(place).copied().flatten(),
            Expect::Wrong => Some(version(u128::MAX)),
        }
    }

    fn draft(&mut self, slot: usize, becomes: Become) -> Draft {
        let (pen, id) = (pen(slot), self.id());
        let fence = self.model.slots.get(pen.slot()).map_or(id, |record| record.fence.0);
        match becomes {
            Become::Claimed(span) => pen.claim(id, span.duration()),
            Become::Done(span) => pen.done(id, fence, span.duration()),
            Become::Released(span) => pen.released(id, fence, span.duration()),
            Become::Unknown => pen.unknown(id, fence),
        }
    }

    fn tx(&mut self, anchor: Anchor, expect: Expect, checks: &[Demand], writes: &[Effect]) -> Tx {
        let (mut tx, mut taken) = match anchor {
            Anchor::Slot(slot, becomes) => {
                let expected = self.expected(&Place::Slot(pen(slot).slot().clone()), expect);
                (Tx::on_slot(expected, self.draft(slot, becomes)), vec![slot])
            }
            Anchor::Doc(number) => {
                let expected = self.expected(&Place::Doc(doc(number)), expect);
                let id = self.id();
                (Tx::on_doc(id, doc(number), expected, id.to_string().into()), Vec::new())
            }
        };
        for demand in checks {
            tx = tx.check(match *demand {
                Demand::Slot(slot, expect) => {
                    let slot = pen(slot).slot().clone();
                    Check::Slot(slot.clone(), self.expected(&Place::Slot(slot), expect))
                }
                Demand::Doc(number, expect) => {
                    Check::Doc(doc(number), self.expected(&Place::Doc(doc(number)), expect))
                }
                Demand::AtLeast(number, least) => Check::AtLeast(counter(number), least),
            });
        }
        let anchored = match anchor {
            Anchor::Doc(number) => Some(number),
            Anchor::Slot(..) => None,
        };
        for effect in writes {
            let value = || Bytes::from(format!("{effect:?}"));
            tx = match *effect {
                // One record for each slot, or nobody could say which of two drafts was dated when.
                Effect::Slot(slot, _) if taken.contains(&slot) => tx,
                Effect::Slot(slot, becomes) => {
                    taken.push(slot);
                    let there = self.there(&Place::Slot(pen(slot).slot().clone()));
                    let check = Check::Slot(pen(slot).slot().clone(), there);
                    tx.check(check).write(Write::Slot(self.draft(slot, becomes)))
                }
                // The anchor is written once, by the anchor.
                Effect::Put(number) | Effect::Delete(number) if anchored == Some(number) => tx,
                Effect::Put(number) => tx.write(Write::Put(doc(number), value())),
                Effect::Delete(number) => tx.write(Write::Delete(doc(number))),
                Effect::Append(number) => tx.write(Write::Append(lane(number), value())),
                Effect::Trim(n, through) => tx.write(Write::Trim(lane(n), Position(through))),
                Effect::Add(number, delta) => tx.write(Write::Add(counter(number), delta)),
                Effect::Advance(n, to) => tx.write(Write::Advance(cursor(n), Position(to))),
            };
        }
        tx
    }

    async fn send(&mut self, sent: Sent) {
        self.sent.push(sent.clone());
        self.arrive(sent).await;
    }

    async fn arrive(&mut self, sent: Sent) {
        let before = self.model.clone();
        match sent {
            Sent::Swap(expected, draft) => {
                let reply = self.store.swap(expected, (*draft).clone()).await;
                let (swap, when) = self.heard(reply);
                self.model.swap(expected, &draft, &swap, &when);
            }
            Sent::Commit(tx) => {
                let reply = self.store.commit(tx.clone()).await;
                let (commit, when) = self.heard(reply);
                let records = match commit {
                    Commit::Committed { .. } => self.written(&tx).await,
                    Commit::Repeated | Commit::Conflict { .. } | Commit::Unknown => BTreeMap::new(),
                };
                self.model.commit(&tx, &commit, &records, &when);
            }
        }
        self.remember_what_changed(&before);
    }

    /// What the slots that `tx` writes hold now.
    async fn written(&mut self, tx: &Tx) -> BTreeMap<Slot, Arc<Record>> {
        let mut records = BTreeMap::new();
        for write in tx.writes() {
            if let Write::Slot(draft) = write {
                let slot = draft.address.slot();
                let reply = self.store.read(slot).await;
                let (found, _) = self.heard(reply);
                records.insert(slot.clone(), found.expect("it was just committed"));
            }
        }
        records
    }

    fn remember_what_changed(&mut self, before: &Model) {
        let slots = (0..SLOTS).map(|slot| pen(slot).slot().clone());
        for slot in slots {
            if before.version(&slot) != self.model.version(&slot) {
                self.stale.insert(Place::Slot(slot.clone()), before.version(&slot));
            }
        }
        for doc in (0..DOCS).map(doc) {
            if before.doc_version(&doc) != self.model.doc_version(&doc) {
                self.stale.insert(Place::Doc(doc.clone()), before.doc_version(&doc));
            }
        }
    }

    async fn renew(&mut self, slot: usize, expect: Expect, lease: std::time::Duration) {
        let slot = pen(slot).slot().clone();
        let place = Place::Slot(slot.clone());
        let seen = self.expected(&place, expect).unwrap_or(version(u128::MAX));
        let before = self.model.version(&slot);
        let reply = self.store.renew(&slot, seen, lease).await;
        let (swap, when) = self.heard(reply);
        self.model.renew(&slot, seen, lease, &swap, &when);
        if self.model.version(&slot) != before {
            self.stale.insert(place, before);
        }
    }

    /// One step of sweeping: whatever went may go, and as many went as it says. Gives whether the
    /// round is over.
    async fn sweep(&mut self, limit: usize) -> bool {
        let reply = self.store.sweep(limit).await;
        let (swept, _) = self.heard(reply);
        assert!(swept.removed <= limit, "{} of {limit}", swept.removed);
        let now = self.now;
        let mut gone = Vec::new();
        for (slot, record) in self.model.slots.clone() {
            let reply = self.store.read(&slot).await;
            if let Some(there) = self.heard(reply).0 {
                assert_eq!(there, record);
            } else {
                assert!(may_go(&record, now), "{record:?} may not go");
                gone.push(slot);
            }
        }
        assert_eq!(gone.len(), swept.removed, "as many went as it says");
        self.model.slots.retain(|slot, _| !gone.contains(slot));
        swept.done
    }

    async fn fetch(&mut self) {
        let mut places: Vec<_> = (0..SLOTS).map(|n| Place::Slot(pen(n).slot().clone())).collect();
        places.extend((0..DOCS).map(|n| Place::Doc(doc(n))));
        places.extend((0..OTHERS).map(|n| Place::Counter(counter(n))));
        places.extend((0..OTHERS).map(|n| Place::Cursor(cursor(n))));
        let reply = self.store.fetch(&places).await;
        let (found, _) = self.heard(reply);
        let expected: Vec<_> = places.iter().map(|place| self.model.found(place)).collect();
        assert_eq!(found, expected);
    }

    async fn scan(&mut self, prefix: &[u8], limit: usize) {
        let of_prefix = self.model.docs.iter().filter(|(doc, _)| doc.key.starts_with(prefix));
        let expected: Vec<_> = of_prefix.map(|(doc, found)| (doc.clone(), found.clone())).collect();
        let (mut found, mut after): (Vec<_>, Option<Bytes>) = (Vec::new(), None);
        for left in expected.chunks(limit).map(<[_]>::len) {
            let reply = self.store.scan("testkit", prefix, after.as_deref(), limit).await;
            let (page, _) = self.heard(reply);
            found.extend(page.items);
            after = found.last().map(|(doc, _)| doc.key.clone());
            assert_eq!(page.more, found.len() < expected.len(), "a page of {left}");
        }
        let reply = self.store.scan("testkit", prefix, after.as_deref(), limit).await;
        found.extend(self.heard(reply).0.items);
        assert_eq!(found, expected);
    }

    async fn scan_slots(&mut self, one: bool, limit: usize) {
        let tenant = one.then(|| tenant("acme"));
        let of_tenant = self
            .model
            .slots
            .iter()
            .filter(|(slot, _)| tenant.as_ref().is_none_or(|tenant| slot.tenant() == tenant));
        let expected: BTreeMap<_, _> =
            of_tenant.map(|(slot, record)| (slot.clone(), record.clone())).collect();
        let (mut found, mut after): (BTreeMap<_, _>, Option<Slot>) = (BTreeMap::new(), None);
        for _ in 0..=SLOTS {
            let reply = self.store.scan_slots(tenant.as_ref(), after.as_ref(), limit).await;
            let (page, _) = self.heard(reply);
            after = page.items.last().map(|record| record.address.slot().clone());
            for record in page.items {
                let again = found.insert(record.address.slot().clone(), record);
                assert_eq!(again, None, "each record once");
            }
            assert_eq!(page.more, found.len() < expected.len());
            if !page.more {
                break;
            }
        }
        assert_eq!(found, expected);
    }

    async fn read_lane(&mut self, number: usize, after: u64, limit: usize) {
        let reply = self.store.read_lane(&lane(number), Position(after), limit).await;
        let (page, _) = self.heard(reply);
        let log = self.model.lanes.get(&lane(number)).cloned().unwrap_or_default();
        let behind = log.entries.range(after + 1..);
        assert_eq!(page.more, behind.clone().count() > limit);
        assert_eq!(page.items.len(), behind.clone().count().min(limit));
        for (entry, (position, (value, when))) in page.items.iter().zip(behind) {
            assert_eq!((entry.position.0, &entry.value), (*position, value));
            assert!(when.contains(&entry.at), "{entry:?} within {when:?}");
        }
    }

    /// Compares everything, then sweeps to the end and compares again.
    async fn end(&mut self) {
        self.compare().await;
        let now = self.now;
        let mut rounds = 0;
        for _ in 0..SWEEPS_MAX {
            rounds += usize::from(self.sweep(3).await);
            if rounds == 2 {
                break;
            }
        }
        assert_eq!(rounds, 2, "sweeping comes to an end");
        let left = self.model.slots.values().filter(|record| may_go(record, now)).count();
        assert_eq!(left, 0, "what could go has gone");
        self.compare().await;
    }

    async fn compare(&mut self) {
        self.fetch().await;
        self.scan(b"", 100).await;
        self.scan_slots(false, 100).await;
        for number in 0..OTHERS {
            self.read_lane(number, 0, 100).await;
        }
    }
}
