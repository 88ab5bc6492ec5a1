//! The readers: single slots in batches, everything else one by one. They change no record; a claim
//! that is waited for they mark as such.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use onetake_core::Record;
use onetake_engine::{
    Doc, Document, Entry, Found, Page, Place, Position, Reply, Stamped, StoreError,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, IsolationLevel};

use super::link::{self, Failed, Link, in_one_trip};
use super::rows::{self, COLUMNS, time};
use super::shared::{NOW, Read, Shared};

/// The most reads of one batch.
const BATCH_MAX: usize = 128;

type Ear<T> = oneshot::Sender<Reply<T>>;

/// What somebody wants to see.
pub(super) enum Look {
    Slot {
        slot: Vec<u8>,
        ear: Ear<Option<Arc<Record>>>,
    },
    Fetch {
        places: Vec<Place>,
        ear: Ear<Vec<Found>>,
    },
    Scan {
        space: &'static str,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: usize,
        ear: Ear<Page<(Doc, Document)>>,
    },
    Slots {
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: usize,
        ear: Ear<Page<Arc<Record>>>,
    },
    Lane {
        lane: Vec<u8>,
        after: Position,
        limit: usize,
        ear: Ear<Page<Entry>>,
    },
    Mark {
        slot: Vec<u8>,
        ear: oneshot::Sender<bool>,
    },
}

/// Works until nobody can ask any more.
pub(super) async fn show(
    shared: Arc<Shared>,
    asked: Arc<tokio::sync::Mutex<mpsc::Receiver<Look>>>,
    mut link: Link,
) {
    let mut batch = Vec::new();
    loop {
        let count = asked.lock().await.recv_many(&mut batch, BATCH_MAX).await;
        if count == 0 {
            return;
        }
        let mut slots: HashMap<_, Vec<_>> = HashMap::new();
        let (mut marks, mut marked) = (Vec::new(), Vec::new());
        for look in batch.drain(..) {
            match look {
                // However many want to see one slot, it is read once.
                Look::Slot { slot, ear } => slots.entry(slot).or_default().push(ear),
                Look::Mark { slot, ear } => {
                    marks.push(slot);
                    marked.push(ear);
                }
                other @ (Look::Fetch { .. }
                | Look::Scan { .. }
                | Look::Slots { .. }
                | Look::Lane { .. }) => one(&shared, &mut link, other).await,
            }
        }
        let (slots, ears): (Vec<_>, Vec<_>) = slots.into_iter().unzip();
        read(&shared, &mut link, &slots, ears).await;
        mark(&shared, &mut link, &marks, marked).await;
    }
}

async fn read(
    shared: &Shared,
    link: &mut Link,
    slots: &[Vec<u8>],
    ears: Vec<Vec<Ear<Option<Arc<Record>>>>>,
) {
    if slots.is_empty() {
        return;
    }
    let asked_at = Instant::now();
    let found = link.work(async |client: &mut Client| pinned(shared, client, slots).await).await;
    match found {
        Ok(Stamped { now, value }) => {
            for ((ears, there), slot) in ears.into_iter().zip(value).zip(slots) {
                match &there {
                    Ok(Some(record)) => {
                        let there = Stamped { now, value: Arc::clone(record) };
                        shared.front.note(slot, &there, asked_at);
                    }
                    Ok(None) => shared.front.forget(slot),
                    Err(_) => {}
                }
                let reply = there.map(|value| Stamped { now, value });
                for ear in ears {
                    drop(ear.send(reply.clone()));
                }
            }
        }
        Err(failed) => {
            let error = StoreError::from(failed);
            for ear in ears.into_iter().flatten() {
                drop(ear.send(Err(error.clone())));
            }
        }
    }
}

