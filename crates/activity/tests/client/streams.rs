//! Answers that are passed on as they come: nothing of them is stored but that they were.

use std::sync::Arc;
use std::time::Duration;

use onetake_activity::{ExecuteError, HttpFailure, HttpReply, HttpStream, StreamEnd, StreamError};
use onetake_core::Cause;
use serde_json::json;
use tokio::sync::mpsc;

use crate::rig::{Act, Kept, Server, World, answer, failure, settings};

const SSE: &str = "HTTP/1.1 200 OK\r\ncontent-type: Text/Event-Stream; charset=utf-8\r\n\
    transfer-encoding: chunked\r\nconnection: close\r\nset-cookie: s=1\r\n\r\n";
const OCTETS: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
const END: &str = "0\r\n\r\n";

/// A provider whose answers are written by the test, one channel for each request.
async fn streaming(requests: usize) -> (Server, Vec<mpsc::Sender<&'static str>>) {
    let (senders, mut receivers): (Vec<_>, Vec<_>) =
        (0..requests).map(|_| mpsc::channel(64)).unzip();
    receivers.reverse();
    (Server::start(move |_| Act::Stream(receivers.pop().unwrap())).await, senders)
}

fn streamed(ended: &str) -> Kept {
    Kept::Done(false, json!({"failure": "streamed", "status": 200, "ended": ended}))
}

async fn next(stream: &mut HttpStream) -> Option<Result<String, StreamError>> {
    let piece = stream.next().await?;
    Some(piece.map(|piece| String::from_utf8(piece.to_vec()).unwrap()))
}

/// W18: an event stream reaches its caller piece by piece; that it did is recorded, its body is
/// not; the node that runs again calls again.
#[tokio::test]
async fn w18_an_event_stream_is_passed_on_as_it_comes_and_not_stored() {
    let (world, (server, to)) = (World::new(), streaming(2).await);
    for (at, to) in to.into_iter().enumerate() {
        to.send(SSE).await.unwrap();
        let reply = world.http("openai-chat", server.post("hello")).await.unwrap();
        let mut stream = reply.stream().unwrap();
        assert_eq!(stream.status(), 200);
        assert!(stream.headers().iter().any(|(name, _)| name == "content-type"));
        assert!(!stream.headers().iter().any(|(name, _)| name == "set-cookie"));
        assert_eq!(world.record("openai-chat").await, Kept::Claimed, "under way");
        for (written, read) in [("6\r\ndata: \r\n", "data: "), ("2\r\n1\n\r\n", "1\n")] {
            // The next piece is written only once the last one was read.
            to.send(written).await.unwrap();
            assert_eq!(next(&mut stream).await, Some(Ok(read.into())));
        }
        to.send(END).await.unwrap();
        assert_eq!(next(&mut stream).await, None);
        assert_eq!(next(&mut stream).await, None, "and nothing more");
        assert_eq!(world.record("openai-chat").await, streamed("complete"), "before it ends");
        assert_eq!(server.seen().len(), at + 1, "a retry may call again");
    }
    let ids = server.identities("idempotency-key");
    assert_eq!(ids[0], ids[1]);
}

/// W14, W18: whoever asks for a stream gets one of any type, and a refusal is kept all the same.
#[tokio::test]
async fn w14_w18_a_stream_that_is_asked_for_is_of_any_type_and_a_refusal_is_kept() {
    let (world, (server, to)) = (World::new(), streaming(1).await);
    to[0].send(OCTETS).await.unwrap();
    let reply = world.http_stream("aws:s3", server.post("hello")).await.unwrap();
    let HttpReply::Stream(mut stream) = reply else { panic!("{reply:?}") };
    to[0].send("2\r\nab\r\n").await.unwrap();
    assert_eq!(next(&mut stream).await, Some(Ok("ab".into())));
    to[0].send(END).await.unwrap();
    assert_eq!(next(&mut stream).await, None);

    let server = Server::answering(vec![answer(422, "", "no"), answer(200, "", "yes")]).await;
    for is_repeat in [false, true] {
        let reply = world.http_stream("openai-chat", server.post("hello")).await.unwrap();
        let take = reply.kept().unwrap();
        assert_eq!((take.value.status, take.is_repeat()), (422, is_repeat));
    }
    assert_eq!(server.seen().len(), 1);
}

