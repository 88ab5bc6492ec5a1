//! A gateway on a real port, an upstream that can be told how to behave, and a client.
#![allow(dead_code, clippy::unwrap_used, reason = "tests, each of which uses a part of it")]

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use onetake_engine::{Engine, Memory, Slots};
use onetake_http::gateway::forward::Forwarding;
use onetake_http::gateway::pattern::Pattern;
use onetake_http::gateway::upstream::UpstreamOptions;
use onetake_http::gateway::{
    ForwardKey, Gateway, Lanes, Listening, Parts, ProxyUpstream, Route, serve,
};
use onetake_http::identity::{AnonymousSettings, Gate};
use onetake_http::{Dialect, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// What an upstream does with one connection's next request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Answers with these bytes.
    Answer(String),
    /// Reads the request and closes.
    Close,
    /// Answers with a part of what it promised, and closes.
    BreakOff(String),
    /// Reads the request, rings, waits to be let go, and answers.
    Wait(String),
    /// Answers in two parts, and waits to be let go between them.
    InTwo(String, String),
    /// Reads the request and never answers.
    Hang,
}

/// One request as an upstream saw it.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) head: String,
    pub(crate) body: Bytes,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| {
            line.split_once(':').is_some_and(|(found, _)| found.eq_ignore_ascii_case(name))
        })?;
        line.split_once(':').map(|(_, value)| value.trim())
    }
}

#[derive(Debug, Default)]
struct Play {
    acts: Mutex<VecDeque<Act>>,
    got: Mutex<Vec<Got>>,
    arrived: Notify,
    go_on: Notify,
    /// Whether the other end was still there for the second part of an answer.
    listened: Mutex<Vec<bool>>,
    parted: Notify,
}

/// An upstream that speaks just enough HTTP/1.1, byte by byte, to misbehave.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    play: Arc<Play>,
    task: JoinHandle<()>,
}

pub(crate) fn answer(status: u16, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

impl Backend {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, play) = (listener.local_addr().unwrap(), Arc::new(Play::default()));
        let played = Arc::clone(&play);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(converse(stream, Arc::clone(&played)));
            }
        });
        Self { address, play, task }
    }

    /// Plans what happens to the next requests; without a plan they are answered `200 take n`.
    pub(crate) fn plan(&self, acts: impl IntoIterator<Item = Act>) {
        self.play.acts.lock().unwrap().extend(acts);
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.play.got.lock().unwrap().clone()
    }

    pub(crate) async fn arrived(&self) {
        self.play.arrived.notified().await;
    }

    /// Whether somebody listened to the second part of an answer.
    pub(crate) async fn was_heard(&self) -> bool {
        self.play.parted.notified().await;
        self.play.listened.lock().unwrap().pop().unwrap()
    }

    pub(crate) fn go_on(&self) {
        self.play.go_on.notify_one();
    }

    /// Frees the port: connections are refused from now on.
    pub(crate) async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Reads one request: its head, and as much body as it says.
async fn one_request(stream: &mut TcpStream) -> Option<Got> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let got = Got { head, body: Bytes::new() };
    let length = got.header("content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = Bytes::copy_from_slice(&bytes[end..end + length]);
    Some(Got { body, ..got })
}

async fn converse(mut stream: TcpStream, play: Arc<Play>) {
    while let Some(got) = one_request(&mut stream).await {
        let number = {
            let mut all = play.got.lock().unwrap();
            all.push(got);
            all.len()
        };
        let act = play.acts.lock().unwrap().pop_front();
        play.arrived.notify_one();
        let text = match act {
            None => answer(200, &format!("take {number}")),
            Some(Act::Answer(text)) => text,
            Some(Act::Close) => return,
            Some(Act::BreakOff(text)) => {
                let _ = stream.write_all(text.as_bytes()).await;
                return;
            }
            Some(Act::Wait(text)) => {
                play.go_on.notified().await;
                text
            }
            Some(Act::InTwo(first, second)) => {
                let _ = stream.write_all(first.as_bytes()).await;
                play.go_on.notified().await;
                let left = stream.try_read(&mut [0]);
                let is_there = left.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
                play.listened.lock().unwrap().push(is_there);
                play.parted.notify_one();
                second
            }
            Some(Act::Hang) => std::future::pending().await,
        };
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// An answer, read whole.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Heard {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn refusal(&self) -> Option<&str> {
        self.header("onetake-refused")
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed").is_some()
    }
}

