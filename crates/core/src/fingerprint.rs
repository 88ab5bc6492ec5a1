//! What was asked, in 32 bytes, so that a retry is told from another request under the same key.
//!
//! A [`Fingerprint`] carries its algorithm and its filters. When the filters of an operation
//! change, a retry of an old request is still recognised: [`Asked`] keeps the content and
//! fingerprints it again the way the stored record was. Nothing is ever compared across two ways of
//! fingerprinting.
//!
//! Most retries repeat a request byte by byte. So a fingerprint in memory also knows the digest of
//! a whole request that has it, once somebody has asked again: whoever sends just that need not be
//! read for its meaning.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::canonical::{CanonicalError, JsonLimits, canonical_json};
use crate::pointer::Pointer;

/// How the body became bytes to hash. Stored, so a number is never given another meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// SHA-256 of the bytes as they came.
    Raw = 1,
    /// SHA-256 of the canonical JSON.
    Json = 2,
}

/// What of a request counts: which fields do not, and which named parts beside the body do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Filters {
    ignored: Vec<Pointer>,
    parts: Vec<Arc<str>>,
}

impl Filters {
    /// The most pointers, and the most parts, that a filter set may have; they are stored.
    pub const ENTRIES_MAX: usize = 64;

    /// Makes a filter set. Order and repetition do not matter.
    ///
    /// # Errors
    /// The number of entries, when it is more than [`Filters::ENTRIES_MAX`].
    pub fn new(
        ignored: impl IntoIterator<Item = Pointer>,
        parts: impl IntoIterator<Item = Arc<str>>,
    ) -> Result<Self, TooManyFilters> {
        let mut filters =
            Self { ignored: ignored.into_iter().collect(), parts: parts.into_iter().collect() };
        filters.ignored.sort_unstable();
        filters.ignored.dedup();
        filters.parts.sort_unstable();
        filters.parts.dedup();
        let entries = filters.ignored.len().max(filters.parts.len());
        if entries > Self::ENTRIES_MAX { Err(TooManyFilters(entries)) } else { Ok(filters) }
    }

    /// The fields of a JSON body that do not count.
    #[must_use]
    pub fn ignored(&self) -> impl ExactSizeIterator<Item = &Pointer> {
        self.ignored.iter()
    }

    /// The names of the parts that count beside the body.
    #[must_use]
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.parts.iter().map(|part| &**part)
    }
}

/// More filters than a record may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} filters; at most {max} are allowed", max = Filters::ENTRIES_MAX)]
pub struct TooManyFilters(usize);

/// How a fingerprint was made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Method {
    algorithm: Algorithm,
    /// `None` for the empty filter set, which is what most records have.
    filters: Option<Arc<Filters>>,
}

impl Method {
    /// The bytes as they came, nothing left out.
    pub const RAW: Self = Self { algorithm: Algorithm::Raw, filters: None };
    /// Canonical JSON, nothing left out.
    pub const JSON: Self = Self { algorithm: Algorithm::Json, filters: None };

    /// `algorithm` after `filters`.
    #[must_use]
    pub fn new(algorithm: Algorithm, filters: Filters) -> Self {
        let filters = (filters != Filters::default()).then(|| Arc::new(filters));
        Self { algorithm, filters }
    }

    /// The bytes as they came, with the same parts.
    fn of_bytes(&self) -> Self {
        let parts = self.filters.as_ref().map(|filters| filters.parts.clone());
        let filters = Filters { ignored: Vec::new(), parts: parts.unwrap_or_default() };
        Self::new(Algorithm::Raw, filters)
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The filters, where there are any.
    #[must_use]
    pub fn filters(&self) -> Option<&Filters> {
        self.filters.as_deref()
    }
}

/// What was asked: a digest, and how it was made.
#[derive(Clone)]
pub struct Fingerprint {
    method: Method,
    digest: [u8; 32],
    /// The digest of a whole request that is known to have this fingerprint. It is never stored and
    /// says nothing that the other two do not, so it has no part in any comparison.
    known: OnceLock<[u8; 32]>,
}

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        (&self.method, &self.digest) == (&other.method, &other.digest)
    }
}

impl Eq for Fingerprint {}

impl std::hash::Hash for Fingerprint {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.method, &self.digest).hash(state);
    }
}

/// Shows how it was made only: the digest of a guessable body would give the body away.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({:?}, …)", self.method.algorithm)
    }
}

