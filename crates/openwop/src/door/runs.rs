//! Runs: created, looked at, ended, at rest.

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use onetake_engine::{Doc, Journal, Place, Update, Write};
use onetake_http::WholeRequest;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Caller, Door, no_run};
use crate::ask::{self, BULK_MAX, BulkCancel, Cancel, CreateRun, Pause};
use crate::books::{self, LATEST, RunKey, Told};
use crate::clock::rfc3339;
use crate::create::{self, NewRun};
use crate::host::step::{Change, Computed};
use crate::machine::{CannotPause, CannotResume};
use crate::records::Records;
use crate::reply::{Reply, ReplyBody};
use crate::run::{Drain, Owner, Run, Status};

/// How many runs a list shows at most.
const LISTED_MAX: usize = 200;

impl<S: Journal> Door<S> {
    /// Creates a run: its record, its first step and the response are one commit.
    pub(super) async fn create(
        &self,
        request: &WholeRequest<'_>,
        caller: &Caller,
    ) -> Result<Response<ReplyBody>, Reply> {
        let asked = CreateRun::read(request.body()).map_err(Reply::invalid)?;
        caller.may_name(asked.tenant_id.as_deref())?;
        if asked.callback_url.is_some() {
            let text = "callbackUrl is not called by this host; register a webhook instead";
            return Err(Reply::invalid(text));
        }
        let Some(definition) = self.host.catalog().workflow(&asked.workflow_id) else {
            let text = format!("there is no workflow {:?}", asked.workflow_id);
            // It is final, so it is kept like any other answer.
            let missing = Reply::not_found("workflow_not_found", text);
            return Ok(self.answer_only(request, caller, missing).await);
        };
        let is_only = request.parts().headers.get("x-dedup").is_some_and(|v| v == "enforce");
        let new = new_run(asked, caller);
        let key = RunKey::new(&caller.tenant, &new.id);
        let latest = books::thing_doc(LATEST, &caller.tenant, &definition.id);
        if is_only && let Some(id) = self.active(&latest, caller).await? {
            // Said before anything is kept: the same key may come again when that one has ended.
            return Err(already_active(&id));
        }
        let mut places = books::read_by_steps(&caller.tenant);
        if is_only {
            places.push(Place::Doc(latest.clone()));
        }
        let doc = key.doc();
        let response = self.commit(request, &doc, places, |view| {
            let nothing = |reply: Reply| Update::nothing((reply, Told::default()));
            // Written before, by a commit whose reply was lost.
            if let Some(run) = books::read_run(view, &caller.tenant, &key.id)? {
                return Ok(nothing(created(&run)));
            }
            if is_only && let Some(there) = view.doc(&latest)? {
                let id = String::from_utf8_lossy(&there.value).into_owned();
                let active = books::read_run(view, &caller.tenant, &id)?;
                if active.is_some_and(|run| !run.status.is_terminal()) {
                    return Ok(nothing(already_active(&id)));
                }
            }
            let bounds = self.host.0.settings.bounds;
            let begun = || create::run(new.clone(), &definition, bounds, view.now());
            let own = match begun() {
                Ok(own) => own,
                Err(refused) => return Ok(nothing(Reply::invalid(refused.to_string()))),
            };
            let reply = created(&own.run);
            let again = || begun().expect("invariant: it began a moment ago");
            let first = self.host.compute_first(view, &key, own, &definition, again)?;
            let Change { run, value, writes, mut told, .. } = first;
            if run.status == Status::Running {
                told.ready.push(key.clone());
            }
            let mut update = Update::to(value, (reply, told)).writes(writes);
            if is_only {
                update = update.write(Write::Put(latest.clone(), Bytes::from(key.id.clone())));
            }
            Ok(update)
        });
        Ok(response.await)
    }

    /// The run of a workflow that is to be the only one, if it is under way.
    async fn active(&self, latest: &Doc, caller: &Caller) -> Result<Option<String>, Reply> {
        let look = self.host.engine().update(latest, Vec::new(), |view| {
            let Some(there) = view.doc(latest)? else { return Ok(Update::nothing(None)) };
            let id = String::from_utf8_lossy(&there.value).into_owned();
            let run = books::read_run(view, &caller.tenant, &id)?;
            let is_active = run.is_some_and(|run| !run.status.is_terminal());
            Ok(Update::nothing(is_active.then_some(id)))
        });
        look.await.map_err(|error| Reply::failed(&error))
    }

