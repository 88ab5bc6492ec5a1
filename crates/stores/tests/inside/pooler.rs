//! Behind a pooler in transaction mode: every transaction may be served by another connection.

use std::sync::Arc;
use std::time::Duration;

use onetake_core::{OnInFlight, Policy};
use onetake_stores::inside::Source;
use onetake_testkit::servers::Pooler;

use crate::place::Place;
use crate::servers::Server;

/// X7: twenty transactions on two connections have one effect, and so have those of sqlx.
#[tokio::test(flavor = "multi_thread")]
async fn x7_behind_a_pooler_transactions_with_one_key_have_one_effect() {
    let wait = OnInFlight::Wait(Duration::from_secs(600));
    let policy = Policy::builder().on_in_flight(wait).build().unwrap();
    let mut place = Place::with(policy).await;
    let pooler = tokio::task::spawn_blocking(|| Pooler::start(Server::shared(), 2)).await.unwrap();
    place.url = pooler.url();
    let place = Arc::new(place);
    let tasks = (0..20).map(|number| {
        let place = Arc::clone(&place);
        tokio::spawn(async move {
            let name = if number % 2 == 0 { "even" } else { "odd" };
            let mut client = place.connect().await;
            let mut tx = client.transaction().await.unwrap();
            let take = place.once(&mut tx, name).await.unwrap();
            tx.commit().await.unwrap();
            take
        })
    });
    let mut executed = 0;
    for task in tasks.collect::<Vec<_>>() {
        let take = task.await.unwrap();
        assert_eq!(take.value, 1);
        executed += u32::from(take.source == Source::Executed);
    }
    assert_eq!(executed, 2);
    #[cfg(feature = "sqlx")]
    for source in [Source::Executed, Source::Replayed] {
        assert_eq!(crate::with_sqlx::once_anew(&place, "sqlx").await.source, source);
    }
}
