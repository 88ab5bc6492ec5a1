//! The bugs that we plant into the rule and the walks: each one a mistake somebody could make, and
//! the test that must notice.
//!
//! Data only. An entry whose text is no longer in the tree fails the run; it is rewritten, never
//! left behind.

use super::{Edit, Planted};

pub(super) const WALK_BUGS: &[Planted] = &[
    Planted {
        name: "another-body-replays",
        story: "A reused key answers with the result of a different request.",
        edits: &[Edit {
            file: "crates/core/src/decide.rs",
            find: "        _ if !same() => Decision::Mismatch,\n",
            replace: "",
        }],
        package: "onetake-core",
        target: &["--lib"],
        test: "the_rule_is_the_documented_table",
        hang_is_caught: false,
    },
    Planted {
        name: "recovery-looks-like-a-first-try",
        story: concat!(
            "After a crash the handler is not told that its effect may have happened ",
            "already."
        ),
        edits: &[Edit {
            file: "crates/core/src/decide.rs",
            find: "OnUnknown::Retry => again(true),",
            replace: "OnUnknown::Retry => again(false),",
        }],
        package: "onetake-core",
        target: &["--lib"],
        test: "a_recovery_is_told_so",
        hang_is_caught: false,
    },
    Planted {
        name: "execution-dies-with-its-caller",
        story: "A client hangs up and its payment is cut off in the middle.",
        edits: &[
            Edit {
                file: "crates/engine/src/lease.rs",
                find: "    There(JoinHandle<Heard>),",
                replace: "    There(tokio_util::task::AbortOnDropHandle<Heard>),",
            },
            Edit {
                file: "crates/engine/src/lease.rs",
                find: "            Home::Engine => Told::There(tasks.spawn(self.own(execute))),\n",
                replace: concat!(
                    "            Home::Engine => Told::There(",
                    "tokio_util::task::AbortOnDropHandle::new(tasks.spawn(self.own(execute)))),\n"
                ),
            },
            Edit {
                file: "crates/engine/src/lease.rs",
                find: "use tokio::task::JoinHandle;\n",
                replace: "",
            },
        ],
        package: "onetake-engine",
        target: &["--test", "faults"],
        test: "x4_a_caller_who_leaves_at_any_moment",
        hang_is_caught: false,
    },
    Planted {
        name: "moved-execution-is-dropped",
        story: "A client of the gateway hangs up and its payment is cut off in the middle.",
        edits: &[Edit {
            file: "crates/engine/src/lease.rs",
            find: "            drop(self.tasks.spawn_on(own, &self.runtime));\n",
            replace: "            drop((own, &self.tasks, &self.runtime));\n",
        }],
        package: "onetake-engine",
        target: &["--test", "faults"],
        test: "x4_a_caller_who_leaves_at_any_moment",
        hang_is_caught: false,
    },
    Planted {
        name: "orphaned-claim",
        story: concat!(
            "A client hangs up while its claim is on its way, and the key is stuck ",
            "as unknown."
        ),
        edits: &[Edit {
            file: "crates/engine/src/claim.rs",
            find: concat!(
                "        let (Some(claiming), Some(execute), Some(permit)) = parts else ",
                "{ return };\n"
            ),
            replace: concat!(
                "        let (Some(claiming), Some(execute), ",
                "Some(permit)) = parts else { return };\n",
                "        if claiming.expected.is_none() {\n",
                "            return;\n",
                "        }\n",
            ),
        }],
        package: "onetake-engine",
        target: &["--test", "faults"],
        test: "x4_a_caller_who_leaves_at_any_moment",
        hang_is_caught: false,
    },
    Planted {
        name: "no-fence-check",
        story: "An executor that was replaced settles the claim of its successor.",
        edits: &[Edit {
            file: "crates/engine/src/lease.rs",
            find: "Some(there) if there.fence == self.claim.fence && there.is_open() => {",
            replace: "Some(there) if there.is_open() => {",
        }],
        package: "onetake-engine",
        target: &["--test", "faults"],
        test: "x2_a_stalled_executor_cannot_complete_the_claim",
        hang_is_caught: false,
    },
    Planted {
        name: "answer-before-durable",
        story: "A caller hears a result that a crash can still lose.",
        edits: &[Edit {
            file: "crates/engine/src/settle.rs",
            find: concat!(
                "        if let Some(said) = self.insist(&draft, &settlement, kept).await {\n",
                "            return said;\n",
                "        }\n",
            ),
            replace: concat!(
                "        if let Settlement::Done { outcome, .. } = &settlement {\n",
                "            let outcome = Arc::clone(outcome);\n",
                "            engine.0.tasks.spawn(async move {\n",
                "                let _ = self.insist(&draft, &settlement, kept).await;\n",
                "            });\n",
                "            return Ok(Answer::Executed { outcome, expires_at: None });\n",
                "        }\n",
            ),
        }],
        package: "onetake-engine",
        target: &["--test", "faults"],
        test: "w12_nobody_hears_an_outcome_before_it_is_durable",
        hang_is_caught: false,
    },
    Planted {
        name: "retention-as-lease",
        story: "After a crash a key is stuck for a day.",
        edits: &[Edit {
            file: "crates/core/src/decide.rs",
            find: "            phase: Phase::Claimed { lease_until: self.policy.lease() },",
            replace: "            phase: Phase::Claimed { lease_until: self.policy.retention() },",
        }],
        package: "onetake-engine",
        target: &["--test", "walk"],
        test: "x1_x3_after_a_crash_the_key_is_unknown_within_the_lease",
        hang_is_caught: false,
    },
    Planted {
        name: "scope-without-tenant",
        story: "One tenant's key meets another's.",
        edits: &[Edit {
            file: "crates/core/src/scope.rs",
            find: "let parts = [scope.tenant.as_str(), principal,",
            replace: "let parts = [\"\", principal,",
        }],
        package: "onetake-core",
        target: &["--lib"],
        test: "c7_the_same_raw_key_elsewhere_is_another_slot",
        hang_is_caught: false,
    },
    Planted {
        name: "fence-counted-per-slot",
        story: concat!(
            "A counter that begins again lets an executor of an earlier life settle ",
            "a new claim."
        ),
        edits: &[Edit {
            file: "crates/engine/src/claim.rs",
            find: concat!(
                "        let fence = self.engine.0.mint.fence_above(grounds.above);\n",
                "        let draft = self.ask.claim(grounds, fence, fence.0);\n",
            ),
            replace: concat!(
                "        let fence = onetake_core::Fence(u128::from(grounds.attempt));\n",
                "        let draft = self.ask.claim(grounds, fence, self.engine.0.mint.id());\n",
            ),
        }],
        package: "onetake-engine",
        target: &["--test", "faults"],
        test: "x2_an_executor_of_an_earlier_life_of_the_key_is_fenced",
        hang_is_caught: false,
    },
    Planted {
        name: "lost-check-ignored",
        story: "A transaction overwrites what somebody else wrote first.",
        edits: &[Edit {
            file: "crates/engine/src/memory.rs",
            find: concat!(
                "                Verdict::Repeated | Verdict::Refuse => {\n",
                "                    return Ok(Commit::Conflict { check: index, current });\n",
                "                }\n",
            ),
            replace: concat!(
                "                Verdict::Repeated | Verdict::Refuse if index == 0 => {\n",
                "                    return Ok(Commit::Conflict { check: index, current });\n",
                "                }\n",
                "                Verdict::Repeated | Verdict::Refuse => {}\n",
            ),
        }],
        package: "onetake-engine",
        target: &["--test", "memory_conformance"],
        test: "x8_a_conflict_writes_nothing",
        hang_is_caught: false,
    },
    Planted {
        name: "expiry-not-checked-on-read",
        story: "A forgotten result answers until somebody sweeps.",
        edits: &[Edit {
            file: "crates/core/src/record.rs",
            find: concat!(
                "            Phase::Done { expires_at, .. } ",
                "if *expires_at <= now => Standing::Free,\n"
            ),
            replace: "",
        }],
        package: "onetake-engine",
        target: &["--test", "walk"],
        test: "k7_d11_an_expired_outcome_does_not_exist",
        hang_is_caught: false,
    },
    Planted {
        name: "retryable-outcome-kept",
        story: "A 503 answers for a day although the next try would succeed.",
        edits: &[Edit {
            file: "crates/core/src/settle.rs",
            find: "            Finality::Retryable => kept(Keeping::Retryable),",
            replace: "            Finality::Retryable => kept(Keeping::Final),",
        }],
        package: "onetake-engine",
        target: &["--test", "walk"],
        test: "w8_a_503_is_recorded_and_executed_again",
        hang_is_caught: false,
    },
    Planted {
        name: "takeover-by-write-only",
        story: "A living owner is replaced although it renewed its lease in time.",
        edits: &[Edit {
            file: "crates/core/src/record.rs",
            find: "        there if there == expected => Verdict::Write,",
            replace: concat!(
                "        there if there.map(|v| v.write) == expected.map(|v| v.write) => ",
                "Verdict::Write,"
            ),
        }],
        package: "onetake-engine",
        target: &["--test", "memory_conformance"],
        test: "x2_a_renewal_between_read_and_takeover_makes_the_takeover_lose",
        hang_is_caught: false,
    },
    Planted {
        name: "release-as-deletion",
        story: "A late copy of a claim takes a released key again, and nobody executes it.",
        edits: &[Edit {
            file: "crates/engine/src/memory.rs",
            find: concat!("        shard.insert(Arc::clone(&record));\n", "        Ok(record)\n",),
            replace: concat!(
                "        shard.insert(Arc::clone(&record));\n",
                "        if matches!(record.phase, onetake_core::Phase::Released { .. }) {\n",
                "            shard.remove(record.address.slot());\n",
                "        }\n",
                "        Ok(record)\n",
            ),
        }],
        package: "onetake-engine",
        target: &["--test", "faults"],
        test: "a_late_copy_of_a_claim_cannot_resurrect_a_released_key",
        hang_is_caught: false,
    },
    Planted {
        name: "lapse-frees-the-key",
        story: "A crash after the effect leads to a silent second one.",
        edits: &[Edit {
            file: "crates/core/src/record.rs",
            find: concat!(
                "                Standing::Unknown { since: *lease_until, cause: Cause::Silence ",
                "}"
            ),
            replace: "                Standing::Free",
        }],
        package: "onetake-engine",
        target: &["--test", "walk"],
        test: "x1_x3_after_a_crash_the_key_is_unknown_within_the_lease",
        hang_is_caught: false,
    },
    Planted {
        name: "completion-swallowed",
        story: "An operator's verdict and an executor's result differ, and nobody is told.",
        edits: &[Edit {
            file: "crates/engine/src/settle.rs",
            find: concat!(
                "                Ok(Stamped { value: Swap::Lost(found), ",
                ".. }) => self.adopt(found)?,"
            ),
            replace: concat!(
                "                Ok(Stamped { value: Swap::Lost(Some(there)), .. })\n",
                "                    if there.fence == self.claim.fence && !there.is_open() =>\n",
                "                {\n",
                "                    return Ok(Some(there));\n",
                "                }\n",
                "                Ok(Stamped { value: Swap::Lost(found), ",
                ".. }) => self.adopt(found)?,",
            ),
        }],
        package: "onetake-engine",
        target: &["--test", "faults"],
        test: "a_completion_is_not_swallowed",
        hang_is_caught: false,
    },
    Planted {
        name: "stampede",
        story: "A thousand waiters repeat what the first one was refused.",
        edits: &[Edit {
            file: "crates/engine/src/waiting.rs",
            find: "        if !self.waited {\n",
            replace: "        if self.waited || !self.waited {\n",
        }],
        package: "onetake-engine",
        target: &["--test", "walk"],
        test: "a_freed_outcome_is_shared_by_those_who_waited",
        hang_is_caught: false,
    },
    Planted {
        name: "recovery-frees-the-key",
        story: concat!(
            "A refused recovery makes the world forget that the first attempt may have ",
            "paid."
        ),
        edits: &[Edit {
            file: "crates/core/src/settle.rs",
            find: concat!(
                "Self::Done { keeping: Keeping::Retryable, ",
                ".. } | Self::Freed(_) if claim.recovery ",
                "=> {"
            ),
            replace: concat!(
                "Self::Done { keeping: Keeping::Retryable, .. } | Self::Freed(_) if false ",
                "=> {"
            ),
        }],
        package: "onetake-engine",
        target: &["--test", "walk"],
        test: "x3_a_refused_recovery_does_not_free_the_key",
        hang_is_caught: false,
    },
    Planted {
        name: "dispatch-after-the-lapse",
        story: "A slow reply lets two executors begin.",
        edits: &[Edit {
            file: "crates/engine/src/lease.rs",
            find: "        if late && !self.is_fresh().await {",
            replace: "        if false && late && !self.is_fresh().await {",
        }],
        package: "onetake-engine",
        target: &["--test", "faults"],
        test: "a_claim_that_lapsed_on_its_way_back",
        hang_is_caught: false,
    },
    Planted {
        name: "verdict-on-an-old-picture",
        story: concat!(
            "An operator frees what they saw a minute ago, and the result that came ",
            "meanwhile is gone."
        ),
        edits: &[Edit {
            file: "crates/engine/src/operate/act.rs",
            find: "Seen::Record(version) => there.version == version,",
            replace: "Seen::Record(_) => true,",
        }],
        package: "onetake-engine",
        target: &["--test", "operate"],
        test: "x10_an_operator_who_decided_on_an_old_picture_changes_nothing",
        hang_is_caught: false,
    },
    Planted {
        name: "act-without-audit",
        story: "Somebody freed a payment by hand, and nobody can say who.",
        edits: &[Edit {
            file: "crates/engine/src/operate/act.rs",
            find: concat!(
                "            let tx = Tx::on_slot(Some(there.version), next.clone())",
                ".write(audit.append());"
            ),
            replace: concat!(
                "            let _ = audit.append();\n",
                "            let tx = Tx::on_slot(Some(there.version), next.clone());",
            ),
        }],
        package: "onetake-engine",
        target: &["--test", "operate"],
        test: "x10_a_release_frees_the_key_and_is_audited_once",
        hang_is_caught: false,
    },
    Planted {
        name: "purge-ends-live-claims",
        story: "A purge takes the claim of a payment that is just being made.",
        edits: &[Edit {
            file: "crates/engine/src/operate/purge.rs",
            find: "            Standing::Live { .. } => Self::Lives,",
            replace: "            Standing::Live { .. } => Self::Ends,",
        }],
        package: "onetake-engine",
        target: &["--test", "operate"],
        test: "x10_a_purge_takes_what_one_tenant_has",
        hang_is_caught: false,
    },
    Planted {
        name: "page-of-another-origin",
        story: "Any page in the operator's browser can purge a tenant.",
        edits: &[Edit {
            file: "crates/console/src/guard.rs",
            find: "        if has_origin && !only(headers, &header::ORIGIN).is_some_and(is_own) {",
            replace: concat!(
                "        if false && has_origin ",
                "&& !only(headers, &header::ORIGIN).is_some_and(is_own) {"
            ),
        }],
        package: "onetake-console",
        target: &["--lib"],
        test: "who_may_come_in_is_this_table",
        hang_is_caught: false,
    },
];
