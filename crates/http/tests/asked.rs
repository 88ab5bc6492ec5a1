//! What counts as asked, over real sockets, and how a key reaches the upstream: whatever the
//! upstream could tell apart must never be answered by another's outcome.

mod rig;

use http_body_util::Full;
use onetake_core::{OnUnknown, Operation};
use onetake_http::gateway::ForwardKey;
use onetake_http::gateway::forward::{Forwarding, HostSent};
use onetake_http::{Dialect, Mode, Settings};
use rig::{Act, Backend, Rig, anonymous, parts, route, settings};

/// C7, K2: one operation may have several methods, and each asks something else.
#[tokio::test]
async fn c7_k2_the_method_is_part_of_what_was_asked() {
    let backend = Backend::start().await;
    let mut named = route("PUT,DELETE /m/{x}", backend.address, Some(settings(Dialect::ietf())));
    named.operation = Some(Operation::new("m.write").unwrap());
    let rig = Rig::start(parts(anonymous()), vec![named]).await;
    let send = async |method| {
        let request = rig.request(method, "/m/7").header("idempotency-key", "k");
        rig.send(request.body(Full::default()).unwrap()).await
    };
    assert_eq!(send("PUT").await.text(), "take 1");
    assert_eq!(send("DELETE").await.refusal(), Some("key_mismatch"));
    assert!(send("PUT").await.is_replayed());
    assert_eq!(backend.got().len(), 1);
}

/// C7: a host that the upstream is sent is part of what was asked; one that it is not, is not.
#[tokio::test]
async fn c7_a_host_counts_where_the_upstream_is_sent_it() {
    for (host, other) in [(HostSent::Caller, Some("key_mismatch")), (HostSent::Upstream, None)] {
        let backend = Backend::start().await;
        let keyed = route("POST /orders", backend.address, Some(settings(Dialect::ietf())));
        let mut parts = parts(anonymous());
        parts.forwarding = Forwarding::new().host(host);
        let rig = Rig::start(parts, vec![keyed]).await;
        let send = async |host: &str| {
            let request = rig.request("POST", "/orders").header("idempotency-key", "k");
            rig.send(request.header("host", host).body(Full::default()).unwrap()).await
        };
        assert_eq!(send("a.example").await.text(), "take 1");
        assert_eq!(send("b.example").await.refusal(), other);
        assert!(send("a.example").await.is_replayed());
        assert_eq!(backend.got().len(), 1);
    }
}

/// X6: bare, quoted and with parameters are one key to us, so they are one key upstream.
#[tokio::test]
async fn x6_the_upstream_is_sent_one_spelling_of_a_key() {
    let backend = Backend::start().await;
    let policy = Dialect::ietf().policy().on_unknown(OnUnknown::Retry);
    let settings = Settings::builder(Dialect::ietf()).policy(policy).build().unwrap();
    let keyed = route("POST /**", backend.address, Some(settings));
    let rig = Rig::start(parts(anonymous()), vec![keyed]).await;
    backend.plan([Act::Close, Act::Close]);
    for spelling in ["k", "\"k\"", "\"k\";v=2"] {
        let request = rig.request("POST", "/").header("idempotency-key", spelling);
        let request = request.header("idempotency_key", "spoof");
        rig.send(request.body(Full::default()).unwrap()).await;
    }
    let got = backend.got();
    assert_eq!(got.len(), 3);
    for got in got {
        assert_eq!(got.header("idempotency-key"), Some("k"));
        assert_eq!(got.header("idempotency_key"), None, "some backends take it for ours");
    }
}

/// C7: a request that passes unprotected has the same key upstream as one that does not.
#[tokio::test]
async fn c7_an_observed_request_is_sent_with_the_same_scoped_key() {
    let backend = Backend::start().await;
    let settings = Settings::builder(Dialect::ietf()).mode(Mode::Observe).build().unwrap();
    let mut keyed = route("POST /**", backend.address, Some(settings));
    keyed.forward_key = ForwardKey::Scoped;
    let rig = Rig::start(parts(anonymous()), vec![keyed]).await;
    for _ in 0..2 {
        rig.post("/", "k", "{}").await;
    }
    let got = backend.got();
    assert_eq!(got.len(), 2, "nothing is held back");
    let keys: Vec<_> = got.iter().map(|got| got.header("idempotency-key").unwrap()).collect();
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[0], "k");
}

/// A method in other letters is no method of a route, and must not slip past as another one.
#[tokio::test]
async fn a_method_in_small_letters_is_refused() {
    let backend = Backend::start().await;
    let rig = Rig::before(&backend).await;
    let request = "post / HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ncontent-length: 0\r\n\r\n";
    let heard = rig.raw(request.as_bytes(), "\r\n\r\n").await;
    assert!(heard.starts_with("HTTP/1.1 400 "), "{heard}");
    assert_eq!(backend.got().len(), 0);
}
