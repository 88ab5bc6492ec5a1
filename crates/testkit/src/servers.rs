//! Database servers of a test's own: a folder that goes away, a free port, and an end.
//!
//! Started from installed programs, by a user other than root where tests run as root. Whatever
//! becomes of the test, its servers end with it: they wait for the end of a pipe that only the test
//! holds.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;

/// Who runs a server where tests run as root, which it refuses.
const USER: &str = "postgres";
/// How long a server may take to start, to stop or to become a primary.
const WITHIN: Duration = Duration::from_secs(60);

/// Where a program of PostgreSQL is.
fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = versions.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().unwrap_or_else(|| PathBuf::from(name))
}

/// The ids of a user, by the list of users.
fn ids(user: &str) -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.split(':').next() == Some(user))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Who the server is run by, if not by us.
fn other_user() -> Option<(u32, u32)> {
    let ids = || ids(USER).expect("the packages of PostgreSQL make this user");
    getuid().is_root().then(ids)
}

/// A command that is not run as root.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group);
    }
    command
}

fn give_away(path: &Path) {
    if let Some((user, group)) = other_user() {
        chown(path, Some(user), Some(group)).unwrap();
    }
}

/// A port that nobody listens on.
#[must_use]
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Lets a server get on: there is nothing that would say when it has.
fn pause() {
    let (_open, closed) = std::sync::mpsc::channel::<()>();
    let _ = closed.recv_timeout(Duration::from_millis(20));
}

/// Waits until `is_so`, and says what was waited for when it never is.
fn wait_until(what: &str, log: &Path, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < WITHIN {
        if is_so() {
            return;
        }
        pause();
    }
    panic!("{what}: {}", fs::read_to_string(log).unwrap_or_default());
}

/// Starts `program` so that it gets `signal` when our end of its pipe closes.
fn start(program: &Path, args: &[String], signal: &str, log: &Path) -> Child {
    let mut shell = command(Path::new("sh"));
    shell.args(["-c", &format!("\"$@\" <&- & read _; kill -{signal} $!; wait"), "sh"]);
    shell.arg(program).args(args);
    let log = File::create(log).unwrap();
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// A PostgreSQL server that ends with its test.
#[derive(Debug)]
pub struct Server {
    child: Option<Child>,
    /// Where it listens, on the loopback.
    pub port: u16,
    folder: TempDir,
    settings: Vec<String>,
}

impl Server {
    /// Starts a server with these settings, in a folder of its own.
    #[must_use]
    pub fn start(settings: &[(&str, &str)]) -> Self {
        let mut server = Self::prepare(settings);
        let made = command(&program("initdb"))
            .args(["--no-sync", "--auth=trust", "--username=onetake", "--encoding=UTF8"])
            .args(["--no-locale", "-D"])
            .arg(server.data())
            .stdout(Stdio::null())
            .status();
        assert!(made.expect("initdb is installed").success());
        let mut hba = fs::read_to_string(server.data().join("pg_hba.conf")).unwrap();
        hba.push_str("host replication all 127.0.0.1/32 trust\n");
        fs::write(server.data().join("pg_hba.conf"), hba).unwrap();
        server.restart();
        server
    }

    /// Starts a standby that follows `self`, under the name `name`.
    #[must_use]
    pub fn standby(&self, name: &str, settings: &[(&str, &str)]) -> Self {
        let mut standby = Self::prepare(settings);
        let port = self.port.to_string();
        let copied = command(&program("pg_basebackup"))
            .args(["-h", "127.0.0.1", "-p", &port, "-U", "onetake", "-R", "-c", "fast"])
            .args(["-d", &format!("application_name={name}"), "-D"])
            .arg(standby.data())
            .status();
        assert!(copied.expect("pg_basebackup is installed").success());
        standby.restart();
        standby
    }

    fn prepare(settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
        give_away(folder.path());
        give_away(&data);
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Self { child: None, port: free_port(), folder, settings }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// A path in the folder of the server, which its user may read.
    #[must_use]
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        give_away(&path);
        path
    }

    /// Starts it again, after it was stopped or killed.
    pub fn restart(&mut self) {
        self.stop();
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let mut args = vec!["-D".to_owned(), text(self.data()), "-p".to_owned()];
        args.push(self.port.to_string());
        let sockets = format!("unix_socket_directories={}", self.folder.path().display());
        let always =
            ["listen_addresses=127.0.0.1".to_owned(), "max_connections=300".into(), sockets];
        for setting in always.iter().chain(&self.settings) {
            args.extend(["-c".to_owned(), setting.clone()]);
        }
        self.child = Some(start(&program("postgres"), &args, "QUIT", &self.log()));
        wait_until("the server does not start", &self.log(), || self.is_ready());
    }

    fn is_ready(&self) -> bool {
        let ready = Command::new(program("pg_isready"))
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-q"])
            .status();
        ready.is_ok_and(|status| status.success())
    }

    /// The first process of the server.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn pid(&self) -> Pid {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        Pid::from_raw(file.lines().next().unwrap().trim().parse().unwrap()).unwrap()
    }

    /// Kills it with all of its processes, as a power cut would.
    pub fn kill(&mut self) {
        let first = self.pid();
        // It is stopped first, so that it starts no further ones while they are killed.
        let _ = kill_process(first, Signal::STOP);
        let mut processes = children_of(first);
        processes.push(first);
        for process in &processes {
            // It may be gone already.
            let _ = kill_process(*process, Signal::KILL);
        }
        wait_until("the server does not go away", &self.log(), || {
            processes.iter().all(|process| is_gone(*process))
        });
        self.stop();
        let _ = fs::remove_file(self.data().join("postmaster.pid"));
    }

    /// Makes a primary of a standby.
    pub fn promote(&self) {
        let promoted = command(&program("pg_ctl"))
            .args(["promote", "-w", "-D"])
            .arg(self.data())
            .stdout(Stdio::null())
            .status();
        assert!(promoted.expect("pg_ctl is installed").success());
    }

    /// What a statement gives, as text without any frame.
    #[must_use]
    pub fn ask(&self, sql: &str) -> String {
        let said = Command::new(program("psql"))
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "onetake"])
            .args(["-d", "postgres", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .output()
            .expect("psql is installed");
        assert!(said.status.success(), "{sql}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    }

    /// Waits until a statement gives `wanted`.
    pub fn wait_for(&self, sql: &str, wanted: &str) {
        wait_until(sql, &self.log(), || self.ask(sql) == wanted);
    }

    /// The address of its database, for its owner.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://onetake@127.0.0.1:{}/postgres", self.port)
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }

    /// One server for all tests of a program. It ends with the program: its standard input does.
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(&[("fsync", "off")]))
    }
}

