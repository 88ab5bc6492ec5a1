//! From a request to what is asked of the host: which operation, and its parameters.
//!
//! Reads a method, a path, a query and a bounded body; never looks at a store and never says who
//! asks. The contract's table of paths is here and nowhere else.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::run::{Drain, ForkMode};

/// Where hosts say what they can do.
pub(crate) const DISCOVERY_PATH: &str = "/.well-known/openwop";
/// What every other path of the contract begins with.
pub(crate) const VERSION_PATH: &str = "/v1";

/// What a credential must allow to answer what runs wait for.
pub(crate) const ANSWER: &str = "approvals:respond";

/// The most runs that are ended at once.
pub(crate) const BULK_MAX: usize = 50;
/// The longest time that events are gathered before they are sent, in milliseconds.
pub(crate) const BUFFER_MS_MAX: u64 = 5_000;
/// The most bytes of a word that a run waits for: it is told in events again and again.
const WORD_BYTES_MAX: usize = 64 * 1024;
/// The most tags of a run.
const TAGS_MAX: usize = 100;

/// An operation of the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    Discovery,
    OpenApi,
    ListWorkflows,
    Workflow(String),
    CreateRun,
    ListRuns,
    Run(String),
    Events(String),
    Poll(String),
    Cancel(String),
    BulkCancel,
    Pause(String),
    Resume(String),
    Fork(String),
    Resolve { run: String, node: String, alias: &'static str },
    InspectToken(String),
    ResolveToken(String),
    ListWebhooks,
    RegisterWebhook,
    DeleteWebhook(String),
    ConcurrentClaim,
    SimulatePartition,
}

/// Why a request is none of the contract's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoRoute {
    /// There is nothing there.
    NotFound,
    /// There is, for other methods.
    MethodNotAllowed(&'static str),
}

/// The parts of the longest path.
const PARTS_MAX: usize = 5;

impl Route {
    /// The operation that a request asks for.
    pub(crate) fn of(method: &Method, path: &str) -> Result<Self, NoRoute> {
        if path == DISCOVERY_PATH {
            return get(method, Self::Discovery);
        }
        let rest = path.strip_prefix("/v1/").ok_or(NoRoute::NotFound)?;
        let mut parts: [Cow<'_, str>; PARTS_MAX + 1] = Default::default();
        let mut count = 0;
        for (place, part) in parts.iter_mut().zip(rest.split('/')) {
            *place = percent_decode_str(part).decode_utf8().map_err(|_| NoRoute::NotFound)?;
            count += 1;
        }
        let parts = parts.each_ref().map(|part| &**part);
        let owned = |text: &str| text.to_owned();
        match &parts[..count] {
            ["openapi.json"] => get(method, Self::OpenApi),
            ["workflows"] => get(method, Self::ListWorkflows),
            ["workflows", id] => get(method, Self::Workflow(owned(id))),
            ["runs"] if *method == Method::GET => Ok(Self::ListRuns),
            ["runs"] => post(method, Self::CreateRun),
            ["runs:bulk-cancel"] => post(method, Self::BulkCancel),
            ["runs", run] => Self::of_run(method, run),
            ["runs", run, "cancel"] => post(method, Self::Cancel(owned(run))),
            ["runs", run, "events"] => get(method, Self::Events(owned(run))),
            ["runs", run, "events", "poll"] => get(method, Self::Poll(owned(run))),
            ["runs", run, "interrupts", node] => {
                let (run, node) = (owned(run), owned(node));
                post(method, Self::Resolve { run, node, alias: "interrupts" })
            }
            ["runs", run, "approvals", node] => {
                let (run, node) = (owned(run), owned(node));
                post(method, Self::Resolve { run, node, alias: "approvals" })
            }
            ["interrupts", token] if *method == Method::GET => Ok(Self::InspectToken(owned(token))),
            ["interrupts", token] => post(method, Self::ResolveToken(owned(token))),
            ["webhooks"] if *method == Method::GET => Ok(Self::ListWebhooks),
            ["webhooks"] => post(method, Self::RegisterWebhook),
            ["webhooks", id] if *method == Method::DELETE => Ok(Self::DeleteWebhook(owned(id))),
            ["webhooks", _] => Err(NoRoute::MethodNotAllowed("DELETE")),
            ["host", "sample", "test", "idempotency", "concurrent-claim"] => {
                post(method, Self::ConcurrentClaim)
            }
            ["host", "sample", "test", "multi-region", "simulate-partition"] => {
                post(method, Self::SimulatePartition)
            }
            _ => Err(NoRoute::NotFound),
        }
    }

    fn of_run(method: &Method, part: &str) -> Result<Self, NoRoute> {
        let Some((run, verb)) = part.rsplit_once(':') else {
            return get(method, Self::Run(part.to_owned()));
        };
        let run = run.to_owned();
        match verb {
            "pause" => post(method, Self::Pause(run)),
            "resume" => post(method, Self::Resume(run)),
            "fork" => post(method, Self::Fork(run)),
            "cancel" => post(method, Self::Cancel(run)),
            _ => Err(NoRoute::NotFound),
        }
    }

    /// What it is called, if it changes something: its path with the names of its parameters. Keys
    /// are filed under it.
    pub(crate) const fn operation(&self) -> Option<&'static str> {
        Some(match self {
            Self::CreateRun => "POST /v1/runs",
            Self::Cancel(_) => "POST /v1/runs/{runId}/cancel",
            Self::BulkCancel => "POST /v1/runs:bulk-cancel",
            Self::Pause(_) => "POST /v1/runs/{runId}:pause",
            Self::Resume(_) => "POST /v1/runs/{runId}:resume",
            Self::Fork(_) => "POST /v1/runs/{runId}:fork",
            Self::Resolve { .. } => "POST /v1/runs/{runId}/interrupts/{nodeId}",
            Self::ResolveToken(_) => "POST /v1/interrupts/{token}",
            Self::RegisterWebhook => "POST /v1/webhooks",
            Self::DeleteWebhook(_) => "DELETE /v1/webhooks/{webhookId}",
            Self::ConcurrentClaim => "POST /v1/host/sample/test/idempotency/concurrent-claim",
            Self::SimulatePartition => "POST /v1/host/sample/test/multi-region/simulate-partition",
            Self::Discovery
            | Self::OpenApi
            | Self::ListWorkflows
            | Self::Workflow(_)
            | Self::ListRuns
            | Self::Run(_)
            | Self::Events(_)
            | Self::Poll(_)
            | Self::InspectToken(_)
            | Self::ListWebhooks => return None,
        })
    }

