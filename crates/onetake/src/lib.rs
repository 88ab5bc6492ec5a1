#![allow(clippy::doc_markdown, reason = "the README is prose")]
#![doc = include_str!("../README.md")]
//!
//! # The words of this crate
//!
//! The everyday words are here at the top. The rule is whole in [`core`], the walks and what a
//! store must do in [`engine`], the door for functions in `activity` and the durable stores in
//! `stores` (features, on by default), the door for HTTP with its durable routes in `http` and
//! exactly once inside your own PostgreSQL transaction in `inside` (features). This crate only
//! gathers: it holds no rule, no state and no door of its own.

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
#[cfg(feature = "http")]
pub use onetake_http as http;
#[cfg(any(feature = "embedded", feature = "postgres", feature = "redis"))]
pub use onetake_stores as stores;
#[cfg(feature = "embedded")]
pub use onetake_stores::Embedded;
#[cfg(feature = "redis")]
pub use onetake_stores::Redis;
#[cfg(feature = "postgres")]
pub use onetake_stores::{Postgres, inside};

/// Why an operation could not be opened.
#[cfg(all(feature = "activity", feature = "embedded"))]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] stores::OpenError),
    /// The operation has no name.
    #[error(transparent)]
    Name(#[from] core::NameError),
}

#[cfg(all(feature = "activity", feature = "embedded"))]
impl OpenError {
    /// The stable code of this failure.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Store(error) => error.code(),
            Self::Name(error) => error.code(),
        }
    }
}

/// The operation `operation` on a durable store in `folder`, which is made where there is none.
///
/// One process opens a folder at a time. For several operations on one store, open it once and
/// share it: [`Embedded::open`](stores::Embedded::open), [`Engine::new`], [`Executor::named`].
///
/// # Errors
/// An [`OpenError`] that says what is in the way and what to do.
#[cfg(all(feature = "activity", feature = "embedded"))]
pub fn open(
    folder: impl AsRef<std::path::Path>,
    operation: &str,
) -> Result<Executor<Embedded>, OpenError> {
    let engine = Engine::new(Embedded::open(folder)?);
    engine.keep_house();
    Ok(Executor::named(engine, operation)?)
}

/// The operation `operation` on a store in memory: for first steps and for tests, because all that
/// it remembers is gone with the process.
///
/// # Errors
/// A [`core::NameError`] when `operation` is not a name.
#[cfg(feature = "activity")]
pub fn in_memory(operation: &str) -> Result<Executor<Memory>, core::NameError> {
    Executor::named(Engine::new(Memory::new()), operation)
}
