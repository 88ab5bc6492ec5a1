//! The least that any durable door costs on this machine: a plain service and a plain proxy that
//! make two writes durable for each request, and do nothing else with them.
//!
//! One write before the request goes on and one before its answer does, each as long as the store's
//! own; one thread takes what stands in line, writes it behind what is there with one sync and
//! wakes whoever waits. It waits for others just as the store does. Nothing is read, judged, looked
//! up or remembered, so no door that keeps the promise can be quicker: what a door itself costs is
//! what is beyond.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request as Asked, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::{proxy, service};

/// As long as a claim and an outcome of the service's answer are in the store's log, about.
const CLAIM_BYTES: usize = 330;
const OUTCOME_BYTES: usize = 800;
/// How large the file is that is written again and again.
const FILE_BYTES: usize = 32 << 20;
const ALIGN: usize = 512;
/// How long it waits for others, and for how many of them, as the store does.
const PATIENCE: Duration = Duration::from_micros(200);
const BUSY: usize = 6;

#[derive(Default)]
struct Line {
    waiting: Vec<(usize, oneshot::Sender<()>)>,
    /// How many are waited for.
    goal: usize,
}

/// A log with a thread of its own.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<(Mutex<Line>, Condvar)>);

impl Log {
    pub(crate) fn open(folder: &Path) -> Self {
        let mut file = File::create(folder.join("log")).expect("a file");
        file.write_all(&vec![0; FILE_BYTES]).expect("a disk");
        file.sync_all().expect("a disk");
        let log = Self::default();
        let own = log.clone();
        drop(std::thread::spawn(move || own.serve(&mut file)));
        log
    }

    async fn durably(&self, bytes: usize) {
        self.push(bytes).await.expect("everybody is told");
    }

    fn push(&self, bytes: usize) -> oneshot::Receiver<()> {
        let (told, heard) = oneshot::channel();
        let (line, bell) = &*self.0;
        let mut line = line.lock().expect("no panic");
        line.waiting.push((bytes, told));
        let is_awaited = line.waiting.len() == line.goal.max(1);
        drop(line);
        if is_awaited {
            bell.notify_one();
        }
        heard
    }

    fn serve(&self, file: &mut File) {
        let (line, bell) = &*self.0;
        let (mut frame, mut at, mut about) = (Vec::new(), FILE_BYTES, 0);
        loop {
            let mut waiting = line.lock().expect("no panic");
            while waiting.waiting.is_empty() {
                waiting = bell.wait(waiting).expect("no panic");
            }
            let (goal, until) = (about * 5 / 8, Instant::now() + PATIENCE);
            if goal >= BUSY {
                waiting.goal = goal;
                while waiting.waiting.len() < goal {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    waiting = bell.wait_timeout(waiting, left).expect("no panic").0;
                }
                waiting.goal = 0;
            }
            let taken = std::mem::take(&mut waiting.waiting);
            drop(waiting);
            frame.clear();
            for (bytes, _) in &taken {
                frame.resize(frame.len() + bytes, b'x');
            }
            frame.resize(frame.len().next_multiple_of(ALIGN), 0);
            if at + frame.len() > FILE_BYTES {
                file.rewind().expect("a file");
                at = 0;
            }
            file.write_all(&frame).expect("a disk");
            file.sync_data().expect("a disk");
            at += frame.len();
            about = line.lock().expect("no panic").waiting.len() + taken.len();
            for (_, ear) in taken {
                // Whoever asked may have left.
                let _ = ear.send(());
            }
        }
    }
}

/// The service with two durable writes around its handler.
pub(crate) fn app(log: Log) -> Router {
    service::app().layer(from_fn_with_state(log, durable))
}

async fn durable(State(log): State<Log>, asked: Asked, next: Next) -> Response {
    log.durably(CLAIM_BYTES).await;
    let answer = next.run(asked).await;
    log.durably(OUTCOME_BYTES).await;
    answer
}

/// The proxy with two durable writes around its upstream.
pub(crate) async fn serve(listener: TcpListener, upstream: SocketAddr, log: Log) {
    let client = proxy::client();
    proxy::listen(listener, move |request| {
        let (client, log) = (client.clone(), log.clone());
        async move {
            log.durably(CLAIM_BYTES).await;
            let answer = client.request(proxy::sent_to(upstream, request)).await;
            log.durably(OUTCOME_BYTES).await;
            answer
        }
    })
    .await;
}
