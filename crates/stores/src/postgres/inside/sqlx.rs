//! The steps on a transaction of `sqlx`. No statement is kept on the connection.
//!
//! A bare connection is no transaction and cannot be used: nothing would keep the record and the
//! effect together.

use std::time::Duration;

use sqlx::{Connection as _, Postgres, Row as _, query, query_as};
use uuid::Uuid;

use super::driver::{Driver, Look, Steps, Transaction, Waited};
use super::error::DatabaseError;
use super::sql::Sql;
use crate::postgres::rows::{Found, Written, time};

/// The driver `sqlx`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sqlx {}

impl Driver for Sqlx {
    type Tx<'t> = sqlx::Transaction<'t, Postgres>;
}

impl Transaction for sqlx::Transaction<'_, Postgres> {
    type Driver = Sqlx;
}

impl From<sqlx::Error> for DatabaseError {
    fn from(error: sqlx::Error) -> Self {
        let said = error.as_database_error();
        let said = said.map(|said| (said.code().unwrap_or_default(), said.message().to_owned()));
        let said = said.map(|(sqlstate, message)| (sqlstate.into_owned(), message));
        let said = said.as_ref().map(|(sqlstate, message)| (sqlstate.as_str(), message.as_str()));
        Self::new(said, error)
    }
}

type Said<T> = Result<T, DatabaseError>;

/// The time, and the columns of a row that may be none.
type Seen = (
    i64,
    Option<Vec<u8>>,
    Option<Uuid>,
    Option<Uuid>,
    Option<i64>,
    Option<i64>,
    Option<Vec<u8>>,
    Option<i64>,
    Option<i64>,
);

impl Steps for sqlx::Transaction<'_, Postgres> {
    type Family = Sqlx;

    async fn nest(&mut self) -> Said<sqlx::Transaction<'_, Postgres>> {
        Ok((**self).begin().await?)
    }

    async fn release(self) -> Said<()> {
        Ok(self.commit().await?)
    }

    async fn undo(self) -> Said<()> {
        Ok(self.rollback().await?)
    }

    async fn mark(&mut self, sql: &Sql) -> Said<Option<Vec<u8>>> {
        let mark = query(&sql.mark).persistent(false).fetch_optional(&mut **self).await?;
        Ok(mark.map(|row| row.try_get(0)).transpose()?)
    }

    async fn take(&mut self, sql: &Sql, number: i64, slot: &[u8]) -> Said<(bool, Look)> {
        let taken = query(&sql.take).persistent(false).bind(number).fetch_one(&mut **self).await?;
        Ok((taken.try_get(0)?, self.look(sql, slot).await?))
    }

    async fn wait(&mut self, sql: &Sql, number: i64, within: Duration) -> Said<Waited> {
        let limit = query(&sql.limit).persistent(false).bind(Sql::millis(within));
        let was = limit.fetch_one(&mut **self).await?;
        let (limit, is_fixed) = (was.try_get::<String, _>(0)?, was.try_get::<bool, _>(1)?);
        query(&sql.wait).persistent(false).bind(number).execute(&mut **self).await?;
        query(&sql.restore).persistent(false).bind(limit).execute(&mut **self).await?;
        Ok(if is_fixed { Waited::Fixed } else { Waited::Taken })
    }

    async fn look(&mut self, sql: &Sql, slot: &[u8]) -> Said<Look> {
        let look = query_as::<_, Seen>(&sql.look).persistent(false).bind(slot);
        let (now, slot, write, node, since, until, body, beat, beat_at) =
            look.fetch_one(&mut **self).await?;
        let found = Found::of((slot, write, node, since, until, body, beat, beat_at));
        Ok(Look { now: time(now), found })
    }

    async fn write(&mut self, sql: &Sql, row: &Written, expected: Option<Uuid>) -> Said<bool> {
        let write = query(&sql.write)
            .persistent(false)
            .bind(&row.slot)
            .bind(row.write)
            .bind(row.kind)
            .bind(row.since)
            .bind(row.until)
            .bind(&row.body)
            .bind(expected);
        Ok(write.fetch_optional(&mut **self).await?.is_some())
    }
}
