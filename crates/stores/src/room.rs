//! Room for large bodies among what waits for a server: small ones are bounded by their count.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory for what waits, in units of 1 KiB.
#[derive(Debug)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    kib: usize,
}

impl Room {
    pub(crate) fn new(kib: usize) -> Self {
        let kib = kib.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(kib)), kib }
    }

    /// Takes room for so many bytes, to be held for as long as they wait; at most all there is.
    /// `Err` when others have it.
    pub(crate) fn take(&self, bytes: usize) -> Result<Option<OwnedSemaphorePermit>, NoRoom> {
        let kib = u32::try_from((bytes / 1_024).min(self.kib)).unwrap_or(u32::MAX);
        if kib == 0 {
            return Ok(None);
        }
        Arc::clone(&self.free).try_acquire_many_owned(kib).map(Some).map_err(|_| NoRoom)
    }
}

/// Others have all of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

#[cfg(test)]
mod tests {
    use super::*;

    /// W6
    #[test]
    fn w6_large_bodies_have_room_together_and_small_ones_need_none() {
        let room = Room::new(10);
        let first = room.take(8 * 1_024).unwrap();
        assert!(room.take(1_000).unwrap().is_none());
        assert_eq!(room.take(3 * 1_024).unwrap_err(), NoRoom);
        drop(first);
        let all = room.take(1 << 30).unwrap();
        assert!(all.is_some(), "one that is larger than all there is comes alone");
        assert_eq!(room.take(1_024).unwrap_err(), NoRoom);
    }
}
