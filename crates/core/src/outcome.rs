//! What came of an execution, as it is remembered and given again.
//!
//! An [`Outcome`] is bytes and a few numbers; it knows no wire format and no type of the user's. A
//! door turns it into a response or a value and back.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

/// A status code of HTTP, 100 to 599.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

impl Status {
    /// The lowest status.
    pub const MIN: u16 = 100;
    /// The highest status.
    pub const MAX: u16 = 599;

    /// `None` outside 100 to 599.
    #[must_use]
    pub const fn new(code: u16) -> Option<Self> {
        if code >= Self::MIN && code <= Self::MAX { Some(Self(code)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// Every status there is, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (Self::MIN..=Self::MAX).map(Self)
    }
}

/// The name of a header, lower case. One that many responses have takes no memory of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldName(Cow<'static, str>);

/// Names that many responses have.
const COMMON: [&str; 16] = [
    "content-type",
    "date",
    "via",
    "location",
    "etag",
    "server",
    "vary",
    "cache-control",
    "content-encoding",
    "content-language",
    "last-modified",
    "link",
    "request-id",
    "retry-after",
    "strict-transport-security",
    "x-request-id",
];

impl From<&str> for FieldName {
    fn from(name: &str) -> Self {
        Self(match COMMON.into_iter().find(|common| *common == name) {
            Some(common) => Cow::Borrowed(common),
            None => Cow::Owned(name.to_owned()),
        })
    }
}

impl Deref for FieldName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// A header of a kept response; a value need not be text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Header {
    /// The name.
    pub name: FieldName,
    /// The value as it came.
    pub value: Bytes,
}

/// What came of an execution.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// A response: status, headers and body, given again exactly.
    Response {
        /// The status.
        status: Status,
        /// The headers that may be given again.
        headers: Vec<Header>,
        /// The body.
        body: Bytes,
    },
    /// The value of a function that succeeded, encoded by its door.
    Value(Bytes),
    /// The failure of a function, encoded by its door. It is a result like any other.
    Failure(Bytes),
    /// It was executed, but what it returned was too large, or of a kind that cannot be kept.
    NotKept {
        /// The status, where there was one.
        status: Option<Status>,
    },
}

/// Shows the name only: a value may be a secret.
impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} bytes", &*self.name, self.value.len())
    }
}

/// Shows how much there is, never what: bodies do not belong in logs.
impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response { status, headers, body } => {
                let (headers, body) = (headers.len(), body.len());
                write!(f, "Response({}, {headers} headers, {body} bytes)", status.code())
            }
            Self::Value(bytes) => write!(f, "Value({} bytes)", bytes.len()),
            Self::Failure(bytes) => write!(f, "Failure({} bytes)", bytes.len()),
            Self::NotKept { status } => write!(f, "NotKept({:?})", status.map(Status::code)),
        }
    }
}

impl Outcome {
    /// Bytes that keeping this outcome costs, not counting the record around it.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::Response { headers, body, .. } => {
                let headers = headers.iter().map(|h| h.name.len() + h.value.len());
                headers.sum::<usize>() + body.len()
            }
            Self::Value(bytes) | Self::Failure(bytes) => bytes.len(),
            Self::NotKept { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_100_to_599() {
        assert_eq!(Status::new(99), None);
        assert_eq!(Status::new(600), None);
        assert_eq!(Status::new(204).map(Status::code), Some(204));
        assert_eq!(Status::all().count(), 500);
    }

    /// X11: no body and no header value shows, wherever an outcome is printed.
    #[test]
    fn x11_an_outcome_does_not_show_its_content() {
        let header = Header { name: "x-token".into(), value: "secret".into() };
        let status = Status::new(201).unwrap();
        let response = Outcome::Response { status, headers: vec![header], body: "secret".into() };
        let outcomes =
            [response, Outcome::Value("secret".into()), Outcome::Failure("secret".into())];
        for outcome in outcomes {
            let shown = format!("{outcome:?}");
            assert!(!shown.contains("secret") && shown.contains("6 bytes"), "{shown}");
        }
    }

    #[test]
    fn a_name_is_its_text_whether_many_have_it_or_not() {
        for name in ["content-type", "x-of-mine", ""] {
            let (one, two) = (FieldName::from(name), FieldName(Cow::Owned(name.to_owned())));
            assert_eq!((&*one, &one), (name, &two));
        }
        assert!(matches!(FieldName::from("content-type").0, Cow::Borrowed(_)));
    }

    #[test]
    fn the_weight_counts_every_byte_that_is_kept() {
        let header = Header { name: "location".into(), value: "/orders/1".into() };
        let status = Status::new(201).unwrap();
        let response = Outcome::Response { status, headers: vec![header], body: "ok".into() };
        assert_eq!(response.weight(), 8 + 9 + 2);
        assert_eq!(Outcome::Value("abc".into()).weight(), 3);
        assert_eq!(Outcome::Failure("ab".into()).weight(), 2);
        assert_eq!(Outcome::NotKept { status: None }.weight(), 0);
    }
}
