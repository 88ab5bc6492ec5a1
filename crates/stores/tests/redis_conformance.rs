//! The Redis store passes the suite that every store passes, on a real server, and answers random
//! sequences as a map would.
#![cfg(feature = "redis")]

mod redis_server;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onetake_core::{Draft, Record, Verdict, Version, judge};
use onetake_engine::{Slots, Swap};
use onetake_stores::seal::MasterKey;
use onetake_stores::{Redis, RedisOptions};
use onetake_testkit::make::{LONG, Pen, version};
use onetake_testkit::{Rig, wait_out};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use redis_server::Server;

/// Stores under a prefix of their own each.
#[derive(Default)]
struct RedisRig;

static OPENED: AtomicU32 = AtomicU32::new(0);

async fn open(options: RedisOptions) -> Redis {
    let server = tokio::task::spawn_blocking(Server::shared).await.expect("a server");
    let prefix = format!("store-{}:", OPENED.fetch_add(1, Ordering::SeqCst));
    Redis::open(&server.url(), options.prefix(&prefix)).await.expect("a store")
}

impl Rig for RedisRig {
    type Store = Redis;

    async fn open(&self) -> Redis {
        open(RedisOptions::new()).await
    }

    async fn pass(&self, store: &Redis, span: Duration) {
        wait_out(store, span).await;
    }
}

onetake_testkit::slots_conformance!(RedisRig);

/// X11: the same with everything sealed.
mod sealed {
    use super::*;

    #[derive(Default)]
    struct SealedRig;

    impl Rig for SealedRig {
        type Store = Redis;

        async fn open(&self) -> Redis {
            super::open(RedisOptions::new().keys(vec![MasterKey::new([7; 32])])).await
        }

        async fn pass(&self, store: &Redis, span: Duration) {
            wait_out(store, span).await;
        }
    }

    onetake_testkit::slots_conformance!(SealedRig);
}

/// What a map of records says, by the time of each reply.
#[derive(Default)]
struct Model(HashMap<usize, Arc<Record>>);

impl Model {
    fn version(&self, slot: usize) -> Option<Version> {
        self.0.get(&slot).map(|record| record.version)
    }

    /// The reply to a swap that was made at the time of `reply`.
    fn swap(&mut self, slot: usize, expected: Option<Version>, written: Record) -> Swap {
        match judge(self.version(slot), expected, written.version) {
            Verdict::Write => {
                let record = Arc::new(written);
                self.0.insert(slot, Arc::clone(&record));
                Swap::Won(record)
            }
            Verdict::Repeated => Swap::Won(Arc::clone(&self.0[&slot])),
            Verdict::Refuse => Swap::Lost(self.0.get(&slot).cloned()),
        }
    }

    fn renew(&mut self, slot: usize, expected: Version, renewed: Option<Record>) -> Swap {
        match renewed.filter(|_| self.version(slot) == Some(expected)) {
            Some(renewed) => {
                let record = Arc::new(renewed);
                self.0.insert(slot, Arc::clone(&record));
                Swap::Won(record)
            }
            None => Swap::Lost(self.0.get(&slot).cloned()),
        }
    }
}

const SLOTS: usize = 3;
const STEPS: u128 = 400;

fn draft(rng: &mut SmallRng, pen: &Pen, id: u128) -> Draft {
    match rng.random_range(0..5) {
        0 | 1 => pen.claim(id, LONG),
        2 => pen.done(id, id, LONG),
        3 => pen.released(id, id, LONG),
        _ => pen.unknown(id, id),
    }
}

/// One history; the seed is the bug report.
async fn history(seed: u64) {
    let (store, mut model) = (RedisRig.open().await, Model::default());
    let mut rng = SmallRng::seed_from_u64(seed);
    let pens: Vec<_> = (0..SLOTS).map(|slot| Pen::new(&format!("k{slot}"))).collect();
    let mut sent: Vec<(usize, Option<Version>, Draft)> = Vec::new();
    for id in 1..=STEPS {
        let slot = rng.random_range(0..SLOTS);
        let pen = &pens[slot];
        // What is there, nothing, something stale, or what is there before its last renewal.
        let expected = match rng.random_range(0..10) {
            0..6 => model.version(slot),
            6 => None,
            7 => Some(version(rng.random_range(1..=id))),
            8 => model.version(slot).map(|there| version(there.write)),
            _ => model.version(slot).map(Version::renewed),
        };
        let context = format!("seed {seed}, step {id}");
        match rng.random_range(0..10) {
            0..5 => {
                let next = draft(&mut rng, pen, id);
                let reply = store.swap(expected, next.clone()).await.expect(&context);
                let meant = model.swap(slot, expected, next.clone().at(reply.now));
                assert_eq!(reply.value, meant, "{context}");
                sent.push((slot, expected, next));
            }
            5 if !sent.is_empty() => {
                let (slot, expected, next) = sent[rng.random_range(0..sent.len())].clone();
                let reply = store.swap(expected, next.clone()).await.expect(&context);
                let meant = model.swap(slot, expected, next.at(reply.now));
                assert_eq!(reply.value, meant, "a late copy, {context}");
            }
            5..8 => {
                let expected = expected.unwrap_or(version(id));
                let reply = store.renew(pen.slot(), expected, LONG).await.expect(&context);
                let there = model.0.get(&slot);
                let renewed = there.and_then(|there| there.renewed(reply.now, LONG));
                assert_eq!(reply.value, model.renew(slot, expected, renewed), "{context}");
            }
            _ => {
                let reply = store.read(pen.slot()).await.expect(&context);
                assert_eq!(reply.value, model.0.get(&slot).cloned(), "{context}");
            }
        }
    }
}

#[tokio::test]
async fn every_reply_is_the_one_that_a_map_gives() {
    for seed in 0..24 {
        history(seed).await;
    }
}
