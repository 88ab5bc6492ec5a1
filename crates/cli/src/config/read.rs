//! From what was written to typed options: names that are known, values that can be read.
//!
//! Every option is declared once, with [`options!`]: how it is read, what it means, what holds
//! when it is not given. The schema, the list of variables and the documentation are made from the
//! same declaration, so that they cannot differ from what is read. No rule between two options is
//! here.

use serde_json::{Value as Json, json};

use super::problem::{Problems, Spot, nearest, quoted};
use super::tree::{Node, Table, Value};

/// The most values of one list.
pub(super) const LIST_MAX: usize = 1_000;

/// A value that was read, with where it was given.
#[derive(Debug, Clone)]
pub(super) struct Given<T> {
    /// The value.
    pub(super) value: T,
    /// Where.
    pub(super) spot: Spot,
    /// The path of the option.
    pub(super) option: String,
}

impl<T> Given<T> {
    /// The same place with another value.
    pub(super) fn with<U>(&self, value: U) -> Given<U> {
        Given { value, spot: self.spot.clone(), option: self.option.clone() }
    }

    /// Says what is wrong with the value.
    pub(super) fn refuse(&self, problems: &mut Problems, what: impl std::fmt::Display) {
        problems.value(&self.spot, &self.option, what);
    }
}

/// The value of an option that has a built-in one.
pub(super) fn sure<T>(given: Option<Given<T>>) -> Given<T> {
    given.expect("invariant: this option is declared with what holds when it is not given")
}

/// What a value of an option can be.
pub(super) trait Read: Sized {
    /// What is expected, for a problem: `a duration such as "30s"`.
    fn expected() -> String;

    /// Reads the value of `option`, or says what is wrong with it.
    fn read(node: &Node, option: &str, problems: &mut Problems) -> Option<Self>;

    /// The JSON schema of the value.
    fn schema() -> Json;

    /// The options inside, where the value is a table.
    fn inside() -> &'static [Known] {
        &[]
    }

    /// Whether a variable of the environment can give it.
    fn fits_a_variable() -> bool {
        true
    }
}

/// Says that `node` is of another kind than is expected.
pub(super) fn other_kind<T: Read>(node: &Node, option: &str, problems: &mut Problems) -> Option<T> {
    let what = format!("expected {}, found {}", T::expected(), node.value.name());
    problems.value(&node.spot, option, what);
    None
}

/// A value that is written as text.
pub(super) trait FromText: Sized {
    /// What is expected, for a problem.
    const EXPECTED: &'static str;

    /// Reads `text`, or says why not. Quotes nothing that could be a secret.
    fn from_text(text: &str) -> Result<Self, String>;

    /// More for the schema than that it is text.
    fn refine(schema: &mut Json) {
        let _ = schema;
    }
}

impl<T: FromText> Read for T {
    fn expected() -> String {
        T::EXPECTED.to_owned()
    }

    fn read(node: &Node, option: &str, problems: &mut Problems) -> Option<Self> {
        let (Value::Text(text) | Value::Word(text)) = &node.value else {
            return other_kind(node, option, problems);
        };
        let read = T::from_text(text);
        read.map_err(|what| problems.value(&node.spot, option, what)).ok()
    }

    fn schema() -> Json {
        let mut schema = json!({ "type": "string" });
        T::refine(&mut schema);
        schema
    }
}

impl Read for bool {
    fn expected() -> String {
        "true or false".to_owned()
    }

    fn read(node: &Node, option: &str, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Bool(truth) => Some(*truth),
            Value::Word(word) if word == "true" => Some(true),
            Value::Word(word) if word == "false" => Some(false),
            Value::Word(word) => {
                let what = format!("{} is neither true nor false", quoted(word));
                problems.value(&node.spot, option, what);
                None
            }
            Value::Text(_)
            | Value::Integer(_)
            | Value::Float
            | Value::Date(_)
            | Value::List(_)
            | Value::Table(_) => other_kind(node, option, problems),
        }
    }

    fn schema() -> Json {
        json!({ "type": "boolean" })
    }
}

/// A whole number, zero or more.
impl Read for u64 {
    fn expected() -> String {
        "a whole number".to_owned()
    }

