//! The bugs that we plant: each one a mistake somebody could make, and the test that must notice.
//!
//! Data only. An entry whose text is no longer in the tree fails the run; it is rewritten, never
//! left behind.

use super::{Edit, Planted};

pub(super) const BUGS: &[Planted] = &[
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
        story: "After a crash the handler is not told that its effect may have happened already.",
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
];
