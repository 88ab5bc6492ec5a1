//! New keys in an empty store: how many a second, with how many syncs, and how that grows with the
//! number of those who ask at once.
//!
//! What is counted as a sync is a batch of the store: the engine below syncs its journal exactly
//! once for each. The syncs of its own files in the background, a few a minute, are not counted.

use std::sync::Arc;

use onetake_stores::Embedded;

use crate::load::{Load, for_span, new_keys};
use crate::report::{Bar, Case, median};
use crate::{Plan, bare, float, folder, runtime, say};

const FEW: usize = 64;
const MANY: usize = 512;
/// Turns of each round.
const TURNS: u32 = 6;

/// The rate of `tasks` tasks on a new store.
pub(crate) fn empty_store(plan: &Plan, tasks: usize) -> Load {
    let (runtime, folder) = (runtime(), folder());
    let store = Embedded::open(folder.path()).expect("an empty folder");
    new_keys(&runtime, &store, tasks, &Arc::default(), for_span(plan.span))
}

/// Rates that were measured in turns, short ones: the noise of a machine comes and goes in
/// seconds.
#[derive(Default)]
struct Turns {
    ours: Vec<f64>,
    engine: Vec<f64>,
    log: Vec<f64>,
    syncs: Vec<f64>,
}

impl Turns {
    fn take(&mut self, plan: &Plan, tasks: usize) {
        let (runtime, folders) = (runtime(), [folder(), folder(), folder()]);
        let store = Embedded::open(folders[0].path()).expect("an empty folder");
        let engine = bare::Engine::open(folders[1].path());
        let mut log = bare::Log::open(folders[2].path());
        let (keys, span) = (Arc::default(), plan.span / TURNS);
        for _ in 0..TURNS {
            let load = new_keys(&runtime, &store, tasks, &keys, for_span(span));
            self.ours.push(load.rate());
            self.syncs.push(float(load.batches) / float(load.requests));
            self.engine.push(engine.rate(tasks, span));
            self.log.push(log.rate(tasks, span));
        }
    }
}

pub(crate) fn cases(plan: &Plan) -> Vec<Case> {
    let (mut few, mut lots) = (Turns::default(), vec![]);
    let (mut syncs_alone, mut alone) = (vec![], vec![]);
    for round in 0..plan.rounds {
        few.take(plan, FEW);
        let many = empty_store(plan, MANY);
        let one = empty_store(plan, 1);
        let last = |rates: &[f64]| rates[rates.len() - TURNS as usize..].to_vec();
        let turns = |rates: &[f64]| median(&mut last(rates));
        say(&format!(
            "round {round}: {FEW} tasks {:.0}/s; bare engine {:.0}/s; bare log {:.0}/s; {MANY} \
             tasks {:.0}/s, {:.1} writes a batch; 1 task {:.0}/s",
            turns(&few.ours),
            turns(&few.engine),
            turns(&few.log),
            many.rate(),
            many.per_batch(),
            one.rate(),
        ));
        lots.push(many.rate());
        alone.push(one.rate());
        syncs_alone.push(float(one.batches) / float(one.requests));
    }
    let Turns { ours, engine, log, mut syncs } = few;
    let by_round: Vec<_> =
        ours.chunks(TURNS as usize).map(|turns| median(&mut turns.to_vec())).collect();
    let rate = |name: &str, ours: &[f64], base: &[f64], bar| {
        Case::new(name, "/s", &mut ours.to_vec(), &mut base.to_vec(), bar)
    };
    vec![
        rate("new keys, 64 tasks; beside the bare engine", &ours, &engine, Bar::Ratio(0.8)),
        rate("new keys, 64 tasks; beside a bare log", &ours, &log, Bar::None),
        rate("new keys, 512 tasks; beside 64", &lots, &by_round, Bar::Ratio(1.2)),
        Case::alone("new keys, 1 task", "/s", &mut alone, Bar::None),
        Case::alone("syncs a new key, 64 tasks", "", &mut syncs, Bar::AtMost(0.2)),
        Case::alone("syncs a new key, 1 task", "", &mut syncs_alone, Bar::Exactly(2.0)),
    ]
}
