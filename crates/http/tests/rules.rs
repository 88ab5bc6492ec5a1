//! Rules of the contract, through requests: what is the same, how long it lasts, who decides when
//! two processes meet, and who may hear it.
//!
//! Time is the store's or the runtime's own, both of which stand still until they are told to move.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod common;
mod rig;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{any, post};
use bytes::Bytes;
use common::{Count, Heard, ask, of, request};
use http::StatusCode;
use http_body_util::Full;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use onetake_core::{OnInFlight, OnUnknown, Pointer, PolicyBuilder, Scope, Tenant};
use onetake_engine::{Engine, ManualClock, Memory, MemoryLimits, Slots};
use onetake_http::axum::DurableRoutes;
use onetake_http::identity::{
    ApiKeySettings, Gate, JwtSettings, Secret, TenantKeys, Times, generate_key,
};
use onetake_http::{Dialect, Idempotency, Settings, SettingsBuilder};
use onetake_testkit::clock::TokioClock;
use onetake_testkit::faulty::{Fault, Faulty, Op, Script};
use rig::{Backend, Rig, parts, route, settings};
use serde_json::json;
use tokio::sync::Notify;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LEASE: Duration = Duration::from_secs(30);
/// A Friday in 2027, in milliseconds since 1970.
const NOW_MS: u64 = 1_800_000_000_000;

/// A door of one tenant on `store`.
fn on<S: Slots>(store: S, settings: SettingsBuilder) -> Idempotency {
    let door = Idempotency::single_tenant(Engine::new(store), "acme").unwrap();
    door.with(settings.build().unwrap())
}

/// A service that says which take it is.
fn counting(door: &Idempotency) -> (Router, Count) {
    let count = Count::default();
    let counted = count.clone();
    let handler = async move || format!("take {}", counted.up());
    (Router::new().fallback(handler).layer(door.layer()), count)
}

async fn keyed(app: &Router, key: &str, body: &'static str) -> Heard {
    ask(app, request("POST", "/", Some(key), body)).await
}

/// D1: every POST route honours a key, whether it stands by itself, has parameters, lies in a
/// router of its own or is only what is left over.
#[tokio::test]
async fn d1_every_post_route_honours_a_key() {
    for dialect in [Dialect::stripe(), Dialect::davepi()] {
        let count = Count::default();
        let counted = count.clone();
        let handler = async move || counted.up().to_string();
        let app = Router::new()
            .route("/orders", post(handler.clone()))
            .route("/orders/{id}/lines", any(handler.clone()))
            .nest("/admin", Router::new().route("/users", post(handler.clone())))
            .fallback(handler)
            .layer(of(dialect.clone()).layer());
        let paths = ["/orders", "/orders/7/lines", "/admin/users", "/elsewhere"];
        for (path, number) in paths.into_iter().zip(1..) {
            let first = ask(&app, request("POST", path, Some("k"), "{}")).await;
            assert_eq!(first.text(), number.to_string(), "{path}");
            let again = ask(&app, request("POST", path, Some("k"), "{}")).await;
            let mark = again.header(dialect.replay_mark.0.as_str());
            assert_eq!((again.text(), mark), (first.text(), Some("true")), "{path}");
        }
        assert_eq!(count.get(), 4);
    }
}

/// D4: the content is compared as it takes effect: without the fields that the caller may not
/// write, and in the name of the tenant that was verified.
#[tokio::test]
async fn d4_only_what_takes_effect_is_compared() {
    let dropped = ["/role", "/tenant", "/meta/at"].map(|field| Pointer::parse(field).unwrap());
    let settings = Settings::builder(Dialect::davepi()).ignore(dropped);
    let door = Idempotency::by_extension(Engine::new(Memory::new()));
    let (app, count) = counting(&door.with(settings.build().unwrap()));
    let send = async |tenant: &str, body: &'static str| {
        let mut request = request("POST", "/", Some("k"), body);
        request.extensions_mut().insert(Scope::tenant_wide(Tenant::new(tenant).unwrap()));
        ask(&app, request).await
    };
    let first = r#"{"name":"a","role":"admin","tenant":"acme","meta":{"at":1,"by":"x"}}"#;
    assert_eq!(send("acme", first).await.text(), "take 1");
    let same = r#"{"meta":{"by":"x","at":2},"role":"user","name":"a"}"#;
    assert_eq!(send("acme", same).await.text(), "take 1");
    for other in [r#"{"name":"b","meta":{"by":"x"}}"#, r#"{"name":"a","meta":{"by":"y"}}"#] {
        assert_eq!(send("acme", other).await.refusal(), Some("key_mismatch"), "{other}");
    }
    assert_eq!(send("other", first).await.text(), "take 2", "the body names no tenant");
    assert_eq!(count.get(), 2);
}

