//! Probing, over real sockets: what a status URL says decides what becomes of an unknown outcome.
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod rig;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use onetake_core::{Actor, OnUnknown, Outcome, Status};
use onetake_engine::operate::{Query, Seen};
use onetake_engine::{Engine, ManualClock, Memory, MemoryLimits};
use onetake_http::gateway::probe::{Probe, ProbeUrl};
use onetake_http::gateway::{ForwardKey, Parts, Route};
use onetake_http::identity::{ApiKeySettings, Gate, KeyOfTenant, TenantKeys, generate_key};
use onetake_http::{Dialect, Mode, Settings, SettingsBuilder, StoreDown};
use onetake_testkit::faulty::{Fault, Faulty, Op, Script};
use rig::{Act, Backend, Got, Heard, Rig, anonymous, answer, parts, route, upstream};

/// The time limit of the routes here, by the store's clock, which only a test moves.
const LIMIT: Duration = Duration::from_secs(30);

fn probing() -> SettingsBuilder {
    let policy = Dialect::ietf().policy().on_unknown(OnUnknown::Probe);
    Settings::builder(Dialect::ietf()).policy(policy)
}

fn probed(pattern: &str, backend: &Backend, url: &str, settings: SettingsBuilder) -> Route {
    let probe = Some(Probe::here(ProbeUrl::parse(url).unwrap()));
    Route { probe, ..route(pattern, backend.address, Some(settings.build().unwrap())) }
}

/// An upstream, a gateway in front of it, and the clock of its store.
struct Stage {
    backend: Backend,
    engine: Engine<Memory>,
    clock: Arc<ManualClock>,
    rig: Rig,
}

impl Stage {
    async fn new() -> Self {
        Self::with(|backend| probed("POST /**", backend, "/status/{key}", probing())).await
    }

    async fn with(route: impl Fn(&Backend) -> Route) -> Self {
        Self::of(parts(anonymous()), route).await
    }

    async fn of(parts: Parts, route: impl Fn(&Backend) -> Route) -> Self {
        let (backend, clock) = (Backend::start().await, Arc::new(ManualClock::at(1_000_000)));
        let memory = Memory::with(MemoryLimits::default(), Arc::clone(&clock));
        let engine = Engine::new(memory);
        let rig = Rig::on(engine.clone(), parts, vec![route(&backend)]).await;
        Self { backend, engine, clock, rig }
    }

    /// Makes the outcome of `k` unknown: the upstream reads the request and closes.
    async fn unknown(&self) {
        self.backend.plan([Act::Close]);
        assert_eq!(self.post().await.refusal(), Some("upstream_failed"));
        self.backend.arrived().await;
    }

    async fn post(&self) -> Heard {
        self.rig.post("/orders", "k", "{}").await
    }

    /// How many requests were to execute, and how many only asked.
    fn counts(&self) -> (usize, usize) {
        let got = self.backend.got();
        let asked = got.iter().filter(|got| got.header("onetake-probe").is_some()).count();
        (got.len() - asked, asked)
    }
}

fn line(got: &Got) -> &str {
    got.head.lines().next().unwrap()
}

fn stays_unknown(heard: &Heard, retry_after: &str) {
    let said = (heard.status.as_u16(), heard.refusal(), heard.header("retry-after"));
    assert_eq!(said, (409, Some("outcome_unknown"), Some(retry_after)));
}

/// X3, C4: what the status URL answers is the outcome from then on, kept like any other.
#[tokio::test]
async fn x3_a_probe_that_finds_the_effect_settles_it() {
    let stage = Stage::new().await;
    stage.unknown().await;
    let found = "HTTP/1.1 201 Created\r\nlocation: /orders/7\r\nset-cookie: a=1\r\n\
        onetake-refused: busy\r\nconnection: x-hop\r\nx-hop: 1\r\ncontent-length: 4\r\n\r\nmade";
    stage.backend.plan([Act::Answer(found.into())]);
    for _ in 0..3 {
        let heard = stage.post().await;
        assert_eq!((heard.status.as_u16(), heard.text(), heard.is_replayed()), (201, "made", true));
        assert_eq!(heard.header("location"), Some("/orders/7"));
        assert!(heard.header("idempotency-expires").is_some());
        for never in ["set-cookie", "onetake-refused", "x-hop"] {
            assert_eq!(heard.header(never), None, "{never}");
        }
    }
    assert_eq!(stage.counts(), (1, 1));
    let asked = &stage.backend.got()[1];
    assert_eq!((line(asked), asked.body.len()), ("GET /status/k HTTP/1.1", 0));
    assert_eq!(asked.header("idempotency-key"), Some("k"));
    assert_eq!(asked.header("onetake-tenant"), Some("anonymous"));
    assert_eq!(asked.header("onetake-probe"), Some("true"));
    assert_eq!(asked.header("host"), Some(stage.backend.address.to_string().as_str()));
    for never in ["onetake-attempt", "onetake-recovery", "content-type", "content-length"] {
        assert_eq!(asked.header(never), None, "{never}");
    }
}

