//! Callers who hold a key that was given out. Only digests are known here.
//!
//! Every key that comes costs the same work, known or not, and a refusal never tells a caller
//! whether there was such a key. The book of keys is replaced as a whole: a request sees the keys
//! before or after, never a mixture.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName};
use onetake_core::{Principal, Tenant, Timestamp};
use onetake_engine::Clock;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::credential::credential;
use super::scopes::Scopes;
use super::times::timestamp;
use super::{Identity, KeyFault, Reach, Refused, SettingsError, TenantKeys, Times, Words};

/// The longest key, in bytes.
const KEY_BYTES_MAX: usize = 4 * 1_024;
/// The most keys of all tenants together.
const KEYS_MAX: usize = 100_000;
/// What a digest begins with in the configuration.
const DIGEST_PREFIX: &str = "sha256:";
/// What a generated key begins with, so that people and scanners recognise one.
const KEY_PREFIX: &str = "otk_";

/// The machine gives no random numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no random numbers: {0}")]
pub struct NoChance(String);

/// A new key, and its `sha256:` text for the configuration.
///
/// # Errors
/// [`NoChance`] when the machine gives no random numbers.
pub fn generate_key() -> Result<(String, String), NoChance> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|why| NoChance(why.to_string()))?;
    let key = format!("{KEY_PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes));
    let hex = base16ct::lower::encode_string(&Sha256::digest(key.as_bytes()));
    Ok((key, format!("{DIGEST_PREFIX}{hex}")))
}

/// The keys that are good now. Clones share them.
#[derive(Clone)]
pub struct ApiKeys(Arc<Inner>);

struct Inner {
    headers: Vec<HeaderName>,
    book: RwLock<Arc<Book>>,
    wall: Arc<dyn Clock>,
}

impl ApiKeys {
    pub(super) fn new(
        headers: Vec<HeaderName>,
        tenants: &[TenantKeys],
        times: &Times,
    ) -> Result<Self, SettingsError> {
        let book = RwLock::new(Arc::new(Book::of(tenants)?));
        Ok(Self(Arc::new(Inner { headers, book, wall: Arc::clone(&times.wall) })))
    }

    /// Replaces every tenant and every key at once. Requests that come afterwards are judged by
    /// the new ones alone.
    ///
    /// # Errors
    /// A [`SettingsError`]; the keys before it then stay.
    pub fn replace(&self, tenants: &[TenantKeys]) -> Result<(), SettingsError> {
        let book = Arc::new(Book::of(tenants)?);
        *self.0.book.write().unwrap_or_else(PoisonError::into_inner) = book;
        Ok(())
    }

    pub(super) fn headers(&self) -> &[HeaderName] {
        &self.0.headers
    }

    pub(super) fn admit(&self, headers: &HeaderMap) -> Result<Identity, Refused> {
        let key = credential(headers, &self.0.headers, KEY_BYTES_MAX)?;
        let book = Arc::clone(&self.0.book.read().unwrap_or_else(PoisonError::into_inner));
        let known = book.find(key).ok_or(Refused::Invalid("no tenant has this key"))?;
        if known.expires.is_some_and(|end| end <= self.0.wall.now()) {
            return Err(Refused::Invalid("the key has expired"));
        }
        Ok(known.identity.clone())
    }
}

/// Shows how many keys there are, and none of them.
impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let book = self.0.book.read().unwrap_or_else(PoisonError::into_inner);
        write!(f, "ApiKeys({} keys)", book.known.len())
    }
}

/// The keys by the first half of their digests.
struct Book {
    known: HashMap<u128, Known>,
}

struct Known {
    digest: [u8; 32],
    identity: Identity,
    expires: Option<Timestamp>,
}

