//! One connection that is made again when it breaks, and what a failure on it means.
//!
//! A server that answers with an error has rolled back, so nothing was written. A connection that
//! breaks says nothing: the commit may have arrived. Nothing here repeats anything.

use std::sync::Arc;
use std::time::Duration;

use onetake_engine::StoreError;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls};

/// Why a batch came to nothing that is known.
#[derive(Debug)]
pub(super) enum Failed {
    /// It is certain that nothing was written.
    Refused(StoreError),
    /// Two transactions got in each other's way. Nothing was written; trying again may help.
    Again,
    /// It may be written or not.
    Unsure,
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(error) => error,
            Failed::Again => Self::Unavailable("rivals kept getting in each other's way".into()),
            Failed::Unsure => Self::Unavailable("the connection to the database broke".into()),
        }
    }
}

/// What an error of a statement, or of a commit, means.
pub(super) fn judge(error: &Error) -> Failed {
    let Some(said) = error.as_db_error() else { return Failed::Unsure };
    let code = said.code();
    let clash = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
    if clash.contains(code) {
        return Failed::Again;
    }
    // The server was going away, perhaps in the middle of a commit.
    if code.code().starts_with("57P") || code.code().starts_with("08") {
        return Failed::Unsure;
    }
    let what = format!("the database refused: {} ({})", said.message(), code.code());
    Failed::Refused(StoreError::Unavailable(what))
}

/// One connection.
pub(super) struct Link {
    config: Arc<Config>,
    within: Duration,
    client: Option<Client>,
}

impl Link {
    pub(super) const fn new(config: Arc<Config>, within: Duration) -> Self {
        Self { config, within, client: None }
    }

    /// The connection, made anew if there is none.
    pub(super) async fn client(&mut self) -> Result<&mut Client, Failed> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            self.client = Some(self.connect().await?);
        }
        Ok(self.client.as_mut().expect("invariant: it was just made"))
    }

    async fn connect(&self) -> Result<Client, Failed> {
        let unreachable = |why: String| Failed::Refused(StoreError::Unavailable(why));
        let connected = timeout(self.within, self.config.connect(NoTls)).await;
        let connected =
            connected.map_err(|_| unreachable("the database does not answer".into()))?;
        let (client, connection) = connected
            .map_err(|error| unreachable(format!("the database cannot be reached: {error}")))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(%error, "a connection to the database broke");
            }
        });
        Ok(client)
    }

    /// Lets go of a connection whose state nobody knows.
    pub(super) fn drop_client(&mut self) {
        self.client = None;
    }
}
