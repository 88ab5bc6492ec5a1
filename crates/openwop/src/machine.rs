//! The rule of a run: from where it stands to where it may stand next.
//!
//! Pure: no clock, no store, no randomness; the time and all that it reads of other runs come in.
//! A machine takes a run as far as it goes without leaving the store, and tells every step. Nodes
//! that act outside are only marked as begun: `drive.rs` executes them and comes back with what
//! they came to.
//!
//! ```text
//!  pending ─▶ running ─▶ waiting-… ─▶ running ─▶ completed · failed · cancelled
//!                └──▶ paused ──▶ running
//! ```

mod begin;
mod control;
mod end;
mod hear;
mod ready;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use onetake_core::Timestamp;
use onetake_engine::Need;
use serde_json::{Map, Value, json};

pub(crate) use self::begin::given;
pub(crate) use self::control::{CannotPause, CannotResume};
pub(crate) use self::hear::NotHeard;
use self::ready::Turn;
use crate::definition::Definition;
use crate::event::{Kind, NewEvent, Payload, payload};
use crate::run::{Failure, NodeState, NodeStatus, Run, Status};

/// How many nodes begin or end in one step at most, so that a step fits into one commit.
pub(crate) const NODES_PER_STEP: u32 = 64;
/// The same where others are told of what happens.
pub(crate) const NODES_PER_TOLD_STEP: u32 = 8;

/// What a machine may look at beside its own run.
pub(crate) trait World {
    /// Another run of the same tenant.
    fn run(&self, id: &str) -> Result<Option<Run>, Need>;

    /// The workflow of that name, as it is now.
    fn workflow(&self, id: &str) -> Option<Arc<Definition>>;

    /// The definition that a run began with.
    fn definition(&self, digest: &str) -> Result<Option<Arc<Definition>>, Need>;

    /// Whether nodes of this type are executed outside the store by this host.
    fn is_outside(&self, type_id: &str) -> bool;

    /// The bounds of runs.
    fn bounds(&self) -> Bounds;
}

/// The bounds of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Nodes that a run may begin, retries included.
    pub executions_max: u32,
    /// How long a run may take, in milliseconds.
    pub duration_ms_max: u64,
    /// How many runs may be above one.
    pub depth_max: u32,
    /// The largest run, in bytes as it is kept.
    pub run_bytes_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            executions_max: 1_000,
            duration_ms_max: 30 * 24 * 60 * 60 * 1_000,
            depth_max: 8,
            run_bytes_max: 4 << 20,
        }
    }
}

/// A run that changed, and what is told of that.
#[derive(Debug, Clone)]
pub(crate) struct Changed {
    pub(crate) run: Run,
    pub(crate) events: Vec<NewEvent>,
}

/// What one step came to.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The run itself.
    pub(crate) own: Changed,
    /// Runs that began or ended with it.
    pub(crate) others: Vec<Changed>,
    /// Definitions that some of them began with.
    pub(crate) begun_with: Vec<Arc<Definition>>,
    /// Runs of its own that it has seen the end of, and when that was.
    pub(crate) ended: Vec<(u64, String)>,
}

impl Progress {
    /// A run alone.
    pub(crate) const fn alone(own: Changed) -> Self {
        Self { own, others: Vec::new(), begun_with: Vec::new(), ended: Vec::new() }
    }
}

/// A run on its way.
pub(crate) struct Machine<'w, W> {
    run: Run,
    definition: Arc<Definition>,
    world: &'w W,
    now: Timestamp,
    events: Vec<NewEvent>,
    others: Vec<Changed>,
    /// Nodes that may still begin in this step.
    left: u32,
    /// Who takes the step, and whether whoever had the run before is certainly gone.
    driver: Option<(String, bool)>,
    /// Definitions that runs began with in this step.
    begun_with: Vec<Arc<Definition>>,
    /// Runs of its own that have ended, and when: each had a place in the schedule to say so.
    ended: Vec<(u64, String)>,
}

