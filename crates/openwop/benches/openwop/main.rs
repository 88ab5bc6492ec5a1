//! What the workflow host costs: runs created, created again, driven to their end, and waiting.
//!
//! `cargo xtask bench openwop` prints this as a table and keeps it as JSON. What has a baseline is
//! measured beside it in the same run, in turns, so that a busy machine slows both.
//!
//! Over HTTP each server is a process of its own, this program started once more, with two worker
//! threads; the load is made by two threads of this process. They share nothing but the machine.
//! Where it has only a few cores the load takes its part of them, the same for both sides of a
//! ratio, so rates here are lower than those of a server that has a machine for itself.
//!
//! Stores lie in the target directory, because a temporary directory may be memory. `--quick` takes
//! fewer turns and says so in its report.

mod create;
mod host;
mod load;
mod memory;
mod peer;
mod plain;
#[path = "../../../../bench/report.rs"]
mod report;
mod whole;

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

const FULL: Plan = Plan { rounds: 9, span: Duration::from_secs(1), remark: "" };
const QUICK: Plan =
    Plan { rounds: 3, span: Duration::from_secs(1), remark: " (quick: a third of the turns)" };

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [first, role @ ..] if first == peer::ROLE => return peer::play(role),
        [first, folder] if first == memory::ROLE => return memory::play(folder.as_ref()),
        _ => {}
    }
    let plan = if args.iter().any(|arg| arg == "--quick") { QUICK } else { FULL };
    // For work on one part: only the named ones.
    let is_wanted = |part: &str| {
        let mut names = args.iter().filter(|arg| !arg.starts_with('-')).peekable();
        names.peek().is_none() || names.any(|name| name == part)
    };
    let mut cases = Vec::new();
    if is_wanted("create") {
        cases.extend(create::cases(&plan));
    }
    if is_wanted("whole") {
        cases.extend(whole::cases(&plan));
    }
    if is_wanted("memory") {
        cases.extend(memory::cases());
    }
    report::write("openwop", plan.remark, &cases);
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

/// The time within which so many of a hundred were done, in milliseconds; `took` is in nanoseconds
/// and in order.
fn percentile_ms(took: &[u32], percent: usize) -> f64 {
    let at = (took.len() * percent / 100).min(took.len() - 1);
    f64::from(took[at]) / 1e6
}

/// The time that processors have spent on a process so far, in microseconds; zero where nobody
/// says. `process` is a number, or `self`.
fn processor_us(process: &str) -> f64 {
    /// The kernel counts in hundredths of a second for everybody outside.
    const TICK_US: f64 = 10_000.0;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program, in brackets, may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2);
    float(ticks.filter_map(|field| field.parse::<u64>().ok()).sum()) * TICK_US
}

/// Says on standard error what is going on, for whoever waits.
fn say(what: &str) {
    eprintln!("openwop: {what}");
}