    fn read(node: &Node, option: &str, problems: &mut Problems) -> Option<Self> {
        let number = match &node.value {
            Value::Integer(number) => number.and_then(|number| u64::try_from(number).ok()),
            Value::Word(word) => word.replace('_', "").parse().ok(),
            Value::Text(_)
            | Value::Float
            | Value::Bool(_)
            | Value::Date(_)
            | Value::List(_)
            | Value::Table(_) => return other_kind(node, option, problems),
        };
        if number.is_none() {
            problems.value(&node.spot, option, "expected a whole number, zero or more");
        }
        number
    }

    fn schema() -> Json {
        json!({ "type": "integer", "minimum": 0 })
    }
}

/// Values in brackets; in a variable, with commas between them.
impl<T: Read> Read for Vec<T> {
    fn expected() -> String {
        format!("a list, each value {}", T::expected())
    }

    fn read(node: &Node, option: &str, problems: &mut Problems) -> Option<Self> {
        let words: Vec<Node>;
        let nodes = match &node.value {
            Value::List(nodes) => nodes,
            Value::Word(word) => {
                let each = |word: &str| {
                    let value = Value::Word(word.trim().to_owned());
                    Node { spot: node.spot.clone(), value }
                };
                words = word.split(',').map(each).collect();
                &words
            }
            Value::Text(_)
            | Value::Integer(_)
            | Value::Float
            | Value::Bool(_)
            | Value::Date(_)
            | Value::Table(_) => return other_kind(node, option, problems),
        };
        if nodes.len() > LIST_MAX {
            let what = format!("{} values; at most {LIST_MAX} are allowed", nodes.len());
            problems.value(&node.spot, option, what);
            return None;
        }
        let read = |(at, node)| T::read(node, &format!("{option}[{at}]"), problems);
        let values: Vec<Option<T>> = nodes.iter().enumerate().map(read).collect();
        values.into_iter().collect()
    }

    fn schema() -> Json {
        json!({ "type": "array", "items": T::schema(), "maxItems": LIST_MAX })
    }

    fn inside() -> &'static [Known] {
        T::inside()
    }

    fn fits_a_variable() -> bool {
        T::inside().is_empty()
    }
}

/// A value with its own place, for lists whose values are judged one by one.
impl<T: Read> Read for Given<T> {
    fn expected() -> String {
        T::expected()
    }

    fn read(node: &Node, option: &str, problems: &mut Problems) -> Option<Self> {
        let value = T::read(node, option, problems)?;
        Some(Self { value, spot: node.spot.clone(), option: option.to_owned() })
    }

    fn schema() -> Json {
        T::schema()
    }

    fn inside() -> &'static [Known] {
        T::inside()
    }

    fn fits_a_variable() -> bool {
        T::fits_a_variable()
    }
}

/// One option, as it is declared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// Its name.
    pub(super) name: &'static str,
    /// What it means, in one sentence.
    pub(super) about: &'static [&'static str],
    /// What holds when it is not given, in TOML.
    pub(super) built_in: Option<&'static str>,
    /// What is expected.
    #[cfg(test)]
    pub(super) expected: fn() -> String,
    /// The schema of its value.
    pub(super) schema: fn() -> Json,
    /// The options inside, where it is a table.
    pub(super) inside: fn() -> &'static [Known],
    /// Whether a variable can give it.
    pub(super) fits_a_variable: fn() -> bool,
}

impl Known {
    /// What it means, on one line.
    pub(super) fn meaning(&self) -> String {
        self.about.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }
}

/// The options of one table.
pub(super) trait Options: Sized {
    /// Each of them.
    const KNOWN: &'static [Known];

    /// Reads those that are given; the path of each begins with `prefix`.
    fn take(table: &Table, prefix: &str, problems: &mut Problems) -> Self;

    /// These, and what is not given from `below`.
    fn or(self, below: Self) -> Self;

    /// The names of those that are given, each with its place.
    fn given(&self) -> Vec<Given<&'static str>>;

