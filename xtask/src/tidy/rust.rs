//! Rules about Rust: how a file opens, how long things are, and what a test may not do.
//!
//! Works on syntax only, so that a string or a comment never counts as code. What clippy already
//! says is left to clippy.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::Complaint;
use super::test_code::{TestCode, is_in, test_lines};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 500;

/// Every rule of this file.
pub(super) fn check(path: &str, text: &str, tests: &TestCode) -> Vec<Complaint> {
    let mut all = opening(path, text);
    match (syn::parse_file(text), text.parse::<TokenStream>()) {
        (Ok(file), Ok(tokens)) => {
            let is_exempt = tests.is_test_module(path)
                || ["tests", "benches", "examples"].iter().any(|folder| is_in(path, folder));
            if !is_exempt {
                all.extend(file_length(path, text, &file));
            }
            all.extend(function_length(path, &file));
            all.extend(ignored_tests(path, &tokens));
            all.extend(sleeping_tests(path, &file, &tokens, tests.has(path)));
        }
        (Err(error), _) => {
            let line = error.span().start().line;
            all.push(Complaint::new(path, line, format!("does not parse: {error}")));
        }
        (_, Err(error)) => {
            let line = error.span().start().line;
            all.push(Complaint::new(path, line, format!("does not parse: {error}")));
        }
    }
    all
}

/// A file says first what it is; only blank lines, a shebang and attributes may come before.
fn opening(path: &str, text: &str) -> Vec<Complaint> {
    let mut rest = text.trim_start();
    if rest.starts_with("#!/") {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest).trim_start();
    }
    while rest.starts_with("#![") && !rest.starts_with("#![doc") {
        rest = after_attribute(rest).trim_start();
    }
    // A crate whose documentation is its README includes it with `#![doc = ..]`.
    let opens = rest.starts_with("//!") || rest.starts_with("#![doc = include_str!");
    if opens { Vec::new() } else { vec![Complaint::new(path, 1, "does not open with `//!`")] }
}

/// What follows the bracket that closes the first attribute.
fn after_attribute(text: &str) -> &str {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 1 => return &text[at + 1..],
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    ""
}

fn file_length(path: &str, text: &str, file: &syn::File) -> Option<Complaint> {
    let tests: usize = test_lines(file).into_iter().map(Iterator::count).sum();
    let lines = text.lines().count().saturating_sub(tests);
    (lines > FILE_LINES_MAX).then(|| {
        let what = format!("{lines} lines without tests, at most {FILE_LINES_MAX}");
        Complaint::new(path, 1, what)
    })
}

fn function_length(path: &str, file: &syn::File) -> Vec<Complaint> {
    let mut measure = Measure { path, found: Vec::new() };
    measure.visit_file(file);
    measure.found
}

struct Measure<'a> {
    path: &'a str,
    found: Vec<Complaint>,
}

impl Measure<'_> {
    /// The lines between the braces.
    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let brace = block.brace_token.span;
        let between = brace.close().start().line.saturating_sub(brace.open().start().line + 1);
        if between > FUNCTION_LINES_MAX {
            let name = &signature.ident;
            let what = format!("`{name}` has {between} lines, at most {FUNCTION_LINES_MAX}");
            self.found.push(Complaint::new(self.path, name.span().start().line, what));
        }
    }
}

impl<'ast> Visit<'ast> for Measure<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.body(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.body(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

fn ignored_tests(path: &str, tokens: &TokenStream) -> Vec<Complaint> {
    let is_hash = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == '#');
    let found = find(tokens, &|window| match window {
        [hash, TokenTree::Group(attribute), ..] => is_hash(hash) && ignores(attribute),
        _ => false,
    });
    found.into_iter().map(|line| Complaint::new(path, line, "an ignored test")).collect()
}

/// `[ignore]`, `[ignore = ".."]` and `[cfg_attr(.., ignore)]`.
fn ignores(attribute: &Group) -> bool {
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match tokens.as_slice() {
        _ if attribute.delimiter() != Delimiter::Bracket => false,
        [TokenTree::Ident(name), TokenTree::Group(inside), ..] if name == "cfg_attr" => {
            has_ident(&inside.stream(), "ignore")
        }
        [TokenTree::Ident(name), ..] => name == "ignore",
        _ => false,
    }
}

/// Time in a test is the manual clock's; a test that sleeps is slow and still races.
fn sleeping_tests(
    path: &str,
    file: &syn::File,
    tokens: &TokenStream,
    is_test: bool,
) -> Vec<Complaint> {
    let regions = test_lines(file);
    let found = find(tokens, &|window| match window {
        [TokenTree::Ident(thread), _, _, TokenTree::Ident(sleep), ..] => {
            thread == "thread" && sleep == "sleep"
        }
        [TokenTree::Ident(thread), _, _, TokenTree::Group(names), ..] => {
            thread == "thread"
                && names.delimiter() == Delimiter::Brace
                && has_ident(&names.stream(), "sleep")
        }
        _ => false,
    });
    found
        .into_iter()
        .filter(|line| is_test || regions.iter().any(|region| region.contains(line)))
        .map(|line| Complaint::new(path, line, "a test sleeps on a thread"))
        .collect()
}

/// The lines where `matches` holds for the tokens from there on, at any depth.
fn find(tokens: &TokenStream, matches: &dyn Fn(&[TokenTree]) -> bool) -> Vec<usize> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if matches(&tokens[at..]) {
            found.push(token.span().start().line);
        }
        if let TokenTree::Group(group) = token {
            found.extend(find(&group.stream(), matches));
        }
    }
    found
}

