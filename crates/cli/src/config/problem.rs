//! What is wrong with a configuration, and where: every problem at once, each with its place.
//!
//! Holds no rule of any option. Never says a secret: whoever reports a problem quotes only what may
//! be shown, and no more of it than fits on a line.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::json;

use crate::out::tame;

/// How many problems are told; the rest is counted.
pub(crate) const PROBLEMS_MAX: usize = 50;
/// How many are gathered before the first of them, by place, are chosen.
const GATHERED_MAX: usize = 1_000;
/// Columns are counted in characters up to here, and in bytes further right.
const COLUMN_CHARS_MAX: usize = 4_096;
/// The most characters of a value that a problem quotes.
const QUOTED_CHARS_MAX: usize = 60;
/// How many letters of a name may be wrong for it to be recognised.
const LETTERS_WRONG_MAX: usize = 3;

/// Where an option was given, so that whatever is found out later can still name the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A line and a column of a file, both counted from one.
    Line {
        /// The file, as it was named.
        file: Arc<str>,
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// The file as a whole.
    File(Arc<str>),
    /// A variable of the environment.
    Variable(Arc<str>),
    /// Nowhere: this is what holds when nothing is given.
    BuiltIn,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::File(file) => f.write_str(file),
            Self::Variable(name) => f.write_str(name),
            Self::BuiltIn => f.write_str("built in"),
        }
    }
}

/// The parts that there are: `file`, `line`, `column`, `variable`.
impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = match self {
            Self::Line { file, line, column } => {
                json!({ "file": &**file, "line": line, "column": column })
            }
            Self::File(file) => json!({ "file": &**file }),
            Self::Variable(name) => json!({ "variable": &**name }),
            Self::BuiltIn => json!({}),
        };
        shown.serialize(serializer)
    }
}

