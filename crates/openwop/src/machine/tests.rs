//! The rule of runs, in sentences: small workflows, a world of two maps, and a clock by hand.

#![allow(clippy::needless_pass_by_value, reason = "so that sentences stay short")]

use std::cell::RefCell;
use std::collections::HashMap;

use serde_json::{Value, json};

use super::*;
use crate::create::{self, NewRun};
use crate::event::Event;
use crate::nodes::NodeEnd;
use crate::run::{Drain, Fork, ForkMode, Owner};

/// Runs and workflows by name, and types of nodes that are executed outside.
#[derive(Default)]
struct Maps {
    runs: RefCell<HashMap<String, Run>>,
    workflows: HashMap<String, Arc<Definition>>,
    bounds: Bounds,
}

impl World for Maps {
    fn run(&self, id: &str) -> Result<Option<Run>, Need> {
        Ok(self.runs.borrow().get(id).cloned())
    }

    fn workflow(&self, id: &str) -> Option<Arc<Definition>> {
        self.workflows.get(id).cloned()
    }

    fn definition(&self, digest: &str) -> Result<Option<Arc<Definition>>, Need> {
        Ok(self.workflows.values().find(|one| one.digest.as_str() == digest).cloned())
    }

    fn is_outside(&self, type_id: &str) -> bool {
        type_id == "core.http" || type_id == "my.node"
    }

    fn bounds(&self) -> Bounds {
        self.bounds
    }
}

impl Maps {
    fn with(mut self, nodes: Value, edges: Value) -> Self {
        self.add("w", nodes, edges, json!({}));
        self
    }

    fn add(&mut self, id: &str, nodes: Value, edges: Value, more: Value) {
        let mut written = json!({
            "id": id, "name": id, "version": "1", "nodes": nodes, "edges": edges,
            "triggers": [], "variables": [], "metadata": {}, "settings": {},
        });
        for (name, value) in more.as_object().unwrap() {
            written[name] = value.clone();
        }
        let definition = Definition::of(written).unwrap();
        self.workflows.insert(id.to_owned(), Arc::new(definition));
    }

    fn start(&self, inputs: Value, configurable: Value) -> Run {
        let owner = Owner { tenant: "acme".into(), principal: None };
        let inputs = inputs.as_object().unwrap().clone();
        let new = NewRun {
            configurable: configurable.as_object().unwrap().clone(),
            ..NewRun::of("run-1".into(), owner, inputs)
        };
        let now = Timestamp::from_millis(1_000);
        create::run(new, &self.workflows["w"], self.bounds, now).unwrap().run
    }

    /// One step at `now`; what it told, in short.
    fn step(&self, run: &mut Run, now: u64) -> Vec<String> {
        self.act(run, now, |_| ())
    }

