//! What a route matches: methods, and a path with named parts.
//!
//! `POST,PATCH /orders/{id}` is two methods and a path of one literal segment and one named one;
//! `* /**` is everything. A pattern that could be read in two ways, or that no request can match,
//! is refused with what to write instead. Nothing here compares two patterns: that is the table's.

mod normal;

use std::fmt;
use std::sync::Arc;

use http::Method;

use self::normal::{Kind, is_dots, kind, push_escape, unescape};
pub use self::normal::{NormalPath, PATH_BYTES_MAX, PathError, normalise};

/// The longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 1_024;
/// The most segments that a pattern has.
pub const SEGMENTS_MAX: usize = 64;

const ANY_METHOD: &str = "*";
const REST: &str = "**";

/// A pattern that was refused, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The pattern is longer than [`PATTERN_BYTES_MAX`].
    #[error("the pattern has {bytes} bytes; at most {PATTERN_BYTES_MAX} are allowed")]
    TooLong {
        /// How long it was.
        bytes: usize,
    },
    /// The pattern has more segments than [`SEGMENTS_MAX`].
    #[error("the pattern has more than {SEGMENTS_MAX} segments; end it with `**` instead")]
    TooManySegments,
    /// There are not both methods and a path.
    #[error("a pattern is methods and a path, such as `POST,PATCH /orders/{{id}}` or `* /**`")]
    Incomplete,
    /// The list of methods has a gap.
    #[error("the list of methods has a gap; separate them by one comma and no spaces")]
    MethodMissing,
    /// A method is no token.
    #[error("`{method}` is not a method; use letters, as in `POST`")]
    MethodInvalid {
        /// What was given.
        method: String,
    },
    /// A well-known method in other letters, which no client sends.
    #[error("`{given}` is never sent: methods are told apart by case, so write `{method}`")]
    MethodCase {
        /// What was given.
        given: String,
        /// What is meant.
        method: String,
    },
    /// A method stands in the list twice.
    #[error("`{method}` is in the list twice; name it once")]
    MethodTwice {
        /// The method.
        method: String,
    },
    /// `*` stands beside other methods.
    #[error("`*` is every method; write it alone, or name the methods without it")]
    AnyMethodBesideOthers,
    /// `CONNECT` asks for a tunnel, not for a path.
    #[error("`CONNECT` has no path and can never match; leave it out")]
    Tunnel,
    /// The path does not begin with a slash.
    #[error("the path `{path}` does not begin with a slash; write `/{path}`")]
    NoLeadingSlash {
        /// What was given.
        path: String,
    },
    /// The path goes on with a query or a fragment.
    #[error("the path has a `{found}`; a pattern is about paths, so leave out what begins there")]
    QueryOrFragment {
        /// `?` or `#`.
        found: char,
    },
    /// `**` is not the last segment.
    #[error("`**` is the rest of a path; write it last, or `{{name}}` for one segment")]
    RestNotLast,
    /// A star within a segment.
    #[error(
        "the segment `{segment}` has a star; write `{{name}}` for one segment, `**` for the rest"
    )]
    Star {
        /// The segment.
        segment: String,
    },
    /// Braces that are not around a whole segment.
    #[error("the segment `{segment}` has braces; they go around a whole segment, as in `{{id}}`")]
    Braces {
        /// The segment.
        segment: String,
    },
    /// A name that is no word.
    #[error("`{name}` is not a name; use letters, digits and `_`, and no digit first")]
    NameInvalid {
        /// What was given.
        name: String,
    },
    /// A name that stands for two segments.
    #[error("`{{{name}}}` stands for two segments; give each a name of its own")]
    NameTwice {
        /// The name.
        name: String,
    },
    /// A segment that means this folder or the one above.
    #[error("a path with a `{segment}` segment is never served; write the path that it leads to")]
    Dots {
        /// The segment.
        segment: String,
    },
    /// A percent sign without two hexadecimal digits.
    #[error("the segment `{segment}` has a percent sign without two digits; write `%25` for one")]
    Escape {
        /// The segment.
        segment: String,
    },
    /// An escape of a character that needs none.
    #[error("the segment `{segment}` escapes `{character}`; write the character itself")]
    EscapedPlain {
        /// The segment.
        segment: String,
        /// What the escape stands for.
        character: char,
    },
    /// A character that no path has, or one that is refused in every path.
    #[error("the segment `{segment}` has a character that no path has; percent-encode it")]
    Character {
        /// The segment.
        segment: String,
    },
    /// An encoded slash, a backslash or a control character.
    #[error(
        "the segment `{segment}` has an encoded slash, a backslash or a control character; \
        paths with those are never served"
    )]
    Hidden {
        /// The segment.
        segment: String,
    },
}

