//! Durable routes, as a service in axum has them.

mod common;

use axum::extract::{FromRef, State};
use axum::routing::get;
use axum::{Json, Router};
use common::{Count, ask, door, request};
use http::StatusCode;
use onetake_http::Idempotency;
use onetake_http::axum::{DurableRoutes, Take};
use serde_json::{Value, json};

#[derive(Clone)]
struct Shop {
    idempotency: Idempotency,
    orders: Count,
}

impl FromRef<Shop> for Idempotency {
    fn from_ref(shop: &Shop) -> Self {
        shop.idempotency.clone()
    }
}

/// Knows nothing of keys.
async fn create(State(shop): State<Shop>, Json(order): Json<Value>) -> (StatusCode, Json<Value>) {
    if order["sku"].is_null() {
        return (StatusCode::BAD_REQUEST, Json(json!({ "error": "sku is missing" })));
    }
    let id = shop.orders.up();
    (StatusCode::CREATED, Json(json!({ "id": id, "sku": order["sku"] })))
}

async fn told(take: Take) -> Json<Value> {
    let key = take.key().map(|key| key.as_str().to_owned());
    Json(json!({ "key": key, "attempt": take.number(), "recovery": take.is_recovery() }))
}

async fn maybe(take: Option<Take>) -> &'static str {
    if take.is_some() { "keyed" } else { "plain" }
}

fn shop() -> (Router, Count) {
    let shop = Shop { idempotency: door(), orders: Count::default() };
    let orders = shop.orders.clone();
    let app = Router::new()
        .durable_post("/orders", "orders.create", create)
        .durable_put("/told", "told.put", told)
        .durable_patch("/told", "told.patch", told)
        .durable_delete("/told", "told.delete", told)
        .route("/plain", get(maybe))
        .with_state(shop);
    (app, orders)
}

/// C1, C3, C5: reject, execute, replay, conflict; the handler runs for a new request only.
#[tokio::test]
async fn c1_c3_c5_a_durable_route_makes_four_decisions() {
    let (app, orders) = shop();
    let order = r#"{"sku":"p1"}"#;
    let missing = ask(&app, request("POST", "/orders", None, order)).await;
    assert_eq!((missing.status.as_u16(), missing.refusal()), (400, Some("key_missing")));
    let first = ask(&app, request("POST", "/orders", Some("k"), order)).await;
    assert_eq!((first.status.as_u16(), first.json()), (201, json!({ "id": 1, "sku": "p1" })));
    let again = ask(&app, request("POST", "/orders", Some("k"), order)).await;
    assert_eq!((again.status, again.json()), (first.status, first.json()));
    assert_eq!(again.header("content-type"), first.header("content-type"));
    let other = ask(&app, request("POST", "/orders", Some("k"), r#"{"sku":"p2"}"#)).await;
    assert_eq!(other.refusal(), Some("key_mismatch"));
    assert_eq!(orders.get(), 1);
}

/// C6: a validation error of the handler is an answer like any other.
#[tokio::test]
async fn c6_validation_errors_are_kept() {
    let (app, _) = shop();
    let first = ask(&app, request("POST", "/orders", Some("k"), "{}")).await;
    let again = ask(&app, request("POST", "/orders", Some("k"), "{}")).await;
    assert_eq!((again.status.as_u16(), again.json()), (400, first.json()));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
}

/// C5: a handler may read its key, its attempt and whether it is a recovery.
#[tokio::test]
async fn c5_a_handler_can_read_its_take() {
    let (app, _) = shop();
    for method in ["PUT", "PATCH", "DELETE"] {
        let heard = ask(&app, request(method, "/told", Some("k"), "")).await;
        let expected = json!({ "key": "k", "attempt": 1, "recovery": false });
        assert_eq!(heard.json(), expected, "{method}: C7, each is an operation of its own");
    }
    assert_eq!(ask(&app, request("GET", "/plain", None, "")).await.text(), "plain");
}

#[test]
#[should_panic(expected = "is not the name of an operation")]
fn an_operation_without_a_name_is_refused_when_the_router_is_made() {
    let _: Router<Shop> = Router::new().durable_post("/", "", create);
}

async fn of_account(
    State(shop): State<Shop>,
    axum::extract::Path(account): axum::extract::Path<String>,
) -> Json<Value> {
    Json(json!({ "account": account, "id": shop.orders.up() }))
}

/// C7: what a router has cut off before a nested one sees it was asked for all the same.
#[tokio::test]
async fn c7_a_mounted_path_is_part_of_what_was_asked() {
    let shop = || Shop { idempotency: door(), orders: Count::default() };
    let durable = Router::new().durable_post("/orders", "orders.create", of_account);
    let layered = Router::new().route("/orders", axum::routing::post(of_account));
    let layered = layered.layer(door().layer());
    for inner in [durable, layered] {
        let app = Router::new().nest("/accounts/{account}", inner).with_state(shop());
        let first = ask(&app, request("POST", "/accounts/1/orders", Some("k"), "{}")).await;
        assert_eq!(first.json()["account"], "1");
        let other = ask(&app, request("POST", "/accounts/2/orders", Some("k"), "{}")).await;
        assert_eq!(other.refusal(), Some("key_mismatch"), "{}", other.text());
        let again = ask(&app, request("POST", "/accounts/1/orders", Some("k"), "{}")).await;
        assert_eq!(again.json(), first.json());
    }
}
