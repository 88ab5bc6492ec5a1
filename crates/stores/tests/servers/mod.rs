//! A PostgreSQL server of a test's own: a folder that goes away, a free port, and an end.
#![allow(dead_code, clippy::unwrap_used, reason = "tests, each of which uses a part of it")]

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Who runs the server where tests run as root, which it refuses.
const USER: &str = "postgres";

/// A server that ends with its test.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    folder: TempDir,
}

/// Where a program of the server is.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = versions.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().unwrap_or_else(|| PathBuf::from(name))
}

/// The ids of a user, by the list of users.
fn ids(user: &str) -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.split(':').next() == Some(user))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// A command that is not run as root.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if rustix::process::getuid().is_root() {
        let (user, group) = ids(USER).expect("the packages of PostgreSQL make this user");
        command.uid(user).gid(group);
    }
    command
}

impl Server {
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        if let Some((user, group)) = ids(USER).filter(|_| rustix::process::getuid().is_root()) {
            for path in [folder.path(), &data] {
                std::os::unix::fs::chown(path, Some(user), Some(group)).unwrap();
            }
        }
        let made = command(&program("initdb"))
            .args(["--no-sync", "--auth=trust", "--username=onetake", "--encoding=UTF8"])
            .args(["--no-locale", "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .status();
        assert!(made.expect("initdb is installed").success());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // Whatever becomes of the test, its end of the pipe closes, and the server ends with it.
        let mut server = command(Path::new("sh"));
        server.args(["-c", "\"$@\" <&- & read _; kill -QUIT $!; wait", "sh"]);
        server.arg(program("postgres"));
        server.arg("-D").arg(&data).args(["-p", &port.to_string()]);
        server.args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=300"]);
        server.arg("-c").arg(format!("unix_socket_directories={}", folder.path().display()));
        for (name, value) in settings {
            server.arg("-c").arg(format!("{name}={value}"));
        }
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let server = server.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let child = server.spawn().unwrap();
        let server = Self { child, port, folder };
        server.wait();
        server
    }

    /// Waits until it takes connections.
    fn wait(&self) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            let ready = Command::new(program("pg_isready"))
                .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-q"])
                .status();
            if ready.is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        panic!("the server does not start: {log}");
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://onetake@127.0.0.1:{}/postgres", self.port)
    }

    /// One server for all tests of a program. It ends with the program: its standard input does.
    pub(crate) fn shared() -> &'static Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(&[("fsync", "off")]))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
