//! Several processes on one Redis: they see each other's swaps and wake each other's waiters, also
//! behind Sentinel and in a cluster.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod redis_server;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onetake_core::Phase;
use onetake_engine::{Slots, Swap};
use onetake_stores::{LossError, Redis, RedisError, RedisOptions};
use onetake_testkit::conformance::hear::{lost, there, victory, won};
use onetake_testkit::make::{LONG, Pen, version};
use redis::FromRedisValue;
use redis_server::{Server, until};
use tokio::task::{JoinHandle, JoinSet};

async fn open(url: &str) -> Arc<Redis> {
    Arc::new(Redis::open(url, RedisOptions::new()).await.unwrap())
}

fn key(pen: &Pen) -> String {
    format!("onetake:{}", pen.slot().hex())
}

/// Waits in the background for a slot to be settled.
fn wait(store: &Arc<Redis>, pen: &Pen) -> JoinHandle<()> {
    let (store, slot) = (Arc::clone(store), pen.slot().clone());
    tokio::spawn(async move { store.settled(&slot).await })
}

/// Returns once the claim of `pen` on this server is marked as waited for.
async fn marked(server: &Server, pen: &Pen) {
    until("it is waited for", || server.text(&["GETRANGE", &key(pen), "22", "22"]) == "1").await;
}

#[tokio::test]
async fn two_stores_on_one_server_see_each_others_swaps() {
    let server = Server::start(&[]);
    let (one, other, pen) = (open(&server.url()).await, open(&server.url()).await, Pen::new("k"));
    let claim = won(&*one, None, pen.claim(1, LONG)).await;
    assert_eq!(lost(&*other, None, pen.claim(2, LONG)).await, Some(claim));
    let renewed = victory(one.renew(pen.slot(), version(1), LONG).await.unwrap().value);
    assert_eq!(there(&*other, pen.slot()).await, Some(Arc::clone(&renewed)));
    let stale = lost(&*other, Some(version(1)), pen.claim(3, LONG)).await;
    assert_eq!(stale, Some(Arc::clone(&renewed)), "X2: it was renewed since");
    let done = won(&*other, Some(renewed.version), pen.done(4, 1, LONG)).await;
    assert_eq!(there(&*one, pen.slot()).await, Some(done));
}

#[tokio::test]
async fn stores_with_different_prefixes_do_not_meet() {
    let (server, pen) = (Server::start(&[]), Pen::new("k"));
    let other = RedisOptions::new().prefix("other:");
    let other = Redis::open(&server.url(), other).await.unwrap();
    won(&*open(&server.url()).await, None, pen.claim(1, LONG)).await;
    assert_eq!(there(&other, pen.slot()).await, None);
    won(&other, None, pen.claim(2, LONG)).await;
}

/// W9, D6: a thousand rivals in four processes, and one of them wins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w9_d6_of_a_thousand_rivals_in_four_processes_one_wins() {
    let (server, pen) = (Server::start(&[]), Pen::new("k"));
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(open(&server.url()).await);
    }
    let mut rivals = JoinSet::new();
    for id in 1..=1_000 {
        let (store, claim) = (Arc::clone(&stores[id % 4]), pen.claim(id as u128, LONG));
        rivals.spawn(async move { store.swap(None, claim).await.unwrap().value });
    }
    let heard = rivals.join_all().await;
    let winner = there(&*stores[0], pen.slot()).await;
    let winners = heard.iter().filter(|swap| matches!(swap, Swap::Won(_)));
    assert_eq!(winners.count(), 1);
    for swap in heard {
        let (Swap::Won(record) | Swap::Lost(Some(record))) = swap else { panic!("{swap:?}") };
        assert_eq!(Some(record), winner, "and all of them hear who");
    }
}

