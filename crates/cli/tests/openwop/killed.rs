//! A host that is killed at every step of a run, and at any moment in between, on a store of its
//! own. Each call of a run is made once, or the run says that nobody knows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use crate::flow::order;
use crate::home::{Home, Node, pause};
use crate::journey::{Journey, Settle};
use crate::provider::{Call, Provider};

/// Orders of a run of random kills.
const ORDERS: usize = 24;
/// Kills of each.
const KILLS_PER_ORDER: usize = 2;
/// The longest time before a kill, in milliseconds; an order takes about as long.
const BEFORE_A_KILL_MS_MAX: u64 = 300;
/// How long the provider thinks, so that it is often at it when the host is killed.
const THINKS: Duration = Duration::from_millis(40);

/// When the host is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    CreateUnheard,
    Created,
    Calling(&'static str),
    Called(&'static str),
    CallKept(&'static str),
    Waiting,
    ApprovalUnheard,
    Approved,
    Resting,
    Ended,
}

const MOMENTS: [Moment; 13] = [
    Moment::CreateUnheard,
    Moment::Created,
    Moment::Calling("pay"),
    Moment::Called("pay"),
    Moment::CallKept("pay"),
    Moment::Waiting,
    Moment::ApprovalUnheard,
    Moment::Approved,
    Moment::Calling("ship"),
    Moment::Called("ship"),
    Moment::CallKept("ship"),
    Moment::Resting,
    Moment::Ended,
];

impl Moment {
    /// Lets an order come to this moment.
    fn come(self, journey: &mut Journey<'_>, provider: &Provider) {
        if self == Self::CreateUnheard {
            return journey.place_unheard();
        }
        let placed = journey.order.clone();
        let of = |node: &str| {
            let path = format!("/{node}");
            move |call: &Call| call.path == path && call.json()["order"] == placed.as_str()
        };
        if let Self::Calling(node) = self {
            provider.hold(&format!("/{node}"));
        }
        journey.place();
        let comes_to_ship = match self {
            Self::CreateUnheard | Self::Created | Self::Waiting | Self::ApprovalUnheard => false,
            Self::Calling(node) | Self::Called(node) | Self::CallKept(node) => node == "ship",
            Self::Approved | Self::Resting | Self::Ended => true,
        };
        if comes_to_ship {
            journey.until_at("gate");
            journey.accept();
        }
        match self {
            Self::CreateUnheard | Self::Created | Self::Approved => {}
            Self::Calling(node) => drop(provider.until(1, of(node))),
            Self::Called(node) => {
                let wanted = of(node);
                drop(provider.until(1, |call| wanted(call) && call.is_answered));
            }
            Self::CallKept(node) => drop(journey.until("a call that is kept", |run| {
                run["nodeStates"][node]["status"] == "completed"
            })),
            Self::Waiting => drop(journey.until_at("gate")),
            Self::ApprovalUnheard => {
                journey.until_at("gate");
                journey.say_unheard("gate", &json!({"resumeValue": {"action": "accept"}}));
            }
            Self::Resting => drop(journey.until_at("rest")),
            Self::Ended => drop(journey.until("its end", |run| run["status"] == "completed")),
        }
    }

    /// Whether the call under way is one whose outcome nobody can know.
    const fn loses_a_call(self) -> bool {
        matches!(self, Self::Calling(_))
    }
}

/// Kills the host at every moment of an order of `workflow`, each time another one.
fn matrix(node: &Node, provider: &Provider, workflow: &str, settle: Settle, is_recognised: bool) {
    for moment in MOMENTS {
        let order = format!("{workflow}-{settle:?}-{moment:?}").replace(['(', ')', '"'], "-");
        let mut journey = Journey::new(node, workflow, &order, settle);
        moment.come(&mut journey, provider);
        node.kill();
        provider.let_go("/pay");
        provider.let_go("/ship");
        node.restart();
        journey.follow();
        journey.judge(provider, is_recognised);
        if moment.loses_a_call() {
            let (unknown, recognised) = (journey.unknown.len(), usize::from(is_recognised));
            assert_eq!(unknown, 1 - recognised, "{moment:?}: what is lost is held");
        }
    }
}

/// W12, W13, W17, W19, X3: killed at each step, a run goes on where it was; a call that may have
/// been made is held until somebody says what became of it.
#[test]
fn w12_w13_w17_w19_x3_a_run_outlives_a_kill_at_each_of_its_steps() {
    let provider = Provider::start();
    let home = Home::alone("", &[order("order", &provider, "bank")]);
    let node = home.start();
    for settle in [Settle::Complete, Settle::Retry] {
        matrix(&node, &provider, "order", settle, false);
    }
    let mut journey = Journey::new(&node, "order", "given-up", Settle::Fail);
    Moment::Calling("pay").come(&mut journey, &provider);
    node.kill();
    provider.let_go("/pay");
    node.restart();
    let run = journey.follow();
    assert_eq!(run["error"]["code"], "outcome_unknown", "{run}");
    journey.judge(&provider, false);
}

/// W13, W16, X3: a provider that recognises a call is called again under its name, and the run
/// needs nobody.
#[test]
fn w13_w16_x3_a_provider_that_recognises_a_call_is_asked_again_after_a_kill() {
    let provider = Provider::start();
    let home = Home::alone("", &[order("charge", &provider, "stripe")]);
    let node = home.start();
    matrix(&node, &provider, "charge", Settle::Fail, true);
}

/// X3: a call that is held as unknown stays so over any number of kills, and is not made again.
#[test]
fn x3_what_is_held_stays_held_and_is_not_called_again() {
    let provider = Provider::start();
    let home = Home::alone("", &[order("order", &provider, "bank")]);
    let node = home.start();
    let mut journey = Journey::new(&node, "order", "held-1", Settle::Complete);
    Moment::Calling("pay").come(&mut journey, &provider);
    for _ in 0..3 {
        node.kill();
        provider.let_go("/pay");
        node.restart();
        let run = journey.until("what is held", |run| run["status"] == "waiting-external");
        assert_eq!(run["interrupt"]["key"], "outcome_unknown", "{run}");
        assert_eq!(journey.calls(&provider, "pay").len(), 1);
    }
    assert_eq!(journey.follow()["nodeStates"]["pay"]["outputs"]["by"], "hand");
    journey.judge(&provider, false);
}

/// The seed of this run: the one that is asked for, or any.
fn seed() -> u64 {
    let any = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        u64::from(now.subsec_nanos())
    };
    std::env::var("ONETAKE_SEED").map_or_else(|_| any(), |seed| seed.parse().unwrap())
}

/// Kills the host again and again, while somebody follows an order.
fn disturb(node: &Node, rng: &mut SmallRng, over: &AtomicBool) -> usize {
    let mut kills = 0;
    while kills < KILLS_PER_ORDER && !over.load(Ordering::SeqCst) {
        pause(Duration::from_millis(rng.random_range(0..BEFORE_A_KILL_MS_MAX)));
        node.kill();
        node.restart();
        kills += 1;
    }
    kills
}

/// W9, W12, W13, W17, W19, X3: killed at any moment, more than once, an order is placed once, paid
/// once and shipped once, or says that nobody knows.
#[test]
fn w9_w12_w13_w17_w19_x3_orders_outlive_kills_at_any_moment() {
    let seed = seed();
    println!("again: ONETAKE_SEED={seed} cargo test -p onetake-cli --test openwop any_moment");
    let mut rng = SmallRng::seed_from_u64(seed);
    let provider = Provider::start();
    provider.think(THINKS);
    let workflows = [order("order", &provider, "bank"), order("charge", &provider, "stripe")];
    let home = Home::alone("", &workflows);
    let node = home.start();
    let (mut kills, mut unknown) = (0, 0);
    for number in 0..ORDERS {
        let is_recognised = rng.random_bool(0.3);
        let settle = [Settle::Retry, Settle::Complete, Settle::Fail][rng.random_range(0..3)];
        let workflow = if is_recognised { "charge" } else { "order" };
        let mut journey = Journey::new(&node, workflow, &format!("any-{number}"), settle);
        let over = AtomicBool::new(false);
        kills += std::thread::scope(|scope| {
            let disturbing = scope.spawn(|| disturb(&node, &mut rng, &over));
            journey.follow();
            over.store(true, Ordering::SeqCst);
            disturbing.join().unwrap()
        });
        journey.judge(&provider, is_recognised);
        unknown += journey.unknown.len();
    }
    println!("{kills} kills, {unknown} unknown outcomes");
    assert!(kills >= ORDERS, "too few kills to prove anything: {kills}");
}
