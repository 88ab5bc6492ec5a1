//! The bugs that are planted in the stores of a fleet.
//!
//! Each is a mistake that somebody could make while changing one; none is about a door.

use super::{Edit, Planted};

const PACKAGE: &str = "onetake-stores";
const POSTGRES: &[&str] = &["--test", "postgres"];

/// Bugs of the store in PostgreSQL.
pub(super) const FLEET_BUGS: &[Planted] = &[
    Planted {
        name: "takeover-ignores-the-beat",
        story: "A node that lives and renews loses its claims to whoever asks.",
        edits: &[Edit {
            file: "crates/stores/src/postgres/swaps.rs",
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
            find: "let_go(&shared, &mut link, |slot| mine.has(slot)).await;\n",
            replace: "let_go(&shared, &mut link, |slot| slot.is_empty()).await;\n",
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
];
