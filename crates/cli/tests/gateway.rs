//! The gateway as users run it: the built binary in front of an API, a configuration, a kill -9.
//!
//! The API is a few lines of sockets that count; only what callers and the API see counts.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onetake_testkit::servers::RedisServer;
use tempfile::TempDir;

/// An API that counts, and that can be told to think before it answers.
struct Api {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    arrived: Receiver<()>,
    go_on: Sender<()>,
}

impl Api {
    /// Answers `order n`; for a path with `slow` in it only once it is let go.
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (arrive, arrived) = channel();
        let (go_on, gone) = channel();
        let gone = Arc::new(Mutex::new(gone));
        let counted = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (counted, arrive) = (Arc::clone(&counted), arrive.clone());
                let gone = Arc::clone(&gone);
                std::thread::spawn(move || serve(stream.unwrap(), &counted, &arrive, &gone));
            }
        });
        Self { address, heads, arrived, go_on }
    }

    fn count(&self) -> usize {
        self.heads.lock().unwrap().len()
    }
}

/// Reads one request: its head, and its body by its length.
fn read_one(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(head)
}

fn serve(
    stream: TcpStream,
    heads: &Mutex<Vec<String>>,
    arrive: &Sender<()>,
    gone: &Mutex<Receiver<()>>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(head) = read_one(&mut reader) {
        let is_slow = head.contains("slow");
        let number = {
            let mut heads = heads.lock().unwrap();
            heads.push(head);
            heads.len()
        };
        let _ = arrive.send(());
        if is_slow {
            let _ = gone.lock().unwrap().recv();
        }
        let body = format!("order {number}");
        let length = body.len();
        let answer = format!("HTTP/1.1 201 Created\r\ncontent-length: {length}\r\n\r\n{body}");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// A running `onetake serve`, killed when dropped.
struct Serving {
    child: Child,
    gateway: SocketAddr,
    said: BufReader<std::process::ChildStderr>,
}

impl Serving {
    fn start(folder: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onetake"))
            .current_dir(folder)
            .args(["serve", "--admin-listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"])
            .args(args)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let (mut first, mut second) = (String::new(), String::new());
        said.read_line(&mut first).unwrap();
        said.read_line(&mut second).unwrap();
        let url = second.trim().strip_prefix("the gateway is at http://");
        let gateway = url.unwrap_or_else(|| panic!("{first}{second}")).parse().unwrap();
        Self { child, gateway, said }
    }

    /// What it says next.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "it has ended");
            // The log is about callers; this is about what it does itself.
            if !line.contains(" INFO ") && !line.contains(" WARN ") {
                return line;
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Asks it to stop, and gives its exit code.
    fn stop(mut self) -> Option<i32> {
        self.signal("TERM");
        self.child.wait().unwrap().code()
    }

    fn post(&self, path: &str, headers: &[(&str, &str)]) -> Heard {
        post(self.gateway, path, headers)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Heard {
    status: u16,
    head: String,
    body: String,
}

impl Heard {
    fn has(&self, header: &str) -> bool {
        self.head.to_ascii_lowercase().contains(&header.to_ascii_lowercase())
    }
}

fn post(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Heard {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let lines: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let headers = lines.concat();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: api\r\nconnection: close\r\ncontent-length: 2\r\n\
         content-type: application/json\r\n{headers}\r\n{{}}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
    Heard { status, head: head.to_owned(), body: body.to_owned() }
}

const KEY: (&str, &str) = ("idempotency-key", "order-1");

/// K12: nothing to configure, nothing to install; W3: what was answered outlives the process.
#[test]
fn k12_w3_the_shortest_gateway_remembers_across_a_restart() {
    let (api, folder) = (Api::start(), tempfile::tempdir().unwrap());
    let upstream = format!("http://{}", api.address);
    let serving = Serving::start(folder.path(), &["--upstream", &upstream]);
    let first = serving.post("/orders", &[KEY]);
    assert_eq!((first.status, first.body.as_str()), (201, "order 1"));
    assert!(serving.post("/orders", &[KEY]).has("idempotent-replayed: true"));
    assert_eq!(serving.post("/orders", &[]).body, "order 2", "without a key it passes");
    serving.signal("HUP");
    assert!(serving.post("/orders", &[KEY]).has("idempotent-replayed: true"), "it is still there");
    assert_eq!(serving.stop(), Some(0));
    let serving = Serving::start(folder.path(), &["--upstream", &upstream]);
    let again = serving.post("/orders", &[KEY]);
    assert_eq!((again.body.as_str(), again.has("idempotent-replayed: true")), ("order 1", true));
    assert_eq!(api.count(), 2);
}

/// X3: killed while the API works, the outcome is unknown, and nothing is executed twice unasked.
#[test]
fn x3_a_gateway_that_is_killed_in_mid_flight_says_that_it_does_not_know() {
    let (api, folder) = (Api::start(), tempfile::tempdir().unwrap());
    let upstream = format!("http://{}", api.address);
    let serving = Serving::start(folder.path(), &["--upstream", &upstream]);
    let gateway = serving.gateway;
    let asking = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(gateway).unwrap();
        let request = "POST /slow HTTP/1.1\r\nhost: x\r\nidempotency-key: order-1\r\n\
                    content-length: 2\r\ncontent-type: application/json\r\n\r\n{}";
        stream.write_all(request.as_bytes()).unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        heard
    });
    api.arrived.recv().unwrap();
    serving.kill();
    assert!(asking.join().unwrap().is_empty(), "the caller heard nothing");
    api.go_on.send(()).unwrap();
    let serving = Serving::start(folder.path(), &["--upstream", &upstream]);
    let again = serving.post("/slow", &[KEY]);
    assert_eq!(again.status, 409, "{again:?}");
    assert!(again.has("onetake-refused: outcome_unknown"));
    assert_eq!(api.count(), 1);
}

/// X3: killed while the API works, and started again, a gateway that may ask finds the outcome.
#[test]
fn x3_after_a_kill_the_status_url_says_what_came_of_it() {
    let (api, folder) = (Api::start(), tempfile::tempdir().unwrap());
    let text = format!(
        "[store]\nurl = \"embedded:./data\"\n[auth]\nmode = \"anonymous\"\n\
         [[route]]\nmatch = \"POST /slow/{{shop}}\"\nupstream = \"http://{}\"\n\
         unknown = \"probe GET /status/{{shop}}/{{key}}?of={{tenant}}\"\n",
        api.address
    );
    fs::write(folder.path().join("onetake.toml"), text).unwrap();
    let serving = Serving::start(folder.path(), &["--config", "onetake.toml"]);
    let gateway = serving.gateway;
    let asking = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(gateway).unwrap();
        let request = "POST /slow/a%20b HTTP/1.1\r\nhost: x\r\nidempotency-key: order-1\r\n\
                    content-length: 2\r\ncontent-type: application/json\r\n\r\n{}";
        stream.write_all(request.as_bytes()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    api.arrived.recv().unwrap();
    serving.kill();
    asking.join().unwrap();
    api.go_on.send(()).unwrap();
    for _ in 0..2 {
        // Recorded, not only answered: the second process hears it without asking.
        let serving = Serving::start(folder.path(), &["--config", "onetake.toml"]);
        let again = serving.post("/slow/a%20b", &[KEY]);
        assert_eq!((again.status, again.body.as_str()), (201, "order 2"), "{again:?}");
        assert!(again.has("idempotent-replayed: true"));
        serving.kill();
    }
    let heads = api.heads.lock().unwrap();
    assert_eq!(heads.len(), 2);
    assert!(heads[1].starts_with("GET /status/a%20b/order-1?of=anonymous HTTP/1.1"), "{heads:?}");
}

fn configured(folder: &TempDir, api: &Api, tenants: &str) -> String {
    let text = format!(
        "[store]\nurl = \"embedded:./data\"\n[auth]\nmode = \"api-key\"\n{tenants}\n\
         [[route]]\nmatch = \"POST /orders\"\noperation = \"orders.create\"\n\
         upstream = \"http://{}\"\n",
        api.address
    );
    let path = folder.path().join("onetake.toml");
    // Whole or not at all, as editors do.
    let draft = folder.path().join("draft");
    fs::write(&draft, text).unwrap();
    fs::rename(&draft, &path).unwrap();
    path.display().to_string()
}

fn tenant(name: &str, key: &str) -> String {
    let digest = sha256(key);
    format!("[[tenant]]\nname = \"{name}\"\nkeys = [\"sha256:{digest}\"]\n")
}

/// The digest as `sha256sum` says it.
fn sha256(text: &str) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("coreutils are there");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

/// W10: a configured gateway knows its tenants; one that is revoked is out without a restart.
#[test]
fn w10_tenants_come_from_the_configuration_and_go_with_it() {
    let (api, folder) = (Api::start(), tempfile::tempdir().unwrap());
    let both = tenant("acme", "secret-a") + &tenant("other", "secret-b");
    let path = configured(&folder, &api, &both);
    let mut serving = Serving::start(folder.path(), &["--config", &path]);
    let acme = ("authorization", "Bearer secret-a");
    let other = ("authorization", "Bearer secret-b");
    assert_eq!(serving.post("/orders", &[KEY, acme]).body, "order 1");
    assert_eq!(serving.post("/orders", &[KEY, other]).body, "order 2");
    assert_eq!(serving.post("/orders", &[KEY]).status, 401);
    assert_eq!(serving.post("/nowhere", &[KEY, acme]).status, 404);
    configured(&folder, &api, &tenant("acme", "secret-a"));
    assert!(serving.line().starts_with("tenants were read again: 1"));
    assert_eq!(serving.post("/orders", &[KEY, other]).status, 401, "revoked");
    assert!(serving.post("/orders", &[KEY, acme]).has("idempotent-replayed: true"));
    assert_eq!(api.count(), 2);
}

/// W10: a key does what its scopes say, on the routes that ask for one; scopes that no route asks
/// for would promise what nobody keeps, and are refused.
#[test]
fn w10_a_key_may_do_what_its_scopes_say() {
    let (api, folder) = (Api::start(), tempfile::tempdir().unwrap());
    let scoped = |key: &str, scope: &str| {
        let digest = sha256(key);
        format!(
            "[[tenant]]\nname = \"of-{key}\"\nscopes = [\"{scope}\"]\n\
             keys = [\"sha256:{digest}\"]\n"
        )
    };
    let tenants = scoped("writer", "orders:write") + &scoped("reader", "orders:read");
    let path = configured(&folder, &api, &tenants);
    let refused = Command::new(env!("CARGO_BIN_EXE_onetake"))
        .args(["serve", "--admin-listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"])
        .args(["--config", &path])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!((refused.status.code(), said.contains("`requires`")), (Some(2), true), "{said}");
    let path =
        configured(&folder, &api, &format!("{tenants}[defaults]\nrequires = \"orders:write\"\n"));
    let serving = Serving::start(folder.path(), &["--config", &path]);
    let post =
        |key: &str| serving.post("/orders", &[KEY, ("authorization", &format!("Bearer {key}"))]);
    assert_eq!(post("writer").body, "order 1");
    assert_eq!(post("reader").status, 403);
    assert_eq!(api.count(), 1);
}

/// A configuration that only a gateway can judge is refused with its line, before anything runs.
#[test]
fn routes_that_collide_or_make_no_sense_are_refused_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onetake.toml");
    for (routes, line) in [
        (["POST /a/{x}", "POST /a/{y}"], "onetake.toml:7:9:"),
        (["POST /a", "POST /a/**/b"], "onetake.toml:7:9:"),
    ] {
        let tables = routes.map(|route| {
            format!("[[route]]\nmatch = \"{route}\"\nupstream = \"http://[::1]:1\"\n\n")
        });
        let text = tables.concat();
        fs::write(&path, format!("\n{text}")).unwrap();
        for command in ["check", "serve"] {
            let output = Command::new(env!("CARGO_BIN_EXE_onetake"))
                .current_dir(folder.path())
                .args([command, "--config", "onetake.toml"])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned()
                + &String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(2), "{command}: {said}");
            assert!(said.contains(line), "{command}: {said}");
        }
    }
    assert!(!folder.path().join("onetake-data").exists(), "no store was made");
}

fn tenant_command(folder: &Path, words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_onetake"))
        .current_dir(folder)
        .arg("tenant")
        .args(words)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), said)
}

/// A key is shown once, its digest is kept, and it works until it is revoked.
#[test]
fn tenants_are_added_listed_and_revoked_while_the_gateway_runs() {
    let (api, folder) = (Api::start(), tempfile::tempdir().unwrap());
    let path = configured(&folder, &api, &format!("# Who may call.\n{}", tenant("other", "key")));
    let mut serving = Serving::start(folder.path(), &["--config", &path]);
    let (code, said) = tenant_command(folder.path(), &["add", "acme", "--json"]);
    assert_eq!(code, Some(0), "{said}");
    let added: serde_json::Value = serde_json::from_str(&said).unwrap();
    let (key, id) = (added["key"].as_str().unwrap(), added["id"].as_str().unwrap());
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("# Who may call.") && !text.contains(key), "{text}");
    assert!(serving.line().starts_with("tenants were read again: 2"));
    let bearer = format!("Bearer {key}");
    let credential = ("authorization", bearer.as_str());
    assert_eq!(serving.post("/orders", &[KEY, credential]).body, "order 1");
    let (code, said) = tenant_command(folder.path(), &["list"]);
    assert!(code == Some(0) && said.contains("acme") && said.contains(id), "{said}");
    assert!(!said.contains(key));
    assert_eq!(tenant_command(folder.path(), &["revoke", "nobody", id]).0, Some(2));
    assert_eq!(tenant_command(folder.path(), &["revoke", "acme", "ffffffffffff0"]).0, Some(2));
    assert_eq!(tenant_command(folder.path(), &["revoke", "acme", id]).0, Some(0));
    assert!(serving.line().starts_with("tenants were read again: 2"));
    assert_eq!(serving.post("/orders", &[KEY, credential]).status, 401);
    assert_eq!(api.count(), 1);
}

