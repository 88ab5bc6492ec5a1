//! A duplicate that waits: until the first one's outcome, its deadline, or the end of the lease.
//!
//! It is woken by the settling write, in this process or, where the store carries the word, in
//! another; it looks at the store now and then anyway. It never executes and never decides.

use std::sync::Arc;
use std::time::Duration;

use onetake_core::{Ask, Cause, OnInFlight, Record, Standing, Timestamp};
use tokio::time::{Instant, sleep_until};

use crate::answer::Answer;
use crate::engine::Engine;
use crate::store::Slots;
use crate::wait::{Call, Seat};

/// The waiting of one attempt, over all the seats that it takes.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    seat: Option<Seat>,
    /// Set with the first seat and never extended.
    deadline: Option<Instant>,
    /// Whether there ever was a seat. Who waited once stays one who waited, also between two seats.
    waited: bool,
}

impl Waiting {
    pub(crate) const fn is_seated(&self) -> bool {
        self.seat.is_some()
    }

    /// Gives the seat back; the deadline stays.
    pub(crate) fn leave(&mut self) {
        self.seat = None;
    }

    /// What a waiter hears when the rule would let it execute: the attempt that it waited for ended
    /// without an outcome that is kept, and what there is of it is shared. Only a *new* request
    /// executes again, so a freed outcome does not start a stampede.
    ///
    /// `None` when nobody waited, or when the claim fell silent: then there is nothing to share,
    /// and one of those who waited may go on.
    pub(crate) fn share(&self, found: Option<&Record>, now: Timestamp) -> Option<Answer> {
        if !self.waited {
            return None;
        }
        let Some(record) = found else { return Some(Answer::Freed) };
        match record.standing(now) {
            Standing::Unknown { cause: Cause::Silence, .. } => None,
            Standing::Unknown { since, cause } => {
                Some(Answer::Unknown { fence: record.fence, since, cause })
            }
            Standing::Retryable(outcome) | Standing::Final { outcome, .. } => {
                Some(Answer::Joined { outcome: Arc::clone(outcome), expires_at: None })
            }
            Standing::Live { .. } | Standing::Free => Some(Answer::Freed),
        }
    }

    /// Waits for the claim that is in flight, once. `None`: something may have changed, look again.
    ///
    /// The first call only takes a seat: between the look that found the claim and the seat it may
    /// have been settled, and nobody would say so again.
    pub(crate) async fn attend<S: Slots>(
        &mut self,
        engine: &Engine<S>,
        ask: &Ask,
        same: bool,
        lease_left: Duration,
    ) -> Option<Answer> {
        let refused = Some(Answer::InFlight { retry_after: lease_left });
        let OnInFlight::Wait(wait) = ask.policy.on_in_flight() else { return refused };
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + wait);
        if !same || Instant::now() >= deadline {
            return refused;
        }
        let Some(seat) = &mut self.seat else {
            self.seat = engine.0.waiters.join(ask.address.slot());
            self.waited |= self.seat.is_some();
            return if self.seat.is_some() { None } else { refused };
        };
        // A lapse is seen by looking just after it, on the store's clock.
        let look = engine.0.limits.look_every.min(lease_left + Duration::from_millis(1));
        tokio::select! {
            biased;
            call = seat.hear() => match call {
                Call::Settled(news) if ask.asked.is_same(&news.fingerprint) => {
                    Some(news.to_waiter())
                }
                // Another claim of this key was settled; this seat's room is closed.
                Call::Settled(_) => {
                    self.seat = None;
                    None
                }
                Call::Look => None,
            },
            () = engine.0.store.settled(ask.address.slot()) => None,
            () = sleep_until(deadline.min(Instant::now() + look)) => None,
        }
    }
}
