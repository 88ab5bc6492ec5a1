//! Writes what a claim came to, and only then says it.
//!
//! A settlement is written under the version of the claim, so a successor's claim is never overwritten.
//! While the store is down the engine goes on renewing and trying; the caller hears that the operation
//! was executed and is not recorded yet, never the outcome itself.

use std::sync::Arc;

use onetake_core::{Draft, Keeping, Phase, Record, Settlement, Timestamp};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::error::RunError;
use crate::lease::{Fenced, Held, Tell};
use crate::store::{Slots, Stamped, Swap};
use crate::wait::News;

/// How often a settlement may find a newer version of its own claim before it gives up on a round.
const ADOPTIONS_MAX: u32 = 8;

impl<S: Slots> Held<S> {
    /// Writes `settlement`, then tells the caller and everyone who waits.
    pub(crate) async fn record(mut self, settlement: Settlement, tell: Tell) {
        let policy = Arc::clone(&self.ask.policy);
        let draft = settlement.draft(&self.claim, &policy, self.engine.0.mint.id());
        let limits = self.engine.0.limits;
        let (started, mut failures, mut tell) = (Instant::now(), 0, Some(tell));
        while started.elapsed() <= limits.record_for {
            match self.write(&draft).await {
                Ok(Some(record)) => return self.announce(&record, settlement, tell),
                Ok(None) => failures += 1,
                Err(Fenced) => return tell.map_or((), |tell| self.fenced(tell)),
            }
            if started.elapsed() >= limits.record_within
                && let Some(tell) = tell.take()
            {
                let _ = tell.send(Err(RunError::ExecutedNotRecorded));
            }
            self.engine.pause(failures).await;
            // Only keeps the lease. If it finds no claim of ours, an earlier copy of this very write
            // may be what is there, and only repeating the write can tell.
            let _ = self.beat().await;
        }
        tracing::error!(
            slot = %self.engine.0.meters.veiled(self.ask.address.slot()),
            fence = %self.claim.fence,
            "outcome could not be recorded; the claim lapses and its outcome is unknown",
        );
    }

    /// Tries to write `draft` once, from whatever version of our own claim is there.
    async fn write(&mut self, draft: &Draft) -> Result<Option<Arc<Record>>, Fenced> {
        for _ in 0..ADOPTIONS_MAX {
            match self.engine.swap(Some(self.claim.version), draft.clone()).await {
                Ok(Stamped { value: Swap::Won(record), .. }) => return Ok(Some(record)),
                Ok(Stamped { value: Swap::Lost(found), .. }) => self.adopt(found)?,
                Ok(Stamped { value: Swap::Unknown, .. }) | Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    fn announce(self, record: &Record, settlement: Settlement, tell: Option<Tell>) {
        let news = News::of(record, settlement);
        if let Some(tell) = tell {
            let _ = tell.send(Ok(news.to_executor()));
        }
        self.engine.0.waiters.settle(self.ask.address.slot(), || news);
    }

    /// Says that another claim took the place of this one.
    pub(crate) fn fenced(self, tell: Tell) {
        self.engine.0.meters.fenced.increment(1);
        let slot = self.ask.address.slot();
        tracing::error!(
            slot = %self.engine.0.meters.veiled(slot),
            operation = self.ask.address.operation().as_str(),
            fence = %self.claim.fence,
            "lost the claim while executing; the effect may have happened twice",
        );
        let _ = tell.send(Err(RunError::Fenced));
        self.engine.0.waiters.nudge(slot);
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
