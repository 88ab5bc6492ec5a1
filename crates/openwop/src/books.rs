//! Where a host keeps what it knows: the names of documents and lanes, and what one step writes.
//!
//! Every document of a tenant begins with that tenant, so no name of one can be a name of another.
//! Everything that a step changes is one transaction, anchored in the document of its run. Nothing
//! here decides anything.

use bytes::Bytes;
use onetake_core::{Tenant, Timestamp, tenant_prefix};
use onetake_engine::{
    Doc, Document, Engine, Entry, Journal, Lane, Need, Place, Position, RunError, View, Write,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::event::Event;
use crate::machine::{Changed, Progress};
use crate::run::{NodeStatus, Run, Status};
use crate::webhook::{self, Hooks};

/// Runs, by tenant and name.
pub(crate) const RUNS: &str = "openwop.runs";
/// Runs that are to be looked at, by when.
pub(crate) const WORK: &str = "openwop.work";
/// Runs that have ended, by when.
pub(crate) const ENDED: &str = "openwop.ended";
/// Who is told of events, by tenant.
pub(crate) const HOOKS: &str = "openwop.hooks";
/// What is to be told, by when.
pub(crate) const DELIVERIES: &str = "openwop.deliveries";
/// How those fare who are told, by tenant and name.
pub(crate) const ENDPOINTS: &str = "openwop.endpoints";
/// Definitions that runs have begun with.
pub(crate) const DEFINITIONS: &str = "openwop.definitions";
/// The latest run of a workflow that was to be the only one.
pub(crate) const LATEST: &str = "openwop.latest";
/// What tokens are signed with, and other things that there is one of.
pub(crate) const ONLY: &str = "openwop.only";

/// Whose run it is, and which.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RunKey {
    pub(crate) tenant: Tenant,
    pub(crate) id: String,
}

impl RunKey {
    pub(crate) fn new(tenant: &Tenant, id: &str) -> Self {
        Self { tenant: tenant.clone(), id: id.to_owned() }
    }

    pub(crate) fn doc(&self) -> Doc {
        run_doc(&self.tenant, &self.id)
    }

    /// The lane of its events.
    pub(crate) fn lane(&self) -> Lane {
        Lane(behind(b"openwop.events/", &self.tenant, &self.id).into())
    }

    /// The run that stands behind the time in a key of the schedule.
    pub(crate) fn of_scheduled(key: &[u8]) -> Option<(u64, Self)> {
        let (time, rest) = key.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first()?;
        let (tenant, id) = rest.split_at_checked(usize::from(*length))?;
        let tenant = Tenant::new(std::str::from_utf8(tenant).ok()?).ok()?;
        // Behind the run may stand which of its own runs has ended.
        let id = std::str::from_utf8(id).ok()?.split(BEHIND).next()?.to_owned();
        Some((u64::from_be_bytes(*time), Self { tenant, id }))
    }

    fn at(&self, space: &'static str, time: u64) -> Doc {
        Doc { space, key: behind(&time.to_be_bytes(), &self.tenant, &self.id).into() }
    }

    /// Its place in the schedule because a run of its own, `child`, ended at `time`.
    fn woken_by(&self, child: &str, time: u64) -> Doc {
        let both = format!("{}{BEHIND}{child}", self.id);
        Doc { space: WORK, key: behind(&time.to_be_bytes(), &self.tenant, &both).into() }
    }
}

/// What stands between a run and the one of its own that woke it.
const BEHIND: char = '\n';

fn named(tenant: &Tenant, id: &str) -> Vec<u8> {
    behind(&[], tenant, id)
}

/// The name of a thing of a tenant's, behind something else. Made in one piece: every step needs
/// a few of them.
fn behind(first: &[u8], tenant: &Tenant, id: &str) -> Vec<u8> {
    let tenant = tenant_prefix(tenant);
    let mut key = Vec::with_capacity(first.len() + tenant.len() + id.len());
    key.extend_from_slice(first);
    key.extend_from_slice(&tenant);
    key.extend_from_slice(id.as_bytes());
    key
}

