//! The bugs that are planted in the stores of a fleet.
//!
//! Each is a mistake that somebody could make while changing one; none is about a door.

use super::{Edit, Planted};

const PACKAGE: &str = "onetake-stores";
const POSTGRES: &[&str] = &["--test", "postgres"];
const FAULTS: &[&str] = &["--test", "fleet_faults"];

/// Bugs of the store in PostgreSQL.
pub(super) const FLEET_BUGS: &[Planted] = &[
    Planted {
        name: "takeover-ignores-the-beat",
        story: "A node that lives and renews loses its claims to whoever asks.",
        edits: &[Edit {
            file: "crates/stores/src/postgres/takeover.rs",
            find: "map(|row| row.get(0))) != expected.renewal {\n",
            replace: "map(|row| row.get(0))) == 0 {\n",
        }],
        package: PACKAGE,
        target: POSTGRES,
        test: "x1_a_claim_lives_in_every_process",
        hang_is_caught: false,
    },
    Planted {
        name: "abandoned-claims-live-on",
        story: "An operation whose owner fell silent stays in flight as long as its node lives.",
        edits: &[Edit {
            file: "crates/stores/src/postgres/swaps.rs",
            find: "&mut self.link, |slot| mine.has(slot)).await;\n",
            replace: "&mut self.link, |slot| mine.index > 99 && mine.has(slot)).await;\n",
        }],
        package: PACKAGE,
        target: POSTGRES,
        test: "x1_a_node_does_not_keep_alive",
        hang_is_caught: false,
    },
    Planted {
        name: "memory-is-never-confirmed",
        story: "A key that an operator released goes on being answered by the other nodes.",
        edits: &[Edit {
            file: "crates/stores/src/postgres/front.rs",
            find: "        if age >= CONFIRMED_FOR {\n",
            replace: "        if age >= CONFIRMED_FOR * 1_000 {\n",
        }],
        package: PACKAGE,
        target: POSTGRES,
        test: "k3_a_replay_is_at_hand",
        hang_is_caught: false,
    },
    Planted {
        name: "purge-does-not-wait-for-memories",
        story: "A purge is reported done while other nodes still answer with what is gone.",
        edits: &[Edit {
            file: "crates/engine/src/operate/purge.rs",
            find: "        if purged.tombstones > 0 {\n",
            replace: "        if purged.tombstones > 1_000 {\n",
        }],
        package: PACKAGE,
        target: POSTGRES,
        test: "k3_after_a_purge_no_node_remembers",
        hang_is_caught: false,
    },
    Planted {
        name: "nobody-is-told",
        story: "A duplicate at another node waits until it looks for itself.",
        edits: &[Edit {
            file: "crates/stores/src/postgres/listen.rs",
            find: "        slot.send_replace(());\n        }\n    }\n\n    /// After a gap",
            replace: "        let _ = slot;\n        }\n    }\n\n    /// After a gap",
        }],
        package: PACKAGE,
        target: POSTGRES,
        test: "w9_a_duplicate_on_another_node",
        hang_is_caught: false,
    },
    Planted {
        name: "unconfirmed-commit-counts",
        story: "What never reached the standby is acknowledged, and lost with the primary.",
        edits: &[Edit {
            file: "crates/stores/src/postgres/link.rs",
            find: "Ok(_) if self.warned.swap(false, Ordering::SeqCst) => Err(Failed::Unsure),\n",
            replace: "",
        }],
        package: PACKAGE,
        target: &["--test", "failover"],
        test: "d6_a_commit_that_did_not_reach_the_standby",
        hang_is_caught: false,
    },
    Planted {
        name: "repeated-claim-is-not-ours",
        story: "A claim whose first reply was lost is never renewed, and runs beside its recovery.",
        edits: &[
            Edit {
                file: "crates/stores/src/postgres/swaps.rs",
                find: "            shared.own.put_unsure(slot, there.version.write, until);\n",
                replace: "            let _ = (slot, until);\n",
            },
            Edit {
                file: "crates/stores/src/postgres/swaps.rs",
                find: "    if matches!(failed, Failed::Unsure) {\n        note",
                replace: "    if matches!(failed, Failed::Again) {\n        note",
            },
        ],
        package: PACKAGE,
        target: &["--test", "failover"],
        test: "d6_a_commit_that_did_not_reach_the_standby",
        hang_is_caught: false,
    },
    Planted {
        name: "failed-renewal-counts",
        story: "After one renewal that failed the owner is asked for a version nobody gave it.",
        edits: &[Edit {
            file: "crates/stores/src/postgres/pulse.rs",
            find: "        Err(failed) => {\n            for one in ours.into_iter()",
            replace: "        Err(failed) => {\n            for one in &ours { \
                      shared.own.renewed(&one.slot, one.expected.write, 0); }\n            \
                      for one in ours.into_iter()",
        }],
        package: PACKAGE,
        target: FAULTS,
        test: "x1_a_renewal_that_failed",
        hang_is_caught: false,
    },
    Planted {
        name: "forsaken-swaps-are-sent",
        story: "A key that its caller gave up is claimed long after, and nobody executes it.",
        edits: &[
            Edit {
                file: "crates/stores/src/postgres/swaps.rs",
                find: "        later.retain(|swap: &Swapping| !swap.ear.is_closed());\n",
                replace: "        later.retain(|_: &Swapping| true);\n",
            },
            Edit {
                file: "crates/stores/src/postgres/swaps.rs",
                find: " || swaps.iter().all(|swap| swap.ear.is_closed()) {\n",
                replace: " {\n",
            },
        ],
        package: PACKAGE,
        target: FAULTS,
        test: "w12_a_swap_that_nobody_waits_for",
        hang_is_caught: false,
    },
    Planted {
        name: "fleet-seal-is-not-agreed-on",
        story: "A process with a key and one without it both execute the same key.",
        edits: &[Edit {
            file: "crates/stores/src/seal/joint.rs",
            find: "        (true, false) => Err(SealError::NoKey),\n",
            replace: "        (true, false) => Ok((Sealer::Plain, 0)),\n",
        }],
        package: PACKAGE,
        target: &["--test", "fleet_sealed"],
        test: "x11_whoever_does_not_agree",
        hang_is_caught: false,
    },
];
