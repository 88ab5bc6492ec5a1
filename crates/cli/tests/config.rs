//! `onetake check` through the real binary: what it prints, where, and with which exit code.
//!
//! What each option means is tested beside the configuration itself.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../onetake.example.toml");

/// `onetake check` in `folder`, without the variables of whoever runs the test.
fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onetake"));
    command.arg("check").args(args).current_dir(folder);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ONETAKE_") {
            command.env_remove(name);
        }
    }
    command
}

fn check(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the binary writes UTF-8")
}

#[test]
fn the_example_shows_what_would_run() {
    let folder = tempfile::tempdir().unwrap();
    let output = check(folder.path(), &["--config", EXAMPLE]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected = "\
server    127.0.0.1:8080
admin     127.0.0.1:8081, token kept in a file
store     embedded:./onetake-data
auth      api-key
tenants   1
dialects  house

MATCH         OPERATION       UPSTREAM                DIALECT  KEY       RETENTION  LEASE  \
IN FLIGHT  UNKNOWN  TIMEOUT  MODE
POST /orders  orders.create   http://127.0.0.1:9000/  house    required  24h        30s    \
wait 10s   hold     30s      enforce
* /**         passes through  http://127.0.0.1:9000/  -        -         -          -      \
-          -        -        -
";
    assert_eq!(text(&output.stdout), expected);
    assert!(!folder.path().join("onetake-data").exists(), "it opens nothing");
}

#[test]
fn onetake_toml_is_read_from_here_and_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let missing = check(folder.path(), &[]);
    assert_eq!(missing.status.code(), Some(2));
    let expected = "onetake.toml: there is no such file; name one with `--config FILE`\n";
    assert_eq!(text(&missing.stderr), expected);
    fs::write(folder.path().join("onetake.toml"), "").unwrap();
    let empty = check(folder.path(), &[]);
    assert_eq!(empty.status.code(), Some(0));
    assert!(text(&empty.stdout).ends_with("routes   none: no request is passed on\n"));
}

#[test]
fn every_problem_is_a_line_that_can_be_clicked_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[defaults]\nretenton = \"24h\"\nlease = 30\n";
    fs::write(folder.path().join("onetake.toml"), file).unwrap();
    let output = check(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stdout), "");
    let expected = "\
onetake.toml:2:1: unknown option `retenton` in [defaults]; did you mean `retention`?
onetake.toml:3:9: defaults.lease: expected a duration such as \"10ms\", \"30s\" or \"24h\", \
found a whole number
";
    assert_eq!(text(&output.stderr), expected);

    let output = check(folder.path(), &["--json"]);
    assert_eq!(output.status.code(), Some(2));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["ok"], &json["more"]), (&false.into(), &0.into()));
    let first = &json["problems"][0];
    assert_eq!(first["place"]["file"], "onetake.toml");
    assert_eq!((&first["place"]["line"], &first["place"]["column"]), (&2.into(), &1.into()));
    assert_eq!(first["option"], "defaults.retenton");
    assert_eq!(first["meant"], "retention");
}

#[test]
fn the_environment_of_the_process_counts() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("onetake.toml"), "[server]\nlisten = \"127.0.0.1:1\"\n").unwrap();
    let run = |name: &str, value: &str| {
        command(folder.path(), &["--json"]).env(name, value).output().unwrap()
    };
    let output = run("ONETAKE_SERVER__LISTEN", "127.0.0.1:2");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["config"]["server"]["listen"], "127.0.0.1:2");
    let output = run("ONETAKE_SERVER__LISTN", "127.0.0.1:2");
    assert_eq!(output.status.code(), Some(2));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["problems"][0]["place"]["variable"], "ONETAKE_SERVER__LISTN");
    assert_eq!(json["problems"][0]["meant"], "ONETAKE_SERVER__LISTEN");
}

/// X11: a token shows neither in what is printed nor in what is refused.
#[test]
fn x11_a_token_is_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("token"), "hunter2-hunter2-hunter2\n").unwrap();
    let file = "[admin]\ntoken = \"file:token\"\n";
    fs::write(folder.path().join("onetake.toml"), file).unwrap();
    for args in [&[][..], &["--json"]] {
        let output = check(folder.path(), args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("given"));
        assert!(!text(&output.stdout).contains("hunter2"));
    }
}

#[test]
fn the_standard_input_can_be_checked() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(folder.path(), &["--config", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"[defaults]\nlease = \"2h\"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("standard input:2:9: defaults.lease: 2h is out of"));
}

#[test]
fn the_schema_can_be_printed() {
    let folder = tempfile::tempdir().unwrap();
    let output = check(folder.path(), &["--schema"]);
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["properties"]["defaults"]["properties"]["lease"]["default"], "30s");
}
