//! A small orders service whose retries are harmless: create, update, cancel, read.
//!
//! ```text
//! cargo run -p onetake-http --example orders --features axum
//!
//! curl -i http://127.0.0.1:3000/orders \
//!     -H 'authorization: Bearer token-of-acme' -H 'idempotency-key: order-1' \
//!     -H 'content-type: application/json' -d '{"sku":"kettle","quantity":1}'
//! ```
//!
//! Send that twice: the second answer is the first one, marked `idempotent-replayed: true`, and
//! there is one order. Send another body under the same key: 422. Kill the process, start it again
//! and send it once more: still the first answer.
//!
//! It is complete but for what a real service has of its own: the identities are a toy, and a file
//! of lines stands for a database. `ORDERS_LISTEN` says where to listen (port 0: a free one),
//! `ORDERS_FOLDER` where to keep everything.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{FromRef, Path as PathOf, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use http::{StatusCode, header};
use onetake_core::Scope;
use onetake_engine::Engine;
use onetake_http::Idempotency;
use onetake_http::axum::DurableRoutes;
use onetake_stores::Embedded;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long executions that are under way get once the service is asked to stop.
const STOP_WITHIN: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Before anything is promised: a signal that comes early must not be missed.
    let (term, int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listen = std::env::var("ORDERS_LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let folder = std::env::var("ORDERS_FOLDER").unwrap_or_else(|_| "target/orders-example".into());
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;

    // One store, one engine. Housekeeping removes what has expired.
    let engine = Engine::new(Embedded::open(folder.join("onetake"))?);
    engine.keep_house();
    let shop = Shop {
        // Keys live in the scope that `identify` puts into the extensions of a request.
        idempotency: Idempotency::by_extension(engine.clone()),
        orders: Orders::open(&folder.join("orders.jsonl"))?,
    };

    let listener = TcpListener::bind(&listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app(shop)).with_graceful_shutdown(asked_to_stop(term, int)).await?;

    // A caller that hung up has left an execution behind; it is finished and recorded, too. One
    // that is still at it afterwards is not lost: its key says that the outcome is unknown.
    let unfinished = engine.stop(STOP_WITHIN).await;
    println!("stopped; unfinished: {unfinished}");
    Ok(())
}

/// The routes. A durable one has an operation, a name that stays when the path changes: the same
/// key under two operations is two keys.
fn app(shop: Shop) -> Router {
    Router::new()
        .durable_post("/orders", "orders.create", create)
        .durable_put("/orders/{id}", "orders.update", update)
        .durable_delete("/orders/{id}", "orders.cancel", cancel)
        // Reading changes nothing, so it needs no key.
        .route("/orders", get(list))
        .route("/orders/{id}", get(read))
        // Outside of the routes: nobody is answered, not even by a replay, before it is known who
        // asks.
        .layer(middleware::from_fn(identify))
        .with_state(shop)
}

async fn asked_to_stop(mut term: Signal, mut int: Signal) {
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

/// The state of the service. A durable route takes its [`Idempotency`] from here, so a router
/// without one does not compile.
#[derive(Clone)]
struct Shop {
    idempotency: Idempotency,
    orders: Orders,
}

impl FromRef<Shop> for Idempotency {
    fn from_ref(shop: &Shop) -> Self {
        shop.idempotency.clone()
    }
}

impl FromRef<Shop> for Orders {
    fn from_ref(shop: &Shop) -> Self {
        shop.orders.clone()
    }
}

/// A TOY. A real service verifies a signed token or a session here. What matters is where the
/// scope comes from: from what was verified, never from a body, a path or a header that anybody can
/// write.
async fn identify(mut request: Request, next: Next) -> Response {
    let credential = request.headers().get(header::AUTHORIZATION).map(http::HeaderValue::as_bytes);
    let tenant = match credential {
        Some(b"Bearer token-of-acme") => "acme",
        Some(b"Bearer token-of-globex") => "globex",
        Some(_) | None => return Refused::Unauthorized.into_response(),
    };
    let scope = Scope::tenant_named(tenant).expect("invariant: both are names");
    request.extensions_mut().insert(scope);
    next.run(request).await
}

/// What a caller wants.
#[derive(Debug, Clone, Deserialize)]
struct Wanted {
    sku: String,
    quantity: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stage {
    Placed,
    Cancelled,
}

/// One order, as it is answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    id: u64,
    sku: String,
    quantity: u32,
    stage: Stage,
}

/// Why there is no order to answer with. What becomes of each is the dialect's: under the default
/// one a 400 or 404 is kept like any answer, a 401 or 409 is not, and its key may be used again.
#[derive(Debug)]
enum Refused {
    Unauthorized,
    Quantity,
    Missing,
    AlreadyCancelled,
    Broken(io::Error),
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, error) = match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "send a bearer token"),
            Self::Quantity => (StatusCode::BAD_REQUEST, "the quantity is from 1 to 1000"),
            Self::Missing => (StatusCode::NOT_FOUND, "there is no such order"),
            Self::AlreadyCancelled => (StatusCode::CONFLICT, "the order was cancelled"),
            Self::Broken(error) => {
                eprintln!("the orders cannot be written: {error}");
                // Kept as well: the order may have been written before it failed, so the same key
                // must not place it again.
                (StatusCode::INTERNAL_SERVER_ERROR, "the orders cannot be written")
            }
        };
        (status, Json(serde_json::json!({ "error": error }))).into_response()
    }
}