/// Reads with the plan of batches, in one round trip.
async fn pinned(
    shared: &Shared,
    client: &Client,
    slots: &[Vec<u8>],
) -> Result<Stamped<Vec<Read>>, Failed> {
    let (begun, found, ended) = tokio::join!(
        client.batch_execute(&shared.sql.begin),
        shared.read_all(client, slots),
        client.batch_execute("COMMIT"),
    );
    begun.map_err(|error| link::judge(&error))?;
    let found = found?;
    ended.map_err(|error| link::judge(&error))?;
    Ok(found)
}

async fn one(shared: &Shared, link: &mut Link, look: Look) {
    match look {
        Look::Slot { slot, ear } => read(shared, link, &[slot], vec![vec![ear]]).await,
        Look::Fetch { places, ear } => {
            let found = async |client: &mut Client| fetch(shared, client, &places).await;
            answer(ear, link.work(found).await);
        }
        Look::Scan { space, prefix, after, limit, ear } => {
            let found = async |client: &mut Client| {
                scan(shared, client, space, &prefix, after, limit).await
            };
            answer(ear, link.work(found).await);
        }
        Look::Slots { prefix, after, limit, ear } => {
            let found =
                async |client: &mut Client| scan_slots(shared, client, &prefix, after, limit).await;
            answer(ear, link.work(found).await);
        }
        Look::Lane { lane, after, limit, ear } => {
            let found =
                async |client: &mut Client| read_lane(shared, client, &lane, after, limit).await;
            answer(ear, link.work(found).await);
        }
        Look::Mark { slot, ear } => mark(shared, link, &[slot], vec![ear]).await,
    }
}

fn answer<T>(ear: Ear<T>, found: Result<Stamped<T>, Failed>) {
    drop(ear.send(found.map_err(StoreError::from)));
}

/// Marks claims as waited for, and says of each whether it is one.
async fn mark(
    shared: &Shared,
    link: &mut Link,
    slots: &[Vec<u8>],
    ears: Vec<oneshot::Sender<bool>>,
) {
    if slots.is_empty() {
        return;
    }
    let marked = link
        .work(async |client: &mut Client| {
            let types = [(&slots as _, Type::BYTEA_ARRAY)];
            let rows = in_one_trip(client, &shared.sql.begin, &shared.sql.mark, &types).await;
            let rows = rows.map_err(|error| link::judge(&error))?;
            Ok(rows.iter().map(|row| row.get(0)).collect::<HashSet<Vec<u8>>>())
        })
        .await;
    // Who could not be marked is not told, and looks for itself.
    let Ok(marked) = marked else { return };
    for (slot, ear) in slots.iter().zip(ears) {
        let _ = ear.send(marked.contains(slot));
    }
}

/// How large one read of many may become, so that no page holds the whole store.
const PAGE_BYTES_MAX: usize = 64 << 20;

/// One more than was asked for tells whether there is more.
fn wanted(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)
}

/// The rows of `found`, ordered by `order`, until the values before one of them, in the column
/// `value`, are as large as a page may be; beside each how many there are in `found`. The server
/// knows how long a value is without reading it.
fn bounded(found: &str, order: &str, value: &str) -> String {
    let length = format!("octet_length({value})");
    format!(
        "SELECT * FROM (SELECT f.*, count(*) OVER () AS found,
             sum({length}) OVER (ORDER BY {order}) - {length} AS before FROM ({found}) f) b
         WHERE before <= {PAGE_BYTES_MAX} ORDER BY {order}"
    )
}

/// The first `limit` of the items, out of as many as were `found`.
fn page<T>(mut items: Vec<T>, limit: usize, found: Option<i64>) -> Page<T> {
    items.truncate(limit);
    let found = found.and_then(|found| usize::try_from(found).ok()).unwrap_or(0);
    Page { more: found > items.len(), items }
}

