//! `onetake check`: reads the configuration and shows what would run, or everything that is wrong
//! with it.
//!
//! Opens no store and no listener, and shows no secret. Exit code 2 when anything is wrong.

use std::path::{Path, PathBuf};

use anyhow::Result;
use onetake::Operation;

use crate::config::{
    Config, ConfigErrors, DEFAULT_FILE, Environment, KeyUse, Mode, RouteConfig, RouteSettings,
    Source, in_flight_text, read_input, schema, span_text, unknown_text,
};
use crate::exit::Exit;
use crate::gateway;
use crate::out::{lines, print, say, table};

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
    // Some of it only the gateway can judge, so one is made, and dropped before it does anything.
    let checked = load(&args.config).and_then(|config| gateway::of(&config).map(|_| config));
    match checked {
        Ok(config) => {
            let shown = serde_json::json!({ "ok": true, "config": config });
            say(args.json, &shown, || text(&config))?;
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
    if path == Path::new("-") {
        let text = read_input(std::io::stdin().lock())?;
        let source = Source::Text { name: "standard input", text: &text };
        return Config::load(source, &environment);
    }
    Config::load(Source::File(path), &environment)
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
    if config.routes.is_empty() {
        about.push(("routes", "none: no request is passed on".to_owned()));
        return lines(&about);
    }
    let head = [
        "MATCH",
        "OPERATION",
        "UPSTREAM",
        "DIALECT",
        "KEY",
        "RETENTION",
        "LEASE",
        "IN FLIGHT",
        "UNKNOWN",
        "TIMEOUT",
        "MODE",
    ];
    let rows: Vec<_> = config.routes.iter().map(row).collect();
    format!("{}\n\n{}", lines(&about), table(head, &rows))
}

fn row(route: &RouteConfig) -> [String; 11] {
    let (pattern, upstream) = (route.pattern.to_string(), route.upstream.to_string());
    if route.passes_through {
        let dash = || "-".to_owned();
        let passes = "passes through".to_owned();
        return [
            pattern,
            passes,
            upstream,
            dash(),
            dash(),
            dash(),
            dash(),
            dash(),
            dash(),
            dash(),
            dash(),
        ];
    }
    let RouteSettings { dialect, key, policy, mode, .. } = &route.settings;
    let operation = route.operation.as_ref().map_or("by match", Operation::as_str).to_owned();
    let key = match key {
        KeyUse::ByDialect => "by dialect".to_owned(),
        KeyUse::Required => "required".to_owned(),
        KeyUse::Optional => "optional".to_owned(),
        KeyUse::Fingerprint { window } => format!("fingerprint {}", span_text(*window)),
    };
    let mode = match mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
    };
    [
        pattern,
        operation,
        upstream,
        dialect.as_str().to_owned(),
        key,
        span_text(policy.retention()),
        span_text(policy.lease()),
        in_flight_text(policy),
        unknown_text(policy).to_owned(),
        policy.timeout().map_or_else(|| "-".to_owned(), span_text),
        mode.to_owned(),
    ]
}
