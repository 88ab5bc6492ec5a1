//! Purges a tenant: what it has becomes tombstones without content, in bounded steps.
//!
//! A live claim is left alone and counted, because its owner may be in the middle of an effect. A
//! step is one commit with its audit entry, so a purge that is cut off is simply begun again. The
//! tombstones go with the sweeper once they are past their time; nothing of any other tenant is
//! ever read.

use std::sync::Arc;

use onetake_core::{Actor, Operation, Phase, Record, Slot, Standing, Tenant, Timestamp};
use tokio::task::yield_now;

use super::act::tombstone;
use super::list::{LOOK_MAX, READ_STEP, no_reply};
use super::{ActName, Audit, Bookmark, OperateError};
use crate::engine::Engine;
use crate::error::RunError;
use crate::journal::{Check, Found, Journal, Place, Tx, Write};
use crate::metrics::acted;

/// Records of one commit, at most.
const STEP: usize = 250;
/// How often one step is judged anew because some of its records moved on.
const ROUNDS_MAX: u32 = 8;

/// What one call of a purge did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Purged {
    /// Records that became tombstones.
    pub tombstones: usize,
    /// Live claims that were left alone. Purge again when they have ended.
    pub live: usize,
    /// Where to go on; `None` when the whole tenant was seen.
    pub next: Option<Bookmark>,
}

/// What is to become of one record.
enum Fate {
    /// It becomes a tombstone.
    Ends,
    /// It is a live claim and left to its owner.
    Lives,
    /// It is a tombstone already. Another one would only live longer.
    IsGone,
}

impl Fate {
    fn of(record: &Record, now: Timestamp) -> Self {
        match record.standing(now) {
            Standing::Live { .. } => Self::Lives,
            Standing::Free if matches!(record.phase, Phase::Released { .. }) => Self::IsGone,
            Standing::Free
            | Standing::Unknown { .. }
            | Standing::Final { .. }
            | Standing::Retryable(_) => Self::Ends,
        }
    }
}

/// What is purged, and for whom.
struct Order<'a> {
    by: &'a Actor,
    tenant: &'a Tenant,
    operation: Option<&'a Operation>,
}

impl<S: Journal> Engine<S> {
    /// Turns every finished and unknown record of `tenant`, or of one operation of it, into a
    /// tombstone without its content. Live claims are left alone and counted.
    ///
    /// Looks at a bounded number of records: go on at `next` until there is none. Beginning again
    /// is harmless. Each commit has one audit entry with its counts.
    ///
    /// # Errors
    /// When the store fails; what was purged before stays purged.
    ///
    /// # Cancel safety
    /// Stops between two commits; call again.
    pub async fn purge(
        &self,
        by: &Actor,
        tenant: &Tenant,
        operation: Option<&Operation>,
        after: Option<&Bookmark>,
    ) -> Result<Purged, OperateError> {
        self.refuse_when_stopping()?;
        let order = Order { by, tenant, operation };
        let mut purged = Purged::default();
        let mut last = after.map(|mark| mark.0.clone());
        let (mut looked_at, mut step, mut live) = (0, Vec::new(), 0);
        let more = loop {
            let scan = self.0.store.scan_slots(Some(tenant), last.as_ref(), READ_STEP);
            let page = self.in_time(scan).await.ok_or_else(no_reply)??;
            let (now, page) = (page.now, page.value);
            looked_at += page.items.len();
            if let Some(record) = page.items.last() {
                last = Some(record.address.slot().clone());
            }
            for record in page.items {
                if operation.is_some_and(|wanted| record.address.operation() != wanted) {
                    continue;
                }
                match Fate::of(&record, now) {
                    Fate::Ends => step.push(record),
                    Fate::Lives => live += 1,
                    Fate::IsGone => {}
                }
                if step.len() == STEP {
                    self.bury(&order, std::mem::take(&mut step), live, &mut purged).await?;
                    live = 0;
                    yield_now().await;
                }
            }
            if !page.more || looked_at >= LOOK_MAX {
                break page.more;
            }
        };
        self.bury(&order, step, live, &mut purged).await?;
        if purged.tombstones > 0 {
            self.outwait_memories().await;
        }
        purged.next = last.filter(|_| more).map(Bookmark);
        Ok(purged)
    }

    /// Commits one step. Records that moved on since they were read are judged anew.
    async fn bury(
        &self,
        order: &Order<'_>,
        mut step: Vec<Arc<Record>>,
        mut live: usize,
        purged: &mut Purged,
    ) -> Result<(), OperateError> {
        let (mut unsure, mut writes) = (false, Vec::new());
        for _ in 0..ROUNDS_MAX {
            let Some((first, others)) = step.split_first() else {
                purged.live += live;
                return Ok(());
            };
            let write = self.0.mint.id();
            writes.push(write);
            let mut tx = Tx::on_slot(Some(first.version), tombstone(first, write));
            for record in others {
                let check = Check::Slot(record.address.slot().clone(), Some(record.version));
                tx = tx.check(check).write(Write::Slot(tombstone(record, write)));
            }
            let audit = Audit {
                tombstones: Some(step.len()),
                live: Some(live),
                ..Audit::of_many(order.by, order.tenant, order.operation)
            };
            if self.commit_known(tx.write(audit.append()), &mut unsure).await?.is_some() {
                self.told(order, &step);
                purged.tombstones += step.len();
                purged.live += live;
                return Ok(());
            }
            // An earlier copy of this step may be written although the store could not say so.
            let slots: Vec<_> = step.iter().map(|record| record.address.slot().clone()).collect();
            step.clear();
            let (now, found) = self.fetch_slots(&slots).await?;
            for record in found {
                match Fate::of(&record, now) {
                    Fate::Ends => step.push(record),
                    Fate::Lives => live += 1,
                    Fate::IsGone if writes.contains(&{ record.version.write }) => {
                        purged.tombstones += 1;
                    }
                    Fate::IsGone => {}
                }
            }
        }
        Err(RunError::Busy("the records move on too fast").into())
    }

    fn told(&self, order: &Order<'_>, step: &[Arc<Record>]) {
        acted(ActName::Purged, step.len() as u64);
        for record in step {
            self.0.waiters.nudge(record.address.slot());
        }
        let (by, tombstones) = (order.by.as_str(), step.len());
        tracing::info!(act = "purged", by, tombstones, "an operator acted on records");
    }

    /// Waits until no other process answers any more with what was just replaced.
    pub(super) async fn outwait_memories(&self) {
        let span = self.0.store.remembered_elsewhere();
        if !span.is_zero() {
            tokio::time::sleep(span).await;
        }
    }

    async fn fetch_slots(
        &self,
        slots: &[Slot],
    ) -> Result<(Timestamp, Vec<Arc<Record>>), OperateError> {
        let places: Vec<_> = slots.iter().cloned().map(Place::Slot).collect();
        let fetch = self.0.store.fetch(&places);
        let fetched = self.in_time(fetch).await.ok_or_else(no_reply)??;
        let records = fetched.value.into_iter().filter_map(|found| match found {
            Found::Slot(record) => record,
            Found::Doc(_) | Found::Counter(_) | Found::Cursor(_) => None,
        });
        Ok((fetched.now, records.collect()))
    }
}
