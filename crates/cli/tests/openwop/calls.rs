//! Layer 2, as providers see it: what a call says that it is, and what comes of its answers.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::flow::{call, only, order, workflow};
use crate::home::{BINARY, Home, sha256};
use crate::journey::{Journey, Settle};
use crate::provider::Provider;

/// W11, W16: a call says which one it is, in the header that its provider reads, in the current
/// form and in that of the first text.
#[test]
fn w11_w16_a_call_carries_its_identity_in_the_header_of_its_provider() {
    let provider = Provider::start();
    let workflows = [only("for-anybody", &provider, "mail"), only("for-aws", &provider, "aws:sqs")];
    for (form, lines) in [("current", ""), ("source", "identity = \"source\"")] {
        let home = Home::alone(lines, &workflows);
        let node = home.start();
        for (workflow, name, header) in [
            ("for-anybody", "mail", "idempotency-key"),
            ("for-aws", "aws:sqs", "x-amzn-idempotency-token"),
        ] {
            let placed = format!("{form}-{workflow}");
            let mut journey = Journey::new(&node, workflow, &placed, Settle::Retry);
            assert_eq!(journey.follow()["status"], "completed");
            let run = journey.run.clone().unwrap();
            let current = ["openwop:activity:v2", "acme", &run, "pay", "0", name].join("\0");
            let expected = match form {
                "current" => URL_SAFE_NO_PAD.encode(Sha256::digest(current)),
                _ => sha256(&format!("{run}:pay:0:{name}")),
            };
            let calls = journey.calls(&provider, "pay");
            assert_eq!(calls.len(), 1);
            assert_eq!(calls[0].header(header), Some(expected.as_str()), "{form} {workflow}");
        }
    }
}

/// The workflow with this in its node for retries.
fn retried(id: &str, provider: &Provider, retry: &Value) -> Value {
    let mut pay = call("pay", provider, "bank");
    pay["settings"] = json!({"retry": retry});
    workflow(id, &[pay], &[])
}

/// W13, W14: what a provider refused is a result; a node that is tried again hears it again, and
/// the provider does not.
#[test]
fn w13_w14_a_refusal_is_kept_and_not_asked_for_again() {
    let provider = Provider::start();
    let retry = json!({"maxAttempts": 3, "backoffMs": 1, "on": ["http_status"]});
    let home = Home::alone("", &[retried("refused", &provider, &retry)]);
    let node = home.start();
    provider.answer("/pay", &[402]);
    let mut journey = Journey::new(&node, "refused", "refused-1", Settle::Retry);
    let run = journey.follow();
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("http_status")));
    assert_eq!(run["nodeStates"]["pay"]["attempt"], 2, "it was tried three times: {run}");
    assert_eq!(journey.calls(&provider, "pay").len(), 1, "and called once");
}

/// W8, W11, K9: a provider that is overloaded is asked again, and is told that it is the same call.
#[test]
fn w8_w11_a_refusal_that_passes_is_asked_for_again_under_the_same_identity() {
    let provider = Provider::start();
    let retry = json!({"maxAttempts": 5, "backoffMs": 1});
    let home = Home::alone("", &[retried("overloaded", &provider, &retry)]);
    let node = home.start();
    provider.answer("/pay", &[503, 429]);
    let mut journey = Journey::new(&node, "overloaded", "overloaded-1", Settle::Retry);
    assert_eq!(journey.follow()["status"], "completed");
    let calls = journey.calls(&provider, "pay");
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.key() == calls[0].key()), "{calls:?}");
}

/// X12, K5, W12: requests and calls are records of one store under one rule; operators find both
/// in one list.
#[test]
fn x12_k5_w12_operators_find_requests_and_calls_in_one_store() {
    let provider = Provider::start();
    let home = Home::alone("", &[order("order", &provider, "bank")]);
    let node = home.start();
    let mut journey = Journey::new(&node, "order", "listed-1", Settle::Retry);
    assert_eq!(journey.follow()["status"], "completed");
    let listed = Command::new(BINARY)
        .args(["keys", "list", "--all", "--json", "--admin-file"])
        .arg(node.admin_file())
        .output()
        .unwrap();
    let page: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let keys = page["keys"].as_array().unwrap();
    let done = |operation: &str| {
        let is_one = |key: &&Value| key["operation"] == operation && key["phase"] == "done";
        keys.iter().filter(is_one).count()
    };
    assert_eq!(done("POST /v1/runs"), 1, "{page:#}");
    assert_eq!(done("POST /v1/runs/{runId}/interrupts/{nodeId}"), 1, "{page:#}");
    assert_eq!(done("activity.invocations"), 2, "{page:#}");
    assert!(keys.iter().all(|key| key["tenant"] == "acme"), "{page:#}");
}
