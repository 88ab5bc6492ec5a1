//! New keys in an empty store: how many a second, with how many syncs, and how that grows with the
//! number of those who ask at once.
//!
//! What is counted as a sync is a batch of the store: the engine below syncs its journal exactly
//! once for each. The syncs of its own files in the background, a few a minute, are not counted.

use std::sync::Arc;

use onetake_stores::Embedded;

use crate::load::{Load, for_span, new_keys};
use crate::report::{Bar, Case};
use crate::{Plan, bare, float, folder, runtime, say};

/// The rate of `tasks` tasks on a new store.
pub(crate) fn empty_store(plan: &Plan, tasks: usize) -> Load {
    let (runtime, folder) = (runtime(), folder());
    let store = Embedded::open(folder.path()).expect("an empty folder");
    new_keys(&runtime, &store, tasks, &Arc::default(), for_span(plan.span))
}

pub(crate) fn cases(plan: &Plan) -> Vec<Case> {
    let (mut few, mut engine, mut log, mut lots) = (vec![], vec![], vec![], vec![]);
    let (mut syncs, mut syncs_alone, mut alone) = (vec![], vec![], vec![]);
    for round in 0..plan.rounds {
        let load = empty_store(plan, 64);
        let bare_engine = bare::engine(folder().path(), load.per_batch(), plan.span);
        let bare_log = bare::log(folder().path(), load.per_batch(), plan.span);
        let many = empty_store(plan, 512);
        let one = empty_store(plan, 1);
        say(&format!(
            "round {round}: 64 tasks {:.0}/s, {:.1} writes a batch; bare engine \
             {bare_engine:.0}/s; bare log {bare_log:.0}/s; 512 tasks {:.0}/s, {:.1} writes a \
             batch; 1 task {:.0}/s",
            load.rate(),
            load.per_batch(),
            many.rate(),
            many.per_batch(),
            one.rate(),
        ));
        few.push(load.rate());
        engine.push(bare_engine);
        log.push(bare_log);
        lots.push(many.rate());
        alone.push(one.rate());
        syncs.push(float(load.batches) / float(load.requests));
        syncs_alone.push(float(one.batches) / float(one.requests));
    }
    let rate = |name: &str, ours: &[f64], base: &[f64], bar| {
        Case::new(name, "/s", &mut ours.to_vec(), &mut base.to_vec(), bar)
    };
    vec![
        rate("new keys, 64 tasks; beside the bare engine", &few, &engine, Bar::Ratio(0.8)),
        rate("new keys, 64 tasks; beside a bare log", &few, &log, Bar::None),
        rate("new keys, 512 tasks; beside 64", &lots, &few, Bar::Ratio(1.2)),
        Case::alone("new keys, 1 task", "/s", &mut alone, Bar::None),
        Case::alone("syncs a new key, 64 tasks", "", &mut syncs, Bar::AtMost(0.2)),
        Case::alone("syncs a new key, 1 task", "", &mut syncs_alone, Bar::Exactly(2.0)),
    ]
}
