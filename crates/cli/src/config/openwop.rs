//! `[openwop]`, checked.
//!
//! Reads no workflow: that is done when the host is opened, and says which file is wrong.

use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use serde::Serialize;

use super::bounds;
use super::problem::Problems;
use super::raw::{IdentityChoice, Openwop};
use super::read::sure;
use super::shown;
use super::value::Plain;
use crate::wiring::StoreUrl;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SECOND: Duration = Duration::from_secs(1);
/// Longer than any run should be remembered.
const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// More nodes than a run could ever need.
const EXECUTIONS_MAX: u64 = 1_000_000;

/// Workflows, and the host that runs them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct OpenwopConfig {
    /// The directory of the workflows.
    pub(crate) workflows: PathBuf,
    /// Whether the seams for tests are there.
    pub(crate) test_seams: bool,
    /// Whether webhooks may be sent to private addresses.
    pub(crate) allow_private_targets: bool,
    /// How long a run is remembered after its end.
    #[serde(serialize_with = "shown::span")]
    pub(crate) run_retention: Duration,
    /// How long what a call came to is remembered.
    #[serde(serialize_with = "shown::span")]
    pub(crate) call_retention: Duration,
    /// Whether identities are made as the first text of the contract had it.
    pub(crate) has_source_identity: bool,
    /// Where callers reach the host.
    #[serde(serialize_with = "shown::display_if")]
    pub(crate) public_url: Option<Uri>,
    /// Nodes that one run may execute.
    pub(crate) max_node_executions: u32,
    /// How long one run may take.
    #[serde(serialize_with = "shown::span")]
    pub(crate) max_run_duration: Duration,
}

/// Checks `[openwop]`; nothing when it names no workflows.
pub(super) fn openwop(
    raw: Openwop,
    store: &StoreUrl,
    problems: &mut Problems,
) -> Option<OpenwopConfig> {
    let executions = bounds::number(&sure(raw.max_node_executions), 1..=EXECUTIONS_MAX, problems);
    // What is kept under a key for a day must not name a run that is gone.
    let run_retention = bounds::span(&sure(raw.run_retention), DAY..=YEARS, problems);
    let call_retention = bounds::span(&sure(raw.call_retention), DAY..=YEARS, problems);
    let max_run_duration = bounds::span(&sure(raw.max_run_duration), SECOND..=YEARS, problems);
    let given = raw.workflows?;
    if matches!(store, StoreUrl::Redis(_)) {
        let what = "workflows need a store that keeps documents and events, and Redis keeps slots \
                    only; use `embedded:PATH` or `postgres://HOST/DATABASE`";
        given.refuse(problems, what);
    }
    let Plain(path) = &given.value;
    Some(OpenwopConfig {
        workflows: PathBuf::from(path),
        test_seams: sure(raw.test_seams).value,
        allow_private_targets: sure(raw.allow_private_targets).value,
        run_retention,
        call_retention,
        has_source_identity: sure(raw.identity).value == IdentityChoice::Source,
        public_url: raw.public_url.map(|given| given.value.0),
        max_node_executions: u32::try_from(executions).unwrap_or(u32::MAX),
        max_run_duration,
    })
}
