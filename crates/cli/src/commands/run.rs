//! `onetake run`: runs a workflow over the host's public door, and follows it to its end.
//!
//! The run is created under one key, which is sent again whenever the answer is lost: however bad
//! the network, it is created once. Whoever stops looking stops nothing; the run goes on.

mod api;
mod board;
mod follow;
mod input;
mod screen;
mod stream;

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;
use uuid::Uuid;

use self::api::Api;
use self::screen::Screen;
use crate::exit::Exit;
use crate::out::tame;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The workflow
    workflow: String,
    /// An input as `name=value`; a value that is JSON is taken as such, anything else as text
    #[arg(long = "input", value_name = "NAME=VALUE")]
    inputs: Vec<String>,
    /// All inputs as one JSON object; single ones are put over it
    #[arg(long, value_name = "JSON", conflicts_with = "input_file")]
    input_json: Option<String>,
    /// A file with them; `-` is standard input
    #[arg(long, value_name = "FILE")]
    input_file: Option<PathBuf>,
    /// Where the host is
    #[arg(long, value_name = "URL", env = "ONETAKE_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// The API key; rather give it in the environment, for every user sees the words of a command
    #[arg(long, value_name = "API_KEY", env = "ONETAKE_API_KEY", hide_env_values = true)]
    key: Option<String>,
    /// The key under which the run is created: the same key, the same run; by default a new one
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Only create the run, and do not follow it
    #[arg(long)]
    detach: bool,
    /// Print JSON and nothing else: what was created, then one event a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Creates a run and follows it.
///
/// # Errors
/// When it could not be created or followed; `exit.rs` tells which exit code that is.
pub(crate) async fn run(args: &Args) -> Result<Exit> {
    let inputs = input::read(&args.inputs, args.input_json.as_deref(), args.input_file.as_ref())?;
    let api = Api::new(&args.url, args.key.as_deref())?;
    let fresh = || Uuid::now_v7().to_string();
    let key = args.idempotency_key.clone().unwrap_or_else(fresh);
    let screen = Screen::new(args.json);
    let body = json!({"workflowId": args.workflow, "inputs": inputs});
    let created = api.create(&body, &key, |trouble| screen.note(trouble)).await?;
    let said = json!({
        "runId": created.run, "status": created.status, "workflowId": args.workflow,
        "idempotencyKey": key, "replayed": created.is_replay,
    });
    let word = if created.is_replay { "created before" } else { "created" };
    let (run, shown_key) = (tame(&created.run), tame(&key));
    screen.opening(&said, &format!("run {run} {word}, under the key {shown_key}"));
    if args.detach {
        screen.note(&format!("to follow it: {}", tail_words(&created.run)));
        return Ok(Exit::Done);
    }
    follow::follow(&api, &created.run, &args.workflow, screen).await
}

/// What to type to follow a run later, on the machine of the host.
fn tail_words(run: &str) -> String {
    format!("onetake runs tail {}", tame(run))
}
