//! What the embedded store must notice when files vanish, and what making room may never take.
//!
//! Each case is a way in which a store once forgot silently, or took from somebody who had room.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use common::{copy, options};
use onetake_core::Outcome;
use onetake_engine::{
    Bound, Check, Commit, Engine, Journal, ManualClock, OnFull, Slots, StoreError, Swap, Tx, Write,
};
use onetake_stores::seal::MasterKey;
use onetake_stores::{Bounds, Embedded, Options, upkeep};
use onetake_testkit::conformance::hear::{committed, there, won};
use onetake_testkit::make::{LONG, Pen, address, doc, tx};
use tempfile::TempDir;
use tokio::task::JoinSet;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn folder() -> (TempDir, PathBuf) {
    let folder = common::scratch();
    let path = folder.path().join("store");
    (folder, path)
}

fn of(tenant: &str, key: &str) -> Pen {
    Pen::of(address(tenant, key))
}

fn evicting(tenant_records_max: u64) -> Options {
    let bounds = Bounds { tenant_records_max, on_full: OnFull::Evict, ..Bounds::default() };
    Options { bounds, ..options() }
}

async fn fill(store: &Embedded, keys: std::ops::Range<u128>) {
    for n in keys {
        won(store, None, of("a", &format!("k{n}")).done(n + 1, n + 1, LONG)).await;
    }
}

/// Every file and folder below `path`.
fn all(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        found.push(path.clone());
        if path.is_dir() {
            all(&path, found);
        }
    }
}

/// Takes away what is at `path`, or all that is in it.
fn lose(path: &Path, only_content: bool) {
    match (path.is_dir(), only_content) {
        (true, content) => {
            fs::remove_dir_all(path).unwrap();
            if content {
                fs::create_dir(path).unwrap();
            }
        }
        (false, true) => fs::write(path, b"").unwrap(),
        (false, false) => fs::remove_file(path).unwrap(),
    }
}

/// C8: whatever vanishes below the folder of a store, nothing is forgotten without a word.
#[tokio::test(flavor = "multi_thread")]
async fn c8_whatever_vanishes_is_noticed_or_harmless() {
    let (_kept, path) = folder();
    let store = Embedded::open_with(&path, options()).unwrap();
    fill(&store, 0..20).await;
    committed(&store, tx(1_000).write(Write::Put(doc("d"), "v".into()))).await;
    store.compact().await;
    fill(&store, 20..30).await;
    drop(store);
    let mut files = Vec::new();
    all(&path, &mut files);
    let (mut refused, mut harmless) = (0, 0);
    for (file, only_content) in files.iter().flat_map(|file| [(file, false), (file, true)]) {
        let name = file.strip_prefix(&path).unwrap();
        let (_copy, to) = folder();
        copy(&path, &to);
        lose(&to.join(name), only_content);
        let Ok(store) = Embedded::open_with(&to, options()) else {
            refused += 1;
            continue;
        };
        for n in 0..30 {
            let read = store.read(of("a", &format!("k{n}")).slot()).await;
            let is_said = read.map_or(true, |reply| reply.value.is_some());
            assert!(is_said, "{} lost, only content: {only_content}", name.display());
        }
        let docs = store.scan(doc("").space, b"", None, 10).await;
        assert!(docs.is_err() || !docs.unwrap().value.items.is_empty(), "{}", name.display());
        harmless += 1;
    }
    assert!(refused > 20 && harmless > 0, "{refused} refused, {harmless} harmless");
}

/// C8: looking at a store that lost a small file finds that, and destroys nothing more.
#[tokio::test(flavor = "multi_thread")]
async fn c8_a_check_of_a_store_that_lost_a_file_leaves_the_rest_alone() {
    let (_kept, path) = folder();
    let store = Embedded::open_with(&path, options()).unwrap();
    fill(&store, 0..20).await;
    store.compact().await;
    drop(store);
    fs::remove_file(path.join("data/keyspaces/1/current")).unwrap();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    all(&path.join("data/keyspaces"), &mut before);
    assert!(!upkeep::check(&path, &options()).unwrap().is_whole());
    all(&path.join("data/keyspaces"), &mut after);
    assert_eq!(before, after);
}

/// X11: a sealed store that lost what it knows of itself is not sealed anew.
#[tokio::test(flavor = "multi_thread")]
async fn x11_a_sealed_store_that_lost_its_keys_is_damaged_and_not_new() {
    let (_kept, path) = folder();
    let keys = vec![MasterKey::new([1; 32])];
    let with = || Embedded::open_with(&path, Options { keys: keys.clone(), ..options() });
    fill(&with().unwrap(), 0..3).await;
    fs::remove_file(path.join("data/keyspaces/5/current")).unwrap();
    assert!(with().unwrap_err().to_string().contains("damaged"));
}

