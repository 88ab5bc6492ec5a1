//! The embedded store on machines whose clocks are wrong, and on what a crash leaves behind.
//!
//! Here are the tests that need to say what a machine's clocks say. Everything that can be shown
//! from outside is shown in `tests/`.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use onetake_core::{Standing, Timestamp};
use onetake_engine::{ManualClock, Slots as _, Stamped, Swap};
use onetake_testkit::make::{BRIEF, LONG, Pen};
use onetake_testkit::wait_out;
use tempfile::TempDir;

use super::house;
use super::log::Space;
use super::recent::Known;
use super::time::{LastSeen, Machine, Reading};
use super::{Embedded, OnLoss, Options};

const DAY: u64 = 24 * 60 * 60 * 1_000;
const YEAR: u64 = 365 * DAY;
const T: u64 = 1_700_000_000_000;

fn options() -> Options {
    Options { on_loss: OnLoss::Refuse, reserve_bytes: 1 << 20, ..Options::default() }
}

/// A folder in memory where the system has such a place: no sync takes time there.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A machine whose clocks stand still.
fn machine(wall_ms: u64, up_ms: u64, start: &str) -> Machine {
    let reading = Reading { wall_ms, up_ms, machine: start.into() };
    Machine::that_says(move || reading.clone())
}

fn open(folder: &Path, machine: Machine) -> Embedded {
    Embedded::open_on(folder, options(), machine).unwrap()
}

async fn keep(store: &Embedded, pen: &Pen, id: u128, retention: Duration) {
    let done = store.swap(None, pen.done(id, id, retention)).await.unwrap();
    assert!(matches!(done.value, Swap::Won(_)));
}

/// What `pen`'s slot says now, in a word.
async fn says(store: &Embedded, pen: &Pen) -> (&'static str, Timestamp) {
    let Stamped { now, value } = store.read(pen.slot()).await.unwrap();
    let word = match value.as_ref().map(|record| record.standing(now)) {
        Some(Standing::Final { .. }) => "kept",
        Some(Standing::Free) | None => "free",
        Some(Standing::Live { .. } | Standing::Unknown { .. } | Standing::Retryable(_)) => "other",
    };
    (word, now)
}

/// What a crash at this moment would leave behind.
fn left_behind(store: &Path) -> TempDir {
    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            if from.is_dir() {
                copy(&from, &to);
            } else {
                // What goes meanwhile is not needed any more.
                match std::fs::copy(&from, &to) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    copied => drop(copied.unwrap()),
                }
            }
        }
    }
    let folder = scratch();
    copy(store, folder.path());
    folder
}

/// C8, D11: whatever the wall clock says when a store is opened, what is kept is still given and
/// what has expired does not come back, after a close and after a crash.
#[tokio::test]
async fn c8_d11_a_wall_clock_that_is_a_year_off_forgets_nothing_and_brings_nothing_back() {
    let (kept, gone) = (Pen::new("kept"), Pen::new("gone"));
    for (wall, start) in
        [(T + YEAR, "a"), (T - YEAR, "a"), (T + YEAR, "b"), (T - YEAR, "b"), (0, "b"), (T, "b")]
    {
        let folder = scratch();
        let store = open(folder.path(), machine(T, 5_000, "a"));
        keep(&store, &kept, 1, LONG).await;
        keep(&store, &gone, 2, BRIEF).await;
        wait_out(&store, BRIEF).await;
        assert_eq!(says(&store, &gone).await.0, "free");
        let last = says(&store, &kept).await.1;
        house::note_time(store.shared()).await.unwrap().unwrap();
        let crashed = left_behind(folder.path());
        drop(store);
        for folder in [folder.path(), crashed.path()] {
            for (wall, up, start) in [(wall, 9_000, start), (T, 10_000, "c")] {
                let shown = format!("{wall}, {start}, {}", folder.display());
                let store = open(folder, machine(wall, up, start));
                let ((word, now), (other, _)) =
                    (says(&store, &kept).await, says(&store, &gone).await);
                assert_eq!((word, other), ("kept", "free"), "{shown}");
                assert!(now >= last, "{shown}: from {last} back to {now}");
            }
        }
    }
}

/// D11: what has expired stays so after a restart of the machine, also when nothing was written for
/// longer than a wall clock is believed.
#[tokio::test]
async fn d11_a_store_that_only_answered_for_a_week_does_not_wake_up_in_the_past() {
    let (folder, clock, pen) = (scratch(), Arc::new(ManualClock::at(T)), Pen::new("k"));
    let given = Options { clock: Some(clock.clone()), ..options() };
    let store = Embedded::open_on(folder.path(), given, machine(T, 5_000, "a")).unwrap();
    keep(&store, &pen, 1, LONG).await;
    clock.advance(Duration::from_millis(8 * DAY));
    assert_eq!(says(&store, &pen).await.0, "free");
    let (begun, later) = (Instant::now(), Timestamp::from_millis(T + 8 * DAY));
    let noted = || {
        let recent = store.shared().disk.recent.still();
        let Known::Here(bytes) = recent.get(Space::Meta, b"clock") else { panic!("no time") };
        LastSeen::decode(bytes).unwrap().store
    };
    while noted() < later {
        assert!(begun.elapsed() < Duration::from_secs(60), "the time is never noted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let crashed = left_behind(folder.path());
    let store = open(crashed.path(), machine(T + 8 * DAY, 10, "b"));
    assert_eq!(says(&store, &pen).await.0, "free");
}

/// D11: a process that stands still while it notes the time does not make time go back.
#[tokio::test]
async fn d11_time_does_not_go_back_when_a_process_stood_still_while_noting_it() {
    let (folder, pen) = (scratch(), Pen::new("k"));
    let read = AtomicU32::new(0);
    let slow = Machine::that_says(move || {
        // The second reading is the note; it takes longer than opening what is left behind.
        if read.fetch_add(1, Ordering::SeqCst) == 1 {
            let (_hold, never) = mpsc::channel::<()>();
            let _ = never.recv_timeout(Duration::from_secs(1));
        }
        Reading::now()
    });
    let store = open(folder.path(), slow);
    let last = says(&store, &pen).await.1;
    let crashed = left_behind(folder.path());
    let store = open(crashed.path(), Machine::default());
    let now = says(&store, &pen).await.1;
    assert!(now >= last, "from {last} back to {now}");
}
