//! `admin.json`: how commands find the admin surface of the process that holds a store.
//!
//! Lies in the store's directory, for its owner only. It names the file with the token and never
//! holds the token itself. One that was left behind by a crash is harmless: it is believed only if
//! it names the process that holds the store.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The name of the file.
pub(crate) const FILE_NAME: &str = "admin.json";
/// The name of the file with the token.
pub(crate) const TOKEN_FILE_NAME: &str = "admin.token";

/// The token that the environment gives. No flag does: every user sees the words of a command.
pub(crate) fn given_token() -> Option<String> {
    std::env::var("ONETAKE_ADMIN__TOKEN").ok().filter(|token| !token.is_empty())
}

/// Where a client on this machine reaches a listener on `address`.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let (old, new) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        address.set_ip(if address.is_ipv4() { old } else { new });
    }
    address
}

/// How to reach a running process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AdminFile {
    /// Where its admin surface is.
    pub(crate) url: String,
    /// Its process.
    pub(crate) pid: u32,
    /// Where its token is; absent when it was given by the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
}

impl AdminFile {
    /// Writes it to `path`, whole or not at all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let draft = path.with_extension(format!("json.{}", self.pid));
        let written = (|| -> Result<()> {
            let mut open = OpenOptions::new();
            let mut file = open.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            writeln!(file)?;
            fs::rename(&draft, path)?;
            Ok(())
        })();
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads it from `path`.
    ///
    /// # Errors
    /// When there is none, or something else.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let read = fs::read(path).map_err(anyhow::Error::from);
        let file = read.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
        file.with_context(|| format!("cannot read {}", path.display()))
    }

    /// Removes it from `path`, if it is still this one.
    pub(crate) fn remove(&self, path: &Path) {
        if Self::read(path).is_ok_and(|there| there == *self) {
            // What is left behind is harmless.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_private_replaced_whole_and_removed_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let of = |pid| AdminFile { url: "http://127.0.0.1:1".to_owned(), pid, token_file: None };
        of(1).write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        of(2).write(&path).unwrap();
        assert_eq!(AdminFile::read(&path).unwrap(), of(2));
        of(1).remove(&path);
        assert!(path.exists(), "it is another's");
        of(2).remove(&path);
        assert!(AdminFile::read(&path).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no draft is left");
    }
}
