//! Several transactions with one key: one executes, the others wait, replay or are refused.

use std::sync::Arc;
use std::time::Duration;

use onetake_core::{OnInFlight, Policy};
use onetake_stores::inside::{InsideError, Source};

use crate::place::{Place, pid, refusing, until_somebody_waits};

fn waiting(wait: Duration) -> Policy {
    Policy::builder().on_in_flight(OnInFlight::Wait(wait)).build().unwrap()
}

async fn setting(tx: &tokio_postgres::Transaction<'_>) -> String {
    tx.query_one("SHOW lock_timeout", &[]).await.unwrap().get(0)
}

/// X7, W9: fifty transactions at once with one key have one effect, and all hear its value.
#[tokio::test(flavor = "multi_thread")]
async fn x7_w9_fifty_transactions_with_one_key_have_one_effect() {
    let place = Arc::new(Place::with(waiting(Duration::from_secs(600))).await);
    let tasks = (0..50).map(|_| {
        let place = Arc::clone(&place);
        // That it can be spawned shows that the future may move between threads.
        tokio::spawn(async move {
            let mut client = place.connect().await;
            let mut tx = client.transaction().await.unwrap();
            let take = place.once(&mut tx, "k").await.unwrap();
            tx.commit().await.unwrap();
            take
        })
    });
    let (mut executed, tasks): (_, Vec<_>) = (0, tasks.collect());
    for task in tasks {
        let take = task.await.unwrap();
        assert_eq!(take.value, 1);
        executed += u32::from(take.source == Source::Executed);
    }
    assert_eq!(executed, 1);
    assert_eq!(place.effects("k").await, 1);
}

/// X7, W9: while one transaction is open, a rival that must not wait is told so at once, and can go
/// on with its own transaction.
#[tokio::test]
async fn x7_w9_a_rival_that_must_not_wait_is_refused_and_its_transaction_goes_on() {
    let place = Place::with(refusing()).await;
    let (mut one, mut other) = (place.connect().await, place.connect().await);
    let mut first = one.transaction().await.unwrap();
    assert_eq!(place.once(&mut first, "k").await.unwrap().source, Source::Executed);
    let mut rival = other.transaction().await.unwrap();
    let refused = place.once(&mut rival, "k").await.unwrap_err();
    assert!(matches!(refused, InsideError::ClaimedByAnother { .. }), "{refused:?}");
    assert!(refused.retry_after().is_some());
    assert_eq!(place.once(&mut rival, "another").await.unwrap().value, 1);
    rival.commit().await.unwrap();
    assert_eq!((place.effects("k").await, place.effects("another").await), (0, 1));
    first.commit().await.unwrap();
    assert_eq!(place.effects("k").await, 1);
}

/// X7, X5: a rival that waits gets the value as soon as the first commits.
#[tokio::test]
async fn x7_x5_a_rival_that_waits_gets_what_the_first_committed() {
    let place = Place::with(waiting(Duration::from_secs(600))).await;
    let (mut one, mut other) = (place.connect().await, place.connect().await);
    let watcher = place.connect().await;
    let mut first = one.transaction().await.unwrap();
    assert_eq!(place.once(&mut first, "k").await.unwrap().value, 1);
    let holder = pid(&first).await;
    let rival = async {
        let mut rival = other.transaction().await.unwrap();
        rival.batch_execute("SET LOCAL lock_timeout = '1234ms'").await.unwrap();
        let take = place.once(&mut rival, "k").await.unwrap();
        assert_eq!(setting(&rival).await, "1234ms", "the caller's own limit is as it was");
        rival.commit().await.unwrap();
        take
    };
    let commit = async {
        until_somebody_waits(&watcher, holder).await;
        first.commit().await.unwrap();
    };
    let (take, ()) = tokio::join!(rival, commit);
    assert_eq!((take.value, take.source), (1, Source::Replayed));
    assert_eq!(place.effects("k").await, 1);
}

