//! Exactly once: an operation whose effect and whose record are one commit of your own transaction.
//!
//! [`Inside::execute_in`] takes a key inside a transaction that you began, runs your writes in it,
//! and puts the record beside them. Your commit makes all of it true at once; a rollback, a crash
//! or a kill makes none of it true and leaves the key free. There is no lease and no unknown
//! outcome, because there is no moment between the effect and its record.
//!
//! The records are those of the store: a gateway or an executor on the same tables replays what was
//! done here, and the other way round. This file begins and ends no transaction of yours, and it
//! never tries an effect a second time.
//!
//! # Example
//!
//! ```no_run
//! use onetake_core::{Asked, Key, Scope};
//! use onetake_stores::inside::{Ending, Inside};
//!
//! # async fn pay(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let transfer = Inside::named("transfer")?;
//! let (scope, key) = (Scope::tenant_named("acme")?, Key::new("transfer-17")?);
//!
//! let mut tx = client.transaction().await?;
//! let asked = Asked::raw("ann to bob: 5");
//! let take = transfer.execute_in(&mut tx, &scope, &key, asked, async |tx| {
//!     let withdraw = "UPDATE accounts SET balance = balance - 5 WHERE name = 'ann'";
//!     let deposit = "UPDATE accounts SET balance = balance + 5 WHERE name = 'bob'";
//!     match tx.batch_execute(&format!("{withdraw}; {deposit}")).await {
//!         Ok(()) => Ending::Succeeded(5),
//!         Err(error) => Ending::Undone(error.to_string()),
//!     }
//! });
//! let moved: i32 = take.await?.value;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```

mod driver;
mod error;
mod sql;
#[cfg(feature = "sqlx")]
mod sqlx;
mod take;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onetake_core::{
    Address, Ask, Asked, Decision, Draft, Grounds, Keeping, Key, NameError, OnInFlight, OnUnknown,
    Operation, Outcome, Policy, Record, Scope, Settlement, Timestamp, decide,
};
use onetake_engine::{Mint, StoreError};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

pub use self::driver::{Driver, TokioPostgres, Transaction};
use self::driver::{Look, Steps, Waited};
pub use self::error::{DatabaseError, InsideError};
use self::sql::Sql;
#[cfg(feature = "sqlx")]
pub use self::sqlx::Sqlx;
use self::take::{Ended, ended, take};
pub use self::take::{Ending, IntoEnding, Source, Take, Taken};
use super::rows::Written;
use super::{PostgresError, PostgresOptions, is_schema_name};
use crate::codec::CodecError;
use crate::seal::joint::Joint;
use crate::seal::{MasterKey, Sealer};

/// When to come back while another transaction has the key: nobody can say when it will end.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A transaction inside a transaction of type `X`.
type Nested<'t, X> = <<X as Transaction>::Driver as Driver>::Tx<'t>;

/// One operation with its settings, executed exactly once per key inside the caller's transactions.
#[derive(Clone)]
pub struct Inside {
    operation: Operation,
    policy: Arc<Policy>,
    sql: Arc<Sql>,
    mint: Arc<Mint>,
    keys: Arc<[MasterKey]>,
    /// Known once the tables were asked. What it says of them never changes, but for more keys.
    seal: Arc<OnceLock<Joint>>,
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { operation, policy, sql, .. } = self;
        f.debug_struct("Inside")
            .field("operation", operation)
            .field("policy", policy)
            .field("schema", &sql.schema)
            .finish_non_exhaustive()
    }
}

/// What an attempt may do, once its key is taken.
enum Step<N> {
    /// Execute, and replace what these grounds name.
    Execute(N, Grounds),
    /// Give this again.
    Replay(Arc<Outcome>),
}

impl Inside {
    /// The operation `operation` with the default policy, on the tables in the schema `onetake`.
    #[must_use]
    pub fn new(operation: Operation) -> Self {
        let sql = Arc::new(Sql::new(&PostgresOptions::default().schema));
        let (policy, mint) = (Arc::default(), Arc::default());
        let (keys, seal) = (Arc::default(), Arc::default());
        Self { operation, policy, sql, mint, keys, seal }.with_policy(Policy::default())
    }

    /// The operation of this name with the default policy, on the tables in the schema `onetake`.
    ///
    /// # Errors
    /// A [`NameError`] when `operation` is not a name.
    pub fn named(operation: &str) -> Result<Self, NameError> {
        Ok(Self::new(Operation::new(operation)?))
    }