impl Fingerprint {
    /// A fingerprint read back from a store, or made elsewhere.
    #[must_use]
    pub const fn from_parts(method: Method, digest: [u8; 32]) -> Self {
        Self { method, digest, known: OnceLock::new() }
    }

    /// How it was made.
    #[must_use]
    pub const fn method(&self) -> &Method {
        &self.method
    }

    /// The digest.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

/// The content of a request as far as it counts: the body, and named parts such as the query.
#[derive(Clone)]
struct Content {
    body: Bytes,
    parts: Vec<(Cow<'static, str>, Bytes)>,
    limits: JsonLimits,
}

/// Shows how much there is, never what.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes, {} parts)", self.body.len(), self.parts.len())
    }
}

impl Content {
    /// The digest of all of it, whatever counts.
    fn whole(&self) -> [u8; 32] {
        // Many small pieces would cost more than to gather them.
        let mut parts = Vec::with_capacity(128);
        parts.extend_from_slice(b"onetake/request/1");
        for piece in self.parts.iter().flat_map(|(name, value)| [name.as_bytes(), value]) {
            parts.extend_from_slice(&(piece.len() as u64).to_be_bytes());
            parts.extend_from_slice(piece);
        }
        parts.extend_from_slice(&(self.body.len() as u64).to_be_bytes());
        Sha256::new().chain_update(parts).chain_update(&self.body).finalize().into()
    }
}

/// What this attempt asks, with its fingerprint and, where it is at hand, the content behind it.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Made when it is needed first: whoever only repeats a known request never needs it.
    fingerprint: OnceLock<Fingerprint>,
    content: Option<Arc<Content>>,
    whole: OnceLock<[u8; 32]>,
    /// How to make the fingerprint, if it is not made yet.
    method: Option<Method>,
}

impl PartialEq for Asked {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint() == other.fingerprint()
    }
}

impl Eq for Asked {}

impl Asked {
    /// Fingerprints the bytes as they are.
    #[must_use]
    pub fn raw(body: impl Into<Bytes>) -> Self {
        Asking::new(body).raw().expect("invariant: no parts are not too many")
    }

    /// Fingerprints a JSON document by its meaning.
    ///
    /// # Errors
    /// A [`CanonicalError`] when the document has no single meaning or passes a default limit.
    pub fn json(body: impl Into<Bytes>) -> Result<Self, CanonicalError> {
        Asking::new(body).by(Method::JSON)
    }

    /// Takes a fingerprint that was made elsewhere. Without the content a record with other filters
    /// counts as another request.
    #[must_use]
    pub fn digest(fingerprint: Fingerprint) -> Self {
        Self::made(fingerprint, None)
    }

    fn made(fingerprint: Fingerprint, content: Option<Arc<Content>>) -> Self {
        let fingerprint = OnceLock::from(fingerprint);
        Self { fingerprint, content, whole: OnceLock::new(), method: None }
    }

    /// The fingerprint that a new record will carry.
    #[must_use]
    pub fn fingerprint(&self) -> &Fingerprint {
        self.fingerprint.get_or_init(|| {
            let unmade = self.content.as_deref().zip(self.method.clone());
            let (content, method) = unmade.expect("invariant: made, or to be made of content");
            if let Ok(digest) = digest(content, &method) {
                // Most requests never come again: whoever does hashes it as a whole.
                let known = self.whole.get().map_or_else(OnceLock::new, |whole| (*whole).into());
                return Fingerprint { method, digest, known };
            }
            let method = method.of_bytes();
            let digest = digest(content, &method);
            let digest = digest.expect("invariant: bytes always have a fingerprint");
            Fingerprint::from_parts(method, digest)
        })
    }

    /// The digest of the whole request, where its content is at hand.
    fn whole(&self) -> Option<&[u8; 32]> {
        let content = self.content.as_deref()?;
        Some(self.whole.get_or_init(|| content.whole()))
    }

    /// Whether this attempt asks the same as the request that `stored` was made of.
    #[must_use]
    pub fn is_same(&self, stored: &Fingerprint) -> bool {
        match stored.method.algorithm {
            Algorithm::Raw => self.has(stored),
            // To read JSON for its meaning costs far more than to hash it.
            Algorithm::Json => {
                let whole = self.whole();
                if whole.is_some() && whole == stored.known.get() {
                    return true;
                }
                let same = self.has(stored);
                if let Some(whole) = whole.filter(|_| same) {
                    // Whoever was first may stay; both are right.
                    let _ = stored.known.set(*whole);
                }
                same
            }
        }
    }