/// X5: whoever waits in another process is woken by the settling write.
#[tokio::test]
async fn x5_a_waiter_in_another_process_is_woken() {
    let server = Server::start(&[]);
    let (owner, rival) = (open(&server.url()).await, open(&server.url()).await);
    for (n, kind) in ["done", "released", "unknown", "claimed"].into_iter().enumerate() {
        let (pen, id) = (Pen::new(kind), n as u128 * 10 + 1);
        won(&*owner, None, pen.claim(id, LONG)).await;
        let waiting = wait(&rival, &pen);
        marked(&server, &pen).await;
        let renewed = owner.renew(pen.slot(), version(id), LONG).await.unwrap().value;
        marked(&server, &pen).await;
        assert!(!waiting.is_finished(), "a renewal settles nothing, and the mark stays");
        let next = match kind {
            "done" => pen.done(id + 1, id, LONG),
            "released" => pen.released(id + 1, id, LONG),
            "unknown" => pen.unknown(id + 1, id),
            _ => pen.claim(id + 1, LONG),
        };
        won(&*owner, Some(victory(renewed).version), next).await;
        waiting.await.unwrap();
    }
}

#[tokio::test]
async fn nothing_is_announced_where_nobody_waits() {
    let server = Server::start(&[]);
    let (store, pen) = (open(&server.url()).await, Pen::new("k"));
    won(&*store, None, pen.claim(1, LONG)).await;
    won(&*store, Some(version(1)), pen.done(2, 1, LONG)).await;
    assert!(!server.text(&["INFO", "commandstats"]).contains("publish"));
}

/// Who comes too late to wait, or whose ear is lost, is told to look.
#[tokio::test]
async fn a_waiter_looks_for_itself_when_there_is_nothing_to_hear() {
    let server = Server::start(&[]);
    let (owner, rival) = (open(&server.url()).await, open(&server.url()).await);
    let (empty, done, live) = (Pen::new("empty"), Pen::new("done"), Pen::new("live"));
    rival.settled(empty.slot()).await;
    won(&*owner, None, done.done(1, 1, LONG)).await;
    rival.settled(done.slot()).await;
    won(&*owner, None, live.claim(2, LONG)).await;
    let waiting = wait(&rival, &live);
    marked(&server, &live).await;
    server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    waiting.await.unwrap();
    // And the ear is on the channel again for the next one.
    let waiting = wait(&rival, &live);
    until("it listens again", || {
        let heard = Vec::<(String, i64)>::from_redis_value(server.ask(&[
            "PUBSUB",
            "NUMSUB",
            "onetake:settled",
        ]));
        heard.unwrap() == [("onetake:settled".to_owned(), 1)]
    })
    .await;
    won(&*owner, Some(version(2)), live.done(3, 2, LONG)).await;
    waiting.await.unwrap();
}

#[tokio::test]
async fn only_so_many_slots_are_watched() {
    let server = Server::start(&[]);
    let options = RedisOptions::new().watched_max(1);
    let store = Arc::new(Redis::open(&server.url(), options).await.unwrap());
    let (first, second) = (Pen::new("first"), Pen::new("second"));
    won(&*store, None, first.claim(1, LONG)).await;
    won(&*store, None, second.claim(2, LONG)).await;
    let waiting = wait(&store, &first);
    marked(&server, &first).await;
    let refused = wait(&store, &second);
    won(&*store, Some(version(1)), first.done(3, 1, LONG)).await;
    waiting.await.unwrap();
    assert!(!refused.is_finished(), "it never returns: its caller looks now and then");
    assert_eq!(server.text(&["GETRANGE", &key(&second), "22", "22"]), "0");
    refused.abort();
}

