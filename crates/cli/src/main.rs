//! The onetake binary: reads what was typed and hands it to one command.
//!
//! Never does the work itself, and never guesses: what it does not understand is refused with exit
//! code 2. What every exit code means is in `exit.rs`.

mod admin;
mod check;
mod client;
mod commands;
mod config;
mod events;
mod exit;
mod gateway;
mod operator;
mod out;
mod plane;
mod reload;
mod runs;
mod wiring;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use tokio::runtime::Runtime;

use crate::commands::{check as check_config, demo, keys, run, runs as runs_command};
use crate::commands::{serve, store, tenant};
use crate::exit::Exit;

/// A walk makes and drops a few tasks of a kilobyte or two, which the allocator of the C library
/// is slow at.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One operation, one execution: every retry gets the same take.
#[derive(Parser)]
#[command(name = "onetake", version, arg_required_else_help = true, after_help = exit::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show on this machine what becomes of retries: seven scenes, a real side effect, one table
    Demo(demo::Args),
    /// Check the configuration, and show what would run
    #[command(after_help = exit::HELP)]
    Check(check_config::Args),
    /// Look at keys, and settle them by hand
    #[command(after_help = exit::HELP)]
    Keys(Box<keys::Args>),
    /// Run a workflow, and follow it to its end
    #[command(after_help = exit::HELP)]
    Run(run::Args),
    /// Look at the runs of workflows, follow them, end them
    #[command(after_help = exit::HELP)]
    Runs(runs_command::Args),
    /// Look after the store itself
    #[command(after_help = exit::HELP)]
    Store(store::Args),
    /// Serve the gateway and the admin surface, until asked to stop
    #[command(after_help = exit::HELP)]
    Serve(serve::Args),
    /// Say who may call: give tenants API keys, list and revoke them
    #[command(after_help = exit::HELP)]
    Tenant(tenant::Args),
}

fn main() -> ExitCode {
    let (ended, json) = match Cli::parse().command {
        Command::Demo(args) => return demo_code(demo::run(&args)),
        Command::Check(args) => (check_config::run(&args), args.json),
        Command::Keys(args) => (block_on(keys::run(&args)), args.target.json),
        Command::Run(args) => (block_on(run::run(&args)), args.json),
        Command::Runs(args) => (block_on(runs_command::run(&args)), args.target.json),
        Command::Store(args) => (block_on(store::run(&args)), args.target.json),
        Command::Serve(args) => (block_on(serve::run(&args)), false),
        Command::Tenant(args) => (tenant::run(&args), args.json),
    };
    let exit = ended.unwrap_or_else(|error| {
        match json.then(|| out::failure(&error)) {
            Some(failure) => eprintln!("{failure}"),
            None => eprintln!("error: {error:#}"),
        }
        Exit::of(&error)
    });
    exit.into()
}

fn block_on(command: impl Future<Output = Result<Exit>>) -> Result<Exit> {
    Runtime::new()?.block_on(command)
}

fn demo_code(ended: Result<ExitCode>) -> ExitCode {
    ended.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
