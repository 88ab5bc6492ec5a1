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
    let is_begun = |path: &PathBuf| fs::read(path).unwrap().starts_with(b"OTLOGSEG");
    let is_log = |path: &&PathBuf| path.extension().is_some_and(|e| e == "seg") && is_begun(path);
    let log = found.iter().find(is_log).unwrap();
    let mut bytes = fs::read(log).unwrap();
    bytes[10] ^= 1;
    fs::write(log, bytes).unwrap();
    let damaged = store.typed(&["store", "check"]);
    let said = text(&damaged.stdout);
    assert_eq!(damaged.status.code(), Some(6), "{said}");
    assert!(said.contains(".seg cannot be read"), "{said}");
    assert!(said.contains("restore the newest backup"), "{said}");
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
    fs::write(store.path.join("FORMAT"), "9\n").unwrap();
    assert_eq!(code(&at(&store.path)), "store_foreign");
    let sealed = Store::new();
    sealed.keep_key(7);
    let url = at(&sealed.path);
    let stats = ["store", "stats", "--json", "--store", &url];
    let output = sealed.command().args(stats).output().unwrap();
    let said: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(said["code"], "store_sealed", "it is not sealed, and a key was given");
}

/// X10: a key of a subject is not one of its tenant, and who forgets that is told whose it is.
#[test]
fn x10_a_key_that_only_a_subject_has_is_found_with_its_name() {
    for held in [false, true] {
        let store = Store::new();
        store.program(async |orders, _| {
            let tenant = onetake::Tenant::new("acme").unwrap();
            let billing = Scope::of(tenant, onetake::Principal::new("billing").unwrap());
            let done = |_| async { Ok::<_, Failure>("receipt 9".to_owned()) };
            orders.execute(&billing, &key("order-9"), Asked::raw("x"), done).await.unwrap();
        });
        let _serving = held.then(|| store.serve());
        let named =
            |order| ["keys", "show", "acme", "--operation", "orders.create", "--key", order];
        let missing = store.typed(&named("order-9"));
        assert_eq!(missing.status.code(), Some(3));
        let expected = "error: record_missing: there is no record; the subject `billing` has such \
                        a key: add `--principal billing`\n";
        assert_eq!(text(&missing.stderr), expected, "held: {held}");
        let version = string(&store.the("unknown"), "version").to_owned();
        let seen = ["--seen", version.as_str()];
        let release = [&named("order-9")[2..], &seen].concat();
        let release = store.typed(&[&["keys", "release"], &release[..], &["--json"]].concat());
        let problem: Value = serde_json::from_slice(&release.stderr).unwrap();
        assert_eq!(string(&problem, "code"), "record_missing");
        assert!(string(&problem, "detail").contains("--principal billing"), "{problem}");
        let other = store.typed(&named("order-8"));
        let said = text(&other.stderr);
        assert!(said.contains("are those of subjects: add `--principal billing`"), "{said}");
        let found = [&named("order-9")[..], &["--principal", "billing"]].concat();
        assert_eq!(string(&store.json(&found), "principal"), "billing");
        let listed = store.typed(&["keys", "list"]);
        let said = text(&listed.stdout);
        assert!(said.starts_with("TENANT  PRINCIPAL  OPERATION"), "{said}");
        assert!(said.contains("acme    billing    orders.create  order-9"), "{said}");
        assert!(said.contains("acme    -          orders.create  order-1"), "{said}");
    }
}

/// X10: whoever claimed a key and is gone left an unknown outcome, for a check as for a list.
#[test]
fn x10_a_check_counts_what_a_list_shows() {
    let store = Store::new();
    Runtime::new().unwrap().block_on(async {
        let engine = onetake::Engine::new(Embedded::open(&store.path).unwrap());
        let (scope, operation) =
            (Scope::tenant_named("acme").unwrap(), onetake::Operation::new("orders.create"));
        let address = onetake::core::Address::new(scope, operation.unwrap(), key("order-3"));
        let (asked, policy) = (Asked::raw("x"), onetake::Policy::default().into());
        let ask = onetake::core::Ask { address: address.into(), asked, policy };
        let _claim = engine.try_claim(&ask).await.unwrap();
    });
    let listed = |phase: &str| {
        store.json(&["keys", "list", "--phase", phase])["keys"].as_array().unwrap().len() as u64
    };
    let counts = store.json(&["store", "check"])["counts"].clone();
    assert_eq!(counts["records unknown"].as_u64(), Some(listed("unknown")), "{counts}");
    assert_eq!(counts["records unknown"], 2);
    assert_eq!(counts["records done"].as_u64(), Some(listed("done")), "{counts}");
    assert!(counts.get("records claimed").is_none(), "nobody is left to hold one: {counts}");
}

