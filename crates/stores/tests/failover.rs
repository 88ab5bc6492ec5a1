//! A primary that dies and a standby that takes its place: nothing that was acknowledged is lost,
//! and no key has two owners.
//!
//! A run that must lose shows that these tests would notice. Everything runs on real servers, which
//! each test starts for itself.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

#[path = "failover/cancelled.rs"]
mod cancelled;
#[path = "failover/clients.rs"]
mod clients;
#[path = "failover/comes_back.rs"]
mod comes_back;
#[path = "failover/loses.rs"]
mod loses;
#[path = "failover/pair.rs"]
mod pair;
#[path = "failover/takes_over.rs"]
mod takes_over;
