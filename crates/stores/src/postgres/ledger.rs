//! The transactions: many of them in one of the database's, each judged by itself.
//!
//! A batch locks every place that it touches, in one order, reads them, judges its transactions one
//! after the other against what the ones before it would leave behind, and writes what is left in
//! the end. So one sync carries many, a conflict never fails a neighbour, and positions in a lane
//! are given in the order of commits: whoever has the next one waits for the lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use onetake_core::{Record, Timestamp, Verdict, Version, judge};
use onetake_engine::{
    Check, Commit, Doc, Document, Found, Place, Position, Reply, Stamped, StoreError, Tx, Write,
};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use super::link::{self, Failed, Link};
use super::own::Owned;
use super::rows::{self, COLUMNS, Written, time};
use super::shared::{NOW, Shared};

/// The most transactions of one batch.
const BATCH_MAX: usize = 64;
/// How often a batch is tried that gets in another's way.
const TRIES_MAX: usize = 8;

pub(super) struct Asked {
    pub(super) tx: Tx,
    pub(super) ear: oneshot::Sender<Reply<Commit>>,
}

/// Works until nobody can ask any more.
pub(super) async fn keep(shared: Arc<Shared>, mut asked: mpsc::Receiver<Asked>, mut link: Link) {
    let mut batch = Vec::new();
    while asked.recv_many(&mut batch, BATCH_MAX).await > 0 {
        work(&shared, &mut link, std::mem::take(&mut batch)).await;
    }
}

