//! `[server]`, `[admin]` and `[store]`, checked.
//!
//! Opens no listener and no store.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use onetake::engine::OnFull;
use onetake::stores::{Bounds, is_schema_name};
use onetake_console::Token;
use serde::{Serialize, Serializer};

use super::bounds;
use super::environment::Environment;
use super::problem::Problems;
use super::raw::{Admin, OnFullChoice, Server, Store};
use super::read::sure;
use super::shown;
use super::value::Plain;
use crate::wiring::{Address, OpenError, StoreUrl};

const SHORT: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(60 * 60);
/// The smallest head of a request that a server can be held to.
const HEADER_BYTES_MIN: u64 = 8 * 1024;
const HEADER_BYTES_MAX: u64 = 1024 * 1024;
/// More than any machine has room for; what is beyond it is a slip.
const COUNT_MAX: u64 = 1_000_000;
/// Bytes of requests in memory at once: no less than one request may have, and what a machine has.
const BUFFERED_MIN: u64 = 1 << 20;
const BUFFERED_MAX: u64 = 1 << 40;
/// Where tables are kept unless it is said.
const SCHEMA_DEFAULT: &str = "onetake";
/// What a store may be bounded to: numbers that are kept as signed ones.
const STORE_MAX: u64 = i64::MAX as u64;

/// Where callers connect, and what one of them may take.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ServerConfig {
    /// Where the data plane listens.
    pub(crate) listen: SocketAddr,
    /// Connections at once.
    pub(crate) max_connections: usize,
    /// Requests at once.
    pub(crate) max_concurrent_requests: usize,
    /// For the head of a request.
    #[serde(serialize_with = "shown::span")]
    pub(crate) header_timeout: Duration,
    /// For the body of a request.
    #[serde(serialize_with = "shown::span")]
    pub(crate) body_timeout: Duration,
    /// For requests under way once the end was asked for.
    #[serde(serialize_with = "shown::span")]
    pub(crate) shutdown_within: Duration,
    /// Whose forwarding headers are believed.
    #[serde(serialize_with = "shown::display_all")]
    pub(crate) trusted_proxies: Vec<IpNet>,
    /// Whether the upstream sees the caller's `Host`.
    pub(crate) preserve_host: bool,
    /// The largest head of a request.
    pub(crate) max_header_bytes: usize,
    /// Bytes of keyed requests in memory at once.
    pub(crate) max_buffered: usize,
}

/// Checks `[server]`.
pub(super) fn server(raw: Server, problems: &mut Problems) -> ServerConfig {
    let count =
        |given, problems: &mut Problems| as_usize(bounds::number(&given, 1..=COUNT_MAX, problems));
    ServerConfig {
        listen: sure(raw.listen).value,
        max_connections: count(sure(raw.max_connections), problems),
        max_concurrent_requests: count(sure(raw.max_concurrent_requests), problems),
        header_timeout: bounds::span(&sure(raw.header_timeout), SHORT..=HOUR, problems),
        body_timeout: bounds::span(&sure(raw.body_timeout), SHORT..=HOUR, problems),
        shutdown_within: bounds::span(&sure(raw.shutdown_within), SHORT..=HOUR, problems),
        trusted_proxies: sure(raw.trusted_proxies).value,
        preserve_host: sure(raw.preserve_host).value,
        max_header_bytes: as_usize(bounds::size(
            &sure(raw.max_header_bytes),
            HEADER_BYTES_MIN..=HEADER_BYTES_MAX,
            problems,
        )),
        max_buffered: as_usize(bounds::size(
            &sure(raw.max_buffered),
            BUFFERED_MIN..=BUFFERED_MAX,
            problems,
        )),
    }
}

/// A number that its bounds have made small enough.
pub(super) fn as_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The surface for operators.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AdminConfig {
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// What operators must show; none when it is to be made and kept in a file.
    #[serde(serialize_with = "shown::token")]
    pub(crate) token: Option<Token>,
}

/// Checks `[admin]`.
pub(super) fn admin(raw: Admin, environment: &Environment, problems: &mut Problems) -> AdminConfig {
    let token = raw.token.and_then(|given| {
        let secret = given.value.resolve(environment);
        let token = secret
            .and_then(|secret| Token::new(secret.expose()).map_err(|error| error.to_string()));
        token.map_err(|what| given.refuse(problems, what)).ok()
    });
    AdminConfig { listen: sure(raw.listen).value, token }
}

