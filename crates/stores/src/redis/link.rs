//! One connection, what is sent on it, and what a failure on it means.
//!
//! A server that answers with an error has done nothing of what it was asked. A connection that
//! breaks, or a reply that does not come, says nothing: the script may have run. A connection to
//! one server never sends anything twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onetake_core::Timestamp;
use onetake_engine::{Bound, Stamped, StoreError};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::{Cmd, ErrorKind, RedisError, Script, ServerErrorKind, Value};

use super::ops::Asked;

/// Why a batch came to nothing that is known.
#[derive(Debug, Clone)]
pub(super) enum Failed {
    /// It is certain that nothing was written.
    Refused(StoreError),
    /// It may be written or not.
    Unsure,
}

impl Failed {
    /// For those who asked for no write.
    pub(super) fn of_read(&self) -> StoreError {
        match self {
            Self::Refused(error) => error.clone(),
            Self::Unsure => StoreError::Unavailable("redis did not reply".into()),
        }
    }
}

/// The code of an error. Before Redis 7 one that comes out of a script stands behind the place in
/// the script: `@user_script: 12: -OOM command not allowed …`.
fn code(text: &str) -> &str {
    let placed = text.strip_prefix("@user_script:").and_then(|rest| rest.split_once(": "));
    let text = placed.map_or(text, |(_line, text)| text);
    text.trim_start_matches('-').split_ascii_whitespace().next().unwrap_or_default()
}

/// What a command that the server refused means. Its text stays out: it may quote a key.
pub(super) fn refusal(text: &str) -> StoreError {
    match code(text) {
        "OOM" => StoreError::Full(Bound::Total),
        "WRONGTYPE" => StoreError::Corrupt("a key of the store holds another type".into()),
        "LAYOUT" => StoreError::Corrupt(
            "a value has a layout that this release does not know, or is none of ours".into(),
        ),
        code => StoreError::Unavailable(format!("redis refused: {code}")),
    }
}

/// Whether this server will go on refusing, so that another must be looked for.
pub(super) fn is_final(text: &str) -> bool {
    ["READONLY", "MASTERDOWN", "NOAUTH"].contains(&code(text))
}

/// One connection, shared by all that is under way on it.
#[derive(Clone)]
pub(super) struct Link {
    way: Way,
    is_broken: Arc<AtomicBool>,
}

#[derive(Clone)]
enum Way {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Link {
    pub(super) fn one(connection: MultiplexedConnection, is_broken: Arc<AtomicBool>) -> Self {
        Self { way: Way::One(connection), is_broken }
    }

    pub(super) fn cluster(connection: ClusterConnection) -> Self {
        Self { way: Way::Cluster(connection), is_broken: Arc::default() }
    }

    /// Whether it is to be replaced.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Lets go of a connection whose server does not answer, or is no longer the right one. The
    /// connections of a cluster are looked after one by one, by their client.
    pub(super) fn give_up(&self) {
        if matches!(self.way, Way::One(_)) {
            self.is_broken.store(true, Ordering::Relaxed);
        }
    }

    /// Sends one command, once.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        match self.way.clone() {
            Way::One(mut connection) => connection.req_packed_command(command).await,
            Way::Cluster(mut connection) => connection.req_packed_command(command).await,
        }
        .and_then(Value::extract_error)
    }

    /// Whether this server says that it follows another. One that does not say is taken for none.
    pub(super) async fn is_replica(&self) -> bool {
        let role = self.send(&redis::cmd("ROLE")).await;
        let Ok(Value::Array(role)) = role else { return false };
        role.first() == Some(&Value::BulkString(b"slave".to_vec()))
    }

    /// Sends one command to every master, once each.
    pub(super) async fn send_all(&self, command: &Cmd) -> Result<Vec<Value>, RedisError> {
        use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
        match self.way.clone() {
            Way::One(_) => self.send(command).await.map(|value| vec![value]),
            Way::Cluster(mut connection) => {
                let masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                let replies = connection.route_command(command.clone(), masters).await?;
                let Value::Map(replies) = replies else { return Ok(vec![replies]) };
                replies.into_iter().map(|(_, value)| value.extract_error()).collect()
            }
        }
    }

    /// Runs the script on a batch. Gives the time, and one reply for each operation.
    pub(super) async fn run<T: Asked>(
        &self,
        script: &Running,
        batch: &[T],
    ) -> Result<Stamped<Vec<Value>>, Failed> {
        let mut ran = self.send(&script.command("EVALSHA", script.script.get_hash(), batch)).await;
        // The server has restarted, or is another one: it did nothing. The text makes it known.
        if ran.as_ref().is_err_and(|error| is(error, ServerErrorKind::NoScript)) {
            ran = self.send(&script.command("EVAL", TEXT, batch)).await;
        }
        let replies = ran.map_err(|error| self.failed(&error))?;
        let unreadable = || {
            self.give_up();
            Failed::Unsure
        };
        let Value::Array(replies) = replies else { return Err(unreadable()) };
        let mut replies = replies.into_iter();
        let Some(Value::Int(now)) = replies.next() else { return Err(unreadable()) };
        if replies.len() != batch.len() {
            return Err(unreadable());
        }
        let now = Timestamp::from_millis(u64::try_from(now).unwrap_or(0));
        Ok(Stamped { now, value: replies.collect() })
    }

    fn failed(&self, error: &RedisError) -> Failed {
        let code = error.code().unwrap_or_default();
        // `ERR` may also be said of a script that ran half way. And the client of a cluster may
        // have sent it before, to a server that has gone since.
        let is_cluster = matches!(self.way, Way::Cluster(_));
        if code.is_empty() || code == "ERR" || is_cluster {
            self.give_up();
            return Failed::Unsure;
        }
        if is_final(code) {
            self.give_up();
        }
        Failed::Refused(refusal(code))
    }
}

fn is(error: &RedisError, kind: ServerErrorKind) -> bool {
    error.kind() == ErrorKind::Server(kind)
}

const TEXT: &str = include_str!("ops.lua");

/// The script, and what each of its calls is given.
pub(super) struct Running {
    script: Script,
    channel: String,
    grace_ms: u64,
}

impl Running {
    pub(super) fn new(channel: String, grace_ms: u64) -> Self {
        // A time to live of nothing is refused.
        Self { script: Script::new(TEXT), channel, grace_ms: grace_ms.max(1) }
    }

    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    fn command<T: Asked>(&self, name: &str, script: &str, batch: &[T]) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(batch.len());
        for one in batch {
            command.arg(one.key());
        }
        command.arg(&self.channel).arg(self.grace_ms);
        for one in batch {
            one.put(&mut command, self.grace_ms);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_known_by_its_first_word_and_quotes_nothing() {
        let full = StoreError::Full(Bound::Total);
        assert_eq!(refusal("OOM command not allowed when used memory > 'maxmemory'."), full);
        assert_eq!(refusal("-OOM command not allowed"), full, "as older servers say it");
        let refused = refusal("NOPERM no access to secret");
        assert_eq!(refused, StoreError::Unavailable("redis refused: NOPERM".into()));
        assert!(matches!(refusal("WRONGTYPE Operation against"), StoreError::Corrupt(_)));
        assert!(is_final("READONLY You can't write") && !is_final("OOM command"));
        // As Redis 6 says it of a script.
        let placed = |text: &str| format!("@user_script: 60: {text}");
        assert_eq!(refusal(&placed("-OOM command not allowed when used memory")), full);
        assert!(is_final(&placed("-READONLY You can't write against a read only replica.")));
        assert!(matches!(refusal(&placed("LAYOUT unknown")), StoreError::Corrupt(_)));
    }
}
