//! The routes of the admin surface, asked as a client asks them, on a store in memory.
//!
//! Only what goes over the wire is looked at: status, JSON and headers.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response};
use onetake_console::{Desk, Guard, Hosts, Token, router};
use onetake_core::{
    Address, Ask, Asked, Cause, Key, Operation, Outcome, Policy, Principal, Report, Scope, Tenant,
};
use onetake_engine::{Engine, Limits, Memory, MemoryLimits, Mint};
use onetake_testkit::clock::TokioClock;
use serde_json::{Value, json};
use tower::ServiceExt;

const TOKEN: &str = "0123456789abcdef";
const HOST: &str = "127.0.0.1:8081";

struct Bench {
    router: Router,
    engine: Engine<Memory>,
}

impl Bench {
    /// A surface over one record of each kind, and one of another tenant.
    async fn filled() -> Self {
        let memory = Memory::with(MemoryLimits::default(), TokioClock::new());
        let engine = Engine::with(memory, Limits::default(), Mint::seeded(7));
        let guard = Guard::new(Token::new(TOKEN).unwrap(), Hosts::of(HOST.parse().unwrap(), &[]));
        let router = router(Desk::new(engine.clone()), guard);
        for (tenant, key) in [("acme", "order-1"), ("acme-2", "order-1")] {
            let unknown = |_| async { Report::Unknown(Cause::Reported) };
            engine.run(ask(tenant, key), unknown).await.unwrap();
        }
        let done = |_| async { Report::Finished(Outcome::Value("secret-value".into())) };
        engine.run(ask("acme", "order-2"), done).await.unwrap();
        tokio::time::sleep(Duration::from_secs(90)).await;
        let _claim = engine.try_claim(&ask("acme", "order-3")).await.unwrap();
        Self { router, engine }
    }

