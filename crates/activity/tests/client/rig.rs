//! A provider made of plain sockets, and a world that calls it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::{Method, StatusCode};
use onetake_activity::{
    Activities, ExecuteError, HttpCall, HttpClient, HttpFailure, HttpReplied, HttpResult,
    HttpSettings, IdentityForm, Invocation, NodeCalls, Site, Take,
};
use onetake_core::{Address, Backoff, Operation, Outcome, Phase, Scope, Tenant};
use onetake_engine::{Engine, Memory};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

/// What a provider does with a request that it has read.
pub(crate) enum Act {
    /// Answers with these bytes, and waits for the next request.
    Answer(Vec<u8>),
    /// Answers once it is told to.
    Later(Arc<Notify>, Vec<u8>),
    /// Writes these bytes and hangs up.
    HangUp(&'static str),
    /// Tears the connection down.
    Reset,
    /// Says nothing until the client goes away.
    Silence,
    /// Writes what the test gives it, and hangs up.
    Stream(mpsc::Receiver<&'static str>),
}

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen(String);

impl Seen {
    /// The values of a header, whose name is in small letters.
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.0.lines().skip(1).take_while(|line| !line.is_empty());
        let parts = lines.filter_map(|line| line.split_once(": "));
        parts.filter(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    pub(crate) fn line(&self) -> &str {
        self.0.lines().next().unwrap()
    }
}

/// A provider. Dropping it ends it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Told when a client has gone from a stream or a silence.
    pub(crate) gone: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Acts = Arc<Mutex<dyn FnMut(usize) -> Act + Send>>;

impl Server {
    /// A provider that does `act` with the n-th request, from zero.
    pub(crate) async fn start(act: impl FnMut(usize) -> Act + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, act)
    }

    pub(crate) fn on(
        listener: TcpListener,
        act: impl FnMut(usize) -> Act + Send + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let (seen, gone) = (Arc::<Mutex<Vec<Seen>>>::default(), Arc::new(Notify::new()));
        let acts: Acts = Arc::new(Mutex::new(act));
        let connection = (Arc::clone(&seen), Arc::clone(&gone));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let ((seen, gone), acts) = (connection.clone(), Arc::clone(&acts));
                // Ends with its client.
                tokio::spawn(async move { serve(stream, &seen, &gone, &acts).await });
            }
        });
        Self { address, seen, gone, task }
    }

    /// A provider that gives these answers, and the last one for ever.
    pub(crate) async fn answering(answers: Vec<Vec<u8>>) -> Self {
        Self::start(move |nth| Act::Answer(answers[nth.min(answers.len() - 1)].clone())).await
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The identities of all requests, where each has one.
    pub(crate) fn identities(&self, header: &str) -> Vec<String> {
        let one = |seen: &Seen| match seen.header(header)[..] {
            [id] => id.to_owned(),
            ref other => panic!("{other:?}"),
        };
        self.seen().iter().map(one).collect()
    }

    pub(crate) fn post(&self, body: &'static str) -> HttpCall {
        post(self.address, body)
    }
}

pub(crate) fn post(address: SocketAddr, body: &'static str) -> HttpCall {
    let call = HttpCall::new(Method::POST, &format!("http://{address}/v1/charges?q=1")).unwrap();
    call.body(body)
}

pub(crate) fn with(call: HttpCall, name: &'static str, value: &'static str) -> HttpCall {
    call.header(HeaderName::from_static(name), HeaderValue::from_static(value))
}

async fn serve(
    mut stream: TcpStream,
    seen: &Mutex<Vec<Seen>>,
    gone: &Notify,
    acts: &Acts,
) -> io::Result<()> {
    while let Some(request) = read_request(&mut stream).await? {
        let nth = {
            let mut seen = seen.lock().unwrap();
            seen.push(Seen(request));
            seen.len() - 1
        };
        let act = (acts.lock().unwrap())(nth);
        match act {
            Act::Answer(bytes) => stream.write_all(&bytes).await?,
            Act::Later(told, bytes) => {
                told.notified().await;
                stream.write_all(&bytes).await?;
            }
            Act::HangUp(bytes) => {
                stream.write_all(bytes.as_bytes()).await?;
                return stream.shutdown().await;
            }
            Act::Reset => return stream.set_zero_linger(),
            Act::Silence => {
                let _ = stream.read_buf(&mut Vec::new()).await;
                gone.notify_one();
                return Ok(());
            }
            Act::Stream(pieces) => {
                pass(&mut stream, pieces).await;
                gone.notify_one();
                return Ok(());
            }
        }
    }
    Ok(())
}

