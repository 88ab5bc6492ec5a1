//! The public keys of an issuer, and which of them a token is to be checked with.
//!
//! A key verifies only what it is for: its type, its curve, its own `alg` and `use` must fit the
//! algorithm of the token. A secret never comes from a published set, so a public key is never
//! taken for one.

use std::fmt;

use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use serde::Deserialize;
use serde_json::Value;

use super::claims::Verified;
use super::fetch::FetchError;
use super::remembered::Remembered;

/// The most keys of one set.
const KEYS_MAX: usize = 128;
/// The least bits of an RSA key; what is shorter can be broken.
const RSA_BITS_MIN: usize = 2_048;
/// The most; checking a longer one would cost too much.
const RSA_BITS_MAX: usize = 4_096;

/// Keys that are good together, and the tokens that were verified with them.
pub(super) struct KeySet {
    keys: Vec<VerifyKey>,
    pub(super) remembered: Remembered<Verified>,
}

/// One key and what it may verify.
struct VerifyKey {
    kid: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl KeySet {
    /// A secret that is shared with the issuer.
    pub(super) fn of_secret(secret: &[u8]) -> Self {
        let algorithms = AlgorithmFamily::Hmac.algorithms().to_vec();
        let key = DecodingKey::from_secret(secret);
        Self::of(vec![VerifyKey { kid: None, algorithms, key }])
    }

    /// The keys of a JSON Web Key Set that can verify a signature; the others are passed over, as
    /// the standard wants it.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, FetchError> {
        #[derive(Deserialize)]
        struct Published {
            keys: Vec<Value>,
        }

        let published: Published =
            serde_json::from_slice(bytes).map_err(|_| FetchError::NotAKeySet)?;
        if published.keys.len() > KEYS_MAX {
            return Err(FetchError::TooManyKeys);
        }
        let jwks = published.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        let keys: Vec<_> = jwks.filter_map(|jwk: Jwk| VerifyKey::of(&jwk)).collect();
        if keys.is_empty() { Err(FetchError::NoKeys) } else { Ok(Self::of(keys)) }
    }

    fn of(keys: Vec<VerifyKey>) -> Self {
        Self { keys, remembered: Remembered::new() }
    }

    /// The one key for a token that names `kid` and `algorithm`.
    ///
    /// Keys of that name come first, keys without a name second. A token that names no key is
    /// checked only when there is no choice.
    pub(super) fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&DecodingKey> {
        let fits = |key: &&VerifyKey| key.algorithms.contains(&algorithm);
        let named = |key: &&VerifyKey| kid.is_some() && key.kid.as_deref() == kid;
        if let Some(found) = self.keys.iter().filter(named).find(fits) {
            return Some(&found.key);
        }
        let is_open = |key: &&VerifyKey| kid.is_none() || key.kid.is_none();
        let mut open = self.keys.iter().filter(is_open).filter(fits);
        match (open.next(), open.next()) {
            (Some(only), None) => Some(&only.key),
            (None | Some(_), _) => None,
        }
    }
}

/// Shows how many keys there are, and none of them.
impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySet({} keys)", self.keys.len())
    }
}

impl VerifyKey {
    fn of(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        let signs =
            common.public_key_use.as_ref().is_none_or(|found| *found == PublicKeyUse::Signature);
        let verifies = common
            .key_operations
            .as_ref()
            .is_none_or(|found| found.contains(&KeyOperations::Verify));
        let key = DecodingKey::from_jwk(jwk).ok()?;
        let says = |algorithm: &Algorithm| {
            common.key_algorithm.is_none_or(|said| said == KeyAlgorithm::from(*algorithm))
        };
        let algorithms: Vec<_> = algorithms(jwk, &key).iter().copied().filter(says).collect();
        let is_usable = signs && verifies && !algorithms.is_empty();
        is_usable.then(|| Self { kid: common.key_id.clone(), algorithms, key })
    }
}

/// What the type of a key can verify.
fn algorithms<'k>(jwk: &Jwk, key: &'k DecodingKey) -> &'k [Algorithm] {
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is not known verifies nothing")]
    match &jwk.algorithm {
        AlgorithmParameters::RSA(_) if is_rsa_strong(key) => AlgorithmFamily::Rsa.algorithms(),
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            _ => &[],
        },
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            &[Algorithm::EdDSA]
        }
        _ => &[],
    }
}

