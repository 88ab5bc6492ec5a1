//! From the routes of a configuration to those of a gateway.

use std::collections::HashMap;

use http::Uri;
use onetake_http::gateway::forward::HostSent;
use onetake_http::gateway::probe::{Probe, ProbeUrl};
use onetake_http::gateway::upstream::UpstreamOptions;
use onetake_http::gateway::{self, ProxyUpstream, Route};
use onetake_http::{Keyless, Mode, OnNoKey, Settings, StoreDown};

use super::{TIMEOUT, dialect};
use crate::config::{self, Config, ConfigErrors, KeyUse, RouteConfig, RouteSettings};

/// Every route of `config`.
pub(super) fn routes(config: &Config) -> Result<Vec<Route>, ConfigErrors> {
    let mut upstreams = HashMap::new();
    let mut routes = Vec::new();
    for given in &config.routes {
        let at = |what: String| Config::error_at(&given.place, what);
        let upstream = upstream(config, &mut upstreams, &given.upstream).map_err(at)?;
        let probe = given.settings.probe.as_ref().filter(|_| !given.passes_through);
        let probe = probe.map(|url| probed(config, &mut upstreams, url)).transpose().map_err(at)?;
        let settings = (!given.passes_through).then(|| settings(config, given)).transpose();
        routes.push(Route {
            pattern: given.pattern.clone(),
            upstream,
            timeout: given.settings.policy.timeout().unwrap_or(TIMEOUT),
            request_bytes_max: given.settings.max_request,
            operation: given.operation.clone(),
            settings: settings.map_err(at)?,
            forward_key: match given.settings.forward_key {
                config::ForwardKey::Raw => gateway::ForwardKey::Raw,
                config::ForwardKey::Scoped => gateway::ForwardKey::Scoped,
            },
            scope: given.settings.requires.as_ref().map(|word| word.0.clone()),
            shares_keys: given.settings.scope == config::ScopeRule::Tenant,
            probe,
        });
    }
    Ok(routes)
}

/// One upstream for every route that names it, so that they share connections.
fn upstream(
    config: &Config,
    made: &mut HashMap<Uri, ProxyUpstream>,
    url: &Uri,
) -> Result<ProxyUpstream, String> {
    if let Some(upstream) = made.get(url) {
        return Ok(upstream.clone());
    }
    let preserves = config.server.preserve_host;
    let host = if preserves { HostSent::Caller } else { HostSent::Upstream };
    let options = UpstreamOptions::new().host(host);
    let upstream = ProxyUpstream::new(url.clone(), options).map_err(|error| error.to_string())?;
    made.insert(url.clone(), upstream.clone());
    Ok(upstream)
}

/// Where an outcome is asked for: at the route's own upstream, or at another host.
fn probed(
    config: &Config,
    made: &mut HashMap<Uri, ProxyUpstream>,
    url: &ProbeUrl,
) -> Result<Probe, String> {
    let Some(base) = url.base() else { return Ok(Probe::here(url.clone())) };
    Ok(Probe::elsewhere(url.clone(), upstream(config, made, base)?))
}

fn settings(config: &Config, given: &RouteConfig) -> Result<Settings, String> {
    let RouteSettings { policy, fingerprint, .. } = &given.settings;
    // The upstream's limit is kept where it is known what was sent.
    let builder = Settings::builder(dialect::of(&given.settings.dialect))
        .policy(policy.to_builder().no_timeout())
        .ignore(fingerprint.ignore.iter().cloned())
        .query(fingerprint.query)
        .json(fingerprint.json)
        .request_bytes_max(given.settings.max_request)
        .response_bytes_max(given.settings.max_stored_response)
        .body_within(config.server.body_timeout)
        .store_down(match given.settings.store_down {
            config::StoreDown::Refuse => StoreDown::Refuse,
            config::StoreDown::Pass => StoreDown::Pass,
        })
        .mode(match given.settings.mode {
            config::Mode::Enforce => Mode::Enforce,
            config::Mode::Observe => Mode::Observe,
        });
    let builder = match given.settings.key {
        KeyUse::ByDialect => builder,
        KeyUse::Required => builder.keyless(Keyless::By(OnNoKey::Refuse)),
        KeyUse::Optional => builder.keyless(Keyless::By(OnNoKey::Pass)),
        KeyUse::Fingerprint { window } => builder.keyless(Keyless::Derive(window)),
    };
    builder.build().map_err(|error| error.to_string())
}
