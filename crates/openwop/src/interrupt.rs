//! Somebody's word that a run waits for: an approval, answers, an event elsewhere, a decision.
//!
//! Says what a word must look like and what comes of it; pure. Who may give it is checked by the
//! door, as far as an interrupt does not name those who may. A word that does not fit changes
//! nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::depth::{DEPTH_MAX, is_too_deep};
use crate::run::{Failure, Status};

/// The action that grants.
pub(crate) const ACCEPT: &str = "accept";
/// The action that refuses.
pub(crate) const REJECT: &str = "reject";
/// The key of an interrupt that asks what became of a call.
pub(crate) const OUTCOME_UNKNOWN: &str = "outcome_unknown";
/// The longest name of a voter.
const VOTER_BYTES_MAX: usize = 255;
/// The most votes that are kept of one approval.
const VOTES_MAX: usize = 1_000;

/// Whose word it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptKind {
    /// Somebody approves or rejects.
    Approval,
    /// Somebody answers.
    Clarification,
    /// Something happens elsewhere.
    ExternalEvent,
    /// Something of the author's own.
    Custom,
}

impl InterruptKind {
    /// What it is called.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Clarification => "clarification",
            Self::ExternalEvent => "external-event",
            Self::Custom => "custom",
        }
    }

    /// Where a run stands that waits for it.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Approval => Status::WaitingApproval,
            Self::Clarification => Status::WaitingInput,
            Self::ExternalEvent | Self::Custom => Status::WaitingExternal,
        }
    }
}

/// How many rejections are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RejectionPolicy {
    /// One is enough.
    #[default]
    Any,
    /// More than half of the approvals that are required.
    Majority,
    /// As many as approvals are required.
    All,
}

/// How many must agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quorum {
    /// How many approvals it takes.
    pub required: u32,
    /// How many rejections are one.
    pub rejection: RejectionPolicy,
    /// Who may vote; nobody named: everybody whom the door lets in.
    #[serde(default)]
    pub approvers: Vec<String>,
    /// Who voted what.
    #[serde(default)]
    pub votes: BTreeMap<String, String>,
}

/// A word that is waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interrupt {
    /// Its name.
    pub id: String,
    /// Whose word it is.
    pub kind: InterruptKind,
    /// What the author calls it.
    pub key: String,
    /// What those should know who are asked.
    #[serde(default)]
    pub data: Value,
    /// Since when, in milliseconds.
    pub requested: u64,
    /// How long it is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What can be said, where that is a choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
    /// How many must agree, where it is an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum: Option<Quorum>,
    /// The questions, where it is answers that are asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<String>,
    /// What an event must hold to be the one that is waited for.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub correlation: Map<String, Value>,
    /// The call whose outcome nobody knows, where that is what is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// Whether a token alone is not enough.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auth_required: bool,
}

/// What came of a word.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// It counts, and others are waited for.
    Counted,
    /// It was said before, and changes nothing.
    Repeated,
    /// The node has succeeded with this.
    Completed(Map<String, Value>),
    /// The node has failed.
    Failed(Failure),
    /// The node is to be executed again, although its outcome is unknown.
    Again,
}

/// Why a word changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unheard {
    /// It does not say what can be said.
    Invalid(String),
    /// It is about something else.
    Uncorrelated(String),
    /// It is not this one's to say.
    NotAllowed(String),
}

impl Interrupt {
    /// When it is no longer waited for.
    #[must_use]
    pub fn ends(&self) -> Option<u64> {
        self.timeout_ms.map(|span| self.requested.saturating_add(span))
    }

    /// Hears `value`, said by `by`.
    ///
    /// # Errors
    /// [`Unheard`] when it changes nothing.
    pub fn hear(&mut self, value: &Value, by: Option<&str>) -> Result<Heard, Unheard> {
        if is_too_deep(value) {
            return Err(Unheard::Invalid(format!("it may be nested {DEPTH_MAX} deep")));
        }
        match self.kind {
            InterruptKind::Approval => self.vote(value, by),
            InterruptKind::Clarification => self.answered(value),
            InterruptKind::ExternalEvent => self.happened(value),
            InterruptKind::Custom if self.unknown.is_some() => self.settled(value),
            InterruptKind::Custom => {
                self.chosen(value)?;
                Ok(Heard::Completed(outputs(value)))
            }
        }
    }

