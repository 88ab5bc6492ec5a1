//! The host: workflows, an engine, and what drives runs.
//!
//! A cheap handle; clones share everything. Every change of a run is one step: the machine
//! computes it, the engine commits it, and only then others hear of it. Any number of hosts may
//! share one store; what each of them is doing is told by leases, never by memory.

mod drive;
mod ears;
mod keep;
mod outside;
mod schedule;
pub(crate) mod step;
mod turns;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onetake_activity::{Activities, HttpClient, HttpSettings, IdentityForm};
use onetake_core::{Policy, Tenant, Timestamp};
use onetake_engine::{Engine, Journal, RunError};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::books::{self, EventPage, Moment, RunKey};
use crate::catalog::Catalog;
use crate::machine::Bounds;
use crate::nodes::{BuiltIn, Executors};
use crate::run::Run;
use crate::token::Tokens;
use crate::webhook::{Guard, Sender, Trust, WITHIN};

use self::drive::Seats;
use self::ears::Ears;
use self::schedule::Timers;
use self::turns::Turns;

/// How long a call of a node may take in all, with its own retries.
pub(crate) const CALL_WITHIN: Duration = Duration::from_secs(60 * 60);

/// The settings of a host.
#[derive(Debug, Clone)]
pub struct HostSettings {
    /// The bounds of runs.
    pub bounds: Bounds,
    /// How identities of calls are made.
    pub form: IdentityForm,
    /// How long what a call came to is remembered.
    pub calls_kept: Duration,
    /// How long a run is remembered after its end.
    pub runs_kept: Duration,
    /// How long a run and a call that are under way are left alone by other processes, without a
    /// sign of life from the one that has them.
    pub lease: Duration,
    /// Runs that this process drives at once; further ones wait. One tenant has at most half.
    pub driven_max: usize,
    /// Nodes that this process executes outside the store at once; further ones wait. One tenant
    /// has at most half.
    pub outside_max: usize,
    /// Whether nobody else has the store: whatever is under way in it has been left by a process
    /// that is gone.
    pub is_alone: bool,
    /// Whether others may be told at addresses that only this network has.
    pub allow_private_targets: bool,
    /// Where the host is reached from outside, for addresses that it gives out.
    pub public_url: Option<String>,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            bounds: Bounds::default(),
            form: IdentityForm::default(),
            calls_kept: Duration::from_secs(14 * 24 * 60 * 60),
            runs_kept: Duration::from_secs(30 * 24 * 60 * 60),
            lease: Duration::from_secs(30),
            driven_max: 2_048,
            outside_max: 512,
            is_alone: false,
            allow_private_targets: false,
            public_url: None,
        }
    }
}

/// A host. Clones share everything.
pub struct Host<S>(pub(crate) Arc<Inner<S>>);

pub(crate) struct Inner<S> {
    /// Names this host among all that share the store.
    pub(crate) id: String,
    pub(crate) engine: Engine<S>,
    pub(crate) catalog: Catalog,
    pub(crate) executors: Executors,
    pub(crate) activities: Activities<S>,
    pub(crate) settings: HostSettings,
    pub(crate) tokens: Tokens,
    pub(crate) guard: Guard,
    /// What tells others, where this machine can.
    pub(crate) sender: Option<Arc<Sender>>,
    /// Receivers that are being told something.
    pub(crate) sending: Mutex<HashSet<(String, String)>>,
    /// What calls providers.
    pub(crate) client: HttpClient,
    /// How many streams of events each tenant follows.
    pub(crate) streams: Mutex<HashMap<Tenant, usize>>,
    pub(crate) ears: Ears,
    timers: Timers,
    /// The runs that this process drives.
    driven: Mutex<Seats>,
    driving: Turns,
    outside: Turns,
    /// Somebody is to be told.
    pub(crate) deliveries: Notify,
    tasks: TaskTracker,
    /// Where they run.
    runtime: Handle,
    pub(crate) end: CancellationToken,
}

impl<S> Clone for Host<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> std::fmt::Debug for Host<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("catalog", &self.0.catalog).finish_non_exhaustive()
    }
}

