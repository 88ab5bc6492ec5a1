//! The embedded store passes the suite that every store passes.
//!
//! Twice: as it is by default, on a clock that stands until it is told to move, and sealed, with
//! almost nothing in memory, on the clock of the machine.

mod common;

mod by_default {
    use crate::common::StandingRig;

    onetake_testkit::slots_conformance!(StandingRig::default());
    onetake_testkit::journal_conformance!(StandingRig::default());
}

mod sealed_and_from_disk {
    use crate::common::SealedRig;

    onetake_testkit::slots_conformance!(SealedRig::default());
    onetake_testkit::journal_conformance!(SealedRig::default());
}
