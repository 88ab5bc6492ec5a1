//! How many bytes of requests may be in memory at once, of all callers together; and how many
//! requests an upstream may have, which is counted in the same way.
//!
//! A keyed request is read whole before anything else happens, so many large ones at once could
//! take all memory, each within its own bound. Whoever finds no room is refused before anything was
//! executed; nobody waits for room, for then slow senders could hold up everybody else. For the
//! same reason one tenant may take no more than half of it. A small request that is there and
//! answered without any waiting takes none, for there are no more of those than there are threads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use onetake_core::Tenant;

/// Bytes of requests in memory at once, unless said otherwise.
pub const BUFFERED_BYTES_MAX: usize = 256 << 20;

/// Room for the bytes of requests.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<Whole>);

#[derive(Debug)]
struct Whole {
    bytes_max: usize,
    taken: Mutex<Taken>,
}

/// What is taken, in all and by whom. Whoever has nothing is not in it, so it has no more tenants
/// than there are requests.
#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_tenant: HashMap<Tenant, usize>,
}

/// The room that one request has, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    room: Room,
    tenant: Tenant,
    bytes: usize,
}

impl Room {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Whole { bytes_max, taken: Mutex::default() }))
    }

    /// A share of `tenant` that is still empty.
    pub(crate) fn share(&self, tenant: &Tenant) -> Share {
        Share { room: self.clone(), tenant: tenant.clone(), bytes: 0 }
    }

    /// A share of `tenant` that has so many bytes; `None` when there is no room for them.
    pub(crate) fn share_of(&self, tenant: &Tenant, bytes: usize) -> Option<Share> {
        let mut share = self.share(tenant);
        share.reach(bytes).then_some(share)
    }

    /// Whether `tenant` could take one more.
    #[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "only a gateway asks"))]
    pub(crate) fn has_one_for(&self, tenant: &Tenant) -> bool {
        let taken = self.taken();
        let own = taken.by_tenant.get(tenant).copied().unwrap_or(0);
        taken.all < self.0.bytes_max && own < self.0.bytes_max.div_ceil(2)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().expect("invariant: no panic under the lock")
    }
}

impl Share {
    /// Takes as much as `bytes` need in all; `false` when there is no room for them.
    pub(crate) fn reach(&mut self, bytes: usize) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else {
            return true;
        };
        let (all_max, own_max) = (self.room.0.bytes_max, self.room.0.bytes_max.div_ceil(2));
        let mut guard = self.room.taken();
        let taken = &mut *guard;
        let fits = |there: usize, most: usize| there.checked_add(more).filter(|sum| *sum <= most);
        // Most tenants that ask are there already, and are looked for once.
        let own = taken.by_tenant.get_mut(&self.tenant);
        let had = own.as_deref().copied().unwrap_or(0);
        let Some((all, sum)) = fits(taken.all, all_max).zip(fits(had, own_max)) else {
            return false;
        };
        match own {
            Some(own) => *own = sum,
            None => drop(taken.by_tenant.insert(self.tenant.clone(), sum)),
        }
        taken.all = all;
        drop(guard);
        self.bytes = bytes;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut taken = self.room.taken();
        taken.all -= self.bytes;
        match taken.by_tenant.get_mut(&self.tenant) {
            Some(own) if *own > self.bytes => *own -= self.bytes,
            Some(_) | None => drop(taken.by_tenant.remove(&self.tenant)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X15: all requests together have a bound, a tenant has half of it, and what is dropped is
    /// given back.
    #[test]
    fn x15_shares_grow_as_long_as_there_is_room_and_are_given_back() {
        let room = Room::new(100);
        let [acme, other, third] =
            ["acme", "other", "third"].map(|name| Tenant::new(name).unwrap());
        let (mut a, mut b) = (room.share(&acme), room.share(&acme));
        assert!(a.reach(20) && a.reach(10) && a.reach(30));
        assert!(b.reach(20) && !b.reach(21), "half is the most of one tenant");
        let mut c = room.share(&other);
        assert!(c.reach(50));
        assert!(!room.share(&third).reach(1), "there is no more");
        assert!(b.reach(20), "what it has it keeps");
        drop(a);
        assert!(b.reach(50) && !b.reach(51));
        assert!(!c.reach(usize::MAX), "nobody has that much");
        drop((b, c));
        let taken = room.taken();
        assert_eq!((taken.all, taken.by_tenant.len()), (0, 0));
    }
}
