//! The least that could do the same job: a group commit over the engine below with nothing around
//! it, and one over a file that only grows.
//!
//! As many tasks as ask the store write the same bytes here: each stands in line with a claim,
//! waits until it is durable, and comes again with the outcome. One thread takes what stands there,
//! writes it with one sync and wakes them. Nothing is judged, read, counted or kept in memory.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use onetake_core::{Draft, Timestamp};
use onetake_stores::codec;
use onetake_stores::seal::Sealer;
use tokio::sync::oneshot;

use crate::load::{DAY, address, claim, done, for_span};
use crate::{float, runtime};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

type Pair = (Vec<u8>, Vec<u8>);

fn pair(draft: Draft) -> Pair {
    let key = draft.address.slot().to_bytes();
    let bytes = codec::encode_record(&draft.at(NOW), 1, &Sealer::Plain, &key);
    (key, bytes)
}

type Asked = (Pair, oneshot::Sender<()>);

/// Pairs, each with whoever waits for it; `None` once nobody comes any more.
struct Line {
    waiting: Mutex<Option<Vec<Asked>>>,
    bell: Condvar,
}

impl Line {
    fn open() -> Self {
        Self { waiting: Mutex::new(Some(Vec::new())), bell: Condvar::new() }
    }

    fn push(&self, pair: Pair) -> oneshot::Receiver<()> {
        let (told, heard) = oneshot::channel();
        let mut waiting = self.waiting.lock().expect("no panic");
        waiting.as_mut().expect("it is open while anybody asks").push((pair, told));
        drop(waiting);
        self.bell.notify_one();
        heard
    }

    async fn durably(&self, pair: Pair) {
        self.push(pair).await.expect("everybody is told");
    }

    fn close(&self) {
        *self.waiting.lock().expect("no panic") = None;
        self.bell.notify_one();
    }

    /// Hands all that stands in line to `write`, until the line is closed.
    fn serve(&self, mut write: impl FnMut(&mut Vec<Pair>)) {
        let is_idle = |waiting: &mut Option<Vec<_>>| waiting.as_ref().is_some_and(Vec::is_empty);
        let mut pairs = Vec::new();
        loop {
            let waiting = self.waiting.lock().expect("no panic");
            let mut waiting = self.bell.wait_while(waiting, is_idle).expect("no panic");
            let Some(taken) = waiting.as_mut().map(std::mem::take) else { return };
            drop(waiting);
            let told: Vec<_> = taken
                .into_iter()
                .map(|(pair, ear)| {
                    pairs.push(pair);
                    ear
                })
                .collect();
            write(&mut pairs);
            pairs.clear();
            for ear in told {
                ear.send(()).expect("whoever asks waits");
            }
        }
    }
}

/// Requests a second of `tasks` tasks, when `write` makes one batch durable; `keys` counts them.
fn rate(
    tasks: usize,
    keys: &Arc<AtomicU64>,
    span: Duration,
    write: impl FnMut(&mut Vec<Pair>),
) -> f64 {
    let (runtime, line) = (runtime(), Arc::new(Line::open()));
    let (before, goes_on, started) = (keys.load(Ordering::Relaxed), for_span(span), Instant::now());
    let task = || {
        let (line, keys, goes_on) = (Arc::clone(&line), Arc::clone(keys), goes_on.clone());
        async move {
            while goes_on() {
                let n = keys.fetch_add(1, Ordering::Relaxed);
                let address = address(n);
                line.durably(pair(claim(n, Arc::clone(&address)))).await;
                line.durably(pair(done(n, address, DAY))).await;
            }
        }
    };
    let tasks: Vec<_> = (0..tasks).map(|_| runtime.spawn(task())).collect();
    let watched = Arc::clone(&line);
    let watch = std::thread::spawn(move || {
        for task in tasks {
            runtime.block_on(task).expect("no panic");
        }
        watched.close();
    });
    line.serve(write);
    watch.join().expect("no panic");
    float(keys.load(Ordering::Relaxed) - before) / started.elapsed().as_secs_f64()
}

/// The engine of the embedded store, alone.
pub(crate) struct Engine {
    db: Database,
    keyspace: Keyspace,
    keys: Arc<AtomicU64>,
}

impl Engine {
    pub(crate) fn open(folder: &Path) -> Self {
        let db = Database::builder(folder).open().expect("a database");
        let keyspace = db.keyspace("slots", KeyspaceCreateOptions::default).expect("a keyspace");
        Self { db, keyspace, keys: Arc::default() }
    }

    pub(crate) fn rate(&self, tasks: usize, span: Duration) -> f64 {
        rate(tasks, &self.keys, span, |pairs| {
            let mut batch = self.db.batch().durability(Some(PersistMode::SyncData));
            for (key, value) in pairs.drain(..) {
                batch.insert(&self.keyspace, key, value);
            }
            batch.commit().expect("written");
        })
    }
}

/// A file that only grows.
pub(crate) struct Log {
    file: File,
    keys: Arc<AtomicU64>,
}

impl Log {
    pub(crate) fn open(folder: &Path) -> Self {
        let file = File::create(folder.join("log")).expect("a file");
        Self { file, keys: Arc::default() }
    }

    pub(crate) fn rate(&mut self, tasks: usize, span: Duration) -> f64 {
        let mut bytes = Vec::new();
        rate(tasks, &self.keys, span, |pairs| {
            bytes.clear();
            for part in pairs.iter().flat_map(|(key, value)| [key, value]) {
                let length = u32::try_from(part.len()).expect("a few hundred");
                bytes.extend_from_slice(&length.to_be_bytes());
                bytes.extend_from_slice(part);
            }
            self.file.write_all(&bytes).expect("written");
            self.file.sync_data().expect("synced");
        })
    }
}
