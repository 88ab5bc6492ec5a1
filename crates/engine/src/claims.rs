//! The walk in single steps, for callers that execute somewhere else: another process, another
//! language, a person.
//!
//! Whoever claims gets a [`Claim`] with its fence and must renew, complete or release it under that
//! fence. Nothing here runs in the background; a claimant that falls silent lapses into unknown.

use std::sync::Arc;
use std::time::Duration;

use onetake_core::{
    Address, Ask, Draft, Fence, Grounds, Outcome, Phase, Policy, Record, Report, Settlement,
    Standing, Timestamp, Version, decide,
};
use tokio::time::Instant;
use tracing::Span;

use crate::answer::{Answer, Step};
use crate::engine::{Engine, UNSURE};
use crate::error::RunError;
use crate::run::belongs;
use crate::store::{Reply, Slots, Stamped, Swap};
use crate::wait::News;

/// How often a step is tried again because the record moved on or the store could not say.
const TRIES_MAX: u32 = 8;

/// A claim in the hands of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What was claimed.
    pub address: Arc<Address>,
    /// Names this claim. Every later step needs it.
    pub fence: Fence,
    /// Which execution this is, counted from 1.
    pub attempt: u32,
    /// Whether an earlier attempt may already have had its effect.
    pub recovery: bool,
    /// How long it lives without a renewal, from when it was said.
    pub lease: Duration,
}

/// What came of trying to claim.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a claim must be completed or released"]
pub enum Tried {
    /// It is yours: execute, then complete or release.
    Claimed(Claim),
    /// It is not; this is what there is to say.
    Answered(Answer),
}

impl<S: Slots> Engine<S> {
    /// Tries to claim the slot of `ask`, without waiting.
    ///
    /// # Errors
    /// A [`RunError`] when the store failed; nothing is claimed as far as is known.
    ///
    /// # Cancel safety
    /// Dropping the future may leave a claim that nobody holds; it lapses with its lease.
    pub async fn try_claim(&self, ask: &Ask) -> Result<Tried, RunError> {
        self.refuse_when_stopping()?;
        self.start_sweeper();
        let tried = self.claim_step(ask).await;
        match &tried {
            Ok(Tried::Claimed(_)) => {}
            Ok(Tried::Answered(answer)) => self.0.meters.count(&Ok(answer.clone()), &Span::none()),
            Err(error) => self.0.meters.count(&Err(error.clone()), &Span::none()),
        }
        tried
    }

    async fn claim_step(&self, ask: &Ask) -> Result<Tried, RunError> {
        let mut grounds = Grounds::FIRST;
        for _ in 0..TRIES_MAX {
            let fence = self.0.mint.fence_above(grounds.above);
            let draft = ask.claim(grounds, fence, fence.0);
            let (sent, mut unsure) = (Instant::now(), false);
            let reply = self.claim_known(grounds.expected, &draft, &mut unsure).await;
            let (found, now) = match reply {
                Ok(Stamped { value: Swap::Won(claim), .. }) => {
                    // A win that was slow to be heard may have lapsed, so its lease begins now.
                    let late = unsure || sent.elapsed() >= ask.policy.lease() / 3;
                    let lease = if late {
                        self.renew_claim(&ask.address, fence, &ask.policy).await
                    } else {
                        Ok(ask.policy.lease())
                    };
                    let lease = lease.inspect_err(|_| {
                        self.disown_later(draft, grounds.expected, Arc::clone(&ask.policy));
                    })?;
                    let Record { attempt, recovery, .. } = *claim;
                    let address = Arc::clone(&claim.address);
                    return Ok(Tried::Claimed(Claim { address, fence, attempt, recovery, lease }));
                }
                Ok(Stamped { value: Swap::Lost(found), now }) => (found, now),
                Ok(Stamped { value: Swap::Unknown, .. }) | Err(_) if unsure => {
                    self.disown_later(draft, grounds.expected, Arc::clone(&ask.policy));
                    return Err(RunError::ClaimUncertain);
                }
                Ok(Stamped { value: Swap::Unknown, .. }) => return Err(RunError::ClaimUncertain),
                Err(error) => return Err(error.into()),
            };
            belongs(found.as_deref(), ask)?;
            match Step::of(decide(ask, found.as_deref(), now), now) {
                Step::Say(answer) => return Ok(Tried::Answered(answer)),
                Step::Wait { lease_left, .. } => {
                    return Ok(Tried::Answered(Answer::InFlight { retry_after: lease_left }));
                }
                Step::Execute(next) => grounds = next,
            }
        }
        Err(RunError::Busy("too many rivals for one key"))
    }

