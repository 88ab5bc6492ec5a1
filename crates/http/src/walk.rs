//! The way of one request through this door: read, ask, execute, reply.
//!
//! ```text
//! request ──ask.rs──▶ Ask ──engine──▶ execute.rs ──engine──▶ Answer ──reply.rs──▶ response
//!    └── no key ──▶ handler ──▶ response, untouched
//! ```
//!
//! It decides nothing. Whoever leaves in the middle leaves an execution that goes on: the handler
//! runs in a task of the engine.

use std::time::Instant;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request};
use http_body::Body;
use onetake_core::{Ask, Code, Scope};
use onetake_engine::{Answer, Attempt, RunError, StoreError};

use crate::ask::{self, Refused};
use crate::body::DoorBody;
use crate::execute::{Ended, Live, Place, report};
use crate::idempotency::Idempotency;
use crate::reply::{self, OBSERVED, Said};
use crate::settings::{Mode, Settings, StoreDown};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What answers requests behind this door.
pub(crate) trait Handler<B>: Clone + Send + 'static {
    type Body: Body<Data = Bytes> + Send + 'static;
    type Error: Send + 'static;

    fn call(
        self,
        request: Request<DoorBody<B>>,
    ) -> impl Future<Output = Ended<Self::Body, Self::Error>> + Send;
}

/// Answers `request` with `handler`, at most once per key.
pub(crate) async fn answer<B, H>(
    door: &Idempotency,
    request: Request<B>,
    handler: H,
) -> Live<H::Body, H::Error>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    H: Handler<B>,
{
    let settings = &*door.settings;
    let (mut parts, body) = request.into_parts();
    let fitting = match ask::keyed(&parts, settings) {
        Ok(None) => return pass(handler, parts, DoorBody::passed(body)).await,
        Ok(Some(keyed)) => fits(door, &parts, &body).map(|scope| (keyed, scope)),
        Err(refused) => Err(refused),
    };
    let (keyed, scope) = match fitting {
        Ok(fitting) => fitting,
        Err(refused) if settings.mode == Mode::Observe => {
            let passed = pass(handler, parts, DoorBody::passed(body)).await;
            return observed(passed, refused.code.as_str());
        }
        Err(refused) => return refuse(&refused, settings),
    };
    let mut taken = door.room.share();
    let body = match ask::body(body, settings, &mut taken).await {
        Ok(body) => body,
        Err((refused, Some(rest))) if settings.mode == Mode::Observe => {
            return observed(pass(handler, parts, rest).await, refused.code.as_str());
        }
        Err((refused, _)) => return refuse(&refused, settings),
    };
    let ask = match ask::ask(&parts, &body, keyed, scope, door) {
        Ok(ask) => ask,
        Err(refused) => return refuse(&refused, settings),
    };
    if settings.mode == Mode::Enforce {
        if let Some(known) = door.walk.at_hand(&ask) {
            return reply(known, None, settings);
        }
        if let Err(refused) = has_new_keys_left(door, &ask).await {
            return refuse(&refused, settings);
        }
    }
    let place = Place::new();
    let spare = is_spare_needed(settings).then(|| (parts.clone(), body.clone(), handler.clone()));
    let (bytes_max, laid) = (settings.response_bytes_max, place.clone());
    let (counted, tenant) = (door.new_keys.clone(), ask.address.tenant().clone());
    let execute = move |attempt: Attempt| async move {
        let _until_it_ends = taken;
        if let Some(counted) = counted {
            counted.spend(&tenant, Instant::now());
        }
        parts.extensions.insert(attempt);
        let ended = handler.call(Request::from_parts(parts, DoorBody::whole(body))).await;
        report(ended, bytes_max, &laid).await
    };
    let ended = door.walk.run(ask, Box::new(move |attempt| Box::pin(execute(attempt)))).await;
    match spare {
        Some((parts, body, handler)) if passes_anyway(&ended, settings) => {
            let mark = mark(&ended);
            let passed = pass(handler, parts, DoorBody::whole(body)).await;
            observed(passed, mark)
        }
        Some(_) | None => reply(ended, place.take(), settings),
    }
}