    /// The action that `value` names, where there is a choice.
    fn chosen(&self, value: &Value) -> Result<Option<String>, Unheard> {
        let action = value.get("action").and_then(Value::as_str);
        match action {
            _ if self.actions.is_empty() => Ok(action.map(str::to_owned)),
            Some(action) if self.actions.iter().any(|one| one == action) => {
                Ok(Some(action.to_owned()))
            }
            Some(_) | None => Err(Unheard::Invalid(format!(
                "resumeValue.action must be one of: {}",
                self.actions.join(", ")
            ))),
        }
    }

    fn vote(&mut self, value: &Value, by: Option<&str>) -> Result<Heard, Unheard> {
        let action = self.chosen(value)?;
        let action = action.ok_or_else(|| Unheard::Invalid("resumeValue has no action".into()))?;
        let quorum = self.quorum.get_or_insert_with(|| Quorum {
            required: 1,
            rejection: RejectionPolicy::Any,
            approvers: Vec::new(),
            votes: BTreeMap::new(),
        });
        let named = value.get("voter").and_then(Value::as_str);
        if named.is_some_and(|name| name.is_empty() || name.len() > VOTER_BYTES_MAX) {
            let text = format!("voter must have 1 to {VOTER_BYTES_MAX} bytes");
            return Err(Unheard::Invalid(text));
        }
        let voter = if quorum.approvers.is_empty() {
            // Whoever was verified votes as who they are.
            by.or(named).unwrap_or("anonymous")
        } else {
            // Who may vote is named, so nobody may say of themselves who they are.
            by.filter(|by| quorum.approvers.iter().any(|one| one == by)).ok_or_else(|| {
                Unheard::NotAllowed("this approval names who may give it, and not you".into())
            })?
        };
        if quorum.votes.len() >= VOTES_MAX && !quorum.votes.contains_key(voter) {
            return Err(Unheard::Invalid("there are too many votes already".into()));
        }
        if quorum.votes.insert(voter.to_owned(), action.clone()).as_ref() == Some(&action) {
            return Ok(Heard::Repeated);
        }
        let count = |which: &dyn Fn(&str) -> bool| {
            u32::try_from(quorum.votes.values().filter(|vote| which(vote)).count())
                .unwrap_or(u32::MAX)
        };
        let (rejected, agreed) = (count(&|vote| vote == REJECT), count(&|vote| vote != REJECT));
        let rejections = match quorum.rejection {
            RejectionPolicy::Any => 1,
            RejectionPolicy::Majority => quorum.required / 2 + 1,
            RejectionPolicy::All => quorum.required,
        };
        if rejected >= rejections {
            return Ok(Heard::Failed(rejected_by(value)));
        }
        if agreed < quorum.required {
            return Ok(Heard::Counted);
        }
        let mut outputs = outputs(value);
        outputs.insert("action".into(), json!(action));
        outputs.insert("decision".into(), json!("approved"));
        Ok(Heard::Completed(outputs))
    }

    fn answered(&self, value: &Value) -> Result<Heard, Unheard> {
        // Some send the answers as they are, some under a name.
        let answers = value.get("answers").unwrap_or(value);
        let Some(answers) = answers.as_object() else {
            return Err(Unheard::Invalid("resumeValue.answers must be an object".into()));
        };
        let missing = self.questions.iter().find(|question| !answers.contains_key(*question));
        if let Some(question) = missing {
            return Err(Unheard::Invalid(format!("the answer to {question:?} is missing")));
        }
        let answers = Value::Object(answers.clone());
        Ok(Heard::Completed(Map::from_iter([("answers".to_owned(), answers)])))
    }

