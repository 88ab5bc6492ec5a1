//! One step of a run: computed by the machine, committed by the engine, then told.
//!
//! The computation is pure over what it reads, so it may be run again. Others hear of a step only
//! once it is durable.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use onetake_core::{Tenant, Timestamp};
use onetake_engine::{Journal, Need, RunError, Update, View, Write};
use serde_json::Value;

use super::{Host, lock};
use crate::books::{self, Moment, RunKey, Scheduled, Told, Written};
use crate::definition::Definition;
use crate::event::{Kind, NewEvent, payload};
use crate::machine::{
    Bounds, Changed, Machine, NODES_PER_STEP, NODES_PER_TOLD_STEP, Progress, World,
};
use crate::nodes::HTTP;
use crate::run::{Failure, Run, Status};
use crate::webhook::Hooks;

/// What a machine sees of the store while one step is computed.
pub(crate) struct Sight<'v, S> {
    host: &'v Host<S>,
    view: &'v View,
    tenant: &'v Tenant,
}

impl<'v, S> Sight<'v, S> {
    pub(crate) const fn new(host: &'v Host<S>, view: &'v View, tenant: &'v Tenant) -> Self {
        Self { host, view, tenant }
    }
}

impl<S: Journal> World for Sight<'_, S> {
    fn run(&self, id: &str) -> Result<Option<Run>, Need> {
        books::read_run(self.view, self.tenant, id)
    }

    fn workflow(&self, id: &str) -> Option<Arc<Definition>> {
        self.host.0.catalog.workflow(id)
    }

    fn definition(&self, digest: &str) -> Result<Option<Arc<Definition>>, Need> {
        if let Some(known) = self.host.0.catalog.definition(digest) {
            return Ok(Some(known));
        }
        let kept = self.view.doc(&books::definition_doc(digest))?;
        let written: Option<Value> = kept.and_then(books::decode);
        let parsed = written.and_then(|written| Definition::of(written).ok());
        Ok(parsed.map(|definition| self.host.0.catalog.remember(definition)))
    }

    fn is_outside(&self, type_id: &str) -> bool {
        type_id == HTTP || self.host.0.executors.knows(type_id)
    }

    fn bounds(&self) -> Bounds {
        self.host.0.settings.bounds
    }
}

/// A machine whose world is the store.
pub(crate) type StoreMachine<'v, S> = Machine<'v, Sight<'v, S>>;

/// What a step came to.
pub(crate) enum Computed<T> {
    /// There is no such run.
    Missing,
    /// Nothing changed.
    Same(T, Box<Run>),
    /// This is to be committed.
    Changed(T, Box<Change>),
    /// The run has ended because nobody knows its workflow any more; this is to be committed.
    Lost(Box<Change>),
}

/// What is to be committed.
pub(crate) struct Change {
    pub(crate) run: Run,
    pub(crate) value: Bytes,
    pub(crate) writes: Vec<Write>,
    pub(crate) told: Told,
    /// Whether there is more to do at once.
    pub(crate) is_cut: bool,
}

/// The most writes of a step: a few less than a transaction takes, for what goes with them.
const WRITES_MAX: usize = 900;
/// The most bytes of a step.
const STEP_BYTES_MAX: usize = 64 << 20;

impl Change {
    /// Whether it is one commit, and the run no larger than a run may be.
    fn fits(&self, run_bytes_max: usize) -> bool {
        let weight = |write: &Write| match write {
            Write::Put(_, value) | Write::Append(_, value) => value.len(),
            Write::Slot(_)
            | Write::Delete(_)
            | Write::Trim(..)
            | Write::Add(..)
            | Write::Advance(..) => 0,
        };
        let bytes = self.writes.iter().map(weight).sum::<usize>();
        let is_one = self.writes.len() <= WRITES_MAX && bytes <= STEP_BYTES_MAX;
        is_one && self.value.len() <= run_bytes_max
    }
}

/// A run after a step.
pub(crate) struct Stepped {
    pub(crate) run: Run,
    pub(crate) is_cut: bool,
    /// When it was computed, by the store's clock.
    pub(crate) now: Timestamp,
}

