//! Every point at which the embedded store can be ended, in a short history, one after the other.
//!
//! A process plays the history and is ended at one point; then this one opens what is left, plays
//! it again and compares. Nothing here knows what the store does between two points: for that,
//! `killed.rs` ends processes at any moment.
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod common;
#[path = "crash_points/history.rs"]
mod history;
#[path = "crash_points/oracle.rs"]
mod oracle;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use onetake_stores::Embedded;

use self::common::part::{self, Part};
use self::history::Place;

/// The signal of a process that aborts.
const ABORTED: i32 = 6;

fn wait_for<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn a_process_that_is_asked_to_plays_its_part() {
    if let Some(folder) = part::asked() {
        wait_for(Place::at(Path::new(&folder)).play());
    }
}

/// Plays the history in a process of its own.
fn play(folder: &Path, variable: (&str, &OsStr)) -> ExitStatus {
    Part::start(folder.to_str().unwrap(), &[variable]).end().0
}

/// Every point with how often it is passed, in the order in which they are met.
fn points() -> Vec<(String, u32)> {
    let folder = common::scratch();
    let log = folder.path().join("points");
    let status = play(folder.path(), ("ONETAKE_CRASH_LOG", log.as_os_str()));
    assert!(status.success(), "the history does not end well without a crash: {status}");
    let mut passed = BTreeMap::new();
    let mut points = Vec::new();
    for name in std::fs::read_to_string(&log).unwrap().lines() {
        let times = passed.entry(name.to_owned()).or_insert(0);
        *times += 1;
        points.push((name.to_owned(), *times));
    }
    points
}

/// Ends the history at each of these points in turn, each in a folder of its own; gives what does
/// not hold.
fn crash_at_each(crashes: &[Vec<String>]) -> Vec<String> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(8) {
            scope.spawn(|| {
                while let Some(points) = crashes.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let crash = || crash(points);
                    let complaints = catch_unwind(AssertUnwindSafe(crash))
                        .unwrap_or_else(|_| vec!["a panic; see above".into()]);
                    let said = complaints.iter().map(|what| at(points, what));
                    found.lock().unwrap().extend(said);
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// Ends the history at each of these points, one after the other, on the same folder.
fn crash(points: &[String]) -> Vec<String> {
    let folder = common::scratch();
    for point in points {
        let status = play(folder.path(), ("ONETAKE_CRASH_AT", OsStr::new(point)));
        if status.signal() != Some(ABORTED) {
            return vec![format!("{point} was not met: {status}")];
        }
    }
    wait_for(oracle::complaints(&Place::at(folder.path())))
}

fn at(points: &[String], what: &str) -> String {
    let points = points.join(",");
    format!(
        "crash at {points}: {what}\n    alone: ONETAKE_CRASHES={points} \
         cargo test -p onetake-stores --test crash_points"
    )
}

/// The crashes to try: those that were asked for, or `all`.
fn chosen(all: impl FnOnce() -> Vec<Vec<String>>) -> Vec<Vec<String>> {
    let asked = std::env::var("ONETAKE_CRASHES").ok();
    asked.map_or_else(all, |points| vec![points.split(',').map(str::to_owned).collect()])
}

/// K12, W12, X3: what was answered before a crash is answered after it, byte for byte; what was not
/// happened at most once or is unknown; what is one commit is there whole or not at all.
#[test]
fn k12_w12_x3_no_point_at_which_the_process_can_end_breaks_a_promise() {
    let crashes = chosen(|| {
        let points = points();
        let name = |(name, times): &(String, u32)| vec![format!("{name}:{times}")];
        for expected in ["locked", "opened", "judged", "writing", "synced", "told", "closed"] {
            assert!(points.iter().any(|(name, _)| name == expected), "{expected} is never passed");
        }
        points.iter().map(name).collect()
    });
    println!("{} crashes", crashes.len());
    let found = crash_at_each(&crashes);
    assert!(found.is_empty(), "{} of {}:\n{}", found.len(), crashes.len(), found.join("\n"));
}

/// K12: the engine below cannot go on with files that it was ended while making; we can, for nobody
/// was told anything yet.
#[test]
fn k12_a_store_that_was_ended_while_it_was_made_is_made_anew() {
    let half_made: [&[&str]; 3] = [&[], &["data/0.jnl"], &["data/0.jnl", "data/version"]];
    for files in half_made {
        let folder = common::scratch();
        let store = folder.path().join("store");
        std::fs::create_dir_all(store.join("data/keyspaces")).unwrap();
        for file in files {
            std::fs::write(store.join(file), "").unwrap();
        }
        std::fs::write(store.join("onetake.lock"), "").unwrap();
        std::fs::write(store.join("MAKING"), "").unwrap();
        drop(Embedded::open_with(&store, common::options()).unwrap());
        drop(Embedded::open_with(&store, common::options()).unwrap());
    }
}

/// K12: a store whose files are gone does not begin anew as if nothing had ever been in it.
#[test]
fn k12_a_store_whose_files_are_gone_is_damaged_and_not_new() {
    let folder = common::scratch();
    drop(Embedded::open_with(folder.path(), common::options()).unwrap());
    std::fs::remove_dir_all(folder.path().join("data")).unwrap();
    let refused = Embedded::open_with(folder.path(), common::options()).unwrap_err();
    assert!(refused.to_string().contains("damaged: its files are gone"), "{refused}");
}

/// K12: opening is safe to interrupt too, also when it follows a crash.
#[test]
fn k12_a_crash_while_a_store_opens_after_a_crash_breaks_no_promise() {
    let crashes = chosen(|| {
        let points = points();
        let opening = points.iter().take_while(|(name, _)| name != "judged");
        let after = |first: &str, point: &(String, u32)| {
            vec![first.to_owned(), format!("{}:{}", point.0, point.1)]
        };
        let new = ["files-opened:1", "synced:3", "files-opened:2"];
        let all = opening.flat_map(|point| new.map(|first| after(first, point)));
        // Once it is made, a store is not made again.
        let is_met = |crash: &Vec<String>| {
            let is_of_making =
                ["tables-made", "log-made"].iter().any(|it| crash[1].starts_with(it));
            let is_closed = crash[1].starts_with("file-") && crash[0] != "files-opened:1";
            !is_of_making && !is_closed
        };
        all.filter(is_met).collect()
    });
    println!("{} crashes", crashes.len());
    let found = crash_at_each(&crashes);
    assert!(found.is_empty(), "{} of {}:\n{}", found.len(), crashes.len(), found.join("\n"));
}
