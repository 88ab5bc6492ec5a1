//! What the embedded store costs on a real disk, beside the least that could do the same job.
//!
//! `cargo xtask bench store` prints this as a table and keeps it as JSON. Every rate has a baseline
//! that is measured in the same run, in turns, so that a busy machine or disk slows both. The files
//! lie in the target directory, because a temporary directory may be memory. `--quick` uses fewer
//! records and says so in its report.

mod bare;
mod expiry;
mod fresh;
mod load;
mod replay;
#[path = "../../../../bench/report.rs"]
mod report;
mod sizes;

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

const WORKERS: usize = 2;
/// How long the disk rests before anything is measured on it.
const REST: Duration = Duration::from_secs(1);

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Plan {
    rounds: usize,
    /// How long one rate is measured.
    span: Duration,
    /// Records of a store that has been used, and of one that has been used a lot.
    some: u64,
    many: u64,
    remark: &'static str,
}

const FULL: Plan =
    Plan { rounds: 5, span: Duration::from_secs(3), some: 1_000_000, many: 5_000_000, remark: "" };

const QUICK: Plan = Plan {
    rounds: 3,
    span: Duration::from_secs(2),
    some: 200_000,
    many: 1_000_000,
    remark: " (quick: a fifth of the records)",
};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [first, folder] = args.as_slice()
        && first == sizes::PEER
    {
        return sizes::peer(Path::new(folder));
    }
    let plan = if args.iter().any(|arg| arg == "--quick") { QUICK } else { FULL };
    // For work on the store itself: only the named parts.
    let is_wanted = |part: &str| {
        let mut names = args.iter().filter(|arg| !arg.starts_with('-')).peekable();
        names.peek().is_none() || names.any(|name| name == part)
    };
    let mut cases = Vec::new();
    if is_wanted("fresh") {
        cases.extend(fresh::cases(&plan));
    }
    if is_wanted("replay") {
        cases.extend(replay::hot(&plan));
    }
    if is_wanted("sizes") {
        cases.extend(sizes::cases(&plan));
    }
    if is_wanted("expiry") {
        cases.extend(expiry::cases(&plan));
    }
    report::write("store", plan.remark, &cases);
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(WORKERS).enable_time().build().expect("a runtime")
}

/// An empty folder on the disk of the target directory. What was removed before must not be paid
/// for by whoever is measured next, so the disk comes to rest first.
fn folder() -> TempDir {
    rustix::fs::sync();
    std::thread::sleep(REST);
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the target directory can be written")
}

/// A count as a number that can be divided.
#[allow(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
const fn float(count: u64) -> f64 {
    count as f64
}

/// Says on standard error what is going on, for whoever waits.
fn say(what: &str) {
    eprintln!("store: {what}");
}
