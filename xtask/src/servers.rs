//! The servers that tests start: looked for, and installed from Debian's packages where they are
//! missing and we may.
//!
//! Says what it installs before it does. Starts nothing, and keeps the packages from starting
//! anything: a test starts its own server and ends it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::workspace;

/// A server, and the package that it is in.
struct Server {
    program: &'static str,
    package: &'static str,
}

const SERVERS: &[Server] = &[
    Server { program: "initdb", package: "postgresql" },
    Server { program: "pgbouncer", package: "pgbouncer" },
    Server { program: "redis-server", package: "redis-server" },
    // None itself: it gives a process another time of day.
    Server { program: "faketime", package: "faketime" },
    // Nor these: the public client of the workflow host is written in it, and fetched by it.
    Server { program: "python3", package: "python3" },
    Server { program: "pip3", package: "python3-pip" },
];

/// Where Debian keeps servers: not all of it is searched for programs.
const FOLDERS: &[&str] = &["/usr/bin", "/usr/sbin", "/usr/local/bin", "/bin"];
const POSTGRESQL: &str = "/usr/lib/postgresql";

/// Makes sure that every server is there.
///
/// # Errors
/// When one is missing and cannot be installed; says which command would.
pub(crate) fn ensure() -> Result<()> {
    let missing: Vec<&str> = SERVERS
        .iter()
        .filter(|server| !is_there(server.program))
        .map(|server| server.package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let words = format!("apt-get install -y --no-install-recommends {}", missing.join(" "));
    let is_root = std::env::var("USER").is_ok_and(|user| user == "root") || is_uid_zero();
    if !is_there("apt-get") || !is_root {
        bail!("tests start their own servers and miss {}; run: sudo {words}", missing.join(", "));
    }
    println!("installing what tests start: {}", missing.join(", "));
    workspace::run(apt().args(["-q", "update"]))?;
    let mut install = apt();
    install.args(["-q", "install", "-y", "--no-install-recommends"]).args(missing);
    workspace::run(&mut install)
}

/// The packages are not to start their servers, which would be in nobody's way but ours.
fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    command
}

fn is_uid_zero() -> bool {
    let said = Command::new("id").arg("-u").output();
    said.is_ok_and(|said| said.stdout.trim_ascii() == b"0")
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir(POSTGRESQL).into_iter().flatten().flatten();
    let folders = std::env::split_paths(&path)
        .chain(FOLDERS.iter().map(PathBuf::from))
        .chain(versions.map(|version| version.path().join("bin")));
    folders.map(|folder| folder.join(program)).any(|path| Path::is_file(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_or_it_is_not() {
        assert!(is_there("sh"));
        assert!(!is_there("no-such-server"));
    }
}
