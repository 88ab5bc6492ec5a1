//! One text for every spelling of a path, and a refusal of every path that has two meanings.
//!
//! The text is part of an operation's identity, while the upstream gets the path as the caller
//! wrote it. So nothing is repaired here: a path that the upstream could read as another one than
//! we do is refused. Slashes are never merged, and neither case nor a trailing slash is touched,
//! because to an upstream those are different paths.

use std::fmt;

/// The longest path that is looked at, in bytes.
pub const PATH_BYTES_MAX: usize = 8 * 1024;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// A path that was refused. The caller wrote it, so nothing was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path does not begin with a slash.
    #[error("the path does not begin with a slash")]
    NotAbsolute,
    /// The path is longer than [`PATH_BYTES_MAX`].
    #[error("the path has {bytes} bytes; at most {PATH_BYTES_MAX} are taken")]
    TooLong {
        /// How long it was.
        bytes: usize,
    },
    /// A percent sign without two hexadecimal digits.
    #[error("the percent sign at byte {at} of the path is not followed by two hexadecimal digits")]
    Escape {
        /// The byte offset of the percent sign.
        at: usize,
    },
    /// A slash, a backslash or a control character in disguise, or a backslash without one.
    #[error("byte {at} of the path is an encoded slash, a backslash or a control character")]
    Hidden {
        /// The byte offset of it.
        at: usize,
    },
    /// A segment that means this folder or the one above.
    #[error("the path has a dot segment at byte {at}; send the path that it leads to")]
    Dots {
        /// The byte offset of the segment.
        at: usize,
    },
    /// A character that no path has, such as a space, a question mark or a number sign.
    #[error("the path has a character at byte {at} that must be percent-encoded")]
    Character {
        /// The byte offset of the character.
        at: usize,
    },
}

/// A path in its one spelling.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NormalPath(Box<str>);

impl NormalPath {
    /// The one spelling.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parts between the slashes; at least one, and some may be empty.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0[1..].split('/')
    }
}

impl fmt::Display for NormalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Gives `path`, as it stood on the request line without its query, its one spelling.
///
/// Escapes of letters, digits and `-._~` are decoded, all others are written in upper case, and
/// bytes that should have been escaped are.
///
/// # Errors
/// A [`PathError`] for a path that could mean something else to the upstream.
pub fn normalise(path: &str) -> Result<NormalPath, PathError> {
    if path.len() > PATH_BYTES_MAX {
        return Err(PathError::TooLong { bytes: path.len() });
    }
    if !path.starts_with('/') {
        return Err(PathError::NotAbsolute);
    }
    let mut text = String::with_capacity(path.len());
    let mut at = 0;
    for segment in path[1..].split('/') {
        at += 1;
        text.push('/');
        let begins = text.len();
        spell(segment, at, &mut text)?;
        if is_dots(&text[begins..]) {
            return Err(PathError::Dots { at });
        }
        at += segment.len();
    }
    Ok(NormalPath(text.into_boxed_str()))
}

/// Appends the one spelling of `segment`, which begins at byte `offset` of its path.
fn spell(segment: &str, offset: usize, text: &mut String) -> Result<(), PathError> {
    let bytes = segment.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let (byte, is_escape) = match bytes[at] {
            b'%' => {
                let digits = bytes.get(at + 1..at + 3);
                let byte = digits.and_then(unescape);
                (byte.ok_or(PathError::Escape { at: offset + at })?, true)
            }
            byte => (byte, false),
        };
        match kind(byte) {
            Kind::Unreserved => text.push(char::from(byte)),
            Kind::Hidden => return Err(PathError::Hidden { at: offset + at }),
            Kind::Delimiter if !is_escape => text.push(char::from(byte)),
            Kind::Foreign if !is_escape => return Err(PathError::Character { at: offset + at }),
            Kind::Delimiter | Kind::Foreign | Kind::Loose => push_escape(byte, text),
        }
        at += if is_escape { 3 } else { 1 };
    }
    Ok(())
}

/// What a byte is inside a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Means the same with and without an escape.
    Unreserved,
    /// May stand in a segment, where it may mean something else than its escape.
    Delimiter,
    /// Should have been escaped, but senders and servers take it for its escape.
    Loose,
    /// Ends a path, or never reaches one.
    Foreign,
    /// What some servers read as the end of a segment or of a text, escaped or not.
    Hidden,
}

/// What `byte` is inside a segment.
pub(super) const fn kind(byte: u8) -> Kind {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => Kind::Unreserved,
        b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':'
        | b'@' => Kind::Delimiter,
        b' ' | b'?' | b'#' | b'%' => Kind::Foreign,
        b'/' | b'\\' | 0..=0x1f | 0x7f => Kind::Hidden,
        b'"' | b'<' | b'>' | b'[' | b']' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80.. => Kind::Loose,
    }
}

