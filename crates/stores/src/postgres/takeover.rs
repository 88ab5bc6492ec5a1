//! Takes over a claim of another node, alone and under a lock of that node's row.
//!
//! The node renews all of its claims with that row, so whoever has the lock knows whether it did
//! since. A renewal takes the lock too: the two never both win.

use onetake_engine::{Stamped, Swap};
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::link::{self, Failed, Link};
use super::listen;
use super::rows::{Found, time};
use super::shared::Shared;
use super::swaps::{Swapping, fail, lost, note_unsure, say, settled};

/// Replaces a claim of another node, if that node has not renewed its claims since.
pub(super) async fn take_over(shared: &Shared, link: &mut Link, swap: Swapping) {
    let taken =
        link.work(async |client: &mut Client| try_take_over(shared, client, &swap).await).await;
    match taken {
        Ok(Some((now, since, until))) => {
            let now = time(now);
            let record = settled(shared, &swap, now, since, until);
            say(swap.ear, Ok(Stamped { now, value: Swap::Won(record) }));
        }
        Ok(None) => lost(shared, link, vec![swap]).await,
        Err(failed) => {
            let swaps = vec![swap];
            if matches!(failed, Failed::Unsure) {
                note_unsure(shared, &swaps);
            }
            fail(swaps, &failed);
        }
    }
}

async fn try_take_over(
    shared: &Shared,
    client: &mut Client,
    swap: &Swapping,
) -> Result<Option<(i64, i64, i64)>, Failed> {
    let failed = |error| link::judge(&error);
    let Some(expected) = swap.expected else { return Ok(None) };
    let write = Uuid::from_u128(expected.write);
    let tx = link::transaction(client).await.map_err(failed)?;
    tx.batch_execute(&shared.sql.settings).await.map_err(failed)?;
    let node = tx
        .query_typed(&shared.sql.node_of, &[(&swap.row.slot, Type::BYTEA), (&write, Type::UUID)])
        .await
        .map_err(failed)?;
    let Some(node) = node.first().and_then(|row| row.get::<_, Option<Uuid>>(0)) else {
        return Ok(None);
    };
    let beat =
        tx.query_typed(&shared.sql.lock_node, &[(&node, Type::UUID)]).await.map_err(failed)?;
    if Found::renewal_of(beat.first().map(|row| row.get(0))) != expected.renewal {
        return Ok(None);
    }
    let row = &swap.row;
    let me = row.is_claim.then_some(shared.node);
    let written = tx
        .query_typed(
            &shared.sql.take_over,
            &[
                (&row.slot, Type::BYTEA),
                (&write, Type::UUID),
                (&node, Type::UUID),
                (&row.write, Type::UUID),
                (&me, Type::UUID),
                (&row.kind, Type::INT2),
                (&row.since, Type::INT8),
                (&row.until, Type::INT8),
                (&row.body, Type::BYTEA),
                (&listen::name(&row.slot).to_string(), Type::TEXT),
            ],
        )
        .await
        .map_err(failed)?;
    let Some(written) = written.first() else { return Ok(None) };
    let times = (written.get(0), written.get(1), written.get(2));
    tx.commit().await.map_err(failed)?;
    Ok(Some(times))
}
