//! Small real doors on the traits: what the doors of Onetake need of a store, in a page each.
//!
//! Every miniature has a little API of its own and cases that run it on any [`Rig`](crate::Rig)
//! with a journal. They are proofs and examples, not products: no wire, no configuration, no
//! metrics.

pub mod counter;
pub mod dispatch;
pub mod inbox;
pub mod interrupt;
pub mod listing;
pub mod purge;
pub mod step;

use bytes::Bytes;
use onetake_core::Outcome;
use onetake_engine::{Engine, Limits, Mint, Slots};

use crate::Shared;

/// One process on a shared store. No two processes on one store may have the same seed.
fn engine<S: Slots>(store: &Shared<S>, seed: u64) -> Engine<Shared<S>> {
    Engine::with(store.clone(), Limits::default(), Mint::seeded(seed))
}

/// What an outcome of a miniature says.
fn text(outcome: &Outcome) -> Bytes {
    match outcome {
        Outcome::Value(text) | Outcome::Failure(text) => text.clone(),
        other @ (Outcome::Response { .. } | Outcome::NotKept { .. }) => {
            panic!("no miniature answers {other:?}")
        }
    }
}

/// Runs the miniatures on a store. As [`slots_conformance!`](crate::slots_conformance).
#[macro_export]
macro_rules! miniatures {
    ($rig:expr) => {
        $crate::each_case! { $rig, miniatures:
            inbox {
                p3_a_replay_changes_nothing
                p9_two_confirmations_of_one_window_are_one
                p2_partners_do_not_share_ids_or_windows
                p3_another_payload_under_the_same_id_is_a_replay
                p3_of_concurrent_copies_one_is_accepted
                p9_of_concurrent_confirmations_of_one_window_one_is_accepted
            }
            step {
                w19_a_run_is_created_once_with_its_first_event
                x8_state_event_outbox_and_completion_are_one_commit
                x8_a_step_that_is_finished_twice_is_written_once
                x8_of_concurrent_finishers_one_writes
                x3_a_step_that_crashed_before_its_commit_is_recovered
                x2_a_step_that_lost_its_claim_writes_nothing
            }
            dispatch {
                p6_only_the_head_is_handed_out_and_only_once
                p6_of_many_workers_one_gets_the_head
                p6_a_dead_letter_and_the_next_head_are_one_commit
                p12_x2_a_crashed_workers_event_comes_again
                p10_lanes_do_not_wait_for_each_other
                p6_never_two_in_flight_and_nothing_lost
            }
            counter {
                x8_concurrent_reservations_do_not_conflict
                x8_the_last_ones_are_not_sold_twice
                c5_a_retry_takes_nothing_more
            }
            listing {
                x10_x3_a_lapsed_claim_is_listed_as_unknown
                x10_d11_what_is_forgotten_is_not_listed_as_done
                x10_the_list_is_by_age
                x10_w10_the_list_is_one_tenants_in_any_pages
            }
            purge {
                x10_a_purge_leaves_nothing_of_one_tenant_and_all_of_others
                x10_x4_a_purge_leaves_a_live_claim_to_its_owner
                x10_x2_a_purged_executor_is_fenced
            }
            interrupt {
                w1_x8_a_second_resolve_replays
                x8_what_is_due_fires_exactly_once
                x8_a_remembered_cursor_misses_no_timer
                x8_a_resolve_that_races_with_the_timer_ends_once
                x8_creations_that_race_with_ticks_all_fire
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::conformance::cases;

    #[test]
    fn no_miniature_is_forgotten() {
        let files = [
            include_str!("miniatures/counter.rs"),
            include_str!("miniatures/dispatch.rs"),
            include_str!("miniatures/inbox.rs"),
            include_str!("miniatures/interrupt.rs"),
            include_str!("miniatures/listing.rs"),
            include_str!("miniatures/purge.rs"),
            include_str!("miniatures/step.rs"),
        ];
        let listed: Vec<&str> = include_str!("miniatures.rs").lines().map(str::trim).collect();
        let all: Vec<&str> = files.into_iter().flat_map(cases).collect();
        assert!(all.len() > 30, "only {} cases were found", all.len());
        for case in all {
            assert!(listed.contains(&case), "{case} is not listed, so no store runs it");
        }
    }
}