impl<'w, W: World> Machine<'w, W> {
    pub(crate) fn new(run: Run, definition: Arc<Definition>, world: &'w W, now: Timestamp) -> Self {
        Self {
            run,
            definition,
            world,
            now,
            events: Vec::new(),
            others: Vec::new(),
            left: NODES_PER_STEP,
            driver: None,
            begun_with: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// The same, with this many nodes to begin or end at most.
    pub(crate) const fn at_most(mut self, nodes: u32) -> Self {
        self.left = nodes;
        self
    }

    /// What it came to so far.
    pub(crate) fn done(self) -> Progress {
        let Self { run, events, others, begun_with, ended, .. } = self;
        Progress { own: Changed { run, events }, others, begun_with, ended }
    }

    /// The step is taken by the host `me`, which executes what leaves the store. Whoever had the
    /// run before is left alone while its lease runs, unless it `is_gone` for certain.
    pub(crate) fn driven_by(&mut self, me: &str, is_gone: bool) {
        self.driver = Some((me.to_owned(), is_gone));
    }

    /// When the step is taken, in milliseconds.
    pub(crate) const fn now_ms(&self) -> u64 {
        self.now.as_millis()
    }

    /// Takes the run as far as it goes without leaving the store.
    pub(crate) fn advance(&mut self) -> Result<(), Need> {
        self.go_on()?;
        if self.run.outside().next().is_none() {
            self.run.driver = None;
        } else if let Some((me, is_gone)) = &self.driver {
            let is_other = self.run.driver.as_ref().is_some_and(|driver| driver != me);
            let has_lease = self.run.due.is_some_and(|due| due > self.now.as_millis());
            if *is_gone || !is_other || !has_lease {
                self.run.driver = Some(me.clone());
            }
        }
        Ok(())
    }

    fn go_on(&mut self) -> Result<(), Need> {
        if self.run.status.is_terminal() || self.run.status == Status::Paused {
            return Ok(());
        }
        if self.run.overdue_from().is_some_and(|overdue| overdue <= self.now.as_millis()) {
            return self.out_of_time();
        }
        self.wake()?;
        while self.run.pausing.is_none() && self.left > 0 && !self.run.status.is_terminal() {
            match self.next_turn() {
                Some((place, Turn::Begin)) => self.begin(place, 0)?,
                Some((place, Turn::Skip(reason))) => self.skip(place, reason),
                Some((place, Turn::Fail(failure))) => {
                    let id = self.definition.nodes[place].id.clone();
                    self.start(place, 0);
                    self.fail(&id, failure)?;
                }
                None => break,
            }
        }
        self.rest()
    }

    /// Where the run stands once nothing more happens in this step.
    fn rest(&mut self) -> Result<(), Need> {
        if self.run.status.is_terminal() {
            return Ok(());
        }
        // A node whose own run waits for somebody does so, too.
        let waits_below = |state: &NodeState| {
            let below = state.child_status.filter(|_| state.status == NodeStatus::Delegated);
            below.filter(|status| status.is_waiting())
        };
        let is_active = |state: &NodeState| match state.status {
            NodeStatus::Running | NodeStatus::Waiting => true,
            NodeStatus::Delegated => waits_below(state).is_none(),
            NodeStatus::Suspended
            | NodeStatus::Completed
            | NodeStatus::Failed
            | NodeStatus::Skipped
            | NodeStatus::Cancelled => false,
        };
        let is_busy = self.run.nodes.values().any(is_active);
        if self.run.pausing.is_some() {
            if !is_busy {
                self.come_to_rest();
            }
            return Ok(());
        }
        let waits = self.run.suspended().map(|(_, interrupt)| interrupt.kind.status());
        let waits = waits.or_else(|| self.run.nodes.values().find_map(waits_below));
        let is_over =
            self.left > 0
                && self.definition.nodes.iter().all(|node| {
                    self.run.node(&node.id).is_some_and(|state| state.status.is_settled())
                });
        match waits {
            _ if is_over => return self.complete_run(),
            Some(status) if !is_busy && self.left > 0 => self.run.status = status,
            Some(_) | None => self.run.status = Status::Running,
        }
        Ok(())
    }

    /// Whether there is more to do at once: the step was cut short.
    pub(crate) fn has_more(&self) -> bool {
        self.left == 0 && !self.run.status.is_terminal()
    }

    /// Goes on with what has waited long enough.
    fn wake(&mut self) -> Result<(), Need> {
        let now = self.now.as_millis();
        let waiting: Vec<(String, NodeState)> = self
            .run
            .nodes
            .iter()
            .filter(|(_, state)| !state.status.is_settled() && state.status != NodeStatus::Running)
            .map(|(id, state)| (id.clone(), state.clone()))
            .collect();
        for (id, state) in waiting {
            if self.run.status.is_terminal() || self.left == 0 {
                return Ok(());
            }
            match state.status {
                NodeStatus::Waiting if state.until.is_some_and(|until| until <= now) => {
                    self.left -= 1;
                    if state.retries {
                        let place = self.place(&id);
                        self.begin(place, state.attempt)?;
                    } else {
                        let waited = json!(now.saturating_sub(state.since));
                        self.complete(&id, Map::from_iter([("waitedMs".to_owned(), waited)]))?;
                    }
                }
                NodeStatus::Suspended => {
                    let ends = state.interrupt.as_ref().and_then(crate::interrupt::Interrupt::ends);
                    if ends.is_some_and(|ends| ends <= now) {
                        self.left -= 1;
                        self.time_out(&id)?;
                    }
                }
                NodeStatus::Delegated => self.look_at_child(&id, state.child.as_deref())?,
                NodeStatus::Waiting
                | NodeStatus::Running
                | NodeStatus::Completed
                | NodeStatus::Failed
                | NodeStatus::Skipped
                | NodeStatus::Cancelled => {}
            }
        }
        Ok(())
    }

    fn out_of_time(&mut self) -> Result<(), Need> {
        let limit = self.run.deadline.map(|deadline| deadline.saturating_sub(self.run.created));
        let observed = self.now.as_millis().saturating_sub(self.run.created);
        let mut payload = payload! {"kind": "run-duration", "limit": limit, "observed": observed};
        if let Some(node) = self.run.current() {
            payload.add("nodeId", node);
        }
        self.tell(Kind::CapBreached, None, payload);
        let failure = Failure::new("run_timeout", "the run took longer than it may");
        self.fail_run(failure, None)
    }

    /// Tells of something.
    fn tell(&mut self, kind: Kind, node: Option<&str>, payload: Payload) {
        let place = self.run.next_sequence();
        let event = NewEvent::of(place, kind, node, payload, self.now);
        self.run.events += 1;
        self.events.push(event);
    }

    fn place(&self, id: &str) -> usize {
        self.definition.place(id).expect("invariant: a run has only nodes of its definition")
    }

    fn state(&mut self, id: &str) -> &mut NodeState {
        self.run.nodes.get_mut(id).expect("invariant: the node has begun")
    }

    fn known(&self) -> Known {
        Known::of(&self.run)
    }
}

/// What expressions may look at.
struct Known {
    variables: Value,
    inputs: Value,
    nodes: Value,
    run: Value,
}

impl Known {
    fn of(run: &Run) -> Self {
        let nodes = run.nodes.iter().filter_map(|(id, state)| {
            let outputs = state.outputs.clone()?;
            Some((id.clone(), Value::Object(outputs)))
        });
        Self {
            variables: Value::Object(run.variables.clone()),
            inputs: Value::Object(run.inputs.clone()),
            nodes: Value::Object(nodes.collect()),
            run: json!({"id": run.id, "workflow": run.workflow}),
        }
    }

    fn values(&self) -> [(&str, &Value); 4] {
        [
            ("variables", &self.variables),
            ("inputs", &self.inputs),
            ("nodes", &self.nodes),
            ("run", &self.run),
        ]
    }
}
