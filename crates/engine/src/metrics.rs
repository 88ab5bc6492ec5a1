//! Every metric of the engine, and its labels, once.
//!
//! Handles are taken when an engine is made, so install the recorder before. No metric ever carries
//! a key, a body or a header; slots appear in logs as a hash under a key that the process never
//! tells.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};
use onetake_core::{Address, Slot};
use tracing::{Span, field};

use crate::answer::Answer;
use crate::error::RunError;
use crate::operate::ActName;

/// Walks that ended, by `answer`.
pub const ANSWERS_TOTAL: &str = "onetake_answers_total";
/// Walks that failed, by `code`.
pub const FAILURES_TOTAL: &str = "onetake_failures_total";
/// Executions that lost their claim before they were recorded. Page someone.
pub const FENCED_TOTAL: &str = "onetake_fenced_total";
/// Renewals that the store did not confirm.
pub const RENEWALS_FAILED_TOTAL: &str = "onetake_renewals_failed_total";
/// Records that the sweeper removed.
pub const SWEPT_TOTAL: &str = "onetake_swept_total";
/// Unknown outcomes that ended because nobody settled them in time.
pub const UNKNOWN_ENDED_TOTAL: &str = "onetake_unknown_ended_total";
/// Records that operators released, resolved or purged, by `act`.
pub const OPERATED_TOTAL: &str = "onetake_operated_total";
/// Executions under way.
pub const EXECUTING: &str = "onetake_executing";

/// The handles of one engine.
pub(crate) struct Meters {
    pub(crate) fenced: Counter,
    pub(crate) renewals_failed: Counter,
    pub(crate) swept: Counter,
    pub(crate) unknown_ended: Counter,
    pub(crate) executing: Gauge,
    executed: Counter,
    replayed: Counter,
    joined: Counter,
    freed: Counter,
    mismatch: Counter,
    in_flight: Counter,
    still_executing: Counter,
    unknown: Counter,
    veil: RandomState,
}

impl Meters {
    pub(crate) fn new() -> Self {
        describe_counter!(ANSWERS_TOTAL, "Walks that ended, by answer");
        describe_counter!(FAILURES_TOTAL, "Walks that failed, by code");
        describe_counter!(FENCED_TOTAL, "Executions that lost their claim: page someone");
        describe_counter!(RENEWALS_FAILED_TOTAL, "Renewals that the store did not confirm");
        describe_counter!(SWEPT_TOTAL, "Records that the sweeper removed");
        describe_counter!(UNKNOWN_ENDED_TOTAL, "Unknown outcomes that nobody settled in time");
        describe_counter!(OPERATED_TOTAL, "Records that operators acted on, by act");
        describe_gauge!(EXECUTING, "Executions under way");
        let answers = |name: &'static str| counter!(ANSWERS_TOTAL, "answer" => name);
        Self {
            fenced: counter!(FENCED_TOTAL),
            renewals_failed: counter!(RENEWALS_FAILED_TOTAL),
            swept: counter!(SWEPT_TOTAL),
            unknown_ended: counter!(UNKNOWN_ENDED_TOTAL),
            executing: gauge!(EXECUTING),
            executed: answers("executed"),
            replayed: answers("replayed"),
            joined: answers("joined"),
            freed: answers("freed"),
            mismatch: answers("mismatch"),
            in_flight: answers("in_flight"),
            still_executing: answers("still_executing"),
            unknown: answers("unknown"),
            veil: RandomState::new(),
        }
    }

    /// The span of one walk. Made only when somebody listens.
    pub(crate) fn span(&self, walk: &'static str, address: &Address) -> Span {
        let (slot, operation) = (self.veiled(address.slot()), address.operation().as_str());
        tracing::debug_span!("walk", walk, %slot, operation, ended = field::Empty)
    }

    /// Counts how a walk ended, and says so in its span.
    pub(crate) fn count(&self, ended: &Result<Answer, RunError>, span: &Span) {
        if !span.is_disabled() {
            let ended = ended.as_ref().map_or_else(|e| e.code().as_str(), Answer::name);
            span.record("ended", ended);
        }
        match ended {
            Ok(Answer::Executed { .. }) => self.executed.increment(1),
            Ok(Answer::Replayed { .. }) => self.replayed.increment(1),
            Ok(Answer::Joined { .. }) => self.joined.increment(1),
            Ok(Answer::Freed) => self.freed.increment(1),
            Ok(Answer::Mismatch) => self.mismatch.increment(1),
            Ok(Answer::InFlight { .. }) => self.in_flight.increment(1),
            Ok(Answer::StillExecuting { .. }) => self.still_executing.increment(1),
            Ok(Answer::Unknown { .. }) => self.unknown.increment(1),
            Err(error) => counter!(FAILURES_TOTAL, "code" => error.code().as_str()).increment(1),
        }
    }

    /// The slot as it may appear in a log: a hash that only this process could compute.
    pub(crate) const fn veiled<'a>(&'a self, slot: &'a Slot) -> Veiled<'a> {
        Veiled { veil: &self.veil, slot }
    }
}

/// Counts records that an operator acted on.
pub(crate) fn acted(act: ActName, records: u64) {
    counter!(OPERATED_TOTAL, "act" => act.as_str()).increment(records);
}

/// Computed only when a log line is really written.
pub(crate) struct Veiled<'a> {
    veil: &'a RandomState,
    slot: &'a Slot,
}

impl fmt::Display for Veiled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.veil.hash_one(self.slot))
    }
}