    /// Whether the content has the fingerprint `stored`.
    fn has(&self, stored: &Fingerprint) -> bool {
        let own = match &self.method {
            Some(method) if *method == stored.method => Some(self.fingerprint()),
            Some(_) | None => self.fingerprint.get(),
        };
        if let Some(own) = own.filter(|own| own.method == stored.method) {
            return own.digest == stored.digest;
        }
        let again = self.content.as_ref().and_then(|content| digest(content, &stored.method).ok());
        again == Some(stored.digest)
    }
}

/// Gathers the content of a request before it is fingerprinted.
#[derive(Debug, Clone)]
pub struct Asking(Content);

impl Asking {
    /// Begins with the body.
    #[must_use]
    pub fn new(body: impl Into<Bytes>) -> Self {
        let limits = JsonLimits::default();
        Self(Content { body: body.into(), parts: Vec::new(), limits })
    }

    /// Bounds what is held of a JSON body.
    #[must_use]
    pub const fn limits(mut self, limits: JsonLimits) -> Self {
        self.0.limits = limits;
        self
    }

    /// Offers a part beside the body, such as the query. It counts where the filters name it.
    #[must_use]
    pub fn part(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) -> Self {
        self.0.parts.push((name.into(), value.into()));
        self
    }

    /// Fingerprints by `method`.
    ///
    /// # Errors
    /// A [`CanonicalError`] when the method is JSON and the body has no single meaning or passes a
    /// limit. The caller decides: refuse, or use [`Asking::raw`].
    pub fn by(self, method: Method) -> Result<Asked, CanonicalError> {
        let digest = digest(&self.0, &method)?;
        Ok(Asked::made(Fingerprint::from_parts(method, digest), Some(Arc::new(self.0))))
    }

    /// Fingerprints by `method` once that is needed, or by the bytes, with the same parts, if the
    /// body then turns out to have no single meaning.
    #[must_use]
    pub fn later(self, method: Method) -> Asked {
        let (fingerprint, whole) = (OnceLock::new(), OnceLock::new());
        Asked { fingerprint, content: Some(Arc::new(self.0)), whole, method: Some(method) }
    }

    /// Fingerprints the body's bytes as they are, with every part that was offered.
    ///
    /// # Errors
    /// [`TooManyFilters`] when more parts were offered than a record may name.
    pub fn raw(self) -> Result<Asked, TooManyFilters> {
        let names = self.0.parts.iter().map(|(name, _)| Arc::from(&**name));
        let method = Method::new(Algorithm::Raw, Filters::new([], names)?);
        let made = self.by(method);
        Ok(made.expect("invariant: bytes always have a fingerprint"))
    }
}

