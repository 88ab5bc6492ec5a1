//! The orders API: a small service with a real side effect, as it could be written by anybody.
//!
//! It knows nothing of keys and refuses no repeat. Only when it is told that an earlier attempt may
//! have had its effect, it looks into the ledger before it writes. Scenes can hold an order at a
//! certain moment, and close the whole API; nothing here waits for time to pass.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::books::Books;
use super::counts::Count;
use super::ledger::{Kind, Ledger, Receipt};

/// Connections at once; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 512;
/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1_024;
/// The largest order, in bytes.
const BODY_BYTES_MAX: usize = 16 * 1024;
/// The longest name of an order, in bytes.
const NAME_BYTES_MAX: usize = 100;
/// How long a caller may take to send a request.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// No order takes this long to arrive; past it something is wrong.
const ARRIVES_WITHIN: Duration = Duration::from_secs(20);

/// The API, open or closed.
pub(super) struct Api {
    address: SocketAddr,
    office: Arc<Office>,
    /// The one task that serves; none while the API is closed.
    serving: JoinSet<()>,
}

/// A place that nobody can take while the API is closed, and where nobody listens.
pub(super) struct Reserved(TcpSocket);

impl Api {
    /// Opens on a free port.
    pub(super) async fn open(ledger: Arc<Ledger>, books: Arc<Books>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("the orders API finds no free port")?;
        let address = listener.local_addr()?;
        let office = Arc::new(Office { ledger, books, holds: Mutex::default() });
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::clone(&office)));
        Ok(Self { address, office, serving })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes it: whoever connects now is refused.
    pub(super) async fn close(&mut self) -> Result<Reserved> {
        self.serving.shutdown().await;
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(self.address).context("the place of the orders API was taken")?;
        Ok(Reserved(socket))
    }

    /// Opens it again where it was.
    pub(super) fn reopen(&mut self, reserved: Reserved) -> Result<()> {
        let listener = reserved.0.listen(BACKLOG).context("the orders API cannot be opened")?;
        self.serving.spawn(serve(listener, Arc::clone(&self.office)));
        Ok(())
    }

    /// Holds the next attempt at `order` at this moment, until it is let go.
    pub(super) fn hold(&self, order: &str, moment: Moment) -> Held {
        let (reach, reached) = oneshot::channel();
        let (let_go, gone) = oneshot::channel();
        let hold = Hold { moment, reach, gone };
        self.office.holds().insert(order.to_owned(), hold);
        Held { reached, _let_go: let_go }
    }
}

/// When an order is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// It has arrived, and nothing was written.
    BeforeTheEffect,
    /// The ledger has it, and nobody was told.
    AfterTheEffect,
}

/// An order that is held; dropping this lets it go.
pub(super) struct Held {
    reached: oneshot::Receiver<()>,
    _let_go: oneshot::Sender<()>,
}

impl Held {
    /// Waits until the order has come to that moment.
    pub(super) async fn reached(&mut self) -> Result<()> {
        let reached = timeout(ARRIVES_WITHIN, &mut self.reached).await;
        reached.context("an order did not arrive at the API")?.context("the API is gone")
    }
}

/// The other side of [`Held`].
struct Hold {
    moment: Moment,
    reach: oneshot::Sender<()>,
    gone: oneshot::Receiver<()>,
}

/// What is asked for; whatever else is in the body is nobody's business here.
#[derive(Deserialize)]
struct Asked {
    order: String,
}

/// What the connections share.
struct Office {
    ledger: Arc<Ledger>,
    books: Arc<Books>,
    holds: Mutex<HashMap<String, Hold>>,
}