/// X3: that there was no effect is believed once the attempt is certainly over, and not before;
/// then a declared recovery executes, once.
#[tokio::test]
async fn x3_no_effect_is_believed_only_once_the_attempt_is_over() {
    for status in [404, 410] {
        let stage = Stage::new().await;
        stage.unknown().await;
        stage.backend.plan([404, 410, status].map(|code| Act::Answer(answer(code, ""))));
        stays_unknown(&stage.post().await, "30");
        stage.clock.advance(Duration::from_millis(10_500));
        stays_unknown(&stage.post().await, "20");
        assert_eq!(stage.counts(), (1, 2));
        stage.clock.advance(Duration::from_millis(19_500));
        let heard = stage.post().await;
        assert_eq!((heard.text(), heard.is_replayed()), ("take 5", false));
        assert_eq!((stage.post().await.text(), stage.counts()), ("take 5", (2, 3)));
        let last = &stage.backend.got()[4];
        assert_eq!(line(last), "POST /orders HTTP/1.1");
        let told = (last.header("onetake-attempt"), last.header("onetake-recovery"));
        assert_eq!(told, (Some("2"), Some("true")));
        assert_eq!((&last.body[..], last.header("onetake-probe")), (&b"{}"[..], None));
    }
}

/// X3: a recovery that goes wrong as well is unknown anew, and has its own time.
#[tokio::test]
async fn x3_a_recovery_is_probed_like_the_attempt_before_it() {
    let stage = Stage::new().await;
    stage.unknown().await;
    stage.clock.advance(LIMIT);
    stage.backend.plan([Act::Answer(answer(404, "")), Act::Close]);
    assert_eq!(stage.post().await.refusal(), Some("upstream_failed"));
    stage.backend.plan([Act::Answer(answer(404, ""))]);
    stays_unknown(&stage.post().await, "30");
    assert_eq!(stage.counts(), (2, 2));
    stage.clock.advance(LIMIT);
    stage.backend.plan([Act::Answer(answer(404, ""))]);
    assert_eq!(stage.post().await.text(), "take 6");
    assert_eq!(stage.backend.got()[5].header("onetake-attempt"), Some("3"));
}

/// X3: anything else that a status URL says or does leaves the outcome unknown, however old.
#[tokio::test]
async fn x3_anything_else_stays_unknown_and_is_asked_again() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_owned();
    let moved = "HTTP/1.1 302 X\r\nlocation: /made\r\ncontent-length: 0\r\n\r\n".to_owned();
    let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n".to_owned();
    let mut acts = vec![Act::Close, Act::BreakOff(half), Act::Answer(moved)];
    acts.extend([Act::BreakOff(stream), Act::BreakOff("garbage\r\n\r\n".into())]);
    acts.extend([400, 401, 403, 409, 425, 429, 500, 503].map(|code| Act::Answer(answer(code, ""))));
    let stage = Stage::new().await;
    stage.unknown().await;
    stage.clock.advance(LIMIT * 100);
    for (asked, act) in acts.into_iter().enumerate() {
        stage.backend.plan([act.clone()]);
        let heard = stage.post().await;
        assert_eq!(heard.refusal(), Some("outcome_unknown"), "{act:?}");
        stays_unknown(&heard, "3");
        assert_eq!(stage.counts(), (1, asked + 1), "{act:?}");
    }
    stage.backend.plan([Act::Answer(answer(200, "made"))]);
    assert_eq!(stage.post().await.text(), "made");
}

