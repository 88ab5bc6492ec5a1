//! Who is let in by each gate of the gateway, and who is not.
//!
//! Tokens are signed with keys that are made here; keys behind a URL come from a real server on the
//! loopback. Time is a manual clock, and no test waits for a real one.
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod all_gates;
mod api_keys;
mod keys_of_an_issuer;
mod kit;
mod proxies_and_nobody;
mod tokens;
