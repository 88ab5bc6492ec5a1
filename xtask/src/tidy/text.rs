//! Rules about lines of text, whatever language they are in.
//!
//! Looks at one file at a time and never parses it.

use super::{Complaint, has_extension};

const LINE_CHARS_MAX: usize = 100;

/// Every rule of this file.
pub(super) fn check(path: &str, text: &str) -> Vec<Complaint> {
    let rules = [line_length, loose_ends, developer_paths];
    rules.iter().flat_map(|rule| rule(path, text)).collect()
}

/// The lines a rule objects to, counted from one.
fn lines<'a>(
    path: &'a str,
    text: &'a str,
    what: impl Fn(&str) -> Option<String> + 'a,
) -> Vec<Complaint> {
    let numbered = text.lines().zip(1..);
    numbered.filter_map(|(line, number)| Some(Complaint::new(path, number, what(line)?))).collect()
}

fn line_length(path: &str, text: &str) -> Vec<Complaint> {
    if !has_extension(path, "rs") {
        return Vec::new();
    }
    lines(path, text, |line| {
        let chars = line.chars().count();
        // A link cannot be broken.
        (chars > LINE_CHARS_MAX && !line.contains("https://"))
            .then(|| format!("{chars} characters, at most {LINE_CHARS_MAX}"))
    })
}

/// Prose may speak of the habit, code may only have it with an issue number.
fn loose_ends(path: &str, text: &str) -> Vec<Complaint> {
    if has_extension(path, "md") {
        return Vec::new();
    }
    // In two pieces, so that this file passes its own rule.
    let needle = concat!("TO", "DO");
    lines(path, text, |line| {
        (has_word(line, needle) && !names_an_issue(line))
            .then(|| format!("{needle} without an issue number (`#12`)"))
    })
}

/// A path that exists on one developer's machine only.
fn developer_paths(path: &str, text: &str) -> Vec<Complaint> {
    // In two pieces, so that this file passes its own rule.
    let home = concat!("/wo", "rk/");
    let scratch = concat!("/tm", "p/");
    lines(path, text, |line| {
        let numbered = line
            .match_indices(scratch)
            .any(|(at, _)| line[at + scratch.len()..].starts_with(|c: char| c.is_ascii_digit()));
        (numbered || line.contains(home)).then(|| "a path of one developer's machine".to_owned())
    })
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
    })
}

fn names_an_issue(line: &str) -> bool {
    line.split('#').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complained(rule: fn(&str, &str) -> Vec<Complaint>, path: &str, text: &str) -> Vec<usize> {
        rule(path, text).iter().map(|complaint| complaint.line).collect()
    }

    #[test]
    fn a_line_has_at_most_a_hundred_characters() {
        let hundred = "ä".repeat(100);
        let more = "ä".repeat(101);
        let link = format!("// https://{more}");
        let text = format!("{hundred}\n{more}\n{link}\n");
        assert_eq!(complained(line_length, "a.rs", &text), [2]);
        assert_eq!(complained(line_length, "a.md", &text), [0; 0]);
    }

    #[test]
    fn a_loose_end_names_its_issue() {
        let text =
            "// TO-DO: a\n// TO-DO(#12): b\n// TO-DO # 12\n// TO-DOWN\n".replace("TO-", "TO");
        assert_eq!(complained(loose_ends, "a.rs", &text), [1, 3]);
        assert_eq!(complained(loose_ends, "a.sql", &text), [1, 3]);
        assert_eq!(complained(loose_ends, "STYLE.md", &text), [0; 0]);
    }

    #[test]
    fn no_file_knows_a_developers_machine() {
        let text = "see |work|x\nsee |tmp|1234|x\nsee |tmp|x\nsee work|x\n".replace('|', "/");
        assert_eq!(complained(developer_paths, "a.md", &text), [1, 2]);
    }
}