/// What stands before the names of runs that were made by this host, and before all others.
const BY_AGE: u8 = 0;
const BY_NAME: u8 = 1;
/// What a run is called, before its number.
const RUN: &str = "run-";

/// The document of a run. The number of a run begins with when it was made; what is kept is its
/// complement, so that lists come with the newest first.
pub(crate) fn run_doc(tenant: &Tenant, id: &str) -> Doc {
    let mut key = tenant_prefix(tenant);
    let number = id.strip_prefix(RUN).and_then(|spelt| {
        let number = Uuid::try_parse(spelt).ok()?;
        // Of all spellings of a number one is a name.
        let is_name = number.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()) == spelt;
        is_name.then_some(number)
    });
    if let Some(number) = number {
        key.push(BY_AGE);
        key.extend_from_slice(&(!number.as_u128()).to_be_bytes());
    } else {
        key.push(BY_NAME);
        key.extend_from_slice(id.as_bytes());
    }
    Doc { space: RUNS, key: key.into() }
}

/// The run whose document has this key.
pub(crate) fn run_of(key: &[u8]) -> Option<RunKey> {
    let (length, rest) = key.split_first()?;
    let (tenant, rest) = rest.split_at_checked(usize::from(*length))?;
    let tenant = Tenant::new(std::str::from_utf8(tenant).ok()?).ok()?;
    let (kind, rest) = rest.split_first()?;
    let id = match *kind {
        BY_AGE => run_id(Uuid::from_u128(!u128::from_be_bytes(rest.try_into().ok()?))),
        BY_NAME => std::str::from_utf8(rest).ok()?.to_owned(),
        _ => return None,
    };
    Some(RunKey { tenant, id })
}

/// The name of a run of this number.
pub(crate) fn run_id(number: Uuid) -> String {
    format!("{RUN}{}", number.as_hyphenated())
}

/// The document of a tenant's own in `space`.
pub(crate) fn tenant_doc(space: &'static str, tenant: &Tenant) -> Doc {
    Doc { space, key: tenant_prefix(tenant).into() }
}

/// The document of a thing of a tenant's.
pub(crate) fn thing_doc(space: &'static str, tenant: &Tenant, id: &str) -> Doc {
    Doc { space, key: named(tenant, id).into() }
}

/// The document of a definition.
pub(crate) fn definition_doc(digest: &str) -> Doc {
    Doc { space: DEFINITIONS, key: Bytes::copy_from_slice(digest.as_bytes()) }
}

/// A document that there is one of.
pub(crate) fn only_doc(name: &'static str) -> Doc {
    Doc { space: ONLY, key: Bytes::from_static(name.as_bytes()) }
}

/// About how long a run is.
const USUAL_BYTES: usize = 1_024;

/// A value as it is kept.
pub(crate) fn encode(value: &impl Serialize) -> Bytes {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    serde_json::to_writer(&mut bytes, value).expect("invariant: it is JSON");
    bytes.into()
}

/// A value that was kept. What cannot be read is as good as absent, and is said in the log.
pub(crate) fn decode<T: DeserializeOwned>(document: &Document) -> Option<T> {
    let read = serde_json::from_slice(&document.value);
    read.inspect_err(|error| tracing::error!(%error, "a kept document cannot be read")).ok()
}

/// A run as a step sees it.
pub(crate) fn read_run(view: &View, tenant: &Tenant, id: &str) -> Result<Option<Run>, Need> {
    Ok(view.doc(&run_doc(tenant, id))?.and_then(decode))
}

/// Some events of a run.
#[derive(Debug)]
pub(crate) struct EventPage {
    pub(crate) events: Vec<Event>,
    /// The place behind them. Whoever goes on does so from here, also past what cannot be read.
    pub(crate) next: u64,
    /// Whether all of them could be read.
    pub(crate) is_whole: bool,
    pub(crate) more: bool,
}

