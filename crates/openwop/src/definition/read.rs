//! From what was written to a checked workflow: names, edges, inputs, expressions, order.
//!
//! Every complaint says where it is. Nothing is mended in silence.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    DefinitionError, Edge, ID_BYTES_MAX, NODE_ID_BYTES_MAX, Node, Port, Retry, Settings,
    TriggerRule, Variable, one_minute, one_second, wrong,
};
use crate::condition::Condition;
use crate::expression::Expression;
use crate::nodes::{BuiltIn, TRANSFORM};

/// A workflow as it was written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Written {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) nodes: Vec<WrittenNode>,
    #[serde(default)]
    pub(super) edges: Vec<WrittenEdge>,
    #[serde(default)]
    pub(super) variables: Vec<Variable>,
    #[serde(default)]
    pub(super) settings: Settings,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WrittenNode {
    pub(super) id: String,
    type_id: String,
    #[serde(default)]
    config: Map<String, Value>,
    #[serde(default)]
    inputs: BTreeMap<String, WrittenPort>,
    #[serde(default)]
    settings: NodeSettings,
    #[serde(default)]
    requires: Vec<String>,
    #[serde(default)]
    disabled: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct NodeSettings {
    retry: Option<Retry>,
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum WrittenPort {
    Static {
        #[serde(default)]
        value: Value,
    },
    Expression {
        expression: String,
    },
    #[serde(rename_all = "camelCase")]
    Connection {
        node_id: String,
        output_key: String,
        #[serde(default)]
        optional: bool,
    },
    #[serde(rename_all = "camelCase")]
    Variable {
        variable_name: String,
        #[serde(default)]
        optional: bool,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WrittenEdge {
    pub(super) source_node_id: String,
    target_node_id: String,
    #[serde(default)]
    condition: Option<Value>,
    #[serde(default)]
    pub(super) trigger_rule: TriggerRule,
}

/// The grammar of a workflow's name: it stands in paths.
pub(super) fn check_id(id: &str) -> Result<(), DefinitionError> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c);
    let is_one = id.starts_with(|c: char| c.is_ascii_lowercase()) && id.chars().all(fits);
    if !is_one || id.len() > ID_BYTES_MAX {
        return wrong(format!(
            "its id {id:?} is not one: up to {ID_BYTES_MAX} lower-case letters, digits, `-`, `_` \
             and `.`, a letter first"
        ));
    }
    Ok(())
}

pub(super) fn check_node_id(id: &str) -> Result<(), DefinitionError> {
    let is_plain = !id.is_empty() && !id.chars().any(char::is_control);
    if is_plain && id.len() <= NODE_ID_BYTES_MAX {
        return Ok(());
    }
    wrong(format!(
        "a node is called {id:?}: 1 to {NODE_ID_BYTES_MAX} characters without control characters"
    ))
}

pub(super) fn check_variables(variables: &[Variable]) -> Result<(), DefinitionError> {
    let mut names = HashSet::new();
    for variable in variables {
        if !names.insert(&variable.name) {
            return wrong(format!("two variables are called {:?}", variable.name));
        }
        match &variable.default_value {
            Some(value) if !value.is_null() && !variable.kind.fits(value) => {
                let (name, kind) = (&variable.name, variable.kind.name());
                return wrong(format!("the default of variable {name:?} is no {kind}"));
            }
            Some(_) | None => {}
        }
    }
    Ok(())
}

pub(super) fn incoming(
    nodes: &[WrittenNode],
    edges: Vec<WrittenEdge>,
    places: &HashMap<String, usize>,
) -> Result<Vec<Vec<Edge>>, DefinitionError> {
    let mut incoming: Vec<Vec<Edge>> = nodes.iter().map(|_| Vec::new()).collect();
    for edge in edges {
        let WrittenEdge { source_node_id: source, target_node_id: target, .. } = edge;
        if !places.contains_key(&source) {
            return wrong(format!("an edge comes from {source:?}, and no node is called that"));
        }
        let Some(place) = places.get(&target) else {
            return wrong(format!("an edge leads to {target:?}, and no node is called that"));
        };
        let condition = edge.condition.map(Condition::of).transpose().map_err(|error| {
            DefinitionError(format!("the condition from {source:?} to {target:?}: {error}"))
        })?;
        incoming[*place].push(Edge { source, rule: edge.trigger_rule, condition });
    }
    Ok(incoming)
}

pub(super) fn read_node(
    node: WrittenNode,
    settings: &Settings,
    handled: &HashSet<String>,
    places: &HashMap<String, usize>,
) -> Result<Node, DefinitionError> {
    let WrittenNode { id, type_id, config, inputs, settings: own, requires, disabled } = node;
    let mut ports = BTreeMap::new();
    for (name, port) in inputs {
        let port = read_port(port, places)
            .map_err(|error| DefinitionError(format!("input {name:?} of node {id:?}: {error}")))?;
        ports.insert(name, port);
    }
    let retry = own.retry.unwrap_or(Retry {
        max_attempts: settings.max_retries.saturating_add(1),
        backoff_ms: one_second(),
        max_backoff_ms: one_minute(),
        on: None,
    });
    let failure_is_handled = handled.contains(&id);
    check_config(&type_id, &config)
        .map_err(|error| DefinitionError(format!("node {id:?}: {error}")))?;
    let sets = sets(&type_id, &config)
        .map_err(|error| DefinitionError(format!("node {id:?}: {error}")))?;
    Ok(Node {
        id,
        type_id,
        config,
        inputs: ports,
        retry,
        timeout_ms: own.timeout_ms,
        sets,
        requires,
        disabled,
        failure_is_handled,
    })
}

/// What approvals, and calls, can be told beforehand.
const APPROVAL: &[&str] = &[
    "actions",
    "approversList",
    "artifactId",
    "artifactType",
    "authRequired",
    "data",
    "description",
    "key",
    "onTimeout",
    "outputVariable",
    "profile",
    "rejectionPolicy",
    "requiredApprovals",
    "requires",
    "timeoutMs",
    "title",
];
const HTTP_CALL: &[&str] = &[
    "body",
    "failOnError",
    "headers",
    "method",
    "outputVariable",
    "provider",
    "requires",
    "timeoutMs",
    "url",
];
/// How alike two names are that one was probably meant to be the other.
const ALIKE: f64 = 0.8;

/// Refuses what would make a guard weaker than its author believes: a name that is nearly one that
/// counts, and values that are none.
fn check_config(type_id: &str, config: &Map<String, Value>) -> Result<(), String> {
    let built_in = BuiltIn::of(type_id);
    let known = match built_in {
        Some(BuiltIn::Approval) => APPROVAL,
        Some(BuiltIn::Http) => HTTP_CALL,
        _ => return Ok(()),
    };
    for name in config.keys().filter(|name| !known.contains(&name.as_str())) {
        let likeness = |one: &&&str| strsim::normalized_damerau_levenshtein(name, one);
        let meant = known.iter().find(|one| likeness(one) >= ALIKE);
        if let Some(meant) = meant {
            return Err(format!("config.{name} means nothing; did you mean {meant}?"));
        }
    }
    if built_in != Some(BuiltIn::Approval) {
        return Ok(());
    }
    let required = config.get("requiredApprovals").filter(|value| !value.is_null());
    let count = required.map_or(Some(1), Value::as_u64).filter(|count| *count > 0);
    let count = count.ok_or("config.requiredApprovals must be a whole number above zero")?;
    let approvers = config.get("approversList").and_then(Value::as_array).map_or(0, Vec::len);
    if approvers > 0 && (approvers as u64) < count {
        return Err(format!("{count} approvals are required, and {approvers} may give one"));
    }
    let policies = ["any", "majority", "all", "unanimous"];
    match config.get("rejectionPolicy").and_then(Value::as_str) {
        Some(policy) if !policies.contains(&policy) => {
            Err(format!("config.rejectionPolicy must be one of: {}", policies.join(", ")))
        }
        Some(_) | None => Ok(()),
    }
}

/// What a `core.transform` computes: `config.set` names an expression for each variable.
fn sets(type_id: &str, config: &Map<String, Value>) -> Result<Vec<(String, Expression)>, String> {
    if type_id != TRANSFORM {
        return Ok(Vec::new());
    }
    let set = config.get("set").and_then(Value::as_object);
    let set = set.ok_or("config.set must name an expression for each variable that it sets")?;
    let read = |(name, source): (&String, &Value)| {
        let source = source.as_str().ok_or_else(|| format!("{name:?} is set to no expression"))?;
        let expression = Expression::parse(source).map_err(|error| error.to_string())?;
        Ok((name.clone(), expression))
    };
    set.iter().map(read).collect()
}

fn read_port(port: WrittenPort, places: &HashMap<String, usize>) -> Result<Port, String> {
    match port {
        WrittenPort::Static { value } => Ok(Port::Static(value)),
        WrittenPort::Expression { expression } => {
            Expression::parse(&expression).map(Port::Expression).map_err(|error| error.to_string())
        }
        WrittenPort::Connection { node_id: node, output_key: output, optional } => {
            if places.contains_key(&node) {
                Ok(Port::Connection { node, output, optional })
            } else {
                Err(format!("no node is called {node:?}"))
            }
        }
        WrittenPort::Variable { variable_name: name, optional } => {
            Ok(Port::Variable { name, optional })
        }
    }
}

/// No node may wait for itself, however far around.
pub(super) fn check_order(
    nodes: &[Node],
    incoming: &[Vec<Edge>],
    places: &HashMap<String, usize>,
) -> Result<(), DefinitionError> {
    let mut waits: Vec<usize> = incoming.iter().map(Vec::len).collect();
    let mut outgoing: Vec<Vec<usize>> = nodes.iter().map(|_| Vec::new()).collect();
    for (target, edges) in incoming.iter().enumerate() {
        for edge in edges {
            outgoing[places[&edge.source]].push(target);
        }
    }
    let mut free: Vec<usize> = (0..nodes.len()).filter(|place| waits[*place] == 0).collect();
    let mut ordered = 0;
    while let Some(place) = free.pop() {
        ordered += 1;
        for target in &outgoing[place] {
            waits[*target] -= 1;
            if waits[*target] == 0 {
                free.push(*target);
            }
        }
    }
    if ordered == nodes.len() {
        return Ok(());
    }
    let looped = waits.iter().position(|waits| *waits > 0).map_or("?", |at| &nodes[at].id);
    wrong(format!("its edges go in a circle through {looped:?}; every path must come to an end"))
}
