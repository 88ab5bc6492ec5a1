//! New keys in PostgreSQL, beside one statement for each operation and beside full statements.
//!
//! The batched statements have no more operations under way than there are tasks. What they reach
//! with as many rows of each kind as there are tasks, so up to four times as many operations, is
//! shown too: it tells how much more load would give.

use std::sync::Arc;

use crate::bare::{Batched, OneByOne};
use crate::load::new_keys;
use crate::report::{Bar, Case};
use crate::{Stage, TASKS, say};

const BARE: &str = "one_by_one";
const OURS: &str = "fresh";
/// Schemas of full statements, with connections and rows of each kind.
const FULL: [(&str, usize, u64); 2] = [("full1", 1, TASKS as u64), ("full2", 2, TASKS as u64)];
/// The same with no more operations under way than there are tasks.
const EQUAL: [(&str, usize, u64); 2] =
    [("equal1", 1, TASKS as u64 / 2), ("equal2", 2, TASKS as u64 / 4)];

pub(crate) fn cases(stage: &Stage<'_>) -> Vec<Case> {
    let store = Arc::new(stage.store(OURS));
    let single = OneByOne::open(stage, BARE);
    let open = |(schema, count, rows)| Batched::open(stage, schema, count, rows);
    let (full, equal) = (FULL.map(open), EQUAL.map(open));
    let (keys, span, runtime) = (Arc::default(), stage.plan.span, stage.runtime);
    let (mut ours, mut singles) = (Vec::new(), Vec::new());
    let (mut bounds, mut equals) = (Vec::new(), Vec::new());
    // The better of one connection and two.
    let best = |both: &[Batched; 2]| both[0].rate(runtime, span).max(both[1].rate(runtime, span));
    for round in 0..=stage.plan.rounds {
        let rate = new_keys(runtime, &store, &keys, span);
        let (bare, bound, same) = (single.rate(runtime, span), best(&full), best(&equal));
        say(&format!(
            "round {round}: {rate:.0}/s; one by one {bare:.0}/s; full statements {bound:.0}/s, \
             with as many under way {same:.0}/s"
        ));
        // The first round makes pages, plans and connections warm.
        if round > 0 {
            ours.push(rate);
            singles.push(bare);
            bounds.push(bound);
            equals.push(same);
        }
    }
    drop((store, single, full, equal));
    for schema in [OURS, BARE].into_iter().chain(FULL.iter().chain(&EQUAL).map(|it| it.0)) {
        stage.forget(schema);
    }
    let rate = |name: &str, base: &[f64], bar| {
        Case::new(name, "/s", &mut ours.clone(), &mut base.to_vec(), bar)
    };
    vec![
        rate("PostgreSQL, new keys; beside one by one, 64 links", &singles, Bar::Ratio(3.0)),
        rate("PostgreSQL, new keys; beside up to 256 in statements", &bounds, Bar::None),
        rate("PostgreSQL, new keys; beside 64 operations in statements", &equals, Bar::Ratio(0.5)),
    ]
}
