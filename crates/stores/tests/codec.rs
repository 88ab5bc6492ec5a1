//! The codec from outside: what comes back, what is refused, and what may never change.
//!
//! Nothing here opens a store. Whether a store keeps the bytes is shown by the conformance suite.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

#[path = "codec/golden.rs"]
mod golden;
#[path = "codec/properties.rs"]
mod properties;
#[path = "codec/refusals.rs"]
mod refusals;
#[path = "codec/samples.rs"]
mod samples;
#[path = "codec/sealed.rs"]
mod sealed;
#[path = "codec/versions.rs"]
mod versions;
