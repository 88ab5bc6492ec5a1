//! Acts on one record: release it, or settle its unknown outcome.
//!
//! An act is judged on what the operator saw. It has an id made of that and of what is asked, so
//! the same act said twice, by a person or by a network, is done and audited once. A live claim is
//! ended only by force, and its owner is fenced when it comes back.

use std::time::Duration;

use onetake_core::{
    Actor, Asked, Draft, Fence, Keeping, Outcome, Phase, Policy, Record, Settlement, Slot, Status,
    Version,
};

use super::{ActName, Audit, Kind, OperateError, Row, TOMBSTONE};
use crate::engine::Engine;
use crate::error::RunError;
use crate::journal::{Journal, Tx};
use crate::metrics::acted;
use crate::store::{Stamped, StoreError};
use crate::wait::News;

/// How often an act is judged anew because the record moved on.
const ROUNDS_MAX: u32 = 8;

/// What an operator decided upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Exactly this write of a record, whose owner is not alive.
    Record(Version),
    /// This claim, by force: also while its owner is alive. A renewal changes nothing.
    Claim(Fence),
}

/// What an act came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acted {
    /// The record as it is now.
    pub row: Row,
    /// Whether the very same act had been done before. Nothing was changed then.
    pub repeated: bool,
}

/// One act, before it is carried out.
struct Act<'a> {
    name: ActName,
    by: &'a Actor,
    slot: &'a Slot,
    seen: Seen,
    /// The version that the act writes; the same for the same act.
    write: u128,
}

impl<S: Journal> Engine<S> {
    /// Frees the key of the record in `slot`: the next attempt counts as a first one. Leaves a
    /// tombstone, and tells those who wait in this process that the key is free.
    ///
    /// An unknown or finished record is released by the version that was seen. A live claim needs
    /// its fence ([`Seen::Claim`]); its owner may be in the middle of an effect, which is then
    /// forgotten, and is fenced when it wants to record the outcome.
    ///
    /// # Errors
    /// An [`OperateError`]. Nothing was changed unless it is [`OperateError::Uncertain`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves the act done whole or not at all; say the same again.
    pub async fn release(
        &self,
        by: &Actor,
        slot: &Slot,
        seen: Seen,
    ) -> Result<Acted, OperateError> {
        let write = act_id(b"release", seen, &[]);
        let act = Act { name: ActName::Released, by, slot, seen, write };
        let judge = |record: &Record, row: &Row| match (seen, row.kind) {
            (Seen::Record(_), Kind::Live) => Err(live(record, row)),
            (_, Kind::Free) if matches!(record.phase, Phase::Released { .. }) => {
                Err(OperateError::Settled(Box::new(row.clone())))
            }
            _ => Ok(()),
        };
        let draft = |record: &Record| tombstone(record, write);
        self.carry_out(&act, judge, draft, &Settlement::Freed(None)).await
    }

    /// Settles the unknown outcome of the record in `slot`: `outcome` answers every further attempt
    /// for `keep`, and those who wait in this process at once. Its owner, should it come back, is
    /// fenced.
    ///
    /// # Errors
    /// An [`OperateError`]. Nothing was changed unless it is [`OperateError::Uncertain`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves the act done whole or not at all; say the same again.
    pub async fn resolve(
        &self,
        by: &Actor,
        slot: &Slot,
        seen: Version,
        outcome: Outcome,
        keep: Duration,
    ) -> Result<Acted, OperateError> {
        if outcome.weight() > self.0.limits.outcome_bytes_max {
            return Err(StoreError::TooLarge("the outcome has more bytes than are kept").into());
        }
        let policy = Policy::builder().retention(keep).build()?;
        let seen = Seen::Record(seen);
        let write = act_id(b"resolve", seen, &parts_of(&outcome, keep));
        let act = Act { name: ActName::Resolved, by, slot, seen, write };
        let settlement = Settlement::Done { outcome: outcome.into(), keeping: Keeping::Final };
        let judge = |record: &Record, row: &Row| match row.kind {
            Kind::Unknown => Ok(()),
            Kind::Live => Err(live(record, row)),
            Kind::Done | Kind::Retryable | Kind::Free => {
                Err(OperateError::Settled(Box::new(row.clone())))
            }
        };
        let draft = |record: &Record| settlement.draft(record, &policy, write);
        self.carry_out(&act, judge, draft, &settlement).await
    }

