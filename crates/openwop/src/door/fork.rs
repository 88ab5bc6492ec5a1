//! Forks: a run that repeats another one, or goes its own way from somewhere in it.

use std::collections::BTreeMap;

use http::{Response, StatusCode};
use onetake_engine::{Journal, Update};
use onetake_http::WholeRequest;
use serde_json::{Map, Value, json};

use super::{Caller, Door, no_run};
use crate::ask::{self, ForkRun};
use crate::books::{self, RunKey, Told};
use crate::create::{self, NewRun};
use crate::definition::Definition;
use crate::event::{Event, Kind};
use crate::host::step::Sight;
use crate::machine::{Progress, World};
use crate::reply::{Reply, ReplyBody};
use crate::run::{Fork, ForkMode, NodeState, Owner, Run};

/// How many events of a run are read at once.
const PAGE: usize = 500;
/// How many events of a run may lie before a fork.
const EVENTS_MAX: u64 = 20_000;

/// Where a fork begins, and how.
struct Place<'r> {
    from_seq: u64,
    mode: ForkMode,
    overlay: &'r Map<String, Value>,
    /// What had happened by then.
    past: Vec<Event>,
}

impl<S: Journal> Door<S> {
    pub(super) async fn fork(
        &self,
        request: &WholeRequest<'_>,
        caller: &Caller,
        source: &str,
    ) -> Result<Response<ReplyBody>, Reply> {
        let asked: ForkRun = ask::body(request.body()).map_err(Reply::invalid)?;
        let overlay = asked.run_options_overlay.unwrap_or_default();
        if asked.mode == ForkMode::Replay && !overlay.is_empty() {
            return Err(Reply::invalid("a replay takes no runOptionsOverlay"));
        }
        let from_seq = match (asked.from_seq, asked.mode) {
            (Some(seq), _) if seq >= 0 => seq.unsigned_abs(),
            (Some(_), _) => return Err(Reply::invalid("fromSeq must not be negative")),
            (None, ForkMode::Replay) => 0,
            (None, ForkMode::Branch) => return Err(Reply::invalid("a branch needs fromSeq")),
        };
        let source = match caller.run(source) {
            Ok(source) => source,
            Err(refused) => return Ok(self.answer_only(request, caller, refused).await),
        };
        // Past events never change, so they may be read beforehand.
        let past = self.past(&source, from_seq).await?;
        let place = Place { from_seq, mode: asked.mode, overlay: &overlay, past };
        Ok(self.begin_fork(request, caller, &source, &place).await)
    }

    /// The events of a run before `from_seq`; none where there is no such run.
    async fn past(&self, key: &RunKey, from_seq: u64) -> Result<Vec<Event>, Reply> {
        let failed = |error| Reply::failed(&error);
        let found = self.host.run(key).await.map_err(failed)?;
        let Some(run) = found.filter(|_| from_seq > 0) else { return Ok(Vec::new()) };
        // What is beyond the end is said with everything else about the run.
        let from_seq = from_seq.min(run.next_sequence());
        if from_seq.saturating_sub(run.first) > EVENTS_MAX {
            let text = format!("a fork begins behind at most {EVENTS_MAX} events");
            return Err(Reply::invalid(text));
        }
        let (mut past, mut next) = (Vec::new(), run.first);
        while next < from_seq {
            let page = self.host.events(key, run.first, next, PAGE).await.map_err(failed)?;
            // A fork that missed one would do again what was done.
            if !page.is_whole || page.next == next {
                let text = "events of the run cannot be read";
                return Err(Reply::conflict("events_unreadable", text));
            }
            next = page.next;
            past.extend(page.events.into_iter().filter(|event| event.sequence < from_seq));
        }
        Ok(past)
    }

