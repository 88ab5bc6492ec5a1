//! The built binary, as a person or a script starts it.
//!
//! Looks only at what comes out: text, JSON and exit codes. Never at the inside of the demo.

use std::process::{Command, Output};

use serde_json::{Value, json};

fn onetake(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onetake")).args(args).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the binary writes UTF-8")
}

/// The number in the row of the table that begins with `label`.
fn row(table: &str, label: &str) -> String {
    let rest = table.lines().find_map(|line| line.trim_start().strip_prefix(label));
    let rest = rest.unwrap_or_else(|| panic!("no row `{label}` in:\n{table}"));
    rest.split_whitespace().next().unwrap_or_default().to_owned()
}

#[test]
fn the_demo_shows_seven_scenes_and_a_table_without_an_unsaid_execution() {
    let output = onetake(&["demo", "--once"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", text(&output.stderr));
    assert_eq!(shown.matches("   ok: ").count(), 7, "{shown}");
    let (_, table) = shown.split_once("In all").unwrap();
    let rows = ["sent", "executed", "ledger lines", "executed twice, unsaid"];
    assert_eq!(rows.map(|label| row(table, label)), ["1,040", "20", "17", "0"]);
    assert!(table.contains("Every promise held."), "{table}");
    for said in ["receipt 1, replayed", "key_mismatch", "outcome_unknown", "fenced", "signal: 9"] {
        assert!(shown.contains(said), "`{said}` is not said:\n{shown}");
    }
}

#[test]
fn a_pipe_gets_plain_text() {
    let output = onetake(&["demo"]);
    assert!(!text(&output.stdout).contains(['\u{1b}', '\r']), "{}", text(&output.stdout));
}

#[test]
fn json_is_the_table_and_nothing_else() {
    let output = onetake(&["demo", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut table: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Which of the two a caller gets who comes as the first one ends is a matter of moments.
    let [replayed, joined] = ["replayed", "joined"].map(|row| table[row].as_u64().unwrap());
    assert!(replayed >= 26 && joined > 900, "{table}");
    table["replayed"] = json!(replayed + joined);
    table["joined"] = json!(0);
    let expected = json!({
        "sent": 1_040,
        "executed": 20,
        "recoveries": 2,
        "failed": 1,
        "fenced": 1,
        "replayed": 26 + 991,
        "joined": 0,
        "refused": 1,
        "unknown": 2,
        "ledger_lines": 17,
        "executed_twice_unsaid": 0,
        "broken": [],
    });
    assert_eq!(table, expected);
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
    let full = std::fs::File::options().write(true).open("/dev/full").expect("this is Linux");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_onetake"));
    let output = demo.args(["demo", "--json"]).stdout(full).output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot be written"), "{}", text(&output.stderr));
}
