//! What operators do: lists, releases, resolutions, purges, and the audit of each.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod common;

use std::time::Duration;

use common::*;
use onetake_core::{
    Actor, Ask, Cause, Code, Fence, Header, OnUnknown, Operation, Outcome, Phase, Report, Slot,
    Status, Tenant, Version,
};
use onetake_engine::operate::{
    ActName, Audit, Bookmark, Form, Kind, OperateError, Query, Row, Seen, What,
};
use onetake_engine::{
    Answer, Claim, Engine, Journal, Limits, Memory, MemoryLimits, Mint, Position, RunError, Tried,
    audit_lane,
};
use onetake_testkit::clock::TokioClock;
use onetake_testkit::faulty::{Fault, Op, Script};

const KEEP: Duration = Duration::from_secs(600);

fn ann() -> Actor {
    Actor::new("ann").unwrap()
}

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

async fn claimed(node: &Node, ask: &Ask) -> Claim {
    match node.try_claim(ask).await.unwrap() {
        Tried::Claimed(claim) => claim,
        Tried::Answered(answer) => panic!("not claimed: {answer:?}"),
    }
}

async fn settled(
    node: &Node,
    ask: &Ask,
    claim: &Claim,
    report: Report,
) -> Result<Answer, RunError> {
    node.settle_claim(&ask.address, claim.fence, &ask.policy, report).await
}

/// A node on a store with one record of every kind under `acme`, and one of `acme-2`.
async fn filled(bench: &Bench) -> Node {
    let node = bench.node();
    for (tenant, key) in [("acme", "lapsed"), ("acme", "reported"), ("acme-2", "reported")] {
        let ask = ask_of(tenant, key, "body", policy());
        let claim = claimed(&node, &ask).await;
        if key == "reported" {
            settled(&node, &ask, &claim, Report::Unknown(Cause::Reported)).await.unwrap();
        }
    }
    tokio::time::sleep(LEASE).await;
    node.run(ask("done"), at_once(value("secret-value"))).await.unwrap();
    let brief = policy().retention(Duration::from_secs(1));
    node.run(ask_with("forgotten", "body", brief), at_once(value("old"))).await.unwrap();
    let kept = || policy().failures(onetake_core::Finality::Retryable);
    node.run(ask_with("retryable", "body", kept()), at_once(failure("no"))).await.unwrap();
    node.run(ask("released"), at_once(failure("no"))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    claimed(&node, &ask("live")).await;
    node
}

async fn keys(node: &Node, query: &Query) -> Vec<String> {
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let page = node.list(query, after.as_ref(), 2).await.unwrap();
        keys.extend(page.rows.iter().map(|row| row.address.key().as_str().to_owned()));
        after = page.next;
        if after.is_none() {
            keys.sort_unstable();
            return keys;
        }
    }
}

async fn row(node: &Node, ask: &Ask) -> Row {
    node.show(ask.address.slot(), What::Summary).await.unwrap().unwrap().row
}

async fn audit(node: &Node) -> Vec<Audit> {
    let page = node.audit(Position(0), 100).await.unwrap();
    assert!(!page.more);
    page.items.into_iter().map(|entry| entry.audit).collect()
}

