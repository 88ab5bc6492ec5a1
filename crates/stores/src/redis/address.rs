//! Where a Redis is: one server, whatever Sentinel says is the master, or a cluster.
//!
//! It parses addresses and makes connections. It never repeats a command and never shows an
//! address: there may be a password in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, PushInfo,
    PushKind, RedisError, TlsCertificates, TlsMode,
};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::link::Link;
use super::options::RedisOptions;

/// The most servers that an address names.
const HOSTS_MAX: usize = 64;
const SENTINEL_PORT: u16 = 26_379;
/// How often a cluster is asked again, at most; the limit of time comes first.
const CLUSTER_TRIES_MAX: u32 = 8;

/// Where a Redis is.
pub(super) struct Source {
    form: Form,
    limits: Limits,
}

enum Form {
    One(Box<Client>),
    Sentinel(Box<Mutex<SentinelClient>>),
    Cluster { client: Box<ClusterClient>, seeds: Vec<Client> },
}

#[derive(Clone, Copy)]
struct Limits {
    connect: Duration,
    reply: Duration,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoConnection {
    #[error("redis does not answer within {} ms", .0.as_millis())]
    TooSlow(Duration),
    #[error("redis cannot be reached: {0}")]
    Refused(#[from] RedisError),
    #[error("this redis is a replica; name its master, or let Sentinel name it")]
    Replica,
}

/// What an address leads to.
#[derive(Debug, Clone, Copy)]
enum Kind {
    One,
    Sentinel,
    Cluster,
}

/// An address, cut at its borders.
struct Parts<'a> {
    scheme: &'static str,
    kind: Kind,
    /// With the `@` behind it; empty without a login.
    login: &'a str,
    hosts: Vec<&'a str>,
    path: Vec<&'a str>,
}

/// `None` where it is none of ours.
fn parts(url: &str) -> Option<Parts<'_>> {
    let (scheme, rest) = url.split_once("://")?;
    let (scheme, form) = scheme.split_once('+').unwrap_or((scheme, ""));
    let scheme = ["redis", "rediss"].into_iter().find(|known| *known == scheme)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let at = authority.rfind('@').map_or(0, |at| at + 1);
    let (login, hosts) = authority.split_at(at);
    let hosts: Vec<_> = hosts.split(',').collect();
    if hosts.len() > HOSTS_MAX || hosts.iter().any(|host| host.is_empty()) {
        return None;
    }
    let kind = match form {
        "" if hosts.len() == 1 => Kind::One,
        "" | "cluster" => Kind::Cluster,
        "sentinel" => Kind::Sentinel,
        _ => return None,
    };
    let path = path.split('/').filter(|part| !part.is_empty()).collect();
    Some(Parts { scheme, kind, login, hosts, path })
}

impl Parts<'_> {
    fn is_tls(&self) -> bool {
        self.scheme == "rediss"
    }

    /// The address of one server.
    fn of(&self, host: &str, path: &str) -> String {
        format!("{}://{}{host}/{path}", self.scheme, self.login)
    }
}

fn with_port(host: &str, port: u16) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { host.to_owned() } else { format!("{host}:{port}") }
}

fn certificates(options: &RedisOptions) -> Option<TlsCertificates> {
    let root_cert = Some(options.root_certificate.clone()?);
    Some(TlsCertificates { client_tls: None, root_cert })
}

/// With RESP3 a connection says when it breaks, also while nothing is asked. Otherwise the first to
/// use it afterwards would not know whether anything was sent.
const PROTOCOL: ProtocolVersion = ProtocolVersion::RESP3;

fn one(url: &str, is_tls: bool, options: &RedisOptions) -> Option<Client> {
    let info = url.into_connection_info().ok()?;
    let settings = info.redis_settings().clone().set_protocol(PROTOCOL);
    let info = info.set_redis_settings(settings);
    match certificates(options).filter(|_| is_tls) {
        Some(certificates) => Client::build_with_tls(info, certificates).ok(),
        None => Client::open(info).ok(),
    }
}

