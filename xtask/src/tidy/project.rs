//! Rules about the papers of the project: changelog, readme, decisions, error pages, CI.
//!
//! Compares names and headings; never judges prose.

use super::{Complaint, Tree};

const CODES: &str = "crates/core/src/code.rs";
const PAGES: &str = "docs/errors";
const DECISIONS: &str = "docs/adr";

/// What a file must contain, word for word.
const PHRASES: &[(&str, &str)] = &[
    (".ci/run", "cargo xtask test"),
    ("README.md", "cargo run --release -- demo"),
    ("README.md", "cargo xtask test"),
];

/// Every rule of this file.
pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let rules = [phrases, changelog, error_pages, decisions];
    rules.iter().flat_map(|rule| rule(tree)).collect()
}

/// The commands that we tell people are the commands that we run.
fn phrases(tree: &Tree) -> Vec<Complaint> {
    let is_missing = |&&(path, phrase): &&(&str, &str)| {
        !tree.text(path).is_some_and(|text| text.contains(phrase))
    };
    let complain = |&(path, phrase): &(&str, &str)| {
        Complaint::new(path, 1, format!("does not say `{phrase}`"))
    };
    PHRASES.iter().filter(is_missing).map(complain).collect()
}

fn changelog(tree: &Tree) -> Vec<Complaint> {
    let path = "CHANGELOG.md";
    let Some(text) = tree.text(path) else {
        return vec![Complaint::new(path, 1, "is missing")];
    };
    let first = text.lines().zip(1..).find(|(line, _)| line.starts_with("## "));
    match first {
        Some((line, _)) if line.trim_end() == "## [Unreleased]" => Vec::new(),
        Some((_, number)) => {
            vec![Complaint::new(path, number, "the first version is not `## [Unreleased]`")]
        }
        None => vec![Complaint::new(path, 1, "has no `## [Unreleased]`")],
    }
}

/// Every code has a page, and every page a code.
fn error_pages(tree: &Tree) -> Vec<Complaint> {
    let Some(text) = tree.text(CODES) else {
        return Vec::new();
    };
    let codes = codes(text);
    let mut found = Vec::new();
    if codes.is_empty() {
        found.push(Complaint::new(CODES, 1, "no line reads `Self::Variant => \"code\",`"));
    }
    for (line, code) in &codes {
        let page = format!("{PAGES}/{code}.md");
        if tree.text(&page).is_none() {
            found.push(Complaint::new(CODES, *line, format!("`{code}` has no page {page}")));
        }
    }
    for page in tree.names_in(PAGES).filter(|name| *name != "README.md") {
        let is_known = codes.iter().any(|(_, code)| page.strip_suffix(".md") == Some(code));
        if !is_known {
            let what = format!("is not the page of a code in {CODES}");
            found.push(Complaint::new(&format!("{PAGES}/{page}"), 1, what));
        }
    }
    found
}

/// The codes and their lines: `Self::InFlight => "in_flight",`.
fn codes(text: &str) -> Vec<(usize, &str)> {
    text.lines().zip(1..).filter_map(|(line, number)| Some((number, code_in(line)?))).collect()
}

fn code_in(line: &str) -> Option<&str> {
    let (_variant, rest) = line.trim().strip_prefix("Self::")?.split_once(" => \"")?;
    rest.strip_suffix("\",").filter(|code| is_made_of(code, '_'))
}

/// Lowercase words and numbers with one kind of joint.
fn is_made_of(name: &str, joint: char) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    name.split(joint).all(is_word)
}

/// Decisions are numbered without a gap, so that a number that is cited can be found.
fn decisions(tree: &Tree) -> Vec<Complaint> {
    let mut found = Vec::new();
    let mut numbers = Vec::new();
    for name in tree.names_in(DECISIONS).filter(|name| *name != "README.md") {
        let path = format!("{DECISIONS}/{name}");
        match decision_number(name) {
            Some(number) => numbers.push((number, path)),
            None => found.push(Complaint::new(&path, 1, "is not named `NNNN-what-was-decided.md`")),
        }
    }
    numbers.sort();
    for ((number, path), expected) in numbers.iter().zip(1..) {
        if *number != expected {
            let what = format!("is number {number:04} where {expected:04} is due");
            found.push(Complaint::new(path, 1, what));
            break;
        }
    }
    found
}

