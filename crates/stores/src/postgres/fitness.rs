//! Whether a server is fit to be the store: recent enough, durable, and of one mind with us about
//! how a batch is carried out. Asked when the store is opened, and of every server that is
//! connected to later: it may be another one, with other settings.

use tokio_postgres::Client;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::PostgresError;
use super::shared::Sql;

/// PostgreSQL 13.
const OLDEST: i32 = 130_000;

/// What a server said about itself.
pub(super) struct Server {
    /// Whether commits wait for the disk by themselves, and warnings of them can be heard.
    pub(super) syncs: bool,
    /// Whether it finds a range of pages without reading all of them.
    pub(super) ranges: bool,
}

/// PostgreSQL 14.
const HAS_RANGES: i32 = 140_000;

pub(super) async fn ask(client: &Client, accept_loss: bool) -> Result<Server, PostgresError> {
    let sql = "SELECT current_setting('server_version_num')::int, current_setting('fsync'),
        current_setting('full_page_writes'), current_setting('synchronous_commit'),
        pg_is_in_recovery(), current_setting('client_min_messages')";
    let row = client.query_typed(sql, &[]).await.map_err(PostgresError::Schema)?;
    let Some(row) = row.first() else { return Ok(Server { syncs: false, ranges: false }) };
    let (version, recovers): (i32, bool) = (row.get(0), row.get(4));
    if version < OLDEST {
        return Err(PostgresError::TooOld { found: version / 10_000 });
    }
    if recovers {
        return Err(PostgresError::Standby);
    }
    for (at, setting) in [(1, "fsync"), (2, "full_page_writes")] {
        if row.get::<_, &str>(at) != "on" && !accept_loss {
            return Err(PostgresError::Forgets { setting });
        }
    }
    let syncs = row.get::<_, &str>(3) != "off" && row.get::<_, &str>(5) != "error";
    Ok(Server { syncs, ranges: version >= HAS_RANGES })
}

/// Asks how a batch of swaps would be carried out. Reading all of the table for each batch would
/// work, and would be slower with every record.
pub(super) async fn explain(client: &mut Client, sql: &Sql) -> Result<(), PostgresError> {
    let tx = client.transaction().await.map_err(PostgresError::Schema)?;
    tx.batch_execute(&sql.settings).await.map_err(PostgresError::Schema)?;
    let none: [&[u8]; 1] = [b"\0"];
    let (ids, kinds, numbers) = ([Some(Uuid::nil())], [2_i16], [0_i64]);
    let types = [
        (&none.as_slice() as _, Type::BYTEA_ARRAY),
        (&ids.as_slice() as _, Type::UUID_ARRAY),
        (&ids.as_slice() as _, Type::UUID_ARRAY),
        (&ids.as_slice() as _, Type::UUID_ARRAY),
        (&kinds.as_slice() as _, Type::INT2_ARRAY),
        (&numbers.as_slice() as _, Type::INT8_ARRAY),
        (&numbers.as_slice() as _, Type::INT8_ARRAY),
        (&none.as_slice() as _, Type::BYTEA_ARRAY),
        (&Uuid::nil() as _, Type::UUID),
        (&numbers.as_slice() as _, Type::INT8_ARRAY),
    ];
    let plan = tx.query_typed(&format!("EXPLAIN {}", sql.swaps), &types).await;
    let plan = plan.map_err(PostgresError::Schema)?;
    let reads_all = |line: &str| line.contains("Seq Scan on slots");
    if plan.iter().any(|row| reads_all(row.get(0))) {
        return Err(PostgresError::Plan);
    }
    tx.rollback().await.map_err(PostgresError::Schema)
}