/// What the caller of an attempt hears; `laid` is what its own execution laid down for it.
fn reply<R, E>(
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
                Ok(response)
            }
            Some(Err(error)) => Err(error),
            None => refuse(&unheard(), settings),
        },
        Said::Whole(response) => match laid {
            Some(live) if own_refusal => live,
            Some(_) | None => Ok(response.map(DoorBody::whole)),
        },
    }
}

async fn pass<B, H: Handler<B>>(
    handler: H,
    parts: Parts,
    body: DoorBody<B>,
) -> Live<H::Body, H::Error> {
    match handler.call(Request::from_parts(parts, body)).await {
        Ended::Responded(response) => Ok(response.map(DoorBody::passed)),
        Ended::Failed(error) => Err(error),
        Ended::NotSent(response) | Ended::Unknown(response) => Ok(response.map(DoorBody::whole)),
    }
}

#[allow(clippy::unnecessary_wraps, reason = "it is what everybody else gives")]
fn refuse<R, E>(refused: &Refused, settings: &Settings) -> Live<R, E> {
    Ok(reply::refuse(refused, &settings.dialect).map(DoorBody::whole))
}

/// What can be said of a request before its body is read.
fn fits<B: Body>(door: &Idempotency, parts: &Parts, body: &B) -> Result<Scope, Refused> {
    ask::announced(body, door.settings.request_bytes_max)?;
    door.scope(parts).ok_or_else(unidentified)
}

/// X15: turns away a key that the store does not know, when its tenant has begun enough of them.
async fn has_new_keys_left(door: &Idempotency, ask: &Ask) -> Result<(), Refused> {
    let Some(new_keys) = &door.new_keys else { return Ok(()) };
    let wait = new_keys.wait(ask.address.tenant(), Instant::now());
    if wait.is_zero() || !door.walk.is_new(&ask.address).await {
        return Ok(());
    }
    let detail = "too many new keys; known ones are still answered".into();
    Err(Refused { code: Code::NewKeysLimited, detail, retry_after: Some(wait) })
}

fn unidentified() -> Refused {
    Refused::new(Code::IdentityMissing, "send your credentials")
}

fn unheard() -> Refused {
    Refused::new(Code::ResultNotKept, "this request was executed, and its response is lost")
}

/// Whether a request may have to be sent although the rule says otherwise.
fn is_spare_needed(settings: &Settings) -> bool {
    settings.mode == Mode::Observe || settings.store_down == StoreDown::Pass
}

/// Whether this request goes to the handler although nothing was executed for it.
fn passes_anyway(ended: &Result<Answer, RunError>, settings: &Settings) -> bool {
    let is_down = matches!(ended, Err(RunError::Store(StoreError::Unavailable(_))));
    let is_executed = match ended {
        Ok(Answer::Executed { .. } | Answer::StillExecuting { .. }) => true,
        Ok(
            Answer::Replayed { .. }
            | Answer::Joined { .. }
            | Answer::Freed
            | Answer::Mismatch
            | Answer::InFlight { .. }
            | Answer::Unknown { .. },
        ) => false,
        Err(error) => {
            matches!(error, RunError::ExecutedNotRecorded | RunError::Fenced | RunError::Lost)
        }
    };
    match settings.mode {
        Mode::Observe => !is_executed,
        Mode::Enforce => is_down && settings.store_down == StoreDown::Pass,
    }
}

/// What an observed request would have got.
fn mark(ended: &Result<Answer, RunError>) -> &'static str {
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

fn observed<R, E>(live: Live<R, E>, mark: &'static str) -> Live<R, E> {
    tracing::info!(mark, "a request passed that the rule would have answered");
    live.map(|mut response| {
        response.headers_mut().insert(OBSERVED, HeaderValue::from_static(mark));
        response
    })
}