    /// Repeats one claim until the store can say whether it is written. `unsure` says whether it
    /// ever could not.
    async fn claim_known(
        &self,
        expected: Option<Version>,
        draft: &Draft,
        unsure: &mut bool,
    ) -> Reply<Swap> {
        for failures in 1..=TRIES_MAX {
            match self.swap(expected, draft).await? {
                Stamped { value: Swap::Unknown, .. } => *unsure = true,
                known => return Ok(known),
            }
            self.pause(failures).await;
        }
        UNSURE
    }

    /// Renews the lease of a claim.
    ///
    /// # Errors
    /// [`RunError::Fenced`] when the claim is no longer `fence`'s; another [`RunError`] when the
    /// store failed.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the lease renewed or not.
    pub async fn renew_claim(
        &self,
        address: &Address,
        fence: Fence,
        policy: &Policy,
    ) -> Result<Duration, RunError> {
        for failures in 1..=TRIES_MAX {
            let claim = self.open_claim(address, fence).await?;
            let reply = self.renew(address.slot(), claim.version, policy.lease()).await?;
            match reply.value {
                Swap::Won(_) => return Ok(policy.lease()),
                Swap::Lost(_) if !matches!(claim.phase, Phase::Claimed { .. }) => {
                    return Err(RunError::Fenced);
                }
                Swap::Lost(_) | Swap::Unknown => self.pause(failures).await,
            }
        }
        Err(RunError::ClaimUncertain)
    }

    /// Settles a claim with what its holder reports: completes it, releases it
    /// ([`Report::NotDispatched`]) or says that nobody knows.
    ///
    /// Saying the same again changes nothing and gets the same answer.
    ///
    /// # Errors
    /// [`RunError::Fenced`] when the claim is no longer `fence`'s to settle;
    /// [`RunError::ExecutedNotRecorded`] when the store failed: say it again.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the claim settled or not; say it again.
    pub async fn settle_claim(
        &self,
        address: &Address,
        fence: Fence,
        policy: &Policy,
        report: Report,
    ) -> Result<Answer, RunError> {
        let settled = self.settle_step(address, fence, policy, report).await;
        self.0.meters.count(&settled, &Span::none());
        settled
    }

    async fn settle_step(
        &self,
        address: &Address,
        fence: Fence,
        policy: &Policy,
        report: Report,
    ) -> Result<Answer, RunError> {
        let settlement = Settlement::of(report, policy).within(self.0.limits.outcome_bytes_max);
        let write = self.0.mint.id();
        for failures in 1..=TRIES_MAX {
            let Ok(Stamped { value: found, .. }) = self.read(address.slot()).await else {
                self.pause(failures).await;
                continue;
            };
            let there = found.filter(|there| there.fence == fence && *there.address == *address);
            let claim = match there {
                Some(settled) if says_the_same(&settled, &settlement) => {
                    return Ok(News::of(&settled, settlement).to_executor());
                }
                Some(claim) if claim.is_open() => claim,
                // Settled before, by this very fence, and otherwise: refused, but nobody was
                // replaced.
                Some(_) => return Err(RunError::Fenced),
                None => {
                    self.0.meters.fenced.increment(1);
                    return Err(RunError::Fenced);
                }
            };
            let draft = settlement.draft(&claim, policy, write);
            match self.swap(Some(claim.version), &draft).await {
                Ok(Stamped { value: Swap::Won(record), .. }) => {
                    let news = News::of(&record, settlement);
                    let answer = news.to_executor();
                    self.0.waiters.settle(address.slot(), || news);
                    return Ok(answer);
                }
                Ok(Stamped { value: Swap::Lost(_) | Swap::Unknown, .. }) | Err(_) => {
                    self.pause(failures).await;
                }
            }
        }
        Err(RunError::ExecutedNotRecorded)
    }

