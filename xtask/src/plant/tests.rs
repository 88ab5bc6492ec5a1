//! The machinery, on a workspace of one crate that is written and built here.
//!
//! Knows none of the bugs in the table.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::trial::{Tally, tally};
use super::*;

const LIB: &str = "\
//! One rule and its proof.
pub fn larger(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}
pub fn down(mut n: u32) -> u32 {
    while n > 0 {
        n -= 1;
    }
    n
}
#[cfg(test)]
mod tests {
    #[test]
    fn the_larger_wins() {
        assert_eq!(super::larger(1, 2), 2);
    }
    #[test]
    fn it_ends() {
        assert_eq!(super::down(3), 0);
    }
}
";

const GOOD: Planted = Planted {
    name: "smaller",
    story: "The smaller wins.",
    edits: &[Edit { file: "src/lib.rs", find: "a > b", replace: "a < b" }],
    package: "rule",
    target: &["--lib"],
    test: "the_larger_wins",
    hang_is_caught: false,
};

/// A workspace, its copy, and where that is built.
fn field(dir: &TempDir) -> (Copy, PathBuf) {
    let from = dir.path().join("from");
    let target = dir.path().join("plant");
    fs::create_dir_all(from.join("src")).unwrap();
    let manifest = "\
[package]
name = \"rule\"
version = \"1.2.3\"
edition = \"2024\"
[workspace]
";
    fs::write(from.join("Cargo.toml"), manifest).unwrap();
    fs::write(from.join("src/lib.rs"), LIB).unwrap();
    let files = ["Cargo.toml", "src/lib.rs"].map(str::to_owned);
    (Copy::sync(&from, &files, &target).unwrap(), target)
}

fn lib_of(copy: &Copy) -> String {
    fs::read_to_string(copy.root.join("src/lib.rs")).unwrap()
}

/// The same bug with another edit.
const fn planted(name: &'static str, edits: &'static [Edit]) -> Planted {
    Planted { name, edits, ..GOOD }
}

/// One replacement in the only file there is.
const fn edit(find: &'static str, replace: &'static str) -> Edit {
    Edit { file: "src/lib.rs", find, replace }
}

const HARMLESS: Planted = planted("harmless", &[edit("a > b", "a >= b")]);
const BROKEN: Planted = planted("broken", &[edit("a > b", "a > c")]);
const CRASHING: Planted = planted("crashing", &[edit("a > b", "{ std::process::abort() }")]);
const ENDLESS: Planted =
    Planted { test: "it_ends", ..planted("endless", &[edit("n -= 1;", "n |= 1;")]) };
const ENDED: Planted = Planted { hang_is_caught: true, ..ENDLESS };
const GONE: Planted = planted("gone", &[edit("a == b", "")]);
const TWICE: Planted = planted("twice", &[edit("pub fn", "fn")]);
const MOVED: Planted = planted("moved", &[Edit { file: "src/old.rs", ..edit("a", "b") }]);
const UNTESTED: Planted = Planted { test: "no_such_test", ..GOOD };

/// Trials that a slow machine does not disturb.
fn patient(copy: &Copy, target: PathBuf) -> Trials<'_> {
    let time_max = Duration::from_secs(120);
    Trials { copy, target, time_max }
}

#[test]
fn a_bug_is_caught_or_survives_or_is_no_bug() {
    let dir = TempDir::new().unwrap();
    let (copy, target) = field(&dir);
    let trials = patient(&copy, target);
    let verdict = |bug: &Planted| trials.with_bug(bug).map_err(|error| error.to_string());

    let caught = Verdict::Caught("tests::the_larger_wins".to_owned());
    assert_eq!(verdict(&GOOD), Ok(caught));
    assert_eq!(lib_of(&copy), LIB);
    assert_eq!(verdict(&HARMLESS), Ok(Verdict::Survived("the test passes")));

    let error = verdict(&BROKEN).unwrap_err();
    assert!(error.starts_with("does not compile:\n"), "{error}");
    assert!(error.contains("E0425"), "{error}");
    let error = verdict(&CRASHING).unwrap_err();
    assert!(error.starts_with("the test neither passed nor failed:\n"), "{error}");
    assert_eq!(lib_of(&copy), LIB);

    let error = plant_all(&trials, &[&GOOD, &HARMLESS, &BROKEN]).unwrap_err();
    assert_eq!(error.to_string(), "not caught: harmless, broken");
    plant_all(&trials, &[&GOOD]).unwrap();
}

/// Both are built into one folder, and cargo must not take one for the other.
#[test]
fn what_changed_in_the_tree_is_seen_after_bugs_were_planted() {
    let dir = TempDir::new().unwrap();
    let (copy, target) = field(&dir);
    let manifest = fs::read_to_string(copy.root.join("Cargo.toml")).unwrap();
    assert!(manifest.contains("\nversion = \"1.2.3+planted\"\nedition"), "{manifest}");
    patient(&copy, target.clone()).without_bug(Site::of(&GOOD)).unwrap();

    let from = dir.path().join("from");
    fs::write(from.join("src/lib.rs"), GOOD.edit("src/lib.rs", LIB).unwrap()).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tested = std::process::Command::new(cargo)
        .args(["test", "--quiet", "--lib"])
        .current_dir(&from)
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&tested.stdout);
    assert!(said.contains("the_larger_wins"), "{said}");
    assert!(!tested.status.success());
}

