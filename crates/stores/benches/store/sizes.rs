//! A store that has been used: the rate of new keys, the memory, and opening it after a kill.
//!
//! The store is in a process of its own, this program started once more, so that its memory is its
//! own and it can be killed. That process reads one order a line from its standard input, answers
//! each with one number, and closes the store in order when there are no more.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use onetake_core::Phase;
use onetake_engine::Slots;
use onetake_stores::Embedded;

use crate::fresh::empty_store;
use crate::load::{DAY, address, fill, for_span, new_keys};
use crate::report::{Bar, Case, status_mib};
use crate::{Plan, float, folder, replay, runtime, say};

/// The argument that makes this program a peer.
pub(crate) const PEER: &str = "peer-in";

/// Numbers of operations that no filling reaches.
const BEYOND: u64 = 1 << 32;
/// Records that are added between two kills.
const ADDED: u64 = 100_000;

/// Follows orders on the store in `folder`.
pub(crate) fn peer(folder: &Path) {
    let runtime = runtime();
    let store = Embedded::open(folder).expect("a store");
    for line in std::io::stdin().lines() {
        let line = line.expect("an order");
        let mut words = line.split(' ');
        let order = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
        let answer = match (order, numbers.as_slice()) {
            ("fill", [from, to]) => {
                let started = Instant::now();
                fill(&runtime, &store, *from, *to, DAY);
                started.elapsed().as_secs_f64()
            }
            ("rate", [from, millis, tasks]) => {
                let keys = Arc::new(AtomicU64::new(*from));
                let goes_on = for_span(Duration::from_millis(*millis));
                let tasks = usize::try_from(*tasks).expect("a few hundred");
                new_keys(&runtime, &store, tasks, &keys, goes_on).rate()
            }
            ("resident", []) => status_mib("VmRSS"),
            ("anonymous", []) => status_mib("RssAnon"),
            _ => panic!("no order: {line}"),
        };
        println!("{answer}");
    }
}

/// The other end of a peer.
struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The first number of an operation that no rate has used.
    unused: u64,
}

impl Peer {
    fn start(folder: &Path) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .arg(PEER)
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let orders = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, orders, answers, unused: BEYOND }
    }

    fn ask(&mut self, order: &str) -> f64 {
        writeln!(self.orders, "{order}").expect("the peer listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the peer answers");
        line.trim().parse().expect("a number")
    }

    fn rate(&mut self, plan: &Plan) -> f64 {
        let from = self.unused;
        self.unused += 1 << 24;
        self.ask(&format!("rate {from} {} 64", plan.span.as_millis()))
    }

    fn fill(&mut self, from: u64, to: u64) {
        let seconds = self.ask(&format!("fill {from} {to}"));
        say(&format!("records {from} to {to}: {:.0}/s", float(to - from) / seconds));
    }

    /// Kills the process while it claims and completes operations from `from` on.
    fn kill(mut self, from: u64) {
        writeln!(self.orders, "rate {from} 60000 64").expect("the peer listens");
        std::thread::sleep(Duration::from_secs(1));
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    fn close(self) {
        let Self { mut child, orders, .. } = self;
        drop(orders);
        assert!(child.wait().expect("it ends").success(), "the peer failed");
    }
}

/// Opens a store that was killed and reads the record of operation `n`; in seconds.
fn reopened(folder: &Path, n: u64) -> f64 {
    let (runtime, address) = (runtime(), address(n));
    let started = Instant::now();
    let store = Embedded::open(folder).expect("a store");
    let read = runtime.block_on(store.read(address.slot())).expect("answered").value;
    let took = started.elapsed().as_secs_f64();
    let record = read.expect("what was acknowledged is there");
    assert!(matches!(record.phase, Phase::Done { .. }));
    took
}

/// Rates of a peer and of an empty store, in turns.
fn rates(plan: &Plan, peer: &mut Peer, records: u64) -> Case {
    let (mut ours, mut empty) = (vec![], vec![]);
    for round in 0..plan.rounds {
        ours.push(peer.rate(plan));
        empty.push(empty_store(plan, 64).rate());
        let (ours, empty) = (ours[round], empty[round]);
        say(&format!("round {round}: on {records} records {ours:.0}/s, empty {empty:.0}/s"));
    }
    let name = format!("new keys, 64 tasks, on {records} records; beside none");
    Case::new(name, "/s", &mut ours, &mut empty, Bar::Ratio(0.7))
}

pub(crate) fn cases(plan: &Plan) -> Vec<Case> {
    let folder = folder();
    let path = folder.path();
    let (mut times, mut there) = (vec![], 0);
    for wanted in [plan.some, plan.some + ADDED, plan.some + 2 * ADDED] {
        let mut peer = Peer::start(path);
        peer.fill(there, wanted);
        peer.kill(2 * BEYOND + (wanted << 8));
        there = wanted;
        times.push(reopened(path, wanted - 1));
    }
    say(&format!("opened after kill -9: {times:.2?} s"));
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let name = format!("opened and read after kill -9, {} records, slowest of 3", plan.some);
    let mut cases = vec![Case::alone(name, "s", &mut [slowest], Bar::AtMost(3.0))];
    cases.push(replay::cold(plan, path, plan.some));
    let mut peer = Peer::start(path);
    cases.push(rates(plan, &mut peer, plan.some));
    peer.fill(there, plan.many);
    cases.push(rates(plan, &mut peer, plan.many));
    let (resident, anonymous) = (peer.ask("resident"), peer.ask("anonymous"));
    say(&format!("memory: {resident:.0} MiB resident, {anonymous:.0} MiB anonymous"));
    peer.close();
    let name = |which: &str| format!("memory, {which}, {} records", plan.many);
    cases.push(Case::alone(name("resident"), "MiB", &mut [resident], Bar::AtMost(400.0)));
    cases.push(Case::alone(name("anonymous"), "MiB", &mut [anonymous], Bar::None));
    cases
}
