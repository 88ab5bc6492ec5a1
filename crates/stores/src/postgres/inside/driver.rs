//! What a driver must be able to do for a call inside its transaction: a few small steps.
//!
//! Every statement is sent without a name and with its types, so that it works behind a pooler that
//! gives each transaction another connection. A nested transaction is a savepoint that undoes
//! itself when it is dropped: a caller that goes away in the middle leaves nothing behind.

use std::time::Duration;

use onetake_core::Timestamp;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::error::DatabaseError;
use super::sql::Sql;
use crate::postgres::rows::{Found, Written, time};

/// A transaction of the caller's that an operation can be executed in: one of `tokio-postgres` or,
/// with the feature `sqlx`, of that. Nobody else can implement it.
#[allow(private_bounds, reason = "nobody else can implement it")]
pub trait Transaction: Steps<Family = Self::Driver> {
    /// Whose transaction it is.
    type Driver: Driver;
}

/// A driver of PostgreSQL: which type its transactions have.
pub trait Driver: 'static {
    /// A transaction, and so what an effect writes with.
    type Tx<'t>: Transaction<Driver = Self>;
}

/// What a slot holds, and the time of the database when it was looked at.
pub(super) struct Look {
    pub(super) now: Timestamp,
    pub(super) found: Option<Found>,
}

/// What became of waiting for a key.
pub(super) enum Waited {
    /// It is ours, and what others committed meanwhile can be seen.
    Taken,
    /// It is ours, but this transaction sees one moment only, and that may be an earlier one.
    Fixed,
}

type Said<T> = Result<T, DatabaseError>;

/// The steps.
pub(super) trait Steps: Send + Sized {
    type Family: Driver;

    /// A transaction inside this one.
    fn nest(&mut self) -> impl Future<Output = Said<<Self::Family as Driver>::Tx<'_>>> + Send;

    /// Ends a nested transaction; what it wrote is now the outer one's.
    fn release(self) -> impl Future<Output = Said<()>> + Send;

    /// Ends a nested transaction as if it had never been.
    fn undo(self) -> impl Future<Output = Said<()>> + Send;

    /// The mark that says how the tables are sealed.
    fn mark(&mut self, sql: &Sql) -> impl Future<Output = Said<Option<Vec<u8>>>> + Send;

    /// Takes the key `number` until the nested transaction is undone or the outer one ends, unless
    /// another has it, and looks at `slot`. Says whether it has the key.
    fn take(
        &mut self,
        sql: &Sql,
        number: i64,
        slot: &[u8],
    ) -> impl Future<Output = Said<(bool, Look)>> + Send;

    /// Takes the key `number`, waiting for it at most so long.
    fn wait(
        &mut self,
        sql: &Sql,
        number: i64,
        within: Duration,
    ) -> impl Future<Output = Said<Waited>> + Send;

    /// Looks at `slot`.
    fn look(&mut self, sql: &Sql, slot: &[u8]) -> impl Future<Output = Said<Look>> + Send;

    /// Writes a record over the write `expected`, or where there is none. Says whether it did.
    fn write(
        &mut self,
        sql: &Sql,
        row: &Written,
        expected: Option<Uuid>,
    ) -> impl Future<Output = Said<bool>> + Send;
}

/// The driver `tokio-postgres`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokioPostgres {}

impl Driver for TokioPostgres {
    type Tx<'t> = tokio_postgres::Transaction<'t>;
}

impl Transaction for tokio_postgres::Transaction<'_> {
    type Driver = TokioPostgres;
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        let said = error
            .as_db_error()
            .map(|said| (said.code().code().to_owned(), said.message().to_owned()));
        let said = said.as_ref().map(|(sqlstate, message)| (sqlstate.as_str(), message.as_str()));
        Self::new(said, error)
    }
}

impl Steps for tokio_postgres::Transaction<'_> {
    type Family = TokioPostgres;

    async fn nest(&mut self) -> Said<tokio_postgres::Transaction<'_>> {
        Ok(self.transaction().await?)
    }

    async fn release(self) -> Said<()> {
        Ok(self.commit().await?)
    }

    async fn undo(self) -> Said<()> {
        Ok(self.rollback().await?)
    }

    async fn mark(&mut self, sql: &Sql) -> Said<Option<Vec<u8>>> {
        Ok(self.query_typed(&sql.mark, &[]).await?.first().map(|row| row.get(0)))
    }

    async fn take(&mut self, sql: &Sql, number: i64, slot: &[u8]) -> Said<(bool, Look)> {
        let (number, slot) = ([(&number as _, Type::INT8)], [(&slot as _, Type::BYTEA)]);
        // Sent one behind the other, so it is one round trip; two statements, so that at READ
        // COMMITTED the look sees whatever was committed before the key was ours.
        let (taken, look) = tokio::try_join!(
            self.query_typed_one(&sql.take, &number),
            self.query_typed_one(&sql.look, &slot)
        )?;
        Ok((taken.get(0), seen(&look)))
    }

    async fn wait(&mut self, sql: &Sql, number: i64, within: Duration) -> Said<Waited> {
        let (millis, number) = (Sql::millis(within), [(&number as _, Type::INT8)]);
        let was = self.query_typed_one(&sql.limit, &[(&millis, Type::TEXT)]).await?;
        let (limit, is_fixed): (String, bool) = (was.get(0), was.get(1));
        self.query_typed(&sql.wait, &number).await?;
        self.query_typed(&sql.restore, &[(&limit, Type::TEXT)]).await?;
        Ok(if is_fixed { Waited::Fixed } else { Waited::Taken })
    }

    async fn look(&mut self, sql: &Sql, slot: &[u8]) -> Said<Look> {
        let look = self.query_typed_one(&sql.look, &[(&slot, Type::BYTEA)]).await?;
        Ok(seen(&look))
    }

    async fn write(&mut self, sql: &Sql, row: &Written, expected: Option<Uuid>) -> Said<bool> {
        let types = [
            (&row.slot as _, Type::BYTEA),
            (&row.write as _, Type::UUID),
            (&row.kind as _, Type::INT2),
            (&row.since as _, Type::INT8),
            (&row.until as _, Type::INT8),
            (&row.body as _, Type::BYTEA),
            (&expected as _, Type::UUID),
        ];
        Ok(!self.query_typed(&sql.write, &types).await?.is_empty())
    }
}

fn seen(row: &tokio_postgres::Row) -> Look {
    Look { now: time(row.get(0)), found: Found::read(row, 1) }
}
