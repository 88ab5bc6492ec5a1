//! Operators and an embedded store: on its files, and through the process that holds them.
//!
//! The records are made by the library, as a program would; the commands are the built binary, and
//! only what comes out of it counts.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use onetake::stores::seal::MasterKey;
use onetake::stores::{Embedded, Options};
use onetake::{Asked, Ending, Failure, Key, Scope};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

struct Store {
    kept: TempDir,
    path: PathBuf,
    /// Where its master key is, if it is there.
    key_file: PathBuf,
}

impl Store {
    /// A store in which order-1 is unknown and order-2 is done.
    fn new() -> Self {
        let kept = tempfile::tempdir().unwrap();
        let store = Self::at(kept.path().join("data"), kept);
        store.program(async |orders, acme| {
            let unknown = |_| async { Ending::<String, Failure>::Unknown };
            let heard = orders.execute(&acme, &key("order-1"), Asked::raw("x"), unknown).await;
            assert!(heard.is_err());
            let done = |_| async { Ok::<_, Failure>("receipt 2".to_owned()) };
            orders.execute(&acme, &key("order-2"), Asked::raw("x"), done).await.unwrap();
        });
        store
    }

    fn at(path: PathBuf, kept: TempDir) -> Self {
        Self { path, key_file: kept.path().join("key"), kept }
    }

