//! One order from its creation to its end, by a customer who does not give up, and what must be
//! true of it in the end, whatever became of the hosts in between.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde_json::{Value, json};

use crate::home::{ACME, Node, until};
use crate::provider::{Call, Provider};
use crate::wire::{Asked, Heard};

const ENDS: [&str; 3] = ["completed", "failed", "cancelled"];

/// What whoever found out says of a call whose outcome nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settle {
    /// It did not happen.
    Retry,
    /// It happened.
    Complete,
    /// It is given up.
    Fail,
}

impl Settle {
    const fn action(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Complete => "complete",
            Self::Fail => "fail",
        }
    }
}

/// An order, and who placed it.
pub(crate) struct Journey<'a> {
    /// The host that is asked; another one may be asked later.
    pub(crate) node: &'a Node,
    pub(crate) workflow: &'a str,
    /// Also the key that it is placed under.
    pub(crate) order: String,
    pub(crate) settle: Settle,
    /// The name of its run, once it was heard.
    pub(crate) run: Option<String>,
    /// How often a call of a node was held as unknown, and settled.
    pub(crate) unknown: BTreeMap<String, usize>,
}

impl<'a> Journey<'a> {
    pub(crate) fn new(node: &'a Node, workflow: &'a str, order: &str, settle: Settle) -> Self {
        let (order, unknown) = (order.to_owned(), BTreeMap::new());
        Self { node, workflow, order, settle, run: None, unknown }
    }

    pub(crate) fn body(&self) -> Value {
        json!({"workflowId": self.workflow, "inputs": {"order": self.order}})
    }

    fn once(&self, asked: &Asked<'_>) -> io::Result<Heard> {
        let bearer = format!("Bearer {ACME}");
        asked.clone().with("authorization", &bearer).send(self.node.address())
    }

    /// Asks until there is an answer that is one: the same request, whatever happened to the last.
    fn persist(&self, asked: &Asked<'_>) -> Heard {
        until(asked.path, || {
            let heard = self.once(asked).ok()?;
            let is_passing =
                heard.status >= 500 || heard.error().as_deref() == Some("idempotency_in_flight");
            (!is_passing).then_some(heard)
        })
    }

    /// Places the order, and hears the name of its run.
    pub(crate) fn place(&mut self) -> String {
        let (body, key) = (self.body(), self.order.clone());
        let heard = self.persist(&Asked::post("/v1/runs", &body).under(&key));
        assert_eq!(heard.status, 201, "{heard:?}");
        let run = heard.text("runId");
        let before = self.run.get_or_insert_with(|| run.clone());
        assert_eq!(*before, run, "one key, one run");
        run
    }

    /// Places the order, and does not listen.
    pub(crate) fn place_unheard(&self) {
        let (body, bearer) = (self.body(), format!("Bearer {ACME}"));
        let asked = Asked::post("/v1/runs", &body).under(&self.order);
        asked.with("authorization", &bearer).begin(self.node.address()).unwrap();
    }

    fn name(&self) -> &str {
        self.run.as_deref().expect("it has been placed")
    }

    /// How the run stands.
    pub(crate) fn look(&self) -> Value {
        let path = format!("/v1/runs/{}", self.name());
        let heard = self.persist(&Asked::get(&path));
        assert_eq!(heard.status, 200, "{heard:?}");
        heard.json()
    }

