//! One state of the model: the slot, three workers, an operator, the network and the clock.
//!
//! The records are real ones. What else is here is either what somebody knows, or what the model
//! remembers to judge by ([`Trace`]); no rule is written in this file.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use onetake_core::{Fence, Grounds, Outcome, Phase, Record, Timestamp};

/// One step of the clock. A lease is one step long.
pub(crate) const TICK_MS: u64 = 30_000;
/// The store's time, always: the model moves the world past the clock instead of the clock, so
/// states that differ only in when they happen are one state and time needs no bound.
pub(crate) const NOW: Timestamp = Timestamp::ZERO;

/// A record, or a draft, in a state.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Kept<T>(pub(crate) Arc<Record<T>>);

/// What a slot holds.
pub(crate) type Stored = Kept<Timestamp>;
/// What somebody writes.
pub(crate) type Written = Kept<Duration>;

impl<T> Kept<T> {
    pub(crate) fn new(record: Record<T>) -> Self {
        Self(Arc::new(record))
    }
}

impl<T: Clone> Kept<T> {
    /// Visits the numbers of this record: its fence, its write, and the author of its outcome.
    fn each_number(&mut self, visit: &mut dyn FnMut(&mut u128)) {
        let Record { fence, version, phase, .. } = &*self.0;
        let (mut new_fence, mut write, mut author) = (fence.0, version.write, author_of(phase));
        visit(&mut new_fence);
        visit(&mut write);
        if let Some(author) = &mut author {
            visit(author);
        }
        if (new_fence, write, author) == (fence.0, version.write, author_of(phase)) {
            return;
        }
        let record = Arc::make_mut(&mut self.0);
        (record.fence, record.version.write) = (Fence(new_fence), write);
        if let (Phase::Done { outcome, .. }, Some(author)) = (&mut record.phase, author) {
            *outcome = outcome_of(author);
        }
    }
}

impl Stored {
    /// Moves its times one step closer; what has passed stays at zero, which is now.
    fn age(&mut self) {
        if end_of(&self.0.phase).is_none_or(|end| end == Timestamp::ZERO) {
            return;
        }
        match &mut Arc::make_mut(&mut self.0).phase {
            Phase::Claimed { lease_until: end }
            | Phase::Done { expires_at: end, .. }
            | Phase::Released { until: end } => *end = closer(*end),
            Phase::Unknown { .. } => {}
        }
    }
}

const fn end_of(phase: &Phase) -> Option<Timestamp> {
    match phase {
        Phase::Claimed { lease_until: end }
        | Phase::Done { expires_at: end, .. }
        | Phase::Released { until: end } => Some(*end),
        Phase::Unknown { .. } => None,
    }
}

/// A point in time, seen one step later.
const fn closer(time: Timestamp) -> Timestamp {
    Timestamp::from_millis(time.as_millis().saturating_sub(TICK_MS))
}

/// The outcome that `author` comes to: no two have the same.
pub(crate) fn outcome_of(author: u128) -> Arc<Outcome> {
    Arc::new(Outcome::Value(author.to_be_bytes().to_vec().into()))
}

fn author_of<T>(phase: &Phase<T>) -> Option<u128> {
    let Phase::Done { outcome, .. } = phase else { return None };
    let Outcome::Value(author) = &**outcome else { return None };
    author.as_ref().try_into().ok().map(u128::from_be_bytes)
}

impl<T: Hash> Hash for Kept<T> {
    /// Hashes what means something in one slot: the address never differs, and no rule asks since
    /// when.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Record { version, fence, fingerprint, attempt, recovery, phase, .. } = &*self.0;
        (version, fence, fingerprint, attempt, recovery, phase).hash(state);
    }
}

impl<T: fmt::Debug> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { version, fence, attempt, phase, .. } = &*self.0;
        let (write, renewal) = (version.write, version.renewal);
        write!(f, "fence {} version {write}+{renewal} attempt {attempt} {phase:?}", { fence.0 })
    }
}

