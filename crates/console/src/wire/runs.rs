//! The JSON of the admin surface that is about runs of workflows.
//!
//! Words such as a status or the type of an event are those of the host, passed on as they are.
//! What a run was given and came to is for the operator who asked, never for a log.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// JSON that an operator may read and a log may not.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VeiledJson(pub Value);

impl fmt::Debug for VeiledJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VeiledJson")
    }
}

/// Which runs: the query of `GET /v1/runs`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunsAsk {
    /// Only those of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only those that stand so now, such as `running` or `waiting-approval`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Only those of this name, whosever they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Where an earlier page ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The most rows; 100 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// One page of runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunsPage {
    /// The rows: by tenant, the oldest run of each first.
    pub runs: Vec<RunRow>,
    /// Where to go on; absent at the end. A page may be empty and still have more behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The store's time, in milliseconds.
    pub now_ms: u64,
}

/// One run, without what it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRow {
    /// Whose it is.
    pub tenant: String,
    /// Its name.
    pub run: String,
    /// Of which workflow.
    pub workflow: String,
    /// Where it stands.
    pub status: String,
    /// The node that it is at, while it has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When it was created, on the store's clock.
    pub created_ms: u64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// How many events it has.
    pub events: u64,
}

/// One run with everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunShown {
    /// What a list says of it.
    #[serde(flatten)]
    pub row: RunRow,
    /// Who created it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Its nodes that have begun, in the order in which they did.
    pub nodes: Vec<NodeRow>,
    /// Whose word it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunFailure>,
    /// Why it was told to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The run that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The runs that are part of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<String>,
    /// What whoever created it calls it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// What it was given, as far as others may see it.
    pub inputs: VeiledJson,
    /// Its variables, as far as others may see them.
    pub variables: VeiledJson,
    /// The store's time, in milliseconds.
    pub now_ms: u64,
}

/// One node of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its name.
    pub node: String,
    /// Where it stands.
    pub status: String,
    /// Which try it is, counted from 1.
    pub attempt: u32,
    /// When it began, on the store's clock.
    pub since_ms: u64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunFailure>,
    /// The run that it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
}

/// Whose word a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// The node that waits.
    pub node: String,
    /// What for, such as `approval`.
    pub kind: String,
    /// What its author calls it.
    pub key: String,
    /// What can be said, where that is a choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
    /// What it says about it, such as whom to ask.
    #[serde(default)]
    pub data: VeiledJson,
    /// Since when, on the store's clock.
    pub since_ms: u64,
    /// Until when, where there is an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
}

/// Why a run or a node failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailure {
    /// The code.
    pub code: String,
    /// What happened.
    pub message: String,
}

/// Why a run is to end: the body of `POST …/cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CancelAsk {
    /// Why; whoever follows the run reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A run that an operator ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelDone {
    /// The run as it is now.
    #[serde(flatten)]
    pub row: RunRow,
    /// Whether it had been cancelled before, so that nothing was changed now.
    pub repeated: bool,
}

/// Which events: the query of `GET …/events`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventsAsk {
    /// From this sequence on; from the first unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// How long to wait for one where there is none yet, such as `20s`; not at all unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
}

/// Some events of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventsPage {
    /// The events as the host tells them, in order.
    pub events: Vec<VeiledJson>,
    /// Where to go on.
    pub next: u64,
    /// Where the run stands.
    pub status: String,
    /// Whether it has ended and these are its last.
    pub over: bool,
    /// Whether anybody may be driving it: a host in the process that answers, or another process
    /// that shares the store.
    pub driven: bool,
}