    /// Looks until the run stands as it `is_so`.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        until(what, || Some(self.look()).filter(&is_so))
    }

    /// Looks until the run waits at this node.
    pub(crate) fn until_at(&self, node: &str) -> Value {
        self.until(node, |run| run["currentNodeId"] == node)
    }

    /// Says something to a node that waits, under a key of its own, and does not listen.
    pub(crate) fn say_unheard(&self, node: &str, word: &Value) {
        let (path, key) = (self.path_of(node), self.key_of(node));
        let bearer = format!("Bearer {ACME}");
        let asked = Asked::post(&path, word).under(&key).with("authorization", &bearer);
        asked.begin(self.node.address()).unwrap();
    }

    /// Says something to a node that waits.
    pub(crate) fn say(&self, node: &str, word: &Value) {
        let (path, key) = (self.path_of(node), self.key_of(node));
        let heard = self.persist(&Asked::post(&path, word).under(&key));
        // Without a key of its own it would be too late for what was said before.
        assert_eq!(heard.status, 200, "{heard:?}");
    }

    pub(crate) fn accept(&self) {
        self.say("gate", &json!({"resumeValue": {"action": "accept"}}));
    }

    fn path_of(&self, node: &str) -> String {
        format!("/v1/runs/{}/interrupts/{node}", self.name())
    }

    fn key_of(&self, node: &str) -> String {
        let times = self.unknown.get(node).copied().unwrap_or(0);
        format!("{}.{node}.{times}", self.order)
    }

    /// Goes on to the end: approves what is to be approved, and settles what nobody knows.
    pub(crate) fn follow(&mut self) -> Value {
        self.place();
        loop {
            let run = self.until("a run that goes on", |run| {
                let status = run["status"].as_str().unwrap();
                ENDS.contains(&status) || status.starts_with("waiting-")
            });
            let at = run["interrupt"]["nodeId"].as_str().unwrap_or_default().to_owned();
            match run["status"].as_str().unwrap() {
                "waiting-approval" => self.accept(),
                "waiting-external" => {
                    assert_eq!(run["interrupt"]["key"], "outcome_unknown", "{run}");
                    *self.unknown.entry(at.clone()).or_default() += 1;
                    let result = json!({"action": self.settle.action(), "result": {"by": "hand"}});
                    self.say(&at, &result);
                }
                _ => return run,
            }
            // A word that was heard is no longer waited for.
            let which = run["interrupt"]["interruptId"].clone();
            self.until("a word that was heard", |now| now["interrupt"]["interruptId"] != which);
        }
    }

    /// The events of the run.
    pub(crate) fn events(&self) -> Vec<Value> {
        let path = format!("/v1/runs/{}/events", self.name());
        let heard = self.persist(&Asked::get(&path).with("accept", "application/json"));
        heard.json()["events"].as_array().unwrap_or_else(|| panic!("{heard:?}")).clone()
    }

    /// The calls of one node.
    pub(crate) fn calls(&self, provider: &Provider, node: &str) -> Vec<Call> {
        let path = format!("/{node}");
        provider.calls(|call| call.path == path && call.json()["order"] == self.order.as_str())
    }

    /// What must be true of every run that ended. `is_recognised`: the provider knows a call again.
    pub(crate) fn judge(&mut self, provider: &Provider, is_recognised: bool) {
        let (run, events) = (self.look(), self.events());
        let seen = format!("{}: {run:#}\n{events:#?}", self.order);
        history(&events, &seen);
        for node in ["pay", "ship"] {
            let calls = self.calls(provider, node);
            let identities: BTreeSet<String> = calls.iter().map(Call::key).collect();
            let unknown = self.unknown.get(node).copied().unwrap_or(0);
            let is_completed = run["nodeStates"][node]["status"] == "completed";
            assert!(identities.len() <= 1, "{node} has two identities: {identities:?}\n{seen}");
            if is_recognised {
                assert_eq!(unknown, 0, "{node} was held although its provider knows it\n{seen}");
                assert_eq!(is_completed, !calls.is_empty(), "{node}\n{seen}");
            } else {
                let retried = if self.settle == Settle::Retry { unknown } else { 0 };
                assert!(calls.len() <= 1 + retried, "{node} was called {}\n{seen}", calls.len());
            }
        }
        let expected = match (self.settle, self.unknown.is_empty()) {
            (Settle::Fail, false) => "failed",
            (Settle::Fail, true) | (Settle::Retry | Settle::Complete, _) => "completed",
        };
        assert_eq!(run["status"], expected, "{seen}");
        // W4, W9: and whoever asks again hears what was said.
        let name = self.name().to_owned();
        assert_eq!(self.place(), name);
        let again = self.persist(&Asked::post("/v1/runs", &self.body()).under(&self.order));
        assert!(again.is_replay(), "{again:?}");
    }
}

/// No event is missing, none is there twice, one ends the run, and no node is begun again.
pub(crate) fn history(events: &[Value], seen: &str) {
    let sequences: Vec<u64> = events.iter().map(|e| e["sequence"].as_u64().unwrap()).collect();
    assert!(sequences.iter().copied().eq(0..events.len() as u64), "{sequences:?}\n{seen}");
    let names: BTreeSet<&str> = events.iter().map(|e| e["eventId"].as_str().unwrap()).collect();
    assert_eq!(names.len(), events.len(), "{seen}");
    let kind = |event: &Value| event["type"].as_str().unwrap().to_owned();
    let ends = |event: &&Value| {
        ["run.completed", "run.failed", "run.cancelled"].contains(&kind(event).as_str())
    };
    assert_eq!(events.iter().filter(ends).count(), 1, "{seen}");
    assert!(events.last().is_some_and(|event| ends(&event)), "{seen}");
    let mut begun = BTreeMap::<(String, String), usize>::new();
    for event in events {
        let node = event["nodeId"].as_str().unwrap_or_default().to_owned();
        *begun.entry((kind(event), node)).or_default() += 1;
    }
    for ((kind, node), times) in begun {
        if ["node.started", "node.completed", "node.failed"].contains(&kind.as_str()) {
            assert_eq!(times, 1, "{kind} {node}\n{seen}");
        }
    }
}
