//! Runs as their books have them, for whoever looks after a host: listed, found, read, ended.
//!
//! Works with a host and without one. It drives nothing: reading writes nothing, and ending a run
//! is one commit like any step of it, with an entry in the audit. Definitions are those that the
//! store keeps, so the files of the workflows are not needed.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onetake_core::{Actor, Tenant, Timestamp, tenant_prefix};
use onetake_engine::operate::Audit;
use onetake_engine::{Engine, Journal, Need, Place, RunError, Update, View};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::books::{self, EventPage, Moment, RUNS, RunKey, Told};
use crate::definition::Definition;
use crate::host::{Host, lock};
use crate::machine::{Bounds, Machine, World};
use crate::run::Run;

/// How many tenants are asked for a run whose tenant nobody named.
const TENANTS_MAX: usize = 10_000;
/// How many events are read at once.
const EVENTS_MAX: usize = 200;
/// How often it is looked for events of a run that another process may drive.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Whom an event names that tells of an operator's act. Their own name is for the audit: a
/// tenant reads events.
const BY_OPERATOR: &str = "operator";

/// The books of runs.
pub struct Records<S> {
    engine: Engine<S>,
    /// The host that has to hear of what changes, where one runs in this process.
    host: Option<Host<S>>,
}

impl<S> Clone for Records<S> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone(), host: self.host.clone() }
    }
}

impl<S> std::fmt::Debug for Records<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Some runs, tenant by tenant: of each the newest first.
#[derive(Debug)]
pub struct RunPage {
    /// The runs.
    pub runs: Vec<Run>,
    /// Behind which one there may be more.
    pub next: Option<(Tenant, String)>,
    /// The store's time.
    pub now: Timestamp,
}

/// Runs of one name.
#[derive(Debug)]
pub struct NamedRuns {
    /// The runs, each of another tenant.
    pub runs: Vec<Run>,
    /// Whether every tenant was asked.
    pub is_all: bool,
    /// The store's time.
    pub now: Timestamp,
}

/// One run, with what others may see of its values.
#[derive(Debug)]
pub struct RunRecord {
    /// The run.
    pub run: Run,
    /// What it was given, without what is marked as sensitive. Empty where its definition is gone.
    pub inputs: Map<String, Value>,
    /// Its variables, likewise.
    pub variables: Map<String, Value>,
    /// The store's time.
    pub now: Timestamp,
}

/// Some events of a run.
#[derive(Debug)]
pub struct RunEvents {
    /// The events, in order.
    pub events: Vec<Value>,
    /// The sequence behind the last of them.
    pub next: u64,
    /// The run, as it was before they were read.
    pub run: Run,
    /// Whether it has ended, and these are its last.
    pub is_over: bool,
}

/// What came of ending a run.
#[derive(Debug)]
pub struct RunEnded {
    /// The run, as it is now.
    pub run: Run,
    /// Whether it ended by this act. One that had ended before stays as it was.
    pub is_new: bool,
    /// The store's time.
    pub now: Timestamp,
}

impl<S> Records<S> {
    /// The books of a store on which no host runs in this process.
    #[must_use]
    pub const fn at_rest(engine: Engine<S>) -> Self {
        Self { engine, host: None }
    }

    /// Whether a host in this process drives the runs.
    #[must_use]
    pub const fn is_hosted(&self) -> bool {
        self.host.is_some()
    }
}

impl<S: Journal> Records<S> {
    /// The books of `host`, which hears of what changes.
    #[must_use]
    pub fn of(host: &Host<S>) -> Self {
        Self { engine: host.engine().clone(), host: Some(host.clone()) }
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Engine<S> {
        &self.engine
    }

    /// Runs of a tenant, or of all, behind `after`, at most `limit`.
    ///
    /// # Errors
    /// A [`RunError`] when the store does not answer.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn list(
        &self,
        tenant: Option<&Tenant>,
        after: Option<(&Tenant, &str)>,
        limit: usize,
    ) -> Result<RunPage, RunError> {
        let prefix = tenant.map(tenant_prefix).unwrap_or_default();
        let after = after.map(|(tenant, id)| books::run_doc(tenant, id).key);
        let page = self.engine.store().scan(RUNS, &prefix, after.as_deref(), limit).await?;
        let (now, page) = (page.now, page.value);
        let last = page.items.last().filter(|_| page.more);
        let next = last.and_then(|(doc, _)| named(&doc.key));
        let runs = page.items.iter().filter_map(|(_, document)| books::decode(document));
        Ok(RunPage { runs: runs.collect(), next, now })
    }

