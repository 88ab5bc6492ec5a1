//! The gateway, over real sockets: what the upstream does decides what a retry gets.

mod rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::Full;
use onetake_core::{OnInFlight, OnUnknown, Tenant};
use onetake_engine::{Engine, Memory};
use onetake_http::gateway::upstream::UpstreamOptions;
use onetake_http::gateway::{ForwardKey, ProxyUpstream, Route};
use onetake_http::identity::{ApiKeySettings, Gate, KeyOfTenant, TenantKeys, generate_key};
use onetake_http::{Dialect, Mode, Settings, StoreDown};
use onetake_testkit::faulty::{Fault, Faulty, Op};
use rig::{Act, Backend, Rig, anonymous, answer, parts, route, settings};

/// W4, X15: a replay never reaches the upstream.
#[tokio::test]
async fn w4_x15_a_retry_gets_the_first_answer_without_the_upstream() {
    let backend = Backend::start().await;
    let rig = Rig::before(&backend).await;
    let first = rig.post("/orders", "k", "{}").await;
    assert_eq!(
        (first.status, first.text(), first.is_replayed()),
        (StatusCode::OK, "take 1", false)
    );
    for _ in 0..5 {
        let again = rig.post("/orders", "k", "{}").await;
        assert_eq!((again.text(), again.is_replayed()), ("take 1", true));
        assert!(again.header("idempotency-expires").is_some());
    }
    assert_eq!(rig.post("/orders", "k", "[]").await.refusal(), Some("key_mismatch"));
    assert_eq!(rig.post("/other", "k", "{}").await.text(), "take 2", "another path, another key");
    assert_eq!(backend.got().len(), 2);
    rig.stop().await;
}

/// X3: a connection that was refused frees the key: nothing was sent.
#[tokio::test]
async fn x3_a_refused_connection_frees_the_key() {
    let backend = Backend::start().await;
    let rig = Rig::before(&backend).await;
    backend.stop().await;
    let heard = rig.post("/", "k", "1").await;
    assert_eq!((heard.status.as_u16(), heard.refusal()), (502, Some("upstream_unreachable")));
    assert_eq!(heard.header("retry-after"), Some("1"));
    let other = rig.post("/", "k", "2").await;
    assert_eq!(other.refusal(), Some("upstream_unreachable"), "free for other content too");
}

fn keyed(backend: &Backend, settings: Settings) -> Vec<Route> {
    vec![route("POST /**", backend.address, Some(settings))]
}

/// X3: whatever breaks after the request was sent is unknown, held by default, never sent again.
#[tokio::test]
async fn x3_a_broken_answer_is_unknown_and_held() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
    for act in [Act::Close, Act::BreakOff(half.into()), Act::BreakOff("garbage\r\n\r\n".into())] {
        let backend = Backend::start().await;
        let rig = Rig::before(&backend).await;
        backend.plan([act.clone()]);
        let first = rig.post("/", "k", "{}").await;
        assert_eq!(
            (first.status.as_u16(), first.refusal()),
            (502, Some("upstream_failed")),
            "{act:?}"
        );
        let again = rig.post("/", "k", "{}").await;
        assert_eq!((again.status.as_u16(), again.refusal()), (409, Some("outcome_unknown")));
        assert_eq!(backend.got().len(), 1, "{act:?}");
    }
}

/// X3: past the time limit of the route the outcome is unknown.
#[tokio::test]
async fn x3_an_upstream_that_is_too_slow_is_unknown() {
    let backend = Backend::start().await;
    let mut routes = keyed(&backend, settings(Dialect::ietf()));
    routes[0].timeout = Duration::from_millis(50);
    let rig = Rig::start(parts(anonymous()), routes).await;
    let slow = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n".to_owned();
    backend.plan([Act::Hang, Act::Answer(slow)]);
    for key in ["hangs", "never ends its body"].map(|key| key.replace(' ', "-")) {
        let first = rig.post("/", &key, "{}").await;
        assert_eq!(
            (first.status.as_u16(), first.refusal()),
            (504, Some("upstream_timeout")),
            "{key}"
        );
        assert_eq!(rig.post("/", &key, "{}").await.refusal(), Some("outcome_unknown"));
    }
    assert_eq!(backend.got().len(), 2);
}

