//! Memory of runs that wait: how much the process grows with each of them.
//!
//! The host is in a process of its own, this program started once more, so that its memory is its
//! own. It creates runs through its door, waits until they stand and the allocator has come to
//! rest, and says how much is resident. What the store keeps in memory has a bound of its own, so
//! the second half of the runs shows best what one of them costs.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onetake_engine::Journal;
use onetake_stores::Embedded;
use tokio::task::JoinSet;

use crate::host::Measured;
use crate::report::{Bar, Case, status_mib};
use crate::{float, folder, runtime, say};

/// The argument that makes this program a host that is told how many runs to have.
pub(crate) const ROLE: &str = "wait-in";

/// As many as the bound of what the store keeps in memory is small beside.
const RUNS: u64 = 100_000;
/// Waits for somebody's word.
const WORKFLOW: &str = "conformance-approval";
/// Runs that are created at once: as many as make commits large.
const TASKS: usize = 256;
/// How long memory must not change to be at rest, and how much counts as a change.
const REST: Duration = Duration::from_secs(2);
const REST_MIB: f64 = 1.0;
/// How long it may take to come to rest.
const REST_WITHIN: Duration = Duration::from_secs(60);

/// Has as many runs as each line of the standard input says, and answers with its memory.
pub(crate) fn play(folder: &Path) {
    let runtime = runtime();
    let _inside = runtime.enter();
    let store = Embedded::open(folder).expect("an empty folder");
    let host = Arc::new(runtime.block_on(Measured::open(store)));
    let created = Arc::new(AtomicU64::new(0));
    for line in std::io::stdin().lines() {
        let wanted = line.expect("an order").parse().expect("a number");
        runtime.block_on(create(&host, &created, wanted));
        let (resident, anonymous) = at_rest();
        println!("{resident} {anonymous}");
    }
}

async fn create<S: Journal>(host: &Arc<Measured<S>>, created: &Arc<AtomicU64>, wanted: u64) {
    let mut going = JoinSet::new();
    for _ in 0..TASKS {
        let (host, created) = (Arc::clone(host), Arc::clone(created));
        going.spawn(async move {
            let mut last = None;
            loop {
                let key = created.fetch_add(1, Ordering::Relaxed);
                if key >= wanted {
                    // The number stays free for whoever goes on.
                    created.fetch_sub(1, Ordering::Relaxed);
                    break;
                }
                last = Some(host.create(WORKFLOW, key).await);
            }
            while let Some(run) = &last {
                match host.status(run).await.as_str() {
                    "waiting-approval" => break,
                    "running" => tokio::time::sleep(Duration::from_millis(10)).await,
                    other => panic!("{run} is {other}"),
                }
            }
        });
    }
    going.join_all().await;
}

/// What is resident and what of it is anonymous, in mebibytes, once that has stopped changing.
fn at_rest() -> (f64, f64) {
    let begun = Instant::now();
    loop {
        let before = status_mib("VmRSS");
        std::thread::sleep(REST);
        let now = status_mib("VmRSS");
        if (now - before).abs() <= REST_MIB || begun.elapsed() > REST_WITHIN {
            return (now, status_mib("RssAnon"));
        }
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let folder = folder();
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .arg(ROLE)
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut orders = child.stdin.take().expect("piped");
    let mut answers = BufReader::new(child.stdout.take().expect("piped"));
    let mut ask = |runs: u64| {
        writeln!(orders, "{runs}").expect("the host listens");
        let mut line = String::new();
        answers.read_line(&mut line).expect("the host answers");
        let (resident, anonymous) = line.trim().split_once(' ').expect("two numbers");
        let number = |text: &str| text.parse::<f64>().expect("a number");
        let (resident, anonymous) = (number(resident), number(anonymous));
        say(&format!("{runs} waiting runs: {resident:.1} MiB resident, {anonymous:.1} anonymous"));
        (resident, anonymous)
    };
    let (none, half, all) = (ask(0), ask(RUNS / 2), ask(RUNS));
    drop(orders);
    assert!(child.wait().expect("it ends").success(), "the host failed");
    let each = |grown: f64, runs: u64| grown * 1_024.0 / float(runs);
    let case = |name: String, unit, value, bar| Case::alone(name, unit, &mut [value], bar);
    let of_all = each(all.0 - none.0, RUNS);
    let of_later = each(all.0 - half.0, RUNS / 2);
    let anonymous = each(all.1 - half.1, RUNS / 2);
    vec![
        case(format!("memory: each of {RUNS} that wait"), "KiB", of_all, Bar::AtMost(4.0)),
        case("memory: each of the second half".into(), "KiB", of_later, Bar::AtMost(4.0)),
        case("memory: the same, anonymous".into(), "KiB", anonymous, Bar::None),
        case(format!("memory: all of it with {RUNS} that wait"), "MiB", all.0, Bar::None),
    ]
}
