//! What is told of a run: the types of events, and an event as it is kept and sent.
//!
//! An event is written once, in the same commit as what it tells of, and never changes. Its place
//! in the lane of its run is its sequence.

use onetake_core::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::rfc3339;

/// The version of events that is written.
const SCHEMA_VERSION: u32 = 1;

/// Declares the types of events and their names.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// What an event tells.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// Its name.
            #[must_use]
            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$kind,)*];
        }
    };
}

kinds! {
    /// The run has begun.
    RunStarted = "run.started",
    /// It has come to its end.
    RunCompleted = "run.completed",
    /// It failed.
    RunFailed = "run.failed",
    /// It was told to end.
    RunCancelled = "run.cancelled",
    /// It rests.
    RunPaused = "run.paused",
    /// It goes on.
    RunResumed = "run.resumed",
    /// A node has begun.
    NodeStarted = "node.started",
    /// A node has succeeded.
    NodeCompleted = "node.completed",
    /// A node has failed for good.
    NodeFailed = "node.failed",
    /// A node waits for somebody's word.
    NodeSuspended = "node.suspended",
    /// A node has got that word.
    NodeResumed = "node.resumed",
    /// A node is tried again.
    NodeRetried = "node.retried",
    /// It was not a node's turn.
    NodeSkipped = "node.skipped",
    /// A node was ended with its run.
    NodeCancelled = "node.cancelled",
    /// An approval is asked for.
    ApprovalRequested = "approval.requested",
    /// Somebody has decided.
    ApprovalReceived = "approval.received",
    /// Answers are asked for.
    ClarificationRequested = "clarification.requested",
    /// Answers have come.
    ClarificationResolved = "clarification.resolved",
    /// Somebody's word is asked for.
    InterruptRequested = "interrupt.requested",
    /// That word has come.
    InterruptResolved = "interrupt.resolved",
    /// A channel was written to.
    ChannelWritten = "channel.written",
    /// A variable has changed.
    VariableChanged = "variable.changed",
    /// A limit was passed.
    CapBreached = "cap.breached",
    /// Something worth knowing.
    LogAppended = "log.appended",
}

impl Kind {
    /// Whether it is the last event of a run.
    #[must_use]
    pub(crate) const fn is_terminal(self) -> bool {
        matches!(self, Self::RunCompleted | Self::RunFailed | Self::RunCancelled)
    }

    /// Whether those hear of it who follow how a run goes, and not every detail of it.
    #[must_use]
    pub(crate) const fn is_update(self) -> bool {
        !matches!(
            self,
            Self::NodeStarted | Self::NodeRetried | Self::VariableChanged | Self::LogAppended
        )
    }

    /// The kind of that name.
    #[must_use]
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }
}

/// An event.
#[allow(clippy::struct_field_names, reason = "it is what the contract calls it")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    /// Its name.
    pub event_id: String,
    /// The run.
    pub run_id: String,
    /// The node, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// What it tells.
    #[serde(rename = "type")]
    pub kind: String,
    /// More about it.
    pub payload: Value,
    /// When.
    pub timestamp: String,
    /// Its place, from zero.
    pub sequence: u64,
    /// The version of its form.
    pub schema_version: u32,
    /// The release that wrote it.
    pub engine_version: String,
}

impl Event {
    /// The event at `sequence` of a run.
    #[must_use]
    pub(crate) fn new(
        run: &str,
        sequence: u64,
        kind: Kind,
        node: Option<&str>,
        payload: Value,
        now: Timestamp,
    ) -> Self {
        Self {
            event_id: format!("{run}.{sequence}"),
            run_id: run.to_owned(),
            node_id: node.map(str::to_owned),
            kind: kind.as_str().to_owned(),
            payload,
            timestamp: rfc3339(now.as_millis()),
            sequence,
            schema_version: SCHEMA_VERSION,
            engine_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Whether it is the last of its run.
    #[must_use]
    pub(crate) fn is_terminal(&self) -> bool {
        Kind::named(&self.kind).is_some_and(Kind::is_terminal)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own_and_three_end_a_run() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.as_str()), Some(*kind));
        }
        let ends: Vec<_> = Kind::ALL.iter().filter(|kind| kind.is_terminal()).collect();
        assert_eq!(ends.len(), 3);
        assert!(ends.iter().all(|kind| kind.is_update()), "nobody may miss the end");
        assert_eq!(Kind::named("nothing"), None);
    }

    #[test]
    fn an_event_has_every_member_that_the_contract_names() {
        let now = Timestamp::from_millis(1_700_000_000_123);
        let event = Event::new("run-1", 3, Kind::NodeStarted, Some("a"), json!({"x": 1}), now);
        let written = serde_json::to_value(&event).unwrap();
        let expected = json!({
            "eventId": "run-1.3", "runId": "run-1", "nodeId": "a", "type": "node.started",
            "payload": {"x": 1}, "timestamp": "2023-11-14T22:13:20.123Z", "sequence": 3,
            "schemaVersion": 1, "engineVersion": env!("CARGO_PKG_VERSION"),
        });
        assert_eq!(written, expected);
    }
}
