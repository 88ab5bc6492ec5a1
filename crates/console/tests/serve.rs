//! The listener of the admin surface, over real sockets.
//!
//! What the routes answer is `surface.rs`; here only that they are reached, and let go.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::net::SocketAddr;
use std::time::Duration;

use onetake_console::{Desk, Guard, Hosts, Token, router, serve};
use onetake_engine::{Engine, Memory};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Far longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);

async fn served() -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let guard = Guard::new(Token::new("0123456789abcdef").unwrap(), Hosts::of(address, &[]));
    let router = router(Desk::new(Engine::new(Memory::new())), guard);
    let (end, ended) = oneshot::channel::<()>();
    let end_of_it = async {
        let _ = ended.await;
    };
    (address, end, tokio::spawn(serve(listener, router, end_of_it)))
}

async fn said(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut said = String::new();
    timeout(SOON, stream.read_to_string(&mut said)).await.unwrap().unwrap();
    said
}

#[tokio::test]
async fn a_request_over_a_socket_is_judged_and_answered() {
    let (address, _end, _serving) = served().await;
    let request = |host: &str, token: &str| {
        format!(
            "GET /v1/keys HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
             Connection: close\r\n\r\n"
        )
    };
    let host = address.to_string();
    let listed = said(address, &request(&host, "0123456789abcdef")).await;
    assert!(listed.starts_with("HTTP/1.1 200"), "{listed}");
    assert!(listed.contains(r#""keys":[]"#), "{listed}");
    let stranger = said(address, &request(&host, "0123456789abcdeX")).await;
    assert!(stranger.starts_with("HTTP/1.1 401"), "{stranger}");
    let rebound = said(address, &request("evil.example", "0123456789abcdef")).await;
    assert!(rebound.starts_with("HTTP/1.1 421"), "{rebound}");
}

#[tokio::test]
async fn the_end_of_serving_does_not_wait_for_idle_clients() {
    let (address, end, serving) = served().await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    let host = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n");
    idle.write_all(host.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    timeout(SOON, idle.read_exact(&mut first)).await.unwrap().unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    end.send(()).unwrap();
    timeout(SOON, serving).await.unwrap().unwrap();
    let mut rest = Vec::new();
    timeout(SOON, idle.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}
