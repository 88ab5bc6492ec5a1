//! A commit that stops waiting for the standby: it is written, and may still be lost.

use std::sync::Arc;

use onetake_engine::{Commit, Doc, Journal, Place, Slots, Stamped, Swap, Tx};
use onetake_testkit::make::LONG;
use onetake_testkit::servers::Server;

use crate::clients::pen;
use crate::pair::{Pair, aside};

const CANCEL: &str = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
    WHERE wait_event = 'SyncRep'";

/// Makes every commit that waits for the standby wait no longer, until `is_over`. Gives how many.
fn cancel(primary: &Server, is_over: impl Fn() -> bool) -> u32 {
    let mut cancelled = 0;
    while !is_over() {
        cancelled += primary.ask(CANCEL).parse::<u32>().unwrap();
    }
    cancelled
}

/// D6, W12: it is unknown, however often it is asked for, until it has reached the standby.
#[tokio::test(flavor = "multi_thread")]
async fn d6_a_commit_that_did_not_reach_the_standby_is_unknown_until_it_has() {
    let mut pair = aside(|| Pair::start(&[]));
    let store = Arc::new(pair.open().await);
    let claim = || {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.swap(None, pen(1).claim(7, LONG)).await })
    };
    let pipe = aside(|| pair.pipe());
    pipe.cut();
    for time in ["the first time", "again", "and again"] {
        let claiming = claim();
        let cancelled = aside(|| cancel(&pair.primary, || claiming.is_finished()));
        assert!(cancelled > 0, "{time}: nobody waited for the standby");
        let claimed = claiming.await.unwrap();
        let is_unknown = matches!(claimed, Ok(Stamped { value: Swap::Unknown, .. }));
        assert!(is_unknown, "{time}: {claimed:?}");
    }
    pipe.mend();
    let claimed = claim().await.unwrap().unwrap();
    let Swap::Won(claimed) = claimed.value else { panic!("{claimed:?}") };
    // Although nobody heard of it at first, it can be renewed like any other.
    let renewed = store.renew(pen(1).slot(), claimed.version, LONG).await.unwrap();
    assert!(matches!(renewed.value, Swap::Won(_)), "{renewed:?}");
    let pipe = aside(|| pair.pipe());
    pipe.cut();
    aside(|| pair.fail_over(&pipe));
    let there = pair.open().await.read(pen(1).slot()).await.unwrap().value;
    assert_eq!(there.map(|there| there.version.write), Some(7), "what was won is there");
}

/// D6, W12: the same for a transaction on documents, of which no slot tells.
#[tokio::test(flavor = "multi_thread")]
async fn d6_a_transaction_that_did_not_reach_the_standby_is_unknown_until_it_has() {
    let mut pair = aside(|| Pair::start(&[]));
    let store = Arc::new(pair.open().await);
    let doc = Doc { space: "test", key: "d".into() };
    let put = || {
        let (store, doc) = (Arc::clone(&store), doc.clone());
        tokio::spawn(async move { store.commit(Tx::on_doc(7, doc, None, "v".into())).await })
    };
    let pipe = aside(|| pair.pipe());
    pipe.cut();
    for time in ["the first time", "again"] {
        let putting = put();
        let cancelled = aside(|| cancel(&pair.primary, || putting.is_finished()));
        assert!(cancelled > 0, "{time}: nobody waited for the standby");
        let said = putting.await.unwrap();
        let is_unknown = matches!(said, Ok(Stamped { value: Commit::Unknown, .. }));
        assert!(is_unknown, "{time}: {said:?}");
    }
    pipe.mend();
    assert_eq!(put().await.unwrap().unwrap().value, Commit::Repeated);
    let pipe = aside(|| pair.pipe());
    pipe.cut();
    aside(|| pair.fail_over(&pipe));
    let there = pair.open().await.fetch(&[Place::Doc(doc)]).await.unwrap().value;
    assert!(format!("{there:?}").contains("Some("), "what was said to be there is: {there:?}");
}
