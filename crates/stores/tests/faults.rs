//! The disk that fails, tried on plain files and on a bare database of the engine.
//!
//! Proves the tool and the facts that the embedded store rests on. Never tests the store.

#![cfg(all(target_os = "linux", feature = "embedded"))]
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod disk;

#[path = "faults/engine.rs"]
mod engine;
#[path = "faults/files.rs"]
mod files;
