//! Secrets: where they are read from, and that they are shown nowhere.
//!
//! A secret is text that `Debug`, JSON and every error leave out. It may be given in the file, but
//! better by name: `env:NAME` or `file:PATH`.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use super::environment::Environment;
use super::read::FromText;

/// The largest secret, in bytes.
const SECRET_BYTES_MAX: usize = 64 * 1024;
/// What is shown instead.
const HIDDEN: &str = "(hidden)";

/// A secret that was resolved.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// The secret itself. Never log it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

/// A secret as it was given: itself, or where it is.
#[derive(Clone)]
pub(super) struct SecretText(String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl FromText for SecretText {
    const EXPECTED: &'static str = "a secret: \"env:NAME\", \"file:PATH\" or the text itself";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > SECRET_BYTES_MAX {
            return Err(format!("expected {}", Self::EXPECTED));
        }
        Ok(Self(text.to_owned()))
    }

    fn refine(schema: &mut Json) {
        schema["examples"] = json!(["env:NAME", "file:PATH"]);
    }
}

impl SecretText {
    /// The variable that this names, where it names one.
    pub(super) fn variable(text: &str) -> Option<&str> {
        text.strip_prefix("env:")
    }

    /// The secret.
    ///
    /// # Errors
    /// When the variable or the file that it names has none.
    pub(super) fn resolve(&self, environment: &Environment) -> Result<Secret, String> {
        let secret = if let Some(name) = Self::variable(&self.0) {
            let found = environment.get(name);
            found.ok_or_else(|| format!("the variable `{name}` is not set"))?.to_owned()
        } else if let Some(path) = self.0.strip_prefix("file:") {
            read(Path::new(path))?
        } else {
            self.0.clone()
        };
        if secret.is_empty() { Err("the secret is empty".to_owned()) } else { Ok(Secret(secret)) }
    }
}

/// The secret in the file `path`, without the newline at its end.
fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let limit = SECRET_BYTES_MAX as u64 + 1;
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    read.map_err(|why| format!("the file `{}` cannot be read: {why}", path.display()))?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() <= SECRET_BYTES_MAX);
    let text = text.ok_or_else(|| {
        format!("the file `{}` holds no text, or more than 64 KiB of it", path.display())
    })?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> Result<String, String> {
        let environment = Environment::of([("SET", "hunter2"), ("EMPTY", "")]);
        let secret = SecretText::from_text(text)?.resolve(&environment)?;
        Ok(secret.expose().to_owned())
    }

    #[test]
    fn a_secret_is_found_where_it_is_said_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "from a file\r\n").unwrap();
        assert_eq!(resolved("env:SET").as_deref(), Ok("hunter2"));
        assert_eq!(resolved(&format!("file:{}", path.display())).as_deref(), Ok("from a file"));
        assert_eq!(resolved("itself").as_deref(), Ok("itself"));
        assert_eq!(resolved("env:UNSET").unwrap_err(), "the variable `UNSET` is not set");
        assert!(resolved("env:EMPTY").is_err());
        assert!(resolved("").is_err());
        assert!(resolved("file:").unwrap_err().contains("cannot be read"));
        std::fs::write(&path, b"\xff").unwrap();
        assert!(resolved(&format!("file:{}", path.display())).unwrap_err().contains("no text"));
    }

    /// X11: a secret shows nowhere by accident.
    #[test]
    fn x11_a_secret_does_not_show_itself() {
        let text = SecretText::from_text("hunter2").unwrap();
        let secret = text.resolve(&Environment::of([])).unwrap();
        let shown = format!("{text:?} {secret:?} {}", serde_json::to_string(&secret).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
