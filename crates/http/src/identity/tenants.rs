//! Tenants and their keys, as they are configured: names and digests, never a key itself.
//!
//! A key is `sha256:` and the digits of its digest. What they add up to is checked in
//! `api_keys.rs`.

use std::fmt;

use super::Words;

/// A tenant and the keys that were given to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantKeys {
    /// Its name; every record of the tenant is filed under it.
    pub name: String,
    /// Its keys. All are good at once, so that one can be replaced by another.
    pub keys: Vec<KeyOfTenant>,
    /// What its keys allow; everything when it is not said.
    pub scopes: Option<Words>,
    /// Whether named keys share one space of idempotency keys, as keys without a name always do.
    pub share_scope: bool,
}

/// One key of a tenant, by its digest.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct KeyOfTenant {
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The subject that the key stands for. Two keys of one name are one subject.
    pub name: Option<String>,
    /// What it allows, out of what its tenant may do; all of that when it is not said.
    pub scopes: Option<Words>,
    /// When it ends, such as `2027-01-31T00:00:00Z`.
    pub expires: Option<String>,
}

impl From<&str> for KeyOfTenant {
    fn from(digest: &str) -> Self {
        Self { digest: digest.to_owned(), ..Self::default() }
    }
}

/// Leaves out the digest: who pastes a key in its place must not find it in a log.
impl fmt::Debug for KeyOfTenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyOfTenant")
            .field("name", &self.name)
            .field("scopes", &self.scopes)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X11: what was pasted in place of a digest is not shown.
    #[test]
    fn x11_a_configured_key_does_not_show_itself() {
        let shown = format!("{:?}", KeyOfTenant::from("otk_pasted"));
        assert!(!shown.contains("pasted"), "{shown}");
    }
}
