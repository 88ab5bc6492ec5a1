//! Who asks, what for, and under which key: the parts of an address, each checked once.
//!
//! After this file the type is the proof: a [`Key`] is never empty, too long or unprintable, and
//! two different addresses never share a [`Slot`]. Nothing here reads a request: a door decides
//! which verified identity becomes a [`Scope`], and must never take one from a body.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::Code;

/// The longest tenant, principal, operation or key, in bytes. One length byte is enough for each.
pub const NAME_BYTES_MAX: usize = 255;

/// A name that was refused, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name has no characters.
    #[error("the {what} is empty; give it at least one character")]
    Empty {
        /// Which name.
        what: &'static str,
    },
    /// The name is longer than [`NAME_BYTES_MAX`].
    #[error("the {what} has {bytes} bytes; at most {NAME_BYTES_MAX} are allowed")]
    TooLong {
        /// Which name.
        what: &'static str,
        /// How long it was.
        bytes: usize,
    },
    /// The name holds a character that its grammar does not allow.
    #[error("the {what} holds a character at byte {at} that is not allowed: use {allowed}")]
    Character {
        /// Which name.
        what: &'static str,
        /// The byte offset of the character.
        at: usize,
        /// What is allowed instead.
        allowed: &'static str,
    },
}

impl NameError {
    /// The stable code of this refusal.
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::KeyInvalid
    }
}

/// Checks `text` and copies it; the only way into every name of this file.
fn checked(
    what: &'static str,
    text: &str,
    allowed: &'static str,
    allows: impl Fn(char) -> bool,
) -> Result<Arc<str>, NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { what, bytes: text.len() });
    }
    match text.char_indices().find(|(_, c)| !allows(*c)) {
        Some((at, _)) => Err(NameError::Character { what, at, allowed }),
        None => Ok(Arc::from(text)),
    }
}

/// Declares a name: a checked, cheaply cloned string with one way in.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text`: 1 to 255 bytes, no control characters.
            ///
            /// # Errors
            /// A [`NameError`] that says what is wrong and what is allowed.
            pub fn new(text: &str) -> Result<Self, NameError> {
                checked($what, text, "text without control characters", |c| !c.is_control())
                    .map(Self)
            }

            /// The checked text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<&str> for $name {
            type Error = NameError;

            fn try_from(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), &*self.0)
            }
        }
    };
}

name! {
    /// The party whose keys live in a space of their own. Comes from verified identity only.
    Tenant, "tenant"
}
name! {
    /// The verified subject inside a tenant.
    Principal, "principal"
}
name! {
    /// What is done, by a stable name such as `orders.create`. It is part of the address, so the
    /// same key under two operations never collides.
    Operation, "operation"
}

name! {
    /// Who acts on records by hand, as the audit names them.
    Actor, "operator"
}

/// Which characters a key may hold; a value of the dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KeyGrammar {
    /// Visible ASCII, `!` to `~`.
    #[default]
    VisibleAscii,
    /// Letters, digits, `-`, `.`, `_` and `~`.
    UrlSafe,
}

impl KeyGrammar {
    fn allows(self, c: char) -> bool {
        match self {
            Self::VisibleAscii => c.is_ascii_graphic(),
            Self::UrlSafe => c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~'),
        }
    }

    const fn allowed(self) -> &'static str {
        match self {
            Self::VisibleAscii => "visible ASCII without spaces",
            Self::UrlSafe => "letters, digits, '-', '.', '_' and '~'",
        }
    }
}

/// The caller's word for one logical operation: 1 to 255 characters, visible ASCII at most.
///
/// Its text may be a secret of the caller's, so `Debug` shows only its length.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// Checks `text` against the default grammar.
    ///
    /// # Errors
    /// A [`NameError`] that says what is wrong and what is allowed.
    pub fn new(text: &str) -> Result<Self, NameError> {
        Self::with_grammar(text, KeyGrammar::default())
    }

    /// Checks `text` against the grammar of a dialect.
    ///
    /// # Errors
    /// A [`NameError`] that says what is wrong and what is allowed.
    pub fn with_grammar(text: &str, grammar: KeyGrammar) -> Result<Self, NameError> {
        checked("key", text, grammar.allowed(), |c| grammar.allows(c)).map(Self)
    }

    /// The caller's text. Never log it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for Key {
    type Error = NameError;

    fn try_from(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// Who asks: a tenant and, by default, the verified subject within it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    tenant: Tenant,
    principal: Option<Principal>,
}

