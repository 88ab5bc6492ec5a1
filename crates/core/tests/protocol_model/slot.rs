//! The store of the model: one slot, one clock, and the real comparison of versions.
//!
//! Whatever is written is judged on the spot: what it replaced tells whether a promise was broken.

use std::time::Duration;

use onetake_core::{Draft, Fence, OnUnknown, Phase, Standing, Timestamp, Verdict, Version, judge};

use crate::model::{Plant, Step};
use crate::world::{
    Broken, Clearance, Kept, Late, NOW, Request, Stored, Swap, TICK_MS, Witness, Written,
};

/// How many steps a request may be under way: 60 s, and a tombstone outlives that by a lease.
const DELIVERY_TICKS: u64 = 2;

/// What the network does to a request and its reply.
///
/// A reply that is lost needs no name of its own: the request is late and arrives at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// It arrives, and so does the reply.
    Prompt,
    /// It may arrive at any time until it is lost, or never; nobody hears the reply.
    Late,
    /// It arrives, the reply too, and a second copy may arrive at any time until it is lost.
    Doubled,
}

/// When a request that is sent now is lost at the latest.
pub(crate) fn lost_at() -> Timestamp {
    NOW.after(Duration::from_millis(DELIVERY_TICKS * TICK_MS))
}

impl Step<'_> {
    /// Sends `request` to the store; what comes back is all that the sender learns.
    pub(crate) fn send(&mut self, request: Request, delivery: Delivery) -> Swap {
        if delivery == Delivery::Prompt {
            return self.arrive(&request);
        }
        self.world.left.faults -= 1;
        let reply = match delivery {
            Delivery::Late => Swap::Unknown,
            Delivery::Prompt | Delivery::Doubled => self.arrive(&request),
        };
        let lost_at = match &request {
            Request::Claim { until, .. } => *until,
            Request::Settle { .. } | Request::Renew { .. } => lost_at(),
        };
        self.world.network.push(Late { request, lost_at });
        reply
    }

    /// A late copy arrives; nobody hears the reply.
    pub(crate) fn arrive_late(&mut self, index: usize) {
        let request = self.world.network.remove(index).request;
        let reply = self.arrive(&request);
        let Request::Claim { draft, .. } = &request else { return };
        let Swap::Lost(Some(found)) = reply else { return };
        match found.phase {
            Phase::Done { .. } => self.world.saw(Witness::LateClaimAfterDone),
            Phase::Released { .. } if found.fence == draft.0.fence => {
                self.world.saw(Witness::LateClaimAfterRelease);
            }
            Phase::Released { .. } | Phase::Claimed { .. } | Phase::Unknown { .. } => {}
        }
    }

    /// The store's part: compare, write or refuse, and say what is there.
    pub(crate) fn arrive(&mut self, request: &Request) -> Swap {
        let there = self.world.slot.clone();
        let lost = |there: Option<Stored>| Swap::Lost(there.map(|record| record.0));
        if let Request::Renew { seen } = request {
            return match there {
                Some(there) if there.0.version == seen.0.version => {
                    self.extend(&there, seen.0.fence)
                }
                there => lost(there),
            };
        }
        let (expected, draft) = match request {
            Request::Claim { clearance, draft, .. } => (clearance.seen.as_ref(), draft),
            Request::Settle { seen, draft, .. } => (Some(seen), draft),
            Request::Renew { .. } => unreachable!("answered above"),
        };
        match self.judge(there.as_ref(), expected, draft, request) {
            Verdict::Refuse => {
                self.note_refusal(there.as_ref(), request);
                lost(there)
            }
            Verdict::Repeated => {
                self.world.saw(Witness::RepeatedWrite);
                Swap::Won(there.expect("judged to be there").0)
            }
            Verdict::Write => {
                self.judge_write(there.as_ref(), request);
                self.write(draft)
            }
        }
    }

    fn judge(
        &self,
        there: Option<&Stored>,
        expected: Option<&Stored>,
        draft: &Written,
        request: &Request,
    ) -> Verdict {
        let version = |record: &Stored| record.0.version;
        let verdict = judge(there.map(version), expected.map(version), draft.0.version);
        let by_fence = self.rules.plant == Some(Plant::TakeoverByFence)
            && matches!(request, Request::Claim { .. })
            && there.is_some_and(|there| there.0.is_open())
            && there.map(|there| there.0.fence) == expected.map(|seen| seen.0.fence);
        if by_fence { Verdict::Write } else { verdict }
    }

    fn write(&mut self, draft: &Written) -> Swap {
        let record = Kept::new(Draft::clone(&draft.0).at(NOW));
        if matches!(record.0.phase, Phase::Done { .. }) {
            self.world.trace.told = Some(record.clone());
        }
        let deletes = self.rules.plant == Some(Plant::ReleaseDeletes)
            && matches!(record.0.phase, Phase::Released { .. });
        self.world.slot = if deletes { None } else { Some(record.clone()) };
        Swap::Won(record.0)
    }

    fn extend(&mut self, there: &Stored, fence: Fence) -> Swap {
        let lease = self.rules.policy().lease();
        let Some(renewed) = there.0.renewed(NOW, lease) else {
            return Swap::Lost(Some(there.0.clone()));
        };
        if there.0.fence != fence {
            self.world.broke(Broken::StaleFenceWrote);
        }
        let renewed = Kept::new(renewed);
        self.world.slot = Some(renewed.clone());
        Swap::Won(renewed.0)
    }

    fn note_refusal(&mut self, there: Option<&Stored>, request: &Request) {
        let Some(there) = there else { return };
        match request {
            Request::Claim { clearance: Clearance { seen: Some(seen), .. }, .. } => {
                let Version { write, renewal } = seen.0.version;
                let now = there.0.version;
                if now.write == write && now.renewal != renewal {
                    self.world.saw(Witness::RenewalBeatTakeover);
                }
            }
            Request::Settle { seen, operator: false, .. } if there.0.fence != seen.0.fence => {
                self.world.saw(Witness::StaleRefused);
            }
            Request::Claim { .. } | Request::Settle { .. } | Request::Renew { .. } => {}
        }
    }

    /// Judges a write by what it replaces. Nothing here asks whether the versions were right.
    fn judge_write(&mut self, there: Option<&Stored>, request: &Request) {
        let standing = there.map_or(Standing::Free, |record| record.0.standing(NOW));
        match request {
            Request::Claim { clearance, draft, .. } => {
                self.judge_claim(there, &standing, clearance, draft.0.fence);
            }
            Request::Settle { operator: true, draft, .. } => {
                if !matches!(standing, Standing::Unknown { .. }) {
                    self.world.broke(Broken::TookWhatIsNotFree);
                }
                // What an operator decides about is over, whatever it was.
                (self.world.trace.effects, self.world.trace.orphan) = (0, None);
                self.world.trace.ended.insert(draft.0.fence);
            }
            Request::Settle { operator: false, draft, .. } => {
                let own = there.is_some_and(|there| there.0.fence == draft.0.fence);
                if !own || !there.is_some_and(|there| there.0.is_open()) {
                    self.world.broke(Broken::StaleFenceWrote);
                }
                self.judge_settlement(&standing, draft);
            }
            Request::Renew { .. } => {}
        }
    }

    fn judge_claim(
        &mut self,
        there: Option<&Stored>,
        standing: &Standing<'_>,
        clearance: &Clearance,
        fence: Fence,
    ) {
        let asked = &self.rules.asks[usize::from(clearance.other)].asked;
        let same = there.is_some_and(|there| asked.is_same(&there.0.fingerprint));
        let retry = self.rules.policy().on_unknown() == OnUnknown::Retry;
        let allowed = match standing {
            Standing::Free => true,
            Standing::Unknown { .. } => retry && clearance.recovery && same,
            Standing::Live { .. } | Standing::Final { .. } | Standing::Retryable(_) => false,
        };
        if !allowed {
            self.world.broke(Broken::TookWhatIsNotFree);
        }
        if self.world.trace.ended.contains(&fence) {
            self.world.broke(Broken::LivesAgain);
        }
        if self.world.trace.orphan.take().is_some() && !clearance.recovery {
            self.world.broke(Broken::RecoveryNotTold);
        }
        if let Some(there) = there {
            self.world.trace.ended.insert(there.0.fence);
            match standing {
                Standing::Unknown { .. } => self.world.saw(Witness::Takeover),
                Standing::Free if matches!(there.0.phase, Phase::Done { .. }) => {
                    self.world.saw(Witness::ExecutedAfterRetention);
                }
                Standing::Free
                | Standing::Live { .. }
                | Standing::Final { .. }
                | Standing::Retryable(_) => {}
            }
        }
    }

    fn judge_settlement(&mut self, standing: &Standing<'_>, draft: &Written) {
        let fence = draft.0.fence;
        match draft.0.phase {
            Phase::Unknown { .. } => return,
            Phase::Done { .. } => {
                if matches!(standing, Standing::Unknown { .. }) {
                    self.world.saw(Witness::SettledLate);
                }
            }
            // A release speaks for its own attempt only, never for one before it.
            Phase::Released { .. } => {}
            Phase::Claimed { .. } => unreachable!("a settlement is no claim"),
        }
        self.world.trace.ended.insert(fence);
        if self.world.trace.orphan == Some(fence) {
            self.world.trace.orphan = None;
        }
    }

    /// Removes what may be removed.
    pub(crate) fn sweep(&mut self) {
        self.world.slot = None;
    }

    /// Whether the sweeper may come.
    pub(crate) fn is_removable(&self) -> bool {
        let Some(there) = &self.world.slot else { return false };
        let planted = self.rules.plant == Some(Plant::ExpiryFreesClaims)
            && matches!(there.0.phase, Phase::Claimed { lease_until } if lease_until <= NOW);
        planted || there.0.is_removable(NOW)
    }
}