async fn pass(stream: &mut TcpStream, mut pieces: mpsc::Receiver<&'static str>) {
    let (mut from, mut to) = stream.split();
    let mut nothing = Vec::new();
    let write = async {
        while let Some(piece) = pieces.recv().await {
            to.write_all(piece.as_bytes()).await?;
        }
        to.shutdown().await
    };
    tokio::select! {
        _ = write => {}
        _ = from.read_buf(&mut nothing) => {}
    }
}

/// Reads one whole request, whose length is in its head, and gives it as text.
async fn read_request(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let mut read = Vec::new();
    loop {
        if let Some(text) = whole(&read) {
            return Ok(Some(text));
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
    }
}

pub(crate) fn whole(read: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(read).into_owned();
    let head = text.find("\r\n\r\n")? + 4;
    let small = text[..head].to_lowercase();
    let length = small.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().unwrap());
    (text.len() >= head + length).then_some(text)
}

/// An answer of HTTP/1.1 with these headers, each with its line end.
pub(crate) fn answer(status: u16, headers: &str, body: &str) -> Vec<u8> {
    let reason = StatusCode::from_u16(status).unwrap().canonical_reason().unwrap_or("-");
    let length = body.len();
    let head = format!("HTTP/1.1 {status} {reason}\r\n{headers}content-length: {length}\r\n\r\n");
    (head + body).into_bytes()
}

/// A log, and a client that is not patient.
pub(crate) struct World {
    pub(crate) engine: Engine<Memory>,
    pub(crate) log: Activities<Memory>,
    pub(crate) client: HttpClient,
}

/// Pauses so short that no test notices them.
pub(crate) fn settings() -> HttpSettings {
    let moment = Duration::from_millis(1);
    HttpSettings::new().backoff(Backoff { first: moment, max: moment })
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(settings())
    }

    pub(crate) fn with(settings: HttpSettings) -> Self {
        let engine = Engine::new(Memory::new());
        let client = HttpClient::new(settings).unwrap();
        Self { log: Activities::new(engine.clone()), engine, client }
    }

    /// The node, as it is entered by every attempt.
    pub(crate) fn node(&self) -> NodeCalls<Memory> {
        self.log.enter(site())
    }

    /// The first call of the node.
    pub(crate) async fn http(&self, provider: &str, call: HttpCall) -> HttpReplied {
        self.node().http(&self.client, provider, call).await
    }

    pub(crate) async fn http_stream(&self, provider: &str, call: HttpCall) -> HttpReplied {
        self.node().http_stream(&self.client, provider, call).await
    }

    /// The first call of the node, which must have a result.
    pub(crate) async fn kept(&self, provider: &str, call: HttpCall) -> Take<HttpResult> {
        self.http(provider, call).await.unwrap().kept().unwrap()
    }

    pub(crate) async fn failure(&self, provider: &str, call: HttpCall) -> HttpFailure {
        failure(self.http(provider, call).await)
    }

    /// What is recorded of the first call of the node.
    pub(crate) async fn record(&self, provider: &str) -> Kept {
        let Site { tenant, run, node, attempt } = site();
        let call =
            Invocation { tenant: &tenant, run: &run, node: &node, ordinal: 0, attempt, provider };
        let id = call.id(IdentityForm::Current).unwrap();
        let key = onetake_core::Key::new(id.as_str()).unwrap();
        let operation = Operation::new("activity.invocations").unwrap();
        let address = Address::new(Scope::tenant_wide(tenant), operation, key);
        let Some(found) = self.engine.get(&address).await.unwrap() else { return Kept::Nothing };
        match &found.value.phase {
            Phase::Done { outcome, keeping, .. } => match &**outcome {
                Outcome::Value(json) | Outcome::Failure(json) => {
                    let is_final = *keeping == onetake_core::Keeping::Final;
                    Kept::Done(is_final, serde_json::from_slice(json).unwrap())
                }
                Outcome::Response { .. } | Outcome::NotKept { .. } => panic!("{outcome:?}"),
            },
            Phase::Unknown { .. } => Kept::Unknown,
            Phase::Claimed { .. } => Kept::Claimed,
            Phase::Released { .. } => Kept::Nothing,
        }
    }

    /// Goes on once nothing is executed any more.
    pub(crate) async fn rest(&self) {
        let idle = async {
            while self.engine.executing() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), idle).await.unwrap();
    }
}

/// What a record says.
#[derive(Debug, PartialEq)]
pub(crate) enum Kept {
    Nothing,
    Claimed,
    Unknown,
    /// Whether it is final, and its JSON.
    Done(bool, Value),
}

pub(crate) fn site() -> Site {
    let tenant = Tenant::new("acme").unwrap();
    Site { tenant, run: "run-1".into(), node: "charge".into(), attempt: 0 }
}

pub(crate) fn failure(replied: HttpReplied) -> HttpFailure {
    match replied {
        Err(ExecuteError::Failed { failure, .. }) => failure,
        other => panic!("{other:?}"),
    }
}
