//! The load: 64 connections that are kept, each of which asks again once it was answered.
//!
//! It speaks just enough HTTP/1.1, so that it costs little, and the same for whoever is asked: the
//! request is always the same bytes but for the digits of its key. Every answer is checked: a
//! benchmark of wrong answers would be fast. A run that was created is still to be driven, so a
//! turn with new keys ends when the last runs of every connection stand where they are to stand;
//! otherwise whoever is measured next would pay for that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::peer::Peer;
use crate::{float, percentile_ms, plain};

pub(crate) const CONNECTIONS: usize = 64;
/// Threads that make the load, each with its share of the connections.
const THREADS: usize = 2;
/// Keys that are asked for again and again.
const HOT: u64 = 5_000;
/// Numbers of keys that are new begin here.
const FRESH: u64 = 1 << 32;
/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// How long a turn may take beyond its span before something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long whoever waits for a run waits before looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// What a turn asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Keys that nobody has seen, until the time is over.
    New,
    /// Hot keys, until the time is over.
    Replay,
    /// Each hot key once, whether it is new or not.
    Prepare,
}

impl Work {
    /// The number of the next key; `None` when there are no more.
    fn key(self, counter: &AtomicU64) -> Option<u64> {
        let n = counter.fetch_add(1, Ordering::Relaxed);
        match self {
            Self::New => Some(n),
            Self::Replay => Some(n % HOT),
            Self::Prepare => (n < HOT).then_some(n),
        }
    }
}

/// Who is asked for what.
#[derive(Clone)]
pub(crate) struct Target<'p> {
    pub(crate) peer: &'p Peer,
    pub(crate) workflow: &'static str,
    /// Where a run of it comes to stand; nothing where there are no runs.
    pub(crate) rests: Option<&'static str>,
}

/// What a turn came to.
#[derive(Debug)]
pub(crate) struct Turn {
    seconds: f64,
    /// How long each request took, in nanoseconds, the shortest first.
    took: Vec<u32>,
}

impl Turn {
    pub(crate) fn requests(&self) -> f64 {
        float(self.took.len() as u64)
    }

    pub(crate) fn rate(&self) -> f64 {
        self.requests() / self.seconds
    }

    pub(crate) fn percentile_ms(&self, percent: usize) -> f64 {
        percentile_ms(&self.took, percent)
    }
}

/// Where the load comes from; it never uses a new key twice.
#[derive(Debug)]
pub(crate) struct Load {
    fresh: Arc<AtomicU64>,
}

impl Load {
    pub(crate) fn new() -> Self {
        Self { fresh: Arc::new(AtomicU64::new(FRESH)) }
    }

    /// Asks with new keys for `span`.
    pub(crate) fn new_keys(&self, to: &Target<'_>, span: Duration) -> Turn {
        turn(to, Work::New, &self.fresh, span)
    }
}

/// Asks for each hot key once. Whatever was asked since, they are hot afterwards.
pub(crate) fn warm(to: &Target<'_>) {
    turn(to, Work::Prepare, &Arc::default(), PATIENCE);
}

/// Asks with hot keys for `span`.
pub(crate) fn replays(to: &Target<'_>, span: Duration) -> Turn {
    turn(to, Work::Replay, &Arc::default(), span)
}

fn turn(to: &Target<'_>, work: Work, counter: &Arc<AtomicU64>, span: Duration) -> Turn {
    let ready = Arc::new(Barrier::new(THREADS));
    let form = Arc::new(Form::of(to));
    let threads: [JoinHandle<_>; THREADS] = std::array::from_fn(|_| {
        let (counter, ready, form) = (Arc::clone(counter), Arc::clone(&ready), Arc::clone(&form));
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            let lines = runtime.block_on(connect(&form));
            ready.wait();
            let begun = Instant::now();
            let talk = talk(lines, work, &counter, begun + span);
            let took = runtime.block_on(async { timeout(span + PATIENCE, talk).await });
            let took = took.expect("answers in time");
            (begun, Instant::now(), took)
        })
    });
    let ended = threads.map(|thread| thread.join().expect("every answer is right"));
    let begun = ended.iter().map(|(begun, _, _)| *begun).min().expect("there are threads");
    let over = ended.iter().map(|(_, over, _)| *over).max().expect("there are threads");
    let mut took: Vec<_> = ended.into_iter().flat_map(|(_, _, took)| took).collect();
    took.sort_unstable();
    assert!(!took.is_empty(), "nothing was answered");
    Turn { seconds: (over - begun).as_secs_f64(), took }
}

async fn connect(form: &Arc<Form>) -> Vec<Line> {
    let mut lines = Vec::with_capacity(CONNECTIONS / THREADS);
    for _ in 0..CONNECTIONS / THREADS {
        lines.push(Line::open(form).await);
    }
    lines
}

