//! The keys of an issuer as they are known now, and when they are fetched again.
//!
//! One fetch at a time, in a task of its own, and no oftener than its pace allows, whatever callers
//! send. While the source is down the last good keys go on for a bounded time. Nobody is verified
//! with keys that are older than that.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use onetake_core::Timestamp;
use onetake_engine::Clock;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::Refused;
use super::fetch::{AnySource, FetchError};
use super::key_set::KeySet;

/// How often keys are fetched, and how long they last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// From this age on they are fetched again, while they go on being used.
    refresh_after: Duration,
    /// From this age on they are not used before they were fetched again, unless that failed: a
    /// gate that nobody used for a while must not begin with a key that was withdrawn meanwhile.
    overdue_after: Duration,
    /// Two fetches are at least so far apart.
    apart: Duration,
    /// Keys that are older verify nothing.
    good_for: Duration,
    /// How long one fetch may take.
    fetch_within: Duration,
}

impl Pace {
    /// For a source on the network.
    pub(super) const NETWORK: Self = Self {
        refresh_after: Duration::from_secs(10 * 60),
        overdue_after: Duration::from_secs(20 * 60),
        apart: Duration::from_secs(30),
        good_for: Duration::from_secs(24 * 60 * 60),
        fetch_within: Duration::from_secs(5),
    };

    /// For a file: a look at it costs little, and a change should count soon.
    pub(super) const FILE: Self = Self {
        refresh_after: Duration::from_secs(5),
        overdue_after: Duration::from_secs(10),
        apart: Duration::from_secs(1),
        ..Self::NETWORK
    };
}

/// The keys of one issuer.
pub(super) struct KeyRing {
    shared: Arc<Shared>,
    /// The fetch that is under way; it ends with the ring.
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

struct Shared {
    source: Box<dyn AnySource>,
    pace: Pace,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Counts the fetches that have ended, for those who wait for one.
    ended: watch::Sender<u64>,
}

/// What is known.
#[derive(Default)]
struct State {
    good: Option<Good>,
    /// When the last fetch began.
    asked_at: Option<Timestamp>,
    /// Whether a fetch is under way.
    is_fetching: bool,
    /// Whether the last fetch that ended came to nothing.
    has_failed: bool,
}

/// Keys that were fetched and read.
struct Good {
    set: Arc<KeySet>,
    bytes: Bytes,
    at: Timestamp,
}

/// What a look at the keys comes to.
enum Look {
    /// These will do.
    Has(Arc<KeySet>),
    /// These will do, and it is time to ask for newer ones.
    Aging(Arc<KeySet>),
    /// These would do, but it is high time to ask for newer ones.
    Overdue(Arc<KeySet>),
    /// None of those known will do.
    Lacks,
    /// There are none that may be used.
    Empty,
}

impl KeyRing {
    /// A ring that asks `source`, and begins with `known` where keys were read before.
    pub(super) fn new(
        source: Box<dyn AnySource>,
        pace: Pace,
        clock: Arc<dyn Clock>,
        known: Option<Bytes>,
    ) -> Result<Self, FetchError> {
        let at = clock.now();
        let mut state = State::default();
        if let Some(bytes) = known {
            let set = Arc::new(KeySet::parse(&bytes)?);
            state = State { good: Some(Good { set, bytes, at }), asked_at: Some(at), ..state };
        }
        let (ended, state) = (watch::Sender::new(0), Mutex::new(state));
        let shared = Arc::new(Shared { source, pace, clock, state, ended });
        Ok(Self { shared, task: Mutex::new(None) })
    }

