//! The load: 64 connections that are kept, each of which asks again once it was answered.
//!
//! It speaks just enough HTTP/1.1, so that it costs little, and the same for whoever is asked: the
//! request is always the same bytes but for the digits of its key. Every answer is checked, byte
//! by byte where it has a body: a benchmark of wrong answers would be fast.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{float, service};

const CONNECTIONS: usize = 64;
/// Threads that make the load, each with its share of the connections.
const THREADS: usize = 2;
/// Keys that are asked for again and again.
const HOT: u64 = 5_000;
/// Numbers of keys that are new begin here.
const FRESH: u64 = 1 << 32;
/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 8 * 1024;
/// How long a turn may take beyond its span before something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

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

    /// The time within which so many of a hundred requests were answered, in milliseconds.
    pub(crate) fn percentile_ms(&self, percent: usize) -> f64 {
        let at = (self.took.len() * percent / 100).min(self.took.len() - 1);
        f64::from(self.took[at]) / 1e6
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
    pub(crate) fn new_keys(&self, to: SocketAddr, span: Duration) -> Turn {
        turn(to, Work::New, &self.fresh, span)
    }
}

/// Asks for each hot key once. Whatever was asked since, they are hot afterwards.
pub(crate) fn warm(to: SocketAddr) {
    turn(to, Work::Prepare, &Arc::default(), PATIENCE);
}

/// Asks with hot keys for `span`.
pub(crate) fn replays(to: SocketAddr, span: Duration) -> Turn {
    turn(to, Work::Replay, &Arc::default(), span)
}

fn turn(to: SocketAddr, work: Work, counter: &Arc<AtomicU64>, span: Duration) -> Turn {
    let ready = Arc::new(Barrier::new(THREADS));
    let threads: [JoinHandle<_>; THREADS] = std::array::from_fn(|_| {
        let (counter, ready) = (Arc::clone(counter), Arc::clone(&ready));
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            let lines = runtime.block_on(connect(to));
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

async fn connect(to: SocketAddr) -> Vec<Line> {
    let mut lines = Vec::with_capacity(CONNECTIONS / THREADS);
    for _ in 0..CONNECTIONS / THREADS {
        lines.push(Line::open(to).await);
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
                let Some(n) = work.key(&counter).filter(|_| begun < end) else { return took };
                line.ask(n, work).await;
                took.push(u32::try_from(begun.elapsed().as_nanos()).unwrap_or(u32::MAX));
            }
        });
    }
    talking.join_all().await.concat()
}

/// One connection.
struct Line {
    stream: TcpStream,
    request: Vec<u8>,
    /// Where the digits of the key are.
    key_at: usize,
    expected: Vec<u8>,
    answer: Vec<u8>,
}

const DIGITS: usize = 16;

impl Line {
    async fn open(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let (body, path) = (service::asked(), service::PATH);
        let before = format!("POST {path} HTTP/1.1\r\nhost: {to}\r\nidempotency-key: order-");
        let after =
            format!("\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        let key_at = before.len();
        let request =
            [before.as_bytes(), &[b'0'; DIGITS], after.as_bytes(), body.as_slice()].concat();
        let answer = Vec::with_capacity(ANSWER_BYTES_MAX);
        Self { stream, request, key_at, expected: service::answered(), answer }
    }

    /// Asks with key `n`, and checks the answer.
    async fn ask(&mut self, n: u64, work: Work) {
        let digits = &mut self.request[self.key_at..][..DIGITS];
        for (at, byte) in digits.iter_mut().rev().enumerate() {
            *byte = b"0123456789abcdef"[usize::try_from(n >> (4 * at) & 15).expect("four bits")];
        }
        self.stream.write_all(&self.request).await.expect("the server reads");
        self.answer.clear();
        let heard = loop {
            let read = self.stream.read_buf(&mut self.answer).await.expect("the server answers");
            assert!(read > 0, "the server hung up");
            if let Some(heard) = Heard::whole(&self.answer) {
                break heard;
            }
            assert!(self.answer.len() < ANSWER_BYTES_MAX, "the answer has no end");
        };
        let is_right = heard.status == b"201" && heard.body == self.expected;
        let is_marked = match work {
            Work::New => !heard.is_replayed,
            Work::Replay => heard.is_replayed,
            Work::Prepare => true,
        };
        assert!(is_right && is_marked, "not as expected: {}", self.answer.escape_ascii());
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
            is_replayed |=
                value(line, b"idempotent-replayed: ").is_some_and(|mark| mark == b"true");
        }
        let length: usize = length.expect("every answer says how long it is");
        (body.len() >= length).then(|| Self { status: &head[9..12], is_replayed, body })
    }
}

fn value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (found, value) = line.split_at_checked(name.len())?;
    found.eq_ignore_ascii_case(name).then_some(value)
}
