//! Connections to plain upstreams, over real sockets: how many there are, which are used again, and
//! that nothing which came unasked ever answers a request.

#![cfg(feature = "gateway")]
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use onetake_http::gateway::forward::upstream_uri;
use onetake_http::gateway::upstream::{Upstream, UpstreamOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const HOUR: Duration = Duration::from_secs(60 * 60);

fn at(address: SocketAddr, options: UpstreamOptions) -> Upstream {
    Upstream::new(format!("http://{address}").parse().unwrap(), options).unwrap()
}

async fn listen(options: UpstreamOptions) -> (TcpListener, Upstream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = at(listener.local_addr().unwrap(), options);
    (listener, upstream)
}

fn asked(upstream: &Upstream, path: &str) -> Request<Full<Bytes>> {
    let uri = upstream_uri(upstream.base(), &path.parse().unwrap()).unwrap();
    Request::builder().method(Method::GET).uri(uri).body(Full::default()).unwrap()
}

/// What the upstream answers to a request for `path`.
async fn said(upstream: &Upstream, path: &str) -> String {
    let response = upstream.send(asked(upstream, path)).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The path of the next request on a connection; `None` when it was closed.
async fn heard(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).unwrap().split(' ').nth(1).map(str::to_owned)
}

fn answer(text: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len())
}

async fn answer_with(stream: &mut TcpStream, text: &str) {
    stream.write_all(answer(text).as_bytes()).await.unwrap();
}

/// The next request on a connection; `None` when it was closed.
async fn next_on(mut stream: TcpStream) -> Option<(TcpStream, String)> {
    heard(&mut stream).await.map(|path| (stream, path))
}

/// Four requests at once need four connections; two of them are kept, and used again.
#[tokio::test]
async fn no_more_connections_are_kept_than_may_be_idle() {
    let (listener, upstream) = listen(UpstreamOptions::new().idle_max(2).idle_for(HOUR)).await;
    let mut waiting = JoinSet::new();
    for opened in [4, 2, 2] {
        let mut asking = JoinSet::new();
        for path in ["/a", "/b", "/c", "/d"] {
            let upstream = upstream.clone();
            asking.spawn(async move { said(&upstream, path).await });
        }
        // All four before any is answered, over whichever connection they come.
        let (mut requests, mut accepted) = (Vec::new(), 0);
        while requests.len() < 4 {
            tokio::select! {
                stream = listener.accept() => {
                    accepted += 1;
                    waiting.spawn(next_on(stream.unwrap().0));
                }
                Some(heard) = waiting.join_next() => requests.extend(heard.unwrap()),
            }
        }
        assert_eq!(accepted, opened, "the others came over connections that were kept");
        for (mut stream, path) in requests {
            answer_with(&mut stream, &path).await;
            waiting.spawn(next_on(stream));
        }
        let mut answers = asking.join_all().await;
        answers.sort_unstable();
        assert_eq!(answers, ["/a", "/b", "/c", "/d"], "each has its own");
    }
}

/// A connection that nobody takes is closed by us, before the upstream does it.
#[tokio::test]
async fn a_connection_that_nobody_takes_is_closed() {
    let options = UpstreamOptions::new().idle_for(Duration::from_millis(20));
    let (listener, upstream) = listen(options).await;
    for round in 0..3 {
        let asking = tokio::spawn({
            let upstream = upstream.clone();
            async move { said(&upstream, "/").await }
        });
        let (mut stream, _) = listener.accept().await.unwrap();
        heard(&mut stream).await.unwrap();
        answer_with(&mut stream, "ok").await;
        assert_eq!(asking.await.unwrap(), "ok");
        // Ends only when the other side closes.
        assert_eq!(heard(&mut stream).await, None, "round {round}");
    }
}

