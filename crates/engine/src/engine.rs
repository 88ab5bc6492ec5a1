//! The engine: one store, and all that a process needs to walk on it.
//!
//! A cheap handle; clones share everything. It makes every store call with a time limit and keeps
//! every task that it starts. The walks themselves are `run.rs` and `transact.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use onetake_core::{Backoff, Draft, Record, Slot, Timestamp, Version};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::error::RunError;
use crate::in_time::InTime;
use crate::limits::Limits;
use crate::metrics::Meters;
use crate::mint::Mint;
use crate::store::{Reply, Slots, Stamped, StoreError, Swap};
use crate::sweep::Sweeper;
use crate::wait::Waiters;

/// How store calls that failed or said "unknown" are spaced.
pub(crate) const STORE_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(20), max: Duration::from_secs(2) };

/// How often a stopping engine looks for claims that are still under way.
const STOP_LOOK_EVERY: Duration = Duration::from_millis(5);

/// One store, and all that a process needs to walk on it. Clones share everything.
pub struct Engine<S>(pub(crate) Arc<Inner<S>>);

pub(crate) struct Inner<S> {
    pub(crate) store: S,
    pub(crate) mint: Mint,
    pub(crate) limits: Limits,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) meters: Meters,
    pub(crate) tasks: TaskTracker,
    executing: AtomicUsize,
    stopping: AtomicBool,
    pub(crate) sweeper: Sweeper<S>,
}

impl<S> Clone for Engine<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> std::fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

impl<S: Slots> Engine<S> {
    /// An engine on `store` with the default bounds.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self::with(store, Limits::default(), Mint::default())
    }

    /// An engine on `store`.
    #[must_use]
    pub fn with(store: S, limits: Limits, mint: Mint) -> Self {
        Self(Arc::new(Inner {
            store,
            mint,
            limits,
            waiters: Arc::new(Waiters::new(limits.waiters)),
            meters: Meters::new(),
            tasks: TaskTracker::new(),
            executing: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            sweeper: Sweeper::default(),
        }))
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.0.store
    }

    /// How many duplicates are waiting in this process.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.waiters.count()
    }

    /// How many executions are under way in this process.
    #[must_use]
    pub fn executing(&self) -> usize {
        self.0.executing.load(Ordering::SeqCst)
    }

    /// Asks those who wait for `slot` to look at the store. A store that is told of changes made by
    /// other processes passes them on here.
    pub fn nudge(&self, slot: &Slot) {
        self.0.waiters.nudge(slot);
    }

    /// Stops: new work is refused at once, replays too; executions under way get until `within` to
    /// finish and be recorded. Gives how many did not; their claims lapse and are unknown.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the engine stopping; calling again goes on waiting.
    pub async fn stop(&self, within: Duration) -> usize {
        self.0.stopping.store(true, Ordering::SeqCst);
        self.0.sweeper.stop();
        self.0.tasks.close();
        let finished = async {
            // A claim that is under way is in no task yet, but has its permit.
            while self.executing() > 0 || !self.0.tasks.is_empty() {
                self.0.tasks.wait().await;
                tokio::time::sleep(STOP_LOOK_EVERY).await;
            }
        };
        let _ = timeout(within, finished).await;
        self.executing()
    }

    pub(crate) fn refuse_when_stopping(&self) -> Result<(), RunError> {
        if self.0.stopping.load(Ordering::SeqCst) { Err(RunError::Stopping) } else { Ok(()) }
    }

    /// A permit to execute, taken before the claim; `None` when this process has as many as it may.
    pub(crate) fn permit(&self) -> Option<Permit<S>> {
        let permit = Permit(self.clone());
        let before = self.0.executing.fetch_add(1, Ordering::SeqCst);
        // One too many gives itself back at once.
        (before < self.0.limits.executions_max).then_some(permit)
    }

    pub(crate) async fn read(&self, slot: &Slot) -> Reply<Option<Arc<Record>>> {
        let reply = self.in_time(self.0.store.read(slot)).await;
        reply.unwrap_or_else(|| Err(StoreError::Unavailable("no reply in time".into())))
    }

    /// A swap without a reply in time may or may not be written.
    pub(crate) async fn swap(&self, expected: Option<Version>, next: &Draft) -> Reply<Swap> {
        self.in_time(self.0.store.swap(expected, next.clone())).await.unwrap_or(UNSURE)
    }

    pub(crate) async fn renew(
        &self,
        slot: &Slot,
        expected: Version,
        lease: Duration,
    ) -> Reply<Swap> {
        self.in_time(self.0.store.renew(slot, expected, lease)).await.unwrap_or(UNSURE)
    }

    /// Makes a store call; `None` when no reply came in time.
    pub(crate) fn in_time<F: Future>(&self, call: F) -> InTime<F> {
        InTime::new(call, self.0.limits.store_within)
    }

    /// Waits before the next try after `failures` in a row.
    pub(crate) async fn pause(&self, failures: u32) {
        tokio::time::sleep(STORE_BACKOFF.delay(failures, self.0.mint.spread())).await;
    }
}

/// A write without a reply in time may be there or not.
pub(crate) const UNSURE: Reply<Swap> = Ok(Stamped { now: Timestamp::ZERO, value: Swap::Unknown });

/// Leave to execute: one of the process's places, given back when dropped.
pub(crate) struct Permit<S>(pub(crate) Engine<S>);

impl<S> Drop for Permit<S> {
    fn drop(&mut self) {
        self.0.0.executing.fetch_sub(1, Ordering::SeqCst);
    }
}
