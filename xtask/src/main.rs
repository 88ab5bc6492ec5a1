//! The verbs of this repository: `cargo xtask <verb>`.
//!
//! Chooses the verb and nothing else. Never part of a published crate, and never does anything that
//! a developer could not type by hand.

mod bench;
mod check;
mod hooks;
mod plant;
mod schema;
mod servers;
mod sim;
mod steps;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// The verbs of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Formatting, lints, tidy, licences and spelling; the pre-commit hook
    Check,
    /// Unit, integration and doc tests, then tidy, then the planted bugs; all of CI
    Test(test::Args),
    /// Fixed workloads; appends one line per case to bench/history.csv
    Bench(bench::Args),
    /// The walk under a manual clock and a faulty store, one run per seed; then real kills
    Sim(sim::Args),
    /// The rules of the tree that no compiler knows
    Tidy,
    /// Plants each known bug in a copy of the tree and demands that a test catches it
    Plant(plant::Args),
    /// Writes docs/onetake.schema.json, the JSON schema of the configuration
    Schema,
    /// Installs the pre-commit hook
    Hooks,
}

fn main() -> ExitCode {
    match run(Cli::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<()> {
    let workspace = Workspace::load()?;
    match verb {
        Verb::Check => check::run(&workspace),
        Verb::Test(args) => test::run(&workspace, &args),
        Verb::Bench(args) => bench::run(&workspace, &args),
        Verb::Sim(args) => sim::run(&workspace, &args),
        Verb::Tidy => tidy::run(&workspace),
        Verb::Plant(args) => plant::run(&workspace, &args),
        Verb::Schema => schema::run(&workspace),
        Verb::Hooks => hooks::run(&workspace),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