async fn work(shared: &Shared, link: &mut Link, batch: Vec<Asked>) {
    let mut failed = Failed::Again;
    for _ in 0..TRIES_MAX {
        let tried = match link.client().await {
            Ok(client) => attempt(shared, client, &batch).await,
            Err(failed) => Err(failed),
        };
        match tried {
            Ok((now, commits)) => {
                for (asked, commit) in batch.into_iter().zip(commits) {
                    drop(asked.ear.send(commit.map(|value| Stamped { now, value })));
                }
                return;
            }
            Err(Failed::Again) => {}
            Err(other) => {
                link.drop_client();
                failed = other;
                break;
            }
        }
    }
    for asked in batch {
        let reply = match &failed {
            Failed::Refused(error) => Err(error.clone()),
            Failed::Again => Err(StoreError::Unavailable("rivals kept getting in the way".into())),
            Failed::Unsure => Ok(Stamped { now: time(0), value: Commit::Unknown }),
        };
        drop(asked.ear.send(reply));
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
    fn of<'a>(batch: impl Iterator<Item = &'a Tx>) -> Self {
        let mut places = Self::default();
        for tx in batch {
            for check in tx.checks() {
                match check {
                    Check::Slot(slot, _) => drop(places.slots.insert(slot.to_bytes())),
                    Check::Doc(doc, _) => places.doc(doc),
                    Check::AtLeast(counter, _) => drop(places.counters.insert(counter.0.to_vec())),
                }
            }
            for write in tx.writes() {
                match write {
                    Write::Slot(draft) => {
                        places.slots.insert(draft.address.slot().to_bytes());
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

/// What the places of a batch hold, with what its transactions changed so far.
struct State {
    now: Timestamp,
    slots: HashMap<Vec<u8>, Option<Arc<Record>>>,
    docs: HashMap<(&'static str, Vec<u8>), Option<Document>>,
    counters: HashMap<Vec<u8>, i64>,
    cursors: HashMap<Vec<u8>, i64>,
    lanes: HashMap<Vec<u8>, i64>,
    changed: Changed,
}

/// What is to be written.
#[derive(Default)]
struct Changed {
    /// The draft, and the write that it replaces, if any.
    slots: BTreeMap<Vec<u8>, Slotted>,
    docs: BTreeSet<(&'static str, Vec<u8>)>,
    counters: BTreeSet<Vec<u8>>,
    cursors: BTreeSet<Vec<u8>>,
    entries: Vec<(Vec<u8>, i64, Bytes)>,
    trims: BTreeMap<Vec<u8>, i64>,
    lanes: BTreeSet<Vec<u8>>,
}

struct Slotted {
    written: Written,
    record: Arc<Record>,
    was_there: bool,
    replaced: Option<u128>,
}

type Outcomes = (Timestamp, Vec<Result<Commit, StoreError>>);

async fn attempt(
    shared: &Shared,
    client: &mut Client,
    batch: &[Asked],
) -> Result<Outcomes, Failed> {
    let failed = |error| link::judge(&error);
    let places = Places::of(batch.iter().map(|asked| &asked.tx));
    let tx = client.transaction().await.map_err(failed)?;
    let locks = places.locks(&shared.sql.schema);
    let lock =
        "SELECT pg_advisory_xact_lock(h) FROM unnest($1::bigint[]) WITH ORDINALITY AS l(h, n)";
    tx.query_typed(lock, &[(&locks, Type::INT8_ARRAY)]).await.map_err(failed)?;
    let mut state = load(shared, &tx, &places).await?;
    let commits: Vec<_> = batch.iter().map(|asked| Ok(state.judge(&asked.tx))).collect();
    state.write(shared, &tx).await?;
    tx.commit().await.map_err(failed)?;
    state.note(shared);
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
            let write: Uuid = row.get(1);
            let value: Vec<u8> = row.get(2);
            let version = Version::of_write(write.as_u128());
            state.docs.insert(doc.clone(), Some(Document { version, value: value.into() }));
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

/// The version of what a slot or a document holds.
fn version(found: &Found) -> Option<Version> {
    match found {
        Found::Slot(record) => record.as_ref().map(|record| record.version),
        Found::Doc(document) => document.as_ref().map(|document| document.version),
        Found::Counter(_) | Found::Cursor(_) => None,
    }
}

fn position(value: i64) -> Position {
    Position(u64::try_from(value).unwrap_or(0))
}

impl State {
    fn found(&self, place: &Place) -> Found {
        match place {
            Place::Slot(slot) => Found::Slot(self.slots.get(&slot.to_bytes()).cloned().flatten()),
            Place::Doc(doc) => {
                Found::Doc(self.docs.get(&(doc.space, doc.key.to_vec())).cloned().flatten())
            }
            Place::Counter(name) => {
                Found::Counter(self.counters.get(&name.0[..]).copied().unwrap_or(0))
            }
            Place::Cursor(name) => {
                Found::Cursor(position(self.cursors.get(&name.0[..]).copied().unwrap_or(0)))
            }
        }
    }

    /// Carries out one transaction on what the ones before it left, or says why not.
    fn judge(&mut self, tx: &Tx) -> Commit {
        let mut refused = None;
        for (index, check) in tx.checks().iter().enumerate() {
            let (current, holds) = match check {
                Check::Slot(slot, expected) => {
                    let found = self.found(&Place::Slot(slot.clone()));
                    match judge(version(&found), *expected, tx.version()) {
                        Verdict::Repeated if index == 0 => return Commit::Repeated,
                        verdict @ (Verdict::Write | Verdict::Repeated | Verdict::Refuse) => {
                            (found, verdict == Verdict::Write)
                        }
                    }
                }
                Check::Doc(doc, expected) => {
                    let found = self.found(&Place::Doc(doc.clone()));
                    match judge(version(&found), *expected, tx.version()) {
                        Verdict::Repeated if index == 0 => return Commit::Repeated,
                        verdict @ (Verdict::Write | Verdict::Repeated | Verdict::Refuse) => {
                            (found, verdict == Verdict::Write)
                        }
                    }
                }
                Check::AtLeast(counter, least) => {
                    let found = self.found(&Place::Counter(counter.clone()));
                    let holds = matches!(found, Found::Counter(value) if value >= *least);
                    (found, holds)
                }
            };
            if !holds && refused.is_none() {
                refused = Some(Commit::Conflict { check: index, current });
            }
        }
        refused.unwrap_or_else(|| self.apply(tx))
    }

    fn apply(&mut self, tx: &Tx) -> Commit {
        let mut positions = Vec::new();
        for write in tx.writes() {
            match write {
                Write::Slot(draft) => {
                    let written = Written::of(draft);
                    let slot = written.slot.clone();
                    let record = Arc::new(draft.clone().at(self.now));
                    let there =
                        self.slots.insert(slot.clone(), Some(Arc::clone(&record))).flatten();
                    let before = self.changed.slots.remove(&slot);
                    let was_there = before.as_ref().map_or(there.is_some(), |one| one.was_there);
                    let replaced = before
                        .and_then(|one| one.replaced)
                        .or_else(|| there.map(|there| there.version.write));
                    let slotted = Slotted { written, record, was_there, replaced };
                    self.changed.slots.insert(slot, slotted);
                }
                Write::Put(doc, value) => {
                    let key = (doc.space, doc.key.to_vec());
                    let document = Document { version: tx.version(), value: value.clone() };
                    self.docs.insert(key.clone(), Some(document));
                    self.changed.docs.insert(key);
                }
                Write::Delete(doc) => {
                    let key = (doc.space, doc.key.to_vec());
                    self.docs.insert(key.clone(), None);
                    self.changed.docs.insert(key);
                }
                Write::Append(lane, value) => {
                    let name = lane.0.to_vec();
                    let last = self.lanes.entry(name.clone()).or_default();
                    *last += 1;
                    positions.push(position(*last));
                    self.changed.entries.push((name.clone(), *last, value.clone()));
                    self.changed.lanes.insert(name);
                }
                Write::Trim(lane, until) => {
                    let name = lane.0.to_vec();
                    let last = self.lanes.get(&name).copied().unwrap_or(0);
                    // What is appended behind it stays, wherever it points.
                    let until = i64::try_from(until.0).unwrap_or(i64::MAX).min(last);
                    self.changed.entries.retain(|(lane, at, _)| *lane != name || *at > until);
                    let trimmed = self.changed.trims.entry(name).or_default();
                    *trimmed = until.max(*trimmed);
                }
                Write::Add(counter, delta) => {
                    let name = counter.0.to_vec();
                    let value = self.counters.entry(name.clone()).or_default();
                    *value = value.saturating_add(*delta);
                    self.changed.counters.insert(name);
                }
                Write::Advance(cursor, to) => {
                    let name = cursor.0.to_vec();
                    let value = self.cursors.entry(name.clone()).or_default();
                    *value = (*value).max(i64::try_from(to.0).unwrap_or(i64::MAX));
                    self.changed.cursors.insert(name);
                }
            }
        }
        Commit::Committed { positions }
    }

    /// Notes which claims are ours now.
    fn note(&self, shared: &Shared) {
        for (slot, one) in &self.changed.slots {
            if let Some(replaced) = one.replaced {
                shared.own.forget(slot, replaced);
            }
            if one.written.is_claim {
                let until = rows::millis(self.now).saturating_add(one.written.until);
                let owned = Owned { write: one.record.version.write, renewal: 0, until };
                shared.own.put(slot.clone(), owned);
            }
        }
    }

    async fn write(&self, shared: &Shared, tx: &Transaction<'_>) -> Result<(), Failed> {
        self.write_slots(shared, tx).await?;
        let (s, failed) = (&shared.sql.schema, |error| link::judge(&error));
        let changed = &self.changed;
        let value = |doc: &(&'static str, Vec<u8>)| self.docs.get(doc).and_then(Option::as_ref);
        let (put, gone): (Vec<_>, Vec<_>) =
            changed.docs.iter().partition(|doc| value(doc).is_some());
        if !put.is_empty() {
            let spaces: Vec<_> = put.iter().map(|(space, _)| *space).collect();
            let keys: Vec<_> = put.iter().map(|(_, key)| key).collect();
            let documents: Vec<_> = put.iter().filter_map(|doc| value(doc)).collect();
            let writes: Vec<_> =
                documents.iter().map(|it| Uuid::from_u128(it.version.write)).collect();
            let values: Vec<_> = documents.iter().map(|it| &it.value[..]).collect();
            let sql = format!(
                "INSERT INTO {s}.docs (space, key, write, value)
                 SELECT * FROM unnest($1::text[], $2::bytea[], $3::uuid[], $4::bytea[])
                 ON CONFLICT (space, key)
                 DO UPDATE SET write = excluded.write, value = excluded.value"
            );
            let types = [
                (&spaces as _, Type::TEXT_ARRAY),
                (&keys as _, Type::BYTEA_ARRAY),
                (&writes as _, Type::UUID_ARRAY),
                (&values as _, Type::BYTEA_ARRAY),
            ];
            tx.query_typed(&sql, &types).await.map_err(failed)?;
        }
        if !gone.is_empty() {
            let spaces: Vec<_> = gone.iter().map(|(space, _)| *space).collect();
            let keys: Vec<_> = gone.iter().map(|(_, key)| key).collect();
            let sql = format!(
                "DELETE FROM {s}.docs d USING unnest($1::text[], $2::bytea[]) AS i(space, key)
                 WHERE d.space = i.space AND d.key = i.key"
            );
            let types = [(&spaces as _, Type::TEXT_ARRAY), (&keys as _, Type::BYTEA_ARRAY)];
            tx.query_typed(&sql, &types).await.map_err(failed)?;
        }
        for (table, name, column, names, values) in [
            ("counters", "name", "value", &changed.counters, &self.counters),
            ("cursors", "name", "position", &changed.cursors, &self.cursors),
            ("lanes", "lane", "last", &changed.lanes, &self.lanes),
        ] {
            if names.is_empty() {
                continue;
            }
            let values: Vec<_> = names.iter().map(|name| values.get(name).copied()).collect();
            let names: Vec<_> = names.iter().collect();
            let sql = format!(
                "INSERT INTO {s}.{table} ({name}, {column})
                 SELECT * FROM unnest($1::bytea[], $2::bigint[])
                 ON CONFLICT ({name}) DO UPDATE SET {column} = excluded.{column}"
            );
            let types = [(&names as _, Type::BYTEA_ARRAY), (&values as _, Type::INT8_ARRAY)];
            tx.query_typed(&sql, &types).await.map_err(failed)?;
        }
        self.write_entries(shared, tx).await
    }

    async fn write_entries(&self, shared: &Shared, tx: &Transaction<'_>) -> Result<(), Failed> {
        let (s, failed) = (&shared.sql.schema, |error| link::judge(&error));
        let changed = &self.changed;
        if !changed.entries.is_empty() {
            let lanes: Vec<_> = changed.entries.iter().map(|(lane, ..)| lane).collect();
            let places: Vec<_> = changed.entries.iter().map(|(_, at, _)| *at).collect();
            let values: Vec<_> = changed.entries.iter().map(|(.., value)| &value[..]).collect();
            let sql = format!(
                "INSERT INTO {s}.entries (lane, position, at, value)
                 SELECT lane, position, $4, value
                 FROM unnest($1::bytea[], $2::bigint[], $3::bytea[]) AS i(lane, position, value)"
            );
            let at = rows::millis(self.now);
            let types = [
                (&lanes as _, Type::BYTEA_ARRAY),
                (&places as _, Type::INT8_ARRAY),
                (&values as _, Type::BYTEA_ARRAY),
                (&at as _, Type::INT8),
            ];
            tx.query_typed(&sql, &types).await.map_err(failed)?;
        }
        for (lane, until) in &changed.trims {
            let sql = format!(
                "DELETE FROM {s}.entries WHERE lane = $1 AND position <= $2 AND \
                               NOT position = ANY($3)"
            );
            // What this batch itself appended was trimmed before it was written.
            let own = changed.entries.iter().filter(|(of, ..)| of == lane);
            let own: Vec<_> = own.map(|(_, at, _)| *at).collect();
            let types =
                [(lane as _, Type::BYTEA), (until as _, Type::INT8), (&own as _, Type::INT8_ARRAY)];
            tx.query_typed(&sql, &types).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn write_slots(&self, shared: &Shared, tx: &Transaction<'_>) -> Result<(), Failed> {
        let (s, failed) = (&shared.sql.schema, |error| link::judge(&error));
        let now = rows::millis(self.now);
        for (is_there, sql) in [
            (
                false,
                format!(
                    "INSERT INTO {s}.slots (slot, write, node, kind, since, until, body)
                 SELECT slot, write, node, kind, $8 + since, $8 + until, body
                 FROM unnest($1::bytea[], $2::uuid[], $3::uuid[], $4::smallint[], $5::bigint[],
                    $6::bigint[], $7::bytea[]) AS i(slot, write, node, kind, since, until, body)
                 ON CONFLICT (slot) DO NOTHING RETURNING 1"
                ),
            ),
            (
                true,
                format!(
                    "UPDATE {s}.slots o SET write = i.write, node = i.node, kind = i.kind,
                    since = $8 + i.since, until = $8 + i.until, body = i.body
                 FROM unnest($1::bytea[], $2::uuid[], $3::uuid[], $4::smallint[], $5::bigint[],
                    $6::bigint[], $7::bytea[]) AS i(slot, write, node, kind, since, until, body)
                 WHERE o.slot = i.slot RETURNING 1"
                ),
            ),
        ] {
            let all: Vec<_> =
                self.changed.slots.values().filter(|one| one.was_there == is_there).collect();
            if all.is_empty() {
                continue;
            }
            let slots: Vec<_> = all.iter().map(|one| &one.written.slot).collect();
            let writes: Vec<_> = all.iter().map(|one| one.written.write).collect();
            let nodes: Vec<_> =
                all.iter().map(|one| one.written.is_claim.then_some(shared.node)).collect();
            let kinds: Vec<_> = all.iter().map(|one| one.written.kind).collect();
            let since: Vec<_> = all.iter().map(|one| one.written.since).collect();
            let until: Vec<_> = all.iter().map(|one| one.written.until).collect();
            let bodies: Vec<_> = all.iter().map(|one| &one.written.body).collect();
            let types = [
                (&slots as _, Type::BYTEA_ARRAY),
                (&writes as _, Type::UUID_ARRAY),
                (&nodes as _, Type::UUID_ARRAY),
                (&kinds as _, Type::INT2_ARRAY),
                (&since as _, Type::INT8_ARRAY),
                (&until as _, Type::INT8_ARRAY),
                (&bodies as _, Type::BYTEA_ARRAY),
                (&now as _, Type::INT8),
            ];
            let rows = tx.query_typed(&sql, &types).await.map_err(failed)?;
            // Somebody put a record where there was none, and nothing could be locked.
            if rows.len() != all.len() {
                return Err(Failed::Again);
            }
        }
        Ok(())
    }
}
