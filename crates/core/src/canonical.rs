//! One text for all JSON documents that mean the same.
//!
//! The form is RFC 8785 with one change: a number is written from its decimal value, never through
//! a binary float. So `1`, `1.0` and `1e0` are one number, and 2^53 and 2^53 + 1 are two. What has
//! no single meaning (a member name that occurs twice, text that is not JSON) is refused, never
//! repaired.
//!
//! How a document is read is `canonical/read.rs`; nothing here hashes, that is `fingerprint.rs`.

mod read;

use std::borrow::Cow;
use std::cmp::Ordering;

use self::read::{Document, Item, Json, read};
use crate::Code;
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
    let mut document = read(json, limits)?;
    for pointer in ignored {
        forget(&mut document, pointer);
    }
    let mut out = Vec::with_capacity(json.len());
    write(&mut out, &document.items, &document.root);
    Ok(out)
}

/// A member name, ordered by UTF-16 code units as RFC 8785 asks.
#[derive(Debug, PartialEq, Eq)]
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

/// Takes out what `pointer` names, if the document has it.
fn forget(document: &mut Document<'_>, pointer: &Pointer) {
    let Document { items, root } = document;
    let mut inside = match root {
        Json::Array(inside) | Json::Object(inside) => inside.clone(),
        Json::Absent | Json::Null | Json::Boolean(_) | Json::Number(_) | Json::String(_) => return,
    };
    let mut is_object = matches!(root, Json::Object(_));
    let mut steps = pointer.steps().peekable();
    while let Some(step) = steps.next() {
        let there = &mut items[inside];
        let found = if is_object {
            there.iter_mut().find(|item| item.name.as_ref().is_some_and(|name| name.0 == step))
        } else {
            index(step).and_then(|index| there.get_mut(index))
        };
        let Some(found) = found else { return };
        if steps.peek().is_none() {
            found.value = if is_object { Json::Absent } else { Json::Null };
            return;
        }
        (inside, is_object) = match &found.value {
            Json::Array(inside) => (inside.clone(), false),
            Json::Object(inside) => (inside.clone(), true),
            Json::Absent | Json::Null | Json::Boolean(_) | Json::Number(_) | Json::String(_) => {
                return;
            }
        };
    }
}

/// An array index of RFC 6901: digits without a leading zero.
fn index(step: &str) -> Option<usize> {
    let plain = step == "0" || !step.starts_with('0');
    (plain && step.bytes().all(|b| b.is_ascii_digit())).then(|| step.parse().ok()).flatten()
}

/// Recursion is safe here: `read` has bounded the depth.
fn write(out: &mut Vec<u8>, items: &[Item<'_>], value: &Json<'_>) {
    match value {
        Json::Absent | Json::Null => out.extend_from_slice(b"null"),
        Json::Boolean(true) => out.extend_from_slice(b"true"),
        Json::Boolean(false) => out.extend_from_slice(b"false"),
        Json::Number(text) => out.extend_from_slice(text.as_bytes()),
        Json::String(text) => write_string(out, text),
        Json::Array(inside) => {
            out.push(b'[');
            for (position, element) in items[inside.clone()].iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write(out, items, &element.value);
            }
            out.push(b']');
        }
        Json::Object(inside) => {
            out.push(b'{');
            let members = items[inside.clone()].iter();
            let there = members.filter(|member| !matches!(member.value, Json::Absent));
            for (position, member) in there.enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                let name = member.name.as_ref().expect("invariant: a member has a name");
                write_string(out, &name.0);
                out.push(b':');
                write(out, items, &member.value);
            }
            out.push(b'}');
        }
    }
}

#[allow(clippy::ptr_arg, reason = "whether it is borrowed says what it is")]
fn write_string(out: &mut Vec<u8>, text: &Cow<'_, str>) {
    out.push(b'"');
    match text {
        // As it stood between quotes, without an escape: nothing in it needs one.
        Cow::Borrowed(text) => out.extend_from_slice(text.as_bytes()),
        Cow::Owned(text) => write_escaped(out, text),
    }
    out.push(b'"');
}

fn write_escaped(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| matches!(byte, 0x00..0x20 | b'"' | b'\\')) {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain);
        write_escape(out, special[0]);
        rest = &special[1..];
    }
    out.extend_from_slice(rest);
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
