//! From the text of a JSON document to its values, in one pass.
//!
//! It takes what RFC 8259 calls JSON and nothing else, behind a byte order mark if there is one. It
//! does not call itself, and depth and number of values are bounded before anything is built, so no
//! document can exhaust the stack. What needs no change is borrowed from the text. Every new
//! request is read here, which is why it is written by hand: a general parser took longer than all
//! hashing of a request.
//!
//! Values lie side by side in one list, those of a container next to each other: a document is two
//! lists, however many arrays and objects it has.

use std::borrow::Cow;
use std::ops::Range;

use super::{CanonicalError, JsonLimits, Name};
use crate::number::canonical_number;

/// A byte order mark: some senders put one before their text.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// For how many values there is room from the beginning.
const USUAL: usize = 16;

/// One value. Those inside it lie in the list of its document.
#[derive(Debug)]
pub(super) enum Json<'a> {
    /// It was taken out.
    Absent,
    Null,
    Boolean(bool),
    /// Already canonical.
    Number(Cow<'a, str>),
    String(Cow<'a, str>),
    Array(Range<usize>),
    /// Its members, in canonical order.
    Object(Range<usize>),
}

/// A value in its container, with its name if that is an object.
#[derive(Debug)]
pub(super) struct Item<'a> {
    pub(super) name: Option<Name<'a>>,
    pub(super) value: Json<'a>,
}

/// A whole document.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pub(super) items: Vec<Item<'a>>,
    pub(super) root: Json<'a>,
}

/// A container that is not closed yet.
struct Open<'a> {
    is_object: bool,
    /// The name under which its parent will hold it.
    name: Option<Name<'a>>,
    /// Where those inside it begin among those that wait.
    begins: usize,
}

/// Reads a document.
pub(super) fn read(json: &[u8], limits: JsonLimits) -> Result<Document<'_>, CanonicalError> {
    let json = json.strip_prefix(MARK).unwrap_or(json);
    let text = std::str::from_utf8(json)
        .map_err(|error| syntax("bytes that are not UTF-8", error.valid_up_to()))?;
    let mut reader = Reader { text, at: 0 };
    let mut document = Document { items: Vec::with_capacity(USUAL), root: Json::Null };
    // Those whose container is still open, in the order in which they came.
    let (mut waiting, mut open) = (Vec::<Item<'_>>::with_capacity(USUAL), Vec::<Open<'_>>::new());
    let (mut name, mut values) = (None, 0);
    loop {
        let value = match reader.peek() {
            Some(first @ (b'{' | b'[')) => {
                if open.len() >= limits.depth_max {
                    return Err(CanonicalError::TooDeep(limits.depth_max));
                }
                reader.at += 1;
                let is_object = first == b'{';
                let begins = waiting.len();
                open.push(Open { is_object, name: name.take(), begins });
                if !reader.takes(if is_object { b'}' } else { b']' }) {
                    if is_object {
                        name = Some(reader.name()?);
                    }
                    continue;
                }
                let closed = open.pop().expect("invariant: it was just opened");
                name = closed.name;
                if is_object { Json::Object(0..0) } else { Json::Array(0..0) }
            }
            Some(first) => reader.scalar(first)?,
            None => return Err(syntax("the end where a value should be", reader.at)),
        };
        let mut ended = Item { name: name.take(), value };
        // Whatever ends may be the last of its container, and that of its own.
        loop {
            values += 1;
            if values > limits.values_max {
                return Err(CanonicalError::TooMany(limits.values_max));
            }
            let Some(parent) = open.last() else {
                return match reader.peek() {
                    None => Ok(Document { root: ended.value, ..document }),
                    Some(_) => Err(reader.unexpected("the end")),
                };
            };
            let is_object = parent.is_object;
            waiting.push(ended);
            if reader.takes(b',') {
                if is_object {
                    name = Some(reader.name()?);
                }
                break;
            }
            if !reader.takes(if is_object { b'}' } else { b']' }) {
                return Err(reader.unexpected(if is_object { "`,` or `}`" } else { "`,` or `]`" }));
            }
            let closed = open.pop().expect("invariant: there is one");
            ended = Item { name: closed.name, value: Json::Null };
            if is_object {
                in_order(&mut waiting[closed.begins..])?;
            }
            let first = document.items.len();
            document.items.extend(waiting.drain(closed.begins..));
            let inside = first..document.items.len();
            ended.value = if is_object { Json::Object(inside) } else { Json::Array(inside) };
        }
    }
}