/// D6: when two processes are asked at once, the store that they share decides who executes.
#[tokio::test]
async fn d6_of_two_processes_on_one_store_one_executes() {
    let store = Arc::new(Memory::new());
    let refusing = || {
        let policy = Dialect::ietf().policy().on_in_flight(OnInFlight::Refuse);
        Settings::builder(Dialect::ietf()).policy(policy)
    };
    let bells = Arc::new((Notify::new(), Notify::new()));
    let heard = Arc::clone(&bells);
    let handler = async move || {
        heard.0.notify_one();
        heard.1.notified().await;
        "the first"
    };
    let one =
        Router::new().route("/", post(handler)).layer(on(Arc::clone(&store), refusing()).layer());
    let two = on(store, refusing()).layer();
    let two = Router::new().route("/", post(async || "the second")).layer(two);
    let first = tokio::spawn(async move { keyed(&one, "k", "{}").await });
    bells.0.notified().await;
    assert_eq!(keyed(&two, "k", "{}").await.refusal(), Some("in_flight"));
    bells.1.notify_one();
    assert_eq!(first.await.unwrap().text(), "the first");
    assert_eq!(keyed(&two, "k", "{}").await.text(), "the first");
}

/// D11: past its retention a record does not exist, although nobody has swept it. Without another
/// word the retention is a day.
#[tokio::test]
async fn d11_an_expired_answer_is_never_given_again() {
    let of_the_route = |retention| {
        let policy = Dialect::davepi().policy().retention(retention);
        Settings::builder(Dialect::davepi()).policy(policy)
    };
    let settings = [(HOUR, of_the_route(HOUR)), (DAY, Settings::builder(Dialect::davepi()))];
    for (retention, settings) in settings {
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let store = Arc::new(Memory::with(MemoryLimits::default(), Arc::clone(&clock)));
        let (app, _) = counting(&on(Arc::clone(&store), settings));
        assert_eq!(keyed(&app, "k", "{}").await.text(), "take 1");
        clock.advance(retention.saturating_sub(Duration::from_millis(1)));
        assert_eq!(keyed(&app, "k", "{}").await.text(), "take 1");
        clock.advance(Duration::from_millis(1));
        assert_eq!(store.len(), 1, "it is still there");
        assert_eq!(keyed(&app, "k", "[]").await.text(), "take 2", "and free for other content");
    }
}

/// W5: this contract keeps for a day at least; a caller is told until when.
#[tokio::test]
async fn w5_x16_openwop_keeps_for_a_day_and_says_so() {
    let short = Dialect::openwop().policy().retention(DAY.saturating_sub(SECOND));
    assert!(Settings::builder(Dialect::openwop()).policy(short).build().is_err());
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let store = Memory::with(MemoryLimits::default(), Arc::clone(&clock));
    let (app, _) = counting(&on(store, Settings::builder(Dialect::openwop())));
    for _ in 0..2 {
        let heard = keyed(&app, "k", "{}").await;
        assert_eq!(heard.text(), "take 1");
        assert_eq!(heard.header("idempotency-expires"), Some("Sat, 16 Jan 2027 08:00:00 GMT"));
        clock.advance(DAY.saturating_sub(SECOND));
    }
}

/// C2: an operation, a key and a content are one identity: another of the first two is another
/// execution, another of the third a conflict.
#[tokio::test]
async fn c2_operation_key_and_content_are_the_identity() {
    let count = Count::default();
    let counted = count.clone();
    let handler = async move || format!("take {}", counted.up());
    let app = Router::new()
        .durable_post("/create", "orders.create", handler.clone())
        .durable_post("/cancel", "orders.cancel", handler)
        .with_state(of(Dialect::cnerium()));
    let mut said = Vec::new();
    for (path, key, body) in [
        ("/create", "k", "1"),
        ("/create", "k", "1"),
        ("/create", "j", "1"),
        ("/cancel", "k", "1"),
        ("/create", "k", "2"),
    ] {
        let heard = ask(&app, request("POST", path, Some(key), body)).await;
        said.push(heard.refusal().unwrap_or(heard.text()).to_owned());
    }
    assert_eq!(said, ["take 1", "take 1", "take 2", "take 3", "key_mismatch"]);
    assert_eq!(count.get(), 3);
}

/// C8, W6: a store that is full refuses new keys, and forgets none to make room.
#[tokio::test]
async fn c8_w6_a_full_store_refuses_new_keys_and_forgets_none() {
    let limits = MemoryLimits { tenant_records_max: 2, ..MemoryLimits::default() };
    let store = Memory::with(limits, ManualClock::at(NOW_MS));
    let (app, count) = counting(&on(store, Settings::builder(Dialect::ietf())));
    keyed(&app, "a", "{}").await;
    keyed(&app, "b", "{}").await;
    for _ in 0..10 {
        let new = keyed(&app, "c", "{}").await;
        assert_eq!((new.status.as_u16(), new.refusal()), (503, Some("store_full")));
        assert_eq!(keyed(&app, "a", "{}").await.text(), "take 1");
        assert_eq!(keyed(&app, "b", "{}").await.text(), "take 2");
    }
    assert_eq!(count.get(), 2);
}