/// X3: where the route says so, a retry executes again, and the upstream is told what it is.
#[tokio::test]
async fn x3_a_recovery_is_told_that_it_is_one() {
    let backend = Backend::start().await;
    let policy = Dialect::ietf().policy().on_unknown(OnUnknown::Retry);
    let settings = Settings::builder(Dialect::ietf()).policy(policy).build().unwrap();
    let rig = Rig::start(parts(anonymous()), keyed(&backend, settings)).await;
    backend.plan([Act::Close]);
    assert_eq!(rig.post("/", "k", "{}").await.refusal(), Some("upstream_failed"));
    assert_eq!(rig.post("/", "k", "{}").await.text(), "take 2");
    assert_eq!(rig.post("/", "k", "{}").await.text(), "take 2");
    let got = backend.got();
    let told = |n: usize| (got[n].header("onetake-attempt"), got[n].header("onetake-recovery"));
    assert_eq!((told(0), told(1)), ((Some("1"), None), (Some("2"), Some("true"))));
    assert_eq!(got[1].header("idempotency-key"), Some("k"));
    assert_eq!(got.len(), 2);
}

/// X4: a caller who hangs up cancels nothing; a retry hears what came of it.
#[tokio::test]
async fn x4_a_caller_who_hangs_up_cancels_nothing() {
    let backend = Backend::start().await;
    let rig = Rig::before(&backend).await;
    backend.plan([Act::Wait(answer(201, "made"))]);
    let request =
        b"POST /orders HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ncontent-length: 2\r\n\
        content-type: application/json\r\n\r\n{}";
    let mut stream = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, request).await.unwrap();
    backend.arrived().await;
    drop(stream);
    backend.go_on();
    let heard = rig.post("/orders", "k", "{}").await;
    assert_eq!((heard.status.as_u16(), heard.text()), (201, "made"));
    assert_eq!(backend.got().len(), 1);
}

/// X4: a caller who hangs up in the middle of a stream does not end it for the upstream.
#[tokio::test]
async fn x4_a_caller_who_hangs_up_on_a_stream_does_not_cancel_it() {
    let backend = Backend::start().await;
    let rig = Rig::before(&backend).await;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let first = format!("{head}9\r\ndata: 1\n\n\r\n");
    backend.plan([Act::InTwo(first, "9\r\ndata: 2\n\n\r\n0\r\n\r\n".into())]);
    let request = b"POST /orders HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\n\
        content-length: 2\r\ncontent-type: application/json\r\n\r\n{}";
    let got = rig.raw(request, "data: 1").await;
    assert!(got.starts_with("HTTP/1.1 200"), "the first event is there before the second");
    // The client has hung up by now; what it does not hear is still taken.
    let duplicate = tokio::spawn(rig.client.request(rig.keyed("/orders", "k", "{}")));
    backend.go_on();
    assert!(backend.was_heard().await);
    let duplicate = duplicate.await.unwrap().unwrap();
    assert_eq!(duplicate.headers()["onetake-refused"], "result_not_kept");
    assert_eq!(backend.got().len(), 1);
}

/// A body without a length is cut where it becomes too large, key or no key.
#[tokio::test]
async fn a_body_that_passes_is_bounded_too() {
    let (backend, other) = (Backend::start().await, Backend::start().await);
    let mut routes = vec![
        route("POST /keyed", backend.address, Some(settings(Dialect::stripe()))),
        route("* /**", backend.address, None),
        route("* /fits", other.address, None),
    ];
    for route in &mut routes {
        route.request_bytes_max = 10;
    }
    let rig = Rig::start(parts(anonymous()), routes).await;
    let chunk = "6\r\nabcdef\r\n";
    // It reads heads only, and would answer before a body is cut.
    backend.plan([Act::Hang, Act::Hang]);
    for path in ["/keyed", "/passes"] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\n");
        for rest in [
            "content-length: 11\r\n\r\nabcdefghijk".to_owned(),
            format!("transfer-encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"),
        ] {
            let got = rig.raw(format!("{head}{rest}").as_bytes(), "too_large").await;
            assert!(got.starts_with("HTTP/1.1 413"), "{path}: {got}");
        }
    }
    let body = "POST /fits HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabcdefghij";
    assert!(rig.raw(body.as_bytes(), "take 1").await.starts_with("HTTP/1.1 200"));
}

