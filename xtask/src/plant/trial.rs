//! Runs one test in the copy and reads what became of it.
//!
//! Cargo builds and we start the test binary ourselves: a test that hangs is then our own child,
//! and ending it leaves nothing behind. Never takes a binary that crashed or ran nothing
//! for a verdict.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Message;

use super::{Copy, Planted};

const POLL: Duration = Duration::from_millis(10);

/// Where trials take place.
pub(super) struct Trials<'a> {
    pub(super) copy: &'a Copy,
    /// Cargo's target directory, shared so that dependencies are built once.
    pub(super) target: PathBuf,
    pub(super) time_max: Duration,
}

/// What a planted bug came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// By this test.
    Caught(String),
    /// And this is what the test did instead of failing.
    Survived(&'static str),
}

/// A test, as `cargo test` is told of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Site {
    package: &'static str,
    target: &'static [&'static str],
    test: &'static str,
}

impl Site {
    pub(super) fn of(bug: &Planted) -> Self {
        Self { package: bug.package, target: bug.target, test: bug.test }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-p {} {} {}", self.package, self.target.join(" "), self.test)
    }
}

/// A test binary, and the folder it expects to be started in.
struct Binary {
    path: PathBuf,
    folder: PathBuf,
}

enum Ran {
    Ended { ok: bool, output: String },
    Hung,
}

impl Trials<'_> {
    /// The test must pass, and must be there: how many passed?
    pub(super) fn without_bug(&self, site: Site) -> Result<usize> {
        let mut passed = 0;
        for binary in self.build(site).with_context(|| site.to_string())? {
            match self.start(&binary, site.test)? {
                Ran::Ended { ok: true, output } => passed += tally(&output).passed,
                Ran::Ended { ok: false, output } => bail!("{site} fails without a bug:\n{output}"),
                Ran::Hung => bail!("{site} hangs without a bug"),
            }
        }
        ensure!(passed > 0, "{site} names no test");
        Ok(passed)
    }

    /// The test must fail.
    pub(super) fn with_bug(&self, bug: &Planted) -> Result<Verdict> {
        let site = Site::of(bug);
        self.copy.while_planted(bug, || {
            let mut verdict = Verdict::Survived("nothing ran");
            for binary in self.build(site)? {
                verdict = judge(&self.start(&binary, site.test)?, bug.hang_is_caught)?;
                if let Verdict::Caught(_) = verdict {
                    break;
                }
            }
            Ok(verdict)
        })
    }

    /// Builds the test binaries of a site.
    fn build(&self, site: Site) -> Result<Vec<Binary>> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .current_dir(&self.copy.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .args(["test", "--no-run", "--message-format=json-render-diagnostics", "-p"])
            .arg(site.package)
            .args(site.target)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "does not compile:\n{said}");
        let mut binaries = Vec::new();
        for message in Message::parse_stream(output.stdout.as_slice()) {
            if let Message::CompilerArtifact(artifact) = message?
                && artifact.profile.test
                && let (Some(path), Some(folder)) =
                    (artifact.executable, artifact.manifest_path.parent())
            {
                binaries.push(Binary { path: path.into(), folder: folder.into() });
            }
        }
        ensure!(!binaries.is_empty(), "has no test binary");
        Ok(binaries)
    }

    /// Starts a test binary and waits, but not forever.
    fn start(&self, binary: &Binary, filter: &str) -> Result<Ran> {
        let log = self.target.join("output.txt");
        let mut child = into_file(binary, &log)?
            .arg(filter)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.path.display()))?;
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
                return Ok(Ran::Ended { ok: status.success(), output });
            }
            if start.elapsed() > self.time_max {
                child.kill()?;
                child.wait()?;
                return Ok(Ran::Hung);
            }
            thread::sleep(POLL);
        }
    }
}

/// A file cannot fill up as a pipe can while nobody reads.
fn into_file(binary: &Binary, log: &Path) -> Result<Command> {
    let out = File::create(log)?;
    let mut command = Command::new(&binary.path);
    command
        .current_dir(&binary.folder)
        .env("CARGO_MANIFEST_DIR", &binary.folder)
        .stdin(Stdio::null())
        .stderr(out.try_clone()?)
        .stdout(out);
    Ok(command)
}

fn judge(ran: &Ran, hang_is_caught: bool) -> Result<Verdict> {
    match ran {
        Ran::Hung if hang_is_caught => Ok(Verdict::Caught("a hang".to_owned())),
        Ran::Hung => Ok(Verdict::Survived("the test hangs")),
        Ran::Ended { ok: true, .. } => Ok(Verdict::Survived("the test passes")),
        Ran::Ended { ok: false, output } => match tally(output).failed.as_slice() {
            [] => bail!("the test neither passed nor failed:\n{output}"),
            [one] => Ok(Verdict::Caught(one.clone())),
            [one, others @ ..] => Ok(Verdict::Caught(format!("{one} and {} more", others.len()))),
        },
    }
}

/// What a test binary printed, counted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: usize,
    pub(super) failed: Vec<String>,
}

/// Reads the lines of libtest: `test a::b ... FAILED`, `test result: ok. 3 passed; 0 failed; ..`.
pub(super) fn tally(output: &str) -> Tally {
    let name_of_failed = |line: &str| {
        let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
        // A test that should panic says so between its name and the dots.
        Some(name.split(" - ").next().unwrap_or(name).to_owned())
    };
    let passed_in = |line: &str| -> Option<usize> {
        let (_status, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        counts.split_once(" passed;")?.0.parse().ok()
    };
    Tally {
        passed: output.lines().filter_map(passed_in).sum(),
        failed: output.lines().filter_map(name_of_failed).collect(),
    }
}