/// W2, K6, D10: what has no key, or none that the grammar allows, leaves no record.
#[tokio::test]
async fn w2_k6_d10_without_a_good_key_nothing_is_recorded() {
    let store = Arc::new(Memory::new());
    let (app, count) = counting(&on(Arc::clone(&store), Settings::builder(Dialect::openwop())));
    let longest = "k".repeat(255);
    for bad in ["a/b", "a b", "", &format!("{longest}k")] {
        let heard = keyed(&app, bad, "{}").await;
        assert_eq!((heard.status.as_u16(), heard.refusal()), (400, Some("key_invalid")), "{bad}");
    }
    assert_eq!((store.len(), count.get()), (0, 0));
    for number in 1..=2 {
        let heard = ask(&app, request("POST", "/", None, "{}")).await;
        assert_eq!(heard.text(), format!("take {number}"));
        assert_eq!(heard.header("idempotency-expires"), None);
    }
    assert!(store.is_empty());
    keyed(&app, &longest, "{}").await;
    assert_eq!(store.len(), 1);
}

/// A service behind `door` that answers after `takes`.
fn slow(door: &Idempotency, takes: Duration, text: &'static str) -> Router {
    let handler = async move || {
        tokio::time::sleep(takes).await;
        text
    };
    Router::new().route("/", post(handler)).layer(door.layer())
}

/// One of two processes on `store`.
fn answering<S: Slots>(
    store: S,
    policy: PolicyBuilder,
    takes: Duration,
    text: &'static str,
) -> Router {
    slow(&on(store, Settings::builder(Dialect::ietf()).policy(policy)), takes, text)
}

/// A store whose time is the runtime's.
fn timed() -> Arc<Memory> {
    Arc::new(Memory::with(MemoryLimits::default(), TokioClock::new()))
}

/// Lets everything that can run do so.
async fn settle_down() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// X1: the lease is apart from the retention: an execution that lives keeps its key for as long as
/// it takes, and after a crash the key is unknown within seconds, not after a day.
#[tokio::test(start_paused = true)]
async fn x1_a_crash_shows_when_the_lease_ends_and_a_living_execution_has_no_limit() {
    let store = timed();
    let policy = || Dialect::ietf().policy().lease(LEASE).on_in_flight(OnInFlight::Refuse);
    let dying = Arc::new(Faulty::new(Arc::clone(&store), |_| Fault::None));
    let one = answering(Arc::clone(&dying), policy(), DAY, "never said");
    let two = answering(store, policy(), Duration::ZERO, "never said either");
    let first = tokio::spawn(async move { keyed(&one, "k", "{}").await });
    tokio::time::sleep(LEASE * 10).await;
    assert_eq!(keyed(&two, "k", "{}").await.refusal(), Some("in_flight"), "it lives");
    dying.kill();
    first.abort();
    let heard = keyed(&two, "k", "{}").await;
    let after = heard.header("retry-after").unwrap().parse().unwrap();
    assert!(Duration::from_secs(after) <= LEASE, "{after}");
    tokio::time::sleep(Duration::from_secs(after)).await;
    let heard = keyed(&two, "k", "{}").await;
    assert_eq!((heard.status.as_u16(), heard.refusal()), (409, Some("outcome_unknown")));
}

/// X2: an executor that stalls past its lease cannot answer for its successor, and its own caller
/// is told.
#[tokio::test(start_paused = true)]
async fn x2_a_stalled_executor_is_fenced_and_its_caller_is_told() {
    let (store, script) = (timed(), Script::default());
    let policy = || Dialect::ietf().policy().lease(LEASE).on_unknown(OnUnknown::Retry);
    for _ in 0..20 {
        script.plan(Op::Renew, Fault::LoseCall);
    }
    let stalled = Faulty::scripted(Arc::clone(&store), &script);
    let one = answering(stalled, policy(), LEASE * 3, "the stalled one");
    let two = answering(store, policy(), Duration::ZERO, "the successor");
    let first = tokio::spawn(async move { keyed(&one, "k", "{}").await });
    settle_down().await;
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(keyed(&two, "k", "{}").await.text(), "the successor");
    let heard = first.await.unwrap();
    assert_eq!((heard.status.as_u16(), heard.refusal()), (500, Some("fenced")));
    assert_eq!(keyed(&two, "k", "{}").await.text(), "the successor");
}