impl Scope {
    /// A scope that all subjects of `tenant` share.
    #[must_use]
    pub const fn tenant_wide(tenant: Tenant) -> Self {
        Self { tenant, principal: None }
    }

    /// The scope of one subject of a tenant.
    #[must_use]
    pub const fn of(tenant: Tenant, principal: Principal) -> Self {
        Self { tenant, principal: Some(principal) }
    }

    /// Checks `tenant` and makes a scope that all its subjects share.
    ///
    /// # Errors
    /// A [`NameError`] when `tenant` is not a name.
    pub fn tenant_named(tenant: &str) -> Result<Self, NameError> {
        Tenant::new(tenant).map(Self::tenant_wide)
    }

    /// The tenant.
    #[must_use]
    pub const fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// The subject, where the scope has one.
    #[must_use]
    pub const fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }
}

/// The full address of one logical operation, with the [`Slot`] that it falls into.
///
/// The parts are kept beside every record and compared, so that not even a collision of digests
/// could answer for another operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    // The tenant is part of the slot; holding it twice would cost every record.
    principal: Option<Principal>,
    operation: Operation,
    key: Key,
    slot: Slot,
}

impl Address {
    /// Joins the parts and computes the slot.
    #[must_use]
    pub fn new(scope: Scope, operation: Operation, key: Key) -> Self {
        let digest = Slot::digest_of(&scope, &operation, &key);
        let Scope { tenant, principal } = scope;
        Self { principal, operation, key, slot: Slot { tenant, digest } }
    }

    /// Whose keys these are.
    #[must_use]
    pub const fn tenant(&self) -> &Tenant {
        &self.slot.tenant
    }

    /// The subject, where the scope has one.
    #[must_use]
    pub const fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    /// What for.
    #[must_use]
    pub const fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The caller's word for it.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// Where its record lives.
    #[must_use]
    pub const fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Shares the memory of `slot`, if that is its own.
    pub fn share(&mut self, slot: &Slot) {
        if self.slot == *slot {
            self.slot.tenant = slot.tenant.clone();
        }
    }
}

/// Where a record lives: the tenant, and a digest of scope, operation and key.
///
/// The tenant comes first, so the slots of one tenant are a range of any ordered store.
#[derive(Clone, Eq)]
pub struct Slot {
    tenant: Tenant,
    digest: [u8; 32],
}

/// The digest comes first: it decides nearly always, and is nearer than the tenant's name.
impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && self.tenant == other.tenant
    }
}

impl Slot {
    /// Every part is preceded by its length, so no two different lists of parts hash the same
    /// bytes.
    fn digest_of(scope: &Scope, operation: &Operation, key: &Key) -> [u8; 32] {
        // No principal is empty, so length zero stands for "none" and for nothing else.
        let principal = scope.principal().map_or("", Principal::as_str);
        let parts = [scope.tenant.as_str(), principal, operation.as_str(), key.as_str()];
        // Many small pieces would cost more than to gather them.
        let mut bytes = Vec::with_capacity(128);
        bytes.extend_from_slice(b"onetake/slot/1");
        for text in parts {
            let length = u8::try_from(text.len()).expect("invariant: names have at most 255 bytes");
            bytes.push(length);
            bytes.extend_from_slice(text.as_bytes());
        }
        Sha256::digest(bytes).into()
    }

    /// A slot read back from a store.
    #[must_use]
    pub const fn from_parts(tenant: Tenant, digest: [u8; 32]) -> Self {
        Self { tenant, digest }
    }

    /// Whose record lives here.
    #[must_use]
    pub const fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// The digest of scope, operation and key.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The slot of `tenant` whose digest reads `hex`: 64 hexadecimal digits. `None` for any other
    /// text.
    #[must_use]
    pub fn from_hex(tenant: Tenant, hex: &str) -> Option<Self> {
        let pairs: &[[u8; 2]; 32] = hex.as_bytes().as_chunks().0.try_into().ok()?;
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(pairs) {
            *byte = hex_value(pair[0])? << 4 | hex_value(pair[1])?;
        }
        (hex.len() == 64).then_some(Self { tenant, digest })
    }

