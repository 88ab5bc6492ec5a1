//! Executes a node outside the store: calls over HTTP, and node types of the user's own.
//!
//! What a node does to the world goes through the invocation log, so it is done once, whoever
//! drives the run and however often. Nothing here changes a run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base16ct::lower;
use http::{HeaderName, HeaderValue, Method};
use onetake_activity::{
    Activities, Ending, ExecuteError, HttpCall, HttpFailure, HttpReply, HttpResult, HttpStream,
    Invocation, Site,
};
use onetake_core::{Asked, Finality, Key, OnUnknown, Operation, Policy, Scope, Timestamp};
use onetake_engine::Journal;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};

use super::{CALL_WITHIN, Host};
use crate::books::RunKey;
use crate::definition::Node;
use crate::machine::given;
use crate::nodes::{BoxedExecutor, Calls, HTTP, NodeContext, NodeEnd, node_end};
use crate::run::{Failure, NodeState, Run};

/// How long a node waits before it asks again for what another process is executing.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Where the claims of nodes of the user's own are.
const OPERATION: &str = "openwop.nodes";

impl<S: Journal> Host<S> {
    /// Executes `node` of `run`, which was read at `now`, and gives what it came to.
    pub(super) async fn execute(
        &self,
        key: &RunKey,
        run: &Run,
        node: &str,
        now: Timestamp,
    ) -> NodeEnd {
        let age = Age::of(self, run, node, now);
        let _turn = self.0.outside.take(&key.tenant).await;
        let definition = self.0.catalog.definition(&run.definition);
        let found = definition.as_ref().and_then(|definition| definition.node(node));
        let (Some(node), Some(state)) = (found, run.node(node)) else {
            return NodeEnd::Failed(Failure::new("node_missing", "the node is not there"));
        };
        // What it was given when it began, whatever has become of the variables since.
        let inputs = match state.given.clone().map_or_else(|| given(run, node), Ok) {
            Ok(inputs) => inputs,
            Err(failure) => return NodeEnd::Failed(failure),
        };
        let site = Site {
            tenant: key.tenant.clone(),
            run: run.id.clone(),
            node: node.id.clone(),
            attempt: state.attempt,
        };
        let activities = self.activities(state);
        if node.type_id == HTTP {
            return self.call(&activities, site, node, &inputs, &age).await;
        }
        match self.0.executors.get(&node.type_id) {
            Some(executor) => {
                let context = || NodeContext {
                    run: run.id.clone(),
                    node: node.id.clone(),
                    attempt: state.attempt,
                    inputs: inputs.clone(),
                    config: node.config.clone(),
                    calls: Calls::new(activities.enter(site.clone())),
                };
                self.under_claim(key, node, (state, &age), context, executor).await
            }
            None => NodeEnd::Failed(Failure::new("unknown_node_type", "nobody executes the node")),
        }
    }

    /// The log, for a node that may be called again although its outcome is unknown where somebody
    /// who knows said so.
    fn activities(&self, state: &NodeState) -> Activities<S> {
        let activities = self.0.activities.clone();
        match state.recovers.as_deref().and_then(|fence| fence.parse().ok()) {
            Some(fence) => activities.recovering(fence),
            None => activities,
        }
    }

    /// Executes a node of the user's own under a claim, so that no two processes do at once.
    async fn under_claim(
        &self,
        key: &RunKey,
        node: &Node,
        (state, age): (&NodeState, &Age),
        context: impl Fn() -> NodeContext,
        executor: Arc<dyn BoxedExecutor>,
    ) -> NodeEnd {
        let mut policy = Policy::activity()
            .retention(self.0.settings.calls_kept)
            .lease(self.0.settings.lease)
            .on_unknown(OnUnknown::Retry)
            .failures(Finality::Final);
        if let Some(limit) = node.timeout_ms {
            policy = policy.timeout(Duration::from_millis(limit));
        }
        let built =
            policy.build().map_err(|error| Failure::new("node_settings", error.to_string()));
        let policy = match built {
            Ok(policy) => policy,
            Err(failure) => return NodeEnd::Failed(failure),
        };
        let operation = Operation::new(OPERATION).expect("invariant: it is a name");
        let once = onetake_activity::Executor::new(self.0.engine.clone(), operation);
        let once = once.with_policy(policy);
        let name = format!("{}\0{}\0{}\0{}", key.id, node.id, state.attempt, state.since);
        let name = lower::encode_string(&Sha256::digest(name));
        let claim = Key::new(&name).expect("invariant: hexadecimal digits are a key");
        let scope = Scope::tenant_wide(key.tenant.clone());
        loop {
            if age.is_too_old() {
                return NodeEnd::Unknown(age.told());
            }
            let (context, executor) = (context(), Arc::clone(&executor));
            let is_hindered = context.calls.is_hindered();
            let taken = once.execute(&scope, &claim, Asked::raw(""), move |_| async move {
                let end = executor.execute_boxed(context).await;
                // What the store kept it from is no end of a node: it begins again.
                if is_hindered.load(Ordering::SeqCst) {
                    Ending::Retryable(Failure::passing("node_interrupted", "the store was away"))
                } else {
                    Ending::Succeeded(end)
                }
            });
            match taken.await {
                Ok(take) => return take.value,
                Err(ExecuteError::Failed { failure, .. }) if failure.code == "node_interrupted" => {
                    sleep(AGAIN_AFTER).await;
                }
                Err(error) if may_pass(&error) => sleep(AGAIN_AFTER).await,
                Err(error) => return node_end(&node.type_id, error),
            }
        }
    }

