//! The transactions: many of them in one of the database's, each judged by itself.
//!
//! A batch locks every place that it touches, in one order, reads them, judges its transactions one
//! after the other against what the ones before it would leave behind, and writes what is left in
//! the end. So one sync carries many, a conflict never fails a neighbour, and positions in a lane
//! are given in the order of commits: whoever has the next one waits for the lock.

mod put;
mod state;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use onetake_core::Timestamp;
use onetake_engine::{Check, Commit, Doc, Reply, Stamped, StoreError, Tx, Write};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use self::state::{Changed, State};
use super::link::{self, Failed, Link};
use super::rows::{self, COLUMNS, time};
use super::shared::{NOW, Shared};

/// The most transactions of one batch.
const BATCH_MAX: usize = 64;
/// The most places of one batch, if it is more than one transaction.
const PLACES_MAX: usize = 512;
/// The most bytes of one batch, if it is more than one transaction.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How often a batch is tried that gets in another's way.
const TRIES_MAX: usize = 8;

pub(super) struct Asked {
    pub(super) tx: Tx,
    /// Bytes of its values.
    pub(super) weight: usize,
    /// Held until the reply is given, so that what waits has a bound.
    pub(super) _room: Option<OwnedSemaphorePermit>,
    pub(super) ear: oneshot::Sender<Reply<Commit>>,
}

/// Works until nobody can ask any more.
pub(super) async fn keep(shared: Arc<Shared>, mut asked: mpsc::Receiver<Asked>, mut link: Link) {
    let mut batch = Vec::new();
    while asked.recv_many(&mut batch, BATCH_MAX).await > 0 {
        while !batch.is_empty() {
            let rest = batch.split_off(fitting(&batch));
            work(&shared, &mut link, std::mem::replace(&mut batch, rest)).await;
        }
    }
}

/// How many of the first are one batch: at least one, and no more than there is room for in the
/// server's table of locks and in one message.
fn fitting(batch: &[Asked]) -> usize {
    let (mut places, mut bytes) = (0, 0);
    let fits = |asked: &&Asked| {
        let is_first = places == 0;
        places += asked.tx.checks().len() + asked.tx.writes().len();
        bytes += asked.weight;
        is_first || (places <= PLACES_MAX && bytes <= BATCH_BYTES_MAX)
    };
    batch.iter().take_while(fits).count().max(1)
}

async fn work(shared: &Shared, link: &mut Link, mut batch: Vec<Asked>) {
    let mut failed = Failed::Again;
    for _ in 0..TRIES_MAX {
        // What nobody waits for any more was given up by its caller, who has counted on that.
        batch.retain(|asked| !asked.ear.is_closed());
        if batch.is_empty() {
            return;
        }
        let tried =
            link.work(async |client: &mut Client| attempt(shared, client, &batch).await).await;
        match tried {
            Ok((now, commits)) => {
                for (asked, commit) in batch.into_iter().zip(commits) {
                    drop(asked.ear.send(commit.map(|value| Stamped { now, value })));
                }
                return;
            }
            Err(Failed::Again) => {}
            // Whose place is held, or cannot be read, is found by asking for each alone.
            Err(Failed::Held | Failed::Refused(_)) if batch.len() > 1 => {
                for one in batch {
                    Box::pin(work(shared, link, vec![one])).await;
                }
                return;
            }
            Err(other) => {
                failed = other;
                break;
            }
        }
    }
    for asked in batch {
        drop(asked.ear.send(failed.reply(Commit::Unknown)));
    }
}

