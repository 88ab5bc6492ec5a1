//! What is told of a run: the types of events, and an event as it is kept and sent.
//!
//! An event is written once, in the same commit as what it tells of, and never changes. Its place
//! in the lane of its run is its sequence.

use std::borrow::Cow;

use bytes::Bytes;
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
    pub kind: Cow<'static, str>,
    /// More about it.
    pub payload: Value,
    /// When.
    pub timestamp: String,
    /// Its place, from zero.
    pub sequence: u64,
    /// The version of its form.
    pub schema_version: u32,
    /// The release that wrote it.
    pub engine_version: Cow<'static, str>,
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
        Self::stamped(run, sequence, kind, node, payload, rfc3339(now.as_millis()))
    }

    /// The same, with its time as it is written: whoever tells much at once writes it once.
    #[must_use]
    pub(crate) fn stamped(
        run: &str,
        sequence: u64,
        kind: Kind,
        node: Option<&str>,
        payload: Value,
        timestamp: String,
    ) -> Self {
        Self {
            event_id: format!("{run}.{sequence}"),
            run_id: run.to_owned(),
            node_id: node.map(str::to_owned),
            kind: Cow::Borrowed(kind.as_str()),
            payload,
            timestamp,
            sequence,
            schema_version: SCHEMA_VERSION,
            engine_version: Cow::Borrowed(env!("CARGO_PKG_VERSION")),
        }
    }

    /// As it is kept. Events are most of what a run writes, and most of an event is names without
    /// anything to escape, so it is put together here and not member by member.
    #[must_use]
    pub(crate) fn to_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(USUAL_BYTES);
        put(&mut out, b"{\"eventId\":", &self.event_id);
        put(&mut out, b",\"runId\":", &self.run_id);
        if let Some(node) = &self.node_id {
            put(&mut out, b",\"nodeId\":", node);
        }
        put(&mut out, b",\"type\":", &self.kind);
        out.extend_from_slice(b",\"payload\":");
        serde_json::to_writer(&mut out, &self.payload).expect("invariant: it is JSON");
        put(&mut out, b",\"timestamp\":", &self.timestamp);
        let (sequence, version) = (self.sequence, self.schema_version);
        out.extend_from_slice(
            format!(",\"sequence\":{sequence},\"schemaVersion\":{version}").as_bytes(),
        );
        put(&mut out, b",\"engineVersion\":", &self.engine_version);
        out.push(b'}');
        out.into()
    }

    /// Whether it is the last of its run.
    #[must_use]
    pub(crate) fn is_terminal(&self) -> bool {
        Kind::named(&self.kind).is_some_and(Kind::is_terminal)
    }
}

/// About how long an event is.
const USUAL_BYTES: usize = 512;

/// Writes a member behind its name.
fn put(out: &mut Vec<u8>, name: &[u8], text: &str) {
    out.extend_from_slice(name);
    let is_special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // Without an early end: so it is read many bytes at a time.
    if text.bytes().fold(false, |is_any, byte| is_any | is_special(byte)) {
        return serde_json::to_writer(out, text).expect("invariant: text is JSON");
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
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

    #[test]
    fn what_is_kept_of_an_event_is_the_event() {
        let now = Timestamp::from_millis(1_700_000_000_123);
        for node in [None, Some("a"), Some("a \"b\" \\ \n\u{1} ä")] {
            for payload in [json!({}), json!({"x": [1, "\n", null], "ü": 2.5}), json!("text")] {
                let kind = Kind::NodeFailed;
                let event = Event::new("run-\"1\"", 3, kind, node, payload, now);
                let read: Event = serde_json::from_slice(&event.to_bytes()).unwrap();
                assert_eq!(read, event);
                let whole: Value = serde_json::from_slice(&event.to_bytes()).unwrap();
                assert_eq!(whole, serde_json::to_value(&event).unwrap());
            }
        }
    }
}