/// X10, X3: records are listed by what they are now; a lapsed claim is unknown, written or not.
#[tokio::test(start_paused = true)]
async fn x10_x3_the_list_is_by_what_records_are_now() {
    let bench = Bench::new();
    let node = filled(&bench).await;
    let of = |kind| Query { tenant: Some(tenant("acme")), kind: Some(kind), ..Query::default() };
    let expected: [(Kind, &[&str]); 5] = [
        (Kind::Live, &["live"]),
        (Kind::Unknown, &["lapsed", "reported"]),
        (Kind::Done, &["done"]),
        (Kind::Retryable, &["retryable"]),
        (Kind::Free, &["forgotten", "released"]),
    ];
    for (kind, keys_of_kind) in expected {
        assert_eq!(keys(&node, &of(kind)).await, keys_of_kind, "{kind}");
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    assert!("gone".parse::<Kind>().is_err());
    assert_eq!(keys(&node, &Query::default()).await.len(), 8, "of every tenant");
    let other = Query { operation: Some(Operation::new("payments").unwrap()), ..of(Kind::Live) };
    assert_eq!(keys(&node, &other).await, [""; 0]);
}

/// X10: by age, on the store's clock.
#[tokio::test(start_paused = true)]
async fn x10_the_list_is_by_age() {
    let bench = Bench::new();
    let node = filled(&bench).await;
    let all = Query { tenant: Some(tenant("acme")), ..Query::default() };
    let old = Query { older_than: Some(LEASE), ..all.clone() };
    assert_eq!(
        keys(&node, &old).await,
        ["reported"],
        "a lapsed claim is unknown from its lapse on"
    );
    let young = Query { younger_than: Some(Duration::from_millis(500)), ..all };
    assert_eq!(keys(&node, &young).await, ["live"]);
}

/// X10: a page looks at a bounded number of records, also when none of them fits.
#[tokio::test(start_paused = true)]
async fn x10_a_page_looks_at_a_bounded_number_of_records() {
    let bench = Bench::new();
    let node = bench.node();
    for n in 0..10_200 {
        node.set(&ask(&format!("k{n}")), value("v")).await.unwrap();
    }
    let live = Query { kind: Some(Kind::Live), ..Query::default() };
    let first = node.list(&live, None, 100).await.unwrap();
    assert_eq!((first.rows.len(), first.looked_at), (0, 10_000));
    let text = first.next.unwrap().to_string();
    let mark: Bookmark = text.parse().unwrap();
    let rest = node.list(&live, Some(&mark), 100).await.unwrap();
    assert_eq!((rest.looked_at, rest.next), (200, None));
    let all = node.list(&Query::default(), None, usize::MAX).await.unwrap();
    assert_eq!(all.rows.len(), 1_000, "a page has its bound, whatever is asked");
    for bad in ["", "00", "zz", &text[2..], &text[..text.len() - 1], &format!("00{text}"), "é"] {
        assert!(bad.parse::<Bookmark>().is_err(), "{bad}");
    }
}

/// X10, X11: a record is shown with everything but its content, unless that is asked for.
#[tokio::test(start_paused = true)]
async fn x10_x11_the_content_is_shown_only_when_asked_for() {
    let bench = Bench::new();
    let node = filled(&bench).await;
    let done = ask("done");
    let slot = done.address.slot();
    let shown = node.show(slot, What::Summary).await.unwrap().unwrap();
    assert_eq!(shown.outcome, None);
    let summary = shown.row.outcome.unwrap();
    assert_eq!((summary.form, summary.bytes), (Form::Value, "secret-value".len()));
    let shown = node.show(slot, What::Content).await.unwrap().unwrap();
    assert_eq!(shown.outcome.as_deref(), Some(&value("secret-value")));
    assert!(!format!("{shown:?}").contains("secret"), "not even then by accident");
    let found = Slot::from_hex(tenant("acme"), &slot.hex()).unwrap();
    assert_eq!(node.show(&found, What::Content).await.unwrap(), Some(shown));
    let forgotten = node.show(ask("forgotten").address.slot(), What::Content).await;
    let forgotten = forgotten.unwrap().unwrap();
    assert_eq!((forgotten.row.kind, forgotten.outcome), (Kind::Free, None));
    assert_eq!(node.show(ask("never").address.slot(), What::Content).await, Ok(None));
}

/// X10: a released key is free at once, with one entry in the audit; the same release said again
/// is the same release.
#[tokio::test(start_paused = true)]
async fn x10_a_release_frees_the_key_and_is_audited_once() {
    let bench = Bench::new();
    let node = filled(&bench).await;
    for key in ["lapsed", "reported", "done", "retryable", "forgotten"] {
        let ask = ask(key);
        let before = row(&node, &ask).await;
        let seen = Seen::Record(before.version);
        let acted = node.release(&ann(), ask.address.slot(), seen).await.unwrap();
        assert_eq!((acted.row.kind, acted.repeated), (Kind::Free, false), "{key}");
        let again = bench.node().release(&ann(), ask.address.slot(), seen).await.unwrap();
        assert_eq!((again.row.kind, again.repeated), (Kind::Free, true), "{key}");
        let entry = audit(&node).await.pop().unwrap();
        assert_eq!((entry.act, entry.by.as_str()), (ActName::Released, "ann"));
        assert_eq!((entry.before, entry.after), (Some(before.kind), Some(Kind::Free)), "{key}");
        assert_eq!(entry.fence, Some(before.fence.to_string()));
        assert_eq!(entry.slot, Some(ask.address.slot().hex()));
        let fresh = ask_with(key, "corrected", policy());
        let answer = node.run(fresh, at_once(value("new"))).await.unwrap();
        assert!(matches!(answer, Answer::Executed { .. }), "{key}: {answer:?}");
    }
    assert_eq!(audit(&node).await.len(), 5, "once each");
    let tombstone = row(&node, &ask("released")).await;
    let refused = node
        .release(&ann(), ask("released").address.slot(), Seen::Record(tombstone.version))
        .await
        .unwrap_err();
    assert_eq!((refused.code(), refused.there()), (Code::AlreadySettled, Some(&tombstone)));
}

/// X10: a live claim is ended only with its fence, by force, renewed or not.
#[tokio::test(start_paused = true)]
async fn x10_x2_a_live_claim_is_released_only_by_its_fence_and_its_owner_is_fenced() {
    let bench = Bench::new();
    let node = bench.node();
    let (ask, slot) = (ask("k"), ask("k").address.slot().clone());
    let claim = claimed(&node, &ask).await;
    let live = row(&node, &ask).await;
    let refused = node.release(&ann(), &slot, Seen::Record(live.version)).await.unwrap_err();
    assert_eq!(refused, OperateError::Live { fence: claim.fence, left: LEASE });
    assert_eq!(refused.code(), Code::ClaimLive);
    let other = Fence(claim.fence.0 + 1);
    let refused = node.release(&ann(), &slot, Seen::Claim(other)).await.unwrap_err();
    assert_eq!(refused.code(), Code::RecordChanged);
    assert!(audit(&node).await.is_empty(), "nothing was done so far");
    node.renew_claim(&ask.address, claim.fence, &ask.policy).await.unwrap();
    let acted = node.release(&ann(), &slot, Seen::Claim(claim.fence)).await.unwrap();
    assert_eq!(acted.row.kind, Kind::Free);
    assert!(node.release(&ann(), &slot, Seen::Claim(claim.fence)).await.unwrap().repeated);
    let entries = audit(&node).await;
    assert_eq!((entries.len(), entries[0].forced), (1, true));
    assert_eq!(entries[0].before, Some(Kind::Live));
    let late = settled(&node, &ask, &claim, Report::Finished(value("late"))).await;
    assert_eq!(late, Err(RunError::Fenced));
    let renewed = node.renew_claim(&ask.address, claim.fence, &ask.policy).await;
    assert_eq!(renewed, Err(RunError::Fenced));
}

/// X10, X2: an execution whose claim is released by force is stopped and records nothing.
#[tokio::test(start_paused = true)]
async fn x10_x2_an_execution_whose_claim_is_released_is_fenced() {
    let bench = Bench::new();
    let node = bench.node();
    let owner = tokio::spawn({
        let (node, function) = (node.clone(), Count::default().function(LEASE * 5, value("late")));
        async move { node.run(ask("k"), function).await }
    });
    settle_down().await;
    let fence = row(&node, &ask("k")).await.fence;
    node.release(&ann(), ask("k").address.slot(), Seen::Claim(fence)).await.unwrap();
    assert_eq!(owner.await.unwrap(), Err(RunError::Fenced));
    assert_eq!(row(&node, &ask("k")).await.kind, Kind::Free);
}

/// X10, X3: an unknown outcome that somebody found out answers every further attempt.
#[tokio::test(start_paused = true)]
async fn x10_x3_a_resolved_outcome_answers_every_further_attempt() {
    let bench = Bench::new();
    let node = filled(&bench).await;
    let status = Status::new(201).unwrap();
    let headers = vec![Header { name: "location".into(), value: "/orders/1".into() }];
    let response = Outcome::Response { status, headers, body: "{}".into() };
    let outcomes = [("lapsed", response), ("reported", failure("no stock"))];
    for (key, outcome) in outcomes {
        let (ask, seen) = (ask(key), row(&node, &ask(key)).await.version);
        let slot = ask.address.slot();
        let acted = node.resolve(&ann(), slot, seen, outcome.clone(), KEEP).await.unwrap();
        assert_eq!(acted.row.kind, Kind::Done);
        let again = node.resolve(&ann(), slot, seen, outcome.clone(), KEEP).await.unwrap();
        assert!(again.repeated);
        let otherwise = node.resolve(&ann(), slot, seen, value("other"), KEEP).await.unwrap_err();
        assert_eq!(otherwise.code(), Code::RecordChanged, "another outcome is another act");
        let replay = node.run(ask, never).await.unwrap();
        assert_eq!(common::outcome(&replay), Some(&outcome));
        let entry = audit(&node).await.pop().unwrap();
        assert_eq!(entry.act, ActName::Resolved);
        assert_eq!((entry.before, entry.after), (Some(Kind::Unknown), Some(Kind::Done)));
    }
    assert_eq!(audit(&node).await.len(), 2);
    tokio::time::sleep(KEEP).await;
    let fresh = node.run(ask("lapsed"), at_once(value("v"))).await.unwrap();
    assert!(matches!(fresh, Answer::Executed { .. }), "kept for its retention and no longer");
}

/// X10: only an unknown outcome can be resolved.
#[tokio::test(start_paused = true)]
async fn x10_what_is_not_unknown_is_not_resolved() {
    let bench = Bench::new();
    let node = filled(&bench).await;
    for (key, code) in [
        ("live", Code::ClaimLive),
        ("done", Code::AlreadySettled),
        ("retryable", Code::AlreadySettled),
        ("released", Code::AlreadySettled),
    ] {
        let (ask, before) = (ask(key), row(&node, &ask(key)).await);
        let slot = ask.address.slot();
        let refused = node.resolve(&ann(), slot, before.version, value("v"), KEEP).await;
        assert_eq!(refused.unwrap_err().code(), code, "{key}");
        assert_eq!(row(&node, &ask).await.version, before.version, "{key}");
    }
    let missing = ask("never");
    let resolve = |keep, outcome| {
        let (node, missing) = (node.clone(), missing.clone());
        let version = Version::of_write(1);
        async move { node.resolve(&ann(), missing.address.slot(), version, outcome, keep).await }
    };
    assert_eq!(resolve(KEEP, value("v")).await, Err(OperateError::Missing));
    let short = resolve(Duration::ZERO, value("v")).await.unwrap_err();
    assert_eq!(short.code(), Code::PolicyInvalid);
    let large = Outcome::Value(vec![0; 11 * 1024 * 1024].into());
    assert_eq!(resolve(KEEP, large).await.unwrap_err().code(), Code::TooLarge);
    assert!(audit(&node).await.is_empty());
}

/// X10: an operator who decided on an old picture changes nothing, and sees what is there.
#[tokio::test(start_paused = true)]
async fn x10_an_operator_who_decided_on_an_old_picture_changes_nothing() {
    let bench = Bench::new();
    let node = bench.node();
    let ask = ask_with("k", "body", policy().on_unknown(OnUnknown::Retry));
    let slot = ask.address.slot();
    claimed(&node, &ask).await;
    tokio::time::sleep(LEASE).await;
    let old = row(&node, &ask).await;
    assert_eq!(old.kind, Kind::Unknown);
    let successor = claimed(&node, &ask).await;
    let resolved = node.resolve(&ann(), slot, old.version, value("guess"), KEEP).await;
    let released = node.release(&ann(), slot, Seen::Record(old.version)).await;
    let forced = node.release(&ann(), slot, Seen::Claim(old.fence)).await;
    for refused in [resolved, released, forced] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::RecordChanged);
        let there = refused.there().unwrap();
        assert_eq!((there.kind, there.fence), (Kind::Live, successor.fence));
    }
    settled(&node, &ask, &successor, Report::Finished(value("true"))).await.unwrap();
    let forced = node.release(&ann(), slot, Seen::Claim(successor.fence)).await.unwrap_err();
    assert_eq!(forced.code(), Code::RecordChanged, "it was settled meanwhile");
    assert_eq!(outcome(&node.run(ask, never).await.unwrap()), Some(&value("true")));
    assert!(audit(&node).await.is_empty());
}

