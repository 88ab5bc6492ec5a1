//! A fleet as users run it: several processes of the built binary on one PostgreSQL, killed,
//! stopped and started again, and what operators type while they run.
//!
//! The API behind them is a few lines of sockets that count. Only what callers, operators and that
//! API see counts; nothing here looks into a process.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

#[path = "fleet/api.rs"]
mod api;
#[path = "fleet/caller.rs"]
mod caller;
#[path = "fleet/chaos.rs"]
mod chaos;
#[path = "fleet/load.rs"]
mod load;
#[path = "fleet/nodes.rs"]
mod nodes;
#[path = "fleet/operators.rs"]
mod operators;
#[path = "fleet/refused.rs"]
mod refused;
#[path = "fleet/verdict.rs"]
mod verdict;
#[path = "fleet/woken.rs"]
mod woken;