async fn scan(
    shared: &Shared,
    client: &Client,
    space: &'static str,
    prefix: &[u8],
    after: Option<Vec<u8>>,
    limit: usize,
) -> Result<Stamped<Page<(Doc, Document)>>, Failed> {
    let (from, to) = rows::tenant_range(prefix);
    let (after, limited) = (after.filter(|after| *after >= from), wanted(limit));
    let s = &shared.sql.schema;
    let found = format!(
        "SELECT key, write, value FROM {s}.docs WHERE space = $1 AND key >= $2
             AND ($3::bytea IS NULL OR key < $3) AND ($4::bytea IS NULL OR key > $4)
         ORDER BY key LIMIT $5"
    );
    let sql = format!(
        "SELECT c.now, d.key, d.write, d.value, d.found FROM (SELECT {NOW} AS now) c
         LEFT JOIN LATERAL ({}) d ON true",
        bounded(&found, "key", "value")
    );
    let types = [
        (&space as _, Type::TEXT),
        (&from as _, Type::BYTEA),
        (&to as _, Type::BYTEA),
        (&after as _, Type::BYTEA),
        (&limited as _, Type::INT8),
    ];
    let rows = client.query_typed(&sql, &types).await.map_err(|error| link::judge(&error))?;
    let now = time(rows.first().map_or(0, |row| row.get(0)));
    let items = rows.iter().filter_map(|row| {
        let key: Vec<u8> = row.get::<_, Option<_>>(1)?;
        let document = shared.document(space, &key, row.get(2), row.get(3));
        Some(document.map(|document| (Doc { space, key: key.into() }, document)))
    });
    let items: Result<Vec<_>, _> = items.collect();
    let found = rows.first().and_then(|row| row.get(4));
    Ok(Stamped { now, value: page(items.map_err(Failed::Refused)?, limit, found) })
}

async fn scan_slots(
    shared: &Shared,
    client: &Client,
    prefix: &[u8],
    after: Option<Vec<u8>>,
    limit: usize,
) -> Result<Stamped<Page<Arc<Record>>>, Failed> {
    let (from, to) = rows::tenant_range(prefix);
    let limited = wanted(limit);
    let s = &shared.sql.schema;
    let found = format!(
        "SELECT * FROM {s}.slots WHERE slot >= $1 AND ($2::bytea IS NULL OR slot < $2)
             AND ($3::bytea IS NULL OR slot > $3)
         ORDER BY slot LIMIT $4"
    );
    let sql = format!(
        "SELECT c.now, {COLUMNS}, s.found FROM (SELECT {NOW} AS now) c
         LEFT JOIN LATERAL ({}) s ON true LEFT JOIN {s}.nodes n ON n.node = s.node
         ORDER BY s.slot",
        bounded(&found, "slot", "body")
    );
    let types = [
        (&from as _, Type::BYTEA),
        (&to as _, Type::BYTEA),
        (&after as _, Type::BYTEA),
        (&limited as _, Type::INT8),
    ];
    let rows = client.query_typed(&sql, &types).await.map_err(|error| link::judge(&error))?;
    let now = time(rows.first().map_or(0, |row| row.get(0)));
    let items = rows.iter().filter_map(|row| rows::Found::read(row, 1));
    let items: Result<Vec<_>, _> = items.map(|found| shared.record(&found)).collect();
    let found = rows.first().and_then(|row| row.get("found"));
    Ok(Stamped { now, value: page(items.map_err(Failed::Refused)?, limit, found) })
}