    /// Makes the call of a `core.http` node.
    async fn call(
        &self,
        activities: &Activities<S>,
        site: Site,
        node: &Node,
        inputs: &Map<String, Value>,
        age: &Age,
    ) -> NodeEnd {
        let param = |name: &str| {
            let found = inputs.get(name).or_else(|| node.config.get(name));
            found.filter(|value| !value.is_null())
        };
        let call = match http_call(&param, node.timeout_ms) {
            Ok(call) => call,
            Err(why) => return NodeEnd::Failed(Failure::new("http_invalid", why)),
        };
        let provider = param("provider").and_then(Value::as_str).unwrap_or("http").to_owned();
        let takes_errors = param("failOnError") == Some(&json!(false));
        loop {
            if age.is_too_old() {
                return self.told_more(NodeEnd::Unknown(age.told()), &site, &provider, &call);
            }
            let mut calls = activities.enter(site.clone());
            match calls.http(&self.0.client, &provider, call.clone()).await {
                Ok(HttpReply::Kept(take)) => return came_to(&take.value, takes_errors),
                Ok(HttpReply::Stream(stream)) => return streamed(stream).await,
                Err(error) if may_pass(&error) => sleep(AGAIN_AFTER).await,
                Err(ExecuteError::Failed { failure, .. }) => return failed(&failure),
                Err(error) => {
                    let end = node_end(&provider, other(error));
                    return self.told_more(end, &site, &provider, &call);
                }
            }
        }
    }

    /// Tells whoever must find out what became of a call what to look for.
    fn told_more(&self, end: NodeEnd, site: &Site, provider: &str, call: &HttpCall) -> NodeEnd {
        let NodeEnd::Unknown(mut data) = end else { return end };
        let (tenant, run, node) = (&site.tenant, site.run.as_str(), site.node.as_str());
        let attempt = site.attempt;
        let named = Invocation { tenant, run, node, ordinal: 0, attempt, provider };
        if let Ok(id) = named.id(self.0.settings.form) {
            data["idempotencyKey"] = json!(id.as_str());
        }
        data["call"] = json!(format!("{call:?}"));
        NodeEnd::Unknown(data)
    }
}

/// How long ago a node began. One that began so long ago that the log may have forgotten what its
/// calls came to must not be executed again: a run was at rest for weeks, say, and the process that
/// executed the node is gone. To call again could be to call twice.
struct Age {
    since: u64,
    /// How long that was before `seen`, by the store's clock.
    was: Duration,
    seen: Instant,
    /// From when on it is too old; never, where somebody who knows said that it may begin again.
    too_old: Option<Duration>,
}

impl Age {
    /// The age of `node` in `run`, which was read at `now`.
    fn of<S>(host: &Host<S>, run: &Run, node: &str, now: Timestamp) -> Self {
        let state = run.node(node);
        let since = state.map_or(0, |state| state.first_since.unwrap_or(state.since));
        let kept = host.0.settings.calls_kept;
        // An execution that begins now is to end before anything is forgotten.
        let too_old = kept.saturating_sub(CALL_WITHIN);
        let is_allowed = state.is_some_and(|state| state.repeats);
        Self {
            since,
            was: Duration::from_millis(now.as_millis().saturating_sub(since)),
            seen: Instant::now(),
            too_old: (!is_allowed).then_some(too_old),
        }
    }

    fn is_too_old(&self) -> bool {
        self.too_old.is_some_and(|too_old| self.was + self.seen.elapsed() >= too_old)
    }

    /// What whoever must find out is told.
    fn told(&self) -> Value {
        json!({
            "since": crate::clock::rfc3339(self.since),
            "message": "the node began longer ago than calls are remembered; find out whether its \
                        provider was called, then retry, complete or fail",
        })
    }
}

/// Whether waiting helps: somebody else has the claim, or the store is away.
const fn may_pass<E>(error: &ExecuteError<E>) -> bool {
    matches!(
        error,
        ExecuteError::ClaimedByAnother { .. }
            | ExecuteError::StillExecuting { .. }
            | ExecuteError::Run(_)
            | ExecuteError::Freed
    )
}

