//! What must always hold, and what must be possible at all.

use onetake_core::{Ask, Decision, OnUnknown, Phase, Standing, decide};
use stateright::Property;

use crate::model::Rules;
use crate::world::{Broken, Budget, NOW, Witness, World};

pub(crate) const ONE_EFFECT: &str =
    "X3: no second effect, unless an operator acted between or it is told to be a recovery";
pub(crate) const LIVE_CLAIM: &str =
    "X1: an execution begins only under a live claim, and never beside another live one";
pub(crate) const OUTCOME_STAYS: &str =
    "an outcome that a caller was told is neither replaced nor lost before it expires";
pub(crate) const SAME_ANSWER: &str =
    "K10: every later answer is the outcome that was told, and never to other content";
pub(crate) const STALE_FENCE: &str = "X2: a stale fence never settles and never renews";
pub(crate) const ONLY_FREE: &str =
    "D6: nothing replaces a live claim, a kept outcome or a held unknown but who may";
pub(crate) const NO_GHOST: &str = "a late copy of a claim that has ended never lives again";
pub(crate) const CRASH_IS_SEEN: &str =
    "X3: a crash after dispatch is unknown until settled, resolved or taken over as a recovery";
pub(crate) const MISMATCH: &str = "a mismatch never changes the slot";
pub(crate) const NOT_FENCED: &str = "an owner is never called fenced because of its own record";

fn holds(state: &World, promise: Broken) -> bool {
    state.trace.broken != Some(promise)
}

fn saw(state: &World, witness: Witness) -> bool {
    state.trace.witness & witness as u16 != 0
}

/// The properties of one check: every promise, and all that its settings make possible.
pub(crate) fn of(rules: &Rules) -> Vec<Property<Rules>> {
    let Budget { others, renewals, faults, acts, .. } = rules.budget;
    let retry = rules.policy().on_unknown() == OnUnknown::Retry;
    let groups = [
        (true, promises()),
        (true, possible()),
        (faults > 0, possible_with_faults()),
        (faults > 0 && renewals > 0, possible_with_faults_and_renewals()),
        (others > 0, possible_with_other_content()),
        (!retry && acts > 0, possible_when_held()),
        (retry, possible_when_retried()),
        (retry && renewals > 0, possible_when_retried_with_renewals()),
    ];
    groups.into_iter().filter(|(applies, _)| *applies).flat_map(|(_, group)| group).collect()
}

fn promises() -> Vec<Property<Rules>> {
    vec![
        Property::always(ONE_EFFECT, |_, state| holds(state, Broken::SecondEffect)),
        Property::always(LIVE_CLAIM, |_, state| holds(state, Broken::BeganWithoutLiveClaim)),
        Property::always(OUTCOME_STAYS, |_, state| outcome_stays(state)),
        Property::always(SAME_ANSWER, |_, state| holds(state, Broken::AnsweredOtherwise)),
        Property::always(STALE_FENCE, |_, state| holds(state, Broken::StaleFenceWrote)),
        Property::always(ONLY_FREE, |_, state| holds(state, Broken::TookWhatIsNotFree)),
        Property::always(NO_GHOST, |_, state| holds(state, Broken::LivesAgain)),
        Property::always(CRASH_IS_SEEN, crash_is_seen),
        Property::always(MISMATCH, |_, state| holds(state, Broken::MismatchWrote)),
        Property::always(NOT_FENCED, |_, state| holds(state, Broken::FencedByItself)),
    ]
}

fn outcome_stays(state: &World) -> bool {
    let Some(told) = &state.trace.told else { return true };
    let Phase::Done { outcome: told, .. } = &told.0.phase else { return false };
    let there = state.slot.as_ref().map(|there| there.0.standing(NOW));
    matches!(there, Some(Standing::Final { outcome, .. }) if outcome == told)
}

fn crash_is_seen(rules: &Rules, state: &World) -> bool {
    if !holds(state, Broken::RecoveryNotTold) {
        return false;
    }
    let Some(orphan) = state.trace.orphan else { return true };
    let Some(there) = &state.slot else { return false };
    let same = |ask: &&Ask| ask.asked.is_same(&there.0.fingerprint);
    let Some(ask) = rules.asks.iter().find(same) else { return false };
    let heard = match decide(ask, Some(&there.0), NOW) {
        Decision::InFlight { .. } | Decision::Unknown { .. } => true,
        Decision::Execute(grounds) => grounds.recovery,
        Decision::Mismatch | Decision::Replay { .. } => false,
    };
    heard && there.0.fence == orphan && there.0.is_open()
}

fn possible() -> Vec<Property<Rules>> {
    vec![
        Property::sometimes("an unknown is settled late by its own fence", |_, state| {
            saw(state, Witness::SettledLate)
        }),
        Property::sometimes("an outcome is given again", |_, state| saw(state, Witness::Replayed)),
        Property::sometimes("a forgotten key executes again", |_, state| {
            saw(state, Witness::ExecutedAfterRetention)
        }),
    ]
}

fn possible_with_faults() -> Vec<Property<Rules>> {
    vec![
        Property::sometimes("a late copy of a claim arrives after the completion", |_, state| {
            saw(state, Witness::LateClaimAfterDone)
        }),
        Property::sometimes("a late copy of a claim arrives after its release", |_, state| {
            saw(state, Witness::LateClaimAfterRelease)
        }),
        Property::sometimes("a repeated write counts as won", |_, state| {
            saw(state, Witness::RepeatedWrite)
        }),
    ]
}

fn possible_with_faults_and_renewals() -> Vec<Property<Rules>> {
    vec![Property::sometimes(
        "a claim that lapsed before its reply is renewed first",
        |_, state| saw(state, Witness::OverdueRenewed),
    )]
}

fn possible_with_other_content() -> Vec<Property<Rules>> {
    vec![Property::sometimes("other content is refused", |_, state| {
        saw(state, Witness::Mismatched)
    })]
}

fn possible_when_held() -> Vec<Property<Rules>> {
    vec![
        Property::sometimes("an unknown is held", |_, state| saw(state, Witness::HeldAsUnknown)),
        Property::sometimes("an operator decides about an unknown", |_, state| {
            saw(state, Witness::Resolved)
        }),
        Property::sometimes("a stale completion is refused", |_, state| {
            saw(state, Witness::StaleRefused)
        }),
    ]
}

fn possible_when_retried() -> Vec<Property<Rules>> {
    vec![
        Property::sometimes("a lapsed claim is taken over", |_, state| {
            saw(state, Witness::Takeover)
        }),
        Property::sometimes("a recovery executes", |_, state| saw(state, Witness::Recovered)),
        Property::sometimes("a stale completion is refused", |_, state| {
            saw(state, Witness::StaleRefused)
        }),
    ]
}

fn possible_when_retried_with_renewals() -> Vec<Property<Rules>> {
    vec![Property::sometimes("a renewal makes a prepared takeover lose", |_, state| {
        saw(state, Witness::RenewalBeatTakeover)
    })]
}
