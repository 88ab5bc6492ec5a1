//! The routes of the admin surface.
//!
//! Each takes JSON or a query, asks the [`Desk`] and answers in JSON; a refusal is always a problem
//! (RFC 9457) with a stable code. Only the health checks are outside the guard: they say nothing
//! but whether the store answers.

mod runs;

use axum::Router;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Json, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use onetake_core::Code;
use onetake_engine::Journal;
use onetake_engine::operate::What;
use serde::{Deserialize, Serialize};

use crate::desk::Desk;
use crate::guard::{Guard, admit};
use crate::reply::problem;
use crate::runs::{NoRuns, Runs, RunsDesk};
use crate::upkeep::Upkeep;
use crate::wire::{
    AuditAsk, BackupAsk, ListAsk, OPERATOR_HEADER, Problem, PurgeAsk, ReleaseAsk, ResolveAsk,
};

/// The largest body that is taken, but for an outcome.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The largest outcome that an operator gives, as JSON.
const OUTCOME_BYTES_MAX: usize = 24 * 1024 * 1024;

/// The admin surface of `desk`, behind `guard`, in a process that hosts no workflows.
pub fn router<S: Journal + Upkeep>(desk: Desk<S>, guard: Guard) -> Router {
    router_with(desk, RunsDesk::new(NoRuns), guard)
}

/// The admin surface of `desk` and of the runs of `runs`, behind `guard`.
pub fn router_with<S: Journal + Upkeep, R: Runs>(
    desk: Desk<S>,
    runs: RunsDesk<R>,
    guard: Guard,
) -> Router {
    let outcome = DefaultBodyLimit::max(OUTCOME_BYTES_MAX);
    let guarded = Router::new()
        .route("/v1/keys", get(list::<S>))
        .route("/v1/keys/{tenant}/{slot}", get(show::<S>))
        .route("/v1/keys/{tenant}/{slot}/release", post(release::<S>))
        .route("/v1/keys/{tenant}/{slot}/resolve", post(resolve::<S>).layer(outcome))
        .route("/v1/purge", post(purge::<S>))
        .route("/v1/audit", get(audit::<S>))
        .route("/v1/store/stats", get(stats::<S>))
        .route("/v1/store/backup", post(backup::<S>))
        .route("/v1/store/rotate", post(rotate::<S>))
        .merge(runs::routes(runs).with_state(()))
        .fallback(async || problem(Code::RouteMissing, "there is no such path"))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(guard, admit));
    let open = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready::<S>))
        .method_not_allowed_fallback(method_not_allowed);
    open.merge(guarded).with_state(desk)
}

async fn method_not_allowed() -> Problem {
    let status = StatusCode::METHOD_NOT_ALLOWED.as_u16();
    Problem { status, ..problem(Code::RouteMissing, "this path has another method") }
}

/// What was answered, as JSON.
type Said<T> = Result<Json<T>, Problem>;

/// Whether the store answers.
async fn ready<S: Journal + Upkeep>(State(desk): State<Desk<S>>) -> Response {
    let asked = desk.audit(&AuditAsk { after: None, limit: Some(1) }).await;
    match asked {
        Ok(_) => "ok\n".into_response(),
        Err(problem) => problem.into_response(),
    }
}

async fn list<S: Journal + Upkeep>(
    State(desk): State<Desk<S>>,
    ask: Result<Query<ListAsk>, QueryRejection>,
) -> Said<impl Serialize> {
    desk.list(&queried(ask)?).await.map(Json)
}

/// Which record: tenant and slot.
type Place = Result<Path<(String, String)>, PathRejection>;

/// How a record is shown.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShowAsk {
    /// Whether the content of the outcome is wanted.
    #[serde(default)]
    body: bool,
}

async fn show<S: Journal + Upkeep>(
    State(desk): State<Desk<S>>,
    place: Place,
    ask: Result<Query<ShowAsk>, QueryRejection>,
) -> Said<impl Serialize> {
    let (tenant, slot) = placed(place)?;
    let what = if queried(ask)?.body { What::Content } else { What::Summary };
    desk.show(&tenant, &slot, what).await.map(Json)
}

async fn release<S: Journal + Upkeep>(
    State(desk): State<Desk<S>>,
    place: Place,
    headers: HeaderMap,
    ask: Result<Json<ReleaseAsk>, JsonRejection>,
) -> Said<impl Serialize> {
    let (tenant, slot) = placed(place)?;
    desk.release(operator(&headers)?, &tenant, &slot, &sent(ask)?).await.map(Json)
}

async fn resolve<S: Journal + Upkeep>(
    State(desk): State<Desk<S>>,
    place: Place,
    headers: HeaderMap,
    ask: Result<Json<ResolveAsk>, JsonRejection>,
) -> Said<impl Serialize> {
    let (tenant, slot) = placed(place)?;
    desk.resolve(operator(&headers)?, &tenant, &slot, &sent(ask)?).await.map(Json)
}

async fn purge<S: Journal + Upkeep>(
    State(desk): State<Desk<S>>,
    headers: HeaderMap,
    ask: Result<Json<PurgeAsk>, JsonRejection>,
) -> Said<impl Serialize> {
    desk.purge(operator(&headers)?, &sent(ask)?).await.map(Json)
}

async fn audit<S: Journal + Upkeep>(
    State(desk): State<Desk<S>>,
    ask: Result<Query<AuditAsk>, QueryRejection>,
) -> Said<impl Serialize> {
    desk.audit(&queried(ask)?).await.map(Json)
}

async fn stats<S: Journal + Upkeep>(State(desk): State<Desk<S>>) -> Said<impl Serialize> {
    desk.stats().await.map(Json)
}

async fn rotate<S: Journal + Upkeep>(State(desk): State<Desk<S>>) -> Said<impl Serialize> {
    desk.rotate().await.map(Json)
}

async fn backup<S: Journal + Upkeep>(
    State(desk): State<Desk<S>>,
    ask: Result<Json<BackupAsk>, JsonRejection>,
) -> Said<impl Serialize> {
    desk.backup(&sent(ask)?).await.map(Json)
}

/// Who acts, where the request says so.
fn operator(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let name = headers.get(OPERATOR_HEADER).map(|value| {
        // The value of a header may be any bytes; a name is text.
        str::from_utf8(value.as_bytes())
            .map_err(|_| problem(Code::RequestInvalid, "onetake-operator: must be text"))
    });
    name.transpose()
}

fn placed(place: Place) -> Result<(String, String), Problem> {
    let Path(place) = place.map_err(|why| problem(Code::RequestInvalid, why.body_text()))?;
    Ok(place)
}

fn queried<T>(ask: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    let Query(ask) = ask.map_err(|why| problem(Code::RequestInvalid, why.body_text()))?;
    Ok(ask)
}

fn sent<T>(ask: Result<Json<T>, JsonRejection>) -> Result<T, Problem> {
    let refused = |why: JsonRejection| {
        if why.status() == StatusCode::PAYLOAD_TOO_LARGE {
            return problem(Code::TooLarge, "the body is too large");
        }
        // The words of a parser may quote the body, so only the place is said.
        let text = why.body_text();
        let place = match text.split_once("target type: ") {
            Some((_, rest)) => rest.split([':', '"']).next().unwrap_or_default(),
            None => "send JSON, and say so in content-type",
        };
        problem(Code::RequestInvalid, format!("the body is not what it should be: {place}"))
    };
    let Json(ask) = ask.map_err(refused)?;
    Ok(ask)
}
