//! Tenants and their keys, as they are configured: names and digests, never a key itself.
//!
//! A key is `sha256:` and the digits of its digest, or a table that says more about it. What they
//! add up to is checked in `api_keys.rs`.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Words;

/// A tenant and the keys that were given to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantKeys {
    /// Its name; every record of the tenant is filed under it.
    pub name: String,
    /// Its keys. All are good at once, so that one can be replaced by another.
    #[serde(default)]
    pub keys: Vec<KeyOfTenant>,
    /// What its keys allow; everything when it is not said.
    #[serde(default)]
    pub scopes: Option<Words>,
    /// Whether named keys share one space of idempotency keys, as keys without a name always do.
    #[serde(default)]
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

impl<'de> Deserialize<'de> for KeyOfTenant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            key: String,
            name: Option<String>,
            scopes: Option<Words>,
            expires: Option<String>,
        }

        struct TextOrTable;

        impl<'de> Visitor<'de> for TextOrTable {
            type Value = KeyOfTenant;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"sha256:…\", or a table with key, name, scopes and expires")
            }

            fn visit_str<E: Error>(self, digest: &str) -> Result<KeyOfTenant, E> {
                Ok(digest.into())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<KeyOfTenant, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                let Table { key: digest, name, scopes, expires } = table;
                Ok(KeyOfTenant { digest, name, scopes, expires })
            }
        }

        deserializer.deserialize_any(TextOrTable)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_key_is_a_text_or_a_table() {
        let tenant: TenantKeys = from_value(json!({
            "name": "acme",
            "keys": ["sha256:aa", { "key": "sha256:bb", "name": "billing", "scopes": "write" }],
        }))
        .unwrap();
        assert_eq!(tenant.keys[0], KeyOfTenant::from("sha256:aa"));
        assert_eq!(tenant.keys[1].digest, "sha256:bb");
        assert_eq!(tenant.keys[1].name.as_deref(), Some("billing"));
        assert_eq!(tenant.keys[1].scopes, Some(Words::from("write")));
        assert!(!tenant.share_scope && tenant.scopes.is_none());
    }

    #[test]
    fn an_unknown_setting_of_a_tenant_or_a_key_is_refused_by_its_name() {
        let refused = |value| from_value::<TenantKeys>(value).unwrap_err().to_string();
        assert!(refused(json!({ "name": "a", "kyes": [] })).contains("kyes"));
        let key = json!({ "key": "sha256:aa", "expiry": "never" });
        assert!(refused(json!({ "name": "a", "keys": [key] })).contains("expiry"));
        assert!(refused(json!({ "name": "a", "keys": [7] })).contains("sha256:"));
        assert!(refused(json!({ "keys": [] })).contains("name"));
    }

    /// X11: what was pasted in place of a digest is not shown.
    #[test]
    fn x11_a_configured_key_does_not_show_itself() {
        let shown = format!("{:?}", KeyOfTenant::from("otk_pasted"));
        assert!(!shown.contains("pasted"), "{shown}");
    }
}
