//! A commit that stops waiting for the standby: it is written, and may still be lost.

use std::sync::Arc;

use onetake_engine::{Slots, Stamped, Swap};
use onetake_testkit::make::LONG;
use onetake_testkit::servers::Server;

use crate::clients::pen;
use crate::pair::{Pair, aside};

const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// Waits until a commit waits for the standby, and makes it wait no longer.
fn cancel(primary: &Server) {
    primary.wait_for(WAITING, "1");
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
        WHERE wait_event = 'SyncRep'";
    assert_eq!(primary.ask(cancel), "1");
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
        aside(|| cancel(&pair.primary));
        let claimed = claiming.await.unwrap();
        let is_unknown = matches!(claimed, Ok(Stamped { value: Swap::Unknown, .. }));
        assert!(is_unknown, "{time}: {claimed:?}");
    }
    pipe.mend();
    let claimed = claim().await.unwrap().unwrap();
    assert!(matches!(claimed.value, Swap::Won(_)), "{claimed:?}");
    let pipe = aside(|| pair.pipe());
    pipe.cut();
    aside(|| pair.fail_over(&pipe));
    let there = pair.open().await.read(pen(1).slot()).await.unwrap().value;
    assert_eq!(there.map(|there| there.version.write), Some(7), "what was won is there");
}
