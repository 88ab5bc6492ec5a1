//! What settings are made of: words, and secrets.
//!
//! What a setting means is checked where it is built. A [`Secret`] never shows itself.

use std::fmt;

/// One word, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Words(Vec<String>);

impl Words {
    /// The words, in the order in which they were written.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether nothing was written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is none, or one of them is empty and would fit an empty claim.
    pub(super) fn lacks_text(&self) -> bool {
        self.0.is_empty() || self.0.iter().any(String::is_empty)
    }
}

impl From<&str> for Words {
    fn from(word: &str) -> Self {
        Self(vec![word.to_owned()])
    }
}

impl FromIterator<String> for Words {
    fn from_iter<I: IntoIterator<Item = String>>(words: I) -> Self {
        Self(words.into_iter().collect())
    }
}

impl<const N: usize> From<[&str; N]> for Words {
    fn from(words: [&str; N]) -> Self {
        Self(words.map(str::to_owned).to_vec())
    }
}

/// A secret, as it is. Where it was found is over by now: a text that looks like a place is a
/// secret like any other.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// This very text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The secret itself. Never log it.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_is_a_list_of_one() {
        assert_eq!(Words::from("a"), Words::from(["a"]));
        assert_eq!(Words::from(["a", "b"]).iter().collect::<Vec<_>>(), ["a", "b"]);
        assert!(Words::default().is_empty() && Words::default().lacks_text());
        assert!(Words::from(["a", ""]).lacks_text() && !Words::from("a").lacks_text());
    }

    /// X11: a secret is what was given, whatever it looks like, and never shows itself.
    #[test]
    fn x11_a_secret_is_taken_as_it_is_and_never_shows_itself() {
        for text in ["hush", "env:PATH", "file:/etc/hostname"] {
            let secret = Secret::new(text);
            assert_eq!(secret.expose(), text);
            assert!(!format!("{secret:?}").contains(text));
        }
    }
}
