//! The way of one request through this door: read, ask, execute, reply.
//!
//! ```text
//! request ──ask.rs──▶ Ask ──engine──▶ execute.rs ──engine──▶ Answer ──reply.rs──▶ response
//!    └── no key ──▶ handler ──▶ response, untouched       └── unknown ──▶ handler.learn
//! ```
//!
//! It decides nothing. Whoever leaves in the middle leaves an execution that goes on: the handler
//! runs in a task of the engine, or moves into one then.

use std::future::{poll_fn, ready};
use std::ops::Deref;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use onetake_core::{Ask, Code, Finality, Operation, Outcome, Policy, Scope, Status, Timestamp};
use onetake_engine::{Answer, Attempt, Home, RunError};
use tokio::sync::oneshot;

use crate::ask::{self, Keyed, Refused};
use crate::body::DoorBody;
use crate::carry::BoxError;
use crate::execute::{Ended, Live, Place, Seat, report};
use crate::idempotency::{Boxed, Execution, Idempotency};
use crate::reply::{self, OBSERVED, Said};
use crate::room::Share;
use crate::settings::{Mode, Settings};
use crate::spare::{Learned, Spare, Unsettled, is_spare_needed, spared};

/// What answers requests behind this door.
pub(crate) trait Handler<B>: Clone + Send + 'static {
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
    type Error: Send + 'static;

    /// Answers a request; `attempt` says which one that is, if the request has a key.
    fn call(
        self,
        request: Request<DoorBody<B>>,
        attempt: Option<Attempt>,
    ) -> impl Future<Output = Ended<Self::Body, Self::Error>> + Send;

    /// Where its calls live.
    const HOME: Home = Home::Engine;

    /// Who asks, where the handler was made for them. Otherwise the door finds out.
    fn scope(&self) -> Option<Scope> {
        None
    }

    /// What requests with this method are called here, where that is settled beforehand.
    fn operation(&self, _: &Method) -> Option<Operation> {
        None
    }

    /// Why it could not be called at the moment, if that is known beforehand.
    fn busy(&self) -> Option<Refused> {
        None
    }

    /// Finds out what came of an attempt whose outcome is unknown. Most cannot, so it is held.
    fn learn(self, _: Unsettled<'_>) -> impl Future<Output = Learned> + Send {
        std::future::ready(Learned::Nothing(None))
    }
}

/// Answers `request` with `handler`, at most once per key.
// A block and not an async function, which would hold the request three times. What replays do not
// need is boxed.
pub(crate) fn answer<D, B, H>(
    door: D,
    request: Request<B>,
    handler: H,
) -> impl Future<Output = Live<H::Body, H::Error>> + Send
where
    D: Deref<Target = Idempotency> + Send + Sync,
    B: Body<Data = Bytes> + Send + 'static,
    H: Handler<B>,
{
    let (parts, body) = request.into_parts();
    async move {
        let settings = &*door.settings;
        let (keyed, scope) = match fits(&door, &handler, &parts, &body) {
            Ok(fitting) => fitting,
            Err(refused) => {
                let body = (DoorBody::passed(body), None);
                return Box::pin(aside(refused, handler, parts, body, settings)).await;
            }
        };
        let share = || door.room.share(scope.tenant());
        let (body, taken) = match ask::body(body, settings, share).await {
            Ok(read) => read,
            Err((refused, Some(rest))) => {
                return Box::pin(aside(Some(refused), handler, parts, rest, settings)).await;
            }
            Err((refused, None)) => return refuse(&refused, settings),
        };
        let named = door.operation.clone().or_else(|| handler.operation(&parts.method));
        let ask = match ask::ask(&parts, &body, keyed, (scope, named), settings) {
            Ok(ask) => ask,
            Err(refused) => {
                let body = (DoorBody::whole(body), taken);
                return Box::pin(aside(Some(refused), handler, parts, body, settings)).await;
            }
        };
        if settings.mode == Mode::Enforce
            && let Some(known) = door.walk.at_hand(&ask)
        {
            return reply(known, None, settings);
        }
        let share = || door.room.share_of(ask.address.tenant(), body.len());
        let Some(taken) = taken.or_else(share) else {
            let (refused, body) = (Some(ask::no_room()), (DoorBody::whole(body), None));
            return Box::pin(aside(refused, handler, parts, body, settings)).await;
        };
        if settings.mode == Mode::Enforce
            && let Err(refused) = may_begin(&door, handler.busy(), &ask).await
        {
            return refuse(&refused, settings);
        }
        let request = Whole { parts, body, taken: Arc::new(taken) };
        Box::pin(walked(&door, ask, request, handler)).await
    }
}