/// Why a worker may claim: what it saw, and what the rule said to that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Clearance {
    /// Whether it asks for something else under the same key.
    pub(crate) other: bool,
    pub(crate) seen: Option<Stored>,
    pub(crate) attempt: u32,
    pub(crate) recovery: bool,
}

impl Clearance {
    /// Of a worker that has seen nothing yet.
    pub(crate) fn first(other: bool) -> Self {
        let Grounds { attempt, recovery, .. } = Grounds::FIRST;
        Self { other, seen: None, attempt, recovery }
    }

    pub(crate) fn grounds(&self) -> Grounds {
        let expected = self.seen.as_ref().map(|seen| seen.0.version);
        let above = self.seen.as_ref().map(|seen| seen.0.fence);
        Grounds { expected, attempt: self.attempt, recovery: self.recovery, above }
    }
}

/// A request to the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    Claim {
        clearance: Clearance,
        draft: Written,
        /// No copy of it arrives, and none is sent, from this point on.
        until: Timestamp,
    },
    Settle {
        seen: Stored,
        draft: Written,
        /// An operator settles what is another's.
        operator: bool,
    },
    Renew {
        seen: Stored,
    },
}

impl Request {
    /// The fence in whose name it comes.
    pub(crate) fn fence(&self) -> Fence {
        match self {
            Self::Claim { draft, .. } | Self::Settle { draft, .. } => draft.0.fence,
            Self::Renew { seen } => seen.0.fence,
        }
    }

    /// What it expects to find, and what it writes.
    const fn parts(&mut self) -> (Option<&mut Stored>, Option<&mut Written>) {
        match self {
            Self::Claim { clearance, draft, .. } => (clearance.seen.as_mut(), Some(draft)),
            Self::Settle { seen, draft, .. } => (Some(seen), Some(draft)),
            Self::Renew { seen } => (Some(seen), None),
        }
    }

    /// Two different requests never have the same number; copies of one have.
    fn number(&self) -> (u128, u32) {
        match self {
            Self::Claim { draft, .. } => (draft.0.version.write, 0),
            Self::Settle { draft, seen, .. } => (draft.0.version.write, seen.0.version.renewal + 1),
            Self::Renew { seen } => (seen.0.version.write, seen.0.version.renewal + 1),
        }
    }
}

/// A copy of a request that is still under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Late {
    pub(crate) request: Request,
    /// From this step on it is lost: no network keeps a request for ever.
    pub(crate) lost_at: Timestamp,
}

/// What a worker is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Worker {
    Idle,
    /// The rule lets it claim what it saw; the claim is not sent yet.
    Cleared(Clearance),
    /// Its claim was sent, and nobody said whether it is written.
    Unsure {
        clearance: Clearance,
        draft: Written,
        until: Timestamp,
    },
    /// Its claim was written so long ago that it has lapsed on the way.
    Overdue {
        claim: Stored,
        recovery: bool,
    },
    /// It holds a live claim, and nothing was sent yet.
    Ready {
        claim: Stored,
        recovery: bool,
    },
    /// The effect was dispatched.
    Executing {
        claim: Stored,
    },
    /// It has something to record, and nobody said yet that it is written.
    Settling {
        claim: Stored,
        draft: Written,
    },
}

impl Worker {
    /// The claim that it believes to be its own, once its effect may have happened.
    pub(crate) fn dispatched(&self) -> Option<&Stored> {
        match self {
            Self::Executing { claim } => Some(claim),
            Self::Settling { claim, draft } => match draft.0.phase {
                Phase::Released { .. } => None,
                Phase::Claimed { .. } | Phase::Done { .. } | Phase::Unknown { .. } => Some(claim),
            },
            Self::Idle
            | Self::Cleared(_)
            | Self::Unsure { .. }
            | Self::Overdue { .. }
            | Self::Ready { .. } => None,
        }
    }

    /// The fence of a claim of which it cannot say whether it is written.
    fn unsure(&self) -> Option<Fence> {
        match self {
            Self::Unsure { draft, .. } => Some(draft.0.fence),
            Self::Idle
            | Self::Cleared(_)
            | Self::Overdue { .. }
            | Self::Ready { .. }
            | Self::Executing { .. }
            | Self::Settling { .. } => None,
        }
    }