/// Every place that a batch touches.
#[derive(Default)]
struct Places {
    slots: BTreeSet<Vec<u8>>,
    docs: BTreeSet<(&'static str, Vec<u8>)>,
    counters: BTreeSet<Vec<u8>>,
    cursors: BTreeSet<Vec<u8>>,
    lanes: BTreeSet<Vec<u8>>,
}

impl Places {
    fn of<'a>(shared: &Shared, batch: impl Iterator<Item = &'a Tx>) -> Self {
        let mut places = Self::default();
        for tx in batch {
            for check in tx.checks() {
                match check {
                    Check::Slot(slot, _) => drop(places.slots.insert(shared.key(slot))),
                    Check::Doc(doc, _) => places.doc(doc),
                    Check::AtLeast(counter, _) => drop(places.counters.insert(counter.0.to_vec())),
                }
            }
            for write in tx.writes() {
                match write {
                    Write::Slot(draft) => {
                        places.slots.insert(shared.key(draft.address.slot()));
                    }
                    Write::Put(doc, _) | Write::Delete(doc) => places.doc(doc),
                    Write::Append(lane, _) | Write::Trim(lane, _) => {
                        places.lanes.insert(lane.0.to_vec());
                    }
                    Write::Add(counter, _) => drop(places.counters.insert(counter.0.to_vec())),
                    Write::Advance(cursor, _) => drop(places.cursors.insert(cursor.0.to_vec())),
                }
            }
        }
        places
    }

    fn doc(&mut self, doc: &Doc) {
        self.docs.insert((doc.space, doc.key.to_vec()));
    }

    /// One number for each place but slots, which are locked by their rows.
    fn locks(&self, schema: &str) -> Vec<i64> {
        let number = |kind: &str, key: &[u8]| {
            let bytes = [schema.as_bytes(), &[0], kind.as_bytes(), &[0], key].concat();
            i64::from_ne_bytes(xxh3_64(&bytes).to_ne_bytes())
        };
        let docs = self.docs.iter().map(|(space, key)| number(space, key));
        let counters = self.counters.iter().map(|key| number("+counter", key));
        let cursors = self.cursors.iter().map(|key| number("+cursor", key));
        let lanes = self.lanes.iter().map(|key| number("+lane", key));
        let all: BTreeSet<_> = docs.chain(counters).chain(cursors).chain(lanes).collect();
        all.into_iter().collect()
    }
}

type Outcomes = (Timestamp, Vec<Result<Commit, StoreError>>);

async fn attempt(
    shared: &Shared,
    client: &mut Client,
    batch: &[Asked],
) -> Result<Outcomes, Failed> {
    let failed = |error| link::judge(&error);
    let places = Places::of(shared, batch.iter().map(|asked| &asked.tx));
    let tx = link::transaction(client).await.map_err(failed)?;
    tx.batch_execute(&shared.sql.settings).await.map_err(failed)?;
    let locks = places.locks(&shared.sql.schema);
    let lock =
        "SELECT pg_advisory_xact_lock(h) FROM unnest($1::bigint[]) WITH ORDINALITY AS l(h, n)";
    tx.query_typed(lock, &[(&locks, Type::INT8_ARRAY)]).await.map_err(failed)?;
    let mut state = load(shared, &tx, &places).await?;
    let commits: Vec<_> = batch.iter().map(|asked| Ok(state.judge(shared, &asked.tx))).collect();
    state.write(shared, &tx).await?;
    let is_repeated = |commit: &Result<Commit, _>| matches!(commit, Ok(Commit::Repeated));
    if commits.iter().any(is_repeated) {
        // An earlier copy may have become visible without having reached the standby that it was to
        // reach. A write of our own makes the commit wait for everything before it.
        let me = [(&shared.node as _, Type::UUID)];
        tx.query_typed(&shared.sql.beat, &me).await.map_err(failed)?;
    }
    tx.commit().await.map_err(failed)?;
    state.note(shared);
    for (asked, commit) in batch.iter().zip(&commits) {
        if is_repeated(commit) {
            state.adopt(shared, &asked.tx);
        }
    }
    Ok((state.now, commits))
}

