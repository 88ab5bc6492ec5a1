//! One connection that is made again when it breaks, and what a failure on it means.
//!
//! A server that answers with an error has rolled back, so nothing was written. A connection that
//! breaks or falls silent says nothing: the commit may have arrived. A commit that comes with a
//! warning was not confirmed by the standby that it should have reached, and counts as unsure, too.
//! Nothing here repeats anything. A server that was replaced by another and came back is not used
//! by whoever has seen the other.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use onetake_engine::{Reply, Stamped, StoreError};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Error, IsolationLevel, Notification, Row, Transaction};

use super::address::Address;
use super::rows::time;
use super::{PostgresError, fitness};

/// Why a batch came to nothing that is known.
#[derive(Debug)]
pub(super) enum Failed {
    /// It is certain that nothing was written.
    Refused(StoreError),
    /// Two transactions got in each other's way. Nothing was written; trying again may help.
    Again,
    /// Somebody's transaction holds a row for too long. Nothing was written.
    Held,
    /// It may be written or not.
    Unsure,
    /// The server is not one to write to. Nothing was written.
    Unfit(PostgresError),
}

impl Failed {
    /// What is said to someone who asked for a write: nothing was written, or `unknown`.
    pub(super) fn reply<T>(&self, unknown: T) -> Reply<T> {
        match self {
            // The time is not known either; nobody judges anything by the time of an unknown.
            Self::Unsure => Ok(Stamped { now: time(0), value: unknown }),
            Self::Refused(_) | Self::Again | Self::Held | Self::Unfit(_) => Err(self.error()),
        }
    }

    fn error(&self) -> StoreError {
        StoreError::Unavailable(match self {
            Self::Refused(error) => return error.clone(),
            Self::Again => "rivals kept getting in each other's way".into(),
            Self::Held => "another transaction holds this key".into(),
            Self::Unsure => "the connection to the database broke".into(),
            Self::Unfit(error) => error.to_string(),
        })
    }
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        failed.error()
    }
}

/// A value for a statement, and its type.
pub(super) type Typed<'a> = (&'a (dyn ToSql + Sync), Type);