    /// The digest in hexadecimal digits, for operators. Who can guess keys can check a guess with
    /// it, so it does not belong in a log.
    #[must_use]
    pub fn hex(&self) -> String {
        self.digest.iter().fold(String::with_capacity(64), |hex, byte| hex + &format!("{byte:02x}"))
    }

    /// The bytes under which an ordered store keeps this slot: [`tenant_prefix`], then the digest.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = tenant_prefix(&self.tenant);
        bytes.extend_from_slice(&self.digest);
        bytes
    }
}

/// The value of one hexadecimal digit.
fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// The first bytes of everything that belongs to `tenant` in an ordered store.
///
/// The length comes first, so `acme` is never a prefix of `acme-2`.
#[must_use]
pub fn tenant_prefix(tenant: &Tenant) -> Vec<u8> {
    let name = tenant.as_str().as_bytes();
    let mut bytes = Vec::with_capacity(1 + name.len() + 32);
    bytes.push(u8::try_from(name.len()).expect("invariant: names have at most 255 bytes"));
    bytes.extend_from_slice(name);
    bytes
}

/// The order of [`Slot::to_bytes`], so that every store pages in the same order.
impl Ord for Slot {
    fn cmp(&self, other: &Self) -> Ordering {
        let (own, theirs) = (self.tenant.as_str(), other.tenant.as_str());
        let tenants = own.len().cmp(&theirs.len()).then_with(|| own.cmp(theirs));
        tenants.then_with(|| self.digest.cmp(&other.digest))
    }
}

impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A part of the digest is enough to spread slots over a map, for it covers the tenant as well.
impl Hash for Slot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let start = self.digest.first_chunk().expect("invariant: a digest has 32 bytes");
        state.write_u64(u64::from_be_bytes(*start));
    }
}

