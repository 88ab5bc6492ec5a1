//! `onetake keys`: look at keys, and settle them by hand.
//!
//! Reads what was typed, asks the operator's desk and shows what came of it. Every judgement is
//! made there; nothing here looks into a store, and content is shown only when asked for.

mod hint;
mod outcome;
mod show;

use anyhow::Result;
use clap::{ArgGroup, Subcommand};
use onetake::core::Address;
use onetake::engine::operate::What;
use onetake::{Key, Operation, Principal, Scope, Tenant};
use onetake_console::wire::{AuditAsk, Keys, ListAsk, PurgeAsk, PurgeDone, ReleaseAsk};

use crate::exit::{Exit, Fault};
use crate::operator::{Operator, Place, Target};
use crate::out::say;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List keys by tenant, operation, phase and age
    List(List),
    /// Show one key with everything there is to know
    #[command(override_usage = "\
onetake keys show [OPTIONS] <TENANT> <SLOT>
       onetake keys show [OPTIONS] <TENANT> --operation <OPERATION> --key <KEY>")]
    Show(Show),
    /// Free a key: the next attempt executes as a first one
    #[command(override_usage = "\
onetake keys release [OPTIONS] <TENANT> <SLOT> <--seen <VERSION>|--fence <FENCE> --force>
       onetake keys release [OPTIONS] <TENANT> --operation <OPERATION> --key <KEY> …")]
    Release(Release),
    /// Settle an unknown outcome with what you found out
    #[command(override_usage = "\
onetake keys resolve [OPTIONS] <TENANT> <SLOT> --seen <VERSION> \
<--status <STATUS>|--value|--failure|--not-kept>
       onetake keys resolve [OPTIONS] <TENANT> --operation <OPERATION> --key <KEY> …")]
    Resolve(outcome::Resolve),
    /// Turn everything a tenant has into tombstones without content
    Purge(Purge),
    /// Read who did what by hand
    Audit(Audit),
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only those of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Only those of this operation
    #[arg(long)]
    operation: Option<String>,
    /// Only those that are now: live, unknown, done, retryable or free
    #[arg(long)]
    phase: Option<String>,
    /// Only those that are so for at least this long, such as 30s, 24h or 7d
    #[arg(long, value_name = "SPAN")]
    older_than: Option<String>,
    /// Only those that are so for less than this
    #[arg(long, value_name = "SPAN")]
    younger_than: Option<String>,
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

/// Which key: by the digest of its slot, or by its parts.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("which").required(true).args(["slot", "key"]))]
pub(super) struct Which {
    /// Whose key it is
    tenant: String,
    /// The slot, as a list shows it
    slot: Option<String>,
    /// The operation, instead of the slot
    #[arg(long, requires = "key")]
    operation: Option<String>,
    /// The key itself, instead of the slot
    #[arg(long, requires = "operation")]
    key: Option<String>,
    /// The subject, where the scope has one
    #[arg(long, requires = "key")]
    principal: Option<String>,
}

impl Which {
    /// The place of the record. A key never leaves this process: only its digest does.
    pub(super) fn place(&self) -> Result<Place> {
        let Self { tenant, slot, operation, key, principal } = self;
        if let Some(slot) = slot {
            return Ok(Place { tenant: tenant.clone(), slot: slot.clone() });
        }
        let address = || -> Result<Address, onetake::core::NameError> {
            let owner = Tenant::new(tenant)?;
            let scope = match principal {
                Some(name) => Scope::of(owner, Principal::new(name)?),
                None => Scope::tenant_wide(owner),
            };
            let operation = Operation::new(operation.as_deref().unwrap_or_default())?;
            Ok(Address::new(scope, operation, Key::new(key.as_deref().unwrap_or_default())?))
        };
        let address = address().map_err(|why| Fault::Usage(why.to_string()))?;
        Ok(Place { tenant: tenant.clone(), slot: address.slot().hex() })
    }

    /// The operation and the key, where one of the whole tenant was named by its parts.
    fn of_the_tenant(&self) -> Option<(&str, &str)> {
        let parts = self.operation.as_deref().zip(self.key.as_deref());
        parts.filter(|_| self.principal.is_none())
    }
}

