//! How a call can end: committed, rolled back, failed, refused, dropped, or with an error.

use onetake_activity::Failure;
use onetake_core::{Asked, Policy, Scope};
use onetake_stores::inside::{Ending, Inside, InsideError, Source};
use onetake_stores::{Postgres, PostgresError, PostgresOptions};
use tokio_postgres::Transaction;

use crate::place::{Place, key, refusing};

/// X7: what was committed is given again, from another connection too, and nothing is executed.
#[tokio::test]
async fn x7_w13_a_retry_gets_the_committed_value_and_has_no_effect() {
    let place = Place::new().await;
    for source in [Source::Executed, Source::Replayed, Source::Replayed] {
        let mut client = place.connect().await;
        let mut tx = client.transaction().await.unwrap();
        let take = place.once(&mut tx, "k").await.unwrap();
        assert_eq!((take.value, take.source), (1, source));
        tx.commit().await.unwrap();
    }
    assert_eq!(place.effects("k").await, 1);
}

/// X7: a rollback leaves neither effect nor record, and so does a transaction that is dropped.
#[tokio::test]
async fn x7_a_rollback_or_a_drop_frees_the_key() {
    let place = Place::with(refusing()).await;
    let mut client = place.connect().await;
    for _ in 0..2 {
        let mut tx = client.transaction().await.unwrap();
        assert_eq!(place.once(&mut tx, "k").await.unwrap().source, Source::Executed);
        tx.rollback().await.unwrap();
        assert_eq!(place.effects("k").await, 0);
    }
    let mut tx = client.transaction().await.unwrap();
    place.once(&mut tx, "k").await.unwrap();
    drop(tx);
    let mut tx = client.transaction().await.unwrap();
    assert_eq!(place.once(&mut tx, "k").await.unwrap().source, Source::Executed);
    tx.commit().await.unwrap();
    assert_eq!(place.effects("k").await, 1);
}

async fn fail(
    place: &Place,
    tx: &mut Transaction<'_>,
    ending: fn(Failure) -> Ending<u64, Failure>,
) {
    let effect = async |tx: &mut Transaction<'_>| {
        place.count_up(tx, "k").await.unwrap();
        ending(Failure::new("not today"))
    };
    let asked = Asked::raw("the same");
    let failed = place.inside.execute_in(tx, &place.scope, &key("k"), asked, effect).await;
    let Err(InsideError::Failed { failure, repeat: false }) = failed else { panic!("{failed:?}") };
    assert_eq!(failure.message, "not today");
}

/// X7, K9: what failed leaves nothing, even when the caller commits all the same.
#[tokio::test]
async fn x7_k9_an_effect_that_fails_leaves_nothing_and_frees_the_key() {
    let place = Place::new().await;
    let mut client = place.connect().await;
    for ending in [Ending::Failed, Ending::Undone] {
        let mut tx = client.transaction().await.unwrap();
        fail(&place, &mut tx, ending).await;
        tx.commit().await.unwrap();
        assert_eq!(place.effects("k").await, 0);
    }
    let mut tx = client.transaction().await.unwrap();
    assert_eq!(place.once(&mut tx, "k").await.unwrap().source, Source::Executed);
}

/// X7, W14: a refusal is remembered, without what was written before it.
#[tokio::test]
async fn x7_w14_a_refusal_is_remembered_without_its_writes() {
    for (policy, ending) in [
        (Policy::default(), Ending::Refused as fn(_) -> _),
        (Policy::activity().build().unwrap(), Ending::Failed),
    ] {
        let place = Place::with(policy).await;
        let mut client = place.connect().await;
        let mut tx = client.transaction().await.unwrap();
        fail(&place, &mut tx, ending).await;
        tx.commit().await.unwrap();
        let mut tx = client.transaction().await.unwrap();
        let again = place.once(&mut tx, "k").await;
        let Err(InsideError::Failed { failure, repeat: true }) = again else { panic!("{again:?}") };
        assert_eq!(failure.message, "not today");
        tx.commit().await.unwrap();
        assert_eq!(place.effects("k").await, 0);
    }
}

