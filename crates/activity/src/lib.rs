//! Onetake for functions: any async function, closure or service, executed once per key.
//!
//! An [`Executor`] is one operation with its settings. It gives every attempt under one key the
//! same typed result, and runs the function only for the first. Results and failures are kept as
//! JSON, so operators and other languages can read them. This door knows no store: it works on any
//! that the engine does. It opens no connection, except where a workflow calls a provider over HTTP
//! through `HttpClient` (feature `client`).
//!
//! # Example
//!
//! ```
//! use onetake_activity::{Executor, Failure};
//! use onetake_core::{Asked, Key, Scope};
//! use onetake_engine::{Engine, Memory};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let once = Executor::named(Engine::new(Memory::new()), "orders.create")?;
//! let (scope, key) = (Scope::tenant_named("acme")?, Key::new("order-123")?);
//! let order = || once.execute(&scope, &key, Asked::raw("2 of p1"), |_attempt| async {
//!     Ok::<_, Failure>(String::from("order 1"))
//! });
//! assert_eq!(order().await?.value, "order 1");
//! assert!(order().await?.is_repeat());
//! # Ok(())
//! # }
//! ```

mod activities;
mod ask;
mod claims;
#[cfg(feature = "client")]
mod client;
mod error;
mod executor;
mod invocation;
mod providers;
mod reply;
mod service;

pub use activities::{Activities, Calling, NodeCalls, Site};
pub use ask::Identity;
pub use claims::Claims;
#[cfg(feature = "client")]
pub use client::{
    HttpCall, HttpCallError, HttpClient, HttpFailure, HttpReplied, HttpReply, HttpResult,
    HttpSettings, HttpSettingsError, HttpStream, NotSentCause, Roots, StreamEnd, StreamError,
};
pub use error::{ExecuteError, Failure};
pub use executor::{Call, Executor};
pub use invocation::{IdentityForm, Invocation, InvocationError, InvocationId};
pub use providers::{AMZN_TOKEN, IDEMPOTENCY_KEY, Provider, Providers};
pub use reply::{Ending, IntoEnding, Source, Take, Taken};
pub use service::OnceService;
