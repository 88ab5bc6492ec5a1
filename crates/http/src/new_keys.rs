//! How many new keys a tenant may begin (X15), so that nobody floods the store.
//!
//! Replays cost nothing here: a key is counted when it executes, and only a key that the store does
//! not know is ever turned away. Many at once may pass a little beyond the limit; a limit of new
//! keys is there to stop a flood, not to count to the last one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use onetake_core::Tenant;

/// What a limit is about.
const MINUTE: Duration = Duration::from_secs(60);
/// Tenants that are remembered. Beyond it whoever is nearest to a full allowance is forgotten.
const TENANTS_MAX: usize = 10_000;

/// How many new keys a minute a tenant may begin; `None`: as many as it likes.
type PerMinute = dyn Fn(&Tenant) -> Option<u32> + Send + Sync;

/// Counts new keys by tenant.
pub(crate) struct NewKeys {
    per_minute: Box<PerMinute>,
    /// When the allowance of a tenant will be whole again.
    whole_at: Mutex<HashMap<Tenant, Instant>>,
}

impl fmt::Debug for NewKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKeys").finish_non_exhaustive()
    }
}

impl NewKeys {
    pub(crate) fn new(per_minute: impl Fn(&Tenant) -> Option<u32> + Send + Sync + 'static) -> Self {
        Self { per_minute: Box::new(per_minute), whole_at: Mutex::default() }
    }

    /// What one key costs of a minute; `None` for a tenant without a limit.
    fn cost(&self, tenant: &Tenant) -> Option<Duration> {
        (self.per_minute)(tenant).map(|limit| MINUTE / limit.max(1))
    }

    fn whole_at(&self) -> MutexGuard<'_, HashMap<Tenant, Instant>> {
        self.whole_at.lock().expect("invariant: no panic under the lock")
    }

    /// How long `tenant` must wait before it may begin a new key; zero when it may now.
    pub(crate) fn wait(&self, tenant: &Tenant, now: Instant) -> Duration {
        let Some(cost) = self.cost(tenant) else { return Duration::ZERO };
        let whole_at = self.whole_at().get(tenant).copied().unwrap_or(now);
        (whole_at.saturating_duration_since(now) + cost).saturating_sub(MINUTE)
    }

    /// Counts a key that `tenant` begins.
    pub(crate) fn spend(&self, tenant: &Tenant, now: Instant) {
        let Some(cost) = self.cost(tenant) else { return };
        let mut whole_at = self.whole_at();
        if whole_at.len() >= TENANTS_MAX && !whole_at.contains_key(tenant) {
            make_room(&mut whole_at, now);
        }
        match whole_at.entry(tenant.clone()) {
            Entry::Occupied(mut at) => *at.get_mut() = (*at.get()).max(now) + cost,
            Entry::Vacant(at) => {
                at.insert(now + cost);
            }
        }
    }
}

fn make_room(whole_at: &mut HashMap<Tenant, Instant>, now: Instant) {
    whole_at.retain(|_, at| *at > now);
    if whole_at.len() >= TENANTS_MAX {
        let nearest = whole_at.iter().min_by_key(|(_, at)| **at).map(|(tenant, _)| tenant.clone());
        nearest.map(|tenant| whole_at.remove(&tenant));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    /// X15: a minute's worth at once, then one after the other, and nobody pays for another.
    #[test]
    fn x15_a_tenant_begins_as_many_new_keys_as_it_may() {
        let keys = NewKeys::new(|tenant| (tenant.as_str() != "free").then_some(60));
        let (acme, now) = (tenant("acme"), Instant::now());
        for _ in 0..60 {
            assert_eq!(keys.wait(&acme, now), Duration::ZERO);
            keys.spend(&acme, now);
        }
        assert_eq!(keys.wait(&acme, now), Duration::from_secs(1));
        assert_eq!(keys.wait(&tenant("other"), now), Duration::ZERO);
        let later = now + Duration::from_secs(1);
        assert_eq!(keys.wait(&acme, later), Duration::ZERO);
        keys.spend(&acme, later);
        assert_eq!(keys.wait(&acme, later), Duration::from_secs(1));
        assert_eq!(keys.wait(&acme, now + MINUTE * 3), Duration::ZERO);
        for _ in 0..1_000 {
            keys.spend(&tenant("free"), now);
        }
        assert_eq!(keys.wait(&tenant("free"), now), Duration::ZERO);
    }

    #[test]
    fn memory_is_bounded_whoever_comes() {
        let keys = NewKeys::new(|_| Some(1));
        let now = Instant::now();
        for number in 0..TENANTS_MAX + 100 {
            keys.spend(&tenant(&format!("t{number}")), now);
        }
        assert_eq!(keys.whole_at().len(), TENANTS_MAX);
        keys.spend(&tenant("later"), now + MINUTE * 2);
        assert_eq!(keys.whole_at().len(), 1, "those whose allowance is whole are forgotten");
    }
}