impl Office {
    fn holds(&self) -> std::sync::MutexGuard<'_, HashMap<String, Hold>> {
        self.holds.lock().expect("invariant: no panic while holding")
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let kind = [Kind::Payment, Kind::Refund].into_iter().find(|kind| kind.path() == path);
        match (method, kind) {
            (Method::POST, Some(kind)) => self.take(kind, request).await,
            (Method::GET, None) => self.show(&path),
            _ => said(StatusCode::NOT_FOUND, "POST /orders or /refunds, GET /orders/{number}"),
        }
    }

    /// Does what is asked, and answers with the receipt.
    async fn take(&self, kind: Kind, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let is_recovery =
            request.headers().get("onetake-recovery").is_some_and(|value| value == "true");
        let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
        let Ok(Ok(body)) = timeout(REQUEST_WITHIN, body).await else {
            return said(StatusCode::BAD_REQUEST, "the order is too large, or broke off");
        };
        let asked: Result<Asked, _> = serde_json::from_slice(&body.to_bytes());
        let Some(Asked { order }) = asked.ok().filter(|asked| is_name(&asked.order)) else {
            return said(StatusCode::BAD_REQUEST, r#"an order is JSON such as {"order":"a-1"}"#);
        };
        self.books.count(Count::Executed);
        if is_recovery {
            self.books.count(Count::Recoveries);
        }
        self.wait_at(Moment::BeforeTheEffect, &order).await;
        let written = self.write(kind, &order, is_recovery);
        self.wait_at(Moment::AfterTheEffect, &order).await;
        match written {
            Ok(receipt) => shown(StatusCode::CREATED, &receipt),
            Err(_) => said(StatusCode::INTERNAL_SERVER_ERROR, "the ledger cannot be written"),
        }
    }

    /// A recovery looks first whether it is there: being told is for that.
    fn write(&self, kind: Kind, order: &str, is_recovery: bool) -> io::Result<Receipt> {
        if is_recovery && let Some(receipt) = self.ledger.find(kind, order)? {
            return Ok(receipt);
        }
        self.ledger.write(kind, order)
    }

    async fn wait_at(&self, moment: Moment, order: &str) {
        let hold = {
            let mut holds = self.holds();
            let is_held = holds.get(order).is_some_and(|hold| hold.moment == moment);
            if is_held { holds.remove(order) } else { None }
        };
        if let Some(Hold { reach, gone, .. }) = hold {
            // A scene that is gone holds nobody.
            let _ = reach.send(());
            let _ = gone.await;
        }
    }

    /// The line that `path` names.
    fn show(&self, path: &str) -> Response<Full<Bytes>> {
        let is_it = |receipt: &Receipt| place_of(receipt) == path;
        match self.ledger.read().map(|lines| lines.into_iter().find(is_it)) {
            Ok(Some(receipt)) => shown(StatusCode::OK, &receipt),
            Ok(None) => said(StatusCode::NOT_FOUND, "there is no such receipt"),
            Err(_) => said(StatusCode::INTERNAL_SERVER_ERROR, "the ledger cannot be read"),
        }
    }
}

fn is_name(order: &str) -> bool {
    !order.is_empty() && order.len() <= NAME_BYTES_MAX
}

/// Where a receipt can be looked at.
fn place_of(receipt: &Receipt) -> String {
    format!("{}/{}", receipt.kind.path(), receipt.number)
}

fn shown(status: StatusCode, receipt: &Receipt) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(receipt).expect("invariant: a receipt is JSON");
    let mut response = typed(status, "application/json", body.into());
    let place = place_of(receipt).try_into().expect("invariant: a path is a header");
    response.headers_mut().insert(header::LOCATION, place);
    response
}

fn said(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

fn typed(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Serves until it is stopped, with every connection that it has.
async fn serve(listener: TcpListener, office: Arc<Office>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
            continue;
        }
        // An API that cannot accept any more is down, and the gateway says so.
        let Ok((stream, _peer)) = listener.accept().await else { return };
        connections.spawn(converse(stream, Arc::clone(&office)));
    }
}

