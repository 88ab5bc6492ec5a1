//! How many bytes of requests may be in memory at once, of all callers together.
//!
//! A keyed request is read whole before anything else happens, so many large ones at once could
//! take all memory, each within its own bound. Whoever finds no room is refused before anything was
//! executed; nobody waits for room, for then slow senders could hold up everybody else.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of requests in memory at once, unless said otherwise.
pub const BUFFERED_BYTES_MAX: usize = 256 << 20;

/// Room for the bytes of requests.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<Semaphore>);

/// The room that one request has, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    room: Room,
    taken: Option<OwnedSemaphorePermit>,
}

impl Room {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }

    /// A share that is still empty.
    pub(crate) fn share(&self) -> Share {
        Share { room: self.clone(), taken: None }
    }
}

impl Share {
    /// Takes as much as `bytes` need in all; `false` when there is no room for them.
    pub(crate) fn reach(&mut self, bytes: usize) -> bool {
        let has = self.taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Ok(more) = u32::try_from(bytes.saturating_sub(has)) else { return false };
        if more == 0 {
            return true;
        }
        let Ok(more) = Arc::clone(&self.room.0).try_acquire_many_owned(more) else { return false };
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            None => self.taken = Some(more),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X15: all requests together have a bound, and what is dropped is given back.
    #[test]
    fn x15_shares_grow_as_long_as_there_is_room_and_are_given_back() {
        let room = Room::new(100);
        let (mut a, mut b) = (room.share(), room.share());
        assert!(a.reach(40) && a.reach(30) && a.reach(60));
        assert!(b.reach(40));
        assert!(!b.reach(41), "there is no more");
        assert!(b.reach(40), "what it has it keeps");
        drop(a);
        assert!(b.reach(100));
        assert!(!b.reach(usize::MAX), "nobody has that much");
    }
}