fn has_ident(tokens: &TokenStream, name: &str) -> bool {
    tokens.clone().into_iter().any(|token| matches!(token, TokenTree::Ident(i) if i == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Tree;

    fn check_at(path: &str, text: &str) -> Vec<String> {
        let tests = TestCode::of(&Tree::of(&[(path, text)]));
        check(path, text, &tests).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_opens_with_what_it_is() {
        for good in [
            "//! It.\n",
            "\n\n//! It.\n",
            "#!/usr/bin/env run\n//! It.\n",
            "#![allow(\n    a, b[1],\n)]\n#![cfg(x)]\n//! It.\n",
            "#![doc = include_str!(\"../README.md\")]\n",
        ] {
            assert!(opening("a.rs", good).is_empty(), "{good}");
        }
        for bad in ["", "fn f() {}\n", "// It.\n//! It.\n", "/// It.\nfn f() {}", "#![x]\nuse y;"] {
            assert_eq!(opening("a.rs", bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_function_has_at_most_seventy_lines() {
        let body = |lines: usize| format!("{{\n{}}}", "    g();\n".repeat(lines));
        let text = [
            format!("//! It.\nfn fits() {}\n", body(70)),
            format!("fn long() {}\n", body(71)),
            format!("trait T {{ fn given() {} }}\n", body(72)),
            format!("impl U {{ fn own() {} }}\n", body(73)),
        ]
        .concat();
        let expected = [
            "a.rs:74: `long` has 71 lines, at most 70",
            "a.rs:147: `given` has 72 lines, at most 70",
            "a.rs:221: `own` has 73 lines, at most 70",
        ];
        assert_eq!(check_at("a.rs", &text), expected);
    }

    #[test]
    fn a_file_has_at_most_five_hundred_lines_without_its_tests() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// t\n".repeat(400));
        let fits = format!("//! It.\n{}{tests}", "// c\n".repeat(499));
        let long = format!("//! It.\n{}{tests}", "// c\n".repeat(500));
        let path = "crates/core/src/lib.rs";
        let expected = format!("{path}:1: 501 lines without tests, at most 500");
        assert_eq!(check_at(path, &fits), [""; 0]);
        assert_eq!(check_at(path, &long), [expected]);
        for folder in ["tests", "benches", "examples"] {
            assert_eq!(check_at(&format!("crates/core/{folder}/a.rs"), &long), [""; 0]);
        }
    }

    #[test]
    fn a_test_is_never_ignored() {
        let text = "\
//! `#[ignore]` in prose is fine.
#[test]
#[ignore]
fn a() {}
#[ignore = \"slow\"] fn b() {}
#[cfg_attr(miri, ignore)] fn c() {}
wrapped! { #[ignore] fn d() {} }
fn e() { let ignore = \"#[ignore]\"; f([ignore]); }
";
        let lines = [3, 5, 6, 7].map(|line| format!("a.rs:{line}: an ignored test"));
        assert_eq!(check_at("a.rs", text), lines);
    }

    #[test]
    fn a_test_never_sleeps() {
        let text = "\
//! Code may say `thread::sleep`.
fn code() { std::thread::sleep(a); }
#[cfg(test)]
mod tests {
    use std::thread::{self, sleep};
    fn a() { thread::sleep(a); }
    fn b() { wrapped!(std::thread::sleep(a)); }
    fn c() { tokio::time::sleep(a); }
}
";
        let lines = |lines: &[usize]| -> Vec<String> {
            lines.iter().map(|line| format!("a.rs:{line}: a test sleeps on a thread")).collect()
        };
        assert_eq!(check_at("a.rs", text), lines(&[5, 6, 7]));
        let whole = check_at("crates/core/tests/a.rs", text);
        assert_eq!(whole.len(), 4, "{whole:?}");
    }

    #[test]
    fn a_file_that_does_not_parse_is_named() {
        let found = check_at("a.rs", "//! It.\n\nfn f( {}\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a.rs:3: does not parse: "), "{found:?}");
    }
}