    /// Writes a master key where commands look for it.
    fn keep_key(&self, byte: u8) {
        fs::write(&self.key_file, format!("{byte:02x}").repeat(32)).unwrap();
        fs::set_permissions(&self.key_file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// The built binary, with the key of this store where there is one.
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onetake"));
        if self.key_file.exists() {
            command.env("ONETAKE_STORE__KEY_FILE", &self.key_file);
        }
        command.current_dir(self.kept.path()).env("ONETAKE_OPERATOR", "ann");
        command
    }

    /// A program that uses the store, from start to end.
    fn program(&self, run: impl AsyncFnOnce(onetake::Executor<onetake::Embedded>, Scope)) {
        Runtime::new().unwrap().block_on(async {
            let orders = onetake::open(&self.path, "orders.create").unwrap();
            run(orders, Scope::tenant_named("acme").unwrap()).await;
        });
    }

    /// What a retry of `order` hears, if it hears a value.
    fn retry(&self, order: &str) -> Option<String> {
        let mut heard = None;
        self.program(async |orders, acme| {
            let again = |_| async { Ok::<_, Failure>("executed again".to_owned()) };
            let take = orders.execute(&acme, &key(order), Asked::raw("x"), again).await;
            heard = take.ok().map(|take| take.value);
        });
        heard
    }

    fn typed(&self, words: &[&str]) -> Output {
        let mut command = self.command();
        command.args(words).arg("--store").arg(format!("embedded:{}", self.path.display()));
        command.output().unwrap()
    }

    /// What comes out of a command that must be done.
    fn json(&self, words: &[&str]) -> Value {
        let output = self.typed(&[words, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The only key in this phase.
    fn the(&self, phase: &str) -> Value {
        let page = self.json(&["keys", "list", "--tenant", "acme", "--phase", phase]);
        let keys = page["keys"].as_array().unwrap();
        assert_eq!(keys.len(), 1, "{page}");
        keys[0].clone()
    }

    fn serve(&self) -> Serving {
        let mut child = self
            .command()
            .args(["serve", "--admin-listen", "127.0.0.1:0", "--store"])
            .arg(format!("embedded:{}", self.path.display()))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.starts_with("serving embedded:"), "{line}");
        Serving { child, _said: said }
    }
}

/// A process that holds the store, killed when dropped.
struct Serving {
    child: Child,
    _said: BufReader<std::process::ChildStderr>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn string<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// X10: the same commands, on the files and through the process that holds them; an unknown outcome
/// is settled by hand, a finished one is freed, and both are audited.
#[test]
fn x10_operators_settle_keys_on_the_files_and_through_the_process_that_holds_them() {
    for held in [false, true] {
        let store = Store::new();
        let serving = held.then(|| store.serve());
        let unknown = store.the("unknown");
        let (slot, seen) = (string(&unknown, "slot"), string(&unknown, "version"));
        let value = r#""receipt 1""#;
        store.json(&["keys", "resolve", "acme", slot, "--seen", seen, "--value", "--body", value]);
        let act = ["keys", "resolve", "acme", slot, "--seen", seen, "--value", "--body", "no json"];
        assert_eq!(store.typed(&act).status.code(), Some(2), "it would answer nobody");
        let stale = store.typed(&["keys", "release", "acme", slot, "--seen", seen]);
        assert_eq!(stale.status.code(), Some(4), "what was seen is not there any more");
        let by_name = ["keys", "show", "acme", "--operation", "orders.create", "--key", "order-2"];
        let done = store.json(&by_name);
        let (slot, seen) = (string(&done, "slot"), string(&done, "version"));
        store.json(&["keys", "release", "acme", slot, "--seen", seen]);
        let audit = store.json(&["keys", "audit"]);
        let said = audit.to_string();
        assert!(said.contains("ann") && !said.contains("order-1"), "{said}");
        assert!(store.json(&["store", "stats"])["numbers"]["records"].as_u64() >= Some(2));
        drop(serving);
        assert_eq!(store.retry("order-1").as_deref(), Some("receipt 1"), "held: {held}");
        assert_eq!(store.retry("order-2").as_deref(), Some("executed again"), "held: {held}");
    }
}

/// X10: a copy is made while a process holds the store, and is a store of its own.
#[test]
fn x10_a_backup_of_a_store_that_is_held_answers_like_it() {
    let store = Store::new();
    let _serving = store.serve();
    let copy = store.path.with_file_name("copy");
    let made = store.json(&["store", "backup", copy.to_str().unwrap()]);
    assert!(made["bytes"].as_u64() > Some(0), "{made}");
    let again = store.typed(&["store", "backup", copy.to_str().unwrap()]);
    assert_ne!(again.status.code(), Some(0), "nothing is written over");
    let restored = Store::at(copy, tempfile::tempdir().unwrap());
    assert_eq!(restored.json(&["store", "check"])["ok"], true);
    assert_eq!(restored.retry("order-2").as_deref(), Some("receipt 2"));
    assert_eq!(restored.retry("order-1"), None, "an unknown outcome is still unknown");
}

/// X11: the key of a sealed store comes from the environment or a file, and is changed while a
/// process holds the store.
#[test]
fn x11_a_sealed_store_is_used_with_its_key_and_gets_another_while_it_is_held() {
    let kept = tempfile::tempdir().unwrap();
    let store = Store::at(kept.path().join("data"), kept);
    let with = |byte: u8| {
        let keys = vec![MasterKey::new([byte; 32])];
        Embedded::open_with(&store.path, Options { keys, ..Options::default() })
    };
    drop(with(1).unwrap());
    let refused = store.typed(&["keys", "list"]);
    assert_eq!(refused.status.code(), Some(5));
    assert!(text(&refused.stderr).contains("ONETAKE_STORE__KEY"), "{}", text(&refused.stderr));
    store.keep_key(1);
    assert_eq!(store.json(&["store", "stats"])["numbers"]["sealed"], 1);
    let serving = store.serve();
    store.keep_key(2);
    let rotated = store.json(&["store", "rotate"]);
    assert_eq!(string(&rotated, "master"), MasterKey::new([2; 32]).id().to_string());
    drop(serving);
    assert!(with(1).is_err(), "the old one is of no use any more");
    drop(with(2).unwrap());
    let plain = Store::new();
    let refused = plain.typed(&["store", "rotate"]);
    assert_ne!(refused.status.code(), Some(0), "what is not sealed has no key to change");
}

fn files(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// C8: damage is named, with what to do, and the exit code says so.
#[test]
fn c8_a_check_names_what_is_damaged_and_exits_with_6() {
    let store = Store::new();
    let whole = store.typed(&["store", "check"]);
    assert_eq!(whole.status.code(), Some(0), "{}", text(&whole.stderr));
    assert!(text(&whole.stdout).starts_with("ok: nothing is damaged"), "{}", text(&whole.stdout));
    let mut found = Vec::new();
    files(&store.path, &mut found);
    let journal = found.iter().find(|path| path.extension().is_some_and(|e| e == "jnl")).unwrap();
    let mut bytes = fs::read(journal).unwrap();
    bytes[0] ^= 1;
    fs::write(journal, bytes).unwrap();
    let damaged = store.typed(&["store", "check"]);
    let said = text(&damaged.stdout);
    assert_eq!(damaged.status.code(), Some(6), "{said}");
    assert!(said.contains("journal") && said.contains("restore the newest backup"), "{said}");
    let listed = store.typed(&["keys", "list"]);
    assert_eq!(listed.status.code(), Some(6), "{}", text(&listed.stderr));
}

#[test]
fn a_store_that_is_not_there_or_held_without_an_address_is_said_so() {
    let store = Store::new();
    let missing = Store::at("/nonexistent/store".into(), tempfile::tempdir().unwrap());
    let output = missing.typed(&["keys", "list"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let orders = Runtime::new()
        .unwrap()
        .block_on(async { onetake::open(&store.path, "orders.create").unwrap() });
    let output = store.typed(&["keys", "list"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    drop(orders);
    assert_eq!(store.typed(&["keys", "list"]).status.code(), Some(0));
}

/// A store that cannot be opened says why in a word that a program can read.
#[test]
fn a_store_that_cannot_be_opened_says_why_with_a_code() {
    let store = Store::new();
    let code = |url: &str| {
        let stats = ["store", "stats", "--json", "--store", url];
        let output = store.command().args(stats).output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{url}: {output:?}");
        let said: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert!(said["detail"].is_string());
        said["code"].as_str().unwrap().to_owned()
    };
    let at = |path: &Path| format!("embedded:{}", path.display());
    assert_eq!(code(&at(&store.kept.path().join("none"))), "store_missing");
    let held = Embedded::open(&store.path).unwrap();
    assert_eq!(code(&at(&store.path)), "store_locked");
    drop(held);
    let newer = fs::read_to_string(store.path.join("FORMAT")).unwrap().replace('1', "9");
    fs::write(store.path.join("FORMAT"), newer).unwrap();
    assert_eq!(code(&at(&store.path)), "store_foreign");
    let sealed = Store::new();
    sealed.keep_key(7);
    let url = at(&sealed.path);
    let stats = ["store", "stats", "--json", "--store", &url];
    let output = sealed.command().args(stats).output().unwrap();
    let said: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(said["code"], "store_sealed", "it is not sealed, and a key was given");
}
