//! How much the store holds, about: what the last round of sweeping counted, and what this process
//! has added since. A store that is full refuses new keys, never anything else.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use onetake_engine::{Bound, StoreError};

/// Of how many tenants is remembered how much they have; those beyond count in all only.
const TENANTS_MAX: usize = 100_000;

/// Records, and their bytes, about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counted {
    pub(super) records: i64,
    pub(super) bytes: i64,
}

/// How much a store may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Most {
    pub(super) records: u64,
    pub(super) bytes: u64,
}

impl Most {
    fn is_reached(self, counted: Counted) -> bool {
        let reached = |count: i64, most: u64| u64::try_from(count).is_ok_and(|it| it >= most);
        reached(counted.records, self.records) || reached(counted.bytes, self.bytes)
    }
}

#[derive(Debug, Default)]
struct Counts {
    all: Counted,
    tenants: HashMap<Vec<u8>, Counted>,
}

/// How much there is, and how much there may be.
#[derive(Debug)]
pub(super) struct Tally {
    most: Most,
    tenant_most: Most,
    counts: Mutex<Counts>,
}

impl Tally {
    pub(super) fn new(most: Most, tenant_most: Most) -> Self {
        Self { most, tenant_most, counts: Mutex::default() }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("invariant: no panic under the lock")
    }

    /// Whether `tenant` may have a new key.
    pub(super) fn admit(&self, tenant: &[u8]) -> Result<(), StoreError> {
        let counts = self.counts();
        if self.most.is_reached(counts.all) {
            return Err(StoreError::Full(Bound::Total));
        }
        let own = counts.tenants.get(tenant).copied().unwrap_or_default();
        if self.tenant_most.is_reached(own) {
            return Err(StoreError::Full(Bound::Tenant));
        }
        Ok(())
    }

    /// Counts a new key of this process.
    pub(super) fn add(&self, tenant: &[u8], bytes: usize) {
        let mut counts = self.counts();
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        counts.all.records += 1;
        counts.all.bytes = counts.all.bytes.saturating_add(bytes);
        if counts.tenants.len() < TENANTS_MAX || counts.tenants.contains_key(tenant) {
            let own = counts.tenants.entry(tenant.to_vec()).or_default();
            own.records += 1;
            own.bytes = own.bytes.saturating_add(bytes);
        }
    }

    /// Takes over what was counted anew.
    pub(super) fn replace(&self, mut tenants: HashMap<Vec<u8>, Counted>) {
        let mut all = Counted::default();
        for one in tenants.values() {
            all.records += one.records;
            all.bytes = all.bytes.saturating_add(one.bytes);
        }
        if tenants.len() > TENANTS_MAX {
            let mut kept = 0;
            tenants.retain(|_, _| {
                kept += 1;
                kept <= TENANTS_MAX
            });
        }
        *self.counts() = Counts { all, tenants };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W6.
    #[test]
    fn w6_a_full_tenant_or_store_has_no_room_for_new_keys_until_it_is_counted_anew() {
        let tally =
            Tally::new(Most { records: 3, bytes: 1_000 }, Most { records: 2, bytes: 1_000 });
        for _ in 0..2 {
            tally.admit(b"a").unwrap();
            tally.add(b"a", 10);
        }
        assert_eq!(tally.admit(b"a"), Err(StoreError::Full(Bound::Tenant)));
        tally.admit(b"b").unwrap();
        tally.add(b"b", 10);
        assert_eq!(tally.admit(b"c"), Err(StoreError::Full(Bound::Total)));
        tally.replace(HashMap::from([(b"a".to_vec(), Counted { records: 1, bytes: 10 })]));
        tally.admit(b"a").unwrap();
        tally.replace(HashMap::from([(b"a".to_vec(), Counted { records: 1, bytes: 1_000 })]));
        assert_eq!(tally.admit(b"a"), Err(StoreError::Full(Bound::Total)));
    }
}
