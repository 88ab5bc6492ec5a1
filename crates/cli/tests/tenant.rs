//! `onetake tenant` through the real binary: what it prints, and what it leaves in the file.
//!
//! That a running gateway heeds it is tested with the gateway.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn tenant(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onetake"));
    command.arg("tenant").args(words).current_dir(folder).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the binary writes UTF-8")
}

fn added(folder: &Path, words: &[&str]) -> Value {
    let output = tenant(folder, &[&["add"], words, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "JSON and nothing else");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_first_tenant_makes_the_file_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onetake.toml");
    for words in [&["list"][..], &["revoke", "acme", "--all"]] {
        let output = tenant(folder.path(), words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stderr));
        assert!(!path.exists(), "only `add` makes one");
    }
    let output = tenant(folder.path(), &["add", "acme"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "made the file onetake.toml\n");
    let key = text(&output.stdout).lines().next().unwrap();
    let file = fs::read_to_string(&path).unwrap();
    assert!(file.starts_with("[[tenant]]\nname = \"acme\"\nkeys = [\"sha256:"), "{file}");
    assert!(!file.contains(key));
    let again = added(folder.path(), &["acme"]);
    assert_eq!((&again["made"], &again["config"]), (&json!(false), &json!("onetake.toml")));
    assert_eq!(fs::read_to_string(&path).unwrap().matches("sha256:").count(), 2);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    let nowhere = tenant(folder.path(), &["add", "acme", "--config", "none/onetake.toml"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).contains("cannot write none/onetake.toml"));
}

#[test]
fn a_key_may_do_what_it_is_given_until_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["acme", "--scope", "orders:read", "--scope", "orders:write"];
    let first = added(folder.path(), &[&words[..], &["--expires", "2999-01-31"]].concat());
    assert_eq!(first["scopes"], json!(["orders:read", "orders:write"]));
    assert_eq!((&first["expires"], &first["made"]), (&json!("2999-01-31T00:00:00Z"), &json!(true)));
    let second = added(folder.path(), &["acme", "--as", "till-7", "--expires", "90d"]);
    assert!(second["expires"].as_str().unwrap().ends_with('Z'), "{second}");
    let (one, two) = (first["id"].as_str().unwrap(), second["id"].as_str().unwrap());
    let listed = tenant(folder.path(), &["list"]);
    let ninety = second["expires"].as_str().unwrap();
    let expected = format!(
        "TENANT  KEY           SUBJECT  SCOPES                    EXPIRES\n\
         acme    {one}  -        orders:read orders:write  2999-01-31T00:00:00Z\n\
         acme    {two}  till-7   all                       {ninety}\n"
    );
    assert_eq!(text(&listed.stdout), expected);
    for (end, why) in [
        ("soon", "this is no end"),
        ("2001-01-31", "that is over already"),
        ("0s", "that is over already"),
        ("90", "this is no end"),
    ] {
        let output = tenant(folder.path(), &["add", "acme", "--expires", end]);
        assert_eq!(output.status.code(), Some(2), "{end}");
        let said = text(&output.stderr);
        assert!(said.starts_with(&format!("error: --expires: {why}; give a span")), "{said}");
    }
    let listed = tenant(folder.path(), &["list", "--json"]);
    let rows: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 2, "nothing was added that was refused");
    assert_eq!((&rows[0]["scopes"][0], &rows[1]["scopes"]), (&json!("orders:read"), &Value::Null));
}

#[test]
fn a_key_gets_no_more_scopes_than_its_tenant_has() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[[tenant]]\nname = \"acme\"\nscopes = [\"orders:read\"]\n";
    fs::write(folder.path().join("onetake.toml"), file).unwrap();
    let output = tenant(folder.path(), &["add", "acme", "--scope", "orders:write"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("a key has no more scopes than its tenant"), "{said}");
    assert_eq!(fs::read_to_string(folder.path().join("onetake.toml")).unwrap(), file);
}

/// Who takes the last key hears that nobody can call any more.
#[test]
fn what_keeps_a_file_from_being_served_is_said_when_it_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[[route]]\nmatch = \"POST /orders\"\nupstream = \"http://127.0.0.1:9\"\n";
    fs::write(folder.path().join("onetake.toml"), file).unwrap();
    let first = tenant(folder.path(), &["add", "acme"]);
    assert_eq!((first.status.code(), text(&first.stderr)), (Some(0), ""));
    assert!(text(&first.stdout).ends_with("A running gateway takes it within seconds.\n"));
    let last = tenant(folder.path(), &["revoke", "acme", "--all"]);
    assert_eq!(last.status.code(), Some(0));
    let said = text(&last.stderr);
    assert!(said.starts_with("`onetake serve` would refuse the file as it is now:\n"), "{said}");
    assert!(said.contains("no tenant has one"), "{said}");
}
