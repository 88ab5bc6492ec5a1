//! The other doors on the same tables: each replays what the other did, and neither does it twice.

use std::sync::Arc;
use std::time::Duration;

use onetake_activity::{Ending, ExecuteError, Executor, Failure, Source as Told};
use onetake_core::{Asked, Cause, OnUnknown, Policy};
use onetake_engine::Engine;
use onetake_stores::Postgres;
use onetake_stores::inside::{InsideError, Source};
use tokio::sync::oneshot;
use tokio_postgres::Transaction;

use crate::place::{Place, key, pid, until_somebody_waits};

fn outside(place: &Place) -> Executor<Arc<Postgres>> {
    Executor::named(Engine::new(Arc::clone(&place.store)), "count").unwrap()
}

fn asked() -> Asked {
    Asked::raw("the same")
}

/// X7, X12: an executor on the same store replays what was done inside a transaction.
#[tokio::test]
async fn x7_x12_a_door_outside_replays_what_was_done_inside() {
    let place = Place::new().await;
    let mut client = place.connect().await;
    let mut tx = client.transaction().await.unwrap();
    assert_eq!(place.once(&mut tx, "k").await.unwrap().value, 1);
    tx.commit().await.unwrap();
    let never = |_| async { Ok::<u64, Failure>(2) };
    let take = outside(&place).execute(&place.scope, &key("k"), asked(), never).await.unwrap();
    assert_eq!((take.value, take.source), (1, Told::Replayed));
    let other = Asked::raw("something else");
    let refused = outside(&place).execute(&place.scope, &key("k"), other, never).await;
    assert_eq!(refused, Err(ExecuteError::Mismatch));
}

/// X7, X12: a transaction replays what an executor did, its failures too.
#[tokio::test]
async fn x7_x12_a_transaction_replays_what_was_done_outside() {
    let place = Place::new().await;
    let keeping = outside(&place).with_policy(Policy::activity().build().unwrap());
    let seven = |_| async { Ok::<u64, Failure>(7) };
    keeping.execute(&place.scope, &key("k"), asked(), seven).await.unwrap();
    let no = |_| async { Err::<u64, _>(Failure::new("declined")) };
    keeping.execute(&place.scope, &key("no"), asked(), no).await.unwrap_err();
    let mut client = place.connect().await;
    let mut tx = client.transaction().await.unwrap();
    let take = place.once(&mut tx, "k").await.unwrap();
    assert_eq!((take.value, take.source), (7, Source::Replayed));
    let failed = place.once(&mut tx, "no").await;
    let Err(InsideError::Failed { failure, repeat: true }) = failed else { panic!("{failed:?}") };
    assert_eq!(failure.message, "declined");
    tx.commit().await.unwrap();
    assert_eq!(place.effects("k").await, 0);
}

/// X7, X1: the living claim of a door outside is in flight, by its real lease.
#[tokio::test]
async fn x7_x1_a_living_claim_outside_is_in_flight_and_the_transaction_goes_on() {
    let place = Place::new().await;
    let (begun, has_begun) = oneshot::channel();
    let (end, ends) = oneshot::channel::<u64>();
    let execute = move |_| async move {
        begun.send(()).unwrap();
        Ok::<u64, Failure>(ends.await.unwrap())
    };
    let (executor, scope) = (outside(&place), place.scope.clone());
    let execution = tokio::spawn(async move {
        executor.execute(&scope, &key("k"), asked(), execute).await.unwrap()
    });
    has_begun.await.unwrap();
    let mut client = place.connect().await;
    let mut tx = client.transaction().await.unwrap();
    let refused = place.once(&mut tx, "k").await.unwrap_err();
    let left = refused.retry_after().unwrap();
    assert!(left > Duration::ZERO && left <= Policy::default().lease(), "{left:?}");
    let other = place.once_asking(&mut tx, "k", "something else").await.unwrap_err();
    assert!(matches!(other, InsideError::Mismatch), "{other:?}");
    end.send(9).unwrap();
    execution.await.unwrap();
    assert_eq!(place.once(&mut tx, "k").await.unwrap().value, 9, "the same transaction sees it");
    tx.commit().await.unwrap();
    assert_eq!(place.effects("k").await, 0);
}

/// X7, X3: what a door outside left unknown is held, whatever the policy says: another try would
/// not be exactly once.
#[tokio::test]
async fn x7_x3_an_unknown_outcome_is_held_inside_a_transaction() {
    let retry = Policy::builder().on_unknown(OnUnknown::Retry).build().unwrap();
    let place = Place::with(retry).await;
    assert_eq!(place.inside.policy().on_unknown(), OnUnknown::Hold);
    let lost = |_| async { Ending::<u64, Failure>::Unknown };
    outside(&place).execute(&place.scope, &key("k"), asked(), lost).await.unwrap_err();
    let mut client = place.connect().await;
    let mut tx = client.transaction().await.unwrap();
    let held = place.once(&mut tx, "k").await.unwrap_err();
    assert!(matches!(held, InsideError::Unknown { cause: Cause::Reported, .. }), "{held:?}");
    assert_eq!(held.code().unwrap().as_str(), "outcome_unknown");
    tx.commit().await.unwrap();
    assert_eq!(place.effects("k").await, 0);
}

/// X7: a door outside that comes in the middle of an effect is not held up; the effect is undone,
/// and its caller hears what the other came to.
#[tokio::test]
async fn x7_a_door_outside_that_was_faster_undoes_the_effect() {
    let place = Place::new().await;
    let executor = outside(&place);
    let mut client = place.connect().await;
    let mut tx = client.transaction().await.unwrap();
    let effect = async |tx: &mut Transaction<'_>| {
        let value = place.count_up(tx, "k").await;
        let faster = |_| async { Ok::<u64, Failure>(99) };
        executor.execute(&place.scope, &key("k"), asked(), faster).await.unwrap();
        value
    };
    let taken = place.inside.execute_in(&mut tx, &place.scope, &key("k"), asked(), effect).await;
    let take = taken.unwrap();
    assert_eq!((take.value, take.source), (99, Source::Replayed));
    tx.commit().await.unwrap();
    assert_eq!(place.effects("k").await, 0, "one execution, and it was the other one");
}

/// X7: between the record and the commit a door outside waits, and then replays.
#[tokio::test]
async fn x7_a_door_outside_waits_for_the_commit_and_replays() {
    let place = Place::new().await;
    let (mut client, watcher) = (place.connect().await, place.connect().await);
    let mut tx = client.transaction().await.unwrap();
    place.once(&mut tx, "k").await.unwrap();
    let (executor, name, holder) = (outside(&place), key("k"), pid(&tx).await);
    let never = |_| async { Ok::<u64, Failure>(2) };
    let commit = async {
        until_somebody_waits(&watcher, holder).await;
        tx.commit().await.unwrap();
    };
    let (taken, ()) = tokio::join!(executor.execute(&place.scope, &name, asked(), never), commit);
    let take = taken.unwrap();
    assert_eq!((take.value, take.source), (1, Told::Replayed));
    assert_eq!(place.effects("k").await, 1);
}
