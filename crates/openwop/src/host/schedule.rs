//! When runs are looked at: timers for what is due soon, the schedule in the store for the rest.
//!
//! The store's schedule is the truth and the timers are about speed: a run whose process is gone is
//! found by the next look, and one that is found for nothing is left as it is.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use onetake_core::Timestamp;
use onetake_engine::{Doc, Journal, Place, RunError, Stamped, Update, View, Write};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Host, lock};
use crate::books::{self, RunKey, WORK};
use crate::run::Run;

/// How often the store's schedule is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How far ahead a look reaches: a little further than the next one.
const AHEAD_MS: u64 = 6_000;
/// How many entries of the schedule are read at once.
const PAGE: usize = 500;
/// The most timers; what finds no room is found by a look.
const TIMERS_MAX: usize = 100_000;
/// How long a timer waits when nothing is due.
const IDLE: Duration = Duration::from_secs(60);

/// What is due soon, in this process.
#[derive(Debug, Default)]
pub(super) struct Timers {
    entries: Mutex<BTreeSet<(Instant, RunKey)>>,
    changed: Notify,
}

impl Timers {
    /// Looks at these runs in so many milliseconds, where that is soon.
    pub(super) fn add(&self, due: Vec<(u64, RunKey)>) {
        let soon: Vec<_> = due.into_iter().filter(|(after, _)| *after <= AHEAD_MS).collect();
        if soon.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut entries = lock(&self.entries);
        for (after, key) in soon {
            if entries.len() < TIMERS_MAX {
                entries.insert((now + Duration::from_millis(after), key));
            }
        }
        drop(entries);
        self.changed.notify_one();
    }

    /// Waits for the next run that is due.
    async fn next(&self) -> RunKey {
        loop {
            let changed = self.changed.notified();
            let first = lock(&self.entries).first().cloned();
            let at = first.as_ref().map_or_else(|| Instant::now() + IDLE, |(at, _)| *at);
            tokio::select! {
                () = sleep_until(at) => {}
                () = changed => continue,
            }
            if let Some(first) = first
                && lock(&self.entries).remove(&first)
            {
                return first.1;
            }
        }
    }
}

impl<S: Journal> Host<S> {
    /// Looks at these runs in a moment, and a little later again: what is committed for them may
    /// still be on its way.
    pub(crate) fn look_soon(&self, runs: &[RunKey]) {
        const SOON_MS: [u64; 4] = [0, 100, 1_000, 5_000];
        let soon = runs.iter().flat_map(|key| SOON_MS.map(|after| (after, key.clone())));
        self.0.timers.add(soon.collect());
    }

    /// Looks at runs when they are due, until the end.
    pub(super) async fn keep_schedule(self) {
        // Whatever is under way in a store that nobody else has was left by a process that is gone.
        let lease_ms = self.at(Timestamp::ZERO).lease_ms;
        let mut grace = if self.0.settings.is_alone { lease_ms } else { 0 };
        let timers = async {
            loop {
                self.drive(self.0.timers.next().await);
            }
        };
        let looks = async {
            loop {
                match self.look(grace).await {
                    Ok(()) => grace = 0,
                    Err(error) => tracing::warn!(%error, "the schedule of runs cannot be read"),
                }
                sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            () = timers => {}
            () = looks => {}
            () = self.0.end.cancelled() => {}
        }
    }

    /// Drives a run that is due; one that has ended, or is gone, is due no more.
    async fn drive_or_forget(&self, entry: &Doc, key: RunKey) -> Result<(), RunError> {
        let is_over = |run: Option<Run>| run.is_none_or(|run| run.status.is_terminal());
        if !is_over(self.run(&key).await?) {
            self.drive(key);
            return Ok(());
        }
        let anchor = books::only_doc("unscheduled");
        let places = vec![Place::Doc(key.doc())];
        let unschedule = |view: &View| {
            if !is_over(books::read_run(view, &key.tenant, &key.id)?) {
                return Ok(Update::nothing(()));
            }
            let now = view.now().as_millis().to_string();
            Ok(Update::to(now, ()).write(Write::Delete(entry.clone())))
        };
        self.0.engine.update(&anchor, places, unschedule).await
    }

    /// Drives every run that is due, or will be within `grace` milliseconds.
    async fn look(&self, grace: u64) -> Result<(), RunError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.0.engine.store().scan(WORK, b"", after.as_deref(), PAGE).await?;
            let Stamped { now, value: page } = page;
            let now = now.as_millis();
            let mut soon = Vec::new();
            for (doc, _) in &page.items {
                let Some((due, key)) = RunKey::of_scheduled(&doc.key) else { continue };
                if due <= now + grace {
                    self.drive_or_forget(doc, key).await?;
                } else if due <= now + AHEAD_MS {
                    soon.push((due - now, key));
                } else {
                    self.0.timers.add(soon);
                    return Ok(());
                }
            }
            self.0.timers.add(soon);
            after = page.items.last().map(|(doc, _)| doc.key.to_vec());
            if !page.more || after.is_none() {
                return Ok(());
            }
        }
    }
}
