//! The same inside a transaction of sqlx: one effect, free after a rollback, refusals that leave
//! the transaction usable, and nothing left on the connection.

use std::sync::Arc;
use std::time::Duration;

use onetake_activity::Failure;
use onetake_core::{Asked, OnInFlight, Policy};
use onetake_stores::inside::{Ending, InsideError, Source, Take};
use sqlx::{Connection as _, PgConnection, Postgres, Transaction, query, query_scalar};

use crate::place::{Place, Told, key, refusing};

async fn connect(place: &Place) -> PgConnection {
    PgConnection::connect(&place.url).await.unwrap()
}

async fn count_up(
    place: &Place,
    tx: &mut Transaction<'_, Postgres>,
    name: &str,
) -> Result<u64, Failure> {
    let insert = format!("INSERT INTO {}.effects (key) VALUES ($1)", place.schema);
    query(&insert).persistent(false).bind(name).execute(&mut **tx).await?;
    let count = format!("SELECT count(*) FROM {}.effects WHERE key = $1", place.schema);
    let count = query_scalar::<_, i64>(&count).persistent(false).bind(name);
    Ok(u64::try_from(count.fetch_one(&mut **tx).await?)?)
}

async fn once_asking(
    place: &Place,
    tx: &mut Transaction<'_, Postgres>,
    name: &str,
    asked: &'static str,
) -> Told {
    let effect = async |tx: &mut Transaction<'_, Postgres>| count_up(place, tx, name).await;
    place.inside.execute_in(tx, &place.scope, &key(name), Asked::raw(asked), effect).await
}

async fn once(place: &Place, tx: &mut Transaction<'_, Postgres>, name: &str) -> Told {
    once_asking(place, tx, name, "the same").await
}

/// Counts up once for `name`, in a transaction and on a connection of its own.
pub(crate) async fn once_anew(place: &Place, name: &str) -> Take<u64> {
    let mut connection = connect(place).await;
    let mut tx = connection.begin().await.unwrap();
    let take = once(place, &mut tx, name).await.unwrap();
    tx.commit().await.unwrap();
    take
}

/// X7, W9: many transactions of sqlx with one key have one effect.
#[tokio::test(flavor = "multi_thread")]
async fn x7_w9_sqlx_fifty_transactions_with_one_key_have_one_effect() {
    let wait = OnInFlight::Wait(Duration::from_secs(600));
    let policy = Policy::builder().on_in_flight(wait).build().unwrap();
    let place = Arc::new(Place::with(policy).await);
    let tasks = (0..50).map(|_| {
        let place = Arc::clone(&place);
        tokio::spawn(async move { once_anew(&place, "k").await })
    });
    let (mut executed, tasks): (_, Vec<_>) = (0, tasks.collect());
    for task in tasks {
        let take = task.await.unwrap();
        assert_eq!(take.value, 1);
        executed += u32::from(take.source == Source::Executed);
    }
    assert_eq!((executed, place.effects("k").await), (1, 1));
}

/// X7: a rollback frees the key, a commit is replayed, with either driver.
#[tokio::test]
async fn x7_sqlx_a_rollback_frees_and_a_commit_is_replayed_by_either_driver() {
    let place = Place::with(refusing()).await;
    let mut connection = connect(&place).await;
    let mut tx = connection.begin().await.unwrap();
    assert_eq!(once(&place, &mut tx, "k").await.unwrap().source, Source::Executed);
    tx.rollback().await.unwrap();
    assert_eq!(place.effects("k").await, 0);
    for source in [Source::Executed, Source::Replayed] {
        let mut tx = connection.begin().await.unwrap();
        let take = once(&place, &mut tx, "k").await.unwrap();
        assert_eq!((take.value, take.source), (1, source));
        tx.commit().await.unwrap();
    }
    let mut client = place.connect().await;
    let mut tx = client.transaction().await.unwrap();
    assert!(place.once(&mut tx, "k").await.unwrap().is_repeat());
    place.once(&mut tx, "by-the-other").await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    assert!(once(&place, &mut tx, "by-the-other").await.unwrap().is_repeat());
}

