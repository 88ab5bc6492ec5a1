//! One request to an upstream, and what is known when it ends.
//!
//! The upstream's status is a report of a living owner. A connection that could not be made means
//! that nothing was sent; anything that breaks afterwards means that nobody knows. The time limit
//! of the route covers the whole answer, up to its last kept byte.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use onetake_core::{Address, Code, Key, Operation, Scope, Tenant};
use onetake_engine::{Attempt, Home};
use tokio::time::{Instant, timeout_at};

use super::forward::{self, Caller, Forwarding, UriError, upstream_uri};
use super::upstream::{Place, SendError, SentCause, Upstream, UpstreamBody};

/// An upstream that takes bodies that were read, and bodies that pass through.
pub type ProxyUpstream = Upstream<DoorBody<Incoming>>;
use super::probe::{self, Probe, Turns};
use super::{Route, matched_name};
use crate::ask::{self, Refused};
use crate::body::DoorBody;
use crate::dialect::Dialect;
use crate::execute::{Ended, Live, is_stream};
use crate::idempotency::Idempotency;
use crate::identity::{Identity, PRINCIPAL_HEADER, TENANT_HEADER};
use crate::read::{Read, Reading};
use crate::reply::refuse;
use crate::settings::Mode;
use crate::spare::{Learned, Unsettled};
use crate::walk::Handler;

const ATTEMPT: HeaderName = HeaderName::from_static("onetake-attempt");
const RECOVERY: HeaderName = HeaderName::from_static("onetake-recovery");

/// The body of a gateway's response: the upstream's, or what was read of it, or ours.
pub type GatewayBody = DoorBody<DoorBody<Given>>;

/// The body of what an upstream answered.
pub type Given = UpstreamBody<DoorBody<Incoming>>;

/// Which key an upstream is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardKey {
    /// The caller's own, in its bare form.
    #[default]
    Raw,
    /// One that no other tenant or subject can have.
    Scoped,
}

/// Where the requests of one route go.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) door: Option<Idempotency>,
    pub(super) dialect: Arc<Dialect>,
    pub(super) matched: Option<Arc<str>>,
    /// What requests of the usual methods are called, where that is by `matched`.
    operations: Vec<(Method, Operation)>,
    pub(super) scope: Option<String>,
    pub(super) shares_keys: bool,
    pub(super) upstream: ProxyUpstream,
    pub(super) timeout: Duration,
    forward_key: ForwardKey,
    request_bytes_max: usize,
    pub(super) response_bytes_max: usize,
    pub(super) probe: Option<Probe>,
    pub(super) shared: Arc<Shared>,
}

/// What every route of a gateway shares.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) forwarding: Forwarding,
    pub(super) turns: Turns,
    /// The headers that carry a caller's credential, where it is passed on.
    pub(super) credentials: Vec<HeaderName>,
    /// Whether callers are of more than one tenant.
    pub(super) has_tenants: bool,
}

impl Target {
    pub(super) fn new(route: &Route, door: &Idempotency, shared: Arc<Shared>) -> Self {
        let door = route.settings.clone().map(|settings| {
            let door = door.with(settings);
            route.operation.clone().map_or_else(|| door.clone(), |operation| door.named(operation))
        });
        let dialect = door.as_ref().map(|door| Arc::clone(&door.settings.dialect));
        let matched = matched_name(route);
        let named = |method| {
            let name = ask::named(&method, matched.as_deref()?).ok()?;
            Some((method, name))
        };
        let usual = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        Self {
            door,
            dialect: dialect.unwrap_or_default(),
            operations: usual.into_iter().filter_map(named).collect(),
            matched,
            scope: route.scope.clone(),
            shares_keys: route.shares_keys,
            upstream: route.upstream.clone(),
            timeout: route.timeout,
            forward_key: route.forward_key,
            // Who is only watched is refused nothing.
            request_bytes_max: match &route.settings {
                Some(own) if own.mode == Mode::Observe => usize::MAX,
                Some(_) | None => route.request_bytes_max,
            },
            response_bytes_max: route.settings.as_ref().map_or(0, |own| own.response_bytes_max),
            probe: route.probe.clone(),
            shared,
        }
    }

    /// What requests with this method are called, if that is known for all of them.
    pub(super) fn operation(&self, method: &Method) -> Option<&Operation> {
        self.operations.iter().find(|(one, _)| one == method).map(|(_, name)| name)
    }

    fn refused(&self, code: Code, detail: &'static str) -> Response<Bytes> {
        refuse(&Refused::new(code, detail), &self.dialect)
    }
}

/// One request of one caller on its way.
#[derive(Debug, Clone)]
pub(super) struct Proxy {
    pub(super) target: Arc<Target>,
    pub(super) caller: Caller,
    identity: Identity,
}

