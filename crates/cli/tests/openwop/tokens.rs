//! Tokens: whoever holds one may answer one question of one run, once, and nothing else.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::home::{Home, Node, until};
use crate::wire::{Asked, Heard};

/// A run that waits at its gate, and the token for that.
fn waiting(node: &Node) -> (String, String) {
    let body = json!({"workflowId": "conformance-approval"});
    let run = node.ask(Asked::post("/v1/runs", &body)).text("runId");
    let path = format!("/v1/runs/{run}");
    let seen = until("a gate", || {
        let seen = node.ask(Asked::get(&path)).json();
        seen["interrupt"]["interruptToken"].as_str().map(str::to_owned)
    });
    (run, seen)
}

fn status(node: &Node, run: &str) -> String {
    node.ask(Asked::get(&format!("/v1/runs/{run}"))).text("status")
}

/// Says yes with a token, without a credential.
fn accept(node: &Node, token: &str) -> Heard {
    let (path, word) =
        (format!("/v1/interrupts/{token}"), json!({"resumeValue": {"action": "accept"}}));
    Asked::post(&path, &word).send(node.address()).unwrap()
}

/// The token with its claims changed, and its signature kept.
fn bent(token: &str, change: impl Fn(&mut Value)) -> String {
    let (text, signature) = token.split_once('.').unwrap();
    let mut claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap();
    change(&mut claims);
    format!("{}.{signature}", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// W1: what nobody signed answers nothing; what was signed answers one question, and survives a
/// kill of the host.
#[test]
fn w1_a_token_that_was_tampered_with_answers_nothing() {
    let home = Home::alone("", &[]);
    let node = home.start();
    let ((run, token), (other, _)) = (waiting(&node), waiting(&node));
    let (text, signature) = token.split_once('.').unwrap();
    let first = if signature.starts_with('A') { "B" } else { "A" };
    let tampered = [
        format!("{text}.{first}{}", &signature[1..]),
        format!("{text}."),
        format!("{text}.{}", URL_SAFE_NO_PAD.encode([0; 32])),
        bent(&token, |claims| claims["runId"] = json!(other)),
        bent(&token, |claims| claims["expiresAt"] = json!(u64::MAX)),
        bent(&token, |claims| claims["tenant"] = json!("zoo")),
    ];
    for bad in &tampered {
        let heard = accept(&node, bad);
        assert_eq!(heard.status, 404, "{bad}: {heard:?}");
        let path = format!("/v1/interrupts/{bad}");
        assert_eq!(Asked::get(&path).send(node.address()).unwrap().status, 404, "{bad}");
    }
    assert_eq!(status(&node, &run), "waiting-approval");
    assert_eq!(status(&node, &other), "waiting-approval");
    node.kill();
    node.restart();
    assert_eq!(accept(&node, &token).status, 200);
    until("its end", || (status(&node, &run) == "completed").then_some(()));
    let late = accept(&node, &token);
    assert!([404, 409, 410].contains(&late.status), "it is spent: {late:?}");
    assert_eq!(status(&node, &other), "waiting-approval", "and no other question is answered");
}