fn sentinel(parts: &Parts<'_>, options: &RedisOptions) -> Option<SentinelClient> {
    let (&[name] | &[name, _]) = parts.path.as_slice() else { return None };
    let db = parts.path.get(1).copied().unwrap_or("0");
    let urls = parts.hosts.iter().map(|host| parts.of(&with_port(host, SENTINEL_PORT), db));
    let infos: Option<Vec<ConnectionInfo>> =
        urls.map(|url| url.into_connection_info().ok()).collect();
    let infos = infos?;
    let settings = infos.first()?.redis_settings().clone();
    let addresses = infos.iter().map(|info| info.addr().clone());
    let mut builder =
        SentinelClientBuilder::new(addresses, name, SentinelServerType::Master).ok()?;
    builder = builder.set_client_to_redis_db(settings.db()).set_client_to_redis_protocol(PROTOCOL);
    if let Some(user) = settings.username() {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = settings.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some((user, password)) = &options.sentinel_login {
        builder = builder.set_client_to_sentinel_password(password);
        if let Some(user) = user {
            builder = builder.set_client_to_sentinel_username(user);
        }
    }
    if parts.is_tls() {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        if let Some(certificates) = certificates(options) {
            builder = builder.set_client_to_redis_certificates(certificates.clone());
            builder = builder.set_client_to_sentinel_certificates(certificates);
        }
    }
    builder.build().ok()
}

fn cluster(parts: &Parts<'_>, options: &RedisOptions) -> Option<ClusterClient> {
    let urls = parts.hosts.iter().map(|host| parts.of(host, ""));
    // The client follows a slot that has moved, and sends again what got no reply. That is safe
    // here, because no script does anything twice: a swap that is there already counts as won, a
    // swap whose expectation has passed loses, and a renewal that was done makes its own copy lose
    // to the renewed claim, which its owner goes on from. All of it ends with the limit of time.
    let mut builder = ClusterClient::builder(urls)
        .retries(CLUSTER_TRIES_MAX)
        .connection_timeout(options.connect_within)
        .response_timeout(options.reply_within)
        .overall_response_timeout(Some(options.reply_within));
    if let Some(certificates) = certificates(options).filter(|_| parts.is_tls()) {
        builder = builder.certs(certificates);
    }
    builder.build().ok()
}

impl Source {
    /// `None` where the address is none.
    pub(super) fn parse(url: &str, options: &RedisOptions) -> Option<Self> {
        let parts = parts(url)?;
        if parts.is_tls() {
            // Where the process has chosen another one already, that one is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let form = match parts.kind {
            Kind::One => Form::One(Box::new(one(url, parts.is_tls(), options)?)),
            Kind::Sentinel => Form::Sentinel(Box::new(Mutex::new(sentinel(&parts, options)?))),
            Kind::Cluster => {
                let seeds = parts.hosts.iter().map(|host| parts.of(host, ""));
                let seeds: Option<Vec<_>> =
                    seeds.map(|url| one(&url, parts.is_tls(), options)).collect();
                Form::Cluster { client: Box::new(cluster(&parts, options)?), seeds: seeds? }
            }
        };
        let limits = Limits { connect: options.connect_within, reply: options.reply_within };
        Some(Self { form, limits })
    }

    /// Whether several keys may not be used at once.
    pub(super) const fn is_cluster(&self) -> bool {
        matches!(self.form, Form::Cluster { .. })
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> Result<Link, NoConnection> {
        if let Form::Cluster { client, .. } = &self.form {
            return Ok(Link::cluster(self.in_time(client.get_async_connection()).await?));
        }
        let is_broken = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_broken);
        let connection = self.hearing(move |said| {
            if said.kind == PushKind::Disconnection {
                told.store(true, Ordering::Relaxed);
            }
        });
        let link = Link::one(connection.await?, is_broken);
        // A replica would answer reads, late, and refuse every write. Sentinel makes sure itself.
        let is_replica = matches!(self.form, Form::One(_)) && link.is_replica().await;
        if is_replica { Err(NoConnection::Replica) } else { Ok(link) }
    }

    /// A new connection to one server, which hears what is said there unasked. Any server of a
    /// cluster hears what is published on all of them.
    pub(super) async fn hearing(
        &self,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, NoConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.limits.connect))
            .set_response_timeout(Some(self.limits.reply))
            .set_push_sender(move |said| {
                hear(said);
                Ok::<(), ()>(())
            });
        let connect = |client: Client| {
            let config = &config;
            async move { client.get_multiplexed_async_connection_with_config(config).await }
        };
        let connected = self.in_time(async {
            match &self.form {
                Form::One(client) => connect(Client::clone(client)).await,
                Form::Sentinel(client) => {
                    let client = client.lock().await.async_get_client().await?;
                    connect(client).await
                }
                Form::Cluster { seeds, .. } => {
                    let mut made = Err(RedisError::from(std::io::Error::other("no server")));
                    for seed in seeds {
                        made = connect(seed.clone()).await;
                        if made.is_ok() {
                            break;
                        }
                    }
                    made
                }
            }
        });
        connected.await
    }

    async fn in_time<T>(
        &self,
        connecting: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, NoConnection> {
        let limit = self.limits.connect;
        let connected = timeout(limit, connecting).await;
        Ok(connected.map_err(|_| NoConnection::TooSlow(limit))??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(url: &str) -> Option<String> {
        let parts = parts(url)?;
        let Parts { kind, login, hosts, path, .. } = &parts;
        Some(format!("{kind:?} {login} {hosts:?} {path:?} {}", parts.is_tls()))
    }

    #[test]
    fn an_address_is_one_server_a_master_by_name_or_a_cluster() {
        let cases = [
            ("redis://h", r#"One  ["h"] [] false"#),
            ("rediss://h/", r#"One  ["h"] [] true"#),
            ("redis://u:p@h:1/2", r#"One u:p@ ["h:1"] ["2"] false"#),
            (
                "redis+sentinel://:p@a,b:7/main/3",
                r#"Sentinel :p@ ["a", "b:7"] ["main", "3"] false"#,
            ),
            ("rediss+cluster://a", r#"Cluster  ["a"] [] true"#),
            ("redis://a,b", r#"Cluster  ["a", "b"] [] false"#),
        ];
        for (url, meant) in cases {
            assert_eq!(cut(url).as_deref(), Some(meant), "{url}");
        }
        for bad in ["", "h", "http://h", "redis+tls://h", "redis://", "redis://a,,b"] {
            assert_eq!(cut(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_sentinel_needs_the_name_of_its_master() {
        let options = RedisOptions::new();
        assert!(Source::parse("redis+sentinel://a,b:7/main/3", &options).is_some());
        assert!(Source::parse("redis+sentinel://a/main", &options).is_some());
        assert!(Source::parse("redis+sentinel://a", &options).is_none());
        assert!(Source::parse("redis+sentinel://a/main/x", &options).is_none());
    }

    #[test]
    fn a_sentinel_has_a_port_of_its_own() {
        assert_eq!(with_port("a", 5), "a:5");
        assert_eq!(with_port("a:7", 5), "a:7");
        assert_eq!(with_port("[::1]", 5), "[::1]:5");
        assert_eq!(with_port("[::1]:7", 5), "[::1]:7");
    }
}