async fn read_lane(
    shared: &Shared,
    client: &Client,
    lane: &[u8],
    after: Position,
    limit: usize,
) -> Result<Stamped<Page<Entry>>, Failed> {
    let (behind, limited) = (i64::try_from(after.0).unwrap_or(i64::MAX), wanted(limit));
    let s = &shared.sql.schema;
    let found = format!(
        "SELECT position, at, value FROM {s}.entries WHERE lane = $1 AND position > $2
         ORDER BY position LIMIT $3"
    );
    let sql = format!(
        "SELECT c.now, e.position, e.at, e.value, e.found FROM (SELECT {NOW} AS now) c
         LEFT JOIN LATERAL ({}) e ON true",
        bounded(&found, "position", "value")
    );
    let types =
        [(&lane as _, Type::BYTEA), (&behind as _, Type::INT8), (&limited as _, Type::INT8)];
    let rows = client.query_typed(&sql, &types).await.map_err(|error| link::judge(&error))?;
    let now = time(rows.first().map_or(0, |row| row.get(0)));
    let items = rows.iter().filter_map(|row| {
        let position: i64 = row.get::<_, Option<_>>(1)?;
        Some(shared.entry(lane, position, row.get(2), row.get(3)))
    });
    let items: Result<Vec<_>, _> = items.collect();
    let found = rows.first().and_then(|row| row.get(4));
    Ok(Stamped { now, value: page(items.map_err(Failed::Refused)?, limit, found) })
}

/// Everything at one moment: one snapshot for all of it.
async fn fetch(
    shared: &Shared,
    client: &mut Client,
    places: &[Place],
) -> Result<Stamped<Vec<Found>>, Failed> {
    let (failed, asked_at) = (|error| link::judge(&error), Instant::now());
    let tx = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    let tx = tx.read_only(true).start().await.map_err(failed)?;
    let s = &shared.sql.schema;
    let (mut slots, mut found) = (HashMap::new(), Vec::with_capacity(places.len()));
    let wanted: Vec<_> = places
        .iter()
        .filter_map(|place| match place {
            Place::Slot(slot) => Some(shared.key(slot)),
            Place::Doc(_) | Place::Counter(_) | Place::Cursor(_) => None,
        })
        .collect();
    let rows = tx.query_typed(&shared.sql.reads, &[(&wanted, Type::BYTEA_ARRAY)]).await;
    for row in rows.map_err(failed)? {
        if let Some(there) = rows::Found::read(&row, 1) {
            let record = shared.record(&there).map_err(Failed::Refused)?;
            slots.insert(there.slot, record);
        }
    }
    for place in places {
        found.push(match place {
            Place::Slot(slot) => Found::Slot(slots.get(&shared.key(slot)).cloned()),
            Place::Doc(doc) => {
                let sql =
                    format!("SELECT write, value FROM {s}.docs WHERE space = $1 AND key = $2");
                let key = &doc.key[..];
                let types = [(&doc.space as _, Type::TEXT), (&key as _, Type::BYTEA)];
                let rows = tx.query_typed(&sql, &types).await.map_err(failed)?;
                let document =
                    rows.first().map(|row| shared.document(doc.space, key, row.get(0), row.get(1)));
                Found::Doc(document.transpose().map_err(Failed::Refused)?)
            }
            Place::Counter(name) => {
                let sql = format!("SELECT value FROM {s}.counters WHERE name = $1");
                let rows = tx.query_typed(&sql, &[(&&name.0[..], Type::BYTEA)]).await;
                Found::Counter(rows.map_err(failed)?.first().map_or(0, |row| row.get(0)))
            }
            Place::Cursor(name) => {
                let sql = format!("SELECT position FROM {s}.cursors WHERE name = $1");
                let rows = tx.query_typed(&sql, &[(&&name.0[..], Type::BYTEA)]).await;
                let at: i64 = rows.map_err(failed)?.first().map_or(0, |row| row.get(0));
                Found::Cursor(Position(u64::try_from(at).unwrap_or(0)))
            }
        });
    }
    let now = tx.query_typed(&format!("SELECT {NOW}"), &[]).await.map_err(failed)?;
    let now = time(now.first().map_or(0, |row| row.get(0)));
    tx.commit().await.map_err(failed)?;
    // So that the next retry of what was answered here costs no round trip.
    for (slot, record) in slots {
        shared.front.note(&slot, &Stamped { now, value: record }, asked_at);
    }
    Ok(Stamped { now, value: found })
}