    /// The same operation on the tables in `schema`.
    ///
    /// # Errors
    /// [`PostgresError::SchemaName`] when it is no name of a schema.
    pub fn in_schema(mut self, schema: &str) -> Result<Self, PostgresError> {
        if !is_schema_name(schema) {
            return Err(PostgresError::SchemaName);
        }
        self.sql = Arc::new(Sql::new(schema));
        self.seal = Arc::default();
        Ok(self)
    }

    /// The same operation on tables that are sealed: one of these is the master key of the store.
    #[must_use]
    pub fn with_keys(mut self, keys: Vec<MasterKey>) -> Self {
        self.keys = keys.into();
        self.seal = Arc::default();
        self
    }

    /// The same operation under `policy`. Of its settings these count: the retention, whether a
    /// duplicate waits, and whether failures are kept. What is unknown is held in any case.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        let held = policy.to_builder().on_unknown(OnUnknown::Hold).build();
        self.policy = Arc::new(held.unwrap_or(policy));
        self
    }

    /// The settings.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Executes `effect` inside `tx`, exactly once for `key`, and gives every call the same value.
    /// Without a key it is simply run. Nothing counts before the caller commits `tx`.
    ///
    /// `effect` must write with the transaction that it is given, must not end it by a statement of
    /// its own, and must do nothing that it cannot undo. Another transaction with the same key
    /// waits for the end of this one, as long as the policy says, or is refused. Call this early in
    /// `tx`, and commit soon.
    ///
    /// # Errors
    /// The effect's own failure, a refusal, or a failure of the database; see [`InsideError`]. In
    /// every case what the effect wrote is undone, and unless the connection broke, `tx` can be
    /// used further. After [`InsideError::Clash`], run the whole transaction again.
    ///
    /// # Cancel safety
    /// Dropping the future undoes what the effect wrote so far, and the key is free.
    pub async fn execute_in<'k, X, F, O>(
        &self,
        tx: &mut X,
        scope: &Scope,
        key: impl Into<Option<&'k Key>>,
        asked: Asked,
        effect: F,
    ) -> Taken<O>
    where
        X: Transaction,
        F: AsyncFnOnce(&mut Nested<'_, X>) -> O,
        O: IntoEnding,
    {
        let Some(key) = key.into() else { return self.pass_through(tx, effect).await };
        let address = Address::new(scope.clone(), self.operation.clone(), key.clone());
        let ask = Ask { address: Arc::new(address), asked, policy: Arc::clone(&self.policy) };
        let (mut nested, grounds) = match self.claim(tx, &ask).await? {
            Step::Execute(nested, grounds) => (nested, grounds),
            Step::Replay(outcome) => return take(&outcome, Source::Replayed),
        };
        point("inside-claimed");
        let ending = effect(&mut nested).await.into_ending();
        point("inside-executed");
        let outcome = match ended(ending, &self.policy) {
            Ok(Ended::Kept(outcome)) => outcome,
            Ok(Ended::Remembered(outcome)) => {
                self.undo(nested).await?;
                return self.remember(tx, &ask, outcome).await;
            }
            Ok(Ended::Undone(failure)) => {
                self.undo(nested).await?;
                return Err(InsideError::Failed { failure, repeat: false });
            }
            Err(error) => {
                self.undo(nested).await?;
                return Err(error);
            }
        };
        if self.record(nested, &ask, grounds, &outcome).await? {
            return take(&outcome, Source::Executed);
        }
        // A door outside was faster, and the effect is undone. What it left may be an answer.
        match self.claim(tx, &ask).await? {
            Step::Replay(outcome) => take(&outcome, Source::Replayed),
            Step::Execute(nested, _) => {
                self.undo(nested).await?;
                Err(InsideError::ClaimedByAnother { retry_after: RETRY_AFTER })
            }
        }
    }

    /// K6: no key, nothing remembered.
    async fn pass_through<X, F, O>(&self, tx: &mut X, effect: F) -> Taken<O>
    where
        X: Transaction,
        F: AsyncFnOnce(&mut Nested<'_, X>) -> O,
        O: IntoEnding,
    {
        let mut nested = tx.nest().await.map_err(|error| self.failed(error))?;
        match effect(&mut nested).await.into_ending() {
            Ending::Succeeded(value) => {
                nested.release().await.map_err(|error| self.failed(error))?;
                Ok(Take { value, source: Source::PassedThrough })
            }
            Ending::Failed(failure) | Ending::Refused(failure) | Ending::Undone(failure) => {
                self.undo(nested).await?;
                Err(InsideError::Failed { failure, repeat: false })
            }
        }
    }

    /// Takes the key and asks the rule. Whatever says no leaves the transaction as it was, without
    /// the key.
    async fn claim<'t, X: Transaction, E>(
        &self,
        tx: &'t mut X,
        ask: &Ask,
    ) -> Result<Step<Nested<'t, X>>, InsideError<E>> {
        let mut nested = tx.nest().await.map_err(|error| self.failed(error))?;
        match self.judge(&mut nested, ask).await {
            Ok(Step::Execute((), grounds)) => Ok(Step::Execute(nested, grounds)),
            Ok(Step::Replay(outcome)) => {
                self.undo(nested).await?;
                Ok(Step::Replay(outcome))
            }
            Err(error) => {
                self.undo(nested).await?;
                Err(error)
            }
        }
    }

    /// Takes the key, waiting for it as the policy says, and asks the rule about its slot.
    async fn judge<N: Steps, E>(
        &self,
        nested: &mut N,
        ask: &Ask,
    ) -> Result<Step<()>, InsideError<E>> {
        let failed = |error| self.failed(error);
        let slot = self.sealer(nested).await?.place(ask.address.slot());
        let number = self.number(&slot);
        let (is_taken, look) = nested.take(&self.sql, number, &slot).await.map_err(failed)?;
        let record = self.read(nested, &look).await?;
        match judge(ask, record.as_ref(), look.now) {
            // Without the key nothing may be executed. Everything else is true without it too, and
            // those who only replay must not stand in line for each other.
            Ok(Step::Execute((), _)) if !is_taken => {}
            judged => return judged,
        }
        let refused = || InsideError::ClaimedByAnother { retry_after: RETRY_AFTER };
        let OnInFlight::Wait(within) = ask.policy.on_in_flight() else { return Err(refused()) };
        match nested.wait(&self.sql, number, within).await {
            Ok(Waited::Taken) => {}
            Ok(Waited::Fixed) => self.probe(nested, ask).await?,
            Err(error) if error.is_wait_over() => return Err(refused()),
            Err(error) => return Err(failed(error)),
        }
        let look = nested.look(&self.sql, &slot).await.map_err(failed)?;
        judge(ask, self.read(nested, &look).await?.as_ref(), look.now)
    }

    /// What seals and opens records. The first call asks the tables.
    async fn sealer<N: Steps, E>(&self, nested: &mut N) -> Result<Arc<Sealer>, InsideError<E>> {
        if let Some(joint) = self.seal.get() {
            return Ok(joint.sealer());
        }
        let joint = Joint::agree(&self.keys, &self.mark(nested).await?)?;
        Ok(self.seal.get_or_init(|| joint).sealer())
    }

    async fn mark<N: Steps, E>(&self, nested: &mut N) -> Result<Vec<u8>, InsideError<E>> {
        let mark = nested.mark(&self.sql).await.map_err(|error| self.failed(error))?;
        // Tables that were made by hand, and that no store was opened on.
        mark.ok_or_else(|| InsideError::TablesMissing { schema: self.sql.schema.to_string() })
    }

    /// The record that was seen. Another process may have sealed it with a key that is to be
    /// learned first.
    async fn read<N: Steps, E>(
        &self,
        nested: &mut N,
        look: &Look,
    ) -> Result<Option<Record>, InsideError<E>> {
        let Some(found) = &look.found else { return Ok(None) };
        // No node is nil: every claim is somebody else's here.
        let mut record = found.record(None, Uuid::nil(), &*self.sealer(nested).await?);
        if matches!(record, Err(CodecError::NoGeneration { .. })) {
            let mark = self.mark(nested).await?;
            self.seal.get().map_or(Ok(()), |joint| joint.learn(&mark))?;
            record = found.record(None, Uuid::nil(), &*self.sealer(nested).await?);
        }
        let corrupt = |error: CodecError| StoreError::Corrupt(error.to_string());
        Ok(Some(record.map_err(corrupt)?))
    }

    /// Finds out whether another transaction left a record that this one cannot see, by writing
    /// one: the database then says that the two clash, and no effect is executed in vain.
    async fn probe<N: Steps, E>(&self, nested: &mut N, ask: &Ask) -> Result<(), InsideError<E>> {
        let row = self.done(ask, Grounds::FIRST, &Outcome::NotKept { status: None });
        let row = Written::of(&row, &*self.sealer(nested).await?);
        let mut probe = nested.nest().await.map_err(|error| self.failed(error))?;
        let written = probe.write(&self.sql, &row, None).await;
        self.undo(probe).await?;
        written.map(drop).map_err(|error| self.failed(error))
    }

    /// Records a failure in place of the effect, whose writes are undone already.
    async fn remember<X: Transaction, T, E>(
        &self,
        tx: &mut X,
        ask: &Ask,
        outcome: Outcome,
    ) -> Result<Take<T>, InsideError<E>>
    where
        T: serde::de::DeserializeOwned,
        E: serde::de::DeserializeOwned,
    {
        match self.claim(tx, ask).await? {
            Step::Replay(outcome) => take(&outcome, Source::Replayed),
            Step::Execute(nested, grounds) => {
                if self.record(nested, ask, grounds, &outcome).await? {
                    return take(&outcome, Source::Executed);
                }
                Err(InsideError::ClaimedByAnother { retry_after: RETRY_AFTER })
            }
        }
    }

    /// Writes the record beside the effect. If it cannot, the effect is undone.
    async fn record<N: Steps, E>(
        &self,
        mut nested: N,
        ask: &Ask,
        grounds: Grounds,
        outcome: &Outcome,
    ) -> Result<bool, InsideError<E>> {
        let sealer = self.sealer(&mut nested).await?;
        let row = Written::of(&self.done(ask, grounds, outcome), &sealer);
        let expected = grounds.expected.map(|expected| Uuid::from_u128(expected.write));
        match nested.write(&self.sql, &row, expected).await {
            Ok(true) => {
                point("inside-recorded");
                nested.release().await.map_err(|error| self.failed(error))?;
                Ok(true)
            }
            Ok(false) => {
                self.undo(nested).await?;
                Ok(false)
            }
            Err(error) => {
                self.undo(nested).await?;
                Err(self.failed(error))
            }
        }
    }

    fn done(&self, ask: &Ask, grounds: Grounds, outcome: &Outcome) -> Draft {
        let (fence, write) = (self.mint.fence_above(grounds.above), self.mint.id());
        // A record that was never claimed is drafted from the claim that would have been.
        let claim = ask.claim(grounds, fence, write).at(Timestamp::ZERO);
        let outcome = Arc::new(outcome.clone());
        let settlement = Settlement::Done { outcome, keeping: Keeping::Final };
        settlement.draft(&claim, &ask.policy, write)
    }

    async fn undo<N: Steps, E>(&self, nested: N) -> Result<(), InsideError<E>> {
        nested.undo().await.map_err(|error| self.failed(error))
    }

    fn failed<E>(&self, error: DatabaseError) -> InsideError<E> {
        InsideError::of(error, &self.sql.schema)
    }

    /// The number under which transactions take turns at a slot. Two slots with the same number
    /// wait for each other and are otherwise none the wiser.
    fn number(&self, slot: &[u8]) -> i64 {
        let bytes = [self.sql.schema.as_bytes(), b"\0+inside\0", slot].concat();
        i64::from_ne_bytes(xxh3_64(&bytes).to_ne_bytes())
    }
}

/// What the rule says to what was seen.
fn judge<E>(
    ask: &Ask,
    record: Option<&Record>,
    now: Timestamp,
) -> Result<Step<()>, InsideError<E>> {
    if record.is_some_and(|record| record.address != ask.address) {
        let collision = "the slot holds the record of another address".to_owned();
        return Err(StoreError::Corrupt(collision).into());
    }
    match decide(ask, record, now) {
        Decision::Execute(grounds) => Ok(Step::Execute((), grounds)),
        Decision::Replay { outcome, .. } => Ok(Step::Replay(Arc::clone(outcome))),
        Decision::Mismatch => Err(InsideError::Mismatch),
        Decision::InFlight { until, .. } => {
            Err(InsideError::ClaimedByAnother { retry_after: until.since(now) })
        }
        Decision::Unknown { fence, since, cause } => {
            Err(InsideError::Unknown { fence, since, cause })
        }
    }
}

#[cfg(all(feature = "embedded", feature = "crash-points"))]
use crate::crash_point as point;

/// Nothing: the points are not built in.
#[cfg(not(all(feature = "embedded", feature = "crash-points")))]
#[inline]
const fn point(_: &str) {}