    /// Keys among which there is one that `will_do`, fetched anew if need be.
    ///
    /// # Cancel safety
    /// A fetch that was begun goes on.
    pub(super) async fn keys(
        &self,
        will_do: impl Fn(&KeySet) -> bool,
    ) -> Result<Arc<KeySet>, Refused> {
        // Before the look: a fetch that ends in between is seen or heard, never missed.
        let mut ended = self.shared.ended.subscribe();
        match self.shared.look(&will_do) {
            Look::Has(set) => return Ok(set),
            Look::Aging(set) => {
                self.ask();
                return Ok(set);
            }
            Look::Overdue(_) | Look::Lacks | Look::Empty => {
                if self.ask() {
                    // The task ends within its time limit, and its end is told in any case.
                    let _ = ended.changed().await;
                }
            }
        }
        match self.shared.look(&will_do) {
            Look::Has(set) | Look::Aging(set) | Look::Overdue(set) => Ok(set),
            Look::Empty => Err(Refused::Unavailable("the keys of the issuer are not known")),
            Look::Lacks if self.shared.state().has_failed => Err(Refused::Unavailable(
                "the key of the token may be new, and none can be fetched",
            )),
            Look::Lacks => Err(Refused::Invalid("no key of the issuer fits the token")),
        }
    }

    /// Begins a fetch if it is time for one. Answers whether one is under way.
    fn ask(&self) -> bool {
        let shared = &self.shared;
        {
            let mut state = shared.state();
            if state.is_fetching {
                return true;
            }
            let now = shared.clock.now();
            if state.asked_at.is_some_and(|last| now.since(last) < shared.pace.apart) {
                return false;
            }
            state.asked_at = Some(now);
            state.is_fetching = true;
        }
        let turn = Turn(Arc::clone(shared));
        let task = AbortOnDropHandle::new(tokio::spawn(turn.take()));
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        true
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state();
        let set = state.good.as_ref().map(|good| &good.set);
        f.debug_struct("KeyRing").field("set", &set).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, will_do: &impl Fn(&KeySet) -> bool) -> Look {
        let state = self.state();
        let now = self.clock.now();
        let Some(good) = state.good.as_ref() else {
            return Look::Empty;
        };
        let age = now.since(good.at);
        if age >= self.pace.good_for {
            return Look::Empty;
        }
        if !will_do(&good.set) {
            return Look::Lacks;
        }
        let set = Arc::clone(&good.set);
        // While the source is down nobody is kept waiting for it.
        let is_overdue = age >= self.pace.overdue_after && !state.has_failed;
        match (is_overdue, age >= self.pace.refresh_after) {
            (true, _) => Look::Overdue(set),
            (false, true) => Look::Aging(set),
            (false, false) => Look::Has(set),
        }
    }

    /// Takes over what was fetched. The same bytes keep the same set, and with it the tokens that
    /// were verified.
    fn take_over(&self, bytes: Bytes) -> Result<(), FetchError> {
        let is_same = self.state().good.as_ref().is_some_and(|good| good.bytes == bytes);
        let fresh = if is_same { None } else { Some(Arc::new(KeySet::parse(&bytes)?)) };
        let at = self.clock.now();
        let mut state = self.state();
        match (fresh, &mut state.good) {
            (Some(set), good) => *good = Some(Good { set, bytes, at }),
            (None, Some(good)) => good.at = at,
            (None, None) => unreachable!("invariant: only a known set can be the same"),
        }
        state.has_failed = false;
        state.is_fetching = false;
        Ok(())
    }
}

/// One fetch. However it ends, those who wait for it are told.
struct Turn(Arc<Shared>);

impl Turn {
    async fn take(self) {
        let shared = &self.0;
        let fetched = timeout(shared.pace.fetch_within, shared.source.fetch_boxed()).await;
        let fetched = fetched.unwrap_or(Err(FetchError::TimedOut));
        if let Err(why) = fetched.and_then(|bytes| shared.take_over(bytes)) {
            tracing::warn!(%why, "no new keys to verify tokens with; those known go on");
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.0.state();
        // Still running means that it did not come to good keys, be it by a panic.
        state.has_failed = std::mem::take(&mut state.is_fetching);
        drop(state);
        self.0.ended.send_modify(|count| *count = count.wrapping_add(1));
    }
}
