//! `cargo xtask schema`: writes the JSON schema of the configuration to `docs/onetake.schema.json`.
//!
//! The binary knows the schema; this only keeps what it prints. Whether the file is still right is
//! for a test of the binary to say.

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::workspace::Workspace;

/// Where the schema is published.
const FILE: &str = "docs/onetake.schema.json";

/// Asks the binary and writes what it says.
///
/// # Errors
///
/// When it cannot be built, or the file cannot be written.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let output = workspace
        .cargo()
        .args(["run", "--quiet", "--package", "onetake-cli", "--", "check", "--schema"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "the binary has no schema ({})", output.status);
    fs::write(workspace.root.join(FILE), output.stdout)
        .with_context(|| format!("cannot write {FILE}"))?;
    println!("wrote {FILE}");
    Ok(())
}
