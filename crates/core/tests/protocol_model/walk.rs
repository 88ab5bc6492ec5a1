//! The workers and the operator: the walk of the engine in single steps, on the real rule.
//!
//! A worker claims without looking first; when it loses, it asks the rule. It dispatches only under
//! a claim that was alive when the store said so, settles under the version that it knows, and goes
//! on from a newer version of its own claim. A crash takes all that it knows.

use onetake_core::{
    Cause, Decision, Draft, Fence, Keeping, Phase, Record, Settlement, Standing, Timestamp, decide,
};

use crate::model::{Plant, Step};
use crate::slot::{Delivery, lost_at};
use crate::world::{
    Broken, Clearance, Kept, NOW, Request, Stored, Swap, Witness, Worker, Written, outcome_of,
};

/// What an execution comes to, or what an operator decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    Complete,
    /// Nothing was sent.
    Release,
    /// Nobody can say whether the effect happened.
    ReportUnknown,
}

impl Plan {
    /// The settlement; `author` makes the outcomes of different authors different.
    fn settlement(self, author: u128) -> Settlement {
        match self {
            Self::Complete => {
                Settlement::Done { outcome: outcome_of(author), keeping: Keeping::Final }
            }
            Self::Release => Settlement::Freed(None),
            Self::ReportUnknown => Settlement::Unknown(Cause::Reported),
        }
    }
}

