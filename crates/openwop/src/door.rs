//! The door: every operation of the contract, from a request to a response.
//!
//! ```text
//! request ──ask.rs──▶ operation ──gate──▶ who ──▶ runs.rs · events.rs · words.rs · … ──▶ reply.rs
//! ```
//!
//! Whoever changes something goes through the same layer as every other door of this project: the
//! change and the response are one commit under the caller's key. Tenants come from credentials
//! only; a `tenantId` in a request can only be refused.

mod discovery;
mod events;
mod fork;
mod runs;
mod seams;
mod webhooks;
mod words;

use std::net::IpAddr;
use std::sync::Mutex;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body::Body;
use onetake_core::{Operation, Outcome, Scope, Tenant};
use onetake_engine::{Doc, Journal, Need, Place, Update, View};
use onetake_http::identity::{Gate, Identity, Refused};
use onetake_http::{Dialect, Idempotency, Settings, WholeRequest};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use uuid::Uuid;

use self::discovery::Documents;
use crate::ask::{ANSWER, NoRoute, Route, VERSION_PATH};
use crate::books::{self, RunKey, Told};
use crate::host::step::{Change, Computed, StoreMachine};
use crate::host::{Host, lock};
use crate::reply::{Reply, ReplyBody, whole};
use crate::run::Run;
use crate::snapshot::{Frame, snapshot};

/// Marks an answer that was given before.
const REPLAY_MARK: &str = "openwop-idempotent-replay";
/// Names the record of a key, as the contract does (W10).
const CACHE_KEY: HeaderName = HeaderName::from_static("openwop-cache-key");

/// The name that the contract gives to the record of a key: for those who compare hosts. It is no
/// address here, because two different triples can have one.
#[must_use]
pub fn cache_key(tenant: &str, endpoint: &str, key: &str) -> String {
    digest_of(&[tenant, ":", endpoint, ":", key])
}

fn digest_of(pieces: &[&str]) -> String {
    let mut hash = Sha256::new();
    for piece in pieces {
        hash.update(piece);
    }
    base16ct::lower::encode_string(&hash.finalize())
}

/// The length of what stands behind `run-`.
const RUN_ID_BYTES: usize = 36;
/// The largest request, in bytes.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// The door of a host.
pub struct Door<S> {
    host: Host<S>,
    gate: Gate,
    idempotency: Idempotency,
    documents: Documents,
    /// Whether the seams for tests are there.
    has_seams: bool,
}

impl<S> std::fmt::Debug for Door<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("host", &self.host).finish_non_exhaustive()
    }
}

/// A caller who was let in.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    tenant: Tenant,
    /// The subject, as it is named in events.
    name: Option<String>,
    /// Whether they may answer what runs wait for.
    may_answer: bool,
}

impl Caller {
    fn of(identity: &Identity) -> Self {
        let name = identity.principal().map(|principal| principal.as_str().to_owned());
        let may_answer = identity.may(ANSWER);
        Self { tenant: identity.tenant().clone(), name, may_answer }
    }

    /// Who acts, as an event names them.
    fn actor(&self) -> &str {
        self.name.as_deref().unwrap_or(self.tenant.as_str())
    }

    /// The run of that name, if it is one: nothing else is looked for.
    fn run(&self, id: &str) -> Result<RunKey, Reply> {
        let is_one = |rest: &str| rest.len() == RUN_ID_BYTES && Uuid::try_parse(rest).is_ok();
        let fits = id.strip_prefix("run-").is_some_and(is_one);
        if fits { Ok(RunKey::new(&self.tenant, id)) } else { Err(no_run()) }
    }

