//! The example `orders` as a reader would try it: the built program, real sockets, a kill -9.
//!
//! Looks only at what a caller sees, and at what the program says when it starts and stops.
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// How long an answer may take before something is wrong.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

const ACME: &str = "token-of-acme";
const GLOBEX: &str = "token-of-globex";

/// Where cargo puts the example when it builds this test without naming it.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let program = profile.join("examples").join(format!("orders{}", std::env::consts::EXE_SUFFIX));
    let how = "build it: cargo build -p onetake-http --example orders --features axum";
    assert!(program.exists(), "{} is missing; {how}", program.display());
    program
}

/// A running example, killed when dropped.
struct Service {
    child: Child,
    said: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Service {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new(program())
            .env("ORDERS_LISTEN", "127.0.0.1:0")
            .env("ORDERS_FOLDER", folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://");
        let address = address.unwrap_or_else(|| panic!("it said {line:?}")).parse().unwrap();
        Self { child, said, address }
    }

    /// kill -9.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop; gives its last words and its exit code.
    fn stop(mut self) -> (String, Option<i32>) {
        let kill = format!("kill -TERM {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        let mut words = String::new();
        self.said.read_to_string(&mut words).unwrap();
        (words, self.child.wait().unwrap().code())
    }

    /// One request on a connection of its own. The body of a request without one is null.
    fn ask(&self, token: &str, what: &str, key: Option<&str>, body: &Value) -> Heard {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let key = key.map_or_else(String::new, |key| format!("idempotency-key: {key}\r\n"));
        let request = format!(
            "{what} HTTP/1.1\r\nhost: orders\r\nconnection: close\r\n{key}authorization: Bearer \
             {token}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        Heard::of(&answer)
    }

    fn create(&self, token: &str, key: &str, sku: &str) -> Heard {
        let wanted = json!({ "sku": sku, "quantity": 1 });
        self.ask(token, "POST /orders", Some(key), &wanted)
    }

    fn orders(&self, token: &str) -> Value {
        self.ask(token, "GET /orders", None, &Value::Null).json
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Heard {
    status: u16,
    head: String,
    json: Value,
}

impl Heard {
    fn of(answer: &str) -> Self {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let json = serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {answer}"));
        Self { status, head: head.to_owned(), json }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Status, body and location: what a replay must have in common with the first answer.
    fn take(&self) -> (u16, &Value, Option<&str>) {
        (self.status, &self.json, self.header("location"))
    }
}

/// C1, C3, C4: the same request is one order and one answer; another body is refused.
#[test]
fn c1_c3_c4_an_order_that_is_sent_twice_is_placed_once() {
    let folder = TempDir::new().unwrap();
    let service = Service::start(folder.path());
    let first = service.create(ACME, "k", "kettle");
    let order = json!({ "id": 1, "sku": "kettle", "quantity": 1, "stage": "placed" });
    assert_eq!(first.take(), (201, &order, Some("/orders/1")));
    let again = service.create(ACME, "k", "kettle");
    assert_eq!(again.take(), first.take());
    assert_eq!((first.is_replayed(), again.is_replayed()), (false, true));
    let other = service.create(ACME, "k", "teapot");
    assert_eq!((other.status, other.header("onetake-refused")), (422, Some("key_mismatch")));
    let keyless = service.ask(ACME, "POST /orders", None, &json!({ "sku": "k", "quantity": 1 }));
    assert_eq!((keyless.status, keyless.header("onetake-refused")), (400, Some("key_missing")));
    assert_eq!(service.orders(ACME), json!([order]));
}

/// C6: what the handler refuses is an answer like any other.
#[test]
fn c6_a_quantity_that_is_refused_stays_refused() {
    let folder = TempDir::new().unwrap();
    let service = Service::start(folder.path());
    let wanted = json!({ "sku": "kettle", "quantity": 0 });
    let first = service.ask(ACME, "POST /orders", Some("k"), &wanted);
    let again = service.ask(ACME, "POST /orders", Some("k"), &wanted);
    assert_eq!((first.status, first.is_replayed()), (400, false));
    assert_eq!((again.take(), again.is_replayed()), (first.take(), true));
    assert_eq!(service.orders(ACME), json!([]));
}

/// W10: two tenants may use the same key, and neither hears of the other's.
#[test]
fn w10_two_tenants_never_share_a_key() {
    let folder = TempDir::new().unwrap();
    let service = Service::start(folder.path());
    let acme = service.create(ACME, "k", "kettle");
    let globex = service.create(GLOBEX, "k", "teapot");
    assert_eq!((globex.status, globex.is_replayed()), (201, false));
    assert_eq!(globex.json["sku"], "teapot");
    assert_eq!(service.create(ACME, "k", "kettle").take(), acme.take());
    assert_eq!(service.orders(GLOBEX), json!([globex.json]));
    let nobody = service.create("token-of-nobody", "k", "kettle");
    assert_eq!((nobody.status, nobody.is_replayed()), (401, false));
}

/// C7: updating and cancelling are operations of their own, and their retries change nothing.
#[test]
fn c7_an_update_and_a_cancellation_are_done_once() {
    let folder = TempDir::new().unwrap();
    let service = Service::start(folder.path());
    service.create(ACME, "k", "kettle");
    let put = |key, path: &str, sku: &str| {
        let wanted = json!({ "sku": sku, "quantity": 2 });
        service.ask(ACME, &format!("PUT {path}"), Some(key), &wanted)
    };
    let delete = |key| service.ask(ACME, "DELETE /orders/1", Some(key), &Value::Null);
    let first = put("k", "/orders/1", "teapot");
    assert_eq!((first.status, &first.json["sku"]), (200, &json!("teapot")));
    assert_eq!(put("later", "/orders/1", "cup").status, 200);
    let late = put("k", "/orders/1", "teapot");
    assert_eq!((late.take(), late.is_replayed()), (first.take(), true));
    assert_eq!(service.orders(ACME)[0]["sku"], "cup", "a late retry undid a later update");
    assert_eq!(put("k", "/orders/2", "teapot").status, 422, "the path is part of what was asked");
    let gone = delete("k");
    assert_eq!((gone.status, &gone.json["stage"]), (200, &json!("cancelled")));
    assert_eq!((delete("k").take(), delete("k").is_replayed()), (gone.take(), true));
    // A conflict is not kept: it may be none the next time.
    assert_eq!((delete("new").status, delete("new").is_replayed()), (409, false));
}

/// K12: nothing is forgotten by a process that is killed.
#[test]
fn k12_a_retry_after_kill_9_gets_the_first_answer() {
    let folder = TempDir::new().unwrap();
    let service = Service::start(folder.path());
    let first = service.create(ACME, "k", "kettle");
    service.kill();
    let service = Service::start(folder.path());
    let again = service.create(ACME, "k", "kettle");
    assert_eq!((again.take(), again.is_replayed()), (first.take(), true));
    assert_eq!(service.create(ACME, "k", "teapot").status, 422);
    assert_eq!(service.orders(ACME), json!([first.json]));
    assert_eq!(service.create(ACME, "other", "teapot").json["id"], 2);
}

#[test]
fn a_service_that_is_asked_to_stop_ends_in_order() {
    let folder = TempDir::new().unwrap();
    let service = Service::start(folder.path());
    service.create(ACME, "k", "kettle");
    assert_eq!(service.stop(), ("stopped; unfinished: 0\n".to_owned(), Some(0)));
}