// The handlers. None of them knows of keys or retries: each runs once for a key. One that wants to
// know which attempt it is extracts `onetake_http::axum::Take`.

async fn create(
    State(orders): State<Orders>,
    Extension(scope): Extension<Scope>,
    Json(wanted): Json<Wanted>,
) -> Result<Response, Refused> {
    let wanted = wanted.checked()?;
    let order = orders.write(scope, move |book| {
        let id = book.keys().next_back().map_or(1, |last| last + 1);
        Ok(Order { id, sku: wanted.sku, quantity: wanted.quantity, stage: Stage::Placed })
    });
    let order = order.await?;
    // A replay has the same location.
    let location = [(header::LOCATION, format!("/orders/{}", order.id))];
    Ok((StatusCode::CREATED, location, Json(order)).into_response())
}

/// The path is part of what was asked: one key for two orders is refused.
async fn update(
    State(orders): State<Orders>,
    Extension(scope): Extension<Scope>,
    PathOf(id): PathOf<u64>,
    Json(wanted): Json<Wanted>,
) -> Result<Json<Order>, Refused> {
    let wanted = wanted.checked()?;
    let order = orders.write(scope, move |book| {
        let order = book.get(&id).ok_or(Refused::Missing)?;
        match order.stage {
            Stage::Placed => Ok(Order { id, sku: wanted.sku, quantity: wanted.quantity, ..*order }),
            Stage::Cancelled => Err(Refused::AlreadyCancelled),
        }
    });
    order.await.map(Json)
}

async fn cancel(
    State(orders): State<Orders>,
    Extension(scope): Extension<Scope>,
    PathOf(id): PathOf<u64>,
) -> Result<Json<Order>, Refused> {
    let order = orders.write(scope, move |book| {
        let order = book.get(&id).ok_or(Refused::Missing)?;
        match order.stage {
            Stage::Placed => Ok(Order { stage: Stage::Cancelled, ..order.clone() }),
            Stage::Cancelled => Err(Refused::AlreadyCancelled),
        }
    });
    order.await.map(Json)
}

async fn list(
    State(orders): State<Orders>,
    Extension(scope): Extension<Scope>,
) -> Json<Vec<Order>> {
    Json(orders.of(&scope).into_values().collect())
}

async fn read(
    State(orders): State<Orders>,
    Extension(scope): Extension<Scope>,
    PathOf(id): PathOf<u64>,
) -> Result<Json<Order>, Refused> {
    orders.of(&scope).remove(&id).map(Json).ok_or(Refused::Missing)
}

impl Wanted {
    fn checked(self) -> Result<Self, Refused> {
        if (1..=1_000).contains(&self.quantity) { Ok(self) } else { Err(Refused::Quantity) }
    }
}

// What stands for a database: one line of JSON for every change, the last one of an order holds.

type Book = BTreeMap<u64, Order>;

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    tenant: String,
    order: Order,
}

/// All orders. Clones share them.
#[derive(Debug, Clone)]
struct Orders(Arc<Mutex<Written>>);

#[derive(Debug)]
struct Written {
    file: File,
    books: BTreeMap<String, Book>,
}

impl Orders {
    fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).truncate(false).read(true).write(true).open(path)?;
        let text = io::read_to_string(&mut file)?;
        // A crash in the middle of a write leaves a line without an end. Nobody was told of it.
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::End(0))?;
        let mut books = BTreeMap::<String, Book>::new();
        for line in text[..whole].lines() {
            let Line { tenant, order } = serde_json::from_str(line)?;
            books.entry(tenant).or_default().insert(order.id, order);
        }
        Ok(Self(Arc::new(Mutex::new(Written { file, books }))))
    }

    fn of(&self, scope: &Scope) -> Book {
        let written = self.0.lock().expect("invariant: no panic while it is held");
        written.books.get(scope.tenant().as_str()).cloned().unwrap_or_default()
    }

    /// Writes the order that `change` makes of a tenant's orders, durably, and gives it.
    async fn write(
        &self,
        scope: Scope,
        change: impl FnOnce(&Book) -> Result<Order, Refused> + Send + 'static,
    ) -> Result<Order, Refused> {
        let orders = Arc::clone(&self.0);
        // A disk is waited for on a thread that may wait.
        let writing = tokio::task::spawn_blocking(move || {
            let mut written = orders.lock().expect("invariant: no panic while it is held");
            let Written { file, books } = &mut *written;
            let tenant = scope.tenant().as_str();
            let book = books.entry(tenant.to_owned()).or_default();
            let line = Line { tenant: tenant.to_owned(), order: change(book)? };
            append(file, &line).map_err(Refused::Broken)?;
            book.insert(line.order.id, line.order.clone());
            Ok(line.order)
        });
        writing.await.unwrap_or_else(|error| Err(Refused::Broken(io::Error::other(error))))
    }
}

fn append(file: &mut File, line: &Line) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)?;
    file.sync_data()
}
