//! The primary dies in the middle of a load, and the standby takes its place.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onetake_engine::Engine;

use crate::clients::{Rivals, replays};
use crate::pair::{Pair, aside};

const CLIENTS: usize = 16;
/// Keys that are finished before the primary dies, and again after it.
const KEYS: u64 = 300;
/// For how long the standby hears nothing before the primary dies.
const CUT_FOR: Duration = Duration::from_millis(200);

/// Waits until so many keys are finished.
async fn until(rivals: &Rivals, finished: u64) {
    while rivals.finished.load(Ordering::SeqCst) < finished {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// D6, K12, W12: the store finds the new primary by itself, everything that was acknowledged is
/// there and replays, and no key has two owners.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn k12_w12_d6_a_failover_loses_nothing_and_gives_no_key_to_two() {
    let mut pair = aside(|| Pair::start(&[]));
    let rivals = Arc::new(Rivals::new(pair.open().await, pair.open().await));
    let work = |_| {
        let rivals = Arc::clone(&rivals);
        tokio::spawn(async move { rivals.work().await })
    };
    let clients: Vec<_> = (0..CLIENTS).map(work).collect();
    until(&rivals, KEYS).await;
    let pipe = aside(|| pair.pipe());
    pipe.cut();
    tokio::time::sleep(CUT_FOR).await;
    aside(|| pair.fail_over(&pipe));
    let before = rivals.finished.load(Ordering::SeqCst);
    until(&rivals, before + KEYS).await;
    rivals.over.store(true, Ordering::SeqCst);
    let engine = Engine::new(pair.open().await);
    let (mut count, mut lost) = (0_u64, Vec::new());
    for client in clients {
        for acknowledged in client.await.unwrap() {
            count += 1;
            if !replays(&engine, acknowledged).await {
                lost.push(acknowledged);
            }
        }
    }
    println!("{count} were acknowledged, {before} of them before the failover");
    assert!(lost.is_empty(), "lost {} of {count}: {lost:?}", lost.len());
    assert!(before >= KEYS && count >= before + KEYS);
}
