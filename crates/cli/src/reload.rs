//! Watches the configuration while the gateway runs: keys of tenants that were added or revoked
//! count within seconds, without a restart.
//!
//! Everything else in the file waits for a restart. A file that is wrong changes nothing, and that
//! is said.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use onetake_http::identity::ApiKeys;
use tokio::signal::unix::Signal;
use tokio::time::{MissedTickBehavior, interval};

use crate::config::{Config, Environment, Source};
use crate::gateway::tenants;

/// How often the file is looked at. SIGHUP makes it look at once.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Keeps the keys of callers as their file says, where there are some. Never ends.
pub(crate) async fn while_it_runs(
    keys: Option<(ApiKeys, PathBuf)>,
    seen: Option<Stamp>,
    hangup: Signal,
) {
    if let Some((keys, path)) = keys {
        tenants_of(&path, &keys, seen, hangup).await;
    } else {
        // Nothing to read again. A hangup is heard, so that it does not end the process.
        let _hangup = hangup;
        std::future::pending::<()>().await;
    }
}

/// Replaces `keys` whenever the file at `path` is no longer as it was `seen`. Never ends.
async fn tenants_of(path: &Path, keys: &ApiKeys, mut seen: Option<Stamp>, mut hangup: Signal) {
    let mut tick = interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_asked = tokio::select! {
            _ = tick.tick() => false,
            _ = hangup.recv() => true,
        };
        let now = stamp(path);
        if is_asked || now != seen {
            seen = now;
            replace(path, keys);
        }
    }
}

/// What tells one state of a file from another.
pub(crate) type Stamp = (SystemTime, u64);

/// How the file at `path` is now.
pub(crate) fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

fn replace(path: &Path, keys: &ApiKeys) {
    let config = match Config::load(Source::File(path), &Environment::of_process()) {
        Ok(config) => config,
        Err(errors) => {
            eprintln!("the configuration is wrong, so callers stay as they were:\n{errors}");
            return;
        }
    };
    match keys.replace(&tenants(&config.tenants)) {
        Ok(()) => eprintln!(
            "tenants were read again: {}; everything else in the file waits for a restart",
            config.tenants.len()
        ),
        Err(error) => eprintln!("tenants stay as they were: {error}"),
    }
}