/// C8: a sign of an unfinished making, left behind by a crash, never makes a store look unfinished.
#[tokio::test(flavor = "multi_thread")]
async fn c8_a_finished_store_is_never_taken_for_an_unfinished_one() {
    let (_kept, path) = folder();
    drop(Embedded::open_with(&path, options()).unwrap());
    fs::write(path.join("MAKING"), b"").unwrap();
    fill(&Embedded::open_with(&path, options()).unwrap(), 0..3).await;
    fs::remove_file(path.join("FORMAT")).unwrap();
    assert!(Embedded::open_with(&path, options()).is_err());
    fs::write(path.join("FORMAT"), b"2\n").unwrap();
    let store = Embedded::open_with(&path, options()).unwrap();
    assert!(there(&store, of("a", "k0").slot()).await.is_some());
}

/// X11: two who change the key at once leave one key that opens everything.
#[tokio::test(flavor = "multi_thread")]
async fn x11_two_rotations_at_once_lose_no_key() {
    let (_kept, path) = folder();
    let keys = vec![MasterKey::new([1; 32])];
    let with = || Embedded::open_with(&path, Options { keys: keys.clone(), ..options() }).unwrap();
    let store = with();
    let (mut a, b) = (Box::pin(store.rotate(&keys[0])), store.rotate(&keys[0]));
    // Both stand in line, one first; the other is told first, as two threads may well be. A writer
    // that is quick may have told the first one already.
    let first = std::future::poll_fn(|cx| Poll::Ready(a.as_mut().poll(cx))).await;
    b.await.unwrap();
    match first {
        Poll::Ready(told) => {
            told.unwrap();
            drop(a);
        }
        Poll::Pending => a.await.unwrap(),
    }
    fill(&store, 0..3).await;
    drop(store);
    let store = with();
    assert!(there(&store, of("a", "k2").slot()).await.is_some());
    assert!(store.verify().await.is_whole());
}

/// X3: a claim that lived until the process died is unknown since then, not since its first lease.
#[tokio::test(flavor = "multi_thread")]
async fn x3_a_long_claim_is_unknown_since_its_process_died() {
    let (_kept, path) = folder();
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let with =
        || Embedded::open_with(&path, Options { clock: Some(clock.clone()), ..options() }).unwrap();
    let (store, pen) = (with(), Pen::new("k"));
    let mut claim = won(&store, None, pen.claim(1, LONG)).await;
    for _ in 0..31 {
        let renewed = store.renew(pen.slot(), claim.version, DAY * 2).await.unwrap().value;
        let Swap::Won(there) = renewed else { panic!("{renewed:?}") };
        claim = there;
        clock.advance(DAY);
    }
    drop(store);
    drop(with());
    clock.advance(DAY);
    let engine = Engine::new(with());
    assert_eq!(engine.end_forgotten_unknowns().await, Ok(0), "it lived a day ago");
    clock.advance(DAY * 30);
    assert_eq!(engine.end_forgotten_unknowns().await, Ok(1), "and ends in its time");
}

/// W6: a disk that is nearly full forgets nothing to make room that it cannot make.
#[tokio::test(flavor = "multi_thread")]
async fn w6_a_nearly_full_disk_evicts_nothing() {
    let (_kept, path) = folder();
    let store = Embedded::open_with(&path, evicting(1_000)).unwrap();
    fill(&store, 0..8).await;
    let reserve_bytes = store.stats().free_bytes.unwrap() * 2;
    drop(store);
    let store = Embedded::open_with(&path, Options { reserve_bytes, ..evicting(1_000) }).unwrap();
    let refused = store.swap(None, of("a", "new").claim(100, LONG)).await.unwrap_err();
    assert_eq!(refused, StoreError::Full(Bound::Disk));
    for n in 0..8 {
        assert!(there(&store, of("a", &format!("k{n}")).slot()).await.is_some());
    }
}

/// W6: what has expired takes nobody's place, so removing it would make no room.
#[tokio::test(flavor = "multi_thread")]
async fn w6_eviction_is_not_wasted_on_what_has_expired() {
    let (_kept, path) = folder();
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let options = Options { clock: Some(clock.clone()), ..evicting(4) };
    let store = Embedded::open_with(&path, options).unwrap();
    for id in 1..=4 {
        let old = of("a", &format!("old{id}"));
        won(&store, None, old.done(id, id, Duration::from_secs(10))).await;
    }
    clock.advance(Duration::from_secs(60));
    fill(&store, 10..14).await;
    won(&store, None, of("a", "new").claim(1_000, LONG)).await;
}

/// W6, W10: a transaction makes room for the tenants whose records it writes, and for no other.
#[tokio::test(flavor = "multi_thread")]
async fn w6_w10_a_transaction_evicts_nothing_of_a_tenant_that_it_only_looks_at() {
    let (_kept, path) = folder();
    let store = Embedded::open_with(&path, evicting(2)).unwrap();
    fill(&store, 0..2).await;
    won(&store, None, of("b", "1").done(3, 3, LONG)).await;
    let tx = Tx::on_slot(None, of("a", "3").claim(4, LONG))
        .check(Check::Slot(of("b", "absent").slot().clone(), None));
    assert!(matches!(store.commit(tx).await.unwrap().value, Commit::Committed { .. }));
    assert!(there(&store, of("b", "1").slot()).await.is_some(), "it had room");
}