/// The byte that two hexadecimal digits stand for.
pub(super) fn unescape(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// Appends the escape of `byte`.
pub(super) fn push_escape(byte: u8, text: &mut String) {
    text.push('%');
    text.push(char::from(HEX[usize::from(byte >> 4)]));
    text.push(char::from(HEX[usize::from(byte & 0xf)]));
}

/// Whether a segment leads to a folder. Some servers drop what follows a semicolon first.
pub(super) fn is_dots(segment: &str) -> bool {
    let name = segment.split(';').next().unwrap_or(segment);
    matches!(name, "." | "..")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_and_its_one_spelling_are_this_table() {
        let (dots, hidden) = (|at| Err(PathError::Dots { at }), |at| Err(PathError::Hidden { at }));
        let escape = |at| Err(PathError::Escape { at });
        let character = |at| Err(PathError::Character { at });
        let table = [
            ("/", Ok("/")),
            ("/orders", Ok("/orders")),
            ("/orders/", Ok("/orders/")),
            ("//orders//7", Ok("//orders//7")),
            ("/Orders", Ok("/Orders")),
            ("/%6Frders/%7euser%2D1", Ok("/orders/~user-1")),
            ("/a%3ab%3Bc", Ok("/a%3Ab%3Bc")),
            ("/a:b;c@d", Ok("/a:b;c@d")),
            ("/a%20b%3f%23", Ok("/a%20b%3F%23")),
            ("/100%25", Ok("/100%25")),
            ("/%252e%252e", Ok("/%252e%252e")),
            ("/caf\u{e9}", Ok("/caf%C3%A9")),
            ("/caf%c3%a9", Ok("/caf%C3%A9")),
            ("/{\"a\"}", Ok("/%7B%22a%22%7D")),
            ("/...", Ok("/...")),
            ("/.well-known/x", Ok("/.well-known/x")),
            ("", Err(PathError::NotAbsolute)),
            ("*", Err(PathError::NotAbsolute)),
            ("a/b", Err(PathError::NotAbsolute)),
            ("/a/../b", dots(3)),
            ("/a/..", dots(3)),
            ("/./a", dots(1)),
            ("/a/%2e%2E/b", dots(3)),
            ("/a/.%2e", dots(3)),
            ("/a/..;v=1/b", dots(3)),
            ("/a%2fb", hidden(2)),
            ("/a%5Cb", hidden(2)),
            ("/a\\b", hidden(2)),
            ("/a%00", hidden(2)),
            ("/a%0d%0a", hidden(2)),
            ("/a%7f", hidden(2)),
            ("/a\tb", hidden(2)),
            ("/a%", escape(2)),
            ("/a%2", escape(2)),
            ("/a/%zz", escape(3)),
            ("/a/%+1", escape(3)),
            ("/a b", character(2)),
            ("/a?b", character(2)),
            ("/a#b", character(2)),
        ];
        for (path, expected) in table {
            let found = normalise(path);
            assert_eq!(
                found.as_ref().map(NormalPath::as_str),
                expected.as_ref().copied(),
                "{path}"
            );
        }
    }

    #[test]
    fn a_path_is_bounded() {
        let longest = format!("/{}", "a".repeat(PATH_BYTES_MAX - 1));
        assert!(normalise(&longest).is_ok());
        let bytes = PATH_BYTES_MAX + 1;
        assert_eq!(normalise(&format!("{longest}a")), Err(PathError::TooLong { bytes }));
    }

    #[test]
    fn segments_keep_what_is_empty() {
        let segments = |path| normalise(path).unwrap().segments().count();
        assert_eq!(
            (segments("/"), segments("/a"), segments("/a/"), segments("//a//")),
            (1, 1, 2, 4)
        );
    }

    /// A byte of a path as a sender may write it, escaped in either case or not at all.
    fn spelled(byte: u8, how: u8) -> String {
        match how {
            0 => format!("%{byte:02x}"),
            1 => format!("%{byte:02X}"),
            _ => char::from(byte).to_string(),
        }
    }

    proptest! {
        #[test]
        fn the_one_spelling_stays_as_it_is(path in "/[ -~]{0,40}") {
            if let Ok(normal) = normalise(&path) {
                prop_assert_eq!(normalise(normal.as_str()), Ok(normal));
            }
        }

        #[test]
        fn spellings_of_one_path_have_one_text(
            path in proptest::collection::vec(("[a-zA-Z0-9._~-]", 0..3_u8, 0..3_u8), 3..20),
        ) {
            let write = |how: fn(&(String, u8, u8)) -> u8| -> String {
                path.iter().map(|part| spelled(part.0.as_bytes()[0], how(part))).collect()
            };
            let (one, two) = (write(|part| part.1), write(|part| part.2));
            let normal = |text: String| normalise(&format!("/x{text}")).map(|path| path.0);
            prop_assert_eq!(normal(one), normal(two));
        }

        #[test]
        fn no_text_is_too_strange(path in "\\PC{0,60}") {
            let _ = normalise(&path);
        }
    }
}