impl Step<'_> {
    fn become_(&mut self, worker: usize, next: Worker) {
        self.world.workers[worker] = next;
    }

    /// The first store call of an attempt: a claim, as if nothing were there.
    pub(crate) fn ask(&mut self, worker: usize, other: bool, delivery: Delivery) {
        self.world.left.asks -= 1;
        self.world.left.others -= u8::from(other);
        self.claim(worker, Clearance::first(other), delivery);
    }

    /// Claims what was seen, under a new fence.
    pub(crate) fn claim(&mut self, worker: usize, clearance: Clearance, delivery: Delivery) {
        let id = self.world.mint();
        let ask = &self.rules.asks[usize::from(clearance.other)];
        let draft = Kept::new(ask.claim(clearance.grounds(), Fence(id), id));
        let until = lost_at();
        self.send_claim(worker, (clearance, draft, until), delivery);
    }

    /// Sends one claim, for the first time or again.
    pub(crate) fn send_claim(
        &mut self,
        worker: usize,
        (clearance, draft, until): (Clearance, Written, Timestamp),
        delivery: Delivery,
    ) {
        let before = self.world.slot.clone();
        let request = Request::Claim { clearance: clearance.clone(), draft: draft.clone(), until };
        let next = match self.send(request, delivery) {
            Swap::Won(claim) => own(Kept(claim), clearance.recovery),
            Swap::Unknown => Worker::Unsure { clearance, draft, until },
            Swap::Lost(found) => self.hear(clearance.other, found.map(Kept), before.as_ref()),
        };
        self.become_(worker, next);
    }

    /// Asks the rule what to do about `found`, and checks what the caller hears.
    fn hear(&mut self, other: bool, found: Option<Stored>, before: Option<&Stored>) -> Worker {
        let record = found.as_ref().map(|found| &*found.0);
        let decision = decide(&self.rules.asks[usize::from(other)], record, NOW);
        if !self.agrees(other, &decision) {
            self.world.broke(Broken::AnsweredOtherwise);
        }
        match decision {
            Decision::Execute(grounds) => {
                let (attempt, recovery) = (grounds.attempt, grounds.recovery);
                return Worker::Cleared(Clearance { other, seen: found, attempt, recovery });
            }
            Decision::Replay { .. } => self.world.saw(Witness::Replayed),
            Decision::Mismatch => {
                self.world.saw(Witness::Mismatched);
                if self.world.slot.as_ref() != before {
                    self.world.broke(Broken::MismatchWrote);
                }
            }
            Decision::Unknown { .. } => self.world.saw(Witness::HeldAsUnknown),
            Decision::InFlight { .. } => {}
        }
        Worker::Idle
    }

    /// Whether a decision is in line with what was told: the same to the same content, to other
    /// content nothing of it.
    fn agrees(&self, other: bool, decision: &Decision<'_>) -> bool {
        let Some(told) = &self.world.trace.told else { return true };
        let Phase::Done { outcome: told_outcome, .. } = &told.0.phase else { return false };
        let same = self.rules.asks[usize::from(other)].asked.is_same(&told.0.fingerprint);
        match decision {
            Decision::Replay { outcome, .. } => same && *outcome == told_outcome,
            Decision::Mismatch => !same,
            Decision::Execute(_) | Decision::InFlight { .. } | Decision::Unknown { .. } => false,
        }
    }

    /// Gives up on a claim of which nobody said whether it was won; takes it back if it is there.
    pub(crate) fn disown(&mut self, worker: usize, draft: &Written) {
        let own = |there: &&Stored| there.0.fence == draft.0.fence && there.0.is_open();
        let Some(claim) = self.world.slot.as_ref().filter(own).cloned() else {
            return self.become_(worker, Worker::Idle);
        };
        let release = self.draft(Plan::Release, &claim);
        self.become_(worker, Worker::Settling { claim, draft: release });
    }

    /// The effect goes out.
    pub(crate) fn dispatch(&mut self, worker: usize, claim: Stored, recovery: bool) {
        let lives = |record: &Stored| matches!(record.0.standing(NOW), Standing::Live { .. });
        let holds = self
            .world
            .slot
            .as_ref()
            .is_some_and(|there| there.0.fence == claim.0.fence && lives(there));
        let rival = self.world.workers.iter().any(|worker| match worker {
            Worker::Executing { claim } => lives(claim),
            Worker::Idle
            | Worker::Cleared(_)
            | Worker::Unsure { .. }
            | Worker::Overdue { .. }
            | Worker::Ready { .. }
            | Worker::Settling { .. } => false,
        });
        if !holds || rival {
            self.world.broke(Broken::BeganWithoutLiveClaim);
        }
        if self.world.trace.effects > 0 && !recovery {
            self.world.broke(Broken::SecondEffect);
        }
        if recovery {
            self.world.saw(Witness::Recovered);
        }
        self.world.trace.effects = 1;
        self.become_(worker, Worker::Executing { claim });
    }

    fn draft(&mut self, plan: Plan, claim: &Stored) -> Written {
        let write = self.world.mint();
        let settlement = plan.settlement(claim.0.fence.0);
        Kept::new(settlement.draft(&claim.0, self.rules.policy(), write))
    }

    /// What a worker has to say about its claim, said for the first time.
    pub(crate) fn settle(&mut self, worker: usize, claim: Stored, plan: Plan, how: Delivery) {
        let draft = self.draft(plan, &claim);
        self.record(worker, claim, draft, how);
    }

    /// Writes a settlement, for the first time or again.
    pub(crate) fn record(&mut self, worker: usize, claim: Stored, draft: Written, how: Delivery) {
        let request =
            Request::Settle { seen: claim.clone(), draft: draft.clone(), operator: false };
        let next = match self.send(request, how) {
            Swap::Unknown => Worker::Settling { claim, draft },
            Swap::Won(record) => recorded(Kept(record)),
            Swap::Lost(found) => match adopt(&claim, found.map(Kept)) {
                Ok(claim) => Worker::Settling { claim, draft },
                Err(found) => self.fenced(found.as_ref(), &draft),
            },
        };
        self.become_(worker, next);
    }

    fn fenced(&mut self, found: Option<&Stored>, draft: &Written) -> Worker {
        let version = draft.0.version;
        if found.is_some_and(|found| found.0.version == version) {
            self.world.broke(Broken::FencedByItself);
        }
        let same_fence = found.is_some_and(|found| {
            found.0.fence == draft.0.fence && matches!(found.0.phase, Phase::Done { .. })
        });
        let completes = matches!(draft.0.phase, Phase::Done { .. });
        if self.rules.plant == Some(Plant::FenceIsEnough) && same_fence && completes {
            let said = Draft::clone(&draft.0).at(NOW);
            self.world.trace.told = Some(Kept::new(said));
        }
        Worker::Idle
    }

    /// One heartbeat.
    pub(crate) fn heartbeat(&mut self, worker: usize, delivery: Delivery) {
        let known = self.world.workers[worker].clone();
        let (Worker::Overdue { claim, .. }
        | Worker::Executing { claim }
        | Worker::Settling { claim, .. }) = &known
        else {
            unreachable!("only those who hold a claim renew it")
        };
        let claim = claim.clone();
        let reply = self.send(Request::Renew { seen: claim.clone() }, delivery);
        let next = match (known, reply) {
            (Worker::Overdue { recovery, .. }, Swap::Won(renewed)) => {
                self.world.saw(Witness::OverdueRenewed);
                Worker::Ready { claim: Kept(renewed), recovery }
            }
            // Nothing was sent, so it may simply give up.
            (Worker::Overdue { .. }, Swap::Lost(_) | Swap::Unknown) => Worker::Idle,
            (known, Swap::Unknown) => known,
            (known, Swap::Won(renewed)) => with_claim(known, Kept(renewed)),
            (known, Swap::Lost(found)) => match adopt(&claim, found.map(Kept)) {
                Ok(claim) => with_claim(known, claim),
                Err(found) => self.lost_heartbeat(known, found.as_ref()),
            },
        };
        self.become_(worker, next);
    }

    /// A heartbeat found something else in the slot. Who is executing must stop; who has something
    /// to record writes once more, for what was found may be the record itself.
    fn lost_heartbeat(&mut self, known: Worker, found: Option<&Stored>) -> Worker {
        match &known {
            Worker::Settling { draft, .. } => {
                if self.rules.plant == Some(Plant::HeartbeatDecides) {
                    return self.fenced(found, draft);
                }
                known
            }
            Worker::Executing { .. }
            | Worker::Idle
            | Worker::Cleared(_)
            | Worker::Unsure { .. }
            | Worker::Overdue { .. }
            | Worker::Ready { .. } => Worker::Idle,
        }
    }

    /// The worker loses all that it knows.
    pub(crate) fn crash(&mut self, worker: usize) {
        self.world.left.crashes -= 1;
        if let Some(claim) = self.world.workers[worker].dispatched() {
            let fence = claim.0.fence;
            let open = |there: &Record| there.fence == fence && there.is_open();
            if self.world.slot.as_ref().is_some_and(|there| open(&there.0)) {
                self.world.trace.orphan = Some(fence);
            }
        }
        self.become_(worker, Worker::Idle);
    }

    /// The operator decides about the unknown that it looked at.
    pub(crate) fn operate(&mut self, plan: Plan, seen: Stored) {
        self.world.left.acts -= 1;
        self.world.operator = None;
        let write = self.world.mint();
        // Write numbers are never fences of executions that complete, so no outcome is the same.
        let draft = plan.settlement(write).draft(&seen.0, self.rules.policy(), write);
        let request = Request::Settle { seen, draft: Kept::new(draft), operator: true };
        if let Swap::Won(_) = self.send(request, Delivery::Prompt) {
            self.world.saw(Witness::Resolved);
        }
    }
}

