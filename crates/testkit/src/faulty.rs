//! A store with faults: delays, failures, lost replies, late copies, and the death of its process.
//!
//! It wraps a real store and never changes what that store would do with a call; it only decides
//! whether and when a call arrives, whether it arrives again later, and whether its reply does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onetake_core::{Draft, Phase, Record, Slot, Tenant, Timestamp, Version};
use onetake_engine::{
    Commit, Doc, Document, Entry, Found, Journal, Lane, Page, Place, Position, Reply, Slots,
    Stamped, StoreError, Swap, Swept, Tx,
};
use tokio::time::sleep;

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It does not arrive, and the caller is told so.
    Fail,
    /// It arrives, but the reply does not: the caller cannot tell.
    LoseReply,
    /// It does not arrive, but the caller cannot tell.
    LoseCall,
    /// It arrives only after this time, and the caller cannot tell whether it ever will.
    Late(Duration),
    /// It arrives late.
    Delay(Duration),
    /// It arrives at once, and the reply late.
    DelayReply(Duration),
    /// It arrives, and once more after this time.
    Repeat(Duration),
    /// It arrives, and no reply ever comes.
    Hang,
}

/// Which call is about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// A read, a fetch or a scan.
    Read,
    /// A swap to a claim.
    Claim,
    /// A swap to anything else.
    Settle,
    /// A renewal.
    Renew,
    /// A transaction.
    Commit,
}

/// Decides the fate of each call.
pub type Plan = dyn Fn(Op) -> Fault + Send + Sync;

/// Faults that a test plans one by one: each befalls the next call of its kind.
#[derive(Debug, Clone, Default)]
pub struct Script(Arc<Mutex<Vec<(Op, Fault)>>>);

impl Script {
    /// The next call of kind `op` that has no fault planned yet meets `fault`.
    pub fn plan(&self, op: Op, fault: Fault) {
        self.0.lock().expect("no panic while planning").push((op, fault));
    }

    /// Whether every planned fault has happened.
    #[must_use]
    pub fn is_played(&self) -> bool {
        self.0.lock().expect("no panic while planning").is_empty()
    }

    fn next(&self, op: Op) -> Fault {
        let mut planned = self.0.lock().expect("no panic while planning");
        let found = planned.iter().position(|(of, _)| *of == op);
        found.map_or(Fault::None, |at| planned.remove(at).1)
    }
}

/// A store as one process sees it through a bad connection.
pub struct Faulty<S> {
    inner: Arc<S>,
    plan: Box<Plan>,
    dead: AtomicBool,
}

impl<S> std::fmt::Debug for Faulty<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty").field("dead", &self.dead).finish_non_exhaustive()
    }
}

impl<S: Send + Sync + 'static> Faulty<S> {
    /// `inner`, seen through `plan`.
    pub fn new(inner: Arc<S>, plan: impl Fn(Op) -> Fault + Send + Sync + 'static) -> Self {
        Self { inner, plan: Box::new(plan), dead: AtomicBool::new(false) }
    }

    /// `inner`, with the faults of `script`.
    pub fn scripted(inner: Arc<S>, script: &Script) -> Self {
        let script = script.clone();
        Self::new(inner, move |op| script.next(op))
    }

    /// Kills the process on this side: from now on nothing it does arrives, and nothing returns.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    /// Whether the process on this side is dead.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Makes one call with its fault. `unsure` is what the caller hears when nobody can tell.
    async fn through<T: Send, F>(
        &self,
        fault: Fault,
        unsure: Reply<T>,
        call: impl FnOnce() -> F + Send,
    ) -> Reply<T>
    where
        F: Future<Output = Reply<T>> + Send,
    {
        self.alive().await;
        if let Fault::Delay(span) = fault {
            sleep(span).await;
            self.alive().await;
        }
        let reply = match fault {
            Fault::Fail => return Err(StoreError::Unavailable("injected".into())),
            Fault::LoseCall | Fault::Late(_) => return unsure,
            Fault::None
            | Fault::LoseReply
            | Fault::Delay(_)
            | Fault::DelayReply(_)
            | Fault::Repeat(_)
            | Fault::Hang => call().await,
        };
        match fault {
            Fault::LoseReply => return unsure,
            Fault::Hang => std::future::pending::<()>().await,
            Fault::DelayReply(span) => sleep(span).await,
            Fault::None
            | Fault::Fail
            | Fault::LoseCall
            | Fault::Late(_)
            | Fault::Delay(_)
            | Fault::Repeat(_) => {}
        }
        self.alive().await;
        reply
    }

    /// Plans a late copy of a call, if that is its fault.
    fn repeat<T: Send + 'static, F>(&self, fault: Fault, call: impl FnOnce(Arc<S>) -> F)
    where
        F: Future<Output = Reply<T>> + Send + 'static,
    {
        if let Fault::Repeat(span) | Fault::Late(span) = fault {
            let copy = call(Arc::clone(&self.inner));
            tokio::spawn(async move {
                sleep(span).await;
                let _ = copy.await;
            });
        }
    }

    /// A dead process never gets further than this.
    async fn alive(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }
}

const fn unsure<T>(value: T) -> Stamped<T> {
    Stamped { now: Timestamp::ZERO, value }
}

fn lost<T>() -> Reply<T> {
    Err(StoreError::Unavailable("injected".into()))
}

impl<S: Slots> Slots for Faulty<S> {
    async fn read(&self, slot: &Slot) -> Reply<Option<Arc<Record>>> {
        self.through((self.plan)(Op::Read), lost(), || self.inner.read(slot)).await
    }

    async fn swap(&self, expected: Option<Version>, next: Draft) -> Reply<Swap> {
        let claim = matches!(next.phase, Phase::Claimed { .. });
        let fault = (self.plan)(if claim { Op::Claim } else { Op::Settle });
        let copy = next.clone();
        self.repeat(fault, |store| async move { store.swap(expected, copy).await });
        self.through(fault, Ok(unsure(Swap::Unknown)), || self.inner.swap(expected, next)).await
    }

    async fn renew(&self, slot: &Slot, expected: Version, lease: Duration) -> Reply<Swap> {
        let renew = || self.inner.renew(slot, expected, lease);
        self.through((self.plan)(Op::Renew), Ok(unsure(Swap::Unknown)), renew).await
    }

    async fn sweep(&self, limit: usize) -> Reply<Swept> {
        self.alive().await;
        self.inner.sweep(limit).await
    }
}

impl<S: Journal> Journal for Faulty<S> {
    async fn commit(&self, tx: Tx) -> Reply<Commit> {
        let fault = (self.plan)(Op::Commit);
        let copy = tx.clone();
        self.repeat(fault, |store| async move { store.commit(copy).await });
        self.through(fault, Ok(unsure(Commit::Unknown)), || self.inner.commit(tx)).await
    }

    async fn fetch(&self, places: &[Place]) -> Reply<Vec<Found>> {
        self.through((self.plan)(Op::Read), lost(), || self.inner.fetch(places)).await
    }

    async fn scan(
        &self,
        space: &'static str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Reply<Page<(Doc, Document)>> {
        self.alive().await;
        self.inner.scan(space, prefix, after, limit).await
    }

    async fn scan_slots(
        &self,
        tenant: Option<&Tenant>,
        after: Option<&Slot>,
        limit: usize,
    ) -> Reply<Page<Arc<Record>>> {
        self.alive().await;
        self.inner.scan_slots(tenant, after, limit).await
    }

    async fn read_lane(&self, lane: &Lane, after: Position, limit: usize) -> Reply<Page<Entry>> {
        self.alive().await;
        self.inner.read_lane(lane, after, limit).await
    }
}
