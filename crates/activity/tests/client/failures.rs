//! Calls that do not go well at first, or at all: what is tried again, what is free, what is held.

use std::collections::VecDeque;
use std::time::Duration;

use onetake_activity::{
    ExecuteError, HttpCall, HttpFailure, HttpReplied, HttpSettings, NotSentCause, Provider,
    Providers,
};
use onetake_core::{Backoff, Cause, Finality, StatusRules};
use tokio::net::{TcpListener, TcpSocket};

use crate::rig::{Act, Kept, Server, World, answer, failure, post, settings};

const ID: &str = "idempotency-key";

/// A provider that does these things in order, and then answers with 200.
async fn acting(acts: Vec<Act>) -> Server {
    let mut acts = VecDeque::from(acts);
    Server::start(move |nth| {
        let ok = || Act::Answer(answer(200, "", &format!("answer {nth}")));
        acts.pop_front().unwrap_or_else(ok)
    })
    .await
}

fn busy(status: u16) -> Act {
    Act::Answer(answer(status, "", "busy"))
}

fn is_unknown(replied: &HttpReplied) -> bool {
    matches!(replied, Err(ExecuteError::Unknown { cause: Cause::Reported, .. }))
}

/// All requests that a provider saw, which must be attempts at one call.
fn attempts(server: &Server) -> usize {
    let ids = server.identities(ID);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert!(server.seen().iter().all(|seen| *seen == server.seen()[0]), "the same request");
    ids.len()
}

/// W8, W11: what may pass is tried again under the same identity, and what follows is kept.
#[tokio::test]
async fn w8_w11_a_provider_that_is_down_for_a_moment_is_asked_again() {
    for status in [408, 425, 429, 500, 502, 503, 504, 529] {
        let (world, server) = (World::new(), acting(vec![busy(status), busy(status)]).await);
        for is_repeat in [false, true] {
            let take = world.kept("openai-chat", server.post("5")).await;
            assert_eq!((&*take.value.body, take.is_repeat()), (&b"answer 2"[..], is_repeat));
        }
        assert_eq!(attempts(&server), 3, "{status}");
    }
}

/// W8, W14: what remains is recorded as a failure for now, and the next call is made again.
#[tokio::test]
async fn w8_w14_a_provider_that_stays_down_is_a_failure_for_now() {
    let down = || Act::Answer(answer(503, "retry-after: 0\r\n", "down"));
    let (world, server) = (World::new(), acting(vec![down(), down(), down(), down()]).await);
    let failed = world.failure("openai-chat", server.post("5")).await;
    let HttpFailure::Unavailable { answer, retry_after_ms, attempts: tried } = &failed else {
        panic!("{failed}")
    };
    assert_eq!((answer.status, &*answer.body, *tried), (503, &b"down"[..], 3));
    assert_eq!((*retry_after_ms, failed.is_retryable()), (Some(0), true));
    let json = serde_json::to_value(&failed).unwrap();
    assert_eq!(world.record("openai-chat").await, Kept::Done(false, json));
    let take = world.kept("openai-chat", server.post("5")).await;
    assert_eq!((&*take.value.body, take.is_repeat()), (&b"answer 4"[..], false));
    assert_eq!(attempts(&server), 5);
}

/// A provider that wants to be left alone for longer than the client waits is left alone.
#[tokio::test]
async fn a_provider_that_asks_for_more_time_than_there_is_gets_it() {
    let later = Act::Answer(answer(429, "retry-after: 31\r\n", "later"));
    let (world, server) = (World::new(), acting(vec![later]).await);
    let failed = world.failure("openai-chat", server.post("5")).await;
    assert_eq!(failed.retry_after(), Some(Duration::from_secs(31)));
    assert_eq!(attempts(&server), 1);
}

