//! The API behind the fleet: it counts what it was asked to do, and by which attempt.
//!
//! An effect counts as soon as it was asked for, before any answer, as a charge would. It never
//! deduplicates anything itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::nodes::pause;

/// Something that happened, and could be a payment.
#[derive(Debug, Clone)]
pub(crate) struct Effect {
    pub(crate) key: String,
    pub(crate) attempt: u32,
    pub(crate) is_recovery: bool,
}

/// What all connections share.
struct Books {
    effects: Mutex<Vec<Effect>>,
    arrive: Sender<String>,
    let_go: Mutex<Receiver<()>>,
}

/// An API that counts.
pub(crate) struct Api {
    pub(crate) address: SocketAddr,
    /// The keys of what has arrived, one after the other.
    pub(crate) arrived: Receiver<String>,
    /// Lets one of those go on that are held.
    pub(crate) go_on: Sender<()>,
    books: Arc<Books>,
}

impl Api {
    /// A body `{"think_ms": n}` makes it think before it answers, `{"held": true}` until it is let
    /// go.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (arrive, arrived) = channel();
        let (go_on, let_go) = channel();
        let let_go = Mutex::new(let_go);
        let books = Arc::new(Books { effects: Mutex::default(), arrive, let_go });
        let shared = Arc::clone(&books);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let books = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &books));
            }
        });
        Self { address, arrived, go_on, books }
    }

    /// Everything that happened so far.
    pub(crate) fn effects(&self) -> Vec<Effect> {
        self.books.effects.lock().unwrap().clone()
    }

    /// What happened under one key.
    pub(crate) fn effects_of(&self, key: &str) -> Vec<Effect> {
        self.effects().into_iter().filter(|effect| effect.key == key).collect()
    }
}

/// One request: its head, in lower case but for the values, and its body.
fn read_one(reader: &mut BufReader<TcpStream>) -> Option<(Vec<(String, String)>, Value)> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let length = value_of(&headers, "content-length").map_or(0, |value| value.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((headers, serde_json::from_slice(&body).unwrap_or_default()))
}

fn value_of<'a>(headers: &'a [(String, String)], wanted: &str) -> Option<&'a str> {
    headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
}

fn serve(mut stream: TcpStream, books: &Books) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some((headers, body)) = read_one(&mut reader) {
        let key = value_of(&headers, "idempotency-key").unwrap_or_default().to_owned();
        let attempt = value_of(&headers, "onetake-attempt").unwrap_or("0").parse().unwrap();
        let is_recovery = value_of(&headers, "onetake-recovery") == Some("true");
        let serial = {
            let mut effects = books.effects.lock().unwrap();
            effects.push(Effect { key: key.clone(), attempt, is_recovery });
            effects.len()
        };
        let _ = books.arrive.send(key.clone());
        if body["held"] == true {
            let _ = books.let_go.lock().unwrap().recv();
        }
        if let Some(think_ms) = body["think_ms"].as_u64() {
            pause(Duration::from_millis(think_ms));
        }
        let body = json!({ "order": serial, "key": key }).to_string();
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\nx-order: {serial}\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
