//! Who sends orders: plain HTTP to the gateway, one connection for each request.
//!
//! A customer counts what it hears, by the status and the headers alone, and never tries again by
//! itself: retries are the scenes' business.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::books::{Books, Given};
use super::counts::Count;
use super::ledger::{Kind, Receipt};

/// How long a customer waits for an answer; more than the gateway lets a duplicate wait.
const ANSWER_WITHIN: Duration = Duration::from_secs(40);
/// The largest answer that is taken, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What is asked for, under which key.
#[derive(Debug, Clone)]
pub(super) struct Order {
    kind: Kind,
    key: String,
    body: String,
}

impl Order {
    /// Two of `p1`, under the name of the order as its key.
    pub(super) fn new(name: &str) -> Self {
        Self::written(name, &format!(r#"{{"order":"{name}","sku":"p1","count":2}}"#))
    }

    /// An order in other words.
    pub(super) fn written(key: &str, body: &str) -> Self {
        Self { kind: Kind::Payment, key: key.to_owned(), body: body.to_owned() }
    }

    /// The money back.
    pub(super) fn refund(name: &str) -> Self {
        Self { kind: Kind::Refund, ..Self::new(name) }
    }
}

/// Somebody who sends orders. Clones write into the same books.
#[derive(Clone)]
pub(super) struct Customer {
    gateway: SocketAddr,
    books: Arc<Books>,
}

/// An answer, whole.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Customer {
    pub(super) const fn new(gateway: SocketAddr, books: Arc<Books>) -> Self {
        Self { gateway, books }
    }

    /// Sends `order`; gives what comes back, in words.
    pub(super) async fn send(&self, order: &Order) -> String {
        match self.connect().await {
            Ok(line) => self.send_on(line, order).await,
            Err(error) => {
                // Nothing accounts for it, so the table will tell.
                self.books.count(Count::Sent);
                format!("{error:#}")
            }
        }
    }

    /// A connection on which nothing was sent yet.
    pub(super) async fn connect(&self) -> Result<TcpStream> {
        TcpStream::connect(self.gateway).await.context("the gateway cannot be reached")
    }

    /// Sends `order` on a connection; gives what comes back, in words.
    pub(super) async fn send_on(&self, line: TcpStream, order: &Order) -> String {
        self.books.count(Count::Sent);
        match timeout(ANSWER_WITHIN, self.exchange(line, order)).await {
            Ok(Ok(answer)) => self.hear(&answer),
            Ok(Err(_)) => {
                self.books.count(Count::Unheard);
                "nothing, the connection broke".to_owned()
            }
            Err(_) => {
                self.books.count(Count::Unheard);
                format!("nothing within {} s", ANSWER_WITHIN.as_secs())
            }
        }
    }

    /// Hangs up on a request that is under way.
    pub(super) async fn hang_up(&self, sending: JoinHandle<String>) -> Result<()> {
        sending.abort();
        ensure!(sending.await.is_err(), "the caller got an answer before it could hang up");
        self.books.count(Count::Unheard);
        Ok(())
    }

    async fn exchange(&self, line: TcpStream, order: &Order) -> Result<Answer> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(line)).await?;
        let request = Request::post(order.kind.path())
            .header(header::HOST, self.gateway.to_string())
            .header(header::CONNECTION, "close")
            .header(header::CONTENT_TYPE, "application/json")
            .header("idempotency-key", &order.key)
            .body(Full::new(Bytes::from(order.body.clone())))?;
        let answer = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|why| anyhow::anyhow!("the answer broke off: {why}"))?;
            Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
        };
        // The connection must be driven for the answer to come, and ends after it.
        let (answer, _ended) = tokio::join!(answer, connection);
        answer
    }

    /// Counts what was heard and puts it into words. Executions are counted by the API.
    fn hear(&self, answer: &Answer) -> String {
        let text = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok());
        let status = answer.status.as_u16();
        if let Some(code) = text("onetake-refused") {
            let count = match code {
                "key_mismatch" => Some(Count::Refused),
                "outcome_unknown" => Some(Count::Unknown),
                "upstream_unreachable" => Some(Count::Freed),
                // Nothing accounts for it, so the table will tell.
                _ => None,
            };
            if let Some(count) = count {
                self.books.count(count);
            }
            return format!("{status} {code}");
        }
        let is_replay = text("idempotent-replayed") == Some("true");
        if is_replay {
            self.books.count(Count::Replayed);
        }
        let mark = if is_replay { ", replayed" } else { "" };
        let Ok(receipt) = serde_json::from_slice::<Receipt>(&answer.body) else {
            return format!("{status} without a receipt{mark}");
        };
        let words = format!("{status} with receipt {}{mark}", receipt.number);
        let location = text("location").unwrap_or_default().to_owned();
        self.books.give(Given { receipt, status, location, body: answer.body.clone() });
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(status: u16, headers: &[(&'static str, &str)], body: &str) -> (String, String) {
        let books = Arc::new(Books::default());
        let customer = Customer::new(([127, 0, 0, 1], 9).into(), Arc::clone(&books));
        let headers = headers
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap()));
        let answer = Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.collect(),
            body: Bytes::from(body.to_owned()),
        };
        (customer.hear(&answer), books.counts().to_string())
    }

    #[test]
    fn an_answer_counts_by_its_headers_alone() {
        let receipt = r#"{"number":7,"kind":"payment","order":"a"}"#;
        let words = |said: &str, counted: &str| (said.to_owned(), counted.to_owned());
        assert_eq!(heard(201, &[], receipt), words("201 with receipt 7", "nothing"));
        let replayed = [("idempotent-replayed", "true")];
        let expected = words("201 with receipt 7, replayed", "1 replayed");
        assert_eq!(heard(201, &replayed, receipt), expected);
        assert_eq!(heard(200, &[], "?"), words("200 without a receipt", "nothing"));
        for (status, code, counted) in [
            (422, "key_mismatch", "1 refused"),
            (409, "outcome_unknown", "1 unknown"),
            (502, "upstream_unreachable", "1 freed"),
            (503, "busy", "nothing"),
        ] {
            let (said, did) = heard(status, &[("onetake-refused", code)], receipt);
            assert_eq!((said, did), words(&format!("{status} {code}"), counted));
        }
    }
}
