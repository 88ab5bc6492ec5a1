//! The beginning of a node: what it is given, and what it does if that stays inside the store.

#![allow(clippy::unnecessary_wraps, reason = "what ends a node may have to read more")]

use base16ct::lower;
use onetake_engine::Need;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{Known, Machine, World};
use crate::create::{self, NewRun};
use crate::definition::{Node, Port};
use crate::depth::are_too_deep;
use crate::event::{Kind, payload};
use crate::interrupt::{ACCEPT, Interrupt, InterruptKind, Quorum, REJECT, RejectionPolicy};
use crate::nodes::BuiltIn;
use crate::run::{Failure, Fork, ForkMode, NodeState, NodeStatus, Parent, Run};

/// The profile of a question that a token alone does not answer.
const AUTH_REQUIRED: &str = "openwop-interrupt-auth-required";
/// The most runs that are part of one: all of them end with it in one commit.
pub(crate) const CHILDREN_MAX: usize = 50;
/// The longest delay: a year.
const DELAY_MS_MAX: u64 = 365 * 24 * 60 * 60 * 1_000;

/// What a node is given: what was computed for this run, then what was written down.
pub(super) struct Given<'n> {
    inputs: Map<String, Value>,
    node: &'n Node,
}

impl Given<'_> {
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        let found = self.inputs.get(name).or_else(|| self.node.config.get(name));
        found.filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name).and_then(whole)
    }

    fn words(&self, name: &str) -> Vec<String> {
        let items = self.get(name).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    fn members(&self, name: &str) -> Map<String, Value> {
        self.get(name).and_then(Value::as_object).cloned().unwrap_or_default()
    }
}

/// A whole number, also one that was written with a point.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
fn whole(value: &Value) -> Option<u64> {
    let rounded = || value.as_f64().filter(|number| (0.0..9e15).contains(number));
    value.as_u64().or_else(|| rounded().map(|number| number as u64))
}