/// X3: a probe that never ends is given up, in its head as in its body, and settles nothing.
#[tokio::test]
async fn x3_a_probe_that_hangs_is_given_up() {
    let stage = Stage::with(|backend| {
        let route = probed("POST /**", backend, "/status/{key}", probing());
        Route { timeout: Duration::from_millis(100), ..route }
    })
    .await;
    stage.unknown().await;
    stage.clock.advance(LIMIT);
    let endless = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nmore".to_owned();
    for act in [Act::Hang, Act::Answer(endless)] {
        stage.backend.plan([act]);
        stays_unknown(&stage.post().await, "3");
    }
    assert_eq!(stage.counts(), (1, 2));
}

/// X3: no connection to the status URL says nothing about what happened.
#[tokio::test]
async fn x3_a_status_url_that_cannot_be_reached_settles_nothing() {
    let status = Backend::start().await;
    let stage = Stage::with(|backend| {
        let url = ProbeUrl::parse("http://status.invalid/{key}").unwrap();
        let probe = Some(Probe::elsewhere(url, upstream(status.address)));
        Route { probe, ..probed("POST /**", backend, "/{key}", probing()) }
    })
    .await;
    status.stop().await;
    stage.unknown().await;
    stage.clock.advance(LIMIT);
    stays_unknown(&stage.post().await, "3");
    assert_eq!(stage.counts(), (1, 0));
}

/// X9: an answer that is too large to be kept settles nothing; one that fits does.
#[tokio::test]
async fn x9_an_outcome_that_cannot_be_kept_settles_nothing() {
    let stage = Stage::with(|backend| {
        probed("POST /**", backend, "/status/{key}", probing().response_bytes_max(4))
    })
    .await;
    stage.unknown().await;
    stage.backend.plan(["12345", "1234"].map(|body| Act::Answer(answer(200, body))));
    stays_unknown(&stage.post().await, "3");
    assert_eq!((stage.post().await.text(), stage.counts()), ("1234", (1, 2)));
}

/// W9: of many retries at once one asks, and all of them get what it finds.
#[tokio::test(flavor = "multi_thread")]
async fn w9_of_many_retries_at_once_one_asks() {
    for (found, heard, counts) in
        [(answer(200, "made"), "made", (1, 1)), (answer(404, ""), "take 3", (2, 1))]
    {
        let stage = Arc::new(Stage::new().await);
        stage.unknown().await;
        stage.clock.advance(LIMIT);
        stage.backend.plan([Act::Wait(found)]);
        let asking: Vec<_> = (0..16)
            .map(|_| {
                let stage = Arc::clone(&stage);
                tokio::spawn(async move { stage.post().await })
            })
            .collect();
        stage.backend.arrived().await;
        stage.backend.go_on();
        for one in asking {
            assert_eq!(one.await.unwrap().text(), heard);
        }
        assert_eq!(stage.counts(), counts);
    }
}

/// X2: two processes that both hear that there was no effect execute once between them.
#[tokio::test(flavor = "multi_thread")]
async fn x2_rival_processes_recover_once() {
    let stage = Stage::new().await;
    let rival = probed("POST /**", &stage.backend, "/status/{key}", probing());
    let rival = Rig::on(stage.engine.clone(), parts(anonymous()), vec![rival]).await;
    stage.unknown().await;
    stage.clock.advance(LIMIT);
    stage.backend.plan([Act::Wait(answer(404, "")), Act::Wait(answer(404, ""))]);
    let rivals = async {
        stage.backend.arrived().await;
        rival.post("/orders", "k", "{}").await
    };
    let opened = async {
        // Both are asking before either hears anything.
        while stage.counts().1 < 2 {
            tokio::task::yield_now().await;
        }
        while stage.counts().0 < 2 {
            stage.backend.go_on();
            tokio::task::yield_now().await;
        }
        stage.backend.go_on();
    };
    let opened = async {
        opened.await;
        std::future::pending::<()>().await;
    };
    let both = async { tokio::join!(stage.post(), rivals) };
    let (one, two) = tokio::select! {
        both = both => both,
        () = opened => unreachable!("it never ends"),
    };
    assert_eq!((one.text(), two.text()), ("take 4", "take 4"));
    assert_eq!(stage.counts(), (2, 2));
}

