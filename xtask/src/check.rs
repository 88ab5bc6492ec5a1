//! `cargo xtask check`: everything that can be said about the tree without running it.
//!
//! Never runs a test, so that nobody has a reason to bypass it before a commit, and never installs
//! anything: it says how.

use std::process::Command;

use anyhow::Result;

use crate::steps::{self, Done, OnFailure, Step};
use crate::tidy;
use crate::workspace::{self, Workspace};

/// Runs every check, also after one that failed.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let cargo = |args: &[&str]| workspace::run(workspace.cargo().args(args));
    let steps = [
        Step::new("fmt", || cargo(&["fmt", "--all", "--check"])),
        Step::new("clippy", || {
            cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
        }),
        Step::new("doc", || {
            let mut doc = workspace.cargo();
            doc.args(["doc", "--no-deps", "--workspace"]).env("RUSTDOCFLAGS", "-D warnings");
            workspace::run(&mut doc)
        }),
        Step::new("tidy", || tidy::run(workspace)),
        Step::optional("deny", || {
            if_installed(workspace.cargo().arg("deny"), "cargo-deny", || {
                cargo(&["deny", "check", "bans", "licenses", "sources"])
            })
        }),
        Step::optional("typos", || {
            let typos = || workspace.command("typos");
            if_installed(&mut typos(), "typos-cli", || workspace::run(&mut typos()))
        }),
    ];
    steps::walk(&steps, OnFailure::GoOn)
}

/// Acts when `program` can be started, and otherwise names the package to install.
fn if_installed(
    program: &mut Command,
    package: &str,
    act: impl FnOnce() -> Result<()>,
) -> Result<Done> {
    if !workspace::is_installed(program) {
        let how = format!("{package} is missing; `cargo install --locked {package}` installs it");
        return Ok(Done::Skipped(how));
    }
    act().map(|()| Done::Ok)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_missing_tool_is_skipped_and_named() {
        let mut missing = Command::new("no-such-program-as-this");
        let done = if_installed(&mut missing, "cargo-deny", || bail!("was run")).unwrap();
        let Done::Skipped(why) = done else { panic!("not skipped") };
        assert_eq!(why, "cargo-deny is missing; `cargo install --locked cargo-deny` installs it");
    }

    #[test]
    fn an_installed_tool_that_complains_fails_the_check() {
        let done = if_installed(&mut Command::new("git"), "git", || bail!("a complaint"));
        assert_eq!(done.err().map(|error| error.to_string()).as_deref(), Some("a complaint"));
    }
}
