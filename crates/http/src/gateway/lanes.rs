//! Threads that serve connections, each with everything of its own.
//!
//! A connection stays with the thread that it was given to, and so does all that its requests need:
//! their executions, the connections to upstreams, the timers. Nothing goes from processor to
//! processor but what is written to the store. Connections are dealt out in turn, so each thread
//! has as many as the others, and none takes work from another: a lane is for work that never
//! holds its thread up for long. Where everything runs on one runtime, that is the only lane.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Names that one lane looks up at once; further ones wait.
const BLOCKING_MAX: usize = 32;

thread_local! {
    /// The number of this thread's lane; zero for a thread that is none of them.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// Threads that serve connections. Clones share them; with the last one they end, and whatever runs
/// on them with them.
#[derive(Debug, Clone)]
pub struct Lanes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lanes: Vec<Lane>,
    next: AtomicUsize,
}

#[derive(Debug)]
struct Lane {
    runtime: Handle,
    /// What ends the thread when it is dropped, and the thread.
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Lanes {
    fn of(lanes: Vec<Lane>) -> Self {
        Self(Arc::new(Inner { lanes, next: AtomicUsize::new(0) }))
    }

    /// The runtime that this is called in, as the only lane.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn here() -> Self {
        Self::of(vec![Lane { runtime: Handle::current(), thread: None }])
    }

    /// Starts `count` threads, one at the least.
    ///
    /// # Errors
    /// The system's, when it cannot start a thread.
    pub fn start(count: usize) -> io::Result<Self> {
        (1..=count.max(1)).map(Lane::start).collect::<io::Result<_>>().map(Self::of)
    }

    /// Starts a thread for each processor.
    ///
    /// # Errors
    /// The system's, when it cannot start a thread.
    pub fn start_all() -> io::Result<Self> {
        Self::start(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// The lane whose turn it is. One whose thread has ended is passed by, as long as there are
    /// others.
    pub(super) fn next(&self) -> &Handle {
        let Inner { lanes, next } = &*self.0;
        let mut turns =
            (0..lanes.len()).map(|_| next.fetch_add(1, Ordering::Relaxed) % lanes.len());
        let alive = turns.find(|turn| lanes[*turn].is_alive()).unwrap_or(0);
        &lanes[alive].runtime
    }
}

/// The number of the lane that this runs on.
pub(super) fn number() -> usize {
    NUMBER.get()
}

impl Lane {
    fn start(number: usize) -> io::Result<Self> {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(BLOCKING_MAX).build()?;
        let (until, ended) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name(format!("onetake-lane-{number}"));
        let thread = thread.spawn(move || {
            NUMBER.set(number);
            // Nobody says anything: it ends when the other end is gone.
            let _ = runtime.block_on(ended);
            // A name that is being looked up may take long, and nobody needs it any more.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, thread: Some((until, thread)) })
    }

    fn is_alive(&self) -> bool {
        self.thread.as_ref().is_none_or(|(_, thread)| !thread.is_finished())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some((until, thread)) = self.thread.take() {
            drop(until);
            // One that panicked has ended, too; and nobody can wait for its own end.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// On which lanes tasks run that are dealt out.
    fn dealt(lanes: &Lanes, tasks: usize) -> Vec<usize> {
        let (tell, told) = mpsc::channel();
        for _ in 0..tasks {
            let tell = tell.clone();
            drop(lanes.next().spawn(async move { tell.send(number()).unwrap() }));
        }
        drop(tell);
        told.iter().collect()
    }

    #[test]
    fn each_lane_gets_as_many_as_the_others() {
        let mut numbers = dealt(&Lanes::start(3).unwrap(), 9);
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 1, 1, 2, 2, 2, 3, 3, 3]);
        assert_eq!(dealt(&Lanes::start(0).unwrap(), 2), [1, 1], "there is always one");
    }

    #[tokio::test]
    async fn the_runtime_that_is_there_can_be_the_only_lane() {
        let lanes = Lanes::here();
        let number = lanes.next().spawn(async { number() }).await;
        assert_eq!(number.unwrap(), 0);
    }

    #[test]
    fn what_runs_on_lanes_ends_with_the_last_handle() {
        let lanes = Lanes::start(2).unwrap();
        let (alive, gone) = mpsc::channel::<()>();
        drop(lanes.next().spawn(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        }));
        drop(lanes.clone());
        assert!(gone.try_recv() == Err(mpsc::TryRecvError::Empty), "there is another handle");
        drop(lanes);
        assert!(gone.recv().is_err());
    }
}