/// X10: an operator who settles the key while it is asked about is right, whatever is found.
#[tokio::test]
async fn x10_an_operator_is_faster_than_a_probe() {
    for found in [answer(200, "made"), answer(404, "")] {
        let stage = Stage::new().await;
        stage.unknown().await;
        stage.clock.advance(LIMIT);
        stage.backend.plan([Act::Wait(found)]);
        let by_hand = async {
            stage.backend.arrived().await;
            let (status, by) = (Status::new(202).unwrap(), Actor::new("ann").unwrap());
            let said = Outcome::Response { status, headers: Vec::new(), body: "by hand".into() };
            let rows = stage.engine.list(&Query::default(), None, 1).await.unwrap().rows;
            let (slot, version) = (rows[0].address.slot(), rows[0].version);
            stage.engine.resolve(&by, slot, version, said, LIMIT).await.unwrap();
            stage.backend.go_on();
        };
        let (heard, ()) = tokio::join!(stage.post(), by_hand);
        assert_eq!((heard.status.as_u16(), heard.text()), (202, "by hand"));
        assert_eq!((stage.post().await.text(), stage.counts()), ("by hand", (1, 1)));
    }
}

/// X2: a key that was released and used again meanwhile is not recovered behind its new attempt.
#[tokio::test]
async fn x2_what_was_heard_of_one_attempt_says_nothing_about_a_younger_one() {
    let stage = Stage::new().await;
    stage.unknown().await;
    stage.clock.advance(LIMIT);
    stage.backend.plan([Act::Wait(answer(404, "")), Act::Close]);
    let meanwhile = async {
        stage.backend.arrived().await;
        let rows = stage.engine.list(&Query::default(), None, 1).await.unwrap().rows;
        let (slot, seen) = (rows[0].address.slot(), Seen::Record(rows[0].version));
        let by = Actor::new("ann").unwrap();
        stage.engine.release(&by, slot, seen).await.unwrap();
        assert_eq!(stage.post().await.refusal(), Some("upstream_failed"));
        stage.backend.go_on();
    };
    let (heard, ()) = tokio::join!(stage.post(), meanwhile);
    stays_unknown(&heard, "3");
    assert_eq!(stage.counts(), (2, 1), "nobody asked about the second attempt");
}

/// X4: a caller who leaves while the URL is asked changes nothing, and keeps nobody waiting.
#[tokio::test]
async fn x4_a_caller_who_leaves_in_mid_probe_changes_nothing() {
    let stage = Stage::new().await;
    stage.unknown().await;
    let made = || answer(200, "made");
    stage.backend.plan([Act::Wait(made()), Act::Answer(made()), Act::Answer(made())]);
    let request =
        b"POST /orders HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ncontent-length: 2\r\n\
        content-type: application/json\r\n\r\n{}";
    let mut stream = tokio::net::TcpStream::connect(stage.rig.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, request).await.unwrap();
    stage.backend.arrived().await;
    drop(stream);
    stage.backend.go_on();
    let mut heard = stage.post().await;
    if heard.refusal() == Some("outcome_unknown") {
        // It stayed for the one who left, and was told to come back.
        heard = stage.post().await;
    }
    assert_eq!((heard.text(), heard.is_replayed(), stage.counts().0), ("made", true, 1));
}

/// X3: a store that fails around a probe passes nothing on, not even where a store that is down
/// lets requests pass: that an effect may have happened is known.
#[tokio::test]
async fn x3_a_store_that_fails_in_mid_probe_executes_nothing() {
    let (backend, script) = (Backend::start().await, Script::default());
    let store = Arc::new(Faulty::scripted(Arc::new(Memory::new()), &script));
    let settings = probing().store_down(StoreDown::Pass);
    let route = probed("POST /**", &backend, "/status/{key}", settings);
    let rig = Rig::on(Engine::new(store), parts(anonymous()), vec![route]).await;
    backend.plan([Act::Close]);
    assert_eq!(rig.post("/", "k", "{}").await.refusal(), Some("upstream_failed"));
    script.plan(Op::Read, Fault::Fail);
    stays_unknown(&rig.post("/", "k", "{}").await, "3");
    assert_eq!(backend.got().len(), 1, "nobody is asked about what cannot be seen");
    script.plan(Op::Settle, Fault::Fail);
    stays_unknown(&rig.post("/", "k", "{}").await, "3");
    script.plan(Op::Settle, Fault::LoseReply);
    let heard = rig.post("/", "k", "{}").await;
    assert_eq!((heard.text(), heard.is_replayed()), ("take 3", true));
    assert_eq!(backend.got().iter().filter(|got| line(got).starts_with("POST")).count(), 1);
}

