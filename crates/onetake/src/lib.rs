#![allow(clippy::doc_markdown, reason = "the README is prose")]
#![doc = include_str!("../README.md")]
//!
//! # The words of this crate
//!
//! The everyday words are here at the top. The rule is whole in [`core`], the walks and what a
//! store must do in [`engine`], the door for functions in `activity` (a feature, on by default).
//! This crate only gathers: it holds no rule, no state and no door of its own.

#[cfg(feature = "activity")]
pub use onetake_activity as activity;
#[cfg(feature = "activity")]
pub use onetake_activity::{
    Claims, Ending, ExecuteError, Executor, Failure, Identity, Source, Take,
};
pub use onetake_core as core;
pub use onetake_core::{
    Asked, Cause, Code, Finality, Key, OnInFlight, OnUnknown, Operation, Outcome, Policy,
    Principal, Report, Scope, Tenant,
};
pub use onetake_engine as engine;
pub use onetake_engine::{Answer, Attempt, Claim, Engine, Limits, Memory, RunError, Tried};

/// The operation `operation` on a store in memory: for first steps and for tests, because all that
/// it remembers is gone with the process.
///
/// # Errors
/// A [`core::NameError`] when `operation` is not a name.
#[cfg(feature = "activity")]
pub fn in_memory(operation: &str) -> Result<Executor<Memory>, core::NameError> {
    Executor::named(Engine::new(Memory::new()), operation)
}
