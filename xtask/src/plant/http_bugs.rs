//! The bugs that we plant into the HTTP door, and into the gateway as the binary wires it.
//!
//! Data only. Every target builds with the same features, so that the door is built once for each
//! bug and nothing below it again.

use super::{Edit, Planted};

const FEATURES: &str = "axum,gateway";
const LIB: &[&str] = &["--features", FEATURES, "--lib"];
const LAYER: &[&str] = &["--features", FEATURES, "--test", "layer"];
const CARRIED: &[&str] = &["--features", FEATURES, "--test", "carried"];
const GATEWAY: &[&str] = &["--features", FEATURES, "--test", "gateway"];
const IDENTITY: &[&str] = &["--features", FEATURES, "--test", "identity"];
const LINES: &[&str] = &["--features", FEATURES, "--test", "lines"];
const RULES: &[&str] = &["--features", FEATURES, "--test", "rules"];

pub(super) const HTTP_BUGS: &[Planted] = &[
    Planted {
        name: "two-keys-are-one",
        story: concat!(
            "Of a request with two keys the first is believed, and a proxy in front ",
            "believes the second.",
        ),
        edits: &[Edit {
            file: "crates/http/src/ask.rs",
            find: "    if lines.next().is_some() {\n",
            replace: "    if false {\n",
        }],
        package: "onetake-http",
        target: LIB,
        test: "x6_bare_and_quoted_keys_are_one_key",
        hang_is_caught: false,
    },
    Planted {
        name: "path-not-asked",
        story: "A key that was used for one order answers for another under the same route.",
        edits: &[Edit {
            file: "crates/http/src/settings.rs",
            find: "Some(PATH), self.query",
            replace: "None, self.query",
        }],
        package: "onetake-http",
        target: LAYER,
        test: "c7_the_same_key_on_two_routes_is_two_operations",
        hang_is_caught: false,
    },
    Planted {
        name: "query-not-asked",
        story: "A request with another query hears the answer of the first.",
        edits: &[Edit {
            file: "crates/http/src/settings.rs",
            find: "            query: true,\n",
            replace: "            query: false,\n",
        }],
        package: "onetake-http",
        target: LIB,
        test: "d5_k2_json_counts_by_its_meaning_and_so_do_path_and_query",
        hang_is_caught: false,
    },
    Planted {
        name: "another-spelling-is-another-path",
        story: "A retry whose client spells `~` as `%7E` is taken for another request.",
        edits: &[Edit {
            file: "crates/http/src/gateway.rs",
            find: "            None => Some(path.as_str().to_owned()),\n",
            replace: "            None => Some(request.uri().path().to_owned()),\n",
        }],
        package: "onetake-http",
        target: GATEWAY,
        test: "strange_targets_get_clear_answers",
        hang_is_caught: false,
    },
    Planted {
        name: "in-flight-before-mismatch",
        story: "A client that reuses a key by mistake is told to wait, not that it is mistaken.",
        edits: &[Edit {
            file: "crates/http/src/dialect.rs",
            find: "on_live_mismatch: OnLiveMismatch::Mismatch,",
            replace: "on_live_mismatch: OnLiveMismatch::InFlight,",
        }],
        package: "onetake-http",
        target: LAYER,
        test: "w9_d7_w20_in_flight_is_said_in_every_dialect",
        hang_is_caught: false,
    },
    Planted {
        name: "cookie-replayed",
        story: "Whoever retries is given the session of the first caller.",
        edits: &[Edit {
            file: "crates/http/src/execute.rs",
            find: "    header::SET_COOKIE,\n",
            replace: "    header::COOKIE,\n",
        }],
        package: "onetake-http",
        target: LIB,
        test: "w3_cookies_credentials_and_hops_are_never_kept",
        hang_is_caught: false,
    },
    Planted {
        name: "second-connection-line-unread",
        story: "A header that was meant for one connection goes on to the backend.",
        edits: &[Edit {
            file: "crates/http/src/hops.rs",
            find: "headers.get_all(name).into_iter()",
            replace: "headers.get(name).into_iter()",
        }],
        package: "onetake-http",
        target: LIB,
        test: "what_belongs_to_one_connection_stays_on_it",
        hang_is_caught: false,
    },
    Planted {
        name: "cut-response-kept",
        story: "A large response is replayed without its end, as if it were whole.",
        edits: &[Edit {
            file: "crates/http/src/read.rs",
            find: "                return Poll::Ready(Read::TooLarge);\n",
            replace: "                return Poll::Ready(Read::Whole);\n",
        }],
        package: "onetake-http",
        target: LIB,
        test: "a_response_is_kept_whole_or_not_at_all",
        hang_is_caught: false,
    },
    Planted {
        name: "small-requests-take-no-room",
        story: "Many requests at once, each of them small, take all memory.",
        edits: &[Edit {
            file: "crates/http/src/walk.rs",
            find: "door.room.share_of(ask.address.tenant(), body.len())",
            replace: "door.room.share_of(ask.address.tenant(), 0)",
        }],
        package: "onetake-http",
        target: LAYER,
        test: "x15_requests_have_room_together_and_not_only_each",
        hang_is_caught: false,
    },
    Planted {
        name: "half-a-body-takes-no-room",
        story: "Senders who stop in the middle of their requests take all memory.",
        edits: &[Edit {
            file: "crates/http/src/read.rs",
            find: "if !has_room(self.len()) {\n            return Read::NoRoom;",
            replace: "if false {\n            return Read::NoRoom;",
        }],
        package: "onetake-http",
        target: LAYER,
        test: "x15_a_body_that_is_waited_for_has_room_as_it_comes",
        hang_is_caught: false,
    },
    Planted {
        name: "own-504-kept",
        story: "A payment that timed out is a 504 for a day, whatever became of it.",
        edits: &[Edit {
            file: "crates/http/src/execute.rs",
            find: concat!(
                "            at.lay(ours(response));\n",
                "            Report::Unknown(Cause::Reported)\n",
            ),
            replace: concat!(
                "            let (status, headers) = (response.status(), response.headers());\n",
                "            let kept = outcome_of(status, headers, response.body());\n",
                "            at.lay(ours(response));\n",
                "            Report::Finished(kept)\n",
            ),
        }],
        package: "onetake-http",
        target: GATEWAY,
        test: "x3_an_upstream_that_is_too_slow_is_unknown",
        hang_is_caught: false,
    },
    Planted {
        name: "refused-connection-unknown",
        story: concat!(
            "A backend that is restarted leaves keys behind that somebody must resolve ",
            "by hand.",
        ),
        edits: &[Edit {
            file: "crates/http/src/gateway/upstream/lines.rs",
            find: "dialled.map_err(|error| SendError::NotSent { why: error.0 })?",
            replace: "dialled.map_err(|_| SendError::Unknown { why: super::SentCause::Failed })?",
        }],
        package: "onetake-http",
        target: GATEWAY,
        test: "x3_a_refused_connection_frees_the_key",
        hang_is_caught: false,
    },
    Planted {
        name: "closed-after-sending-not-sent",
        story: "A backend that charges and then crashes is charged again by the retry.",
        edits: &[Edit {
            file: "crates/http/src/gateway/upstream/lines.rs",
            find: "            if waiting.is_none() {\n",
            replace: concat!(
                "            let is_cut = error.error().is_incomplete_message();\n",
                "            if waiting.is_none() && !is_cut {\n",
            ),
        }],
        package: "onetake-http",
        target: GATEWAY,
        test: "x3_a_broken_answer_is_unknown_and_held",
        hang_is_caught: false,
    },
    Planted {
        name: "identity-header-passed-on",
        story: "A caller is somebody else in `x_user`, which the backend reads as `x-user`.",
        edits: &[Edit {
            file: "crates/http/src/gateway/forward.rs",
            find: "            || self.identity.iter().any(is_like)\n",
            replace: "            || self.identity.iter().any(|known| known == name)\n",
        }],
        package: "onetake-http",
        target: LIB,
        test: "a_caller_cannot_speak_in_our_name_or_claim_an_identity",
        hang_is_caught: false,
    },
    Planted {
        name: "one-scope-for-all",
        story: "One tenant hears the answer of another.",
        edits: &[Edit {
            file: "crates/http/src/gateway/proxy.rs",
            find: "        Some(self.keys_of())\n",
            replace: "        Scope::tenant_named(\"gateway\").ok()\n",
        }],
        package: "onetake-http",
        target: GATEWAY,
        test: "w10_tenants_never_meet_and_cannot_be_pretended_to",
        hang_is_caught: false,
    },
    Planted {
        name: "subjects-share-keys",
        story: "One user of a tenant hears the answer of another.",
        edits: &[Edit {
            file: "crates/http/src/identity.rs",
            find: "Some(principal) => Scope::of(self.tenant.clone(), principal.clone()),",
            replace: "Some(_) => Scope::tenant_wide(self.tenant.clone()),",
        }],
        package: "onetake-http",
        target: IDENTITY,
        test: "c7_d9_no_two_tenants_and_no_two_subjects_ever_share_a_scope",
        hang_is_caught: false,
    },
    Planted {
        name: "token-judged-once",
        story: "A token that has expired goes on being good for whoever used it before.",
        edits: &[Edit {
            file: "crates/http/src/identity/jwt.rs",
            find: "            Some(verified) => verified,\n",
            replace: "            Some(verified) => return Ok(verified.identity),\n",
        }],
        package: "onetake-http",
        target: RULES,
        test: "w10_a_caller_is_verified_again_before_a_replay",
        hang_is_caught: false,
    },
    Planted {
        name: "revoked-key-accepted",
        story: "A key that was revoked goes on opening until the gateway is restarted.",
        edits: &[Edit {
            file: "crates/http/src/identity/api_keys.rs",
            find: "        *self.0.book.write().unwrap_or_else(PoisonError::into_inner) = book;\n",
            replace: "        drop(book);\n",
        }],
        package: "onetake-http",
        target: RULES,
        test: "w10_a_caller_is_verified_again_before_a_replay",
        hang_is_caught: false,
    },
    Planted {
        name: "trusted-from-anybody",
        story: "Whoever reaches the gateway may say who it is.",
        edits: &[Edit {
            file: "crates/http/src/identity/trusted.rs",
            find: "if !self.networks.iter().any(|network| network.contains(&peer)) {",
            replace: "if self.networks.is_empty() {",
        }],
        package: "onetake-http",
        target: IDENTITY,
        test: "what_a_proxy_says_counts_only_from_a_trusted_peer",
        hang_is_caught: false,
    },
    Planted {
        name: "observed-route-refuses",
        story: "A route that should only be watched answers by itself.",
        edits: &[Edit {
            file: "crates/http/src/spare.rs",
            find: "Mode::Observe => !may_begin,",
            replace: "Mode::Observe => is_down && !may_begin,",
        }],
        package: "onetake-http",
        target: LAYER,
        test: "an_observed_route_only_reports",
        hang_is_caught: false,
    },
    Planted {
        name: "duplicates-count-as-new",
        story: "A tenant that retries a lot is turned away while its first request is under way.",
        edits: &[Edit {
            file: "crates/http/src/idempotency.rs",
            find: ".is_none_or(|found| matches!(found.value.standing(found.now), Standing::Free)),",
            replace: ".is_none_or(|_| true),",
        }],
        package: "onetake-http",
        target: RULES,
        test: "x15_a_duplicate_in_flight_is_no_new_key",
        hang_is_caught: false,
    },
    Planted {
        name: "shortest-gateway-wants-a-key",
        story: "Whoever puts the gateway in front of an API breaks every client that has no keys.",
        edits: &[Edit {
            file: "crates/cli/src/gateway.rs",
            find: ".keyless(Keyless::By(OnNoKey::Pass))",
            replace: ".keyless(Keyless::By(OnNoKey::Refuse))",
        }],
        package: "onetake-cli",
        target: &["--test", "gateway"],
        test: "k12_w3_the_shortest_gateway_remembers_across_a_restart",
        hang_is_caught: false,
    },
    Planted {
        name: "retry-configured-and-held",
        story: "A route that may be tried again after a doubt waits for an operator all the same.",
        edits: &[Edit {
            file: "crates/cli/src/config/route.rs",
            find: "Unknown::Retry => OnUnknown::Retry,",
            replace: "Unknown::Retry => OnUnknown::Hold,",
        }],
        package: "onetake-cli",
        target: &["--bin", "onetake"],
        test: "commands::demo::tests::a_demo_whose_promises_held_succeeds",
        hang_is_caught: false,
    },
    Planted {
        name: "large-answer-ends-unrecorded",
        story: "Whoever has a large answer whole takes its order for recorded, and it is not.",
        edits: &[Edit {
            file: "crates/http/src/carry.rs",
            find: "        if !is_settled {\n",
            replace: "        if !is_settled && false {\n",
        }],
        package: "onetake-http",
        target: CARRIED,
        test: "w12_a_large_answer_without_a_record_breaks_off",
        hang_is_caught: false,
    },
    Planted {
        name: "large-answer-dies-with-its-caller",
        story: "A caller who hangs up on a large answer cancels the order that makes it.",
        edits: &[Edit {
            file: "crates/http/src/carry.rs",
            find: "            consume_budget().await;\n",
            replace: concat!(
                "            consume_budget().await;\n",
                "            if self.to.as_ref().is_none_or(Sender::is_closed) {\n",
                "                return Ok(());\n            }\n",
            ),
        }],
        package: "onetake-http",
        target: CARRIED,
        test: "x4_who_leaves_a_large_answer_cancels_nothing",
        hang_is_caught: false,
    },
    Planted {
        name: "idle-connections-are-never-closed",
        story: "A backend has a connection left for every request that it ever had at once.",
        edits: &[Edit {
            file: "crates/http/src/gateway/upstream/lines.rs",
            find: "if self.idle.fetch_add(1, Ordering::AcqRel) >= self.idle_max {",
            replace: "if self.idle.fetch_add(1, Ordering::AcqRel) >= usize::MAX {",
        }],
        package: "onetake-http",
        target: LINES,
        test: "no_more_connections_are_kept_than_may_be_idle",
        hang_is_caught: false,
    },
    Planted {
        name: "early-answer-cuts-the-request",
        story: "A backend that answers first and reads on has half a file, and the key says done.",
        edits: &[Edit {
            file: "crates/http/src/gateway/upstream/lines.rs",
            find: "                        home.go_on(line, WITHIN_MAX, place);\n",
            replace: "                        drop((line, place, WITHIN_MAX));\n",
        }],
        package: "onetake-http",
        target: LINES,
        test: "what_is_answered_early_is_still_sent_to_its_end",
        hang_is_caught: false,
    },
    Planted {
        name: "busy-upstream-claims",
        story: "While an upstream is busy, every refusal writes a claim and takes it back.",
        edits: &[Edit {
            file: "crates/http/src/gateway/proxy.rs",
            find: "upstream.is_busy(self.sharing()).then(busy)",
            replace: "upstream.is_busy(self.sharing()).then(busy).filter(|_| false)",
        }],
        package: "onetake-http",
        target: GATEWAY,
        test: "x15_a_busy_upstream_claims_nothing_and_replays_go_on",
        hang_is_caught: false,
    },
];
