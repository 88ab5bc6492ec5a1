//! New keys in Redis, beside bare commands that set a key: as many tasks, on as many connections,
//! with values as large, on the same server.
//!
//! The server syncs every second in both. What either wrote is removed before the next one begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onetake_core::{Draft, Timestamp};
use onetake_stores::seal::Sealer;
use onetake_stores::{Redis, RedisOptions, codec};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;

use crate::load::{DAY, address, claim, done, new_keys, rate};
use crate::redis_server::Server;
use crate::report::{Bar, Case};
use crate::{Plan, say};

/// As many as the store has by default.
const CONNECTIONS: usize = 1;
/// What stands before an encoded record in the store.
const HEAD_BYTES: usize = 39;
/// Turns of each in what is one round of the other cases.
const TURNS: usize = 4;
const REPLY_WITHIN: Duration = Duration::from_secs(30);

/// A value as large as the store's of `draft`.
fn value(draft: Draft) -> Vec<u8> {
    let slot = draft.address.slot().to_bytes();
    let mut value = vec![0; HEAD_BYTES];
    value.extend(codec::encode_record(&draft.at(Timestamp::ZERO), 0, &Sealer::Plain, &slot));
    value
}

/// A key as long as the store's.
fn key(n: u64, step: char) -> String {
    format!("onetake:{step}{n:063x}")
}

/// Sets a key that is not there.
async fn set(mut connection: MultiplexedConnection, key: String, value: Vec<u8>) {
    let mut command = redis::cmd("SET");
    command.arg(key).arg(value).arg("NX");
    let said: Option<String> = command.query_async(&mut connection).await.expect("written");
    assert_eq!(said.as_deref(), Some("OK"), "a new key");
}

async fn connect(url: &str) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(REPLY_WITHIN));
    let client = redis::Client::open(url).expect("an address");
    client.get_multiplexed_async_connection_with_config(&config).await.expect("the server runs")
}

/// Two bare commands for each number, which are counted as one new key.
fn bare(
    runtime: &Runtime,
    connections: &[MultiplexedConnection],
    keys: &Arc<AtomicU64>,
    span: Duration,
) -> f64 {
    rate(runtime, span, |index| {
        let connection = connections[index % connections.len()].clone();
        let keys = Arc::clone(keys);
        Box::new(move || {
            let (connection, n) = (connection.clone(), keys.fetch_add(1, Ordering::Relaxed));
            async move {
                let address = address(n);
                let claim = value(claim(n, Arc::clone(&address)));
                set(connection.clone(), key(n, 'a'), claim).await;
                set(connection, key(n, 'b'), value(done(n, address, DAY))).await;
            }
        })
    })
}

pub(crate) fn cases(plan: &Plan, runtime: &Runtime) -> Vec<Case> {
    // Rewriting the log would fall into the time of one of them.
    let server =
        Server::start(&[("appendfsync", "everysec"), ("auto-aof-rewrite-percentage", "0")]);
    let url = server.url();
    let opened = Redis::open(&url, RedisOptions::new().connections(CONNECTIONS));
    let store = Arc::new(runtime.block_on(opened).expect("the server runs"));
    let connections: Vec<_> = (0..CONNECTIONS).map(|_| runtime.block_on(connect(&url))).collect();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let keys = Arc::default();
    // Short turns and many: the speed of a shared machine drifts within seconds.
    let (rounds, span) = (plan.rounds * TURNS, plan.span / 2);
    for round in 0..=rounds {
        let rate = new_keys(runtime, &store, &keys, span);
        server.ask(&["FLUSHALL"]);
        let beside = bare(runtime, &connections, &keys, span);
        server.ask(&["FLUSHALL"]);
        say(&format!("round {round}: redis {rate:.0}/s; bare commands in pairs {beside:.0}/s"));
        if round > 0 {
            ours.push(rate * 2.0);
            theirs.push(beside * 2.0);
        }
    }
    let name = "Redis, claims and completions; beside bare SET NX";
    vec![Case::new(name, "/s", &mut ours, &mut theirs, Bar::Ratio(0.6))]
}
