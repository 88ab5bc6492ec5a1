//! Whose turn it is to ask about a key: one probe per key at a time, and so many in all.
//!
//! A turn ends when it is dropped, however that comes about, so a caller who leaves in the middle
//! never keeps the others waiting. Nothing here waits by itself and nothing is remembered of a turn
//! that has ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use onetake_core::Slot;
use tokio::sync::watch;

/// Probes at once in one gateway.
const PROBES_MAX: usize = 256;

/// The keys that are being asked about.
#[derive(Debug, Clone, Default)]
pub(in crate::gateway) struct Turns(Arc<Mutex<HashMap<Vec<u8>, watch::Receiver<()>>>>);

/// Whose turn it is.
pub(super) enum Turn {
    /// The caller's.
    Mine(Mine),
    /// Another's.
    Anothers(Ended),
    /// Nobody's: too much is being asked at once.
    TooMany,
}

/// The turn of one caller, until it is dropped.
pub(super) struct Mine {
    turns: Turns,
    slot: Vec<u8>,
    /// Closed when this is dropped, which is all that the others wait for.
    _open: watch::Sender<()>,
}

/// The end of another's turn.
pub(super) struct Ended(watch::Receiver<()>);

impl Ended {
    /// Waits for it.
    pub(super) async fn wait(mut self) {
        // Nothing is ever sent, so this is the end.
        let _ = self.0.changed().await;
    }
}

impl Turns {
    /// Takes the turn for `slot`, if it is free.
    pub(super) fn take(&self, slot: &Slot) -> Turn {
        let slot = slot.to_bytes();
        let mut asked = self.0.lock().expect("invariant: no panic under the lock");
        if let Some(open) = asked.get(&slot) {
            return Turn::Anothers(Ended(open.clone()));
        }
        if asked.len() >= PROBES_MAX {
            return Turn::TooMany;
        }
        let (sender, open) = watch::channel(());
        asked.insert(slot.clone(), open);
        Turn::Mine(Mine { turns: self.clone(), slot, _open: sender })
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        // Before the channel closes: whoever is woken may take the next turn at once.
        self.turns.0.lock().expect("invariant: no panic under the lock").remove(&self.slot);
    }
}

#[cfg(test)]
mod tests {
    use onetake_core::Tenant;

    use super::*;

    fn slot(number: u16) -> Slot {
        let mut digest = [0; 32];
        digest[..2].copy_from_slice(&number.to_be_bytes());
        Slot::from_parts(Tenant::new("acme").unwrap(), digest)
    }

    #[tokio::test]
    async fn one_asks_about_a_key_and_the_others_hear_when_it_ends() {
        let turns = Turns::default();
        let Turn::Mine(mine) = turns.take(&slot(1)) else { panic!("the first has its turn") };
        let Turn::Anothers(ended) = turns.take(&slot(1)) else { panic!("the second has not") };
        assert!(matches!(turns.take(&slot(2)), Turn::Mine(_)), "another key is another turn");
        drop(mine);
        ended.wait().await;
        assert!(matches!(turns.take(&slot(1)), Turn::Mine(_)));
        assert!(turns.0.lock().unwrap().is_empty(), "nothing is remembered");
    }

    #[test]
    fn so_many_in_all_and_no_more() {
        let turns = Turns::default();
        let all: Vec<_> = (0..).take(PROBES_MAX).map(|n| turns.take(&slot(n))).collect();
        assert!(all.iter().all(|turn| matches!(turn, Turn::Mine(_))));
        assert!(matches!(turns.take(&slot(9_999)), Turn::TooMany));
        assert!(matches!(turns.take(&slot(0)), Turn::Anothers(_)), "who waits asks nothing");
        drop(all);
        assert!(matches!(turns.take(&slot(9_999)), Turn::Mine(_)));
    }
}
