//! What a host of workflows offers operators: its runs, listed, shown, followed and ended.
//!
//! This crate knows no host. Whoever puts a program together brings one as [`Runs`]; [`RunsDesk`]
//! checks what operators ask before it gets there, the same for the HTTP routes and the command
//! line. Nothing here drives a run.

use std::time::Duration;

use onetake_core::{Actor, Code, Tenant};
use onetake_engine::RunError;

use crate::ask;
use crate::reply::problem;
use crate::wire::{
    CancelAsk, CancelDone, EventsAsk, EventsPage, Problem, RunShown, RunsAsk, RunsPage,
};

/// Rows of a page, unless said otherwise.
const ROWS_DEFAULT: usize = 100;
/// The most rows of a page.
const ROWS_MAX: usize = 1_000;
/// The longest reason, in bytes.
const REASON_BYTES_MAX: usize = 1_000;
/// The longest name of a run, in bytes.
const RUN_BYTES_MAX: usize = 255;
/// How long a request may wait for an event: less than any request may take.
pub const EVENTS_WAIT_MAX: Duration = Duration::from_secs(20);

/// Which run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPlace {
    /// Whose it is.
    pub tenant: Tenant,
    /// Its name.
    pub run: String,
}

/// Which runs of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunsQuery {
    /// Only those of this tenant.
    pub tenant: Option<Tenant>,
    /// Only those that stand so; the host knows the words.
    pub status: Option<String>,
    /// Only those of this name.
    pub run: Option<String>,
    /// Behind this one.
    pub after: Option<RunPlace>,
}

/// Why nothing came of what an operator asked of a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunsError {
    /// There is no host, or it cannot do it.
    #[error("{0}")]
    NotSupported(&'static str),
    /// There is no such run. Nothing was changed.
    #[error("there is no such run")]
    Missing,
    /// What was asked is none of the host's words. Nothing was changed.
    #[error("{0}")]
    Invalid(String),
    /// The run has ended otherwise. Nothing was changed.
    #[error("the run has ended: it is {0}")]
    Ended(String),
    /// The store failed; after [`RunError::ExecutedNotRecorded`] the act may be done.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl RunsError {
    /// The stable code of this refusal or failure.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::NotSupported(_) => Code::NotSupported,
            Self::Missing => Code::RecordMissing,
            Self::Invalid(_) => Code::RequestInvalid,
            Self::Ended(_) => Code::AlreadySettled,
            // To an operator it is an act that may be done or not.
            Self::Run(RunError::ExecutedNotRecorded) => Code::ActUncertain,
            Self::Run(error) => error.code(),
        }
    }
}

impl From<RunsError> for Problem {
    fn from(error: RunsError) -> Self {
        problem(error.code(), error.to_string())
    }
}

/// What a host of workflows offers operators.
///
/// # Cancel safety
/// Dropping the future of `cancel` leaves the run ended or as it was; asking again is safe. The
/// others only read.
pub trait Runs: Clone + Send + Sync + 'static {
    /// One page of runs, at most `limit`.
    fn list(
        &self,
        query: &RunsQuery,
        limit: usize,
    ) -> impl Future<Output = Result<RunsPage, RunsError>> + Send;

    /// One run.
    fn show(&self, place: &RunPlace) -> impl Future<Output = Result<RunShown, RunsError>> + Send;

    /// Ends a run in the name of `by`.
    fn cancel(
        &self,
        by: &Actor,
        place: &RunPlace,
        reason: Option<&str>,
    ) -> impl Future<Output = Result<CancelDone, RunsError>> + Send;

    /// Events of a run from the sequence `from` on: those there are, or those that come `within`.
    fn events(
        &self,
        place: &RunPlace,
        from: u64,
        within: Duration,
    ) -> impl Future<Output = Result<EventsPage, RunsError>> + Send;
}

/// Where what an operator asks of a host is carried out. Takes and gives the types of
/// [`crate::wire`].
#[derive(Debug, Clone)]
pub struct RunsDesk<R>(R);

impl<R: Runs> RunsDesk<R> {
    /// The desk of `runs`.
    #[must_use]
    pub const fn new(runs: R) -> Self {
        Self(runs)
    }