#[test]
fn a_hang_counts_only_where_it_was_foreseen() {
    let dir = TempDir::new().unwrap();
    let (copy, target) = field(&dir);
    let time_max = Duration::from_secs(1);
    let trials = Trials { copy: &copy, target, time_max };
    let verdict = |bug: &Planted| trials.with_bug(bug).unwrap();
    assert_eq!(verdict(&ENDED), Verdict::Caught("a hang".to_owned()));
    assert_eq!(verdict(&ENDLESS), Verdict::Survived("the test hangs"));
}

#[test]
fn without_a_bug_the_test_is_there_and_passes() {
    let dir = TempDir::new().unwrap();
    let (copy, target) = field(&dir);
    let trials = patient(&copy, target);
    let passed = |bug: &Planted| {
        let passed = trials.without_bug(Site::of(bug));
        passed.map_err(|error| error.to_string())
    };
    assert_eq!(passed(&GOOD), Ok(1));
    let error = "-p rule --lib no_such_test names no test";
    assert_eq!(passed(&UNTESTED), Err(error.to_owned()));

    // What was built with the bug must not be taken for what was built without it.
    let error = copy.while_planted(&GOOD, || Ok(passed(&GOOD))).unwrap().unwrap_err();
    let expected = "-p rule --lib the_larger_wins fails without a bug:\n";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(passed(&GOOD), Ok(1));
}

#[test]
fn a_stale_bug_is_named_before_anything_is_built() {
    let dir = TempDir::new().unwrap();
    let (copy, target) = field(&dir);
    let trials = Trials { copy: &copy, target, time_max: Duration::ZERO };
    let error = plant_all(&trials, &[&GOOD, &GONE, &TWICE, &MOVED]).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    let gone = "`gone` is stale: found 0 times in src/lib.rs, must be once: \"a == b\"";
    let twice = "`twice` is stale: found 2 times in src/lib.rs, must be once: \"pub fn\"";
    assert_eq!(lines[..2], [gone, twice]);
    assert!(lines[2].starts_with("`moved` is stale: cannot read src/old.rs"), "{error}");
    assert_eq!(lines.len(), 3);
}

#[test]
fn edits_of_one_file_are_applied_one_after_the_other() {
    let bug = Planted {
        edits: &[
            Edit { file: "a.rs", find: "one", replace: "two" },
            Edit { file: "b.rs", find: "x", replace: "y" },
            Edit { file: "a.rs", find: "two", replace: "three" },
        ],
        ..GOOD
    };
    assert_eq!(bug.edit("a.rs", "one.").unwrap(), "three.");
    assert_eq!(bug.edit("b.rs", "x").unwrap(), "y");
    // The first edit makes a second `two`.
    assert!(bug.edit("a.rs", "one two").is_err());
}

fn changed(path: &Path) -> std::time::SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn the_copy_follows_the_tree_and_touches_only_what_differs() {
    let dir = TempDir::new().unwrap();
    let (copy, target) = field(&dir);
    let (lib, manifest) = (copy.root.join("src/lib.rs"), copy.root.join("Cargo.toml"));
    let before = changed(&manifest);
    // As if the last run had been interrupted, and a file had left the tree since.
    fs::write(&lib, "a bug").unwrap();
    fs::create_dir_all(copy.root.join("src/bin")).unwrap();
    fs::write(copy.root.join("src/bin/gone.rs"), "").unwrap();
    fs::write(copy.root.join("src/gone.rs"), "").unwrap();
    drop(copy);

    let (copy, _) = field(&dir);
    assert_eq!(lib_of(&copy), LIB);
    assert_eq!(changed(&manifest), before);
    assert!(!copy.root.join("src/bin").exists() && !copy.root.join("src/gone.rs").exists());

    let files = ["Cargo.toml".to_owned()];
    let error = Copy::sync(&dir.path().join("from"), &files, &target).err();
    assert_eq!(error.unwrap().to_string(), "somebody else is planting bugs");
}

#[test]
fn the_output_of_a_test_binary_is_counted() {
    let output = "
running 3 tests
test tests::fits ... ok
test tests::larger - should panic ... FAILED
test tests::smaller ... FAILED

failures:
    tests::smaller

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.00s
";
    let failed = vec!["tests::larger".to_owned(), "tests::smaller".to_owned()];
    assert_eq!(tally(output), Tally { passed: 1, failed });
    let empty = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored;\n";
    assert_eq!(tally(empty), Tally { passed: 0, failed: Vec::new() });
    assert_eq!(tally("fatal runtime error: stack overflow").failed, [""; 0]);
}

#[test]
fn an_unknown_bug_lists_the_known_ones() {
    let bugs = [GOOD];
    assert_eq!(chosen(bugs.iter(), None).unwrap().len(), 1);
    assert_eq!(chosen(bugs.iter(), Some("smaller")).unwrap().len(), 1);
    let error = chosen(bugs.iter(), Some("bigger")).err().unwrap().to_string();
    assert_eq!(error, "there is no planted bug `bigger`; there is: smaller");
}

#[test]
fn every_bug_in_the_table_has_its_own_name_and_a_test() {
    for (at, bug) in all().enumerate() {
        assert!(all().take(at).all(|other| other.name != bug.name), "{} twice", bug.name);
        assert!(!bug.test.is_empty() && !bug.edits.is_empty(), "{}", bug.name);
    }
}
