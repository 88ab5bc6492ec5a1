//! From a configuration to a gateway: who may call, which requests go where, and how retries are
//! answered.
//!
//! Only translates. Whatever cannot be translated is a problem of the configuration and is said
//! with its place.

mod auth;
mod dialect;
mod route;

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result};
use http::Uri;
use onetake_http::gateway::forward::{Forwarding, HostSent};
use onetake_http::gateway::pattern::Pattern;
use onetake_http::gateway::upstream::UpstreamOptions;
use onetake_http::gateway::{ForwardKey, Listening, Parts, ProxyUpstream, Route};
use onetake_http::identity::{AnonymousSettings, ApiKeys, Gate};
use onetake_http::{BUFFERED_BYTES_MAX, Dialect, Keyless, OnNoKey, Settings};

pub(crate) use self::auth::tenants;
use crate::config::{Config, ConfigErrors, Environment, Purpose, Source};

/// Requests at once, where nothing is configured.
const REQUESTS_MAX: usize = 10_000;
/// How long an upstream may take, where nothing is configured.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What is deduplicated when only an upstream is named.
const CHANGING: &str = "POST,PUT,PATCH,DELETE /**";
const ALL: &str = "* /**";

/// All that a gateway is made of.
pub(crate) struct Plan {
    pub(crate) parts: Parts,
    pub(crate) routes: Vec<Route>,
    pub(crate) listening: Listening,
    /// The keys of callers, where they can be replaced while it runs.
    pub(crate) keys: Option<ApiKeys>,
}

/// The shortest gateway: every changing request with a key is deduplicated, by method and path, and
/// everything else passes. Everybody is one tenant.
///
/// # Errors
/// When `upstream` is no URL of an upstream.
pub(crate) fn shortest(upstream: Uri) -> Result<Plan> {
    let upstream = ProxyUpstream::new(upstream, UpstreamOptions::default())?;
    let settings =
        Settings::builder(Dialect::ietf()).keyless(Keyless::By(OnNoKey::Pass)).build()?;
    let route = |pattern: &str, settings| -> Result<Route> {
        Ok(Route {
            pattern: Pattern::parse(pattern).context("a pattern of ours")?,
            upstream: upstream.clone(),
            timeout: TIMEOUT,
            // What passes is not held in memory, so whatever the upstream takes may pass.
            request_bytes_max: usize::MAX,
            operation: None,
            settings,
            forward_key: ForwardKey::Raw,
            scope: None,
            shares_keys: true,
            probe: None,
        })
    };
    let parts = Parts {
        gate: Gate::Anonymous(AnonymousSettings::default().build()?),
        forwarding: Forwarding::new(),
        forwards_credentials: true,
        requests_max: REQUESTS_MAX,
        buffered_bytes_max: BUFFERED_BYTES_MAX,
        new_keys_per_minute: HashMap::new(),
    };
    let routes = vec![route(CHANGING, Some(settings))?, route(ALL, None)?];
    Ok(Plan { parts, routes, listening: Listening::default(), keys: None })
}

/// Reads what `source` says, to serve it.
///
/// # Errors
/// Everything that is wrong with it, also what only the gateway can tell, each with its place.
pub(crate) fn load(
    source: Source<'_>,
    environment: &Environment,
) -> Result<(Config, Option<Plan>), ConfigErrors> {
    let mut reading = Config::read(source, environment, Purpose::Serve)?;
    // What is wrong already would only be said again, in other words.
    if reading.has_routes() && reading.knows_callers() {
        auth::gate(reading.config()).map_or_else(|errors| reading.refuse(errors), drop);
    }
    let config = reading.finish()?;
    let plan = of(&config)?;
    Ok((config, plan))
}

/// What `config` describes; `None` when it has no routes and no workflows, and so nobody to serve.
///
/// # Errors
/// Everything that only the gateway can tell, each with its place.
fn of(config: &Config) -> Result<Option<Plan>, ConfigErrors> {
    let routes = route::routes(config)?;
    if routes.is_empty() && config.openwop.is_none() {
        return Ok(None);
    }
    let (gate, keys) = auth::gate(config)?;
    let server = &config.server;
    let host = if server.preserve_host { HostSent::Caller } else { HostSent::Upstream };
    let forwarding = Forwarding::new().trusted_proxies(server.trusted_proxies.clone()).host(host);
    let limit = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let limits = config.tenants.iter().filter_map(|tenant| {
        tenant.new_keys_per_minute.map(|number| (tenant.name.clone(), limit(number)))
    });
    let parts = Parts {
        gate,
        forwarding,
        forwards_credentials: config.auth.forward_credentials,
        requests_max: server.max_concurrent_requests,
        buffered_bytes_max: server.max_buffered,
        new_keys_per_minute: limits.collect(),
    };
    let listening = Listening {
        connections_max: server.max_connections,
        head_within: server.header_timeout,
        head_bytes_max: server.max_header_bytes,
        end_within: server.shutdown_within,
    };
    Ok(Some(Plan { parts, routes, listening, keys }))
}