/// X10: a check needs the files for itself, and says what to do while somebody has them.
#[test]
fn x10_a_check_of_a_store_that_is_served_says_what_to_do() {
    let store = Store::new();
    let _serving = store.serve();
    let checked = store.typed(&["store", "check"]);
    assert_eq!(checked.status.code(), Some(5));
    let said = text(&checked.stderr);
    assert!(said.contains("use `onetake keys …`, which asks the running server"), "{said}");
    let checked = store.typed(&["store", "check", "--json"]);
    assert_eq!(checked.status.code(), Some(5));
    let problem: Value = serde_json::from_slice(&checked.stderr).unwrap();
    assert_eq!(string(&problem, "code"), "store_locked");
    assert!(string(&problem, "detail").contains("onetake keys"), "{problem}");
}

/// X10: commands act on the store that the configuration names, as the server does.
#[test]
fn x10_commands_find_the_store_of_the_configuration() {
    let store = Store::new();
    let here = |words: &[&str]| store.command().args(words).output().unwrap();
    let count = |words: &[&str]| {
        let listed = here(&[&["keys", "list", "--json"], words].concat());
        assert_eq!(listed.status.code(), Some(0), "{words:?}: {}", text(&listed.stderr));
        let page: Value = serde_json::from_slice(&listed.stdout).unwrap();
        page["keys"].as_array().unwrap().len()
    };
    assert_eq!(here(&["keys", "list"]).status.code(), Some(5), "nothing is where nothing was said");
    fs::write(store.kept.path().join("token"), "0123456789abcdef\n").unwrap();
    let file = "[store]\nurl = \"embedded:./data\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
                token = \"file:token\"\n";
    fs::write(store.kept.path().join("onetake.toml"), file).unwrap();
    fs::write(store.kept.path().join("other.toml"), file).unwrap();
    assert_eq!(count(&[]), 2);
    assert_eq!(here(&["store", "check"]).status.code(), Some(0));
    {
        let _serving = store.serve();
        assert_eq!(count(&[]), 2, "through the process, with the token that is configured");
    }
    fs::write(store.kept.path().join("onetake.toml"), "[store]\nurl = \"sqlite:x\"\n").unwrap();
    let wrong = here(&["keys", "list"]);
    assert_eq!(wrong.status.code(), Some(2));
    let said = text(&wrong.stderr);
    assert!(said.contains("onetake.toml:2:7: store.url"), "{said}");
    assert!(said.contains("mend it, or name it with `--store`"), "{said}");
    assert_eq!(count(&["--config", "other.toml"]), 2);
    assert_eq!(count(&["--store", "embedded:./data"]), 2, "what is typed comes first");
}

/// X10: a store in memory is that of the server, which is asked where the configuration says.
#[test]
fn x10_a_store_in_memory_is_asked_for_at_the_admin_surface() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path().join("none"), folder);
    let path = store.kept.path().join("onetake.toml");
    let configure = |listen: &str, token: &str| {
        let text = format!("[store]\nurl = \"memory:\"\n[admin]\nlisten = \"{listen}\"\n{token}");
        fs::write(&path, text).unwrap();
    };
    let token = "token = \"0123456789abcdef\"\n";
    let typed = |words: &[&str]| store.command().args(words).output().unwrap();
    configure("127.0.0.1:1", token);
    let silent = typed(&["keys", "list"]);
    assert_eq!(silent.status.code(), Some(5), "{}", text(&silent.stderr));
    assert!(text(&silent.stderr).contains("the process at 127.0.0.1:1 does not answer"));
    let mut serve = store.command();
    serve.args(["serve", "--admin-listen", "127.0.0.1:0"]).stderr(Stdio::piped());
    let mut child = serve.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let serving = Serving { child, _said: said };
    let listen = line.split_once("memory: at http://").and_then(|(_, rest)| rest.split_once(','));
    configure(listen.unwrap_or_else(|| panic!("{line}")).0, token);
    let stats = typed(&["store", "stats"]);
    assert_eq!(text(&stats.stdout), "store    memory\nrecords  0\n", "{}", text(&stats.stderr));
    drop(serving);
    configure("127.0.0.1:1", "");
    let nobody = typed(&["keys", "list"]);
    assert_eq!(nobody.status.code(), Some(2));
    assert!(text(&nobody.stderr).contains("give `admin.token`"), "{}", text(&nobody.stderr));
}

#[test]
fn the_usage_names_the_tenant_first_and_the_operation_before_the_key() {
    for verb in ["show", "release", "resolve"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onetake"));
        let help = command.args(["keys", verb, "--help"]).output().unwrap();
        let help = text(&help.stdout);
        let parts = format!("onetake keys {verb} [OPTIONS] <TENANT> --operation <OPERATION> --key");
        assert!(help.contains(&format!("Usage: onetake keys {verb} [OPTIONS] <TENANT> <SLOT>")));
        assert!(help.contains(&parts), "{help}");
    }
}
