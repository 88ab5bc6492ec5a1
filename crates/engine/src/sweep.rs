//! Housekeeping off the hot path: what has expired goes, and unknowns that nobody settles end.
//!
//! Sweeping is about space, never about truth: expiry is judged whenever a record is read. Every
//! step is bounded, and between steps others get their turn.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onetake_core::{Record, Slot, Standing, Timestamp};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use crate::engine::{Engine, Inner};
use crate::error::RunError;
use crate::journal::{Commit, Journal, Tx};
use crate::operate::{ActName, Audit, Kind, tombstone};
use crate::store::{Reply, Slots, StoreError};

/// Whose name the audit gives to what nobody did by hand.
const HOUSEKEEPING: &str = "housekeeping";
/// Steps of one cleanup, at most: a bound, not a limit that anyone should meet.
const STEPS_MAX: usize = 1_000_000;

/// The tasks of housekeeping, each started once and ended with the engine.
#[derive(Debug)]
pub(crate) struct Sweeper<S> {
    /// How to start what only a journal can do, once somebody asked for it.
    asked: OnceLock<fn(&Engine<S>)>,
    /// Removes what has expired; started with the first walk.
    expired: OnceLock<JoinHandle<()>>,
    /// Ends forgotten unknowns; started where a store can.
    unknowns: OnceLock<JoinHandle<()>>,
}

impl<S> Default for Sweeper<S> {
    fn default() -> Self {
        let (asked, expired, unknowns) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self { asked, expired, unknowns }
    }
}

impl<S> Sweeper<S> {
    pub(crate) fn stop(&self) {
        [&self.expired, &self.unknowns]
            .into_iter()
            .filter_map(OnceLock::get)
            .for_each(JoinHandle::abort);
    }
}

impl<S> Drop for Sweeper<S> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<S: Slots> Engine<S> {
    /// Removes everything that has expired; gives how many records went. The sweeper does the same
    /// unasked, so nobody needs to call this.
    ///
    /// # Errors
    /// When the store fails; what was removed before stays removed.
    ///
    /// # Cancel safety
    /// Stops between two steps; the next call goes on from there.
    pub async fn cleanup(&self) -> Result<usize, RunError> {
        // A round may begin in the middle of the store, so two ends must be seen.
        let (mut removed, mut ends) = (0, 0);
        for _ in 0..STEPS_MAX {
            let swept = self.sweep_step().await?;
            removed += swept.0;
            ends += u32::from(swept.1);
            if ends >= 2 {
                break;
            }
            yield_now().await;
        }
        Ok(removed)
    }

    async fn sweep_step(&self) -> Result<(usize, bool), StoreError> {
        let step = self.0.limits.sweep_step.max(1);
        let swept = self.in_time(self.0.store.sweep(step)).await.unwrap_or_else(too_slow)?.value;
        self.0.meters.swept.increment(swept.removed as u64);
        Ok((swept.removed, swept.done))
    }

    /// Starts the sweeper, once, where the store needs one, and what else was asked for.
    pub(crate) fn start_sweeper(&self) {
        if let Some(start) = self.0.sweeper.asked.get() {
            start(self);
        }
        if self.0.store.forgets_by_itself() {
            return;
        }
        let (every, round) =
            (
                self.0.limits.sweep_every,
                |engine: Self| async move { engine.cleanup().await.map(drop) },
            );
        self.0.sweeper.expired.get_or_init(|| every_now_and_then(self, every, round));
    }
}

/// Does `round` every now and then, for as long as the engine is there.
fn every_now_and_then<S: Slots, Fut>(
    engine: &Engine<S>,
    every: Duration,
    round: impl Fn(Engine<S>) -> Fut + Send + 'static,
) -> JoinHandle<()>
where
    Fut: Future<Output = Result<(), RunError>> + Send,
{
    // The task must not keep the engine alive.
    let weak = Arc::downgrade(&engine.0);
    tokio::spawn(async move {
        loop {
            sleep(every).await;
            let Some(inner) = weak.upgrade() else { return };
            if let Err(error) = round(Engine(inner)).await {
                tracing::warn!(%error, "housekeeping failed; it goes on next time");
            }
        }
    })
}

impl<S: Journal> Engine<S> {
    /// Starts the housekeeping of a store with a journal, once: what has expired goes, and unknown
    /// outcomes that nobody settled within the hold retention end. A transaction asks for it by
    /// itself. Where there is no runtime yet, it begins with the first walk.
    pub fn keep_house(&self) {
        self.0.sweeper.asked.get_or_init(|| Self::watch_unknowns);
        if tokio::runtime::Handle::try_current().is_ok() {
            self.start_sweeper();
        }
    }

    fn watch_unknowns(&self) {
        let (every, round) = (self.0.limits.unknowns_every, |engine: Self| async move {
            engine.end_forgotten_unknowns().await.map(drop)
        });
        self.0.sweeper.unknowns.get_or_init(|| every_now_and_then(self, every, round));
    }

    /// Ends unknown outcomes that nobody settled within the hold retention: their keys become free,
    /// with an audit entry in the same commit. Gives how many ended.
    ///
    /// # Errors
    /// When the store fails; what ended before stays ended.
    ///
    /// # Cancel safety
    /// Stops between two records; calling again begins anew.
    pub async fn end_forgotten_unknowns(&self) -> Result<usize, RunError> {
        let (mut ended, mut after): (usize, Option<Slot>) = (0, None);
        for _ in 0..STEPS_MAX {
            let step = self.0.limits.sweep_step.max(1);
            let page = self.in_time(self.0.store.scan_slots(None, after.as_ref(), step)).await;
            let page = page.unwrap_or_else(too_slow)?;
            for record in &page.value.items {
                if self.0.is_forgotten(record, page.now) {
                    ended += usize::from(self.end(record, page.now).await?);
                }
            }
            after = page.value.items.last().map(|record| record.address.slot().clone());
            if !page.value.more {
                break;
            }
            yield_now().await;
        }
        self.0.meters.unknown_ended.increment(ended as u64);
        Ok(ended)
    }

    async fn end(&self, record: &Record, now: Timestamp) -> Result<bool, RunError> {
        let entry = Audit {
            after: Some(Kind::Free),
            ..Audit::of_record(ActName::UnknownEnded, HOUSEKEEPING, record, now)
        };
        let released = tombstone(record, self.0.mint.id());
        let tx = Tx::on_slot(Some(record.version), released).write(entry.append());
        let commit = self.in_time(self.0.store.commit(tx)).await.unwrap_or_else(too_slow)?.value;
        Ok(matches!(commit, Commit::Committed { .. } | Commit::Repeated))
    }
}

fn too_slow<T>() -> Reply<T> {
    Err(StoreError::Unavailable("no reply in time".into()))
}

impl<S> Inner<S> {
    /// Whether it is unknown for longer than anyone holds it.
    fn is_forgotten(&self, record: &Record, now: Timestamp) -> bool {
        match record.standing(now) {
            Standing::Unknown { since, .. } => now.since(since) >= self.limits.hold_retention,
            Standing::Live { .. }
            | Standing::Final { .. }
            | Standing::Retryable(_)
            | Standing::Free => false,
        }
    }
}