/// X10, X2: an owner that stalled, and wakes after an operator's verdict, cannot overrule it.
#[tokio::test(start_paused = true)]
async fn x10_x2_a_stalled_owner_that_wakes_after_a_verdict_is_fenced() {
    let bench = Bench::new();
    let node = bench.node();
    for (key, resolves) in [("resolved", true), ("released", false)] {
        let ask = ask(key);
        let claim = claimed(&node, &ask).await;
        tokio::time::sleep(LEASE).await;
        let (seen, slot) = (row(&node, &ask).await.version, ask.address.slot());
        if resolves {
            node.resolve(&ann(), slot, seen, value("verdict"), KEEP).await.unwrap();
        } else {
            node.release(&ann(), slot, Seen::Record(seen)).await.unwrap();
        }
        let late = settled(&node, &ask, &claim, Report::Finished(value("late"))).await;
        assert_eq!(late, Err(RunError::Fenced), "{key}");
    }
    assert_eq!(outcome(&node.run(ask("resolved"), never).await.unwrap()), Some(&value("verdict")));
    assert_eq!(row(&node, &ask("released")).await.kind, Kind::Free);
}

/// X10, X5: those who wait are woken by an operator's verdict, not by their deadline.
#[tokio::test(start_paused = true)]
async fn x10_x5_waiters_are_woken_by_an_operators_verdict() {
    let bench = Bench::new();
    let limits = Limits { look_every: Duration::from_secs(3_600), ..Limits::default() };
    let node = bench.node_with(&Script::default(), limits);
    let ask = ask("k");
    let claim = claimed(&node, &ask).await;
    let waiter = tokio::spawn({
        let (node, ask) = (node.clone(), ask.clone());
        async move { node.run(ask, never).await }
    });
    settle_down().await;
    assert_eq!(node.waiting(), 1);
    let began = tokio::time::Instant::now();
    node.release(&ann(), ask.address.slot(), Seen::Claim(claim.fence)).await.unwrap();
    assert_eq!(waiter.await.unwrap(), Ok(Answer::Freed), "a retry executes, a waiter does not");
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(node.waiting(), 0);
}

