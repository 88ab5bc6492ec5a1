//! The protocol of one slot, checked exhaustively: three workers, a network that delays, doubles
//! and loses, a clock without end, a sweeper and an operator.
//!
//! The model uses the real rule: `decide`, `judge`, and records drafted and renewed as the engine
//! does. Only what surrounds the rule is modelled. Every promise is a property with a sentence for
//! a name; what must be possible is one too, so a model that does nothing cannot pass. Planted
//! mistakes show that the checker finds what it is there to find.
//!
//! Each check is exhaustive within its budget of asks, faults and so on; several small ones see
//! more, sooner, than a large one.

#[path = "protocol_model/model.rs"]
mod model;
#[path = "protocol_model/properties.rs"]
mod properties;
#[path = "protocol_model/slot.rs"]
mod slot;
#[path = "protocol_model/walk.rs"]
mod walk;
#[path = "protocol_model/world.rs"]
mod world;

use onetake_core::OnUnknown::{Hold, Retry};
use stateright::{Checker, HasDiscoveries, Model};

use crate::model::{Plant, Rules};
use crate::world::Budget;

/// One of each, but nobody who asks for something else and no operator.
const PLAIN: Budget = Budget { asks: 3, others: 0, renewals: 1, faults: 1, crashes: 1, acts: 0 };

/// Sees every state of the model. The floor is there so that it cannot shrink unnoticed.
fn prove(rules: Rules, states_min: usize) {
    let budget = rules.budget;
    let checker = rules.checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    println!("{states} states: {budget:?}");
    checker.assert_properties();
    assert!(states >= states_min, "{states} states; there were at least {states_min}");
}

/// Looks for a counterexample to `promise`, and shows it.
fn finds(rules: Rules, promise: &'static str) {
    let checker = rules.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let trace = checker.discovery(promise).expect("the planted mistake is found").into_actions();
    println!("{promise}\n  does not hold after {trace:#?}");
}

/// The planted mistake breaks `promise`; without it, nothing within the same budget does.
fn bites(rules: Rules, plant: Plant, promise: &'static str) {
    finds(rules.clone().planted(plant), promise);
    let sound = rules.checker().threads(2).spawn_bfs().join();
    sound.assert_no_discovery(promise);
}

#[test]
fn x1_x2_x3_d6_a_held_key_has_one_effect_until_an_operator_decides() {
    prove(Rules::new(Hold, Budget { acts: 1, ..PLAIN }), 140_000);
}

#[test]
fn x1_x2_x3_d6_a_held_key_has_one_effect_whatever_the_network_does() {
    prove(Rules::new(Hold, Budget { renewals: 0, faults: 2, ..PLAIN }), 70_000);
}

#[test]
fn k10_other_content_under_a_held_key_changes_nothing() {
    prove(Rules::new(Hold, Budget { others: 1, crashes: 0, ..PLAIN }), 27_000);
}

#[test]
fn x1_x2_x3_d6_a_key_that_is_tried_again_tells_every_recovery_and_fences_the_stale() {
    prove(Rules::new(Retry, PLAIN), 130_000);
}

#[test]
fn x1_x2_x3_d6_a_key_that_is_tried_again_stands_two_faults_of_the_network() {
    prove(Rules::new(Retry, Budget { asks: 2, faults: 2, crashes: 0, ..PLAIN }), 80_000);
}

#[test]
fn x1_x2_x3_d6_an_operator_may_decide_about_a_key_that_is_tried_again() {
    prove(Rules::new(Retry, Budget { asks: 2, acts: 1, ..PLAIN }), 75_000);
}

#[test]
fn k10_other_content_never_recovers_what_it_did_not_ask_for() {
    prove(Rules::new(Retry, Budget { others: 1, renewals: 0, crashes: 0, ..PLAIN }), 43_000);
}

#[test]
fn x2_a_takeover_that_expects_a_fence_is_caught_taking_a_renewed_claim() {
    let rules = Rules::new(Retry, Budget { asks: 2, faults: 0, crashes: 0, ..PLAIN });
    bites(rules, Plant::TakeoverByFence, properties::ONLY_FREE);
}

#[test]
fn a_release_that_deletes_is_caught_when_a_late_copy_of_the_claim_lives_again() {
    let rules = Rules::new(Hold, Budget { asks: 2, renewals: 0, crashes: 0, ..PLAIN });
    bites(rules, Plant::ReleaseDeletes, properties::NO_GHOST);
}

#[test]
fn x1_expiry_that_frees_a_running_claim_is_caught_by_a_second_effect() {
    let rules = Rules::new(Hold, Budget { asks: 2, faults: 0, crashes: 0, ..PLAIN });
    bites(rules, Plant::ExpiryFreesClaims, properties::ONE_EFFECT);
}

#[test]
fn x3_expiry_that_frees_a_running_claim_is_caught_hiding_a_crash() {
    let rules = Rules::new(Hold, Budget { asks: 1, renewals: 0, faults: 0, ..PLAIN });
    bites(rules, Plant::ExpiryFreesClaims, properties::CRASH_IS_SEEN);
}

#[test]
fn x2_a_completion_that_is_won_by_its_fence_alone_is_caught_telling_what_is_not_kept() {
    let rules = Rules::new(Hold, Budget { asks: 1, acts: 1, ..PLAIN });
    bites(rules, Plant::FenceIsEnough, properties::OUTCOME_STAYS);
}

#[test]
fn a_heartbeat_that_takes_its_own_record_for_a_rival_is_caught() {
    let rules = Rules::new(Hold, Budget { asks: 1, crashes: 0, ..PLAIN });
    bites(rules, Plant::HeartbeatDecides, properties::NOT_FENCED);
}

/// Why a claim must be renewed before it is acted on when its reply took as long as its lease.
#[test]
fn x1_acting_on_a_reply_after_its_lease_is_caught_as_two_executions_at_once() {
    let rules = Rules::new(Retry, Budget { asks: 2, faults: 0, crashes: 0, ..PLAIN });
    bites(rules, Plant::SlowReplies, properties::LIVE_CLAIM);
}
