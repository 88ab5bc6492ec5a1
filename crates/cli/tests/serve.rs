//! `onetake serve` from start to end, and the commands that need no running process.
//!
//! Looks only at what comes out, at the files that are left, and at what the listener answers.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

fn onetake(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onetake"));
    command.args(args).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the binary writes UTF-8")
}

/// A process that serves, ended when dropped.
struct Serving {
    child: Child,
    /// Who closed this could not be spoken to any more.
    said: BufReader<std::process::ChildStderr>,
}

impl Serving {
    /// Starts, and waits until it says that it serves.
    fn start(state: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onetake"))
            .args(["serve", "--store", "memory:", "--admin-listen", "127.0.0.1:0", "--state"])
            .arg(state)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut said = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says something");
        assert!(line.starts_with("serving memory: at http://127.0.0.1:"), "{line}");
        Self { child, said }
    }

    /// Asks it to stop, and gives its exit code and its last words.
    fn stop(mut self, signal: &str) -> (Option<i32>, String) {
        let kill = format!("kill -{signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("sh is there").success());
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("it writes UTF-8");
        (self.child.wait().expect("it ends").code(), rest)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

fn admin_file(state: &Path) -> Value {
    serde_json::from_slice(&fs::read(state.join("admin.json")).expect("it is there")).unwrap()
}

/// The status of a request with these headers.
fn status(address: &str, headers: &[(&str, &str)]) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let lines: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let headers = lines.concat();
    let request = format!("GET /v1/keys HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn it_serves_until_it_is_asked_to_stop_and_leaves_no_address_behind() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let mut tokens = Vec::new();
    for signal in ["TERM", "INT"] {
        let serving = Serving::start(&state);
        let file = admin_file(&state);
        assert_eq!(file["pid"], serving.child.id());
        assert_eq!(mode(&state.join("admin.json")), 0o600);
        let token = Path::new(file["token_file"].as_str().unwrap()).to_owned();
        assert_eq!((mode(&token), token.is_absolute()), (0o600, true));
        tokens.push(fs::read_to_string(token).unwrap());
        let (code, said) = serving.stop(signal);
        assert_eq!(code, Some(0), "{signal}: {said}");
        assert!(!said.contains(tokens[0].trim()), "it never shows its token");
        assert!(!state.join("admin.json").exists(), "{signal}");
    }
    assert_eq!(tokens[0], tokens[1], "the token outlives a restart");
}

#[test]
fn commands_find_it_and_strangers_do_not_come_in() {
    let folder = tempfile::tempdir().unwrap();
    let _serving = Serving::start(folder.path());
    let file = folder.path().join("admin.json");
    let listed = onetake(&["keys", "list", "--json", "--admin-file", file.to_str().unwrap()]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let page: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(page["keys"], json!([]));
    let stats = onetake(&["store", "stats", "--admin-file", file.to_str().unwrap()]);
    assert_eq!(text(&stats.stdout), "store    memory\nrecords  0\n");

    let file = admin_file(folder.path());
    let address = file["url"].as_str().unwrap().strip_prefix("http://").unwrap();
    let token = fs::read_to_string(file["token_file"].as_str().unwrap()).unwrap();
    let (host, right) = (("Host", address), format!("Bearer {}", token.trim()));
    let right = ("Authorization", right.as_str());
    let table = [
        (vec![host, right], "200"),
        (vec![host], "401"),
        (vec![host, ("Authorization", "Bearer 0123456789abcdef")], "401"),
        (vec![("Host", "evil.example"), right], "421"),
        (vec![host, right, ("Origin", "https://evil.example")], "403"),
    ];
    for (headers, expected) in table {
        let names: Vec<_> = headers.iter().map(|(name, _)| name).collect();
        assert_eq!(status(address, &headers), expected, "{names:?}");
    }
}

#[test]
fn an_address_that_is_taken_is_a_failure() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = onetake(&["serve", "--store", "memory:", "--admin-listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot listen on"), "{}", text(&output.stderr));
}

#[test]
fn a_store_in_memory_is_looked_at_without_a_process() {
    let memory = |words: &[&str]| onetake(&[words, &["--store", "memory:"]].concat());
    let listed = memory(&["keys", "list"]);
    let head = "TENANT  OPERATION  KEY  PHASE  AGE  ATTEMPT  OUTCOME  SLOT\n";
    assert_eq!((listed.status.code(), text(&listed.stdout)), (Some(0), head));
    let checked = memory(&["store", "check"]);
    assert_eq!(text(&checked.stdout), "ok: nothing is damaged\nrecords  0\n");
    let checked = memory(&["store", "check", "--json"]);
    let report: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(report, json!({ "ok": true, "findings": [], "counts": { "records": 0 } }));
    let copied = memory(&["store", "backup", "copy"]);
    assert_eq!(copied.status.code(), Some(1));
    assert!(text(&copied.stderr).contains("not_supported"), "{}", text(&copied.stderr));
    let missing = memory(&["keys", "show", "acme", &"0".repeat(64)]);
    assert_eq!(missing.status.code(), Some(3));
}

#[test]
fn looking_for_a_store_that_is_not_there_makes_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none");
    let url = format!("embedded:{}", path.display());
    for words in [&["keys", "list"][..], &["store", "check"], &["store", "stats"]] {
        let output = onetake(&[words, &["--store", &url]].concat());
        assert_eq!(output.status.code(), Some(5), "{words:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("there is no store at"), "{words:?}");
    }
    assert!(!path.exists());
}

#[test]
fn a_store_that_is_none_is_not_understood() {
    for bad in ["sqlite:x", "memory", "embedded:"] {
        let output = onetake(&["keys", "list", "--store", bad]);
        assert_eq!(output.status.code(), Some(2), "{bad}: {}", text(&output.stderr));
    }
    let named = Command::new(env!("CARGO_BIN_EXE_onetake"))
        .args(["keys", "list", "--json"])
        .env("ONETAKE_STORE__URL", "memory:")
        .output()
        .expect("the binary starts");
    assert!(named.status.success(), "{}", text(&named.stderr));
}

#[test]
fn the_help_says_what_the_exit_codes_mean() {
    for words in [&["--help"][..], &["keys", "--help"], &["store", "--help"], &["serve", "--help"]]
    {
        let help = onetake(words);
        let help = text(&help.stdout);
        for line in ["Exit codes:", "0  done", "3  nothing found", "6  damaged"] {
            assert!(help.contains(line), "{words:?}: no `{line}` in\n{help}");
        }
    }
}
