//! The bugs that we plant into the durable stores. As `bugs.rs`: data only.

use super::{Edit, Planted};

pub(super) const STORE_BUGS: &[Planted] = &[
    Planted {
        name: "answered-before-the-sync",
        story: "A power cut takes back an outcome that a caller has heard.",
        edits: &[Edit {
            file: "crates/stores/src/embedded/log.rs",
            find: "        self.current.sync()?;\n",
            replace: "",
        }],
        package: "onetake-stores",
        target: &["--test", "embedded_faults"],
        test: "k12_w12_x8_what_was_answered_survives",
        hang_is_caught: false,
    },
    Planted {
        name: "a-dead-process-keeps-its-lease",
        story: "After a crash a key is in flight until a lease ends that nobody holds.",
        edits: &[Edit {
            file: "crates/stores/src/embedded/disk.rs",
            find: "        if boot != self.boot\n",
            replace: "        if boot > self.boot\n",
        }],
        package: "onetake-stores",
        target: &["--test", "embedded"],
        test: "x1_x3_claims_of_an_earlier_process",
        hang_is_caught: false,
    },
    Planted {
        name: "a-compaction-takes-unknowns",
        story: "An outcome that nobody knows is forgotten, and the next retry executes it again.",
        edits: &[Edit {
            file: "crates/stores/src/embedded/expiry.rs",
            find: "label.is_removable(now)",
            replace: "label.end.is_none_or(|end| end <= now)",
        }],
        package: "onetake-stores",
        target: &["--test", "embedded"],
        test: "c8_k7_d11_a_compaction_removes",
        hang_is_caught: false,
    },
    Planted {
        name: "an-old-picture-is-filed",
        story: "A slow read files a free key over a claim that came and went, and it runs twice.",
        edits: &[Edit {
            file: "crates/stores/src/embedded/front.rs",
            find: "if shard.departures == departures {",
            replace: "if shard.departures >= departures {",
        }],
        package: "onetake-stores",
        target: &["--lib"],
        test: "d6_a_picture_from_before_a_departure",
        hang_is_caught: false,
    },
    Planted {
        name: "what-only-the-log-has-leaves-memory",
        story: "A record that is in no table yet is forgotten, and its key is new again.",
        edits: &[Edit {
            file: "crates/stores/src/embedded/front.rs",
            find: "!self.writing && self.fresh.is_none() && ",
            replace: "!self.writing && ",
        }],
        package: "onetake-stores",
        target: &["--lib"],
        test: "d6_what_the_tables_do_not_have_stays",
        hang_is_caught: false,
    },
    Planted {
        name: "the-log-is-used-again-too-early",
        story: "A file of the log is written over before what it holds is in the tables.",
        edits: &[Edit {
            file: "crates/stores/src/embedded/takeover.rs",
            find: concat!(
                "                    take_over(shared)?;\n",
                "                    give_back(shared, &mut mark, filled)?;\n",
            ),
            replace: "                    give_back(shared, &mut mark, filled)?;\n",
        }],
        package: "onetake-stores",
        target: &["--test", "embedded_faults"],
        test: "k12_w12_x8_what_was_answered_survives",
        hang_is_caught: false,
    },
    Planted {
        name: "a-damaged-log-is-cut-off",
        story: "One bad byte in the middle of the log makes every later answer disappear.",
        edits: &[Edit {
            file: "crates/stores/src/embedded/log/read.rs",
            find: "later(&bytes, at, next, &self.mark.id)",
            replace: "later(&bytes, bytes.len(), next, &self.mark.id)",
        }],
        package: "onetake-stores",
        target: &["--test", "embedded_faults"],
        test: "c8_damage_in_the_middle_of_the_log",
        hang_is_caught: false,
    },
    Planted {
        name: "a-failed-sync-is-forgotten",
        story: "A disk reports an error once, and the store goes on as if nothing had happened.",
        edits: &[Edit {
            file: "crates/stores/src/embedded/log.rs",
            find: "        self.current.sync()?;\n",
            replace: "        drop(self.current.sync());\n",
        }],
        package: "onetake-stores",
        target: &["--test", "embedded_faults"],
        test: "w12_a_failed_sync_answers_unknown",
        hang_is_caught: false,
    },
    Planted {
        name: "answered-before-it-is-written",
        story: "A caller has its receipt, the machine goes down, and the payment is unknown.",
        edits: &[Edit {
            file: "crates/stores/src/embedded/writer.rs",
            find: "        let written = if is_empty",
            replace: concat!(
                "        tell(std::mem::take(&mut told), shared.clock.now());\n",
                // A disk that is slow enough for the caller to go on.
                "        std::thread::sleep(Duration::from_millis(2));\n",
                "        let written = if is_empty",
            ),
        }],
        package: "onetake-stores",
        target: &["--test", "killed"],
        test: "a_process_that_is_killed_at_any_moment",
        hang_is_caught: false,
    },
    Planted {
        name: "a-crash-locks-out",
        story: "A service is killed during its first start and never starts again.",
        edits: &[Edit {
            file: "crates/stores/src/embedded/folder.rs",
            find: "    let new = path.with_extension(\"new\");\n",
            replace: "    let new = path.to_path_buf();\n",
        }],
        package: "onetake-stores",
        target: &["--test", "crash_points"],
        test: "no_point_at_which_the_process_can_end",
        hang_is_caught: false,
    },
    Planted {
        name: "time-goes-back",
        story: "A process that stood still while noting the time brings expired results back.",
        edits: &[Edit {
            file: "crates/stores/src/embedded/time.rs",
            find: concat!(
                "        let Reading { up_ms, machine, .. } = self.machine.read();\n",
                "        LastSeen { store: self.now(), up_ms, machine }\n",
            ),
            replace: concat!(
                "        let store = self.now();\n",
                "        let Reading { up_ms, machine, .. } = self.machine.read();\n",
                "        LastSeen { store, up_ms, machine }\n",
            ),
        }],
        package: "onetake-stores",
        target: &["--lib"],
        test: "d11_time_does_not_go_back",
        hang_is_caught: false,
    },
];