/// What a request has before it is sent.
struct Prepared {
    place: Place,
    /// Where it is noted that its body was too long, if that is not known beforehand.
    is_too_long: Option<Arc<AtomicBool>>,
}

type Answered = Ended<DoorBody<Given>, Infallible>;

impl Proxy {
    pub(super) const fn new(target: Arc<Target>, caller: Caller, identity: Identity) -> Self {
        Self { target, caller, identity }
    }

    /// Sends a request that nobody deduplicates, and passes the answer on as it comes.
    pub(super) async fn pass(
        self,
        request: Request<Incoming>,
    ) -> Live<DoorBody<Given>, Infallible> {
        let ended = Box::pin(self.call(request.map(DoorBody::passed), None)).await;
        Ok(match ended {
            Ended::Responded(response) => response.map(DoorBody::passed),
            Ended::NotSent(response) | Ended::Unknown(response) => response.map(DoorBody::whole),
            Ended::Failed(never) => match never {},
        })
    }

    /// The request as the upstream gets it, and a place for it there; or why it is not sent.
    fn prepared(
        &self,
        request: Request<DoorBody<Incoming>>,
        attempt: Option<Attempt>,
    ) -> Result<(Prepared, Request<DoorBody<Incoming>>), Box<Answered>> {
        let (target, bytes_max) = (&*self.target, self.target.request_bytes_max);
        // What has a key was read whole, within the bounds of its route.
        if attempt.is_none()
            && let Err(refused) = ask::announced(request.body(), bytes_max)
        {
            return Err(Box::new(Ended::NotSent(refuse(&refused, &target.dialect))));
        }
        let (request, is_too_long) = bounded(request, bytes_max);
        let request = match self.addressed(request, attempt) {
            Ok(request) => request,
            Err(UriError::NoPath | UriError::TooLong) => {
                let detail = "this path cannot be asked of the upstream";
                return Err(Box::new(Ended::NotSent(target.refused(Code::RequestInvalid, detail))));
            }
        };
        let place = match self.sharing() {
            Some(tenant) => target.upstream.try_place_of(tenant),
            None => target.upstream.try_place(),
        };
        let place = place.ok_or_else(|| Box::new(self.broken(SendError::Busy)))?;
        Ok((Prepared { place, is_too_long }, request))
    }

    /// The request as the upstream gets it.
    fn addressed(
        &self,
        request: Request<DoorBody<Incoming>>,
        attempt: Option<Attempt>,
    ) -> Result<Request<DoorBody<Incoming>>, UriError> {
        let target = &*self.target;
        let (mut parts, body) = request.into_parts();
        let uri = upstream_uri(target.upstream.base(), &parts.uri)?;
        let headers = &mut parts.headers;
        let upstream = target.upstream.authority();
        target.shared.forwarding.request(headers, &parts.uri, &self.caller, upstream);
        self.identify(headers);
        if let Some(attempt) = &attempt {
            headers.insert(ATTEMPT, HeaderValue::from(attempt.number));
            if attempt.recovery {
                headers.insert(RECOVERY, HeaderValue::from_static("true"));
            }
        }
        // The upstream is sent one spelling of a key, whether this request is protected or not.
        let attempted = attempt.and_then(|attempt| attempt.key);
        let key = attempted.or_else(|| ask::key_of(headers, &target.dialect));
        if let Some(key) = key {
            self.set_key(headers, &key);
        }
        parts.uri = uri;
        // What was for us stays here.
        parts.extensions = http::Extensions::new();
        parts.version = http::Version::HTTP_11;
        Ok(Request::from_parts(parts, body))
    }

    /// Whose share of the upstream this request takes, where there are several tenants.
    fn sharing(&self) -> Option<&Tenant> {
        self.target.shared.has_tenants.then(|| self.identity.tenant())
    }

    /// Says who was verified.
    pub(super) fn identify(&self, headers: &mut HeaderMap) {
        set(headers, TENANT_HEADER, self.identity.tenant().as_str());
        if let Some(principal) = self.identity.subject() {
            set(headers, PRINCIPAL_HEADER, principal.as_str());
        }
    }

    /// Whose keys the caller's are. Whoever shares a key shares its answer, and what the upstream
    /// is sent for it.
    fn keys_of(&self) -> Scope {
        if self.target.shares_keys {
            Scope::tenant_wide(self.identity.tenant().clone())
        } else {
            self.identity.scope()
        }
    }

