//! The service that is measured: an ordinary handler that reads JSON and answers with JSON.
//!
//! It knows nothing of keys and does nothing else, so that what is around it shows. Its answer is a
//! function of its request, so that whoever asks can compare every byte.

use axum::routing::post;
use axum::{Json, Router};
use http::StatusCode;
use serde::{Deserialize, Serialize};

pub(crate) const PATH: &str = "/orders";

#[derive(Serialize, Deserialize)]
struct Order {
    customer: String,
    currency: String,
    deliver_to: String,
    lines: Vec<OrderLine>,
    note: String,
}

#[derive(Serialize, Deserialize)]
struct OrderLine {
    sku: String,
    quantity: u32,
    price_cents: u32,
}

#[derive(Serialize)]
struct Placed {
    state: &'static str,
    total_cents: u32,
    #[serde(flatten)]
    order: Order,
}

fn order() -> Order {
    let line =
        |sku: &str, quantity, price_cents| OrderLine { sku: sku.into(), quantity, price_cents };
    Order {
        customer: "customer-00042".into(),
        currency: "EUR".into(),
        deliver_to: "Unter den Linden 1, 10117 Berlin".into(),
        lines: vec![line("kettle-blue-1l", 1, 4_990), line("tea-assam-250g", 3, 1_250)],
        note: "please ring twice".into(),
    }
}

fn placed(order: Order) -> Placed {
    let total_cents = order.lines.iter().map(|line| line.quantity * line.price_cents).sum();
    Placed { state: "placed", total_cents, order }
}

async fn create(Json(order): Json<Order>) -> (StatusCode, Json<Placed>) {
    (StatusCode::CREATED, Json(placed(order)))
}

/// The service.
pub(crate) fn app() -> Router {
    Router::new().route(PATH, post(create))
}

/// What is asked: about 300 bytes.
pub(crate) fn asked() -> Vec<u8> {
    serde_json::to_vec(&order()).expect("text and numbers")
}

/// What is answered: about 300 bytes.
pub(crate) fn answered() -> Vec<u8> {
    serde_json::to_vec(&placed(order())).expect("text and numbers")
}
