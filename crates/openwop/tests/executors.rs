//! Node types of the user's own: run once at a time, their calls made once, by whichever host.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use onetake_engine::{Engine, Memory};
use onetake_http::identity::{AnonymousSettings, Gate};
use onetake_openwop::{
    Catalog, Definition, Door, Executor, Executors, Failure, Host, HostSettings, NodeContext,
    NodeEnd,
};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;

type Shared = Arc<Memory>;

/// What the node did: how often its body ran, and how often each of its two calls was made.
#[derive(Default)]
struct Ledger {
    bodies: AtomicU32,
    calls: [AtomicU32; 2],
    /// Whether the body is to fail after its first call, the first time.
    fails_once: bool,
    begun: Notify,
    /// The body waits here, where it is to be held up.
    held: Option<Notify>,
}

struct Charge(Arc<Ledger>);

impl Executor for Charge {
    async fn execute(&self, mut node: NodeContext) -> NodeEnd {
        let Self(ledger) = self;
        let round = ledger.bodies.fetch_add(1, Ordering::SeqCst);
        ledger.begun.notify_one();
        if let Some(held) = &ledger.held {
            held.notified().await;
        }
        let mut outputs = Map::new();
        for n in 0..2 {
            let counted = Arc::clone(ledger);
            let request = json!({"n": n});
            let called = node.calls.call("bank", &request, move |calling| async move {
                counted.calls[n].fetch_add(1, Ordering::SeqCst);
                Ok::<_, Failure>(json!(calling.id.as_str()))
            });
            match called.await {
                Ok(id) => drop(outputs.insert(format!("call{n}"), id)),
                Err(end) => return end,
            }
            if ledger.fails_once && round == 0 && n == 0 {
                return NodeEnd::Failed(Failure::passing("busy", "come back"));
            }
        }
        NodeEnd::Completed(outputs)
    }
}

fn workflow() -> Definition {
    let node = json!({
        "id": "charge", "typeId": "my.charge", "config": {}, "inputs": {},
        "settings": {"retry": {"maxAttempts": 3, "backoffMs": 1}},
    });
    let written = json!({
        "id": "w", "name": "w", "version": "1", "nodes": [node], "edges": [], "triggers": [],
        "variables": [], "metadata": {}, "settings": {},
    });
    Definition::of(written).unwrap()
}

async fn door(store: &Shared, ledger: &Arc<Ledger>) -> Door<Shared> {
    door_with(store, ledger, HostSettings::default()).await
}

async fn door_with(store: &Shared, ledger: &Arc<Ledger>, settings: HostSettings) -> Door<Shared> {
    let catalog = Catalog::of([workflow()]).unwrap();
    let executors = Executors::default().with("my.charge", Charge(Arc::clone(ledger)));
    let engine = Engine::new(Arc::clone(store));
    // As after a crash: whatever is under way is taken over at once.
    let settings = HostSettings { is_alone: true, ..settings };
    let host = Host::open(engine, catalog, executors, settings).await.unwrap();
    let gate = AnonymousSettings { tenant: Some("acme".into()) }.build().unwrap();
    Door::new(host, Gate::Anonymous(gate), false)
}

async fn ask(door: &Door<Shared>, method: &str, path: &str, body: Value) -> Value {
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let answer = door.answer(request, IpAddr::V4(Ipv4Addr::LOCALHOST)).await;
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap_or(Value::Null)
}

async fn create(door: &Door<Shared>) -> String {
    let created = ask(door, "POST", "/v1/runs", json!({"workflowId": "w"})).await;
    created["runId"].as_str().unwrap().to_owned()
}

async fn ended(door: &Door<Shared>, run: &str) -> Value {
    stands(door, run, &["completed", "failed", "cancelled"]).await
}

