//! What others see of a run.
//!
//! Leaves out what is nobody's business: values of variables that are marked as sensitive, and what
//! the host keeps for itself.

use serde_json::{Map, Value, json};

use crate::clock::rfc3339;
use crate::definition::Definition;
use crate::interrupt::Interrupt;
use crate::run::{Failure, NodeState, NodeStatus, Run};
use crate::token::Tokens;

/// What a snapshot is made with.
pub(crate) struct Frame<'f> {
    pub(crate) definition: Option<&'f Definition>,
    pub(crate) tokens: &'f Tokens,
    /// Where the host is reached, if that is known.
    pub(crate) url: &'f str,
    pub(crate) now_ms: u64,
    /// Whether whoever looks may also answer.
    pub(crate) may_answer: bool,
}

/// A run as others see it.
pub(crate) fn snapshot(run: &Run, frame: &Frame<'_>) -> Value {
    let shown = |map: &Map<String, Value>| match frame.definition {
        Some(definition) => Value::Object(definition.shown_values(map).into_owned()),
        // Without its definition nobody can say what is whose business.
        None => Value::Object(Map::new()),
    };
    let nodes = run.nodes.iter().map(|(id, state)| (id.clone(), node(id, state, frame)));
    let mut seen = json!({
        "runId": run.id,
        "workflowId": run.workflow,
        "status": run.status.as_str(),
        "createdAt": rfc3339(run.created),
        "startedAt": rfc3339(run.created),
        "nodeStates": nodes.collect::<Map<_, _>>(),
        "variables": shown(&run.variables),
        "inputs": shown(&run.inputs),
        "channels": run.channels,
        "configurable": run.configurable,
        "tags": run.tags,
        "metadata": run.metadata,
        "owner": run.owner,
        "lastSequence": run.next_sequence().saturating_sub(1),
    });
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            seen[name] = value;
        }
    };
    add("currentNodeId", run.current().map(|node| json!(node)));
    add("completedAt", run.ended.map(|at| json!(rfc3339(at))));
    add("endedAt", run.ended.map(|at| json!(rfc3339(at))));
    // Whether a failure would pass is nobody's business once the run has ended by it.
    let error = run.error.clone().map(|error| Failure { retryable: None, ..error });
    add("error", error.map(|error| json!(error)));
    add("reason", run.reason.as_ref().map(|reason| json!(reason)));
    add("scopeId", run.scope_id.as_ref().map(|scope| json!(scope)));
    add("parentRunId", run.parent.as_ref().map(|parent| json!(parent.run)));
    add("parentNodeId", run.parent.as_ref().map(|parent| json!(parent.node)));
    let has_children = !run.children.is_empty();
    add("childRuns", has_children.then(|| children(run)));
    add("sourceRunId", run.fork.as_ref().map(|fork| json!(fork.source)));
    add("forkMode", run.fork.as_ref().map(|fork| json!(fork.mode)));
    add("interrupt", interrupt(run, frame));
    seen
}

/// The runs that are part of it, and where each stood when it was last looked at.
fn children(run: &Run) -> Value {
    let standing = |child: &String| {
        let mut nodes = run.nodes.values();
        nodes.find(|state| state.child.as_ref() == Some(child)).and_then(|state| state.child_status)
    };
    let one = |child: &String| {
        let status = standing(child).map_or("running", crate::run::Status::as_str);
        json!({"runId": child, "status": status})
    };
    Value::Array(run.children.iter().map(one).collect())
}

fn node(id: &str, state: &NodeState, frame: &Frame<'_>) -> Value {
    let status = match state.status {
        NodeStatus::Running | NodeStatus::Waiting | NodeStatus::Delegated => "running",
        NodeStatus::Suspended => "suspended",
        NodeStatus::Completed => "completed",
        NodeStatus::Failed => "failed",
        NodeStatus::Skipped => "skipped",
        NodeStatus::Cancelled => "cancelled",
    };
    let mut seen = json!({
        "status": status, "attempt": state.attempt, "startedAt": rfc3339(state.since),
    });
    if let Some(ended) = state.ended {
        seen["completedAt"] = json!(rfc3339(ended));
    }
    let place = frame.definition.and_then(|definition| Some((definition, definition.place(id)?)));
    if let (Some(outputs), Some((definition, place))) = (&state.outputs, place) {
        seen["outputs"] = Value::Object(definition.shown(place, outputs).into_owned());
    }
    if let Some(error) = &state.error {
        seen["error"] = json!(error);
    }
    if let Some(child) = &state.child {
        seen["childRunId"] = json!(child);
    }
    seen
}

/// What the run waits for, with a token for whoever is to answer.
fn interrupt(run: &Run, frame: &Frame<'_>) -> Option<Value> {
    let (node, waited) = run.suspended()?;
    // Who may not answer gets no token that does.
    let shown =
        Interrupt { auth_required: waited.auth_required || !frame.may_answer, ..waited.clone() };
    let token = frame.tokens.issue(&run.owner.tenant, &run.id, node, &shown, frame.now_ms);
    let url = frame.url.trim_end_matches('/');
    let mut seen = json!({
        "kind": waited.kind.as_str(),
        "nodeId": node,
        "interruptId": waited.id,
        "key": waited.key,
        "payload": waited.data,
        "data": waited.data,
        "requestedAt": rfc3339(waited.requested),
        "callbackUrl": format!("{url}/v1/interrupts/{token}"),
        "interruptToken": token,
    });
    if !waited.actions.is_empty() {
        seen["actions"] = json!(waited.actions);
    }
    if let Some(span) = waited.timeout_ms {
        seen["timeoutMs"] = json!(span);
    }
    if let Some(quorum) = &waited.quorum {
        let granted = quorum.votes.values().filter(|vote| *vote != "reject").count();
        seen["quorum"] = json!({"granted": granted, "required": quorum.required});
    }
    Some(seen)
}