    /// Refuses a tenant that a request names, unless it is the caller's own.
    fn may_name(&self, tenant: Option<&str>) -> Result<(), Reply> {
        match tenant {
            Some(named) if named != self.tenant.as_str() => {
                Err(Reply::forbidden("the tenant is that of your credential, and no other"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Whether the host answers at this path, whatever else is served.
#[must_use]
pub fn owns(path: &str) -> bool {
    path == crate::ask::DISCOVERY_PATH
        || path == VERSION_PATH
        || path.strip_prefix(VERSION_PATH).is_some_and(|rest| rest.starts_with('/'))
}

impl<S: Journal> Door<S> {
    /// The door of `host`: callers are verified by `gate`. With `has_seams` the seams for tests of
    /// conformance are there as well, behind the same gate.
    #[must_use]
    pub fn new(host: Host<S>, gate: Gate, has_seams: bool) -> Self {
        // Every body here is JSON, whether it says so or not, and counts by its meaning.
        let settings = Settings::builder(Dialect::openwop()).all_json();
        let settings = settings.request_bytes_max(REQUEST_BYTES_MAX);
        let settings = settings.build().expect("invariant: the contract's settings are in bounds");
        let idempotency = Idempotency::by_extension(host.engine().clone()).with(settings);
        let documents = Documents::of(&host);
        Self { host, gate, idempotency, documents, has_seams }
    }

    /// The same, with bounds of the server: bytes of requests in memory at once, and new keys a
    /// minute by tenant.
    #[must_use]
    pub fn bounded(
        mut self,
        buffered_bytes_max: usize,
        new_keys_per_minute: impl Fn(&Tenant) -> Option<u32> + Send + Sync + 'static,
    ) -> Self {
        let idempotency = self.idempotency.buffered_bytes_max(buffered_bytes_max);
        self.idempotency = idempotency.limit_new_keys(new_keys_per_minute);
        self
    }

    /// The host.
    #[must_use]
    pub const fn host(&self) -> &Host<S> {
        &self.host
    }

    /// Answers one request.
    ///
    /// # Cancel safety
    /// Dropping the future leaves a change committed whole or not at all; a retry with the same
    /// key tells.
    pub async fn answer<B>(&self, request: Request<B>, peer: IpAddr) -> Response<ReplyBody>
    where
        B: Body<Data = Bytes> + Send,
    {
        let (parts, body) = request.into_parts();
        match self.answered(&parts, body, peer).await {
            Ok(response) => response,
            Err(reply) => reply.into_response(),
        }
    }

    async fn answered<B>(
        &self,
        parts: &Parts,
        body: B,
        peer: IpAddr,
    ) -> Result<Response<ReplyBody>, Reply>
    where
        B: Body<Data = Bytes> + Send,
    {
        let found = Route::of(&parts.method, parts.uri.path());
        let found = found.map_err(|none| unrouted(&none));
        let scope = match &found {
            Ok(route) => route.scope(),
            // Who is not let in learns nothing of what there is.
            Err(_) => Some(""),
        };
        let caller = match scope {
            Some(scope) => Some(self.admit(parts, peer, scope).await?),
            None => None,
        };
        let route = found?;
        if matches!(route, Route::ConcurrentClaim | Route::SimulatePartition) && !self.has_seams {
            return Err(nothing());
        }
        // Most requests repeat a known one, and what they need is small: the rest has a place of
        // its own, or every request would be as large as the largest.
        let Some(caller) = caller else {
            return Box::pin(self.open(route, parts, body)).await;
        };
        let Some(operation) = route.operation() else {
            return Box::pin(self.looked(route, parts, &caller)).await;
        };
        let whole = self.read(parts, body, &caller, operation).await?;
        // What was answered before was checked before.
        match self.known(&whole) {
            Some(known) => Ok(known),
            None => Box::pin(self.changed(route, &whole, &caller)).await,
        }
    }

    /// Finds out who asks, and whether they may.
    async fn admit(&self, parts: &Parts, peer: IpAddr, scope: &str) -> Result<Caller, Reply> {
        let admitted = self.gate.admit(&parts.headers, peer).await;
        let identity = admitted.map_err(unverified)?;
        if !scope.is_empty() && !identity.may(scope) {
            let text = "the credential does not have the scope that this needs";
            return Err(Reply::forbidden(text).with("scopeRequired", scope));
        }
        Ok(Caller::of(&identity))
    }

    /// Answers what is open to everybody, and to whoever holds a token.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the others are answered elsewhere")]
    async fn open<B>(
        &self,
        route: Route,
        parts: &Parts,
        body: B,
    ) -> Result<Response<ReplyBody>, Reply>
    where
        B: Body<Data = Bytes> + Send,
    {
        let operation = route.operation();
        match route {
            Route::Discovery => Ok(self.documents.discovery()),
            Route::OpenApi => Ok(self.documents.openapi()),
            Route::InspectToken(token) => Ok(self.inspect(&token).await?.into_response()),
            Route::ResolveToken(token) => {
                let claims = self.claims(&token).await?;
                let caller = Caller { tenant: claims.0, name: None, may_answer: true };
                let operation = operation.ok_or_else(nothing)?;
                let whole = self.read(parts, body, &caller, operation).await?;
                self.resolve_by_token(&whole, claims.1).await
            }
            _ => Err(nothing()),
        }
    }

    /// Answers whoever changes something.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the others are answered elsewhere")]
    async fn changed(
        &self,
        route: Route,
        whole: &WholeRequest<'_>,
        caller: &Caller,
    ) -> Result<Response<ReplyBody>, Reply> {
        match route {
            Route::CreateRun => self.create(whole, caller).await,
            Route::Cancel(run) => self.cancel(whole, caller, &run).await,
            Route::BulkCancel => self.bulk_cancel(whole, caller).await,
            Route::Pause(run) => self.pause(whole, caller, &run).await,
            Route::Resume(run) => self.resume(whole, caller, &run).await,
            Route::Fork(run) => self.fork(whole, caller, &run).await,
            Route::Resolve { run, node, .. } => self.resolve(whole, caller, &run, &node).await,
            Route::RegisterWebhook => self.register(whole, caller).await,
            Route::DeleteWebhook(id) => self.unregister(whole, caller, &id).await,
            Route::ConcurrentClaim => self.concurrent_claim(whole.body(), caller).await,
            Route::SimulatePartition => Self::simulate_partition(whole.body()),
            _ => Err(nothing()),
        }
    }

    /// Answers whoever only looks.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the others are answered elsewhere")]
    async fn looked(
        &self,
        route: Route,
        parts: &Parts,
        caller: &Caller,
    ) -> Result<Response<ReplyBody>, Reply> {
        match route {
            Route::ListWorkflows => Ok(self.workflows().into_response()),
            Route::ListWebhooks => Ok(self.webhooks(caller).await?.into_response()),
            Route::Workflow(id) => Ok(self.workflow(&id)?.into_response()),
            Route::ListRuns => Ok(self.list(parts, caller).await?.into_response()),
            Route::Run(run) => Ok(self.look(caller, &run).await?.into_response()),
            Route::Events(run) => self.events(parts, caller, &run).await,
            Route::Poll(run) => Ok(self.poll(parts, caller, &run).await?.into_response()),
            _ => Err(nothing()),
        }
    }

    /// Reads a request that changes something, with its key.
    async fn read<'r, B>(
        &self,
        parts: &'r Parts,
        body: B,
        caller: &Caller,
        operation: &'static str,
    ) -> Result<WholeRequest<'r>, Reply>
    where
        B: Body<Data = Bytes> + Send,
    {
        // W10: keys are the tenant's, whoever of it asks.
        let scope = Scope::tenant_wide(caller.tenant.clone());
        let operation = Operation::new(operation).expect("invariant: every one has a name");
        let read = self.idempotency.read(parts, body, scope, operation).await;
        read.map_err(|response| reply_of(&response))
    }

    /// Commits a change with its response, under the key of the request.
    async fn commit<F>(
        &self,
        request: &WholeRequest<'_>,
        anchor: &Doc,
        places: Vec<Place>,
        compute: F,
    ) -> Response<ReplyBody>
    where
        F: Fn(&View) -> Result<Update<(Reply, Told)>, Need> + Send + Sync,
    {
        // A caller who hangs up in between leaves what was committed to nobody.
        let left = Left { host: &self.host, told: Mutex::new(Told::default()) };
        let engine = self.host.engine();
        let answer = self.idempotency.commit(engine, request, anchor, places, |view| {
            Ok(compute(view)?.map(|(reply, tell)| -> Outcome {
                *lock(&left.told) = tell;
                reply.outcome()
            }))
        });
        let mut response = answer.await;
        let told = std::mem::take(&mut *lock(&left.told));
        // What was computed for an answer that was given before did not happen.
        let is_replay = response.headers().contains_key(REPLAY_MARK);
        if response.status().is_success() && !is_replay {
            self.host.tell(told, None);
        }
        name_record(&mut response, request);
        response.map(whole)
    }

    /// The answer to a request that was answered before, where that takes nothing but memory.
    fn known(&self, request: &WholeRequest<'_>) -> Option<Response<ReplyBody>> {
        let mut known = self.idempotency.known(request)?;
        name_record(&mut known, request);
        Some(known.map(whole))
    }

    /// Commits what `act` does to a run, with the response that `reply` makes of it. Whoever
    /// refuses changes nothing.
    async fn act<T, A, R>(
        &self,
        request: &WholeRequest<'_>,
        caller: &Caller,
        run: &str,
        act: A,
        reply: R,
    ) -> Response<ReplyBody>
    where
        A: Fn(&mut StoreMachine<'_, S>) -> Result<Result<T, Reply>, Need> + Send + Sync,
        R: Fn(&T, &Run) -> Reply + Send + Sync,
    {
        let key = match caller.run(run) {
            Ok(key) => key,
            // What is no name of a run will never be one, and is kept as such.
            Err(refused) => return self.answer_only(request, caller, refused).await,
        };
        let (key, places) = (&key, books::read_by_steps(&key.tenant));
        self.commit(request, &key.doc(), places, |view| {
            let nothing = |reply: Reply| Update::nothing((reply, Told::default()));
            Ok(match self.host.compute(view, key, &act)? {
                Computed::Missing => nothing(no_run()),
                Computed::Lost(_) => nothing(Reply::conflict(
                    "definition_missing",
                    "the workflow of this run is gone, and the run ends for that",
                )),
                Computed::Same(Err(refused), _) | Computed::Changed(Err(refused), _) => {
                    nothing(refused)
                }
                Computed::Same(Ok(value), run) => nothing(reply(&value, &run)),
                Computed::Changed(Ok(value), change) => {
                    let Change { run, value: bytes, writes, told, .. } = *change;
                    let mut told = told;
                    told.ready.push(key.clone());
                    let reply = reply(&value, &run);
                    Update::to(bytes, (reply, told)).writes(writes)
                }
            })
        })
        .await
    }
}

/// What a request whose caller has gone may have committed.
struct Left<'h, S: Journal> {
    host: &'h Host<S>,
    told: Mutex<Told>,
}

impl<S: Journal> Drop for Left<'_, S> {
    fn drop(&mut self) {
        let told = std::mem::take(&mut *lock(&self.told));
        self.host.look_soon(&told.ready);
    }
}

impl<S: Journal> Host<S> {
    /// A run as others see it at `now_ms`, by the store's clock; whoever `may_answer` gets a token
    /// to answer with, and everybody else one to look with.
    pub(crate) fn shown(&self, run: &Run, now_ms: u64, may_answer: bool) -> Value {
        let definition = self.0.catalog.definition(&run.definition);
        let frame = Frame {
            definition: definition.as_deref(),
            tokens: &self.0.tokens,
            url: self.0.settings.public_url.as_deref().unwrap_or(""),
            now_ms,
            may_answer,
        };
        snapshot(run, &frame)
    }
}

/// Says what the contract calls the record of the key, where there is one (W10).
fn name_record(response: &mut Response<Bytes>, request: &WholeRequest<'_>) {
    let Some((key, operation)) = request.key().zip(request.operation()) else { return };
    let (tenant, operation) = (request.scope().tenant().as_str(), operation.as_str());
    let name = digest_of(&[tenant, ":", operation, ":", key.as_str()]);
    response.headers_mut().extend(HeaderValue::try_from(name).ok().map(|name| (CACHE_KEY, name)));
}

/// There is no such run, or it is somebody else's: which of them is nobody's business.
pub(crate) fn no_run() -> Reply {
    Reply::not_found("run_not_found", "there is no such run")
}

fn nothing() -> Reply {
    Reply::not_found("not_found", "there is nothing at this path")
}

fn unrouted(none: &NoRoute) -> Reply {
    match none {
        NoRoute::NotFound => nothing(),
        NoRoute::MethodNotAllowed(allow) => {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            Reply::error(status, "method_not_allowed", "this path has other methods")
                .header(header::ALLOW, HeaderValue::from_static(allow))
        }
    }
}

fn unverified(refused: Refused) -> Reply {
    let code = match refused {
        Refused::Missing(_) | Refused::Invalid(_) => "unauthenticated",
        Refused::Forbidden(_) => "forbidden",
        Refused::Unavailable(_) => "identity_unavailable",
    };
    tracing::info!(code, reason = refused.reason(), "a caller was not let in");
    let reply = Reply::error(refused.status(), code, refused.to_string());
    match refused.challenge() {
        Some(challenge) => reply.header(header::WWW_AUTHENTICATE, challenge),
        None => reply,
    }
}

/// A response that was made elsewhere.
fn reply_of(response: &Response<Bytes>) -> Reply {
    let body = serde_json::from_slice(response.body()).unwrap_or(json!({"error": "refused"}));
    let kept = response.headers().iter().filter(|(name, _)| **name != header::CONTENT_TYPE);
    let mut reply = Reply::new(response.status(), body);
    reply.headers.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W10: as the contract writes it; computed once with another program (`printf … | sha256sum`).
    #[test]
    fn w10_the_record_of_a_key_has_the_name_that_the_contract_gives_it() {
        let expected = "ad7df6b32b4dedac45c4bc551d68cb38edf86ac9154c67c5a9e83973dc4211df";
        assert_eq!(cache_key("acme", "POST /v1/runs", "order-1"), expected);
    }

    #[test]
    fn the_host_owns_its_paths_and_no_others() {
        for path in ["/.well-known/openwop", "/v1", "/v1/", "/v1/runs"] {
            assert!(owns(path), "{path}");
        }
        for path in ["/", "/v10/runs", "/orders/v1", "/.well-known/idempotency", "/healthz"] {
            assert!(!owns(path), "{path}");
        }
    }

    #[test]
    fn only_names_of_runs_are_looked_for() {
        let tenant = Tenant::new("acme").unwrap();
        let caller = Caller { tenant, name: None, may_answer: false };
        assert!(caller.run("run-01a1e759-5a76-74cd-96ae-5948796168c9").is_ok());
        let long = format!("run-{}", "0".repeat(70_000));
        for id in ["", "run-", "x", "run-1", "01a1e759-5a76-74cd-96ae-5948796168c9", &long] {
            assert!(caller.run(id).is_err());
        }
    }
}