/// W18: how a stream ended is recorded, and one that broke off may be called again.
#[tokio::test]
async fn w18_a_stream_that_breaks_off_says_so_and_may_be_called_again() {
    let (world, (server, mut to)) = (World::new(), streaming(2).await);
    let second = to.pop().unwrap();
    let first = to.pop().unwrap();
    first.send(SSE).await.unwrap();
    first.send("2\r\n1\n\r\n").await.unwrap();
    let reply = world.http("openai-chat", server.post("hello")).await.unwrap();
    let mut stream = reply.stream().unwrap();
    assert_eq!(next(&mut stream).await, Some(Ok("1\n".into())));
    drop(first);
    assert_eq!(next(&mut stream).await, Some(Err(StreamError::BrokenOff)));
    assert_eq!(next(&mut stream).await, None);
    assert_eq!(world.record("openai-chat").await, streamed("broken_off"));
    second.send(SSE).await.unwrap();
    second.send(END).await.unwrap();
    let reply = world.http("openai-chat", server.post("hello")).await.unwrap();
    assert_eq!(next(&mut reply.stream().unwrap()).await, None);
}

/// W18, X4: a reader who goes away leaves no claim behind.
#[tokio::test]
async fn w18_x4_a_stream_whose_reader_went_away_is_ended_and_recorded() {
    let (world, (server, to)) = (World::new(), streaming(2).await);
    for to in to {
        to.send(SSE).await.unwrap();
        let reply = world.http("openai-chat", server.post("hello")).await.unwrap();
        drop(reply);
        server.gone.notified().await;
        world.rest().await;
        assert_eq!(world.record("openai-chat").await, streamed("abandoned"));
    }
    assert_eq!(server.seen().len(), 2);
}

/// W18, X4: neither does a caller who left before the stream began.
#[tokio::test]
async fn w18_x4_a_stream_that_nobody_waits_for_is_ended_when_it_begins() {
    let (world, (server, to)) = (World::new(), streaming(1).await);
    {
        let mut node = world.node();
        let mut call = Box::pin(node.http(&world.client, "openai-chat", server.post("hello")));
        while server.seen().is_empty() {
            tokio::select! {
                biased;
                reply = &mut call => panic!("{reply:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
    assert_eq!(world.record("openai-chat").await, Kept::Claimed);
    to[0].send(SSE).await.unwrap();
    server.gone.notified().await;
    world.rest().await;
    assert_eq!(world.record("openai-chat").await, streamed("abandoned"));
}

/// A reader who holds a stream and does not read it is not waited for.
#[tokio::test]
async fn w18_a_stream_that_is_left_unread_ends() {
    let world = World::with(settings().quiet_max(Duration::from_millis(500)));
    let (server, to) = streaming(1).await;
    to[0].send(SSE).await.unwrap();
    let reply = world.http("openai-chat", server.post("hello")).await.unwrap();
    let mut stream = reply.stream().unwrap();
    let writes = async {
        // More than can be on its way.
        while to[0].send("2\r\n1\n\r\n").await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(writes, world.rest());
    assert_eq!(world.record("openai-chat").await, streamed("abandoned"));
    let mut last = None;
    while let Some(piece) = next(&mut stream).await {
        last = Some(piece);
    }
    assert_eq!(last, Some(Err(StreamError::Unread)));
}

/// W13, W18: a stream is its caller's alone; whoever waited hears that it has passed by.
#[tokio::test]
async fn w18_whoever_waited_for_anothers_stream_hears_that_it_passed_by() {
    let (world, (server, to)) = (Arc::new(World::new()), streaming(1).await);
    to[0].send(SSE).await.unwrap();
    let reply = world.http("openai-chat", server.post("hello")).await.unwrap();
    let mut stream = reply.stream().unwrap();
    let (waits, call) = (Arc::clone(&world), server.post("hello"));
    let waits = tokio::spawn(async move { waits.http("openai-chat", call).await });
    while world.engine.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    to[0].send(END).await.unwrap();
    assert_eq!(next(&mut stream).await, None);
    let wanted = HttpFailure::Streamed { status: 200, ended: StreamEnd::Complete };
    assert_eq!(failure(waits.await.unwrap()), wanted);
    assert_eq!(server.seen().len(), 1);
}

/// W18, X3: a stream that was asked for and lost before it began is unknown, and may be called
/// again later, for a complete one may be.
#[tokio::test]
async fn w18_x3_a_stream_that_was_lost_before_it_began_may_be_called_again() {
    let world = World::new();
    let server = Server::start(|nth| match nth {
        0 => Act::Reset,
        _ => Act::Answer([OCTETS.as_bytes(), END.as_bytes()].concat()),
    });
    let server = server.await;
    let lost = world.http_stream("openai-chat", server.post("hello")).await;
    let is_unknown = matches!(lost, Err(ExecuteError::Unknown { cause: Cause::Reported, .. }));
    assert!(is_unknown, "{lost:?}");
    assert_eq!(server.seen().len(), 1, "not again by itself");
    let reply = world.http_stream("openai-chat", server.post("hello")).await.unwrap();
    assert_eq!(next(&mut reply.stream().unwrap()).await, None);
    assert_eq!(server.seen().len(), 2);
}
