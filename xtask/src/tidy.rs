//! `cargo xtask tidy`: the rules of the tree that no compiler knows.
//!
//! Every check is a pure function from what was read to complaints. Nothing here is ever repaired,
//! and no check looks at a file by itself: the tree is read once, here.

mod dependencies;
mod project;
mod ratio;
mod rules;
mod rust;
mod test_code;
mod text;

use std::fmt;
use std::fs;

use anyhow::{Context, Result, ensure};

use crate::workspace::Workspace;
use dependencies::Graph;
use test_code::TestCode;

/// One thing that is not as it should be.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Complaint {
    path: String,
    line: usize,
    what: String,
}

impl Complaint {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// One text file, by its path from the root with forward slashes.
pub(crate) struct Source {
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        has_extension(&self.path, "rs")
    }
}

/// Every text file of the repository.
pub(crate) struct Tree(Vec<Source>);

impl Tree {
    fn read(workspace: &Workspace) -> Result<Self> {
        let mut sources = Vec::new();
        for path in workspace.files()? {
            let bytes = fs::read(workspace.root.join(&path))
                .with_context(|| format!("cannot read {path}"))?;
            // What is not UTF-8 is an image or a golden file; no rule here is about those.
            if let Ok(text) = String::from_utf8(bytes) {
                sources.push(Source { path, text });
            }
        }
        Ok(Self(sources))
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.0.iter().find(|source| source.path == path).map(|source| source.text.as_str())
    }

    fn rust(&self) -> impl Iterator<Item = &Source> {
        self.0.iter().filter(|source| source.is_rust())
    }

    /// The files directly inside a folder, by name.
    fn names_in<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter_map(move |source| source.path.strip_prefix(folder)?.strip_prefix('/'))
            .filter(|name| !name.contains('/'))
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        let source =
            |&(path, text): &(&str, &str)| Source { path: path.to_owned(), text: text.to_owned() };
        Self(files.iter().map(source).collect())
    }
}

/// Prints every complaint.
///
/// # Errors
///
/// When there is one.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let tree = Tree::read(workspace)?;
    let complaints = complaints(&tree, &Graph::read(workspace)?);
    for complaint in &complaints {
        println!("{complaint}");
    }
    ensure!(complaints.is_empty(), "complaints: {}", complaints.len());
    println!("{} files, no complaints", tree.0.len());
    Ok(())
}

fn complaints(tree: &Tree, graph: &Graph) -> Vec<Complaint> {
    let tests = TestCode::of(tree);
    let mut all = Vec::new();
    for Source { path, text } in &tree.0 {
        all.extend(text::check(path, text));
    }
    for Source { path, text } in tree.rust() {
        all.extend(rust::check(path, text, &tests));
    }
    all.extend(project::check(tree));
    all.extend(rules::check(tree));
    all.extend(ratio::check(tree, &tests));
    all.extend(dependencies::check(graph));
    all.sort();
    all
}

fn has_extension(path: &str, extension: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, found)| found == extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_can_be_clicked_on() {
        let complaint = Complaint::new("crates/core/src/lib.rs", 7, "too long");
        assert_eq!(complaint.to_string(), "crates/core/src/lib.rs:7: too long");
    }

    #[test]
    fn every_family_of_checks_is_asked() {
        let long = format!("fn f() {{}} //{}\n", " long".repeat(20));
        let tree = Tree::of(&[("crates/core/src/lib.rs", &long)]);
        let graph = Graph::of(&[("onetake-surprise", &[])]);
        let found: Vec<String> =
            complaints(&tree, &graph).iter().map(ToString::to_string).collect();
        for expected in [
            "crates/core/src/lib.rs:1: 112 characters, at most 100",
            "crates/core/src/lib.rs:1: does not open with `//!`",
            "CHANGELOG.md:1: is missing",
            "crates/core:1: 0 lines of tests for 1 of code, at least 10 for 10",
            "crates/surprise/Cargo.toml:1: `onetake-surprise` has no row in the dependency table",
        ] {
            assert!(found.iter().any(|line| line == expected), "no `{expected}` in {found:#?}");
        }
    }

    #[test]
    fn names_in_a_folder_leave_out_what_lies_deeper() {
        let tree = Tree::of(&[("docs/a.md", ""), ("docs/deep/b.md", ""), ("docs.md", "")]);
        assert_eq!(tree.names_in("docs").collect::<Vec<_>>(), ["a.md"]);
    }
}
