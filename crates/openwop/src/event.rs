//! What is told of a run: the types of events, and an event as it is made, kept and sent.
//!
//! An event is written once, in the same commit as what it tells of, and never changes. Its place
//! in the lane of its run is its sequence. What that lane and that place say is not kept with it:
//! events are most of what a run writes, and names would be most of an event.

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

/// An event, as whoever reads it sees it.
#[allow(clippy::struct_field_names, reason = "it is what the contract calls it")]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    /// Its name.
    pub event_id: String,
    /// The run.
    pub run_id: String,
    /// The node, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    /// The event at `sequence` of `run`, as it was kept.
    pub(crate) fn read(kept: &[u8], run: &str, sequence: u64) -> Result<Self, serde_json::Error> {
        let Kept { payload, node, kind, at, by } = serde_json::from_slice(kept)?;
        Ok(Self {
            event_id: format!("{run}.{sequence}"),
            run_id: run.to_owned(),
            node_id: node,
            kind,
            payload,
            timestamp: rfc3339(at),
            sequence,
            schema_version: SCHEMA_VERSION,
            engine_version: by,
        })
    }

    /// Whether it is the last of its run.
    #[must_use]
    pub(crate) fn is_terminal(&self) -> bool {
        Kind::named(&self.kind).is_some_and(Kind::is_terminal)
    }
}

/// An event, as it is kept.
#[derive(Debug, Deserialize)]
struct Kept {
    payload: Value,
    node: Option<String>,
    kind: Cow<'static, str>,
    /// When, in milliseconds.
    at: u64,
    /// The release that wrote it.
    by: Cow<'static, str>,
}

/// What an event tells beside its kind: the members of a JSON object, written as they come. A name
/// must be added once. It is the beginning of the event that it will be part of.
#[derive(Debug)]
pub(crate) struct Payload(Vec<u8>);

/// How an event begins.
const BEGINNING: &[u8] = b"{\"payload\":{";

impl Payload {
    /// Nothing so far.
    pub(crate) fn new() -> Self {
        let mut out = Vec::with_capacity(USUAL_BYTES);
        out.extend_from_slice(BEGINNING);
        Self(out)
    }

    /// Adds a member.
    pub(crate) fn add(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        let is_first = self.0.len() == BEGINNING.len();
        self.0.extend_from_slice(if is_first { b"\"" } else { b",\"" });
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
        serde_json::to_writer(&mut self.0, value).expect("invariant: it is JSON");
    }
}

/// A payload with these members.
macro_rules! payload {
    ($($name:literal: $value:expr),* $(,)?) => {{
        #[allow(unused_mut, reason = "there may be nothing to add")]
        let mut payload = $crate::event::Payload::new();
        $(payload.add($name, &$value);)*
        payload
    }};
}
pub(crate) use payload;

/// An event that was just made.
#[derive(Debug, Clone)]
pub(crate) struct NewEvent {
    /// What it tells.
    pub(crate) kind: Kind,
    /// Its place, from zero.
    pub(crate) sequence: u64,
    /// As it is kept: JSON, but for what its place says.
    pub(crate) kept: Bytes,
}

impl NewEvent {
    /// The event at `sequence` of a run, at so many milliseconds.
    ///
    /// Its members are names without anything to escape, so it is put together here and not member
    /// by member.
    #[must_use]
    pub(crate) fn of(
        sequence: u64,
        kind: Kind,
        node: Option<&str>,
        payload: Payload,
        at: Timestamp,
    ) -> Self {
        let Payload(mut out) = payload;
        out.push(b'}');
        if let Some(node) = node {
            put(&mut out, b",\"node\":", node);
        }
        put(&mut out, b",\"kind\":", kind.as_str());
        out.extend_from_slice(b",\"at\":");
        put_number(&mut out, at.as_millis());
        put(&mut out, b",\"by\":", env!("CARGO_PKG_VERSION"));
        out.push(b'}');
        Self { kind, sequence, kept: out.into() }
    }

    /// As whoever hears of it at once sees it: this event of `run`. What is deeper than can be read
    /// was refused before, so there is one.
    pub(crate) fn seen(&self, run: &str) -> Result<Event, serde_json::Error> {
        Event::read(&self.kept, run, self.sequence)
    }
}

/// About how long an event is.
const USUAL_BYTES: usize = 384;

/// Writes a number.
fn put_number(out: &mut Vec<u8>, number: u64) {
    serde_json::to_writer(out, &number).expect("invariant: a number is JSON");
}

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

    fn seen(node: Option<&str>, payload: Payload) -> Event {
        let at = Timestamp::from_millis(1_700_000_000_123);
        NewEvent::of(3, Kind::NodeStarted, node, payload, at).seen("run-\"1\"").unwrap()
    }

    #[test]
    fn an_event_has_every_member_that_the_contract_names() {
        let event = seen(Some("a"), payload! {"x": 1, "y": [Some("z"), None]});
        let expected = json!({
            "eventId": "run-\"1\".3", "runId": "run-\"1\"", "nodeId": "a",
            "type": "node.started", "payload": {"x": 1, "y": ["z", null]},
            "timestamp": "2023-11-14T22:13:20.123Z", "sequence": 3,
            "schemaVersion": 1, "engineVersion": env!("CARGO_PKG_VERSION"),
        });
        assert_eq!(serde_json::to_value(&event).unwrap(), expected);
    }

    #[test]
    fn whatever_an_event_names_is_escaped() {
        for node in [None, Some("a"), Some("a \"b\" \\ \n\u{1} ä")] {
            for value in [json!({}), json!({"x": [1, "\n", null], "ü": 2.5}), json!("\u{7f}\"")] {
                let event = seen(node, payload! {"value": value});
                assert_eq!(event.node_id.as_deref(), node);
                assert_eq!(event.payload, json!({"value": value}));
            }
        }
        assert_eq!(seen(None, payload! {}).payload, json!({}));
    }
}