async fn talk(lines: Vec<Line>, work: Work, counter: &Arc<AtomicU64>, end: Instant) -> Vec<u32> {
    let mut talking = JoinSet::new();
    for mut line in lines {
        let counter = Arc::clone(counter);
        talking.spawn(async move {
            let mut took = Vec::new();
            loop {
                let begun = Instant::now();
                let Some(n) = work.key(&counter).filter(|_| begun < end) else { break };
                line.ask(n, work).await;
                took.push(u32::try_from(begun.elapsed().as_nanos()).unwrap_or(u32::MAX));
            }
            if work != Work::Replay && !took.is_empty() {
                line.await_rest().await;
            }
            took
        });
    }
    talking.join_all().await.concat()
}

/// What every connection of a turn says and hears.
#[derive(Debug)]
struct Form {
    to: std::net::SocketAddr,
    credential: String,
    request: Vec<u8>,
    /// Where the digits of the key are.
    key_at: usize,
    answered_bytes: usize,
    rests: Option<&'static str>,
}

const DIGITS: usize = 16;

impl Form {
    fn of(target: &Target<'_>) -> Self {
        let Target { peer, workflow, rests } = target;
        let (body, to, path) = (plain::asked(workflow), peer.address, plain::PATH);
        let before = format!("POST {path} HTTP/1.1\r\nhost: {to}\r\nidempotency-key: run-");
        let after = format!(
            "\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            peer.credential,
            body.len()
        );
        let key_at = before.len();
        let request =
            [before.as_bytes(), &[b'0'; DIGITS], after.as_bytes(), body.as_slice()].concat();
        let answered_bytes = plain::answered_bytes(workflow);
        let (credential, rests) = (peer.credential.clone(), *rests);
        Self { to, credential, request, key_at, answered_bytes, rests }
    }
}

/// One connection.
struct Line {
    form: Arc<Form>,
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Line {
    async fn open(form: &Arc<Form>) -> Self {
        let stream = TcpStream::connect(form.to).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let (request, answer) = (form.request.clone(), Vec::with_capacity(ANSWER_BYTES_MAX));
        Self { form: Arc::clone(form), stream, request, answer }
    }

    /// Asks with key `n`, and checks the answer.
    async fn ask(&mut self, n: u64, work: Work) {
        let digits = &mut self.request[self.form.key_at..][..DIGITS];
        for (at, byte) in digits.iter_mut().rev().enumerate() {
            *byte = b"0123456789abcdef"[usize::try_from(n >> (4 * at) & 15).expect("four bits")];
        }
        self.stream.write_all(&self.request).await.expect("the server reads");
        let answered_bytes = self.form.answered_bytes;
        let heard = self.hear().await;
        let is_right = heard.status == b"201" && heard.body.len() == answered_bytes;
        let is_marked = match work {
            Work::New => !heard.is_replayed,
            Work::Replay => heard.is_replayed,
            Work::Prepare => true,
        };
        assert!(is_right && is_marked, "not as expected: {}", self.answer.escape_ascii());
    }

    /// Waits until the run of the last answer stands where it is to stand.
    async fn await_rest(&mut self) {
        let Some(rests) = self.form.rests else { return };
        let heard = Heard::whole(&self.answer).expect("the last answer");
        let created: serde_json::Value = serde_json::from_slice(heard.body).expect("JSON");
        let path = created["statusUrl"].as_str().expect("a path").to_owned();
        let Form { to, credential, .. } = &*self.form;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {to}\r\nauthorization: Bearer {credential}\r\n\r\n"
        );
        loop {
            self.stream.write_all(request.as_bytes()).await.expect("the server reads");
            let heard = self.hear().await;
            assert_eq!(heard.status, b"200");
            let shown: serde_json::Value = serde_json::from_slice(heard.body).expect("JSON");
            if shown["status"] == rests {
                return;
            }
            assert_eq!(shown["status"], "running");
            sleep(LOOK_AGAIN).await;
        }
    }

    async fn hear(&mut self) -> Heard<'_> {
        self.answer.clear();
        while Heard::whole(&self.answer).is_none() {
            assert!(self.answer.len() < ANSWER_BYTES_MAX, "the answer has no end");
            let read = self.stream.read_buf(&mut self.answer).await.expect("the server answers");
            assert!(read > 0, "the server hung up");
        }
        Heard::whole(&self.answer).expect("it is there")
    }
}

/// An answer, as far as anybody looks at it.
struct Heard<'a> {
    status: &'a [u8],
    is_replayed: bool,
    body: &'a [u8],
}

impl<'a> Heard<'a> {
    /// The answer in `bytes`, once all of it is there.
    fn whole(bytes: &'a [u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let (head, body) = (&bytes[..end], &bytes[end + 4..]);
        let (mut length, mut is_replayed) = (None, false);
        for line in head.split(|byte| *byte == b'\n') {
            let line = line.trim_ascii_end();
            if let Some(value) = value(line, b"content-length: ") {
                length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            }
            is_replayed |= value(line, b"openwop-idempotent-replay: ").is_some();
        }
        let length: usize = length.expect("every answer says how long it is");
        (body.len() >= length).then(|| Self { status: &head[9..12], is_replayed, body })
    }
}

fn value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (found, value) = line.split_at_checked(name.len())?;
    found.eq_ignore_ascii_case(name).then_some(value)
}