/// Nobody here reads a stream; that it was made, and how it ended, is recorded.
async fn streamed(mut stream: HttpStream) -> NodeEnd {
    let status = stream.status();
    loop {
        match stream.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                return NodeEnd::Failed(Failure::passing("http_streamed", error.to_string()));
            }
            None => {
                let outputs = json!({"status": status, "streamed": true});
                return NodeEnd::Completed(members(outputs));
            }
        }
    }
}

/// The same error, of a call whose own failures have been looked at.
fn other(error: ExecuteError<HttpFailure>) -> ExecuteError<Failure> {
    match error {
        ExecuteError::Failed { failure, repeat } => ExecuteError::Failed {
            failure: Failure::new("http_failed", failure.to_string()),
            repeat,
        },
        ExecuteError::Unknown { fence, since, cause } => {
            ExecuteError::Unknown { fence, since, cause }
        }
        ExecuteError::ClaimedByAnother { retry_after } => {
            ExecuteError::ClaimedByAnother { retry_after }
        }
        ExecuteError::StillExecuting { retry_after } => {
            ExecuteError::StillExecuting { retry_after }
        }
        ExecuteError::Mismatch => ExecuteError::Mismatch,
        ExecuteError::Freed => ExecuteError::Freed,
        ExecuteError::ResultNotKept => ExecuteError::ResultNotKept,
        ExecuteError::ResultOfOtherType(why) => ExecuteError::ResultOfOtherType(why),
        ExecuteError::Invocation(error) => ExecuteError::Invocation(error),
        ExecuteError::Policy(error) => ExecuteError::Policy(error),
        ExecuteError::Run(error) => ExecuteError::Run(error),
        error => ExecuteError::ResultOfOtherType(error.to_string()),
    }
}

fn http_call<'v>(
    param: &impl Fn(&str) -> Option<&'v Value>,
    timeout_ms: Option<u64>,
) -> Result<HttpCall, String> {
    let text = |name: &str| param(name).and_then(Value::as_str);
    let url = text("url").ok_or("the node has no `url`")?;
    let body = param("body");
    let method = text("method").unwrap_or(if body.is_some() { "POST" } else { "GET" });
    let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes())
        .map_err(|_| format!("{method:?} is no method"))?;
    let mut call = HttpCall::new(method, url).map_err(|error| error.to_string())?;
    for (name, value) in param("headers").and_then(Value::as_object).into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("{name:?} is no name of a header"))?;
        let value = HeaderValue::from_str(&value)
            .map_err(|_| format!("the header {name:?} has a value that cannot be sent"))?;
        call = call.header(header, value);
    }
    call = match body {
        Some(Value::String(text)) => call.body(text.clone()),
        Some(json) => call.json(json).map_err(|error| error.to_string())?,
        None => call,
    };
    let own = param("timeoutMs").and_then(Value::as_u64).or(timeout_ms);
    Ok(match own {
        Some(limit) => call.timeout(Duration::from_millis(limit.max(1)).min(CALL_WITHIN)),
        None => call,
    })
}

/// What an answer of a provider is to its node.
fn came_to(result: &HttpResult, takes_errors: bool) -> NodeEnd {
    let outputs = outputs(result);
    if result.status < 400 || takes_errors {
        return NodeEnd::Completed(outputs);
    }
    let text = format!("the provider answered {}", result.status);
    let failure = Failure::new("http_status", text).with("status", result.status);
    let failure = failure.with("body", outputs.get("body").cloned().unwrap_or_default());
    NodeEnd::Failed(failure)
}

fn outputs(result: &HttpResult) -> Map<String, Value> {
    let headers = result.headers.iter().map(|(name, value)| (name.clone(), json!(value)));
    let body =
        result.json::<Value>().unwrap_or_else(|_| json!(String::from_utf8_lossy(&result.body)));
    members(json!({
        "status": result.status, "headers": headers.collect::<Map<_, _>>(), "body": body,
    }))
}

fn members(value: Value) -> Map<String, Value> {
    if let Value::Object(members) = value { members } else { Map::new() }
}

/// What a call that has no answer is to its node.
fn failed(failure: &HttpFailure) -> NodeEnd {
    let said = failure.to_string();
    let mut end = match failure {
        HttpFailure::Unavailable { answer, .. } => {
            Failure::new("http_status", said).with("status", answer.status)
        }
        HttpFailure::NotSent { .. } => Failure::new("http_not_sent", said),
        HttpFailure::TooLarge { .. } => Failure::new("http_too_large", said),
        HttpFailure::Streamed { .. } => Failure::new("http_streamed", said),
        _ => Failure::new("http_failed", said),
    };
    end.retryable = Some(failure.is_retryable());
    NodeEnd::Failed(end)
}