/// What an upstream says unasked belongs to nobody: neither what came right behind an answer nor
/// what came later.
#[tokio::test]
async fn what_was_said_unasked_never_answers_a_request() {
    for comes_later in [false, true] {
        let (listener, upstream) = listen(UpstreamOptions::new().idle_for(HOUR)).await;
        let asking = tokio::spawn({
            let upstream = upstream.clone();
            async move { said(&upstream, "/first").await }
        });
        let (mut first, _) = listener.accept().await.unwrap();
        heard(&mut first).await.unwrap();
        let unasked = answer("not yours");
        if comes_later {
            answer_with(&mut first, "mine").await;
        } else {
            let both = answer("mine") + &unasked;
            first.write_all(both.as_bytes()).await.unwrap();
        }
        assert_eq!(asking.await.unwrap(), "mine");
        if comes_later {
            first.write_all(unasked.as_bytes()).await.unwrap();
            // What came before this has been noticed when this is over.
            let (to, from) =
                tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
            from.unwrap().0.write_all(b"!").await.unwrap();
            assert_eq!(to.unwrap().read_u8().await.unwrap(), b'!');
        }
        let asking = tokio::spawn(async move { said(&upstream, "/second").await });
        let (mut second, _) = listener.accept().await.unwrap();
        assert_eq!(heard(&mut second).await.unwrap(), "/second");
        answer_with(&mut second, "also mine").await;
        assert_eq!(asking.await.unwrap(), "also mine", "later: {comes_later}");
    }
}

/// An answer that its caller does not read to the end is worth nothing to the next one.
#[tokio::test]
async fn a_connection_with_half_an_answer_is_not_used_again() {
    let (listener, upstream) = listen(UpstreamOptions::new().idle_for(HOUR)).await;
    let asking = tokio::spawn({
        let upstream = upstream.clone();
        async move { upstream.send(asked(&upstream, "/half")).await.map(drop) }
    });
    let (mut first, _) = listener.accept().await.unwrap();
    heard(&mut first).await.unwrap();
    first.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await.unwrap();
    asking.await.unwrap().unwrap();
    assert_eq!(heard(&mut first).await, None, "it was closed");
    let asking = tokio::spawn(async move { said(&upstream, "/whole").await });
    let (mut second, _) = listener.accept().await.unwrap();
    heard(&mut second).await.unwrap();
    answer_with(&mut second, "whole").await;
    assert_eq!(asking.await.unwrap(), "whole");
}

/// An upstream may answer first and read on: what it was sent arrives whole all the same, however
/// large it is, and its connection is used again.
#[tokio::test]
async fn what_is_answered_early_is_still_sent_to_its_end() {
    for bytes in [40_000, 8 << 20] {
        let (listener, upstream) = listen(UpstreamOptions::new().idle_for(HOUR)).await;
        let uri = upstream_uri(upstream.base(), &"/large".parse().unwrap()).unwrap();
        let body = Full::new(Bytes::from(vec![b'x'; bytes]));
        let request = Request::builder().method(Method::PUT).uri(uri).body(body).unwrap();
        let asking = tokio::spawn({
            let upstream = upstream.clone();
            async move {
                let response = upstream.send(request).await.unwrap();
                response.into_body().collect().await.map(drop)
            }
        });
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_eq!(heard(&mut stream).await.unwrap(), "/large");
        answer_with(&mut stream, "taken").await;
        asking.await.unwrap().unwrap();
        // Its caller has the answer and is gone; the rest of the request is still on its way.
        let mut whole = vec![0; bytes];
        stream.read_exact(&mut whole).await.unwrap();
        assert!(whole.iter().all(|byte| *byte == b'x'));
        let mut next = JoinSet::new();
        next.spawn(next_on(stream));
        loop {
            // Over the same connection, as soon as it is free again.
            let asking = tokio::spawn({
                let upstream = upstream.clone();
                async move { said(&upstream, "/next").await }
            });
            let (mut stream, is_reused) = tokio::select! {
                Some(heard) = next.join_next() => (heard.unwrap().unwrap().0, true),
                stream = listener.accept() => (stream.unwrap().0, false),
            };
            if !is_reused {
                heard(&mut stream).await.unwrap();
            }
            // One that is told so is closed, so that the next round has to look again.
            let last = answer("next").replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
            stream.write_all(last.as_bytes()).await.unwrap();
            assert_eq!(asking.await.unwrap(), "next");
            if is_reused {
                break;
            }
        }
    }
}
