//! Conditions of edges: whether a run goes this way.
//!
//! Compares what a node came to with what was written. A path that leads nowhere is no error: it
//! is a value that is not there, which equals nothing and is false.

use std::fmt;

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use crate::expression::{Expression, ExpressionError};

/// How large a compiled pattern may get, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// A condition that can be read.
pub enum Condition {
    /// An expression.
    Expression(Expression),
    /// The value at a path, compared.
    Compared {
        /// The path.
        left: String,
        /// How.
        by: Comparison,
    },
}

/// How a value is compared.
pub enum Comparison {
    /// It is this.
    Equals(Value),
    /// It is not this.
    NotEquals(Value),
    /// It is a text, a list or an object that holds this.
    Contains(Value),
    /// It is a text in which this is found.
    Regex(Regex),
    /// It is there, and neither false, nor zero, nor empty text.
    Truthy,
    /// It is not.
    Falsy,
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expression(expression) => expression.fmt(f),
            Self::Compared { left, .. } => write!(f, "Condition(on {left:?})"),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "type")]
    kind: Kind,
    #[serde(default)]
    left: Option<String>,
    #[serde(default)]
    right: Value,
    #[serde(default)]
    expression: Option<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "camelCase")]
enum Kind {
    Expression,
    Equals,
    NotEquals,
    Contains,
    Regex,
    Truthy,
    Falsy,
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub fn of(written: Value) -> Result<Self, String> {
        let Written { kind, left, right, expression } =
            Written::deserialize(written).map_err(|error| error.to_string())?;
        if kind == Kind::Expression {
            let source = expression.ok_or("it is an expression, and there is none")?;
            let parsed = Expression::parse(&source).map_err(|error| error.to_string())?;
            return Ok(Self::Expression(parsed));
        }
        let left = left.ok_or("it compares, and says not what: `left` is missing")?;
        let by = match kind {
            Kind::Equals => Comparison::Equals(right),
            Kind::NotEquals => Comparison::NotEquals(right),
            Kind::Contains => Comparison::Contains(right),
            Kind::Regex => Comparison::Regex(pattern(&right)?),
            Kind::Falsy => Comparison::Falsy,
            Kind::Truthy | Kind::Expression => Comparison::Truthy,
        };
        Ok(Self::Compared { left, by })
    }

    /// Whether it holds, given these values by name. A path begins with one of the names, or goes
    /// into `output` and then into `variables`.
    ///
    /// # Errors
    /// An [`ExpressionError`] when an expression has no value.
    pub fn holds(&self, known: &[(&str, &Value)]) -> Result<bool, ExpressionError> {
        let (left, by) = match self {
            Self::Expression(expression) => return expression.holds(known),
            Self::Compared { left, by } => (left, by),
        };
        let found = find(left, known);
        Ok(match by {
            Comparison::Equals(right) => found == Some(right),
            Comparison::NotEquals(right) => found != Some(right),
            Comparison::Contains(right) => found.is_some_and(|found| contains(found, right)),
            Comparison::Regex(regex) => {
                found.and_then(Value::as_str).is_some_and(|text| regex.is_match(text))
            }
            Comparison::Truthy => found.is_some_and(is_truthy),
            Comparison::Falsy => !found.is_some_and(is_truthy),
        })
    }
}

fn pattern(right: &Value) -> Result<Regex, String> {
    let text = right.as_str().ok_or("a pattern is a text")?;
    let built = regex::RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build();
    built.map_err(|error| format!("the pattern cannot be read: {error}"))
}

/// The value at `path`.
fn find<'v>(path: &str, known: &[(&str, &'v Value)]) -> Option<&'v Value> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(a, b)| (a, Some(b)));
    if let Some((_, value)) = known.iter().find(|(name, _)| *name == first) {
        return rest.map_or(Some(*value), |rest| walk(value, rest));
    }
    let under = |name: &str| known.iter().find(|(known, _)| *known == name);
    let inside = |name| under(name).and_then(|(_, value)| walk(value, path));
    inside("output").or_else(|| inside("variables"))
}

fn walk<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, step| match value.as_array() {
        Some(items) => items.get(step.parse::<usize>().ok()?),
        None => value.get(step),
    })
}

fn contains(found: &Value, right: &Value) -> bool {
    match (found, right) {
        (Value::String(text), Value::String(part)) => text.contains(part.as_str()),
        (Value::Array(items), right) => items.contains(right),
        (Value::Object(members), Value::String(name)) => members.contains_key(name),
        _ => false,
    }
}

/// As those see it who write conditions in scripts.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64().is_some_and(|number| number != 0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_are_this_table() {
        let output =
            json!({"approved": true, "n": 0, "tags": ["a", "b"], "s": "abc", "o": {"k": 1}});
        let (variables, status) = (json!({"region": "eu"}), json!("completed"));
        let known = [("status", &status), ("output", &output), ("variables", &variables)];
        let table = [
            (json!({"type": "truthy", "left": "output.approved"}), true),
            (json!({"type": "truthy", "left": "approved"}), true),
            (json!({"type": "truthy", "left": "n"}), false),
            (json!({"type": "falsy", "left": "n", "right": 1}), true),
            (json!({"type": "falsy", "left": "not.there"}), true),
            (json!({"type": "equals", "left": "status", "right": "completed"}), true),
            (json!({"type": "equals", "left": "region", "right": "eu"}), true),
            (json!({"type": "equals", "left": "missing", "right": null}), false),
            (json!({"type": "notEquals", "left": "variables.region", "right": "us"}), true),
            (json!({"type": "contains", "left": "tags", "right": "b"}), true),
            (json!({"type": "contains", "left": "s", "right": "bc"}), true),
            (json!({"type": "contains", "left": "o", "right": "k"}), true),
            (json!({"type": "contains", "left": "n", "right": "k"}), false),
            (json!({"type": "regex", "left": "s", "right": "^a.c$"}), true),
            (json!({"type": "equals", "left": "tags.1", "right": "b"}), true),
            (json!({"type": "expression", "expression": "output.n == 0"}), true),
        ];
        for (written, expected) in table {
            let condition = Condition::of(written.clone()).unwrap();
            assert_eq!(condition.holds(&known), Ok(expected), "{written}");
        }
    }

    #[test]
    fn a_condition_that_cannot_be_read_is_refused() {
        for written in [
            json!({"type": "regex", "left": "a", "right": "("}),
            json!({"type": "regex", "left": "a", "right": 1}),
            json!({"type": "equals", "right": 1}),
            json!({"type": "expression"}),
            json!({"type": "expression", "expression": "1 +"}),
            json!({"type": "maybe", "left": "a"}),
            json!({"type": "truthy", "left": "a", "more": 1}),
        ] {
            assert!(Condition::of(written.clone()).is_err(), "{written}");
        }
    }
}