/// K2: other content under an unknown key is refused, and nobody is asked about it.
#[tokio::test]
async fn k2_other_content_is_a_mismatch_and_asks_nobody() {
    let stage = Stage::new().await;
    stage.unknown().await;
    let other = stage.rig.post("/orders", "k", "[]").await;
    assert_eq!((other.refusal(), stage.counts()), (Some("key_mismatch"), (1, 0)));
}

/// A key that would make another path of the URL cannot be asked about.
#[tokio::test]
async fn a_key_that_would_climb_is_never_asked_about() {
    let stage = Stage::new().await;
    stage.backend.plan([Act::Close]);
    assert_eq!(stage.rig.post("/", "..", "{}").await.refusal(), Some("upstream_failed"));
    stays_unknown(&stage.rig.post("/", "..", "{}").await, "3");
    assert_eq!(stage.counts(), (1, 0));
}

/// A route that only watches never asks: it sends everything, as before.
#[tokio::test]
async fn an_observed_route_never_probes() {
    let stage = Stage::with(|backend| {
        probed("POST /**", backend, "/status/{key}", probing().mode(Mode::Observe))
    })
    .await;
    stage.unknown().await;
    let again = stage.post().await;
    assert_eq!(
        (again.text(), again.header("onetake-observed")),
        ("take 2", Some("outcome_unknown"))
    );
    assert_eq!(stage.counts(), (2, 0));
}

/// A policy that says "probe" without a URL holds the key, as it cannot do better.
#[tokio::test]
async fn without_a_url_there_is_nobody_to_ask() {
    let stage = Stage::with(|backend| Route {
        probe: None,
        ..probed("POST /**", backend, "/status/{key}", probing())
    })
    .await;
    stage.unknown().await;
    let heard = stage.post().await;
    assert_eq!((heard.refusal(), heard.header("retry-after")), (Some("outcome_unknown"), None));
    assert_eq!(stage.counts(), (1, 0));
}

fn tenant(name: &str, digest: &str) -> TenantKeys {
    let key = KeyOfTenant { digest: digest.to_owned(), ..KeyOfTenant::default() };
    TenantKeys { name: name.to_owned(), keys: vec![key], ..TenantKeys::default() }
}

/// A gate for two tenants, and their credentials.
fn two_tenants() -> (Gate, [String; 2]) {
    let (acme, other) = (generate_key().unwrap(), generate_key().unwrap());
    let tenants = [tenant("acme", &acme.1), tenant("other & co", &other.1)];
    (Gate::ApiKeys(ApiKeySettings::default().build(&tenants).unwrap()), [acme.0, other.0])
}

async fn post_as(stage: &Stage, credential: &str, path: &str, key: &str) -> Heard {
    let request = stage.rig.request("POST", path).header("idempotency-key", key);
    let request = request.header("authorization", format!("Bearer {credential}"));
    // None of this is for the one who is asked.
    let request = request.header("if-none-match", "*").header("range", "bytes=0-0");
    let request = request.header("onetake-probe", "spoofed").header("cookie", "a=1");
    let request = request.header("accept", "text/plain");
    stage.rig.send(request.body(Full::new(Bytes::from("{}"))).unwrap()).await
}

/// W10: a probe asks about one tenant's key, by its verified name, with what its path said.
#[tokio::test]
async fn w10_a_probe_asks_in_the_name_of_its_tenant() {
    let (gate, credentials) = two_tenants();
    let url = "/{tenant}/orders/{id}?key={key}";
    let stage =
        Stage::of(parts(gate), |backend| probed("POST /orders/{id}", backend, url, probing()))
            .await;
    for credential in &credentials {
        stage.backend.plan([Act::Close]);
        let first = post_as(&stage, credential, "/orders/a%20b", "k/1&x").await;
        assert_eq!(first.refusal(), Some("upstream_failed"));
    }
    stage.backend.plan(["acme's", "other's"].map(|body| Act::Answer(answer(200, body))));
    for (credential, body) in credentials.iter().zip(["acme's", "other's"]) {
        for _ in 0..2 {
            assert_eq!(post_as(&stage, credential, "/orders/a%20b", "k/1&x").await.text(), body);
        }
    }
    let got = &stage.backend.got()[2..];
    assert_eq!(line(&got[0]), "GET /acme/orders/a%20b?key=k%2F1%26x HTTP/1.1");
    assert_eq!(line(&got[1]), "GET /other%20%26%20co/orders/a%20b?key=k%2F1%26x HTTP/1.1");
    for (got, tenant) in got.iter().zip(["acme", "other & co"]) {
        assert_eq!(got.header("onetake-tenant"), Some(tenant));
        assert_eq!(got.header("onetake-probe"), Some("true"));
        assert_eq!(got.header("idempotency-key"), Some("k/1&x"));
        assert_eq!(got.header("accept"), Some("text/plain"));
        for never in ["authorization", "if-none-match", "range", "cookie"] {
            assert_eq!(got.header(never), None, "{never}");
        }
    }
    assert_eq!(got.len(), 2);
}

