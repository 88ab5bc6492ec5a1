//! What operators type, against a running admin surface with records in it.
//!
//! The surface runs in the test, on a clock that stands still and with ids from a seed, so whole
//! tables can be compared. The commands are the built binary, and only what comes out of it counts.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::fs;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use onetake::core::{Address, Ask, Asked, Cause, Header, Status};
use onetake::engine::{ManualClock, MemoryLimits, Mint};
use onetake::{Engine, Key, Limits, Memory, Operation, Outcome, Policy, Report, Scope};
use onetake_console::{Desk, Guard, Hosts, Token, router, serve};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const TOKEN: &str = "0123456789abcdef";

/// A running surface.
struct Surface {
    folder: TempDir,
    engine: Engine<Memory>,
    runtime: Runtime,
}

impl Surface {
    /// One unknown, one finished and one live key of `acme`, and a finished one of `acme-2`.
    fn open() -> Self {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let memory = Memory::with(MemoryLimits::default(), Arc::clone(&clock));
        let engine = Engine::with(memory, Limits::default(), Mint::seeded(7));
        let runtime = Runtime::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let unknown = |_| async { Report::Unknown(Cause::TimedOut) };
            engine.run(ask("acme", "order-1"), unknown).await.unwrap();
            for tenant in ["acme", "acme-2"] {
                let created = |_| async { Report::Finished(created()) };
                engine.run(ask(tenant, "order-2"), created).await.unwrap();
            }
            clock.advance(Duration::from_secs(5_400));
            let _claim = engine.try_claim(&ask("acme", "order-3")).await.unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let guard = Guard::new(Token::new(TOKEN).unwrap(), Hosts::of(address, &[]));
            let router = router(Desk::new(engine.clone()), guard);
            tokio::spawn(serve(listener, router, std::future::pending()));
            let file = json!({ "url": format!("http://{address}"), "pid": 1 });
            fs::write(folder.path().join("admin.json"), file.to_string()).unwrap();
        });
        Self { folder, engine, runtime }
    }

    /// Types `onetake keys …`.
    fn keys(&self, words: &[&str]) -> Output {
        self.typed(&[&["keys"], words].concat(), TOKEN)
    }

    fn typed(&self, words: &[&str], token: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onetake"));
        let command =
            command.args(words).arg("--admin-file").arg(self.folder.path().join("admin.json"));
        command.env("ONETAKE_ADMIN__TOKEN", token).env("ONETAKE_OPERATOR", "ann").output().unwrap()
    }

    /// What comes out of a command that must be done.
    fn said(&self, words: &[&str]) -> String {
        let output = self.keys(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout).to_owned()
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.said(&[words, &["--json"]].concat())).unwrap()
    }

    /// The exit code of a command that must not be done, and what it says.
    fn refused(&self, words: &[&str]) -> (i32, String) {
        let output = self.keys(words);
        assert!(output.stdout.is_empty(), "{words:?}: {}", text(&output.stdout));
        (output.status.code().unwrap(), text(&output.stderr).to_owned())
    }

    fn version(&self, key: &str) -> String {
        self.json(&["show", "acme", &slot(key)])["version"].as_str().unwrap().to_owned()
    }
}

fn ask(tenant: &str, key: &str) -> Ask {
    let (scope, operation) =
        (Scope::tenant_named(tenant).unwrap(), Operation::new("orders.create"));
    let address = Address::new(scope, operation.unwrap(), Key::new(key).unwrap());
    Ask { address: address.into(), asked: Asked::raw("body"), policy: Policy::default().into() }
}

fn created() -> Outcome {
    let status = Status::new(201).unwrap();
    let headers = vec![Header { name: "location".into(), value: "/orders/2".into() }];
    Outcome::Response { status, headers, body: "{\"id\":2}\u{1b}[2J".into() }
}

fn slot(key: &str) -> String {
    ask("acme", key).address.slot().hex()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the binary writes UTF-8")
}

/// X10: the list is a table with one line for each key.
#[test]
fn x10_keys_are_listed_as_a_table() {
    let surface = Surface::open();
    let [one, two, three] = ["order-1", "order-2", "order-3"].map(slot);
    let mut expected = [
        format!(
            "acme    orders.create  order-1  unknown  1h 30m  1        timed out           {one}"
        ),
        format!(
            "acme    orders.create  order-2  done     1h 30m  1        response 201, 29 B  {two}"
        ),
        format!(
            "acme    orders.create  order-3  live     0s      1        -                   {three}"
        ),
    ];
    expected.sort_by_key(|line| line[line.len() - 64..].to_owned());
    let head = "TENANT  OPERATION      KEY      PHASE    AGE     ATTEMPT  OUTCOME             SLOT";
    let table = format!("{head}\n{}\n", expected.join("\n"));
    assert_eq!(surface.said(&["list", "--tenant", "acme"]), table);
    let old = ["list", "--phase", "done", "--older-than", "1h", "--operation", "orders.create"];
    assert_eq!(surface.json(&old)["keys"].as_array().unwrap().len(), 2, "of both tenants");
    let young = surface.json(&["list", "--younger-than", "1m"]);
    assert_eq!(young["keys"][0]["key"], "order-3");
    assert_eq!(surface.json(&["list", "--phase", "free"])["keys"], json!([]));
}

