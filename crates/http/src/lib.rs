//! Onetake for HTTP: a tower layer for services in Rust, and a gateway for everybody else's.
//!
//! A request becomes an [`onetake_core::Ask`] in `ask.rs`, an answer becomes a response in
//! `reply.rs`, and what a contract wants on the wire is data in `dialect.rs`. Nothing else in this
//! crate touches the wire, and no rule is decided here.

#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(feature = "gateway")]
pub mod identity;
