//! What Onetake costs over HTTP: a service with and without it, a reverse proxy with and without.
//!
//! `cargo xtask bench http` prints this as a table and keeps it as JSON. Every rate has a baseline
//! that is measured in the same run, in turns, so that a busy machine slows both.
//!
//! Each server is a process of its own, this program started once more, with two worker threads;
//! the load is made by two threads of this process. They share nothing but the machine. Where it
//! has only a few cores the load takes its part of them, the same for both sides of a ratio, so
//! rates here are lower than those of a server that has a machine for itself.
//!
//! Stores lie in the target directory, because a temporary directory may be memory. `--quick` takes
//! fewer turns and says so in its report.

mod floor;
mod gateway;
mod layer;
mod load;
mod peer;
mod proxy;
#[path = "../../../../bench/report.rs"]
mod report;
mod service;

use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// As the binary has it, and for both sides of every ratio.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WORKERS: usize = 2;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// How often everybody has a turn.
    rounds: usize,
    /// How long a turn is. Short ones: the noise of a machine comes and goes in seconds.
    span: Duration,
    remark: &'static str,
}

const FULL: Plan = Plan { rounds: 25, span: Duration::from_millis(500), remark: "" };
const QUICK: Plan =
    Plan { rounds: 5, span: Duration::from_millis(500), remark: " (quick: a fifth of the turns)" };

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [first, role @ ..] = args.as_slice()
        && first == peer::ROLE
    {
        return peer::play(role);
    }
    let plan = if args.iter().any(|arg| arg == "--quick") { QUICK } else { FULL };
    // For work on one door: only the named parts.
    let is_wanted = |part: &str| {
        let mut names = args.iter().filter(|arg| !arg.starts_with('-')).peekable();
        names.peek().is_none() || names.any(|name| name == part)
    };
    let mut cases = Vec::new();
    if is_wanted("layer") {
        cases.extend(layer::cases(&plan));
    }
    if is_wanted("gateway") {
        cases.extend(gateway::cases(&plan));
    }
    report::write("http", plan.remark, &cases);
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().expect("a runtime")
}

/// An empty folder on the disk of the target directory.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the target directory can be written")
}

/// A count as a number that can be divided.
#[allow(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
const fn float(count: u64) -> f64 {
    count as f64
}

/// Says on standard error what is going on, for whoever waits.
fn say(what: &str) {
    eprintln!("http: {what}");
}
