//! How a store is opened. Every default is safe to ship.

use std::sync::Arc;

use onetake_engine::Clock;

use super::front::FrontLimits;
use super::queue::QueueLimits;
use super::tally::Bounds;
use crate::seal::MasterKey;

/// What happens when a write or a sync fails, after which nobody knows what the disk holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLoss {
    /// The process aborts, so that it is started again on what the disk really holds.
    #[default]
    Stop,
    /// Every call is refused from then on. For hosts that stop in their own way.
    Refuse,
}

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// How much it may hold.
    pub bounds: Bounds,
    /// How much of it stays in memory.
    pub front: FrontLimits,
    /// How much work may stand in line.
    pub queue: QueueLimits,
    /// Memory for blocks of the files, in bytes.
    pub cache_bytes: u64,
    /// How large a file of the log becomes. What is in memory until it is in the tables is about
    /// twice that, and so is what is read again after a crash.
    pub log_bytes: usize,
    /// Bytes of the disk that new keys may not use, so that held ones can be settled.
    pub reserve_bytes: u64,
    /// What happens when a write fails.
    pub on_loss: OnLoss,
    /// The keys that seal what is stored: the first seals, the others only open. Empty: nothing is
    /// sealed.
    pub keys: Vec<MasterKey>,
    /// A clock for tests; by default the machine's.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bounds: Bounds::default(),
            front: FrontLimits::default(),
            queue: QueueLimits::default(),
            cache_bytes: 64 << 20,
            log_bytes: 64 << 20,
            reserve_bytes: 512 << 20,
            on_loss: OnLoss::default(),
            keys: Vec::new(),
            clock: None,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("bounds", &self.bounds)
            .field("front", &self.front)
            .field("queue", &self.queue)
            .field("cache_bytes", &self.cache_bytes)
            .field("log_bytes", &self.log_bytes)
            .field("reserve_bytes", &self.reserve_bytes)
            .field("on_loss", &self.on_loss)
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}
