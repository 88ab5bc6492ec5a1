//! `cargo xtask sim`: the simulator, and then real processes that are killed, in release mode.
//!
//! Builds and starts them, nothing more. A seed goes through exactly as it was typed, because the
//! seed is the bug report.

use anyhow::Result;

use crate::workspace::{self, Workspace};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// One seed, to see that run again
    #[arg(conflicts_with_all = ["seeds", "from", "kills"])]
    seed: Option<String>,
    /// How many seeds to run; 0 leaves the simulator out
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    seeds: u64,
    /// The first seed; the simulator chooses when absent
    #[arg(long, value_name = "S")]
    from: Option<String>,
    /// How many processes to kill while they use a store; 0 leaves them alone
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    kills: u64,
}

/// Runs one seed, or many, and then kills.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    if let Some(words) = passed_on(args) {
        let sim = ["run", "--release", "-p", "onetake-testkit", "--bin", "sim", "--"];
        workspace::run(workspace.cargo().args(sim).args(words))?;
    }
    if let Some(variables) = killing(args) {
        let test = ["test", "--release", "-p", "onetake-stores", "--test", "killed", "--"];
        let only = ["--nocapture", "a_process_that_is_killed_at_any_moment"];
        workspace::run(workspace.cargo().args(test).args(only).envs(variables))?;
    }
    Ok(())
}

/// What the simulator is told, unless it is left out.
fn passed_on(args: &Args) -> Option<Vec<String>> {
    if let Some(seed) = &args.seed {
        return Some(vec![seed.clone()]);
    }
    let mut words = vec!["--seeds".to_owned(), args.seeds.to_string()];
    if let Some(from) = &args.from {
        words.extend(["--from".to_owned(), from.clone()]);
    }
    (args.seeds > 0).then_some(words)
}

/// What those who kill are told, unless they are left out.
fn killing(args: &Args) -> Option<Vec<(&'static str, String)>> {
    if args.seed.is_some() || args.kills == 0 {
        return None;
    }
    let mut variables = vec![("ONETAKE_KILLS", args.kills.to_string())];
    variables.extend(args.from.iter().map(|from| ("ONETAKE_SEED", from.clone())));
    Some(variables)
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

    fn args(typed: &str) -> Option<Args> {
        let cli = Cli::try_parse_from(format!("sim {typed}").split_whitespace()).ok()?;
        Some(cli.args)
    }

    fn words(typed: &str) -> Option<String> {
        Some(passed_on(&args(typed)?)?.join(" "))
    }

    fn variables(typed: &str) -> Option<String> {
        let variables = killing(&args(typed)?)?;
        let words: Vec<_> =
            variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Some(words.join(" "))
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
        assert!(args("42 --kills 5").is_none());
    }

    #[test]
    fn kills_come_after_the_seeds_and_each_can_be_left_out() {
        assert_eq!(variables("").as_deref(), Some("ONETAKE_KILLS=1000"));
        let from = "ONETAKE_KILLS=5 ONETAKE_SEED=7";
        assert_eq!(variables("--kills 5 --from 7").as_deref(), Some(from));
        assert_eq!(variables("42"), None, "one seed is one run of the simulator");
        assert_eq!(
            (words("--kills 0").as_deref(), variables("--kills 0")),
            (Some("--seeds 10000"), None)
        );
        assert_eq!(words("--seeds 0"), None);
        assert!(variables("--seeds 0").is_some());
    }
}
