//! A workflow as its author wrote it: typed nodes, edges between them, variables.
//!
//! Parsed and checked once, when it is loaded; afterwards the type is the proof: every edge has two
//! ends, no node waits for itself, every expression can be read. Nothing here runs anything, and
//! what was written is given back unchanged.

mod read;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use base16ct::lower;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use self::read::{
    Written, check_id, check_node_id, check_order, check_variables, incoming, read_node,
};
use crate::condition::Condition;
use crate::expression::Expression;

/// The most nodes of one workflow: what a run says of each of them fits into one document.
pub(crate) const NODES_MAX: usize = 500;
/// The most edges of one workflow.
pub(crate) const EDGES_MAX: usize = 2_000;
/// The largest definition, in bytes.
pub(crate) const DEFINITION_BYTES_MAX: usize = 1 << 20;
/// The longest identifier of a workflow.
const ID_BYTES_MAX: usize = 128;
/// The longest identifier of a node: it is part of the identity of what the node calls.
const NODE_ID_BYTES_MAX: usize = 255;

/// What is shown in place of a value that is shown to nobody.
pub(crate) const HIDDEN: &str = "***";

/// Which definition a run began with, whatever has become of the file since.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DefinitionId(Arc<str>);

impl DefinitionId {
    /// The identifier as it is kept.
    #[must_use]
    pub fn from_kept(text: &str) -> Self {
        Self(text.into())
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A checked workflow.
pub struct Definition {
    /// Its name in requests.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// Its version, as its author counts.
    pub version: String,
    /// Its nodes, in the order in which they were written.
    pub nodes: Vec<Node>,
    /// Its variables.
    pub variables: Vec<Variable>,
    /// Its settings.
    pub settings: Settings,
    /// Which definition it is.
    pub digest: DefinitionId,
    /// What was written.
    pub written: Value,
    places: HashMap<String, usize>,
    /// The edges that lead to each node, in the order of the nodes.
    incoming: Vec<Vec<Edge>>,
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, version, digest, .. } = self;
        write!(f, "Definition({id} {version}, {})", digest.as_str())
    }
}

/// One node.
#[derive(Debug)]
pub struct Node {
    /// Its name in this workflow.
    pub id: String,
    /// What it is, such as `core.http`.
    pub type_id: String,
    /// What was set beforehand.
    pub config: Map<String, Value>,
    /// What it is given, by name.
    pub inputs: BTreeMap<String, Port>,
    /// When it is tried again.
    pub retry: Retry,
    /// How long it may take, where that is bounded.
    pub timeout_ms: Option<u64>,
    /// What it computes, by name, where it is a `core.transform`.
    pub sets: Vec<(String, Expression)>,
    /// What the host must provide for it.
    pub requires: Vec<String>,
    /// Whether it is left out.
    pub disabled: bool,
    /// Whether a failure of it is somebody's to handle: an edge leads on from it.
    pub failure_is_handled: bool,
}

/// Where an input comes from.
#[derive(Debug)]
pub enum Port {
    /// It was written down.
    Static(Value),
    /// It is computed.
    Expression(Expression),
    /// It is an output of another node.
    Connection {
        /// Which node.
        node: String,
        /// Which of its outputs.
        output: String,
        /// Whether it may be missing.
        optional: bool,
    },
    /// It is a variable.
    Variable {
        /// Which one.
        name: String,
        /// Whether it may be missing.
        optional: bool,
    },
}

/// When the target of an edge may begin, as far as its source is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriggerRule {
    /// When all that lead here have succeeded.
    #[default]
    AllSuccess,
    /// As soon as one of them has succeeded.
    AnySuccess,
    /// When all have ended, however.
    AllComplete,
    /// When none has failed.
    NoneFailed,
    /// As soon as one has failed.
    AnyFailed,
}

impl TriggerRule {
    /// Whether an edge with this rule leads on from a failure.
    #[must_use]
    pub const fn handles_failure(self) -> bool {
        matches!(self, Self::AllComplete | Self::AnyFailed)
    }

    /// Whether one source is enough.
    #[must_use]
    pub const fn is_any(self) -> bool {
        matches!(self, Self::AnySuccess | Self::AnyFailed)
    }
}

/// An edge that leads to a node.
#[derive(Debug)]
pub struct Edge {
    /// Where it comes from.
    pub source: String,
    /// When it lets its target begin.
    pub rule: TriggerRule,
    /// Under which condition.
    pub condition: Option<Condition>,
}

/// A variable of a workflow.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// What it holds.
    #[serde(rename = "type")]
    pub kind: VariableKind,
    /// Whether a run must be given it.
    #[serde(default)]
    pub required: bool,
    /// What it is unless said otherwise.
    #[serde(default)]
    pub default_value: Option<Value>,
    /// Whether its value is shown to nobody.
    #[serde(default)]
    pub sensitive: bool,
}

/// What a variable holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VariableKind {
    /// Text.
    String,
    /// A number.
    Number,
    /// A truth value.
    Boolean,
    /// A JSON object.
    Object,
    /// A JSON array.
    Array,
}

impl VariableKind {
    /// Whether `value` is of this kind.
    #[must_use]
    pub fn fits(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
        }
    }

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Object => "object",
            Self::Array => "array",
        }
    }
}

