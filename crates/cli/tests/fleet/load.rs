//! A load of duplicates: what is asked for, when and of which node, all from one seed; and what the
//! callers heard.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::SmallRng;

use crate::caller::{Heard, post};
use crate::nodes::{Fleet, pause};

/// Callers at once. More than wait at a node that stands still.
const CALLERS: usize = 96;
/// How often each key is sent.
const COPIES: usize = 4;
/// For how long after the first its duplicates may come, in milliseconds.
const LATER_MS_MAX: u64 = 3_000;
/// What the API thinks about most keys, and about some: longer than a lease.
const THINK_MS: [u64; 2] = [400, 2_500];
/// Of so many keys one is slow.
const SLOW_ONE_OF: u32 = 12;

/// One logical operation.
pub(crate) struct Wanted {
    pub(crate) key: String,
    pub(crate) body: String,
}

/// One attempt at it.
struct Sending {
    due: Duration,
    key: usize,
    node: usize,
}

/// Everything that will be sent, in the order of time.
pub(crate) struct Plan {
    pub(crate) wanted: Vec<Wanted>,
    sendings: Vec<Sending>,
}

impl Plan {
    /// `count` keys over `span`, each of them several times, to any of `nodes`.
    pub(crate) fn of(rng: &mut SmallRng, count: usize, span: Duration, nodes: usize) -> Self {
        let (mut wanted, mut sendings) = (Vec::new(), Vec::new());
        let span_ms = u64::try_from(span.as_millis()).unwrap();
        for key in 0..count {
            let think_ms_max = THINK_MS[usize::from(rng.random_ratio(1, SLOW_ONE_OF))];
            let think_ms = rng.random_range(think_ms_max / 4..=think_ms_max);
            let body = format!("{{\"think_ms\":{think_ms}}}");
            wanted.push(Wanted { key: format!("order-{key}"), body });
            let first = rng.random_range(0..span_ms);
            for copy in 0..COPIES {
                let later = if copy == 0 { 0 } else { rng.random_range(0..LATER_MS_MAX) };
                let (due, node) = (first + later, rng.random_range(0..nodes));
                sendings.push(Sending { due: Duration::from_millis(due), key, node });
            }
        }
        sendings.sort_by_key(|sending| sending.due);
        Self { wanted, sendings }
    }
}

/// What a caller heard.
pub(crate) struct Said {
    pub(crate) key: usize,
    pub(crate) node: usize,
    pub(crate) heard: Heard,
}

/// Sends everything, and gives every whole answer. Whoever hears none goes away.
pub(crate) fn send_all(plan: &Plan, fleet: &Fleet) -> Vec<Said> {
    let (begun, next) = (Instant::now(), Mutex::new(plan.sendings.iter()));
    let said = Mutex::new(Vec::new());
    let call = || {
        loop {
            let Some(Sending { due, key, node }) = next.lock().unwrap().next() else { return };
            pause(due.saturating_sub(begun.elapsed()));
            let Wanted { key: name, body } = &plan.wanted[*key];
            if let Ok(heard) = post(fleet.nodes[*node].gateway(), name, body) {
                said.lock().unwrap().push(Said { key: *key, node: *node, heard });
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(call);
        }
    });
    said.into_inner().unwrap()
}