/// A running gateway.
pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) client: Client<HttpConnector, Full<Bytes>>,
    end: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

pub(crate) fn anonymous() -> Gate {
    Gate::Anonymous(AnonymousSettings::default().build().unwrap())
}

pub(crate) fn parts(gate: Gate) -> Parts {
    Parts {
        gate,
        forwarding: Forwarding::new(),
        forwards_credentials: false,
        requests_max: 1_000,
        buffered_bytes_max: onetake_http::BUFFERED_BYTES_MAX,
        new_keys_per_minute: HashMap::new(),
    }
}

pub(crate) fn upstream(address: SocketAddr) -> ProxyUpstream {
    let base = format!("http://{address}").parse().unwrap();
    ProxyUpstream::new(base, UpstreamOptions::default()).unwrap()
}

pub(crate) fn route(pattern: &str, address: SocketAddr, settings: Option<Settings>) -> Route {
    Route {
        pattern: Pattern::parse(pattern).unwrap(),
        upstream: upstream(address),
        timeout: Duration::from_secs(30),
        request_bytes_max: onetake_http::BODY_BYTES_MAX,
        operation: None,
        settings,
        forward_key: ForwardKey::Raw,
        scope: None,
        shares_keys: false,
        probe: None,
    }
}

pub(crate) fn settings(dialect: Dialect) -> Settings {
    Settings::builder(dialect).build().unwrap()
}

impl Rig {
    pub(crate) async fn start(parts: Parts, routes: Vec<Route>) -> Self {
        Self::on(Engine::new(Memory::new()), parts, routes).await
    }

    pub(crate) async fn on<S: Slots>(engine: Engine<S>, parts: Parts, routes: Vec<Route>) -> Self {
        let gateway = Arc::new(Gateway::new(engine, parts, routes).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            let end = async move { drop(ended.await) };
            let lanes = Lanes::start(2).unwrap();
            serve(listener, gateway, Listening::default(), &lanes, end).await;
        });
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { address, client, end: Some(end), task }
    }

    /// The usual one: every changing request to `backend` with the default dialect.
    pub(crate) async fn before(backend: &Backend) -> Self {
        let keyed =
            route("POST,PUT,PATCH,DELETE /**", backend.address, Some(settings(Dialect::ietf())));
        let passing = route("* /**", backend.address, None);
        Self::start(parts(anonymous()), vec![keyed, passing]).await
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Heard {
        let response = self.client.request(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Heard { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> http::request::Builder {
        Request::builder().method(method).uri(format!("http://{}{path}", self.address))
    }

    /// A request with a key.
    pub(crate) fn keyed(&self, path: &str, key: &str, body: &str) -> Request<Full<Bytes>> {
        let request = self.request("POST", path).header("idempotency-key", key);
        let request = request.header("content-type", "application/json");
        request.body(Full::new(body.to_owned().into())).unwrap()
    }

    pub(crate) async fn post(&self, path: &str, key: &str, body: &str) -> Heard {
        self.send(self.keyed(path, key, body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Heard {
        self.send(self.request("GET", path).body(Full::default()).unwrap()).await
    }

    /// Writes these bytes on a connection of its own, and reads until the other side closes or
    /// `until` was read.
    pub(crate) async fn raw(&self, bytes: &[u8], until: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains(until) {
            match stream.read_buf(&mut read).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        String::from_utf8_lossy(&read).into_owned()
    }

    pub(crate) async fn stop(mut self) {
        drop(self.end.take());
        self.task.await.unwrap();
    }
}
