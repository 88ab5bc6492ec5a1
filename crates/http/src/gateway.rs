//! The gateway: the same layer around a reverse proxy.
//!
//! A request is matched with a route, its caller is verified, and then it goes the way of every
//! request through this door, with an upstream for a handler. What the upstream does decides: a
//! status that it sent follows the dialect, a connection that was refused frees the key, and
//! whatever was sent without an answer is unknown.

pub mod forward;
mod lanes;
pub mod pattern;
mod places;
pub mod probe;
mod proxy;
pub mod routes;
mod serve;
pub mod upstream;
mod words;

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use hyper::body::Incoming;
use onetake_core::{Address, Code, Key, Operation, Scope, Tenant};
use onetake_engine::{Engine, Slots};

use self::forward::{Caller, Forwarding};
pub use self::lanes::Lanes;
use self::pattern::{Pattern, normalise};
use self::places::Places;
use self::probe::{PathParams, Probe, Turns};
pub use self::proxy::{ForwardKey, GatewayBody, Given, ProxyUpstream};
use self::proxy::{Proxy, Shared, Target};
use self::routes::{Found, Routes, RoutesError};
pub use self::serve::{Answers, Listening, serve};
use crate::ask::{AskedPath, MatchedRoute, Refused};
use crate::body::DoorBody;
use crate::dialect::Dialect;
use crate::idempotency::Idempotency;
use crate::identity::{self, Gate, Identity};
use crate::reply::{refuse, refuse_as};
use crate::settings::Settings;
use crate::walk::answer;

/// Where the policy of every route is published (X16).
pub const POLICY_PATH: &str = "/.well-known/idempotency";
const HEALTH_PATH: &str = "/healthz";
const READY_PATH: &str = "/readyz";
/// Methods that have a meaning, and only as they are spelled here.
const STANDARD: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
/// How long a store may take to say that it is ready.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// One route, as it is configured.
#[derive(Debug)]
pub struct Route {
    /// What it matches.
    pub pattern: Pattern,
    /// Where its requests go.
    pub upstream: ProxyUpstream,
    /// How long the upstream may take; past it the outcome is unknown.
    pub timeout: Duration,
    /// The most bytes of a request that passes; what its settings say holds for the others.
    pub request_bytes_max: usize,
    /// The name of what is done; `None`: by its match.
    pub operation: Option<Operation>,
    /// How its retries are answered; `None`: everything passes through.
    pub settings: Option<Settings>,
    /// Which key the upstream is sent.
    pub forward_key: ForwardKey,
    /// What a caller must be allowed to, if anything.
    pub scope: Option<String>,
    /// Whether the subjects of a tenant share their keys.
    pub shares_keys: bool,
    /// Where an unknown outcome is asked for, when the policy of its settings is to probe; without
    /// one it is held.
    pub probe: Option<Probe>,
}

/// What a gateway is made of, beside its routes.
#[derive(Debug)]
pub struct Parts {
    /// Who may use it.
    pub gate: Gate,
    /// What happens to headers.
    pub forwarding: Forwarding,
    /// Whether the credential that we verified is passed on.
    pub forwards_credentials: bool,
    /// Requests at once; further ones are refused.
    pub requests_max: usize,
    /// Bytes of keyed requests, which are read whole, in memory at once; further ones are refused.
    pub buffered_bytes_max: usize,
    /// New keys a minute by tenant, where that is limited.
    pub new_keys_per_minute: HashMap<Tenant, u32>,
}

/// A reverse proxy whose retries are harmless.
#[derive(Debug)]
pub struct Gateway {
    routes: Routes,
    targets: Vec<Arc<Target>>,
    door: Idempotency,
    gate: Gate,
    places: Places,
    /// What is spoken where no route is known.
    dialect: Dialect,
    policy: Bytes,
    probe: Address,
}

