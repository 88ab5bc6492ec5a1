//! The onetake binary: reads what was typed and hands it to one command.
//!
//! Never does the work itself, and never guesses: what it does not understand is refused with exit
//! code 2. Exit code 0 means that everything held, 1 that something did not.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::demo;

/// One operation, one execution: every retry gets the same take.
#[derive(Parser)]
#[command(name = "onetake", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show on this machine what becomes of retries: seven scenes, a real side effect, one table
    Demo(demo::Args),
}

fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
    };
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