/// X7, K2, W9: refusals leave the transaction usable, and its settings as they were.
#[tokio::test]
async fn x7_k2_w9_sqlx_refusals_leave_the_transaction_usable() {
    for on_in_flight in [OnInFlight::Refuse, OnInFlight::Wait(Duration::from_millis(20))] {
        let policy = Policy::builder().on_in_flight(on_in_flight).build().unwrap();
        let place = Place::with(policy).await;
        let (mut one, mut other) = (connect(&place).await, connect(&place).await);
        let mut first = one.begin().await.unwrap();
        once(&place, &mut first, "done").await.unwrap();
        first.commit().await.unwrap();
        let mut first = one.begin().await.unwrap();
        once(&place, &mut first, "busy").await.unwrap();
        let mut tx = other.begin().await.unwrap();
        query("SET LOCAL lock_timeout = '1234ms'").execute(&mut *tx).await.unwrap();
        let refused = once(&place, &mut tx, "busy").await.unwrap_err();
        assert!(matches!(refused, InsideError::ClaimedByAnother { .. }), "{refused:?}");
        let refused = once_asking(&place, &mut tx, "done", "something else").await.unwrap_err();
        assert!(matches!(refused, InsideError::Mismatch), "{refused:?}");
        let limit: String = query_scalar("SHOW lock_timeout").fetch_one(&mut *tx).await.unwrap();
        assert_eq!(limit, "1234ms");
        once(&place, &mut tx, "another").await.unwrap();
        tx.commit().await.unwrap();
        first.rollback().await.unwrap();
        let effects = (place.effects("busy").await, place.effects("another").await);
        assert_eq!((effects, place.effects("done").await), ((0, 1), 1));
    }
}

/// X7, W14: failures leave nothing, refusals are remembered, errors of the database are seen.
#[tokio::test]
async fn x7_w14_sqlx_failures_leave_nothing_and_refusals_are_remembered() {
    let place = Place::new().await;
    let mut connection = connect(&place).await;
    let mut tx = connection.begin().await.unwrap();
    for (name, is_refusal, repeat) in
        [("free", false, false), ("free", false, false), ("no", true, false), ("no", true, true)]
    {
        let effect = async |tx: &mut Transaction<'_, Postgres>| {
            count_up(&place, tx, name).await.unwrap();
            query("SELECT 1 / 0").execute(&mut **tx).await.unwrap_err();
            let failed: Result<u64, _> = Err(Failure::new("not today"));
            Ending::refusing(failed, |_| is_refusal)
        };
        let asked = Asked::raw("the same");
        let told = place.inside.execute_in(&mut tx, &place.scope, &key(name), asked, effect).await;
        let Err(InsideError::Failed { failure, repeat: told }) = told else { panic!("{told:?}") };
        assert_eq!((failure.message.as_str(), told), ("not today", repeat), "{name}");
    }
    tx.commit().await.unwrap();
    assert_eq!((place.effects("free").await, place.effects("no").await), (0, 0));
}

/// X7: a transaction that cannot see the record is told to begin again.
#[tokio::test]
async fn x7_sqlx_a_serialization_failure_is_given_to_the_caller_as_such() {
    let place = Place::new().await;
    let (mut one, mut other) = (connect(&place).await, connect(&place).await);
    let mut late = other.begin().await.unwrap();
    query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").execute(&mut *late).await.unwrap();
    let look = format!("SELECT count(*) FROM {}.slots", place.schema);
    query(&look).execute(&mut *late).await.unwrap();
    let mut first = one.begin().await.unwrap();
    once(&place, &mut first, "k").await.unwrap();
    first.commit().await.unwrap();
    let clash = once(&place, &mut late, "k").await.unwrap_err();
    assert!(clash.is_clash(), "{clash:?}");
    late.rollback().await.unwrap();
    let mut again = other.begin().await.unwrap();
    assert!(once(&place, &mut again, "k").await.unwrap().is_repeat());
    drop(again);
    assert_eq!(place.effects("k").await, 1);
}

/// X7: a call that is dropped in the middle has written nothing.
#[tokio::test]
async fn x7_sqlx_a_call_that_is_dropped_in_the_middle_leaves_nothing() {
    let place = Place::with(refusing()).await;
    let mut connection = connect(&place).await;
    let mut tx = connection.begin().await.unwrap();
    let (written, is_written) = tokio::sync::oneshot::channel();
    let effect = async |tx: &mut Transaction<'_, Postgres>| {
        count_up(&place, tx, "k").await.unwrap();
        written.send(()).unwrap();
        std::future::pending::<Result<u64, Failure>>().await
    };
    let (name, asked) = (key("k"), Asked::raw("the same"));
    tokio::select! {
        _ = place.inside.execute_in(&mut tx, &place.scope, &name, asked, effect) => {
            panic!("it never ends")
        }
        heard = is_written => heard.unwrap(),
    }
    once(&place, &mut tx, "another").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((place.effects("k").await, place.effects("another").await), (0, 1));
}

/// X7: nothing stays on the connection that a pooler would hand to somebody else.
#[tokio::test]
async fn x7_sqlx_no_statement_is_left_on_the_connection() {
    let place = Place::new().await;
    let mut connection = connect(&place).await;
    for _ in 0..2 {
        let mut tx = connection.begin().await.unwrap();
        once(&place, &mut tx, "k").await.unwrap();
        tx.commit().await.unwrap();
    }
    let left = query_scalar::<_, i64>("SELECT count(*) FROM pg_prepared_statements");
    assert_eq!(left.persistent(false).fetch_one(&mut connection).await.unwrap(), 0);
}
