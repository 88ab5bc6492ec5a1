//! Finished records in memory, so that a replay needs no round trip.
//!
//! What is here was read from the database a moment ago, and answers only for as long: another
//! process may have replaced it since. The moment counts from before the question was sent, so
//! whoever replaces a record and waits that long knows that nobody answers with the old one.

use std::sync::Arc;
use std::time::Duration;

use onetake_core::{Phase, Record, Timestamp};
use onetake_engine::Stamped;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::time::Instant;

/// For how long a record that was read may answer.
pub(super) const CONFIRMED_FOR: Duration = Duration::from_secs(2);
/// What a record takes beside its outcome, roughly.
const RECORD_BYTES: u64 = 512;

/// A record, and when it was known to be true.
#[derive(Debug, Clone)]
struct Known {
    record: Arc<Record>,
    asked_at: Instant,
    now: Timestamp,
}

#[derive(Debug, Clone)]
struct Weight;

impl Weighter<Vec<u8>, Known> for Weight {
    fn weight(&self, slot: &Vec<u8>, known: &Known) -> u64 {
        let outcome = match &known.record.phase {
            Phase::Done { outcome, .. } => outcome.weight(),
            Phase::Claimed { .. } | Phase::Released { .. } | Phase::Unknown { .. } => 0,
        };
        RECORD_BYTES + (slot.len() + outcome) as u64
    }
}

/// The finished records that this process has seen lately.
#[derive(Debug)]
pub(super) struct Front(Cache<Vec<u8>, Known, Weight>);

impl Front {
    pub(super) fn new(bytes_max: u64) -> Self {
        let count = usize::try_from(bytes_max / RECORD_BYTES).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(count.max(1), bytes_max, Weight))
    }

    /// Notes what `slot` held at `now`, by a question that was sent at `asked_at`.
    pub(super) fn note(&self, slot: &[u8], there: &Stamped<Arc<Record>>, asked_at: Instant) {
        if matches!(there.value.phase, Phase::Done { .. }) {
            let record = Arc::clone(&there.value);
            self.0.insert(slot.to_vec(), Known { record, asked_at, now: there.now });
        } else {
            self.forget(slot);
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub(super) fn forget(&self, slot: &[u8]) {
        self.0.remove(slot);
    }

    /// What `slot` holds, if that was confirmed a moment ago.
    pub(super) fn look(&self, slot: &[u8]) -> Option<Stamped<Arc<Record>>> {
        let known = self.0.get(slot)?;
        let age = known.asked_at.elapsed();
        if age >= CONFIRMED_FOR {
            return None;
        }
        Some(Stamped { now: known.now.after(age), value: known.record })
    }
}