    /// What holds when nothing is given.
    fn built_in() -> Self {
        let lines = Self::KNOWN
            .iter()
            .filter_map(|known| known.built_in.map(|value| format!("{} = {value}\n", known.name)));
        let mut problems = Problems::of("built in", lines.collect());
        let mut table = super::tree::parse(&mut problems);
        for (spot, node) in table.rows.values_mut() {
            (*spot, node.spot) = (Spot::BuiltIn, Spot::BuiltIn);
        }
        let built_in = Self::take(&table, "built in", &mut problems);
        debug_assert!(problems.is_empty(), "invariant: what is built in can be read: {problems:?}");
        built_in
    }
}

/// Reads the table `node` with the options of `T` and no others.
pub(super) fn read_table<T: Options>(
    node: &Node,
    option: &str,
    problems: &mut Problems,
) -> Option<T> {
    let Value::Table(table) = &node.value else {
        let what = format!("expected a table, found {}", node.value.name());
        problems.value(&node.spot, option, what);
        return None;
    };
    refuse_unknown(table, option, &T::KNOWN.iter(), problems);
    Some(T::take(table, option, problems))
}

/// Refuses every name of `table` that is not `known`.
pub(super) fn refuse_unknown<'a>(
    table: &Table,
    option: &str,
    known: &(impl Iterator<Item = &'a Known> + Clone),
    problems: &mut Problems,
) {
    for (name, (spot, _)) in &table.rows {
        let names = known.clone().map(|known| known.name);
        if names.clone().any(|known| known == name) {
            continue;
        }
        if problems.is_full() {
            problems.count_only();
            continue;
        }
        let what = format!("unknown option {} in {}", quoted(name), header(option));
        problems.unknown(spot, &format!("{option}.{name}"), what, nearest(name, names));
    }
}

/// How a table is headed in a file: `[defaults]`, `[[route]]`.
fn header(option: &str) -> String {
    match option.split_once('[') {
        Some((name, index)) if !index.contains('.') => format!("[[{name}]]"),
        Some(_) | None => format!("[{option}]"),
    }
}

/// The schema of a table with these options and no others.
pub(super) fn schema_of<'a>(known: impl Iterator<Item = &'a Known>) -> Json {
    let property = |known: &Known| {
        let mut schema = (known.schema)();
        schema["description"] = known.meaning().into();
        if let Some(value) = known.built_in {
            schema["default"] = built_in_json(value);
        }
        (known.name.to_owned(), schema)
    };
    let properties: serde_json::Map<String, Json> = known.map(property).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// What is built in, as JSON: text, numbers, truths and lists are written as in TOML.
fn built_in_json(value: &str) -> Json {
    let plain = value.replace('_', "");
    let json = serde_json::from_str(value).or_else(|_| serde_json::from_str(&plain));
    json.expect("invariant: what is built in is written alike in TOML and JSON")
}

/// Declares the options of one table: `name: Type` or `name: Type = "TOML"`, where the text is what
/// holds when the option is not given.
macro_rules! options {
    ($(#[doc = $about:literal])+ $table:ident {
        $($(#[doc = $doc:literal])+ $name:ident : $kind:ty $(= $built_in:literal)?,)+
    }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Default)]
        pub(super) struct $table {
            $($(#[doc = $doc])+ pub(super) $name: Option<$crate::config::read::Given<$kind>>,)+
        }

        impl $crate::config::read::Options for $table {
            const KNOWN: &'static [$crate::config::read::Known] = &[
                $($crate::config::read::Known {
                    name: $crate::config::read::plain(stringify!($name)),
                    about: &[$($doc),+],
                    built_in: [$(Some($built_in),)? None][0],
                    #[cfg(test)]
                    expected: <$kind as $crate::config::read::Read>::expected,
                    schema: <$kind as $crate::config::read::Read>::schema,
                    inside: <$kind as $crate::config::read::Read>::inside,
                    fits_a_variable: <$kind as $crate::config::read::Read>::fits_a_variable,
                },)+
            ];

            fn take(
                table: &$crate::config::tree::Table,
                prefix: &str,
                problems: &mut $crate::config::problem::Problems,
            ) -> Self {
                Self { $($name: {
                    let name = $crate::config::read::plain(stringify!($name));
                    $crate::config::read::take(table, prefix, name, problems)
                },)+ }
            }

            fn or(self, below: Self) -> Self {
                Self { $($name: self.$name.or(below.$name),)+ }
            }

            fn given(&self) -> Vec<$crate::config::read::Given<&'static str>> {
                let all = [$(self.$name.as_ref().map(|given| {
                    given.with($crate::config::read::plain(stringify!($name)))
                }),)+];
                let given = all.into_iter().flatten();
                given.filter(|given| given.spot != $crate::config::problem::Spot::BuiltIn).collect()
            }
        }
    };
}
pub(super) use options;

/// Declares that a table of options may stand where a value is expected.
macro_rules! table_as_value {
    ($($table:ident),+) => {$(
        impl $crate::config::read::Read for $table {
            fn expected() -> String {
                "a table".to_owned()
            }

            fn read(
                node: &$crate::config::tree::Node,
                option: &str,
                problems: &mut $crate::config::problem::Problems,
            ) -> Option<Self> {
                $crate::config::read::read_table(node, option, problems)
            }

            fn schema() -> serde_json::Value {
                use $crate::config::read::Options;
                $crate::config::read::schema_of(Self::KNOWN.iter())
            }

            fn inside() -> &'static [$crate::config::read::Known] {
                use $crate::config::read::Options;
                Self::KNOWN
            }
        }
    )+};
}
pub(super) use table_as_value;