/// Shows the tenant only: the digest of a guessable key would give the key away.
impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({:?}, …)", self.tenant.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;

    fn address(tenant: &str, principal: Option<&str>, operation: &str, key: &str) -> Address {
        let tenant = Tenant::new(tenant).unwrap();
        let scope = match principal {
            Some(name) => Scope::of(tenant, Principal::new(name).unwrap()),
            None => Scope::tenant_wide(tenant),
        };
        Address::new(scope, Operation::new(operation).unwrap(), Key::new(key).unwrap())
    }

    fn slot(tenant: &str, principal: Option<&str>, operation: &str, key: &str) -> Slot {
        address(tenant, principal, operation, key).slot().clone()
    }

    #[test]
    fn a_key_has_1_to_255_visible_characters() {
        assert!(Key::new("a").is_ok());
        assert!(Key::new(&"k".repeat(255)).is_ok());
        assert_eq!(Key::new(""), Err(NameError::Empty { what: "key" }));
        assert_eq!(Key::new(&"k".repeat(256)), Err(NameError::TooLong { what: "key", bytes: 256 }));
        for bad in ["a b", "tab\t", "nul\0", "ünïcode", "line\n", "\u{7f}"] {
            assert!(matches!(Key::new(bad), Err(NameError::Character { .. })), "{bad:?}");
        }
    }

    #[test]
    fn the_url_safe_grammar_is_narrower() {
        let url_safe = |text| Key::with_grammar(text, KeyGrammar::UrlSafe);
        assert!(url_safe("A-z_0.9~").is_ok());
        for bad in ["a/b", "a+b", "a=b", "a:b", "\"a\""] {
            assert!(matches!(url_safe(bad), Err(NameError::Character { .. })), "{bad:?}");
            assert!(Key::new(bad).is_ok(), "{bad:?} is visible ASCII");
        }
    }

    #[test]
    fn a_refusal_says_where_and_what_to_do() {
        let error = Key::new("ab c").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the key holds a character at byte 2 that is not allowed: \
             use visible ASCII without spaces"
        );
        assert_eq!(error.code().as_str(), "key_invalid");
    }

    #[test]
    fn an_operation_may_hold_spaces_but_no_control_characters() {
        assert!(Operation::new("POST /v1/runs").is_ok());
        assert!(Operation::new("a\u{0}b").is_err());
        assert!(Tenant::new("").is_err());
        assert!(Principal::new(&"p".repeat(256)).is_err());
    }

    #[test]
    fn a_slot_is_found_again_by_its_tenant_and_the_digits_of_its_digest() {
        let slot = slot("acme", None, "orders.create", "k-1");
        let digits = slot.hex();
        assert_eq!(digits, hex(slot.digest()));
        let found = |text: &str| Slot::from_hex(Tenant::new("acme").unwrap(), text);
        assert_eq!(found(&digits), Some(slot.clone()));
        assert_eq!(found(&digits.to_uppercase()), Some(slot));
        for bad in ["", "zz", &digits[1..], &format!("{digits}0"), &digits.replace('a', "g")] {
            assert_eq!(found(bad), None, "{bad:?}");
        }
    }

    /// C7, and the tenant isolation that every door relies on: each part of the address counts.
    #[test]
    fn c7_the_same_raw_key_elsewhere_is_another_slot() {
        let base = slot("acme", Some("ann"), "orders.create", "k-1");
        assert_eq!(base, slot("acme", Some("ann"), "orders.create", "k-1"));
        assert_ne!(base, slot("evil", Some("ann"), "orders.create", "k-1"), "tenant");
        assert_ne!(base, slot("acme", Some("bob"), "orders.create", "k-1"), "principal");
        assert_ne!(base, slot("acme", None, "orders.create", "k-1"), "no principal");
        assert_ne!(base, slot("acme", Some("ann"), "payments.create", "k-1"), "operation");
        assert_ne!(base, slot("acme", Some("ann"), "orders.create", "k-2"), "key");
        // The digest alone differs too: a store that dropped the tenant column would still be safe.
        let other = slot("evil", Some("ann"), "orders.create", "k-1");
        assert_ne!(base.digest(), other.digest());
    }

    #[test]
    fn moving_a_boundary_between_parts_changes_the_slot() {
        assert_ne!(slot("a", None, "b:c", "d"), slot("a", None, "b", "c:d"));
        assert_ne!(slot("a", Some("b"), "c", "d"), slot("a", None, "bc", "d"));
        assert_ne!(slot("ab", None, "c", "d"), slot("a", Some("b"), "c", "d"));
    }

    #[test]
    fn the_slots_of_a_tenant_are_a_range() {
        let (short, long) = (Tenant::new("acme").unwrap(), Tenant::new("acme-2").unwrap());
        let (a, b) = (slot("acme", None, "o", "k"), slot("acme-2", None, "o", "k"));
        assert!(a.to_bytes().starts_with(&tenant_prefix(&short)));
        assert!(b.to_bytes().starts_with(&tenant_prefix(&long)));
        assert!(!b.to_bytes().starts_with(&tenant_prefix(&short)));
        assert_eq!(Slot::from_parts(short, *a.digest()), a);
        let tenants = ["z", "acme", "acmf"];
        let slots = tenants.map(|tenant| ["k", "l"].map(|key| slot(tenant, None, "o", key)));
        for one in slots.as_flattened() {
            for other in slots.as_flattened() {
                assert_eq!(one.cmp(other), one.to_bytes().cmp(&other.to_bytes()), "{one:?}");
            }
        }
    }

    /// The address is part of what is stored, so its digest may never change by accident.
    #[test]
    fn the_slot_digest_is_a_fixed_vector() {
        let slot = slot("acme", Some("ann"), "orders.create", "order-123");
        assert_eq!(
            hex(slot.digest()),
            "28ce82af590981e7695e5131b83bdfdf546aa135dc236dc99fee0fb9b8ee3607"
        );
    }

    #[test]
    fn keys_and_slots_do_not_show_their_secret() {
        let address = address("acme", None, "orders.create", "secret-key");
        let shown = format!("{address:?}");
        assert!(!shown.contains("secret"), "{shown}");
        assert!(shown.contains("Key(10 bytes)"), "{shown}");
    }
}