    /// One page of runs.
    ///
    /// # Errors
    /// A [`Problem`]; nothing was changed.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn list(&self, list: &RunsAsk) -> Result<RunsPage, Problem> {
        let query = RunsQuery {
            tenant: list.tenant.as_deref().map(ask::tenant).transpose()?,
            status: list.status.clone(),
            run: list.run.as_deref().map(run).transpose()?,
            after: list.after.as_deref().map(bookmark).transpose()?,
        };
        let limit = list.limit.unwrap_or(ROWS_DEFAULT).clamp(1, ROWS_MAX);
        Ok(self.0.list(&query, limit).await?)
    }

    /// The run of `tenant` that is called `name`.
    ///
    /// # Errors
    /// A [`Problem`]; nothing was changed.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn show(&self, tenant: &str, name: &str) -> Result<RunShown, Problem> {
        Ok(self.0.show(&place(tenant, name)?).await?)
    }

    /// Ends the run of `tenant` that is called `name`, in the name of `by`.
    ///
    /// # Errors
    /// A [`Problem`]; unless it is `act_uncertain`, nothing was changed.
    ///
    /// # Cancel safety
    /// As [`Runs::cancel`].
    pub async fn cancel(
        &self,
        by: Option<&str>,
        tenant: &str,
        name: &str,
        cancel: &CancelAsk,
    ) -> Result<CancelDone, Problem> {
        let (by, place) = (ask::actor(by)?, place(tenant, name)?);
        let reason = cancel.reason.as_deref();
        if reason.is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
            let why = format!("reason: at most {REASON_BYTES_MAX} bytes");
            return Err(problem(Code::RequestInvalid, why));
        }
        Ok(self.0.cancel(&by, &place, reason).await?)
    }

    /// Events of the run of `tenant` that is called `name`.
    ///
    /// # Errors
    /// A [`Problem`]; nothing was changed.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn events(
        &self,
        tenant: &str,
        name: &str,
        events: &EventsAsk,
    ) -> Result<EventsPage, Problem> {
        let wait = events.wait.as_deref().map(|text| ask::span("wait", text)).transpose()?;
        let wait = wait.unwrap_or_default().min(EVENTS_WAIT_MAX);
        Ok(self.0.events(&place(tenant, name)?, events.from.unwrap_or(0), wait).await?)
    }
}

fn place(tenant: &str, name: &str) -> Result<RunPlace, Problem> {
    Ok(RunPlace { tenant: ask::tenant(tenant)?, run: run(name)? })
}

fn run(name: &str) -> Result<String, Problem> {
    if name.is_empty() || name.len() > RUN_BYTES_MAX {
        let why = format!("run: a name has 1 to {RUN_BYTES_MAX} bytes");
        return Err(problem(Code::RequestInvalid, why));
    }
    Ok(name.to_owned())
}

/// Where an earlier page ended: a tenant and a run.
fn bookmark(text: &str) -> Result<RunPlace, Problem> {
    let invalid = || problem(Code::RequestInvalid, "after: not where a page ended");
    // The name of a run has no slash; that of a tenant may have some.
    let (tenant, name) = text.rsplit_once('/').ok_or_else(invalid)?;
    place(tenant, name)
}

impl RunPlace {
    /// As a page names where it ended.
    #[must_use]
    pub fn bookmark(&self) -> String {
        format!("{}/{}", self.tenant.as_str(), self.run)
    }
}

/// No host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRuns;

/// What is said where there is no host.
const NO_HOST: RunsError = RunsError::NotSupported("this process has no workflow host");

impl Runs for NoRuns {
    async fn list(&self, _query: &RunsQuery, _limit: usize) -> Result<RunsPage, RunsError> {
        Err(NO_HOST)
    }

    async fn show(&self, _place: &RunPlace) -> Result<RunShown, RunsError> {
        Err(NO_HOST)
    }

    async fn cancel(
        &self,
        _by: &Actor,
        _place: &RunPlace,
        _reason: Option<&str>,
    ) -> Result<CancelDone, RunsError> {
        Err(NO_HOST)
    }

    async fn events(
        &self,
        _place: &RunPlace,
        _from: u64,
        _within: Duration,
    ) -> Result<EventsPage, RunsError> {
        Err(NO_HOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bookmark_names_a_run_and_nothing_else_does() {
        let there = RunPlace { tenant: Tenant::new("a/b").unwrap(), run: "run-1".to_owned() };
        assert_eq!(bookmark(&there.bookmark()), Ok(there));
        let long = format!("acme/{}", "x".repeat(RUN_BYTES_MAX + 1));
        for bad in ["", "run-1", "acme/", "/run-1", &long] {
            assert!(bookmark(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_refusal_of_a_host_has_its_code() {
        let of = |error: RunsError| Problem::from(error).code;
        assert_eq!(of(NO_HOST), "not_supported");
        assert_eq!(of(RunsError::Missing), "record_missing");
        assert_eq!(of(RunsError::Ended("completed".to_owned())), "already_settled");
        assert_eq!(of(RunsError::Run(RunError::ExecutedNotRecorded)), "act_uncertain");
        assert_eq!(of(RunsError::Run(RunError::Stopping)), "stopping");
    }
}
