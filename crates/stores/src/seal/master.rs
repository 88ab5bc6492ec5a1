//! The master key, as an operator gives it.
//!
//! It wraps a key ring and nothing else: no value is ever sealed by it. It is never written by us,
//! and shows itself only by an id that tells which key it is.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::SealError;
use super::cipher::Secret;

/// The most that is read of a key file; a key has 64 digits.
const KEY_FILE_BYTES_MAX: u64 = 1_024;

/// Tells which master key it is, and nothing about it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub(super) [u8; KeyId::BYTES]);

impl KeyId {
    pub(super) const BYTES: usize = 8;
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// The key that wraps a key ring: 32 random bytes, overwritten when dropped.
#[derive(Clone)]
pub struct MasterKey(Secret);

/// Shows which key it is, not the key.
impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.id())
    }
}

impl MasterKey {
    /// A key from its bytes. They must be random: nothing makes a guessable key stronger.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// A key from its text: 64 hexadecimal digits, or standard base64, with white space around it.
    ///
    /// # Errors
    /// [`SealError::KeyText`] for anything else. The text is not repeated.
    pub fn parse(text: &str) -> Result<Self, SealError> {
        let text = text.trim().as_bytes();
        let bytes = match text.len() {
            64 => from_hex(text),
            43 | 44 => from_base64(text),
            _ => None,
        };
        bytes.map(Self).ok_or(SealError::KeyText)
    }

    /// The key in a file that only its owner may read.
    ///
    /// # Errors
    /// [`SealError::File`], [`SealError::Exposed`] or [`SealError::KeyText`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, SealError> {
        let path = path.as_ref();
        let failed = |source| SealError::File { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        // Asked of the open file, so that it cannot be exchanged in between.
        refuse_exposed(path, &file.metadata().map_err(failed)?)?;
        let mut text = Zeroizing::new(String::with_capacity(1_024));
        file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        Self::parse(&text)
    }

    /// The key in an environment variable.
    ///
    /// # Errors
    /// [`SealError::Variable`] or [`SealError::KeyText`].
    pub fn from_env(name: &str) -> Result<Self, SealError> {
        match std::env::var(name) {
            Ok(text) => Self::parse(&Zeroizing::new(text)),
            Err(_) => Err(SealError::Variable { name: name.to_owned() }),
        }
    }

    /// Tells which key this is.
    #[must_use]
    pub fn id(&self) -> KeyId {
        let hash = Sha256::new().chain_update(b"onetake/master-key/1");
        let hash: [u8; 32] = hash.chain_update(self.0.as_slice()).finalize().into();
        KeyId(*hash.first_chunk().expect("invariant: a digest is longer than an id"))
    }

    pub(super) const fn secret(&self) -> &Secret {
        &self.0
    }
}

#[cfg(unix)]
fn refuse_exposed(path: &Path, metadata: &std::fs::Metadata) -> Result<(), SealError> {
    use std::os::unix::fs::PermissionsExt;

    let mode = metadata.permissions().mode() & 0o777;
    let of_others = mode & 0o077;
    if of_others == 0 { Ok(()) } else { Err(SealError::Exposed { path: path.to_owned(), mode }) }
}

#[cfg(not(unix))]
fn refuse_exposed(_: &Path, _: &std::fs::Metadata) -> Result<(), SealError> {
    Ok(())
}

fn from_hex(text: &[u8]) -> Option<Secret> {
    let mut key = Zeroizing::new([0; 32]);
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16)?).ok();
    for (byte, pair) in key.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(key)
}

/// 43 characters, and one `=` or none: 256 bits and two that must be zero.
fn from_base64(text: &[u8]) -> Option<Secret> {
    let digits = text.strip_suffix(b"=").unwrap_or(text);
    if digits.len() != 43 {
        return None;
    }
    let mut key = Zeroizing::new([0; 32]);
    let (mut bits, mut held, mut filled) = (0_u32, 0, 0);
    for digit in digits {
        bits = bits << 6 & 0xffff | u32::from(base64_digit(*digit)?);
        held += 6;
        if held >= 8 {
            held -= 8;
            key[filled] = (bits >> held & 0xff) as u8;
            filled += 1;
        }
    }
    let left = bits & ((1 << held) - 1);
    (left == 0).then_some(key)
}

const fn base64_digit(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The bytes 0xe0 to 0xff, so that both special digits of base64 occur.
    const HEX: &str = "e0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";
    const BASE64: &str = "4OHi4+Tl5ufo6err7O3u7/Dx8vP09fb3+Pn6+/z9/v8=";

    fn key() -> MasterKey {
        let bytes: Vec<u8> = (0xe0..=0xff).collect();
        MasterKey::new(bytes.try_into().unwrap())
    }

    #[test]
    fn a_key_is_written_in_hex_or_base64() {
        let upper = HEX.to_uppercase();
        let spaced = format!("  {BASE64}\n");
        for text in [HEX, &upper, BASE64, &BASE64[..43], &spaced] {
            assert_eq!(**MasterKey::parse(text).unwrap().secret(), **key().secret(), "{text}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_without_repeating_it() {
        let (bad_digit, bad_end) = (HEX.replace('f', "g"), BASE64.replace("8=", "9="));
        let (url_safe, twice) = (BASE64.replace('+', "-"), format!("{HEX}{HEX}"));
        for text in ["", "secret", &HEX[1..], &bad_digit, &bad_end, &url_safe, &twice] {
            let error = MasterKey::parse(text).unwrap_err();
            assert_eq!(
                error.to_string(),
                "a master key is 32 bytes, as 64 hexadecimal digits or in standard base64"
            );
        }
    }

    /// X11
    #[test]
    fn x11_a_key_shows_which_it_is_and_not_what() {
        let shown = format!("{:?}", key());
        assert_eq!(shown, format!("MasterKey({})", key().id()));
        assert_eq!(key().id().to_string().len(), 16);
        assert!(!HEX.contains(&key().id().to_string()));
        assert_ne!(key().id(), MasterKey::new([0; 32]).id());
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        let error = MasterKey::from_env("ONETAKE_NO_SUCH_KEY").unwrap_err();
        assert!(error.to_string().contains("ONETAKE_NO_SUCH_KEY"), "{error}");
    }

    /// X11
    #[cfg(unix)]
    #[test]
    fn x11_a_key_file_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let missing = MasterKey::from_file(&path).unwrap_err();
        assert!(matches!(missing, SealError::File { .. }), "{missing}");
        fs::write(&path, format!("{HEX}\n")).unwrap();
        for (mode, is_allowed) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            match MasterKey::from_file(&path) {
                Ok(found) => assert!(is_allowed && found.id() == key().id(), "{mode:o}"),
                Err(error) => {
                    assert!(!is_allowed, "{error}");
                    assert!(error.to_string().contains(&format!("(mode {mode:o})")), "{error}");
                }
            }
        }
    }
}