/// What can be said of a request before its body is read: its key and who asks. Otherwise why it is
/// refused, or nothing where it simply passes.
fn fits<B: Body, H: Handler<B>>(
    door: &Idempotency,
    handler: &H,
    parts: &Parts,
    body: &B,
) -> Result<(Keyed, Scope), Option<Refused>> {
    let keyed = ask::keyed(parts, &door.settings)?.ok_or(None)?;
    ask::announced(body, door.settings.request_bytes_max)?;
    let scope = handler.scope().or_else(|| door.scope(parts)).ok_or_else(unidentified)?;
    Ok((keyed, scope))
}

/// Answers a request that the rule does not: it passes, or is refused where that is enforced. What
/// was read of it has its room until then.
async fn aside<B, H: Handler<B>>(
    refused: Option<Refused>,
    handler: H,
    parts: Parts,
    (body, _taken): (DoorBody<B>, Option<Share>),
    settings: &Settings,
) -> Live<H::Body, H::Error> {
    match refused {
        None => pass(handler, parts, body).await,
        Some(refused) if settings.mode == Mode::Observe => {
            observed(pass(handler, parts, body).await, refused.code.as_str())
        }
        Some(refused) => refuse(&refused, settings),
    }
}

/// Whether a key that is not at hand may begin, said before anything is claimed. Where the handler
/// is `busy` only a new one may not: a known key needs no handler.
async fn may_begin(door: &Idempotency, busy: Option<Refused>, ask: &Ask) -> Result<(), Refused> {
    has_new_keys_left(door, ask).await?;
    match busy {
        Some(busy) if door.walk.is_new(&ask.address).await => Err(busy),
        Some(_) | None => Ok(()),
    }
}

/// Walks with a request that was read, and says what came of it. What is given to the engine is not
/// kept here beside it.
fn walked<B, H>(
    door: &Idempotency,
    ask: Ask,
    request: Whole,
    handler: H,
) -> impl Future<Output = Live<H::Body, H::Error>> + Send
where
    B: Send + 'static,
    H: Handler<B>,
{
    let (settings, place) = (&*door.settings, Place::new(request.parts.version));
    let spare = is_spare_needed(settings).then(|| {
        let (request, handler) = (request.clone(), handler.clone());
        Box::new(Spare { ask: ask.clone(), request, handler })
    });
    let execution = execution(door, &ask, request, handler, &place);
    let policy = Arc::clone(&ask.policy);
    let walk = door.walk.run(ask, execution);
    async move {
        let _seat = Seat(place.clone());
        // Whoever is only watched gets its answer whatever becomes of the record.
        let mode = settings.mode;
        let is_durable = move |ended: &_| is_durable(ended) || mode == Mode::Observe;
        match heard(door, walk, &place, &policy, is_durable).await {
            Heard::Begun(live) => *live,
            Heard::Ended(ended) if spare.is_none() || place.is_begun() => {
                told(ended, &place, settings)
            }
            Heard::Ended(ended) => Box::pin(spared(door, spare, ended)).await,
        }
    }
}

/// What the caller of a walk hears that ended, unless there is something else to try.
fn told<R, E>(
    ended: Result<Answer, RunError>,
    place: &Place<R, E>,
    settings: &Settings,
) -> Live<R, E> {
    if !place.is_begun() {
        return reply(ended, None, settings);
    }
    // What was sent is never sent a second time, not even where everything passes, and an attempt
    // that itself ended unknown has a word of its own for its caller.
    match place.take() {
        Some(live) if settings.mode == Mode::Observe && ended.is_err() => {
            live.map(|response| ending(response, true))
        }
        None if matches!(ended, Ok(Answer::Unknown { .. })) => refuse(&own_unknown(), settings),
        laid => reply(ended, laid, settings),
    }
}

