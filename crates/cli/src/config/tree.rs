//! A configuration as it was written, before any option is understood: values with their spots.
//!
//! Knows TOML and no option. Whatever the bytes are, reading them ends in a tree or in problems,
//! never in a panic; how deep a document may nest is bounded by the parser.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{ConfigErrors, Place, Problems, Spot};

/// The largest file that is read, in bytes.
pub(super) const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Up to this size all faults of syntax are gathered, in a larger file the first one: each takes
/// memory.
const ALL_FAULTS_BYTES_MAX: usize = 256 * 1024;
/// How deep is looked. No option lies deeper, so what does is part of something unknown.
const DEPTH_MAX: usize = 16;

/// A value and where it is.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Where it is.
    pub(super) spot: Spot,
    /// What it is.
    pub(super) value: Value,
}

/// What was written.
#[derive(Clone)]
pub(super) enum Value {
    /// Text in quotes.
    Text(String),
    /// A whole number; none when it is beyond 64 bits.
    Integer(Option<i64>),
    /// Another number.
    Float,
    /// `true` or `false`.
    Bool(bool),
    /// A date, a time, or both.
    Date(String),
    /// Values in brackets.
    List(Vec<Node>),
    /// Names with values.
    Table(Table),
    /// The value of a variable: what it is depends on who reads it.
    Word(String),
}

/// Shows what it is, never what it says: it could be a secret.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Value {
    /// What it is called in a problem.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Text(_) | Self::Word(_) => "text",
            Self::Integer(_) => "a whole number",
            Self::Float => "a number",
            Self::Bool(_) => "true or false",
            Self::Date(_) => "a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// Names with values.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    /// By name: where the name is, and the value.
    pub(super) rows: BTreeMap<String, (Spot, Node)>,
}

impl Table {
    /// The value called `name`.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.rows.get(name).map(|(_, node)| node)
    }

    /// Puts the value of a variable at `path`, in place of what the file says. Whether there is
    /// such an option is for the caller to know; a section that the file gives as something else
    /// is left alone, for it is refused anyway.
    pub(super) fn put(&mut self, path: &[&str], variable: &Arc<str>, word: &str) {
        let spot = Spot::Variable(Arc::clone(variable));
        match path {
            [] => {}
            [name] => {
                let node = Node { spot: spot.clone(), value: Value::Word(word.to_owned()) };
                self.rows.insert((*name).to_owned(), (spot, node));
            }
            [name, rest @ ..] => {
                let empty = || {
                    let value = Value::Table(Self::default());
                    (spot.clone(), Node { spot: spot.clone(), value })
                };
                let (_, node) = self.rows.entry((*name).to_owned()).or_insert_with(empty);
                if let Value::Table(table) = &mut node.value {
                    table.put(rest, variable, word);
                }
            }
        }
    }
}

/// Reads `text` of the file that `problems` is about.
pub(super) fn parse(problems: &mut Problems) -> Table {
    let text = problems.text().to_owned();
    let (table, faults) = if text.len() <= ALL_FAULTS_BYTES_MAX {
        DeTable::parse_recoverable(&text)
    } else {
        match DeTable::parse(&text) {
            Ok(table) => (table, Vec::new()),
            Err(fault) => (Spanned::new(0..0, DeTable::new()), vec![fault]),
        }
    };
    for fault in faults {
        let spot = fault.span().map_or(Spot::Whole, |span| Spot::Byte(span.start));
        problems.broken(&spot, fault.message());
    }
    table_of(table.into_inner(), 0)
}

fn table_of(table: DeTable<'_>, depth: usize) -> Table {
    if depth > DEPTH_MAX {
        return Table::default();
    }
    let rows = table.into_iter().map(|(name, value)| {
        let spot = Spot::Byte(name.span().start);
        (name.into_inner().into_owned(), (spot, node_of(value, depth + 1)))
    });
    Table { rows: rows.collect() }
}

fn node_of(value: Spanned<DeValue<'_>>, depth: usize) -> Node {
    let spot = Spot::Byte(value.span().start);
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => {
            Value::Integer(i64::from_str_radix(number.as_str(), number.radix()).ok())
        }
        DeValue::Float(_) => Value::Float,
        DeValue::Boolean(truth) => Value::Bool(truth),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(values) if depth <= DEPTH_MAX => {
            Value::List(values.into_iter().map(|value| node_of(value, depth + 1)).collect())
        }
        DeValue::Array(_) => Value::List(Vec::new()),
        DeValue::Table(table) => Value::Table(table_of(table, depth)),
    };
    Node { spot, value }
}

/// The text of the file `path`.
///
/// # Errors
/// When it is missing, no file, too large, or not UTF-8.
pub(super) fn read_file(path: &Path) -> Result<String, ConfigErrors> {
    let place = Place::File(path.display().to_string().into());
    let refused = |what: String| ConfigErrors::one(place.clone(), what);
    let unreadable = |why: std::io::Error| {
        let what = if why.kind() == ErrorKind::NotFound {
            "there is no such file; name one with `--config FILE`".to_owned()
        } else if why.kind() == ErrorKind::IsADirectory {
            "this is a directory; name the file in it".to_owned()
        } else {
            format!("the file cannot be read: {why}")
        };
        refused(what)
    };
    let file = File::open(path).map_err(unreadable)?;
    read_text(file, &place).map_err(|error| match error {
        Unread::Io(why) => unreadable(why),
        Unread::Refused(errors) => errors,
    })
}

