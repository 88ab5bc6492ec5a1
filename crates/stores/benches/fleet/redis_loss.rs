//! What a failover of Redis loses: a server is killed while keys are claimed in it, and the replica
//! that followed it takes its place.
//!
//! Counts claims that were acknowledged and that the replica has never heard of. Each of them would
//! be executed again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onetake_engine::{Slots, Stamped, Swap};
use onetake_stores::{Redis, RedisOptions};
use tokio::runtime::Runtime;

use crate::load::{address, claim};
use crate::redis_server::{Server, until};
use crate::report::{Bar, Case};
use crate::{Plan, TASKS, float, say};

/// How often a server is killed.
const KILLS: usize = 5;

pub(crate) fn cases(plan: &Plan, runtime: &Runtime) -> Vec<Case> {
    let (mut acknowledged, mut lost) = (Vec::new(), Vec::new());
    for kill in 1..=KILLS {
        let (said, gone) = runtime.block_on(one(plan));
        say(&format!("kill {kill}: {said} claims acknowledged, {gone} lost"));
        acknowledged.push(float(said));
        lost.push(float(gone));
    }
    let name = "Redis, claims acknowledged before a replica took over";
    let all = Case::alone(name, "", &mut acknowledged, Bar::None);
    // The worst of them: the others say how lucky one may be.
    let most = lost.iter().copied().fold(0.0, f64::max);
    let name = "Redis, most of them lost with a server that was killed";
    vec![all, Case::alone(name, "", &mut [most], Bar::None)]
}

/// Kills one server, and counts what was acknowledged and what of it is lost.
async fn one(plan: &Plan) -> (u64, u64) {
    let mut master = Server::start(&[("appendfsync", "everysec")]);
    let follow = format!("127.0.0.1 {}", master.port);
    let replica = Server::start(&[("replicaof", &follow)]);
    let state = ["INFO", "replication"];
    until("a replica", || replica.text(&state).contains("master_link_status:up")).await;
    let opened = Redis::open(&master.url(), RedisOptions::new()).await;
    let store = Arc::new(opened.expect("the server runs"));
    let keys = Arc::new(AtomicU64::new(0));
    let claiming = |_| {
        let (store, keys) = (Arc::clone(&store), Arc::clone(&keys));
        tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            loop {
                let n = keys.fetch_add(1, Ordering::Relaxed);
                match store.swap(None, claim(n, address(n))).await {
                    Ok(Stamped { value: Swap::Won(_), .. }) => acknowledged.push(n),
                    Ok(_) | Err(_) => return acknowledged,
                }
            }
        })
    };
    let tasks: Vec<_> = (0..TASKS).map(claiming).collect();
    tokio::time::sleep(plan.span).await;
    master.kill();
    replica.ask(&["REPLICAOF", "NO", "ONE"]);
    let opened = Redis::open(&replica.url(), RedisOptions::new().accept_loss(true)).await;
    let promoted = opened.expect("the replica runs");
    let (mut all, mut lost) = (0, 0);
    for task in tasks {
        for n in task.await.expect("no panic") {
            let there = promoted.read(address(n).slot()).await.expect("the replica runs");
            all += 1;
            lost += u64::from(there.value.is_none());
        }
    }
    (all, lost)
}
