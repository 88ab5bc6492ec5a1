//! The bounds of an engine, each with a name and a safe default.

use std::time::Duration;

use crate::wait::WaitLimits;

/// The bounds of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Executions at once; further new keys are refused, replays are not.
    pub executions_max: usize,
    /// How many duplicates may wait.
    pub waiters: WaitLimits,
    /// A store call that takes longer counts as unknown.
    pub store_within: Duration,
    /// How long a caller is kept while a finished outcome cannot be recorded.
    pub record_within: Duration,
    /// How long the engine goes on trying to record a finished outcome. Past it the claim lapses,
    /// and so its outcome is unknown.
    pub record_for: Duration,
    /// An outcome of more bytes is not kept: that it was executed is all that is remembered.
    pub outcome_bytes_max: usize,
    /// How often a waiter looks at the store unasked; owners in other processes wake nobody here.
    pub look_every: Duration,
    /// How often the sweeper begins a round.
    pub sweep_every: Duration,
    /// How many records the sweeper looks at in one step.
    pub sweep_step: usize,
    /// How often unknown outcomes that nobody settled are looked for. It looks at every record.
    pub unknowns_every: Duration,
    /// How long an unknown outcome that nobody settles is held before it ends, with an audit entry.
    pub hold_retention: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            executions_max: 100_000,
            waiters: WaitLimits::default(),
            store_within: Duration::from_secs(10),
            record_within: Duration::from_secs(5),
            record_for: Duration::from_secs(60 * 60),
            outcome_bytes_max: 10 * 1024 * 1024,
            look_every: Duration::from_secs(1),
            sweep_every: Duration::from_secs(60),
            sweep_step: 1_000,
            unknowns_every: Duration::from_secs(60 * 60),
            hold_retention: Duration::from_secs(30 * 24 * 60 * 60),
        }
    }
}