/// X10: a purge takes every record of one tenant, leaves live claims, and touches nobody else's.
#[tokio::test(start_paused = true)]
async fn x10_a_purge_takes_what_one_tenant_has_and_nothing_of_another() {
    let bench = Bench::new();
    let node = filled(&bench).await;
    for n in 0..600 {
        node.set(&ask(&format!("k{n}")), value("secret-value")).await.unwrap();
        node.set(&ask_of("acme-2", &format!("k{n}"), "body", policy()), value("v")).await.unwrap();
    }
    let of =
        |name, kind| Query { tenant: Some(tenant(name)), kind: Some(kind), ..Query::default() };
    let other_before = keys(&node, &of("acme-2", Kind::Done)).await;
    let purged = node.purge(&ann(), &tenant("acme"), None, None).await.unwrap();
    assert_eq!((purged.tombstones, purged.live, purged.next), (605, 1, None));
    for kind in [Kind::Done, Kind::Retryable, Kind::Unknown] {
        assert_eq!(keys(&node, &of("acme", kind)).await, [""; 0], "{kind}");
    }
    assert_eq!(keys(&node, &of("acme", Kind::Live)).await, ["live"]);
    assert_eq!(keys(&node, &of("acme-2", Kind::Done)).await, other_before);
    assert_eq!(keys(&node, &of("acme-2", Kind::Unknown)).await, ["reported"]);
    let done = bench.peek(&ask("k1")).await.unwrap();
    assert!(matches!(done.phase, Phase::Released { .. }), "without its content: {done:?}");

    let entries = audit(&node).await;
    assert_eq!(entries.iter().map(|e| e.tombstones.unwrap()).collect::<Vec<_>>(), [250, 250, 105]);
    assert_eq!(entries.iter().map(|e| e.live.unwrap()).sum::<usize>(), 1);
    let is_right = |e: &Audit| (e.act, &*e.by, &*e.tenant) == (ActName::Purged, "ann", "acme");
    assert!(entries.iter().all(is_right), "{entries:?}");

    let again = node.purge(&ann(), &tenant("acme"), None, None).await.unwrap();
    assert_eq!((again.tombstones, again.live), (0, 1), "tombstones are left to the sweeper");
    assert_eq!(audit(&node).await.len(), 3, "what changed nothing is no act");
    tokio::time::sleep(Duration::from_secs(2 * 60 * 60)).await;
    node.cleanup().await.unwrap();
    let left = keys(&node, &Query { tenant: Some(tenant("acme")), ..Query::default() }).await;
    assert_eq!(left, ["live"], "then even they are gone");
}