impl EventPage {
    /// Events of a run from the place `from` on, at most `limit`; its first one has the place
    /// `first`.
    pub(crate) async fn read<S: Journal>(
        engine: &Engine<S>,
        key: &RunKey,
        first: u64,
        from: u64,
        limit: usize,
    ) -> Result<Self, RunError> {
        let after = Position(from.saturating_sub(first));
        let page = engine.store().read_lane(&key.lane(), after, limit).await?.value;
        // Positions in a lane begin at one.
        let behind = |entry: &Entry| first + entry.position.0;
        let read = page.items.iter().filter_map(|entry| {
            let read = Event::read(&entry.value, &key.id, behind(entry) - 1);
            read.inspect_err(|error| tracing::error!(%error, "an event cannot be read")).ok()
        });
        let events: Vec<_> = read.collect();
        Ok(Self {
            next: page.items.last().map_or(from.max(first), behind),
            is_whole: events.len() == page.items.len(),
            more: page.more,
            events,
        })
    }
}

/// Who is told of events, as a step sees it.
pub(crate) fn read_hooks(view: &View, tenant: &Tenant) -> Result<Hooks, Need> {
    let hooks = view.doc(&tenant_doc(HOOKS, tenant))?.and_then(decode);
    Ok(hooks.unwrap_or_default())
}

/// What every step of a run reads.
pub(crate) fn read_by_steps(tenant: &Tenant) -> Vec<Place> {
    vec![Place::Doc(tenant_doc(HOOKS, tenant))]
}

/// What one step writes beside the document of its own run.
pub(crate) struct Written {
    /// The run, as it is to be kept.
    pub(crate) run: Run,
    pub(crate) writes: Vec<Write>,
    pub(crate) told: Told,
}

/// What others in this process should know once a step is committed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    /// Runs with new events, and whether they have ended.
    pub(crate) changed: Vec<(RunKey, bool)>,
    /// Runs that may go on.
    pub(crate) ready: Vec<RunKey>,
    /// In how many milliseconds which run is to be looked at again.
    pub(crate) due: Vec<(u64, RunKey)>,
    /// Whether there is somebody to be told.
    pub(crate) has_deliveries: bool,
    /// Definitions that the store has now.
    pub(crate) definitions: Vec<String>,
}

/// When a step is taken, and by whose settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'h> {
    pub(crate) now: Timestamp,
    /// Who takes it.
    pub(crate) host: &'h str,
    /// How long a run that is under way is left alone by those who do not drive it.
    pub(crate) lease_ms: u64,
}

/// Makes of a step what is written.
pub(crate) fn written(
    tenant: &Tenant,
    progress: Progress,
    is_cut: bool,
    hooks: &Hooks,
    at: Moment<'_>,
) -> Written {
    let Progress { own, others, begun_with, ended } = progress;
    // Beside the events there are a few more, the run itself among them.
    let (mut writes, mut told) = (Vec::with_capacity(own.events.len() + 4), Told::default());
    for definition in begun_with {
        let digest = definition.digest.as_str();
        writes.push(Write::Put(definition_doc(digest), encode(&definition.written)));
        told.definitions.push(digest.to_owned());
    }
    let own_key = RunKey::new(tenant, &own.run.id);
    writes.extend(ended.iter().map(|(at, child)| Write::Delete(own_key.woken_by(child, *at))));
    for other in others {
        // A run that began in this step is driven at once; one that ended wakes nobody.
        let key = RunKey::new(tenant, &other.run.id);
        if !other.run.status.is_terminal() {
            told.ready.push(key.clone());
        }
        let run = one(tenant, other, false, hooks, at, &mut writes, &mut told);
        writes.push(Write::Put(key.doc(), encode(&run)));
    }
    let run = one(tenant, own, is_cut, hooks, at, &mut writes, &mut told);
    Written { run, writes, told }
}

