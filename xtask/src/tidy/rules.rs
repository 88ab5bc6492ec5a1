//! Rules about `docs/rules.md`: the tests that it names exist, and each carries the id that it is
//! named for.
//!
//! Reads names and doc comments; whether a test proves its rule is for people and planted bugs.

use std::collections::BTreeMap;

use super::{Complaint, Tree};

const RULES: &str = "docs/rules.md";

/// Every rule of this file.
pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let Some(text) = tree.text(RULES) else {
        return Vec::new();
    };
    let mut tests = BTreeMap::new();
    for source in tree.rust() {
        tests.extend(tests_of(&source.text));
    }
    let mut found = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let Some((id, rest)) = row(line) else { continue };
        for name in names(rest) {
            let what = match tests.get(name) {
                None => format!("there is no test `{name}`"),
                Some(words) if !carries(id, name, words) => {
                    format!("`{name}` says {id} neither in its name nor in its comment")
                }
                Some(_) => continue,
            };
            found.push(Complaint::new(RULES, number, what));
        }
    }
    found
}

/// The id of a row, and what stands behind it: `| X2 | … |`.
fn row(line: &str) -> Option<(&str, &str)> {
    let (id, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
    let digits = id.strip_prefix(|c: char| c.is_ascii_uppercase())?;
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
    is_number.then_some((id, rest))
}

/// What is quoted and reads like the name of a test: a sentence of three words at least.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |word: &&str| {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        word.chars().all(is_plain) && word.matches('_').count() >= 2
    };
    text.split('`').skip(1).step_by(2).filter(is_name)
}

/// Whether a test says that it is about a rule.
fn carries(id: &str, name: &str, comment: &str) -> bool {
    let said = |word: &str| word == id;
    name.split('_').any(|word| word.eq_ignore_ascii_case(id))
        || comment.split(|c: char| !c.is_ascii_alphanumeric()).any(said)
}

/// The tests of a file, with their doc comments.
fn tests_of(text: &str) -> BTreeMap<String, String> {
    let mut tests = BTreeMap::new();
    let (mut comment, mut is_test) = (String::new(), false);
    for line in text.lines().map(str::trim_start) {
        if let Some(words) = line.strip_prefix("///") {
            comment.push_str(words);
            comment.push('\n');
            continue;
        }
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            continue;
        }
        if let Some(name) = name_of(line).filter(|_| is_test) {
            tests.insert(name.to_owned(), std::mem::take(&mut comment));
        }
        comment.clear();
        is_test = false;
    }
    tests
}

/// The name of the function that a line begins.
fn name_of(line: &str) -> Option<&str> {
    let line = line.strip_prefix("async ").unwrap_or(line);
    Some(line.strip_prefix("fn ")?.split_once('(')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "\
/// X2, X3: a rule.
#[tokio::test(start_paused = true)]
async fn a_stalled_executor_is_fenced() {
    let here = 1;
}

#[test]
fn x4_a_caller_leaves() {}

/// X5: no test.
fn x5_is_no_test() {}
";

    fn said(rules: &str) -> Vec<String> {
        let tree = Tree::of(&[(RULES, rules), ("crates/http/tests/rules.rs", CODE)]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn tests_that_are_named_exist_and_carry_the_id() {
        let good = "\
| id | tests |
|---|---|
| X2 | `a_stalled_executor_is_fenced` |
| X3 | `a_stalled_executor_is_fenced`, and `Debug` or `cleanup` are no tests |
| X4 | `x4_a_caller_leaves` |
";
        assert_eq!(said(good), [""; 0]);
        let bad = "\
| X1 | `a_stalled_executor_is_fenced` |
| X2 | `there_was_a_test`, `a_stalled_executor_is_fenced` |
| X5 | `x5_is_no_test` |
";
        let silent =
            "`a_stalled_executor_is_fenced` says X1 neither in its name nor in its comment";
        let silent = format!("docs/rules.md:1: {silent}");
        let expected = [
            silent.as_str(),
            "docs/rules.md:2: there is no test `there_was_a_test`",
            "docs/rules.md:3: there is no test `x5_is_no_test`",
        ];
        assert_eq!(said(bad), expected);
    }

    #[test]
    fn prose_and_a_tree_without_rules_are_left_alone() {
        assert_eq!(
            said("A test `of_no_row_here` in prose, and | X |\n| XY2 | `a_b_c` |\n"),
            [""; 0]
        );
        assert!(check(&Tree::of(&[])).is_empty());
    }
}