    /// Records `outcome` for `ask` without executing anything. Replaces what is free, or finished
    /// with the same content; never a live or unknown claim. Look at the answer: only `Executed`
    /// means that it is recorded.
    ///
    /// # Errors
    /// A [`RunError`] when the store failed.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the outcome recorded or not.
    pub async fn set(&self, ask: &Ask, outcome: Outcome) -> Result<Answer, RunError> {
        self.refuse_when_stopping()?;
        let (fence, write) = (self.0.mint.fence(), self.0.mint.id());
        let keeping = onetake_core::Keeping::Final;
        let settlement = Settlement::Done { outcome: Arc::new(outcome), keeping };
        let settlement = settlement.within(self.0.limits.outcome_bytes_max);
        let (mut expected, mut unsure) = (None, 0);
        for _ in 0..TRIES_MAX {
            let claim = ask.claim(Grounds { expected, ..Grounds::FIRST }, fence, write);
            let draft: Draft = settlement.draft(&claim.at(Timestamp::ZERO), &ask.policy, write);
            let (found, now) = match self.swap(expected, &draft).await? {
                Stamped { value: Swap::Won(record), .. } => {
                    return Ok(News::of(&record, settlement).to_executor());
                }
                Stamped { value: Swap::Lost(found), now } => (found, now),
                Stamped { value: Swap::Unknown, .. } => {
                    unsure += 1;
                    self.pause(unsure).await;
                    continue;
                }
            };
            belongs(found.as_deref(), ask)?;
            match found.as_deref().map(|record| (record, record.standing(now))) {
                Some((_, Standing::Live { until })) => {
                    return Ok(Answer::InFlight { retry_after: until.since(now) });
                }
                Some((record, Standing::Unknown { since, cause })) => {
                    return Ok(Answer::Unknown { fence: record.fence, since, cause });
                }
                Some((record, Standing::Final { .. } | Standing::Retryable(_)))
                    if !ask.asked.is_same(&record.fingerprint) =>
                {
                    return Ok(Answer::Mismatch);
                }
                Some((record, _)) => expected = Some(record.version),
                None => expected = None,
            }
        }
        Err(RunError::ClaimUncertain)
    }

    /// What is remembered of `address`; nothing when it has expired.
    ///
    /// # Errors
    /// A [`RunError`] when the store failed.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn get(&self, address: &Address) -> Result<Option<Stamped<Arc<Record>>>, RunError> {
        let Stamped { value, now } = self.read(address.slot()).await?;
        let live = value
            .filter(|record| *record.address == *address && record.standing(now) != Standing::Free);
        Ok(live.map(|record| Stamped { now, value: record }))
    }

    /// The claim of `fence`, if it is still that fence's.
    async fn open_claim(&self, address: &Address, fence: Fence) -> Result<Arc<Record>, RunError> {
        let found = self.read(address.slot()).await?.value;
        let ours = found
            .filter(|there| there.fence == fence && *there.address == *address && there.is_open());
        ours.ok_or(RunError::Fenced)
    }
}

/// Whether a record that is already settled says what its holder says again.
fn says_the_same(record: &Record, settlement: &Settlement) -> bool {
    match (&record.phase, settlement) {
        (
            Phase::Done { outcome, keeping, .. },
            Settlement::Done { outcome: said, keeping: kept },
        ) => outcome == said && keeping == kept,
        (Phase::Released { .. }, Settlement::Freed(_)) => true,
        (Phase::Unknown { cause }, Settlement::Unknown(said)) => cause == said,
        _ => false,
    }
}