    /// Answers without a change; what is final is kept under the key.
    pub(super) async fn answer_only(
        &self,
        request: &WholeRequest<'_>,
        caller: &Caller,
        reply: Reply,
    ) -> Response<ReplyBody> {
        let anchor = books::tenant_doc(books::HOOKS, &caller.tenant);
        let say = |_: &_| Ok(Update::nothing((reply.clone(), Told::default())));
        self.commit(request, &anchor, Vec::new(), say).await
    }

    pub(super) async fn look(&self, caller: &Caller, run: &str) -> Result<Reply, Reply> {
        let key = caller.run(run)?;
        let found = self.host.seen(&key).await.map_err(|error| Reply::failed(&error))?;
        let (run, now) = found.ok_or_else(no_run)?;
        Ok(Reply::ok(self.host.shown(&run, now, caller.may_answer)))
    }

    pub(super) async fn list(&self, parts: &Parts, caller: &Caller) -> Result<Reply, Reply> {
        let limit = ask::query(parts, "limit").and_then(|text| text.parse::<usize>().ok());
        let limit = limit.unwrap_or(50).clamp(1, LISTED_MAX);
        let after = ask::query(parts, "after");
        let after = after.as_deref().map(|id| (&caller.tenant, id));
        let listed = Records::of(&self.host).list(Some(&caller.tenant), after, limit).await;
        let page = listed.map_err(|error| Reply::failed(&error))?;
        let shown: Vec<Value> = page
            .runs
            .iter()
            .map(|run| {
                json!({
                    "runId": run.id, "workflowId": run.workflow, "status": run.status.as_str(),
                    "createdAt": rfc3339(run.created), "tags": run.tags,
                })
            })
            .collect();
        let next = page.next.map(|(_, id)| id);
        Ok(Reply::ok(json!({"runs": shown, "next": next})))
    }

    pub(super) async fn cancel(
        &self,
        request: &WholeRequest<'_>,
        caller: &Caller,
        run: &str,
    ) -> Result<Response<ReplyBody>, Reply> {
        let asked: Cancel = ask::body(request.body()).map_err(Reply::invalid)?;
        let act = |machine: &mut super::StoreMachine<'_, S>| {
            machine.cancel(asked.reason.as_deref(), Some(caller.actor()))?;
            Ok(Ok(()))
        };
        let reply = |(): &(), run: &Run| Reply::ok(standing(run));
        Ok(self.act(request, caller, run, act, reply).await)
    }

    pub(super) async fn bulk_cancel(
        &self,
        request: &WholeRequest<'_>,
        caller: &Caller,
    ) -> Result<Response<ReplyBody>, Reply> {
        let asked: BulkCancel = ask::body(request.body()).map_err(Reply::invalid)?;
        if asked.run_ids.is_empty() {
            return Err(Reply::invalid("runIds must name at least one run"));
        }
        if asked.run_ids.len() > BULK_MAX {
            let text = format!("runIds may name {BULK_MAX} runs");
            return Err(Reply::invalid(text).with("maxRunIds", BULK_MAX));
        }
        let keys: Vec<_> = asked.run_ids.iter().map(|id| (id, caller.run(id))).collect();
        let mut places = books::read_by_steps(&caller.tenant);
        places
            .extend(keys.iter().filter_map(|(_, key)| Some(Place::Doc(key.as_ref().ok()?.doc()))));
        // Runs that end together are anchored in a document of their tenant's.
        let anchor = books::tenant_doc(books::ONLY, &caller.tenant);
        Ok(self
            .commit(request, &anchor, places, |view| {
                let (mut results, mut told, mut writes) = (Vec::new(), Told::default(), Vec::new());
                let mut seen = std::collections::HashSet::new();
                for (id, key) in &keys {
                    let Ok(key) = key else {
                        results.push(unknown(id));
                        continue;
                    };
                    // Named twice, or ended with the run that it is part of.
                    if !seen.insert(key.id.clone()) {
                        results.push(json!({"runId": key.id, "ok": true, "status": "cancelled"}));
                        continue;
                    }
                    let computed = self.host.compute(view, key, |machine| {
                        machine.cancel(asked.reason.as_deref(), Some(caller.actor()))
                    })?;
                    match computed {
                        Computed::Missing | Computed::Lost(_) => results.push(unknown(id)),
                        Computed::Same((), run) => results.push(ended(&run)),
                        Computed::Changed((), change) => {
                            let Change { run, value, writes: more, told: tell, .. } = *change;
                            results.push(ended(&run));
                            writes.push(Write::Put(key.doc(), value));
                            writes.extend(more);
                            seen.extend(tell.changed.iter().map(|(key, _)| key.id.clone()));
                            told.changed.extend(tell.changed);
                            told.ready.extend(tell.ready);
                            told.has_deliveries |= tell.has_deliveries;
                        }
                    }
                }
                let reply = Reply::ok(json!({"results": results}));
                if writes.is_empty() {
                    return Ok(Update::nothing((reply, told)));
                }
                let stamp = view.now().as_millis().to_string();
                Ok(Update::to(stamp, (reply, told)).writes(writes))
            })
            .await)
    }

    pub(super) async fn pause(
        &self,
        request: &WholeRequest<'_>,
        caller: &Caller,
        run: &str,
    ) -> Result<Response<ReplyBody>, Reply> {
        let asked: Pause = ask::body(request.body()).map_err(Reply::invalid)?;
        let drain = asked.drain_policy.unwrap_or(Drain::DrainCurrentNode);
        let act = |machine: &mut super::StoreMachine<'_, S>| {
            let (paused, now) = (machine.pause(drain, asked.reason.as_deref()), machine.now_ms());
            Ok(paused.map(|()| now).map_err(|CannotPause(status, since)| {
                let text = format!("a run that is {} cannot be paused", status.as_str());
                let refused = Reply::conflict("run_not_pausable", text);
                let refused = refused.with("runStatus", status.as_str());
                match since {
                    Some(since) => refused.with("pausedAt", rfc3339(since)),
                    None => refused,
                }
            }))
        };
        let reply = |now: &u64, run: &Run| accepted(run, "pausedAt", *now);
        Ok(self.act(request, caller, run, act, reply).await)
    }

    pub(super) async fn resume(
        &self,
        request: &WholeRequest<'_>,
        caller: &Caller,
        run: &str,
    ) -> Result<Response<ReplyBody>, Reply> {
        let act = |machine: &mut super::StoreMachine<'_, S>| {
            let (resumed, now) = (machine.resume(), machine.now_ms());
            Ok(resumed.map(|()| now).map_err(|CannotResume(status)| {
                let text = format!("a run that is {} cannot be resumed", status.as_str());
                Reply::conflict("run_not_paused", text).with("runStatus", status.as_str())
            }))
        };
        let reply = |now: &u64, run: &Run| accepted(run, "resumedAt", *now);
        Ok(self.act(request, caller, run, act, reply).await)
    }
}

