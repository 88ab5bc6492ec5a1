//! One text for all JSON documents that mean the same.
//!
//! The form is RFC 8785 with one change: a number is written from its decimal value, never through
//! a binary float. So `1`, `1.0` and `1e0` are one number, and 2^53 and 2^53 + 1 are two. What has
//! no single meaning (a member name that occurs twice, text that is not JSON) is refused, never
//! repaired.
//!
//! Parsing uses events instead of recursion, and depth and size are bounded before anything is
//! built, so no document can exhaust the stack. Nothing here hashes; that is `fingerprint.rs`.

use std::borrow::Cow;
use std::cmp::Ordering;

use json_event_parser::{JsonEvent, SliceJsonParser};

use crate::Code;
use crate::number::canonical_number;
use crate::pointer::Pointer;

/// How much of a document the canonicaliser is willing to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonLimits {
    /// Arrays and objects inside one another, at most.
    pub depth_max: usize,
    /// Bytes of the document, at most.
    pub bytes_max: usize,
    /// Values in the document, at most: small ones cost far more than their bytes.
    pub values_max: usize,
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self { depth_max: 128, bytes_max: 10 * 1024 * 1024, values_max: 250_000 }
    }
}

/// Why a document has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CanonicalError {
    /// The text is not JSON as RFC 8259 defines it.
    #[error("the body is not JSON: {0}")]
    Syntax(String),
    /// An object has the same member name twice, so it has no single meaning.
    #[error("an object of the body has one member name twice; give each member once")]
    DuplicateMember,
    /// The document is nested more deeply than [`JsonLimits::depth_max`].
    #[error("the body is nested more than {0} levels deep")]
    TooDeep(usize),
    /// The document is larger than [`JsonLimits::bytes_max`].
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
    /// The document has more values than [`JsonLimits::values_max`].
    #[error("the body has more than {0} values")]
    TooMany(usize),
    /// A number's exponent is beyond any use.
    #[error("a number of the body has an exponent beyond ten to the twelfth")]
    Exponent,
}

impl CanonicalError {
    /// The stable code of this refusal.
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::BodyNotCanonical
    }
}

/// Writes the canonical form of `json`, without what `ignored` points at.
///
/// An ignored member is left out. An ignored array element becomes `null`, so that the number of
/// elements still counts. A pointer that leads nowhere changes nothing.
///
/// # Errors
/// A [`CanonicalError`] when the document has no single meaning or passes a limit.
pub fn canonical_json<'p>(
    json: &[u8],
    ignored: impl IntoIterator<Item = &'p Pointer>,
    limits: JsonLimits,
) -> Result<Vec<u8>, CanonicalError> {
    if json.len() > limits.bytes_max {
        return Err(CanonicalError::TooLarge(limits.bytes_max));
    }
    let mut document = parse(json, limits)?;
    for pointer in ignored {
        forget(&mut document, pointer);
    }
    let mut out = Vec::with_capacity(json.len());
    write(&mut out, &document);
    Ok(out)
}

/// A document with its members in canonical order. What needs no change is borrowed from the text.
enum Json<'a> {
    Null,
    Boolean(bool),
    /// Already canonical.
    Number(Cow<'a, str>),
    String(Cow<'a, str>),
    Array(Vec<Json<'a>>),
    Object(Vec<(Name<'a>, Json<'a>)>),
}

/// A member name, ordered by UTF-16 code units as RFC 8785 asks.
#[derive(PartialEq, Eq)]
struct Name<'a>(Cow<'a, str>);

impl Ord for Name<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        // Where both are ASCII the two orders are one, and bytes are quicker.
        if self.0.is_ascii() && other.0.is_ascii() {
            self.0.cmp(&other.0)
        } else {
            self.0.encode_utf16().cmp(other.0.encode_utf16())
        }
    }
}

impl PartialOrd for Name<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A container that is still open, and the name under which its parent will hold it.
struct Open<'a> {
    value: Json<'a>,
    name: Option<Name<'a>>,
}

fn parse(json: &[u8], limits: JsonLimits) -> Result<Json<'_>, CanonicalError> {
    let JsonLimits { depth_max, values_max, .. } = limits;
    let mut values = 0;
    let mut parser = SliceJsonParser::new(json);
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut name: Option<Name<'_>> = None;
    let mut document = Json::Null;
    loop {
        let event = parser.parse_next().map_err(|e| CanonicalError::Syntax(e.to_string()))?;
        let value = match event {
            JsonEvent::Eof => return Ok(document),
            JsonEvent::ObjectKey(text) => {
                name = Some(Name(text));
                continue;
            }
            JsonEvent::StartArray | JsonEvent::StartObject if open.len() >= depth_max => {
                return Err(CanonicalError::TooDeep(depth_max));
            }
            JsonEvent::StartArray => {
                open.push(Open { value: Json::Array(Vec::new()), name: name.take() });
                continue;
            }
            JsonEvent::StartObject => {
                open.push(Open { value: Json::Object(Vec::new()), name: name.take() });
                continue;
            }
            JsonEvent::EndArray | JsonEvent::EndObject => {
                let closed = open.pop().expect("invariant: the parser closes what it opened");
                name = closed.name;
                in_order(closed.value)?
            }
            JsonEvent::String(text) => Json::String(text),
            JsonEvent::Number(text) => Json::Number(canonical_number(text)?),
            JsonEvent::Boolean(value) => Json::Boolean(value),
            JsonEvent::Null => Json::Null,
        };
        values += 1;
        if values > values_max {
            return Err(CanonicalError::TooMany(values_max));
        }
        match open.last_mut() {
            Some(parent) => attach(&mut parent.value, name.take(), value),
            None => document = value,
        }
    }
}