/// Sorts the members of an object that is complete, and refuses a name that is there twice.
fn in_order(members: &mut [Item<'_>]) -> Result<(), CanonicalError> {
    let is_rising = |pair: &[Item<'_>]| pair[0].name < pair[1].name;
    if members.windows(2).all(is_rising) {
        return Ok(());
    }
    members.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    if members.windows(2).all(is_rising) { Ok(()) } else { Err(CanonicalError::DuplicateMember) }
}

fn syntax(what: &str, at: usize) -> CanonicalError {
    CanonicalError::Syntax(format!("{what}, at byte {at}"))
}

/// A place in the text of a document.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let next = self.next();
            if !matches!(next, Some(b' ' | b'\t' | b'\n' | b'\r')) {
                return next;
            }
            self.at += 1;
        }
    }

    /// Goes past `byte`, if it comes next.
    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn unexpected(&self, wanted: &str) -> CanonicalError {
        syntax(&format!("something else than {wanted}"), self.at)
    }

    /// A value that holds no others and begins with `first`.
    fn scalar(&mut self, first: u8) -> Result<Json<'a>, CanonicalError> {
        match first {
            b'"' => self.string().map(Json::String),
            b'-' | b'0'..=b'9' => canonical_number(self.number()?.into()).map(Json::Number),
            b't' => self.word("true", Json::Boolean(true)),
            b'f' => self.word("false", Json::Boolean(false)),
            b'n' => self.word("null", Json::Null),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn word(&mut self, word: &str, value: Json<'a>) -> Result<Json<'a>, CanonicalError> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.unexpected("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    /// The name of a member, up to its value.
    fn name(&mut self) -> Result<Name<'a>, CanonicalError> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("the name of a member"));
        }
        let name = Name(self.string()?);
        if self.takes(b':') { Ok(name) } else { Err(self.unexpected("`:`")) }
    }

    fn digits(&mut self) -> usize {
        let begins = self.at;
        while self.next().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - begins
    }

    fn number(&mut self) -> Result<&'a str, CanonicalError> {
        let begins = self.at;
        self.at += usize::from(self.next() == Some(b'-'));
        let leads_with_zero = self.next() == Some(b'0');
        let whole = self.digits();
        if whole == 0 || (leads_with_zero && whole > 1) {
            return Err(syntax("a number that is none", begins));
        }
        if self.next() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return Err(syntax("a number that ends with its point", begins));
            }
        }
        if matches!(self.next(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.next(), Some(b'+' | b'-')));
            if self.digits() == 0 {
                return Err(syntax("a number whose exponent has no digits", begins));
            }
        }
        Ok(&self.text[begins..self.at])
    }

    /// The text between quotes. Borrowed exactly where it has no escapes.
    fn string(&mut self) -> Result<Cow<'a, str>, CanonicalError> {
        self.at += 1;
        let plain = self.plain();
        if self.next() == Some(b'"') {
            self.at += 1;
            return Ok(Cow::Borrowed(plain));
        }
        let mut whole = plain.to_owned();
        loop {
            match self.next() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(whole));
                }
                Some(b'\\') => {
                    self.at += 1;
                    whole.push(self.escaped()?);
                }
                Some(_) => return Err(syntax("a control character in text", self.at)),
                None => return Err(syntax("text without an end", self.at)),
            }
            whole.push_str(self.plain());
        }
    }

    /// Text up to a quote, an escape, or what must not be there.
    fn plain(&mut self) -> &'a str {
        let rest = &self.text.as_bytes()[self.at..];
        let end = rest.iter().position(|byte| matches!(byte, 0x00..0x20 | b'"' | b'\\'));
        let begins = self.at;
        self.at += end.unwrap_or(rest.len());
        &self.text[begins..self.at]
    }

    fn escaped(&mut self) -> Result<char, CanonicalError> {
        let begins = self.at;
        self.at += 1;
        Ok(match self.text.as_bytes().get(begins) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code_point(begins),
            Some(_) | None => return Err(syntax("an escape that is none", begins)),
        })
    }

    /// What stands behind `\u`, with its second half where it has one.
    fn code_point(&mut self, begins: usize) -> Result<char, CanonicalError> {
        let lone = || syntax("half of a character", begins);
        let first = self.unit()?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).ok_or_else(lone);
        }
        if !self.text.as_bytes()[self.at..].starts_with(b"\\u") {
            return Err(lone());
        }
        self.at += 2;
        let second = self.unit()?.checked_sub(0xdc00).filter(|low| *low < 0x400);
        let joined = second.map(|low| 0x1_0000 + ((first - 0xd800) << 10) + low);
        joined.and_then(char::from_u32).ok_or_else(lone)
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Result<u32, CanonicalError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).unwrap_or_default();
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        let unit = digits.iter().map(digit).try_fold(0, |sum, digit| Some(sum << 4 | digit?));
        let unit = unit.filter(|_| digits.len() == 4);
        self.at += 4;
        unit.ok_or_else(|| syntax("an escape without four hexadecimal digits", self.at - 4))
    }
}

#[cfg(test)]
mod tests {
    use json_event_parser::{JsonEvent, SliceJsonParser};
    use proptest::prelude::*;

    use super::*;