impl Place {
    /// Files from top to bottom, then variables by name.
    fn order(&self) -> (u8, usize, usize, &str) {
        match self {
            Self::File(_) => (0, 0, 0, ""),
            Self::Line { line, column, .. } => (1, *line, *column, ""),
            Self::Variable(name) => (2, 0, 0, name),
            Self::BuiltIn => (3, 0, 0, ""),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// Where.
    pub(crate) place: Place,
    /// The path of the option, such as `defaults.lease` or `route[2].match`.
    pub(crate) option: String,
    /// What is wrong, and what is allowed.
    pub(crate) what: String,
    /// What was probably meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) meant: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)?;
        match &self.meant {
            Some(meant) => write!(f, "; did you mean `{meant}`?"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with a configuration, in the order of its places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ConfigErrors {
    /// The problems, at most [`PROBLEMS_MAX`].
    pub(crate) problems: Vec<Problem>,
    /// How many more there are.
    pub(crate) more: usize,
}

impl ConfigErrors {
    /// One problem.
    pub(crate) fn one(place: Place, what: impl Into<String>) -> Self {
        let problem = Problem { place, option: String::new(), what: what.into(), meant: None };
        Self { problems: vec![problem], more: 0 }
    }
}

/// One problem a line.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))?;
        match self.more {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for ConfigErrors {}

/// Where something is in what is being read; cheaper than a [`Place`], which knows its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Spot {
    /// So many bytes into the file.
    Byte(usize),
    /// In the value of a variable.
    Variable(Arc<str>),
    /// The file as a whole.
    Whole,
    /// Nowhere.
    BuiltIn,
}

/// The file that is being read, and what was found wrong so far.
pub(super) struct Problems {
    file: Arc<str>,
    text: String,
    /// The byte at which each line begins.
    lines: Vec<usize>,
    /// Lines that are no TOML: what else is said of them would only confuse.
    broken: BTreeSet<usize>,
    found: Vec<Problem>,
    more: usize,
    warnings: Vec<Problem>,
}

/// Shows what was found, not the text: it could hold secrets.
impl fmt::Debug for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Problems").field(&self.found).finish()
    }
}

impl Problems {
    /// Nothing is wrong with `text` so far.
    pub(super) fn of(file: &str, text: String) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let (broken, found, warnings) = (BTreeSet::new(), Vec::new(), Vec::new());
        Self { file: tame(file).into(), text, lines, broken, found, more: 0, warnings }
    }

    /// The text of the file.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The line and column of `spot`.
    pub(super) fn place(&self, spot: &Spot) -> Place {
        match spot {
            Spot::Byte(at) => {
                let line = self.lines.partition_point(|start| start <= at);
                let start = self.lines[line - 1];
                let before = self.text.get(start..*at).filter(|text| text.len() < COLUMN_CHARS_MAX);
                let column = before.map_or(at - start, |text| text.chars().count()) + 1;
                Place::Line { file: Arc::clone(&self.file), line, column }
            }
            Spot::Variable(name) => Place::Variable(Arc::clone(name)),
            Spot::Whole => Place::File(Arc::clone(&self.file)),
            Spot::BuiltIn => Place::BuiltIn,
        }
    }

    /// What is at `spot` is no TOML.
    pub(super) fn broken(&mut self, spot: &Spot, what: &str) {
        let place = self.place(spot);
        let option = String::new();
        let line = if let Place::Line { line, .. } = place { line } else { 0 };
        // What follows the first fault of a line is mostly the same fault.
        if self.broken.insert(line) {
            self.keep(Problem { place, option, what: format!("not TOML: {what}"), meant: None });
        }
    }

    /// The value of `option` is wrong.
    pub(super) fn value(&mut self, spot: &Spot, option: &str, what: impl fmt::Display) {
        let what = match spot {
            // Who typed a flag need not know what the option is called in a file.
            Spot::Variable(name) if name.starts_with("--") => what.to_string(),
            Spot::Byte(_) | Spot::Variable(_) | Spot::Whole | Spot::BuiltIn => {
                format!("{option}: {what}")
            }
        };
        self.add(Problem { place: self.place(spot), option: option.to_owned(), what, meant: None });
    }

    /// Something that only the whole can tell is wrong, at a place that is known by now.
    pub(super) fn later(&mut self, errors: ConfigErrors) {
        errors.problems.into_iter().for_each(|problem| self.add(problem));
        self.more += errors.more;
    }

    /// Something that works and is hardly meant.
    pub(super) fn warn(&mut self, spot: &Spot, option: &str, what: impl fmt::Display) {
        let (place, option) = (self.place(spot), option.to_owned());
        self.warnings.push(Problem { place, option, what: what.to_string(), meant: None });
    }

    /// The warnings so far.
    pub(super) fn warnings(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.warnings)
    }

    /// Whether it was said already that `option` is wrong, or that it was probably meant by a name
    /// that nobody knows. What seems to be missing then is not.
    pub(super) fn is_told(&self, option: &str) -> bool {
        let (above, name) = option.rsplit_once('.').unwrap_or(("", option));
        self.found.iter().any(|problem| {
            let is_beside = problem.option.rsplit_once('.').is_some_and(|(of, _)| of == above);
            problem.option == option || is_beside && problem.meant.as_deref() == Some(name)
        })
    }

    /// Whether anything is wrong in a section whose name begins with `name`.
    pub(super) fn is_in(&self, name: &str) -> bool {
        self.found.iter().any(|problem| problem.option.starts_with(name))
    }

    /// There is no such name.
    pub(super) fn unknown(&mut self, spot: &Spot, option: &str, what: String, meant: Option<&str>) {
        let (option, meant) = (option.to_owned(), meant.map(str::to_owned));
        self.add(Problem { place: self.place(spot), option, what, meant });
    }

    /// One more that is only counted.
    pub(super) fn count_only(&mut self) {
        self.more += 1;
    }

    fn add(&mut self, problem: Problem) {
        let is_broken =
            matches!(problem.place, Place::Line { line, .. } if self.broken.contains(&line));
        // A wrong default is wrong for every route that does not say otherwise: told once.
        if !is_broken && (self.is_full() || !self.found.contains(&problem)) {
            self.keep(problem);
        }
    }

    /// Whether further problems are only counted, so that their words would be made for nobody.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= GATHERED_MAX
    }

    fn keep(&mut self, problem: Problem) {
        if self.is_full() {
            self.more += 1;
        } else {
            self.found.push(problem);
        }
    }

    /// Whether nothing is wrong so far.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// `value`, unless something is wrong.
    pub(super) fn or<T>(self, value: T) -> Result<T, ConfigErrors> {
        if self.is_empty() { Ok(value) } else { Err(self.into()) }
    }
}

