//! Signs what is sent to a receiver of webhooks, with a secret that both know.
//!
//! Never reads a clock and never verifies: receivers do. The signed text is the time in seconds, a
//! dot, and the body byte for byte, so that neither can be replaced without the other.

use std::fmt;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The signature, and the same under the name of RFC 0165.
const SIGNATURES: [HeaderName; 2] =
    [HeaderName::from_static("x-openwop-signature"), HeaderName::from_static("openwop-signature")];
/// The time that was signed, and the same under the name of RFC 0165.
const TIMESTAMPS: [HeaderName; 2] =
    [HeaderName::from_static("x-openwop-timestamp"), HeaderName::from_static("openwop-timestamp")];
/// How the signature was made, under both names.
const ALGORITHMS: [HeaderName; 2] = [
    HeaderName::from_static("x-openwop-signature-algorithm"),
    HeaderName::from_static("openwop-signature-algorithm"),
];
/// Which webhook this is for, under both names.
const WEBHOOK_IDS: [HeaderName; 2] = [
    HeaderName::from_static("x-openwop-webhook-id"),
    HeaderName::from_static("openwop-webhook-id"),
];
/// What happened, under both names.
const EVENT_TYPES: [HeaderName; 2] = [
    HeaderName::from_static("x-openwop-event-type"),
    HeaderName::from_static("openwop-event-type"),
];
/// How every signature is made: HMAC-SHA256 over time and body.
const V1: HeaderValue = HeaderValue::from_static("v1");

/// Random bytes of a secret that is made here; its text is twice as long.
const SECRET_BYTES: usize = 32;
/// The longest secret that a caller may bring, in bytes.
pub(crate) const SECRET_BYTES_MAX: usize = 512;
/// Digits of a fingerprint: enough to tell secrets apart, far too few to guess one.
const FINGERPRINT_DIGITS: usize = 8;

/// Why there is no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SecretError {
    /// The machine gives no random numbers.
    #[error("no random numbers: {0}")]
    NoChance(String),
    /// Empty, or too long.
    #[error("a secret has from 1 to {SECRET_BYTES_MAX} bytes; leave it out to be given one")]
    Length,
}

/// What a receiver verifies signatures with. Never shown, wiped when it is dropped.
#[derive(Clone)]
pub(crate) struct Secret(Zeroizing<String>);

impl Secret {
    /// A new one: 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`SecretError::NoChance`] when the machine gives no random numbers.
    pub(crate) fn generate() -> Result<Self, SecretError> {
        let mut bytes = Zeroizing::new([0_u8; SECRET_BYTES]);
        getrandom::fill(&mut *bytes).map_err(|why| SecretError::NoChance(why.to_string()))?;
        Ok(Self(Zeroizing::new(base16ct::lower::encode_string(&*bytes))))
    }

    /// One that was kept, or that a caller brought.
    ///
    /// # Errors
    /// [`SecretError::Length`].
    pub(crate) fn new(text: String) -> Result<Self, SecretError> {
        let text = Zeroizing::new(text);
        let is_fit = (1..=SECRET_BYTES_MAX).contains(&text.len());
        if is_fit { Ok(Self(text)) } else { Err(SecretError::Length) }
    }

    /// The text itself, to be kept or to be told once.
    #[must_use]
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// What people call the secret by: the first digits of its digest.
    #[must_use]
    pub(crate) fn fingerprint(&self) -> String {
        let mut hex = base16ct::lower::encode_string(&Sha256::digest(self.0.as_bytes()));
        hex.truncate(FINGERPRINT_DIGITS);
        hex
    }