impl Book {
    fn of(tenants: &[TenantKeys]) -> Result<Self, SettingsError> {
        let mut book = Self { known: HashMap::new() };
        let mut names: Vec<_> = tenants.iter().map(|tenant| &tenant.name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SettingsError::TenantTwice { tenant: pair[0].clone() });
        }
        for tenant in tenants {
            book.add(tenant)?;
        }
        Ok(book)
    }

    fn add(&mut self, settings: &TenantKeys) -> Result<(), SettingsError> {
        let tenant = Tenant::new(&settings.name)?;
        let all = scopes(settings.scopes.as_ref(), &Scopes::All)?;
        let reach = Reach::sharing(settings.share_scope);
        for (key, number) in settings.keys.iter().zip(1_usize..) {
            let tenant_name = &settings.name;
            let wrong = |fault| SettingsError::Key { tenant: tenant_name.clone(), number, fault };
            let digest = digest(&key.digest).ok_or_else(|| wrong(KeyFault::NotADigest))?;
            let principal = key.name.as_deref().map(Principal::new).transpose()?;
            let own = scopes(key.scopes.as_ref(), &all)?;
            if !all.cover(&own) {
                return Err(wrong(KeyFault::ScopeOfNobody));
            }
            let expires = key.expires.as_deref().map(humantime::parse_rfc3339).transpose();
            let expires = expires.map_err(|_| wrong(KeyFault::NotATime))?;
            let identity = Identity::verified(tenant.clone(), principal, reach);
            let identity = identity.limited(own, expires);
            if self.known.len() == KEYS_MAX {
                return Err(SettingsError::TooManyKeys { most: KEYS_MAX });
            }
            let expires = expires.map(timestamp);
            match self.known.entry(front(&digest)) {
                Entry::Vacant(place) => place.insert(Known { digest, identity, expires }),
                Entry::Occupied(_) => return Err(wrong(KeyFault::Twice)),
            };
        }
        Ok(())
    }

    /// The one who holds `key`. An unknown key is hashed, looked up and compared like a known one.
    fn find(&self, key: &[u8]) -> Option<&Known> {
        const NOBODY: [u8; 32] = [0; 32];
        let digest: [u8; 32] = Sha256::digest(key).into();
        let known = self.known.get(&front(&digest));
        let expected = known.map_or(&NOBODY, |known| &known.digest);
        let is_same: bool = expected.ct_eq(&digest).into();
        known.filter(|_| is_same)
    }
}

/// The half of a digest by which it is filed. One comparison of a number, so no byte of it shows
/// in the time that it takes.
fn front(digest: &[u8; 32]) -> u128 {
    let half = digest.first_chunk().expect("invariant: a digest has 32 bytes");
    u128::from_be_bytes(*half)
}

/// The digest that `text` spells.
fn digest(text: &str) -> Option<[u8; 32]> {
    let hex = text.strip_prefix(DIGEST_PREFIX)?;
    let mut digest = [0; 32];
    let decoded = base16ct::mixed::decode(hex, &mut digest).ok()?;
    (decoded.len() == 32).then_some(digest)
}

/// The scopes in `words`, or `otherwise` where nothing is said.
fn scopes(words: Option<&Words>, otherwise: &Scopes) -> Result<Scopes, SettingsError> {
    match words {
        Some(words) => Ok(Scopes::only(words.iter())?),
        None => Ok(otherwise.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_key_is_long_new_and_known_by_its_digest() {
        let (key, text) = generate_key().unwrap();
        assert_eq!(key.len(), KEY_PREFIX.len() + 43);
        assert_ne!(generate_key().unwrap().0, key);
        let tenant =
            TenantKeys { name: "acme".into(), keys: vec![(&*text).into()], ..Default::default() };
        let book = Book::of(&[tenant]).unwrap();
        assert_eq!(book.find(key.as_bytes()).unwrap().identity.tenant().as_str(), "acme");
        assert!(book.find(text.as_bytes()).is_none(), "the digest itself opens nothing");
        assert!(book.find(&key.as_bytes()[1..]).is_none());
    }

    #[test]
    fn half_a_digest_is_not_enough() {
        let mut known = HashMap::new();
        let digest: [u8; 32] = Sha256::digest(b"key").into();
        let mut near = digest;
        near[31] ^= 1;
        let identity = Identity::verified(Tenant::new("a").unwrap(), None, Reach::Subject);
        known.insert(front(&digest), Known { digest: near, identity, expires: None });
        assert!(Book { known }.find(b"key").is_none());
    }

    #[test]
    fn a_digest_is_64_digits_after_its_prefix() {
        let good = format!("sha256:{}", "aB".repeat(32));
        assert_eq!(digest(&good), Some([0xab; 32]));
        let (short, long) = (&good[..good.len() - 1], format!("{good}0"));
        let plain = "ab".repeat(32);
        for bad in ["", "sha256:", short, &long, &plain, &good.replace('a', "g")] {
            assert_eq!(digest(bad), None, "{bad}");
        }
    }
}
