//! What has expired leaves the disk when the tables that hold it are merged anyway.
//!
//! There is no index of expiry that somebody would have to sweep. Truth never depends on this file:
//! whoever reads a record judges its expiry. It removes finished and released records whose time
//! has passed, nothing else, and leaves a tombstone for each, so that no older version of a record
//! can come back to light. Anything that it cannot read stays, for `onetake store check` to find.
//!
//! A merge that is done for the sake of removal alone is in no hurry: it rests most of the time, so
//! that whoever is served meanwhile hardly notices. Its rest is bounded, for no other merge can
//! begin before it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fjall::compaction::filter::{
    CompactionFilter, CompactionFilterResult, Context, Factory, ItemAccessor, Verdict,
};
use onetake_core::Timestamp;

use crate::codec;

/// How many records a slow merge looks at before it rests, about a millisecond's work.
const STEP: u32 = 512;
/// How long it rests, in times that it worked.
const REST: u32 = 8;
/// How long it rests in all; then it works without a pause. The tables that are flushed meanwhile
/// must not become so many that the engine below holds up writers.
const REST_MAX: Duration = Duration::from_secs(20);

/// The time by which records are removed, and how many were.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    now_ms: AtomicU64,
    removed: AtomicU64,
    /// Whether merges that begin now are in no hurry.
    slow: AtomicBool,
    /// Whether nothing may rest any more.
    hurried: AtomicBool,
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Expiry {
    /// Lets time come to `now`; it never goes back.
    pub(super) fn reached(&self, now: Timestamp) {
        self.now_ms.fetch_max(now.as_millis(), Ordering::Relaxed);
    }

    /// How many records were removed since the store was opened.
    pub(super) fn removed(&self) -> u64 {
        self.removed.load(Ordering::Relaxed)
    }

    /// Does `removal` in no hurry.
    pub(super) fn slowly<T>(&self, removal: impl FnOnce() -> T) -> T {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.slow.store(true, Ordering::Relaxed);
        let done = removal();
        self.slow.store(false, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Relaxed);
        done
    }

    /// How many removals have begun and how many have ended.
    pub(super) fn removals(&self) -> (u64, u64) {
        (self.begun.load(Ordering::Relaxed), self.ended.load(Ordering::Relaxed))
    }

    /// Lets no merge rest from now on: the store is closing and waits for its end.
    pub(super) fn hurry(&self) {
        self.hurried.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_hurried(&self) -> bool {
        self.hurried.load(Ordering::Relaxed)
    }

    pub(super) fn factory(self: Arc<Self>) -> Arc<dyn Factory> {
        Arc::new(Filters(self))
    }

    /// Whether the record that is stored as `bytes` under `key` may be removed.
    fn has_ended(&self, key: &[u8], bytes: &[u8]) -> bool {
        let now = Timestamp::from_millis(self.now_ms.load(Ordering::Relaxed));
        codec::label(bytes, key).is_ok_and(|label| label.is_removable(now))
    }
}

struct Filters(Arc<Expiry>);

impl Factory for Filters {
    fn name(&self) -> &'static str {
        "onetake/expiry"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        let slow = self.0.slow.load(Ordering::Relaxed);
        let rest = if slow { REST_MAX } else { Duration::ZERO };
        Box::new(Filter { expiry: Arc::clone(&self.0), rest, seen: 0, since: Instant::now() })
    }
}

struct Filter {
    expiry: Arc<Expiry>,
    /// How long it may still rest.
    rest: Duration,
    seen: u32,
    /// When it last began to work.
    since: Instant,
}

impl Filter {
    fn rest(&mut self) {
        if self.expiry.is_hurried() {
            self.rest = Duration::ZERO;
            return;
        }
        let pause = pause(self.since.elapsed(), self.rest);
        self.rest -= pause;
        std::thread::sleep(pause);
        self.since = Instant::now();
    }
}

/// How long to rest after so much work, when so much rest is left.
fn pause(worked: Duration, left: Duration) -> Duration {
    worked.saturating_mul(REST).min(left)
}

impl CompactionFilter for Filter {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> CompactionFilterResult {
        self.seen += 1;
        if self.seen == STEP {
            self.seen = 0;
            if !self.rest.is_zero() {
                self.rest();
            }
        }
        if self.expiry.has_ended(item.key(), &item.value()?) {
            self.expiry.removed.fetch_add(1, Ordering::Relaxed);
            return Ok(Verdict::Remove);
        }
        Ok(Verdict::Keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_merge_rests_as_long_as_it_works_and_never_longer_than_it_may() {
        let (step, mut left, mut rested) = (Duration::from_millis(1), REST_MAX, Duration::ZERO);
        assert_eq!(pause(step, left), step * REST);
        for _ in 0..100_000 {
            let pause = pause(step, left);
            (left, rested) = (left.saturating_sub(pause), rested + pause);
        }
        assert_eq!((left, rested), (Duration::ZERO, REST_MAX));
        assert_eq!(pause(Duration::MAX, REST_MAX), REST_MAX);
    }
}
