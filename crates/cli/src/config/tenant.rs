//! `[[tenant]]`, checked: names that are one each, keys by their hashes.
//!
//! A key itself is never in a configuration. No two tenants may have one key, for then nobody
//! could say who asks.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use onetake::{Principal, Tenant};
use onetake_http::identity::Scopes;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use super::bounds;
use super::problem::{Place, Problems, nearest, quoted};
use super::raw::{TenantKeyTable, Tenants};
use super::read::{FromText, Given, Options, Read, other_kind, read_table, schema_of};
use super::shown;
use super::tree::{Node, Value};
use super::value::{Moment, Plain, Word};

/// The most new keys a minute that can be asked for.
const NEW_KEYS_MAX: u64 = 1_000_000_000;

/// The SHA-256 of an API key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyHash(pub(crate) [u8; 32]);

impl KeyHash {
    /// As it is written in a configuration.
    pub(crate) fn text(self) -> String {
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let digits = digits.filter_map(|digit| char::from_digit(u32::from(digit), 16));
        format!("sha256:{}", digits.collect::<String>())
    }
}

/// Shows that there is one: a guess could be checked with it.
impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

impl Serialize for KeyHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Enough to tell two keys apart, too little to check a guess.
        serializer.serialize_str(&format!("sha256:{:02x}{:02x}…", self.0[0], self.0[1]))
    }
}

impl FromText for KeyHash {
    const EXPECTED: &'static str = "\"sha256:\" and 64 hexadecimal digits";

    fn from_text(text: &str) -> Result<Self, String> {
        // Never quoted: who mistakes the option for the key itself must not find it in a log.
        let digits = text.strip_prefix("sha256:").unwrap_or_default().as_bytes();
        let mut hash = [0; 32];
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let (pairs, rest) = digits.as_chunks::<2>();
        let mut is_hash = rest.is_empty() && pairs.len() == hash.len();
        for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
            match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => *byte = high << 4 | low,
                (None, _) | (_, None) => is_hash = false,
            }
        }
        if is_hash {
            return Ok(Self(hash));
        }
        Err(format!("expected {}; `onetake tenant add` prints it", Self::EXPECTED))
    }

    fn refine(schema: &mut Json) {
        schema["pattern"] = "^sha256:[0-9a-fA-F]{64}$".into();
    }
}

/// A key as it was given: its hash alone, or a table.
#[derive(Debug, Clone)]
pub(super) struct TenantKey(TenantKeyTable);

impl Read for TenantKey {
    fn expected() -> String {
        format!("{}, or a table", KeyHash::EXPECTED)
    }

    fn read(node: &Node, option: &str, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Text(_) => {
                let hash = Given::read(node, option, problems)?;
                Some(Self(TenantKeyTable { hash: Some(hash), ..TenantKeyTable::default() }))
            }
            Value::Table(_) => read_table(node, option, problems).map(Self),
            Value::Integer(_)
            | Value::Float
            | Value::Bool(_)
            | Value::Date(_)
            | Value::List(_)
            | Value::Word(_) => other_kind(node, option, problems),
        }
    }

    fn schema() -> Json {
        let mut table = schema_of(TenantKeyTable::KNOWN.iter());
        table["required"] = json!(["hash"]);
        json!({ "anyOf": [KeyHash::schema(), table] })
    }

    fn inside() -> &'static [super::read::Known] {
        TenantKeyTable::KNOWN
    }
}

/// A party with keys of its own.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TenantConfig {
    /// Its name.
    #[serde(serialize_with = "shown::tenant")]
    pub(crate) name: Tenant,
    /// Its API keys.
    pub(crate) keys: Vec<KeyConfig>,
    /// What it may do; none for everything.
    pub(crate) scopes: Option<Vec<Word>>,
    /// How many new keys a minute it may use; none for any number.
    pub(crate) new_keys_per_minute: Option<u64>,
    /// Where it was given.
    pub(crate) place: Place,
}

impl TenantConfig {
    /// Whether it, or one of its keys, may do less than everything.
    pub(crate) fn has_scopes(&self) -> bool {
        self.scopes.is_some() || self.keys.iter().any(|key| key.scopes.is_some())
    }
}

/// One API key.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct KeyConfig {
    /// The SHA-256 of the key.
    pub(crate) hash: KeyHash,
    /// Who it stands for inside the tenant; none when it has no name.
    #[serde(serialize_with = "shown::principal")]
    pub(crate) name: Option<Principal>,
    /// When it stops working.
    #[serde(serialize_with = "shown::moment")]
    pub(crate) expires: Option<SystemTime>,
    /// What it may do; none for what its tenant may.
    pub(crate) scopes: Option<Vec<Word>>,
    /// Where it was given.
    #[serde(skip)]
    pub(crate) place: Place,
}