/// The run, once it stands at one of these.
async fn stands(door: &Door<Shared>, run: &str, at: &[&str]) -> Value {
    let stands = timeout(Duration::from_secs(20), async {
        loop {
            let seen = ask(door, "GET", &format!("/v1/runs/{run}"), json!({})).await;
            if at.contains(&seen["status"].as_str().unwrap()) {
                return seen;
            }
            // Whoever gets there on another way must not keep the clock from running.
            tokio::task::yield_now().await;
            let last = &seen["lastSequence"];
            let path = format!("/v1/runs/{run}/events/poll?lastSequence={last}&timeout=1");
            ask(door, "GET", &path, json!({})).await;
        }
    });
    stands.await.expect("the run gets there")
}

fn counts(ledger: &Ledger) -> (u32, [u32; 2]) {
    let calls = [0, 1].map(|n: usize| ledger.calls[n].load(Ordering::SeqCst));
    (ledger.bodies.load(Ordering::SeqCst), calls)
}

/// W11, W13: a node that is tried again names its calls as before, and makes none twice.
#[tokio::test]
async fn w11_w13_a_node_that_is_tried_again_makes_no_call_twice() {
    let store = Shared::default();
    let ledger = Arc::new(Ledger { fails_once: true, ..Ledger::default() });
    let door = door(&store, &ledger).await;
    let seen = ended(&door, &create(&door).await).await;
    assert_eq!(seen["status"], "completed", "{seen}");
    assert_eq!(counts(&ledger), (2, [1, 1]), "two rounds, one call each");
    let outputs: BTreeMap<String, String> =
        serde_json::from_value(seen["nodeStates"]["charge"]["outputs"].clone()).unwrap();
    assert_ne!(outputs["call0"], outputs["call1"], "two calls of one node are two");
}

/// X1, X12: two hosts that drive one run execute its node once; the other one waits for what it
/// came to.
#[tokio::test]
async fn x1_x12_two_hosts_on_one_store_execute_a_node_once() {
    let store = Shared::default();
    let ledger = Arc::new(Ledger { held: Some(Notify::new()), ..Ledger::default() });
    let one = door(&store, &ledger).await;
    let run = create(&one).await;
    ledger.begun.notified().await;
    let two = door(&store, &ledger).await;
    // Whoever looks at a run that is under way leaves it to whoever has the claim.
    let seen = ask(&two, "GET", &format!("/v1/runs/{run}"), json!({})).await;
    assert_eq!(seen["status"], "running");
    ledger.held.as_ref().unwrap().notify_one();
    let (by_one, by_two) = (ended(&one, &run).await, ended(&two, &run).await);
    assert_eq!((&by_one["status"], &by_two["status"]), (&json!("completed"), &json!("completed")));
    assert_eq!(counts(&ledger), (1, [1, 1]));
}

/// W15, X3: a node that began longer ago than its calls are remembered may have made them. It is
/// held, and called again only where somebody who knows says so.
#[tokio::test]
async fn w15_a_node_whose_calls_may_be_forgotten_is_held() {
    let (store, ledger) = (Shared::default(), Arc::new(Ledger::default()));
    let settings = HostSettings { calls_kept: Duration::from_millis(1), ..HostSettings::default() };
    let door = door_with(&store, &ledger, settings).await;
    let run = create(&door).await;
    let held = stands(&door, &run, &["waiting-external"]).await;
    assert_eq!(held["interrupt"]["key"], "outcome_unknown", "{held}");
    assert_eq!(counts(&ledger), (0, [0, 0]));
    let word = json!({"resumeValue": {"action": "complete", "result": {"found": "out"}}});
    ask(&door, "POST", &format!("/v1/runs/{run}/interrupts/charge"), word).await;
    let seen = ended(&door, &run).await;
    assert_eq!(seen["nodeStates"]["charge"]["outputs"], json!({"found": "out"}), "{seen}");
    assert_eq!(counts(&ledger), (0, [0, 0]));
    let run = create(&door).await;
    stands(&door, &run, &["waiting-external"]).await;
    let word = json!({"resumeValue": {"action": "retry"}});
    ask(&door, "POST", &format!("/v1/runs/{run}/interrupts/charge"), word).await;
    assert_eq!(ended(&door, &run).await["status"], "completed");
    assert_eq!(counts(&ledger), (1, [1, 1]));
}
