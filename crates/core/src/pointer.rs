//! JSON pointers (RFC 6901) to the fields that do not count.
//!
//! A pointer here names one place in a document, at least one step below its root: ignoring the
//! whole document would make every request the same one, so that is refused when the pointer is
//! parsed.

use std::fmt;

/// The most steps that a pointer may have, the same as the default depth of a document.
pub const POINTER_STEPS_MAX: usize = 128;

/// A parsed pointer, such as `/client_time` or `/items/0/seen_at`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer(Box<[Box<str>]>);

/// Why a text is not a pointer that can be ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PointerError {
    /// The pointer names the whole document.
    #[error("the empty pointer would ignore the whole body; name a field, such as /client_time")]
    Whole,
    /// The pointer does not begin with a slash.
    #[error("a JSON pointer begins with a slash, such as /client_time")]
    NoSlash,
    /// A tilde stands for something only as `~0` (tilde) or `~1` (slash).
    #[error("in a JSON pointer a tilde is written ~0 and a slash inside a name ~1")]
    Escape,
    /// More than [`POINTER_STEPS_MAX`] steps.
    #[error("a JSON pointer may have at most {POINTER_STEPS_MAX} steps")]
    TooLong,
}

impl Pointer {
    /// Parses the text form of RFC 6901.
    ///
    /// # Errors
    /// A [`PointerError`] that says how to write it.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        if text.is_empty() {
            return Err(PointerError::Whole);
        }
        let rest = text.strip_prefix('/').ok_or(PointerError::NoSlash)?;
        let steps = rest.split('/').map(unescape).collect::<Result<Box<[_]>, _>>()?;
        if steps.len() > POINTER_STEPS_MAX {
            return Err(PointerError::TooLong);
        }
        Ok(Self(steps))
    }

    /// The steps from the root, unescaped; at least one.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|step| &**step)
    }
}

fn unescape(step: &str) -> Result<Box<str>, PointerError> {
    let mut out = String::with_capacity(step.len());
    let mut chars = step.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '~' => match chars.next() {
                Some('0') => '~',
                Some('1') => '/',
                Some(_) | None => return Err(PointerError::Escape),
            },
            other => other,
        });
    }
    Ok(out.into())
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps()
            .try_for_each(|step| write!(f, "/{}", step.replace('~', "~0").replace('/', "~1")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_parsed_and_written_back() {
        for text in ["/a", "/a/0/b", "/", "/a~1b", "/m~0n", "/a//b", "/ü"] {
            assert_eq!(Pointer::parse(text).unwrap().to_string(), text);
        }
        let escaped = Pointer::parse("/a~1b/~01").unwrap();
        assert_eq!(escaped.steps().collect::<Vec<_>>(), ["a/b", "~1"]);
    }

    #[test]
    fn what_is_not_a_pointer_is_refused() {
        assert_eq!(Pointer::parse(""), Err(PointerError::Whole));
        assert_eq!(Pointer::parse("a"), Err(PointerError::NoSlash));
        assert_eq!(Pointer::parse("/a~2"), Err(PointerError::Escape));
        assert_eq!(Pointer::parse("/a~"), Err(PointerError::Escape));
        assert_eq!(Pointer::parse(&"/a".repeat(129)), Err(PointerError::TooLong));
    }
}
