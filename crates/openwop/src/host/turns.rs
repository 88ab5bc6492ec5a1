//! Whose turn it is, where only so many may go at once: one tenant takes at most half of the
//! places.
//!
//! Whoever finds no place waits for one, in the order of coming. A tenant whose work is slow fills
//! its own half and holds up nobody else. Nothing is remembered of a tenant that has no place and
//! waits for none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use onetake_core::Tenant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::lock;

/// How many tenants are remembered before it is looked which of them have gone.
const LOOK_AT: usize = 64;

/// Places for so many at once.
#[derive(Debug)]
pub(super) struct Turns {
    all: Arc<Semaphore>,
    /// How many of them one tenant may have.
    each: usize,
    tenants: Mutex<Tenants>,
}

#[derive(Debug)]
struct Tenants {
    places: HashMap<Tenant, Weak<Semaphore>>,
    look_at: usize,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _of_all: OwnedSemaphorePermit,
    _of_tenant: OwnedSemaphorePermit,
}

impl Turns {
    /// Places for `all` at once.
    pub(super) fn new(all: usize) -> Self {
        let tenants = Tenants { places: HashMap::new(), look_at: LOOK_AT };
        Self {
            all: Arc::new(Semaphore::new(all)),
            each: all.div_ceil(2),
            tenants: Mutex::new(tenants),
        }
    }

    /// Waits for a place for `tenant`.
    pub(super) async fn take(&self, tenant: &Tenant) -> Turn {
        const OPEN: &str = "invariant: nobody closes a semaphore of this file";
        // The own half first: whoever waits for it must hold none of the others' places.
        let of_tenant = self.of(tenant).acquire_owned().await.expect(OPEN);
        let of_all = Arc::clone(&self.all).acquire_owned().await.expect(OPEN);
        Turn { _of_all: of_all, _of_tenant: of_tenant }
    }

    /// The places of one tenant. They live as long as somebody has one or waits for one.
    fn of(&self, tenant: &Tenant) -> Arc<Semaphore> {
        let mut tenants = lock(&self.tenants);
        if let Some(there) = tenants.places.get(tenant).and_then(Weak::upgrade) {
            return there;
        }
        if tenants.places.len() >= tenants.look_at {
            tenants.places.retain(|_, places| places.strong_count() > 0);
            tenants.look_at = LOOK_AT.max(tenants.places.len() * 2);
        }
        let new = Arc::new(Semaphore::new(self.each));
        tenants.places.insert(tenant.clone(), Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    /// The place, if it is to be had at once.
    fn at_once(turns: &Turns, tenant: &Tenant) -> Option<Turn> {
        match pin!(turns.take(tenant)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_tenant_that_is_slow_leaves_half_of_the_places_to_others() {
        let (turns, slow, quick) = (Turns::new(8), tenant("slow"), tenant("quick"));
        let taken: Vec<_> = std::iter::from_fn(|| at_once(&turns, &slow)).take(100).collect();
        assert_eq!(taken.len(), 4);
        let others: Vec<_> = std::iter::from_fn(|| at_once(&turns, &quick)).take(100).collect();
        assert_eq!(others.len(), 4);
        assert!(at_once(&turns, &tenant("third")).is_none());
        drop(taken);
        assert!(at_once(&turns, &slow).is_some() && at_once(&turns, &quick).is_none());
    }

    #[tokio::test]
    async fn whoever_waits_is_next_when_a_place_is_given_back() {
        let (turns, only) = (Arc::new(Turns::new(1)), tenant("only"));
        let first = turns.take(&only).await;
        let second = tokio::spawn({
            let (turns, only) = (Arc::clone(&turns), only.clone());
            async move { drop(turns.take(&only).await) }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished(), "there is one place");
        drop(first);
        second.await.unwrap();
    }

    #[test]
    fn tenants_that_have_no_place_are_forgotten() {
        let turns = Turns::new(8);
        let kept = at_once(&turns, &tenant("kept")).unwrap();
        for n in 0..10_000 {
            drop(at_once(&turns, &tenant(&format!("t{n}"))));
        }
        assert!(lock(&turns.tenants).places.len() <= LOOK_AT);
        assert!(lock(&turns.tenants).places.contains_key(&tenant("kept")));
        drop(kept);
    }
}