    /// What a parser that others wrote says of a document: its events, or that it is none.
    #[allow(clippy::wildcard_enum_match_arm, reason = "all others are told alike")]
    fn events(json: &[u8]) -> Option<Vec<String>> {
        let (mut parser, mut events) = (SliceJsonParser::new(json), Vec::new());
        loop {
            match parser.parse_next().ok()? {
                JsonEvent::Eof => return Some(events),
                JsonEvent::Number(_) => events.push("number".to_owned()),
                event => events.push(format!("{event:?}")),
            }
        }
    }

    /// The same events of what was read here, with members in any order.
    fn told(json: &[u8]) -> Option<Vec<String>> {
        let limits = JsonLimits { depth_max: 1_000, ..JsonLimits::default() };
        let document = match read(json, limits) {
            Ok(document) => document,
            // They are JSON all the same.
            Err(CanonicalError::DuplicateMember | CanonicalError::Exponent) => return events(json),
            Err(_) => return None,
        };
        let mut told = Vec::new();
        tell(&document, &document.root, &mut told);
        Some(told)
    }

    fn tell(document: &Document<'_>, value: &Json<'_>, told: &mut Vec<String>) {
        let event = |event: JsonEvent<'_>| format!("{event:?}");
        match value {
            Json::Absent => {}
            Json::Null => told.push(event(JsonEvent::Null)),
            Json::Boolean(value) => told.push(event(JsonEvent::Boolean(*value))),
            Json::Number(_) => told.push("number".to_owned()),
            Json::String(text) => told.push(event(JsonEvent::String(text.clone()))),
            Json::Array(inside) | Json::Object(inside) => {
                let is_object = matches!(value, Json::Object(_));
                let [begin, end] = if is_object {
                    [JsonEvent::StartObject, JsonEvent::EndObject]
                } else {
                    [JsonEvent::StartArray, JsonEvent::EndArray]
                };
                told.push(event(begin));
                for item in &document.items[inside.clone()] {
                    if let Some(Name(name)) = &item.name {
                        told.push(event(JsonEvent::ObjectKey(name.clone())));
                    }
                    tell(document, &item.value, told);
                }
                told.push(event(end));
            }
        }
    }

    fn agree(json: &[u8]) -> bool {
        let in_any_order = |events: Option<Vec<String>>| {
            events.map(|mut events| {
                events.sort_unstable();
                events
            })
        };
        in_any_order(events(json)) == in_any_order(told(json))
    }

    #[test]
    fn what_the_grammar_is_particular_about_is_judged_as_others_judge_it() {
        let texts = [
            "0",
            "-0",
            "-",
            "00",
            "-01",
            "1.",
            ".1",
            "1.e1",
            "1e",
            "1e+",
            "1E-07",
            "0e0",
            "1 2",
            "tru",
            "true",
            "truefalse",
            "nulll",
            "[]",
            "{}",
            "[,]",
            "{,}",
            "[1,]",
            "[1 2]",
            "[",
            "]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\" :1 , \"b\":2}",
            "{1:2}",
            "{\"a\":1,}",
            "\"",
            "\"\\",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u12G4\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\udc00\"",
            "\"\\ud83d\\ude00\"",
            "\"\t\"",
            "\"\u{7f}\"",
            "\u{feff}1",
            "\u{feff}",
            "\u{feff}\u{feff}1",
            "1\u{feff}",
            "\u{a0}1",
            " \t\r\n1\n",
            "\u{c}1",
            "[[[]],{\"a\":[{}]}]",
            "\"\\/\\b\\f\\n\\r\\t\\\"\\\\\"",
            "",
        ];
        for text in texts {
            assert!(agree(text.as_bytes()), "{text:?}: {:?}", events(text.as_bytes()));
        }
        for bytes in [&b"\xff"[..], b"\"\xc3\"", b"[\"\xed\xa0\x80\"]", b"\"a\0\"", b"\xef\xbb1"] {
            assert!(agree(bytes), "{bytes:?}");
        }
    }

    /// Text that is JSON, or nearly.
    fn nearly_json() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\"a\"",
            "\"b\"",
            "\\",
            "\\u00e9",
            "\\ud83d",
            "\\ude00",
            "-",
            "0",
            "1",
            "12",
            ".5",
            "e",
            "E+3",
            "true",
            "false",
            "null",
            " ",
            "\n",
            "é",
            "\u{1}",
            "{}",
            "[]",
            "{\"a\":1}",
            "[1,2]",
            "\"x\":",
            "\u{feff}",
        ]);
        prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat().into_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn what_is_nearly_json_is_judged_as_others_judge_it(json in nearly_json()) {
            prop_assert!(agree(&json), "{:?}", String::from_utf8_lossy(&json));
        }

        #[test]
        fn bytes_are_judged_as_others_judge_them(
            json in prop::collection::vec(any::<u8>(), 0..24),
        ) {
            prop_assert!(agree(&json), "{json:?}");
        }
    }
}