/// X10: a list goes on where its page ended, or does so by itself.
#[test]
fn x10_a_list_goes_on_where_its_page_ended() {
    let surface = Surface::open();
    let first = surface.keys(&["list", "--limit", "3"]);
    assert_eq!(text(&first.stdout).lines().count(), 4);
    let (_, mark) = text(&first.stderr).trim().split_once("There is more: --after ").unwrap();
    let rest = surface.said(&["list", "--limit", "3", "--after", mark]);
    assert_eq!(rest.lines().count(), 2);
    let all = surface.json(&["list", "--limit", "1", "--all"]);
    assert_eq!((all["keys"].as_array().unwrap().len(), &all["next"]), (4, &Value::Null));
}

/// X10: a key is shown by its slot or by its parts; its content only when asked for, and tamed.
#[test]
fn x10_a_key_is_shown_whole_and_its_content_only_when_asked_for() {
    let surface = Surface::open();
    let slot = slot("order-2");
    let json = surface.json(&["show", "acme", &slot]);
    let [fingerprint, fence, version] =
        ["fingerprint", "fence", "version"].map(|name| json[name].as_str().unwrap());
    let expected = format!(
        "\
tenant       acme
operation    orders.create
key          order-2
slot         {slot}
phase        done for 1h 30m
forgotten    in 22h 30m
outcome      response 201, 29 B
attempt      1
recovery     no
fingerprint  {fingerprint}
fence        {fence}
version      {version}
"
    );
    assert_eq!(surface.said(&["show", "acme", &slot]), expected);
    let parts = ["show", "acme", "--operation", "orders.create", "--key", "order-2"];
    assert_eq!(surface.said(&parts), expected);
    let whole = surface.said(&["show", "acme", &slot, "--body"]);
    let content = "\nlocation: /orders/2\n\n{\"id\":2}\\u{1b}[2J\n";
    assert_eq!(whole, format!("{expected}{content}"));
    assert_eq!(json["content"], Value::Null);
    let (code, said) = surface.refused(&["show", "acme-3", &slot]);
    assert_eq!((code, said.as_str()), (3, "error: record_missing: there is no record\n"));
}

/// X10: a release is decided on what was seen, and said again it is the same release.
#[test]
fn x10_a_release_is_decided_on_what_was_seen() {
    let surface = Surface::open();
    let (slot, seen) = (slot("order-1"), surface.version("order-1"));
    let stale = surface.version("order-2");
    let (code, said) = surface.refused(&["release", "acme", &slot, "--seen", &stale]);
    assert_eq!(code, 4);
    let expected =
        "error: record_changed: the record has changed; it is unknown now, look at it again\n";
    assert_eq!(said, expected);
    let release = ["release", "acme", &slot, "--seen", &seen];
    assert_eq!(surface.said(&release), "released: order-1 of acme is free now\n");
    assert_eq!(surface.said(&release), "released before: order-1 of acme is free now\n");
    let refusal = surface.refused(&["release", "acme", &slot, "--seen", &stale, "--json"]);
    let problem: Value = serde_json::from_str(&refusal.1).unwrap();
    assert_eq!((refusal.0, &problem["code"]), (4, &json!("record_changed")));
    assert_eq!(problem["there"]["phase"], "free");
}

/// X10: a live claim ends only with its fence and `--force`.
#[test]
fn x10_a_live_claim_ends_only_by_force() {
    let surface = Surface::open();
    let slot = slot("order-3");
    let live = surface.json(&["show", "acme", &slot]);
    let (seen, fence) = (live["version"].as_str().unwrap(), live["fence"].as_str().unwrap());
    let (code, said) = surface.refused(&["release", "acme", &slot, "--seen", seen]);
    assert_eq!(code, 4);
    assert!(said.starts_with("error: claim_live: the claim "), "{said}");
    let unforced = surface.refused(&["release", "acme", &slot, "--fence", fence]);
    assert_eq!(unforced.0, 2, "{}", unforced.1);
    let forced = surface.json(&["release", "acme", &slot, "--fence", fence, "--force"]);
    assert_eq!((&forced["phase"], &forced["repeated"]), (&json!("free"), &json!(false)));
}

