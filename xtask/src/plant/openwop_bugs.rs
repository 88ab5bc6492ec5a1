//! The bugs that we plant into the workflow host.
//!
//! Data only. Most are caught through the built binary, as users would be hit by them.

use super::{Edit, Planted};

const PACKAGE: &str = "onetake-cli";
const BINARY: &[&str] = &["--test", "openwop"];

pub(super) const OPENWOP_BUGS: &[Planted] = &[
    Planted {
        name: "step-without-a-version",
        story: "Two hosts take one step of a run, and what happened is told twice.",
        edits: &[Edit {
            file: "crates/engine/src/update.rs",
            find: "            let there = view.doc(anchor).ok().flatten().map(|document| \
                   document.version);\n",
            replace: "            let (only, _) = (vec![Place::Doc(anchor.clone())], &view);\n\
                      \x20           let Stamped { now, value } = self.fetch(&only).await?;\n\
                      \x20           let there = View::of(now, &only, value);\n\
                      \x20           let there = there.doc(anchor).ok().flatten()\
                      .map(|document| document.version);\n",
        }],
        package: "onetake-engine",
        target: &["--lib"],
        test: "x8_what_a_rival_made_of_the_anchor_is_seen_before_it_is_replaced",
        hang_is_caught: false,
    },
    Planted {
        name: "run-keys-without-tenant",
        story: "A tenant hears of another's run, because both chose the same key.",
        edits: &[Edit {
            file: "crates/openwop/src/door.rs",
            find: "        let scope = Scope::tenant_wide(caller.tenant.clone());\n",
            replace: "        let everybody = Tenant::new(\"everybody\").expect(\"a name\");\n\
                      \x20       let scope = Scope::tenant_wide(everybody);\n",
        }],
        package: PACKAGE,
        target: BINARY,
        test: "w10_tenants_share_no_key_and_hear_nothing_of_each_other",
        hang_is_caught: false,
    },
    Planted {
        name: "deliveries-not-in-the-commit",
        story: "A webhook is lost when its host is killed before it was sent.",
        edits: &[Edit {
            file: "crates/openwop/src/books.rs",
            find: "            writes.push(Write::Put(delivery.doc(), encode(&delivery)));\n",
            replace: "            drop(delivery);\n",
        }],
        package: PACKAGE,
        target: BINARY,
        test: "x8_what_was_committed_before_a_kill_is_told_after_it",
        hang_is_caught: false,
    },
    Planted {
        name: "delivery-goes-with-its-host",
        story: "A webhook is lost when its host is killed while it is sent.",
        edits: &[Edit {
            file: "crates/openwop/src/webhook/dispatch.rs",
            find: "                .write(Write::Delete(old.clone()))\n                \
                   .write(Write::Put(taken.doc(), books::encode(&taken))))\n",
            replace: "                .write(Write::Delete(old.clone())))\n",
        }],
        package: PACKAGE,
        target: BINARY,
        test: "x8_what_was_committed_before_a_kill_is_told_after_it",
        hang_is_caught: false,
    },
    Planted {
        name: "run-under-way-is-not-scheduled",
        story: "A run whose host was killed in a call never goes on.",
        edits: &[Edit {
            file: "crates/openwop/src/books.rs",
            find: "    run.next_due().into_iter().chain(lease).min()\n",
            replace: "    run.next_due().into_iter().chain(lease.filter(|_| is_cut)).min()\n",
        }],
        package: PACKAGE,
        target: BINARY,
        test: "w13_w17_x3_k10_another_host_goes_on_when_one_is_killed_in_a_call",
        hang_is_caught: false,
    },
    Planted {
        name: "held-call-made-again",
        story: "A payment that may have gone through is made again after a restart, unasked.",
        edits: &[Edit {
            file: "crates/activity/src/providers.rs",
            find: "Self { header, on_unknown: OnUnknown::Hold }",
            replace: "Self { header, on_unknown: OnUnknown::Retry }",
        }],
        package: PACKAGE,
        target: BINARY,
        test: "x3_what_is_held_stays_held_and_is_not_called_again",
        hang_is_caught: false,
    },
    Planted {
        name: "token-signature-unread",
        story: "Whoever can guess the name of a run approves it.",
        edits: &[Edit {
            file: "crates/openwop/src/token.rs",
            find: "self.mac(text).verify_slice(&signature).map_err(|_| BadToken::Unknown)?;",
            replace: "let _ = self.mac(text).verify_slice(&signature);",
        }],
        package: PACKAGE,
        target: BINARY,
        test: "w1_a_token_that_was_tampered_with_answers_nothing",
        hang_is_caught: false,
    },
    Planted {
        name: "webhooks-reach-this-network",
        story: "A tenant has the host call what only its own network can reach.",
        edits: &[Edit {
            file: "crates/openwop/src/host.rs",
            find: "Guard { allow_private: settings.allow_private_targets, ..Guard::default() }",
            replace: "Guard { allow_private: settings.driven_max > 0, ..Guard::default() }",
        }],
        package: PACKAGE,
        target: BINARY,
        test: "private_targets_are_refused_unless_they_are_allowed",
        hang_is_caught: false,
    },
    Planted {
        name: "any-try-comes-back",
        story: "What an earlier try of a node came to is taken for what the next one did.",
        edits: &[Edit {
            file: "crates/openwop/src/machine/end.rs",
            find: "let is_it = state.attempt == attempt && state.since == since;",
            replace: "let is_it = attempt <= u32::MAX && state.since == since;",
        }],
        package: "onetake-openwop",
        target: &["--lib"],
        test: "what_comes_back_from_outside_is_taken_once_and_only_from_the_right_try",
        hang_is_caught: false,
    },
    Planted {
        name: "settled-call-held-again",
        story: "A retry that somebody asked for is held, because an older call knows nothing.",
        edits: &[Edit {
            file: "crates/openwop/src/machine/end.rs",
            find: "let is_it = state.attempt == attempt && state.since == since;",
            replace: "let is_it = state.attempt == attempt && state.since >= since;",
        }],
        package: "onetake-openwop",
        target: &["--lib"],
        test: "x3_an_unknown_outcome_is_held_until_somebody_who_knows_settles_it",
        hang_is_caught: false,
    },
];