/// Puts a finished value into the container that is open around it.
fn attach<'a>(parent: &mut Json<'a>, name: Option<Name<'a>>, value: Json<'a>) {
    match (parent, name) {
        (Json::Array(elements), None) => elements.push(value),
        (Json::Object(members), Some(name)) => members.push((name, value)),
        _ => unreachable!("invariant: members have names, elements have none"),
    }
}

/// Sorts the members of an object that is complete, and refuses a name that is there twice.
fn in_order(mut value: Json<'_>) -> Result<Json<'_>, CanonicalError> {
    if let Json::Object(members) = &mut value {
        members.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        if members.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(CanonicalError::DuplicateMember);
        }
    }
    Ok(value)
}

/// Takes out what `pointer` names, if the document has it.
fn forget(document: &mut Json<'_>, pointer: &Pointer) {
    let mut steps = pointer.steps().peekable();
    let mut at = document;
    while let Some(step) = steps.next() {
        let last = steps.peek().is_none();
        let next = match at {
            Json::Object(members) if last => {
                members.retain(|(name, _)| name.0 != step);
                return;
            }
            Json::Object(members) => {
                members.iter_mut().find_map(|(name, value)| (name.0 == step).then_some(value))
            }
            Json::Array(elements) => index(step).and_then(|index| elements.get_mut(index)),
            Json::Null | Json::Boolean(_) | Json::Number(_) | Json::String(_) => None,
        };
        match next {
            Some(value) if last => {
                *value = Json::Null;
                return;
            }
            Some(value) => at = value,
            None => return,
        }
    }
}

/// An array index of RFC 6901: digits without a leading zero.
fn index(step: &str) -> Option<usize> {
    let plain = step == "0" || !step.starts_with('0');
    (plain && step.bytes().all(|b| b.is_ascii_digit())).then(|| step.parse().ok()).flatten()
}

/// Recursion is safe here: `parse` has bounded the depth.
fn write(out: &mut Vec<u8>, value: &Json<'_>) {
    match value {
        Json::Null => out.extend_from_slice(b"null"),
        Json::Boolean(true) => out.extend_from_slice(b"true"),
        Json::Boolean(false) => out.extend_from_slice(b"false"),
        Json::Number(text) => out.extend_from_slice(text.as_bytes()),
        Json::String(text) => write_string(out, text),
        Json::Array(elements) => {
            out.push(b'[');
            for (position, element) in elements.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write(out, element);
            }
            out.push(b']');
        }
        Json::Object(members) => {
            out.push(b'{');
            for (position, (name, member)) in members.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_string(out, &name.0);
                out.push(b':');
                write(out, member);
            }
            out.push(b'}');
        }
    }
}

fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    // Most text has nothing to escape and is copied as it is.
    while let Some(at) = rest.iter().position(|byte| matches!(byte, 0x00..0x20 | b'"' | b'\\')) {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain);
        write_escape(out, special[0]);
        rest = &special[1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn write_escape(out: &mut Vec<u8>, byte: u8) {
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        0x08 => out.extend_from_slice(b"\\b"),
        b'\t' => out.extend_from_slice(b"\\t"),
        b'\n' => out.extend_from_slice(b"\\n"),
        0x0c => out.extend_from_slice(b"\\f"),
        b'\r' => out.extend_from_slice(b"\\r"),
        _ => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canon(json: &str) -> Result<String, CanonicalError> {
        ignoring(json, &[])
    }

    fn ignoring(json: &str, pointers: &[&str]) -> Result<String, CanonicalError> {
        let pointers: Vec<_> = pointers.iter().map(|p| Pointer::parse(p).unwrap()).collect();
        canonical_json(json.as_bytes(), &pointers, JsonLimits::default())
            .map(|bytes| String::from_utf8(bytes).unwrap())
    }

    /// D5
    #[test]
    fn d5_member_order_and_white_space_do_not_count_array_order_does() {
        assert_eq!(canon(r#"{"b":2,"a":1}"#), canon("{ \"a\" : 1.0,\n\"b\" : 2 }"));
        assert_eq!(canon(r#"{"b":2,"a":1}"#).unwrap(), r#"{"a":1,"b":2}"#);
        assert_ne!(canon("[1,2]"), canon("[2,1]"));
    }

    #[test]
    fn the_sample_of_rfc_8785_has_its_published_form() {
        let sample = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        // The first number keeps all its digits here; RFC 8785 would round it to a binary float.
        let expected = concat!(
            r#"{"literals":[null,true,false],"#,
            r#""numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],"#,
            r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
        );
        assert_eq!(canon(sample).unwrap(), expected);
    }

    #[test]
    fn members_are_ordered_by_utf_16_code_units() {
        // U+1F600 is a surrogate pair (0xD83D …), so it sorts before U+FB33 although its code point
        // is greater.
        let sorted = canon("{\"\u{fb33}\":1,\"\u{1f600}\":2,\"\u{20ac}\":3,\"1\":4}").unwrap();
        assert_eq!(sorted, "{\"1\":4,\"\u{20ac}\":3,\"\u{1f600}\":2,\"\u{fb33}\":1}");
    }

    #[test]
    fn numbers_count_by_decimal_value() {
        assert_eq!(canon("[1,1.0,1e0]").unwrap(), "[1,1,1]");
        assert_ne!(canon("9007199254740992"), canon("9007199254740993"));
    }

    #[test]
    fn one_member_name_twice_is_refused_also_when_escaped_or_ignored() {
        for twice in [r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":2}"#, r#"[{"x":{"a":1,"a":2}}]"#] {
            assert_eq!(canon(twice), Err(CanonicalError::DuplicateMember), "{twice}");
        }
        let ignored = ignoring(r#"{"t":1,"t":2}"#, &["/t"]);
        assert_eq!(ignored, Err(CanonicalError::DuplicateMember));
        assert!(canon(r#"[{"a":1},{"a":1}]"#).is_ok(), "two objects may have it once each");
    }

    #[test]
    fn ignored_fields_do_not_count_wherever_they_are() {
        let body = r#"{"id":7,"t":1,"items":[{"sku":"a","seen":2},{"sku":"b","seen":3}]}"#;
        let same = r#"{"items":[{"seen":9,"sku":"a"},{"sku":"b"}],"id":7}"#;
        let ignored = ["/t", "/items/0/seen", "/items/1/seen", "/not/there", "/id/deeper"];
        assert_eq!(ignoring(body, &ignored), ignoring(same, &ignored));
        assert_ne!(canon(body), canon(same));
    }

    #[test]
    fn an_ignored_element_still_counts_as_an_element() {
        assert_eq!(ignoring("[1,2]", &["/0"]).unwrap(), "[null,2]");
        assert_eq!(ignoring("[1,2]", &["/00"]).unwrap(), "[1,2]", "00 is not an index");
        assert_eq!(ignoring("[1,2]", &["/2", "/-", "/x"]).unwrap(), "[1,2]");
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for bad in ["", " ", "{", "[1,]", "{\"a\":1,}", "01", "1.", "+1", "nul", "'a'", "[1] 2"] {
            assert!(matches!(canon(bad), Err(CanonicalError::Syntax(_))), "{bad:?}");
        }
        for bytes in [&b"\"\xff\""[..], b"\"\\ud800\"", b"\"\x01\""] {
            let result = canonical_json(bytes, &[], JsonLimits::default());
            assert!(matches!(result, Err(CanonicalError::Syntax(_))), "{bytes:?}");
        }
        assert_eq!(canon("1e9999999999999").unwrap_err().code().as_str(), "body_not_canonical");
    }

    #[test]
    fn depth_and_size_are_bounded_and_20_000_levels_do_no_harm() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(canon(&nested(128)).is_ok());
        assert_eq!(canon(&nested(129)), Err(CanonicalError::TooDeep(128)));
        assert_eq!(canon(&nested(20_000)), Err(CanonicalError::TooDeep(128)));
        assert_eq!(canon(&"{\"a\":".repeat(20_000)), Err(CanonicalError::TooDeep(128)));
        let limits = JsonLimits { bytes_max: 4, ..JsonLimits::default() };
        assert_eq!(canonical_json(b"[1,2]", &[], limits), Err(CanonicalError::TooLarge(4)));
        let limits = JsonLimits { values_max: 3, ..JsonLimits::default() };
        assert!(canonical_json(b"[1,2]", &[], limits).is_ok(), "two numbers and their array");
        assert_eq!(canonical_json(b"[1,2,3]", &[], limits), Err(CanonicalError::TooMany(3)));
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            ".*".prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::btree_map(".*", inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_canonical_form_means_the_same_and_is_its_own_canonical_form(value in any_json()) {
            let text = serde_json::to_string_pretty(&value).unwrap();
            let once = canon(&text).unwrap();
            prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&once).unwrap(), &value);
            prop_assert_eq!(canon(&once).unwrap(), once);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = canonical_json(&bytes, &[], JsonLimits::default());
        }
    }
}
