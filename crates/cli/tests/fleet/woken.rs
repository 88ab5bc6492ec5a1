//! A duplicate that arrives at another node while the first executes gets the answer of the first.

use crate::api::Api;
use crate::nodes::{Clock, Fleet, server};

const HELD: &str = "{\"held\":true}";

/// W9, X5: it waits, is woken by the settling write, and nothing is executed twice.
#[test]
fn w9_a_duplicate_at_another_node_gets_the_answer_of_the_first() {
    let api = Api::start();
    let settings = "in_flight = \"wait 10s\"";
    let fleet = Fleet::start(api.address, settings, &[Clock::Right, Clock::Right]);
    let (one, other) = (&fleet.nodes[0], &fleet.nodes[1]);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| one.post("order-1", HELD));
        assert_eq!(api.arrived.recv().unwrap(), "order-1");
        let second = scope.spawn(|| other.post("order-1", HELD));
        // Whoever waits has marked the row, and is waited for no longer than it takes.
        let marked = format!("SELECT count(*) FROM {}.slots WHERE waited", fleet.schema);
        server().wait_for(&marked, "1");
        api.go_on.send(()).unwrap();
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        assert_eq!((first.status, first.is_replay()), (201, false), "{first:#?}");
        assert_eq!((second.status, second.is_replay()), (201, true), "{second:#?}");
        assert_eq!(first.kept(), second.kept());
    });
    assert_eq!(api.effects().len(), 1);
}

/// W9: who does not wait is told when to come again, by whichever node.
#[test]
fn w9_a_duplicate_at_another_node_that_may_not_wait_is_told_so() {
    let api = Api::start();
    let fleet = Fleet::start(api.address, "in_flight = \"refuse\"", &[Clock::Right; 2]);
    let (one, other) = (&fleet.nodes[0], &fleet.nodes[1]);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| one.post("order-1", HELD));
        assert_eq!(api.arrived.recv().unwrap(), "order-1");
        let second = other.post("order-1", HELD);
        assert_eq!(second.status, 409, "{second:#?}");
        assert!(second.body.contains("in_flight") && second.header("retry-after").is_some());
        let mismatch = other.post("order-1", "{}");
        assert_eq!(mismatch.status, 422, "{mismatch:#?}");
        api.go_on.send(()).unwrap();
        assert_eq!(first.join().unwrap().status, 201);
    });
    let replay = other.post("order-1", HELD);
    assert!(replay.is_success() && replay.is_replay(), "{replay:#?}");
    assert_eq!(api.effects().len(), 1);
}
