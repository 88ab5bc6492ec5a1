//! A run as it is kept: one document, which every step of it replaces.
//!
//! Plain data. What may happen to it is `machine.rs`, where it is kept is `books.rs`, what others
//! see of it is `snapshot.rs`. Invariant: the number of its events is the length of its lane, so an
//! event's place is known before it is written.

use std::collections::BTreeMap;

use onetake_core::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::depth::{DEPTH_MAX, are_too_deep};
use crate::interrupt::Interrupt;

/// The format of a kept run. A later release that changes its meaning raises it.
pub(crate) const FORMAT: u8 = 1;

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It was created, and has not begun.
    Pending,
    /// It goes on.
    Running,
    /// It was told to rest.
    Paused,
    /// It waits for an approval.
    WaitingApproval,
    /// It waits for answers.
    WaitingInput,
    /// It waits for something to happen elsewhere.
    WaitingExternal,
    /// It was told to end, and something of it is still under way.
    Cancelling,
    /// It has come to its end.
    Completed,
    /// It failed.
    Failed,
    /// It was told to end, and has.
    Cancelled,
}

impl Status {
    /// Whether nothing happens any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Whether it waits for somebody's word.
    #[must_use]
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::WaitingApproval | Self::WaitingInput | Self::WaitingExternal)
    }

    /// What it is called.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::WaitingApproval => "waiting-approval",
            Self::WaitingInput => "waiting-input",
            Self::WaitingExternal => "waiting-external",
            Self::Cancelling => "cancelling",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why a run or a node failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The code.
    pub code: String,
    /// What happened.
    pub message: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Map<String, Value>>,
    /// Whether trying again may help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

impl Failure {
    /// A failure that would be the same again.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        let (code, message) = (code.to_owned(), message.into());
        Self { code, message, details: None, retryable: Some(false) }
    }

    /// A failure that may pass.
    pub fn passing(code: &str, message: impl Into<String>) -> Self {
        Self { retryable: Some(true), ..Self::new(code, message) }
    }

    /// The same, without what is nested deeper than can be read again: a provider may have said it.
    #[must_use]
    pub(crate) fn within_depth(mut self) -> Self {
        if self.details.as_ref().is_some_and(are_too_deep) {
            let text = format!("left out: nested more than {DEPTH_MAX} deep");
            self.details = Some(Map::from_iter([("note".to_owned(), text.into())]));
        }
        self
    }

    /// The same, with more about it.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.get_or_insert_default().insert(name.to_owned(), value.into());
        self
    }
}

/// Where a node of a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    /// It is being executed outside the store.
    Running,
    /// It waits for a point in time: a delay, or the next try.
    Waiting,
    /// It waits for somebody's word.
    Suspended,
    /// It waits for a run of its own.
    Delegated,
    /// It has succeeded.
    Completed,
    /// It has failed for good.
    Failed,
    /// It was not its turn.
    Skipped,
    /// The run ended before it did.
    Cancelled,
}

impl NodeStatus {
    /// Whether it is over.
    #[must_use]
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Skipped | Self::Cancelled)
    }
}

/// What a run says of one of its nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeState {
    /// Where it stands.
    pub status: NodeStatus,
    /// How often it was tried before, from zero.
    #[serde(default)]
    pub attempt: u32,
    /// When it began, in milliseconds.
    pub since: u64,
    /// When it began first, where it was tried again, or somebody's word let it begin once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_since: Option<u64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Until when it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// Whether what it waits for is its next try.
    #[serde(default, skip_serializing_if = "is_false")]
    pub retries: bool,
    /// The call whose outcome is unknown and that may be made again: somebody who knows said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovers: Option<String>,
    /// Whether all its calls may be made again, although they may be forgotten: somebody who knows
    /// said so.
    #[serde(default, skip_serializing_if = "is_false")]
    pub repeats: bool,
    /// What it was given, where that leaves the store: a node that is executed again asks for the
    /// same, whatever has become of the variables since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Map<String, Value>>,
    /// What it came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Map<String, Value>>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Whose word it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<Interrupt>,
    /// The run that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
    /// Where that run stood when it was last looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_status: Option<Status>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "it is what serde calls")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl NodeState {
    /// A node that begins at `now`.
    #[must_use]
    pub const fn begun(status: NodeStatus, attempt: u32, now: Timestamp) -> Self {
        Self {
            status,
            attempt,
            since: now.as_millis(),
            first_since: None,
            ended: None,
            until: None,
            retries: false,
            recovers: None,
            repeats: false,
            given: None,
            outputs: None,
            error: None,
            interrupt: None,
            child: None,
            child_status: None,
        }
    }
}

