//! The JSON schema of the configuration, made from the declaration of the options.
//!
//! For editors and for machines that write configurations. What it cannot say (bounds of durations,
//! rules between options) `onetake check` says.

use serde_json::{Map, Value as Json, json};

use super::raw::SECTIONS;
use super::read::schema_of;

/// The schema, draft 2020-12.
pub(crate) fn schema() -> Json {
    let section = |section: &super::raw::Section| {
        let mut schema = schema_of(section.known());
        if !section.needs.is_empty() {
            schema["required"] = json!(section.needs);
        }
        if section.repeats {
            schema = json!({ "type": "array", "items": schema });
        }
        schema["description"] = section.about.into();
        (section.name.to_owned(), schema)
    };
    let properties: Map<String, Json> = SECTIONS.iter().map(section).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "onetake.toml",
        "description": "The configuration of Onetake.",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}
