//! The layer around a service, beside the same service without it, and where its time goes.
//!
//! Replays are measured in a store that has seen hundreds of thousands of other keys, and in one
//! that knows only those that are asked for: how answers lie in memory matters. A new key costs two
//! durable writes. To show how much of it is the disk, the same layer is measured on the store in
//! memory, the service with nothing around it but two such writes (`floor.rs`), and how long
//! processors work for one request: what is beyond that is waiting.

use crate::load::{Load, Turn, replays, warm};
use crate::peer::Peer;
use crate::report::{Bar, Case};
use crate::{Plan, folder, say};

/// What the turns of one server came to.
#[derive(Default)]
pub(crate) struct Turns {
    pub(crate) rates: Vec<f64>,
    pub(crate) p50_ms: Vec<f64>,
    pub(crate) p99_ms: Vec<f64>,
    /// Processor time of the server for one request.
    pub(crate) processor_us: Vec<f64>,
}

impl Turns {
    /// Measures one turn of `peer`.
    pub(crate) fn take(&mut self, peer: &Peer, ask: impl FnOnce() -> Turn) {
        let before = peer.processor_us();
        let turn = ask();
        self.processor_us.push((peer.processor_us() - before) / turn.requests());
        self.rates.push(turn.rate());
        self.p50_ms.push(turn.percentile_ms(50));
        self.p99_ms.push(turn.percentile_ms(99));
    }

    pub(crate) fn last(&self) -> f64 {
        self.rates.last().copied().unwrap_or_default()
    }
}

/// A case over the medians of two lists that were measured in turns.
pub(crate) fn beside(name: &str, unit: &'static str, ours: &[f64], base: &[f64], bar: Bar) -> Case {
    Case::new(name, unit, &mut ours.to_vec(), &mut base.to_vec(), bar)
}

/// Everybody's turns.
#[derive(Default)]
struct Measured {
    bare: Turns,
    replay: Turns,
    calm: Turns,
    fresh: Turns,
    in_memory: Turns,
    floor: Turns,
}

fn measure(plan: &Plan) -> Measured {
    let (folders, load) = ([folder(), folder(), folder()], Load::new());
    let [path, calm_path, bottom] = folders.each_ref().map(|it| it.path().to_str().expect("text"));
    let handler = Peer::start(&["plain"]);
    let layer = Peer::start(&["layer", path]);
    // Remembers nothing but what is asked for again.
    let few = Peer::start(&["layer", calm_path]);
    let in_memory = Peer::start(&["layer-in-memory"]);
    let durable = Peer::start(&["durable", bottom]);
    // Nobody's first requests count.
    for peer in [&handler, &layer, &in_memory, &durable] {
        load.new_keys(peer.address, plan.span);
    }
    let mut measured = Measured::default();
    for round in 0..plan.rounds {
        let Measured { bare, replay, calm, fresh, in_memory: quick, floor } = &mut measured;
        bare.take(&handler, || load.new_keys(handler.address, plan.span));
        warm(layer.address);
        replay.take(&layer, || replays(layer.address, plan.span));
        warm(few.address);
        calm.take(&few, || replays(few.address, plan.span));
        fresh.take(&layer, || load.new_keys(layer.address, plan.span));
        quick.take(&in_memory, || load.new_keys(in_memory.address, plan.span));
        floor.take(&durable, || load.new_keys(durable.address, plan.span));
        say(&format!(
            "round {round}: plain {:.0}/s, replay {:.0}/s ({:.0}/s in a store with nothing else), \
             new keys {:.0}/s, in memory {:.0}/s; two durable writes and nothing else {:.0}/s",
            bare.last(),
            replay.last(),
            calm.last(),
            fresh.last(),
            quick.last(),
            floor.last(),
        ));
    }
    measured
}

pub(crate) fn cases(plan: &Plan) -> Vec<Case> {
    let Measured { bare, replay, calm, fresh, in_memory, floor } = measure(plan);
    let tails = replay.p99_ms.iter().zip(&bare.p99_ms);
    let mut tails: Vec<_> = tails.map(|(ours, bare)| ours / bare).collect();
    let rate = |name: &str, ours: &[f64], bar| beside(name, "/s", ours, &bare.rates, bar);
    let ms = |name: &str, ours: &[f64], base: &[f64]| beside(name, "ms", ours, base, Bar::None);
    let us = |name: &str, ours: &Turns| {
        beside(name, "us", &ours.processor_us, &bare.processor_us, Bar::None)
    };
    vec![
        rate("layer: replay; beside the plain handler", &replay.rates, Bar::Ratio(0.9)),
        rate("layer: new keys; beside the plain handler", &fresh.rates, Bar::Ratio(0.33)),
        Case::alone("layer: p99 of a replay over plain's", "x", &mut tails, Bar::AtMost(3.0)),
        ms("layer: p50 of a replay; beside plain", &replay.p50_ms, &bare.p50_ms),
        ms("layer: p99 of a replay; beside plain", &replay.p99_ms, &bare.p99_ms),
        ms("layer: p50 of a new key; beside plain", &fresh.p50_ms, &bare.p50_ms),
        ms("layer: p99 of a new key; beside plain", &fresh.p99_ms, &bare.p99_ms),
        rate("layer: replay, store with nothing else; beside plain", &calm.rates, Bar::None),
        rate("layer: new keys, store in memory; beside plain", &in_memory.rates, Bar::None),
        rate("plain with two durable writes; beside plain", &floor.rates, Bar::None),
        us("layer: processor time of a replay; beside plain", &replay),
        us("layer: processor time of a new key; beside plain", &fresh),
        us("layer: the same, store in memory; beside plain", &in_memory),
        us("plain with two durable writes: processor time; beside plain", &floor),
    ]
}
