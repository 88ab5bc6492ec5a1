//! The routes that are about runs of workflows.
//!
//! Like the others: JSON or a query in, what the desk says out. The guard is put around them by
//! whoever takes them in.

use axum::Router;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Json, Query, State};
use axum::http::HeaderMap;
use axum::routing::{get, post};
use serde::Serialize;

use super::{Place, Said, operator, placed, queried, sent};
use crate::runs::{Runs, RunsDesk};
use crate::wire::{CancelAsk, EventsAsk, RunsAsk};

/// The routes of `desk`.
pub(super) fn routes<R: Runs>(desk: RunsDesk<R>) -> Router {
    Router::new()
        .route("/v1/runs", get(list::<R>))
        .route("/v1/runs/{tenant}/{run}", get(show::<R>))
        .route("/v1/runs/{tenant}/{run}/cancel", post(cancel::<R>))
        .route("/v1/runs/{tenant}/{run}/events", get(events::<R>))
        .with_state(desk)
}

async fn list<R: Runs>(
    State(desk): State<RunsDesk<R>>,
    ask: Result<Query<RunsAsk>, QueryRejection>,
) -> Said<impl Serialize> {
    desk.list(&queried(ask)?).await.map(Json)
}

async fn show<R: Runs>(State(desk): State<RunsDesk<R>>, place: Place) -> Said<impl Serialize> {
    let (tenant, run) = placed(place)?;
    desk.show(&tenant, &run).await.map(Json)
}

async fn cancel<R: Runs>(
    State(desk): State<RunsDesk<R>>,
    place: Place,
    headers: HeaderMap,
    ask: Result<Json<CancelAsk>, JsonRejection>,
) -> Said<impl Serialize> {
    let (tenant, run) = placed(place)?;
    desk.cancel(operator(&headers)?, &tenant, &run, &sent(ask)?).await.map(Json)
}

async fn events<R: Runs>(
    State(desk): State<RunsDesk<R>>,
    place: Place,
    ask: Result<Query<EventsAsk>, QueryRejection>,
) -> Said<impl Serialize> {
    let (tenant, run) = placed(place)?;
    desk.events(&tenant, &run, &queried(ask)?).await.map(Json)
}
