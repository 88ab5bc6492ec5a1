//! `cargo xtask hooks`: installs the pre-commit hook.
//!
//! Writes one file inside this repository's own git directory; never replaces a hook that somebody
//! else wrote and never changes git's configuration.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::workspace::Workspace;

const HOOK: &str = "#!/bin/sh\n# Installed by `cargo xtask hooks`.\nexec cargo xtask check\n";

/// Installs the hook where git looks for it.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    // `--git-common-dir` rather than `.git`, which is a file in a linked worktree.
    let git_dir = workspace.git(&["rev-parse", "--git-common-dir"])?;
    let hooks = workspace.root.join(git_dir.trim_end()).join("hooks");
    install(&hooks)?;
    println!("{} now runs `cargo xtask check`", hooks.join("pre-commit").display());
    Ok(())
}

fn install(hooks: &Path) -> Result<()> {
    let hook = hooks.join("pre-commit");
    let theirs = fs::read(&hook).is_ok_and(|found| found != HOOK.as_bytes());
    ensure!(!theirs, "{} is not ours; move it away first", hook.display());
    fs::create_dir_all(hooks)?;
    fs::write(&hook, HOOK).with_context(|| format!("cannot write {}", hook.display()))?;
    make_executable(&hook)
}

#[cfg(unix)]
fn make_executable(file: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o755))?)
}

/// Git for Windows asks for no permission.
#[cfg(not(unix))]
fn make_executable(_file: &Path) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_hook_can_be_installed_twice() {
        let dir = tempfile::tempdir().unwrap();
        let hooks = dir.path().join("hooks");
        install(&hooks).unwrap();
        install(&hooks).unwrap();
        assert_eq!(fs::read_to_string(hooks.join("pre-commit")).unwrap(), HOOK);
    }

    #[test]
    fn the_hook_is_a_shell_script_that_parses_and_may_be_executed() {
        let dir = tempfile::tempdir().unwrap();
        install(dir.path()).unwrap();
        let hook = dir.path().join("pre-commit");
        assert!(Command::new("sh").arg("-n").arg(&hook).status().unwrap().success());
        assert!(Command::new("test").arg("-x").arg(&hook).status().unwrap().success());
    }

    #[test]
    fn a_hook_of_somebody_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let hook = dir.path().join("pre-commit");
        fs::write(&hook, "theirs").unwrap();
        let error = install(dir.path()).unwrap_err().to_string();
        assert!(error.ends_with("is not ours; move it away first"), "{error}");
        assert_eq!(fs::read_to_string(&hook).unwrap(), "theirs");
    }
}
