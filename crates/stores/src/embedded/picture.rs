//! Everything that a store holds at one moment, for whoever copies or verifies all of it.
//!
//! Values lie in the tables or, if they are newer, in memory. Both are taken between two batches,
//! so that what one transaction wrote is there whole or not at all. Whoever reads it reads at
//! leisure: the store goes on.

use std::collections::HashMap;

use fjall::{Readable, Slice, Snapshot};

use super::disk::Disk;
use super::listing::{merged, sliced};
use super::log::Space;
use super::recent::{Row, Rows};
use super::shared::Shared;

/// What a store holds at one moment.
pub(super) struct Picture {
    at: Snapshot,
    /// What the tables do not have, in the order of keys.
    fresh: HashMap<Space, Vec<Row>>,
}

impl Picture {
    /// A picture of now. Only the thread that writes may take it, between two batches.
    pub(super) fn take(shared: &Shared) -> Self {
        // Memory comes first: what leaves it meanwhile is in the tables by then.
        let records = shared.front.fresh(|_| true).into_iter();
        let mut records: Vec<_> = records.map(|(fresh, _)| (fresh.key, fresh.bytes)).collect();
        records.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let recent = shared.disk.recent.still();
        let others = Rows::SPACES.map(|space| (space, recent.range(space, b"", b"", usize::MAX)));
        let fresh = others.into_iter().chain([(Space::Slots, records)]).collect();
        Self { at: shared.disk.tables.db.snapshot(), fresh }
    }

    /// A picture of a store that nobody writes and all of which is in the tables.
    pub(super) fn of_tables(disk: &Disk) -> Self {
        Self { at: disk.tables.db.snapshot(), fresh: HashMap::new() }
    }

    /// Everything in a space, in the order of keys.
    pub(super) fn all(
        &self,
        disk: &Disk,
        space: Space,
    ) -> impl Iterator<Item = Result<(Slice, Slice), fjall::Error>> {
        self.from(disk, space, b"")
    }

    /// Everything in a space from `key` on, in the order of keys.
    pub(super) fn from(
        &self,
        disk: &Disk,
        space: Space,
        key: &[u8],
    ) -> impl Iterator<Item = Result<(Slice, Slice), fjall::Error>> {
        let fresh = self.fresh.get(&space).map_or(&[][..], Vec::as_slice);
        let before = fresh.partition_point(|(there, _)| **there < *key);
        let tables = self.at.range(disk.tables.of(space), key..).map(fjall::Guard::into_inner);
        merged(sliced(&fresh[before..]), tables)
    }
}