    /// The key as the upstream knows it.
    pub(super) fn key_sent<'k>(&self, key: &'k Key) -> Cow<'k, str> {
        match self.target.forward_key {
            ForwardKey::Raw => key.as_str().into(),
            ForwardKey::Scoped => {
                let operation = Operation::new("forwarded").expect("invariant: it is a name");
                Address::new(self.keys_of(), operation, key.clone()).slot().hex().into()
            }
        }
    }

    /// Sets the header of the key.
    pub(super) fn set_key(&self, headers: &mut HeaderMap, key: &Key) {
        let header = &self.target.dialect.key_header;
        forward::strip_spellings(headers, header);
        set(headers, header.clone(), &self.key_sent(key));
    }

    fn broken(&self, error: SendError) -> Answered {
        let target = &*self.target;
        let upstream = target.upstream.authority();
        tracing::warn!(%error, %upstream, "an upstream did not answer");
        match error {
            SendError::NotSent { .. } => {
                let detail = "the upstream cannot be reached; nothing was sent";
                Ended::NotSent(refuse(&soon(Code::UpstreamUnreachable, detail), &target.dialect))
            }
            SendError::Busy => Ended::NotSent(refuse(&busy(), &target.dialect)),
            SendError::Unknown { why: SentCause::Timeout } => self.too_slow(),
            SendError::Unknown { .. } => Ended::Unknown(target.refused(
                Code::UpstreamFailed,
                "the upstream broke off after the request was sent; the outcome is unknown",
            )),
        }
    }

    fn too_slow(&self) -> Answered {
        Ended::Unknown(self.target.refused(
            Code::UpstreamTimeout,
            "the upstream did not answer in time; the outcome is unknown",
        ))
    }
}

impl Handler<Incoming> for Proxy {
    type Body = DoorBody<Given>;
    type Error = Infallible;
    // Nothing that a call needs belongs to the task that it began in.
    const HOME: Home = Home::Caller;

    // A block and not an async function, which would hold the request twice.
    #[allow(clippy::manual_async_fn, reason = "it would be half as large again")]
    fn call(
        self,
        request: Request<DoorBody<Incoming>>,
        attempt: Option<Attempt>,
    ) -> impl Future<Output = Answered> + Send {
        let is_keyed = attempt.is_some();
        let deadline = Instant::now() + self.target.timeout;
        let (prepared, mut waiting) = match self.prepared(request, attempt) {
            Ok((prepared, request)) => (Ok(prepared), Some(request)),
            Err(refused) => (Err(refused), None),
        };
        async move {
            let Prepared { place, is_too_long } = match prepared {
                Ok(prepared) => prepared,
                Err(refused) => return *refused,
            };
            let target = &*self.target;
            let sent = target.upstream.send_waiting(place, &mut waiting, target.timeout).await;
            let response = match sent {
                Ok(response) => response,
                Err(_) if is_too_long.is_some_and(|it| it.load(Ordering::SeqCst)) => {
                    let refused = ask::too_large(target.request_bytes_max);
                    return Ended::Unknown(refuse(&refused, &target.dialect));
                }
                Err(error) => return self.broken(error),
            };
            let (mut parts, body) = response.into_parts();
            forward::response(&mut parts.headers, parts.version);
            // The caller talks to us, whatever the upstream speaks.
            parts.version = http::Version::HTTP_11;
            if !is_keyed || is_stream(&parts.headers) {
                return Ended::Responded(Response::from_parts(parts, DoorBody::passed(body)));
            }
            let mut reading = Reading::new(body, target.response_bytes_max);
            // Most answers are there already, and need no timer.
            let read = match reading.at_once(usize::MAX).await {
                Some(read) => Ok(read),
                None => timeout_at(deadline, reading.on(|_| true)).await,
            };
            match read {
                Ok(Read::Broken) => self.broken(SendError::Unknown { why: SentCause::Closed }),
                Ok(_) => Ended::Responded(Response::from_parts(parts, reading.into_body())),
                Err(_) => self.too_slow(),
            }
        }
    }

    fn scope(&self) -> Option<Scope> {
        Some(self.keys_of())
    }

    fn operation(&self, method: &Method) -> Option<Operation> {
        self.target.operation(method).cloned()
    }

    fn busy(&self) -> Option<Refused> {
        self.target.upstream.is_busy(self.sharing()).then(busy)
    }

    async fn learn(self, unsettled: Unsettled<'_>) -> Learned {
        probe::learn(&self, unsettled).await
    }
}

/// A request whose body breaks off after so many bytes, if it does not say how long it is, and
/// where that is noted.
fn bounded(
    request: Request<DoorBody<Incoming>>,
    bytes_max: usize,
) -> (Request<DoorBody<Incoming>>, Option<Arc<AtomicBool>>) {
    if request.body().size_hint().upper().is_some() {
        return (request, None);
    }
    let is_passed = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&is_passed);
    (request.map(|body| body.bounded(bytes_max, noted)), Some(is_passed))
}

fn soon(code: Code, detail: &'static str) -> Refused {
    Refused { retry_after: Some(Duration::from_secs(1)), ..Refused::new(code, detail) }
}

fn busy() -> Refused {
    soon(Code::Busy, "too many requests to the upstream at once; nothing was sent")
}

pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // Names of tenants may be any text; a header takes it as bytes.
    if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
        headers.insert(name, value);
    }
}
