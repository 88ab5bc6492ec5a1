//! Answers that are kept: who gets them, how they look, and under which identity they were asked.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::{AUTHORIZATION, HeaderValue};
use onetake_activity::{
    ExecuteError, HttpCall, HttpFailure, InvocationError, Provider, Providers, Source,
};
use onetake_core::{Finality, Policy};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::rig::{Act, Kept, Server, World, answer, settings, with};

/// W13: a node that runs again gets what the provider answered, and the provider hears nothing.
#[tokio::test]
async fn w13_a_retried_node_gets_the_stored_answer() {
    let answers = vec![answer(201, "x-request: 7\r\n", "made"), answer(500, "", "again?")];
    let (world, server) = (World::new(), Server::answering(answers).await);
    for source in [Source::Executed, Source::Replayed, Source::Replayed] {
        let take = world.kept("stripe", server.post("5 euro")).await;
        assert_eq!(take.source, source);
        assert_eq!((take.value.status, &*take.value.body), (201, &b"made"[..]));
        assert_eq!(take.value.header("x-request"), Some("7"));
    }
    assert_eq!(server.seen().len(), 1);
    assert_eq!(server.seen()[0].line(), "POST /v1/charges?q=1 HTTP/1.1");
}

/// W11, W13: of fifty workers that run one node at once one calls, and all get its result.
#[tokio::test(flavor = "multi_thread")]
async fn w13_of_fifty_executors_one_calls_and_all_get_its_answer() {
    let (world, told) = (Arc::new(World::new()), Arc::new(Notify::new()));
    let tells = Arc::clone(&told);
    let server = Server::start(move |nth| {
        Act::Later(Arc::clone(&told), answer(200, "", &format!("answer {nth}")))
    });
    let server = server.await;
    let mut workers = JoinSet::new();
    for _ in 0..50 {
        let (world, call) = (Arc::clone(&world), server.post("hello"));
        workers.spawn(async move { world.kept("openai-chat", call).await });
    }
    tells.notify_one();
    let takes = workers.join_all().await;
    assert!(takes.iter().all(|take| &*take.value.body == b"answer 0"), "{takes:?}");
    assert_eq!(takes.iter().filter(|take| !take.is_repeat()).count(), 1);
    assert_eq!(server.seen().len(), 1);
}

/// W14: what a provider refuses is a result, and a redirect is one, too.
#[tokio::test]
async fn w14_refusals_and_redirects_are_kept_and_not_asked_again() {
    for status in [302, 400, 401, 402, 404, 409, 410, 422, 451, 501] {
        let answers =
            vec![answer(status, "location: /elsewhere\r\n", "no"), answer(200, "", "yes")];
        let (world, server) = (World::new(), Server::answering(answers).await);
        for is_repeat in [false, true] {
            let take = world.kept("stripe", server.post("5")).await;
            assert_eq!((take.value.status, take.is_repeat()), (status, is_repeat));
            assert_eq!(take.value.header("location"), Some("/elsewhere"));
        }
        assert_eq!(server.seen().len(), 1, "{status}");
    }
}

/// W16, W17: every provider is told which call it is, in the header that it reads.
#[tokio::test]
async fn w16_w17_the_identity_is_in_the_header_of_the_provider_whatever_the_node_says() {
    let world = World::new();
    for (provider, header, other) in [
        ("openai-chat", "idempotency-key", "x-amzn-idempotency-token"),
        ("anthropic", "idempotency-key", "x-amzn-idempotency-token"),
        ("stripe.charges", "idempotency-key", "x-amzn-idempotency-token"),
        ("nobody-knows", "idempotency-key", "x-amzn-idempotency-token"),
        ("aws:sqs", "x-amzn-idempotency-token", "idempotency-key"),
    ] {
        let server = Server::answering(vec![answer(200, "", "ok")]).await;
        let call = with(with(server.post("5"), header, "mine"), header, "mine too");
        world.kept(provider, call).await;
        let ids = server.identities(header);
        assert_eq!(ids[0].len(), 43, "{provider}: a digest in base64 without padding");
        assert_eq!(server.seen()[0].header(other), Vec::<&str>::new(), "{provider}");
    }
    let odd = Providers::default().with("odd", Provider::forgetful("no header"));
    let log = world.log.clone().with_providers(odd);
    let call = HttpCall::new(Method::GET, "http://127.0.0.1:1/").unwrap();
    let refused = log.enter(crate::rig::site()).http(&world.client, "odd", call).await;
    assert_eq!(refused.unwrap_err(), ExecuteError::Invocation(InvocationError::Header));
}

