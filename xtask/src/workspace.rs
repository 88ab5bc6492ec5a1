//! Where the repository is, which files belong to it, and how its commands are run.
//!
//! Asks cargo and git; never guesses a path and never reads a file's contents.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::MetadataCommand;

/// The repository that this program was started in.
pub(crate) struct Workspace {
    /// The directory of the workspace's `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// Cargo's target directory, wherever it was configured to be.
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// Asks cargo where it is.
    pub(crate) fn load() -> Result<Self> {
        let metadata = MetadataCommand::new().no_deps().exec()?;
        Ok(Self { root: metadata.workspace_root.into(), target: metadata.target_directory.into() })
    }

    /// A command that will run in the root.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }

    /// The cargo that started us, so that a toolchain chosen by hand stays chosen.
    pub(crate) fn cargo(&self) -> Command {
        self.command(&env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
    }

    /// What git prints to its standard output.
    pub(crate) fn git(&self, args: &[&str]) -> Result<String> {
        let output = self
            .command("git")
            .args(args)
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run git")?;
        ensure!(output.status.success(), "git {} failed", args.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Every file of the repository as it is on disk now, relative to the root: tracked, or new and
    /// not ignored.
    pub(crate) fn files(&self) -> Result<Vec<String>> {
        let listed = self.git(&["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        let mut files: Vec<String> = listed
            .split_terminator('\0')
            // A file that was deleted and not yet staged is still listed.
            .filter(|path| self.root.join(path).is_file())
            .map(str::to_owned)
            .collect();
        files.sort();
        files.dedup();
        Ok(files)
    }
}

/// Runs a command with its output in full view.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !status.success() {
        bail!("`{}` failed ({status})", spelled(command));
    }
    Ok(())
}

/// Whether a program can be started at all.
pub(crate) fn is_installed(command: &mut Command) -> bool {
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The command as a developer would type it: no directory in front of the program.
fn spelled(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let name = program.file_stem().unwrap_or(command.get_program()).to_owned();
    let words: Vec<String> = std::iter::once(name.as_os_str())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_named_as_it_is_typed() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command.args(["fmt", "--check"]);
        assert_eq!(spelled(&command), "cargo fmt --check");
    }

    #[test]
    fn a_failing_command_says_which_it_was() {
        let error = run(Command::new("git").arg("no-such-verb").stderr(Stdio::null()));
        assert!(error.unwrap_err().to_string().starts_with("`git no-such-verb` failed"));
    }

    #[test]
    fn a_program_that_is_not_there_is_not_installed() {
        assert!(is_installed(&mut Command::new("git")));
        assert!(!is_installed(&mut Command::new("no-such-program-as-this")));
    }

    #[test]
    fn the_files_are_the_sources_and_not_what_was_built() {
        let files = Workspace::load().unwrap().files().unwrap();
        assert!(files.contains(&"xtask/src/workspace.rs".to_owned()));
        assert!(!files.iter().any(|path| path.starts_with("target/")));
    }
}