impl<W: World> Machine<'_, W> {
    /// Marks a node as begun, and tells.
    pub(super) fn start(&mut self, place: usize, attempt: u32) {
        let node = &self.definition.nodes[place];
        let (id, type_id) = (node.id.clone(), node.type_id.clone());
        let mut state = NodeState::begun(NodeStatus::Running, attempt, self.now);
        // Another try asks for the same as the one before, and makes the calls that it made.
        if let Some(before) = self.run.nodes.remove(&id) {
            state.first_since = before.first_since.or(Some(before.since));
            (state.given, state.repeats) = (before.given, before.repeats);
        }
        self.run.nodes.insert(id.clone(), state);
        let payload = payload! {"nodeId": id, "typeId": type_id, "attempt": attempt};
        self.tell(Kind::NodeStarted, Some(&id), payload);
    }

    /// Begins the node at `place`, for the `attempt`-th time.
    pub(super) fn begin(&mut self, place: usize, attempt: u32) -> Result<(), Need> {
        self.left = self.left.saturating_sub(1);
        let definition = std::sync::Arc::clone(&self.definition);
        let node = &definition.nodes[place];
        if node.disabled {
            return self.leave_out(&node.id);
        }
        if self.run.executions >= self.run.executions_max {
            return self.too_many(&node.id);
        }
        self.run.executions += 1;
        self.start(place, attempt);
        if let Some(missing) = missing_capability(node) {
            let text = format!("the host does not provide {missing}");
            let failure = Failure::new("capability_not_provided", text);
            return self.fail(&node.id, failure.with("capability", missing));
        }
        let given = match given(&self.run, node) {
            Ok(inputs) => Given { inputs, node },
            Err(failure) => return self.fail(&node.id, failure),
        };
        let Some(built_in) = BuiltIn::of(&node.type_id) else {
            return self.begin_outside(node, &given);
        };
        if built_in.has_effects() && self.is_replay() {
            return self.recorded(&node.id);
        }
        self.perform(built_in, node, &given)
    }

    fn perform(&mut self, built_in: BuiltIn, node: &Node, given: &Given<'_>) -> Result<(), Need> {
        match built_in {
            BuiltIn::Noop | BuiltIn::Effect => self.complete(&node.id, Map::new()),
            BuiltIn::Identity => self.complete(&node.id, given.inputs.clone()),
            BuiltIn::Transform => self.transform(node),
            BuiltIn::ChannelWrite => self.write_channel(node, given),
            BuiltIn::Fail => {
                let code = given.text("code").unwrap_or("intentional_failure");
                let message = given.text("message").unwrap_or("the node fails on purpose");
                let retryable = given.get("retryable").and_then(Value::as_bool);
                let failure = Failure::new(code, message);
                self.fail(&node.id, Failure { retryable: retryable.or(Some(false)), ..failure })
            }
            BuiltIn::Delay => {
                let span = given.number("delayMs").unwrap_or(0).min(DELAY_MS_MAX);
                let until = self.now.as_millis().saturating_add(span);
                let state = self.state(&node.id);
                (state.status, state.until) = (NodeStatus::Waiting, Some(until));
                Ok(())
            }
            BuiltIn::Approval => self.ask(node, given, InterruptKind::Approval),
            BuiltIn::Clarification => self.ask(node, given, InterruptKind::Clarification),
            BuiltIn::Interrupt => self.ask(node, given, kind_of(given)),
            BuiltIn::SubWorkflow => self.delegate(node, given),
            BuiltIn::Http => self.begin_outside(node, given),
        }
    }

    /// A node that is executed outside the store, by somebody who knows how.
    fn begin_outside(&mut self, node: &Node, given: &Given<'_>) -> Result<(), Need> {
        if !self.world.is_outside(&node.type_id) {
            let text = format!("this host knows no node of the type {}", node.type_id);
            return self.fail(&node.id, Failure::new("unknown_node_type", text));
        }
        if self.is_replay() {
            return self.recorded(&node.id);
        }
        self.state(&node.id).given.get_or_insert_with(|| given.inputs.clone());
        Ok(())
    }

    fn is_replay(&self) -> bool {
        matches!(&self.run.fork, Some(Fork { mode: ForkMode::Replay, .. }))
    }

    /// What the run that this one repeats has recorded of the node.
    fn recorded(&mut self, id: &str) -> Result<(), Need> {
        let source = match &self.run.fork {
            Some(fork) => self.world.run(&fork.source)?,
            None => None,
        };
        let state = source.and_then(|mut source| source.nodes.remove(id));
        match state {
            Some(NodeState { status: NodeStatus::Completed, outputs, .. }) => {
                let outputs = outputs.unwrap_or_default();
                let mapped = outputs.get("mapped").and_then(Value::as_object).cloned();
                for (name, value) in mapped.into_iter().flatten() {
                    self.set_variable(&name, value);
                }
                self.complete(id, outputs)
            }
            Some(NodeState { status: NodeStatus::Failed, error: Some(error), .. }) => {
                self.fail_for_good(id, error)
            }
            Some(_) | None => {
                let text = "the run that is repeated recorded no outcome of this node";
                self.fail_for_good(id, Failure::new("replay_source_missing", text))
            }
        }
    }

    fn transform(&mut self, node: &Node) -> Result<(), Need> {
        let known = self.known();
        let mut outputs = Map::new();
        for (name, expression) in &node.sets {
            match expression.evaluate(&known.values()) {
                Ok(value) => drop(outputs.insert(name.clone(), value)),
                Err(error) => {
                    return self
                        .fail(&node.id, Failure::new("transform_failed", error.to_string()));
                }
            }
        }
        // What is too deep is said below, and must not be kept before that.
        if !are_too_deep(&outputs) {
            for (name, value) in outputs.clone() {
                self.set_variable(&name, value);
            }
        }
        self.complete(&node.id, outputs)
    }

    fn write_channel(&mut self, node: &Node, given: &Given<'_>) -> Result<(), Need> {
        let channel = given.text("channel").unwrap_or("default").to_owned();
        let value = given.get("value").cloned().unwrap_or(Value::Null);
        let now = self.now.as_millis();
        let entries = self.run.channels.entry(channel.clone()).or_insert_with(|| json!([]));
        if let Some(entries) = entries.as_array_mut() {
            if let Some(ttl) = given.number("ttlMs") {
                entries.retain(|entry| {
                    let written = entry.get("_ts").and_then(Value::as_u64).unwrap_or(0);
                    written.saturating_add(ttl) > now
                });
            }
            entries.push(json!({"value": value, "_ts": now}));
        }
        let whole = entries.clone();
        self.run.variables.insert(channel.clone(), whole);
        let payload = payload! {"nodeId": node.id, "channel": channel, "value": value};
        self.tell(Kind::ChannelWritten, Some(&node.id), payload);
        self.complete(&node.id, Map::from_iter([("value".to_owned(), value)]))
    }

    fn ask(&mut self, node: &Node, given: &Given<'_>, kind: InterruptKind) -> Result<(), Need> {
        let mut actions = given.words("actions");
        let quorum = (kind == InterruptKind::Approval).then(|| {
            if actions.is_empty() {
                actions = vec![ACCEPT.to_owned(), REJECT.to_owned()];
            }
            Quorum {
                required: given
                    .number("requiredApprovals")
                    .and_then(|number| u32::try_from(number).ok())
                    .map_or(1, |number| number.max(1)),
                rejection: match given.text("rejectionPolicy") {
                    Some("majority") => RejectionPolicy::Majority,
                    Some("all" | "unanimous") => RejectionPolicy::All,
                    Some(_) | None => RejectionPolicy::Any,
                },
                approvers: given.words("approversList"),
                votes: std::collections::BTreeMap::new(),
            }
        });
        let key = given.text("key").unwrap_or(&node.id).to_owned();
        let questions = given.get("questions").and_then(Value::as_array).into_iter().flatten();
        let questions = questions.filter_map(|question| question.get("id")?.as_str());
        let interrupt = Interrupt {
            id: self.interrupt_id(&node.id),
            kind,
            key,
            data: data_of(given),
            requested: self.now.as_millis(),
            timeout_ms: given.number("timeoutMs").filter(|span| *span > 0),
            actions,
            quorum,
            questions: questions.map(str::to_owned).collect(),
            correlation: correlation(given),
            unknown: None,
            auth_required: given.get("authRequired") == Some(&json!(true))
                || given.text("profile") == Some(AUTH_REQUIRED),
        };
        self.suspend(&node.id, interrupt);
        Ok(())
    }

    /// Names the word that a node waits for: the same whenever the step is computed again.
    pub(super) fn interrupt_id(&self, node: &str) -> String {
        let attempt = self.run.node(node).map_or(0, |state| state.attempt);
        let text = format!("{}\0{node}\0{attempt}\0{}", self.run.id, self.run.events);
        let digest = lower::encode_string(&Sha256::digest(text));
        format!("int-{}", &digest[..32])
    }

    fn delegate(&mut self, node: &Node, given: &Given<'_>) -> Result<(), Need> {
        let name = given.text("workflowId").unwrap_or_default().to_owned();
        let Some(definition) = self.world.workflow(&name) else {
            let text = format!("there is no workflow {name:?}");
            return self.fail(&node.id, Failure::new("workflow_not_found", text));
        };
        let depth = self.run.parent.as_ref().map_or(0, |parent| parent.depth) + 1;
        let is_many = self.run.children.len() >= CHILDREN_MAX;
        if depth > self.world.bounds().depth_max || is_many {
            let text = "too many runs are part of one another";
            return self.fail(&node.id, Failure::new("recursion_limit_exceeded", text));
        }
        let mut inputs = given.members("inputs");
        for (child, from) in given.members("inputMapping") {
            let value = from.as_str().and_then(|name| self.run.variables.get(name));
            inputs.extend(value.map(|value| (child, value.clone())));
        }
        let attempt = self.run.node(&node.id).map_or(0, |state| state.attempt);
        let parent = Parent { run: self.run.id.clone(), node: node.id.clone(), depth };
        let id = create::child_id(&self.run.id, &node.id, attempt, self.now);
        let new = NewRun {
            parent: Some(parent),
            ..NewRun::of(id.clone(), self.run.owner.clone(), inputs)
        };
        let child = match create::run(new, &definition, self.world.bounds(), self.now) {
            Ok(child) => child,
            Err(refused) => {
                return self.fail(&node.id, Failure::new("child_refused", refused.to_string()));
            }
        };
        self.others.push(child);
        self.begun_with.push(definition);
        self.run.children.push(id.clone());
        let waits = given.get("waitForCompletion") != Some(&json!(false));
        let state = self.state(&node.id);
        state.child = Some(id.clone());
        if waits {
            state.status = NodeStatus::Delegated;
            return Ok(());
        }
        self.complete(&node.id, Map::from_iter([("childRunId".to_owned(), json!(id))]))
    }

    /// Goes on with a node whose own run has ended.
    pub(super) fn look_at_child(&mut self, id: &str, child: Option<&str>) -> Result<(), Need> {
        let found = match child {
            Some(child) => self.world.run(child)?,
            None => None,
        };
        let Some(child) = found else {
            let text = "the run that the node waited for is gone";
            return self.fail(id, Failure::new("child_missing", text));
        };
        self.state(id).child_status = Some(child.status);
        if !child.status.is_terminal() {
            return Ok(());
        }
        self.left = self.left.saturating_sub(1);
        self.ended.extend(child.ended.map(|at| (at, child.id.clone())));
        let definition = std::sync::Arc::clone(&self.definition);
        let node = &definition.nodes[self.place(id)];
        let goes_on = node.config.get("onChildFailure").and_then(Value::as_str) == Some("continue");
        if child.status != crate::run::Status::Completed && !goes_on {
            let error = child.error.unwrap_or_else(|| {
                Failure::new("child_cancelled", "the run that the node waited for was cancelled")
            });
            return self.fail(id, error.with("childRunId", child.id));
        }
        let mapping = node.config.get("outputMapping").and_then(Value::as_object);
        let mut mapped = Map::new();
        for (ours, theirs) in mapping.into_iter().flatten() {
            let value = theirs.as_str().and_then(|name| child.variables.get(name));
            if let Some(value) = value.cloned() {
                self.set_variable(ours, value.clone());
                mapped.insert(ours.clone(), value);
            }
        }
        let outputs = json!({
            "childRunId": child.id, "childStatus": child.status.as_str(), "mapped": mapped,
        });
        self.complete(id, outputs.as_object().cloned().unwrap_or_default())
    }
}

