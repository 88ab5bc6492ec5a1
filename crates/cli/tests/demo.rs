//! The built binary, as a person or a script starts it.
//!
//! Looks only at what comes out: text, JSON and exit codes, and at what answers at the places that
//! it names. Never at the inside of the demo.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};

/// How a demo is called that `cargo` has started.
const CALL: &str = "cargo run --release --";

fn onetake(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onetake")).args(args).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the binary writes UTF-8")
}

/// What `onetake demo --once` came to; it is played once for all who look at it.
fn once() -> &'static Output {
    static ONCE: OnceLock<Output> = OnceLock::new();
    ONCE.get_or_init(|| onetake(&["demo", "--once"]))
}

/// The number in the row of the table that begins with `label`.
fn row(table: &str, label: &str) -> String {
    let rest = table.lines().find_map(|line| line.trim_start().strip_prefix(label));
    let rest = rest.unwrap_or_else(|| panic!("no row `{label}` in:\n{table}"));
    rest.split_whitespace().next().unwrap_or_default().to_owned()
}

#[test]
fn the_demo_shows_seven_scenes_and_a_table_where_nothing_was_executed_twice() {
    let output = once();
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", text(&output.stderr));
    assert_eq!(shown.matches("   ok: ").count(), 7, "{shown}");
    let (_, table) = shown.split_once("In all").unwrap();
    let expected = [
        ("sent", "247"),
        ("executed", "16"),
        ("as recoveries", "1"),
        ("unheard", "3"),
        ("replayed", "227"),
        ("refused", "1"),
        ("unknown", "2"),
        ("freed", "1"),
        ("ledger lines", "15"),
        ("executed twice", "0"),
    ];
    assert_eq!(expected.map(|(label, _)| (label, row(table, label))), {
        expected.map(|(label, number)| (label, number.to_owned()))
    });
    assert!(table.contains("Every promise held."), "{table}");
    for said in [
        "201 with receipt 1, replayed",
        "422 key_mismatch",
        "502 upstream_unreachable",
        "signal: 9",
        "409 outcome_unknown",
        "13 orders get what they got before",
    ] {
        assert!(shown.contains(said), "`{said}` is not said:\n{shown}");
    }
    assert_eq!(text(&output.stderr), "");
}

/// Who tries the demo from its sources has no `onetake` in the path.
#[test]
fn what_to_type_next_is_said_as_it_can_be_typed() {
    let demo = |cargo: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onetake"));
        command.args(["demo", "--once"]).env_remove("CARGO").envs(cargo.map(|at| ("CARGO", at)));
        let output = command.output().expect("the binary starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let shown = text(&output.stdout);
        shown.split_once("What next:\n").expect("it says so").1.to_owned()
    };
    let installed = demo(None);
    assert!(installed.starts_with("  onetake serve --upstream URL   the same"), "{installed}");
    let by_cargo = demo(Some("/usr/bin/cargo"));
    let expected = "  cargo run --release -- serve --upstream URL   the same in front";
    assert!(by_cargo.starts_with(expected), "{by_cargo}");
}

#[test]
fn a_pipe_gets_plain_text() {
    let shown = text(&once().stdout);
    assert!(!shown.contains(['\u{1b}', '\r']), "{shown}");
}

#[test]
fn nothing_of_a_demo_is_left() {
    let shown = text(&once().stdout);
    let ledger = shown.lines().find_map(|line| line.split_once("ledger /")).unwrap().1;
    let folder = PathBuf::from(format!("/{ledger}")).parent().unwrap().to_owned();
    assert!(folder.file_name().unwrap().to_str().unwrap().starts_with("onetake-demo-"));
    assert!(!folder.exists());
}

/// Settings of the caller's own gateway are none of the demo's.
#[test]
fn json_is_the_table_and_nothing_else_whatever_the_environment_says() {
    let output = Command::new(env!("CARGO_BIN_EXE_onetake"))
        .args(["demo", "--json"])
        .env("ONETAKE_AUTH__MODE", "jwt")
        .env("ONETAKE_NO_SUCH_OPTION", "1")
        .output()
        .expect("the binary starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = json!({
        "sent": 247,
        "executed": 16,
        "recoveries": 1,
        "unheard": 3,
        "replayed": 227,
        "refused": 1,
        "unknown": 2,
        "freed": 1,
        "ledger_lines": 15,
        "executed_twice": 0,
        "broken": [],
    });
    assert_eq!(table, expected);
}

/// A demo that stays up, killed when dropped.
struct Staying {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Staying {
    fn start() -> Self {
        Self::start_in(&std::env::temp_dir())
    }