/// The body of a refusal that nobody keeps is cut, and one that breaks off is still a refusal.
#[tokio::test]
async fn a_refusal_is_a_refusal_although_its_body_breaks_off() {
    let half = "HTTP/1.1 503 -\r\ncontent-length: 10\r\n\r\nhalf";
    let (world, server) = (World::new(), acting(vec![Act::HangUp(half)]).await);
    assert!(world.kept("openai-chat", server.post("5")).await.value.is_success());
    assert_eq!(attempts(&server), 2);
}

/// X3: what was certainly not sent leaves no trace, and the key is free.
#[tokio::test]
async fn x3_a_refused_connection_frees_the_call() {
    // Bound but not listening: refused, and nobody else gets the port meanwhile.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (world, address) = (World::new(), socket.local_addr().unwrap());
    let failed = world.failure("openai-chat", post(address, "5")).await;
    assert_eq!(failed, HttpFailure::NotSent { why: NotSentCause::Refused, attempts: 3 });
    assert!(failed.is_retryable());
    assert_eq!(world.record("openai-chat").await, Kept::Nothing);
    let server = Server::on(socket.listen(8).unwrap(), |_| Act::Answer(answer(200, "", "ok")));
    let other = world.kept("openai-chat", server.post("6")).await;
    assert!(!other.is_repeat(), "free, also for other content");
}

/// X3
#[tokio::test]
async fn x3_a_name_without_an_address_is_not_sent() {
    // No label is longer than 63, so that nobody has to be asked.
    let nowhere = format!("http://{}.invalid:81/", "a".repeat(64));
    let call = HttpCall::new(http::Method::POST, &nowhere).unwrap();
    let failed = World::new().failure("openai-chat", call).await;
    assert_eq!(failed, HttpFailure::NotSent { why: NotSentCause::Name, attempts: 3 });
}

/// X3: a request that was sent and never answered is held, unless the provider recognises a second
/// one: then it is sent again, under the same identity.
#[tokio::test]
async fn x3_what_was_sent_and_broke_off_is_held_or_sent_again() {
    let breaks: [fn() -> Act; 6] = [
        || Act::Reset,
        || Act::HangUp(""),
        || Act::HangUp("HTTP/1.1 200 OK\r\ncont"),
        || Act::HangUp("220 mail.example ESMTP\r\n\r\n"),
        || Act::HangUp("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"),
        || Act::Silence,
    ];
    for (at, breaks) in breaks.into_iter().enumerate() {
        let world = World::new();
        let server = acting(vec![breaks()]).await;
        let call = |server: &Server| server.post("5").timeout(Duration::from_secs(2));
        for _ in 0..2 {
            let held = world.http("openai-chat", call(&server)).await;
            assert!(is_unknown(&held), "{at}: {held:?}");
            assert_eq!(world.record("openai-chat").await, Kept::Unknown);
        }
        assert_eq!(attempts(&server), 1, "{at}");

        let server = acting(vec![breaks()]).await;
        let take = world.kept("stripe", call(&server)).await;
        assert_eq!(&*take.value.body, b"answer 1", "{at}");
        assert_eq!(attempts(&server), 2, "{at}");
    }
}

/// X3: what an attempt may have done is not forgotten because the next ones were refused.
#[tokio::test]
async fn x3_a_lost_attempt_is_forgotten_by_nothing_but_a_result() {
    let acts = vec![Act::Reset, busy(503), busy(503), busy(503), Act::Reset, busy(500)];
    let (world, server) = (World::new(), acting(acts).await);
    // Later calls are recoveries, and one that comes to nothing leaves it unknown.
    for seen in [3, 6] {
        let replied = world.http("stripe", server.post("5")).await;
        if seen == 3 {
            assert!(is_unknown(&replied), "{replied:?}");
        }
        assert!(replied.is_err(), "{replied:?}");
        assert_eq!((world.record("stripe").await, attempts(&server)), (Kept::Unknown, seen));
    }
    assert_eq!(&*world.kept("stripe", server.post("5")).await.value.body, b"answer 6");
    assert!(world.kept("stripe", server.post("5")).await.is_repeat());
}