    async fn send(&self, request: Request<Body>) -> (u16, Value) {
        let (status, _, body) = parts(self.router.clone().oneshot(request).await.unwrap()).await;
        (status, body)
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.send(request("GET", path).body(Body::empty()).unwrap()).await
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = request("POST", path)
            .header("content-type", "application/json")
            .header("onetake-operator", "ann");
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    /// The path of a key.
    fn path(tenant: &str, key: &str) -> String {
        format!("/v1/keys/{tenant}/{}", ask(tenant, key).address.slot().hex())
    }

    async fn version(&self, key: &str) -> String {
        let (_, shown) = self.get(&Self::path("acme", key)).await;
        shown["version"].as_str().unwrap().to_owned()
    }
}

fn ask(tenant: &str, key: &str) -> Ask {
    let scope = Scope::of(Tenant::new(tenant).unwrap(), Principal::new("bob").unwrap());
    let operation = Operation::new("orders.create").unwrap();
    let address = Address::new(scope, operation, Key::new(key).unwrap());
    Ask { address: address.into(), asked: Asked::raw("body"), policy: Policy::default().into() }
}

fn request(method: &str, path: &str) -> axum::http::request::Builder {
    let request = Request::builder().method(method).uri(path).header("host", HOST);
    request.header("authorization", format!("Bearer {TOKEN}"))
}

async fn parts(response: Response<Body>) -> (u16, String, Value) {
    let kind = response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let value = serde_json::from_slice(&body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
    (status, kind.unwrap_or_default(), value)
}

/// The keys of a page, in order.
fn keys(page: &Value) -> Vec<&str> {
    let mut keys: Vec<_> =
        page["keys"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap()).collect();
    keys.sort_unstable();
    keys
}

/// X10: keys are listed by tenant, operation, phase and age, page by page.
#[tokio::test(start_paused = true)]
async fn x10_keys_are_listed_by_tenant_phase_and_age() {
    let bench = Bench::filled().await;
    let table = [
        ("/v1/keys?tenant=acme", &["order-1", "order-2", "order-3"][..]),
        ("/v1/keys?tenant=acme&phase=unknown", &["order-1"]),
        ("/v1/keys?tenant=acme&phase=live", &["order-3"]),
        ("/v1/keys?phase=unknown&older_than=1m", &["order-1", "order-1"]),
        ("/v1/keys?tenant=acme&younger_than=30s", &["order-3"]),
        ("/v1/keys?tenant=acme&older_than=7d", &[]),
        ("/v1/keys?tenant=acme&operation=payments", &[]),
        ("/v1/keys?tenant=nobody", &[]),
    ];
    for (path, expected) in table {
        let (status, page) = bench.get(path).await;
        assert_eq!((status, keys(&page)), (200, expected.to_vec()), "{path}: {page}");
    }
    let (_, first) = bench.get("/v1/keys?limit=3").await;
    let next = first["next"].as_str().unwrap();
    let (_, rest) = bench.get(&format!("/v1/keys?limit=3&after={next}")).await;
    assert_eq!((keys(&first).len(), keys(&rest).len(), &rest["next"]), (3, 1, &Value::Null));
}

/// X10: a key is shown with everything an operator needs; its content only when asked for.
#[tokio::test(start_paused = true)]
async fn x10_a_key_is_shown_and_its_content_only_when_asked_for() {
    let bench = Bench::filled().await;
    let path = Bench::path("acme", "order-2");
    let (status, shown) = bench.get(&path).await;
    let mut expected = json!({
        "tenant": "acme",
        "principal": "bob",
        "operation": "orders.create",
        "key": "order-2",
        "slot": ask("acme", "order-2").address.slot().hex(),
        "phase": "done",
        "fence": shown["fence"],
        "version": shown["version"],
        "attempt": 1,
        "recovery": false,
        "since_ms": shown["since_ms"],
        "age_ms": 90_000,
        "until_ms": shown["since_ms"].as_u64().unwrap() + 86_400_000,
        "outcome": { "form": "value", "bytes": 12 },
        "fingerprint": shown["fingerprint"],
        "now_ms": shown["now_ms"],
    });
    assert_eq!((status, &shown), (200, &expected));
    assert!(shown["fingerprint"].as_str().unwrap().starts_with("raw:"));
    let (_, whole) = bench.get(&format!("{path}?body=true")).await;
    expected["content"] = json!({ "body": "secret-value" });
    assert_eq!(whole, expected);
    let (status, problem) = bench.get(&Bench::path("acme", "never")).await;
    assert_eq!((status, &problem["code"]), (404, &json!("record_missing")));
}

/// X10: an unknown is resolved with what came of it, and every further attempt hears that.
#[tokio::test(start_paused = true)]
async fn x10_an_unknown_is_resolved_with_a_response() {
    let bench = Bench::filled().await;
    let path = format!("{}/resolve", Bench::path("acme", "order-1"));
    let resolve = json!({
        "seen": bench.version("order-1").await,
        "form": "response",
        "status": 201,
        "content": {
            "headers": [{ "name": "Location", "value": "/orders/1" }],
            "body": "{\"id\":1}",
        },
        "keep": "7d",
    });
    let (status, done) = bench.post(&path, &resolve).await;
    assert_eq!((status, &done["phase"], &done["repeated"]), (200, &json!("done"), &json!(false)));
    assert_eq!(done["outcome"], json!({ "form": "response", "status": 201, "bytes": 25 }));
    let (status, again) = bench.post(&path, &resolve).await;
    assert_eq!((status, &again["repeated"]), (200, &json!(true)));
    let shown = bench.get(&format!("{}?body=true", Bench::path("acme", "order-1"))).await.1;
    let content = json!({
        "headers": [{ "name": "location", "value": "/orders/1" }],
        "body": "{\"id\":1}",
    });
    assert_eq!(shown["content"], content);
    let never = |_| async { unreachable!("it has an outcome") };
    let replay = bench.engine.run(ask("acme", "order-1"), never).await.unwrap();
    assert!(format!("{replay:?}").contains("Replayed"), "{replay:?}");
    let (_, audit) = bench.get("/v1/audit").await;
    let entry = &audit["entries"][0];
    assert_eq!((&entry["act"], &entry["by"]), (&json!("resolved"), &json!("ann")));
    assert_eq!((&entry["before"], &entry["after"]), (&json!("unknown"), &json!("done")));
    assert_eq!((&entry["position"], &audit["next"]), (&json!(1), &Value::Null));
}

/// X10: bytes that are no text are given, and shown, as digits.
#[tokio::test(start_paused = true)]
async fn x10_content_need_not_be_text() {
    let bench = Bench::filled().await;
    let path = Bench::path("acme", "order-1");
    let resolve = json!({
        "seen": bench.version("order-1").await,
        "form": "failure",
        "content": { "body_hex": "00fF" },
        "keep": "1h",
    });
    let (status, done) = bench.post(&format!("{path}/resolve"), &resolve).await;
    assert_eq!(status, 200, "{done}");
    let (_, shown) = bench.get(&format!("{path}?body=true")).await;
    assert_eq!(shown["content"], json!({ "body_hex": "00ff" }));
}

/// X10: what an operator decided on an old picture is refused, with what is there now.
#[tokio::test(start_paused = true)]
async fn x10_a_release_is_refused_by_code_and_says_what_is_there() {
    let bench = Bench::filled().await;
    let seen = bench.version("order-1").await;
    let release = format!("{}/release", Bench::path("acme", "order-1"));
    let old = json!({ "seen": bench.version("order-2").await });
    let (status, problem) = bench.post(&release, &old).await;
    assert_eq!((status, &problem["code"]), (409, &json!("record_changed")));
    assert_eq!(problem["type"], "urn:onetake:error:record_changed");
    assert_eq!((&problem["status"], &problem["there"]["version"]), (&json!(409), &json!(seen)));
    let (status, done) = bench.post(&release, &json!({ "seen": seen })).await;
    assert_eq!((status, &done["phase"]), (200, &json!("free")));
    let free = json!({ "seen": done["version"] });
    let (status, problem) = bench.post(&release, &free).await;
    assert_eq!((status, &problem["code"]), (409, &json!("already_settled")));
}

/// X10: a live claim ends only with its fence and `force`.
#[tokio::test(start_paused = true)]
async fn x10_a_live_claim_ends_only_by_its_fence_and_by_force() {
    let bench = Bench::filled().await;
    let path = Bench::path("acme", "order-3");
    let release = format!("{path}/release");
    let (_, live) = bench.get(&path).await;
    let (seen, fence) = (&live["version"], &live["fence"]);
    let table = [
        (json!({ "seen": seen }), 409, "claim_live"),
        (json!({ "fence": fence }), 400, "request_invalid"),
        (json!({ "force": true }), 400, "request_invalid"),
        (json!({ "seen": seen, "force": true }), 400, "request_invalid"),
        (json!({ "seen": seen, "fence": fence, "force": true }), 400, "request_invalid"),
        (json!({}), 400, "request_invalid"),
        (json!({ "fence": "0".repeat(32), "force": true }), 409, "record_changed"),
    ];
    for (body, status, code) in table {
        let (said, problem) = bench.post(&release, &body).await;
        assert_eq!((said, &problem["code"]), (status, &json!(code)), "{body}");
    }
    let forced = json!({ "fence": fence, "force": true });
    let (status, done) = bench.post(&release, &forced).await;
    assert_eq!((status, &done["phase"]), (200, &json!("free")));
    assert_eq!(bench.get("/v1/audit").await.1["entries"][0]["forced"], true);
}

/// X10: a purge takes what a tenant has, tells what it left, and touches no other tenant.
#[tokio::test(start_paused = true)]
async fn x10_a_purge_takes_one_tenant() {
    let bench = Bench::filled().await;
    let (status, done) = bench.post("/v1/purge", &json!({ "tenant": "acme" })).await;
    assert_eq!((status, done), (200, json!({ "tombstones": 2, "live": 1 })));
    assert_eq!(keys(&bench.get("/v1/keys?tenant=acme&phase=free").await.1).len(), 2);
    assert_eq!(keys(&bench.get("/v1/keys?tenant=acme-2&phase=unknown").await.1), ["order-1"]);
    let (_, audit) = bench.get("/v1/audit?after=0&limit=5").await;
    assert_eq!(audit["entries"][0]["tombstones"], 2);
    let (status, problem) = bench.post("/v1/purge", &json!({})).await;
    assert_eq!((status, &problem["code"]), (400, &json!("request_invalid")), "never everybody");
}

/// Whatever cannot be understood is refused with the name of what is wrong, as a problem.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_understood_is_refused_by_code() {
    let bench = Bench::filled().await;
    let key = Bench::path("acme", "order-1");
    let table = [
        ("/v1/keys?older_than=soon", 400, "request_invalid", "older_than"),
        ("/v1/keys?phase=gone", 400, "request_invalid", "phase"),
        ("/v1/keys?after=zz", 400, "request_invalid", "after"),
        ("/v1/keys?limit=many", 400, "request_invalid", "limit"),
        ("/v1/keys?colour=red", 400, "request_invalid", "colour"),
        ("/v1/keys?tenant=", 400, "key_invalid", "tenant"),
        ("/v1/keys/acme/zz", 400, "request_invalid", "slot"),
        ("/v1/nothing", 404, "route_missing", "path"),
        ("/v1/purge", 405, "route_missing", "method"),
    ];
    for (path, status, code, says) in table {
        let request = request("GET", path).body(Body::empty()).unwrap();
        let response = bench.router.clone().oneshot(request).await.unwrap();
        let (said, kind, problem) = parts(response).await;
        assert_eq!((said, &problem["code"]), (status, &json!(code)), "{path}: {problem}");
        assert_eq!(
            (kind.as_str(), &problem["status"]),
            ("application/problem+json", &json!(status))
        );
        assert!(problem["detail"].as_str().unwrap().contains(says), "{path}: {problem}");
    }
    let resolve = format!("{key}/resolve");
    let seen = bench.version("order-1").await;
    let bodies = [
        (json!({ "seen": "x", "form": "value", "keep": "1h" }), "seen"),
        (json!({ "seen": seen, "form": "value", "keep": "long" }), "keep"),
        (json!({ "seen": seen, "form": "response", "keep": "1h" }), "status"),
        (json!({ "seen": seen, "form": "value", "status": 200, "keep": "1h" }), "status"),
        (json!({ "seen": seen, "form": "response", "status": 99, "keep": "1h" }), "status"),
        (json!({ "seen": seen, "form": "story", "keep": "1h" }), "form"),
        (
            json!({ "seen": seen, "form": "not_kept", "content": { "body": "x" }, "keep": "1h" }),
            "content",
        ),
        (
            json!({ "seen": seen, "form": "value", "content": { "body_hex": "0g" }, "keep": "1h" }),
            "body_hex",
        ),
        (
            json!({ "seen": seen, "form": "response", "status": 200, "keep": "1h",
            "content": { "headers": [{ "name": "a b", "value": "x" }] } }),
            "headers",
        ),
        (json!({ "seen": seen }), "form"),
    ];
    for (body, says) in bodies {
        let (status, problem) = bench.post(&resolve, &body).await;
        assert_eq!((status, &problem["code"]), (400, &json!("request_invalid")), "{body}");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{body}: {problem}");
    }
    let (status, problem) = bench
        .post(
            &resolve,
            &json!({
                "seen": seen, "form": "value", "keep": "0s",
            }),
        )
        .await;
    assert_eq!((status, &problem["code"]), (400, &json!("policy_invalid")));
    assert_eq!(bench.version("order-1").await, seen, "nothing was changed");
}

/// X11: a refusal does not repeat what was sent.
#[tokio::test(start_paused = true)]
async fn x11_a_refusal_quotes_nothing_of_the_body() {
    let bench = Bench::filled().await;
    let resolve = format!("{}/resolve", Bench::path("acme", "order-1"));
    let bodies = [
        json!("secret"),
        json!({ "seen": "x", "form": "value", "keep": "1h", "content": "secret" }),
        json!({ "seen": "x", "form": "value", "keep": "1h", "content": { "headers": "secret" } }),
        json!({ "seen": "x", "form": "secret" }),
    ];
    for body in bodies {
        let (status, problem) = bench.post(&resolve, &body).await;
        assert_eq!(status, 400, "{body}");
        assert!(!problem.to_string().contains("secret"), "{body}: {problem}");
    }
    let plain = request("POST", &resolve).body(Body::from("secret")).unwrap();
    let (status, problem) = bench.send(plain).await;
    assert_eq!((status, &problem["code"]), (400, &json!("request_invalid")));
    assert!(!problem.to_string().contains("secret"), "{problem}");
}

/// A body has its bound, and that of an outcome is larger.
#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_large_is_refused() {
    let bench = Bench::filled().await;
    let long = "x".repeat(100 * 1024);
    let (status, problem) = bench.post("/v1/purge", &json!({ "tenant": long })).await;
    assert_eq!((status, &problem["code"]), (413, &json!("too_large")));
    let path = format!("{}/resolve", Bench::path("acme", "order-1"));
    let seen = bench.version("order-1").await;
    let resolve = |bytes| {
        json!({
            "seen": seen, "form": "value", "content": { "body": "x".repeat(bytes) }, "keep": "1h",
        })
    };
    let (status, problem) = bench.post(&path, &resolve(11 * 1024 * 1024)).await;
    assert_eq!((status, &problem["code"]), (413, &json!("too_large")), "more than is ever kept");
    assert_eq!(bench.post(&path, &resolve(1024 * 1024)).await.0, 200);
}

