//! Writes what a batch of transactions leaves behind, and tells who waits for it.

use bytes::Bytes;
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::state::State;
use crate::postgres::link::{self, Failed};
use crate::postgres::listen;
use crate::postgres::rows::{self, Arrays};
use crate::postgres::shared::Shared;

/// How many names one notification has room for: 8,000 bytes.
const NAMES_MAX: usize = 380;

impl State {
    pub(super) async fn write(&self, shared: &Shared, tx: &Transaction<'_>) -> Result<(), Failed> {
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
            let values = put.iter().zip(&documents);
            let values: Vec<_> =
                values.map(|((space, key), it)| shared.put_document(space, key, it)).collect();
            let values: Vec<_> = values.iter().map(|value| &value[..]).collect();
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
            let put = |(lane, position, value): &(Vec<u8>, i64, Bytes)| {
                shared.put_entry(lane, *position, self.now, value)
            };
            let values: Vec<_> = changed.entries.iter().map(put).collect();
            let values: Vec<_> = values.iter().map(|value| &value[..]).collect();
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
                 ON CONFLICT (slot) DO NOTHING RETURNING NULL::bytea"
                ),
            ),
            (
                true,
                format!(
                    "UPDATE {s}.slots o SET write = i.write, node = i.node, kind = i.kind,
                    since = $8 + i.since, until = $8 + i.until, body = i.body,
                    waited = o.waited AND i.kind <> 1
                 FROM unnest($1::bytea[], $2::uuid[], $3::uuid[], $4::smallint[], $5::bigint[],
                    $6::bigint[], $7::bytea[]) AS i(slot, write, node, kind, since, until, body)
                 WHERE o.slot = i.slot RETURNING CASE WHEN o.waited THEN o.slot END"
                ),
            ),
        ] {
            let all: Vec<_> =
                self.changed.slots.values().filter(|one| one.was_there == is_there).collect();
            if all.is_empty() {
                continue;
            }
            let arrays = Arrays::of(all.iter().map(|one| &one.written), shared.node);
            let mut types = arrays.typed().to_vec();
            types.push((&now, Type::INT8));
            let rows = tx.query_typed(&sql, &types).await.map_err(failed)?;
            // Somebody put a record where there was none, and nothing could be locked.
            if rows.len() != all.len() {
                return Err(Failed::Again);
            }
            let waited = rows.iter().filter_map(|row| row.get::<_, Option<Vec<u8>>>(0));
            let names: Vec<_> = waited.map(|slot| listen::name(&slot).to_string()).collect();
            for names in names.chunks(NAMES_MAX) {
                let sql = "SELECT pg_notify($1, $2)::text";
                let (channel, names) = (&shared.sql.channel, names.join(","));
                let types = [(channel as _, Type::TEXT), (&names as _, Type::TEXT)];
                tx.query_typed(sql, &types).await.map_err(failed)?;
            }
        }
        Ok(())
    }
}
