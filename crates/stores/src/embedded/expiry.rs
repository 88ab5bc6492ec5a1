//! What has expired leaves the disk when the tables that hold it are merged anyway.
//!
//! There is no index of expiry that somebody would have to sweep. Truth never depends on this file:
//! whoever reads a record judges its expiry. It removes finished and released records whose time
//! has passed, nothing else, and leaves a tombstone for each, so that no older version of a record
//! can come back to light. Anything that it cannot read stays, for `onetake store check` to find.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fjall::compaction::filter::{
    CompactionFilter, CompactionFilterResult, Context, Factory, ItemAccessor, Verdict,
};
use onetake_core::Timestamp;

use crate::codec;

/// The time by which records are removed, and how many were.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    now_ms: AtomicU64,
    removed: AtomicU64,
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
        Box::new(Filter(Arc::clone(&self.0)))
    }
}

struct Filter(Arc<Expiry>);

impl CompactionFilter for Filter {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> CompactionFilterResult {
        if self.0.has_ended(item.key(), &item.value()?) {
            self.0.removed.fetch_add(1, Ordering::Relaxed);
            return Ok(Verdict::Remove);
        }
        Ok(Verdict::Keep)
    }
}
