//! Makes fences and versions: 128 bits, ordered by time, never the same twice.
//!
//! The only source of randomness of the engine. A simulation gives it a seed.

use std::sync::atomic::{AtomicU64, Ordering};

use onetake_core::Fence;
use uuid::Uuid;

/// The upper bits of an id are its time, the rest is what makes it unique.
const TIME_SHIFT: u32 = 80;

/// Where fences and versions come from.
#[derive(Debug, Default)]
pub struct Mint(Source);

#[derive(Debug, Default)]
enum Source {
    /// `UUIDv7`: unique across processes and machines, whatever their clocks say.
    #[default]
    System,
    /// The seed in the upper half, a count in the lower: unique as long as seeds are.
    Seeded { seed: u64, count: AtomicU64 },
}

impl Mint {
    /// Ids that are the same in every run with this seed. For tests only: two engines on one store
    /// must never have the same seed.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self(Source::Seeded { seed, count: AtomicU64::new(1) })
    }

    /// A number that was never given before and never will be again.
    pub fn id(&self) -> u128 {
        match &self.0 {
            Source::System => Uuid::now_v7().as_u128(),
            Source::Seeded { seed, count } => {
                let count = count.fetch_add(1, Ordering::Relaxed);
                (u128::from(*seed) << 64) | u128::from(count)
            }
        }
    }

    /// A fence for a new claim.
    pub fn fence(&self) -> Fence {
        Fence(self.id())
    }

    /// A fence for a claim that replaces another: greater than that one's, also when our clock is
    /// behind. The lower bits stay our own, so that no two claimants ever make the same.
    pub fn fence_above(&self, floor: Option<Fence>) -> Fence {
        let id = self.id();
        match floor.map(|fence| fence.0) {
            Some(floor) if floor >= id => {
                let time = (floor >> TIME_SHIFT) + 1;
                Fence((time << TIME_SHIFT) | (id & ((1 << TIME_SHIFT) - 1)))
            }
            Some(_) | None => Fence(id),
        }
    }

    /// A number to spread delays with.
    pub fn spread(&self) -> u64 {
        let [.., a, b, c, d] = self.id().to_be_bytes();
        u64::from(u32::from_be_bytes([a, b, c, d]).wrapping_mul(2_654_435_769))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// X2: a fence is never reused.
    #[test]
    fn x2_no_fence_comes_twice_and_later_ones_are_greater() {
        let mint = Mint::default();
        let fences: Vec<_> = (0..10_000).map(|_| mint.fence()).collect();
        assert!(fences.is_sorted());
        assert_eq!(fences.iter().collect::<HashSet<_>>().len(), fences.len());
        let other = Mint::default();
        assert!((0..1_000).all(|_| !fences.contains(&other.fence())));
    }

    /// X2: a claimant whose clock is behind still gets a fence above that of its predecessor.
    #[test]
    fn x2_a_successor_has_a_greater_fence_whatever_the_clocks_say() {
        let mint = Mint::default();
        let future = Fence(mint.id() + (86_400_000 << TIME_SHIFT));
        let (a, b) = (mint.fence_above(Some(future)), mint.fence_above(Some(future)));
        assert!(a > future && b > future);
        assert_ne!(a, b, "two rivals for one claim never make the same fence");
        let past = Fence(1);
        assert!(mint.fence_above(Some(past)) > past);
        let end = Fence(u128::MAX);
        assert_ne!(mint.fence_above(Some(end)), end, "the end of all time is no panic");
    }

    #[test]
    fn a_seed_gives_the_same_ids_again_and_another_seed_none_of_them() {
        let ids = |seed| {
            let mint = Mint::seeded(seed);
            (0..10).map(|_| mint.id()).collect::<Vec<_>>()
        };
        assert_eq!(ids(1), ids(1));
        assert!(ids(2).iter().all(|id| !ids(1).contains(id)));
    }
}