/// The name of an option: Rust marks those that are words of its own.
pub(super) const fn plain(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

/// The option `name` of `table`, where it is given and can be read.
pub(super) fn take<T: Read>(
    table: &Table,
    prefix: &str,
    name: &str,
    problems: &mut Problems,
) -> Option<Given<T>> {
    let node = table.get(name)?;
    Given::read(node, &format!("{prefix}.{name}"), problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    options! {
        /// A table for tests.
        Sample {
            /// Is it
            /// on?
            on: bool = "true",
            /// How many.
            r#match: u64 = "10_000",
            /// Some.
            some: Vec<u64>,
        }
    }
    table_as_value!(Sample);

    fn read(text: &str) -> (Option<Sample>, String) {
        let mut problems = Problems::of("a.toml", text.to_owned());
        let table = super::super::tree::parse(&mut problems);
        let sample = table.get("s").and_then(|node| Sample::read(node, "s", &mut problems));
        (sample, problems.or(()).map_or_else(|errors| errors.to_string(), |()| String::new()))
    }

    #[test]
    fn what_is_given_holds_and_what_is_not_is_built_in() {
        let (sample, told) = read("[s]\nmatch = 7\n");
        assert_eq!(told, "");
        let sample = sample.unwrap().or(Sample::built_in());
        let given: Vec<_> = sample.given().into_iter().map(|given| given.value).collect();
        assert_eq!(given, ["match"]);
        assert_eq!((sure(sample.on).value, sure(sample.r#match).value), (true, 7));
        assert!(sample.some.is_none());
    }

    #[test]
    fn every_wrong_value_and_name_is_told_at_its_place() {
        let (_, told) = read("[s]\non = 1\nmatch = -1\nsoem = [1]\nsome = [1, \"x\", 1.5]\n");
        let expected = "\
a.toml:2:6: s.on: expected true or false, found a whole number
a.toml:3:9: s.match: expected a whole number, zero or more
a.toml:4:1: unknown option `soem` in [s]; did you mean `some`?
a.toml:5:12: s.some[1]: expected a whole number, found text
a.toml:5:17: s.some[2]: expected a whole number, found a number";
        assert_eq!(told, expected);
        assert_eq!(read("s = 1\n").1, "a.toml:1:5: s: expected a table, found a whole number");
    }

    #[test]
    fn the_schema_is_made_of_the_declaration() {
        let expected = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "on": { "type": "boolean", "description": "Is it on?", "default": true },
                "match": {
                    "type": "integer", "minimum": 0, "description": "How many.", "default": 10_000
                },
                "some": {
                    "type": "array", "maxItems": 1_000, "description": "Some.",
                    "items": { "type": "integer", "minimum": 0 }
                },
            },
        });
        assert_eq!(Sample::schema(), expected);
    }

    #[test]
    fn a_list_has_an_end() {
        let many = format!("[s]\nsome = [{}]\n", "1,".repeat(LIST_MAX + 1));
        assert_eq!(read(&many).1, "a.toml:2:8: s.some: 1001 values; at most 1000 are allowed");
    }
}