/// The inputs of a node, as they are now.
pub(crate) fn given(run: &Run, node: &Node) -> Result<Map<String, Value>, Failure> {
    let mut known = None;
    let mut given = Map::new();
    let missing = |what: String| Failure::new("input_missing", what);
    for (name, port) in &node.inputs {
        let value = match port {
            Port::Static(value) => Some(value.clone()),
            Port::Expression(expression) => {
                let known = known.get_or_insert_with(|| Known::of(run));
                let value = expression.evaluate(&known.values());
                Some(value.map_err(|error| missing(error.to_string()))?)
            }
            Port::Connection { node, output, optional } => {
                let outputs = run.node(node).and_then(|state| state.outputs.as_ref());
                let found = outputs.and_then(|outputs| outputs.get(output));
                if found.is_none() && !optional {
                    return Err(missing(format!("node {node:?} has no output {output:?}")));
                }
                found.cloned()
            }
            Port::Variable { name, optional } => {
                let found = run.variables.get(name);
                if found.is_none() && !optional {
                    return Err(missing(format!("there is no variable {name:?}")));
                }
                found.cloned()
            }
        };
        given.extend(value.map(|value| (name.clone(), value)));
    }
    Ok(given)
}

/// What the host lacks for a node.
fn missing_capability(node: &Node) -> Option<&str> {
    /// Nobody ever provides it; a node of this type shows what happens then.
    const NEVER: &str = "conformance.never-provided";
    if node.type_id == "conformance.requiresMissing" {
        return Some(NEVER);
    }
    let config = node.config.get("requires").and_then(Value::as_array).into_iter().flatten();
    let named = node.requires.iter().map(String::as_str).chain(config.filter_map(Value::as_str));
    let mut missing = named.filter(|name| !crate::nodes::PROVIDED.contains(name));
    missing.next()
}

fn kind_of(given: &Given<'_>) -> InterruptKind {
    match given.text("kind") {
        Some("approval") => InterruptKind::Approval,
        Some("clarification") => InterruptKind::Clarification,
        Some("external-event") => InterruptKind::ExternalEvent,
        Some(_) | None => InterruptKind::Custom,
    }
}

/// What those should know who are asked.
fn data_of(given: &Given<'_>) -> Value {
    const SHOWN: [&str; 8] = [
        "title",
        "description",
        "actions",
        "questions",
        "requiredApprovals",
        "approversList",
        "artifactId",
        "artifactType",
    ];
    let mut data = given.members("data");
    for name in SHOWN {
        if let Some(value) = given.get(name) {
            data.entry(name).or_insert_with(|| value.clone());
        }
    }
    Value::Object(data)
}

/// What an event must hold: `correlation` as it is, or one name and one value.
fn correlation(given: &Given<'_>) -> Map<String, Value> {
    let named = given.text("correlationKey").zip(given.get("correlationValue"));
    let named = named.map(|(name, value)| (name.to_owned(), value.clone()));
    let shown = given.members("data").remove("correlation");
    let shown = shown.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    given.members("correlation").into_iter().chain(shown).chain(named).collect()
}
