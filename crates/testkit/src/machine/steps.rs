//! What may happen to a store, in words that mean something for any state of it.
//!
//! A step names places by number and versions by how right they are, so every sequence of steps can
//! be carried out and shrunk. Nothing here knows what a store holds.

use std::time::Duration;

use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

use crate::make::{BRIEF, LONG};

/// Slots, in two tenants.
pub const SLOTS: usize = 5;
/// Documents.
pub const DOCS: usize = 4;
/// Lanes, counters and cursors, of each.
pub const OTHERS: usize = 2;

/// How right the version is that a write expects.
#[derive(Debug, Clone, Copy)]
pub enum Expect {
    /// What is there.
    Right,
    /// Nothing, whatever is there.
    Nothing,
    /// What was there before.
    Stale,
    /// What never was.
    Wrong,
}

/// How long something lasts.
#[derive(Debug, Clone, Copy)]
pub enum Span {
    /// Over as soon as it is written.
    None,
    /// Until the next time that a step lets time pass.
    Brief,
    /// For longer than any sequence.
    Long,
}

impl Span {
    /// As a duration.
    #[must_use]
    pub const fn duration(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Brief => BRIEF,
            Self::Long => LONG,
        }
    }
}

/// What a record becomes.
#[derive(Debug, Clone, Copy)]
pub enum Become {
    /// A claim.
    Claimed(Span),
    /// Finished.
    Done(Span),
    /// Free.
    Released(Span),
    /// Unknown.
    Unknown,
}

/// A check beside the anchor.
#[derive(Debug, Clone, Copy)]
pub enum Demand {
    /// Of a slot.
    Slot(usize, Expect),
    /// Of a document.
    Doc(usize, Expect),
    /// Of a counter.
    AtLeast(usize, i64),
}

/// A write beside the anchor's.
#[derive(Debug, Clone, Copy)]
pub enum Effect {
    /// A record, with a check of what is there.
    Slot(usize, Become),
    /// A document.
    Put(usize),
    /// The end of one.
    Delete(usize),
    /// An entry.
    Append(usize),
    /// The end of entries.
    Trim(usize, u64),
    /// A sum.
    Add(usize, i64),
    /// A cursor.
    Advance(usize, u64),
}

/// Where a transaction is anchored.
#[derive(Debug, Clone, Copy)]
pub enum Anchor {
    /// In a slot.
    Slot(usize, Become),
    /// In a document.
    Doc(usize),
}

/// One thing that happens.
#[derive(Debug, Clone)]
pub enum Step {
    /// A swap.
    Swap(usize, Expect, Become),
    /// A renewal.
    Renew(usize, Expect, Span),
    /// A transaction.
    Commit(Anchor, Expect, Vec<Demand>, Vec<Effect>),
    /// A copy of an earlier swap or transaction arrives, counted back from the last.
    Again(usize),
    /// One step of sweeping.
    Sweep(usize),
    /// Time passes. In all other steps it need not.
    Pass,
    /// Everything is read at one moment.
    Fetch,
    /// Pages of documents.
    Scan(usize, usize),
    /// Pages of records: of the first tenant, or of all.
    ScanSlots(bool, usize),
    /// A page of a lane.
    ReadLane(usize, u64, usize),
}

fn expect() -> impl Strategy<Value = Expect> {
    prop_oneof![
        6 => Just(Expect::Right),
        1 => Just(Expect::Nothing),
        1 => Just(Expect::Stale),
        1 => Just(Expect::Wrong),
    ]
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![Just(Span::None), Just(Span::Brief), Just(Span::Long)]
}

fn becomes() -> impl Strategy<Value = Become> {
    prop_oneof![
        3 => span().prop_map(Become::Claimed),
        3 => span().prop_map(Become::Done),
        2 => span().prop_map(Become::Released),
        1 => Just(Become::Unknown),
    ]
}

fn demand() -> impl Strategy<Value = Demand> {
    prop_oneof![
        (0..SLOTS, expect()).prop_map(|(slot, expect)| Demand::Slot(slot, expect)),
        (0..DOCS, expect()).prop_map(|(doc, expect)| Demand::Doc(doc, expect)),
        (0..OTHERS, -3..4_i64).prop_map(|(counter, least)| Demand::AtLeast(counter, least)),
    ]
}

fn effect() -> impl Strategy<Value = Effect> {
    prop_oneof![
        (0..SLOTS, becomes()).prop_map(|(slot, becomes)| Effect::Slot(slot, becomes)),
        (0..DOCS).prop_map(Effect::Put),
        (0..DOCS).prop_map(Effect::Delete),
        (0..OTHERS).prop_map(Effect::Append),
        (0..OTHERS, 0..8_u64).prop_map(|(lane, through)| Effect::Trim(lane, through)),
        (0..OTHERS, -3..5_i64).prop_map(|(counter, delta)| Effect::Add(counter, delta)),
        (0..OTHERS, 0..8_u64).prop_map(|(cursor, to)| Effect::Advance(cursor, to)),
    ]
}

fn anchor() -> impl Strategy<Value = Anchor> {
    prop_oneof![
        (0..SLOTS, becomes()).prop_map(|(slot, becomes)| Anchor::Slot(slot, becomes)),
        (0..DOCS).prop_map(Anchor::Doc),
    ]
}

fn commit() -> impl Strategy<Value = Step> {
    let checks = prop::collection::vec(demand(), 0..3);
    let writes = prop::collection::vec(effect(), 0..6);
    (anchor(), expect(), checks, writes)
        .prop_map(|(anchor, expect, checks, writes)| Step::Commit(anchor, expect, checks, writes))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..SLOTS, expect(), becomes()).prop_map(|(slot, e, b)| Step::Swap(slot, e, b)),
        3 => (0..SLOTS, expect(), span()).prop_map(|(slot, e, span)| Step::Renew(slot, e, span)),
        8 => commit(),
        3 => (0..6_usize).prop_map(Step::Again),
        2 => (1..5_usize).prop_map(Step::Sweep),
        1 => Just(Step::Pass),
        1 => Just(Step::Fetch),
        1 => (0..3_usize, 1..4_usize).prop_map(|(prefix, limit)| Step::Scan(prefix, limit)),
        1 => (any::<bool>(), 1..4_usize).prop_map(|(one, limit)| Step::ScanSlots(one, limit)),
        1 => (0..OTHERS, 0..6_u64, 1..4_usize)
            .prop_map(|(lane, after, limit)| Step::ReadLane(lane, after, limit)),
    ]
}

/// Any sequence of steps. What is expected of a store is computed beside it, for only the store
/// knows its time.
#[derive(Debug, Clone, Copy)]
pub struct Sequence;

impl ReferenceStateMachine for Sequence {
    type State = ();
    type Transition = Step;

    fn init_state() -> BoxedStrategy<()> {
        Just(()).boxed()
    }

    fn transitions((): &()) -> BoxedStrategy<Step> {
        step().boxed()
    }

    fn apply((): (), _: &Step) {}
}