/// W6: many who need room at once all get it.
#[tokio::test(flavor = "multi_thread")]
async fn w6_rivals_for_room_are_all_served() {
    let (_kept, path) = folder();
    let store = Embedded::open_with(&path, evicting(1_000)).unwrap();
    let mut tasks = JoinSet::new();
    for n in 0..1_016_u128 {
        let store = store.clone();
        tasks.spawn(async move {
            won(&store, None, of("a", &format!("k{n}")).done(n + 1, n + 1, LONG)).await;
        });
    }
    assert_eq!(tasks.join_all().await.len(), 1_016);
    assert!(store.stats().records <= 1_000);
}

/// K8, X10: however many were removed a moment ago, a list comes to its end, and to what is left.
#[tokio::test(flavor = "multi_thread")]
async fn k8_x10_a_list_passes_over_whatever_was_removed() {
    let (_kept, path) = folder();
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    // So large a log that nothing comes into the tables meanwhile.
    let options = Options { clock: Some(clock.clone()), log_bytes: 32 << 20, ..options() };
    let store = Embedded::open_with(&path, options).unwrap();
    let mut tasks = JoinSet::new();
    for n in 0..4_000_u128 {
        let store = store.clone();
        tasks.spawn(async move {
            let pen = of("a", &format!("k{n}"));
            won(&store, None, pen.done(n + 1, n + 1, Duration::from_secs(10))).await;
        });
    }
    tasks.join_all().await;
    won(&store, None, of("a", "left").done(9_000, 9_000, LONG)).await;
    clock.advance(Duration::from_secs(60));
    for _ in 0..100 {
        if store.sweep(100).await.unwrap().value.done {
            break;
        }
    }
    let (mut after, mut found, mut pages) = (None, Vec::new(), 0);
    loop {
        let page = store.scan_slots(None, after.as_ref(), 10).await.unwrap().value;
        assert!(!page.items.is_empty() || !page.more, "an empty page leads nowhere");
        found.extend(page.items.iter().map(|record| record.address.key().as_str().to_owned()));
        after = page.items.last().map(|record| record.address.slot().clone());
        pages += 1;
        if !page.more {
            break;
        }
    }
    assert!(pages < 10, "{pages} pages");
    assert_eq!(found, ["left"]);
}

/// A page leads on past however many were removed, wherever they lie by then: in memory, in
/// the log, in tables, or on their way.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_leads_on_past_thousands_that_were_removed() {
    for log_bytes in [16 << 10, 8 << 20] {
        let (_kept, path) = folder();
        let options = Options { log_bytes, ..options() };
        let store = Embedded::open_with(&path, options.clone()).unwrap();
        let name = |n: u32| doc(format!("n{n:05}"));
        for step in 0..10 {
            let puts = (step * 300..(step + 1) * 300).map(|n| Write::Put(name(n), "v".into()));
            committed(&store, puts.fold(tx(u128::from(step) + 1), Tx::write)).await;
        }
        for step in 0..9 {
            let gone = (step * 300..(step + 1) * 300).map(|n| Write::Delete(name(n)));
            committed(&store, gone.fold(tx(u128::from(step) + 100), Tx::write)).await;
        }
        let check = async |store: &Embedded| {
            let page = store.scan(name(0).space, b"n", None, 2).await.unwrap().value;
            let names: Vec<_> = page.items.iter().map(|(doc, _)| doc.key.clone()).collect();
            assert_eq!((names, page.more), (vec![name(2_700).key, name(2_701).key], true));
            let page = store.scan(name(0).space, b"n", Some(b"n02998"), 9).await.unwrap().value;
            assert_eq!((page.items.len(), page.more), (1, false));
        };
        check(&store).await;
        check(&store).await;
        drop(store);
        check(&Embedded::open_with(&path, options).unwrap()).await;
    }
}

/// C8: what a compaction removed gives its room on the disk back, also when nobody writes any more.
#[tokio::test(flavor = "multi_thread")]
async fn c8_a_compaction_gives_room_on_the_disk_back() {
    let (_kept, path) = folder();
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let options = Options { clock: Some(clock.clone()), log_bytes: 1 << 20, ..options() };
    let store = Embedded::open_with(&path, options).unwrap();
    // Bytes that cannot be made smaller.
    let mut last = 1_u64;
    let mut random = || {
        last = last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        last.to_be_bytes()[0]
    };
    for n in 0..1_000_u128 {
        let value = Outcome::Value((0..2_000).map(|_| random()).collect());
        let pen = of("a", &format!("k{n}"));
        won(&store, None, pen.done_with(n + 1, n + 1, Duration::from_secs(10), value.clone()))
            .await;
    }
    store.compact().await;
    let tables = || {
        let mut files = Vec::new();
        all(&path.join("data"), &mut files);
        let tables = files.iter().filter(|file| file.extension().is_none());
        tables.filter_map(|file| Some(fs::metadata(file).ok()?.len())).sum::<u64>()
    };
    assert!(tables() > 2_000_000, "{} bytes", tables());
    clock.advance(Duration::from_secs(60));
    store.compact().await;
    let begun = std::time::Instant::now();
    while tables() > 500_000 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} bytes are still there", tables());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
