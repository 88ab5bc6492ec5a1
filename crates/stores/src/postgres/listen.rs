//! Hears of claims that other processes settled, over one connection that goes past any pooler.
//!
//! Only slots that somebody waits for are announced: whoever waits marks the row, and whoever
//! settles it says so to everybody in the same transaction. Being told too often is harmless; being
//! told never only means that the waiter looks for itself, as it does anyway.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_postgres::Notification;
use xxhash_rust::xxh3::xxh3_64;

use super::link::Dial;

/// The most slots that are waited for; whoever comes then looks for itself.
const WATCHED_MAX: usize = 65_536;
/// The most notifications that wait to be read.
const HEARD_MAX: usize = 4_096;
/// Before a broken connection is made again.
const PAUSE: Duration = Duration::from_secs(1);
/// The most of that, after many times.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Nothing else shows that a connection on which nobody speaks is broken.
const PING_EVERY: Duration = Duration::from_secs(10);

/// What is between two names in a notification.
const BETWEEN: char = ',';

/// How a slot is called in a notification. Two slots of one name are only both woken.
pub(super) fn name(slot: &[u8]) -> i64 {
    i64::from_ne_bytes(xxh3_64(slot).to_ne_bytes())
}

/// Who waits for what.
#[derive(Debug, Default)]
pub(super) struct Watched {
    slots: Mutex<HashMap<i64, watch::Sender<()>>>,
}

impl Watched {
    fn slots(&self) -> MutexGuard<'_, HashMap<i64, watch::Sender<()>>> {
        self.slots.lock().expect("invariant: no panic under the lock")
    }

    /// Waits for `slot` from now on; `None` when too many are waited for. Says whether nobody did.
    pub(super) fn join(self: &Arc<Self>, slot: &[u8]) -> Option<(Watching, bool)> {
        let name = name(slot);
        let mut slots = self.slots();
        let is_first = !slots.contains_key(&name);
        if is_first && slots.len() >= WATCHED_MAX {
            return None;
        }
        let ear = slots.entry(name).or_insert_with(|| watch::Sender::new(())).subscribe();
        drop(slots);
        Some((Watching { watched: Arc::clone(self), name, ear }, is_first))
    }

    fn wake(&self, name: i64) {
        if let Some(slot) = self.slots().get(&name) {
            slot.send_replace(());
        }
    }

    /// After a gap nobody knows what was said.
    fn wake_all(&self) {
        for slot in self.slots().values() {
            slot.send_replace(());
        }
    }
}

/// One who waits. Leaving, in whatever way, is noticed.
pub(super) struct Watching {
    watched: Arc<Watched>,
    name: i64,
    ear: watch::Receiver<()>,
}

impl Watching {
    pub(super) async fn told(&mut self) {
        if self.ear.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut slots = self.watched.slots();
        // The receiver of this one is still counted.
        if slots.get(&self.name).is_some_and(|slot| slot.receiver_count() <= 1) {
            slots.remove(&self.name);
        }
    }
}

/// Listens for as long as anybody may wait.
pub(super) async fn listen(watched: std::sync::Weak<Watched>, dial: Arc<Dial>, channel: String) {
    let mut pause = PAUSE;
    loop {
        let (heard, mut said) = mpsc::channel::<Notification>(HEARD_MAX);
        let client = match dial.listening(heard).await {
            Ok(client) => client,
            Err(failed) => {
                tracing::warn!(error = %onetake_engine::StoreError::from(failed),
                    "nobody can be heard over listen_url; waiters look for themselves");
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
                if watched.strong_count() == 0 {
                    return;
                }
                continue;
            }
        };
        let sql = format!("LISTEN {channel}");
        let listening = timeout(dial.reply_within, client.batch_execute(&sql)).await;
        let Some(open) = watched.upgrade() else { return };
        open.wake_all();
        drop(open);
        if !matches!(listening, Ok(Ok(()))) {
            tracing::warn!(?listening, "the database of listen_url does not let us listen");
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            continue;
        }
        pause = PAUSE;
        loop {
            let said = tokio::select! {
                said = said.recv() => said,
                () = sleep(PING_EVERY) => {
                    let pong = timeout(dial.reply_within, client.batch_execute("")).await;
                    if !matches!(pong, Ok(Ok(()))) || watched.strong_count() == 0 {
                        break;
                    }
                    continue;
                }
            };
            let (Some(said), Some(watched)) = (said, watched.upgrade()) else { break };
            for name in said.payload().split(BETWEEN).filter_map(|name| name.parse().ok()) {
                watched.wake(name);
            }
        }
        if watched.strong_count() == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_is_told_and_nobody_is_remembered_who_left() {
        let watched = Arc::new(Watched::default());
        let (mut one, is_first) = watched.join(b"a").unwrap();
        assert!(is_first);
        let (mut other, is_first) = watched.join(b"a").unwrap();
        assert!(!is_first);
        watched.wake(name(b"a"));
        one.told().await;
        other.told().await;
        drop(one);
        assert_eq!(watched.slots().len(), 1);
        drop(other);
        assert_eq!(watched.slots().len(), 0);
    }
}
