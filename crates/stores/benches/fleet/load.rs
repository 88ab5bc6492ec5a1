//! The work that is measured: new keys, each claimed and then completed.
//!
//! Everything is a function of a number, so that the bare loops write the same keys and the same
//! bytes. Every answer is checked: a benchmark of wrong answers would be fast.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use onetake_core::{
    Address, Algorithm, Draft, Fence, Filters, Fingerprint, Keeping, Key, Method, Operation,
    Outcome, Phase, Record, Scope, Tenant, Version,
};
use onetake_engine::{Slots, Swap};
use tokio::runtime::Runtime;

use crate::{TASKS, float};

const OUTCOME_BYTES: usize = 300;
const TENANTS: u64 = 100;
pub(crate) const LEASE: Duration = Duration::from_secs(30);
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
    let version = Version::of_write(u128::from(n) * 2 + 1);
    drafted(n, address, version, Phase::Claimed { lease_until: LEASE })
}

/// The completion of operation `n`.
pub(crate) fn done(n: u64, address: Arc<Address>, retention: Duration) -> Draft {
    let outcome = Arc::new(Outcome::Value(text(n)));
    let phase = Phase::Done { outcome, keeping: Keeping::Final, expires_at: retention };
    drafted(n, address, Version::of_write(u128::from(n) * 2 + 2), phase)
}

/// Goes on for `span` from now.
pub(crate) fn for_span(span: Duration) -> impl Fn() -> bool + Clone + Send + 'static {
    let end = Instant::now() + span;
    move || Instant::now() < end
}

/// As many tasks as in every case, each of which does `one` thing after the other for `span`. Gives
/// how many things a second.
pub(crate) fn rate<F: Future<Output = ()> + Send + 'static>(
    runtime: &Runtime,
    span: Duration,
    mut one: impl FnMut(usize) -> Box<dyn FnMut() -> F + Send>,
) -> f64 {
    let (goes_on, started) = (for_span(span), Instant::now());
    let task = |index| {
        let (goes_on, mut one) = (goes_on.clone(), one(index));
        runtime.spawn(async move {
            let mut count = 0_u64;
            while goes_on() {
                one().await;
                count += 1;
            }
            count
        })
    };
    let tasks: Vec<_> = (0..TASKS).map(task).collect();
    let count = tasks.into_iter().map(|task| runtime.block_on(task).expect("no panic")).sum();
    float(count) / started.elapsed().as_secs_f64()
}

/// New keys a second, each claimed and completed in `store`; `keys` counts them.
pub(crate) fn new_keys<S: Slots + Send + Sync + 'static>(
    runtime: &Runtime,
    store: &Arc<S>,
    keys: &Arc<AtomicU64>,
    span: Duration,
) -> f64 {
    rate(runtime, span, |_| {
        let (store, keys) = (Arc::clone(store), Arc::clone(keys));
        Box::new(move || {
            let (store, n) = (Arc::clone(&store), keys.fetch_add(1, Ordering::Relaxed));
            async move { new_key(&*store, n, DAY).await }
        })
    })
}

/// Claims and completes operation `n`, which nobody did before.
pub(crate) async fn new_key(store: &impl Slots, n: u64, retention: Duration) {
    let address = address(n);
    let claim = claim(n, Arc::clone(&address));
    let version = claim.version;
    won(&store.swap(None, claim).await.expect("claimed").value);
    let done = done(n, address, retention);
    won(&store.swap(Some(version), done).await.expect("completed").value);
}

/// Claims and completes the operations from 0 to `count`, many at once.
pub(crate) async fn fill<S: Slots + Send + Sync + 'static>(store: &Arc<S>, count: u64) {
    let task = |index| {
        let store = Arc::clone(store);
        async move {
            for n in (index..count).step_by(TASKS) {
                new_key(&*store, n, DAY).await;
            }
        }
    };
    let tasks: Vec<_> = (0..TASKS as u64).map(task).map(tokio::spawn).collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

pub(crate) fn won(swap: &Swap) {
    match swap {
        Swap::Won(_) => {}
        Swap::Lost(_) | Swap::Unknown => panic!("a new key lost"),
    }
}