#[derive(Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    which: Which,
    /// Show the content of the outcome as well
    #[arg(long)]
    body: bool,
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("what was seen").required(true).args(["seen", "fence"]))]
struct Release {
    #[command(flatten)]
    which: Which,
    /// The version that you saw; if it is another by now, nothing happens
    #[arg(long, value_name = "VERSION")]
    seen: Option<String>,
    /// The fence of a live claim, which ends only with --force
    #[arg(long, requires = "force")]
    fence: Option<String>,
    /// End a claim whose owner may be in the middle of its effect
    #[arg(long, requires = "fence")]
    force: bool,
}

#[derive(Debug, clap::Args)]
struct Purge {
    /// Whose keys
    tenant: String,
    /// Only those of this operation
    #[arg(long)]
    operation: Option<String>,
    /// Yes, really: what they came to is forgotten, and every key counts as new
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
struct Audit {
    /// Behind this position
    #[arg(long, default_value_t = 0)]
    after: u64,
    /// The most entries
    #[arg(long, default_value_t = 100)]
    limit: usize,
}

/// Does what was typed.
///
/// # Errors
/// When it could not be done; `exit.rs` tells which exit code that is.
pub(crate) async fn run(args: &Args) -> Result<Exit> {
    let (operator, json) = (Operator::at(&args.target).await?, args.target.json);
    match &args.verb {
        Verb::List(list) => self::list(&operator, list, json).await?,
        Verb::Show(show) => {
            let what = if show.body { What::Content } else { What::Summary };
            let shown = operator.show(&show.which.place()?, what).await;
            let shown = hint::or_whose(&operator, &show.which, shown).await?;
            say(json, &shown, || show::key(&shown))?;
        }
        Verb::Release(release) => {
            let Release { which, seen, fence, force } = release;
            let ask = ReleaseAsk { seen: seen.clone(), fence: fence.clone(), force: *force };
            let done = operator.release(&which.place()?, &ask).await;
            let done = hint::or_whose(&operator, which, done).await?;
            say(json, &done, || show::act("released", &done))?;
        }
        Verb::Resolve(resolve) => {
            let done = operator.resolve(&resolve.which.place()?, &resolve.ask()?).await;
            let done = hint::or_whose(&operator, &resolve.which, done).await?;
            say(json, &done, || show::act("resolved", &done))?;
        }
        Verb::Purge(purge) => self::purge(&operator, purge, json).await?,
        Verb::Audit(audit) => {
            let ask = AuditAsk { after: Some(audit.after), limit: Some(audit.limit) };
            let page = operator.audit(&ask).await?;
            say(json, &page, || show::audit(&page))?;
        }
    }
    Ok(Exit::Done)
}

async fn list(operator: &Operator, list: &List, json: bool) -> Result<()> {
    let mut ask = ListAsk {
        tenant: list.tenant.clone(),
        operation: list.operation.clone(),
        phase: list.phase.clone(),
        older_than: list.older_than.clone(),
        younger_than: list.younger_than.clone(),
        after: list.after.clone(),
        limit: Some(list.limit),
    };
    let mut page = operator.list(&ask).await?;
    while list.all && page.next.is_some() {
        ask.after = page.next;
        let next = operator.list(&ask).await?;
        page.keys.extend(next.keys);
        let looked_at = page.looked_at + next.looked_at;
        page = Keys { keys: page.keys, looked_at, ..next };
    }
    say(json, &page, || show::keys(&page))?;
    if let Some(next) = page.next.filter(|_| !json) {
        eprintln!("There is more: --after {next}");
    }
    Ok(())
}

async fn purge(operator: &Operator, purge: &Purge, json: bool) -> Result<()> {
    if !purge.yes {
        let why = "a purge forgets what every key of the tenant came to; say --yes if you mean it";
        return Err(Fault::Usage(why.to_owned()).into());
    }
    let (tenant, operation) = (purge.tenant.clone(), purge.operation.clone());
    let (mut ask, mut sum) = (PurgeAsk { tenant, operation, after: None }, PurgeDone::default());
    loop {
        let step = operator.purge(&ask).await?;
        sum.tombstones += step.tombstones;
        sum.live += step.live;
        ask.after = step.next;
        if ask.after.is_none() {
            break;
        }
        eprintln!("{} so far …", sum.tombstones);
    }
    say(json, &sum, || show::purged(&sum))
}