/// X3: a provider that is still busy with the first request says "conflict" to the second. That is
/// no result of the first.
#[tokio::test]
async fn x3_a_conflict_with_a_lost_attempt_is_not_its_result() {
    let (world, server) = (World::new(), acting(vec![Act::Reset, busy(409)]).await);
    assert_eq!(&*world.kept("stripe", server.post("5")).await.value.body, b"answer 2");
    assert_eq!(attempts(&server), 3);
}

/// A status means what the settings say.
#[tokio::test]
async fn a_status_may_mean_something_else() {
    let rules = StatusRules::all(Finality::Final)
        .except(&[504], Finality::Unknown)
        .except(&[401], Finality::Free);
    let world = World::with(settings().statuses(rules));
    let server = acting(vec![busy(504)]).await;
    let held = world.http("openai-chat", server.post("5")).await;
    assert!(is_unknown(&held), "{held:?}");
    let server = acting(vec![busy(401)]).await;
    let failed = world.failure("anthropic", server.post("5")).await;
    assert!(matches!(failed, HttpFailure::Unavailable { attempts: 1, .. }), "{failed}");
    assert_eq!(world.record("anthropic").await, Kept::Nothing);
    assert!(!world.kept("anthropic", server.post("6")).await.is_repeat());
}

/// Calls beyond the bound wait their turn, and one that waited in vain was not sent.
#[tokio::test]
async fn a_call_that_finds_no_place_is_not_sent() {
    let settings = settings().in_flight_max(1).attempts_max(1);
    let (world, silent) = (World::with(settings), acting(vec![Act::Silence]).await);
    let mut node = world.node();
    let held = node.http(&world.client, "openai-chat", silent.post("5"));
    let waits = async {
        while silent.seen().is_empty() {
            tokio::task::yield_now().await;
        }
        let call = silent.post("5").timeout(Duration::from_millis(20));
        failure(world.http("other", call).await)
    };
    tokio::select! {
        held = held => panic!("{held:?}"),
        failed = waits => {
            assert_eq!(failed, HttpFailure::NotSent { why: NotSentCause::Busy, attempts: 1 });
        }
    }
    assert_eq!(silent.seen().len(), 1);
}

/// A head that has no end is not read to the end of memory.
#[tokio::test]
async fn an_endless_head_is_no_answer() {
    let long = format!("x-long: {}\r\n", "x".repeat(300_000));
    let many = "x-many: 1\r\n".repeat(300);
    for headers in [long, many] {
        let world = World::new();
        let server = acting(vec![Act::Answer(answer(200, &headers, "ok"))]).await;
        let held = world.http("openai-chat", server.post("5")).await;
        assert!(is_unknown(&held), "{held:?}");
    }
}

/// What is recognised is a fact of the table of providers, and the limit of a call bounds it whole.
#[tokio::test]
async fn attempts_end_with_the_limit_of_the_call() {
    let pause = Backoff { first: Duration::from_secs(9), max: Duration::from_secs(9) };
    let settings = HttpSettings::new().within(Duration::from_millis(500)).backoff(pause);
    let mut world = World::with(settings);
    let own = Providers::default().with("own", Provider::deduplicating("x-request-id"));
    world.log = world.log.with_providers(own);
    // The first pause alone would be longer than the limit.
    let server = acting(vec![Act::Reset]).await;
    let unknown = world.http("own", server.post("5")).await;
    assert!(is_unknown(&unknown), "{unknown:?}");
    assert_eq!(server.identities("x-request-id").len(), 1);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = Server::on(listener, |_| Act::Silence);
    let unknown = world.http("openai-chat", silent.post("5")).await;
    assert!(is_unknown(&unknown), "{unknown:?}");
    silent.gone.notified().await;
}
