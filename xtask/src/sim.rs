//! `cargo xtask sim`: the simulator, in release mode.
//!
//! Builds and starts it, nothing more. A seed goes through exactly as it was typed, because the
//! seed is the bug report.

use anyhow::Result;

use crate::workspace::{self, Workspace};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// One seed, to see that run again
    #[arg(conflicts_with_all = ["seeds", "from"])]
    seed: Option<String>,
    /// How many seeds to run
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    seeds: u64,
    /// The first seed; the simulator chooses when absent
    #[arg(long, value_name = "S")]
    from: Option<String>,
}

/// Runs one seed, or many.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    let sim = ["run", "--release", "-p", "onetake-testkit", "--bin", "sim", "--"];
    workspace::run(workspace.cargo().args(sim).args(passed_on(args)))
}

fn passed_on(args: &Args) -> Vec<String> {
    if let Some(seed) = &args.seed {
        return vec![seed.clone()];
    }
    let mut words = vec!["--seeds".to_owned(), args.seeds.to_string()];
    if let Some(from) = &args.from {
        words.extend(["--from".to_owned(), from.clone()]);
    }
    words
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn words(typed: &str) -> Option<String> {
        let cli = Cli::try_parse_from(format!("sim {typed}").split_whitespace()).ok()?;
        Some(passed_on(&cli.args).join(" "))
    }

    #[test]
    fn what_is_typed_is_what_the_simulator_hears() {
        assert_eq!(words("").as_deref(), Some("--seeds 10000"));
        assert_eq!(words("0x2a").as_deref(), Some("0x2a"));
        assert_eq!(words("--seeds 5 --from 7").as_deref(), Some("--seeds 5 --from 7"));
        assert_eq!(words("--from 7").as_deref(), Some("--seeds 10000 --from 7"));
    }

    #[test]
    fn one_seed_and_many_exclude_each_other() {
        assert_eq!(words("42 --seeds 5"), None);
        assert_eq!(words("42 --from 5"), None);
    }
}
