//! What can happen next, and what never may: the model as the checker sees it.

use std::sync::Arc;
use std::time::Duration;

use onetake_core::{
    Address, Ask, Asked, Key, OnInFlight, OnUnknown, Operation, Phase, Policy, Scope, Standing,
};
use stateright::{Model, Property};

use crate::properties;
use crate::slot::Delivery;
use crate::walk::Plan;
use crate::world::{Budget, NOW, Stored, TICK_MS, Worker, World};

/// A mistake that the checker must find, or the model proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plant {
    /// A takeover expects the fence that it saw, so a renewal in between goes unseen.
    TakeoverByFence,
    /// A release removes the record instead of leaving a tombstone.
    ReleaseDeletes,
    /// The end of a lease is taken for the end of the record, as if it were an outcome's.
    ExpiryFreesClaims,
    /// A completion counts as won when the slot holds any outcome of the same fence.
    FenceIsEnough,
    /// A heartbeat that finds a settled record says that the claim was lost, though the owner
    /// settled it itself and only the reply was lost.
    HeartbeatDecides,
    /// A lease may pass between the store's reply and the dispatch.
    SlowReplies,
}

/// The settings of one check.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// What is asked: the same by almost everyone, and something else under the same key.
    pub(crate) asks: [Ask; 2],
    pub(crate) plant: Option<Plant>,
    pub(crate) budget: Budget,
}

impl Rules {
    pub(crate) fn new(on_unknown: OnUnknown, budget: Budget) -> Self {
        let tick = Duration::from_millis(TICK_MS);
        let policy = Policy::builder()
            .lease(tick)
            .retention(tick * 2)
            .on_in_flight(OnInFlight::Refuse)
            .on_unknown(on_unknown)
            .build();
        let policy = Arc::new(policy.expect("within bounds"));
        let scope = Scope::tenant_named("acme").expect("a name");
        let operation = Operation::new("orders.create").expect("a name");
        let key = Key::new("order-123").expect("a key");
        let address = Arc::new(Address::new(scope, operation, key));
        let asks = ["body", "other"].map(|body| Ask {
            address: Arc::clone(&address),
            asked: Asked::raw(body),
            policy: Arc::clone(&policy),
        });
        Self { asks, plant: None, budget }
    }

    pub(crate) fn planted(self, plant: Plant) -> Self {
        Self { plant: Some(plant), ..self }
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.asks[0].policy
    }
}

/// One thing that happens. Workers are numbered within a state only: the idle come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Ask {
        worker: usize,
        other: bool,
        delivery: Delivery,
    },
    /// A claim that the rule allowed, or the same claim once more.
    Claim {
        worker: usize,
        delivery: Delivery,
    },
    Disown {
        worker: usize,
    },
    Dispatch {
        worker: usize,
    },
    Renew {
        worker: usize,
        delivery: Delivery,
    },
    Settle {
        worker: usize,
        plan: Plan,
        delivery: Delivery,
    },
    /// The same settlement once more.
    Record {
        worker: usize,
        delivery: Delivery,
    },
    Crash {
        worker: usize,
    },
    ArriveLate {
        index: usize,
    },
    Sweep,
    Look,
    Operate {
        plan: Plan,
    },
    Tick,
}

/// A state that is becoming the next one.
pub(crate) struct Step<'m> {
    pub(crate) rules: &'m Rules,
    pub(crate) world: World,
}