    /// What it has seen, and what it writes.
    const fn parts(&mut self) -> (Option<&mut Stored>, Option<&mut Written>) {
        match self {
            Self::Idle => (None, None),
            Self::Cleared(clearance) => (clearance.seen.as_mut(), None),
            Self::Unsure { clearance, draft, .. } => (clearance.seen.as_mut(), Some(draft)),
            Self::Overdue { claim, .. } | Self::Ready { claim, .. } | Self::Executing { claim } => {
                (Some(claim), None)
            }
            Self::Settling { claim, draft } => (Some(claim), Some(draft)),
        }
    }

    /// Orders workers; those that compare equal are equal. They have no names, so that states which
    /// differ only in who is who are one state.
    fn rank(&self) -> (u8, u128, u128, u32, bool) {
        let of = |rank, record: &Stored| {
            let Record { fence, version, .. } = &*record.0;
            (rank, fence.0, version.write, version.renewal)
        };
        let (rank, fence, write, renewal) = match self {
            Self::Idle => (0, 0, 0, 0),
            Self::Cleared(Clearance { seen, .. }) => {
                seen.as_ref().map_or((1, 0, 0, 0), |seen| of(1, seen))
            }
            Self::Unsure { draft, .. } => (2, draft.0.fence.0, 0, 0),
            Self::Overdue { claim, .. } => of(3, claim),
            Self::Ready { claim, .. } => of(4, claim),
            Self::Executing { claim } => of(5, claim),
            Self::Settling { claim, .. } => of(6, claim),
        };
        let other = matches!(self, Self::Cleared(Clearance { other: true, .. }));
        (rank, fence, write, renewal, other)
    }
}

/// How much may still happen. Bounds make the model finite; each is spent by one kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) asks: u8,
    /// Of those, how many may ask for something else.
    pub(crate) others: u8,
    pub(crate) renewals: u8,
    /// Replies that are lost, requests that are late or doubled.
    pub(crate) faults: u8,
    pub(crate) crashes: u8,
    /// Acts of the operator.
    pub(crate) acts: u8,
}

/// A promise that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    SecondEffect,
    BeganWithoutLiveClaim,
    AnsweredOtherwise,
    StaleFenceWrote,
    TookWhatIsNotFree,
    LivesAgain,
    RecoveryNotTold,
    MismatchWrote,
    FencedByItself,
}

/// Something that must be possible, or the model proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Witness {
    Takeover = 1,
    StaleRefused = 1 << 1,
    LateClaimAfterDone = 1 << 2,
    LateClaimAfterRelease = 1 << 3,
    SettledLate = 1 << 4,
    Recovered = 1 << 5,
    RenewalBeatTakeover = 1 << 6,
    RepeatedWrite = 1 << 7,
    Replayed = 1 << 8,
    Mismatched = 1 << 9,
    HeldAsUnknown = 1 << 10,
    Resolved = 1 << 11,
    ExecutedAfterRetention = 1 << 12,
    OverdueRenewed = 1 << 13,
}

/// What the model remembers to judge by. No worker and no store ever looks at it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Trace {
    /// Effects since the key was last new: never used, forgotten, or decided about by an operator.
    pub(crate) effects: u8,
    /// The claim of a worker that crashed after its effect was dispatched.
    pub(crate) orphan: Option<Fence>,
    /// The outcome that callers may have been told, until it expires.
    pub(crate) told: Option<Stored>,
    /// Fences whose claims have ended; only those of which a copy is still under way.
    pub(crate) ended: BTreeSet<Fence>,
    pub(crate) broken: Option<Broken>,
    /// What the last step was an example of.
    pub(crate) witness: u16,
}

/// One state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) slot: Option<Stored>,
    pub(crate) workers: [Worker; 3],
    /// The unknown that the operator is looking at.
    pub(crate) operator: Option<Stored>,
    pub(crate) network: Vec<Late>,
    /// The last number that was given to a fence or a write.
    pub(crate) minted: u128,
    pub(crate) left: Budget,
    pub(crate) trace: Trace,
}

