//! Webhooks: whoever subscribed is told of every event that was committed, whatever becomes of the
//! host and of the receiver, and can tell who tells.

use std::collections::BTreeSet;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::home::{Home, Node, ZOO, until};
use crate::provider::{Call, Provider};
use crate::wire::Asked;

/// A short lease, so that a delivery that was under way in a kill comes again soon.
const SHORT: &str = "allow_private_targets = true\n\n[defaults]\nlease = \"1s\"";

/// Subscribes to the ends of runs, and gives the name and the secret of the subscription.
fn subscribe(node: &Node, receiver: &Provider) -> (String, String) {
    let body = json!({"url": receiver.url("/hook"), "events": ["run.completed"]});
    let heard = node.ask(Asked::post("/v1/webhooks", &body).under("subscribe"));
    assert_eq!(heard.status, 201, "{heard:?}");
    (heard.text("webhookId"), heard.text("secret"))
}

/// Runs something to its end.
fn run(node: &Node, credential: &str) -> String {
    let body = json!({"workflowId": "conformance-noop"});
    let run = node.ask_as(credential, Asked::post("/v1/runs", &body)).text("runId");
    let path = format!("/v1/runs/{run}");
    until("its end", || {
        (node.ask_as(credential, Asked::get(&path)).text("status") == "completed").then_some(())
    });
    run
}

/// The last event of a run, as it is read.
fn last(node: &Node, run: &str) -> Value {
    let path = format!("/v1/runs/{run}/events");
    let events = node.ask(Asked::get(&path).with("accept", "application/json")).json();
    events["events"].as_array().and_then(|events| events.last()).cloned().unwrap()
}

fn about(run: &str) -> impl Fn(&Call) -> bool {
    move |call| call.json()["runId"] == run
}

/// Whether whoever has the secret says so.
fn is_signed(call: &Call, secret: &str) -> bool {
    let stamp = call.header("x-openwop-timestamp").unwrap();
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    let mac = mac.chain_update(format!("{stamp}.{}", call.body)).finalize().into_bytes();
    let expected = format!("sha256={}", base16ct::lower::encode_string(&mac));
    call.header("x-openwop-signature") == Some(expected.as_str())
}

/// X8: an event and that somebody is to be told of it are one commit; what was not delivered when
/// the host was killed is delivered when it is back, and what may have been is delivered again.
#[test]
fn x8_what_was_committed_before_a_kill_is_told_after_it() {
    let receiver = Provider::start();
    let home = Home::alone(SHORT, &[]);
    let node = home.start();
    let (hook, secret) = subscribe(&node, &receiver);
    receiver.hold("/hook");
    let under_way = run(&node, crate::home::ACME);
    receiver.until(1, about(&under_way));
    // One after the other: while the first is not answered, these wait.
    let mut waiting: Vec<String> = (0..3).map(|_| run(&node, crate::home::ACME)).collect();
    node.kill();
    waiting.retain(|run| receiver.calls(about(run)).is_empty());
    assert!(!waiting.is_empty(), "all were sent, so this proves nothing");
    receiver.let_go("/hook");
    node.restart();
    for run in &waiting {
        let told = receiver.until(1, about(run));
        assert_eq!(told[0].json()["event"], last(&node, run));
        assert_eq!(told[0].header("x-openwop-webhook-id"), Some(hook.as_str()));
        assert!(is_signed(&told[0], &secret));
    }
    let again = receiver.until(2, about(&under_way));
    assert_eq!(again[0].body, again[1].body, "it is the same event");
    for run in &waiting {
        assert_eq!(receiver.calls(about(run)).len(), 1, "who was heard is not told again");
    }
}

/// X8: a receiver that fails is told again until it hears, with the same body, and each time
/// signed anew; nobody else's runs are told.
#[test]
fn x8_a_receiver_that_fails_is_told_again_and_each_time_signed() {
    let receiver = Provider::start();
    let home = Home::alone("allow_private_targets = true", &[]);
    let node = home.start();
    let (_, secret) = subscribe(&node, &receiver);
    receiver.answer("/hook", &[500, 503]);
    let foreign = run(&node, ZOO);
    let run = run(&node, crate::home::ACME);
    let told = receiver.until(3, about(&run));
    assert!(told.iter().all(|call| call.body == told[0].body && is_signed(call, &secret)));
    assert!(!told.iter().any(|call| is_signed(call, "another secret")));
    assert_eq!(told[0].header("x-openwop-event-type"), Some("run.completed"));
    assert_eq!(told[0].header("x-openwop-signature-algorithm"), Some("v1"));
    assert_eq!(told[0].json()["event"], last(&node, &run));
    assert!(receiver.calls(about(&foreign)).is_empty());
}

/// X8: two hosts tell of an event once, as long as nothing fails.
#[test]
fn x8_two_hosts_tell_of_an_event_once() {
    let receiver = Provider::start();
    let home = Home::shared("30s", &[]);
    let (one, other) = (home.start(), home.start());
    subscribe(&one, &receiver);
    let runs: Vec<String> = (0..10)
        .map(|number| run(if number % 2 == 0 { &one } else { &other }, crate::home::ACME))
        .collect();
    receiver.until(runs.len(), |_| true);
    // What would come twice would come before this.
    let after = run(&other, crate::home::ACME);
    receiver.until(1, about(&after));
    let calls = receiver.calls(|_| true);
    let told: BTreeSet<String> = calls
        .iter()
        .map(|call| call.json()["event"]["eventId"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!((told.len(), calls.len()), (runs.len() + 1, runs.len() + 1));
}

/// Nobody is told at an address that only this network has, unless the operator allows it, and
/// never without TLS.
#[test]
fn private_targets_are_refused_unless_they_are_allowed() {
    let receiver = Provider::start();
    let home = Home::alone("", &[]);
    let node = home.start();
    let targets = [
        receiver.url("/hook"),
        "https://127.0.0.1/hook".into(),
        "https://10.0.0.1/hook".into(),
        "https://169.254.169.254/latest".into(),
        "https://[::1]/hook".into(),
        "https://[::ffff:192.168.0.1]/hook".into(),
        "http://example.com/hook".into(),
    ];
    for url in targets {
        let body = json!({"url": url, "events": ["run.completed"]});
        let heard = node.ask(Asked::post("/v1/webhooks", &body).under("target"));
        let code = heard.error();
        assert_eq!(code.as_deref(), Some("webhook_url_rejected"), "{url}: {heard:?}");
        assert_eq!(heard.status, 400, "{url}");
    }
    let body = json!({"url": "https://example.com/hook", "events": ["run.completed"]});
    let heard = node.ask(Asked::post("/v1/webhooks", &body).under("target"));
    assert_eq!(heard.status, 201, "W7: what was refused took no key: {heard:?}");
}
