//! The work that is measured: new keys, each claimed and then completed, and filling a store.
//!
//! Everything is a function of a number, so that the bare loops write the same keys and the same
//! bytes. Every answer is checked: a benchmark of wrong answers would be fast.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use onetake_core::{
    Address, Algorithm, Draft, Fence, Filters, Fingerprint, Keeping, Key, Method, Operation,
    Outcome, Phase, Record, Scope, Tenant, Version,
};
use onetake_engine::{Slots, Swap};
use onetake_stores::Embedded;
use tokio::runtime::Runtime;

use crate::float;

const OUTCOME_BYTES: usize = 300;
const TENANTS: u64 = 100;
/// Tasks that fill a store: as many as make its batches large.
const FILLING_TASKS: usize = 2_048;
/// How long a filled store may take to come to rest.
const SETTLING_MAX: Duration = Duration::from_secs(60);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

static OPERATION: LazyLock<Operation> =
    LazyLock::new(|| Operation::new("orders.create").expect("a name"));
static SCOPES: LazyLock<Vec<Scope>> = LazyLock::new(|| {
    let tenant = |n| Tenant::new(&format!("tenant-{n}")).expect("a name");
    (0..TENANTS).map(|n| Scope::tenant_wide(tenant(n))).collect()
});
static METHOD: LazyLock<Method> = LazyLock::new(|| Method::new(Algorithm::Raw, Filters::default()));

/// The address of operation `n`.
pub(crate) fn address(n: u64) -> Arc<Address> {
    let scope = &SCOPES[usize::try_from(n % TENANTS).expect("a small number")];
    let key = Key::new(&format!("order-{n:016x}")).expect("a key");
    Arc::new(Address::new(scope.clone(), OPERATION.clone(), key))
}

/// A number that looks like chance and is the same in every run.
fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// A number below `end` that looks like chance.
pub(crate) fn chosen(n: u64, end: u64) -> u64 {
    mixed(n.wrapping_add(0x9e37_79b9_7f4a_7c15)) % end
}

/// Text that a compressor makes about half as long.
fn text(n: u64) -> Bytes {
    let mut text = Vec::with_capacity(OUTCOME_BYTES + 16);
    let mut state = n;
    while text.len() < OUTCOME_BYTES {
        state = mixed(state.wrapping_add(1));
        text.extend(state.to_le_bytes().iter().flat_map(|b| [b'a' + (b >> 4), b'a' + (b & 15)]));
    }
    text.truncate(OUTCOME_BYTES);
    text.into()
}

fn drafted(n: u64, address: Arc<Address>, version: Version, phase: Phase<Duration>) -> Draft {
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&mixed(n).to_le_bytes());
    Record {
        version,
        fence: Fence(u128::from(n) + 1),
        address,
        fingerprint: Fingerprint::from_parts(METHOD.clone(), digest),
        attempt: 1,
        recovery: false,
        since: Duration::ZERO,
        phase,
    }
}

/// The claim of operation `n`.
pub(crate) fn claim(n: u64, address: Arc<Address>) -> Draft {
    let lease_until = Duration::from_secs(30);
    let version = Version::of_write(u128::from(n) * 2 + 1);
    drafted(n, address, version, Phase::Claimed { lease_until })
}

/// The completion of operation `n`.
pub(crate) fn done(n: u64, address: Arc<Address>, retention: Duration) -> Draft {
    let outcome = Arc::new(Outcome::Value(text(n)));
    let phase = Phase::Done { outcome, keeping: Keeping::Final, expires_at: retention };
    drafted(n, address, Version::of_write(u128::from(n) * 2 + 2), phase)
}

/// What a measured load was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    pub(crate) batches: u64,
}

impl Load {
    pub(crate) fn rate(self) -> f64 {
        float(self.requests) / self.seconds
    }

    /// Writes of one batch, on average.
    pub(crate) fn per_batch(self) -> f64 {
        float(self.requests * 2) / float(self.batches.max(1))
    }
}

/// `tasks` tasks claim and complete new keys while `goes_on` says so; `keys` counts them.
pub(crate) fn new_keys(
    runtime: &Runtime,
    store: &Embedded,
    tasks: usize,
    keys: &Arc<AtomicU64>,
    goes_on: impl Fn() -> bool + Clone + Send + 'static,
) -> Load {
    let (before, started) = (store.batches(), Instant::now());
    let task = || {
        let (store, keys, goes_on) = (store.clone(), Arc::clone(keys), goes_on.clone());
        async move {
            let mut requests = 0;
            while goes_on() {
                let n = keys.fetch_add(1, Ordering::Relaxed);
                let address = address(n);
                let claim = claim(n, Arc::clone(&address));
                let version = claim.version;
                won(&store.swap(None, claim).await.expect("claimed").value);
                let done = done(n, address, DAY);
                won(&store.swap(Some(version), done).await.expect("completed").value);
                requests += 1;
            }
            requests
        }
    };
    let tasks: Vec<_> = (0..tasks).map(|_| runtime.spawn(task())).collect();
    let requests = tasks.into_iter().map(|task| runtime.block_on(task).expect("no panic")).sum();
    let seconds = started.elapsed().as_secs_f64();
    Load { requests, seconds, batches: store.batches() - before }
}

/// Goes on for `span` from now.
pub(crate) fn for_span(span: Duration) -> impl Fn() -> bool + Clone + Send + 'static {
    let end = Instant::now() + span;
    move || Instant::now() < end
}

fn won(swap: &Swap) {
    match swap {
        Swap::Won(_) => {}
        Swap::Lost(_) | Swap::Unknown => panic!("a new key lost"),
    }
}

/// Writes the records of the operations from `from` to `to`, finished, each with one swap, and
/// waits for the merges that so many at once leave behind.
pub(crate) fn fill(runtime: &Runtime, store: &Embedded, from: u64, to: u64, retention: Duration) {
    let next = Arc::new(AtomicU64::new(from));
    let task = || {
        let (store, next) = (store.clone(), Arc::clone(&next));
        async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= to {
                    return;
                }
                let done = done(n, address(n), retention);
                won(&store.swap(None, done).await.expect("filled").value);
            }
        }
    };
    let tasks: Vec<_> = (0..FILLING_TASKS).map(|_| runtime.spawn(task())).collect();
    for task in tasks {
        runtime.block_on(task).expect("no panic");
    }
    let (filled, mut quiet) = (Instant::now(), 0);
    while quiet < 10 && filled.elapsed() < SETTLING_MAX {
        std::thread::sleep(Duration::from_millis(50));
        quiet = if store.is_merging() { 0 } else { quiet + 1 };
    }
}
