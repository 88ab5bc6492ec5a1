//! The processes of a fleet, on one PostgreSQL that this test started.
//!
//! Each can be killed, stopped and started again, and whatever becomes of the test, each ends with
//! it. A node may run with its clock an hour off; how long anything takes it still measures right.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::Duration;

use onetake_testkit::servers::Server;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::caller::{Heard, post};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_onetake");
/// How often something is looked at again that takes its time.
const LOOKS_MAX: u32 = 600;

/// Lets some time pass: for a chaos that is not all at once, and for what nobody can announce.
pub(crate) fn pause(span: Duration) {
    let (_open, never) = mpsc::channel::<()>();
    let _ = never.recv_timeout(span);
}

/// A server that keeps what it acknowledged, for all tests of this program.
pub(crate) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(&[]))
}

/// How far the clock of a node is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    Right,
    HourAhead,
    HourBehind,
}

impl Clock {
    /// Preloads what changes the time of day. Spans are left alone: a wrong clock is not a fast
    /// one.
    fn set(self, command: &mut Command) {
        let offset = match self {
            Self::Right => return,
            Self::HourAhead => "+3600s",
            Self::HourBehind => "-3600s",
        };
        command.env("LD_PRELOAD", faketime()).env("FAKETIME", offset);
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    }
}

/// The library of the package `faketime`.
fn faketime() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let library = "faketime/libfaketimeMT.so.1";
    let mut found = folders.map(|folder| folder.path().join(library));
    found.find(|path| path.exists()).expect("the package `faketime` is installed")
}

/// A running process.
struct Running {
    child: Child,
    gateway: SocketAddr,
}

/// A node of a fleet, which may be killed and started again.
pub(crate) struct Node {
    config: PathBuf,
    state: PathBuf,
    clock: Clock,
    running: Mutex<Running>,
}

impl Node {
    fn start(config: &Path, state: PathBuf, clock: Clock) -> Self {
        let running = Mutex::new(run(config, &state, clock));
        Self { config: config.to_owned(), state, clock, running }
    }

    /// Where it was last known to listen.
    pub(crate) fn gateway(&self) -> SocketAddr {
        self.running.lock().unwrap().gateway
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.running.lock().unwrap().child);
        kill_process(pid, signal).expect("it is there until it is waited for");
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(&self) {
        let mut running = self.running.lock().unwrap();
        running.child.kill().unwrap();
        running.child.wait().unwrap();
    }

    /// Starts it again, after it was killed.
    pub(crate) fn restart(&self) {
        let again = run(&self.config, &self.state, self.clock);
        *self.running.lock().unwrap() = again;
    }

    /// Makes it stand still.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on, as if nothing had happened.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn post(&self, key: &str, body: &str) -> Heard {
        post(self.gateway(), key, body).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Ok(running) = self.running.get_mut() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}

/// Starts a process, and waits until it says where it listens.
fn run(config: &Path, state: &Path, clock: Clock) -> Running {
    let mut command = Command::new(BINARY);
    command
        .args(["serve", "--ends-with-input", "--listen", "127.0.0.1:0"])
        .args(["--admin-listen", "127.0.0.1:0", "--config"])
        .arg(config)
        .arg("--state")
        .arg(state)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    clock.set(&mut command);
    let mut child = command.spawn().expect("the binary starts");
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut before = Vec::new();
    let gateway = loop {
        let Some(Ok(line)) = said.next() else { panic!("it does not start: {before:?}") };
        match line.strip_prefix("the gateway is at http://") {
            Some(address) => break address.trim().parse().unwrap(),
            None => before.push(line),
        }
    };
    // Nobody may be held up by a log that is not read. What it says of itself is shown when a test
    // fails.
    std::thread::spawn(move || {
        for line in said.map_while(Result::ok).filter(|line| line.contains("panicked")) {
            println!("a node says: {line}");
        }
    });
    Running { child, gateway }
}

/// Some nodes on one store.
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Node>,
    pub(crate) schema: String,
    /// The configuration of all of them.
    pub(crate) config: PathBuf,
    _folder: TempDir,
}

static SCHEMAS: AtomicU32 = AtomicU32::new(0);

/// A schema that no other test has.
pub(crate) fn schema() -> String {
    format!("fleet_{}", SCHEMAS.fetch_add(1, Ordering::SeqCst))
}

impl Fleet {
    /// Starts a node for each clock in front of `upstream`, with these settings of routes.
    pub(crate) fn start(upstream: SocketAddr, settings: &str, clocks: &[Clock]) -> Self {
        let (folder, schema) = (tempfile::tempdir().unwrap(), schema());
        let (config, url) = (folder.path().join("onetake.toml"), server().url());
        let text = format!(
            "[store]\nurl = \"{url}\"\nlisten_url = \"{url}\"\nschema = \"{schema}\"\n\n\
             [auth]\nmode = \"anonymous\"\n\n[defaults]\n{settings}\n\n\
             [[route]]\nmatch = \"POST /orders\"\noperation = \"orders.create\"\n\
             upstream = \"http://{upstream}\"\n"
        );
        fs::write(&config, text).unwrap();
        let start = |(index, clock): (usize, &Clock)| {
            let state = folder.path().join(format!("state-{index}"));
            Node::start(&config, state, *clock)
        };
        let nodes = clocks.iter().enumerate().map(start).collect();
        Self { nodes, schema, config, _folder: folder }
    }

    /// Types `onetake …` against the database itself, whoever runs on it.
    pub(crate) fn typed(&self, words: &[&str]) -> Output {
        let direct = ["--store", &server().url()];
        onetake(&[words, &direct].concat(), &[("ONETAKE_STORE__SCHEMA", &self.schema)])
    }

    /// What a command shows that must be done.
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let output = self.typed(&[words, &["--json"]].concat());
        let why = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {why}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Every record in the database, as operators see it.
    pub(crate) fn listed(&self) -> Vec<Value> {
        let listed = self.json(&["keys", "list", "--all", "--limit", "500"]);
        listed["keys"].as_array().unwrap().clone()
    }

    /// Waits until no claim lives, and gives every record.
    pub(crate) fn settled(&self) -> Vec<Value> {
        for _ in 0..LOOKS_MAX {
            let listed = self.listed();
            if listed.iter().all(|record| record["phase"] != "live") {
                return listed;
            }
            pause(Duration::from_millis(100));
        }
        panic!("a claim lives for ever: {:?}", self.listed());
    }
}

/// Types `onetake …`.
pub(crate) fn onetake(words: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(words).env("ONETAKE_OPERATOR", "ann").envs(env.iter().copied());
    command.output().unwrap()
}
