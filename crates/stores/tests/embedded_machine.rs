//! Random sequences on embedded stores against plain maps.
//!
//! A failure prints the shortest sequence that still fails.

mod common;

use common::{SealedRig, StandingRig};
use onetake_testkit::machine;

#[test]
fn every_reply_is_the_one_that_plain_maps_give() {
    assert_eq!(machine::run::<StandingRig>(60), Ok(()));
}

#[test]
fn also_sealed_and_from_disk() {
    assert_eq!(machine::run::<SealedRig>(12), Ok(()));
}