    /// What a credential must allow; `None`: nobody is asked who they are.
    pub(crate) const fn scope(&self) -> Option<&'static str> {
        Some(match self {
            Self::Discovery | Self::OpenApi | Self::InspectToken(_) | Self::ResolveToken(_) => {
                return None;
            }
            Self::ListWorkflows | Self::Workflow(_) => "manifest:read",
            Self::CreateRun | Self::Fork(_) | Self::ConcurrentClaim | Self::SimulatePartition => {
                "runs:create"
            }
            Self::ListRuns | Self::Run(_) | Self::Events(_) | Self::Poll(_) => "runs:read",
            Self::Cancel(_) | Self::BulkCancel | Self::Pause(_) | Self::Resume(_) => "runs:cancel",
            Self::Resolve { .. } => ANSWER,
            Self::ListWebhooks | Self::RegisterWebhook | Self::DeleteWebhook(_) => {
                "webhooks:manage"
            }
        })
    }
}

fn get(method: &Method, route: Route) -> Result<Route, NoRoute> {
    let fits = matches!(*method, Method::GET | Method::HEAD);
    if fits { Ok(route) } else { Err(NoRoute::MethodNotAllowed("GET, HEAD")) }
}

fn post(method: &Method, route: Route) -> Result<Route, NoRoute> {
    if *method == Method::POST { Ok(route) } else { Err(NoRoute::MethodNotAllowed("POST")) }
}

/// A run that is to be created.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CreateRun {
    pub(crate) workflow_id: String,
    #[serde(default)]
    pub(crate) inputs: Option<Map<String, Value>>,
    #[serde(default)]
    pub(crate) tenant_id: Option<String>,
    #[serde(default)]
    pub(crate) scope_id: Option<String>,
    #[serde(default)]
    pub(crate) callback_url: Option<String>,
    #[serde(default)]
    pub(crate) configurable: Option<Map<String, Value>>,
    #[serde(default)]
    pub(crate) tags: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) metadata: Option<Map<String, Value>>,
}

/// Why a run is to end.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Cancel {
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

/// Runs that are to end.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BulkCancel {
    #[serde(default)]
    pub(crate) run_ids: Vec<String>,
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

/// How a run is to rest.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pause {
    #[serde(default)]
    pub(crate) drain_policy: Option<Drain>,
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

/// How a run is to go on from another one.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ForkRun {
    #[serde(default)]
    pub(crate) from_seq: Option<i64>,
    pub(crate) mode: ForkMode,
    #[serde(default)]
    pub(crate) run_options_overlay: Option<Map<String, Value>>,
}

/// Somebody who wants to be told.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RegisterWebhook {
    pub(crate) url: String,
    #[serde(alias = "eventTypes")]
    pub(crate) events: Vec<String>,
    #[serde(default)]
    pub(crate) tenant_id: Option<String>,
    #[serde(default)]
    pub(crate) tags: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) secret: Option<String>,
}

/// Reads a JSON body; an empty one is an empty object.
pub(crate) fn body<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, String> {
    let bytes = if bytes.trim_ascii().is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(bytes).map_err(|error| format!("the body cannot be read: {error}"))
}