    /// The runs called `id`, whosever they are. Asks each tenant that has runs, and no more than
    /// that of any.
    ///
    /// # Errors
    /// A [`RunError`] when the store does not answer.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn named(&self, id: &str) -> Result<NamedRuns, RunError> {
        let (mut runs, mut after) = (Vec::new(), None::<Vec<u8>>);
        for _ in 0..TENANTS_MAX {
            let page = self.engine.store().scan(RUNS, b"", after.as_deref(), 1).await?;
            let (now, page) = (page.now, page.value);
            let Some(tenant) = page.items.first().and_then(|(doc, _)| named(&doc.key)) else {
                return Ok(NamedRuns { runs, is_all: page.items.is_empty(), now });
            };
            let tenant = tenant.0;
            runs.extend(self.read(&RunKey::new(&tenant, id)).await?.map(|(run, _)| run));
            // Behind every name that this tenant may have: no text has this byte.
            let mut last = tenant_prefix(&tenant);
            last.push(0xff);
            after = Some(last);
        }
        let now = self.engine.store().scan(RUNS, b"", after.as_deref(), 1).await?.now;
        Ok(NamedRuns { runs, is_all: false, now })
    }

    /// One run.
    ///
    /// # Errors
    /// A [`RunError`] when the store does not answer.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn get(&self, tenant: &Tenant, id: &str) -> Result<Option<RunRecord>, RunError> {
        let Some((run, now)) = self.read(&RunKey::new(tenant, id)).await? else { return Ok(None) };
        let definition = self.definition(&run.definition).await?;
        let shown = |values: &Map<String, Value>| {
            definition.as_ref().map(|it| it.shown_values(values).into_owned()).unwrap_or_default()
        };
        let (inputs, variables) = (shown(&run.inputs), shown(&run.variables));
        Ok(Some(RunRecord { run, inputs, variables, now }))
    }

    /// Events of a run from the sequence `from` on: those that there are, or those that come within
    /// `within`.
    ///
    /// # Errors
    /// A [`RunError`] when the store does not answer.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn events(
        &self,
        tenant: &Tenant,
        id: &str,
        from: u64,
        within: Duration,
    ) -> Result<Option<RunEvents>, RunError> {
        let (key, ends) = (RunKey::new(tenant, id), Instant::now() + within);
        let mut ear = self.host.as_ref().map(|host| host.0.ears.listen(&key));
        loop {
            // The run first: what it counts is then in its lane.
            let Some((run, _)) = self.read(&key).await? else { return Ok(None) };
            let page = EventPage::read(&self.engine, &key, run.first, from, EVENTS_MAX).await?;
            let next = page.next;
            let is_over = run.status.is_terminal() && next >= run.next_sequence();
            let left = ends.saturating_duration_since(Instant::now());
            if next > from.max(run.first) || is_over || left.is_zero() {
                let events = page.events.iter().map(|event| json!(event)).collect();
                return Ok(Some(RunEvents { events, next, run, is_over }));
            }
            match &mut ear {
                Some(ear) => drop(timeout(left.min(LOOK_EVERY), ear.hear()).await),
                None => sleep(left.min(LOOK_EVERY)).await,
            }
        }
    }

    /// Ends a run, and all that are part of it, in the name of `by`. One that has ended stays as it
    /// is.
    ///
    /// # Errors
    /// A [`RunError`]; after [`RunError::ExecutedNotRecorded`] it may have ended. Asking again is
    /// safe.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the run ended, or as it was.
    pub async fn cancel(
        &self,
        tenant: &Tenant,
        id: &str,
        by: &Actor,
        reason: Option<&str>,
    ) -> Result<Option<RunEnded>, RunError> {
        let (key, told) = (RunKey::new(tenant, id), Mutex::new(Told::default()));
        let (doc, places) = (key.doc(), books::read_by_steps(tenant));
        let ended = self.engine.update(&doc, places, |view| {
            *lock(&told) = Told::default();
            let now = view.now();
            let Some(run) = books::read_run(view, tenant, id)? else {
                return Ok(Update::nothing(None));
            };
            if run.status.is_terminal() {
                return Ok(Update::nothing(Some(RunEnded { run, is_new: false, now })));
            }
            let sight = Sight { view, tenant };
            let definition = sight.found(&run.definition)?;
            let mut machine = Machine::new(run, definition, &sight, now);
            machine.cancel(reason, Some(BY_OPERATOR))?;
            let hooks = books::read_hooks(view, tenant)?;
            // A run that has ended has no lease, whoever ended it.
            let at = Moment { now, host: BY_OPERATOR, lease_ms: 0 };
            let written = books::written(tenant, machine.done(), false, &hooks, at);
            *lock(&told) = written.told;
            let (run, audit) = (written.run, Audit::of_run(by, tenant, id));
            let update = Update::to(books::encode(&run), Some(RunEnded { run, is_new: true, now }));
            Ok(update.writes(written.writes).write(audit.append()))
        });
        let ended = ended.await?;
        if let Some(host) = &self.host {
            host.tell(told.into_inner().unwrap_or_default(), None);
        }
        Ok(ended)
    }

    async fn read(&self, key: &RunKey) -> Result<Option<(Run, Timestamp)>, RunError> {
        let doc = key.doc();
        let read = self.engine.update(&doc, Vec::new(), |view| {
            let run = books::read_run(view, &key.tenant, &key.id)?;
            Ok(Update::nothing(run.map(|run| (run, view.now()))))
        });
        read.await
    }

    async fn definition(&self, digest: &str) -> Result<Option<Arc<Definition>>, RunError> {
        let known = self.host.as_ref().and_then(|host| host.catalog().definition(digest));
        if known.is_some() {
            return Ok(known);
        }
        let doc = books::definition_doc(digest);
        let places = vec![Place::Doc(doc.clone())];
        let read =
            self.engine.update(&doc, places, |view| Ok(Update::nothing(kept(view, digest)?)));
        read.await
    }
}

