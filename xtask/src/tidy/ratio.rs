//! How many lines of tests there are for each line of code.
//!
//! Counts lines that say something: no blank ones and no comments. Benchmarks and examples are on
//! neither side, and this tool itself is not counted.

use super::test_code::{TestCode, is_in, test_lines};
use super::{Complaint, Source, Tree};

/// A part of the tree, and how many tenths of a test line it needs per line of code.
struct Bar {
    folder: &'static str,
    tenths: usize,
}

const BARS: &[Bar] =
    &[Bar { folder: "crates", tenths: 6 }, Bar { folder: "crates/core", tenths: 10 }];

/// Lines on either side.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lines {
    code: usize,
    test: usize,
}

/// Compares every part of the tree with its bar.
pub(super) fn check(tree: &Tree, tests: &TestCode) -> Vec<Complaint> {
    let below = |bar: &Bar| {
        let Lines { code, test } = count(tree, tests, bar.folder);
        (test * 10 < code * bar.tenths).then(|| {
            let at_least = format!("at least {} for 10", bar.tenths);
            let what = format!("{test} lines of tests for {code} of code, {at_least}");
            Complaint::new(bar.folder, 1, what)
        })
    };
    BARS.iter().filter_map(below).collect()
}

fn count(tree: &Tree, tests: &TestCode, folder: &str) -> Lines {
    let is_inside = |source: &&Source| {
        source.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    };
    let mut sum = Lines::default();
    for source in tree.rust().filter(is_inside) {
        let lines = count_file(source, tests);
        sum.code += lines.code;
        sum.test += lines.test;
    }
    sum
}

fn count_file(Source { path, text }: &Source, tests: &TestCode) -> Lines {
    if is_in(path, "benches") || is_in(path, "examples") {
        return Lines::default();
    }
    let said = speaking_lines(text);
    if tests.has(path) {
        return Lines { code: 0, test: said.len() };
    }
    // A file that does not parse is reported elsewhere.
    let regions = syn::parse_file(text).map(|file| test_lines(&file)).unwrap_or_default();
    let is_test = |line: &&usize| regions.iter().any(|region| region.contains(line));
    let test = said.iter().filter(is_test).count();
    Lines { code: said.len() - test, test }
}

/// The numbers of the lines that are neither blank nor comment.
fn speaking_lines(text: &str) -> Vec<usize> {
    let mut in_block = false;
    let mut found = Vec::new();
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        let starts_block = line.starts_with("/*");
        if !in_block && !starts_block && !line.is_empty() && !line.starts_with("//") {
            found.push(number);
        }
        in_block = (in_block || starts_block) && !line.contains("*/");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_and_comments_say_nothing() {
        let text = "//! It.\n\nfn f() {\n    // Why.\n    /* a\n    b */\n    g(); // Why.\n}\n";
        assert_eq!(speaking_lines(text), [3, 7, 8]);
    }

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files);
        check(&tree, &TestCode::of(&tree)).iter().map(ToString::to_string).collect()
    }

    const CODE: &str = "fn a() {}\nfn b() {}\nfn c() {}\nfn d() {}\nfn e() {}\n";

    #[test]
    fn three_lines_of_tests_are_enough_for_five_of_code() {
        let code = ("crates/engine/src/lib.rs", CODE);
        let three = ("crates/engine/tests/a.rs", "a!();\nb!();\nc!();\n");
        let two = ("crates/engine/tests/a.rs", "a!();\nb!();\n");
        let below = "crates:1: 2 lines of tests for 5 of code, at least 6 for 10";
        assert_eq!(complaints(&[code, three]), [""; 0]);
        assert_eq!(complaints(&[code, two]), [below]);
    }

    #[test]
    fn the_rule_needs_as_many_lines_of_tests_as_of_code() {
        let inline = format!("{CODE}#[cfg(test)]\nmod tests {{\n    a!();\n}}\n");
        let below = "crates/core:1: 4 lines of tests for 5 of code, at least 10 for 10";
        assert_eq!(complaints(&[("crates/core/src/lib.rs", &inline)]), [below]);
        let more = format!("{inline}#[cfg(test)] fn f() {{}}\n");
        assert_eq!(complaints(&[("crates/core/src/lib.rs", &more)]), [""; 0]);
    }

    #[test]
    fn the_testkit_is_proof_and_benchmarks_are_neither() {
        let tree = Tree::of(&[
            ("crates/testkit/src/lib.rs", CODE),
            ("crates/engine/benches/a.rs", CODE),
            ("crates/engine/examples/a.rs", CODE),
            ("xtask/src/main.rs", CODE),
        ]);
        let lines = count(&tree, &TestCode::of(&tree), "crates");
        assert_eq!(lines, Lines { code: 0, test: 5 });
    }
}