/// Hashes what counts. Every piece is preceded by its length, so nothing can move between pieces.
fn digest(content: &Content, method: &Method) -> Result<[u8; 32], CanonicalError> {
    let mut hash = Sha256::new();
    hash.update(b"onetake/fingerprint/1");
    hash.update([method.algorithm as u8]);
    let mut piece = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    for name in method.filters().into_iter().flat_map(Filters::parts) {
        let values = || content.parts.iter().filter(|(offered, _)| offered == name);
        piece(name.as_bytes());
        // The count keeps an absent part apart from an empty one, and values apart from names.
        piece(&(values().count() as u64).to_be_bytes());
        values().for_each(|(_, value)| piece(value));
    }
    match method.algorithm {
        Algorithm::Raw => piece(&content.body),
        Algorithm::Json => {
            let ignored = method.filters().into_iter().flat_map(Filters::ignored);
            piece(&canonical_json(&content.body, ignored, content.limits)?);
        }
    }
    Ok(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;

    fn json_ignoring(pointers: &[&str]) -> Method {
        let pointers = pointers.iter().map(|p| Pointer::parse(p).unwrap());
        Method::new(Algorithm::Json, Filters::new(pointers, []).unwrap())
    }

    fn with_parts(parts: &[&str]) -> Method {
        let parts = parts.iter().map(|p| Arc::from(*p));
        Method::new(Algorithm::Raw, Filters::new([], parts).unwrap())
    }

    /// K2, C2: the fingerprint is what tells a retry from another request.
    #[test]
    fn k2_c2_equal_requests_have_equal_fingerprints_and_others_do_not() {
        let first = Asked::json(&br#"{"a":1,"b":[1,2]}"#[..]).unwrap();
        let retry = Asked::json(&br#"{ "b": [1.0, 2], "a": 1 }"#[..]).unwrap();
        let other = Asked::json(&br#"{"a":1,"b":[2,1]}"#[..]).unwrap();
        assert!(retry.is_same(first.fingerprint()));
        assert!(!other.is_same(first.fingerprint()));
        assert!(Asked::raw("x").is_same(Asked::raw("x").fingerprint()));
        assert!(!Asked::raw("x").is_same(Asked::raw("y").fingerprint()));
    }

    #[test]
    fn raw_and_json_of_the_same_bytes_are_not_confused() {
        let json = Asked::json("1").unwrap();
        let raw = Asked::raw("1");
        assert_ne!(json.fingerprint().digest(), raw.fingerprint().digest());
        assert!(json.is_same(raw.fingerprint()), "the content is at hand, so it is compared raw");
        assert!(raw.is_same(json.fingerprint()), "and the other way round");
        assert!(!Asked::raw("1.0").is_same(raw.fingerprint()));
        assert!(Asked::raw("1.0").is_same(json.fingerprint()), "1 and 1.0 mean the same");
    }

    #[test]
    fn a_change_of_filters_still_recognises_an_old_request() {
        let body = r#"{"id":1,"t":"10:00"}"#;
        let before = Asking::new(body).by(Method::JSON).unwrap();
        let after = Asking::new(body).by(json_ignoring(&["/t"])).unwrap();
        assert_ne!(before.fingerprint(), after.fingerprint());
        assert!(after.is_same(before.fingerprint()), "the same request, judged the old way");

        let later = Asking::new(r#"{"id":1,"t":"10:05"}"#).by(json_ignoring(&["/t"])).unwrap();
        assert!(later.is_same(after.fingerprint()), "the field no longer counts");
        assert!(!later.is_same(before.fingerprint()), "for the old record it still does");
    }

    #[test]
    fn without_the_content_another_method_counts_as_another_request() {
        let stored = Asking::new("{}").by(json_ignoring(&["/t"])).unwrap();
        let plain = Asked::json("{}").unwrap();
        let bare = Asked::digest(plain.fingerprint().clone());
        assert!(!bare.is_same(stored.fingerprint()));
        assert!(bare.is_same(plain.fingerprint()));
    }

    #[test]
    fn a_body_without_meaning_never_equals_a_stored_json_fingerprint() {
        let stored = Asked::json("{}").unwrap();
        assert!(!Asked::raw("{").is_same(stored.fingerprint()));
        assert!(Asked::json("{").is_err());
    }

    /// What is made later is what would have been made at once.
    #[test]
    fn a_fingerprint_that_is_made_later_is_the_same() {
        let asking = |body: &'static str| Asking::new(body).part("query", "a=1");
        let json = || {
            let ignored = [Pointer::parse("/t").unwrap()];
            Method::new(Algorithm::Json, Filters::new(ignored, ["query".into()]).unwrap())
        };
        let sound = r#"{"a":1,"t":2}"#;
        let at_once = asking(sound).by(json()).unwrap();
        assert_eq!(asking(sound).later(json()), at_once);
        let twice = r#"{"a":1,"a":2}"#;
        let by_bytes = asking(twice).by(with_parts(&["query"])).unwrap();
        assert_eq!(asking(twice).later(json()), by_bytes, "no single meaning: byte by byte");
        assert!(!asking(twice).later(json()).is_same(at_once.fingerprint()));
        assert!(asking(twice).later(json()).is_same(by_bytes.fingerprint()));
        assert!(asking(sound).later(json()).is_same(asking(sound).raw().unwrap().fingerprint()));
    }

    /// K2: what is known of one request never answers for another.
    #[test]
    fn k2_a_known_request_is_recognised_and_nothing_else_is() {
        let ask = |body: &'static str, query: &'static str| {
            let parts = Filters::new([], ["query".into()]).unwrap();
            Asking::new(body).part("query", query).later(Method::new(Algorithm::Json, parts))
        };
        let first = ask(r#"{"a":1,"b":2}"#, "x");
        let stored = first.fingerprint().clone();
        assert!(stored.known.get().is_none(), "nobody has asked again");
        assert!(ask(r#"{"a":1,"b":2}"#, "x").is_same(&stored));
        assert_eq!(stored.known.get(), first.whole(), "whoever comes again makes it known");
        assert!(ask(r#"{"b":2,"a":1.0}"#, "x").is_same(&stored), "the same meaning");
        assert!(!ask(r#"{"a":1,"b":2}"#, "y").is_same(&stored));
        assert!(!ask(r#"{"a":1,"b":3}"#, "x").is_same(&stored));
        let read = Fingerprint::from_parts(stored.method().clone(), *stored.digest());
        assert!(!ask("{", "x").is_same(&read));
        assert!(read.known.get().is_none(), "one that differs leaves nothing behind");
        let again = ask(r#"{"b":2,"a":1}"#, "x");
        assert!(again.is_same(&read));
        assert_eq!(read.known.get(), again.whole(), "it was compared once");
        assert!(!ask(r#"{"a":1,"b":3}"#, "x").is_same(&read));
        assert_eq!(read, stored, "what is known has no part in what it is");
    }

    #[test]
    fn named_parts_count_only_where_the_method_names_them() {
        let ask = |query: &str, method: Method| {
            Asking::new("body").part("query", query.to_owned()).by(method).unwrap()
        };
        let plain = ask("a=1", Method::RAW);
        assert!(ask("a=2", Method::RAW).is_same(plain.fingerprint()));
        let counted = ask("a=1", with_parts(&["query"]));
        assert!(!ask("a=2", with_parts(&["query"])).is_same(counted.fingerprint()));
        assert!(ask("a=1", Method::RAW).is_same(counted.fingerprint()));
        assert_eq!(Asking::new("body").part("query", "a=1").raw().unwrap(), counted);
    }

    #[test]
    fn an_absent_part_differs_from_an_empty_one() {
        let absent = Asking::new("b").by(with_parts(&["query"])).unwrap();
        let empty = Asking::new("b").part("query", "").by(with_parts(&["query"])).unwrap();
        assert_ne!(absent.fingerprint(), empty.fingerprint());
        let moved = Asking::new("").part("query", "b").by(with_parts(&["query"])).unwrap();
        assert_ne!(moved.fingerprint(), empty.fingerprint());
        let both = || with_parts(&["q", "r"]);
        let named = Asking::new("b").part("q", "r").by(both()).unwrap();
        let valued = Asking::new("b").part("r", "r").by(both()).unwrap();
        assert_ne!(named.fingerprint(), valued.fingerprint(), "a value is never taken for a name");
    }

    #[test]
    fn a_raw_fingerprint_with_parts_survives_a_store() {
        let ask = || Asking::new("x").part("q", "1").part("h", "2").raw().unwrap();
        let made = ask().fingerprint().clone();
        let filters = made.method().filters().unwrap();
        let read = Filters::new([], filters.parts().map(Arc::from)).unwrap();
        let stored = Fingerprint::from_parts(Method::new(Algorithm::Raw, read), *made.digest());
        assert!(ask().is_same(&stored));
        let many = (0..65).fold(Asking::new("x"), |ask, n| ask.part(format!("p{n}"), "v"));
        assert!(many.raw().is_err());
    }

    /// X11
    #[test]
    fn x11_a_request_does_not_show_its_content() {
        let shown = format!("{:?}", Asking::new("secret").part("query", "secret").raw().unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn filters_do_not_depend_on_order_and_are_bounded() {
        assert_eq!(json_ignoring(&["/a", "/b"]), json_ignoring(&["/b", "/a", "/b"]));
        assert_eq!(Method::new(Algorithm::Json, Filters::default()), Method::JSON);
        let many = (0..65).map(|n| Pointer::parse(&format!("/f{n}")).unwrap());
        assert_eq!(Filters::new(many, []).unwrap_err().to_string(), {
            "65 filters; at most 64 are allowed"
        });
    }

    /// Fingerprints are stored, so these bytes may never change by accident.
    #[test]
    fn fingerprints_are_fixed_vectors() {
        let digest = |asked: Asked| hex(asked.fingerprint().digest());
        assert_eq!(
            digest(Asked::raw("hello")),
            "7e8a4fc24502cc03bbaca92c44f8c701b6be0b276f697700bd57be5fd8dce7df"
        );
        assert_eq!(
            digest(Asked::json(r#"{"b":1.0,"a":[]}"#).unwrap()),
            "5196aaac558bab60a58c84dc11e2eabbf9285e293424c779147920a8468e0be2"
        );
        let parts = Asking::new("hello").part("query", "a=1").by(with_parts(&["query"])).unwrap();
        assert_eq!(
            digest(parts),
            "4bde868399adb20c94eff7a3f1976bf2ae64076d9ad1acebe1052f5b1d09bcfa"
        );
    }
}
