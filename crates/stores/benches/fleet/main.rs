//! What the stores for fleets cost on servers of this benchmark's own, beside the least that could
//! do the same job.
//!
//! `cargo xtask bench stores` prints this as a table and keeps it as JSON. Every rate has a
//! baseline that is measured in the same run, in turns and on the same server, so that a busy
//! machine or disk slows both. The servers sync as they do in production, and their files lie in
//! the temporary directory, so that should be a disk. `--quick` uses fewer records and `--full`
//! more; the report says so.

mod bare;
mod bloat;
mod cells;
mod fresh;
mod grown;
mod load;
mod redis_loss;
#[path = "../../tests/redis_server/mod.rs"]
mod redis_server;
mod redis_swaps;
mod replay;
#[path = "../../../../bench/report.rs"]
mod report;

use std::time::Duration;

use onetake_stores::{Postgres, PostgresOptions};
use onetake_testkit::servers::Server;
use tokio::runtime::{Builder, Runtime};

const WORKERS: usize = 2;
/// As many as ask at once, in every case.
const TASKS: usize = 64;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Plan {
    rounds: usize,
    /// How long one rate is measured.
    span: Duration,
    /// How many records a grown store has, one size after the other.
    sizes: &'static [u64],
    /// How many operations a table has to bear before its size is looked at.
    operations: u64,
    remark: &'static str,
}

const USUAL: Plan = Plan {
    rounds: 5,
    span: Duration::from_millis(1_500),
    sizes: &[1_000_000],
    operations: 300_000,
    remark: " (without 5 M records: those are in --full)",
};

const FULL: Plan = Plan {
    rounds: 7,
    span: Duration::from_secs(3),
    sizes: &[1_000_000, 5_000_000],
    operations: 1_000_000,
    remark: "",
};

const QUICK: Plan = Plan {
    rounds: 3,
    span: Duration::from_secs(1),
    sizes: &[200_000],
    operations: 60_000,
    remark: " (quick: a fifth of the records)",
};

/// The servers of one run.
struct Stage<'a> {
    plan: Plan,
    runtime: &'a Runtime,
    postgres: &'a Server,
}

impl Stage<'_> {
    /// A store in a schema of its own.
    fn store(&self, schema: &str) -> Postgres {
        let (url, options) = (self.postgres.url(), PostgresOptions::new().schema(schema));
        let opened = Postgres::open(&url, options);
        self.runtime.block_on(opened).expect("the server runs")
    }

    /// The tables of a store, for those who use them without it.
    fn tables(&self, schema: &str) {
        let (url, options) = (self.postgres.url(), PostgresOptions::new().schema(schema));
        let made = Postgres::migrate(&url, &options, false);
        self.runtime.block_on(made).expect("the server runs");
    }

    /// Carries out a statement whose answer does not matter.
    fn order(&self, sql: &str) {
        drop(self.postgres.ask(sql));
    }

    /// Removes a schema, so that what comes next has the server to itself.
    fn forget(&self, schema: &str) {
        self.order(&format!("SET client_min_messages = warning; DROP SCHEMA {schema} CASCADE"));
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let plan = match (has("--full"), has("--quick")) {
        (true, _) => FULL,
        (_, true) => QUICK,
        _ => USUAL,
    };
    // For work on the stores themselves: only the named parts.
    let is_wanted = |part: &str| {
        let mut names = args.iter().filter(|arg| !arg.starts_with('-')).peekable();
        names.peek().is_none() || names.any(|name| name == part)
    };
    let runtime = runtime();
    // As much memory as the records of a day deserve; everything that decides whether a commit is
    // kept is as it comes. Vacuum looks around more often, because this run is short.
    let postgres = Server::start(&[
        ("shared_buffers", "512MB"),
        ("max_wal_size", "4GB"),
        ("autovacuum_naptime", "2s"),
    ]);
    let stage = Stage { plan, runtime: &runtime, postgres: &postgres };
    let mut cases = Vec::new();
    if is_wanted("fresh") {
        cases.extend(fresh::cases(&stage));
    }
    if is_wanted("replay") {
        cases.extend(replay::cases(&stage));
    }
    if is_wanted("redis") {
        cases.extend(redis_swaps::cases(&plan, &runtime));
        cases.extend(redis_loss::cases(&plan, &runtime));
    }
    if is_wanted("bloat") {
        cases.extend(bloat::cases(&stage));
    }
    if is_wanted("grown") {
        cases.extend(grown::cases(&stage));
    }
    report::write("stores", plan.remark, &cases);
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().expect("a runtime")
}

/// A count as a number that can be divided.
#[allow(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
const fn float(count: u64) -> f64 {
    count as f64
}

/// Says on standard error what is going on, for whoever waits.
fn say(what: &str) {
    eprintln!("stores: {what}");
}
