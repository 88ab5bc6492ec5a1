//! The least that could do the same job: the engine below with nothing around it, and a file that
//! only grows.
//!
//! One thread, one sync for each batch, and each batch as large as the store's were. What is
//! written is made before the clock starts, so only writing counts. Neither judges, reads or
//! answers anybody.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use fjall::{Database, KeyspaceCreateOptions, PersistMode};
use onetake_core::{Draft, Timestamp};
use onetake_stores::codec;
use onetake_stores::seal::Sealer;

use crate::float;
use crate::load::{DAY, address, claim, done};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

type Pair = (Vec<u8>, Vec<u8>);

fn pair(draft: Draft) -> Pair {
    let key = draft.address.slot().to_bytes();
    let bytes = codec::encode_record(&draft.at(NOW), 1, &Sealer::Plain, &key);
    (key, bytes)
}

/// Batch `number`: the claims of some operations and the completions of those before them.
fn batch(number: u64, requests: u64) -> Vec<Pair> {
    let mine = number * requests..(number + 1) * requests;
    let before = mine.start.saturating_sub(requests)..mine.start;
    let claims = mine.map(|n| pair(claim(n, address(n))));
    claims.chain(before.map(|n| pair(done(n, address(n), DAY)))).collect()
}

/// Requests a second of `write`, which makes one batch durable.
fn rate(per_batch: f64, span: Duration, mut write: impl FnMut(Vec<Pair>)) -> f64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few hundred")]
    let requests = (per_batch / 2.0).round().max(1.0) as u64;
    let (mut spent, mut batches) = (Duration::ZERO, 0);
    while spent < span {
        let pairs = batch(batches, requests);
        let started = Instant::now();
        write(pairs);
        spent += started.elapsed();
        batches += 1;
    }
    float(batches * requests) / spent.as_secs_f64()
}

/// The engine of the embedded store, alone.
pub(crate) fn engine(folder: &Path, per_batch: f64, span: Duration) -> f64 {
    let db = Database::builder(folder).open().expect("a database");
    let keyspace = db.keyspace("slots", KeyspaceCreateOptions::default).expect("a keyspace");
    rate(per_batch, span, |pairs| {
        let mut batch = db.batch().durability(Some(PersistMode::SyncData));
        for (key, value) in pairs {
            batch.insert(&keyspace, key, value);
        }
        batch.commit().expect("written");
    })
}

/// A file that only grows.
pub(crate) fn log(folder: &Path, per_batch: f64, span: Duration) -> f64 {
    let mut file = File::create(folder.join("log")).expect("a file");
    let mut bytes = Vec::new();
    rate(per_batch, span, |pairs| {
        bytes.clear();
        for part in pairs.iter().flat_map(|(key, value)| [key, value]) {
            let length = u32::try_from(part.len()).expect("a few hundred");
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(part);
        }
        file.write_all(&bytes).expect("written");
        file.sync_data().expect("synced");
    })
}