/// One part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Segment {
    /// Exactly this text.
    Literal(Box<str>),
    /// Any text but none, under a name.
    Name(Arc<str>),
    /// Everything from here on, even nothing.
    Rest,
}

/// What a route matches.
///
/// `Display` gives its one spelling: methods in alphabetical order, escapes in upper case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// In alphabetical order; none stands for every method.
    methods: Vec<Method>,
    segments: Vec<Segment>,
}

impl Pattern {
    /// Reads methods and a path, such as `POST,PATCH /orders/{id}`.
    ///
    /// # Errors
    /// A [`PatternError`] that says what to write instead.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong { bytes: text.len() });
        }
        let (methods, path) =
            text.trim().split_once(char::is_whitespace).ok_or(PatternError::Incomplete)?;
        Ok(Self { methods: parse_methods(methods)?, segments: parse_path(path.trim_start())? })
    }

    /// The methods that it names, in alphabetical order; none when it matches every method.
    #[must_use]
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// Whether it matches every method.
    #[must_use]
    pub const fn is_any_method(&self) -> bool {
        self.methods.is_empty()
    }

    /// Whether it ends with `**`.
    #[must_use]
    pub fn has_wildcard(&self) -> bool {
        self.segments.last() == Some(&Segment::Rest)
    }

    /// The names of its segments, in their order.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Name(name) => Some(name),
            Segment::Literal(_) | Segment::Rest => None,
        })
    }

    /// The parts of its path.
    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any_method() {
            f.write_str(ANY_METHOD)?;
        }
        for (at, method) in self.methods.iter().enumerate() {
            write!(f, "{}{method}", if at > 0 { "," } else { "" })?;
        }
        f.write_str(" ")?;
        for segment in &self.segments {
            match segment {
                Segment::Literal(text) => write!(f, "/{text}")?,
                Segment::Name(name) => write!(f, "/{{{name}}}")?,
                Segment::Rest => write!(f, "/{REST}")?,
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        Self::parse(text)
    }
}

fn parse_methods(list: &str) -> Result<Vec<Method>, PatternError> {
    if list == ANY_METHOD {
        return Ok(Vec::new());
    }
    let mut methods = list.split(',').map(parse_method).collect::<Result<Vec<_>, _>>()?;
    methods.sort_unstable_by(|one, two| one.as_str().cmp(two.as_str()));
    match methods.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(PatternError::MethodTwice { method: pair[0].to_string() }),
        None => Ok(methods),
    }
}

fn parse_method(text: &str) -> Result<Method, PatternError> {
    if text.is_empty() {
        return Err(PatternError::MethodMissing);
    }
    if text == ANY_METHOD {
        return Err(PatternError::AnyMethodBesideOthers);
    }
    let method = Method::from_bytes(text.as_bytes())
        .map_err(|_| PatternError::MethodInvalid { method: text.to_owned() })?;
    if method == Method::CONNECT {
        return Err(PatternError::Tunnel);
    }
    let upper = text.to_ascii_uppercase();
    let well_known = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
    if upper != text && well_known.contains(&upper.as_str()) {
        return Err(PatternError::MethodCase { given: text.to_owned(), method: upper });
    }
    Ok(method)
}

