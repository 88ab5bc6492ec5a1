//! What the host is measured beside: an ordinary handler that reads JSON and answers with JSON.
//!
//! It is asked with the same bytes as the host and answers with as many. It knows nothing of keys,
//! verifies nobody and remembers nothing.

use std::collections::BTreeMap;

use axum::routing::post;
use axum::{Json, Router};
use http::StatusCode;
use serde::{Deserialize, Serialize};

/// Where runs are created, by both.
pub(crate) const PATH: &str = "/v1/runs";

/// Names of runs are all of one length.
const RUN: &str = "run-01890a5d-ac96-774b-bcce-b302099a8057";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    workflow_id: String,
    inputs: BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answered {
    run_id: &'static str,
    status: &'static str,
    workflow_id: String,
    events_url: String,
    status_url: String,
    created_at: &'static str,
}

fn created(workflow_id: String) -> Answered {
    Answered {
        run_id: RUN,
        status: "running",
        workflow_id,
        events_url: format!("{PATH}/{RUN}/events"),
        status_url: format!("{PATH}/{RUN}"),
        created_at: "2023-11-14T22:13:20.123Z",
    }
}

async fn create(Json(asked): Json<Asked>) -> (StatusCode, Json<Answered>) {
    (StatusCode::CREATED, Json(created(asked.workflow_id)))
}

/// The service.
pub(crate) fn app() -> Router {
    Router::new().route(PATH, post(create))
}

/// What is asked, of both.
pub(crate) fn asked(workflow: &str) -> Vec<u8> {
    let input = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let inputs = [
        input("customer", "customer-00042"),
        input("deliverTo", "Unter den Linden 1, 10117 Berlin"),
        input("note", "please ring twice"),
    ];
    let asked = Asked { workflow_id: workflow.to_owned(), inputs: inputs.into_iter().collect() };
    serde_json::to_vec(&asked).expect("text")
}

/// How long the answer is, of both.
pub(crate) fn answered_bytes(workflow: &str) -> usize {
    serde_json::to_vec(&created(workflow.to_owned())).expect("text").len()
}
