//! Where hosts live: a folder with a configuration and workflows, a store, and the processes on it.
//!
//! A process can be killed, stopped and started again, and whatever becomes of the test, each ends
//! with it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use onetake_testkit::servers::Server;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::wire::{Asked, Heard};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_onetake");
/// How long anything may take that is waited for.
const WITHIN: Duration = Duration::from_secs(60);
/// How long until it is looked at again.
const STEP: Duration = Duration::from_millis(10);

/// The key of the tenant `acme`.
pub(crate) const ACME: &str = "key-of-acme";
/// The key of the tenant `zoo`.
pub(crate) const ZOO: &str = "key-of-zoo";
/// A key of `acme` that may only look.
pub(crate) const ONLOOKER: &str = "key-of-an-onlooker";

/// Lets some time pass, where nothing announces what is waited for.
pub(crate) fn pause(span: Duration) {
    let (_open, never) = mpsc::channel::<()>();
    let _ = never.recv_timeout(span);
}

/// What `look` gives as soon as it gives something; says what was waited for when it never does.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < WITHIN, "never: {what}");
        pause(STEP);
    }
}

pub(crate) fn sha256(text: &str) -> String {
    base16ct::lower::encode_string(&Sha256::digest(text))
}

/// A server that keeps what it acknowledged, for all tests of this program.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(&[]))
}

/// A folder with all that a host is told.
pub(crate) struct Home {
    folder: TempDir,
    nodes: AtomicU32,
}

impl Home {
    /// On a store of its own, with these lines about workflows, and these workflows.
    pub(crate) fn alone(lines: &str, workflows: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("url = \"embedded:{}\"", folder.path().join("data").display());
        Self::furnished(folder, &store, "", lines, workflows)
    }

    /// On a schema of its own of one PostgreSQL, where claims have this lease.
    pub(crate) fn shared(lease: &str, workflows: &[Value]) -> Self {
        static SCHEMAS: AtomicU32 = AtomicU32::new(0);
        let (url, schema) = (server().url(), SCHEMAS.fetch_add(1, Ordering::SeqCst));
        let store = format!("url = \"{url}\"\nlisten_url = \"{url}\"\nschema = \"wop_{schema}\"");
        let defaults = format!("[defaults]\nlease = \"{lease}\"\n");
        let lines = "allow_private_targets = true";
        Self::furnished(tempfile::tempdir().unwrap(), &store, &defaults, lines, workflows)
    }

    fn furnished(
        folder: TempDir,
        store: &str,
        more: &str,
        lines: &str,
        workflows: &[Value],
    ) -> Self {
        let shelf = folder.path().join("workflows");
        fs::create_dir(&shelf).unwrap();
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../openwop/conformance");
        for file in fs::read_dir(ours).unwrap().flatten() {
            fs::copy(file.path(), shelf.join(file.file_name())).unwrap();
        }
        for workflow in workflows {
            let name = format!("{}.json", workflow["id"].as_str().unwrap());
            fs::write(shelf.join(name), workflow.to_string()).unwrap();
        }
        let (acme, zoo, onlooker) = (sha256(ACME), sha256(ZOO), sha256(ONLOOKER));
        let text = format!(
            "[store]\n{store}\n\n[auth]\nmode = \"api-key\"\n\n{more}\n\
             [[tenant]]\nname = \"acme\"\nkeys = [\"sha256:{acme}\", {{ name = \"onlooker\", \
             hash = \"sha256:{onlooker}\", scopes = [\"runs:read\"] }}]\n\n\
             [[tenant]]\nname = \"zoo\"\nkeys = [\"sha256:{zoo}\"]\n\n\
             [openwop]\nworkflows = \"{}\"\n{lines}\n",
            shelf.display()
        );
        fs::write(folder.path().join("onetake.toml"), text).unwrap();
        Self { folder, nodes: AtomicU32::new(0) }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("onetake.toml")
    }

    /// Starts a process here.
    pub(crate) fn start(&self) -> Node {
        let number = self.nodes.fetch_add(1, Ordering::SeqCst);
        let (config, state) = (self.config(), self.folder.path().join(format!("state-{number}")));
        let running = Mutex::new(run(&config, &state));
        Node { config, state, running }
    }
}

/// A running process.
struct Running {
    child: Child,
    address: SocketAddr,
}

/// A process that may be killed and started again.
pub(crate) struct Node {
    config: PathBuf,
    state: PathBuf,
    running: Mutex<Running>,
}

impl Node {
    /// Where it was last known to listen.
    pub(crate) fn address(&self) -> SocketAddr {
        self.running.lock().unwrap().address
    }

    /// Where commands find what they need to speak to it.
    pub(crate) fn admin_file(&self) -> PathBuf {
        self.state.join("admin.json")
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
        let again = run(&self.config, &self.state);
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

    /// Sends a request as the owner of `credential`.
    pub(crate) fn ask_as(&self, credential: &str, asked: Asked<'_>) -> Heard {
        let bearer = format!("Bearer {credential}");
        asked.with("authorization", &bearer).send(self.address()).unwrap()
    }

    /// Sends a request as `acme`.
    pub(crate) fn ask(&self, asked: Asked<'_>) -> Heard {
        self.ask_as(ACME, asked)
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
fn run(config: &Path, state: &Path) -> Running {
    let mut child = Command::new(BINARY)
        .args(["serve", "--ends-with-input", "--listen", "127.0.0.1:0"])
        .args(["--admin-listen", "127.0.0.1:0", "--config"])
        .arg(config)
        .arg("--state")
        .arg(state)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut before = Vec::new();
    let address = loop {
        let Some(Ok(line)) = said.next() else { panic!("it does not start: {before:?}") };
        let address = line.strip_prefix("the workflow host is at http://");
        match address.and_then(|rest| rest.split('/').next()) {
            Some(address) => break address.parse().unwrap(),
            None => before.push(line),
        }
    };
    // Nobody may be held up by a log that is not read. What is wrong is shown when a test fails.
    let is_wrong = |line: &String| line.contains("panicked") || line.contains("ERROR");
    std::thread::spawn(move || {
        for line in said.map_while(Result::ok).filter(is_wrong) {
            println!("a host says: {line}");
        }
    });
    Running { child, address }
}
