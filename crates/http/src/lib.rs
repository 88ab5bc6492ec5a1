//! Onetake for HTTP: a tower layer for services in Rust, and a gateway for everybody else's.
//!
//! A request becomes an [`onetake_core::Ask`] in `ask.rs`, an answer becomes a response in
//! `reply.rs`, and what a contract wants on the wire is data in `dialect.rs`. Nothing else in this
//! crate touches the wire, and no rule is decided here.

mod ask;
#[cfg(feature = "axum")]
pub mod axum;
mod body;
mod carry;
mod dialect;
mod execute;
#[cfg(feature = "gateway")]
pub mod gateway;
mod hops;
mod idempotency;
#[cfg(feature = "gateway")]
pub mod identity;
mod layer;
mod new_keys;
mod read;
mod reply;
mod room;
mod service;
mod settings;
mod spare;
mod transact;
mod walk;

pub use ask::MatchedRoute;
pub use body::DoorBody;
pub use carry::BoxError;
pub use dialect::{BodyShape, Dialect, OnNoKey, Refusal};
pub use idempotency::Idempotency;
pub use layer::IdempotencyLayer;
pub use reply::{EXPIRES, OBSERVED, REFUSED};
pub use room::BUFFERED_BYTES_MAX;
pub use service::IdempotencyService;
pub use settings::{
    BODY_BYTES_MAX, BODY_WITHIN, Keyless, Mode, Settings, SettingsBuilder, SettingsError, StoreDown,
};
pub use transact::WholeRequest;
