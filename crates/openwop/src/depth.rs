//! How deep a value is: one that is deeper than readers go would be written and never read again.

use serde_json::{Map, Value};

/// The deepest value that a run takes. What is kept around it is a few levels more, and readers
/// stop at about a hundred and twenty.
pub(crate) const DEPTH_MAX: usize = 64;

/// Whether `value` is deeper than a run takes.
pub(crate) fn is_too_deep(value: &Value) -> bool {
    exceeds(value, DEPTH_MAX)
}

/// Whether one of `members` is.
pub(crate) fn are_too_deep(members: &Map<String, Value>) -> bool {
    members.values().any(is_too_deep)
}

/// Never deeper itself than `levels`.
fn exceeds(value: &Value, levels: usize) -> bool {
    let mut inside: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(members) => Box::new(members.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return false,
    };
    levels == 0 || inside.any(|value| exceeds(value, levels - 1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_deeper_than_a_run_takes_is_known() {
        let mut value = json!(1);
        for depth in 1..=200 {
            value = if depth % 2 == 0 { json!([value]) } else { json!({"x": value}) };
            assert_eq!(is_too_deep(&value), depth > DEPTH_MAX, "{depth}");
        }
        assert!(!is_too_deep(&json!("flat")));
    }
}
