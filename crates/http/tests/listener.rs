//! The listener, over real sockets: whoever connects and says nothing, or too little, is let go.

mod rig;

use std::sync::Arc;
use std::time::Duration;

use onetake_engine::{Engine, Memory};
use onetake_http::Dialect;
use onetake_http::gateway::{Gateway, Lanes, Listening, serve};
use rig::{Backend, anonymous, parts, route, settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// X15: no beginning of a request holds a connection for longer than a head may take.
#[tokio::test]
async fn x15_a_client_that_says_too_little_is_let_go() {
    let backend = Backend::start().await;
    let keyed = route("POST /**", backend.address, Some(settings(Dialect::ietf())));
    let gateway = Gateway::new(Engine::new(Memory::new()), parts(anonymous()), vec![keyed]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let bounds = Listening {
        connections_max: 1,
        head_within: Duration::from_millis(50),
        ..Listening::default()
    };
    let gateway = Arc::new(gateway.unwrap());
    let served = tokio::spawn(async move {
        serve(listener, gateway, bounds, &Lanes::here(), std::future::pending()).await;
    });
    for begun in ["", "P", "POST / HTTP/1.1\r\nhost", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        // Ends only when the other side closes; there is one place, so the next one needs it.
        let _ = stream.read_to_end(&mut heard).await;
        assert!(!heard.starts_with(b"HTTP/1.1 2"), "{begun:?}");
    }
    served.abort();
}
