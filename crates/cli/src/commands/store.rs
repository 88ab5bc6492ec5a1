//! `onetake store`: look after the store itself.
//!
//! A check reads the files and so needs that no process holds them; numbers and copies come from
//! whoever does. Nothing here changes a record.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Subcommand;
use onetake_console::wire::BackupAsk;
use serde::Serialize;

use crate::exit::Exit;
use crate::operator::{Operator, Target};
use crate::out::{lines, say};
use crate::wiring::{self, OpenError};

/// What to do instead of a check while a process holds the store.
const HELD: &str = "a check reads the files, so no process may hold them: stop it, check a copy \
                    (`onetake store backup PATH`), or use `onetake keys …`, which asks the \
                    running server";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Read everything and report what is damaged; exit code 6 if anything is
    Check,
    /// Show the numbers of the store
    Stats,
    /// Seal with a new key from now on, under the master key that is configured by now
    Rotate,
    /// Make the tables of a database, or bring them up to date, as `serve` does when it starts
    Migrate {
        /// Print the statements, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Copy the store, as it is at one moment, to a path that does not exist yet
    Backup {
        /// Where to, on the machine of the process that holds the store
        path: PathBuf,
    },
}

/// Does what was typed.
///
/// # Errors
/// When it could not be done; `exit.rs` tells which exit code that is.
pub(crate) async fn run(args: &Args) -> Result<Exit> {
    let json = args.target.json;
    match &args.verb {
        Verb::Check => {
            let report = wiring::check(&args.target.store()?.url).map_err(|error| {
                let is_held = matches!(error, OpenError::Locked { .. });
                let error = anyhow::Error::new(error);
                if is_held { error.context(HELD) } else { error }
            })?;
            say(json, &report, || report.text())?;
            Ok(if report.ok { Exit::Done } else { Exit::Damaged })
        }
        Verb::Stats => {
            let stats = Operator::at(&args.target).await?.stats().await?;
            say(json, &stats, || {
                let numbers = stats.numbers.iter().map(|(name, n)| (name.as_str(), n.to_string()));
                let store = ("store", stats.store.clone());
                lines(&std::iter::once(store).chain(numbers).collect::<Vec<_>>())
            })?;
            Ok(Exit::Done)
        }
        Verb::Rotate => {
            let rotated = Operator::at(&args.target).await?.rotate().await?;
            let text = || format!("sealed under master key {} from now on", rotated.master);
            say(json, &rotated, text)?;
            Ok(Exit::Done)
        }
        Verb::Migrate { dry_run } => {
            let statements = wiring::migrate(&args.target.store()?, *dry_run).await?;
            let done = Migrated { dry_run: *dry_run, statements };
            say(json, &done, || done.text())?;
            Ok(Exit::Done)
        }
        Verb::Backup { path } => {
            let path = std::path::absolute(path).context("the path cannot be used")?;
            let path = path.to_str().context("the path is not text")?.to_owned();
            let backup = Operator::at(&args.target).await?.backup(&BackupAsk { path }).await?;
            let text = || format!("copied to {} ({} bytes)", backup.path, backup.bytes);
            say(json, &backup, text)?;
            Ok(Exit::Done)
        }
    }
}

/// What a migration did, or would do.
#[derive(Serialize)]
struct Migrated {
    dry_run: bool,
    statements: Vec<String>,
}

impl Migrated {
    fn text(&self) -> String {
        match (self.dry_run, self.statements.as_slice()) {
            (_, []) => "the tables are up to date".to_owned(),
            (true, statements) => format!("BEGIN;\n{}\nCOMMIT;", statements.join("\n")),
            (false, _) => "the tables are up to date now".to_owned(),
        }
    }
}