/// X10: one operation of a tenant is purged, and the rest stays.
#[tokio::test(start_paused = true)]
async fn x10_a_purge_of_one_operation_leaves_the_others() {
    let bench = Bench::new();
    let node = filled(&bench).await;
    let payments = Operation::new("payments").unwrap();
    let purged = node.purge(&ann(), &tenant("acme"), Some(&payments), None).await.unwrap();
    assert_eq!((purged.tombstones, purged.live), (0, 0));
    let orders = Operation::new("orders.create").unwrap();
    let purged = node.purge(&ann(), &tenant("acme"), Some(&orders), None).await.unwrap();
    assert_eq!((purged.tombstones, purged.live), (5, 1));
    assert_eq!(audit(&node).await[0].operation.as_deref(), Some("orders.create"));
}

/// X10: a purge that is cut off, or whose replies are lost, is begun again and ends the same.
#[tokio::test(start_paused = true)]
async fn x10_a_purge_that_is_cut_off_is_begun_again() {
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    for n in 0..600 {
        node.set(&ask(&format!("k{n}")), value("v")).await.unwrap();
    }
    script.plan(Op::Commit, Fault::None);
    script.plan(Op::Commit, Fault::Fail);
    let cut = node.purge(&ann(), &tenant("acme"), None, None).await.unwrap_err();
    assert_eq!(cut.code(), Code::StoreUnavailable);
    script.plan(Op::Commit, Fault::LoseReply);
    script.plan(Op::Commit, Fault::LoseCall);
    let rest = node.purge(&ann(), &tenant("acme"), None, None).await.unwrap();
    assert_eq!((rest.tombstones, rest.next), (350, None));
    let told: usize = audit(&node).await.iter().map(|entry| entry.tombstones.unwrap()).sum();
    assert_eq!(told, 600, "every record is in the audit once");
}

