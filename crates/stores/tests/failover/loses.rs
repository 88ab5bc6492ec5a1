//! The control: commits that do not wait for the standby are lost with the primary. If none were,
//! the other tests would prove nothing.

use std::sync::atomic::AtomicBool;

use onetake_engine::Slots;
use onetake_testkit::make::LONG;

use crate::clients::{known, pen};
use crate::pair::{Pair, aside};

/// Keys that are claimed while the standby hears nothing.
const KEYS: u64 = 50;

/// What is acknowledged with `synchronous_commit = local` is lost in a failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_does_not_wait_for_its_standby_loses_what_it_acknowledged() {
    let mut pair = aside(|| Pair::start(&[("synchronous_commit", "local")]));
    let (store, never) = (pair.open().await, AtomicBool::new(false));
    let claim = async |key: u64| {
        known(&store, None, pen(key).claim(u128::from(key) + 1, LONG), &never).await
    };
    assert_eq!(claim(0).await, Some(true));
    let here = aside(|| pair.primary.ask("SELECT pg_current_wal_flush_lsn()"));
    let arrived = format!("SELECT pg_last_wal_replay_lsn() >= '{here}'");
    let pipe = aside(|| {
        pair.standby.wait_for(&arrived, "t");
        pair.pipe()
    });
    pipe.cut();
    for key in 1..=KEYS {
        assert_eq!(claim(key).await, Some(true), "it waits for nobody");
    }
    aside(|| pair.fail_over(&pipe));
    let store = pair.open().await;
    let mut lost = 0;
    for key in 1..=KEYS {
        lost += u64::from(store.read(pen(key).slot()).await.unwrap().value.is_none());
    }
    assert!(lost > 0, "nothing was lost, so the failover test proves nothing");
    assert_eq!(lost, KEYS, "all of it, for none had left the primary");
    assert!(store.read(pen(0).slot()).await.unwrap().value.is_some(), "what had is there");
}