async fn load(shared: &Shared, tx: &Transaction<'_>, places: &Places) -> Result<State, Failed> {
    let failed = |error| link::judge(&error);
    let s = &shared.sql.schema;
    let mut state = State {
        now: time(0),
        slots: places.slots.iter().map(|slot| (slot.clone(), None)).collect(),
        docs: places.docs.iter().map(|doc| (doc.clone(), None)).collect(),
        counters: places.counters.iter().map(|name| (name.clone(), 0)).collect(),
        cursors: places.cursors.iter().map(|name| (name.clone(), 0)).collect(),
        lanes: places.lanes.iter().map(|name| (name.clone(), 0)).collect(),
        changed: Changed::default(),
    };
    if !places.slots.is_empty() {
        let slots: Vec<_> = places.slots.iter().collect();
        // First the slots, then the nodes whose renewals their versions depend on.
        let lock =
            format!("SELECT node FROM {s}.slots WHERE slot = ANY($1) ORDER BY slot FOR UPDATE");
        let rows = tx.query_typed(&lock, &[(&slots, Type::BYTEA_ARRAY)]).await.map_err(failed)?;
        let nodes: BTreeSet<Uuid> = rows.iter().filter_map(|row| row.get(0)).collect();
        let nodes: Vec<_> = nodes.into_iter().collect();
        let lock = format!("SELECT 1 FROM {s}.nodes WHERE node = ANY($1) ORDER BY node FOR UPDATE");
        tx.query_typed(&lock, &[(&nodes, Type::UUID_ARRAY)]).await.map_err(failed)?;
        let read = format!(
            "SELECT {COLUMNS} FROM {s}.slots s LEFT JOIN {s}.nodes n ON n.node = s.node
             WHERE s.slot = ANY($1)"
        );
        for row in tx.query_typed(&read, &[(&slots, Type::BYTEA_ARRAY)]).await.map_err(failed)? {
            if let Some(found) = rows::Found::read(&row, 0) {
                let record = shared.record(&found).map_err(Failed::Refused)?;
                state.slots.insert(found.slot.clone(), Some(record));
            }
        }
    }
    if !places.docs.is_empty() {
        let spaces: Vec<_> = places.docs.iter().map(|(space, _)| *space).collect();
        let keys: Vec<_> = places.docs.iter().map(|(_, key)| key).collect();
        let read = format!(
            "SELECT i.n, d.write, d.value FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY
             AS i(space, key, n) JOIN {s}.docs d ON d.space = i.space AND d.key = i.key"
        );
        let types = [(&spaces as _, Type::TEXT_ARRAY), (&keys as _, Type::BYTEA_ARRAY)];
        for row in tx.query_typed(&read, &types).await.map_err(failed)? {
            let at = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
            let Some(doc) = places.docs.iter().nth(at) else { continue };
            let document = shared.document(doc.0, &doc.1, row.get(1), row.get(2));
            state.docs.insert(doc.clone(), Some(document.map_err(Failed::Refused)?));
        }
    }
    for (table, column, names, into) in [
        ("counters", "value", &places.counters, &mut state.counters),
        ("cursors", "position", &places.cursors, &mut state.cursors),
    ] {
        numbers(
            tx,
            &format!("SELECT name, {column} FROM {s}.{table} WHERE name = ANY($1)"),
            names,
            into,
        )
        .await?;
    }
    let heads = format!("SELECT lane, last FROM {s}.lanes WHERE lane = ANY($1)");
    numbers(tx, &heads, &places.lanes, &mut state.lanes).await?;
    // The time comes last: it is later than that of every transaction that was waited for.
    let row = tx.query_typed(&format!("SELECT {NOW}"), &[]).await.map_err(failed)?;
    state.now = time(row.first().map_or(0, |row| row.get(0)));
    Ok(state)
}

async fn numbers(
    tx: &Transaction<'_>,
    read: &str,
    names: &BTreeSet<Vec<u8>>,
    into: &mut HashMap<Vec<u8>, i64>,
) -> Result<(), Failed> {
    if names.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = names.iter().collect();
    let rows = tx.query_typed(read, &[(&names, Type::BYTEA_ARRAY)]).await;
    for row in rows.map_err(|error| link::judge(&error))? {
        into.insert(row.get(0), row.get(1));
    }
    Ok(())
}
