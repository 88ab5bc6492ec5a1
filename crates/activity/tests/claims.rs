//! The same operation in single steps: claim, renew, complete and release under a fence (K11).

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::time::Duration;

use onetake_activity::{Claims, Executor, Failure};
use onetake_core::{Asked, Key, OnUnknown, Outcome, Phase, Policy, Scope, Standing};
use onetake_engine::{Answer, Claim, Engine, Memory, MemoryLimits, RunError, Tried};
use onetake_testkit::clock::TokioClock;

const LEASE: Duration = Duration::from_secs(10);

struct Desk {
    once: Executor<Memory>,
    claims: Claims<Memory>,
    clock: TokioClock,
    scope: Scope,
    key: Key,
}

impl Desk {
    fn new() -> Self {
        Self::with(OnUnknown::Hold)
    }

    fn with(on_unknown: OnUnknown) -> Self {
        let clock = TokioClock::new();
        let memory = Memory::with(MemoryLimits::default(), clock.clone());
        let policy = Policy::builder().lease(LEASE).on_unknown(on_unknown).build().unwrap();
        let once = Executor::named(Engine::new(memory), "import").unwrap().with_policy(policy);
        let (scope, key) = (Scope::tenant_named("acme").unwrap(), Key::new("k").unwrap());
        Self { claims: once.claims(), once, clock, scope, key }
    }

    async fn try_claim(&self) -> Tried {
        self.claims.try_claim(&self.scope, &self.key, Asked::raw("body")).await.unwrap()
    }

    async fn claim(&self) -> Claim {
        match self.try_claim().await {
            Tried::Claimed(claim) => claim,
            Tried::Answered(answer) => panic!("not claimed: {answer:?}"),
        }
    }

    async fn standing(&self) -> Option<&'static str> {
        let found = self.claims.get(&self.scope, &self.key).await.unwrap()?;
        Some(match found.value.standing(found.now) {
            Standing::Live { .. } => "live",
            Standing::Unknown { .. } => "unknown",
            Standing::Final { .. } => "final",
            Standing::Retryable(_) => "retryable",
            Standing::Free => "free",
        })
    }
}

fn value(text: &'static str) -> Outcome {
    Outcome::Value(text.into())
}

/// K11, D6: claim, store the result, replay; a second claimant is refused while the first holds it.
#[tokio::test(start_paused = true)]
async fn k11_d6_claim_store_and_replay() {
    let desk = Desk::new();
    let claim = desk.claim().await;
    assert_eq!((claim.attempt, claim.recovery, claim.lease), (1, false, LEASE));
    assert_eq!(desk.try_claim().await, Tried::Answered(Answer::InFlight { retry_after: LEASE }));
    let other = desk.claims.try_claim(&desk.scope, &desk.key, Asked::raw("other")).await.unwrap();
    assert_eq!(other, Tried::Answered(Answer::Mismatch));
    let stored = desk.claims.store_result(&claim, value("made")).await.unwrap();
    assert!(matches!(stored, Answer::Executed { expires_at: Some(_), .. }), "{stored:?}");
    let Tried::Answered(Answer::Replayed { outcome, .. }) = desk.try_claim().await else {
        panic!("a finished key is answered")
    };
    assert_eq!(*outcome, value("made"));
}

/// What a claimant records is what the function would have returned to everyone else.
#[tokio::test(start_paused = true)]
async fn a_typed_value_answers_a_call_of_the_function() {
    let desk = Desk::new();
    let claim = desk.claim().await;
    desk.claims.store_value(&claim, &vec![1, 2, 3]).await.unwrap();
    let never = |_| async { Err::<Vec<u32>, _>(Failure::new("must not execute")) };
    let call = desk.once.execute(&desk.scope, &desk.key, Asked::raw("body"), never);
    assert_eq!(call.await.unwrap().value, [1, 2, 3]);
}

/// Saying the same result again changes nothing; saying another one is refused.
#[tokio::test(start_paused = true)]
async fn the_same_result_may_be_said_again_and_another_may_not() {
    let desk = Desk::new();
    let claim = desk.claim().await;
    let first = desk.claims.store_result(&claim, value("made")).await.unwrap();
    let before = desk.claims.get(&desk.scope, &desk.key).await.unwrap().unwrap().value;
    assert_eq!(desk.claims.store_result(&claim, value("made")).await, Ok(first));
    let after = desk.claims.get(&desk.scope, &desk.key).await.unwrap().unwrap().value;
    assert_eq!(before.version, after.version);
    let changed = desk.claims.store_result(&claim, value("changed")).await;
    assert_eq!(changed, Err(RunError::Fenced));
    assert_eq!(desk.claims.release_claim(&claim).await, Err(RunError::Fenced));
}

/// K9: a released claim frees the key, under its fence only.
#[tokio::test(start_paused = true)]
async fn k9_a_released_claim_frees_the_key() {
    let desk = Desk::new();
    let first = desk.claim().await;
    desk.claims.release_claim(&first).await.unwrap();
    desk.claims.release_claim(&first).await.unwrap();
    let second = desk.claim().await;
    assert_ne!(first.fence, second.fence);
    assert_eq!(desk.claims.release_claim(&first).await, Err(RunError::Fenced), "not its own");
    assert_eq!(desk.standing().await, Some("live"));
}

