//! Words that a run waits for: how they are asked for, and what follows when they come or do not.

use onetake_engine::Need;
use serde_json::{Value, json};

use super::{Machine, World};
use crate::clock::rfc3339;
use crate::event::{Kind, payload};
use crate::interrupt::{Heard, Interrupt, InterruptKind, REJECT, Unheard, rejected_by};
use crate::run::{Failure, NodeStatus, Status};

/// From how many events on a run hears nothing more: votes could be changed for ever.
const EVENTS_MAX: u64 = 50_000;

/// Why a word changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotHeard {
    /// Nothing of that name waits for one.
    NotFound,
    /// It came before.
    AlreadyResolved,
    /// The run ended without it.
    Ended(Status),
    /// It is another one than was meant.
    Stale,
    /// Its time has passed.
    Expired,
    /// What was said does not fit.
    Unheard(Unheard),
}

impl<W: World> Machine<'_, W> {
    /// A node waits for somebody's word.
    pub(super) fn suspend(&mut self, id: &str, interrupt: Interrupt) {
        let Interrupt { id: interrupt_id, kind, key, data, .. } = &interrupt;
        let payload = payload! {
            "nodeId": id, "interruptId": interrupt_id, "kind": kind.as_str(), "key": key,
        };
        self.tell(Kind::NodeSuspended, Some(id), payload);
        let mut asked = payload! {
            "runId": self.run.id, "nodeId": id, "interruptId": interrupt_id,
            "kind": kind.as_str(), "key": key, "data": data,
            "requestedAt": rfc3339(interrupt.requested),
        };
        if let Some(span) = interrupt.timeout_ms {
            asked.add("timeoutMs", &span);
        }
        self.tell(Kind::InterruptRequested, Some(id), asked);
        match kind {
            InterruptKind::Approval => {
                let payload = payload! {
                    "nodeId": id, "interruptId": interrupt_id, "actions": interrupt.actions,
                    "artifactId": data.get("artifactId").cloned().unwrap_or(json!(id)),
                    "artifactType": data.get("artifactType").cloned().unwrap_or(json!("none")),
                    "requiredApprovals": interrupt.quorum.as_ref().map_or(1, |q| q.required),
                    "title": data.get("title").cloned().unwrap_or(json!("")),
                };
                self.tell(Kind::ApprovalRequested, Some(id), payload);
            }
            InterruptKind::Clarification => {
                let questions = data.get("questions").cloned().unwrap_or(json!([]));
                let payload = payload! {
                    "nodeId": id, "interruptId": interrupt_id, "questions": questions,
                };
                self.tell(Kind::ClarificationRequested, Some(id), payload);
            }
            InterruptKind::ExternalEvent | InterruptKind::Custom => {}
        }
        let state = self.state(id);
        (state.status, state.interrupt) = (NodeStatus::Suspended, Some(interrupt));
    }

    /// Hears `value` for the node `id`, said by `by`; `which` names the word that is meant, where
    /// whoever says it knows.
    pub(crate) fn hear(
        &mut self,
        id: &str,
        which: Option<&str>,
        value: &Value,
        by: Option<&str>,
    ) -> Result<Result<(), NotHeard>, Need> {
        let Some(state) = self.run.node(id) else { return Ok(Err(NotHeard::NotFound)) };
        let Some(mut interrupt) = state.interrupt.clone() else {
            return Ok(Err(NotHeard::NotFound));
        };
        if which.is_some_and(|which| which != interrupt.id) {
            return Ok(Err(NotHeard::Stale));
        }
        if state.status != NodeStatus::Suspended {
            let is_resolved = state.status != NodeStatus::Cancelled;
            let ended = NotHeard::Ended(self.run.status);
            return Ok(Err(if is_resolved { NotHeard::AlreadyResolved } else { ended }));
        }
        if self.run.events >= EVENTS_MAX {
            let text = "the run has as many events as it may; end it".to_owned();
            return Ok(Err(NotHeard::Unheard(Unheard::Invalid(text))));
        }
        let is_many = interrupt.quorum.as_ref().is_some_and(|quorum| quorum.required > 1);
        if which.is_some() && is_many {
            // One person could hold any number of them.
            let text = "an approval that several must give needs a credential, not a token";
            return Ok(Err(NotHeard::Unheard(Unheard::NotAllowed(text.to_owned()))));
        }
        if interrupt.ends().is_some_and(|ends| ends <= self.now.as_millis()) {
            return Ok(Err(NotHeard::Expired));
        }
        let heard = match interrupt.hear(value, by) {
            Ok(heard) => heard,
            Err(unheard) => return Ok(Err(NotHeard::Unheard(unheard))),
        };
        let kind = interrupt.kind;
        if heard == Heard::Repeated {
            return Ok(Ok(()));
        }
        self.state(id).interrupt = Some(interrupt.clone());
        if kind == InterruptKind::Approval {
            self.tell_vote(id, value, by);
        }
        if heard == Heard::Counted {
            return Ok(Ok(()));
        }
        if kind == InterruptKind::Clarification {
            let answers = value.get("answers").unwrap_or(value);
            let payload = payload! {"nodeId": id, "answers": answers, "answeredBy": by};
            self.tell(Kind::ClarificationResolved, Some(id), payload);
        }
        self.tell_resolved(id, &interrupt, value, by);
        self.follow(id, heard, interrupt.unknown)?;
        Ok(Ok(()))
    }

    fn follow(&mut self, id: &str, heard: Heard, unknown: Option<String>) -> Result<(), Need> {
        match heard {
            Heard::Counted | Heard::Repeated => Ok(()),
            Heard::Completed(outputs) => self.complete(id, outputs),
            Heard::Failed(failure) => self.fail_for_good(id, failure),
            Heard::Again => {
                // A new time, so that it is another execution than the one whose end is unknown.
                let now = self.now.as_millis();
                let state = self.state(id);
                state.first_since.get_or_insert(state.since);
                (state.status, state.since) = (NodeStatus::Running, now);
                // Which call, or all of them where the log may have forgotten which there were.
                state.recovers = unknown.filter(|fence| !fence.is_empty());
                state.repeats |= state.recovers.is_none();
                Ok(())
            }
        }
    }

    fn tell_vote(&mut self, id: &str, value: &Value, by: Option<&str>) {
        let action = value.get("action").cloned().unwrap_or(Value::Null);
        let voter = value.get("voter").and_then(Value::as_str);
        let mut payload = payload! {
            "nodeId": id, "action": action,
            "decidedBy": by.or(voter).unwrap_or(&self.run.owner.tenant),
            "decidedAt": rfc3339(self.now.as_millis()),
        };
        for name in ["comment", "feedback", "refineFeedback", "voter"] {
            if let Some(said) = value.get(name) {
                payload.add(name, said);
            }
        }
        self.tell(Kind::ApprovalReceived, Some(id), payload);
    }

    fn tell_resolved(&mut self, id: &str, interrupt: &Interrupt, value: &Value, by: Option<&str>) {
        let mut payload = payload! {
            "nodeId": id, "interruptId": interrupt.id, "kind": interrupt.kind.as_str(),
            "key": interrupt.key, "resumeValue": value,
            "resolvedAt": rfc3339(self.now.as_millis()),
            "resolvedBy": by.unwrap_or(&self.run.owner.tenant),
        };
        if interrupt.kind == InterruptKind::Approval {
            let action = value.get("action").and_then(Value::as_str).unwrap_or_default();
            let decision = if action == REJECT { "rejected" } else { "approved" };
            payload.add("action", action);
            payload.add("decision", decision);
        }
        self.tell(Kind::InterruptResolved, Some(id), payload);
        let payload = payload! {"nodeId": id, "interruptId": interrupt.id, "resumeValue": value};
        self.tell(Kind::NodeResumed, Some(id), payload);
    }

    /// Nobody said anything in time. That never grants anything.
    pub(super) fn time_out(&mut self, id: &str) -> Result<(), Need> {
        let Some(interrupt) = self.state(id).interrupt.clone() else { return Ok(()) };
        let value = json!({"action": "timeout", "decision": "rejected", "reason": "timeout"});
        if interrupt.kind == InterruptKind::Approval {
            let at = rfc3339(self.now.as_millis());
            let payload = payload! {"nodeId": id, "action": "timeout", "decidedAt": at};
            self.tell(Kind::ApprovalReceived, Some(id), payload);
        }
        let payload = payload! {
            "nodeId": id, "interruptId": interrupt.id, "kind": interrupt.kind.as_str(),
            "key": interrupt.key, "resumeValue": value, "action": "timeout",
            "decision": "rejected", "reason": "timeout",
            "resolvedAt": rfc3339(self.now.as_millis()), "resolvedBy": "system",
        };
        self.tell(Kind::InterruptResolved, Some(id), payload);
        let failure = if interrupt.kind == InterruptKind::Approval {
            rejected_by(&value)
        } else {
            Failure::new("interrupt_timeout", "what the run waited for did not come in time")
        };
        self.fail_for_good(id, failure)
    }
}