/// The run that is asked for, with a name of its own.
fn new_run(asked: CreateRun, caller: &Caller) -> NewRun {
    let owner = Owner { tenant: caller.tenant.as_str().to_owned(), principal: caller.name.clone() };
    NewRun {
        configurable: asked.configurable.unwrap_or_default(),
        tags: asked.tags.unwrap_or_default(),
        metadata: asked.metadata.unwrap_or_default(),
        scope_id: asked.scope_id,
        ..NewRun::of(create::new_id(), owner, asked.inputs.unwrap_or_default())
    }
}

/// What is said of a run that was created: how it began, wherever it has come since.
fn created(run: &Run) -> Reply {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Said<'a> {
        run_id: &'a str,
        status: Status,
        workflow_id: &'a str,
        events_url: &'a str,
        status_url: &'a str,
        created_at: String,
    }

    let status_url = format!("/v1/runs/{}", run.id);
    let said = Said {
        run_id: &run.id,
        status: Status::Running,
        workflow_id: &run.workflow,
        events_url: &format!("{status_url}/events"),
        status_url: &status_url,
        created_at: rfc3339(run.created),
    };
    Reply::written(StatusCode::CREATED, &said)
}

fn standing(run: &Run) -> Value {
    json!({"runId": run.id, "status": run.status.as_str()})
}

fn unknown(id: &str) -> Value {
    let error = json!({"code": "not_found", "message": "there is no such run"});
    json!({"runId": id, "ok": false, "error": error})
}

fn ended(run: &Run) -> Value {
    json!({"runId": run.id, "ok": true, "status": run.status.as_str()})
}

fn accepted(run: &Run, stamp: &str, now: u64) -> Reply {
    let mut body = standing(run);
    body[stamp] = json!(rfc3339(now));
    Reply::new(StatusCode::ACCEPTED, body)
}

fn already_active(id: &str) -> Reply {
    Reply::conflict("run_already_active", "a run of this workflow is under way")
        .with("activeRunId", id)
        .with("activeHost", "this")
        .with("retryAfter", 5)
}
