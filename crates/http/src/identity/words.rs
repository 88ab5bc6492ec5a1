//! How settings are written: one word or a list, spans of time, secrets.
//!
//! Only reads; what a setting means is checked where it is built. A [`Secret`] never shows itself.

use std::env;
use std::fmt;
use std::time::Duration;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::SettingsError;

/// The most words of one setting.
const WORDS_MAX: usize = 256;

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

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;

        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Words;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a list of words")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Words, E> {
                Ok(word.into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Words, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element()? {
                    if words.len() == WORDS_MAX {
                        return Err(A::Error::custom(format!("at most {WORDS_MAX} are allowed")));
                    }
                    words.push(word);
                }
                Ok(Words(words))
            }
        }

        deserializer.deserialize_any(OneOrMore)
    }
}

/// A secret of the configuration: written out, or `env:NAME` for the one in a variable.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// A secret as it would be written in the configuration.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The secret itself, from the environment where it says so.
    pub(super) fn resolve(&self) -> Result<String, SettingsError> {
        let Some(name) = self.0.strip_prefix("env:") else {
            return Ok(self.0.clone());
        };
        env::var(name).map_err(|_| SettingsError::NoVariable { name: name.to_owned() })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Reads a span such as `30s` or `1h 30m`.
pub(super) fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    struct Span;

    impl Visitor<'_> for Span {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a span of time such as \"30s\" or \"1h 30m\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
            humantime::parse_duration(text).map_err(|why| E::custom(format!("{text:?}: {why}")))
        }
    }

    deserializer.deserialize_str(Span)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, json};

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Sample {
        #[serde(deserialize_with = "span")]
        leeway: Duration,
    }

    #[test]
    fn one_word_is_a_list_of_one() {
        assert_eq!(from_str::<Words>("\"a\"").unwrap(), Words::from("a"));
        assert_eq!(from_str::<Words>("[\"a\",\"b\"]").unwrap(), Words::from(["a", "b"]));
        assert!(from_str::<Words>("[]").unwrap().is_empty());
        let wrong = from_str::<Words>("7").unwrap_err().to_string();
        assert!(wrong.contains("a word or a list of words"), "{wrong}");
        let many = json!(vec!["a"; WORDS_MAX + 1]).to_string();
        assert!(from_str::<Words>(&many).unwrap_err().to_string().contains("at most 256"));
    }

    #[test]
    fn a_span_is_written_as_people_say_it() {
        let read = |text: &str| from_str::<Sample>(&format!("{{\"leeway\":{text}}}"));
        assert_eq!(read("\"1m 30s\"").unwrap().leeway, Duration::from_secs(90));
        for bad in ["\"soon\"", "30", "\"\""] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_secret_may_be_in_the_environment_and_never_shows_itself() {
        assert_eq!(Secret::new("hush").resolve().unwrap(), "hush");
        assert!(!format!("{:?}", Secret::new("hush")).contains("hush"));
        // Cargo sets this one for every test.
        let given = Secret::new("env:CARGO_PKG_NAME").resolve().unwrap();
        assert_eq!(given, "onetake-http");
        let missing = Secret::new("env:ONETAKE_NO_SUCH_VARIABLE").resolve().unwrap_err();
        assert!(missing.to_string().contains("ONETAKE_NO_SUCH_VARIABLE"), "{missing}");
    }
}
