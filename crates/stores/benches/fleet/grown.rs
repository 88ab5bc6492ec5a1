//! New keys in a table that has many records, beside an empty one on the same server.
//!
//! The records are those of the store, written without it. Vacuum goes on meanwhile. What the first
//! touch of a page costs after a checkpoint is paid in a round that does not count, by both.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use onetake_core::Draft;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::ToSql;

use crate::bare::connect;
use crate::cells::{COLUMNS, Cells, TYPES};
use crate::load::{DAY, address, done, new_keys};
use crate::report::{Bar, Case};
use crate::{Stage, say};

const GROWN: &str = "grown";
const EMPTY: &str = "empty";
/// Beyond the numbers of every operation that is measured.
const FILLED: u64 = 1 << 40;

/// The record of a finished operation.
fn finished(n: u64) -> Draft {
    done(n, address(n), DAY)
}

/// Writes the records from `from` to `to`.
async fn fill(url: &str, from: u64, to: u64) {
    let client = connect(url).await;
    let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let now: i64 = client.query_one(now, &[]).await.expect("the time").get(0);
    let sql = format!("COPY {GROWN}.slots ({COLUMNS}) FROM STDIN BINARY");
    let rows = client.copy_in(&sql).await.expect("the table is there");
    let mut rows = pin!(BinaryCopyInWriter::new(rows, &TYPES));
    for n in from..to {
        let Cells { slot, write, node, kind, until, body } = Cells::of(finished(FILLED + n));
        let until = now + until;
        let cells: [&(dyn ToSql + Sync); 7] = [&slot, &write, &node, &kind, &now, &until, &body];
        rows.as_mut().write(&cells).await.expect("written");
    }
    rows.finish().await.expect("written");
}

pub(crate) fn cases(stage: &Stage<'_>) -> Vec<Case> {
    let [grown, empty] = [GROWN, EMPTY].map(|schema| Arc::new(stage.store(schema)));
    let ([keys, other], runtime) = ([Arc::default(), Arc::default()], stage.runtime);
    let (mut cases, mut filled) = (Vec::new(), 0);
    for &size in stage.plan.sizes {
        let begun = Instant::now();
        runtime.block_on(fill(&stage.postgres.url(), filled, size));
        filled = size;
        stage.order(&format!("VACUUM (ANALYZE) {GROWN}.slots"));
        stage.order("CHECKPOINT");
        say(&format!("{size} records after {:.0} s", begun.elapsed().as_secs_f64()));
        let (mut ours, mut start) = (Vec::new(), Vec::new());
        for round in 0..=stage.plan.rounds {
            let rate = new_keys(runtime, &grown, &keys, stage.plan.span);
            stage.order(&format!("TRUNCATE {EMPTY}.slots"));
            let beside = new_keys(runtime, &empty, &other, stage.plan.span);
            say(&format!("round {round}: {size} records {rate:.0}/s; empty {beside:.0}/s"));
            if round > 0 {
                ours.push(rate);
                start.push(beside);
            }
        }
        let name = format!("PostgreSQL, new keys at {size} records; beside none");
        cases.push(Case::new(name, "/s", &mut ours, &mut start, Bar::Ratio(0.8)));
    }
    drop((grown, empty));
    stage.forget(GROWN);
    stage.forget(EMPTY);
    cases
}