/// X7, K2: other content under a used key is refused, and the caller's transaction goes on.
#[tokio::test]
async fn x7_k2_another_request_under_the_key_is_a_mismatch_and_the_transaction_goes_on() {
    let place = Place::new().await;
    let mut client = place.connect().await;
    let mut tx = client.transaction().await.unwrap();
    place.once(&mut tx, "k").await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    let refused = place.once_asking(&mut tx, "k", "something else").await.unwrap_err();
    assert!(matches!(refused, InsideError::Mismatch), "{refused:?}");
    assert_eq!(place.once(&mut tx, "another").await.unwrap().value, 1);
    tx.commit().await.unwrap();
    assert_eq!((place.effects("k").await, place.effects("another").await), (1, 1));
}

/// X7: a call that is dropped in the middle has written nothing, whatever becomes of the rest.
#[tokio::test]
async fn x7_a_call_that_is_dropped_in_the_middle_leaves_nothing() {
    let place = Place::with(refusing()).await;
    let mut client = place.connect().await;
    let mut tx = client.transaction().await.unwrap();
    let (written, is_written) = tokio::sync::oneshot::channel();
    let effect = async |tx: &mut Transaction<'_>| {
        place.count_up(tx, "k").await.unwrap();
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
    assert_eq!(place.once(&mut tx, "another").await.unwrap().value, 1);
    tx.commit().await.unwrap();
    assert_eq!((place.effects("k").await, place.effects("another").await), (0, 1));
    let mut tx = client.transaction().await.unwrap();
    assert_eq!(place.once(&mut tx, "k").await.unwrap().source, Source::Executed);
}

/// X7: an effect that hides an error of the database has not succeeded.
#[tokio::test]
async fn x7_an_effect_that_hides_an_error_of_the_database_is_undone() {
    let place = Place::new().await;
    let mut client = place.connect().await;
    let mut tx = client.transaction().await.unwrap();
    let effect = async |tx: &mut Transaction<'_>| {
        let value = place.count_up(tx, "k").await;
        let _ = tx.batch_execute("SELECT 1 / 0").await;
        value
    };
    let asked = Asked::raw("the same");
    let hidden = place.inside.execute_in(&mut tx, &place.scope, &key("k"), asked, effect).await;
    let Err(InsideError::Database(error)) = hidden else { panic!("{hidden:?}") };
    assert_eq!(error.sqlstate(), Some("25P02"));
    assert_eq!(place.once(&mut tx, "another").await.unwrap().value, 1, "the rest goes on");
    tx.commit().await.unwrap();
    assert_eq!((place.effects("k").await, place.effects("another").await), (0, 1));
}

/// X7: a value that cannot be kept is an error, and its writes are undone.
#[tokio::test]
async fn x7_a_value_that_cannot_be_kept_undoes_its_effect() {
    let place = Place::new().await;
    let mut client = place.connect().await;
    let mut tx = client.transaction().await.unwrap();
    let effect = async |tx: &mut Transaction<'_>| {
        place.count_up(tx, "k").await?;
        Ok::<_, Failure>("x".repeat(10 << 20))
    };
    let asked = Asked::raw("the same");
    let large = place.inside.execute_in(&mut tx, &place.scope, &key("k"), asked, effect).await;
    assert!(matches!(large, Err(InsideError::ResultTooLarge { .. })));
    tx.commit().await.unwrap();
    assert_eq!(place.effects("k").await, 0);
}

/// X7: the same key inside its own effect would be one effect in two; nothing of it is left.
#[tokio::test]
async fn x7_an_operation_inside_itself_is_refused_whole() {
    let place = Place::new().await;
    let mut client = place.connect().await;
    let mut tx = client.transaction().await.unwrap();
    let effect = async |tx: &mut Transaction<'_>| {
        let inner = place.once(tx, "k").await.unwrap().value;
        Ok::<_, Failure>(inner + place.count_up(tx, "k").await?)
    };
    let asked = Asked::raw("the same");
    let taken = place.inside.execute_in(&mut tx, &place.scope, &key("k"), asked, effect).await;
    assert!(matches!(taken, Err(InsideError::ClaimedByAnother { .. })), "{taken:?}");
    tx.commit().await.unwrap();
    assert_eq!(place.effects("k").await, 0);
}

