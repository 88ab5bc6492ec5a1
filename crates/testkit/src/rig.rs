//! How a suite gets an empty store and lets the store's time pass.
//!
//! A suite never reads a clock of its own and never sleeps to let something happen: time is the
//! store's, and a rig is the only one who can make it pass.

use std::sync::Arc;
use std::time::Duration;

use onetake_engine::{ManualClock, Memory, MemoryLimits, Slots};

use crate::make;

/// One kind of store under test.
pub trait Rig: Send + Sync + 'static {
    /// The store. Suites that need more than slots ask for `Rig<Store: Journal>`.
    type Store: Slots;

    /// Opens an empty store that nobody else uses.
    fn open(&self) -> impl Future<Output = Self::Store> + Send;

    /// Returns when at least `span` has passed on the clock of `store`.
    fn pass(&self, store: &Self::Store, span: Duration) -> impl Future<Output = ()> + Send;
}

/// The reference store, on a clock that moves when it is told to. Its stores share that clock.
#[derive(Debug, Clone)]
pub struct MemoryRig {
    clock: Arc<ManualClock>,
    limits: MemoryLimits,
}

impl MemoryRig {
    /// A rig whose stores hold no more than this.
    #[must_use]
    pub fn with(limits: MemoryLimits) -> Self {
        Self { clock: Arc::new(ManualClock::at(1_700_000_000_000)), limits }
    }

    /// The clock that all stores of this rig share.
    #[must_use]
    pub fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }
}

impl Default for MemoryRig {
    fn default() -> Self {
        Self::with(MemoryLimits::default())
    }
}

impl Rig for MemoryRig {
    type Store = Memory;

    async fn open(&self) -> Memory {
        Memory::with(self.limits, self.clock())
    }

    async fn pass(&self, _: &Memory, span: Duration) {
        self.clock.advance(span);
    }
}

/// The reference store on a clock that runs by itself, as the clock of a database does. It shows
/// that no case depends on time standing still.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunningRig;

impl Rig for RunningRig {
    type Store = Memory;

    async fn open(&self) -> Memory {
        Memory::new()
    }

    async fn pass(&self, store: &Memory, span: Duration) {
        wait_out(store, span).await;
    }
}

/// Returns when `span` has passed by the store's own word. For rigs whose store keeps its own
/// clock.
pub async fn wait_out<S: Slots>(store: &S, span: Duration) {
    let address = make::address("onetake-testkit", "clock");
    let now = || async { store.read(address.slot()).await.expect("a healthy store answers").now };
    let begin = now().await;
    loop {
        let there = now().await;
        assert!(there >= begin, "the store's time went back from {begin} to {there}");
        let left = begin.after(span).since(there);
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn passes<R: Rig>(rig: R) {
        let store = rig.open().await;
        let slot = make::address("acme", "k").slot().clone();
        let before = store.read(&slot).await.unwrap().now;
        rig.pass(&store, make::BRIEF).await;
        assert!(store.read(&slot).await.unwrap().now >= before.after(make::BRIEF));
    }

    #[tokio::test]
    async fn every_rig_makes_the_time_of_its_store_pass() {
        passes(MemoryRig::default()).await;
        passes(RunningRig).await;
    }
}