impl World {
    pub(crate) fn new(left: Budget) -> Self {
        Self {
            slot: None,
            workers: [Worker::Idle, Worker::Idle, Worker::Idle],
            operator: None,
            network: Vec::new(),
            minted: 0,
            left,
            trace: Trace::default(),
        }
    }

    pub(crate) const fn mint(&mut self) -> u128 {
        self.minted += 1;
        self.minted
    }

    pub(crate) fn saw(&mut self, witness: Witness) {
        self.trace.witness |= witness as u16;
    }

    pub(crate) fn broke(&mut self, promise: Broken) {
        self.trace.broken.get_or_insert(promise);
    }

    /// Gives states that mean the same the same form: workers and copies have no names, and numbers
    /// that nobody knows any more are given again, for only their equality means anything.
    pub(crate) fn settle_down(&mut self) {
        self.workers.sort_by_key(Worker::rank);
        self.network.sort_by_key(|late| (late.request.number(), late.lost_at));
        let mut under_way: BTreeSet<Fence> =
            self.network.iter().map(|late| late.request.fence()).collect();
        under_way.extend(self.workers.iter().filter_map(Worker::unsure));
        self.trace.ended.retain(|fence| under_way.contains(fence));
        let mut known = BTreeSet::new();
        self.each_number(&mut |number| {
            known.insert(*number);
        });
        let count = known.len() as u128;
        if self.minted == count {
            return;
        }
        let known: Vec<u128> = known.into_iter().collect();
        self.each_number(&mut |number| {
            let rank = known.binary_search(number).expect("collected above");
            *number = rank as u128 + 1;
        });
        self.minted = count;
    }

    /// Visits every number that anybody knows.
    fn each_number(&mut self, visit: &mut dyn FnMut(&mut u128)) {
        self.each_part(&mut |part| match part {
            Part::Stored(record) => record.each_number(visit),
            Part::Written(draft) => draft.each_number(visit),
        });
        let Trace { orphan, ended, .. } = &mut self.trace;
        if let Some(orphan) = orphan {
            *orphan = renumbered(*orphan, visit);
        }
        *ended = std::mem::take(ended).into_iter().map(|fence| renumbered(fence, visit)).collect();
    }

    /// Time passes: everything comes one step closer, and late copies are lost.
    pub(crate) fn age(&mut self) {
        self.each_part(&mut |part| match part {
            Part::Stored(record) => record.age(),
            Part::Written(_) => {}
        });
        for worker in &mut self.workers {
            if let Worker::Unsure { until, .. } = worker {
                *until = closer(*until);
            }
        }
        for late in &mut self.network {
            late.lost_at = closer(late.lost_at);
            if let Request::Claim { until, .. } = &mut late.request {
                *until = closer(*until);
            }
        }
        self.network.retain(|late| late.lost_at > NOW);
    }

    fn each_part(&mut self, visit: &mut dyn FnMut(Part<'_>)) {
        let Self { slot, workers, operator, network, trace, .. } = self;
        for record in [slot, operator, &mut trace.told].into_iter().flatten() {
            visit(Part::Stored(record));
        }
        let workers = workers.iter_mut().map(Worker::parts);
        for (seen, draft) in workers.chain(network.iter_mut().map(|late| late.request.parts())) {
            if let Some(seen) = seen {
                visit(Part::Stored(seen));
            }
            if let Some(draft) = draft {
                visit(Part::Written(draft));
            }
        }
    }
}

/// A record or a draft, wherever in a state it is.
enum Part<'w> {
    Stored(&'w mut Stored),
    Written(&'w mut Written),
}

/// The fence under its new number.
fn renumbered(fence: Fence, visit: &mut dyn FnMut(&mut u128)) -> Fence {
    let mut number = fence.0;
    visit(&mut number);
    Fence(number)
}

/// What became of a write that named the version it expected, as the stores of the engine say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Swap {
    Won(Arc<Record>),
    Lost(Option<Arc<Record>>),
    Unknown,
}
