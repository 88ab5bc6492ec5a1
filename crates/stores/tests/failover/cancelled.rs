//! A commit that stops waiting for the standby: it is written, and may still be lost.

use std::sync::Arc;

use onetake_engine::{Slots, Stamped, Swap};
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
    assert!(matches!(claimed.value, Swap::Won(_)), "{claimed:?}");
    let pipe = aside(|| pair.pipe());
    pipe.cut();
    aside(|| pair.fail_over(&pipe));
    let there = pair.open().await.read(pen(1).slot()).await.unwrap().value;
    assert_eq!(there.map(|there| there.version.write), Some(7), "what was won is there");
}
