//! Between a row of the table of slots and a record.
//!
//! Times are columns, because only the database says what time it is; the rest of a record is its
//! encoding, whose own times count from zero. The lease of a claim is renewed by its node, which
//! writes one row for all of its claims: whoever reads a claim of another node joins that row.

use onetake_core::{Draft, Phase, Record, Timestamp, Version};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::link::Typed;
use super::own::Owned;
use crate::codec::{CodecError, decode_record, encode_record};
use crate::seal::Sealer;

/// The columns that [`Found::read`] expects, of `s` and of the node `n` that may be beside it.
pub(super) const COLUMNS: &str = "s.slot, s.write, s.node, s.since, s.until, s.body, n.beat, n.at";

const DIGEST_BYTES: usize = 32;

/// What a draft is in a row. Times are spans.
pub(super) struct Written {
    pub(super) slot: Vec<u8>,
    pub(super) write: Uuid,
    pub(super) is_claim: bool,
    pub(super) kind: i16,
    pub(super) since: i64,
    pub(super) until: i64,
    pub(super) body: Vec<u8>,
}

impl Written {
    pub(super) fn of(draft: &Draft, sealer: &Sealer) -> Self {
        let record = draft.clone().at(Timestamp::ZERO);
        let (kind, until) = match &record.phase {
            Phase::Claimed { lease_until } => (1, *lease_until),
            Phase::Done { expires_at, .. } => (2, *expires_at),
            Phase::Released { until } => (3, *until),
            Phase::Unknown { .. } => (4, Timestamp::ZERO),
        };
        let slot = sealer.place(draft.address.slot());
        Self {
            write: Uuid::from_u128(draft.version.write),
            is_claim: matches!(record.phase, Phase::Claimed { .. }),
            kind,
            since: millis(record.since),
            until: millis(until),
            body: encode_record(&record, 0, sealer, &slot),
            slot,
        }
    }
}

/// Rows as a statement takes them: one array for each column.
pub(super) struct Arrays<'a> {
    slots: Vec<&'a [u8]>,
    writes: Vec<Uuid>,
    nodes: Vec<Option<Uuid>>,
    kinds: Vec<i16>,
    since: Vec<i64>,
    until: Vec<i64>,
    bodies: Vec<&'a [u8]>,
}

impl<'a> Arrays<'a> {
    /// The claims among them are those of `node`.
    pub(super) fn of(rows: impl Iterator<Item = &'a Written> + Clone, node: Uuid) -> Self {
        Self {
            slots: rows.clone().map(|row| row.slot.as_slice()).collect(),
            writes: rows.clone().map(|row| row.write).collect(),
            nodes: rows.clone().map(|row| row.is_claim.then_some(node)).collect(),
            kinds: rows.clone().map(|row| row.kind).collect(),
            since: rows.clone().map(|row| row.since).collect(),
            until: rows.clone().map(|row| row.until).collect(),
            bodies: rows.map(|row| row.body.as_slice()).collect(),
        }
    }

    /// `slot, write, node, kind, since, until, body`.
    pub(super) fn typed(&self) -> [Typed<'_>; 7] {
        [
            (&self.slots, Type::BYTEA_ARRAY),
            (&self.writes, Type::UUID_ARRAY),
            (&self.nodes, Type::UUID_ARRAY),
            (&self.kinds, Type::INT2_ARRAY),
            (&self.since, Type::INT8_ARRAY),
            (&self.until, Type::INT8_ARRAY),
            (&self.bodies, Type::BYTEA_ARRAY),
        ]
    }
}

pub(super) fn millis(at: Timestamp) -> i64 {
    i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// One row, and the row of its node where it has one.
pub(super) struct Found {
    pub(super) slot: Vec<u8>,
    pub(super) write: u128,
    pub(super) node: Option<Uuid>,
    since: i64,
    until: i64,
    body: Vec<u8>,
    beat: Option<i64>,
    beat_at: Option<i64>,
}

/// What [`COLUMNS`] hold, in their order; all of them `None` where there is no row.
#[cfg(feature = "sqlx")]
pub(super) type Columns = (
    Option<Vec<u8>>,
    Option<Uuid>,
    Option<Uuid>,
    Option<i64>,
    Option<i64>,
    Option<Vec<u8>>,
    Option<i64>,
    Option<i64>,
);

impl Found {
    /// The row of these columns; `None` where there is none.
    #[cfg(feature = "sqlx")]
    pub(super) fn of(columns: Columns) -> Option<Self> {
        let (slot, write, node, since, until, body, beat, beat_at) = columns;
        let (slot, write, since) = (slot?, write?.as_u128(), since?);
        Some(Self { slot, write, node, since, until: until?, body: body?, beat, beat_at })
    }

    /// The row that begins at column `at`; `None` where there is none.
    pub(super) fn read(row: &Row, at: usize) -> Option<Self> {
        let write: Option<Uuid> = row.get(at + 1);
        Some(Self {
            write: write?.as_u128(),
            slot: row.get(at),
            node: row.get(at + 2),
            since: row.get(at + 3),
            until: row.get(at + 4),
            body: row.get(at + 5),
            beat: row.get(at + 6),
            beat_at: row.get(at + 7),
        })
    }

    /// The version that a claim of another node has for us: any beat of that node is a renewal.
    pub(super) fn renewal_of(beat: Option<i64>) -> u32 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "only compared")]
        let beat = beat.unwrap_or(0) as u32;
        beat.wrapping_add(1).max(1)
    }

    /// The record in this row. `own` is what this process knows of it, if it is a claim of ours.
    pub(super) fn record(
        &self,
        own: Option<&Owned>,
        me: Uuid,
        sealer: &Sealer,
    ) -> Result<Record, CodecError> {
        let (mut record, _) = decode_record(&self.body, sealer, &self.slot)?;
        record.version = Version::of_write(self.write);
        record.since = time(self.since);
        match &mut record.phase {
            Phase::Claimed { lease_until } => {
                let (renewal, until) = self.lease(own, me);
                record.version.renewal = renewal;
                *lease_until = time(until);
            }
            Phase::Done { expires_at: end, .. } | Phase::Released { until: end } => {
                *end = time(self.until);
            }
            Phase::Unknown { .. } => {}
        }
        if sealer.place(record.address.slot()) != self.slot {
            return Err(CodecError::Malformed("it lies under a key that is not its own"));
        }
        Ok(record)
    }

    /// How often the lease of a claim was renewed, as this process counts, and its end.
    fn lease(&self, own: Option<&Owned>, me: Uuid) -> (u32, i64) {
        match (own, self.node) {
            (Some(own), _) if own.write == self.write => (own.renewal, own.until),
            (_, Some(node)) if node == me => (0, self.until),
            (_, Some(_)) => {
                let lease = self.until.saturating_sub(self.since);
                let beaten = self.beat_at.map_or(0, |at| at.saturating_add(lease));
                (Self::renewal_of(self.beat), self.until.max(beaten))
            }
            (_, None) => (0, self.until),
        }
    }
}

/// The slot in the bytes of a key, which the store wrote itself.
pub(super) fn tenant_range(prefix: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return (prefix.to_vec(), Some(end));
        }
    }
    (prefix.to_vec(), None)
}

/// The part of the key of a slot that is its tenant's: all but the digest.
pub(super) fn tenant_of(slot: &[u8]) -> &[u8] {
    &slot[..slot.len().saturating_sub(DIGEST_BYTES)]
}