/// K6: without a key nothing is remembered; what fails is undone all the same.
#[tokio::test]
async fn x7_k6_without_a_key_an_effect_is_run_and_forgotten() {
    let place = Place::new().await;
    let mut client = place.connect().await;
    let mut tx = client.transaction().await.unwrap();
    for _ in 0..2 {
        let effect = async |tx: &mut Transaction<'_>| place.count_up(tx, "k").await;
        let asked = Asked::raw("the same");
        let take = place.inside.execute_in(&mut tx, &place.scope, None, asked, effect).await;
        assert_eq!(take.unwrap().source, Source::PassedThrough);
    }
    let effect = async |tx: &mut Transaction<'_>| {
        place.count_up(tx, "k").await?;
        Err::<u64, _>(Failure::new("no"))
    };
    let asked = Asked::raw("the same");
    let failed = place.inside.execute_in(&mut tx, &place.scope, None, asked, effect).await;
    assert!(matches!(failed, Err(InsideError::Failed { repeat: false, .. })));
    tx.commit().await.unwrap();
    assert_eq!(place.effects("k").await, 2);
}

/// X7, D11: a record is forgotten by the clock of the database, and swept ones do not matter.
#[tokio::test]
async fn x7_d11_an_expired_record_frees_its_key_swept_or_not() {
    let place = Place::new().await;
    let (mut client, s) = (place.connect().await, place.schema.clone());
    for (expected, age) in [
        (1, "UPDATE {s}.slots SET until = since"),
        (2, "UPDATE {s}.slots SET until = since; DELETE FROM {s}.slots"),
        (3, "SELECT 1"),
    ] {
        let mut tx = client.transaction().await.unwrap();
        let take = place.once(&mut tx, "k").await.unwrap();
        assert_eq!((take.value, take.source), (expected, Source::Executed));
        tx.commit().await.unwrap();
        client.batch_execute(&age.replace("{s}", &s)).await.unwrap();
    }
    let kept = format!("SELECT until - since FROM {s}.slots");
    let kept: i64 = client.query_one(&kept, &[]).await.unwrap().get(0);
    assert_eq!(kept, 24 * 60 * 60 * 1_000, "the retention of the policy");
}

/// X7: where there are no tables, the error says what makes them, and the transaction goes on.
#[tokio::test]
async fn x7_without_tables_the_error_says_which_command_makes_them() {
    let place = Place::new().await;
    let mut client = place.connect().await;
    let inside = Inside::named("count").unwrap().in_schema("nowhere").unwrap();
    let mut tx = client.transaction().await.unwrap();
    let effect = async |tx: &mut Transaction<'_>| place.count_up(tx, "k").await;
    let missing =
        inside.execute_in(&mut tx, &place.scope, &key("k"), Asked::raw("x"), effect).await;
    let error = missing.unwrap_err();
    assert_eq!(error.code().unwrap().as_str(), "store_missing");
    assert!(error.to_string().contains("onetake store migrate"), "{error}");
    assert_eq!(place.once(&mut tx, "k").await.unwrap().value, 1);
    let named = Inside::named("count").unwrap().in_schema("Robert'); --");
    assert!(matches!(named, Err(PostgresError::SchemaName)));
    let named = Postgres::open(&place.url, PostgresOptions::new().schema("No")).await;
    assert!(matches!(named, Err(PostgresError::SchemaName)), "the same names as the store's");
}

/// X7: nothing stays on the connection that a pooler would hand to somebody else.
#[tokio::test]
async fn x7_no_statement_and_no_setting_is_left_on_the_connection() {
    let place = Place::new().await;
    let mut client = place.connect().await;
    for _ in 0..2 {
        let mut tx = client.transaction().await.unwrap();
        place.once(&mut tx, "k").await.unwrap();
        tx.commit().await.unwrap();
    }
    let left = "SELECT (SELECT count(*) FROM pg_prepared_statements),
                (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()
                    AND locktype = 'advisory'),
                (SELECT count(*) FROM pg_settings WHERE source = 'session')";
    let left = client.query_typed_one(left, &[]).await.unwrap();
    assert_eq!((left.get(0), left.get(1)), (0_i64, 0_i64));
    let fresh = "SELECT count(*) FROM pg_settings WHERE source = 'session'";
    let fresh = place.connect().await.query_typed_one(fresh, &[]).await.unwrap();
    assert_eq!(left.get::<_, i64>(2), fresh.get::<_, i64>(0));
}

/// X7: what is shown of an operation is its name and its settings.
#[test]
fn x7_nothing_secret_is_shown() {
    let inside = Inside::named("transfer").unwrap();
    let shown = format!("{inside:?} {:?}", Scope::tenant_named("acme").unwrap());
    assert!(shown.contains("transfer") && shown.contains("onetake"), "{shown}");
}
