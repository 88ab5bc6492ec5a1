//! The walk of Onetake: claim, execute, complete.
//!
//! `onetake-core` decides; this crate carries it out, on any store that can compare and swap. Two
//! walks, each on one screen: [`Engine::run`] for effects in the outside world,
//! [`Engine::transact`] for effects in the same store. It knows no protocol and no database, and it
//! never answers before the outcome is durable.
//!
//! # Example
//!
//! ```
//! use onetake_core::{Address, Ask, Asked, Key, Operation, Outcome, Policy, Report, Scope};
//! use onetake_engine::{Answer, Engine, Memory};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::new(Memory::new()); let scope = Scope::tenant_named("acme")?; let address =
//! Address::new(scope, Operation::new("orders.create")?, Key::new("order-123")?); let ask = Ask {
//! address: address.into(), asked: Asked::raw("body"), policy: Policy::default().into() };
//!
//! let create = |_attempt| async { Report::Finished(Outcome::Value("created".into())) };
//! assert!(matches!(engine.run(ask.clone(), create).await?, Answer::Executed { .. }));
//! assert!(matches!(engine.run(ask, create).await?, Answer::Replayed { .. }));
//! # Ok(())
//! # }
//! ```

mod answer;
mod claim;
mod claims;
mod clock;
mod doubt;
mod engine;
mod error;
mod in_time;
mod journal;
mod lease;
mod limits;
mod memory;
pub mod metrics;
mod mint;
pub mod operate;
mod run;
mod settle;
mod store;
mod sweep;
mod sync;
mod transact;
mod update;
mod wait;
mod waiting;

pub use answer::{Answer, Attempt};
pub use claims::{Claim, Tried};
pub use clock::{Clock, ManualClock, SystemClock};
pub use doubt::Doubt;
pub use engine::Engine;
pub use error::RunError;
pub use journal::{
    Check, Commit, Counter, Cursor, Doc, Document, Entry, Found, Journal, Lane, Page, Place,
    Position, Tx, Write,
};
pub use lease::Home;
pub use limits::Limits;
pub use memory::{Memory, MemoryLimits, OnFull};
pub use mint::Mint;
pub use operate::audit_lane;
pub use store::{Bound, Reply, Slots, Stamped, StoreError, Swap, Swept};
pub use transact::{Effects, Need, View};
pub use update::Update;
pub use wait::WaitLimits;