/// X15: an upstream that has enough to do costs no claim, and known keys are answered all the same.
#[tokio::test]
async fn x15_a_busy_upstream_claims_nothing_and_replays_go_on() {
    let backend = Backend::start().await;
    let store = Arc::new(Memory::new());
    let claims = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&claims);
    let store = Faulty::new(store, move |op| {
        counted.fetch_add(u32::from(op == Op::Claim), Ordering::SeqCst);
        Fault::None
    });
    let mut routes = keyed(&backend, settings(Dialect::ietf()));
    let base = format!("http://{}", backend.address).parse().unwrap();
    let options = UpstreamOptions::new().in_flight_max(1);
    routes[0].upstream = ProxyUpstream::new(base, options).unwrap();
    let rig = Rig::on(Engine::new(store), parts(anonymous()), routes).await;
    assert_eq!(rig.post("/", "known", "{}").await.text(), "take 1");
    backend.arrived().await;
    backend.plan([Act::Wait(answer(200, "slow"))]);
    let slow = tokio::spawn(rig.client.request(rig.keyed("/", "slow", "{}")));
    backend.arrived().await;
    let before = claims.load(Ordering::SeqCst);
    let busy = rig.post("/", "new", "{}").await;
    assert_eq!((busy.status.as_u16(), busy.refusal()), (503, Some("busy")));
    assert_eq!(busy.header("retry-after"), Some("1"));
    assert_eq!(claims.load(Ordering::SeqCst), before, "nothing was claimed");
    assert_eq!(rig.post("/", "known", "{}").await.text(), "take 1");
    backend.go_on();
    assert_eq!(slow.await.unwrap().unwrap().status(), 200);
}

/// W10: one of several tenants takes no more than half of the places at an upstream.
#[tokio::test]
async fn w10_a_tenant_cannot_take_all_of_an_upstream() {
    let backend = Backend::start().await;
    let (acme, other) = (generate_key().unwrap(), generate_key().unwrap());
    let tenants = [tenant("acme", &acme.1), tenant("other", &other.1)];
    let gate = Gate::ApiKeys(ApiKeySettings::default().build(&tenants).unwrap());
    let mut routes = keyed(&backend, settings(Dialect::ietf()));
    let base = format!("http://{}", backend.address).parse().unwrap();
    routes[0].upstream = ProxyUpstream::new(base, UpstreamOptions::new().in_flight_max(2)).unwrap();
    let rig = Rig::start(parts(gate), routes).await;
    let as_tenant = |credential: &str, key: &str| {
        let mut request = rig.keyed("/", key, "{}");
        let credential = format!("Bearer {credential}").parse().unwrap();
        request.headers_mut().insert("authorization", credential);
        request
    };
    backend.plan([Act::Wait(answer(200, "slow"))]);
    let slow = tokio::spawn(rig.client.request(as_tenant(&acme.0, "slow")));
    backend.arrived().await;
    let busy = rig.send(as_tenant(&acme.0, "more")).await;
    assert_eq!((busy.status.as_u16(), busy.refusal()), (503, Some("busy")));
    assert_eq!(rig.send(as_tenant(&other.0, "k")).await.text(), "take 2");
    backend.go_on();
    assert_eq!(slow.await.unwrap().unwrap().status(), 200);
}

/// X2: whoever has seen a live claim never executes beside it, although the store went away since
/// and the route lets pass.
#[tokio::test]
async fn x2_a_waiter_whose_store_goes_away_does_not_pass() {
    let backend = Backend::start().await;
    let is_down = Arc::new(AtomicBool::new(false));
    let (down, reads) = (Arc::clone(&is_down), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&reads);
    let store = Faulty::new(Arc::new(Memory::new()), move |op| {
        counted.fetch_add(u32::from(op == Op::Read), Ordering::SeqCst);
        if op == Op::Read && down.load(Ordering::SeqCst) { Fault::Fail } else { Fault::None }
    });
    let passing = Settings::builder(Dialect::ietf()).store_down(StoreDown::Pass).build().unwrap();
    let rig = Rig::on(Engine::new(store), parts(anonymous()), keyed(&backend, passing)).await;
    backend.plan([Act::Wait(answer(201, "made"))]);
    let first = tokio::spawn(rig.client.request(rig.keyed("/", "k", "{}")));
    backend.arrived().await;
    let second = tokio::spawn(rig.client.request(rig.keyed("/", "k", "{}")));
    // It has looked, and waits.
    while reads.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    is_down.store(true, Ordering::SeqCst);
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.headers()["onetake-refused"], "store_unavailable");
    backend.go_on();
    assert_eq!(first.await.unwrap().unwrap().status(), 201);
    assert_eq!(backend.got().len(), 1);
}