/// K2: a node that asks for something else is told so; what may differ may differ.
#[tokio::test]
async fn k2_a_node_that_asks_for_something_else_is_noticed() {
    let (world, server) = (World::new(), Server::answering(vec![answer(200, "", "ok")]).await);
    let token = |value| {
        with(server.post("5"), "x-a", "1").aside(AUTHORIZATION, HeaderValue::from_static(value))
    };
    world.kept("stripe", token("Bearer 1")).await;
    assert!(world.kept("stripe", token("Bearer 2")).await.is_repeat());
    for other in [with(server.post("6"), "x-a", "1"), with(server.post("5"), "x-a", "2")] {
        let refused = world.http("stripe", other).await.unwrap_err();
        assert_eq!(refused, ExecuteError::Mismatch);
    }
    assert_eq!(server.seen().len(), 1);
    assert_eq!(server.seen()[0].header("authorization"), ["Bearer 1"]);
}

/// W3, X11: the log is readable, whole, and without what belongs to one browser or connection.
#[tokio::test]
async fn w3_x11_an_answer_is_kept_as_readable_json_without_cookies() {
    let headers =
        "content-type: text/plain\r\nset-cookie: s=1\r\nconnection: x-hop\r\nx-hop: 1\r\n";
    let (world, server) =
        (World::new(), Server::answering(vec![answer(200, headers, "héllo")]).await);
    world.kept("stripe", server.post("5")).await;
    let headers = [["content-type", "text/plain"], ["content-length", "6"]];
    let wanted = json!({"status": 200, "headers": headers, "body": {"text": "héllo"}});
    assert_eq!(world.record("stripe").await, Kept::Done(true, wanted));
}

/// An answer that is too large was still given: the call is never made again, whatever the policy
/// does with failures.
#[tokio::test]
async fn an_answer_that_is_too_large_is_not_kept_and_not_asked_for_again() {
    let chunked =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n";
    for bytes in [answer(200, "", "hello!"), chunked.into()] {
        let mut world = World::with(settings().response_bytes_max(5));
        let server = Server::answering(vec![bytes]).await;
        let policy = Policy::activity().failures(Finality::Free).build().unwrap();
        world.log = world.log.with_policy(policy);
        for _ in 0..2 {
            let failure = world.failure("openai-chat", server.post("5")).await;
            assert_eq!(failure, HttpFailure::TooLarge { status: 200, bytes_max: 5 });
            assert!(!failure.is_retryable());
        }
        assert_eq!(server.seen().len(), 1);
        let exact = Server::answering(vec![answer(200, "", "hello")]).await;
        assert_eq!(&*world.kept("exact", exact.post("5")).await.value.body, b"hello");
    }
}

/// X4: a caller who goes away changes nothing but who hears the answer.
#[tokio::test]
async fn x4_a_call_whose_caller_went_away_is_finished_and_kept() {
    let (world, told) = (World::new(), Arc::new(Notify::new()));
    let (tells, begun) = (Arc::clone(&told), Arc::new(Notify::new()));
    let begins = Arc::clone(&begun);
    let server = Server::start(move |_| {
        begins.notify_one();
        Act::Later(Arc::clone(&told), answer(200, "", "ok"))
    });
    let server = server.await;
    tokio::select! {
        _ = world.http("stripe", server.post("5")) => panic!("nothing was answered"),
        () = begun.notified() => {}
    }
    tells.notify_one();
    let take = world.kept("stripe", server.post("5")).await;
    assert!(take.is_repeat() && take.value.is_success());
    assert_eq!(server.seen().len(), 1);
}

/// A body that is not text, and an answer without one.
#[tokio::test]
async fn any_body_comes_back_as_it_was() {
    let mut bytes = answer(200, "", "");
    let text = String::from_utf8(bytes.clone()).unwrap().replace("length: 0", "length: 3");
    bytes = [text.as_bytes(), b"\xff\x00\xfe"].concat();
    let (world, server) = (World::new(), Server::answering(vec![bytes]).await);
    for _ in 0..2 {
        let take = world.kept("stripe", server.post("5")).await;
        assert_eq!(&*take.value.body, b"\xff\x00\xfe");
    }
    let server = Server::answering(vec![b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()]).await;
    let url = format!("http://{}/", server.address);
    let call = HttpCall::new(Method::DELETE, &url).unwrap().timeout(Duration::from_secs(60));
    let take = world.kept("other", call).await;
    assert_eq!((take.value.status, take.value.body.len()), (204, 0));
}