/// Nobody comes in without the token, whatever the path; only health is open, and says nothing.
#[tokio::test(start_paused = true)]
async fn nobody_comes_in_without_the_token() {
    let bench = Bench::filled().await;
    let bare =
        |path: &str| Request::builder().uri(path).header("host", HOST).body(Body::empty()).unwrap();
    for path in ["/v1/keys", "/v1/audit", "/v1/store/stats", "/nowhere", "/"] {
        let response = bench.router.clone().oneshot(bare(path)).await.unwrap();
        assert_eq!(response.headers()["www-authenticate"], "Bearer", "{path}");
        let (status, _, problem) = parts(response).await;
        assert_eq!((status, &problem["code"]), (401, &json!("token_invalid")), "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(bench.send(bare(path)).await, (200, json!("ok\n")), "{path}");
    }
    let foreign = request("GET", "/v1/keys").header("origin", "https://evil.example");
    let (status, problem) = bench.send(foreign.body(Body::empty()).unwrap()).await;
    assert_eq!((status, &problem["code"]), (403, &json!("origin_refused")));
    let elsewhere = Request::builder().uri("/v1/keys").header("host", "evil.example");
    let elsewhere = elsewhere.header("authorization", format!("Bearer {TOKEN}"));
    let (status, problem) = bench.send(elsewhere.body(Body::empty()).unwrap()).await;
    assert_eq!((status, &problem["code"]), (421, &json!("host_refused")));
}

/// The store's own numbers; what a store cannot do it says.
#[tokio::test(start_paused = true)]
async fn the_store_tells_its_numbers_and_what_it_cannot_do() {
    let bench = Bench::filled().await;
    let (status, said) = bench.get("/v1/store/stats").await;
    assert_eq!((status, said), (200, json!({ "store": "memory", "numbers": { "records": 4 } })));
    let (status, problem) = bench.post("/v1/store/backup", &json!({ "path": "/copy" })).await;
    assert_eq!((status, &problem["code"]), (501, &json!("not_supported")));
    let (status, problem) = bench.post("/v1/store/backup", &json!({ "path": "copy" })).await;
    assert_eq!((status, &problem["code"]), (400, &json!("request_invalid")));
}

/// An operator's name is text, and somebody acted even if they do not say who.
#[tokio::test(start_paused = true)]
async fn the_audit_names_who_acted() {
    let bench = Bench::filled().await;
    let purge = |by: Option<&[u8]>, tenant: &str| {
        let request = request("POST", "/v1/purge").header("content-type", "application/json");
        let request = match by {
            Some(name) => request.header("onetake-operator", name),
            None => request,
        };
        request.body(Body::from(json!({ "tenant": tenant }).to_string())).unwrap()
    };
    for bad in [&b"\xff"[..], b""] {
        assert_eq!(bench.send(purge(Some(bad), "acme")).await.0, 400, "{bad:?}");
    }
    assert_eq!(bench.send(purge(Some("Zoë".as_bytes()), "acme")).await.0, 200);
    assert_eq!(bench.send(purge(None, "acme-2")).await.0, 200);
    let (_, audit) = bench.get("/v1/audit").await;
    let by: Vec<_> =
        audit["entries"].as_array().unwrap().iter().map(|entry| &entry["by"]).collect();
    assert_eq!(by, [&json!("Zoë"), &json!("admin")]);
}

/// A log that can be read back.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// X11: at the finest level neither key, body nor token shows in the log of what operators do.
#[tokio::test(start_paused = true)]
async fn x11_the_log_of_the_surface_shows_no_key_no_body_and_no_token() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _listening = tracing::subscriber::set_default(subscriber);
    let bench = Bench::filled().await;
    let path = Bench::path("acme", "order-1");
    bench.get(&format!("{path}?body=true")).await;
    let resolve = json!({
        "seen": bench.version("order-1").await,
        "form": "value",
        "content": { "body": "secret-body" },
        "keep": "1h",
    });
    assert_eq!(bench.post(&format!("{path}/resolve"), &resolve).await.0, 200);
    bench.post("/v1/purge", &json!({ "tenant": "acme" })).await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("an operator acted on a record"), "{text}");
    for secret in ["order-1", "secret", TOKEN, ask("acme", "order-1").address.slot().hex().as_str()]
    {
        assert!(!text.contains(secret), "{secret} shows in:\n{text}");
    }
}

