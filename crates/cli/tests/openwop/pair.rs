//! Two hosts on one PostgreSQL: what one began the other can read, follow, end and go on with; and
//! whatever becomes of one of them, no node is executed by both.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::flow::{beside, order};
use crate::home::{Home, Node, pause, until};
use crate::journey::{Journey, Settle, history};
use crate::provider::{Call, Provider};
use crate::wire::Asked;

/// The lease of runs and calls in these tests.
const LEASE: &str = "1s";
/// Longer than that.
const PAST_THE_LEASE: Duration = Duration::from_millis(1_500);
/// Orders that both hosts are told of.
const ORDERS: usize = 12;

fn pair(workflows: &[Value]) -> (Home, Node, Node) {
    let home = Home::shared(LEASE, workflows);
    let (one, other) = (home.start(), home.start());
    (home, one, other)
}

/// W4, W9, W10: a run that was created at one host is there at the other: it can be read, followed
/// to its end and cancelled, and its key is known.
#[test]
fn w4_w9_w10_a_run_of_one_host_is_a_run_of_the_other() {
    let provider = Provider::start();
    let (_home, one, other) = pair(&[order("order", &provider, "bank")]);
    let mut journey = Journey::new(&one, "order", "shared-1", Settle::Complete);
    let run = journey.place();
    journey.node = &other;
    assert_eq!(journey.place(), run, "one key, one run");
    journey.until_at("gate");
    let path = format!("/v1/runs/{run}/events?streamMode=debug");
    let streamed = std::thread::scope(|scope| {
        let following = scope.spawn(|| other.ask(Asked::get(&path)));
        Journey { node: &one, ..Journey::new(&one, "order", "shared-1", Settle::Complete) }
            .follow();
        following.join().unwrap().streamed()
    });
    history(&streamed, &run);
    assert_eq!(streamed, journey.events(), "what is followed is what is read");
    journey.judge(&provider, false);

    let mut ended = Journey::new(&one, "order", "shared-2", Settle::Complete);
    let run = ended.place();
    ended.until_at("gate");
    let cancel = format!("/v1/runs/{run}/cancel");
    let heard = other.ask(Asked::post(&cancel, &json!({"reason": "enough"})).under("cancel-2"));
    assert_eq!(heard.text("status"), "cancelled");
    assert_eq!(ended.look()["status"], "cancelled", "and the first host says so");
    let again = one.ask(Asked::post(&cancel, &json!({"reason": "enough"})).under("cancel-2"));
    assert!(again.is_replay() && again.body == heard.body, "{again:?}");
}

/// Places an order at `one`, whose provider is asked and does not answer.
fn calling<'a>(one: &'a Node, provider: &Provider, workflow: &'a str) -> Journey<'a> {
    let placed = format!("{workflow}-under-way");
    let mut journey = Journey::new(one, workflow, &placed, Settle::Complete);
    provider.hold("/pay");
    journey.place();
    provider.until(1, |call: &Call| call.json()["order"] == placed.as_str());
    journey
}

/// W13, W17, X3, K10: killed while it calls, a host is replaced once its lease has passed; what may
/// have been done is held, or asked for again where the provider recognises it.
#[test]
fn w13_w17_x3_k10_another_host_goes_on_when_one_is_killed_in_a_call() {
    let provider = Provider::start();
    let workflows = [order("order", &provider, "bank"), order("charge", &provider, "stripe")];
    let (_home, one, other) = pair(&workflows);
    for (workflow, is_recognised) in [("order", false), ("charge", true)] {
        let mut journey = calling(&one, &provider, workflow);
        journey.node = &other;
        one.kill();
        provider.let_go("/pay");
        journey.follow();
        journey.judge(&provider, is_recognised);
        assert_eq!(journey.unknown.contains_key("pay"), !is_recognised, "{workflow}");
        one.restart();
    }
}

/// W13, X3, K10: a host that stood still past its lease was replaced; when it wakes it changes
/// nothing, and no call was made under two identities.
#[test]
fn w13_x3_k10_a_host_that_wakes_after_its_lease_changes_nothing() {
    let provider = Provider::start();
    let workflows = [order("order", &provider, "bank"), order("charge", &provider, "stripe")];
    let (_home, one, other) = pair(&workflows);
    for (workflow, is_recognised) in [("order", false), ("charge", true)] {
        let mut journey = calling(&one, &provider, workflow);
        one.stop();
        journey.node = &other;
        let taken = if is_recognised {
            // The other asks again, under the same identity.
            provider.until(2, |call: &Call| call.json()["order"] == journey.order.as_str()).len()
        } else {
            journey.until("what is held", |run| run["status"] == "waiting-external");
            journey.calls(&provider, "pay").len()
        };
        assert_eq!(taken, 1 + usize::from(is_recognised));
        provider.let_go("/pay");
        if is_recognised {
            journey.until_at("gate");
        }
        let before = journey.events();
        one.go_on();
        until("an answer of the one that woke", || {
            let path = format!("/v1/runs/{}", journey.run.as_deref()?);
            Some(one.ask(Asked::get(&path))).filter(|heard| heard.status == 200)
        });
        pause(PAST_THE_LEASE);
        assert_eq!(journey.events(), before, "whoever was replaced tells nothing");
        journey.follow();
        journey.judge(&provider, is_recognised);
        assert_eq!(journey.calls(&provider, "pay").len(), taken, "{workflow}");
    }
}

/// W13, K5, K10: two hosts that drive one run at the same time make its call once.
#[test]
fn w13_k5_k10_two_hosts_that_drive_one_run_execute_no_node_twice() {
    let provider = Provider::start();
    let (_home, one, other) = pair(&[beside("beside", &provider, "bank")]);
    provider.hold("/pay");
    let mut journeys: Vec<Journey<'_>> = (0..ORDERS)
        .map(|number| {
            let placed = format!("both-{number}");
            let mut journey = Journey::new(&one, "beside", &placed, Settle::Complete);
            journey.place();
            journey
        })
        .collect();
    provider.until(ORDERS, |call| call.path == "/pay");
    for journey in &mut journeys {
        // Whoever hears a word drives the run that it is for, whoever does so already.
        journey.node = &other;
        journey.until("a gate", |run| run["interrupt"]["nodeId"] == "gate");
        journey.accept();
    }
    pause(PAST_THE_LEASE);
    provider.let_go("/pay");
    for journey in &mut journeys {
        assert_eq!(journey.follow()["status"], "completed");
        assert_eq!(journey.calls(&provider, "pay").len(), 1, "{}", journey.order);
        assert!(journey.unknown.is_empty(), "{} was held", journey.order);
        history(&journey.events(), &journey.order);
    }
    let identities: BTreeSet<String> = provider.calls(|_| true).iter().map(Call::key).collect();
    assert_eq!(identities.len(), ORDERS);
}