impl Gateway {
    /// A gateway on `engine`.
    ///
    /// # Errors
    /// A [`RoutesError`] when two routes collide or one can never match.
    pub fn new<S: Slots>(
        engine: Engine<S>,
        parts: Parts,
        routes: Vec<Route>,
    ) -> Result<Self, RoutesError> {
        let policy = words::policy(&routes);
        let mut forwarding = parts.forwarding;
        let mut stripped = parts.gate.reserved().to_vec();
        if !parts.forwards_credentials {
            stripped.extend_from_slice(parts.gate.credentials());
        }
        forwarding = forwarding.identity_headers(stripped);
        let credentials = parts.forwards_credentials.then(|| parts.gate.credentials().to_vec());
        let shared = Arc::new(Shared {
            forwarding,
            turns: Turns::default(),
            credentials: credentials.unwrap_or_default(),
            has_tenants: !matches!(parts.gate, Gate::Anonymous(_)),
        });
        let door = Idempotency::by_extension(engine);
        let mut door = door.buffered_bytes_max(parts.buffered_bytes_max);
        if !parts.new_keys_per_minute.is_empty() {
            let limits = parts.new_keys_per_minute;
            door = door.limit_new_keys(move |tenant| limits.get(tenant).copied());
        }
        let mut patterns = Vec::with_capacity(routes.len());
        let mut targets = Vec::with_capacity(routes.len());
        for route in routes {
            targets.push(Arc::new(Target::new(&route, &door, Arc::clone(&shared))));
            patterns.push(route.pattern);
        }
        let scope = Scope::tenant_named("onetake").expect("invariant: it is a name");
        let operation = Operation::new("onetake.ready").expect("invariant: it is a name");
        let key = Key::new("ready").expect("invariant: it is a key");
        Ok(Self {
            routes: Routes::new(patterns)?,
            targets,
            door,
            gate: parts.gate,
            places: Places::new(parts.requests_max),
            dialect: Dialect::ietf(),
            policy: policy.into(),
            probe: Address::new(scope, operation, key),
        })
    }

    /// Answers one request.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing but who hears the answer, once an execution has begun.
    pub async fn answer(
        &self,
        mut request: Request<Incoming>,
        caller: Caller,
    ) -> Response<GatewayBody> {
        if let Some(own) = self.own(&request).await {
            return own.map(whole);
        }
        let Some(_place) = self.places.take() else {
            let busy = Refused {
                code: Code::Busy,
                detail: "too many requests at once; nothing was executed".into(),
                retry_after: Some(Duration::from_secs(1)),
            };
            return refuse(&busy, &self.dialect).map(whole);
        };
        match self.matched(&mut request, caller.peer).await {
            Ok((target, identity)) => {
                let proxy = Proxy::new(Arc::clone(&target), caller, identity);
                let answered = match &target.door {
                    Some(door) => answer(door, request, proxy).await,
                    None => proxy.pass(request).await,
                };
                match answered {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
            Err(refused) => refused.map(whole),
        }
    }

    /// For a request whose head is too large.
    fn refuse_head(&self, bytes_max: usize) -> Response<GatewayBody> {
        let detail = format!("the head of the request has more than {bytes_max} bytes");
        let status = http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        refuse_as(&Refused::new(Code::TooLarge, detail), status, &self.dialect).map(whole)
    }

    /// What the gateway answers by itself, whatever the routes say.
    async fn own(&self, request: &Request<Incoming>) -> Option<Response<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return None;
        }
        match request.uri().path() {
            HEALTH_PATH => Some(words::plain("ok\n")),
            READY_PATH => Some(self.ready().await),
            POLICY_PATH => Some(words::json(self.policy.clone())),
            _ => None,
        }
    }

    async fn ready(&self) -> Response<Bytes> {
        let asked = tokio::time::timeout(READY_WITHIN, self.door.walk.ready(&self.probe)).await;
        if matches!(asked, Ok(Ok(()))) {
            return words::plain("ok\n");
        }
        let down = Refused::new(Code::StoreUnavailable, "the store does not answer");
        refuse(&down, &self.dialect)
    }

