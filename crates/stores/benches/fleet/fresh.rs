//! New keys in PostgreSQL, beside one statement for each operation and beside full statements.

use std::sync::Arc;

use crate::bare::{Batched, OneByOne};
use crate::load::new_keys;
use crate::report::{Bar, Case};
use crate::{Stage, say};

pub(crate) fn cases(stage: &Stage<'_>) -> Vec<Case> {
    let store = Arc::new(stage.store("fresh"));
    let single = OneByOne::open(stage, "one_by_one");
    let batched = [Batched::open(stage, "batched1", 1), Batched::open(stage, "batched2", 2)];
    let (keys, span, runtime) = (Arc::default(), stage.plan.span, stage.runtime);
    let (mut ours, mut singles, mut bounds) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=stage.plan.rounds {
        let rate = new_keys(runtime, &store, &keys, span);
        let bare = single.rate(runtime, span);
        let [one, two] = [batched[0].rate(runtime, span), batched[1].rate(runtime, span)];
        say(&format!(
            "round {round}: {rate:.0}/s; one by one {bare:.0}/s; full statements on one connection \
             {one:.0}/s, on two {two:.0}/s"
        ));
        // The first round makes pages, plans and connections warm.
        if round > 0 {
            ours.push(rate);
            singles.push(bare);
            bounds.push(one.max(two));
        }
    }
    drop((store, single, batched));
    for schema in ["fresh", "one_by_one", "batched1", "batched2"] {
        stage.forget(schema);
    }
    let rate = |name: &str, base: &[f64], bar| {
        Case::new(name, "/s", &mut ours.clone(), &mut base.to_vec(), bar)
    };
    vec![
        rate("PostgreSQL, new keys; beside one by one, 64 links", &singles, Bar::Ratio(3.0)),
        rate("PostgreSQL, new keys; beside full statements", &bounds, Bar::Ratio(0.5)),
    ]
}
