//! The test kit of Onetake: what every store must do, checked by one suite that all of them pass.
//!
//! [`mod@conformance`] holds one case for each sentence of the store traits, [`mod@machine`] random
//! sequences against a reference made of plain maps, [`mod@miniatures`] small real doors that show
//! that the traits carry what the doors need, and [`sim`] whole histories of bad luck behind a
//! [`faulty`] connection. A store joins in by writing a [`Rig`] and calling three macros:
//!
//! ```
//! // In tests/conformance.rs of a store:
//! onetake_testkit::slots_conformance!(onetake_testkit::MemoryRig::default());
//! onetake_testkit::journal_conformance!(onetake_testkit::MemoryRig::default());
//! onetake_testkit::miniatures!(onetake_testkit::MemoryRig::default());
//! # fn main() {}
//! ```
//!
//! A dev-dependency only; nothing here is ever part of a product.
#![allow(clippy::unwrap_used, reason = "a suite says that something is wrong by panicking")]

pub mod clock;
pub mod conformance;
pub mod faulty;
pub mod machine;
pub mod make;
pub mod miniatures;
mod rig;
pub mod servers;
mod shared;
pub mod sim;

pub use rig::{MemoryRig, Rig, RunningRig, wait_out};
pub use shared::{Counts, Shared};
