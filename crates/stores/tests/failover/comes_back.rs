//! An old primary that comes back after a failover and knows nothing of it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use onetake_core::Record;
use onetake_engine::{Slots, Stamped, Swap};
use onetake_stores::{Postgres, PostgresError};
use onetake_testkit::make::LONG;

use crate::clients::{known, pen};
use crate::pair::{Pair, aside, open, options};

/// How often the old primary is asked.
const TRIES: u128 = 2;
/// How often the connections to the new one are cut, and two more.
const KEYS: u64 = 8;
const CUT: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE application_name = 'onetake'";

/// D6: nobody confirms what it writes, so it acknowledges nothing: a key that the new primary gave
/// to somebody has no second owner there.
#[tokio::test(flavor = "multi_thread")]
async fn d6_an_old_primary_that_comes_back_acknowledges_nothing() {
    let mut pair = aside(|| Pair::start(&[]));
    // One process that was never told about the standby.
    let (astray, old) = (open(&pair.primary.url()).await, pair.primary.url());
    let pipe = aside(|| pair.pipe());
    aside(|| {
        pipe.cut();
        pair.fail_over(&pipe);
    });
    let store = pair.open().await;
    let claimed = store.swap(None, pen(1).claim(1, LONG)).await.unwrap();
    assert!(matches!(claimed.value, Swap::Won(_)), "{claimed:?}");
    aside(|| pair.primary.restart());
    for id in 2..2 + TRIES {
        let claimed = astray.swap(None, pen(1).claim(id, LONG)).await;
        let won = matches!(claimed, Ok(Stamped { value: Swap::Won(_), .. }));
        assert!(!won, "it acknowledged: {claimed:?}");
    }
    let fresh = astray.swap(None, pen(2).claim(100, LONG)).await;
    assert!(!matches!(fresh, Ok(Stamped { value: Swap::Won(_), .. })), "{fresh:?}");
    let opened = Postgres::open(&old, options()).await;
    let refused = opened.expect_err("a store that could acknowledge nothing is not opened");
    assert!(matches!(refused, PostgresError::Unreachable(_)), "{refused}");
    // Both take writes now. Whoever has seen the new one does not ask the old one, also when it has
    // to connect anew.
    let never = AtomicBool::new(false);
    for key in 3..=KEYS {
        let next = pen(key).claim(u128::from(key), LONG);
        assert_eq!(known(&store, None, next, &never).await, Some(true), "key {key}");
        let there = read(&store, 1).await.expect("a record");
        assert_eq!({ there.version.write }, 1, "its owner has it still");
        let cut = aside(|| pair.standby.ask(CUT));
        assert_ne!(cut, "0", "nothing was cut");
    }
    let count = format!("{}", KEYS - 1);
    assert_eq!(pair.standby.ask("SELECT count(*) FROM onetake.slots"), count, "all of them there");
}

/// Reads until there is an answer.
async fn read(store: &Postgres, key: u64) -> Option<Arc<Record>> {
    loop {
        if let Ok(Stamped { value, .. }) = store.read(pen(key).slot()).await {
            return value;
        }
    }
}