    fn happened(&self, value: &Value) -> Result<Heard, Unheard> {
        for (name, expected) in &self.correlation {
            if value.get(name) != Some(expected) {
                return Err(Unheard::Uncorrelated(format!(
                    "this event is another one: its {name:?} is not the one that is waited for"
                )));
            }
        }
        Ok(Heard::Completed(outputs(value)))
    }

    fn settled(&self, value: &Value) -> Result<Heard, Unheard> {
        match self.chosen(value)?.as_deref() {
            Some("retry") => Ok(Heard::Again),
            Some("complete") => {
                let result = value.get("result").and_then(Value::as_object);
                let result = result.ok_or_else(|| {
                    let text = "`complete` needs a `result`: the outputs of the node, an object";
                    Unheard::Invalid(text.to_owned())
                })?;
                Ok(Heard::Completed(result.clone()))
            }
            _ => Ok(Heard::Failed(Failure::new(
                OUTCOME_UNKNOWN,
                "nobody could say whether the call took effect, and it was given up",
            ))),
        }
    }
}

/// What a node has to show for a word: its members, or the word itself under a name.
fn outputs(value: &Value) -> Map<String, Value> {
    match value.as_object() {
        Some(members) => members.clone(),
        None if value.is_null() => Map::new(),
        None => Map::from_iter([("value".to_owned(), value.clone())]),
    }
}

