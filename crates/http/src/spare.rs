//! Requests that may have to be sent, or asked about, although the rule says otherwise.
//!
//! Where a route only watches, or passes when the store is down, or asks a status URL what came of
//! an unknown outcome, its requests are kept until that is decided. Nothing that was sent is ever
//! sent from here a second time.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use onetake_core::{Ask, Code, Fence, OnUnknown};
use onetake_engine::{Answer, Doubt, RunError, StoreError};

use crate::ask::Refused;
use crate::body::DoorBody;
use crate::execute::{Live, Place, Seat};
use crate::idempotency::{Execution, Idempotency};
use crate::settings::{Mode, Settings, StoreDown};
use crate::walk::{
    Handler, Heard, Whole, execution, heard, is_durable, is_recorded, mark, observed, pass, refuse,
    reply,
};

/// When to come back to an outcome that somebody may soon be able to tell.
pub(crate) const SOON: Duration = Duration::from_secs(3);

/// An attempt whose outcome is unknown, and the request that found it so.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "only a gateway can ask"))]
pub(crate) struct Unsettled<'a> {
    pub(crate) door: &'a Idempotency,
    pub(crate) ask: &'a Ask,
    pub(crate) parts: &'a Parts,
    pub(crate) fence: Fence,
}

/// What was learned about it.
#[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "only a gateway can learn"))]
pub(crate) enum Learned {
    /// Nothing; asking again may help after this long, if at all.
    Nothing(Option<Duration>),
    /// It is settled, or somebody else went on meanwhile: the store knows more than before.
    LookAgain,
    /// It had no effect, and cannot have one any more. What it comes with is dropped once this
    /// attempt has taken its place, or could not.
    NoEffect(Doubt, Box<dyn Send>),
}

/// What is needed to send a request once more, or to ask about it.
pub(crate) struct Spare<H> {
    pub(crate) ask: Ask,
    pub(crate) request: Whole,
    pub(crate) handler: H,
}

/// Answers a request that was not executed and may have to be sent, or asked about, all the same.
pub(crate) async fn spared<B, H>(
    door: &Idempotency,
    spare: Option<Box<Spare<H>>>,
    ended: Result<Answer, RunError>,
) -> Live<H::Body, H::Error>
where
    B: Send + 'static,
    H: Handler<B>,
{
    let settings = &*door.settings;
    match (spare, &ended) {
        (Some(spare), ended) if passes_anyway(ended, settings) => {
            let Whole { parts, body, .. } = spare.request;
            observed(pass(spare.handler, parts, DoorBody::whole(body)).await, mark(ended))
        }
        (Some(spare), Ok(Answer::Unknown { fence, .. })) if is_probed(settings) => {
            unsettled(door, *spare, *fence).await
        }
        (Some(_) | None, _) => reply(ended, None, settings),
    }
}

/// Answers an attempt that found the outcome of an earlier one unknown, where it can be asked for.
///
/// Whatever was learned is carried out on the very record that it was asked about; whoever is
/// too late looks again, once. Nothing is passed on unprotected from here, whatever the settings
/// say: that an effect may have happened is known.
async fn unsettled<B, H>(
    door: &Idempotency,
    spare: Spare<H>,
    fence: Fence,
) -> Live<H::Body, H::Error>
where
    B: Send + 'static,
    H: Handler<B>,
{
    let settings = &*door.settings;
    let Spare { ask, request, handler } = spare;
    let unsettled = Unsettled { door, ask: &ask, parts: &request.parts, fence };
    let learned = handler.clone().learn(unsettled).await;
    let (place, policy) = (Place::new(request.parts.version), Arc::clone(&ask.policy));
    let _seat = Seat(place.clone());
    match learned {
        Learned::Nothing(after) => return refuse(&unknown(after), settings),
        Learned::LookAgain => {}
        Learned::NoEffect(doubt, turn) => {
            let Execution { run, answering, home } =
                execution(door, &ask, request.clone(), handler.clone(), &place);
            let run = Box::new(move |attempt| {
                drop(turn);
                run(attempt)
            });
            let execution = Execution { run, answering, home };
            let recovered = Arc::clone(&door.walk).recover(ask.clone(), doubt, execution);
            let is_durable = |ended: &Result<Option<Answer>, RunError>| match ended {
                Ok(Some(answer)) => is_recorded(answer),
                Ok(None) | Err(_) => false,
            };
            match heard(door, recovered, &place, &policy, is_durable).await {
                Heard::Begun(live) => return *live,
                Heard::Ended(recovered) => {
                    if let Some(ended) = recovered.transpose() {
                        return reply(ended, place.take(), settings);
                    }
                }
            }
        }
    }
    let execution = execution(door, &ask, request, handler, &place);
    let walk = door.walk.run(ask, execution);
    match heard(door, walk, &place, &policy, is_durable).await {
        Heard::Begun(live) => *live,
        Heard::Ended(Ok(Answer::Unknown { .. })) => {
            place.take().unwrap_or_else(|| refuse(&unknown(Some(SOON)), settings))
        }
        Heard::Ended(ended) => reply(ended, place.take(), settings),
    }
}

fn unknown(retry_after: Option<Duration>) -> Refused {
    let detail = "an earlier attempt with this key may or may not have taken effect, and nobody \
                  could say which; come back with the same key";
    Refused { retry_after, ..Refused::new(Code::OutcomeUnknown, detail) }
}

/// Whether a request may have to be sent although the rule says otherwise.
pub(crate) fn is_spare_needed(settings: &Settings) -> bool {
    settings.mode == Mode::Observe
        || settings.store_down == StoreDown::Pass
        || settings.policy.on_unknown() == OnUnknown::Probe
}

/// Whether an unknown outcome is asked for. Who only watches asks nobody.
fn is_probed(settings: &Settings) -> bool {
    settings.mode == Mode::Enforce && settings.policy.on_unknown() == OnUnknown::Probe
}

/// Whether this request goes to the handler, although the rule says otherwise; nothing was executed
/// for it.
fn passes_anyway(ended: &Result<Answer, RunError>, settings: &Settings) -> bool {
    let is_down = matches!(ended, Err(RunError::Store(StoreError::Unavailable(_))));
    // An execution may be about to begin although nobody has seen it yet.
    let may_begin = match ended {
        Ok(Answer::StillExecuting { .. }) => true,
        Ok(_) => false,
        Err(error) => {
            matches!(error, RunError::ExecutedNotRecorded | RunError::Fenced | RunError::Lost)
        }
    };
    match settings.mode {
        Mode::Observe => !may_begin,
        Mode::Enforce => is_down && settings.store_down == StoreDown::Pass,
    }
}
