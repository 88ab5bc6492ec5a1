//! One process of the simulation: an engine behind a bad connection, which may die or stall.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onetake_engine::{Engine, Limits, Memory, Mint};
use rand::Rng;
use tokio::time::Instant;

use crate::faulty::{Fault, Faulty, Op};

/// The store as a node sees it.
pub(super) type Seen = Arc<Faulty<Memory>>;

/// One process.
pub(super) struct Node {
    pub(super) engine: Engine<Seen>,
    store: Seen,
    link: Arc<Link>,
}

/// What happens between the process and the store.
pub(super) struct Link {
    /// Calls made before this point of virtual time are held up until it.
    stalled_until_ms: AtomicU64,
    origin: Instant,
    calm: AtomicBool,
}

impl Link {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn fault(&self, op: Op, rng: &mut impl Rng) -> Fault {
        let stalled = self.stalled_until_ms.load(Ordering::SeqCst).saturating_sub(self.now_ms());
        if stalled > 0 {
            return Fault::Delay(Duration::from_millis(stalled));
        }
        if self.calm.load(Ordering::SeqCst) {
            return Fault::None;
        }
        let span = Duration::from_millis(rng.random_range(1..3_000));
        let short = Duration::from_millis(rng.random_range(1..50));
        match (rng.random_range(0..100), op) {
            (0..4, _) => Fault::Fail,
            (4..9, _) => Fault::LoseReply,
            (9..12, _) => Fault::LoseCall,
            (12..15, _) => Fault::Delay(span),
            (15..18, _) => Fault::DelayReply(span),
            (18..24, Op::Claim | Op::Settle | Op::Commit) => Fault::Repeat(span),
            (24..26, Op::Claim | Op::Settle | Op::Renew | Op::Commit) => Fault::Hang,
            (26..29, Op::Claim | Op::Settle | Op::Commit) => Fault::Late(span * 5),
            (26..50, _) => Fault::Delay(short),
            _ => Fault::None,
        }
    }
}

impl Node {
    /// A new process on `memory`. Every process needs a seed of its own for its fences.
    pub(super) fn new(
        memory: Arc<Memory>,
        seed: u64,
        fault_rng: impl Fn(&mut dyn FnMut(&mut rand::rngs::SmallRng) -> Fault) -> Fault
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let link = Arc::new(Link {
            stalled_until_ms: AtomicU64::new(0),
            origin: Instant::now(),
            calm: AtomicBool::new(false),
        });
        let plan = Arc::clone(&link);
        let store =
            Arc::new(Faulty::new(memory, move |op| fault_rng(&mut |rng| plan.fault(op, rng))));
        let limits = Limits {
            store_within: Duration::from_secs(2),
            record_within: Duration::from_secs(3),
            record_for: Duration::from_secs(120),
            look_every: Duration::from_millis(300),
            sweep_every: Duration::from_secs(5),
            ..Limits::default()
        };
        let engine = Engine::with(Arc::clone(&store), limits, Mint::seeded(seed));
        Self { engine, store, link }
    }

    pub(super) fn kill(&self) {
        self.store.kill();
    }

    pub(super) fn is_dead(&self) -> bool {
        self.store.is_dead()
    }

    /// Whether this process is dead, for those who outlive it.
    pub(super) fn pulse(&self) -> impl Fn() -> bool + Clone + Send + Sync + 'static {
        let store = Arc::clone(&self.store);
        move || store.is_dead()
    }

    /// Nothing that this process sends arrives before `span` has passed.
    pub(super) fn stall(&self, span: Duration) {
        let until = self.link.now_ms() + u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.link.stalled_until_ms.store(until, Ordering::SeqCst);
    }

    pub(super) fn calm(&self) {
        self.link.calm.store(true, Ordering::SeqCst);
    }
}