impl<S: Journal> Host<S> {
    /// Opens a host on `engine` and begins to drive the runs that the store has.
    ///
    /// # Errors
    /// A [`RunError`] when the store does not answer.
    ///
    /// # Cancel safety
    /// Nothing is driven when it is dropped.
    pub async fn open(
        engine: Engine<S>,
        catalog: Catalog,
        executors: Executors,
        settings: HostSettings,
    ) -> Result<Self, RunError> {
        let tokens = Tokens::of(&engine).await?;
        warn_of_unknown_types(&catalog, &executors);
        let activities = Activities::new(engine.clone()).with_form(settings.form);
        let policy = Policy::activity().retention(settings.calls_kept).lease(settings.lease);
        let activities = match policy.build() {
            Ok(policy) => activities.with_policy(policy),
            Err(error) => {
                tracing::warn!(%error, "calls are kept and left alone for the usual time");
                activities
            }
        };
        let guard = Guard { allow_private: settings.allow_private_targets, ..Guard::default() };
        let sender = Sender::new(guard.clone(), WITHIN, Trust::Platform).map(Arc::new);
        let sender = sender.inspect_err(|error| {
            tracing::error!(%error, "nobody can be told of events");
        });
        let client = HttpClient::new(HttpSettings::new().within(CALL_WITHIN));
        let client = client.map_err(|error| {
            tracing::error!(%error, "no provider can be called");
            RunError::Busy("no provider can be called from this machine")
        })?;
        let host = Self(Arc::new(Inner {
            id: uuid::Uuid::now_v7().to_string(),
            streams: Mutex::default(),
            guard,
            sender: sender.ok(),
            sending: Mutex::default(),
            client,
            driving: Turns::new(settings.driven_max),
            outside: Turns::new(settings.outside_max),
            engine,
            catalog,
            executors,
            activities,
            settings,
            tokens,
            ears: Ears::default(),
            timers: Timers::default(),
            driven: Mutex::default(),
            deliveries: Notify::new(),
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
            end: CancellationToken::new(),
        }));
        host.start();
        Ok(host)
    }

    /// When a step is taken at `now`, by the settings of this host.
    pub(crate) fn at(&self, now: Timestamp) -> Moment<'_> {
        let lease_ms = u64::try_from(self.0.settings.lease.as_millis()).unwrap_or(u64::MAX);
        Moment { now, host: &self.0.id, lease_ms }
    }

    fn start(&self) {
        let inner = &self.0;
        inner.tasks.spawn(self.clone().keep_schedule());
        inner.tasks.spawn(self.clone().dispatch());
        inner.tasks.spawn(self.clone().keep_books());
    }

    /// Runs a task that ends with the host, where the host itself runs: whoever asks for it may be
    /// on a thread that serves connections and nothing else.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.spawn_on(task, &self.0.runtime);
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine<S> {
        &self.0.engine
    }

    /// The workflows.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.0.catalog
    }

    /// Begins to stop: streams end, and nothing new begins.
    pub fn begin_to_stop(&self) {
        self.0.end.cancel();
    }

    /// Stops driving: nothing new begins, and what is under way is left to be picked up later.
    /// Executions outside the store are the engine's, and end or not as that is stopped.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the host stopping.
    pub async fn stop(&self, within: Duration) {
        self.0.end.cancel();
        self.0.tasks.close();
        let _ = tokio::time::timeout(within, self.0.tasks.wait()).await;
    }

    /// A run, as it is now.
    pub(crate) async fn run(&self, key: &RunKey) -> Result<Option<Run>, RunError> {
        Ok(self.seen(key).await?.map(|(run, _)| run))
    }

    /// A run, as it is now, and when that is by the store's clock, in milliseconds.
    pub(crate) async fn seen(&self, key: &RunKey) -> Result<Option<(Run, u64)>, RunError> {
        self.0
            .engine
            .update(&key.doc(), Vec::new(), |view| {
                let run = books::read_run(view, &key.tenant, &key.id)?;
                let now = view.now().as_millis();
                Ok(onetake_engine::Update::nothing(run.map(|run| (run, now))))
            })
            .await
    }

    /// Events of a run from `sequence` on, at most `limit`; its first one has the place `first`.
    pub(crate) async fn events(
        &self,
        key: &RunKey,
        first: u64,
        sequence: u64,
        limit: usize,
    ) -> Result<EventPage, RunError> {
        EventPage::read(&self.0.engine, key, first, sequence, limit).await
    }
}

/// A workflow with nodes that nobody here executes can be loaded, and fails when it comes to one.
fn warn_of_unknown_types(catalog: &Catalog, executors: &Executors) {
    for workflow in catalog.workflows() {
        for node in &workflow.nodes {
            let is_known = BuiltIn::of(&node.type_id).is_some() || executors.knows(&node.type_id);
            if !is_known && node.type_id != "conformance.requiresMissing" {
                let (workflow, node, kind) = (&workflow.id, &node.id, &node.type_id);
                tracing::warn!(workflow, node, kind, "this host knows no such type of nodes");
            }
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