impl CreateRun {
    /// Reads and checks a run that is to be created.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let read: Self = body(bytes)?;
        let tags = read.tags.as_deref().unwrap_or_default();
        if tags.len() > TAGS_MAX || tags.iter().any(|tag| tag.is_empty() || tag.len() > 256) {
            return Err(format!("tags: at most {TAGS_MAX}, each of 1 to 256 characters"));
        }
        Ok(read)
    }
}

/// The word that a run waits for: under its name, or the body itself.
pub(crate) fn resume_value(bytes: &[u8]) -> Result<Value, String> {
    if bytes.len() > WORD_BYTES_MAX {
        return Err(format!("what a run is told has at most {WORD_BYTES_MAX} bytes"));
    }
    let mut read: Value = body(bytes)?;
    match read.as_object_mut() {
        Some(members) => Ok(match members.remove("resumeValue") {
            Some(value) => value,
            None => read,
        }),
        None => Err("the body must be an object".to_owned()),
    }
}

/// A parameter of a query.
pub(crate) fn query(parts: &http::request::Parts, name: &str) -> Option<String> {
    let query = parts.uri.query()?;
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query).ok()?;
    pairs.into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: &str, path: &str) -> Result<Route, NoRoute> {
        Route::of(&Method::from_bytes(method.as_bytes()).unwrap(), path)
    }

    #[test]
    fn the_table_of_paths_is_this() {
        let run = || "run-1".to_owned();
        let table = [
            ("GET", "/.well-known/openwop", Route::Discovery),
            ("GET", "/v1/openapi.json", Route::OpenApi),
            ("GET", "/v1/workflows/a-b", Route::Workflow("a-b".into())),
            ("POST", "/v1/runs", Route::CreateRun),
            ("GET", "/v1/runs", Route::ListRuns),
            ("GET", "/v1/runs/run-1", Route::Run(run())),
            ("GET", "/v1/runs/run-1/events", Route::Events(run())),
            ("GET", "/v1/runs/run-1/events/poll", Route::Poll(run())),
            ("POST", "/v1/runs/run-1/cancel", Route::Cancel(run())),
            ("POST", "/v1/runs/run-1:cancel", Route::Cancel(run())),
            ("POST", "/v1/runs:bulk-cancel", Route::BulkCancel),
            ("POST", "/v1/runs/run-1:pause", Route::Pause(run())),
            ("POST", "/v1/runs/run-1%3Aresume", Route::Resume(run())),
            ("POST", "/v1/runs/run-1:fork", Route::Fork(run())),
            ("GET", "/v1/interrupts/t.s", Route::InspectToken("t.s".into())),
            ("POST", "/v1/interrupts/t.s", Route::ResolveToken("t.s".into())),
            ("POST", "/v1/webhooks", Route::RegisterWebhook),
            ("DELETE", "/v1/webhooks/w", Route::DeleteWebhook("w".into())),
        ];
        for (method, path, expected) in table {
            assert_eq!(route(method, path), Ok(expected), "{method} {path}");
        }
        let node = "a b".to_owned();
        for alias in ["interrupts", "approvals"] {
            let expected = Route::Resolve { run: run(), node: node.clone(), alias };
            assert_eq!(route("POST", &format!("/v1/runs/run-1/{alias}/a%20b")), Ok(expected));
        }
        for path in ["/runs", "/v2/runs", "/v1", "/v1/runs/a/b/c/d", "/v1/runs/a:b", "/v1/%ff"] {
            assert_eq!(route("POST", path), Err(NoRoute::NotFound), "{path}");
        }
        let allowed = |method, path| match route(method, path) {
            Err(NoRoute::MethodNotAllowed(allow)) => allow,
            other => panic!("{other:?}"),
        };
        assert_eq!(allowed("PUT", "/v1/runs"), "POST");
        assert_eq!(allowed("POST", "/v1/runs/run-1"), "GET, HEAD");
        assert_eq!(allowed("GET", "/v1/webhooks/w"), "DELETE");
    }

    #[test]
    fn a_body_is_read_whole_or_refused() {
        let bad = CreateRun::read(br#"{"workflowId": "a", "surprise": 1}"#).unwrap_err();
        assert!(bad.contains("surprise"), "{bad}");
        assert!(CreateRun::read(b"{}").unwrap_err().contains("workflowId"));
        assert!(CreateRun::read(b"[").is_err());
        assert!(CreateRun::read(br#"{"workflowId": "a", "tags": [""]}"#).is_err());
        let bare = resume_value(br#"{"action": "accept"}"#).unwrap();
        let under = resume_value(br#"{"resumeValue": {"action": "accept"}}"#).unwrap();
        assert_eq!(bare, under);
        assert!(resume_value(b"1").is_err());
        assert_eq!(body::<Cancel>(b"").unwrap().reason, None);
    }
}
