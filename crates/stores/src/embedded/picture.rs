//! Everything that a store holds at one moment, for whoever copies or verifies all of it.
//!
//! Records lie in the tables or, if they are newer, in memory; all else lies in the tables of the
//! engine below. Both are taken between two batches, so that what one transaction wrote is there
//! whole or not at all. Whoever reads it reads at leisure: the store goes on.

use fjall::{Keyspace, Readable, Slice, Snapshot};

use super::disk::Disk;
use super::listing::merged;
use super::shared::{Notes, Shared};

/// What a store holds at one moment.
pub(super) struct Picture {
    pub(super) at: Snapshot,
    /// Records that the tables do not have, in the order of their keys; `None`: it was removed.
    fresh: Vec<(Slice, Option<Slice>)>,
    /// What the store wrote of itself that the tables do not have.
    pub(super) notes: Notes,
}

impl Picture {
    /// A picture of now. Only the thread that writes may take it, between two batches.
    pub(super) fn take(shared: &Shared) -> Self {
        // Memory comes first: what leaves it meanwhile is in the tables by then.
        let fresh = shared.front.fresh(|_| true).into_iter();
        let mut fresh: Vec<_> = fresh.map(|(fresh, _)| (fresh.key, fresh.bytes)).collect();
        fresh.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let notes = shared.notes().clone();
        Self { at: shared.disk.db.snapshot(), fresh, notes }
    }

    /// A picture of a store that nobody writes and all of which is in the tables.
    pub(super) fn of_tables(disk: &Disk) -> Self {
        Self { at: disk.db.snapshot(), fresh: Vec::new(), notes: Notes::new() }
    }

    /// Every record, in the order of keys.
    pub(super) fn slots(
        &self,
        slots: &Keyspace,
    ) -> impl Iterator<Item = Result<(Slice, Slice), fjall::Error>> {
        let tables = self.at.iter(slots).map(fjall::Guard::into_inner);
        merged(self.fresh.iter().cloned(), tables)
    }
}