    /// The value of the signature's header. The key is the text of the secret, not what its digits
    /// stand for.
    #[must_use]
    pub(crate) fn sign(&self, unix_s: u64, body: &[u8]) -> String {
        let mac = Hmac::<Sha256>::new_from_slice(self.0.as_bytes());
        let mut mac = mac.expect("invariant: a key of HMAC has any length");
        mac.update(unix_s.to_string().as_bytes());
        mac.update(b".");
        mac.update(body);
        let hex = base16ct::lower::encode_string(&mac.finalize().into_bytes());
        format!("sha256={hex}")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A webhook's id or the type of an event that no header can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of a webhook and the type of an event are visible ASCII")]
pub(crate) struct NotAHeader;

/// What is delivered: one event for one webhook. Every attempt sends the same bytes.
#[derive(Clone)]
pub(crate) struct Delivery {
    webhook_id: HeaderValue,
    event_type: HeaderValue,
    body: Bytes,
}

impl Delivery {
    /// The event of type `event_type` with the JSON `body`, for the webhook `webhook_id`.
    ///
    /// # Errors
    /// [`NotAHeader`] when the id or the type cannot be sent.
    pub(crate) fn new(webhook_id: &str, event_type: &str, body: Bytes) -> Result<Self, NotAHeader> {
        let value = |text: &str| HeaderValue::from_str(text).map_err(|_| NotAHeader);
        Ok(Self { webhook_id: value(webhook_id)?, event_type: value(event_type)?, body })
    }

    /// What the signature is over, besides the time.
    #[must_use]
    pub(crate) const fn body(&self) -> &Bytes {
        &self.body
    }

    /// The headers that tell the receiver what this is and who sent it, at a time in seconds.
    #[must_use]
    pub(crate) fn headers(&self, secret: &Secret, unix_s: u64) -> HeaderMap {
        let signature = HeaderValue::from_str(&secret.sign(unix_s, &self.body));
        let signature = signature.expect("invariant: a signature is visible ASCII");
        let mut headers = HeaderMap::new();
        headers.extend(WEBHOOK_IDS.map(|name| (name, self.webhook_id.clone())));
        headers.extend(EVENT_TYPES.map(|name| (name, self.event_type.clone())));
        headers.extend(ALGORITHMS.map(|name| (name, V1)));
        headers.extend(TIMESTAMPS.map(|name| (name, HeaderValue::from(unix_s))));
        headers.extend(SIGNATURES.map(|name| (name, signature.clone())));
        headers
    }
}

/// Without the body: it belongs to a tenant.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, event_type) = (&self.webhook_id, &self.event_type);
        f.debug_tuple("Delivery").field(id).field(event_type).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn secret(text: &str) -> Secret {
        Secret::new(text.to_owned()).unwrap()
    }

    /// The digits come from `openssl dgst -sha256 -hmac <secret>` over `<time>.<body>`, and the
    /// helper of the Python client 1.7.0 gives the same.
    #[test]
    fn a_signature_is_the_one_that_other_programs_compute() {
        assert_eq!(
            secret(TEXT).sign(1_700_000_000, r#"{"runId":"run-1","event":"ü"}"#.as_bytes()),
            "sha256=1541cf816f14a6a61d08076154ee839094203a915133e17e4fb213e968da1da2",
        );
        assert_eq!(
            secret("k").sign(1, b""),
            "sha256=37c39ff90c9eaf98b76f1cf1a38399fa408e930f34e04a5179d0dc6489fe9c78",
        );
    }

    #[test]
    fn time_and_body_and_secret_are_all_signed() {
        let signed = secret(TEXT).sign(12, b"3.4");
        assert_ne!(signed, secret(TEXT).sign(123, b".4"));
        assert_ne!(signed, secret(TEXT).sign(12, b"3.5"));
        assert_ne!(signed, secret("other").sign(12, b"3.4"));
    }

    #[test]
    fn a_generated_secret_is_64_new_digits_that_are_never_shown() {
        let (one, other) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        assert_ne!(one.expose(), other.expose());
        assert_eq!(one.expose().len(), 64);
        let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        assert!(one.expose().as_bytes().iter().all(is_digit));
        assert_eq!(format!("{one:?}"), "Secret(…)");
        // By `sha256sum`.
        assert_eq!(secret(TEXT).fingerprint(), "a8ae6e6e");
    }

    #[test]
    fn a_secret_of_the_caller_has_bounds() {
        let of = |bytes| Secret::new("s".repeat(bytes)).map(|it| it.expose().len());
        assert_eq!(of(0), Err(SecretError::Length));
        assert_eq!(of(1), Ok(1));
        assert_eq!(of(SECRET_BYTES_MAX), Ok(SECRET_BYTES_MAX));
        assert_eq!(of(SECRET_BYTES_MAX + 1), Err(SecretError::Length));
    }

    #[test]
    fn a_delivery_says_what_it_is_under_every_name_that_receivers_read() {
        let body = Bytes::from_static(br#"{"runId":"run-1","event":"hush"}"#);
        let delivery = Delivery::new("wh-1", "run.completed", body).unwrap();
        assert!(!format!("{delivery:?}").contains("hush"));
        let headers = delivery.headers(&secret(TEXT), 1_700_000_000);
        let signature = secret(TEXT).sign(1_700_000_000, delivery.body());
        let expected = [
            ("X-openwop-Webhook-Id", "wh-1"),
            ("X-openwop-Event-Type", "run.completed"),
            ("X-openwop-Signature-Algorithm", "v1"),
            ("OpenWOP-Webhook-Id", "wh-1"),
            ("OpenWOP-Event-Type", "run.completed"),
            ("OpenWOP-Signature-Algorithm", "v1"),
            ("X-openwop-Timestamp", "1700000000"),
            ("OpenWOP-Timestamp", "1700000000"),
            ("X-openwop-Signature", &signature),
            ("OpenWOP-Signature", &signature),
        ];
        for (name, value) in expected {
            assert_eq!(headers.get(name).unwrap(), value, "{name}");
        }
        assert_eq!(headers.len(), expected.len());
        assert_eq!(Delivery::new("wh\r\n", "x", Bytes::new()).err(), Some(NotAHeader));
    }
}