/// Where the records are, and how many.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct StoreConfig {
    /// The store.
    #[serde(serialize_with = "shown::display")]
    pub(crate) url: StoreUrl,
    /// How much it may hold.
    #[serde(serialize_with = "bounds_shown")]
    pub(crate) bounds: Bounds,
    /// The schema of its tables, where it has some.
    pub(crate) schema: String,
    /// Where other processes of a fleet can be heard.
    #[serde(serialize_with = "listen_shown")]
    pub(crate) listen_url: Option<Address>,
    /// Whether a server is good enough that forgets what it acknowledged.
    pub(crate) accept_loss: bool,
}

impl StoreConfig {
    /// The store at `url`, used as by default.
    pub(crate) fn of(url: StoreUrl) -> Self {
        Self {
            url,
            bounds: Bounds::default(),
            schema: SCHEMA_DEFAULT.to_owned(),
            listen_url: None,
            accept_loss: false,
        }
    }
}

#[allow(clippy::ref_option, reason = "as serde calls it")]
fn listen_shown<S: Serializer>(url: &Option<Address>, to: S) -> Result<S::Ok, S::Error> {
    url.as_ref().map(ToString::to_string).serialize(to)
}

fn bounds_shown<S: Serializer>(bounds: &Bounds, to: S) -> Result<S::Ok, S::Error> {
    let on_full = match bounds.on_full {
        OnFull::Refuse => "refuse",
        OnFull::Evict => "evict",
    };
    let shown = serde_json::json!({
        "max_records": bounds.records_max,
        "max_bytes": bounds.bytes_max,
        "max_records_per_tenant": bounds.tenant_records_max,
        "max_bytes_per_tenant": bounds.tenant_bytes_max,
        "on_full": on_full,
    });
    shown.serialize(to)
}

/// Checks `[store]`.
pub(super) fn store(raw: Store, problems: &mut Problems) -> StoreConfig {
    let given = sure(raw.url);
    let Plain(text) = &given.value;
    // A URL is never quoted: it could hold a password.
    let url = text.parse().unwrap_or_else(|error: OpenError| {
        given.refuse(problems, error);
        StoreUrl::Memory
    });
    let on_full = sure(raw.on_full);
    let (records, tenant_records) = (sure(raw.max_records), sure(raw.max_records_per_tenant));
    let (bytes, tenant_bytes) = (sure(raw.max_bytes), sure(raw.max_bytes_per_tenant));
    let bounds = Bounds {
        records_max: bounds::number(&records, 1..=STORE_MAX, problems),
        bytes_max: bounds::size(&bytes, 1..=STORE_MAX, problems),
        tenant_records_max: bounds::number(&tenant_records, 1..=STORE_MAX, problems),
        tenant_bytes_max: bounds::size(&tenant_bytes, 1..=STORE_MAX, problems),
        on_full: match on_full.value {
            OnFullChoice::Refuse => OnFull::Refuse,
            OnFullChoice::Evict => OnFull::Evict,
        },
    };
    let listen_url = raw.listen_url.and_then(|given| {
        let Plain(text) = &given.value;
        let read = text.parse().and_then(|url| match url {
            StoreUrl::Postgres(address) => Ok(address),
            StoreUrl::Memory | StoreUrl::Embedded(_) | StoreUrl::Redis(_) => {
                Err(OpenError::Url("use `postgres://HOST/DATABASE`".to_owned()))
            }
        });
        let read = read.and_then(|address| match url {
            StoreUrl::Postgres(_) => Ok(address),
            StoreUrl::Memory | StoreUrl::Embedded(_) | StoreUrl::Redis(_) => {
                Err(OpenError::Url("only a store in PostgreSQL has it beside its own".to_owned()))
            }
        });
        read.map_err(|error| given.refuse(problems, error)).ok()
    });
    let schema = sure(raw.schema);
    let Plain(name) = &schema.value;
    if !is_schema_name(name) {
        let what = "is a name of up to 63 lower-case letters, digits and underscores";
        schema.refuse(problems, what);
    }
    if let (StoreUrl::Postgres(_) | StoreUrl::Redis(_), OnFull::Evict) = (&url, bounds.on_full) {
        let what = "a database server does not evict; use \"refuse\"";
        on_full.refuse(problems, what);
    }
    let accept_loss = sure(raw.accept_loss).value;
    StoreConfig { url, bounds, schema: name.clone(), listen_url, accept_loss }
}
