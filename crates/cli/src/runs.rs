//! The runs of a workflow host, as operators see them: from its books to the words of the admin
//! surface.
//!
//! The one place that knows both. It reads through [`Records`], so it works where a host runs in
//! this process and where none does, and it drives nothing.

use std::time::Duration;

use onetake::Engine;
use onetake::core::{Actor, Tenant};
use onetake_console::wire::{
    CancelDone, EventsPage, NodeRow, RunFailure, RunRow, RunShown, RunsPage, VeiledJson, Waits,
};
use onetake_console::{RunPlace, Runs, RunsError, RunsQuery};
use onetake_openwop::{
    Failure, Host, NodeState, NodeStatus, Records, Run, RunEnded, RunEvents, RunRecord, Status,
};
use serde_json::Value;

use crate::wiring::AnyStore;

/// Runs that are read at once.
const READ: usize = 100;
/// Runs that are looked at for one page at the most.
const LOOKED_AT_MAX: usize = 2_000;
/// Where a run may stand.
const STATUSES: [Status; 10] = [
    Status::Pending,
    Status::Running,
    Status::Paused,
    Status::WaitingApproval,
    Status::WaitingInput,
    Status::WaitingExternal,
    Status::Cancelling,
    Status::Completed,
    Status::Failed,
    Status::Cancelled,
];

/// The runs of a store, with or without a host that drives them.
#[derive(Debug, Clone)]
pub(crate) struct HostRuns(Records<AnyStore>);

impl HostRuns {
    /// Those of a store that no host of this process drives.
    pub(crate) const fn at_rest(engine: Engine<AnyStore>) -> Self {
        Self(Records::at_rest(engine))
    }

    /// Those of `host`, or of the store of `engine` where there is none.
    pub(crate) fn of(host: Option<&Host<AnyStore>>, engine: &Engine<AnyStore>) -> Self {
        host.map_or_else(|| Self::at_rest(engine.clone()), |host| Self(Records::of(host)))
    }

    /// Whether anybody may be driving what has not ended.
    fn is_driven(&self) -> bool {
        self.0.is_hosted() || !self.0.engine().store().is_alone()
    }

    async fn named(&self, query: &RunsQuery, name: &str) -> Result<RunsPage, RunsError> {
        if let Some(tenant) = &query.tenant {
            let found = self.0.get(tenant, name).await?;
            let now_ms = found.as_ref().map_or(0, |found| found.now.as_millis());
            let runs = found.iter().map(|found| row(&found.run)).collect();
            return Ok(RunsPage { runs, next: None, now_ms });
        }
        let found = self.0.named(name).await?;
        if !found.is_all {
            let why = "there are too many tenants to ask them all; name the tenant";
            return Err(RunsError::Invalid(why.to_owned()));
        }
        let now_ms = found.now.as_millis();
        Ok(RunsPage { runs: found.runs.iter().map(row).collect(), next: None, now_ms })
    }
}

impl Runs for HostRuns {
    async fn list(&self, query: &RunsQuery, limit: usize) -> Result<RunsPage, RunsError> {
        let status = query.status.as_deref().map(status).transpose()?;
        let fits = |run: &Run| status.is_none_or(|status| run.status == status);
        if let Some(name) = &query.run {
            let page = self.named(query, name).await?;
            let fits = |row: &RunRow| status.is_none_or(|status| row.status == status.as_str());
            let runs = page.runs.into_iter().filter(fits).collect();
            return Ok(RunsPage { runs, ..page });
        }
        let (mut runs, mut looked_at) = (Vec::new(), 0);
        let mut after = query.after.clone();
        loop {
            let behind = after.as_ref().map(|place| (&place.tenant, place.run.as_str()));
            let wanted = if status.is_some() { READ } else { READ.min(limit - runs.len()) };
            let page = self.0.list(query.tenant.as_ref(), behind, wanted).await?;
            looked_at += wanted;
            let next = page.next.map(|(tenant, run)| RunPlace { tenant, run });
            let mut fitting = page.runs.iter().filter(|run| fits(run));
            runs.extend(fitting.by_ref().take(limit - runs.len()).map(row));
            // What did not fit on the page any more is where the next one begins.
            let cut = if fitting.next().is_some() { runs.last().and_then(place) } else { None };
            let now_ms = page.now.as_millis();
            let is_full = cut.is_some() || runs.len() >= limit || looked_at >= LOOKED_AT_MAX;
            if is_full || next.is_none() {
                let next = cut.or(next).map(|place| place.bookmark());
                return Ok(RunsPage { runs, next, now_ms });
            }
            after = next;
        }
    }

