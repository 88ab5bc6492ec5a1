//! Those in this process who follow a run: woken when it has new events.
//!
//! Knows nothing of the store. Whoever follows a run that another process drives looks now and
//! then; nobody relies on being woken.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::sync::watch;

use super::lock;
use crate::books::RunKey;

/// Those who follow runs.
#[derive(Debug, Default)]
pub(crate) struct Ears(Mutex<HashMap<RunKey, watch::Sender<u64>>>);

/// One who follows a run.
#[derive(Debug)]
pub(crate) struct Ear<'e> {
    ears: &'e Ears,
    key: RunKey,
    heard: watch::Receiver<u64>,
}

impl Ears {
    /// Listens from now on.
    pub(crate) fn listen(&self, key: &RunKey) -> Ear<'_> {
        let mut ears = lock(&self.0);
        let sender = ears.entry(key.clone()).or_insert_with(|| watch::Sender::new(0));
        Ear { ears: self, key: key.clone(), heard: sender.subscribe() }
    }

    /// A run has new events.
    pub(crate) fn tell(&self, key: &RunKey) {
        if let Some(sender) = lock(&self.0).get(key) {
            sender.send_modify(|count| *count += 1);
        }
    }
}

impl Ear<'_> {
    /// Returns when there may be new events.
    pub(crate) async fn hear(&mut self) {
        if self.heard.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Ear<'_> {
    fn drop(&mut self) {
        let mut ears = lock(&self.ears.0);
        if ears.get(&self.key).is_some_and(|sender| sender.receiver_count() <= 1) {
            ears.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use onetake_core::Tenant;

    use super::*;

    #[tokio::test]
    async fn whoever_follows_is_woken_and_leaves_nothing_behind() {
        let (ears, tenant) = (Ears::default(), Tenant::new("acme").unwrap());
        let key = RunKey::new(&tenant, "run-1");
        ears.tell(&key);
        let (mut one, mut two) = (ears.listen(&key), ears.listen(&key));
        ears.tell(&key);
        one.hear().await;
        two.hear().await;
        drop(one);
        assert_eq!(lock(&ears.0).len(), 1);
        drop(two);
        assert!(lock(&ears.0).is_empty());
    }
}
