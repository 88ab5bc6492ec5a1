//! Onetake for workflows: an `OpenWOP` host whose side effects happen once.
//!
//! A [`Host`] drives durable runs of workflows on any store with a journal: every step of a run is
//! one commit, and what a node does to the world goes through the invocation log. A [`Door`] serves
//! the contract over HTTP; whatever changes something goes through the same layer as every other
//! door. Two layers, one store: a retried request creates one run, and a retried node makes one
//! call.
//!
//! ```text
//!  POST /v1/runs ─layer 1─▶ run created, run.started ─▶ step ─▶ step ─▶ … ─▶ run.completed
//!                                                         └─layer 2─▶ provider, once
//! ```

mod ask;
mod books;
mod catalog;
mod clock;
mod condition;
mod create;
mod definition;
mod depth;
mod door;
mod event;
mod expression;
mod host;
mod interrupt;
mod machine;
mod nodes;
mod records;
mod reply;
mod run;
mod snapshot;
mod stream;
mod token;
mod webhook;

pub use catalog::{Catalog, CatalogError};
pub use definition::{Definition, DefinitionError};
pub use door::{Door, cache_key, owns};
pub use host::{Host, HostSettings};
pub use machine::Bounds;
pub use nodes::{Calls, Executor, Executors, NodeContext, NodeEnd};
pub use onetake_activity::IdentityForm;
pub use records::{NamedRuns, Records, RunEnded, RunEvents, RunPage, RunRecord};
pub use reply::ReplyBody;
pub use run::{Failure, NodeState, NodeStatus, Run, Status};
pub use stream::Frames;
