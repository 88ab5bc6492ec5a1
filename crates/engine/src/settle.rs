//! Writes what a claim came to, and only then says it.
//!
//! A settlement is written under the version of the claim, so a successor's claim is never
//! overwritten. While the store is down the engine goes on renewing and trying; the caller hears
//! that the operation was executed and is not recorded yet, never the outcome itself.

use std::sync::Arc;
use std::time::Duration;

use onetake_core::{Draft, Keeping, Phase, Record, Settlement, Timestamp};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::error::RunError;
use crate::lease::{Fenced, Held};
use crate::store::{Slots, Stamped, Swap};
use crate::wait::News;

/// How often a settlement may find a newer version of its own claim before it gives up on a round.
const ADOPTIONS_MAX: u32 = 8;

impl<S: Slots> Held<S> {
    /// Writes `settlement`, then tells everyone who waits, and gives what the caller hears.
    ///
    /// A caller is kept for a while only. If the outcome is not recorded by then they hear that,
    /// and another task goes on trying.
    pub(crate) async fn record(mut self, settlement: Settlement) -> Result<Answer, RunError> {
        let engine = self.engine().clone();
        let settlement = settlement.within(engine.0.limits.outcome_bytes_max);
        let draft = settlement.draft(&self.claim, &self.policy, engine.0.mint.id());
        let kept = engine.0.limits.record_within;
        if let Some(said) = self.insist(&draft, &settlement, kept).await {
            return said;
        }
        engine.0.tasks.spawn(async move {
            let limit = self.engine().0.limits.record_for;
            if self.insist(&draft, &settlement, limit).await.is_none() {
                self.give_up();
            }
        });
        Err(RunError::ExecutedNotRecorded)
    }

    /// Tries to write `draft` for as long as `limit`. `None` when that was not long enough.
    async fn insist(
        &mut self,
        draft: &Draft,
        settlement: &Settlement,
        limit: Duration,
    ) -> Option<Result<Answer, RunError>> {
        let (started, mut failures) = (Instant::now(), 0);
        loop {
            match self.write(draft).await {
                Ok(Some(record)) => return Some(Ok(self.announce(&record, settlement))),
                Ok(None) => failures += 1,
                Err(Fenced) => return Some(Err(self.fenced())),
            }
            if started.elapsed() >= limit {
                return None;
            }
            self.engine().pause(failures).await;
            // Only keeps the lease. If it finds no claim of ours, an earlier copy of this very
            // write may be what is there, and only repeating the write can tell.
            let _ = self.beat().await;
        }
    }

    fn give_up(&self) {
        tracing::error!(
            slot = %self.engine().0.meters.veiled(self.claim.address.slot()),
            fence = %self.claim.fence,
            "outcome could not be recorded; the claim lapses and its outcome is unknown",
        );
    }

    /// Tries to write `draft` once, from whatever version of our own claim is there.
    async fn write(&mut self, draft: &Draft) -> Result<Option<Arc<Record>>, Fenced> {
        for _ in 0..ADOPTIONS_MAX {
            match self.engine().swap(Some(self.claim.version), draft).await {
                Ok(Stamped { value: Swap::Won(record), .. }) => return Ok(Some(record)),
                Ok(Stamped { value: Swap::Lost(found), .. }) => self.adopt(found)?,
                Ok(Stamped { value: Swap::Unknown, .. }) | Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    fn announce(&self, record: &Record, settlement: &Settlement) -> Answer {
        let news = News::of(record, settlement.clone());
        let answer = news.to_executor();
        self.engine().0.waiters.settle(self.claim.address.slot(), || news);
        answer
    }

    /// Says that another claim took the place of this one, whether or not a caller still listens.
    pub(crate) fn fenced(&self) -> RunError {
        let (engine, slot) = (self.engine(), self.claim.address.slot());
        engine.0.meters.fenced.increment(1);
        tracing::error!(
            slot = %engine.0.meters.veiled(slot),
            operation = self.claim.address.operation().as_str(),
            fence = %self.claim.fence,
            "lost the claim while executing; the effect may have happened twice",
        );
        engine.0.waiters.nudge(slot);
        RunError::Fenced
    }
}

impl News {
    /// What there is to say once `settlement` is written as `record`.
    pub(crate) fn of(record: &Record, settlement: Settlement) -> Self {
        let expires_at = match &record.phase {
            Phase::Done { expires_at, .. } => Some(*expires_at),
            Phase::Claimed { .. } | Phase::Released { .. } | Phase::Unknown { .. } => None,
        };
        Self {
            fence: record.fence,
            fingerprint: record.fingerprint.clone(),
            since: record.since,
            settlement,
            expires_at,
        }
    }

    /// Until when the outcome answers further attempts, if it does.
    fn kept_until(&self) -> Option<Timestamp> {
        match self.settlement {
            Settlement::Done { keeping: Keeping::Final, .. } => self.expires_at,
            Settlement::Done { .. } | Settlement::Freed(_) | Settlement::Unknown(_) => None,
        }
    }

    /// What the one who executed hears.
    pub(crate) fn to_executor(&self) -> Answer {
        let answer = self.to_waiter();
        if let Answer::Joined { outcome, expires_at } = answer {
            return Answer::Executed { outcome, expires_at };
        }
        answer
    }

    /// What those who waited hear: the same outcome, also when it is freed for a retry.
    pub(crate) fn to_waiter(&self) -> Answer {
        match &self.settlement {
            Settlement::Done { outcome, .. } | Settlement::Freed(Some(outcome)) => {
                Answer::Joined { outcome: Arc::clone(outcome), expires_at: self.kept_until() }
            }
            Settlement::Freed(None) => Answer::Freed,
            Settlement::Unknown(cause) => {
                Answer::Unknown { fence: self.fence, since: self.since, cause: *cause }
            }
        }
    }
}