fn is_rsa_strong(key: &DecodingKey) -> bool {
    let DecodingKeyKind::RsaModulusExponent { n, .. } = key.kind() else {
        return false;
    };
    let zeros = n.iter().take_while(|byte| **byte == 0).count();
    let first = n.get(zeros).map_or(8, |byte| byte.leading_zeros() as usize);
    let bits = (n.len() - zeros) * 8;
    (RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits.saturating_sub(first))
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    use serde_json::json;

    use super::*;

    fn rsa(bits: usize) -> Value {
        let mut modulus = vec![0xff; bits.div_ceil(8)];
        modulus[0] = if bits.is_multiple_of(8) { 0xff } else { 0xff >> (8 - bits % 8) };
        json!({ "kty": "RSA", "e": "AQAB", "n": BASE64_URL_SAFE_NO_PAD.encode(modulus) })
    }

    fn octets() -> String {
        BASE64_URL_SAFE_NO_PAD.encode([7; 32])
    }

    fn with(mut key: Value, name: &str, value: Value) -> Value {
        key[name] = value;
        key
    }

    fn set(keys: &[Value]) -> Result<KeySet, FetchError> {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
    }

    #[test]
    fn what_a_key_may_verify_is_this_table() {
        use Algorithm::{ES256, ES384, EdDSA, HS256, PS512, RS256, RS384};
        let all = [HS256, RS256, RS384, PS512, ES256, ES384, EdDSA];
        let (x, y) = (octets(), octets());
        let ec = |curve: &str| json!({ "kty": "EC", "crv": curve, "x": x, "y": y });
        let table: [(Value, &[Algorithm]); 18] = [
            (rsa(2_048), &[RS256, RS384, PS512]),
            (rsa(4_096), &[RS256, RS384, PS512]),
            (rsa(2_047), &[]),
            (rsa(4_097), &[]),
            (rsa(1_024), &[]),
            (with(rsa(2_048), "alg", json!("RS384")), &[RS384]),
            (with(rsa(2_048), "alg", json!("HS256")), &[]),
            (with(rsa(2_048), "alg", json!("RSA-OAEP")), &[]),
            (with(rsa(2_048), "use", json!("sig")), &[RS256, RS384, PS512]),
            (with(rsa(2_048), "use", json!("enc")), &[]),
            (with(rsa(2_048), "key_ops", json!(["verify"])), &[RS256, RS384, PS512]),
            (with(rsa(2_048), "key_ops", json!(["encrypt"])), &[]),
            (ec("P-256"), &[ES256]),
            (ec("P-384"), &[ES384]),
            (ec("P-521"), &[]),
            (json!({ "kty": "OKP", "crv": "Ed25519", "x": x }), &[EdDSA]),
            (json!({ "kty": "oct", "k": x }), &[]),
            (json!({ "kty": "AKP" }), &[]),
        ];
        for (key, expected) in table {
            let found: Vec<_> = match set(std::slice::from_ref(&key)) {
                Ok(set) => all.into_iter().filter(|a| set.find(None, *a).is_some()).collect(),
                Err(why) => {
                    assert_eq!(why, FetchError::NoKeys, "{key}");
                    Vec::new()
                }
            };
            assert_eq!(found, expected, "{key}");
        }
    }

    #[test]
    fn a_key_is_chosen_by_its_name_or_when_there_is_no_choice() {
        let named = |name: &str| with(rsa(2_048), "kid", json!(name));
        let found = |keys: &[Value], kid| set(keys).unwrap().find(kid, Algorithm::RS256).is_some();
        assert!(found(&[named("a"), named("b")], Some("b")));
        assert!(!found(&[named("a"), named("b")], Some("c")), "an unknown name");
        assert!(!found(&[named("a"), named("b")], None), "two would do");
        assert!(found(&[named("a")], None));
        assert!(found(&[named("a"), rsa(2_048)], Some("c")), "a key without a name");
        assert!(!found(&[rsa(2_048), rsa(2_048)], Some("c")));
    }

    #[test]
    fn a_set_is_bounded_and_one_bad_key_spoils_nothing() {
        let bad = json!({ "kty": 7, "use": [], "kid": {} });
        assert!(set(&[bad, json!("text"), rsa(2_048)]).is_ok());
        assert_eq!(set(&[]).unwrap_err(), FetchError::NoKeys);
        assert_eq!(set(&vec![rsa(2_048); 129]).unwrap_err(), FetchError::TooManyKeys);
        for bad in ["", "[]", "{}", "{\"keys\":7}", "<html>"] {
            assert_eq!(KeySet::parse(bad.as_bytes()).unwrap_err(), FetchError::NotAKeySet, "{bad}");
        }
    }

    #[test]
    fn a_set_does_not_show_its_keys() {
        assert_eq!(format!("{:?}", KeySet::of_secret(b"hush")), "KeySet(1 keys)");
    }
}