/// The processes that `parent` started.
fn children_of(parent: Pid) -> Vec<Pid> {
    let path = format!("/proc/{0}/task/{0}/children", parent.as_raw_nonzero());
    let listed = fs::read_to_string(path).unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Whether a process has ended, reaped or not.
fn is_gone(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    let state = stat.ok().and_then(|stat| stat.rsplit(") ").next()?.chars().next());
    matches!(state, None | Some('Z' | 'X'))
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A pooler that hands the connections of a server from transaction to transaction.
#[derive(Debug)]
pub struct Pooler {
    child: Child,
    /// Where it listens, on the loopback.
    pub port: u16,
    _folder: TempDir,
}

impl Pooler {
    /// Starts a pooler with `size` connections to `server`.
    #[must_use]
    pub fn start(server: &Server, size: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        give_away(folder.path());
        let (port, log) = (free_port(), folder.path().join("log"));
        let config = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user=onetake dbname=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = {size}\nunix_socket_dir =\n\
             ignore_startup_parameters = extra_float_digits\n",
            server.port
        );
        let path = folder.path().join("pgbouncer.ini");
        fs::write(&path, config).unwrap();
        give_away(&path);
        let args = [path.to_str().unwrap().to_owned()];
        let child = start(Path::new("/usr/sbin/pgbouncer"), &args, "TERM", &log);
        let address = format!("127.0.0.1:{port}");
        wait_until("the pooler does not start", &log, || {
            std::net::TcpStream::connect(&address).is_ok()
        });
        Self { child, port, _folder: folder }
    }

    /// The address of the database behind it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://onetake@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A Redis that ends with its test, as abruptly as it can.
#[derive(Debug)]
pub struct RedisServer {
    child: Child,
    /// Where it listens, on the loopback.
    pub port: u16,
    _folder: TempDir,
}

impl RedisServer {
    /// Starts a server with these settings: `["--appendonly", "yes"]`.
    #[must_use]
    pub fn start(settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        give_away(folder.path());
        let (port, log) = (free_port(), folder.path().join("log"));
        let place = folder.path().to_str().unwrap();
        let args = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir", place];
        let args = args.iter().chain(&["--save", ""]).chain(settings);
        let args: Vec<String> = args.map(|word| (*word).to_owned()).collect();
        let child = start(Path::new("redis-server"), &args, "KILL", &log);
        let address = format!("127.0.0.1:{port}");
        wait_until("redis does not start", &log, || std::net::TcpStream::connect(&address).is_ok());
        Self { child, port, _folder: folder }
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