/// What a caller hears of its walk first.
pub(crate) enum Heard<T, R, E> {
    /// How it ended.
    Ended(T),
    /// An answer that has begun, and ends once the walk has.
    Begun(Box<Live<R, E>>),
}

/// Walks until the end, or until the execution answers its caller by itself. Then the end of that
/// answer waits for the end of the walk, which `is_durable` judges.
pub(crate) async fn heard<T: Send + 'static, R, E>(
    door: &Idempotency,
    mut walk: Boxed<'static, T>,
    place: &Place<R, E>,
    policy: &Policy,
    is_durable: impl FnOnce(&T) -> bool + Send + 'static,
) -> Heard<T, R, E> {
    let ended = poll_fn(|cx| match walk.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending => place.poll_answering(cx).map(|()| None),
    });
    if let Some(ended) = ended.await {
        return Heard::Ended(ended);
    }
    let Some(live) = place.take() else { return Heard::Ended(walk.await) };
    // What answers its caller goes on whether or not the caller listens.
    let (tell, told) = oneshot::channel();
    door.walk.keep(Box::pin(async move {
        // Nobody need listen.
        let _ = tell.send(is_durable(&walk.await));
    }));
    Heard::Begun(Box::new(live.map(|mut response| {
        let until = kept_until(policy, response.status());
        reply::expires(response.headers_mut(), until);
        response.map(|body| {
            body.ending(|| Box::pin(async move { told.await.is_ok_and(|is_durable| is_durable) }))
        })
    })))
}

/// Until when, at the least, an answer is kept that has only begun.
fn kept_until(policy: &Policy, status: StatusCode) -> Option<Timestamp> {
    let status = Status::new(status.as_u16());
    let is_kept = policy.finality(&Outcome::NotKept { status }) == Finality::Final;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok().filter(|_| is_kept)?;
    let until = now.saturating_add(policy.retention());
    Some(Timestamp::from_millis(u64::try_from(until.as_millis()).unwrap_or(u64::MAX)))
}

/// A response whose end needs no more waiting, if it is one that waits.
fn ending<R>(response: Response<DoorBody<R>>, is_durable: bool) -> Response<DoorBody<R>> {
    response.map(|body| body.ending(|| Box::pin(ready(is_durable))))
}

/// A request that was read whole, and the room that it takes.
#[derive(Clone)]
pub(crate) struct Whole {
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
    taken: Arc<Share>,
}

/// What the engine executes for a request.
pub(crate) fn execution<B, H>(
    door: &Idempotency,
    ask: &Ask,
    request: Whole,
    handler: H,
    place: &Place<H::Body, H::Error>,
) -> Execution
where
    B: Send + 'static,
    H: Handler<B>,
{
    let (bytes_max, laid) = (door.settings.response_bytes_max, place.clone());
    let limit = door.settings.timeout;
    let counted = door.new_keys.clone().map(|counted| (counted, ask.address.tenant().clone()));
    let Whole { parts, body, taken } = request;
    let run = Box::new(move |attempt: Attempt| {
        if let Some((counted, tenant)) = counted {
            counted.spend(&tenant, Instant::now());
        }
        laid.begin();
        let request = Request::from_parts(parts, DoorBody::whole(body));
        // Boxed, because whatever it passes through would hold it more than once.
        let call = Box::pin(handler.call(request, Some(attempt)));
        Box::pin(async move {
            let _until_it_ends = taken;
            report(call, limit, bytes_max, &laid).await
        }) as Boxed<'static, _>
    });
    Execution { run, answering: place.answering(), home: H::HOME }
}

pub(crate) fn is_durable(ended: &Result<Answer, RunError>) -> bool {
    ended.as_ref().is_ok_and(is_recorded)
}