fn parse_path(path: &str) -> Result<Vec<Segment>, PatternError> {
    if let Some(found) = path.chars().find(|c| matches!(c, '?' | '#')) {
        return Err(PatternError::QueryOrFragment { found });
    }
    let Some(path) = path.strip_prefix('/') else {
        return Err(PatternError::NoLeadingSlash { path: path.to_owned() });
    };
    let segments = path.split('/').map(parse_segment).collect::<Result<Vec<_>, _>>()?;
    if segments.len() > SEGMENTS_MAX {
        return Err(PatternError::TooManySegments);
    }
    let (_, before) = segments.split_last().expect("invariant: a split text has a part");
    if before.contains(&Segment::Rest) {
        return Err(PatternError::RestNotLast);
    }
    for (at, segment) in segments.iter().enumerate() {
        if let Segment::Name(name) = segment
            && segments[..at].contains(segment)
        {
            return Err(PatternError::NameTwice { name: name.to_string() });
        }
    }
    Ok(segments)
}

fn parse_segment(segment: &str) -> Result<Segment, PatternError> {
    if segment == REST {
        return Ok(Segment::Rest);
    }
    let inside = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match inside {
        Some(name) if !name.contains(['{', '}']) => parse_name(name),
        _ if segment.contains(['{', '}']) => {
            Err(PatternError::Braces { segment: segment.to_owned() })
        }
        _ => parse_literal(segment),
    }
}

fn parse_name(name: &str) -> Result<Segment, PatternError> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty()
        || name.starts_with(|c: char| c.is_ascii_digit())
        || !name.chars().all(is_word)
    {
        return Err(PatternError::NameInvalid { name: name.to_owned() });
    }
    Ok(Segment::Name(Arc::from(name)))
}

