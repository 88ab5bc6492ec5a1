//! `cargo xtask test`: everything that must hold before a change is merged, in one command.
//!
//! The list of steps below is all of CI. What a test needs of servers is installed first, and the
//! test starts and ends its own; no step ever depends on something that a developer must have
//! started by hand.

use anyhow::Result;

use crate::steps::{self, OnFailure, Step};
use crate::workspace::{self, Workspace};
use crate::{plant, servers, tidy};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Passed on to `cargo test`
    #[arg(last = true)]
    extra: Vec<String>,
}

/// Takes the steps in order and stops at the first that fails.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    let steps = [
        Step::new("servers", servers::ensure),
        Step::new("tests", || {
            let mut cargo = workspace.cargo();
            if std::env::var_os("CI").is_some() {
                // Nobody builds there a second time, and it would take gigabytes of disk.
                cargo.env("CARGO_INCREMENTAL", "0");
            }
            workspace::run(cargo.args(["test", "--workspace"]).args(&args.extra))
        }),
        Step::new("tidy", || tidy::run(workspace)),
        Step::new("plant", || plant::run_share(workspace)),
    ];
    steps::walk(&steps, OnFailure::Stop)
}
