//! `cargo xtask plant`: plants each known bug in a copy of the tree and demands that a test fails.
//!
//! A test that cannot fail proves nothing. Never touches the tree itself, and never counts a bug
//! that does not compile as caught.

mod bugs;
mod client_bugs;
mod copy;
mod fleet_bugs;
mod http_bugs;
mod openwop_bugs;
mod store_bugs;
mod trial;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::Workspace;
use bugs::WALK_BUGS;
use client_bugs::CLIENT_BUGS;
use copy::Copy;
use fleet_bugs::FLEET_BUGS;
use http_bugs::HTTP_BUGS;
use openwop_bugs::OPENWOP_BUGS;
use store_bugs::STORE_BUGS;
use trial::{Site, Trials, Verdict};

/// Building is not counted.
const TRIAL_TIME_MAX: Duration = Duration::from_secs(180);

/// A bug, and the test that must notice it.
pub(crate) struct Planted {
    /// How `--only` calls it.
    name: &'static str,
    /// What would happen to a user.
    story: &'static str,
    edits: &'static [Edit],
    /// Where the test is: `onetake-engine`.
    package: &'static str,
    /// Which of its binaries: `&["--lib"]`, `&["--test", "walk"]`.
    target: &'static [&'static str],
    /// The filter, as `cargo test` takes it.
    test: &'static str,
    /// Whether a test that never ends has noticed.
    hang_is_caught: bool,
}

/// One replacement.
pub(crate) struct Edit {
    file: &'static str,
    /// Must occur exactly once.
    find: &'static str,
    replace: &'static str,
}

/// Of how many shares `cargo xtask test` plants one; each takes minutes.
const SHARES: usize = 12;

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// One bug, by its name
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// Plants a share of the bugs, another one with every commit, and reads them all for stale ones.
///
/// # Errors
///
/// When a bug of the share survived, or any is not a bug any more.
pub(crate) fn run_share(workspace: &Workspace) -> Result<()> {
    let commits: usize = workspace.git(&["rev-list", "--count", "HEAD"])?.trim().parse()?;
    let bugs: Vec<&Planted> = all().collect();
    // Neighbours are of one package, and each package is another build.
    let shares: Vec<_> = bugs.chunks(bugs.len().div_ceil(SHARES)).collect();
    let turn = commits % shares.len();
    println!("share {} of {}; all of them: cargo xtask plant", turn + 1, shares.len());
    plant(workspace, shares[turn])
}

/// Plants the chosen bugs, one after the other.
///
/// # Errors
///
/// When a bug survived, or is not a bug any more.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    plant(workspace, &chosen(all(), args.only.as_deref())?)
}

fn plant(workspace: &Workspace, bugs: &[&Planted]) -> Result<()> {
    let folder = workspace.target.join("plant");
    let copy = Copy::sync(&workspace.root, &workspace.files()?, &folder)?;
    // The copy shares our target directory: what it depends on is built already.
    let trials = Trials { copy: &copy, target: workspace.target.clone(), time_max: TRIAL_TIME_MAX };
    refuse_stale(trials.copy, all())?;
    plant_all(&trials, bugs)
}

/// Every bug that is planted.
fn all() -> impl Iterator<Item = &'static Planted> + Clone {
    let stores = WALK_BUGS.iter().chain(STORE_BUGS).chain(FLEET_BUGS);
    stores.chain(HTTP_BUGS).chain(CLIENT_BUGS).chain(OPENWOP_BUGS)
}

fn chosen<'a>(
    bugs: impl Iterator<Item = &'a Planted> + Clone,
    only: Option<&str>,
) -> Result<Vec<&'a Planted>> {
    let is_chosen = |bug: &&Planted| only.is_none_or(|name| name == bug.name);
    let found: Vec<&Planted> = bugs.clone().filter(is_chosen).collect();
    if let (Some(name), true) = (only, found.is_empty()) {
        let names: Vec<_> = bugs.map(|bug| bug.name).collect();
        bail!("there is no planted bug `{name}`; there is: {}", names.join(", "));
    }
    Ok(found)
}

fn plant_all(trials: &Trials<'_>, bugs: &[&Planted]) -> Result<()> {
    refuse_stale(trials.copy, bugs.iter().copied())?;
    for site in sites(bugs) {
        println!("without a bug: {site}");
        let passed = trials.without_bug(site)?;
        println!("    {passed} passed");
    }
    let width = bugs.iter().map(|bug| bug.name.len()).max().unwrap_or(0);
    println!("\n{:width$} | caught by | seconds", "name");
    let mut wanting = Vec::new();
    for bug in bugs {
        let start = Instant::now();
        let verdict = trials.with_bug(bug);
        let seconds = start.elapsed().as_secs_f64();
        match verdict {
            Ok(Verdict::Caught(by)) => println!("{:width$} | {by} | {seconds:.1}", bug.name),
            Ok(Verdict::Survived(why)) => {
                println!("{:width$} | SURVIVED: {why} | {seconds:.1}", bug.name);
                println!("    {}", bug.story);
                wanting.push(bug.name);
            }
            Err(error) => {
                println!("{:width$} | BROKEN: {error:#} | {seconds:.1}", bug.name);
                wanting.push(bug.name);
            }
        }
    }
    ensure!(wanting.is_empty(), "not caught: {}", wanting.join(", "));
    println!("{} planted, all caught", bugs.len());
    Ok(())
}

/// Says of every bug at once whether its text is still there; building takes longer than reading.
fn refuse_stale<'a>(copy: &Copy, bugs: impl Iterator<Item = &'a Planted>) -> Result<()> {
    let stale: Vec<String> =
        bugs.filter_map(|bug| copy.edited(bug).err()).map(|error| format!("{error:#}")).collect();
    ensure!(stale.is_empty(), "{}", stale.join("\n"));
    Ok(())
}

/// Each test once, in the order of the table.
fn sites(bugs: &[&Planted]) -> Vec<Site> {
    let mut sites: Vec<Site> = Vec::new();
    for bug in bugs {
        let site = Site::of(bug);
        if !sites.contains(&site) {
            sites.push(site);
        }
    }
    sites
}

impl Planted {
    /// Applies the edits of this bug that are about one file.
    fn edit(&self, file: &str, text: &str) -> Result<String> {
        let mut text = text.to_owned();
        for edit in self.edits.iter().filter(|edit| edit.file == file) {
            text = edit.apply(&text).with_context(|| format!("`{}` is stale", self.name))?;
        }
        Ok(text)
    }
}

impl Edit {
    fn apply(&self, text: &str) -> Result<String> {
        let Self { file, find, replace } = self;
        let times = text.matches(find).count();
        ensure!(times == 1, "found {times} times in {file}, must be once: {find:?}");
        Ok(text.replacen(find, replace, 1))
    }
}

#[cfg(test)]
mod tests;
