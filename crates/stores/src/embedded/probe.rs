//! What benchmarks count inside a store. No part of the API: it may change with any release.
//!
//! It shows and sets going what the store does by itself anyway, and never changes what it holds.

use super::{Embedded, house};

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

    /// Lets what has expired leave the disk now, and returns when it has.
    #[doc(hidden)]
    pub fn remove_expired(&self) {
        let shared = self.shared();
        shared.expiry.reached(shared.clock.now());
        house::compact(shared);
    }
}
