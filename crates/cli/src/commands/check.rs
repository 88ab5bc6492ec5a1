//! `onetake check`: reads the configuration and shows what would run, or everything that is wrong
//! with it.
//!
//! Opens no store and no listener, and shows no secret. Exit code 2 when anything is wrong.

mod routes;

use std::path::{Path, PathBuf};

use anyhow::Result;

use onetake_openwop::Catalog;

use crate::config::{
    Config, ConfigErrors, DEFAULT_FILE, Environment, Place, Source, read_input, schema,
};
use crate::exit::Exit;
use crate::gateway;
use crate::out::{lines, print, say};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file to check; `-` reads the standard input
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    config: PathBuf,
    /// Print JSON and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the JSON schema of the file instead of checking one
    #[arg(long)]
    schema: bool,
}

/// Checks what was named.
///
/// # Errors
/// When the result cannot be written as JSON. A wrong configuration is a result.
pub(crate) fn run(args: &Args) -> Result<Exit> {
    if args.schema {
        print(&serde_json::to_string_pretty(&schema())?);
        return Ok(Exit::Done);
    }
    match load(&args.config) {
        Ok(config) => {
            let warnings = &config.warnings;
            let shown = serde_json::json!({ "ok": true, "warnings": warnings, "config": config });
            say(args.json, &shown, || text(&config))?;
            for warning in warnings.iter().filter(|_| !args.json) {
                eprintln!("warning: {warning}");
            }
            Ok(Exit::Done)
        }
        Err(errors) if args.json => {
            let (problems, more) = (&errors.problems, errors.more);
            let shown = serde_json::json!({ "ok": false, "problems": problems, "more": more });
            print(&serde_json::to_string_pretty(&shown)?);
            Ok(Exit::Usage)
        }
        Err(errors) => {
            eprintln!("{errors}");
            Ok(Exit::Usage)
        }
    }
}

fn load(path: &Path) -> Result<Config, ConfigErrors> {
    let environment = Environment::of_process();
    let input;
    let source = if path == Path::new("-") {
        input = read_input(std::io::stdin().lock())?;
        Source::Text { name: "standard input", text: &input }
    } else {
        Source::File(path)
    };
    // Some of it only the gateway can judge, so one is made, and dropped before it does anything.
    let (config, _) = gateway::load(source, &environment)?;
    // So are the workflows, of which one that is wrong would stop the start; a directory that is
    // still to come is shown as such.
    if let Some(hosted) = config.openwop.as_ref().filter(|hosted| hosted.workflows.exists()) {
        let place = Place::File(hosted.workflows.display().to_string().into());
        let read = Catalog::load(&hosted.workflows);
        read.map_err(|error| Config::error_at(&place, error.to_string()))?;
    }
    Ok(config)
}

/// What would run, for people.
fn text(config: &Config) -> String {
    let token = if config.admin.token.is_some() { "token given" } else { "token kept in a file" };
    let tenants = match config.tenants.len() {
        0 => "none in this file".to_owned(),
        count => count.to_string(),
    };
    let dialects: Vec<_> = config.dialects.iter().map(|dialect| dialect.name.as_str()).collect();
    let mut about = vec![
        ("server", config.server.listen.to_string()),
        ("admin", format!("{}, {token}", config.admin.listen)),
        ("store", config.store.url.to_string()),
        ("auth", config.auth.mode.name().to_owned()),
        ("tenants", tenants),
    ];
    if !dialects.is_empty() {
        about.push(("dialects", dialects.join(", ")));
    }
    if let Some(hosted) = &config.openwop {
        let directory = hosted.workflows.display();
        let found = Catalog::load(&hosted.workflows).map(|all| all.workflows().count());
        about.push((
            "workflows",
            found.map_or_else(
                |_| format!("{directory}, which is not there"),
                |count| format!("{count} in {directory}"),
            ),
        ));
    }
    if config.routes.is_empty() {
        about.push(("routes", "none: no request is passed on".to_owned()));
        return lines(&about);
    }
    let shown = routes::shown(&config.routes);
    about.extend(shown.shared.map(|upstream| ("upstream", upstream)));
    format!("{}\n\n{}", lines(&about), shown.text)
}
