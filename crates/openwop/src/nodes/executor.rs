//! Node types of your own: what they are given, and what they may do.
//!
//! An executor runs under a claim that is renewed while it lives, so no two processes run one node
//! at once. After a crash it is run again from its start: whatever it does to the world must go
//! through [`Calls`], in the same order every time, and is then done once.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onetake_activity::{Calling, Ending, ExecuteError, NodeCalls};
use onetake_engine::Slots;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::run::Failure;

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a node came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeEnd {
    /// It succeeded, with these outputs.
    Completed(Map<String, Value>),
    /// It failed.
    Failed(Failure),
    /// A call of it may or may not have had its effect, and somebody must find out. The run waits
    /// for that; this is what they should know.
    Unknown(Value),
}

/// What a node is given.
pub struct NodeContext {
    /// The run.
    pub run: String,
    /// The node.
    pub node: String,
    /// How often the node was tried before, from zero.
    pub attempt: u32,
    /// Its inputs, as they are now.
    pub inputs: Map<String, Value>,
    /// What its author set beforehand.
    pub config: Map<String, Value>,
    /// What it may do to the world.
    pub calls: Calls,
}

impl NodeContext {
    /// A parameter: what was computed for this run, then what was set beforehand.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        let found = self.inputs.get(name).or_else(|| self.config.get(name));
        found.filter(|value| !value.is_null())
    }
}

/// Leaves out what may be secret.
impl fmt::Debug for NodeContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, node, attempt, .. } = self;
        write!(f, "NodeContext({run} {node} {attempt})")
    }
}

/// A type of nodes.
///
/// # Example
///
/// ```
/// use onetake_openwop::{Executor, NodeContext, NodeEnd, Failure};
/// use serde_json::{Map, json};
///
/// struct Charge;
///
/// impl Executor for Charge {
///     async fn execute(&self, mut node: NodeContext) -> NodeEnd {
///         let order = node.get("order").cloned().unwrap_or_default();
///         // Called once for this node, whatever happens to the process in between.
///         let charged = node.calls.call("bank", &order, |calling| async move {
///             // Send `calling.id` along: a bank that knows it does nothing twice.
///             Ok::<_, Failure>(json!({"receipt": calling.id.as_str()}))
///         });
///         match charged.await {
///             Ok(receipt) => NodeEnd::Completed(Map::from_iter([("receipt".into(), receipt)])),
///             Err(end) => end,
///         }
///     }
/// }
/// ```
pub trait Executor: Send + Sync + 'static {
    /// Executes a node.
    fn execute(&self, node: NodeContext) -> impl Future<Output = NodeEnd> + Send;
}

/// An executor whose type is forgotten.
pub(crate) trait BoxedExecutor: Send + Sync + 'static {
    /// Executes a node.
    fn execute_boxed(self: Arc<Self>, node: NodeContext) -> Boxed<'static, NodeEnd>;
}

impl<E: Executor> BoxedExecutor for E {
    fn execute_boxed(self: Arc<Self>, node: NodeContext) -> Boxed<'static, NodeEnd> {
        Box::pin(async move { self.execute(node).await })
    }
}

/// Executors by the type of their nodes.
#[derive(Clone, Default)]
pub struct Executors(HashMap<String, Arc<dyn BoxedExecutor>>);

impl fmt::Debug for Executors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Executors {
    /// The same with one more type of nodes.
    #[must_use]
    pub fn with(mut self, type_id: &str, executor: impl Executor) -> Self {
        self.0.insert(type_id.to_owned(), Arc::new(executor));
        self
    }

    pub(crate) fn get(&self, type_id: &str) -> Option<Arc<dyn BoxedExecutor>> {
        self.0.get(type_id).cloned()
    }

    pub(crate) fn knows(&self, type_id: &str) -> bool {
        self.0.contains_key(type_id)
    }
}

type Effect = Box<dyn FnOnce(Calling) -> Boxed<'static, Ending<Value, Failure>> + Send>;

/// The calls of a node on some store.
trait AnyCalls: Send {
    fn call<'a>(
        &'a mut self,
        provider: &'a str,
        request: &'a Value,
        effect: Effect,
    ) -> Boxed<'a, Result<Value, ExecuteError<Failure>>>;
}

impl<S: Slots> AnyCalls for NodeCalls<S> {
    fn call<'a>(
        &'a mut self,
        provider: &'a str,
        request: &'a Value,
        effect: Effect,
    ) -> Boxed<'a, Result<Value, ExecuteError<Failure>>> {
        Box::pin(async move {
            let taken = Self::call(self, provider, request, effect).await;
            taken.map(|take| take.value)
        })
    }
}

/// What a node may do to the world, each thing once.
pub struct Calls {
    calls: Box<dyn AnyCalls>,
    /// Whether a call could not be made because the store was away.
    is_hindered: Arc<AtomicBool>,
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Calls(…)")
    }
}

impl Calls {
    pub(crate) fn new<S: Slots>(calls: NodeCalls<S>) -> Self {
        Self { calls: Box::new(calls), is_hindered: Arc::default() }
    }

    /// Says, also later, whether a call could not be made because the store was away.
    pub(crate) fn is_hindered(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_hindered)
    }

    /// Makes the next call of this node, or gives what came of it when it was made before.
    /// `request` is what is asked of the provider.
    ///
    /// # Errors
    /// What the node came to because of it: the failure of the call, which is kept, or that its
    /// outcome is unknown.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing but who hears the result.
    pub async fn call<F, Fut>(
        &mut self,
        provider: &str,
        request: &Value,
        effect: F,
    ) -> Result<Value, NodeEnd>
    where
        F: FnOnce(Calling) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Value, Failure>> + Send + 'static,
    {
        let effect: Effect = Box::new(move |calling| {
            Box::pin(async move {
                match effect(calling).await {
                    Ok(value) => Ending::Succeeded(value),
                    Err(failure) => Ending::Failed(failure),
                }
            })
        });
        let called = self.calls.call(provider, request, effect).await;
        called.map_err(|error| {
            let is_ours = matches!(
                error,
                ExecuteError::Run(_) | ExecuteError::ClaimedByAnother { .. } | ExecuteError::Freed
            );
            self.is_hindered.fetch_or(is_ours, Ordering::SeqCst);
            node_end(provider, error)
        })
    }
}

/// What a node came to whose call has no value.
#[allow(clippy::wildcard_enum_match_arm, reason = "all others are told by their code")]
pub(crate) fn node_end(provider: &str, error: ExecuteError<Failure>) -> NodeEnd {
    match error {
        ExecuteError::Failed { failure, .. } => NodeEnd::Failed(failure),
        ExecuteError::Unknown { fence, since, .. } => NodeEnd::Unknown(serde_json::json!({
            "provider": provider,
            "fence": fence.to_string(),
            "since": crate::clock::rfc3339(since.as_millis()),
            "message": "the provider may or may not have been called; find out, then retry, \
                        complete or fail",
        })),
        other => {
            let code = other.code().map_or("call_failed", |code| code.as_str());
            // What ails the store or is under way elsewhere may pass.
            let may_pass = matches!(
                other,
                ExecuteError::Run(_)
                    | ExecuteError::ClaimedByAnother { .. }
                    | ExecuteError::StillExecuting { .. }
                    | ExecuteError::Freed
            );
            let failure = Failure::new(code, other.to_string());
            NodeEnd::Failed(Failure { retryable: Some(may_pass), ..failure })
        }
    }
}
