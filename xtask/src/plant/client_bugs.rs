//! The bugs that we plant into the HTTP client of workflow nodes.
//!
//! Data only. All are caught by one binary, so that only the door for functions is built again.

use super::{Edit, Planted};

const PACKAGE: &str = "onetake-activity";
const CLIENT: &[&str] = &["--features", "client", "--test", "client"];

pub(super) const CLIENT_BUGS: &[Planted] = &[
    Planted {
        name: "lost-call-sent-again",
        story: "A provider that recognises nothing is called twice, because its answer was lost.",
        edits: &[Edit {
            file: "crates/activity/src/client/retry.rs",
            find: "let may_go_on = is_recognised || !self.lost;",
            replace: "let may_go_on = is_recognised || self.attempts > 0;",
        }],
        package: PACKAGE,
        target: CLIENT,
        test: "x3_what_was_sent_and_broke_off_is_held_or_sent_again",
        hang_is_caught: false,
    },
    Planted {
        name: "lost-call-forgotten",
        story: "A charge that may have been made is forgotten once another attempt was refused.",
        edits: &[Edit {
            file: "crates/activity/src/client/retry.rs",
            find: "            (true, _) => Ending::Unknown,\n            (false, Some(refusal))",
            replace: "            (true, None) => Ending::Unknown,\n            (_, Some(refusal))",
        }],
        package: PACKAGE,
        target: CLIENT,
        test: "x3_a_lost_attempt_is_forgotten_by_nothing_but_a_result",
        hang_is_caught: false,
    },
    Planted {
        name: "conflict-is-the-result",
        story: "A payment that goes through a moment later is kept as a conflict.",
        edits: &[Edit {
            file: "crates/activity/src/client/retry.rs",
            find: "if status == CONFLICT && (was_lost || self.is_recovery) {",
            replace: "if status == CONFLICT && was_lost && self.is_recovery {",
        }],
        package: PACKAGE,
        target: CLIENT,
        test: "x3_a_conflict_with_a_lost_attempt_is_not_its_result",
        hang_is_caught: false,
    },
    Planted {
        name: "one-header-for-all",
        story: "A provider with a header of its own does not recognise a call.",
        edits: &[Edit {
            file: "crates/activity/src/client.rs",
            find: "HeaderName::from_bytes(provider.header.as_bytes())",
            replace: "HeaderName::from_bytes(crate::IDEMPOTENCY_KEY.as_bytes())",
        }],
        package: PACKAGE,
        target: CLIENT,
        test: "w16_w17_the_identity_is_in_the_header_of_the_provider_whatever_the_node_says",
        hang_is_caught: false,
    },
    Planted {
        name: "left-is-complete",
        story: "A stream that its reader left is recorded as complete.",
        edits: &[Edit {
            file: "crates/activity/src/client/stream.rs",
            find: "() = reader.closed() => return StreamEnd::Abandoned,",
            replace: "() = reader.closed() => return StreamEnd::Complete,",
        }],
        package: PACKAGE,
        target: CLIENT,
        test: "w18_x4_a_stream_whose_reader_went_away_is_ended_and_recorded",
        hang_is_caught: false,
    },
    Planted {
        name: "too-large-called-again",
        story: "A call is made again and again, because its answer is too large to be kept.",
        edits: &[Edit {
            file: "crates/activity/src/client.rs",
            find: "executor.policy().to_builder().failures(Finality::Final);",
            replace: "executor.policy().to_builder().panics(Finality::Final);",
        }],
        package: PACKAGE,
        target: CLIENT,
        test: "an_answer_that_is_too_large_is_not_kept_and_not_asked_for_again",
        hang_is_caught: false,
    },
];