/// Whether what an execution itself came to is on record. An unknown outcome can be, too: a route
/// may say so of a status.
pub(crate) const fn is_recorded(answer: &Answer) -> bool {
    matches!(answer, Answer::Executed { .. } | Answer::Unknown { .. })
}

/// For the caller of an execution that left no word.
fn own_unknown() -> Refused {
    let detail = "this request was being executed and broke off; it may or may not have taken \
                  effect; come back with the same key";
    Refused::new(Code::OutcomeUnknown, detail)
}

/// What the caller of an attempt hears; `laid` is what its own execution laid down for it.
pub(crate) fn reply<R, E>(
    ended: Result<Answer, RunError>,
    laid: Option<Live<R, E>>,
    settings: &Settings,
) -> Live<R, E> {
    // An execution that came to nothing to keep still has a word for its own caller.
    let own_refusal = matches!(ended, Ok(Answer::Unknown { .. }));
    match reply::say(ended, &settings.dialect) {
        Said::Own(expires_at) => match laid {
            Some(Ok(mut response)) => {
                reply::expires(response.headers_mut(), expires_at);
                Ok(ending(response, true))
            }
            Some(Err(error)) => Err(error),
            None => refuse(&unheard(), settings),
        },
        Said::Whole(response) => match laid {
            Some(live) if own_refusal => live.map(|response| ending(response, true)),
            Some(_) | None => Ok(response.map(DoorBody::whole)),
        },
    }
}

pub(crate) async fn pass<B, H: Handler<B>>(
    handler: H,
    parts: Parts,
    body: DoorBody<B>,
) -> Live<H::Body, H::Error> {
    match handler.call(Request::from_parts(parts, body), None).await {
        Ended::Responded(response) => Ok(response.map(DoorBody::passed)),
        Ended::Failed(error) => Err(error),
        Ended::NotSent(response) | Ended::Unknown(response) => Ok(response.map(DoorBody::whole)),
    }
}

#[allow(clippy::unnecessary_wraps, reason = "it is what everybody else gives")]
pub(crate) fn refuse<R, E>(refused: &Refused, settings: &Settings) -> Live<R, E> {
    Ok(reply::refuse(refused, &settings.dialect).map(DoorBody::whole))
}

/// X15: turns away a key that the store does not know, when its tenant has begun enough of them.
pub(crate) async fn has_new_keys_left(door: &Idempotency, ask: &Ask) -> Result<(), Refused> {
    let Some(new_keys) = &door.new_keys else { return Ok(()) };
    let wait = new_keys.wait(ask.address.tenant(), Instant::now());
    if wait.is_zero() || !door.walk.is_new(&ask.address).await {
        return Ok(());
    }
    let detail = "too many new keys; known ones are still answered".into();
    Err(Refused { code: Code::NewKeysLimited, detail, retry_after: Some(wait) })
}

pub(crate) fn unidentified() -> Refused {
    Refused::new(Code::IdentityMissing, "send your credentials")
}

fn unheard() -> Refused {
    Refused::new(Code::ResultNotKept, "this request was executed, and its response is lost")
}

/// What an observed request would have got.
pub(crate) fn mark(ended: &Result<Answer, RunError>) -> &'static str {
    match ended {
        Ok(Answer::Executed { .. }) => "executed",
        Ok(Answer::Replayed { .. } | Answer::Joined { .. }) => "replayed",
        Ok(Answer::Freed) => Code::AttemptFreed.as_str(),
        Ok(Answer::Mismatch) => Code::KeyMismatch.as_str(),
        Ok(Answer::InFlight { .. }) => Code::InFlight.as_str(),
        Ok(Answer::StillExecuting { .. }) => Code::StillExecuting.as_str(),
        Ok(Answer::Unknown { .. }) => Code::OutcomeUnknown.as_str(),
        Err(error) => error.code().as_str(),
    }
}

pub(crate) fn observed<R, E>(live: Live<R, E>, mark: &'static str) -> Live<R, E> {
    tracing::info!(mark, "a request passed that the rule would have answered");
    live.map(|mut response| {
        response.headers_mut().insert(OBSERVED, HeaderValue::from_static(mark));
        response
    })
}
