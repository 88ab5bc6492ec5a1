//! What a credential allows, by names that routes ask for.
//!
//! Only compares names; it knows no route and grants nothing by likeness: there are no wildcards.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The most scopes of one credential.
const SCOPES_MAX: usize = 256;
/// The longest scope, in bytes.
const SCOPE_BYTES_MAX: usize = 255;

/// What a credential allows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scopes {
    /// Everything.
    #[default]
    All,
    /// What is listed, which may be nothing.
    Only(Arc<BTreeSet<Box<str>>>),
}

/// Why a list of scopes is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// A name that cannot be a scope.
    #[error("a scope has 1 to {SCOPE_BYTES_MAX} visible ASCII characters, no quote, no backslash")]
    NotAScope,
    /// Too many of them.
    #[error("at most {SCOPES_MAX} scopes are allowed")]
    TooMany,
}

impl Scopes {
    /// Exactly those in `names`.
    ///
    /// # Errors
    /// A [`ScopeError`] when one is not a scope, or there are too many.
    pub fn only<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self, ScopeError> {
        let mut found = BTreeSet::new();
        for name in names {
            if !is_scope(name) {
                return Err(ScopeError::NotAScope);
            }
            found.insert(Box::from(name));
            if found.len() > SCOPES_MAX {
                return Err(ScopeError::TooMany);
            }
        }
        Ok(Self::Only(Arc::new(found)))
    }

    /// Whether `scope` is allowed.
    #[must_use]
    pub fn allow(&self, scope: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(scope),
        }
    }

    /// Whether everything that `other` allows is allowed here too.
    pub(super) fn cover(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Only(_), Self::All) => false,
            (Self::Only(own), Self::Only(theirs)) => own.is_superset(theirs),
        }
    }
}

/// The grammar of a scope in OAuth 2.0 (RFC 6749, appendix A.4).
fn is_scope(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    (1..=SCOPE_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_allowed_by_its_whole_name() {
        let some = Scopes::only(["orders:write", "orders:read"]).unwrap();
        assert!(some.allow("orders:write"));
        assert!(!some.allow("orders"));
        assert!(!some.allow("orders:write "));
        assert!(Scopes::All.allow("anything"));
        assert!(!Scopes::only([]).unwrap().allow("anything"));
    }

    #[test]
    fn a_part_never_covers_the_whole() {
        let (few, more) = (Scopes::only(["a"]).unwrap(), Scopes::only(["a", "b"]).unwrap());
        assert!(Scopes::All.cover(&few) && Scopes::All.cover(&Scopes::All));
        assert!(more.cover(&few) && !few.cover(&more) && !more.cover(&Scopes::All));
    }

    #[test]
    fn scopes_are_bounded_and_have_a_grammar() {
        for bad in ["", "a b", "a\"b", "a\\b", "ä", &"x".repeat(256)] {
            assert_eq!(Scopes::only([bad]), Err(ScopeError::NotAScope), "{bad:?}");
        }
        let names: Vec<_> = (0..=SCOPES_MAX).map(|n| n.to_string()).collect();
        let many = Scopes::only(names.iter().map(String::as_str));
        assert_eq!(many, Err(ScopeError::TooMany));
        assert!(Scopes::only(names[1..].iter().map(String::as_str)).is_ok());
    }
}
