//! Whose turn it is: which nodes may begin, and which never will.
//!
//! An edge is *open* while its source is not settled, then it is *live* or *dead*: dead when the
//! source was skipped, ended otherwise than the rule of the edge wants, or its condition does not
//! hold. A node begins when none of its edges is open any more and one of them is live, or as soon
//! as one is, where one is enough; it is skipped when all are dead, and when one that must succeed
//! leads from a failure. So two branches of a choice meet again behind it.

use serde_json::{Value, json};

use super::{Machine, World};
use crate::definition::{Edge, TriggerRule};
use crate::run::{Failure, NodeState, NodeStatus};

/// What becomes of a node that has not begun.
pub(super) enum Turn {
    /// It begins.
    Begin,
    /// It never will, for this reason.
    Skip(&'static str),
    /// Whether it may begin cannot be said.
    Fail(Failure),
}

/// What an edge says of its target.
enum Way {
    Open,
    Live,
    /// With whether that is because of a failure.
    Dead {
        failed: bool,
    },
}

impl<W: World> Machine<'_, W> {
    /// The first node that has not begun and has its turn.
    pub(super) fn next_turn(&self) -> Option<(usize, Turn)> {
        let waiting = self.definition.nodes.iter().enumerate();
        let mut waiting = waiting.filter(|(_, node)| !self.run.nodes.contains_key(&node.id));
        waiting.find_map(|(place, _)| self.turn(place).map(|turn| (place, turn)))
    }

    fn turn(&self, place: usize) -> Option<Turn> {
        let edges = self.definition.incoming(place);
        if edges.is_empty() {
            return Some(Turn::Begin);
        }
        let (mut open, mut live, mut failed, mut is_any) = (false, false, false, false);
        for edge in edges {
            match self.way(edge) {
                Ok(Way::Open) => open = true,
                Ok(Way::Live) => {
                    live = true;
                    is_any |= edge.rule.is_any();
                }
                Ok(Way::Dead { failed: by_failure }) => failed |= by_failure,
                Err(failure) => return Some(Turn::Fail(failure)),
            }
        }
        if live && is_any {
            return Some(Turn::Begin);
        }
        if open {
            return None;
        }
        Some(match (live, failed) {
            (true, false) => Turn::Begin,
            (_, true) => Turn::Skip("upstream-failed"),
            (false, false) => Turn::Skip("not-chosen"),
        })
    }

    fn way(&self, edge: &Edge) -> Result<Way, Failure> {
        let state = self.run.node(&edge.source).filter(|state| state.status.is_settled());
        let Some(state) = state else { return Ok(Way::Open) };
        let (succeeded, failed) = match state.status {
            NodeStatus::Completed => (true, false),
            NodeStatus::Failed => (false, true),
            NodeStatus::Skipped
            | NodeStatus::Cancelled
            | NodeStatus::Running
            | NodeStatus::Waiting
            | NodeStatus::Suspended
            | NodeStatus::Delegated => (false, false),
        };
        let fits = match edge.rule {
            TriggerRule::AllSuccess | TriggerRule::AnySuccess | TriggerRule::NoneFailed => {
                succeeded
            }
            TriggerRule::AnyFailed => failed,
            TriggerRule::AllComplete => succeeded || failed,
        };
        if !fits {
            // One success is enough for some, whatever the others came to.
            return Ok(Way::Dead { failed: failed && !edge.rule.is_any() });
        }
        let Some(condition) = &edge.condition else { return Ok(Way::Live) };
        let known = self.known();
        let (status, output, error) = result(state);
        let mut values = known.values().to_vec();
        values.extend([("status", &status), ("output", &output), ("error", &error)]);
        match condition.holds(&values) {
            Ok(true) => Ok(Way::Live),
            Ok(false) => Ok(Way::Dead { failed: false }),
            Err(error) => Err(Failure::new("condition_failed", error.to_string())),
        }
    }
}

fn result(state: &NodeState) -> (Value, Value, Value) {
    let status = json!(state.status);
    let output = state.outputs.clone().map_or(Value::Null, Value::Object);
    let error = state.error.as_ref().map_or(Value::Null, |error| json!(error));
    (status, output, error)
}