    /// Judges what is there, commits the draft with its audit entry, and tells who waits.
    async fn carry_out(
        &self,
        act: &Act<'_>,
        judge: impl Fn(&Record, &Row) -> Result<(), OperateError>,
        draft: impl Fn(&Record) -> Draft,
        settlement: &Settlement,
    ) -> Result<Acted, OperateError> {
        self.refuse_when_stopping()?;
        let mut unsure = false;
        for _ in 0..ROUNDS_MAX {
            let Stamped { now, value } = self.read(act.slot).await?;
            let there = value.ok_or(if unsure {
                OperateError::Uncertain
            } else {
                OperateError::Missing
            })?;
            let row = Row::of(&there, now);
            if { there.version.write } == act.write {
                return Ok(Acted { row, repeated: !unsure });
            }
            let is_as_seen = match act.seen {
                Seen::Record(version) => there.version == version,
                Seen::Claim(fence) => there.fence == fence && there.is_open(),
            };
            match (is_as_seen, unsure) {
                (true, _) => judge(&there, &row)?,
                (false, false) => return Err(OperateError::Changed(Box::new(row))),
                // It may have been done, and replaced since.
                (false, true) => return Err(OperateError::Uncertain),
            }
            let next = draft(&there);
            let after = next.clone().at(now);
            let audit = Audit {
                after: Some(Row::of(&after, now).kind),
                forced: matches!(act.seen, Seen::Claim(_)),
                ..Audit::of_record(act.name, act.by.as_str(), &there, now)
            };
            let tx = Tx::on_slot(Some(there.version), next.clone()).write(audit.append());
            if let Some(now) = self.commit_known(tx, &mut unsure).await? {
                let record = next.at(now);
                self.tell(act, &record);
                self.0.waiters.settle(act.slot, || News::of(&record, settlement.clone()));
                if matches!(there.phase, Phase::Done { .. }) {
                    self.outwait_memories().await;
                }
                return Ok(Acted { row: Row::of(&record, now), repeated: false });
            }
        }
        Err(RunError::Busy("the record moves on too fast").into())
    }

    fn tell(&self, act: &Act<'_>, record: &Record) {
        acted(act.name, 1);
        tracing::info!(
            act = act.name.as_str(),
            by = act.by.as_str(),
            slot = %self.0.meters.veiled(act.slot),
            operation = record.address.operation().as_str(),
            fence = %record.fence,
            "an operator acted on a record",
        );
    }
}

/// The tombstone of `record`: its key is free, and a late copy of its claim finds it taken.
pub(crate) fn tombstone(record: &Record, write: u128) -> Draft {
    Draft {
        version: Version::of_write(write),
        fence: record.fence,
        address: record.address.clone(),
        fingerprint: record.fingerprint.clone(),
        attempt: record.attempt,
        recovery: false,
        since: Duration::ZERO,
        phase: Phase::Released { until: TOMBSTONE },
    }
}

fn live(record: &Record, row: &Row) -> OperateError {
    let left = row.until.map_or(Duration::ZERO, |end| end.since(row.since.after(row.age)));
    OperateError::Live { fence: record.fence, left }
}

/// Names an act by what it is and what was seen. What was seen is never there again once it was
/// replaced, so no two acts that both happen share an id.
fn act_id(name: &[u8], seen: Seen, parts: &[Vec<u8>]) -> u128 {
    let (tag, id, renewal) = match seen {
        Seen::Record(Version { write, renewal }) => (0_u8, write, renewal),
        Seen::Claim(Fence(id)) => (1, id, 0),
    };
    let mut bytes = b"onetake/act/1".to_vec();
    bytes.extend_from_slice(name);
    bytes.push(tag);
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(&renewal.to_be_bytes());
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    let asked = Asked::raw(bytes);
    let half = asked.fingerprint().digest().first_chunk();
    u128::from_be_bytes(*half.expect("invariant: a digest has 32 bytes"))
}

/// Everything that makes one resolution another one.
fn parts_of(outcome: &Outcome, keep: Duration) -> Vec<Vec<u8>> {
    let mut parts = vec![keep.as_nanos().to_be_bytes().to_vec()];
    let status = |code: u16| code.to_be_bytes().to_vec();
    match outcome {
        Outcome::Response { status: code, headers, body } => {
            parts.extend([b"response".to_vec(), status(code.code())]);
            for header in headers {
                parts.extend([header.name.as_bytes().to_vec(), header.value.to_vec()]);
            }
            parts.push(body.to_vec());
        }
        Outcome::Value(bytes) => parts.extend([b"value".to_vec(), bytes.to_vec()]),
        Outcome::Failure(bytes) => parts.extend([b"failure".to_vec(), bytes.to_vec()]),
        Outcome::NotKept { status: code } => {
            parts.extend([b"not kept".to_vec(), status(code.map_or(0, Status::code))]);
        }
    }
    parts
}