/// W9, X5: of many at once one reaches the upstream, and the others are woken with its answer.
#[tokio::test(flavor = "multi_thread")]
async fn w9_x5_of_many_at_once_one_reaches_the_upstream() {
    let backend = Backend::start().await;
    let rig = Arc::new(Rig::before(&backend).await);
    backend.plan([Act::Wait(answer(201, "made"))]);
    let asking: Vec<_> = (0..32)
        .map(|_| {
            let rig = Arc::clone(&rig);
            tokio::spawn(async move { rig.post("/", "k", "{}").await })
        })
        .collect();
    backend.arrived().await;
    backend.go_on();
    for heard in asking {
        assert_eq!(heard.await.unwrap().text(), "made");
    }
    assert_eq!(backend.got().len(), 1);
}

/// A duplicate that may not wait is told when to come back.
#[tokio::test]
async fn a_duplicate_that_may_not_wait_is_refused() {
    let backend = Backend::start().await;
    let policy = Dialect::ietf().policy().on_in_flight(OnInFlight::Refuse);
    let settings = Settings::builder(Dialect::ietf()).policy(policy).build().unwrap();
    let rig = Arc::new(Rig::start(parts(anonymous()), keyed(&backend, settings)).await);
    backend.plan([Act::Wait(answer(200, "done"))]);
    let first = Arc::clone(&rig);
    let first = tokio::spawn(async move { first.post("/", "k", "{}").await });
    backend.arrived().await;
    let second = rig.post("/", "k", "{}").await;
    assert_eq!((second.status.as_u16(), second.refusal()), (409, Some("in_flight")));
    backend.go_on();
    assert_eq!(first.await.unwrap().text(), "done");
}

/// D10, K6: what carries no key where none is needed, and what changes nothing, passes untouched.
#[tokio::test]
async fn k6_what_needs_no_key_passes() {
    let backend = Backend::start().await;
    let rig = Rig::before(&backend).await;
    assert_eq!(rig.get("/a?b=c").await.text(), "take 1");
    assert!(backend.got()[0].head.starts_with("GET /a?b=c HTTP/1.1\r\n"));
    let body = Full::new(Bytes::from("x"));
    let keyless = rig.send(rig.request("POST", "/").body(body).unwrap()).await;
    assert_eq!((keyless.status.as_u16(), keyless.refusal()), (400, Some("key_missing")));
    assert_eq!(backend.got().len(), 1);
}

/// Health and the policy are the gateway's own, whatever the routes say.
#[tokio::test]
async fn x16_health_and_policy_are_the_gateways_own() {
    let backend = Backend::start().await;
    let rig = Rig::before(&backend).await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!((rig.get(path).await.status.as_u16(), backend.got().len()), (200, 0), "{path}");
    }
    let told: serde_json::Value =
        serde_json::from_slice(&rig.get("/.well-known/idempotency").await.body).unwrap();
    let route = &told["routes"][0];
    assert_eq!(route["match"], "DELETE,PATCH,POST,PUT /**");
    assert_eq!((&route["dialect"], &route["retention_seconds"]), (&"ietf".into(), &86_400.into()));
    assert_eq!(route["key"]["mode"], "required");
    assert_eq!(told["routes"].as_array().unwrap().len(), 1, "what passes has no policy");
}

fn tenant(name: &str, digest: &str) -> TenantKeys {
    let key = KeyOfTenant { digest: digest.to_owned(), ..KeyOfTenant::default() };
    TenantKeys { name: name.to_owned(), keys: vec![key], ..TenantKeys::default() }
}