/// W4, K12 on a store that several processes share.
#[test]
fn w4_two_gateways_on_one_redis_give_the_same_answer() {
    let redis = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (api, folder) = (Api::start(), tempfile::tempdir().unwrap());
    let (upstream, url) = (format!("http://{}", api.address), redis.url());
    let start = || Serving::start(folder.path(), &["--upstream", &upstream, "--store", &url]);
    let (one, other) = (start(), start());
    assert_eq!(one.post("/orders", &[KEY]).body, "order 1");
    let again = other.post("/orders", &[KEY]);
    assert_eq!((again.body.as_str(), again.has("idempotent-replayed: true")), ("order 1", true));
    one.kill();
    assert_eq!(start().post("/orders", &[KEY]).body, "order 1");
    assert_eq!(api.count(), 1);
    let list = Command::new(env!("CARGO_BIN_EXE_onetake"))
        .args(["keys", "list", "--json", "--store", &url])
        .output()
        .unwrap();
    assert_eq!(list.status.code(), Some(1));
    let said = [list.stdout, list.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("not_supported") && said.contains("Redis keeps slots only"), "{said}");
}

#[test]
fn a_redis_that_would_forget_is_refused_by_name() {
    let redis = RedisServer::start(&["--appendonly", "no"]);
    let folder = tempfile::tempdir().unwrap();
    let serve = |accept: &str| {
        let text = format!(
            "[store]\nurl = \"{}\"\naccept_loss = {accept}\n[admin]\nlisten = \"127.0.0.1:0\"\n",
            redis.url()
        );
        fs::write(folder.path().join("onetake.toml"), text).unwrap();
        let mut serve = Command::new(env!("CARGO_BIN_EXE_onetake"));
        serve.current_dir(folder.path()).args(["serve", "--config", "onetake.toml"]);
        serve.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let refused = serve("false").wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(5), "{said}");
    assert!(said.contains("appendonly") && said.contains("redis://127.0.0.1:"), "{said}");
    let mut accepted = serve("true");
    // It warns first, and then serves.
    let mut lines = BufReader::new(accepted.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("serving redis://127.0.0.1:")));
    accepted.kill().unwrap();
    accepted.wait().unwrap();
}
