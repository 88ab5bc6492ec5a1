//! Expressions of workflows: the Common Expression Language, over what a run knows.
//!
//! An expression is read once, when its workflow is loaded. It always ends, changes nothing and
//! reads nothing but the values that it is given. One that might take too long for the values that
//! it looks at has none: see `cost.rs`.

mod cost;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use cel::objects::{Key, Map as CelMap};
use cel::{Context, Program};
use serde_json::{Map, Number, Value};

/// The longest expression, in bytes.
const EXPRESSION_BYTES_MAX: usize = 8 * 1024;
/// The deepest value that an expression may look at.
const DEPTH_MAX: usize = 100;

/// An expression that can be read.
pub struct Expression {
    source: String,
    program: Program,
    /// What it looks at.
    names: Vec<String>,
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({:?})", self.source)
    }
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExpressionError(String);

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// An [`ExpressionError`] that says where it cannot be read.
    pub fn parse(source: &str) -> Result<Self, ExpressionError> {
        if source.len() > EXPRESSION_BYTES_MAX {
            let text = format!("an expression has more than {EXPRESSION_BYTES_MAX} bytes");
            return Err(ExpressionError(text));
        }
        let unread = |error: &dyn fmt::Display| {
            ExpressionError(format!("the expression {source:?} cannot be read: {error}"))
        };
        let program = Program::compile(source).map_err(|error| unread(&error))?;
        if cost::is_too_deep(program.expression()) {
            return Err(unread(&"it is nested too deep"));
        }
        let names = program.references().variables().into_iter().map(str::to_owned).collect();
        Ok(Self { source: source.to_owned(), program, names })
    }

    /// What it comes to, given these values by name.
    ///
    /// # Errors
    /// An [`ExpressionError`] when it names what is not there, does what cannot be done, or might
    /// take too long.
    pub fn evaluate(&self, known: &[(&str, &Value)]) -> Result<Value, ExpressionError> {
        let source = &self.source;
        let failed = |error: &dyn fmt::Display| {
            ExpressionError(format!("the expression {source:?} has no value: {error}"))
        };
        let mut context = Context::default();
        if cost::is_too_costly(self.program.expression(), known) {
            return Err(failed(&"it might take too long, or make too much, of what it looks at"));
        }
        let is_named = |name: &str| self.names.iter().any(|named| named == name);
        for (name, value) in known.iter().filter(|(name, _)| is_named(name)) {
            let value = to_cel(value, 0).map_err(|error| failed(&error))?;
            context.add_variable_from_value(*name, value);
        }
        let value = self.program.execute(&context).map_err(|error| failed(&error))?;
        value.json().map_err(|_| failed(&"it is nothing that JSON has a word for"))
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// An [`ExpressionError`] when it has no value, or one that is neither true nor false.
    pub fn holds(&self, known: &[(&str, &Value)]) -> Result<bool, ExpressionError> {
        let value = self.evaluate(known)?;
        value.as_bool().ok_or_else(|| {
            let source = &self.source;
            ExpressionError(format!("the expression {source:?} is neither true nor false"))
        })
    }
}

/// Whole numbers stay whole: an expression that compares `3` with one that came as JSON must not
/// have to know how that was read.
fn to_cel(value: &Value, depth: usize) -> Result<cel::Value, ExpressionError> {
    if depth > DEPTH_MAX {
        return Err(ExpressionError(format!("a value is nested more than {DEPTH_MAX} deep")));
    }
    Ok(match value {
        Value::Null => cel::Value::Null,
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Number(number) => number_to_cel(number),
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => {
            let items = items.iter().map(|item| to_cel(item, depth + 1)).collect::<Result<_, _>>();
            cel::Value::List(Arc::new(items?))
        }
        Value::Object(members) => cel::Value::Map(map_to_cel(members, depth + 1)?),
    })
}

