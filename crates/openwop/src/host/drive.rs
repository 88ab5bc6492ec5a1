//! Drives a run: takes steps, executes what is outside the store, comes back with what it came to.
//!
//! One driver for each run in this process. A driver holds nothing that the store does not have:
//! when it is gone, another one goes on from the last commit. While it waits it renews the lease of
//! its run; a driver that falls silent is replaced when that has passed.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onetake_core::Tenant;
use onetake_engine::{Journal, RunError};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::step::Stepped;
use super::{Host, lock};
use crate::books::RunKey;
use crate::nodes::NodeEnd;
use crate::run::Status;

/// The most runs that are driven or wait to be; what finds no room is found by the schedule.
const DRIVEN_MAX: usize = 100_000;
/// The most of them that are one tenant's.
const DRIVEN_OF_TENANT_MAX: usize = DRIVEN_MAX / 2;
/// How often in a lease a driver that waits looks at its run, and renews it where that is due.
const LOOKS_PER_LEASE: u32 = 6;
/// How long a driver that failed waits before somebody tries again.
const AGAIN_AFTER_MS: u64 = 1_000;

/// The runs that are driven here, or wait to be.
#[derive(Debug, Default)]
pub(super) struct Seats {
    runs: HashMap<RunKey, Arc<Driven>>,
    /// How many each tenant has.
    tenants: HashMap<Tenant, usize>,
}

impl Seats {
    fn get(&self, key: &RunKey) -> Option<&Arc<Driven>> {
        self.runs.get(key)
    }

    /// Takes a seat, if there is one left for the tenant of the run.
    fn take(&mut self, key: &RunKey) -> Option<Arc<Driven>> {
        let own = self.tenants.get(&key.tenant).copied().unwrap_or(0);
        if self.runs.len() >= DRIVEN_MAX || own >= DRIVEN_OF_TENANT_MAX {
            return None;
        }
        let there = Arc::new(Driven::default());
        self.runs.insert(key.clone(), Arc::clone(&there));
        *self.tenants.entry(key.tenant.clone()).or_default() += 1;
        Some(there)
    }

    fn leave(&mut self, key: &RunKey) {
        if self.runs.remove(key).is_none() {
            return;
        }
        if let Entry::Occupied(mut own) = self.tenants.entry(key.tenant.clone()) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

/// A run that is driven here.
#[derive(Debug, Default)]
pub(super) struct Driven {
    notify: Notify,
    /// Whether something happened that its driver has not seen.
    poked: AtomicBool,
}

/// What a node came to, which try of it, and since when.
type Came = (String, u32, u64, NodeEnd);

/// A run that this process drives, until it no longer does.
struct Seat<'h, S: Journal> {
    host: &'h Host<S>,
    key: &'h RunKey,
}

impl<S: Journal> Drop for Seat<'_, S> {
    fn drop(&mut self) {
        lock(&self.host.0.driven).leave(self.key);
    }
}

impl<S: Journal> Host<S> {
    /// Sees to it that the run is driven from where it stands now.
    pub(crate) fn drive(&self, key: RunKey) {
        let mut driven = lock(&self.0.driven);
        if let Some(there) = driven.get(&key) {
            there.poked.store(true, Ordering::SeqCst);
            there.notify.notify_one();
            return;
        }
        let seat = if self.0.end.is_cancelled() { None } else { driven.take(&key) };
        drop(driven);
        let Some(there) = seat else { return };
        self.spawn(self.clone().driver(key, there));
    }

    /// Lets the driver of a run look again, if there is one here.
    pub(super) fn poke(&self, key: &RunKey) {
        if let Some(there) = lock(&self.0.driven).get(key) {
            there.poked.store(true, Ordering::SeqCst);
            there.notify.notify_one();
        }
    }

    async fn driver(self, key: RunKey, there: Arc<Driven>) {
        let turn = self.0.driving.take(&key.tenant).await;
        // Also when a step panics: a run that nobody drives must not look driven.
        let seat = Seat { host: &self, key: &key };
        loop {
            there.poked.store(false, Ordering::SeqCst);
            let driven = self.drive_to_rest(&key, &there).await;
            if let Err(error) = driven {
                tracing::warn!(run = %key.id, %error, "a run cannot go on at the moment");
                self.0.timers.add(vec![(AGAIN_AFTER_MS, key.clone())]);
            }
            let mut all = lock(&self.0.driven);
            // What was said since the last step would be said to nobody.
            if self.0.end.is_cancelled() || !there.poked.load(Ordering::SeqCst) {
                all.leave(&key);
                break;
            }
        }
        // It is gone already, and somebody else may have taken a seat since.
        std::mem::forget(seat);
        drop(turn);
    }

    /// Takes steps until the run waits for something that is not this driver's to bring.
    async fn drive_to_rest(&self, key: &RunKey, there: &Driven) -> Result<(), RunError> {
        let mut outside: JoinSet<Came> = JoinSet::new();
        let look_every = self.0.settings.lease / LOOKS_PER_LEASE;
        let (mut begun, mut came) = (HashSet::new(), Vec::<Came>::new());
        while !self.0.end.is_cancelled() {
            there.poked.store(false, Ordering::SeqCst);
            let stepped = self.step(key, |machine| {
                machine.driven_by(&self.0.id, self.0.settings.is_alone);
                for (node, attempt, since, end) in &came {
                    machine.came_back(node, *attempt, *since, end.clone())?;
                }
                Ok(())
            });
            let Some(Stepped { run, is_cut, now }) = stepped.await? else { return Ok(()) };
            came.clear();
            if run.status.is_terminal() {
                return Ok(());
            }
            if is_cut {
                continue;
            }
            // Another host executes its nodes, and is left alone while it lives.
            if run.driver.as_ref().is_some_and(|driver| *driver != self.0.id) {
                return Ok(());
            }
            let rests = run.status == Status::Paused;
            for (node, state) in run.outside().filter(|_| !rests) {
                if begun.insert((node.to_owned(), state.attempt, state.since)) {
                    let (host, key, run) = (self.clone(), key.clone(), run.clone());
                    let (node, attempt, since) = (node.to_owned(), state.attempt, state.since);
                    outside.spawn(async move {
                        let end = host.execute(&key, &run, &node, now).await;
                        (node, attempt, since, end)
                    });
                }
            }
            // A run that rests is told of what comes back; nothing follows from it for now.
            if outside.is_empty() {
                return Ok(());
            }
            tokio::select! {
                Some(joined) = outside.join_next() => came.extend(joined.ok()),
                () = there.notify.notified() => {}
                () = sleep(look_every) => {}
                () = self.0.end.cancelled() => return Ok(()),
            }
            while let Some(joined) = outside.try_join_next() {
                came.extend(joined.ok());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_runs_one_tenant_has_those_of_others_find_a_seat() {
        let (slow, quick) = (Tenant::new("slow").unwrap(), Tenant::new("quick").unwrap());
        let mut seats = Seats::default();
        let taken =
            (0..DRIVEN_MAX).filter(|n| seats.take(&RunKey::new(&slow, &n.to_string())).is_some());
        assert_eq!(taken.count(), DRIVEN_OF_TENANT_MAX);
        let other = RunKey::new(&quick, "run");
        assert!(seats.take(&other).is_some());
        seats.leave(&other);
        seats.leave(&other);
        for n in 0..DRIVEN_MAX {
            seats.leave(&RunKey::new(&slow, &n.to_string()));
        }
        assert!(seats.runs.is_empty() && seats.tenants.is_empty());
    }
}