    /// Finds the route of a request and who sent it.
    async fn matched(
        &self,
        request: &mut Request<Incoming>,
        peer: IpAddr,
    ) -> Result<(Arc<Target>, Identity), Response<Bytes>> {
        if is_hostless(request) {
            let refused = Refused::new(Code::RequestInvalid, "send a Host header");
            return Err(refuse(&refused, &self.dialect));
        }
        let path = normalise(request.uri().path()).map_err(|error| {
            refuse(&Refused::new(Code::RequestInvalid, error.to_string()), &self.dialect)
        })?;
        // Only capital letters have a meaning. A backend that reads others as if they were would
        // be sent what no route guards.
        let spelled = request.method().as_str();
        if STANDARD.iter().any(|name| name.eq_ignore_ascii_case(spelled) && *name != spelled) {
            let refused = Refused::new(Code::RequestInvalid, "write the method in capital letters");
            return Err(refuse(&refused, &self.dialect));
        }
        let (target, params) = match self.routes.find(request.method(), &path) {
            Found::Route { index, params } => (Arc::clone(&self.targets[index]), params),
            Found::MethodNotAllowed { allow } => return Err(self.not_allowed(&allow)),
            Found::None => {
                let missing = Refused::new(Code::RouteMissing, "no route matches this path");
                return Err(refuse(&missing, &self.dialect));
            }
        };
        let admitted = self.gate.admit(request.headers(), peer).await;
        let identity = admitted.and_then(|identity| match &target.scope {
            Some(scope) => identity.require(scope).map(|()| identity),
            None => Ok(identity),
        });
        let identity = identity.map_err(|refused| unverified(refused, &target.dialect))?;
        // A host that the upstream is sent is part of what was asked.
        let host = target
            .shared
            .forwarding
            .sends_host_of_caller()
            .then(|| forward::host_asked(request.headers(), request.uri()));
        let asked = match host.flatten() {
            Some(host) => Some(format!("//{host}{}", path.as_str())),
            None if path.as_str() == request.uri().path() => None,
            None => Some(path.as_str().to_owned()),
        };
        // What the usual methods are called is known beforehand.
        let name = target.matched.as_ref().filter(|_| target.operation(request.method()).is_none());
        let extensions = request.extensions_mut();
        if let Some(asked) = asked {
            extensions.insert(AskedPath(asked.into()));
        }
        if let Some(name) = name {
            extensions.insert(MatchedRoute(Arc::clone(name)));
        }
        if target.probe.is_some() {
            extensions.insert(PathParams(params.into()));
        }
        Ok((target, identity))
    }

    fn not_allowed(&self, allow: &[Method]) -> Response<Bytes> {
        let refused = Refused::new(Code::RouteMissing, "this path has other methods");
        let status = http::StatusCode::METHOD_NOT_ALLOWED;
        let mut response = refuse_as(&refused, status, &self.dialect);
        let names: Vec<_> = allow.iter().map(Method::as_str).collect();
        if let Ok(names) = HeaderValue::try_from(names.join(", ")) {
            response.headers_mut().insert(header::ALLOW, names);
        }
        response
    }
}

/// Whether a request lacks the name of the host that it must have.
fn is_hostless(request: &Request<Incoming>) -> bool {
    let names_host =
        request.headers().contains_key(header::HOST) || request.uri().authority().is_some();
    request.version() >= http::Version::HTTP_11 && !names_host
}

fn whole(bytes: Bytes) -> GatewayBody {
    DoorBody::whole(bytes)
}

fn unverified(refused: identity::Refused, dialect: &Dialect) -> Response<Bytes> {
    let code = match refused {
        identity::Refused::Missing(_) => Code::IdentityMissing,
        identity::Refused::Invalid(_) => Code::IdentityInvalid,
        identity::Refused::Forbidden(_) => Code::IdentityForbidden,
        identity::Refused::Unavailable(_) => Code::IdentityUnavailable,
    };
    tracing::info!(code = %code, reason = refused.reason(), "a caller was not let in");
    let mut response = refuse(&Refused::new(code, Cow::from(refused.to_string())), dialect);
    if let Some(challenge) = refused.challenge() {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

/// The path of its pattern, where a route names its operations by that. One with `**` stands for
/// many operations, each with a path of its own.
fn matched_name(route: &Route) -> Option<Arc<str>> {
    if route.operation.is_some() || route.pattern.has_wildcard() {
        return None;
    }
    let text = route.pattern.to_string();
    text.split_once(' ').map(|(_, path)| path.into())
}