/// W10: tenants come from their credentials, never meet, and cannot be pretended to.
#[tokio::test]
async fn w10_tenants_never_meet_and_cannot_be_pretended_to() {
    let backend = Backend::start().await;
    let (acme, other) = (generate_key().unwrap(), generate_key().unwrap());
    let tenants = [tenant("acme", &acme.1), tenant("other", &other.1)];
    let gate = Gate::ApiKeys(ApiKeySettings::default().build(&tenants).unwrap());
    let keyed = route("POST /**", backend.address, Some(settings(Dialect::ietf())));
    let rig = Rig::start(parts(gate), vec![keyed]).await;
    let post = async |credential: Option<&str>, body: &'static str| {
        let mut request = rig.request("POST", "/").header("idempotency-key", "k");
        request = request.header("onetake-tenant", "acme").header("Onetake_Tenant", "acme");
        if let Some(credential) = credential {
            request = request.header("authorization", format!("Bearer {credential}"));
        }
        rig.send(request.body(Full::new(Bytes::from(body))).unwrap()).await
    };
    assert_eq!(post(Some(&acme.0), "1").await.text(), "take 1");
    assert_eq!(post(Some(&other.0), "2").await.text(), "take 2", "neither replay nor conflict");
    assert_eq!(post(Some(&acme.0), "1").await.text(), "take 1");
    let nobody = post(None, "1").await;
    assert_eq!((nobody.status.as_u16(), nobody.refusal()), (401, Some("identity_missing")));
    let wrong = post(Some("otk_wrong"), "1").await;
    assert_eq!((wrong.status.as_u16(), wrong.refusal()), (401, Some("identity_invalid")));
    let got = backend.got();
    let told: Vec<_> = got.iter().map(|got| got.header("onetake-tenant").unwrap()).collect();
    assert_eq!(told, ["acme", "other"]);
    assert!(got.iter().all(|got| got.header("authorization").is_none()), "not passed on");
    assert!(got.iter().all(|got| !got.head.contains("Onetake_Tenant")));
}

/// A scoped key lets the same word of two tenants never meet at the upstream.
#[tokio::test]
async fn a_scoped_key_never_meets_another_tenants() {
    let backend = Backend::start().await;
    let (acme, other) = (generate_key().unwrap(), generate_key().unwrap());
    let tenants = [tenant("acme", &acme.1), tenant("other", &other.1)];
    let gate = Gate::ApiKeys(ApiKeySettings::default().build(&tenants).unwrap());
    let mut keyed = route("POST /**", backend.address, Some(settings(Dialect::ietf())));
    keyed.forward_key = ForwardKey::Scoped;
    let rig = Rig::start(parts(gate), vec![keyed]).await;
    for credential in [&acme.0, &other.0] {
        let request = rig.request("POST", "/").header("idempotency-key", "order-1");
        let request = request.header("authorization", format!("Bearer {credential}"));
        rig.send(request.body(Full::default()).unwrap()).await;
    }
    let got = backend.got();
    let keys: Vec<_> = got.iter().map(|got| got.header("idempotency-key").unwrap()).collect();
    assert!(keys[0] != keys[1] && keys.iter().all(|key| key.len() == 64), "{keys:?}");
}

/// Paths with two meanings, unknown routes and other methods get clear answers.
#[tokio::test]
async fn strange_targets_get_clear_answers() {
    let backend = Backend::start().await;
    let keyed = route("POST /orders/{id}", backend.address, Some(settings(Dialect::ietf())));
    let rig = Rig::start(parts(anonymous()), vec![keyed]).await;
    assert_eq!(rig.post("/orders/1", "k", "").await.text(), "take 1");
    assert_eq!(rig.post("/orders/%31", "k", "").await.text(), "take 1", "one spelling");
    assert_eq!(rig.post("/orders/2", "k", "").await.refusal(), Some("key_mismatch"));
    let missing = rig.post("/nowhere", "k", "").await;
    assert_eq!((missing.status.as_u16(), missing.refusal()), (404, Some("route_missing")));
    let method = rig.get("/orders/1").await;
    assert_eq!((method.status.as_u16(), method.header("allow")), (405, Some("POST")));
    assert!(method.text().contains("\"status\":405"), "{}", method.text());
    let escaped = rig.post("/orders/..%2f1", "k", "").await;
    assert_eq!((escaped.status.as_u16(), escaped.refusal()), (400, Some("request_invalid")));
    assert_eq!(backend.got().len(), 1);
}