fn number_to_cel(number: &Number) -> cel::Value {
    if let Some(whole) = number.as_i64() {
        cel::Value::Int(whole)
    } else if let Some(whole) = number.as_u64() {
        cel::Value::UInt(whole)
    } else {
        cel::Value::Float(number.as_f64().unwrap_or(f64::NAN))
    }
}

fn map_to_cel(members: &Map<String, Value>, depth: usize) -> Result<CelMap, ExpressionError> {
    let mut map: HashMap<Key, cel::Value> = HashMap::with_capacity(members.len());
    for (name, value) in members {
        map.insert(Key::String(Arc::new(name.clone())), to_cel(value, depth)?);
    }
    Ok(CelMap { map: Arc::new(map) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(source: &str, variables: &Value) -> Result<Value, String> {
        let expression = Expression::parse(source).map_err(|error| error.to_string())?;
        expression.evaluate(&[("variables", variables)]).map_err(|error| error.to_string())
    }

    #[test]
    fn expressions_read_what_a_run_knows() {
        let known = json!({"n": 3, "big": 9_007_199_254_740_993_u64, "f": 1.5, "s": "a",
            "list": [1, 2, 3], "deep": {"x": null}, "t": true});
        let table = [
            ("variables.n + 1", json!(4)),
            ("variables.n > 2 && variables.t", json!(true)),
            ("variables.big == 9007199254740993", json!(true)),
            ("variables.f * 2.0", json!(3.0)),
            ("variables.s + 'b'", json!("ab")),
            ("variables.list.map(x, x * 2)", json!([2, 4, 6])),
            ("variables.list.filter(x, x > 1)", json!([2, 3])),
            ("size(variables.list)", json!(3)),
            ("variables.deep.x == null", json!(true)),
            ("has(variables.deep.y)", json!(false)),
            ("{'a': variables.n, 'b': [variables.s]}", json!({"a": 3, "b": ["a"]})),
            ("variables.n > 2 ? 'many' : 'few'", json!("many")),
            ("variables.s.matches('^a$')", json!(true)),
        ];
        for (source, expected) in table {
            assert_eq!(value(source, &known), Ok(expected), "{source}");
        }
    }

    #[test]
    fn what_has_no_value_says_why_and_never_panics() {
        let known = json!({"n": 1});
        for source in ["1 +", "variables.missing", "nobody", "1 / 0", "variables.n + 'a'", "(("] {
            let error = value(source, &known).unwrap_err();
            assert!(error.contains("expression"), "{source}: {error}");
        }
        assert!(value(&"1+".repeat(10_000), &known).is_err());
        let mut deep = json!(1);
        for _ in 0..200 {
            deep = json!([deep]);
        }
        assert!(value("variables", &deep).unwrap_err().contains("nested"));
        let word = Expression::parse("1 + 1").unwrap();
        assert!(word.holds(&[]).unwrap_err().to_string().contains("neither true nor false"));
    }

    #[test]
    fn what_might_take_too_long_is_refused_before_it_begins() {
        let many = json!({"a": (0..5_000).collect::<Vec<_>>()});
        assert_eq!(value("size(variables.a.map(x, x + 1))", &many), Ok(json!(5_000)));
        let error = value("variables.a.all(x, variables.a.all(y, x != -y))", &many).unwrap_err();
        assert!(error.contains("too long"), "{error}");
        let error = value("variables.a.all(x, x in variables.a)", &many).unwrap_err();
        assert!(error.contains("too long"), "{error}");
        // What is not looked at counts for nothing.
        let few = json!([1, 2]);
        let expression = Expression::parse("inputs.all(x, inputs.all(y, x + y > 0))").unwrap();
        let held = expression.holds(&[("variables", &many), ("inputs", &few)]);
        assert_eq!(held, Ok(true));
    }

    #[test]
    fn the_same_values_always_give_the_same_result() {
        let known = json!({"m": {"b": 1, "a": 2, "c": 3}});
        let first = value("variables.m", &known);
        assert!((0..50).all(|_| value("variables.m", &known) == first));
    }
}
