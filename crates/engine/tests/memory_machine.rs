//! Random sequences on the reference store against plain maps, on both of its clocks.
//!
//! A failure prints the shortest sequence that still fails; nothing is written to disk.

use onetake_testkit::machine;
use onetake_testkit::{MemoryRig, RunningRig};

#[test]
fn every_reply_is_the_one_that_plain_maps_give() {
    assert_eq!(machine::run::<MemoryRig>(400), Ok(()));
}

#[test]
fn also_while_time_goes_on_by_itself() {
    assert_eq!(machine::run::<RunningRig>(12), Ok(()));
}