    async fn show(&self, place: &RunPlace) -> Result<RunShown, RunsError> {
        let found = self.0.get(&place.tenant, &place.run).await?;
        Ok(shown(&found.ok_or(RunsError::Missing)?))
    }

    async fn cancel(
        &self,
        by: &Actor,
        place: &RunPlace,
        reason: Option<&str>,
    ) -> Result<CancelDone, RunsError> {
        let ended = self.0.cancel(&place.tenant, &place.run, by, reason).await?;
        let RunEnded { run, is_new, .. } = ended.ok_or(RunsError::Missing)?;
        if run.status != Status::Cancelled {
            return Err(RunsError::Ended(run.status.as_str().to_owned()));
        }
        Ok(CancelDone { row: row(&run), repeated: !is_new })
    }

    async fn events(
        &self,
        place: &RunPlace,
        from: u64,
        within: Duration,
    ) -> Result<EventsPage, RunsError> {
        let driven = self.is_driven();
        // Nothing comes where nobody drives.
        let within = if driven { within } else { Duration::ZERO };
        let told = self.0.events(&place.tenant, &place.run, from, within).await?;
        let RunEvents { events, next, run, is_over } = told.ok_or(RunsError::Missing)?;
        let events = events.into_iter().map(VeiledJson).collect();
        let status = run.status.as_str().to_owned();
        Ok(EventsPage { events, next, status, over: is_over, driven })
    }
}

fn status(text: &str) -> Result<Status, RunsError> {
    let found = STATUSES.into_iter().find(|status| status.as_str() == text);
    found.ok_or_else(|| {
        let words = STATUSES.map(Status::as_str).join(", ");
        RunsError::Invalid(format!("status: must be one of {words}"))
    })
}

fn place(row: &RunRow) -> Option<RunPlace> {
    Some(RunPlace { tenant: Tenant::new(&row.tenant).ok()?, run: row.run.clone() })
}

fn row(run: &Run) -> RunRow {
    let node = run.current().filter(|_| !run.status.is_terminal());
    RunRow {
        tenant: run.owner.tenant.clone(),
        run: run.id.clone(),
        workflow: run.workflow.clone(),
        status: run.status.as_str().to_owned(),
        node: node.map(str::to_owned),
        created_ms: run.created,
        ended_ms: run.ended,
        events: run.events,
    }
}

fn shown(record: &RunRecord) -> RunShown {
    let RunRecord { run, inputs, variables, now } = record;
    let mut nodes: Vec<_> = run.nodes.iter().map(|(id, state)| node(id, state)).collect();
    nodes.sort_by_key(|node| (node.since_ms, node.ended_ms.unwrap_or(u64::MAX)));
    let waits = run.suspended().map(|(node, waited)| Waits {
        node: node.to_owned(),
        kind: waited.kind.as_str().to_owned(),
        key: waited.key.clone(),
        actions: waited.actions.clone(),
        data: VeiledJson(waited.data.clone()),
        since_ms: waited.requested,
        until_ms: waited.ends(),
    });
    RunShown {
        row: row(run),
        principal: run.owner.principal.clone(),
        nodes,
        waits,
        error: run.error.as_ref().map(failure),
        reason: run.reason.clone(),
        parent: run.parent.as_ref().map(|parent| parent.run.clone()),
        children: run.children.clone(),
        tags: run.tags.clone(),
        inputs: VeiledJson(Value::Object(inputs.clone())),
        variables: VeiledJson(Value::Object(variables.clone())),
        now_ms: now.as_millis(),
    }
}

fn node(id: &str, state: &NodeState) -> NodeRow {
    let status = match state.status {
        NodeStatus::Running => "running",
        NodeStatus::Waiting => "waiting",
        NodeStatus::Suspended => "suspended",
        NodeStatus::Delegated => "delegated",
        NodeStatus::Completed => "completed",
        NodeStatus::Failed => "failed",
        NodeStatus::Skipped => "skipped",
        NodeStatus::Cancelled => "cancelled",
    };
    NodeRow {
        node: id.to_owned(),
        status: status.to_owned(),
        attempt: state.attempt + 1,
        since_ms: state.since,
        ended_ms: state.ended,
        error: state.error.as_ref().map(failure),
        child: state.child.clone(),
    }
}

fn failure(failure: &Failure) -> RunFailure {
    RunFailure { code: failure.code.clone(), message: failure.message.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_of_the_hosts_words() {
        for known in STATUSES {
            assert_eq!(status(known.as_str()), Ok(known));
        }
        assert!(status("done").unwrap_err().to_string().contains("waiting-approval"));
    }
}
