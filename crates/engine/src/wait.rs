//! Where duplicates wait for the first one's outcome: woken, counted, bounded.
//!
//! A waiter takes a seat *before* it looks at the store once more, and an owner writes to the store
//! *before* it wakes the room. So a settlement is either seen in the store or heard in the room,
//! never missed. This file knows nothing of stores and never decides what a waiter may do with what
//! it hears.

use std::collections::HashMap;
use std::sync::Arc;

use onetake_core::{Fence, Fingerprint, Settlement, Slot, Tenant, Timestamp};
use tokio::sync::watch;

use crate::sync::Mutex;

/// How many may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitLimits {
    /// For one key.
    pub per_key: usize,
    /// For all keys of one tenant.
    pub per_tenant: usize,
    /// In the whole process.
    pub total: usize,
}

impl Default for WaitLimits {
    fn default() -> Self {
        Self { per_key: 1_000, per_tenant: 10_000, total: 100_000 }
    }
}

/// What a room hears when a claim is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct News {
    /// Which claim was settled.
    pub(crate) fence: Fence,
    /// When.
    pub(crate) since: Timestamp,
    /// What was asked of it.
    pub(crate) fingerprint: Fingerprint,
    /// What it came to.
    pub(crate) settlement: Settlement,
    /// Until when its record is kept, if it has an outcome.
    pub(crate) expires_at: Option<Timestamp>,
}

/// What woke a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// The claim was settled in this process.
    Settled(Arc<News>),
    /// Something changed; look at the store.
    Look,
}

/// All rooms of a process.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    limits: WaitLimits,
    rooms: Mutex<Rooms>,
}

#[derive(Debug, Default)]
struct Rooms {
    by_slot: HashMap<Slot, Room>,
    by_tenant: HashMap<Tenant, usize>,
    total: usize,
    opened: u64,
}

#[derive(Debug)]
struct Room {
    /// The number of this room in its process; tells a seat whether its room is still the open one.
    number: u64,
    seated: usize,
    door: watch::Sender<Call>,
}

impl Waiters {
    pub(crate) fn new(limits: WaitLimits) -> Self {
        Self { limits, rooms: Mutex::default() }
    }

    /// Takes a seat in the room of `slot`; `None` when the key, the tenant or the process has as
    /// many waiters as it may.
    pub(crate) fn join(self: &Arc<Self>, slot: &Slot) -> Option<Seat> {
        let mut rooms = self.rooms.lock().expect("invariant: no panic while seating");
        let rooms = &mut *rooms;
        let of_key = rooms.by_slot.get(slot).map_or(0, |room| room.seated);
        let of_tenant = rooms.by_tenant.get(slot.tenant()).copied().unwrap_or(0);
        let full = of_key >= self.limits.per_key
            || of_tenant >= self.limits.per_tenant
            || rooms.total >= self.limits.total;
        if full {
            return None;
        }
        let room = rooms.by_slot.entry(slot.clone()).or_insert_with(|| {
            rooms.opened += 1;
            Room { number: rooms.opened, seated: 0, door: watch::Sender::new(Call::Look) }
        });
        room.seated += 1;
        let (ear, room) = (room.door.subscribe(), room.number);
        *rooms.by_tenant.entry(slot.tenant().clone()).or_insert(0) += 1;
        rooms.total += 1;
        Some(Seat { waiters: Arc::clone(self), slot: slot.clone(), room, ear })
    }

    /// Tells everyone in the room of `slot` what its claim came to, and closes that room: whoever
    /// comes later gets a new one.
    pub(crate) fn settle(&self, slot: &Slot, news: impl FnOnce() -> News) {
        let room =
            self.rooms.lock().expect("invariant: no panic while seating").by_slot.remove(slot);
        if let Some(room) = room {
            room.door.send_replace(Call::Settled(Arc::new(news())));
        }
    }

    /// Asks everyone in the room of `slot` to look at the store.
    pub(crate) fn nudge(&self, slot: &Slot) {
        let rooms = self.rooms.lock().expect("invariant: no panic while seating");
        if let Some(room) = rooms.by_slot.get(slot) {
            room.door.send_replace(Call::Look);
        }
    }

    /// How many are waiting.
    pub(crate) fn count(&self) -> usize {
        self.rooms.lock().expect("invariant: no panic while seating").total
    }

    fn leave(&self, slot: &Slot, number: u64) {
        let mut rooms = self.rooms.lock().expect("invariant: no panic while seating");
        let rooms = &mut *rooms;
        rooms.total -= 1;
        if let Some(of_tenant) = rooms.by_tenant.get_mut(slot.tenant()) {
            *of_tenant -= 1;
            if *of_tenant == 0 {
                rooms.by_tenant.remove(slot.tenant());
            }
        }
        // The room may be another one by now: the one of this seat was closed when it was settled.
        if let Some(room) = rooms.by_slot.get_mut(slot)
            && room.number == number
        {
            room.seated -= 1;
            if room.seated == 0 {
                rooms.by_slot.remove(slot);
            }
        }
    }
}

/// One waiter's place. Leaving it, in whatever way, gives it back.
#[derive(Debug)]
pub(crate) struct Seat {
    waiters: Arc<Waiters>,
    slot: Slot,
    room: u64,
    ear: watch::Receiver<Call>,
}

impl Seat {
    /// Waits until something is said.
    ///
    /// # Cancel safety
    /// Nothing is lost: what was said and not heard is heard next time.
    pub(crate) async fn hear(&mut self) -> Call {
        // A closed door has said its last word already; asking again must not spin.
        match self.ear.changed().await {
            Ok(()) => self.ear.borrow_and_update().clone(),
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.waiters.leave(&self.slot, self.room);
    }
}