/// X5: whoever has waited long enough is told when to come back, by the lease of the execution.
#[tokio::test(start_paused = true)]
async fn x5_a_waiter_has_a_deadline_and_hears_a_delay_from_the_lease() {
    let policy = Dialect::ietf().policy().lease(LEASE).on_in_flight(OnInFlight::Wait(SECOND * 10));
    let app = answering(timed(), policy, SECOND * 15, "done");
    let asked = app.clone();
    let first = tokio::spawn(async move { keyed(&asked, "k", "{}").await });
    settle_down().await;
    let heard = keyed(&app, "k", "{}").await;
    assert_eq!((heard.status.as_u16(), heard.refusal()), (409, Some("in_flight")));
    let after = heard.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=LEASE.as_secs()).contains(&after), "{after}");
    assert_eq!(keyed(&app, "k", "{}").await.text(), "done", "who waits again is woken");
    assert_eq!(first.await.unwrap().text(), "done");
}

/// X15: when a tenant has begun as many new keys as it may, those that it has begun are still
/// answered, also while they are under way.
#[tokio::test(start_paused = true)]
async fn x15_a_duplicate_in_flight_is_no_new_key() {
    let policy = Dialect::ietf().policy().on_in_flight(OnInFlight::Refuse);
    let door = on(timed(), Settings::builder(Dialect::ietf()).policy(policy));
    let app = slow(&door.limit_new_keys(|_| Some(1)), SECOND, "done");
    let asked = app.clone();
    let first = tokio::spawn(async move { keyed(&asked, "k", "{}").await });
    settle_down().await;
    assert_eq!(keyed(&app, "k", "{}").await.refusal(), Some("in_flight"));
    let new = keyed(&app, "j", "{}").await;
    assert_eq!((new.status.as_u16(), new.refusal()), (429, Some("new_keys_limited")));
    assert_eq!(first.await.unwrap().text(), "done");
    assert_eq!(keyed(&app, "k", "{}").await.text(), "done");
}

/// A gateway with `gate` in front of `backend`.
async fn gateway(gate: Gate, backend: &Backend) -> Rig {
    let keyed = route("POST /**", backend.address, Some(settings(Dialect::ietf())));
    Rig::start(parts(gate), vec![keyed]).await
}

async fn as_bearer(rig: &Rig, credential: &str) -> (StatusCode, String) {
    let request = rig.request("POST", "/").header("idempotency-key", "k");
    let request = request.header("authorization", format!("Bearer {credential}"));
    let heard = rig.send(request.body(Full::new(Bytes::new())).unwrap()).await;
    (heard.status, heard.refusal().unwrap_or(heard.text()).to_owned())
}

/// W10: who asks is verified with every request, so that nobody whose credential has ended hears
/// again what it once heard.
#[tokio::test]
async fn w10_a_caller_is_verified_again_before_a_replay() {
    let heard = (StatusCode::OK, "take 1".to_owned());
    let refused = (StatusCode::UNAUTHORIZED, "identity_invalid".to_owned());

    let backend = Backend::start().await;
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let secret = "a secret of thirty-two characters or more";
    let tokens = JwtSettings {
        issuer: "https://idp.example".into(),
        audience: "onetake".into(),
        secret: Some(Secret::new(secret)),
        leeway: SECOND,
        ..JwtSettings::default()
    };
    let times = Times::by(Arc::clone(&clock) as Arc<_>);
    let rig = gateway(Gate::Jwt(tokens.build_by(&times).unwrap()), &backend).await;
    let claims = json!({
        "iss": "https://idp.example", "aud": "onetake", "exp": NOW_MS / 1_000 + 60,
        "tenant": "acme", "sub": "ann",
    });
    let key = EncodingKey::from_secret(secret.as_bytes());
    let token = encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap();
    assert_eq!(as_bearer(&rig, &token).await, heard);
    clock.advance(SECOND * 60);
    assert_eq!(as_bearer(&rig, &token).await, heard, "within the leeway");
    clock.advance(SECOND);
    assert_eq!(as_bearer(&rig, &token).await, refused, "expired");
    assert_eq!(backend.got().len(), 1);

    let backend = Backend::start().await;
    let (key, digest) = generate_key().unwrap();
    let acme = |keys| [TenantKeys { name: "acme".into(), keys, ..TenantKeys::default() }];
    let keys = ApiKeySettings::default().build(&acme(vec![(&*digest).into()])).unwrap();
    let rig = gateway(Gate::ApiKeys(keys.clone()), &backend).await;
    assert_eq!(as_bearer(&rig, &key).await, heard);
    assert_eq!(as_bearer(&rig, &key).await, heard);
    keys.replace(&acme(Vec::new())).unwrap();
    assert_eq!(as_bearer(&rig, &key).await, refused, "revoked");
    assert_eq!(backend.got().len(), 1);
}
