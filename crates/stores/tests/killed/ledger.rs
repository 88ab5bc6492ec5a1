//! The world outside: a process of its own that has the effects, and writes each down before it
//! says so.
//!
//! It knows nothing of keys and records. Nothing ever ends it but the test, so what it has written
//! down is what really happened.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::common::part::say;

fn socket(folder: &Path) -> PathBuf {
    folder.join("ledger.sock")
}

fn book(folder: &Path) -> PathBuf {
    folder.join("ledger")
}

/// Takes effects until the process is ended.
pub(crate) fn keep(folder: &Path) {
    let listener = UnixListener::bind(socket(folder)).unwrap();
    let file = File::options().append(true).create(true).open(book(folder)).unwrap();
    let kept = Arc::new(Mutex::new((file, 0_u64)));
    say("open");
    for stream in listener.incoming().map_while(Result::ok) {
        let kept = Arc::clone(&kept);
        std::thread::spawn(move || take(stream, &kept));
    }
}

/// Whoever asked may be gone at any moment; what was said whole has happened.
fn take(mut stream: UnixStream, kept: &Mutex<(File, u64)>) {
    let mut line = String::new();
    let whole = BufReader::new(&stream).read_line(&mut line).is_ok() && line.ends_with('\n');
    if !whole {
        return;
    }
    let number = {
        let mut kept = kept.lock().unwrap();
        kept.1 += 1;
        let (line, number) = (line.trim_end(), kept.1);
        kept.0.write_all(format!("{number} {line}\n").as_bytes()).unwrap();
        number
    };
    drop(stream.write_all(format!("{number}\n").as_bytes()));
}

/// Has an effect; gives its number.
pub(crate) fn effect(folder: &Path, what: &str) -> u64 {
    let mut stream = UnixStream::connect(socket(folder)).unwrap();
    stream.write_all(format!("{what}\n").as_bytes()).unwrap();
    let mut number = String::new();
    BufReader::new(stream).read_line(&mut number).unwrap();
    number.trim_end().parse().unwrap()
}

/// One effect that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) number: u64,
    pub(crate) operation: u64,
    pub(crate) attempt: u32,
    pub(crate) recovery: bool,
    pub(crate) fence: String,
}

/// Every effect that happened so far, in order.
pub(crate) fn effects(folder: &Path) -> Vec<Effect> {
    let text = std::fs::read_to_string(book(folder)).unwrap_or_default();
    // The last line may be half written; whoever asked for it has not heard of it.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(read).collect()
}

fn read(line: &str) -> Effect {
    let words: Vec<_> = line.split(' ').collect();
    let [number, operation, attempt, told, fence] = words.try_into().expect("five words");
    Effect {
        number: number.parse().unwrap(),
        operation: operation.parse().unwrap(),
        attempt: attempt.parse().unwrap(),
        recovery: told == "recovery",
        fence: fence.to_owned(),
    }
}
