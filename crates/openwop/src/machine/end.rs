//! The end of a node, and of a run: success, failure and what follows from it, the next try.

#![allow(clippy::unnecessary_wraps, reason = "what ends a node may have to read more")]

use onetake_core::Backoff;
use onetake_engine::Need;
use serde_json::{Map, Value};

use super::{Changed, Machine, World};
use crate::definition::HIDDEN;
use crate::depth::{DEPTH_MAX, are_too_deep};
use crate::event::{Kind, payload};
use crate::interrupt::{Interrupt, InterruptKind, OUTCOME_UNKNOWN};
use crate::nodes::NodeEnd;
use crate::run::{Failure, NodeState, NodeStatus, Status};

impl<W: World> Machine<'_, W> {
    /// Records what the `attempt`-th try of a node came to outside. What is no longer waited for
    /// changes nothing.
    pub(crate) fn came_back(
        &mut self,
        id: &str,
        attempt: u32,
        since: u64,
        outside: NodeEnd,
    ) -> Result<bool, Need> {
        let waits = |state: &NodeState| {
            let is_it = state.attempt == attempt && state.since == since;
            state.status == NodeStatus::Running && is_it
        };
        if self.run.status.is_terminal() || !self.run.node(id).is_some_and(waits) {
            return Ok(false);
        }
        match outside {
            NodeEnd::Completed(outputs) => self.complete(id, outputs)?,
            NodeEnd::Failed(failure) => self.fail(id, failure)?,
            NodeEnd::Unknown(data) => {
                let fence = data.get("fence").and_then(Value::as_str).unwrap_or_default();
                let interrupt = Interrupt {
                    id: self.interrupt_id(id),
                    kind: InterruptKind::Custom,
                    key: OUTCOME_UNKNOWN.to_owned(),
                    data: data.clone(),
                    requested: self.now.as_millis(),
                    timeout_ms: None,
                    actions: ["retry", "complete", "fail"].map(String::from).to_vec(),
                    quorum: None,
                    questions: Vec::new(),
                    correlation: Map::new(),
                    unknown: Some(fence.to_owned()),
                    auth_required: true,
                };
                self.suspend(id, interrupt);
            }
        }
        Ok(true)
    }

    /// A node has succeeded.
    pub(super) fn complete(&mut self, id: &str, outputs: Map<String, Value>) -> Result<(), Need> {
        if are_too_deep(&outputs) {
            let text = format!("what the node came to is nested more than {DEPTH_MAX} deep");
            return self.fail_for_good(id, Failure::new("value_too_deep", text));
        }
        let now = self.now.as_millis();
        let state = self.state(id);
        (state.status, state.ended, state.until) = (NodeStatus::Completed, Some(now), None);
        let place = self.place(id);
        let variable = self.definition.nodes[place].config.get("outputVariable");
        if let Some(name) = variable.and_then(Value::as_str).map(str::to_owned) {
            self.set_variable(&name, Value::Object(outputs.clone()));
        }
        let payload = payload! {"nodeId": id, "outputs": self.definition.shown(place, &outputs)};
        self.tell(Kind::NodeCompleted, Some(id), payload);
        self.state(id).outputs = Some(outputs);
        Ok(())
    }

    /// A variable has a new value.
    pub(super) fn set_variable(&mut self, name: &str, value: Value) {
        let payload = if self.definition.is_sensitive(name) {
            payload! {"name": name, "value": HIDDEN}
        } else {
            payload! {"name": name, "value": value}
        };
        self.run.variables.insert(name.to_owned(), value);
        self.tell(Kind::VariableChanged, None, payload);
    }

    /// A node has failed, and is tried again where that may help.
    pub(super) fn fail(&mut self, id: &str, failure: Failure) -> Result<(), Need> {
        let failure = failure.within_depth();
        let place = self.place(id);
        let retry = self.definition.nodes[place].retry.clone();
        let attempt = self.state(id).attempt + 1;
        let may_help = match &retry.on {
            Some(codes) => codes.contains(&failure.code),
            None => failure.retryable == Some(true),
        };
        if !may_help || attempt >= retry.max_attempts {
            return self.fail_for_good(id, failure);
        }
        let spaced = Backoff {
            first: std::time::Duration::from_millis(retry.backoff_ms),
            max: std::time::Duration::from_millis(retry.max_backoff_ms.max(retry.backoff_ms)),
        };
        // Pure: the same attempt of the same node always waits the same time.
        let spread = self.run.created.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(attempt);
        let delay = u64::try_from(spaced.delay(attempt, spread).as_millis()).unwrap_or(u64::MAX);
        let until = self.now.as_millis().saturating_add(delay);
        let state = self.state(id);
        (state.status, state.until, state.retries) = (NodeStatus::Waiting, Some(until), true);
        state.attempt = attempt;
        let payload =
            payload! {"nodeId": id, "attempt": attempt, "delayMs": delay, "lastError": failure};
        self.tell(Kind::NodeRetried, Some(id), payload);
        Ok(())
    }

    /// A node has failed, and that is that.
    pub(super) fn fail_for_good(&mut self, id: &str, failure: Failure) -> Result<(), Need> {
        let failure = failure.within_depth();
        let now = self.now.as_millis();
        let state = self.state(id);
        (state.status, state.ended, state.until) = (NodeStatus::Failed, Some(now), None);
        state.error = Some(failure.clone());
        let attempts = state.attempt + 1;
        let payload = payload! {"nodeId": id, "error": failure, "attempts": attempts};
        self.tell(Kind::NodeFailed, Some(id), payload);
        let place = self.place(id);
        if self.definition.nodes[place].failure_is_handled {
            return Ok(());
        }
        self.fail_run(failure, Some(id))
    }

    /// It is not a node's turn, and never will be.
    pub(super) fn skip(&mut self, place: usize, reason: &str) {
        self.left = self.left.saturating_sub(1);
        let id = self.definition.nodes[place].id.clone();
        let mut state = NodeState::begun(NodeStatus::Skipped, 0, self.now);
        state.ended = Some(self.now.as_millis());
        self.run.nodes.insert(id.clone(), state);
        self.tell(Kind::NodeSkipped, Some(&id), payload! {"nodeId": id, "reason": reason});
    }

    /// A node that its author left out: the run goes on as if it had nothing to do.
    pub(super) fn leave_out(&mut self, id: &str) -> Result<(), Need> {
        let mut state = NodeState::begun(NodeStatus::Completed, 0, self.now);
        (state.ended, state.outputs) = (Some(self.now.as_millis()), Some(Map::new()));
        self.run.nodes.insert(id.to_owned(), state);
        self.tell(Kind::NodeSkipped, Some(id), payload! {"nodeId": id, "reason": "disabled"});
        Ok(())
    }

    /// The run has begun as many nodes as it may.
    pub(super) fn too_many(&mut self, id: &str) -> Result<(), Need> {
        let (limit, observed) = (self.run.executions_max, self.run.executions.saturating_add(1));
        let payload = payload! {
            "kind": "node-executions", "limit": limit, "observed": observed, "nodeId": id,
        };
        self.tell(Kind::CapBreached, Some(id), payload);
        let text = format!("the run may execute {limit} nodes, and has");
        self.fail_run(Failure::new("recursion_limit_exceeded", text), None)
    }

    pub(super) fn complete_run(&mut self) -> Result<(), Need> {
        self.run.status = Status::Completed;
        self.run.ended = Some(self.now.as_millis());
        let outputs = self.definition.shown_values(&self.run.variables);
        let payload = payload! {"outputs": outputs};
        self.tell(Kind::RunCompleted, None, payload);
        Ok(())
    }

    pub(crate) fn fail_run(&mut self, failure: Failure, node: Option<&str>) -> Result<(), Need> {
        let failure = failure.within_depth();
        self.end_nodes("run-failed");
        self.end_children("parent-failed")?;
        self.run.status = Status::Failed;
        self.run.ended = Some(self.now.as_millis());
        let mut payload = payload! {"error": failure};
        if let Some(node) = node {
            payload.add("failedNodeId", &node);
        }
        self.run.error = Some(failure);
        self.tell(Kind::RunFailed, None, payload);
        Ok(())
    }

    /// Ends every node that has begun and not ended.
    pub(super) fn end_nodes(&mut self, reason: &str) {
        let now = self.now.as_millis();
        let open = self.run.nodes.iter().filter(|(_, state)| !state.status.is_settled());
        for id in open.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            let state = self.state(&id);
            (state.status, state.ended, state.until) = (NodeStatus::Cancelled, Some(now), None);
            let payload = payload! {"nodeId": id, "reason": reason};
            self.tell(Kind::NodeCancelled, Some(&id), payload);
        }
    }

    /// Ends the runs that are part of this one, in the same commit.
    pub(super) fn end_children(&mut self, reason: &str) -> Result<(), Need> {
        for child in self.run.children.clone() {
            // One that began in this very step is not in the store yet.
            let fresh = self.others.iter().position(|other| other.run.id == child);
            let (run, told) = match fresh.map(|at| self.others.remove(at)) {
                Some(Changed { run, events }) => (Some(run), events),
                None => (self.world.run(&child)?, Vec::new()),
            };
            let Some(run) = run else { continue };
            let definition = self.world.definition(&run.definition)?;
            let Some(definition) = definition.filter(|_| !run.status.is_terminal()) else {
                continue;
            };
            let mut machine = Machine::new(run, definition, self.world, self.now);
            machine.cancel_by_parent(&self.run.id, reason)?;
            let mut ended = machine.done();
            ended.own.events.splice(0..0, told);
            self.others.push(ended.own);
            self.others.extend(ended.others);
        }
        Ok(())
    }
}