/// Credentials go with a probe only where they are passed on, and only to the same upstream.
#[tokio::test]
async fn credentials_never_reach_another_host() {
    for elsewhere in [false, true] {
        let (status, (gate, [credential, _])) = (Backend::start().await, two_tenants());
        let parts = Parts { forwards_credentials: true, ..parts(gate) };
        let stage = Stage::of(parts, |backend| {
            let route = probed("POST /**", backend, "/status/{key}", probing());
            let url = format!("http://{}/status/{{key}}", status.address);
            let there = Probe::elsewhere(ProbeUrl::parse(&url).unwrap(), upstream(status.address));
            let probe = if elsewhere { Some(there) } else { route.probe.clone() };
            Route { probe, ..route }
        })
        .await;
        stage.backend.plan([Act::Close]);
        post_as(&stage, &credential, "/", "k").await;
        assert!(post_as(&stage, &credential, "/", "k").await.is_replayed());
        let asked = if elsewhere { status.got() } else { stage.backend.got().split_off(1) };
        assert_eq!((asked.len(), line(&asked[0])), (1, "GET /status/k HTTP/1.1"));
        assert_eq!(asked[0].header("authorization").is_some(), !elsewhere);
        let host = if elsewhere { status.address } else { stage.backend.address };
        assert_eq!(asked[0].header("host"), Some(host.to_string().as_str()));
    }
}

/// With scoped keys the upstream is asked about the key that it was sent.
#[tokio::test]
async fn w10_a_scoped_key_is_asked_about_as_it_was_sent() {
    let stage = Stage::with(|backend| {
        let route = probed("POST /**", backend, "/status/{key}", probing());
        Route { forward_key: ForwardKey::Scoped, ..route }
    })
    .await;
    stage.unknown().await;
    assert!(stage.post().await.is_replayed());
    let got = stage.backend.got();
    let sent = got[0].header("idempotency-key").unwrap();
    assert_eq!(sent.len(), 64);
    assert_eq!(line(&got[1]), format!("GET /status/{sent} HTTP/1.1"));
    assert_eq!(got[1].header("idempotency-key"), Some(sent));
}

/// W10: subjects who share their keys ask about the key that any of them sent.
#[tokio::test]
async fn w10_subjects_who_share_a_key_ask_about_the_same_one() {
    let made = [generate_key().unwrap(), generate_key().unwrap()];
    let keys = made.iter().zip(["ann", "bob"]).map(|((_, digest), name)| KeyOfTenant {
        digest: digest.clone(),
        name: Some(name.to_owned()),
        ..KeyOfTenant::default()
    });
    let acme = TenantKeys { keys: keys.collect(), ..tenant("acme", "") };
    let gate = Gate::ApiKeys(ApiKeySettings::default().build(&[acme]).unwrap());
    let stage = Stage::of(parts(gate), |backend| {
        let route = probed("POST /**", backend, "/status/{key}", probing());
        Route { forward_key: ForwardKey::Scoped, shares_keys: true, ..route }
    })
    .await;
    stage.backend.plan([Act::Close]);
    post_as(&stage, &made[0].0, "/", "k").await;
    assert!(post_as(&stage, &made[1].0, "/", "k").await.is_replayed());
    let got = stage.backend.got();
    let named: Vec<_> = got.iter().map(|got| got.header("onetake-principal").unwrap()).collect();
    assert_eq!(named, ["ann", "bob"]);
    let keys: Vec<_> = got.iter().map(|got| got.header("idempotency-key").unwrap()).collect();
    assert_eq!(keys[0], keys[1]);
    assert_eq!(line(&got[1]), format!("GET /status/{} HTTP/1.1", keys[0]));
}
