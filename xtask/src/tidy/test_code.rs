//! Says which files, and which lines of a file, are tests.
//!
//! Follows `#[cfg(test)] mod name;` to the file it names, and never counts a module that is also
//! built without `test`.

use std::ops::RangeInclusive;

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemFn, ItemImpl, ItemMod, Meta, Token};

use super::Tree;

/// The crate that is proof from end to end.
const TESTKIT: &str = "crates/testkit/";

/// The files of a tree that are tests as a whole.
pub(super) struct TestCode {
    /// Paths without `.rs` of the modules that only a test build has.
    modules: Vec<String>,
}

impl TestCode {
    pub(super) fn of(tree: &Tree) -> Self {
        let modules = tree
            .rust()
            .filter_map(|source| Some((&source.path, syn::parse_file(&source.text).ok()?)))
            .flat_map(|(path, file)| test_modules(path, &file))
            .collect();
        Self { modules }
    }

    /// Whether the whole file is a test.
    pub(super) fn has(&self, path: &str) -> bool {
        path.starts_with(TESTKIT) || is_in(path, "tests") || self.is_test_module(path)
    }

    /// Whether the file belongs to a module that only a test build has.
    pub(super) fn is_test_module(&self, path: &str) -> bool {
        let is_below = |module: &String| {
            path.strip_prefix(module.as_str())
                .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        self.modules.iter().any(is_below)
    }
}

/// Whether a folder of that name is on the way to the file.
pub(super) fn is_in(path: &str, folder: &str) -> bool {
    path.rsplit('/').skip(1).any(|part| part == folder)
}

/// The lines of a file that only a test build has.
pub(super) fn test_lines(file: &syn::File) -> Vec<RangeInclusive<usize>> {
    let mut finder = Finder { found: Vec::new() };
    finder.visit_file(file);
    finder.found
}

struct Finder {
    found: Vec<RangeInclusive<usize>>,
}

impl Finder {
    /// Keeps the lines of a test. Answers whether its inside is still to be searched.
    fn keep(&mut self, attributes: &[Attribute], spanned: &impl Spanned) -> bool {
        let is_test = attributes.iter().any(is_cfg_test) || attributes.iter().any(is_test_marker);
        if is_test {
            let span = spanned.span();
            self.found.push(span.start().line..=span.end().line);
        }
        !is_test
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if self.keep(&item.attrs, item) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if self.keep(&item.attrs, item) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if self.keep(&item.attrs, item) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if self.keep(&item.attrs, item) {
            visit::visit_impl_item_fn(self, item);
        }
    }
}

/// Where the modules live that a file declares for tests only, as paths without `.rs`.
fn test_modules(path: &str, file: &syn::File) -> Vec<String> {
    let is_outside = |module: &&ItemMod| module.content.is_none();
    let is_for_tests = |module: &&ItemMod| module.attrs.iter().any(is_cfg_test);
    file.items
        .iter()
        .filter_map(|item| if let Item::Mod(module) = item { Some(module) } else { None })
        .filter(is_outside)
        .filter(is_for_tests)
        .map(|module| format!("{}/{}", folder_of_children(path), module.ident))
        .collect()
}

/// The folder that holds the modules a file declares.
fn folder_of_children(path: &str) -> &str {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    if matches!(name, "lib" | "main" | "mod") { folder } else { stem }
}

/// `#[test]`, and its cousins such as `#[tokio::test]`.
fn is_test_marker(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == "test")
}

fn is_cfg_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<Meta>().is_ok_and(|condition| implies_test(&condition))
}

/// `test` and `all(test, ..)`; not `any(test, ..)`, which other builds may have too.
fn implies_test(condition: &Meta) -> bool {
    let parts = Punctuated::<Meta, Token![,]>::parse_terminated;
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => {
            list.path.is_ident("all")
                && list.parse_args_with(parts).is_ok_and(|all| all.iter().any(implies_test))
        }
        Meta::NameValue(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_lines_are_those_only_a_test_build_has() {
        let text = "\
fn code() {}

/// Said.
#[cfg(test)]
mod tests {
    #[test]
    fn a() {}
}
#[cfg(any(test, feature = \"x\"))]
mod both {
    #[cfg(all(test, unix))]
    fn b() {}
}
#[cfg(not(test))]
mod never {}
#[tokio::test]
async fn c() {}
impl Code {
    #[cfg(test)]
    fn d() {}
}
";
        let found = test_lines(&syn::parse_file(text).unwrap());
        assert_eq!(found, [3..=8, 11..=12, 16..=17, 19..=20]);
    }

    #[test]
    fn a_test_module_in_its_own_file_is_a_test() {
        let tree = Tree::of(&[
            ("crates/core/src/lib.rs", "#[cfg(test)]\nmod proof;\nmod rule;\n"),
            ("crates/core/src/rule.rs", "#[cfg(test)] mod tests;\nmod table;\n"),
        ]);
        let tests = TestCode::of(&tree);
        for path in ["proof.rs", "proof/deep.rs", "rule/tests.rs", "rule/tests/mod.rs"] {
            assert!(tests.has(&format!("crates/core/src/{path}")), "{path}");
        }
        for path in ["lib.rs", "rule.rs", "rule/table.rs", "proofs.rs", "tests.rs"] {
            assert!(!tests.has(&format!("crates/core/src/{path}")), "{path}");
        }
    }

    #[test]
    fn the_testkit_and_every_tests_folder_are_tests() {
        let tests = TestCode::of(&Tree::of(&[]));
        assert!(tests.has("crates/testkit/src/lib.rs"));
        assert!(tests.has("crates/core/tests/walk.rs"));
        assert!(!tests.has("crates/core/benches/walk.rs"));
        assert!(!tests.has("crates/core/src/tests.rs"));
    }
}
