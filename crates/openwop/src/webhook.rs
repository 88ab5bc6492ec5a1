//! Who is told of events: subscriptions of a tenant, and what is to be told.
//!
//! A delivery is written in the same commit as the event that it tells of, so none is lost and none
//! is made up; `webhook/dispatch.rs` sends it. Which targets may be called at all is `guard.rs`.

mod address;
mod circuit;
mod dial;
mod dispatch;
mod guard;
mod schedule;
mod send;
mod sign;

use onetake_core::{Tenant, Timestamp, tenant_prefix};
use onetake_engine::Doc;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub(crate) use self::dial::Trust;
pub(crate) use self::guard::Guard;
pub(crate) use self::send::{Sender, WITHIN};
pub(crate) use self::sign::Secret;
use crate::books::DELIVERIES;
use crate::event::{Kind, NewEvent};
use crate::run::{ForkMode, Run};

/// The most subscriptions of one tenant: what a step tells all of them fits into one commit.
pub(crate) const HOOKS_MAX: usize = 8;

/// The subscriptions of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hooks {
    pub(crate) hooks: Vec<Hook>,
}

/// One subscription.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hook {
    pub(crate) id: String,
    pub(crate) url: String,
    /// Types of events; `*` is all of them.
    pub(crate) events: Vec<String>,
    /// Runs with one of these tags; none: all runs.
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    pub(crate) secret: String,
    pub(crate) created: u64,
}

/// Leaves out the secret.
impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hook({} to {:?})", self.id, self.url)
    }
}

impl Hook {
    fn wants(&self, run: &Run, event: &NewEvent) -> bool {
        let kind = event.kind.as_str();
        let by_type = self.events.iter().any(|wanted| wanted == "*" || wanted == kind);
        let by_tag = self.tags.is_empty() || self.tags.iter().any(|tag| run.tags.contains(tag));
        is_deliverable(event.kind) && by_type && by_tag
    }
}

/// Whether anybody outside is told of such events. The small change of a run stays inside: it can
/// be followed, and a step may have a great deal of it.
pub(crate) const fn is_deliverable(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::NodeStarted
            | Kind::NodeSkipped
            | Kind::NodeCancelled
            | Kind::NodeRetried
            | Kind::VariableChanged
            | Kind::LogAppended
            | Kind::ChannelWritten
    )
}

/// Something that is to be told to somebody.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Delivery {
    /// Its name: the event and the subscription.
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) hook: String,
    pub(crate) kind: String,
    /// The body, as it is sent.
    pub(crate) body: String,
    pub(crate) created: u64,
    /// When it is sent next.
    pub(crate) due: u64,
    /// How often it was sent.
    pub(crate) attempts: u32,
}

impl Delivery {
    pub(crate) fn doc(&self) -> Doc {
        let mut key = self.due.to_be_bytes().to_vec();
        let tenant = Tenant::new(&self.tenant).expect("invariant: it is a tenant's");
        key.extend(tenant_prefix(&tenant));
        key.extend_from_slice(self.id.as_bytes());
        Doc { space: DELIVERIES, key: key.into() }
    }
}

/// What is to be told of `event`.
pub(crate) fn deliveries(
    hooks: &Hooks,
    run: &Run,
    event: &NewEvent,
    now: Timestamp,
) -> Vec<Delivery> {
    // A run that only repeats another one tells nobody what happened long ago.
    let is_told = !run.fork.as_ref().is_some_and(|fork| fork.mode == ForkMode::Replay);
    let wanted = || hooks.hooks.iter().filter(|hook| is_told && hook.wants(run, event));
    if wanted().next().is_none() {
        return Vec::new();
    }
    let seen = match event.seen(&run.id) {
        Ok(seen) => json!(seen),
        Err(error) => {
            tracing::error!(%error, run = %run.id, "an event cannot be told");
            return Vec::new();
        }
    };
    let (owner, kind) = (&run.owner.tenant, event.kind.as_str());
    let [id, workspace] = [&run.id, owner].map(|name| json!(name));
    let body =
        format!(r#"{{"runId":{id},"workspaceId":{workspace},"type":"{kind}","event":{seen}}}"#);
    let one = |hook: &Hook| Delivery {
        // Padded, so that those of one moment stay in their order.
        id: format!("{}.{:012}.{}", run.id, event.sequence, hook.id),
        tenant: owner.clone(),
        hook: hook.id.clone(),
        kind: kind.to_owned(),
        body: body.clone(),
        created: now.as_millis(),
        due: now.as_millis(),
        attempts: 0,
    };
    wanted().map(one).collect()
}
