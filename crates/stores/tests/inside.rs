//! Exactly once inside the caller's own transaction: rivals, rollbacks, refusals, the other doors,
//! both drivers, and processes that are killed in the middle of a transfer.
#![cfg(all(feature = "postgres", feature = "embedded"))]
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod common;
#[path = "inside/doors.rs"]
mod doors;
#[path = "inside/ends.rs"]
mod ends;
#[path = "inside/killed.rs"]
mod killed;
#[path = "inside/place.rs"]
mod place;
#[path = "inside/pooler.rs"]
mod pooler;
#[path = "inside/rivals.rs"]
mod rivals;
mod servers;
#[path = "inside/snapshots.rs"]
mod snapshots;
#[allow(dead_code, reason = "the example is a program of its own")]
#[path = "../examples/transfer.rs"]
mod transfer;
#[cfg(feature = "sqlx")]
#[path = "inside/sqlx.rs"]
mod with_sqlx;

#[test]
fn a_process_that_is_asked_to_plays_its_part() {
    if let Some(asked) = common::part::asked() {
        killed::play(&asked);
    }
}