fn one(
    tenant: &Tenant,
    changed: Changed,
    is_cut: bool,
    hooks: &Hooks,
    at: Moment<'_>,
    writes: &mut Vec<Write>,
    told: &mut Told,
) -> Run {
    let (Changed { mut run, events }, now) = (changed, at.now);
    let key = RunKey::new(tenant, &run.id);
    let lane = key.lane();
    for event in &events {
        writes.push(Write::Append(lane.clone(), event.kept.clone()));
        for delivery in webhook::deliveries(hooks, &run, event, now) {
            told.has_deliveries = true;
            writes.push(Write::Put(delivery.doc(), encode(&delivery)));
        }
    }
    if !events.is_empty() {
        told.changed.push((key.clone(), run.status.is_terminal()));
    }
    if let Scheduled::Moves(due) = rescheduled(&run, is_cut, at) {
        writes.extend(run.due.map(|old| Write::Delete(key.at(WORK, old))));
        writes.extend(due.map(|new| Write::Put(key.at(WORK, new), Bytes::new())));
        run.due = due;
    }
    told.due.extend(run.due.map(|due| (due.saturating_sub(now.as_millis()), key.clone())));
    if run.status.is_terminal() && events.last().is_some_and(|event| event.kind.is_terminal()) {
        writes.push(Write::Put(key.at(ENDED, now.as_millis()), Bytes::new()));
        // Whoever comes after a crash must know that the run that it is part of may go on.
        if let (Some(parent), Some(ended)) = (&run.parent, run.ended) {
            let parent = RunKey::new(tenant, &parent.run);
            writes.push(Write::Put(parent.woken_by(&run.id, ended), Bytes::new()));
        }
    }
    // The run that it is part of stands where it does.
    if !events.is_empty() && (run.status.is_terminal() || run.status.is_waiting()) {
        told.ready.extend(run.parent.as_ref().map(|parent| RunKey::new(tenant, &parent.run)));
    }
    run
}

/// Where the schedule is to name a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheduled {
    /// Where it does.
    Stays,
    /// At this time, or nowhere.
    Moves(Option<u64>),
}

/// Where the schedule is to name a run.
pub(crate) fn rescheduled(run: &Run, is_cut: bool, at: Moment<'_>) -> Scheduled {
    let due = due(run, is_cut, at);
    // Nobody renews the lease of another.
    if let (Some(driver), Some(old)) = (&run.driver, run.due)
        && driver != at.host
        && due.is_some_and(|due| due > old)
    {
        return Scheduled::Stays;
    }
    let half_a_lease = at.now.as_millis() + at.lease_ms / 2;
    // A lease that is still long enough is left as it is.
    let stays = match (run.due, due) {
        (Some(old), Some(new)) => old == new || (old < new && old > half_a_lease),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    if stays { Scheduled::Stays } else { Scheduled::Moves(due) }
}

/// When a run is to be looked at by whoever finds it: at the end of its lease while it is under
/// way, else when something happens to it by itself.
fn due(run: &Run, is_cut: bool, at: Moment<'_>) -> Option<u64> {
    if run.status.is_terminal() || run.status == Status::Paused {
        return None;
    }
    let is_active = is_cut
        || run.events == 1
        || run.nodes.values().any(|state| state.status == NodeStatus::Running);
    let lease = is_active.then(|| at.now.as_millis() + at.lease_ms);
    run.next_due().into_iter().chain(lease).min()
}

/// What ends with a run that is forgotten.
pub(crate) fn forgotten(key: &RunKey, events: u64, ended: u64) -> Vec<Write> {
    let trim = Write::Trim(key.lane(), Position(events));
    vec![Write::Delete(key.at(ENDED, ended)), Write::Delete(key.doc()), trim]
}

/// Some of the events of a run that is to be forgotten, where there are too many for one commit.
pub(crate) fn trimmed(key: &RunKey, events: u64) -> Write {
    Write::Trim(key.lane(), Position(events))
}

/// A run that cannot be forgotten yet: it is looked at again as if it had ended now.
pub(crate) fn remembered(key: &RunKey, ended: u64, now: u64) -> [Write; 2] {
    [Write::Delete(key.at(ENDED, ended)), Write::Put(key.at(ENDED, now), Bytes::new())]
}
