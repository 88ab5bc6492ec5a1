//! The workflows that come with the project: they load, and the example does what its page says.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use onetake_engine::{Engine, Memory};
use onetake_http::identity::{AnonymousSettings, Gate};
use onetake_openwop::{Catalog, Door, Executors, Host, HostSettings, ReplyBody};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

fn directory(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[test]
fn every_workflow_of_the_project_can_be_loaded() {
    let fixtures = Catalog::load(&directory("conformance")).unwrap();
    assert!(fixtures.workflows().count() >= 20);
    assert!(fixtures.workflows().all(|one| one.id.starts_with("conformance-")));
    let examples = Catalog::load(&directory("../../examples/workflows")).unwrap();
    assert!(examples.workflow("refund").is_some());
}

async fn door() -> Door<Memory> {
    let catalog = Catalog::load(&directory("../../examples/workflows")).unwrap();
    let engine = Engine::new(Memory::new());
    let settings = HostSettings { is_alone: true, ..HostSettings::default() };
    let host = Host::open(engine, catalog, Executors::default(), settings).await.unwrap();
    let settings = AnonymousSettings { tenant: Some("acme".into()) };
    Door::new(host, Gate::Anonymous(settings.build().unwrap()), false)
}

async fn ask(door: &Door<Memory>, method: &str, path: &str, body: Value) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("idempotency-key", "one");
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let answer: Response<ReplyBody> = door.answer(request, IpAddr::V4(Ipv4Addr::LOCALHOST)).await;
    let status = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

const PAID: &str =
    "HTTP/1.1 200 OK\r\ncontent-length: 13\r\nconnection: close\r\n\r\n{\"paid\":true}";

/// A provider that answers everything, and gives the keys it was sent.
async fn provider() -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/refunds", listener.local_addr().unwrap());
    let (heard, keys) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut text = Vec::new();
            while !text.ends_with(b"}") {
                if stream.read_buf(&mut text).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            let text = String::from_utf8_lossy(&text).to_lowercase();
            let key = text.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
            heard.send(key.unwrap_or("none").trim().to_owned()).unwrap();
            stream.write_all(PAID.as_bytes()).await.unwrap();
        }
    });
    (url, keys)
}

async fn until(door: &Door<Memory>, run: &str, status: &str) -> Value {
    let looked = timeout(Duration::from_secs(20), async {
        loop {
            let (_, seen) = ask(door, "GET", &format!("/v1/runs/{run}"), json!({})).await;
            if seen["status"] == status {
                return seen;
            }
            let last = &seen["lastSequence"];
            let path = format!("/v1/runs/{run}/events/poll?lastSequence={last}&timeout=1");
            ask(door, "GET", &path, json!({})).await;
        }
    });
    looked.await.expect("the run gets there")
}

/// W13, W16, W19: a large refund waits for its approval, and then the provider is called once.
#[tokio::test]
async fn w13_w16_w19_a_refund_is_approved_and_paid_once() {
    let (door, (url, mut keys)) = (door().await, provider().await);
    let order = |amount: i64| {
        let inputs = json!({"order": "77", "amount": amount, "paymentsUrl": url});
        json!({"workflowId": "refund", "inputs": inputs})
    };
    let (status, created) = ask(&door, "POST", "/v1/runs", order(250)).await;
    assert_eq!(status, 201, "{created}");
    let (_, again) = ask(&door, "POST", "/v1/runs", order(250)).await;
    assert_eq!(again["runId"], created["runId"]);
    let (status, refused) = ask(&door, "POST", "/v1/runs", order(251)).await;
    assert_eq!((status, refused["error"].as_str()), (409, Some("idempotency_key_mismatch")));
    let run = created["runId"].as_str().unwrap().to_owned();
    let waiting = until(&door, &run, "waiting-approval").await;
    assert_eq!(waiting["currentNodeId"], "approve");
    let accept = json!({"resumeValue": {"action": "accept"}});
    let path = format!("/v1/runs/{run}/interrupts/approve");
    assert_eq!(ask(&door, "POST", &path, accept.clone()).await.0, 200);
    let done = until(&door, &run, "completed").await;
    assert_eq!(done["variables"]["payment"]["body"]["paid"], true);
    assert_eq!(ask(&door, "POST", &path, accept).await.0, 200, "the same answer again");
    assert_eq!(keys.recv().await.unwrap().len(), 43, "the identity of the call");
    assert!(keys.try_recv().is_err(), "it was called once");
}

/// A small refund needs nobody's word.
#[tokio::test]
async fn a_small_refund_is_paid_at_once() {
    let (door, (url, mut keys)) = (door().await, provider().await);
    let inputs = json!({"order": "78", "amount": 99.5, "paymentsUrl": url});
    let (_, created) =
        ask(&door, "POST", "/v1/runs", json!({"workflowId": "refund", "inputs": inputs})).await;
    let done = until(&door, created["runId"].as_str().unwrap(), "completed").await;
    assert_eq!(done["nodeStates"]["approve"]["status"], "skipped");
    assert!(keys.recv().await.is_some());
}