/// Whose run it is that stands under this key, and which.
fn named(key: &[u8]) -> Option<(Tenant, String)> {
    books::run_of(key).map(|RunKey { tenant, id }| (tenant, id))
}

/// The definition of that digest, as the store keeps it.
fn kept(view: &View, digest: &str) -> Result<Option<Arc<Definition>>, Need> {
    let written: Option<Value> = view.doc(&books::definition_doc(digest))?.and_then(books::decode);
    Ok(written.and_then(|written| Definition::of(written).ok()).map(Arc::new))
}

/// What a machine sees that only ends runs.
struct Sight<'v> {
    view: &'v View,
    tenant: &'v Tenant,
}

impl Sight<'_> {
    /// The definition of that digest. Where it is gone, any will do: nothing begins any more, and
    /// a run must not be immortal for want of its text.
    fn found(&self, digest: &str) -> Result<Arc<Definition>, Need> {
        Ok(kept(self.view, digest)?.unwrap_or_else(|| {
            let nodes = json!([{"id": "none", "typeId": "core.noop"}]);
            let blank = json!({"id": "gone", "name": "Gone", "version": "0", "nodes": nodes});
            Arc::new(Definition::of(blank).expect("invariant: one node is a workflow"))
        }))
    }
}

impl World for Sight<'_> {
    fn run(&self, id: &str) -> Result<Option<Run>, Need> {
        books::read_run(self.view, self.tenant, id)
    }

    fn workflow(&self, _id: &str) -> Option<Arc<Definition>> {
        None
    }

    fn definition(&self, digest: &str) -> Result<Option<Arc<Definition>>, Need> {
        self.found(digest).map(Some)
    }

    fn is_outside(&self, _type_id: &str) -> bool {
        false
    }

    fn bounds(&self) -> Bounds {
        Bounds::default()
    }
}