/// The failure of an approval that was not given.
#[must_use]
pub(crate) fn rejected_by(value: &Value) -> Failure {
    let failure = Failure::new("approval_rejected", "the approval was rejected");
    match value.get("comment").or_else(|| value.get("reason")) {
        Some(Value::String(comment)) => failure.with("comment", comment.clone()),
        Some(_) | None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(kind: InterruptKind) -> Interrupt {
        Interrupt {
            id: "i".into(),
            kind,
            key: "k".into(),
            data: Value::Null,
            requested: 100,
            timeout_ms: Some(50),
            actions: vec![ACCEPT.into(), REJECT.into()],
            quorum: None,
            questions: Vec::new(),
            correlation: Map::new(),
            unknown: None,
            auth_required: false,
        }
    }

    fn quorum(required: u32, rejection: RejectionPolicy, approvers: &[&str]) -> Interrupt {
        let approvers = approvers.iter().map(|&name| name.to_owned()).collect();
        let votes = BTreeMap::new();
        let quorum = Some(Quorum { required, rejection, approvers, votes });
        Interrupt { quorum, ..waiting(InterruptKind::Approval) }
    }

    fn vote(action: &str, voter: &str) -> Value {
        json!({"action": action, "voter": voter})
    }

    #[test]
    fn one_word_is_enough_unless_more_are_asked_for() {
        let mut one = waiting(InterruptKind::Approval);
        let Ok(Heard::Completed(outputs)) = one.hear(&json!({"action": "accept"}), Some("ann"))
        else {
            panic!("it was given");
        };
        assert_eq!(outputs["decision"], "approved");
        let mut one = waiting(InterruptKind::Approval);
        let Ok(Heard::Failed(failure)) = one.hear(&json!({"action": "reject"}), None) else {
            panic!("it was refused");
        };
        assert_eq!((failure.code.as_str(), failure.retryable), ("approval_rejected", Some(false)));
    }

    #[test]
    fn what_is_no_choice_changes_nothing() {
        let mut one = quorum(2, RejectionPolicy::Any, &[]);
        let before = one.clone();
        for value in [json!({"action": "maybe"}), json!({}), json!(null), json!({"action": 1})] {
            assert!(matches!(one.hear(&value, None), Err(Unheard::Invalid(_))), "{value}");
            assert_eq!(one, before);
        }
    }

    #[test]
    fn a_quorum_counts_each_voter_once() {
        let mut three = quorum(3, RejectionPolicy::Majority, &[]);
        for voter in ["a", "b"] {
            assert_eq!(three.hear(&vote("accept", voter), None), Ok(Heard::Counted));
        }
        assert_eq!(three.hear(&vote("accept", "b"), None), Ok(Heard::Repeated));
        let longest = "v".repeat(300);
        assert!(matches!(three.hear(&vote("accept", &longest), None), Err(Unheard::Invalid(_))));
        let third = three.hear(&vote("accept", "c"), None);
        assert!(matches!(third, Ok(Heard::Completed(_))), "{third:?}");
        let mut three = quorum(3, RejectionPolicy::Majority, &[]);
        assert_eq!(three.hear(&vote("reject", "a"), None), Ok(Heard::Counted));
        assert!(matches!(three.hear(&vote("reject", "b"), None), Ok(Heard::Failed(_))));
        let mut all = quorum(2, RejectionPolicy::All, &[]);
        assert_eq!(all.hear(&vote("reject", "a"), None), Ok(Heard::Counted));
        assert_eq!(all.hear(&vote("accept", "a"), None), Ok(Heard::Counted), "changed its mind");
        assert!(matches!(all.hear(&vote("accept", "b"), None), Ok(Heard::Completed(_))));
    }

    #[test]
    fn who_is_named_votes_as_who_they_are_and_nobody_else_does() {
        let mut named = quorum(1, RejectionPolicy::Any, &["ann"]);
        let spoofed = named.hear(&vote("accept", "ann"), Some("bob"));
        assert!(matches!(spoofed, Err(Unheard::NotAllowed(_))));
        assert!(matches!(named.hear(&vote("accept", "ann"), None), Err(Unheard::NotAllowed(_))));
        assert!(matches!(named.hear(&vote("accept", "bob"), Some("ann")), Ok(Heard::Completed(_))));
    }

    #[test]
    fn a_verified_voter_has_one_vote_whatever_names_it_gives() {
        let mut three = quorum(2, RejectionPolicy::Any, &[]);
        assert_eq!(three.hear(&vote("accept", "a"), Some("ann")), Ok(Heard::Counted));
        assert_eq!(three.hear(&vote("accept", "b"), Some("ann")), Ok(Heard::Repeated));
    }

    #[test]
    fn answers_must_be_complete_and_events_the_right_ones() {
        let mut ask = waiting(InterruptKind::Clarification);
        (ask.actions, ask.questions) = (Vec::new(), vec!["q1".into()]);
        assert!(matches!(ask.hear(&json!({"answers": {}}), None), Err(Unheard::Invalid(_))));
        assert!(matches!(ask.hear(&json!({"answers": 1}), None), Err(Unheard::Invalid(_))));
        for value in [json!({"answers": {"q1": "blue"}}), json!({"q1": "blue"})] {
            let Ok(Heard::Completed(outputs)) = ask.hear(&value, None) else { panic!("{value}") };
            assert_eq!(outputs["answers"]["q1"], "blue");
        }
        let mut event = waiting(InterruptKind::ExternalEvent);
        event.correlation.insert("orderId".into(), json!("o1"));
        let other = event.hear(&json!({"orderId": "o2"}), None);
        assert!(matches!(other, Err(Unheard::Uncorrelated(_))));
        assert!(matches!(event.hear(&json!({"orderId": "o1"}), None), Ok(Heard::Completed(_))));
        assert_eq!(event.ends(), Some(150));
    }

    #[test]
    fn an_unknown_outcome_is_settled_by_whoever_found_out() {
        let mut unknown = waiting(InterruptKind::Custom);
        unknown.unknown = Some("fence".into());
        unknown.actions = ["retry", "complete", "fail"].map(String::from).to_vec();
        assert_eq!(unknown.hear(&json!({"action": "retry"}), None), Ok(Heard::Again));
        let done = unknown.hear(&json!({"action": "complete", "result": {"id": 7}}), None);
        assert_eq!(done, Ok(Heard::Completed(Map::from_iter([("id".to_owned(), json!(7))]))));
        let Ok(Heard::Failed(failure)) = unknown.hear(&json!({"action": "fail"}), None) else {
            panic!("it was given up");
        };
        assert_eq!(failure.code, OUTCOME_UNKNOWN);
        assert!(unknown.hear(&json!({"action": "accept"}), None).is_err());
    }
}