impl From<Problems> for ConfigErrors {
    fn from(problems: Problems) -> Self {
        let Problems { mut found, more, .. } = problems;
        found.sort_by(|a, b| a.place.order().cmp(&b.place.order()));
        let cut = found.len().saturating_sub(PROBLEMS_MAX);
        found.truncate(PROBLEMS_MAX);
        Self { problems: found, more: more + cut }
    }
}

/// `text` in quotes, short enough for a line and without what a terminal would obey.
pub(super) fn quoted(text: &str) -> String {
    let shown: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", tame(&shown).replace(['\n', '\t'], " "))
}

/// The name that `word` was probably meant to be.
pub(super) fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance takes the product of both lengths, and nobody means so long a name.
    if word.len() > 128 {
        return None;
    }
    let said = word.to_lowercase().replace('-', "_");
    let allowed = (word.chars().count() / 3).clamp(1, LETTERS_WRONG_MAX);
    let distance =
        |name: &str| strsim::damerau_levenshtein(&said, &name.to_lowercase().replace('-', "_"));
    let near = names.into_iter().map(|name| (distance(name), name));
    near.filter(|(wrong, _)| *wrong <= allowed)
        .min_by_key(|(wrong, _)| *wrong)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_line_and_a_column_in_characters() {
        let problems = Problems::of("a.toml", "ab\nüü = 1\n".to_owned());
        let place = |at| problems.place(&Spot::Byte(at)).to_string();
        assert_eq!(place(0), "a.toml:1:1");
        assert_eq!(place(2), "a.toml:1:3", "a line ends with its newline");
        assert_eq!(place(3), "a.toml:2:1");
        assert_eq!(place(7), "a.toml:2:3");
        assert_eq!(place(1_000), "a.toml:3:989", "beyond the end is no panic");
        assert_eq!(problems.place(&Spot::Variable("V".into())).to_string(), "V");
        assert_eq!(problems.place(&Spot::BuiltIn).to_string(), "built in");
    }

    #[test]
    fn problems_are_told_in_the_order_of_the_file_once_each_and_not_without_end() {
        let mut problems = Problems::of("a.toml", "\n".repeat(100));
        for at in (0..90).rev() {
            problems.value(&Spot::Byte(at), "x", "is wrong");
            problems.value(&Spot::Byte(at), "x", "is wrong");
        }
        problems.value(&Spot::Whole, "y", "is missing");
        let errors = problems.or(()).unwrap_err();
        assert_eq!((errors.problems.len(), errors.more), (50, 41));
        let text = errors.to_string();
        assert!(text.starts_with("a.toml: y: is missing\na.toml:1:1: x: is wrong\n"), "{text}");
        assert!(text.ends_with("\nand 41 more"), "{text}");
    }

    #[test]
    fn a_line_that_is_no_toml_is_told_once_and_nothing_else_of_it() {
        let mut problems = Problems::of("a.toml", "a = = 1\nb = 2\n".to_owned());
        problems.broken(&Spot::Byte(4), "extra `=`");
        problems.broken(&Spot::Byte(6), "no newline");
        problems.value(&Spot::Byte(0), "a", "is wrong");
        problems.value(&Spot::Byte(8), "b", "is wrong");
        let told = problems.or(()).unwrap_err().to_string();
        assert_eq!(told, "a.toml:1:5: not TOML: extra `=`\na.toml:2:1: b: is wrong");
    }

    #[test]
    fn a_name_with_few_letters_wrong_is_recognised_and_another_is_not() {
        let names = ["retention", "lease", "in_flight"];
        assert_eq!(nearest("retenton", names), Some("retention"));
        assert_eq!(nearest("Lease", names), Some("lease"));
        assert_eq!(nearest("in-flight", names), Some("in_flight"));
        assert_eq!(nearest("colour", names), None);
        assert_eq!(nearest("x", names), None);
        assert_eq!(nearest(&"lease".repeat(1_000), names), None);
    }

    #[test]
    fn what_is_quoted_fits_on_a_line_and_moves_no_cursor() {
        assert_eq!(quoted("a\nb\u{1b}"), "`a b\\u{1b}`");
        assert_eq!(quoted(&"x".repeat(70)), format!("`{}…`", "x".repeat(60)));
    }
}