/// X7: a rival that waits executes itself when the first is rolled back.
#[tokio::test]
async fn x7_a_rival_that_waits_executes_when_the_first_is_rolled_back() {
    let place = Place::with(waiting(Duration::from_secs(600))).await;
    let (mut one, mut other) = (place.connect().await, place.connect().await);
    let watcher = place.connect().await;
    let mut first = one.transaction().await.unwrap();
    assert_eq!(place.once(&mut first, "k").await.unwrap().value, 1);
    let holder = pid(&first).await;
    let rival = async {
        let mut rival = other.transaction().await.unwrap();
        rival.batch_execute("SET LOCAL lock_timeout = '1234ms'").await.unwrap();
        let take = place.once(&mut rival, "k").await.unwrap();
        assert_eq!(setting(&rival).await, "1234ms", "the caller's own limit is as it was");
        rival.commit().await.unwrap();
        take
    };
    let roll_back = async {
        until_somebody_waits(&watcher, holder).await;
        first.rollback().await.unwrap();
    };
    let (take, ()) = tokio::join!(rival, roll_back);
    assert_eq!((take.value, take.source), (1, Source::Executed));
    assert_eq!(place.effects("k").await, 1);
}

/// X7, X5: a wait has an end, after which the rival's transaction is as it was.
#[tokio::test]
async fn x7_x5_a_wait_ends_at_its_deadline_and_leaves_the_transaction_as_it_was() {
    let place = Place::with(waiting(Duration::from_millis(20))).await;
    let (mut one, mut other) = (place.connect().await, place.connect().await);
    let mut first = one.transaction().await.unwrap();
    place.once(&mut first, "k").await.unwrap();
    let mut rival = other.transaction().await.unwrap();
    rival.batch_execute("SET LOCAL lock_timeout = '1234ms'").await.unwrap();
    let refused = place.once(&mut rival, "k").await.unwrap_err();
    assert!(matches!(refused, InsideError::ClaimedByAnother { .. }), "{refused:?}");
    assert_eq!(setting(&rival).await, "1234ms");
    assert_eq!(place.once(&mut rival, "another").await.unwrap().value, 1);
    rival.commit().await.unwrap();
    assert_eq!(place.effects("another").await, 1);
}

/// X7: a transaction that only replayed holds nobody up, however long it goes on.
#[tokio::test]
async fn x7_a_transaction_that_replayed_does_not_hold_the_key() {
    let place = Place::with(refusing()).await;
    let (mut one, mut other) = (place.connect().await, place.connect().await);
    let mut first = one.transaction().await.unwrap();
    place.once(&mut first, "k").await.unwrap();
    first.commit().await.unwrap();
    let mut long = one.transaction().await.unwrap();
    assert!(place.once(&mut long, "k").await.unwrap().is_repeat());
    let mut rival = other.transaction().await.unwrap();
    assert!(place.once(&mut rival, "k").await.unwrap().is_repeat(), "nobody has the key");
}

/// X7: one transaction may execute several operations, and hears its own results again.
#[tokio::test]
async fn x7_one_transaction_may_hold_several_operations_and_repeat_them() {
    let place = Place::new().await;
    let mut client = place.connect().await;
    let mut tx = client.transaction().await.unwrap();
    for name in ["a", "b"] {
        assert_eq!(place.once(&mut tx, name).await.unwrap().source, Source::Executed);
    }
    let again = place.once(&mut tx, "a").await.unwrap();
    assert_eq!((again.value, again.source), (1, Source::Replayed));
    tx.commit().await.unwrap();
    assert_eq!((place.effects("a").await, place.effects("b").await), (1, 1));
}

/// X7: who replays needs no key, so nobody who has it or waits for it is in the way.
#[tokio::test]
async fn x7_a_replay_needs_no_key_and_waits_for_nobody() {
    let place = Place::with(refusing()).await;
    let (mut one, mut other) = (place.connect().await, place.connect().await);
    let mut first = one.transaction().await.unwrap();
    place.once(&mut first, "k").await.unwrap();
    let number = "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
                  WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
    let number: i64 = first.query_one(number, &[]).await.unwrap().get(0);
    first.commit().await.unwrap();
    let holder = place.connect().await;
    holder.query_one("SELECT pg_advisory_lock($1)", &[&number]).await.unwrap();
    let mut rival = other.transaction().await.unwrap();
    assert!(place.once(&mut rival, "k").await.unwrap().is_repeat());
    let mismatch = place.once_asking(&mut rival, "k", "something else").await.unwrap_err();
    assert!(matches!(mismatch, InsideError::Mismatch), "{mismatch:?}");
}