impl<S: Journal> Host<S> {
    /// Computes one step: `act`, and then as far as the run goes. A step that does not fit into
    /// one commit is computed again with fewer nodes.
    pub(crate) fn compute<T>(
        &self,
        view: &View,
        key: &RunKey,
        act: impl Fn(&mut StoreMachine<'_, S>) -> Result<T, Need>,
    ) -> Result<Computed<T>, Need> {
        let Some(run) = books::read_run(view, &key.tenant, &key.id)? else {
            return Ok(Computed::Missing);
        };
        let sight = Sight { host: self, view, tenant: &key.tenant };
        let hooks = books::read_hooks(view, &key.tenant)?;
        let at = self.at(view.now());
        let mut nodes = nodes_per_step(&hooks);
        loop {
            let Some(definition) = sight.definition(&run.definition)? else {
                return Ok(Computed::Lost(Box::new(self.lost(run, key, &hooks, at))));
            };
            let mut machine = Machine::new(run.clone(), definition, &sight, at.now).at_most(nodes);
            let value = act(&mut machine)?;
            machine.advance()?;
            let is_cut = machine.has_more();
            let progress = machine.done();
            let is_same = progress.others.is_empty() && progress.own.run == run;
            if is_same && books::rescheduled(&run, is_cut, at) == Scheduled::Stays {
                return Ok(Computed::Same(value, Box::new(run)));
            }
            let change = self.change(key, progress, is_cut, &hooks, at);
            if change.fits(self.0.settings.bounds.run_bytes_max) {
                return Ok(Computed::Changed(value, Box::new(change)));
            }
            if nodes == 1 {
                let definition = sight.definition(&run.definition)?;
                let definition = definition.expect("invariant: it was there a moment ago");
                let progress = too_large(Machine::new(run, definition, &sight, at.now))?;
                let change = self.change(key, progress, false, &hooks, at);
                return Ok(Computed::Changed(value, Box::new(change)));
            }
            nodes = (nodes / 4).max(1);
        }
    }

    /// Computes the beginning of a run, `new`, and its first step, which are one commit. Where that
    /// is too much for one, it only begins, as `again` says, and its driver takes the first step.
    pub(crate) fn compute_first(
        &self,
        view: &View,
        key: &RunKey,
        new: Changed,
        definition: &Arc<Definition>,
        again: impl FnOnce() -> Changed,
    ) -> Result<Change, Need> {
        let sight = Sight { host: self, view, tenant: &key.tenant };
        let hooks = books::read_hooks(view, &key.tenant)?;
        let at = self.at(view.now());
        let Changed { run, mut events } = new;
        let mut machine = Machine::new(run, Arc::clone(definition), &sight, at.now)
            .at_most(nodes_per_step(&hooks));
        machine.driven_by(&self.0.id, self.0.settings.is_alone);
        machine.advance()?;
        let is_cut = machine.has_more();
        let mut progress = machine.done();
        events.append(&mut progress.own.events);
        progress.own.events = events;
        progress.begun_with.push(Arc::clone(definition));
        let change = self.change(key, progress, is_cut, &hooks, at);
        if change.fits(self.0.settings.bounds.run_bytes_max) {
            return Ok(change);
        }
        let mut progress = Progress::alone(again());
        progress.begun_with.push(Arc::clone(definition));
        Ok(self.change(key, progress, false, &hooks, at))
    }

    fn change(
        &self,
        key: &RunKey,
        mut progress: Progress,
        is_cut: bool,
        hooks: &Hooks,
        at: Moment<'_>,
    ) -> Change {
        progress.begun_with.retain(|one| !self.0.catalog.is_kept(one.digest.as_str()));
        let Written { run, writes, told } =
            books::written(&key.tenant, progress, is_cut, hooks, at);
        let value = books::encode(&run);
        Change { run, value, writes, told, is_cut }
    }

    /// A run whose definition is gone can go nowhere, and says so.
    fn lost(&self, mut run: Run, key: &RunKey, hooks: &Hooks, at: Moment<'_>) -> Change {
        tracing::error!(run = %run.id, "the definition of a run is gone");
        let failure = Failure::new("definition_missing", "the definition of the run is gone");
        let (place, kind) = (run.next_sequence(), Kind::RunFailed);
        let event = NewEvent::of(place, kind, None, payload! {"error": failure}, at.now);
        (run.status, run.error) = (Status::Failed, Some(failure));
        (run.ended, run.events, run.driver) = (Some(at.now.as_millis()), run.events + 1, None);
        let own = Changed { run, events: vec![event] };
        self.change(key, Progress::alone(own), false, hooks, at)
    }

    /// Takes one step, and tells of it.
    pub(crate) async fn step(
        &self,
        key: &RunKey,
        act: impl Fn(&mut StoreMachine<'_, S>) -> Result<(), Need> + Send + Sync,
    ) -> Result<Option<Stepped>, RunError> {
        let told = Mutex::new(Told::default());
        let (doc, places) = (key.doc(), books::read_by_steps(&key.tenant));
        let stepped = self.0.engine.update(&doc, places, |view| {
            let now = view.now();
            Ok(match self.compute(view, key, &act)? {
                Computed::Missing => Update::nothing(None),
                Computed::Same((), run) => {
                    *lock(&told) = Told::default();
                    Update::nothing(Some(Stepped { run: *run, is_cut: false, now }))
                }
                Computed::Changed((), change) | Computed::Lost(change) => {
                    let Change { run, value, writes, told: tell, is_cut } = *change;
                    *lock(&told) = tell;
                    Update::to(value, Some(Stepped { run, is_cut, now })).writes(writes)
                }
            })
        });
        let stepped = stepped.await?;
        self.tell(told.into_inner().unwrap_or_default(), Some(key));
        Ok(stepped)
    }

    /// Tells those in this process who should know of a step that is committed; the driver of the
    /// run `by` took that step itself.
    pub(crate) fn tell(&self, told: Told, by: Option<&RunKey>) {
        let Told { changed, ready, due, has_deliveries, definitions } = told;
        for digest in &definitions {
            self.0.catalog.keep(digest);
        }
        for (key, _) in &changed {
            self.0.ears.tell(key);
            // Whoever drives it must not go on with what it knew before.
            if by != Some(key) {
                self.poke(key);
            }
        }
        for key in ready {
            self.drive(key);
        }
        self.0.timers.add(due);
        if has_deliveries {
            self.0.deliveries.notify_one();
        }
    }
}

const fn nodes_per_step(hooks: &Hooks) -> u32 {
    if hooks.hooks.is_empty() { NODES_PER_STEP } else { NODES_PER_TOLD_STEP }
}

/// A run that has grown too large to be kept ends as it was before, and says so.
fn too_large<S: Journal>(mut machine: StoreMachine<'_, S>) -> Result<Progress, Need> {
    let text = "what the run has to remember is larger than a run may be";
    machine.fail_run(Failure::new("run_too_large", text), None)?;
    Ok(machine.done())
}