    /// Starts one whose folder is made in `place`.
    fn start_in(place: &Path) -> Self {
        let mut demo = Command::new(env!("CARGO_BIN_EXE_onetake"));
        demo.env("TMPDIR", place).env("CARGO", "cargo");
        demo.arg("demo").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = demo.spawn().expect("the binary starts");
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Everything that is said up to the first line that contains `wanted`.
    fn until(&mut self, wanted: &str) -> String {
        let mut said = String::new();
        loop {
            let begins = said.len();
            assert_ne!(self.out.read_line(&mut said).unwrap(), 0, "no `{wanted}` in:\n{said}");
            if said[begins..].contains(wanted) {
                return said;
            }
        }
    }

    /// Asks it to end, and gives its exit code.
    fn end(mut self) -> Option<i32> {
        let kill = format!("kill -TERM {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        // Asked, for only then it takes its gateway with it.
        if matches!(self.child.try_wait(), Ok(None)) {
            let kill = format!("kill -TERM {}", self.child.id());
            let _ = Command::new("sh").args(["-c", &kill]).output();
            let _ = self.child.wait();
        }
    }
}

/// The process of the gateway that keeps its records in the folder of a demo.
fn gateway_of(folder: &Path) -> PathBuf {
    let file = File::open(folder.join("store/admin.json")).unwrap();
    let admin: Value = serde_json::from_reader(file).unwrap();
    PathBuf::from(format!("/proc/{}", admin["pid"]))
}

/// Does what a line with `curl` says; gives the whole answer.
fn curl(line: &str) -> String {
    let words: Vec<&str> = line.split('\'').collect();
    let [command, key, _, body, ..] = words[..] else { panic!("{line}") };
    let url = command.split("http://").nth(1).unwrap().split_whitespace().next().unwrap();
    let (address, path) = url.split_once('/').unwrap();
    let length = body.len();
    let request = format!(
        "POST /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{key}\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(address).expect("it is up");
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn without_once_it_stays_up_to_be_tried_and_leaves_nothing_when_it_ends() {
    let mut staying = Staying::start();
    let said = staying.until("Ctrl-C ends");
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("curl ")).collect();
    let answers: Vec<String> = lines.iter().map(|line| curl(line)).collect();
    let [first, again, other] = &answers[..] else { panic!("{said}") };
    assert!(first.starts_with("HTTP/1.1 201 ") && first.contains("location: /orders/"), "{first}");
    assert!(!first.contains("idempotent-replayed"), "{first}");
    assert!(again.starts_with("HTTP/1.1 201 ") && again.contains("idempotent-replayed: true"));
    let body = |answer: &str| answer.split_once("\r\n\r\n").unwrap().1.to_owned();
    assert_eq!(body(first), body(again));
    assert!(other.starts_with("HTTP/1.1 422 "), "{other}");
    let value = |name: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in:\n{said}")).trim().to_owned()
    };
    let folder = PathBuf::from(value("folder "));
    let list = format!(" keys list --store embedded:{}/store\n", folder.display());
    let (_, typed) = said.split_once("what the gateway remembers:\n").unwrap();
    assert!(typed.split_once(&list).is_some_and(|(call, _)| call == CALL), "{said}");
    let gateway = gateway_of(&folder);
    assert!(gateway.exists());
    assert_eq!(staying.end(), Some(0));
    assert!(!gateway.exists(), "the gateway is gone");
    assert!(!folder.exists(), "and so is the folder");
    for name in ["gateway ", "API "] {
        let address = value(name).replace("http://", "");
        assert!(TcpStream::connect(address).is_err(), "{name}");
    }
}

#[test]
fn a_demo_that_is_interrupted_takes_its_gateway_with_it() {
    let mut staying = Staying::start();
    let said = staying.until("ledger /");
    let (places, ledger) = said.split_once(", ledger ").unwrap();
    let address = places.split_once("gateway http://").unwrap().1;
    let folder = Path::new(ledger.trim()).parent().unwrap();
    // On a machine that stood still for long it may have come to its end, which is none of ours.
    assert!(matches!(staying.end(), Some(0 | 1)));
    assert!(TcpStream::connect(address).is_err(), "the gateway is gone");
    assert!(!folder.exists());
}

/// What a process that is killed with -9 leaves behind is its files, and no other process.
#[test]
fn a_demo_that_is_killed_leaves_no_gateway_behind() {
    let place = tempfile::tempdir().unwrap();
    let mut staying = Staying::start_in(place.path());
    let said = staying.until("Ctrl-C ends");
    let place_of = |line: &str| line.trim().strip_prefix("gateway ").map(str::to_owned);
    let address = said.lines().find_map(place_of).unwrap_or_else(|| panic!("{said}"));
    let address = address.trim().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("it is up");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // Answered before anybody is killed: whoever is about to end need not answer any more.
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    staying.child.kill().unwrap();
    staying.child.wait().unwrap();
    // A gateway that ends stops listening first, and then lets go of those who are connected.
    stream.read_to_end(&mut Vec::new()).unwrap();
    assert!(TcpStream::connect(address).is_err(), "the gateway is gone");
}

#[test]
fn a_demo_without_a_place_to_be_says_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_onetake"))
        .args(["demo", "--once"])
        .env("TMPDIR", "/dev/null/nowhere")
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with("error: the demo needs a temporary folder: "), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn without_arguments_it_says_what_it_can_do() {
    let output = onetake(&[]);
    let help = text(&output.stderr);
    assert!(help.contains("Usage: onetake <COMMAND>") && help.contains("demo"), "{help}");
}

#[test]
fn what_it_does_not_understand_it_refuses() {
    let output = onetake(&["demo", "--twice"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--twice"));
    assert!(output.stdout.is_empty());
}

#[test]
fn it_says_its_version() {
    let output = onetake(&["--version"]);
    assert_eq!(text(&output.stdout), concat!("onetake ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    for how in ["--once", "--json"] {
        let full = File::options().write(true).open("/dev/full").expect("this is Linux");
        let mut demo = Command::new(env!("CARGO_BIN_EXE_onetake"));
        let output = demo.args(["demo", how]).stdout(full).output().expect("the binary starts");
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains("the output cannot be written"), "{said}");
    }
}
