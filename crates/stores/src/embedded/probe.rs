//! What benchmarks count inside a store. No part of the API: it may change with any release.
//!
//! It only counts: nothing here changes what the store holds or does.

use super::Embedded;

impl Embedded {
    /// Batches that were made durable since it was opened, each with one sync.
    #[doc(hidden)]
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.shared().batches.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// How often the disk was asked for a record that was not in memory.
    #[doc(hidden)]
    #[must_use]
    pub fn loads(&self) -> u64 {
        self.shared().front.loads()
    }

    /// How often it began to remove what has expired from the disk, and how often it ended.
    #[doc(hidden)]
    #[must_use]
    pub fn removals(&self) -> (u64, u64) {
        self.shared().expiry.removals()
    }

    /// Whether the engine below is flushing or merging tables.
    #[doc(hidden)]
    #[must_use]
    pub fn is_merging(&self) -> bool {
        let db = &self.shared().disk.tables.db;
        db.active_compactions() > 0 || db.outstanding_flushes() > 0
    }
}