/// The settings of a workflow.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// How long a run may take, in milliseconds; nothing or zero: as long as the host allows.
    #[serde(default)]
    pub timeout: Option<u64>,
    /// How often a node that failed is tried again, where the node does not say.
    #[serde(default)]
    pub max_retries: u32,
}

/// When a node is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Retry {
    /// How often it is tried in all.
    #[serde(default = "once")]
    pub max_attempts: u32,
    /// How long the first pause is.
    #[serde(default = "one_second")]
    pub backoff_ms: u64,
    /// How long a pause is at most.
    #[serde(default = "one_minute")]
    pub max_backoff_ms: u64,
    /// After which failures, by code; nothing: after every one that says it may help.
    #[serde(default)]
    pub on: Option<Vec<String>>,
}

const fn once() -> u32 {
    1
}

const fn one_second() -> u64 {
    1_000
}

const fn one_minute() -> u64 {
    60_000
}

/// Why a definition cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DefinitionError(pub String);

fn wrong<T>(text: impl Into<String>) -> Result<T, DefinitionError> {
    Err(DefinitionError(text.into()))
}

impl Definition {
    /// Reads and checks a definition.
    ///
    /// # Errors
    /// A [`DefinitionError`] that says what is wrong, and where.
    pub fn parse(bytes: &[u8]) -> Result<Self, DefinitionError> {
        if bytes.len() > DEFINITION_BYTES_MAX {
            return wrong(format!("it has more than {DEFINITION_BYTES_MAX} bytes"));
        }
        let written: Value = serde_json::from_slice(bytes)
            .map_err(|error| DefinitionError(format!("it is no JSON: {error}")))?;
        Self::of(written)
    }

    /// Checks a definition.
    ///
    /// # Errors
    /// A [`DefinitionError`] that says what is wrong, and where.
    pub fn of(written: Value) -> Result<Self, DefinitionError> {
        let parsed = Written::deserialize(&written)
            .map_err(|error| DefinitionError(format!("it is no workflow: {error}")))?;
        let Written { id, name, version, nodes, edges, variables, settings } = parsed;
        check_id(&id)?;
        if nodes.is_empty() || nodes.len() > NODES_MAX {
            return wrong(format!("it has {} nodes; 1 to {NODES_MAX} are taken", nodes.len()));
        }
        if edges.len() > EDGES_MAX {
            return wrong(format!("it has {} edges; {EDGES_MAX} are taken", edges.len()));
        }
        let mut places = HashMap::new();
        for (place, node) in nodes.iter().enumerate() {
            check_node_id(&node.id)?;
            if places.insert(node.id.clone(), place).is_some() {
                return wrong(format!("two nodes are called {:?}", node.id));
            }
        }
        check_variables(&variables)?;
        let handled: HashSet<String> = edges
            .iter()
            .filter(|edge| edge.trigger_rule.handles_failure())
            .map(|edge| edge.source_node_id.clone())
            .collect();
        let incoming = incoming(&nodes, edges, &places)?;
        let nodes = nodes
            .into_iter()
            .map(|node| read_node(node, &settings, &handled, &places))
            .collect::<Result<Vec<_>, _>>()?;
        check_order(&nodes, &incoming, &places)?;
        let text = serde_json::to_vec(&written).expect("invariant: a value is JSON");
        let digest = DefinitionId(lower::encode_string(&Sha256::digest(text)).into());
        Ok(Self {
            id,
            name,
            version,
            nodes,
            variables,
            settings,
            digest,
            written,
            places,
            incoming,
        })
    }

    /// The node of that name.
    #[must_use]
    pub fn node(&self, id: &str) -> Option<&Node> {
        self.places.get(id).map(|place| &self.nodes[*place])
    }

    /// The edges that lead to the node at `place`.
    #[must_use]
    pub fn incoming(&self, place: usize) -> &[Edge] {
        &self.incoming[place]
    }

    /// What others may see of these values.
    pub(crate) fn shown_values<'v>(
        &self,
        values: &'v Map<String, Value>,
    ) -> Cow<'v, Map<String, Value>> {
        if !values.keys().any(|name| self.is_sensitive(name)) {
            return Cow::Borrowed(values);
        }
        let hide = |name: &str, value: &Value| {
            if self.is_sensitive(name) { Value::from(HIDDEN) } else { value.clone() }
        };
        Cow::Owned(values.iter().map(|(name, value)| (name.clone(), hide(name, value))).collect())
    }

    /// What others may see of the outputs of the node at `place`: nothing, where they become a
    /// variable that is shown to nobody.
    pub(crate) fn shown<'v>(
        &self,
        place: usize,
        outputs: &'v Map<String, Value>,
    ) -> Cow<'v, Map<String, Value>> {
        let variable = self.nodes[place].config.get("outputVariable").and_then(Value::as_str);
        if variable.is_some_and(|name| self.is_sensitive(name)) {
            let hidden = outputs.keys().map(|name| (name.clone(), Value::from(HIDDEN)));
            return Cow::Owned(hidden.collect());
        }
        self.shown_values(outputs)
    }

    /// The place of the node of that name.
    pub(crate) fn place(&self, id: &str) -> Option<usize> {
        self.places.get(id).copied()
    }

    /// Whether a variable of that name is shown to nobody.
    #[must_use]
    pub fn is_sensitive(&self, name: &str) -> bool {
        self.variables.iter().any(|variable| variable.name == name && variable.sensitive)
    }
}
