//! A provider that writes down every call, and somebody who is told of events: sockets that count.
//!
//! A call counts as soon as it was made, before any answer, as a charge would. What is held is
//! answered once it is let go.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::home::pause;

/// How long is waited for a call.
const WITHIN: Duration = Duration::from_secs(60);

/// A call that was made.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) path: String,
    /// With names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
    pub(crate) is_answered: bool,
}

impl Call {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// What it says which call it is.
    pub(crate) fn key(&self) -> String {
        self.header("idempotency-key").unwrap_or_default().to_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

#[derive(Default)]
struct Books {
    calls: Vec<Call>,
    /// Paths whose calls are not answered for now.
    held: BTreeSet<String>,
    /// What the next calls of a path are answered with, if not 200.
    statuses: BTreeMap<String, Vec<u16>>,
    /// How long it thinks before it answers.
    thinks: Duration,
}

#[derive(Default)]
struct Shared {
    books: Mutex<Books>,
    changed: Condvar,
}

/// A provider that counts.
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Provider {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let books = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let books = Arc::clone(&books);
                std::thread::spawn(move || serve(stream, &books));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Answers nobody at `path` until it is let go.
    pub(crate) fn hold(&self, path: &str) {
        self.shared.books.lock().unwrap().held.insert(path.to_owned());
    }

    /// Answers all at `path`.
    pub(crate) fn let_go(&self, path: &str) {
        self.shared.books.lock().unwrap().held.remove(path);
        self.shared.changed.notify_all();
    }

    /// Thinks for so long before each answer.
    pub(crate) fn think(&self, span: Duration) {
        self.shared.books.lock().unwrap().thinks = span;
    }

    /// Answers the next calls at `path` with these.
    pub(crate) fn answer(&self, path: &str, statuses: &[u16]) {
        let statuses = statuses.iter().rev().copied().collect();
        self.shared.books.lock().unwrap().statuses.insert(path.to_owned(), statuses);
    }

    /// Every call so far that is `wanted`.
    pub(crate) fn calls(&self, wanted: impl Fn(&Call) -> bool) -> Vec<Call> {
        let books = self.shared.books.lock().unwrap();
        books.calls.iter().filter(|call| wanted(call)).cloned().collect()
    }

    /// Waits until there are so many that are `wanted`.
    pub(crate) fn until(&self, count: usize, wanted: impl Fn(&Call) -> bool) -> Vec<Call> {
        let begun = Instant::now();
        let mut books = self.shared.books.lock().unwrap();
        loop {
            let found: Vec<Call> =
                books.calls.iter().filter(|call| wanted(call)).cloned().collect();
            if found.len() >= count {
                return found;
            }
            let left = WITHIN.checked_sub(begun.elapsed());
            let left = left.unwrap_or_else(|| panic!("{} of {count} calls", found.len()));
            books = self.shared.changed.wait_timeout(books, left).unwrap().0;
        }
    }
}

fn read_one(reader: &mut BufReader<TcpStream>) -> Option<Call> {
    let mut first = String::new();
    if reader.read_line(&mut first).ok()? == 0 {
        return None;
    }
    let path = first.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).ok()?;
    Some(Call { path, headers, body, is_answered: false })
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(call) = read_one(&mut reader) {
        let (path, key) = (call.path.clone(), call.key());
        let mut books = shared.books.lock().unwrap();
        let place = books.calls.len();
        books.calls.push(call);
        let status = books.statuses.get_mut(&path).and_then(Vec::pop).unwrap_or(200);
        shared.changed.notify_all();
        while books.held.contains(&path) {
            books = shared.changed.wait(books).unwrap();
        }
        let thinks = books.thinks;
        drop(books);
        pause(thinks);
        let body = json!({"serial": place, "key": key}).to_string();
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        let is_sent = stream.write_all(answer.as_bytes()).is_ok();
        shared.books.lock().unwrap().calls[place].is_answered = true;
        shared.changed.notify_all();
        if !is_sent {
            return;
        }
    }
}
