//! Workflows of these tests.
//!
//! An order is paid, approved, shipped and rests a little. Every call says in its body which order
//! it is about, so that calls can be told apart without their identities.

use serde_json::{Value, json};

use crate::provider::Provider;

/// How long an order rests before its end, in milliseconds.
const REST_MS: u64 = 120;

/// A workflow of these nodes, one after the other along `edges`.
pub(crate) fn workflow(id: &str, nodes: &[Value], edges: &[(&str, &str)]) -> Value {
    let edge = |(source, target): &(&str, &str)| {
        json!({
            "id": format!("{source}-{target}"), "sourceNodeId": source, "targetNodeId": target,
        })
    };
    json!({
        "id": id, "name": id, "version": "1.0", "nodes": nodes,
        "edges": edges.iter().map(edge).collect::<Vec<_>>(),
        "triggers": [{"id": "manual", "type": "manual", "enabled": true}],
        "variables": [{"name": "order", "type": "string", "required": true}],
        "metadata": {"tags": []}, "settings": {"timeout": 300_000, "maxRetries": 0},
    })
}

fn node(id: &str, type_id: &str, config: &Value) -> Value {
    json!({
        "id": id, "typeId": type_id, "name": id, "position": {"x": 0, "y": 0},
        "config": config, "inputs": {},
    })
}

/// A node that does nothing.
pub(crate) fn noop(id: &str) -> Value {
    node(id, "core.noop", &json!({}))
}

/// A node that waits for an approval.
pub(crate) fn gate(id: &str) -> Value {
    node(id, "core.approvalGate", &json!({"title": "Go on?", "actions": ["accept", "reject"]}))
}

/// A node that calls `/{id}` of a provider of this name.
pub(crate) fn call(id: &str, provider: &Provider, name: &str) -> Value {
    let config =
        json!({"method": "POST", "url": provider.url(&format!("/{id}")), "provider": name});
    let mut node = node(id, "core.http", &config);
    node["inputs"] =
        json!({"body": {"type": "expression", "expression": "{'order': inputs.order}"}});
    node
}

/// An order, paid and shipped by a provider of this name.
pub(crate) fn order(id: &str, provider: &Provider, name: &str) -> Value {
    let nodes = [
        noop("begin"),
        call("pay", provider, name),
        gate("gate"),
        call("ship", provider, name),
        node("rest", "core.delay", &json!({"delayMs": REST_MS})),
        noop("end"),
    ];
    let edges =
        [("begin", "pay"), ("pay", "gate"), ("gate", "ship"), ("ship", "rest"), ("rest", "end")];
    workflow(id, &nodes, &edges)
}

/// A call and an approval side by side, so that a run can be told to go on while it calls.
pub(crate) fn beside(id: &str, provider: &Provider, name: &str) -> Value {
    let nodes = [noop("begin"), call("pay", provider, name), gate("gate"), noop("end")];
    let edges = [("begin", "pay"), ("begin", "gate"), ("pay", "end"), ("gate", "end")];
    workflow(id, &nodes, &edges)
}

/// One call and nothing else.
pub(crate) fn only(id: &str, provider: &Provider, name: &str) -> Value {
    workflow(id, &[call("pay", provider, name)], &[])
}
