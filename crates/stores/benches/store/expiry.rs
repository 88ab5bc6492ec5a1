//! A million expired records leave the disk while the store serves.
//!
//! The clock stands still until all have been written, and then passes their end at once. The rate
//! is measured only while they are being removed, and compared with that of the same store just
//! before and just after.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onetake_core::Slot;
use onetake_engine::{Journal, ManualClock};
use onetake_stores::{Embedded, Options};

use crate::load::{fill, for_span, new_keys};
use crate::report::{Bar, Case};
use crate::{Plan, float, folder, runtime, say};

const RETENTION: Duration = Duration::from_secs(60 * 60);
/// Numbers of operations that no filling reaches.
const BEYOND: u64 = 1 << 32;
const PAGE: usize = 10_000;

struct Round {
    rate: f64,
    rate_else: f64,
    removal_s: f64,
    left: u64,
    disk_mib: f64,
    disk_mib_before: f64,
}

fn round(plan: &Plan) -> Round {
    let (runtime, folder) = (runtime(), folder());
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let options = Options { clock: Some(clock.clone()), ..Options::default() };
    let store = Embedded::open_with(folder.path(), options).expect("an empty folder");
    fill(&runtime, &store, 0, plan.some, RETENTION);
    let keys = Arc::new(AtomicU64::new(BEYOND));
    let before = new_keys(&runtime, &store, 64, &keys, for_span(plan.span));
    let disk_mib_before = disk_mib(folder.path());
    clock.advance(RETENTION * 2);
    let (watched, counter) = (store.clone(), Arc::clone(&keys));
    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    let watch = std::thread::spawn(move || {
        let window = watch(&watched, &counter);
        flag.store(true, Ordering::Relaxed);
        window
    });
    new_keys(&runtime, &store, 64, &keys, move || !is_over.load(Ordering::Relaxed));
    let (rate, removal_s) = watch.join().expect("no panic");
    let after = new_keys(&runtime, &store, 64, &keys, for_span(plan.span));
    let left = runtime.block_on(still_there(&store, &clock));
    let disk_mib = disk_mib(folder.path());
    say(&format!(
        "expiry: {:.0}/s before, {rate:.0}/s during {removal_s:.2} s, {:.0}/s after; {left} left, \
         {disk_mib_before:.0} -> {disk_mib:.0} MiB",
        before.rate(),
        after.rate(),
    ));
    let rate_else = f64::midpoint(before.rate(), after.rate());
    Round { rate, rate_else, removal_s, left, disk_mib, disk_mib_before }
}

/// Requests a second while the store removes what has expired, and how long that took.
fn watch(store: &Embedded, keys: &AtomicU64) -> (f64, f64) {
    let wait = |is_reached: fn((u64, u64)) -> bool| {
        while !is_reached(store.removals()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        (Instant::now(), keys.load(Ordering::Relaxed))
    };
    let (begun, before) = wait(|(begun, _)| begun > 0);
    let (ended, after) = wait(|(_, ended)| ended > 0);
    let seconds = (ended - begun).as_secs_f64();
    (float(after - before) / seconds, seconds)
}

/// Expired records that are still on disk.
async fn still_there(store: &Embedded, clock: &ManualClock) -> u64 {
    let now = onetake_engine::Clock::now(clock);
    let (mut left, mut after): (u64, Option<Slot>) = (0, None);
    loop {
        let page = store.scan_slots(None, after.as_ref(), PAGE).await.expect("a page").value;
        left += page.items.iter().filter(|record| record.is_removable(now)).count() as u64;
        after = page.items.last().map(|record| record.address.slot().clone());
        if !page.more {
            return left;
        }
    }
}

/// What all files in `folder` take on the disk.
fn disk_mib(folder: &Path) -> f64 {
    use std::os::unix::fs::MetadataExt;
    let mut blocks = 0;
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => folders.push(entry.path()),
                // What the engine below removed in the meantime takes nothing.
                found => blocks += found.map_or(0, |found| found.blocks()),
            }
        }
    }
    float(blocks * 512) / f64::from(1 << 20)
}

pub(crate) fn cases(plan: &Plan) -> Vec<Case> {
    let rounds: Vec<_> = (0..plan.rounds).map(|_| round(plan)).collect();
    let all = |of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<_>>();
    let (mut rate, mut before) = (all(|r| r.rate), all(|r| r.rate_else));
    let name = format!("new keys, 64 tasks, while {} expired records go", plan.some);
    let while_going = Case::new(name, "/s", &mut rate, &mut before, Bar::Ratio(0.8));
    let (mut disk, mut disk_before) = (all(|r| r.disk_mib), all(|r| r.disk_mib_before));
    vec![
        while_going,
        Case::alone("expired records left", "", &mut all(|r| float(r.left)), Bar::AtMost(0.0)),
        Case::alone("removal of expired records", "s", &mut all(|r| r.removal_s), Bar::None),
        Case::new(
            "disk after the removal; beside before",
            "MiB",
            &mut disk,
            &mut disk_before,
            Bar::None,
        ),
    ]
}