    async fn begin_fork(
        &self,
        request: &WholeRequest<'_>,
        caller: &Caller,
        source: &RunKey,
        place: &Place<'_>,
    ) -> Response<ReplyBody> {
        let key = RunKey::new(&caller.tenant, &create::new_id());
        let places = books::read_by_steps(&caller.tenant);
        let doc = key.doc();
        let begin = self.commit(request, &doc, places, |view| {
            let nothing = |reply: Reply| Ok(Update::nothing((reply, Told::default())));
            let Some(source) = books::read_run(view, &source.tenant, &source.id)? else {
                return nothing(no_run());
            };
            // Written before, by a commit whose reply was lost.
            if let Some(run) = books::read_run(view, &caller.tenant, &key.id)? {
                return nothing(Reply::new(StatusCode::CREATED, forked(&run, &source, place)));
            }
            let ends = source.next_sequence();
            if place.from_seq != 0 && !(source.first..=ends).contains(&place.from_seq) {
                let (status, code) = (StatusCode::UNPROCESSABLE_ENTITY, "from_seq_out_of_range");
                let text = format!("the events of the run end before {ends}");
                return nothing(Reply::error(status, code, text));
            }
            let sight = Sight::new(&self.host, view, &caller.tenant);
            let Some(definition) = sight.definition(&source.definition)? else {
                let text = "the workflow of that run is gone";
                return nothing(Reply::conflict("definition_missing", text));
            };
            let new = match new_run(&key, caller, &source, &definition, place) {
                Ok(new) => new,
                Err(refused) => return nothing(Reply::invalid(refused.to_string())),
            };
            let own = match create::run(new, &definition, sight.bounds(), view.now()) {
                Ok(own) => own,
                Err(refused) => return nothing(Reply::invalid(refused.to_string())),
            };
            let hooks = books::read_hooks(view, &caller.tenant)?;
            let (at, progress) = (self.host.at(view.now()), Progress::alone(own));
            let written = books::written(&caller.tenant, progress, false, &hooks, at);
            let (run, mut told) = (written.run, written.told);
            told.ready.push(key.clone());
            let reply = Reply::new(StatusCode::CREATED, forked(&run, &source, place));
            Ok(Update::to(books::encode(&run), (reply, told)).writes(written.writes))
        });
        begin.await
    }
}

/// What is said of a run that was forked.
fn forked(run: &Run, source: &Run, place: &Place<'_>) -> Value {
    json!({
        "runId": run.id, "sourceRunId": source.id, "fromSeq": place.from_seq, "mode": place.mode,
        "status": run.status.as_str(), "eventsUrl": format!("/v1/runs/{}/events", run.id),
    })
}

fn new_run(
    key: &RunKey,
    caller: &Caller,
    source: &Run,
    definition: &Definition,
    place: &Place<'_>,
) -> Result<NewRun, create::NotCreated> {
    let members = |name: &str| place.overlay.get(name).and_then(Value::as_object).cloned();
    let mut inputs = source.inputs.clone();
    inputs.extend(members("inputs").unwrap_or_default());
    let mut configurable = source.configurable.clone();
    configurable.extend(members("configurable").unwrap_or_default());
    let owner = Owner { tenant: caller.tenant.as_str().to_owned(), principal: caller.name.clone() };
    let mut taken =
        Taken { settled: BTreeMap::new(), variables: create::variables(&inputs, definition)? };
    place.past.iter().for_each(|event| taken.take(source, event));
    Ok(NewRun {
        configurable,
        tags: source.tags.clone(),
        metadata: source.metadata.clone(),
        scope_id: source.scope_id.clone(),
        fork: Some(Fork { source: source.id.clone(), from_seq: place.from_seq, mode: place.mode }),
        settled: taken.settled,
        variables: Some(taken.variables),
        ..NewRun::of(key.id.clone(), owner, inputs)
    })
}

/// What a fork takes along from its source.
struct Taken {
    settled: BTreeMap<String, NodeState>,
    variables: Map<String, Value>,
}

impl Taken {
    /// What one event of the source leaves to its fork.
    fn take(&mut self, source: &Run, event: &Event) {
        let kind = Kind::named(&event.kind);
        match (kind, &event.node_id) {
            (Some(Kind::NodeCompleted | Kind::NodeFailed | Kind::NodeSkipped), Some(node)) => {
                if let Some(state) = source.node(node) {
                    self.settled.insert(node.clone(), state.clone());
                }
            }
            (Some(Kind::VariableChanged | Kind::ChannelWritten), _) => {
                let name = if kind == Some(Kind::ChannelWritten) { "channel" } else { "name" };
                let Some(name) = event.payload.get(name).and_then(Value::as_str) else { return };
                let shown = event.payload.get("value").filter(|value| **value != json!("***"));
                // From the run itself where the event hides it, or tells only what was added.
                let own = source.variables.get(name);
                let value = match kind {
                    Some(Kind::VariableChanged) => shown.or(own),
                    _ => own,
                };
                self.variables.extend(value.map(|value| (name.to_owned(), value.clone())));
            }
            _ => {}
        }
    }
}
