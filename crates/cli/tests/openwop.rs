//! The workflow host as users run it: the built binary, killed, stopped and started again, alone on
//! its own store or beside others on one PostgreSQL.
//!
//! What nodes call is a few lines of sockets in this process that write down every call. Only what
//! callers, providers and those who are told hear counts; nothing here looks into a host.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

#[path = "openwop/calls.rs"]
mod calls;
#[path = "openwop/client.rs"]
mod client;
#[path = "openwop/flow.rs"]
mod flow;
#[path = "openwop/home.rs"]
mod home;
#[path = "openwop/journey.rs"]
mod journey;
#[path = "openwop/keys.rs"]
mod keys;
#[path = "openwop/killed.rs"]
mod killed;
#[path = "openwop/pair.rs"]
mod pair;
#[path = "openwop/provider.rs"]
mod provider;
#[path = "openwop/tokens.rs"]
mod tokens;
#[path = "openwop/told.rs"]
mod told;
#[path = "openwop/wire.rs"]
mod wire;
