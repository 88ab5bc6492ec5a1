//! Transactions that see one moment only: they replay what they can see, and are told to begin
//! again where they cannot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onetake_core::{Asked, OnInFlight, Policy};
use onetake_stores::inside::{InsideError, Source};
use tokio_postgres::{Client, IsolationLevel, Transaction};

use crate::place::{Place, key, pid, until_somebody_waits};

const LEVELS: [IsolationLevel; 2] = [IsolationLevel::RepeatableRead, IsolationLevel::Serializable];

async fn begin(client: &mut Client, level: IsolationLevel) -> Transaction<'_> {
    client.build_transaction().isolation_level(level).start().await.unwrap()
}

/// Fixes the moment that a transaction sees.
async fn look(place: &Place, tx: &Transaction<'_>) {
    tx.batch_execute(&format!("SELECT count(*) FROM {}.slots", place.schema)).await.unwrap();
}

/// X7: executing, replaying and refusing are the same at every level.
#[tokio::test]
async fn x7_stricter_levels_execute_replay_and_refuse_alike() {
    for level in LEVELS {
        let place = Place::new().await;
        let mut client = place.connect().await;
        for source in [Source::Executed, Source::Replayed] {
            let mut tx = begin(&mut client, level).await;
            let take = place.once(&mut tx, "k").await.unwrap();
            assert_eq!((take.value, take.source), (1, source));
            tx.commit().await.unwrap();
        }
        let mut tx = begin(&mut client, level).await;
        let refused = place.once_asking(&mut tx, "k", "something else").await.unwrap_err();
        assert!(matches!(refused, InsideError::Mismatch), "{refused:?}");
        place.once(&mut tx, "another").await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!((place.effects("k").await, place.effects("another").await), (1, 1));
    }
}

/// X7: a transaction whose moment is before the commit of its rival has no effect, and is told to
/// begin again.
#[tokio::test]
async fn x7_a_transaction_that_cannot_see_the_record_is_told_to_begin_again() {
    for level in LEVELS {
        let place = Place::new().await;
        let (mut one, mut other) = (place.connect().await, place.connect().await);
        let mut late = begin(&mut other, level).await;
        look(&place, &late).await;
        let mut first = one.transaction().await.unwrap();
        place.once(&mut first, "k").await.unwrap();
        first.commit().await.unwrap();
        let clash = place.once(&mut late, "k").await.unwrap_err();
        assert!(clash.is_clash(), "{clash:?}");
        let InsideError::Clash(said) = &clash else { panic!("{clash:?}") };
        assert_eq!(said.sqlstate(), Some("40001"));
        // Whatever the caller does now: nothing of the effect is left.
        let _ = late.commit().await;
        assert_eq!(place.effects("k").await, 1);
        let mut again = begin(&mut other, level).await;
        let take = place.once(&mut again, "k").await.unwrap();
        assert_eq!((take.value, take.source), (1, Source::Replayed));
    }
}

/// X7: who waited for a rival at such a level cannot see what it did. If it was rolled back that
/// does not matter; if not, nothing is executed in vain.
#[tokio::test]
async fn x7_a_transaction_that_waited_executes_or_begins_again_but_never_in_vain() {
    let wait = OnInFlight::Wait(Duration::from_secs(600));
    for (level, commits) in LEVELS.into_iter().flat_map(|level| [(level, true), (level, false)]) {
        let place = Place::with(Policy::builder().on_in_flight(wait).build().unwrap()).await;
        let (mut one, mut other) = (place.connect().await, place.connect().await);
        let watcher = place.connect().await;
        let mut first = one.transaction().await.unwrap();
        place.once(&mut first, "k").await.unwrap();
        let (holder, called) = (pid(&first).await, AtomicU32::new(0));
        let mut late = begin(&mut other, level).await;
        let effect = async |tx: &mut Transaction<'_>| {
            called.fetch_add(1, Ordering::SeqCst);
            place.count_up(tx, "k").await
        };
        let (name, asked) = (key("k"), Asked::raw("the same"));
        let waiting = place.inside.execute_in(&mut late, &place.scope, &name, asked, effect);
        let end = async {
            until_somebody_waits(&watcher, holder).await;
            if commits { first.commit().await } else { first.rollback().await }.unwrap();
        };
        let (waited, ()) = tokio::join!(waiting, end);
        assert_eq!(called.load(Ordering::SeqCst), u32::from(!commits));
        if commits {
            assert!(waited.unwrap_err().is_clash());
            late.rollback().await.unwrap();
        } else {
            assert_eq!(waited.unwrap().source, Source::Executed);
            late.commit().await.unwrap();
        }
        assert_eq!(place.effects("k").await, 1);
        let mut again = begin(&mut other, level).await;
        assert!(place.once(&mut again, "k").await.unwrap().is_repeat());
    }
}

/// Runs whole transactions until one commits.
async fn until_committed(place: &Place, level: IsolationLevel) -> (u64, Source) {
    let mut client = place.connect().await;
    loop {
        let mut tx = begin(&mut client, level).await;
        match place.once(&mut tx, "k").await {
            Ok(take) if tx.commit().await.is_ok() => return (take.value, take.source),
            Ok(_) => {}
            // An effect that was in somebody's way fails with an error of its own.
            Err(error) => assert!(
                error.is_clash() || matches!(error, InsideError::Failed { repeat: false, .. }),
                "{error:?}"
            ),
        }
    }
}

/// X7, W9: callers that begin again whenever they are told to have one effect between them.
#[tokio::test(flavor = "multi_thread")]
async fn x7_w9_twenty_transactions_that_begin_again_have_one_effect() {
    for level in LEVELS {
        let wait = OnInFlight::Wait(Duration::from_secs(600));
        let policy = Policy::builder().on_in_flight(wait).build().unwrap();
        let place = Arc::new(Place::with(policy).await);
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let place = Arc::clone(&place);
                tokio::spawn(async move { until_committed(&place, level).await })
            })
            .collect();
        let mut executed = 0;
        for task in tasks {
            let (value, source) = task.await.unwrap();
            assert_eq!(value, 1);
            executed += u32::from(source == Source::Executed);
        }
        assert_eq!((executed, place.effects("k").await), (1, 1));
    }
}
