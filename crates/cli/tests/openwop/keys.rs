//! Layer 1, as callers see it: one key, one answer, at every endpoint that changes something.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::home::{Home, Node, ONLOOKER, ZOO, until};
use crate::wire::{Asked, Heard, REPLAY};

/// Requests that are sent at once.
const AT_ONCE: usize = 50;
/// How often.
const TRIALS: usize = 50;

fn host() -> (Home, Node) {
    let home = Home::alone("allow_private_targets = true", &[]);
    let node = home.start();
    (home, node)
}

fn nonce(nonce: &str) -> Value {
    json!({"workflowId": "conformance-idempotent", "inputs": {"nonce": nonce}})
}

/// Begins a run of a workflow, and waits until it stands as wanted.
fn begin(node: &Node, workflow: &str, status: &str) -> String {
    let heard = node.ask(Asked::post("/v1/runs", &json!({"workflowId": workflow})));
    let run = heard.text("runId");
    let path = format!("/v1/runs/{run}");
    until(status, || (node.ask(Asked::get(&path)).text("status") == status).then_some(()));
    run
}

/// The names of all runs of whoever has `credential`.
fn runs(node: &Node, credential: &str) -> BTreeSet<String> {
    let (mut all, mut path) = (BTreeSet::new(), "/v1/runs?limit=200".to_owned());
    loop {
        let page = node.ask_as(credential, Asked::get(&path)).json();
        let names = page["runs"].as_array().unwrap().iter().map(|run| run["runId"].as_str());
        all.extend(names.map(|name| name.unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/runs?limit=200&after={next}"),
            None => return all,
        }
    }
}

fn is_mismatch(heard: &Heard) -> bool {
    (heard.status, heard.error().as_deref()) == (409, Some("idempotency_key_mismatch"))
}

/// W9: of 50 requests at once under one key, one creates a run; the others hear of that run, or
/// that somebody is at it. 50 times, and no run is left over.
#[test]
fn w9_fifty_requests_at_once_create_one_run_every_time() {
    let (_home, node) = host();
    let mut created = BTreeSet::new();
    for trial in 0..TRIALS {
        let (key, body) = (format!("at-once-{trial}"), nonce(&trial.to_string()));
        let heard: Vec<Heard> = std::thread::scope(|scope| {
            let ask = || node.ask(Asked::post("/v1/runs", &body).under(&key));
            let asking: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(ask)).collect();
            asking.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let (good, busy): (Vec<_>, Vec<_>) = heard.iter().partition(|heard| heard.status == 201);
        for heard in busy {
            let code = heard.error();
            assert_eq!(code.as_deref(), Some("idempotency_in_flight"), "{heard:?}");
            assert!(heard.json()["details"]["retryAfter"].as_u64() > Some(0), "{heard:?}");
        }
        let names: BTreeSet<String> = good.iter().map(|heard| heard.text("runId")).collect();
        assert_eq!(names.len(), 1, "trial {trial}: {names:?}");
        assert_eq!(good.iter().filter(|heard| !heard.is_replay()).count(), 1, "trial {trial}");
        created.extend(names);
    }
    assert_eq!(created.len(), TRIALS);
    assert_eq!(runs(&node, crate::home::ACME), created, "no run that nobody was told of");
}

/// W10: two tenants with one key have two runs, and neither hears of the other's.
#[test]
fn w10_tenants_share_no_key_and_hear_nothing_of_each_other() {
    let (_home, node) = host();
    let asked = || Asked::post("/v1/runs", &nonce("shared")).under("shared");
    let (ours, theirs) = (node.ask(asked()), node.ask_as(ZOO, asked()));
    assert_eq!((ours.status, theirs.status), (201, 201));
    let (mine, yours) = (ours.text("runId"), theirs.text("runId"));
    assert_ne!(mine, yours);
    assert!(!theirs.is_replay() && !theirs.body.contains(&mine), "{theirs:?}");
    assert!(node.ask_as(ZOO, asked()).body.contains(&yours));
    let mismatch = node.ask_as(ZOO, Asked::post("/v1/runs", &nonce("other")).under("shared"));
    assert!(is_mismatch(&mismatch), "{mismatch:?}");
    let path = format!("/v1/runs/{mine}");
    assert_eq!(node.ask_as(ZOO, Asked::get(&path)).status, 404);
    let cancel = format!("/v1/runs/{mine}/cancel");
    assert_eq!(node.ask_as(ZOO, Asked::post(&cancel, &json!({}))).status, 404);
    assert_eq!(runs(&node, ZOO), BTreeSet::from([yours]));
    let foreign = json!({"workflowId": "conformance-noop", "tenantId": "zoo"});
    let heard = node.ask(Asked::post("/v1/runs", &foreign));
    assert_eq!(heard.error().as_deref(), Some("forbidden"), "a body chooses no tenant");
}

/// One request of an endpoint, the same with another body, and the same about something else.
struct Case {
    method: &'static str,
    path: String,
    body: Value,
    other_body: Option<Value>,
    other_path: Option<String>,
}

impl Case {
    fn ask(&self, node: &Node, path: &str, body: &Value, key: &str) -> Heard {
        let asked = Asked { method: self.method, ..Asked::post(path, body) };
        node.ask(asked.under(key))
    }
}

fn webhook(node: &Node) -> String {
    let body = json!({"url": "http://127.0.0.1:1/hook", "events": ["run.completed"]});
    node.ask(Asked::post("/v1/webhooks", &body)).text("webhookId")
}

fn token(node: &Node) -> String {
    let run = begin(node, "conformance-approval", "waiting-approval");
    let seen = node.ask(Asked::get(&format!("/v1/runs/{run}"))).json();
    seen["interrupt"]["interruptToken"].as_str().unwrap().to_owned()
}

/// Every endpoint that changes something.
fn endpoints(node: &Node) -> Vec<Case> {
    let running = || begin(node, "conformance-cancellable", "running");
    let waiting = || begin(node, "conformance-approval", "waiting-approval");
    let paused = || {
        let run = running();
        let path = format!("/v1/runs/{run}:pause");
        let heard = node.ask(Asked::post(&path, &json!({"drainPolicy": "immediate"})));
        assert_eq!(heard.status, 202, "{heard:?}");
        run
    };
    let case = |path: String, body: Value, other: Value, other_path: Option<String>| Case {
        method: "POST",
        path,
        body,
        other_body: Some(other),
        other_path,
    };
    let of = |run: String, verb: &str| format!("/v1/runs/{run}{verb}");
    let why = |reason: &str| json!({"reason": reason});
    let say = |word: &str| json!({"resumeValue": {"action": word}});
    let pause = |reason: &str| json!({"drainPolicy": "immediate", "reason": reason});
    let two = |verb: &str, run: &dyn Fn() -> String| (of(run(), verb), Some(of(run(), verb)));
    let hook = |kind: &str| json!({"url": "http://127.0.0.1:1/hook", "events": [kind]});
    let bulk = |run: String| json!({"runIds": [run]});
    let (cancel, other_cancel) = two("/cancel", &running);
    let (pause_at, other_pause) = two(":pause", &running);
    let (resume, other_resume) = two(":resume", &paused);
    let (fork, other_fork) = two(":fork", &|| begin(node, "conformance-noop", "completed"));
    let (word, other_word) = two("/interrupts/gate", &waiting);
    let (alias, other_alias) = two("/approvals/gate", &waiting);
    let by_token = || format!("/v1/interrupts/{}", token(node));
    let by_name = || format!("/v1/webhooks/{}", webhook(node));
    vec![
        case("/v1/runs".into(), nonce("one"), nonce("two"), None),
        case(cancel, why("one"), why("two"), other_cancel),
        case("/v1/runs:bulk-cancel".into(), bulk(running()), bulk(running()), None),
        case(pause_at, pause("one"), pause("two"), other_pause),
        case(resume, why("one"), why("two"), other_resume),
        case(fork, json!({"mode": "replay"}), json!({"mode": "branch", "fromSeq": 0}), other_fork),
        case(word, say("accept"), say("reject"), other_word),
        case(alias, say("accept"), say("reject"), other_alias),
        case(by_token(), say("accept"), say("reject"), Some(by_token())),
        case("/v1/webhooks".into(), hook("run.completed"), hook("run.failed"), None),
        Case {
            method: "DELETE",
            path: by_name(),
            body: json!({}),
            other_body: None,
            other_path: Some(by_name()),
        },
    ]
}

/// W1, W4, W20: a repeated request hears what was said, another body or another thing under its
/// key hears that they differ, and nothing of the first.
#[test]
fn w1_w4_w20_every_endpoint_that_changes_something_honours_a_key() {
    let (_home, node) = host();
    for (number, case) in endpoints(&node).iter().enumerate() {
        let Case { method, path, body, other_body, other_path } = case;
        let (key, what) = (format!("endpoint-{number}"), format!("{method} {path}"));
        let first = case.ask(&node, path, body, &key);
        assert!((200..300).contains(&first.status) && !first.is_replay(), "{what}: {first:?}");
        let again = case.ask(&node, path, body, &key);
        assert_eq!((again.status, &again.body), (first.status, &first.body), "{what}");
        assert_eq!(again.header(REPLAY), Some("true"), "{what}: {again:?}");
        let mut others = Vec::new();
        if let Some(other) = other_body {
            others.push(case.ask(&node, path, other, &key));
        }
        if let Some(other) = other_path {
            let looked = |path: &str| {
                let run = path.split(['/', ':']).find(|part| part.starts_with("run-"));
                run.map(|run| node.ask(Asked::get(&format!("/v1/runs/{run}"))).text("status"))
            };
            let before = looked(other);
            others.push(case.ask(&node, other, body, &key));
            assert_eq!(looked(other), before, "{what}: the other thing is as it was");
        }
        for other in others {
            assert!(is_mismatch(&other), "{what}: {other:?}");
            let names = ["runId", "webhookId", "secret", "status"];
            assert!(names.iter().all(|name| !other.body.contains(name)), "{what}: {other:?}");
        }
        let bare = case.ask(&node, path, body, &format!("{key}-new"));
        assert!(!bare.is_replay(), "{what}: another key is another request");
    }
}

/// W1, K6: who only looks needs no key and is not answered from one; without a key nothing is kept.
#[test]
fn w1_k6_a_look_honours_no_key_and_a_request_without_one_is_new() {
    let (_home, node) = host();
    let run = begin(&node, "conformance-noop", "completed");
    let path = format!("/v1/runs/{run}");
    for _ in 0..2 {
        let heard = node.ask(Asked::get(&path).under("looked"));
        assert_eq!((heard.status, heard.header(REPLAY)), (200, None));
    }
    let heard = node.ask(Asked::post("/v1/runs", &nonce("x")).under("looked"));
    assert_eq!((heard.status, heard.is_replay()), (201, false), "a look took no key");
    let bare = || node.ask(Asked::post("/v1/runs", &nonce("x")));
    let (one, two) = (bare(), bare());
    assert_ne!(one.text("runId"), two.text("runId"));
    assert_eq!(one.header(REPLAY), None);
}

/// W7: what was refused as invalid, unverified or forbidden binds no key.
#[test]
fn w7_refusals_that_a_caller_can_mend_are_not_kept() {
    let (_home, node) = host();
    let good = nonce("mended");
    let bad = json!({"workflowId": "conformance-idempotent", "surprise": 1});
    let wrong = json!({"workflowId": "conformance-idempotent", "inputs": {"nonce": 5}});
    let foreign = json!({"workflowId": "conformance-noop", "tenantId": "zoo"});
    let refusals: [(&str, u16, Heard); 5] = [
        ("a-400", 400, node.ask(Asked::post("/v1/runs", &bad).under("a-400"))),
        ("b-400", 400, node.ask(Asked::post("/v1/runs", &wrong).under("b-400"))),
        ("a-401", 401, node.ask_as("nobody", Asked::post("/v1/runs", &good).under("a-401"))),
        ("a-403", 403, node.ask_as(ONLOOKER, Asked::post("/v1/runs", &good).under("a-403"))),
        ("b-403", 403, node.ask(Asked::post("/v1/runs", &foreign).under("b-403"))),
    ];
    for (key, status, refused) in refusals {
        assert_eq!(refused.status, status, "{key}: {refused:?}");
        let mended = node.ask(Asked::post("/v1/runs", &good).under(key));
        assert_eq!((mended.status, mended.is_replay()), (201, false), "{key}: {mended:?}");
    }
}

/// W8: a refusal that will not pass is final: it is kept, and binds its key.
#[test]
fn w8_refusals_that_will_not_pass_are_kept() {
    let (_home, node) = host();
    let running = begin(&node, "conformance-cancellable", "running");
    let resume = format!("/v1/runs/{running}:resume");
    let nowhere = json!({"workflowId": "there-is-none"});
    let table = [
        ("/v1/runs", nowhere, 404, "workflow_not_found"),
        ("/v1/runs/run-none/cancel", json!({}), 404, "run_not_found"),
        (resume.as_str(), json!({}), 409, "run_not_paused"),
    ];
    for (number, (path, body, status, code)) in table.iter().enumerate() {
        let key = format!("final-{number}");
        let first = node.ask(Asked::post(path, body).under(&key));
        assert_eq!((first.status, first.error().as_deref()), (*status, Some(*code)), "{first:?}");
        let again = node.ask(Asked::post(path, body).under(&key));
        assert!(again.is_replay() && again.body == first.body, "{again:?}");
        let other = node.ask(Asked::post(path, &json!({"reason": "x"})).under(&key));
        assert!(is_mismatch(&other) || other.status == 400, "{other:?}");
    }
    let known = node.ask(Asked::post("/v1/runs", &nonce("x")).under("final-0"));
    assert!(is_mismatch(&known), "{known:?}");
}

/// W2: a key is URL-safe and has 255 characters at most; anything else is refused, and nothing
/// happens.
#[test]
fn w2_what_is_no_key_is_refused_and_leaves_nothing() {
    let (_home, node) = host();
    let body = nonce("grammar");
    for bad in ["k".repeat(256), "two words".into(), "a/b".into(), "é".into(), "a,b".into()] {
        let heard = node.ask(Asked::post("/v1/runs", &body).under(&bad));
        assert_eq!(heard.status, 400, "{bad:?}: {heard:?}");
        assert!(heard.error().is_some() && !heard.is_replay());
    }
    assert!(runs(&node, crate::home::ACME).is_empty());
    for good in ["k".repeat(255), "AZaz09-._~".into()] {
        assert_eq!(node.ask(Asked::post("/v1/runs", &body).under(&good)).status, 201, "{good}");
        assert!(node.ask(Asked::post("/v1/runs", &body).under(&good)).is_replay(), "{good}");
    }
}

/// W4, D5: the order of members and the space between them are not what was asked.
#[test]
fn w4_d5_the_same_json_written_otherwise_is_the_same_request() {
    let (_home, node) = host();
    let one = r#"{"workflowId":"conformance-idempotent","inputs":{"nonce":"n","more":[1,2]}}"#;
    let two = "{ \"inputs\": {\"more\": [1, 2],\n \"nonce\": \"\\u006e\"},\n\
               \"workflowId\": \"conformance-idempotent\" }";
    let other = two.replace("[1, 2]", "[2, 1]");
    let ask = |body: &str| {
        let asked = Asked { body: body.to_owned(), ..Asked::post("/v1/runs", &json!({})) };
        node.ask(asked.under("written"))
    };
    let first = ask(one);
    assert_eq!(first.status, 201, "{first:?}");
    let again = ask(two);
    assert!(again.is_replay() && again.body == first.body, "{again:?}");
    assert!(is_mismatch(&ask(&other)), "the order of a list is");
}

/// W3, W4, W19: what was answered outlives the process, whole; the run that it names is there.
#[test]
fn w3_w4_w19_what_was_answered_is_answered_after_a_kill() {
    let (_home, node) = host();
    let asked = || Asked::post("/v1/runs", &nonce("kept")).under("kept");
    let first = node.ask(asked());
    node.kill();
    node.restart();
    let again = node.ask(asked());
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert!(again.is_replay());
    let path = format!("/v1/runs/{}", first.text("runId"));
    until("its end", || (node.ask(Asked::get(&path)).text("status") == "completed").then_some(()));
    assert!(is_mismatch(&node.ask(Asked::post("/v1/runs", &nonce("x")).under("kept"))));
}

/// W5, W15, W25: discovery says for how long answers and calls are kept, and that there is one
/// region.
#[test]
fn w5_w15_w25_discovery_says_what_is_promised() {
    let (_home, node) = host();
    let found = Asked::get("/.well-known/openwop").send(node.address()).unwrap().json();
    let promised = &found["idempotency"];
    assert_eq!(promised["supported"], true);
    assert!(promised["layer1RetentionSeconds"].as_u64() >= Some(86_400), "{promised}");
    assert_eq!(promised["layer2RetentionSeconds"], 14 * 86_400);
    assert_eq!(promised["crossRegion"], "single-region");
    assert_eq!(&found["capabilities"]["idempotency"], promised, "older readers find it there");
    assert!(found["multiRegion"].is_null(), "it is not offered: {found}");
}