    fn act<T>(
        &self,
        run: &mut Run,
        now: u64,
        act: impl FnOnce(&mut Machine<'_, Self>) -> T,
    ) -> Vec<String> {
        let definition = self.workflows.values().find(|one| one.digest.as_str() == run.definition);
        let definition = Arc::clone(definition.unwrap());
        let mut machine = Machine::new(run.clone(), definition, self, Timestamp::from_millis(now));
        act(&mut machine);
        machine.advance().unwrap();
        let progress = machine.done();
        *run = progress.own.run;
        for other in progress.others {
            self.runs.borrow_mut().insert(other.run.id.clone(), other.run);
        }
        self.runs.borrow_mut().insert(run.id.clone(), run.clone());
        progress.own.events.iter().map(|event| short(&read(event))).collect()
    }
}

fn read(event: &NewEvent) -> Event {
    event.seen("run").unwrap()
}

fn short(event: &Event) -> String {
    match &event.node_id {
        Some(node) => format!("{} {node}", event.kind),
        None => event.kind.clone().into_owned(),
    }
}

fn node(id: &str, type_id: &str, config: Value) -> Value {
    json!({"id": id, "typeId": type_id, "config": config, "inputs": {}})
}

fn edge(source: &str, target: &str) -> Value {
    json!({"id": format!("{source}-{target}"), "sourceNodeId": source, "targetNodeId": target})
}

fn noop(id: &str) -> Value {
    node(id, "core.noop", json!({}))
}

#[test]
fn a_chain_ends_in_one_step_in_order() {
    let world = Maps::default()
        .with(json!([noop("c"), noop("b"), noop("a")]), json!([edge("a", "b"), edge("b", "c")]));
    let mut run = world.start(json!({}), json!({}));
    assert_eq!(run.status, Status::Pending, "nothing has begun");
    let told = world.step(&mut run, 1_000);
    let expected = [
        "node.started a",
        "node.completed a",
        "node.started b",
        "node.completed b",
        "node.started c",
        "node.completed c",
        "run.completed",
    ];
    assert_eq!(told, expected);
    assert_eq!((run.status, run.events, run.executions), (Status::Completed, 8, 3));
    assert!(world.step(&mut run, 2_000).is_empty(), "what has ended stays as it is");
}

#[test]
fn two_branches_of_a_choice_meet_again() {
    let chosen = |source: &str, target: &str, holds: &str| {
        let mut edge = edge(source, target);
        edge["condition"] = json!({"type": "expression", "expression": holds});
        edge
    };
    let edges = json!([
        chosen("a", "big", "variables.n > 10"),
        chosen("a", "small", "variables.n <= 10"),
        edge("big", "end"),
        edge("small", "end"),
    ]);
    let nodes = json!([noop("a"), noop("big"), noop("small"), noop("end")]);
    let world = Maps::default().with(nodes, edges);
    let mut run = world.start(json!({"n": 11}), json!({}));
    let told = world.step(&mut run, 1_000);
    assert!(told.contains(&"node.skipped small".to_owned()), "{told:?}");
    assert!(told.contains(&"node.completed end".to_owned()), "{told:?}");
    assert_eq!(run.status, Status::Completed);
    assert_eq!(run.nodes["small"].status, NodeStatus::Skipped);
}

#[test]
fn a_join_waits_for_all_of_its_branches() {
    let edges = json!([edge("a", "x"), edge("a", "y"), edge("x", "end"), edge("y", "end")]);
    let nodes = json!([
        noop("a"),
        noop("x"),
        node("y", "core.delay", json!({"delayMs": 500})),
        noop("end")
    ]);
    let world = Maps::default().with(nodes, edges);
    let mut run = world.start(json!({}), json!({}));
    world.step(&mut run, 1_000);
    assert!(run.node("end").is_none());
    assert_eq!((run.status, run.next_due()), (Status::Running, Some(1_500)));
    assert!(world.step(&mut run, 1_499).is_empty(), "not yet");
    assert!(world.step(&mut run, 1_500).contains(&"run.completed".to_owned()));
}

#[test]
fn a_failure_ends_the_run_unless_an_edge_leads_on_from_it() {
    let nodes = || json!([node("f", "core.fail", json!({"code": "broken"})), noop("after")]);
    let plain = Maps::default().with(nodes(), json!([edge("f", "after")]));
    let mut run = plain.start(json!({}), json!({}));
    let told = plain.step(&mut run, 1_000);
    assert_eq!(told, ["node.started f", "node.failed f", "run.failed"]);
    assert_eq!(run.error.as_ref().unwrap().code, "broken");
    let mut handled = edge("f", "after");
    handled["triggerRule"] = json!("any_failed");
    let handled = Maps::default().with(nodes(), json!([handled]));
    let mut run = handled.start(json!({}), json!({}));
    handled.step(&mut run, 1_000);
    assert_eq!((run.status, run.error), (Status::Completed, None));
}

#[test]
fn a_node_is_tried_again_as_often_as_it_may_be() {
    let mut fails = node("f", "core.fail", json!({"code": "busy", "retryable": true}));
    fails["settings"] = json!({"retry": {"maxAttempts": 3, "backoffMs": 100, "on": ["busy"]}});
    let world = Maps::default().with(json!([fails]), json!([]));
    let mut run = world.start(json!({}), json!({}));
    assert_eq!(world.step(&mut run, 1_000), ["node.started f", "node.retried f"]);
    let due = run.next_due().unwrap();
    assert!((1_050..=1_100).contains(&due), "{due}");
    assert_eq!(world.step(&mut run, due), ["node.started f", "node.retried f"]);
    let due = run.next_due().unwrap();
    assert_eq!(world.step(&mut run, due), ["node.started f", "node.failed f", "run.failed"]);
    assert_eq!((run.nodes["f"].attempt, run.nodes["f"].first_since), (2, Some(1_000)));
    let mut once = node("f", "core.fail", json!({"code": "other", "retryable": true}));
    once["settings"] = json!({"retry": {"maxAttempts": 3, "on": ["busy"]}});
    let world = Maps::default().with(json!([once]), json!([]));
    let mut run = world.start(json!({}), json!({}));
    world.step(&mut run, 1_000);
    assert_eq!(run.status, Status::Failed, "only what was named is tried again");
}

#[test]
fn limits_are_told_before_the_run_ends_by_them() {
    let nodes = json!([noop("a"), noop("b"), noop("c"), noop("d")]);
    let edges = json!([edge("a", "b"), edge("b", "c"), edge("c", "d")]);
    let world = Maps::default().with(nodes, edges);
    let mut run = world.start(json!({}), json!({"recursionLimit": 2}));
    let told = world.step(&mut run, 1_000);
    assert_eq!(told[told.len() - 2..], ["cap.breached c", "run.failed"]);
    assert_eq!(run.error.unwrap().code, "recursion_limit_exceeded");
    let waits = Maps::default()
        .with(json!([node("w", "core.delay", json!({"delayMs": 60_000}))]), json!([]));
    let mut run = waits.start(json!({}), json!({"runTimeoutMs": 500}));
    waits.step(&mut run, 1_000);
    assert_eq!(run.next_due(), Some(1_501), "what takes just as long as it may is in time");
    assert_eq!(waits.step(&mut run, 1_501), ["cap.breached", "node.cancelled w", "run.failed"]);
    assert_eq!(run.error.unwrap().code, "run_timeout");
}

#[test]
fn a_step_is_never_longer_than_a_commit() {
    let nodes: Vec<Value> = (0..200).map(|n| noop(&format!("n{n:03}"))).collect();
    let edges: Vec<Value> =
        (1..200).map(|n| edge(&format!("n{:03}", n - 1), &format!("n{n:03}"))).collect();
    let world = Maps::default().with(json!(nodes), json!(edges));
    let mut run = world.start(json!({}), json!({}));
    let mut steps = 0;
    while !run.status.is_terminal() {
        let told = world.step(&mut run, 1_000);
        assert!(!told.is_empty() && told.len() <= 2 * NODES_PER_STEP as usize + 1);
        steps += 1;
    }
    assert_eq!((run.status, steps), (Status::Completed, 4));
}

#[test]
fn what_comes_back_from_outside_is_taken_once_and_only_from_the_right_try() {
    let world = Maps::default().with(json!([node("call", "my.node", json!({}))]), json!([]));
    let mut run = world.start(json!({}), json!({}));
    assert_eq!(world.step(&mut run, 1_000), ["node.started call"]);
    assert_eq!(run.outside().count(), 1);
    let done = || NodeEnd::Completed(Map::from_iter([("id".to_owned(), json!(7))]));
    let late = world.act(&mut run, 1_001, |m| m.came_back("call", 1, 1_000, done()).unwrap());
    assert!(late.is_empty(), "another try: {late:?}");
    let told = world.act(&mut run, 1_002, |m| m.came_back("call", 0, 1_000, done()).unwrap());
    assert_eq!(told, ["node.completed call", "run.completed"]);
    let again = world.act(&mut run, 1_003, |m| m.came_back("call", 0, 1_000, done()).unwrap());
    assert!(again.is_empty());
}

#[test]
fn x3_an_unknown_outcome_is_held_until_somebody_who_knows_settles_it() {
    let world = Maps::default().with(json!([node("call", "my.node", json!({}))]), json!([]));
    let mut run = world.start(json!({}), json!({}));
    world.step(&mut run, 1_000);
    world.act(&mut run, 1_001, |m| {
        m.came_back("call", 0, 1_000, NodeEnd::Unknown(json!({"fence": "f-1"}))).unwrap()
    });
    assert_eq!(run.status, Status::WaitingExternal);
    let hear = |run: &mut Run, value: Value| {
        world.act(run, 1_002, |m| m.hear("call", None, &value, Some("ann")).unwrap().unwrap())
    };
    let mut again = run.clone();
    hear(&mut again, json!({"action": "retry"}));
    let call = &again.nodes["call"];
    assert_eq!((call.recovers.as_deref(), call.repeats), (Some("f-1"), false), "only that call");
    assert_eq!((call.since, call.first_since), (1_002, Some(1_000)), "another execution, as old");
    assert_eq!(again.outside().count(), 1);
    let late = NodeEnd::Unknown(json!({}));
    let told = world.act(&mut again, 1_003, |m| m.came_back("call", 0, 1_000, late).unwrap());
    assert!(told.is_empty(), "what the older one came to: {told:?}");
    hear(&mut run, json!({"action": "complete", "result": {"id": 1}}));
    assert_eq!(run.status, Status::Completed);
}

/// What cannot be read again would be lost, and its run with it.
#[test]
fn what_a_provider_says_is_kept_only_as_deep_as_it_can_be_read() {
    let world = Maps::default().with(json!([node("call", "my.node", json!({}))]), json!([]));
    let mut run = world.start(json!({}), json!({}));
    world.step(&mut run, 1_000);
    let deep = (0..120).fold(json!(1), |inside, _| json!([inside]));
    let failure = Failure::new("http_status", "the provider answered 400").with("body", deep);
    let failed = || NodeEnd::Failed(failure.clone());
    let told = world.act(&mut run, 1_001, |m| m.came_back("call", 0, 1_000, failed()).unwrap());
    assert_eq!(told, ["node.failed call", "run.failed"]);
    let kept = serde_json::to_vec(&run).unwrap();
    assert_eq!(serde_json::from_slice::<Run>(&kept).unwrap(), run);
    let note = run.error.unwrap().details.unwrap();
    assert!(note["note"].as_str().unwrap().contains("deep"), "{note:?}");
}

#[test]
fn an_approval_goes_the_way_that_was_chosen() {
    let gate = || json!([node("gate", "core.approvalGate", json!({})), noop("after")]);
    let world = Maps::default().with(gate(), json!([edge("gate", "after")]));
    let mut run = world.start(json!({}), json!({}));
    let told = world.step(&mut run, 1_000);
    let expected = [
        "node.started gate",
        "node.suspended gate",
        "interrupt.requested gate",
        "approval.requested gate",
    ];
    assert_eq!(told, expected);
    assert_eq!((run.status, run.current()), (Status::WaitingApproval, Some("gate")));
    let mut refused = run.clone();
    let accept = json!({"action": "accept"});
    let told = world.act(&mut run, 1_001, |m| m.hear("gate", None, &accept, None).unwrap());
    assert!(told.contains(&"approval.received gate".to_owned()), "{told:?}");
    assert_eq!(run.status, Status::Completed);
    let second = Machine::new(run.clone(), Arc::clone(&world.workflows["w"]), &world, run_now())
        .hear("gate", None, &accept, None);
    assert_eq!(second.unwrap(), Err(NotHeard::AlreadyResolved));
    let reject = json!({"action": "reject"});
    world.act(&mut refused, 1_001, |m| m.hear("gate", None, &reject, None).unwrap());
    assert_eq!(refused.error.unwrap().code, "approval_rejected");
}

fn run_now() -> Timestamp {
    Timestamp::from_millis(5_000)
}

#[test]
fn nobody_who_says_nothing_grants_anything() {
    let config = json!({"timeoutMs": 100, "onTimeout": "approve"});
    let world = Maps::default().with(json!([node("g", "core.approvalGate", config)]), json!([]));
    let mut run = world.start(json!({}), json!({}));
    world.step(&mut run, 1_000);
    assert_eq!(run.next_due(), Some(1_100));
    let told = world.step(&mut run, 1_100);
    assert_eq!(told[0], "approval.received g");
    assert_eq!(run.error.unwrap().code, "approval_rejected");
}

#[test]
fn a_run_rests_and_goes_on() {
    let nodes = json!([node("w", "core.delay", json!({"delayMs": 100})), noop("after")]);
    let world = Maps::default().with(nodes, json!([edge("w", "after")]));
    let mut run = world.start(json!({}), json!({}));
    world.step(&mut run, 1_000);
    let mut drained = run.clone();
    world.act(&mut run, 1_010, |m| m.pause(Drain::Immediate, None).unwrap());
    assert_eq!((run.status, run.next_due()), (Status::Paused, None));
    assert!(world.step(&mut run, 9_000).is_empty(), "it rests");
    let second = world.act(&mut run, 9_001, |m| {
        assert_eq!(m.pause(Drain::Immediate, None), Err(CannotPause(Status::Paused, Some(1_010))));
    });
    assert!(second.is_empty());
    assert_eq!(world.act(&mut run, 9_002, |m| m.resume().unwrap()), ["run.resumed"]);
    assert_eq!(run.next_due(), Some(9_102), "it waits anew");
    world.step(&mut run, 9_102);
    assert_eq!(run.status, Status::Completed);
    world.act(&mut drained, 1_010, |m| m.pause(Drain::DrainCurrentNode, None).unwrap());
    assert_eq!(drained.status, Status::Running, "its node ends first");
    assert_eq!(world.step(&mut drained, 1_100), ["node.completed w", "run.paused"]);
    assert!(drained.node("after").is_none());
}

#[test]
fn a_cancelled_run_takes_its_own_runs_along() {
    let mut world = Maps::default();
    let parent = json!([node("sub", "core.subWorkflow", json!({"workflowId": "child"}))]);
    world.add("w", parent, json!([]), json!({}));
    let gate = json!([node("gate", "core.approvalGate", json!({}))]);
    world.add("child", gate, json!([]), json!({}));
    let mut run = world.start(json!({}), json!({}));
    world.step(&mut run, 1_000);
    let child_id = run.children[0].clone();
    let mut child = world.runs.borrow()[&child_id].clone();
    world.step(&mut child, 1_001);
    world.step(&mut run, 1_002);
    assert_eq!(run.status, Status::WaitingApproval, "it stands where its own run stands");
    world.act(&mut run, 1_003, |m| m.cancel(Some("enough"), Some("ann")).unwrap());
    let child = world.runs.borrow()[&child_id].clone();
    assert_eq!((run.status, child.status), (Status::Cancelled, Status::Cancelled));
    assert_eq!(child.reason.as_deref(), Some("parent-cancelled"));
}

#[test]
fn a_child_gives_its_parent_what_was_agreed() {
    let mut world = Maps::default();
    let config = json!({
        "workflowId": "child", "inputMapping": {"x": "n"}, "outputMapping": {"got": "y"},
    });
    world.add("w", json!([node("sub", "core.subWorkflow", config)]), json!([]), json!({}));
    let sets = json!({"set": {"y": "variables.x * 2"}});
    world.add("child", json!([node("t", "core.transform", sets)]), json!([]), json!({}));
    let mut run = world.start(json!({"n": 21}), json!({}));
    world.step(&mut run, 1_000);
    let mut child = world.runs.borrow()[&run.children[0]].clone();
    world.step(&mut child, 1_001);
    world.step(&mut run, 1_002);
    assert_eq!((run.status, &run.variables["got"]), (Status::Completed, &json!(42)));
    assert_eq!(child.parent.unwrap().node, "sub");
}

#[test]
fn a_replay_repeats_what_was_recorded_and_does_nothing_else() {
    let nodes = json!([node("call", "my.node", json!({})), node("e", "my.node", json!({}))]);
    let world = Maps::default().with(nodes, json!([edge("call", "e")]));
    let mut source = world.start(json!({}), json!({}));
    world.step(&mut source, 1_000);
    let done = NodeEnd::Completed(Map::from_iter([("id".to_owned(), json!(7))]));
    world.act(&mut source, 1_001, |m| m.came_back("call", 0, 1_000, done).unwrap());
    world.act(&mut source, 1_002, |m| m.cancel(None, None).unwrap());
    let mut fork = world.start(json!({}), json!({}));
    fork.id = "run-2".into();
    fork.fork = Some(Fork { source: "run-1".into(), from_seq: 0, mode: ForkMode::Replay });
    let told = world.step(&mut fork, 2_000);
    assert_eq!(fork.outside().count(), 0, "nothing is done again");
    assert_eq!(fork.nodes["call"].outputs, source.nodes["call"].outputs);
    assert!(told.contains(&"node.failed e".to_owned()));
    assert_eq!(fork.error.unwrap().code, "replay_source_missing");
}

#[test]
fn what_the_host_lacks_is_refused_by_name() {
    let missing = node("m", "conformance.requiresMissing", json!({}));
    let world = Maps::default().with(json!([missing]), json!([]));
    let mut run = world.start(json!({}), json!({}));
    world.step(&mut run, 1_000);
    let error = run.error.unwrap();
    assert_eq!(error.code, "capability_not_provided");
    assert!(error.message.contains("conformance.never-provided"), "{}", error.message);
    let world = Maps::default().with(json!([node("u", "nobody.knows", json!({}))]), json!([]));
    let mut run = world.start(json!({}), json!({}));
    world.step(&mut run, 1_000);
    assert_eq!(run.error.unwrap().code, "unknown_node_type");
}

#[test]
fn what_is_sensitive_is_told_to_nobody() {
    let mut world = Maps::default();
    let sets = json!({"set": {"secret": "'s3cr3t'", "plain": "'open'"}});
    let variables = json!([{"name": "secret", "type": "string", "sensitive": true}]);
    let nodes = json!([node("t", "core.transform", sets)]);
    world.add("w", nodes, json!([]), json!({"variables": variables}));
    let mut run = world.start(json!({}), json!({}));
    let definition = Arc::clone(&world.workflows["w"]);
    let mut machine = Machine::new(run.clone(), definition, &world, run_now());
    machine.advance().unwrap();
    let progress = machine.done();
    run = progress.own.run;
    assert_eq!(run.variables["secret"], "s3cr3t", "the run itself knows");
    let changed = progress.own.events.iter().filter(|event| event.kind == Kind::VariableChanged);
    assert_eq!(changed.count(), 2);
    let told: Vec<_> =
        progress.own.events.iter().map(|event| json!(read(event)).to_string()).collect();
    assert!(told.iter().all(|text| !text.contains("s3cr3t")), "{told:?}");
    assert!(told.iter().any(|text| text.contains("open")));
    let end = read(progress.own.events.last().unwrap());
    assert_eq!(end.payload["outputs"]["secret"], "***");
}

#[test]
fn a_child_that_begins_while_its_parent_fails_ends_with_it() {
    let mut world = Maps::default();
    let sub = node("sub", "core.subWorkflow", json!({"workflowId": "child"}));
    let boom = node("boom", "core.fail", json!({}));
    world.add("w", json!([sub, boom]), json!([]), json!({}));
    let gate = json!([node("gate", "core.approvalGate", json!({}))]);
    world.add("child", gate, json!([]), json!({}));
    let mut run = world.start(json!({}), json!({}));
    world.step(&mut run, 1_000);
    assert_eq!(run.status, Status::Failed);
    let child = world.runs.borrow()[&run.children[0]].clone();
    assert_eq!((child.status, child.events), (Status::Cancelled, 2), "begun and ended");
}

#[test]
fn w13_what_a_node_asks_for_is_what_it_was_given_when_it_began() {
    let mut call = node("call", "my.node", json!({}));
    call["inputs"] = json!({"v": {"type": "variable", "variableName": "v"}});
    call["settings"] = json!({"retry": {"maxAttempts": 2, "backoffMs": 10, "on": ["busy"]}});
    let world = Maps::default().with(json!([call]), json!([]));
    let mut run = world.start(json!({"v": 1}), json!({}));
    world.step(&mut run, 1_000);
    let given = |run: &Run| run.nodes["call"].given.clone().unwrap()["v"].clone();
    assert_eq!(given(&run), 1);
    run.variables.insert("v".into(), json!(2));
    let busy = NodeEnd::Failed(Failure::passing("busy", "later"));
    world.act(&mut run, 1_001, |m| m.came_back("call", 0, 1_000, busy).unwrap());
    let due = run.next_due().unwrap();
    world.step(&mut run, due);
    assert_eq!((run.nodes["call"].attempt, given(&run)), (1, json!(1)), "the same call again");
}

#[test]
fn a_word_that_comes_too_late_is_not_heard() {
    let config = json!({"timeoutMs": 100});
    let world = Maps::default().with(json!([node("g", "core.approvalGate", config)]), json!([]));
    let mut run = world.start(json!({}), json!({}));
    world.step(&mut run, 1_000);
    let late = Timestamp::from_millis(1_100);
    let mut machine = Machine::new(run, Arc::clone(&world.workflows["w"]), &world, late);
    let heard = machine.hear("g", None, &json!({"action": "accept"}), Some("ann")).unwrap();
    assert_eq!(heard, Err(NotHeard::Expired));
}

#[test]
fn what_is_deeper_than_readers_go_fails_its_node() {
    let mut deep = json!(1);
    for _ in 0..80 {
        deep = json!([deep]);
    }
    let world = Maps::default().with(json!([node("call", "my.node", json!({}))]), json!([]));
    let mut run = world.start(json!({}), json!({}));
    world.step(&mut run, 1_000);
    let end = NodeEnd::Completed(Map::from_iter([("x".to_owned(), deep.clone())]));
    world.act(&mut run, 1_001, |m| m.came_back("call", 0, 1_000, end).unwrap());
    assert_eq!(run.error.unwrap().code, "value_too_deep");
    let owner = Owner { tenant: "acme".into(), principal: None };
    let inputs = Map::from_iter([("x".to_owned(), deep)]);
    let new = NewRun::of("run-2".into(), owner, inputs);
    let refused = create::run(new, &world.workflows["w"], world.bounds, run_now());
    assert!(refused.unwrap_err().to_string().contains("64 deep"));
}

#[test]
fn x1_one_host_at_a_time_executes_what_leaves_the_store() {
    let world = Maps::default().with(json!([node("call", "my.node", json!({}))]), json!([]));
    let mut run = world.start(json!({}), json!({}));
    world.act(&mut run, 1_000, |m| m.driven_by("a", false));
    assert_eq!(run.driver.as_deref(), Some("a"));
    run.due = Some(2_000);
    world.act(&mut run, 1_999, |m| m.driven_by("b", false));
    assert_eq!(run.driver.as_deref(), Some("a"), "its lease runs");
    let mut alone = run.clone();
    world.act(&mut alone, 1_999, |m| m.driven_by("b", true));
    assert_eq!(alone.driver.as_deref(), Some("b"), "whoever had it is gone for certain");
    world.act(&mut run, 2_000, |m| m.driven_by("b", false));
    assert_eq!(run.driver.as_deref(), Some("b"), "its lease has passed");
    let done = NodeEnd::Completed(Map::new());
    world.act(&mut run, 2_001, |m| m.came_back("call", 0, 1_000, done).unwrap());
    assert_eq!(run.driver, None);
}