/// A process that hosts no workflows says so, to who may ask; nobody else learns even that.
#[tokio::test(start_paused = true)]
async fn runs_are_asked_for_behind_the_guard_and_need_a_host() {
    let bench = Bench::filled().await;
    for path in ["/v1/runs", "/v1/runs/acme/run-1", "/v1/runs/acme/run-1/events?wait=1s"] {
        let (status, said) = bench.get(path).await;
        assert_eq!((status, &said["code"]), (501, &json!("not_supported")), "{path}");
        let stranger = Request::builder().uri(path).header("host", HOST);
        let (status, _) = bench.send(stranger.body(Body::empty()).unwrap()).await;
        assert_eq!(status, 401, "{path}");
    }
    let cancel = "/v1/runs/acme/run-1/cancel";
    let (status, said) = bench.post(cancel, &json!({"reason": "x"})).await;
    assert_eq!((status, &said["code"]), (501, &json!("not_supported")));
    let long = json!({"reason": "x".repeat(1_001)});
    for (path, body) in [(cancel, &json!({"why": "x"})), (cancel, &long)] {
        let (status, said) = bench.post(path, body).await;
        assert_eq!((status, &said["code"]), (400, &json!("request_invalid")));
    }
    for path in ["/v1/runs?after=x", "/v1/runs?colour=red", "/v1/runs/acme/run-1/events?wait=x"] {
        let (status, said) = bench.get(path).await;
        assert_eq!((status, &said["code"]), (400, &json!("request_invalid")), "{path}");
    }
    assert_eq!(bench.get(cancel).await.0, 405);
}