/// What a worker is about once its claim is written.
fn own(claim: Stored, recovery: bool) -> Worker {
    match claim.0.standing(NOW) {
        Standing::Live { .. } => Worker::Ready { claim, recovery },
        Standing::Unknown { .. }
        | Standing::Final { .. }
        | Standing::Retryable(_)
        | Standing::Free => Worker::Overdue { claim, recovery },
    }
}

/// What a worker is about once its settlement is written.
fn recorded(record: Stored) -> Worker {
    match record.0.phase {
        // Whoever reported an unknown may still learn what came of it.
        Phase::Unknown { .. } => Worker::Executing { claim: record },
        Phase::Done { .. } | Phase::Released { .. } => Worker::Idle,
        Phase::Claimed { .. } => unreachable!("a settlement is no claim"),
    }
}

/// Goes on from what is there, if it is still this very claim, open and not taken over.
fn adopt(claim: &Stored, found: Option<Stored>) -> Result<Stored, Option<Stored>> {
    match found {
        Some(there) if there.0.fence == claim.0.fence && there.0.is_open() => Ok(there),
        found => Err(found),
    }
}

fn with_claim(worker: Worker, claim: Stored) -> Worker {
    match worker {
        Worker::Executing { .. } => Worker::Executing { claim },
        Worker::Settling { draft, .. } => Worker::Settling { claim, draft },
        Worker::Idle
        | Worker::Cleared(_)
        | Worker::Unsure { .. }
        | Worker::Overdue { .. }
        | Worker::Ready { .. } => unreachable!("only those who hold a claim renew it"),
    }
}
