//! What others tell a run to do: end, rest, go on.

use onetake_engine::Need;

use super::{Machine, World};
use crate::event::{Kind, Payload, payload};
use crate::run::{Drain, NodeStatus, Status};

/// Why a run cannot rest: it stands here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CannotPause(pub(crate) Status, pub(crate) Option<u64>);

/// Why a run cannot go on: it stands here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CannotResume(pub(crate) Status);

impl<W: World> Machine<'_, W> {
    /// Ends the run, and all that are part of it. One that has ended stays as it is.
    pub(crate) fn cancel(&mut self, reason: Option<&str>, by: Option<&str>) -> Result<(), Need> {
        if self.run.status.is_terminal() {
            return Ok(());
        }
        self.end_nodes("run-cancelled");
        self.end_children("parent-cancelled")?;
        self.run.reason = reason.map(str::to_owned);
        let mut payload = payload! {"cancelledBy": by.unwrap_or("system")};
        if let Some(reason) = reason {
            payload.add("reason", &reason);
        }
        self.end_cancelled(payload);
        Ok(())
    }

    /// Ends the run because the one that it is part of has ended.
    pub(super) fn cancel_by_parent(&mut self, parent: &str, reason: &str) -> Result<(), Need> {
        self.end_nodes("run-cancelled");
        self.end_children("parent-cancelled")?;
        self.run.reason = Some(reason.to_owned());
        let payload = payload! {"cancelledBy": "system", "reason": reason, "parentRunId": parent};
        self.end_cancelled(payload);
        Ok(())
    }

    fn end_cancelled(&mut self, payload: Payload) {
        self.run.status = Status::Cancelled;
        self.run.ended = Some(self.now.as_millis());
        self.run.pausing = None;
        self.tell(Kind::RunCancelled, None, payload);
    }

    /// Lets the run rest, at once or after what is under way.
    pub(crate) fn pause(&mut self, drain: Drain, reason: Option<&str>) -> Result<(), CannotPause> {
        let status = self.run.status;
        let rests = status == Status::Paused || self.run.pausing.is_some();
        if status.is_terminal() || status.is_waiting() || rests {
            return Err(CannotPause(status, self.run.paused.map(|(since, _)| since)));
        }
        self.run.pausing = Some(drain);
        self.run.reason = reason.map(str::to_owned);
        let is_busy = self.run.nodes.values().any(|state| {
            matches!(
                state.status,
                NodeStatus::Running | NodeStatus::Waiting | NodeStatus::Delegated
            )
        });
        if drain == Drain::Immediate || !is_busy {
            self.come_to_rest();
        }
        Ok(())
    }

    pub(super) fn come_to_rest(&mut self) {
        let drain = self.run.pausing.take().unwrap_or(Drain::Immediate);
        self.run.status = Status::Paused;
        self.run.paused = Some((self.now.as_millis(), drain));
        let mut payload = payload! {"drainPolicy": drain};
        if let Some(reason) = &self.run.reason {
            payload.add("reason", &reason);
        }
        self.tell(Kind::RunPaused, None, payload);
    }

    /// Lets the run go on.
    pub(crate) fn resume(&mut self) -> Result<(), CannotResume> {
        // One that was only asked to rest is asked no more.
        if self.run.pausing.take().is_some() {
            self.run.reason = None;
            return Ok(());
        }
        if self.run.status != Status::Paused {
            return Err(CannotResume(self.run.status));
        }
        self.run.status = Status::Running;
        let now = self.now.as_millis();
        // The time that a run rests is not its own.
        let rested = self.run.paused.map_or(0, |(since, _)| now.saturating_sub(since));
        self.run.deadline = self.run.deadline.map(|deadline| deadline.saturating_add(rested));
        (self.run.reason, self.run.paused) = (None, None);
        // Whatever waited for a point in time waits anew: it may have passed meanwhile.
        for state in self.run.nodes.values_mut().filter(|it| it.status == NodeStatus::Waiting) {
            let span = state.until.unwrap_or(now).saturating_sub(state.since);
            (state.since, state.until) = (now, Some(now.saturating_add(span)));
        }
        self.tell(Kind::RunResumed, None, payload! {});
        Ok(())
    }
}
