//! A million expired records leave the disk while the store serves.
//!
//! The clock stands still until all have been written, and then passes their end at once. The rate
//! is measured only while they are being removed, and compared with that of the same store just
//! before.

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
    rate_before: f64,
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
    let (is_going_on, removing) = (Arc::new(AtomicBool::new(true)), store.clone());
    let flag = Arc::clone(&is_going_on);
    let removal = std::thread::spawn(move || {
        let started = Instant::now();
        removing.remove_expired();
        flag.store(false, Ordering::Relaxed);
        started.elapsed().as_secs_f64()
    });
    let during = new_keys(&runtime, &store, 64, &keys, move || is_going_on.load(Ordering::Relaxed));
    let removal_s = removal.join().expect("no panic");
    let left = runtime.block_on(still_there(&store, &clock));
    let disk_mib = disk_mib(folder.path());
    say(&format!(
        "expiry: {:.0}/s before, {:.0}/s during {removal_s:.2} s; {left} left, \
         {disk_mib_before:.0} -> {disk_mib:.0} MiB",
        before.rate(),
        during.rate()
    ));
    let (rate, rate_before) = (during.rate(), before.rate());
    Round { rate, rate_before, removal_s, left, disk_mib, disk_mib_before }
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
    let rounds: Vec<_> = (0..3).map(|_| round(plan)).collect();
    let all = |of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<_>>();
    let (mut rate, mut before) = (all(|r| r.rate), all(|r| r.rate_before));
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
