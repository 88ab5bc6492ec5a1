//! Three nodes under a load of duplicates while they are killed, stopped past their lease and
//! started again, one of them with its clock an hour off. Afterwards every promise is looked at.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::api::Api;
use crate::load::{Plan, send_all};
use crate::nodes::{Clock, Fleet, pause};
use crate::verdict::Verdict;

/// Keys of a run.
const KEYS: usize = 240;
/// For how long new keys come.
const SPAN: Duration = Duration::from_secs(9);
/// The lease of a claim, in milliseconds.
const LEASE_MS: u64 = 1_000;

/// What was done to the nodes.
#[derive(Debug, Default)]
struct Done {
    kills: u32,
    stops: u32,
}

/// The seed of this run: the one that is asked for, or any.
fn seed() -> u64 {
    let any = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        u64::from(now.subsec_nanos())
    };
    std::env::var("ONETAKE_SEED").map_or_else(|_| any(), |seed| seed.parse().unwrap())
}

/// Kills and stops nodes until it is `over`; afterwards all of them run.
fn disturb(fleet: &Fleet, mut rng: SmallRng, over: &AtomicBool) -> Done {
    let mut done = Done::default();
    while !over.load(Ordering::SeqCst) {
        pause(Duration::from_millis(rng.random_range(50..400)));
        let index = rng.random_range(0..fleet.nodes.len());
        let (node, other) = (&fleet.nodes[index], &fleet.nodes[(index + 1) % fleet.nodes.len()]);
        if rng.random_bool(0.6) {
            node.kill();
            node.restart();
            done.kills += 1;
            continue;
        }
        node.stop();
        pause(Duration::from_millis(LEASE_MS + rng.random_range(100..800)));
        if rng.random_bool(0.3) {
            other.kill();
            other.restart();
            done.kills += 1;
        }
        node.go_on();
        done.stops += 1;
    }
    done
}

/// One run, with one clock `off`; `judge` says what must be true of it.
fn run(on_unknown: &str, off: Clock, judge: impl FnOnce(&mut Verdict<'_>)) {
    let seed = seed();
    println!("again: ONETAKE_SEED={seed} cargo test -p onetake-cli --test fleet chaos");
    let mut rng = SmallRng::seed_from_u64(seed);
    let settings =
        format!("unknown = \"{on_unknown}\"\nlease = \"{LEASE_MS}ms\"\nin_flight = \"wait 10s\"");
    let api = Api::start();
    let fleet = Fleet::start(api.address, &settings, &[Clock::Right, Clock::Right, off]);
    let plan = Plan::of(&mut rng, KEYS, SPAN, fleet.nodes.len());
    let over = AtomicBool::new(false);
    let (done, said) = std::thread::scope(|scope| {
        let disturbing = scope.spawn(|| disturb(&fleet, rng, &over));
        let said = send_all(&plan, &fleet);
        over.store(true, Ordering::SeqCst);
        (disturbing.join().unwrap(), said)
    });
    println!("{done:?}, {} answers, {} effects", said.len(), api.effects().len());
    assert!(done.kills > 0 && done.stops > 0, "nothing was disturbed: {done:?}");
    let mut verdict = Verdict::of(&fleet, &api, &plan, &said);
    verdict.clocks(off);
    judge(&mut verdict);
    println!("{:?}", verdict.counts);
}

/// W9, D6, D11, X1, X2, X3: whatever becomes of the nodes, an operation happens once, and what was
/// answered is answered again by every one of them. What nobody knows is held.
#[test]
fn w9_d6_d11_x3_a_fleet_that_is_killed_and_stopped_holds_what_it_does_not_know() {
    run("hold", Clock::HourAhead, |verdict| {
        verdict.holds();
        assert!(verdict.counts.unknown > 0, "nothing was lost, so this proves nothing");
    });
}

/// W9, D6, D11, X1, X2, X3: where unknown outcomes are tried again, the API is told so each time.
#[test]
fn w9_d6_d11_x3_a_fleet_that_is_killed_and_stopped_tells_the_api_what_it_tries_again() {
    run("retry", Clock::HourBehind, |verdict| {
        verdict.retries();
        assert!(verdict.counts.again > 0, "nothing was lost, so this proves nothing");
    });
}
