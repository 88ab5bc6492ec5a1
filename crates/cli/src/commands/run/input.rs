//! The inputs of a run, from what was typed.

use std::fs;
use std::io::{Read, stdin};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

use crate::exit::Fault;

/// The object that was given whole, and the single ones over it.
///
/// # Errors
/// When one is no `name=value`, the whole is no JSON object, or the file cannot be read.
pub(super) fn read(
    single: &[String],
    whole: Option<&str>,
    file: Option<&PathBuf>,
) -> Result<Map<String, Value>> {
    let text = match (whole, file) {
        (Some(text), _) => Some(text.to_owned()),
        (None, Some(path)) if path.as_os_str() == "-" => {
            let mut text = String::new();
            stdin().read_to_string(&mut text).context("cannot read standard input")?;
            Some(text)
        }
        (None, Some(path)) => {
            let read = fs::read_to_string(path);
            Some(read.with_context(|| format!("cannot read {}", path.display()))?)
        }
        (None, None) => None,
    };
    let mut inputs = match text {
        Some(text) => serde_json::from_str::<Map<String, Value>>(&text).map_err(|why| {
            // Not quoted: inputs may be nobody else's business.
            let (line, column) = (why.line(), why.column());
            let place = format!("line {line}, column {column}");
            Fault::Usage(format!("the inputs are no JSON object: look at {place}"))
        })?,
        None => Map::new(),
    };
    for text in single {
        let (name, value) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| Fault::Usage("an input reads `name=value`".to_owned()))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        inputs.insert(name.to_owned(), value);
    }
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_input_is_json_or_text_and_goes_over_the_whole() {
        let single = ["a=1", "b=ann", "c=\"1\"", "d=x=y", "e=", "f=[1,2]"].map(str::to_owned);
        let inputs = read(&single, Some(r#"{"a": 0, "z": null}"#), None).unwrap();
        let expected = json!({
            "a": 1, "b": "ann", "c": "1", "d": "x=y", "e": "", "f": [1, 2], "z": null,
        });
        assert_eq!(Value::Object(inputs), expected);
    }

    #[test]
    fn what_is_no_input_is_refused_without_being_shown() {
        for bad in ["secret", "=secret"] {
            let refused = read(&[bad.to_owned()], None, None).unwrap_err();
            assert!(!refused.to_string().contains("secret"), "{refused}");
        }
        for bad in ["[\"secret\"]", "secret", "{\"secret\""] {
            let refused = read(&[], Some(bad), None).unwrap_err();
            assert!(!refused.to_string().contains("secret"), "{refused}");
        }
    }
}