/// X1: a claim lives by renewals, and lapses into unknown without them.
#[tokio::test(start_paused = true)]
async fn x1_a_claim_lives_by_renewals() {
    let desk = Desk::new();
    let claim = desk.claim().await;
    for _ in 0..5 {
        desk.clock.jump(LEASE.saturating_sub(Duration::from_millis(1)));
        assert_eq!(desk.claims.renew(&claim).await, Ok(LEASE));
    }
    assert_eq!(desk.standing().await, Some("live"));
    desk.clock.jump(LEASE);
    assert_eq!(desk.standing().await, Some("unknown"));
    assert!(matches!(desk.try_claim().await, Tried::Answered(Answer::Unknown { .. })));
    assert_eq!(desk.claims.renew(&claim).await, Ok(LEASE), "nobody took over");
    desk.claims.store_result(&claim, value("late")).await.unwrap();
    assert_eq!(desk.standing().await, Some("final"));
}

/// X2: whoever was replaced can neither renew, complete nor release.
#[tokio::test(start_paused = true)]
async fn x2_a_replaced_claimant_is_fenced_in_every_step() {
    let desk = Desk::with(OnUnknown::Retry);
    let stalled = desk.claim().await;
    desk.clock.jump(LEASE);
    let successor = desk.claim().await;
    assert_eq!((successor.attempt, successor.recovery), (2, true));
    let fenced = Err(RunError::Fenced);
    assert_eq!(desk.claims.renew(&stalled).await.map(drop), fenced);
    assert_eq!(desk.claims.store_result(&stalled, value("zombie")).await.map(drop), fenced);
    assert_eq!(desk.claims.release_claim(&stalled).await, fenced);
    assert_eq!(desk.claims.report_unknown(&stalled).await, fenced);
    desk.claims.store_result(&successor, value("made")).await.unwrap();
    let found = desk.claims.get(&desk.scope, &desk.key).await.unwrap().unwrap().value;
    assert!(matches!(&found.phase, Phase::Done { outcome, .. } if **outcome == value("made")));
}

/// X3: a claimant may say that nobody knows, and may still settle it.
#[tokio::test(start_paused = true)]
async fn x3_a_claimant_may_report_unknown_and_settle_it_later() {
    let desk = Desk::new();
    let claim = desk.claim().await;
    desk.claims.report_unknown(&claim).await.unwrap();
    assert_eq!(desk.standing().await, Some("unknown"));
    assert_eq!(desk.claims.renew(&claim).await, Err(RunError::Fenced), "no lease to renew");
    desk.claims.store_result(&claim, value("found out")).await.unwrap();
    assert_eq!(desk.standing().await, Some("final"));
}

/// K11, K8: `set` records without executing, `get` forgets what has expired, `cleanup` removes it.
#[tokio::test(start_paused = true)]
async fn k11_k8_set_get_and_cleanup() {
    let desk = Desk::new();
    let set = |outcome| desk.claims.set(&desk.scope, &desk.key, Asked::raw("body"), outcome);
    assert_eq!(desk.standing().await, None);
    assert!(matches!(set(value("a")).await, Ok(Answer::Executed { .. })));
    assert!(matches!(set(value("b")).await, Ok(Answer::Executed { .. })), "finished is replaced");
    assert_eq!(desk.standing().await, Some("final"));
    desk.clock.jump(Duration::from_secs(24 * 60 * 60));
    assert_eq!(desk.standing().await, None, "expired, although it is still there");
    assert_eq!(desk.claims.cleanup().await, Ok(1));
    let claim = desk.claim().await;
    assert!(matches!(set(value("c")).await, Ok(Answer::InFlight { .. })), "never a live claim");
    desk.claims.report_unknown(&claim).await.unwrap();
    assert!(matches!(set(value("c")).await, Ok(Answer::Unknown { .. })), "nor an unknown one");
}

/// X3: whoever found out what happened settles an unknown outcome, by the fence that was told.
#[tokio::test(start_paused = true)]
async fn x3_an_unknown_outcome_is_resolved_by_the_fence_that_was_told() {
    let desk = Desk::new();
    for (found_out, then) in [(Some(value("it was paid")), Some("final")), (None, None)] {
        let claim = desk.claim().await;
        desk.clock.jump(LEASE);
        let Tried::Answered(Answer::Unknown { fence, .. }) = desk.try_claim().await else {
            panic!("a silent claim is unknown")
        };
        assert_eq!(fence, claim.fence);
        let resolve = || desk.claims.resolve(&desk.scope, &desk.key, fence, found_out.clone());
        resolve().await.unwrap();
        assert_eq!(desk.standing().await, then);
        desk.clock.jump(Duration::from_secs(24 * 60 * 60));
    }
}

/// Nobody settles a claim of another tenant, whatever fence they name.
#[tokio::test(start_paused = true)]
async fn a_fence_is_worth_nothing_at_another_address() {
    let desk = Desk::new();
    let claim = desk.claim().await;
    let evil = Scope::tenant_named("evil").unwrap();
    let tried = desk.claims.try_claim(&evil, &desk.key, Asked::raw("body")).await.unwrap();
    let Tried::Claimed(theirs) = tried else { panic!("{tried:?}") };
    let forged = Claim { fence: claim.fence, ..theirs };
    assert_eq!(desk.claims.store_result(&forged, value("x")).await, Err(RunError::Fenced));
    assert_eq!(desk.claims.renew(&forged).await, Err(RunError::Fenced));
}
