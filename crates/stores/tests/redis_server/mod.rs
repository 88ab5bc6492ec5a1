//! A Redis of a test's own: a folder that goes away, a free port, and an end.
//!
//! It never outlives its test, however that ends, and never touches a server that it did not start.
#![allow(dead_code, clippy::unwrap_used, reason = "tests, each of which uses a part of it")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, Value};
use tempfile::TempDir;

/// The ports of a cluster's bus are given too, but must be below 65,536 by default.
const PORT_MAX: u16 = 55_000;

/// A server that ends with its test.
pub(crate) struct Server {
    child: Option<Child>,
    pub(crate) port: u16,
    folder: TempDir,
    settings: Vec<(String, String)>,
    is_sentinel: bool,
    /// It has no port without TLS then.
    is_tls: bool,
}

/// A port that nobody uses.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if port < PORT_MAX {
            return port;
        }
    }
}

impl Server {
    /// A server that keeps what it acknowledges, and these settings beside.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        let kept = [("appendonly", "yes"), ("appendfsync", "always")];
        let all =
            kept.iter().chain(settings).map(|(name, value)| ((*name).into(), (*value).into()));
        let server = Self {
            child: None,
            port: free_port(),
            folder: tempfile::tempdir().unwrap(),
            settings: all.collect(),
            is_sentinel: false,
            is_tls: settings.iter().any(|(name, _)| *name == "tls-port"),
        };
        server.run()
    }

    /// A Sentinel, by the text of its settings.
    pub(crate) fn sentinel(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("sentinel.conf"), text).unwrap();
        let (port, settings) = (free_port(), Vec::new());
        let server = Self { child: None, port, folder, settings, is_sentinel: true, is_tls: false };
        server.run()
    }

    fn run(mut self) -> Self {
        self.begin();
        self
    }

    /// Starts it, or starts it again on what it left behind.
    pub(crate) fn begin(&mut self) {
        // Whatever becomes of the test, its end of the pipe closes, and the server ends with it,
        // as abruptly as it can.
        let mut server = Command::new("sh");
        server.args(["-c", "\"$@\" <&- & read _; kill -KILL $!; wait", "sh", "redis-server"]);
        if self.is_sentinel {
            server.arg(self.folder.path().join("sentinel.conf")).arg("--sentinel");
        }
        let port = if self.is_tls { 0 } else { self.port };
        server.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        server.arg("--dir").arg(self.folder.path());
        if !self.is_sentinel {
            server.args(["--save", ""]);
        }
        for (name, value) in &self.settings {
            server.arg(format!("--{name}"));
            server.args(value.split(' '));
        }
        if self.is_tls {
            server.args(["--tls-port", &self.port.to_string()]);
        }
        let server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = server.spawn().expect("redis-server is installed");
        self.wait(BufReader::new(child.stdout.take().unwrap()));
        self.child = Some(child);
    }

    /// Waits until it says that it takes connections, and has read what it keeps.
    fn wait(&self, mut said: BufReader<ChildStdout>) {
        let ready = if self.is_sentinel { "Sentinel ID is" } else { "Ready to accept connections" };
        let mut log = String::new();
        while !log.contains(ready) {
            let count = said.read_line(&mut log).unwrap();
            assert!(count > 0, "the server does not start: {log}");
        }
        // A server that nobody listens to would stop when the pipe is full.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.host())
    }

    fn connection(&self) -> Option<Connection> {
        let password = self.settings.iter().find(|(name, _)| name == "requirepass");
        let login = password.map(|(_, word)| format!(":{word}@")).unwrap_or_default();
        let url = format!("redis://{login}{}/", self.host());
        redis::Client::open(url).ok()?.get_connection().ok()
    }

    /// Asks it by a connection of the test's own; once more where that was closed, as a failover
    /// closes all there are.
    pub(crate) fn ask(&self, words: &[&str]) -> Value {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        let ask = || command.query(&mut self.connection()?).ok();
        ask().or_else(ask).or_else(ask).expect("it runs")
    }

    /// How many keys it holds, beside the one that says how the others are sealed.
    pub(crate) fn count(&self) -> usize {
        self.keys("*").iter().filter(|key| !key.ends_with(":seal")).count()
    }

    /// The keys that fit a pattern.
    pub(crate) fn keys(&self, pattern: &str) -> Vec<String> {
        Vec::from_redis_value(self.ask(&["KEYS", pattern])).unwrap()
    }

    /// What it says, as bytes.
    pub(crate) fn bytes(&self, words: &[&str]) -> Vec<u8> {
        Vec::from_redis_value(self.ask(words)).unwrap()
    }

    /// What it says, as text.
    pub(crate) fn text(&self, words: &[&str]) -> String {
        String::from_redis_value(self.ask(words)).unwrap()
    }

    /// One server for all tests of a program. It ends with the program: its standard input does.
    pub(crate) fn shared() -> &'static Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(&[("appendfsync", "everysec")]))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns once `is_so`; ends the test if that never comes.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}
