//! The token of the admin surface: made of chance, kept in a file that only its owner reads.
//!
//! Compared in constant time and never shown: not in a log, not in an error, not by `Debug`.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use subtle::ConstantTimeEq;

/// The shortest token that is taken: what is shorter can be guessed.
const CHARS_MIN: usize = 16;
/// The longest; a file with more is not one of ours.
const CHARS_MAX: usize = 1_024;
/// Only the owner reads and writes.
const OWNER_ONLY: u32 = 0o600;

/// What every request to the admin surface must carry.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<str>);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The text cannot be a token.
    #[error("a token has from {CHARS_MIN} to {CHARS_MAX} visible ASCII characters")]
    NotAToken,
    /// Others can read the file.
    #[error("others can read {}; `chmod 600` it, or remove it to get a new token", .0.display())]
    NotPrivate(PathBuf),
    /// The file cannot be read or written.
    #[error("{}: {why}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// The machine gives no random numbers.
    #[error("no random numbers: {0}")]
    NoChance(String),
}

impl Token {
    /// A token that was chosen elsewhere.
    ///
    /// # Errors
    /// [`TokenError::NotAToken`] when it is too short, too long or not visible ASCII.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        let fits = (CHARS_MIN..=CHARS_MAX).contains(&text.len());
        if is_visible && fits { Ok(Self(text.into())) } else { Err(TokenError::NotAToken) }
    }

    /// A new token: 256 bits of chance.
    ///
    /// # Errors
    /// [`TokenError::NoChance`] when the machine gives no random numbers.
    pub fn generate() -> Result<Self, TokenError> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(|why| TokenError::NoChance(why.to_string()))?;
        let text = bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        Ok(Self(text.into()))
    }

    /// The token in the file `path`; makes one there when there is none.
    ///
    /// # Errors
    /// A [`TokenError`]; above all when others can read the file.
    pub fn in_file(path: &Path) -> Result<Self, TokenError> {
        let token = Self::generate()?;
        let failed = |why| TokenError::File { path: path.to_owned(), why };
        // Made private from the first moment, and never over a file that is there.
        let made = OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path);
        match made {
            Ok(mut file) => {
                writeln!(file, "{}", token.0).and_then(|()| file.sync_all()).map_err(failed)?;
                Ok(token)
            }
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Self::read(path),
            Err(why) => Err(failed(why)),
        }
    }

    /// The token in the file `path`.
    ///
    /// # Errors
    /// A [`TokenError`]; above all when others can read the file.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |why| TokenError::File { path: path.to_owned(), why };
        let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(TokenError::NotPrivate(path.to_owned()));
        }
        Self::new(fs::read_to_string(path).map_err(failed)?.trim_end())
    }

    /// Whether `text` is this token. Takes the same time wherever the two differ.
    #[must_use]
    pub fn is(&self, text: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(text).into()
    }

    /// The value of an `Authorization` header with this token.
    #[must_use]
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.token");
        let token = Token::in_file(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Token::in_file(&path).unwrap(), token, "the next start has the same");
        assert_eq!(Token::read(&path).unwrap(), token);
        assert_eq!(token.0.len(), 64);
        assert_ne!(Token::generate().unwrap(), token);
    }

    #[test]
    fn a_token_that_others_can_read_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.token");
        Token::in_file(&path).unwrap();
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refused = Token::in_file(&path).unwrap_err();
            assert!(matches!(refused, TokenError::NotPrivate(_)), "{mode:o}: {refused}");
        }
        let missing = Token::read(&folder.path().join("none")).unwrap_err();
        assert!(matches!(missing, TokenError::File { .. }), "{missing}");
    }

    #[test]
    fn a_token_is_compared_whole() {
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for other in ["", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeF"] {
            assert!(!token.is(other.as_bytes()), "{other}");
        }
        for bad in ["short", "has spaces in the middle", "ünïcode-ünïcode", "line\nline-line-line"]
        {
            assert!(Token::new(bad).is_err(), "{bad}");
        }
        assert!(Token::new(&"x".repeat(1_025)).is_err());
    }

    /// X11: a token shows nowhere by accident.
    #[test]
    fn x11_a_token_does_not_show_itself() {
        let token = Token::new("secret-secret-secret").unwrap();
        assert!(!format!("{token:?}").contains("secret"));
        assert!(!Token::new("secret").unwrap_err().to_string().contains("secret"));
    }
}
