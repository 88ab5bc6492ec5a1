//! What every store must do, one case for each sentence of the traits.
//!
//! A store calls [`slots_conformance!`](crate::slots_conformance) and, when it has a journal,
//! [`journal_conformance!`](crate::journal_conformance); each expands to one test for each case. No
//! case knows a store, sleeps, or needs another case to have run.

pub mod bounds;
pub mod commit;
pub mod counters;
pub mod hear;
pub mod keep;
pub mod lanes;
pub mod lease;
pub mod reads;
pub mod rivals;
pub mod swap;
pub mod sweep;
pub mod time;

/// One `#[tokio::test]` for each case, in a module for each file of cases.
#[doc(hidden)]
#[macro_export]
macro_rules! each_case {
    ($rig:expr, $home:ident: $($file:ident { $($case:ident)* })*) => {
        $(mod $file {
            #[allow(unused_imports, reason = "the rig may be named by a path or in scope")]
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    $crate::$home::$file::$case(&$rig).await;
                }
            )*
        })*
    };
}

/// Tests a store of slots. The argument is an expression that makes a [`Rig`](crate::Rig); it is
/// evaluated once for each case. The caller needs `tokio` with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! slots_conformance {
    ($rig:expr) => {
        $crate::each_case! { $rig, conformance:
            swap {
                d6_a_swap_from_nothing_wins_and_is_found
                d6_a_lost_swap_returns_what_is_there
                a_swap_that_names_what_is_there_replaces_it
                x2_the_version_decides_and_not_the_fence
                a_repeated_swap_counts_as_won_and_is_left_alone
                a_repeated_swap_after_a_renewal_takes_no_lease_back
                a_claim_that_arrives_twice_cannot_undo_its_completion
                a_late_copy_of_a_claim_cannot_resurrect_a_released_key
            }
            lease {
                x2_a_renewal_between_read_and_takeover_makes_the_takeover_lose
                a_renewal_changes_version_and_lease_only
                renewing_what_is_settled_loses
                renewing_anothers_claim_loses
                x1_a_renewal_after_the_lapse_but_before_a_takeover_wins
                a_lease_can_be_renewed_again_and_again
                x2_a_stalled_executor_cannot_touch_its_successors_claim
                x2_the_owner_may_settle_what_nobody_took_over
            }
            rivals {
                w9_d6_of_a_thousand_rivals_exactly_one_wins
                x2_of_a_thousand_takeovers_exactly_one_wins
                x2_a_heartbeat_and_a_takeover_never_both_win
                copies_of_one_write_all_win_and_write_once
            }
            time {
                spans_become_points_on_the_clock_of_the_store
                part_of_a_millisecond_is_not_cut_off
                x1_a_renewed_lease_begins_when_it_is_renewed
                the_time_in_replies_never_goes_back
                the_time_in_replies_never_goes_back_between_tasks
                d11_what_has_expired_is_still_read_until_it_is_swept
            }
            sweep {
                k8_what_has_expired_goes
                a_swept_key_is_claimed_from_nothing
                c8_claims_unknowns_and_what_is_kept_are_never_swept
                small_steps_reach_everything_round_after_round
                k7_a_key_that_is_claimed_again_is_not_swept
            }
            keep {
                w3_c4_outcomes_come_back_byte_for_byte
                every_field_of_a_record_comes_back
                every_part_of_an_address_and_a_fingerprint_comes_back
                w10_tenants_never_share_a_key
                c7_operations_never_share_a_key
            }
        }
    };
}

/// Tests what a store offers beyond slots. As [`slots_conformance!`](crate::slots_conformance).
#[macro_export]
macro_rules! journal_conformance {
    ($rig:expr) => {
        $crate::each_case! { $rig, conformance:
            commit {
                x8_a_record_and_its_effects_are_written_together
                x8_a_conflict_writes_nothing
                a_slot_is_checked_by_its_version
                a_document_is_checked_by_its_version
                a_counter_is_checked_before_it_is_added_to
                the_first_check_that_fails_is_named
                a_repeated_transaction_changes_nothing
                a_copy_is_recognised_before_its_checks_are_judged
                a_late_copy_cannot_undo_what_came_after
                swaps_and_commits_meet_in_the_same_slot
                writes_of_one_transaction_happen_in_order
                x8_several_slots_in_one_transaction_are_all_or_nothing
            }
            lanes {
                p12_positions_begin_at_one_and_have_no_gaps
                a_lane_is_read_in_pages
                p12_entries_that_were_appended_together_stand_one_by_one
                entries_carry_the_time_of_their_commit
                p4_trimming_keeps_positions
                p12_a_reader_that_follows_never_misses_an_entry
                p12_cursors_only_go_forward
                p12_cursors_only_go_forward_under_concurrency
            }
            counters {
                counters_add_and_subtract
                counters_stop_at_their_ends
                additions_from_many_tasks_sum_exactly
                a_floor_holds_under_concurrency
            }
            reads {
                fetch_answers_place_by_place
                fetch_sees_one_moment
                scan_pages_through_every_document_of_a_prefix
                scan_goes_on_behind_any_key
                w10_scan_slots_shows_one_tenant_or_all
                x10_scan_slots_shows_what_has_expired_too
            }
            bounds {
                the_largest_transaction_is_taken
                w6_a_transaction_that_is_too_large_leaves_no_trace
            }
        }
    };
}

/// The names of the cases in a file: its public async functions that take a rig.
#[cfg(test)]
pub(crate) fn cases(file: &str) -> impl Iterator<Item = &str> {
    file.split("pub async fn ").skip(1).filter_map(|rest| {
        let (name, generics) = rest.split_once('<')?;
        generics.trim_start().starts_with("R: Rig").then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::cases;

    #[test]
    fn no_case_is_forgotten() {
        let files = [
            include_str!("conformance/bounds.rs"),
            include_str!("conformance/commit.rs"),
            include_str!("conformance/counters.rs"),
            include_str!("conformance/keep.rs"),
            include_str!("conformance/lanes.rs"),
            include_str!("conformance/lease.rs"),
            include_str!("conformance/reads.rs"),
            include_str!("conformance/rivals.rs"),
            include_str!("conformance/swap.rs"),
            include_str!("conformance/sweep.rs"),
            include_str!("conformance/time.rs"),
        ];
        let listed: Vec<&str> = include_str!("conformance.rs").lines().map(str::trim).collect();
        let all: Vec<&str> = files.into_iter().flat_map(cases).collect();
        assert!(all.len() > 60, "only {} cases were found", all.len());
        for case in all {
            assert!(listed.contains(&case), "{case} is not listed, so no store runs it");
        }
    }
}