/// One statement in a transaction that begins with `first`. All of it is sent without waiting, so
/// it is one round trip.
pub(super) async fn in_one_trip(
    client: &Client,
    first: &str,
    sql: &str,
    types: &[Typed<'_>],
) -> Result<Vec<Row>, Error> {
    let (begun, rows, ended) = tokio::join!(
        client.batch_execute(first),
        client.query_typed(sql, types),
        client.batch_execute("COMMIT"),
    );
    begun?;
    let rows = rows?;
    ended?;
    Ok(rows)
}

/// What an error of a statement, or of a commit, means.
pub(super) fn judge(error: &Error) -> Failed {
    let Some(said) = error.as_db_error() else { return Failed::Unsure };
    let code = said.code();
    let clash = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
    if clash.contains(code) {
        return Failed::Again;
    }
    if *code == SqlState::LOCK_NOT_AVAILABLE {
        return Failed::Held;
    }
    // The server was going away, perhaps in the middle of a commit.
    if code.code().starts_with("57P") || code.code().starts_with("08") {
        return Failed::Unsure;
    }
    let what = format!("the database refused: {} ({})", said.message(), code.code());
    Failed::Refused(StoreError::Unavailable(what))
}

/// Which history a server writes: a standby that takes over begins a new one, with a higher number.
/// Zero where it cannot be told.
const TIMELINE: &str = "SELECT CASE WHEN pg_is_in_recovery() THEN 0
    ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint END";
/// How often is tried to reach another server than one that was replaced.
const CONNECTS_MAX: usize = 8;
const REPLACED: &str = "the database was replaced by another that cannot be reached; \
                        if it was restored from a copy, start again";

/// How connections are made, and how long is waited for what.
pub(super) struct Dial {
    pub(super) address: Address,
    pub(super) connect_within: Duration,
    pub(super) reply_within: Duration,
    pub(super) accept_loss: bool,
    /// The latest history that was seen.
    pub(super) timeline: AtomicI64,
    /// Whether the last server that was connected to syncs by itself.
    pub(super) syncs: AtomicBool,
    /// Connections that are not closed yet. One that was let go in the middle of something stays
    /// until the server has answered, or until the network says that nobody will.
    pub(super) open: Arc<AtomicUsize>,
}

/// The most connections that are open, with those that were let go.
const OPEN_MAX: usize = 16;

/// Counts a connection as long as it is open.
struct Opened(Arc<AtomicUsize>);

impl Opened {
    fn new(open: &Arc<AtomicUsize>) -> Option<Self> {
        let next = |count: usize| (count < OPEN_MAX).then_some(count + 1);
        let counted = open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        counted.ok().map(|_| Self(Arc::clone(open)))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Dial {
    /// A connection, and whether its server has warned of something. What other sessions notify is
    /// put into `heard`. An old primary that came back takes writes as well, and nobody confirms
    /// them; what it shows may never have been acknowledged.
    async fn connect(
        &self,
        heard: Option<mpsc::Sender<Notification>>,
    ) -> Result<(Client, Arc<AtomicBool>), Failed> {
        for _ in 0..CONNECTS_MAX {
            let (client, warned) = self.connect_any(heard.clone()).await?;
            let asked = async {
                let server = fitness::ask(&client, self.accept_loss).await?;
                // Some servers do not tell.
                let rows = client.query_typed(TIMELINE, &[]).await.unwrap_or_default();
                Ok::<_, PostgresError>((server, rows.first().map_or(0, |row| row.get(0))))
            };
            let asked = timeout(self.connect_within, asked).await;
            let asked = asked.map_err(|_| unreachable("the database does not answer"))?;
            let (server, timeline): (_, i64) = asked.map_err(Failed::Unfit)?;
            self.syncs.store(server.syncs, Ordering::SeqCst);
            // Whatever the server had to say to whoever logs in, it says of no write.
            warned.store(false, Ordering::SeqCst);
            let latest = self.timeline.fetch_max(timeline, Ordering::SeqCst);
            if timeline == 0 || timeline >= latest {
                return Ok((client, warned));
            }
        }
        Err(unreachable(REPLACED))
    }

    async fn connect_any(
        &self,
        heard: Option<mpsc::Sender<Notification>>,
    ) -> Result<(Client, Arc<AtomicBool>), Failed> {
        let opened = Opened::new(&self.open);
        let opened = opened.ok_or_else(|| unreachable("too many connections wait for replies"))?;
        let connecting = self.address.config.connect(self.address.tls.clone());
        let connected = timeout(self.connect_within, connecting).await;
        let connected = connected.map_err(|_| unreachable("the database does not answer"))?;
        let (client, mut connection) = connected.map_err(|error| {
            let why = error.as_db_error().map_or_else(|| spelled(&error), ToString::to_string);
            unreachable(&format!("the database cannot be reached: {why}"))
        })?;
        let warned = Arc::new(AtomicBool::new(false));
        let warns = Arc::clone(&warned);
        tokio::spawn(async move {
            let _opened = opened;
            // Messages come in the order of the server, so a warning is noted before the reply
            // that it belongs to is handed on.
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notice(notice)) => {
                        if notice.parsed_severity() == Some(Severity::Warning) {
                            tracing::warn!(what = notice.message(), "the database warns");
                            warns.store(true, Ordering::SeqCst);
                        }
                    }
                    Ok(AsyncMessage::Notification(said)) => {
                        if let Some(heard) = &heard {
                            // Whoever is not told looks for itself.
                            drop(heard.try_send(said));
                        }
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(%error, "a connection to the database broke");
                        return;
                    }
                }
            }
        });
        Ok((client, warned))
    }

    /// A connection on which others can be heard.
    pub(super) async fn listening(
        &self,
        heard: mpsc::Sender<Notification>,
    ) -> Result<Client, Failed> {
        self.connect(Some(heard)).await.map(|(client, _)| client)
    }
}

fn unreachable(why: &str) -> Failed {
    Failed::Refused(StoreError::Unavailable(why.to_owned()))
}

/// A transaction that sees what was committed before each of its statements, whatever the role has
/// for a default.
pub(super) async fn transaction(client: &mut Client) -> Result<Transaction<'_>, Error> {
    let isolation = IsolationLevel::ReadCommitted;
    client.build_transaction().isolation_level(isolation).start().await
}

/// An error with what it comes from.
pub(super) fn spelled(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// One connection.
pub(super) struct Link {
    dial: Arc<Dial>,
    client: Option<Client>,
    warned: Arc<AtomicBool>,
}

impl Link {
    pub(super) fn new(dial: Arc<Dial>) -> Self {
        Self { dial, client: None, warned: Arc::default() }
    }

    /// The connection, made anew if there is none.
    pub(super) async fn client(&mut self) -> Result<&mut Client, Failed> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            let (client, warned) = self.dial.connect(None).await?;
            (self.client, self.warned) = (Some(client), warned);
        }
        Ok(self.client.as_mut().expect("invariant: it was just made"))
    }

    /// Does `work` on the connection, within the time that a reply may take. After a failure the
    /// connection is let go, because nobody knows its state.
    pub(super) async fn work<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        let within = self.dial.reply_within;
        let client = self.client().await?;
        let worked = timeout(within, work(client)).await.unwrap_or(Err(Failed::Unsure));
        let worked = match worked {
            Ok(_) if self.warned.swap(false, Ordering::SeqCst) => Err(Failed::Unsure),
            worked => worked,
        };
        if let Err(Failed::Unsure | Failed::Refused(_) | Failed::Unfit(_)) = &worked {
            self.client = None;
        }
        worked
    }
}
