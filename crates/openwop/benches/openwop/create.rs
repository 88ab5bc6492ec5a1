//! Runs created over HTTP, beside a plain handler that answers with as many bytes.
//!
//! A new run is one commit with its record, and a second one for its first step, which is part of
//! the price: see `load.rs`. To show how much of it is the disk, the same host is measured on the
//! store in memory, and how long processors work for one request: what is beyond is waiting.

use crate::load::{Load, Target, Turn, replays, warm};
use crate::peer::Peer;
use crate::report::{Bar, Case};
use crate::{Plan, folder, say};

/// Waits for somebody's word.
const WAITS: &str = "conformance-approval";
/// Ends at once.
const ENDS: &str = "conformance-noop";

/// What the turns of one target came to.
#[derive(Default)]
struct Turns {
    rates: Vec<f64>,
    p50_ms: Vec<f64>,
    p99_ms: Vec<f64>,
    /// Processor time of the server for one request.
    processor_us: Vec<f64>,
}

impl Turns {
    /// Measures one turn of `peer`.
    fn take(&mut self, peer: &Peer, ask: impl FnOnce() -> Turn) {
        let before = peer.processor_us();
        let turn = ask();
        self.processor_us.push((peer.processor_us() - before) / turn.requests());
        self.rates.push(turn.rate());
        self.p50_ms.push(turn.percentile_ms(50));
        self.p99_ms.push(turn.percentile_ms(99));
    }

    fn last(&self) -> f64 {
        self.rates.last().copied().unwrap_or_default()
    }
}

/// Everybody's turns.
#[derive(Default)]
struct Measured {
    bare: Turns,
    replay: Turns,
    waits: Turns,
    ends: Turns,
    in_memory: Turns,
}

fn measure(plan: &Plan) -> Measured {
    let (folder, load) = (folder(), Load::new());
    let path = folder.path().to_str().expect("a path that is text");
    let service = Peer::start(&["plain"]);
    let host = Peer::start(&["host", path]);
    let quick = Peer::start(&["host-in-memory"]);
    let bare = Target { peer: &service, workflow: WAITS, rests: None };
    let waits = Target { peer: &host, workflow: WAITS, rests: Some("waiting-approval") };
    let ends = Target { peer: &host, workflow: ENDS, rests: Some("completed") };
    let in_memory = Target { peer: &quick, ..waits.clone() };
    // Nobody's first requests count.
    for target in [&bare, &waits, &ends, &in_memory] {
        load.new_keys(target, plan.span);
    }
    let mut measured = Measured::default();
    for round in 0..plan.rounds {
        measured.bare.take(&service, || load.new_keys(&bare, plan.span));
        warm(&waits);
        measured.replay.take(&host, || replays(&waits, plan.span));
        measured.waits.take(&host, || load.new_keys(&waits, plan.span));
        measured.ends.take(&host, || load.new_keys(&ends, plan.span));
        measured.in_memory.take(&quick, || load.new_keys(&in_memory, plan.span));
        say(&format!(
            "round {round}: plain {:.0}/s, replay {:.0}/s, new runs that wait {:.0}/s, that end \
             {:.0}/s, in memory {:.0}/s",
            measured.bare.last(),
            measured.replay.last(),
            measured.waits.last(),
            measured.ends.last(),
            measured.in_memory.last(),
        ));
    }
    measured
}

pub(crate) fn cases(plan: &Plan) -> Vec<Case> {
    let Measured { bare, replay, waits, ends, in_memory } = measure(plan);
    let beside = |name: &str, unit, ours: &[f64], base: &[f64], bar| {
        Case::new(name, unit, &mut ours.to_vec(), &mut base.to_vec(), bar)
    };
    let rate = |name: &str, ours: &Turns, bar| beside(name, "/s", &ours.rates, &bare.rates, bar);
    let ms = |name: &str, ours: &[f64], base: &[f64]| beside(name, "ms", ours, base, Bar::None);
    let us = |name: &str, ours: &Turns| {
        beside(name, "us", &ours.processor_us, &bare.processor_us, Bar::None)
    };
    vec![
        rate("create: replay; beside the plain handler", &replay, Bar::Ratio(0.85)),
        rate("create: a new run that waits; beside plain", &waits, Bar::Ratio(0.25)),
        rate("create: a new run of one node, to its end; beside plain", &ends, Bar::None),
        rate("create: the one that waits, in memory; beside plain", &in_memory, Bar::None),
        ms("create: p50 of a replay; beside plain", &replay.p50_ms, &bare.p50_ms),
        ms("create: p99 of a replay; beside plain", &replay.p99_ms, &bare.p99_ms),
        ms("create: p50 of a new run that waits; beside plain", &waits.p50_ms, &bare.p50_ms),
        ms("create: p99 of a new run that waits; beside plain", &waits.p99_ms, &bare.p99_ms),
        us("create: processor time of a replay; beside plain", &replay),
        us("create: processor time of one that waits; beside plain", &waits),
        us("create: processor time of one to its end; beside plain", &ends),
        us("create: processor time of one in memory; beside plain", &in_memory),
    ]
}
