//! The beginning of a run: what it is given, checked against what its workflow asks for.
//!
//! Pure. The name of a run is made by whoever creates it, and for a run that is part of another
//! one, of that one's.

use onetake_core::Timestamp;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use uuid::{Builder, Uuid};

use crate::books::run_id;
use crate::definition::Definition;
use crate::depth::{DEPTH_MAX, are_too_deep};
use crate::event::{Kind, NewEvent, Payload, payload};
use crate::machine::{Bounds, Changed};
use crate::run::{FORMAT, Fork, NodeState, Owner, Parent, Run, Status};

/// What a run is to be.
#[derive(Debug, Clone)]
pub(crate) struct NewRun {
    pub(crate) id: String,
    pub(crate) owner: Owner,
    pub(crate) inputs: Map<String, Value>,
    pub(crate) configurable: Map<String, Value>,
    pub(crate) tags: Vec<String>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) scope_id: Option<String>,
    pub(crate) parent: Option<Parent>,
    pub(crate) fork: Option<Fork>,
    /// Nodes that were settled by the run that this one goes on from.
    pub(crate) settled: BTreeMap<String, NodeState>,
    /// Variables that it left.
    pub(crate) variables: Option<Map<String, Value>>,
}

impl NewRun {
    /// One with nothing but inputs.
    pub(crate) fn of(id: String, owner: Owner, inputs: Map<String, Value>) -> Self {
        Self {
            id,
            owner,
            inputs,
            configurable: Map::new(),
            tags: Vec::new(),
            metadata: Map::new(),
            scope_id: None,
            parent: None,
            fork: None,
            settled: BTreeMap::new(),
            variables: None,
        }
    }
}

/// Why a run cannot begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotCreated {
    #[error("the input {0:?} is required")]
    Missing(String),
    #[error("the input {name:?} must be a {kind}")]
    Kind { name: String, kind: &'static str },
    #[error("{0}")]
    Configurable(String),
    #[error("inputs, configurable and metadata may be nested {DEPTH_MAX} deep")]
    TooDeep,
}

/// A name for a new run: later ones are greater.
pub(crate) fn new_id() -> String {
    run_id(Uuid::now_v7())
}

/// The name of the run that the `attempt`-th try of a node begins. It is the same whenever the step
/// is computed again at the same time.
pub(crate) fn child_id(run: &str, node: &str, attempt: u32, now: Timestamp) -> String {
    let digest = Sha256::digest(format!("{run}\0{node}\0{attempt}"));
    let mut random = [0; 10];
    random.copy_from_slice(&digest[..10]);
    run_id(Builder::from_unix_timestamp_millis(now.as_millis(), &random).into_uuid())
}

/// A run of `definition` that begins now, with its first event.
pub(crate) fn run(
    new: NewRun,
    definition: &Definition,
    bounds: Bounds,
    now: Timestamp,
) -> Result<Changed, NotCreated> {
    let given = [&new.inputs, &new.configurable, &new.metadata];
    if given.into_iter().any(are_too_deep) {
        return Err(NotCreated::TooDeep);
    }
    let variables = match new.variables {
        Some(left) => left,
        None => variables(&new.inputs, definition)?,
    };
    let executions_max =
        limit(&new.configurable, "recursionLimit", u64::from(bounds.executions_max))?;
    let own = definition.settings.timeout.filter(|timeout| *timeout > 0);
    let allowed = own.unwrap_or(bounds.duration_ms_max).min(bounds.duration_ms_max);
    let duration = limit(&new.configurable, "runTimeoutMs", allowed)?;
    let mut run = Run {
        format: FORMAT,
        id: new.id,
        workflow: definition.id.clone(),
        definition: definition.digest.as_str().to_owned(),
        owner: new.owner,
        status: Status::Pending,
        inputs: new.inputs,
        variables,
        channels: Map::new(),
        configurable: new.configurable,
        tags: new.tags,
        metadata: new.metadata,
        scope_id: new.scope_id,
        nodes: new.settled,
        created: now.as_millis(),
        ended: None,
        deadline: Some(now.as_millis().saturating_add(duration)),
        executions: 0,
        executions_max: u32::try_from(executions_max).unwrap_or(u32::MAX),
        first: new.fork.as_ref().map_or(0, |fork| fork.from_seq),
        events: 0,
        error: None,
        reason: None,
        pausing: None,
        paused: None,
        parent: new.parent,
        children: Vec::new(),
        fork: new.fork,
        driver: None,
        due: None,
    };
    let payload = started(&run, definition);
    let event = NewEvent::of(run.first, Kind::RunStarted, None, payload, now);
    run.events = 1;
    Ok(Changed { run, events: vec![event] })
}

/// The variables that a run begins with: what is declared, and over it what was given.
pub(crate) fn variables(
    inputs: &Map<String, Value>,
    definition: &Definition,
) -> Result<Map<String, Value>, NotCreated> {
    let mut variables = Map::new();
    for variable in &definition.variables {
        match (inputs.get(&variable.name), &variable.default_value) {
            (Some(value), _) if !value.is_null() => {
                if !variable.kind.fits(value) {
                    let (name, kind) = (variable.name.clone(), variable.kind.name());
                    return Err(NotCreated::Kind { name, kind });
                }
            }
            (_, Some(default)) => {
                variables.insert(variable.name.clone(), default.clone());
            }
            (_, None) if variable.required => {
                return Err(NotCreated::Missing(variable.name.clone()));
            }
            (_, None) => {}
        }
    }
    let given = inputs.iter().filter(|(_, value)| !value.is_null());
    variables.extend(given.map(|(name, value)| (name.clone(), value.clone())));
    Ok(variables)
}

/// A limit that a run may set for itself, lower than that of the host.
fn limit(
    configurable: &Map<String, Value>,
    name: &'static str,
    max: u64,
) -> Result<u64, NotCreated> {
    match configurable.get(name) {
        None | Some(Value::Null) => Ok(max),
        Some(value) => match value.as_u64() {
            Some(own) if own > 0 => Ok(own.min(max)),
            Some(_) | None => {
                let text = format!("configurable.{name} must be a whole number above zero");
                Err(NotCreated::Configurable(text))
            }
        },
    }
}

fn started(run: &Run, definition: &Definition) -> Payload {
    let inputs = definition.shown_values(&run.inputs);
    let mut payload = payload! {
        "workflowId": run.workflow, "workflowVersion": definition.version, "inputs": inputs,
        "transport": "rest", "owner": run.owner, "engineVersion": env!("CARGO_PKG_VERSION"),
    };
    if !run.tags.is_empty() {
        payload.add("tags", &run.tags);
    }
    if let Some(parent) = &run.parent {
        payload.add("parentRunId", &parent.run);
        payload.add("parentNodeId", &parent.node);
    }
    if let Some(fork) = &run.fork {
        payload.add("sourceRunId", &fork.source);
        payload.add("fromSeq", &fork.from_seq);
        payload.add("mode", &fork.mode);
    }
    payload
}