fn decision_number(name: &str) -> Option<usize> {
    let (number, title) = name.strip_suffix(".md")?.split_once('-')?;
    let is_number = number.len() == 4 && number.chars().all(|c| c.is_ascii_digit());
    (is_number && is_made_of(title, '-')).then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(complaints: &[Complaint]) -> Vec<String> {
        complaints.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_readme_and_ci_name_the_commands() {
        let tree = Tree::of(&[(".ci/run", "exec cargo xtask test"), ("README.md", "# Onetake")]);
        let expected = [
            "README.md:1: does not say `cargo run --release -- demo`",
            "README.md:1: does not say `cargo xtask test`",
        ];
        assert_eq!(said(&phrases(&tree)), expected);
        assert_eq!(phrases(&Tree::of(&[])).len(), PHRASES.len());
    }

    #[test]
    fn the_changelog_begins_with_what_is_unreleased() {
        let of = |text: &str| said(&changelog(&Tree::of(&[("CHANGELOG.md", text)])));
        assert_eq!(of("# Changelog\n\n## [Unreleased]\n\n## [0.1.0]\n"), [""; 0]);
        let late = "CHANGELOG.md:3: the first version is not `## [Unreleased]`";
        assert_eq!(of("# Changelog\n\n## [0.1.0]\n\n## [Unreleased]\n"), [late]);
        assert_eq!(of("# Changelog\n"), ["CHANGELOG.md:1: has no `## [Unreleased]`"]);
        assert_eq!(said(&changelog(&Tree::of(&[]))), ["CHANGELOG.md:1: is missing"]);
    }

    #[test]
    fn codes_and_pages_match_both_ways() {
        let code = "\
match self {
    Self::InFlight => \"in_flight\",
    Self::Lost => \"lost\",
    Self::Said => \"A sentence.\",
}
";
        let tree = Tree::of(&[
            (CODES, code),
            ("docs/errors/README.md", ""),
            ("docs/errors/in_flight.md", ""),
            ("docs/errors/gone.md", ""),
        ]);
        let expected = [
            "crates/core/src/code.rs:3: `lost` has no page docs/errors/lost.md",
            "docs/errors/gone.md:1: is not the page of a code in crates/core/src/code.rs",
        ];
        assert_eq!(said(&error_pages(&tree)), expected);
    }

    #[test]
    fn codes_that_can_no_longer_be_read_are_noticed() {
        let tree = Tree::of(&[(CODES, "const LOST: &str = \"lost\";")]);
        let expected = "crates/core/src/code.rs:1: no line reads `Self::Variant => \"code\",`";
        assert_eq!(said(&error_pages(&tree)), [expected]);
        assert!(error_pages(&Tree::of(&[])).is_empty());
    }

    #[test]
    fn decisions_are_numbered_without_a_gap() {
        let of = |names: &[&str]| {
            let paths: Vec<String> = names.iter().map(|name| format!("docs/adr/{name}")).collect();
            let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "")).collect();
            said(&decisions(&Tree::of(&files)))
        };
        assert_eq!(of(&["README.md", "0001-one-crate.md", "0002-no-clock.md"]), [""; 0]);
        let gap = "docs/adr/0003-c.md:1: is number 0003 where 0002 is due";
        assert_eq!(of(&["0001-a.md", "0003-c.md"]), [gap]);
        let twice = "docs/adr/0001-b.md:1: is number 0001 where 0002 is due";
        assert_eq!(of(&["0001-a.md", "0001-b.md"]), [twice]);
        for bad in ["1-a.md", "0001_a.md", "0001-A.md", "0001-a.txt", "0001-.md", "0001-a--b.md"] {
            let expected = format!("docs/adr/{bad}:1: is not named `NNNN-what-was-decided.md`");
            assert_eq!(of(&[bad]), [expected]);
        }
    }
}