/// Requests that lie about themselves never reach the upstream, and the gateway lives on.
#[tokio::test]
async fn requests_that_lie_are_refused() {
    let backend = Backend::start().await;
    let rig = Rig::before(&backend).await;
    let start = "POST / HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\n";
    for (name, rest) in [
        ("two lengths", "content-length: 1\r\ncontent-length: 2\r\n\r\nab"),
        ("no number", "content-length: x\r\n\r\n"),
        ("both", "content-length: 3\r\ntransfer-encoding: x\r\n\r\nabc"),
        ("two keys", "idempotency-key: j\r\ncontent-length: 0\r\n\r\n"),
        ("control", "idempotency-kex: \x01\r\ncontent-length: 0\r\n\r\n"),
    ] {
        let heard = rig.raw(format!("{start}{rest}").as_bytes(), "\r\n\r\n").await;
        assert!(heard.starts_with("HTTP/1.1 400"), "{name}: {heard}");
    }
    let hostless = "POST / HTTP/1.1\r\nidempotency-key: k\r\ncontent-length: 0\r\n\r\n";
    assert!(rig.raw(hostless.as_bytes(), "\r\n\r\n").await.starts_with("HTTP/1.1 400"));
    let long = format!("{start}x-long: {}\r\ncontent-length: 0\r\n\r\n", "x".repeat(65_536));
    assert!(rig.raw(long.as_bytes(), "\r\n\r\n").await.starts_with("HTTP/1.1 431"));
    assert_eq!(backend.got().len(), 0);
    assert_eq!(rig.post("/", "k", "").await.text(), "take 1");
}

/// An observed route sends everything, and says what it would have done.
#[tokio::test]
async fn an_observed_route_sends_everything() {
    let backend = Backend::start().await;
    let settings = Settings::builder(Dialect::ietf()).mode(Mode::Observe).build().unwrap();
    let rig = Rig::start(parts(anonymous()), keyed(&backend, settings)).await;
    assert_eq!(rig.post("/", "k", "1").await.header("onetake-observed"), None);
    let again = rig.post("/", "k", "1").await;
    assert_eq!((again.text(), again.header("onetake-observed")), ("take 2", Some("replayed")));
    let other = rig.post("/", "k", "2").await;
    assert_eq!((other.text(), other.header("onetake-observed")), ("take 3", Some("key_mismatch")));
}

/// W7, W8: a status that the upstream sent follows the dialect.
#[tokio::test]
async fn w7_w8_a_status_of_the_upstream_follows_the_dialect() {
    for (dialect, status, sent) in [
        (Dialect::ietf(), 500, 1),
        (Dialect::ietf(), 503, 2),
        (Dialect::openwop(), 500, 2),
        (Dialect::openwop(), 404, 1),
        (Dialect::davepi(), 404, 2),
        (Dialect::stripe(), 429, 2),
    ] {
        let backend = Backend::start().await;
        let rig = Rig::start(parts(anonymous()), keyed(&backend, settings(dialect))).await;
        backend.plan([Act::Answer(answer(status, "no"))]);
        assert_eq!(rig.post("/", "k", "").await.status.as_u16(), status);
        rig.post("/", "k", "").await;
        assert_eq!(backend.got().len(), sent, "{status}");
    }
}

/// X15: new keys are limited per tenant, replays are not.
#[tokio::test]
async fn x15_new_keys_are_limited_and_replays_are_not() {
    let backend = Backend::start().await;
    let keyed = route("POST /**", backend.address, Some(settings(Dialect::ietf())));
    let mut parts = parts(anonymous());
    parts.new_keys_per_minute.insert(Tenant::new("anonymous").unwrap(), 2);
    let rig = Rig::start(parts, vec![keyed]).await;
    rig.post("/", "a", "").await;
    rig.post("/", "b", "").await;
    let third = rig.post("/", "c", "").await;
    assert_eq!((third.status.as_u16(), third.refusal()), (429, Some("new_keys_limited")));
    assert!(third.header("retry-after").unwrap().parse::<u32>().unwrap() <= 30);
    assert_eq!(rig.post("/", "a", "").await.text(), "take 1", "a known key is answered");
    assert_eq!(rig.post("/", "b", "x").await.refusal(), Some("key_mismatch"));
    assert_eq!(backend.got().len(), 2);
}