impl Step<'_> {
    fn take(&mut self, act: Act) {
        match act {
            Act::Ask { worker, other, delivery } => self.ask(worker, other, delivery),
            Act::ArriveLate { index } => self.arrive_late(index),
            Act::Crash { worker } => self.crash(worker),
            Act::Renew { worker, delivery } => {
                self.world.left.renewals -= 1;
                self.heartbeat(worker, delivery);
            }
            Act::Sweep => self.sweep(),
            Act::Look => self.world.operator.clone_from(&self.world.slot),
            Act::Operate { plan } => {
                let seen = self.world.operator.clone().expect("it looked");
                self.operate(plan, seen);
            }
            Act::Tick => self.tick(),
            Act::Claim { worker, .. }
            | Act::Disown { worker }
            | Act::Dispatch { worker }
            | Act::Settle { worker, .. }
            | Act::Record { worker, .. } => {
                let known = self.world.workers[worker].clone();
                self.go_on(worker, known, act);
            }
        }
    }

    /// What a worker does next depends on what it knows.
    fn go_on(&mut self, worker: usize, known: Worker, act: Act) {
        match (act, known) {
            (Act::Claim { delivery, .. }, Worker::Cleared(clearance)) => {
                self.claim(worker, clearance, delivery);
            }
            (Act::Claim { delivery, .. }, Worker::Unsure { clearance, draft, until }) => {
                self.send_claim(worker, (clearance, draft, until), delivery);
            }
            (Act::Disown { .. }, Worker::Unsure { draft, .. }) => self.disown(worker, &draft),
            (Act::Dispatch { .. }, Worker::Ready { claim, recovery }) => {
                self.dispatch(worker, claim, recovery);
            }
            (
                Act::Settle { plan, delivery, .. },
                Worker::Ready { claim, .. } | Worker::Executing { claim },
            ) => self.settle(worker, claim, plan, delivery),
            (Act::Record { delivery, .. }, Worker::Settling { claim, draft }) => {
                self.record(worker, claim, draft, delivery);
            }
            (act, known) => unreachable!("{act:?} is nothing for {known:?}"),
        }
    }

    /// Time passes: leases lapse, outcomes expire, late copies are lost.
    fn tick(&mut self) {
        let world = &mut self.world;
        world.age();
        let forgotten = |record: &Stored| {
            matches!(record.0.phase, Phase::Done { .. }) && record.0.standing(NOW) == Standing::Free
        };
        if world.slot.as_ref().is_some_and(forgotten) {
            world.trace.effects = 0;
        }
        if world.trace.told.as_ref().is_some_and(forgotten) {
            world.trace.told = None;
        }
    }

    fn acts_of(&self, worker: usize, acts: &mut Vec<Act>) {
        let each = |acts: &mut Vec<Act>, make: &dyn Fn(Delivery) -> Act| {
            acts.push(make(Delivery::Prompt));
            if self.world.left.faults > 0 {
                acts.extend([Delivery::Late, Delivery::Doubled].map(make));
            }
        };
        let settle = |plan| move |delivery| Act::Settle { worker, plan, delivery };
        let mut renews = false;
        match &self.world.workers[worker] {
            // All idle workers are the same worker.
            Worker::Idle => {
                if worker == 0 && self.world.left.asks > 0 {
                    each(acts, &|delivery| Act::Ask { worker, other: false, delivery });
                    if self.world.left.others > 0 {
                        each(acts, &|delivery| Act::Ask { worker, other: true, delivery });
                    }
                }
                return;
            }
            Worker::Cleared(_) => each(acts, &|delivery| Act::Claim { worker, delivery }),
            Worker::Unsure { until, .. } => {
                if *until > NOW {
                    each(acts, &|delivery| Act::Claim { worker, delivery });
                }
                acts.push(Act::Disown { worker });
            }
            Worker::Overdue { .. } => renews = true,
            Worker::Ready { .. } => {
                acts.push(Act::Dispatch { worker });
                each(acts, &settle(Plan::Release));
            }
            Worker::Executing { claim } => {
                each(acts, &settle(Plan::Complete));
                if matches!(claim.0.phase, Phase::Claimed { .. }) {
                    each(acts, &settle(Plan::ReportUnknown));
                    renews = true;
                }
            }
            Worker::Settling { .. } => {
                each(acts, &|delivery| Act::Record { worker, delivery });
                renews = true;
            }
        }
        if renews && self.world.left.renewals > 0 {
            each(acts, &|delivery| Act::Renew { worker, delivery });
        }
        if self.world.left.crashes > 0 {
            acts.push(Act::Crash { worker });
        }
    }

    fn acts_of_the_rest(&self, acts: &mut Vec<Act>) {
        let world = &self.world;
        acts.extend((0..world.network.len()).map(|index| Act::ArriveLate { index }));
        if self.is_removable() {
            acts.push(Act::Sweep);
        }
        if world.left.acts > 0 {
            let unknown = world
                .slot
                .as_ref()
                .is_some_and(|there| matches!(there.0.standing(NOW), Standing::Unknown { .. }));
            if unknown && world.operator != world.slot {
                acts.push(Act::Look);
            }
            if world.operator.is_some() {
                acts.extend([Plan::Complete, Plan::Release].map(|plan| Act::Operate { plan }));
            }
        }
        // What the store said is acted on before a lease has passed. See the plant for what comes
        // of it otherwise.
        let acting = world.workers.iter().any(|worker| matches!(worker, Worker::Ready { .. }));
        if !acting || self.rules.plant == Some(Plant::SlowReplies) {
            acts.push(Act::Tick);
        }
    }
}

impl Model for Rules {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.budget)]
    }

    fn actions(&self, state: &World, acts: &mut Vec<Act>) {
        // A broken promise is the end of a trace.
        if state.trace.broken.is_some() {
            return;
        }
        let step = Step { rules: self, world: state.clone() };
        for worker in 0..step.world.workers.len() {
            step.acts_of(worker, acts);
        }
        step.acts_of_the_rest(acts);
    }

    fn next_state(&self, state: &World, act: Act) -> Option<World> {
        let mut step = Step { rules: self, world: state.clone() };
        step.world.trace.witness = 0;
        step.take(act);
        step.world.settle_down();
        Some(step.world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(self)
    }
}
