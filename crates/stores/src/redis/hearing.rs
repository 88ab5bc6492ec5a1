//! Who waits here for a slot to be settled by another process, and the ear on the channel where
//! that is said.
//!
//! A claim that somebody waits for is marked, and whoever replaces it says so on the channel. The
//! ear is on the channel before the mark is made, so nothing is missed; when it loses its
//! connection, everybody is woken, to look for themselves. A call here never says what came of a
//! slot.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Msg, PushInfo, PushKind};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::lane::Shared;

/// How long the ear waits before it tries again, at first and at most.
const AGAIN_MIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// How often a silent connection is asked whether it is still there.
const ASK_EVERY: Duration = Duration::from_secs(15);

/// The rooms of those who wait, by the key of their slot.
pub(super) struct Hearing {
    rooms: Mutex<HashMap<Vec<u8>, Room>>,
    slots_max: usize,
    is_live: watch::Sender<bool>,
}

struct Room {
    seated: usize,
    door: watch::Sender<()>,
}

impl Hearing {
    pub(super) fn new(slots_max: usize) -> Self {
        Self { rooms: Mutex::default(), slots_max, is_live: watch::Sender::new(false) }
    }

    fn rooms(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Room>> {
        self.rooms.lock().expect("invariant: no panic while seating")
    }

    /// Takes a seat; `None` when as many slots are watched as may be.
    pub(super) fn join(self: &Arc<Self>, key: &[u8]) -> Option<Seat> {
        let mut rooms = self.rooms();
        if rooms.len() >= self.slots_max && !rooms.contains_key(key) {
            return None;
        }
        let room = rooms
            .entry(key.to_vec())
            .or_insert_with(|| Room { seated: 0, door: watch::Sender::new(()) });
        room.seated += 1;
        let ear = room.door.subscribe();
        Some(Seat { hearing: Arc::clone(self), key: key.to_vec(), ear })
    }

    /// Returns when the ear is on the channel.
    pub(super) async fn is_live(&self) {
        let mut is_live = self.is_live.subscribe();
        let live = is_live.wait_for(|is_live| *is_live).await;
        drop(live);
    }

    fn call(&self, key: &[u8]) {
        if let Some(room) = self.rooms().get(key) {
            room.door.send_replace(());
        }
    }

    fn call_all(&self) {
        for room in self.rooms().values() {
            room.door.send_replace(());
        }
    }
}

/// One place in a room. Leaving it, in whatever way, gives it back.
pub(super) struct Seat {
    hearing: Arc<Hearing>,
    key: Vec<u8>,
    ear: watch::Receiver<()>,
}

impl Seat {
    /// Returns once something was said since the seat was taken.
    pub(super) async fn hear(&mut self) {
        // A door is not closed while somebody sits behind it.
        let _ = self.ear.changed().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut rooms = self.hearing.rooms();
        if let Some(room) = rooms.get_mut(&self.key) {
            room.seated -= 1;
            if room.seated == 0 {
                rooms.remove(&self.key);
            }
        }
    }
}

/// Listens for as long as the store is there.
pub(super) async fn listen(shared: Arc<Shared>, hearing: Arc<Hearing>) {
    let mut again = AGAIN_MIN;
    loop {
        match subscribe(&shared, &hearing).await {
            Ok(ear) => {
                again = AGAIN_MIN;
                hearing.is_live.send_replace(true);
                ear.attend().await;
                hearing.is_live.send_replace(false);
                hearing.call_all();
                tracing::warn!("the subscription to redis broke; waiters look for themselves");
            }
            Err(why) => {
                tracing::warn!(%why, "redis does not let us listen; waiters look now and then");
            }
        }
        sleep(again).await;
        again = (again * 2).min(AGAIN_MAX);
    }
}

/// A connection on the channel.
struct Ear {
    connection: MultiplexedConnection,
    is_deaf: watch::Receiver<bool>,
}

async fn subscribe(shared: &Shared, hearing: &Arc<Hearing>) -> Result<Ear, String> {
    let (deafen, is_deaf) = watch::channel(false);
    let hearing = Arc::clone(hearing);
    let hear = move |said: PushInfo| {
        if said.kind == PushKind::Disconnection {
            deafen.send_replace(true);
        } else if let Some(said) = Msg::from_push_info(said) {
            hearing.call(said.get_payload_bytes());
        }
    };
    let connection = shared.source.hearing(hear).await;
    let mut connection = connection.map_err(|error| error.to_string())?;
    let subscribed = connection.subscribe(shared.script.channel()).await;
    subscribed.map_err(|error| error.category().to_owned())?;
    Ok(Ear { connection, is_deaf })
}

impl Ear {
    /// Returns when the connection breaks.
    async fn attend(mut self) {
        let ping = redis::cmd("PING");
        // A connection that died without a word is as silent as one with nothing to say.
        while timeout(ASK_EVERY, self.is_deaf.changed()).await.is_err() {
            if self.connection.send_packed_command(&ping).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_wakes_the_room_of_its_slot_and_no_other() {
        let hearing = Arc::new(Hearing::new(2));
        let (mut one, mut other) = (hearing.join(b"a").unwrap(), hearing.join(b"b").unwrap());
        hearing.call(b"a");
        one.hear().await;
        assert!(!other.ear.has_changed().unwrap());
        hearing.call_all();
        other.hear().await;
    }

    #[test]
    fn no_more_slots_are_watched_than_may_be() {
        let hearing = Arc::new(Hearing::new(1));
        let first = hearing.join(b"a").unwrap();
        assert!(hearing.join(b"b").is_none());
        let second = hearing.join(b"a").expect("the same slot is watched already");
        drop((first, second));
        assert!(hearing.join(b"b").is_some(), "and a seat is given back");
    }
}