/// Why there is no text.
pub(super) enum Unread {
    /// The machine says why.
    Io(std::io::Error),
    /// It is too large, or not UTF-8.
    Refused(ConfigErrors),
}

/// The text that `source` gives, which is called `place`.
///
/// # Errors
/// When it cannot be read, is too large, or not UTF-8.
pub(super) fn read_text(source: impl Read, place: &Place) -> Result<String, Unread> {
    let refused = |place: Place, what: String| Unread::Refused(ConfigErrors::one(place, what));
    let mut bytes = Vec::new();
    source.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Unread::Io)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let what = "the file has more than 4 MiB, which no configuration needs";
        return Err(refused(place.clone(), what.to_owned()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let lines = good.split(|byte| *byte == b'\n');
        let (line, last) = lines.zip(1..).last().map_or((1, 0), |(last, line)| (line, last.len()));
        let (Place::File(file) | Place::Variable(file) | Place::Line { file, .. }) = place else {
            return refused(place.clone(), "the text is not UTF-8".to_owned());
        };
        let place = Place::Line { file: Arc::clone(file), line, column: last + 1 };
        refused(place, "the file is not UTF-8".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Table, Problems) {
        let mut problems = Problems::of("a.toml", text.to_owned());
        (parse(&mut problems), problems)
    }

    #[test]
    fn every_value_has_its_spot_and_so_has_every_name() {
        let (table, problems) = parsed("[a]\n  b = [1, \"two\"]\n");
        let Value::Table(a) = &table.get("a").unwrap().value else { panic!("a table") };
        let (spot, node) = &a.rows["b"];
        assert_eq!(problems.place(spot).to_string(), "a.toml:2:3");
        let Value::List(list) = &node.value else { panic!("a list") };
        assert_eq!(problems.place(&list[1].spot).to_string(), "a.toml:2:11");
        assert!(problems.is_empty());
    }

    #[test]
    fn faults_of_syntax_are_told_with_their_lines() {
        let (_, problems) = parsed("a = 1\na = 2\nb = 30s\n[c\n");
        let told = problems.or(()).unwrap_err().to_string();
        let lines: Vec<_> = told.lines().collect();
        assert!(lines[0].starts_with("a.toml:2:1: not TOML: duplicate key"), "{told}");
        assert!(lines[1].starts_with("a.toml:3:5: not TOML: "), "{told}");
        assert!(lines[2].starts_with("a.toml:4:"), "{told}");
    }

    #[test]
    fn deep_nesting_is_refused_and_never_a_crash() {
        for (open, close) in [("[", "]"), ("{a=", "}")] {
            let deep = format!("a = {}1{}", open.repeat(50_000), close.repeat(50_000));
            assert!(!parsed(&deep).1.is_empty());
        }
        let dotted = format!("{}a = 1", "a.".repeat(50_000));
        assert!(!parsed(&dotted).1.is_empty());
        let steps = format!("{}a = ", "a.".repeat(79));
        let stairs = format!("{}1{}", format!("{steps}{{").repeat(79), "}".repeat(79));
        let _ = parsed(&stairs);
        let header = format!("[{}a]", "a.".repeat(50_000));
        assert!(!parsed(&header).1.is_empty());
    }

    #[test]
    fn a_file_of_faults_is_read_to_its_end_without_filling_the_memory() {
        let (table, problems) = parsed(&"= =\n".repeat(1_000_000));
        assert!(table.rows.is_empty());
        assert_eq!(problems.or(()).unwrap_err().problems.len(), 1);
    }

    #[test]
    fn a_variable_takes_the_place_of_what_the_file_says() {
        let (mut table, _) = parsed("[a]\nb = 1\n[c]\n");
        let variable: Arc<str> = "ONETAKE_A__B".into();
        table.put(&["a", "b"], &variable, "2");
        table.put(&["new", "deep", "x"], &variable, "3");
        let Value::Table(a) = &table.get("a").unwrap().value else { panic!("a table") };
        assert!(matches!(&a.get("b").unwrap().value, Value::Word(word) if word == "2"));
        assert!(table.get("new").is_some());
    }

    #[test]
    fn what_is_no_text_file_says_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let told = |path: &Path| read_file(path).unwrap_err().to_string();
        assert!(told(folder.path()).ends_with("this is a directory; name the file in it"));
        let path = folder.path().join("a.toml");
        assert!(told(&path).contains("there is no such file"));
        std::fs::write(&path, b"a = 1\n\xff\n").unwrap();
        assert!(told(&path).ends_with("a.toml:2:1: the file is not UTF-8"), "{}", told(&path));
        let long = vec![b'#'; usize::try_from(FILE_BYTES_MAX).unwrap() + 1];
        std::fs::write(&path, long).unwrap();
        assert!(told(&path).contains("more than 4 MiB"));
    }
}