fn parse_literal(given: &str) -> Result<Segment, PatternError> {
    let segment = given.to_owned();
    if given.contains('*') {
        return Err(PatternError::Star { segment });
    }
    if is_dots(given) {
        return Err(PatternError::Dots { segment });
    }
    let bytes = given.as_bytes();
    let mut text = String::with_capacity(given.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte == b'%' {
            let Some(byte) = bytes.get(at + 1..at + 3).and_then(unescape) else {
                return Err(PatternError::Escape { segment });
            };
            match kind(byte) {
                Kind::Unreserved => {
                    let character = char::from(byte);
                    return Err(PatternError::EscapedPlain { segment, character });
                }
                Kind::Hidden => return Err(PatternError::Hidden { segment }),
                Kind::Delimiter | Kind::Loose | Kind::Foreign => push_escape(byte, &mut text),
            }
            at += 3;
            continue;
        }
        match kind(byte) {
            Kind::Unreserved | Kind::Delimiter => text.push(char::from(byte)),
            Kind::Hidden => return Err(PatternError::Hidden { segment }),
            Kind::Loose | Kind::Foreign => return Err(PatternError::Character { segment }),
        }
        at += 1;
    }
    Ok(Segment::Literal(text.into_boxed_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        Pattern::parse(text).map_or_else(|error| error.to_string(), |pattern| pattern.to_string())
    }

    #[test]
    fn a_pattern_and_its_one_spelling_are_this_table() {
        let table = [
            ("POST /orders", "POST /orders"),
            ("  POST   /orders  ", "POST /orders"),
            ("POST,PATCH /orders/{id}", "PATCH,POST /orders/{id}"),
            ("* /**", "* /**"),
            ("PURGE,m-search /a", "PURGE,m-search /a"),
            ("GET /", "GET /"),
            ("GET /a//b/", "GET /a//b/"),
            ("GET /a%3ab/%c3%a9", "GET /a%3Ab/%C3%A9"),
            ("POST /v1/runs:cancel", "POST /v1/runs:cancel"),
            ("GET /{a}/{b_2}/**", "GET /{a}/{b_2}/**"),
            ("GET /.well-known/x", "GET /.well-known/x"),
        ];
        for (text, expected) in table {
            assert_eq!(said(text), expected);
            assert_eq!(said(expected), expected, "a spelling is its own");
        }
    }

    #[test]
    fn a_refused_pattern_says_what_to_write_instead() {
        let both = "a pattern is methods and a path, such as `POST,PATCH /orders/{id}` or `* /**`";
        let gap = "the list of methods has a gap; separate them by one comma and no spaces";
        let hidden = "has an encoded slash, a backslash or a control character; paths with those \
            are never served";
        let table = [
            ("", both),
            ("/orders", both),
            ("POST", both),
            ("POST, PATCH /a", gap),
            (",POST /a", gap),
            ("PO(ST /a", "`PO(ST` is not a method; use letters, as in `POST`"),
            ("post /a", "`post` is never sent: methods are told apart by case, so write `POST`"),
            ("GET,POST,GET /a", "`GET` is in the list twice; name it once"),
            ("GET,* /a", "`*` is every method; write it alone, or name the methods without it"),
            ("CONNECT /a", "`CONNECT` has no path and can never match; leave it out"),
            ("GET a/b", "the path `a/b` does not begin with a slash; write `/a/b`"),
            (
                "GET /a?b=1",
                "the path has a `?`; a pattern is about paths, so leave out what begins there",
            ),
            (
                "GET /a#b",
                "the path has a `#`; a pattern is about paths, so leave out what begins there",
            ),
            ("GET /**/a", "`**` is the rest of a path; write it last, or `{name}` for one segment"),
            (
                "GET /a/*",
                "the segment `*` has a star; write `{name}` for one segment, `**` for the rest",
            ),
            (
                "GET /a{id}",
                "the segment `a{id}` has braces; they go around a whole segment, as in `{id}`",
            ),
            (
                "GET /{a}{b}",
                "the segment `{a}{b}` has braces; they go around a whole segment, as in `{id}`",
            ),
            ("GET /{}", "`` is not a name; use letters, digits and `_`, and no digit first"),
            ("GET /{1a}", "`1a` is not a name; use letters, digits and `_`, and no digit first"),
            ("GET /{a}/{a}", "`{a}` stands for two segments; give each a name of its own"),
            (
                "GET /a/../b",
                "a path with a `..` segment is never served; write the path that it leads to",
            ),
            (
                "GET /.",
                "a path with a `.` segment is never served; write the path that it leads to",
            ),
            (
                "GET /a%2",
                "the segment `a%2` has a percent sign without two digits; write `%25` for one",
            ),
            ("GET /%61", "the segment `%61` escapes `a`; write the character itself"),
            ("GET /%2e%2e", "the segment `%2e%2e` escapes `.`; write the character itself"),
            (
                "GET /caf\u{e9}",
                "the segment `caf\u{e9}` has a character that no path has; percent-encode it",
            ),
            ("GET /a b", "the segment `a b` has a character that no path has; percent-encode it"),
            ("GET /a%2Fb", &format!("the segment `a%2Fb` {hidden}")),
            ("GET /a\\b", &format!("the segment `a\\b` {hidden}")),
        ];
        for (text, expected) in table {
            assert_eq!(said(text), expected);
        }
    }

    #[test]
    fn a_pattern_is_bounded() {
        let deep = "/a".repeat(SEGMENTS_MAX);
        assert!(Pattern::parse(&format!("GET {deep}")).is_ok());
        assert_eq!(Pattern::parse(&format!("GET {deep}/a")), Err(PatternError::TooManySegments));
        let long = format!("GET /{}", "a".repeat(PATTERN_BYTES_MAX));
        assert_eq!(Pattern::parse(&long), Err(PatternError::TooLong { bytes: long.len() }));
    }

    #[test]
    fn a_pattern_tells_what_it_has() {
        let one: Pattern = "POST,PATCH /a/{b}/c/{d}".parse().unwrap();
        let names: Vec<&str> = one.names().map(|name| &**name).collect();
        assert_eq!((names, one.methods()), (vec!["b", "d"], &[Method::PATCH, Method::POST][..]));
        assert!(!one.is_any_method() && !one.has_wildcard());
        let all: Pattern = "* /a/**".parse().unwrap();
        assert!(all.is_any_method() && all.has_wildcard() && all.methods().is_empty());
    }
}
