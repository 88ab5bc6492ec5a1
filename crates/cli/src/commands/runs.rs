//! `onetake runs`: look at the runs of workflows, follow them, end them.
//!
//! Reads what was typed, asks the operator's desk and shows what came of it: on the store itself,
//! or through the process that holds it. Nothing here drives a run.

mod show;

use anyhow::Result;
use clap::Subcommand;
use onetake::Code;
use onetake_console::wire::{CancelAsk, EventsAsk, Problem, RunsAsk, RunsPage};

use crate::events;
use crate::exit::{Exit, Fault};
use crate::operator::{Operator, RunPlace, Target};
use crate::out::{print, say, tame};

/// How long one question waits for events.
const WAIT: &str = "20s";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List runs by tenant and status, the oldest of each tenant first
    List(List),
    /// Show one run with everything there is to know
    Show(Which),
    /// End a run, and all that are part of it
    Cancel(Cancel),
    /// Print the events of a run as they come, until it ends; the exit code says how
    Tail(Tail),
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only those of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Only those that are now: pending, running, paused, waiting-approval, waiting-input,
    /// waiting-external, cancelling, completed, failed or cancelled
    #[arg(long)]
    status: Option<String>,
    /// Go on where an earlier page ended
    #[arg(long, value_name = "BOOKMARK")]
    after: Option<String>,
    /// The most rows of a page
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Every page, one after another
    #[arg(long)]
    all: bool,
}

/// Which run.
#[derive(Debug, clap::Args)]
struct Which {
    /// The run, as a list shows it
    run: String,
    /// Whose it is; by default it is looked for
    #[arg(long)]
    tenant: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Cancel {
    #[command(flatten)]
    which: Which,
    /// Why; whoever follows the run reads it
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Tail {
    #[command(flatten)]
    which: Which,
    /// From this event on
    #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
    from: u64,
}

/// Does what was typed.
///
/// # Errors
/// When it could not be done; `exit.rs` tells which exit code that is.
pub(crate) async fn run(args: &Args) -> Result<Exit> {
    let (operator, json) = (Operator::at(&args.target).await?, args.target.json);
    match &args.verb {
        Verb::List(list) => self::list(&operator, list, json).await?,
        Verb::Show(which) => {
            let shown = operator.run(&place(&operator, which).await?).await;
            let shown = or_whose(&operator, which, shown).await?;
            say(json, &shown, || show::run(&shown))?;
        }
        Verb::Cancel(Cancel { which, reason }) => {
            let ask = CancelAsk { reason: reason.clone() };
            let done = operator.cancel(&place(&operator, which).await?, &ask).await;
            let done = or_whose(&operator, which, done).await?;
            say(json, &done, || show::cancelled(&done))?;
        }
        Verb::Tail(tail) => {
            tokio::select! {
                ended = self::tail(&operator, tail, json) => return ended,
                _ = tokio::signal::ctrl_c() => return Ok(Exit::RunOpen),
            }
        }
    }
    Ok(Exit::Done)
}

async fn list(operator: &Operator, list: &List, json: bool) -> Result<()> {
    let mut ask = RunsAsk {
        tenant: list.tenant.clone(),
        status: list.status.clone(),
        run: None,
        after: list.after.clone(),
        limit: Some(list.limit),
    };
    let mut page = operator.runs(&ask).await?;
    while list.all && page.next.is_some() {
        ask.after = page.next;
        let next = operator.runs(&ask).await?;
        page.runs.extend(next.runs);
        page = RunsPage { runs: page.runs, ..next };
    }
    say(json, &page, || show::runs(&page))?;
    if let Some(next) = page.next.filter(|_| !json) {
        eprintln!("There is more: --after {next}");
    }
    Ok(())
}

/// Prints events until the run has ended, or nobody is there who could end it.
async fn tail(operator: &Operator, tail: &Tail, json: bool) -> Result<Exit> {
    let (place, mut from) = (place(operator, &tail.which).await?, tail.from);
    loop {
        let ask = EventsAsk { from: Some(from), wait: Some(WAIT.to_owned()) };
        let page = operator.events(&place, &ask).await;
        if let (Err(_), true) = (&page, from > tail.from) {
            eprintln!("The events before {from} were printed: go on with --from {from}");
        }
        let page = or_whose(operator, &tail.which, page).await?;
        for event in &page.events {
            print(&if json { event.0.to_string() } else { events::line(&event.0) });
        }
        from = page.next;
        if let Some(exit) = events::ended(&page.status).filter(|_| page.over) {
            return Ok(exit);
        }
        if !page.driven && page.events.is_empty() {
            let status = &page.status;
            eprintln!("the run is {status}, and no process drives it: start `onetake serve`");
            return Ok(Exit::RunOpen);
        }
    }
}

/// The run that was named; without a tenant the only one of that name.
async fn place(operator: &Operator, which: &Which) -> Result<RunPlace> {
    let run = which.run.clone();
    if let Some(tenant) = &which.tenant {
        return Ok(RunPlace { tenant: tenant.clone(), run });
    }
    let owners = owners(operator, &run).await?;
    match owners.as_slice() {
        [] => Err(Problem::new(Code::RecordMissing, "there is no such run").into()),
        [tenant] => Ok(RunPlace { tenant: tenant.clone(), run }),
        [first, rest @ ..] => {
            let (first, more) = (tame(first), rest.len());
            let why = format!("{first} and {more} more have a run of this name: name its tenant");
            Err(Fault::Usage(format!("{why}, such as `--tenant {first}`")).into())
        }
    }
}

async fn owners(operator: &Operator, run: &str) -> Result<Vec<String>> {
    let ask = RunsAsk { run: Some(run.to_owned()), ..RunsAsk::default() };
    Ok(operator.runs(&ask).await?.runs.into_iter().map(|row| row.tenant).collect())
}

/// What came of it; where the tenant that was named has no such run, whose was probably meant.
async fn or_whose<T>(operator: &Operator, which: &Which, done: Result<T>) -> Result<T> {
    let error = match done {
        Ok(done) => return Ok(done),
        Err(error) => error,
    };
    let Some(problem) = error.downcast_ref::<Problem>().cloned() else { return Err(error) };
    if which.tenant.is_none() || problem.known() != Some(Code::RecordMissing) {
        return Err(error);
    }
    let owners = owners(operator, &which.run).await.unwrap_or_default();
    let Some(owner) = owners.first().map(|owner| tame(owner)) else { return Err(error) };
    let detail = format!("{}; it is that of another: `--tenant {owner}`", problem.detail);
    Err(Problem { detail, ..problem }.into())
}