/// The master that Sentinel names is used, and after a failover the new one.
#[tokio::test]
async fn a_failover_of_sentinel_is_followed() {
    let mut master = Server::start(&[]);
    let replica = Server::start(&[("replicaof", &format!("127.0.0.1 {}", master.port))]);
    let sentinel = Server::sentinel(&format!(
        "sentinel monitor main 127.0.0.1 {} 1\n\
         sentinel down-after-milliseconds main 300\n\
         sentinel failover-timeout main 2000\n",
        master.port
    ));
    until("the sentinel knows the replica", || {
        let known = sentinel.ask(&["SENTINEL", "REPLICAS", "main"]);
        format!("{known:?}").contains(&replica.port.to_string())
    })
    .await;
    let url = format!("redis+sentinel://{}/main", sentinel.host());
    let (store, pen) = (open(&url).await, Pen::new("k"));
    won(&*store, None, pen.claim(1, LONG)).await;
    let done = won(&*store, Some(version(1)), pen.done(2, 1, LONG)).await;
    assert_eq!(master.count(), 1, "the master has it");
    until("the replica has it too", || replica.text(&["GETRANGE", &key(&pen), "21", "21"]) == "2")
        .await;
    master.kill();
    until("the replica is the master", || replica.text(&["INFO"]).contains("role:master")).await;
    let mut found = None;
    for _ in 0..600 {
        if let Ok(read) = store.read(pen.slot()).await {
            found = read.value;
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(found, Some(done));
    // Sentinel closes connections to a server that it promotes, perhaps this one: unknown, once.
    let after = || async { store.swap(None, Pen::new("after").claim(3, LONG)).await };
    let mut claimed = after().await.map(|reply| reply.value);
    for _ in 0..10 {
        if matches!(claimed, Ok(Swap::Won(_))) {
            break;
        }
        claimed = after().await.map(|reply| reply.value);
    }
    assert_eq!(victory(claimed.unwrap()).version, version(3));
    assert_eq!(replica.count(), 2);
}

/// Three masters that share the keys.
async fn cluster() -> [Server; 3] {
    let settings = [("cluster-enabled", "yes"), ("cluster-node-timeout", "5000")];
    let servers = [0; 3].map(|_| Server::start(&settings));
    let made = Command::new("redis-cli")
        .args(["--cluster", "create"])
        .args(servers.iter().map(Server::host))
        .args(["--cluster-yes"])
        .stdout(Stdio::null())
        .status();
    assert!(made.expect("redis-cli is installed").success());
    for server in &servers {
        until("the cluster is whole", || {
            server.text(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
        })
        .await;
    }
    servers
}

/// Every promise of a swap holds in a cluster, wherever a slot lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_slots_on_all_of_its_masters() {
    let servers = cluster().await;
    let url = format!("redis+cluster://{},{}", servers[0].host(), servers[1].host());
    let (one, other) = (open(&url).await, open(&url).await);
    let mut tasks = JoinSet::new();
    for n in 0..60_u128 {
        let (one, other) = (Arc::clone(&one), Arc::clone(&other));
        tasks.spawn(async move {
            let (pen, id) = (Pen::new(&format!("k{n}")), n * 10 + 1);
            let claim = won(&*one, None, pen.claim(id, LONG)).await;
            assert_eq!(lost(&*other, None, pen.claim(id + 1, LONG)).await.as_ref(), Some(&claim));
            assert_eq!(won(&*one, None, pen.claim(id, LONG)).await, claim, "a copy");
            let renewed = one.renew(pen.slot(), claim.version, LONG).await.unwrap().value;
            let renewed = victory(renewed);
            lost(&*other, Some(claim.version), pen.claim(id + 2, LONG)).await;
            let done = won(&*one, Some(renewed.version), pen.done(id + 3, id, LONG)).await;
            assert!(matches!(done.phase, Phase::Done { .. }));
            assert_eq!(there(&*other, pen.slot()).await, Some(done));
        });
    }
    assert_eq!(tasks.join_all().await.len(), 60);
    let counts = servers.each_ref().map(Server::count);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), 60);
    assert!(one.sweep(10).await.unwrap().value.done, "each server forgets on its own");

    // A waiter listens to one server, and hears of slots on all of them.
    for n in 0..8_u128 {
        let (pen, id) = (Pen::new(&format!("w{n}")), 1_000 + n * 2);
        won(&*one, None, pen.claim(id, LONG)).await;
        let waiting = wait(&other, &pen);
        let at = servers.iter().find(|server| holds(server, &pen)).expect("one of them holds it");
        marked(at, &pen).await;
        won(&*one, Some(version(id)), pen.done(id + 1, id, LONG)).await;
        waiting.await.unwrap();
    }

    // One master that may lose what it acknowledges is one too many.
    servers[2].ask(&["CONFIG", "SET", "appendonly", "no"]);
    let refused = Redis::open(&url, RedisOptions::new()).await;
    let Err(RedisError::Loss(LossError::Setting { setting, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(setting, "appendonly");
}

/// Whether this server of a cluster is the one that keeps the slot of `pen`.
fn holds(server: &Server, pen: &Pen) -> bool {
    let keys = Vec::<String>::from_redis_value(server.ask(&["KEYS", "*"])).unwrap();
    keys.contains(&key(pen))
}
