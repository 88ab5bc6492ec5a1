//! How a Redis store is used. Plain values with safe defaults; nothing here connects, and no
//! password shows.

use std::fmt;
use std::time::Duration;

use onetake_core::DELIVERY_MAX;

use crate::seal::MasterKey;

/// How a Redis store is used.
#[derive(Clone)]
pub struct RedisOptions {
    pub(super) prefix: String,
    pub(super) connections: usize,
    pub(super) queue_max: usize,
    pub(super) queue_kib_max: usize,
    pub(super) watched_max: usize,
    pub(super) connect_within: Duration,
    pub(super) reply_within: Duration,
    pub(super) grace: Duration,
    pub(super) accept_loss: bool,
    pub(super) keys: Vec<MasterKey>,
    pub(super) root_certificate: Option<Vec<u8>>,
    pub(super) sentinel_login: Option<(Option<String>, String)>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            prefix: "onetake:".into(),
            connections: 1,
            queue_max: 16_384,
            queue_kib_max: 256 * 1_024,
            watched_max: 16_384,
            connect_within: Duration::from_secs(5),
            reply_within: Duration::from_secs(5),
            grace: DELIVERY_MAX,
            accept_loss: false,
            keys: Vec::new(),
            root_certificate: None,
            sentinel_login: None,
        }
    }
}

/// Shows no login and no certificate.
impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("prefix", &self.prefix)
            .field("connections", &self.connections)
            .field("accept_loss", &self.accept_loss)
            .finish_non_exhaustive()
    }
}

/// The longest prefix; it is part of every key.
const PREFIX_BYTES_MAX: usize = 64;

impl RedisOptions {
    /// One connection for slots and one that looks after the store, keys that begin with
    /// `onetake:`, five seconds for a connection or a reply,
    /// and no setting of the server accepted that may lose what was acknowledged.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps everything under keys that begin with this: up to 64 visible ASCII characters, none of
    /// which means something in a pattern or to a cluster.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// So many connections for slots, at least one; waiting needs one more.
    #[must_use]
    pub fn connections(mut self, count: usize) -> Self {
        self.connections = count.max(1);
        self
    }

    /// At most so many operations of this process wait for each connection, at least one; more are
    /// refused at once.
    #[must_use]
    pub fn queue_max(mut self, count: usize) -> Self {
        self.queue_max = count.max(1);
        self
    }

    /// At most so many slots are watched at once by [`Redis::settled`](super::Redis::settled).
    #[must_use]
    pub fn watched_max(mut self, count: usize) -> Self {
        self.watched_max = count;
        self
    }

    /// How long a connection may take to be made.
    #[must_use]
    pub fn connect_within(mut self, limit: Duration) -> Self {
        self.connect_within = limit;
        self
    }

    /// How long a reply may take. Past it nobody knows whether a write was done.
    #[must_use]
    pub fn reply_within(mut self, limit: Duration) -> Self {
        self.reply_within = limit;
        self
    }

    /// How long the server keeps a record beyond its end. By default as long as a copy of a request
    /// may be under way, so that a late one finds what became of the first.
    #[must_use]
    pub fn grace(mut self, span: Duration) -> Self {
        self.grace = span;
        self
    }

    /// Opens the store also where the server's settings may lose records that were acknowledged.
    /// What was executed may then be executed again.
    #[must_use]
    pub fn accept_loss(mut self, is_accepted: bool) -> Self {
        self.accept_loss = is_accepted;
        self
    }

    /// Seals what is stored with a key ring that the first of these keys wraps; the others may open
    /// it. Sealing begins with a new store, and all who share it need a key. Without one nothing is
    /// sealed.
    #[must_use]
    pub fn keys(mut self, keys: Vec<MasterKey>) -> Self {
        self.keys = keys;
        self
    }

    /// Trusts the certificates in this PEM text, instead of those that the system trusts.
    #[must_use]
    pub fn root_certificate(mut self, pem: &[u8]) -> Self {
        self.root_certificate = Some(pem.to_vec());
        self
    }

    /// How to log in to the Sentinels. The login in the URL is the one of Redis itself.
    #[must_use]
    pub fn sentinel_login(mut self, user: Option<&str>, password: &str) -> Self {
        self.sentinel_login = Some((user.map(str::to_owned), password.to_owned()));
        self
    }

    /// Whether the prefix can be part of any key, and of a pattern that means only itself.
    pub(super) fn has_prefix(&self) -> bool {
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"{}*?[]\\^".contains(byte);
        let prefix = self.prefix.as_bytes();
        !prefix.is_empty() && prefix.len() <= PREFIX_BYTES_MAX && prefix.iter().all(is_plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_means_only_itself() {
        for good in ["onetake:", "a", "eu/1:"] {
            assert!(RedisOptions::new().prefix(good).has_prefix(), "{good:?}");
        }
        let long = "x".repeat(PREFIX_BYTES_MAX + 1);
        for bad in ["", "a b", "{tag}", "a*", "a?", "[a]", "a\\", "\u{e9}", &long] {
            assert!(!RedisOptions::new().prefix(bad).has_prefix(), "{bad:?}");
        }
    }

    /// X11: no login shows, wherever options are printed.
    #[test]
    fn x11_options_do_not_show_a_login() {
        let options = RedisOptions::new().sentinel_login(Some("user"), "secret");
        let shown = format!("{options:?}");
        assert!(shown.contains("onetake:") && !shown.contains("secret"), "{shown}");
    }
}