/// Checks every `[[tenant]]`.
pub(super) fn tenants(raw: Vec<Given<Tenants>>, problems: &mut Problems) -> Vec<TenantConfig> {
    let (mut names, mut hashes) = (BTreeMap::new(), BTreeMap::new());
    let mut all = Vec::new();
    for given in raw {
        let Some(name) = &given.value.name else { continue };
        if let Some(first) = names.insert(name.value.clone(), name.spot.clone()) {
            let first = problems.place(&first);
            name.refuse(problems, format!("there is a tenant of this name already, at {first}"));
        }
        let scopes = given.value.scopes.as_ref();
        if let Some(scopes) = scopes {
            refuse_strange_words(scopes, problems);
        }
        let mut keys = Vec::new();
        for key in given.value.keys.iter().flat_map(|keys| &keys.value) {
            let Some(key) = one_key(key, scopes, problems) else { continue };
            let hash = key.value.hash;
            if let Some(first) = hashes.insert(hash, key.spot.clone()) {
                let first = problems.place(&first);
                key.refuse(problems, format!("this key is given already, at {first}"));
            }
            keys.push(key.value);
        }
        let new_keys_per_minute = given.value.new_keys_per_minute.as_ref();
        all.push(TenantConfig {
            name: name.value.clone(),
            keys,
            scopes: scopes.map(|scopes| scopes.value.clone()),
            new_keys_per_minute: new_keys_per_minute
                .map(|given| bounds::number(given, 1..=NEW_KEYS_MAX, problems)),
            place: problems.place(&given.spot),
        });
    }
    all
}

/// Refuses what cannot be the name of a scope, and too many of them.
fn refuse_strange_words(given: &Given<Vec<Word>>, problems: &mut Problems) {
    let names = given.value.iter().map(|Word(name)| name.as_str());
    if let Err(error) = Scopes::only(names) {
        given.refuse(problems, error);
    }
}

/// Refuses what a key may do and its tenant may not.
fn refuse_more(given: &Given<Vec<Word>>, tenant: &Given<Vec<Word>>, problems: &mut Problems) {
    let all = || tenant.value.iter().map(|Word(name)| name.as_str());
    for Word(name) in given.value.iter().filter(|word| !tenant.value.contains(word)) {
        let what = format!(
            "{}: a key has no more scopes than its tenant, which has no {}; add it to the scopes \
             at {}",
            given.option,
            quoted(name),
            problems.place(&tenant.spot)
        );
        problems.unknown(&given.spot, &given.option, what, nearest(name, all()));
    }
}

fn one_key(
    given: &Given<TenantKey>,
    of_tenant: Option<&Given<Vec<Word>>>,
    problems: &mut Problems,
) -> Option<Given<KeyConfig>> {
    let TenantKey(key) = given.value.clone();
    let Some(hash) = key.hash else {
        given.refuse(problems, "the key has no `hash`");
        return None;
    };
    let name = key.name.and_then(|name| {
        let Plain(text) = &name.value;
        let principal = Principal::new(text);
        principal.map_err(|error| name.refuse(problems, error)).ok()
    });
    let expires = key.expires.map(|given| {
        let Moment(moment) = given.value;
        moment
    });
    if let Some(own) = &key.scopes {
        refuse_strange_words(own, problems);
        if let Some(tenant) = of_tenant {
            refuse_more(own, tenant, problems);
        }
    }
    let (scopes, place) = (key.scopes.map(|given| given.value), problems.place(&given.spot));
    Some(given.with(KeyConfig { hash: hash.value, name, expires, scopes, place }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_has_64_digits_and_is_not_quoted_when_it_is_none() {
        let digits = "0123456789abcdefABCDEF0123456789".repeat(2);
        let hash = KeyHash::from_text(&format!("sha256:{digits}")).unwrap();
        assert_eq!(hash.0[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(serde_json::to_string(&hash).unwrap(), "\"sha256:0123…\"");
        let long = format!("sha256:{digits}0");
        for bad in ["hunter2", "sha256:hunter2", "sha256:", &digits, &long, &long[1..]] {
            let told = KeyHash::from_text(bad).unwrap_err();
            assert!(!told.contains("hunter2"), "{told}");
        }
        let wrong = format!("sha256:{}", "g".repeat(64));
        assert!(KeyHash::from_text(&wrong).is_err());
        assert_eq!(format!("{hash:?}"), "KeyHash(…)");
    }
}
