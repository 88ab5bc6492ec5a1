//! A record as the row that the PostgreSQL store keeps of it, for those who write rows without it.
//!
//! Same columns, same bytes. Nothing here is judged or read again.

use onetake_core::{Draft, Phase, Timestamp};
use onetake_stores::codec;
use onetake_stores::seal::Sealer;
use tokio_postgres::types::Type;
use uuid::Uuid;

/// The node that all rows without a store belong to.
pub(crate) const NODE: Uuid = Uuid::from_u128(7);

/// The columns of a row, and their types.
pub(crate) const COLUMNS: &str = "slot, write, node, kind, since, until, body";
pub(crate) const TYPES: [Type; 7] =
    [Type::BYTEA, Type::UUID, Type::UUID, Type::INT2, Type::INT8, Type::INT8, Type::BYTEA];

/// One row. Times are spans.
pub(crate) struct Cells {
    pub(crate) slot: Vec<u8>,
    pub(crate) write: Uuid,
    pub(crate) node: Option<Uuid>,
    pub(crate) kind: i16,
    pub(crate) until: i64,
    pub(crate) body: Vec<u8>,
}

impl Cells {
    pub(crate) fn of(draft: Draft) -> Self {
        let (slot, write) = (draft.address.slot().to_bytes(), draft.version.write);
        let record = draft.at(Timestamp::ZERO);
        let (kind, until) = match &record.phase {
            Phase::Claimed { lease_until } => (1, *lease_until),
            Phase::Done { expires_at, .. } => (2, *expires_at),
            Phase::Released { .. } | Phase::Unknown { .. } => panic!("nobody writes these here"),
        };
        Self {
            write: Uuid::from_u128(write),
            node: (kind == 1).then_some(NODE),
            kind,
            until: i64::try_from(until.as_millis()).expect("a day"),
            body: codec::encode_record(&record, 0, &Sealer::Plain, &slot),
            slot,
        }
    }
}