/// X10: an unknown is resolved with what the operator found out, from a file too.
#[test]
fn x10_an_unknown_is_resolved_and_answers_the_next_attempt() {
    let surface = Surface::open();
    let (slot, seen) = (slot("order-1"), surface.version("order-1"));
    let path = surface.folder.path().join("body");
    fs::write(&path, [0xff, 0x00]).unwrap();
    let resolve = ["resolve", "acme", &slot, "--seen", &seen, "--keep", "7d", "--status", "201"];
    let more = ["--header", "Content-Type: image/x", "--body-file", path.to_str().unwrap()];
    let said = surface.said(&[&resolve[..], &more].concat());
    assert_eq!(said, "resolved: order-1 of acme is done now\n");
    let never = |_| async { unreachable!("it has an outcome") };
    let replay = surface.engine.run(ask("acme", "order-1"), never);
    let replay = surface.runtime.block_on(replay).unwrap();
    assert!(format!("{replay:?}").contains("Replayed"), "{replay:?}");
    let content = surface.json(&["show", "acme", &slot, "--body"])["content"].clone();
    let headers = json!([{ "name": "content-type", "value": "image/x" }]);
    assert_eq!(content, json!({ "headers": headers, "body_hex": "ff00" }));
    let again = surface.refused(&["resolve", "acme", &slot, "--seen", &seen, "--not-kept"]);
    assert_eq!(again.0, 4, "{}", again.1);
}

/// X10: a purge is meant, tells what it did, and is in the audit under one's name.
#[test]
fn x10_a_purge_is_meant_and_audited() {
    let surface = Surface::open();
    let (code, said) = surface.refused(&["purge", "acme"]);
    assert_eq!(code, 2);
    assert!(said.contains("--yes"), "{said}");
    let expected = "purged: 2; live and left alone: 1, purge again when they have ended\n";
    assert_eq!(surface.said(&["purge", "acme", "--yes"]), expected);
    let other = surface.json(&["purge", "acme-2", "--yes", "--operation", "payments"]);
    assert_eq!(other, json!({ "tombstones": 0, "live": 0 }));
    let expected = "\
POSITION  TIME                  BY   ACT     TENANT  OPERATION  WHAT              SLOT
1         2023-11-14T23:43:20Z  ann  purged  acme    -          2 purged, 1 live  -
";
    assert_eq!(surface.said(&["audit"]), expected);
    assert_eq!(surface.json(&["audit"])["entries"][0]["by"], "ann");
    assert_eq!(surface.json(&["audit", "--after", "1"])["entries"], json!([]));
}

/// Exit codes are a promise: what was typed wrong, what the surface refuses, who is not there.
#[test]
fn every_kind_of_failure_has_its_exit_code() {
    let surface = Surface::open();
    let slot = slot("order-1");
    let table: &[(&[&str], i32, &str)] = &[
        (&["list", "--older-than", "soon"], 2, "request_invalid"),
        (&["list", "--phase", "gone"], 2, "request_invalid"),
        (&["list", "--limit", "many"], 2, "--limit"),
        (&["show", "acme", "zz"], 2, "request_invalid"),
        (&["show", "acme"], 2, "required"),
        (&["show", "acme", "--operation", "o", "--key", "has space"], 2, "character"),
        (&["release", "acme", &slot], 2, "required"),
        (&["release", "acme", &slot, "--seen", "x"], 2, "request_invalid"),
        (&["resolve", "acme", &slot, "--seen", "x"], 2, "required"),
        (&["resolve", "acme", &slot, "--seen", "x", "--value", "--failure"], 2, "cannot be used"),
        (&["show", "nobody", &slot], 3, "record_missing"),
    ];
    for (words, code, says) in table {
        let (said, why) = surface.refused(words);
        assert_eq!(said, *code, "{words:?}: {why}");
        assert!(why.contains(says), "{words:?}: {why}");
    }
    let stranger = surface.typed(&["keys", "list"], "0123456789abcdeX");
    assert_eq!(stranger.status.code(), Some(1));
    assert!(text(&stranger.stderr).contains("token_invalid"));
    let nobody = json!({ "url": "http://127.0.0.1:1", "pid": 1 });
    fs::write(surface.folder.path().join("admin.json"), nobody.to_string()).unwrap();
    let (code, why) = surface.refused(&["list"]);
    assert_eq!(code, 5, "{why}");
    assert!(why.contains("does not answer"), "{why}");
}
