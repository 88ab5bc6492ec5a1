//! Forgets runs that ended long ago, a few at a time, off the way of everything else.

use std::time::Duration;

use onetake_engine::{Journal, Place, RunError, Stamped, Update};
use tokio::time::sleep;

use super::Host;
use crate::books::{self, ENDED, RunKey};

/// How often it is looked for runs to forget.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How many events of a lane one write ends.
const TRIMMED_MAX: u64 = 1_000;
/// How many are forgotten in one commit.
const BATCH: usize = 50;
/// How long it rests between two commits.
const REST: Duration = Duration::from_millis(50);

impl<S: Journal> Host<S> {
    /// Forgets runs until the end.
    pub(super) async fn keep_books(self) {
        let keep = async {
            loop {
                sleep(LOOK_EVERY).await;
                loop {
                    match self.forget_some().await {
                        Ok(0) => break,
                        Ok(_) => sleep(REST).await,
                        Err(error) => {
                            tracing::warn!(%error, "ended runs cannot be forgotten");
                            break;
                        }
                    }
                }
            }
        };
        tokio::select! {
            () = keep => {}
            () = self.0.end.cancelled() => {}
        }
    }

    /// Forgets some runs that ended long enough ago; how many.
    pub(crate) async fn forget_some(&self) -> Result<usize, RunError> {
        let page = self.0.engine.store().scan(ENDED, b"", None, BATCH).await?;
        let Stamped { now, value: page } = page;
        let kept = u64::try_from(self.0.settings.runs_kept.as_millis()).unwrap_or(u64::MAX);
        let old: Vec<(u64, RunKey)> = page
            .items
            .iter()
            .filter_map(|(doc, _)| RunKey::of_scheduled(&doc.key))
            .take_while(|(ended, _)| ended.saturating_add(kept) <= now.as_millis())
            .collect();
        if old.is_empty() {
            return Ok(0);
        }
        let places = old.iter().map(|(_, key)| Place::Doc(key.doc())).collect();
        let anchor = books::only_doc("forgotten");
        self.0
            .engine
            .update(&anchor, places, |view| {
                let mut update = Update::to(now.as_millis().to_string(), old.len());
                for (ended, key) in &old {
                    let run = books::read_run(view, &key.tenant, &key.id)?;
                    let parent = run.as_ref().and_then(|run| run.parent.as_ref());
                    let parent = match parent {
                        Some(parent) => books::read_run(view, &key.tenant, &parent.run)?,
                        None => None,
                    };
                    // The run that it is part of may still want to know how it ended.
                    let is_wanted = parent.is_some_and(|parent| !parent.status.is_terminal());
                    let events = run.map_or(u64::MAX, |run| run.events);
                    update = if is_wanted {
                        update.writes(books::remembered(key, *ended, now.as_millis()))
                    } else {
                        // A commit trims only so many; before the last one nothing else goes.
                        let steps = if events == u64::MAX { 0 } else { events / TRIMMED_MAX };
                        let parts = (1..=steps).map(|n| books::trimmed(key, n * TRIMMED_MAX));
                        update.writes(parts).writes(books::forgotten(key, events, *ended))
                    };
                }
                Ok(update)
            })
            .await
    }
}