/// Who created a run, and for whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The tenant.
    pub tenant: String,
    /// The subject, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// The run whose node created this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The run.
    pub run: String,
    /// Its node.
    pub node: String,
    /// How many runs are above this one.
    pub depth: u32,
}

/// How a run goes on from another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForkMode {
    /// It repeats what the other one recorded, and has no effects of its own.
    Replay,
    /// It goes its own way from there.
    Branch,
}

/// Where a run comes from, when it was forked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// The run that it was made of.
    pub source: String,
    /// Up to which of its events.
    pub from_seq: u64,
    /// How it goes on.
    pub mode: ForkMode,
}

/// What is under way when a run is told to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Drain {
    /// It rests at once; what is under way is recorded, and nothing follows from it.
    Immediate,
    /// The node that is under way ends first.
    DrainCurrentNode,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The format in which it is kept.
    pub format: u8,
    /// Its name.
    pub id: String,
    /// The workflow.
    pub workflow: String,
    /// Which definition of it.
    pub definition: String,
    /// Whose it is.
    pub owner: Owner,
    /// Where it stands.
    pub status: Status,
    /// What it was given.
    #[serde(default)]
    pub inputs: Map<String, Value>,
    /// Its variables.
    #[serde(default)]
    pub variables: Map<String, Value>,
    /// Its channels.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub channels: Map<String, Value>,
    /// What was set for this run alone.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub configurable: Map<String, Value>,
    /// What whoever created it calls it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// What whoever created it says of it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Whoever created it means by this, and nobody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope_id: Option<String>,
    /// Its nodes that have begun, by name.
    #[serde(default)]
    pub nodes: BTreeMap<String, NodeState>,
    /// When it was created, in milliseconds.
    pub created: u64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// When it is too late for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// How many nodes have begun.
    #[serde(default)]
    pub executions: u32,
    /// How many may.
    pub executions_max: u32,
    /// The place of its first event: a run that goes on from another one counts on.
    #[serde(default)]
    pub first: u64,
    /// How many events there are.
    pub events: u64,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Why it was told to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether it is to rest once what is under way has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pausing: Option<Drain>,
    /// Since when it rests, and how it came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<(u64, Drain)>,
    /// The run that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The runs that are part of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<String>,
    /// The run that it was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<Fork>,
    /// The host that executes its nodes, while its lease runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// When it is looked at next, where its name stands in the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
}

impl Run {
    /// The state of a node, if it has begun.
    #[must_use]
    pub fn node(&self, id: &str) -> Option<&NodeState> {
        self.nodes.get(id)
    }

    /// The node that waits for somebody's word, if one does: the first by name.
    #[must_use]
    pub fn suspended(&self) -> Option<(&str, &Interrupt)> {
        self.nodes.iter().find_map(|(id, state)| match (&state.status, &state.interrupt) {
            (NodeStatus::Suspended, Some(interrupt)) => Some((id.as_str(), interrupt)),
            _ => None,
        })
    }

    /// The node that is to be seen as the current one.
    #[must_use]
    pub fn current(&self) -> Option<&str> {
        let begun = self.nodes.iter().find(|(_, state)| !state.status.is_settled());
        self.suspended().map(|(id, _)| id).or_else(|| begun.map(|(id, _)| id.as_str()))
    }

    /// The place behind its last event.
    #[must_use]
    pub const fn next_sequence(&self) -> u64 {
        self.first + self.events
    }

    /// The nodes that are to be executed outside the store.
    pub fn outside(&self) -> impl Iterator<Item = (&str, &NodeState)> {
        let running = self.nodes.iter().filter(|(_, state)| state.status == NodeStatus::Running);
        running.map(|(id, state)| (id.as_str(), state))
    }

    /// When something happens to it by itself: the end of a delay, of a wait, or of its time.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        if self.status.is_terminal() || self.status == Status::Paused {
            return None;
        }
        let waits = self.nodes.values().filter_map(|state| match state.status {
            NodeStatus::Waiting => state.until,
            NodeStatus::Suspended => state.interrupt.as_ref().and_then(Interrupt::ends),
            NodeStatus::Running
            | NodeStatus::Delegated
            | NodeStatus::Completed
            | NodeStatus::Failed
            | NodeStatus::Skipped
            | NodeStatus::Cancelled => None,
        });
        waits.chain(self.overdue_from()).min()
    }

    /// From when on it has taken longer than it may: what takes just that long is in time.
    pub(crate) fn overdue_from(&self) -> Option<u64> {
        self.deadline.map(|deadline| deadline.saturating_add(1))
    }
}