/// X10: a record that was claimed between a purge's look and its commit is left to its owner.
#[tokio::test(start_paused = true)]
async fn x10_x4_a_purge_leaves_what_was_claimed_meanwhile() {
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    let brief = || policy().retention(Duration::from_secs(1));
    for n in 0..5 {
        node.set(&ask_with(&format!("k{n}"), "body", brief()), value("v")).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    script.plan(Op::Commit, Fault::Delay(Duration::from_millis(100)));
    let purge = tokio::spawn({
        let node = node.clone();
        async move { node.purge(&ann(), &tenant("acme"), None, None).await }
    });
    settle_down().await;
    let claim = claimed(&node, &ask("k3")).await;
    let purged = purge.await.unwrap().unwrap();
    assert_eq!((purged.tombstones, purged.live), (4, 1));
    let report = Report::Finished(value("mine"));
    assert!(settled(&node, &ask("k3"), &claim, report).await.is_ok());
}

/// X10: an act whose reply is lost, or that arrives twice, is done and audited once.
#[tokio::test(start_paused = true)]
async fn x10_an_act_whose_reply_is_lost_is_done_once() {
    let faults = [
        Fault::LoseReply,
        Fault::LoseCall,
        Fault::Repeat(Duration::from_secs(1)),
        Fault::Hang,
        Fault::DelayReply(Duration::from_secs(30)),
    ];
    for fault in faults {
        let (bench, script) = (Bench::new(), Script::default());
        let node = bench.node_with(&script, Limits::default());
        claimed(&node, &ask("k")).await;
        tokio::time::sleep(LEASE).await;
        let (seen, slot) = (row(&node, &ask("k")).await.version, ask("k").address.slot().clone());
        script.plan(Op::Commit, fault);
        let acted = node.resolve(&ann(), &slot, seen, value("v"), KEEP).await.unwrap();
        assert_eq!(acted.row.kind, Kind::Done, "{fault:?}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(audit(&node).await.len(), 1, "{fault:?}");
    }
}

/// X10: a store that never says whether it wrote is no reason to guess; the same act again tells.
#[tokio::test(start_paused = true)]
async fn x10_an_uncertain_act_is_said_so_and_can_be_said_again() {
    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    claimed(&node, &ask("k")).await;
    tokio::time::sleep(LEASE).await;
    let (seen, slot) = (row(&node, &ask("k")).await.version, ask("k").address.slot().clone());
    for _ in 0..6 {
        script.plan(Op::Commit, Fault::LoseReply);
    }
    let unsure = node.release(&ann(), &slot, Seen::Record(seen)).await.unwrap_err();
    assert_eq!(unsure.code(), Code::ActUncertain);
    let acted = node.release(&ann(), &slot, Seen::Record(seen)).await.unwrap();
    assert!(acted.repeated);
    assert_eq!(audit(&node).await.len(), 1);
    node.stop(Duration::from_secs(1)).await;
    let stopping = node.release(&ann(), &slot, Seen::Record(seen)).await.unwrap_err();
    assert_eq!(stopping.code(), Code::Stopping);
    let stopping = node.purge(&ann(), &tenant("acme"), None, None).await.unwrap_err();
    assert_eq!(stopping.code(), Code::Stopping);
}

/// X10, X11: the audit says who did what to which record, and holds no key and no body.
#[tokio::test(start_paused = true)]
async fn x10_x11_the_audit_names_no_key_and_no_body() {
    let clock = TokioClock::new();
    let memory = Memory::with(MemoryLimits::default(), clock);
    let limits = Limits { hold_retention: Duration::from_secs(100), ..Limits::default() };
    let node = Engine::with(memory, limits, Mint::seeded(7));
    let unknown = |key: &'static str| {
        let node = node.clone();
        async move {
            let report = |_| async { Report::Unknown(Cause::Reported) };
            node.run(ask_with(key, "secret-body", policy()), report).await.unwrap();
            let slot = ask(key).address.slot().clone();
            let shown = node.show(&slot, What::Summary).await.unwrap().unwrap();
            (slot, shown.row.version)
        }
    };
    let (slot, seen) = unknown("secret-key-1").await;
    node.resolve(&ann(), &slot, seen, value("secret-value"), KEEP).await.unwrap();
    let (slot, seen) = unknown("secret-key-2").await;
    node.release(&ann(), &slot, Seen::Record(seen)).await.unwrap();
    node.purge(&ann(), &tenant("acme"), None, None).await.unwrap();
    unknown("secret-key-3").await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(node.end_forgotten_unknowns().await, Ok(1));

    let lane = node.store().read_lane(&audit_lane(), Position(0), 10).await.unwrap().value;
    let lines = lane.items.iter().map(|entry| str::from_utf8(&entry.value).unwrap());
    let text = lines.collect::<Vec<_>>().join("\n");
    assert!(!text.contains("secret"), "{text}");
    let acts = |entry: &Audit| entry.act;
    let entries = node.audit(Position(0), 10).await.unwrap().items;
    let entries: Vec<_> = entries.into_iter().map(|entry| entry.audit).collect();
    let expected = [ActName::Resolved, ActName::Released, ActName::Purged, ActName::UnknownEnded];
    assert_eq!(entries.iter().map(acts).collect::<Vec<_>>(), expected);
    assert_eq!(entries[3].by, "housekeeping");
    assert!(entries[3].unknown_since_ms.is_some());
    let resolved = format!(
        concat!(
            r#"{{"act":"resolved","by":"ann","tenant":"acme","operation":"orders.create","#,
            r#""slot":"{}","fence":"{}","attempt":1,"unknown_since_ms":{},"#,
            r#""before":"unknown","after":"done"}}"#
        ),
        ask("secret-key-1").address.slot().hex(),
        entries[0].fence.as_ref().unwrap(),
        entries[0].unknown_since_ms.unwrap(),
    );
    assert_eq!(text.lines().next(), Some(resolved.as_str()));
    let purged = concat!(
        r#"{"act":"purged","by":"ann","tenant":"acme","after":"free","#,
        r#""tombstones":1,"live":0}"#
    );
    assert_eq!(text.lines().nth(2), Some(purged));
}

/// An entry of a later release is shown as far as it is understood, never left out.
#[test]
fn an_entry_of_a_later_release_is_read_as_far_as_possible() {
    let later = r#"{"act":"tenant_moved","by":"ann","tenant":"acme","to":"eu-1"}"#;
    let audit: Audit = serde_json::from_str(later).unwrap();
    assert_eq!((audit.act, &*audit.by, &*audit.tenant), (ActName::Other, "ann", "acme"));
    let earlier = r#"{"act":"unknown_ended","tenant":"acme","operation":"o","slot":"00",
        "fence":"01","attempt":2,"unknown_since_ms":3}"#;
    let audit: Audit = serde_json::from_str(earlier).unwrap();
    assert_eq!((audit.act, audit.attempt), (ActName::UnknownEnded, Some(2)));
}