/// Answers one request. A connection is never used again: once the API is closed, no request can
/// get lost in one that is about to end, and a caller of the gateway learns what there is to learn.
async fn converse(stream: TcpStream, office: Arc<Office>) {
    let answer = service_fn(move |request| {
        let office = Arc::clone(&office);
        async move { Ok::<_, Infallible>(office.answer(request).await) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_WITHIN)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    // Whoever went away has no use for an answer.
    drop(served);
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Runtime;

    use super::*;
    use crate::commands::demo::customer::{Customer, Order};

    /// An API, and somebody who calls it without a gateway.
    struct Bare {
        api: Api,
        customer: Customer,
        ledger: Arc<Ledger>,
        _folder: tempfile::TempDir,
    }

    async fn bare() -> Bare {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Arc::new(Ledger::create(folder.path().join("ledger")).unwrap());
        let books = Arc::new(Books::default());
        let api = Api::open(Arc::clone(&ledger), Arc::clone(&books)).await.unwrap();
        let customer = Customer::new(api.address(), books);
        Bare { api, customer, ledger, _folder: folder }
    }

    fn run(test: impl Future<Output = ()>) {
        Runtime::new().unwrap().block_on(test);
    }

    #[test]
    fn by_itself_it_takes_every_payment_that_is_asked_for() {
        run(async {
            let bare = bare().await;
            let order = Order::new("order-1");
            assert_eq!(bare.customer.send(&order).await, "201 with receipt 1");
            assert_eq!(bare.customer.send(&order).await, "201 with receipt 2");
            assert_eq!(bare.ledger.read().unwrap().len(), 2);
            assert_eq!(bare.api.office.show("/orders/2").status(), 200);
            for path in ["/orders/3", "/refunds/2", "/orders/", "/"] {
                assert_eq!(bare.api.office.show(path).status(), 404, "{path}");
            }
        });
    }

    #[test]
    fn told_of_a_recovery_it_looks_first() {
        run(async {
            let bare = bare().await;
            let recover = |kind| bare.api.office.write(kind, "order-1", true).unwrap().number;
            assert_eq!(recover(Kind::Payment), 1, "it was not there");
            assert_eq!(recover(Kind::Payment), 1);
            assert_eq!(recover(Kind::Refund), 2, "a payment is no refund");
            assert_eq!(bare.ledger.read().unwrap().len(), 2);
        });
    }

    #[test]
    fn what_is_no_order_is_refused_and_costs_nothing() {
        run(async {
            let bare = bare().await;
            let long = format!(r#"{{"order":"{}"}}"#, "a".repeat(NAME_BYTES_MAX + 1));
            for body in ["", "{}", "[1]", r#"{"order":""}"#, r#"{"order":1}"#, &long] {
                let heard = bare.customer.send(&Order::written("key", body)).await;
                assert_eq!(heard, "400 without a receipt", "{}", body.len());
            }
            assert_eq!(bare.ledger.read().unwrap(), []);
        });
    }

    #[test]
    fn while_it_is_closed_nobody_reaches_it_and_then_it_is_where_it_was() {
        run(async {
            let mut bare = bare().await;
            let reserved = bare.api.close().await.unwrap();
            assert!(bare.customer.connect().await.is_err());
            bare.api.reopen(reserved).unwrap();
            assert_eq!(bare.customer.send(&Order::new("order-1")).await, "201 with receipt 1");
        });
    }

    #[test]
    fn an_order_is_held_at_its_moment_until_it_is_let_go() {
        run(async {
            for (moment, lines) in [(Moment::BeforeTheEffect, 0), (Moment::AfterTheEffect, 1)] {
                let bare = bare().await;
                let (customer, mut held) =
                    (bare.customer.clone(), bare.api.hold("order-1", moment));
                let sending =
                    tokio::spawn(async move { customer.send(&Order::new("order-1")).await });
                held.reached().await.unwrap();
                assert_eq!(bare.ledger.read().unwrap().len(), lines, "{moment:?}");
                drop(held);
                assert_eq!(sending.await.unwrap(), "201 with receipt 1");
            }
        });
    }
}
