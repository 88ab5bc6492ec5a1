//! What the embedded store promises beyond the suite that every store passes: it is there again
//! after a restart, it says what is in the way, it stays within its bounds, it forgets what has
//! expired and nothing else, and what lies on the disk is sealed where that was asked for.

#![allow(clippy::unwrap_used, reason = "a test says so by failing")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{copy, options};
use onetake_core::{Ask, Asked, Outcome, Policy, Record, Standing};
use onetake_engine::{
    Answer, Bound, Effects, Engine, Found, Journal, ManualClock, OnFull, Place, Position, Slots,
    StoreError, Swap, Write,
};
use onetake_stores::seal::MasterKey;
use onetake_stores::{Bounds, Embedded, FrontLimits, OpenError, Options, QueueLimits, upkeep};
use onetake_testkit::conformance::hear::{committed, found, there, won};
use onetake_testkit::make::{BRIEF, LONG, Pen, address, counter, cursor, doc, lane, tx, version};
use tempfile::TempDir;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    (folder, path)
}

/// With a log that nothing leaves while its files are copied.
fn open(path: &Path) -> Embedded {
    Embedded::open_with(path, Options { log_bytes: 1 << 20, ..options() }).unwrap()
}

/// Copies the files of a store that is open, as a crash of the machine right now would leave them.
fn crashed(path: &Path) -> (TempDir, PathBuf) {
    let (kept, to) = folder();
    copy(path, &to);
    (kept, to)
}

async fn lost(store: &Embedded, pen: &Pen, id: u128) -> Option<Arc<Record>> {
    match store.swap(None, pen.claim(id, LONG)).await.unwrap().value {
        Swap::Lost(there) => there,
        other @ (Swap::Won(_) | Swap::Unknown) => panic!("{other:?}"),
    }
}

/// K12, W3, W12: without anything to configure, what was answered is there again, byte for byte.
#[tokio::test(flavor = "multi_thread")]
async fn k12_w3_w12_everything_is_there_again_after_a_restart_and_after_a_crash() {
    let (_kept, path) = folder();
    let store = open(&path);
    let pen = Pen::new("done");
    let body: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let kept = won(&store, None, pen.done_with(1, 1, LONG, Outcome::Value(body.into()))).await;
    let many = tx(2)
        .write(Write::Put(doc("d"), Bytes::from_static(b"value")))
        .write(Write::Append(lane("l"), "one".into()))
        .write(Write::Append(lane("l"), "two".into()))
        .write(Write::Add(counter("c"), -7))
        .write(Write::Advance(cursor("u"), Position(u64::MAX)));
    committed(&store, many).await;
    let (_crash, after_crash) = crashed(&path);
    drop(store);
    for path in [path, after_crash] {
        let store = open(&path);
        assert_eq!(there(&store, pen.slot()).await.as_ref(), Some(&kept));
        assert_eq!(lost(&store, &pen, 9).await.as_ref(), Some(&kept), "so a retry is answered");
        let Found::Doc(Some(document)) = found(&store, Place::Doc(doc("d"))).await else {
            panic!("the document is gone")
        };
        assert_eq!((document.version, &*document.value), (version(2), b"value".as_slice()));
        assert_eq!(found(&store, Place::Counter(counter("c"))).await, Found::Counter(-7));
        let furthest = Found::Cursor(Position(u64::MAX));
        assert_eq!(found(&store, Place::Cursor(cursor("u"))).await, furthest);
        let entries = store.read_lane(&lane("l"), Position(0), 10).await.unwrap().value.items;
        let values: Vec<_> =
            entries.iter().map(|entry| (entry.position.0, &*entry.value)).collect();
        assert_eq!(values, [(1, b"one".as_slice()), (2, b"two")]);
        committed(&store, tx(3).write(Write::Append(lane("l"), "three".into()))).await;
        let last = store.read_lane(&lane("l"), Position(2), 10).await.unwrap().value.items;
        assert_eq!(last[0].position, Position(3), "positions go on");
    }
}

/// X1, X3: nobody of an earlier process is alive, so its claims are unknown at once; and the same
/// fence may still settle what nobody took over.
#[tokio::test(flavor = "multi_thread")]
async fn x1_x3_claims_of_an_earlier_process_have_lapsed_when_the_store_is_opened() {
    let (_kept, path) = folder();
    let (held, renewed) = (Pen::new("held"), Pen::new("renewed"));
    let store = open(&path);
    won(&store, None, held.claim(1, LONG * 1_000)).await;
    won(&store, None, renewed.claim(2, LONG)).await;
    let reply = store.renew(renewed.slot(), version(2), LONG * 1_000).await.unwrap();
    assert!(matches!(reply.value, Swap::Won(_)));
    drop(store);
    let store = open(&path);
    for pen in [&held, &renewed] {
        let read = store.read(pen.slot()).await.unwrap();
        let claim = read.value.expect("a claim is never forgotten");
        assert!(matches!(claim.standing(read.now), Standing::Unknown { .. }), "{claim:?}");
    }
    let claim = there(&store, held.slot()).await.unwrap();
    won(&store, Some(claim.version), held.done(3, 1, LONG)).await;
    let late = store.swap(Some(version(1)), held.released(4, 1, LONG)).await.unwrap().value;
    assert!(matches!(late, Swap::Lost(Some(_))), "and once settled it stays so");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_opening_is_refused_and_names_the_first() {
    let (_kept, path) = folder();
    let store = open(&path);
    let refused = Embedded::open_with(&path, options()).unwrap_err();
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    let said = refused.to_string();
    assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
    let second = store.clone();
    drop(store);
    assert!(Embedded::open_with(&path, options()).is_err(), "the last handle closes it");
    drop(second);
    open(&path);
}

#[test]
fn what_is_no_store_or_a_newer_one_is_left_alone() {
    let (kept, path) = folder();
    fs::write(kept.path().join("letter"), "dear").unwrap();
    let refused = Embedded::open(kept.path()).unwrap_err();
    assert!(matches!(refused, OpenError::NotAStore { .. }), "{refused}");
    drop(open(&path));
    for other in ["1", "3"] {
        fs::write(path.join("FORMAT"), format!("{other}\n")).unwrap();
        let refused = Embedded::open(&path).unwrap_err();
        assert!(refused.to_string().contains(&format!("has format {other}")), "{refused}");
    }
    fs::remove_file(path.join("FORMAT")).unwrap();
    let refused = Embedded::open(&path).unwrap_err();
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_is_refused_with_the_reason() {
    use std::os::unix::fs::PermissionsExt;
    let kept = tempfile::tempdir().unwrap();
    let file = kept.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = Embedded::open(file.join("store")).unwrap_err();
    assert!(matches!(refused, OpenError::Io { doing: "created", .. }), "{refused}");
    let (_kept, path) = folder();
    drop(open(&path));
    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700, "and what is written is for its owner alone");
}

fn bounded(tenant: u64, all: u64, on_full: OnFull) -> Options {
    let bounds =
        Bounds { tenant_records_max: tenant, records_max: all, on_full, ..Bounds::default() };
    Options { bounds, ..options() }
}

fn of(tenant: &str, key: &str) -> Pen {
    Pen::of(address(tenant, key))
}

/// W6: per tenant and in all; and what is held may always be settled.
#[tokio::test(flavor = "multi_thread")]
async fn w6_a_full_store_refuses_new_keys_and_settles_held_ones() {
    let (_kept, path) = folder();
    let store = Embedded::open_with(&path, bounded(2, 3, OnFull::Refuse)).unwrap();
    won(&store, None, of("a", "1").claim(1, LONG)).await;
    won(&store, None, of("a", "2").claim(2, LONG)).await;
    let full = store.swap(None, of("a", "3").claim(3, LONG)).await.unwrap_err();
    assert_eq!(full, StoreError::Full(Bound::Tenant));
    won(&store, None, of("b", "1").claim(4, LONG)).await;
    let full = store.swap(None, of("b", "2").claim(5, LONG)).await.unwrap_err();
    assert_eq!(full, StoreError::Full(Bound::Total));
    won(&store, Some(version(1)), of("a", "1").done(6, 1, LONG)).await;
    drop(store);
    // The count is there again after a restart, in order or not.
    let store = Embedded::open_with(&path, bounded(2, 3, OnFull::Refuse)).unwrap();
    assert!(store.stats().counted, "a store that was closed in order need not count");
    let full = store.swap(None, of("a", "3").claim(7, LONG)).await.unwrap_err();
    assert_eq!(full, StoreError::Full(Bound::Tenant));
    let (_crash, path) = crashed(&path);
    let store = Embedded::open_with(&path, bounded(2, 3, OnFull::Refuse)).unwrap();
    while !store.stats().counted {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.stats().records, 3);
    let full = store.swap(None, of("b", "3").claim(8, LONG)).await.unwrap_err();
    assert_eq!(full, StoreError::Full(Bound::Total));
}

/// W6: the tenant's own oldest finished records go, never another's, never a live or unknown one.
#[tokio::test(flavor = "multi_thread")]
async fn w6_eviction_takes_the_oldest_finished_of_the_same_tenant_only() {
    let (_kept, path) = folder();
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let options = Options { clock: Some(clock.clone()), ..bounded(4, 100, OnFull::Evict) };
    let store = Embedded::open_with(&path, options).unwrap();
    let pens = ["old", "young", "live", "unknown"].map(|key| of("a", key));
    won(&store, None, pens[2].claim(1, LONG)).await;
    won(&store, None, pens[3].unknown(2, 2)).await;
    won(&store, None, of("b", "older").done(3, 3, LONG)).await;
    clock.advance(BRIEF);
    won(&store, None, pens[0].done(4, 4, LONG)).await;
    clock.advance(BRIEF);
    won(&store, None, pens[1].done(5, 5, LONG)).await;
    won(&store, None, of("a", "new").claim(6, LONG)).await;
    let stays = [false, true, true, true];
    for (pen, stays) in pens.iter().zip(stays) {
        assert_eq!(there(&store, pen.slot()).await.is_some(), stays, "{:?}", pen.address());
    }
    assert!(there(&store, of("b", "older").slot()).await.is_some(), "another tenant's stays");
    won(&store, None, of("a", "newer").claim(7, LONG)).await;
    let full = store.swap(None, of("a", "newest").claim(8, LONG)).await.unwrap_err();
    assert_eq!(full, StoreError::Full(Bound::Tenant), "nothing that may go is left");
}

/// D11, W6: what has expired does not exist, so it takes nobody's place.
#[tokio::test(flavor = "multi_thread")]
async fn d11_w6_expired_records_refuse_nobody_although_they_still_lie_there() {
    let (_kept, path) = folder();
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let options = Options { clock: Some(clock.clone()), ..bounded(1, 10, OnFull::Refuse) };
    let store = Embedded::open_with(&path, options).unwrap();
    won(&store, None, of("a", "1").done(1, 1, BRIEF)).await;
    assert!(store.swap(None, of("a", "2").claim(2, LONG)).await.is_err());
    clock.advance(Duration::from_secs(5));
    won(&store, None, of("a", "2").claim(3, LONG)).await;
    assert!(there(&store, of("a", "1").slot()).await.is_some(), "nobody has swept it");
}

/// C8, K7, D11: a compaction removes expired done and released records, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn c8_k7_d11_a_compaction_removes_what_has_expired_and_nothing_else() {
    let (_kept, path) = folder();
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let options = Options { clock: Some(clock.clone()), ..options() };
    let store = Embedded::open_with(&path, options.clone()).unwrap();
    let (done, free) = (Pen::new("done"), Pen::new("free"));
    won(&store, None, done.done(1, 1, BRIEF)).await;
    won(&store, None, free.released(2, 2, BRIEF)).await;
    let stay = ["live", "lapsed", "unknown", "kept"].map(Pen::new);
    let records = [
        won(&store, None, stay[0].claim(3, LONG * 100)).await,
        won(&store, None, stay[1].claim(4, BRIEF)).await,
        won(&store, None, stay[2].unknown(5, 5)).await,
        won(&store, None, stay[3].done(6, 6, LONG * 100)).await,
    ];
    store.compact().await;
    assert_eq!(store.stats().expired, 0, "nothing has expired yet");
    clock.advance(LONG);
    store.compact().await;
    assert_eq!(store.stats().expired, 2);
    drop(store);
    let store = Embedded::open_with(&path, options).unwrap();
    assert_eq!(there(&store, done.slot()).await, None);
    assert_eq!(there(&store, free.slot()).await, None);
    for (pen, record) in stay.iter().zip(records) {
        let there = there(&store, pen.slot()).await.expect("it must stay");
        assert_eq!(there.version, record.version);
    }
}

/// C8: what a compaction removes leaves a tombstone, so that no older version comes back.
#[tokio::test(flavor = "multi_thread")]
async fn c8_an_older_version_never_comes_back_to_light() {
    let (_kept, path) = folder();
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    // Nothing is answered from memory, so that every read shows what lies on the disk.
    let front = FrontLimits { keep: Duration::ZERO, ..FrontLimits::default() };
    let options = Options { clock: Some(clock.clone()), front, ..options() };
    let store = Embedded::open_with(&path, options.clone()).unwrap();
    let pen = Pen::new("k");
    won(&store, None, pen.done(1, 1, LONG * 1_000)).await;
    store.compact().await;
    won(&store, Some(version(1)), pen.done(2, 2, BRIEF)).await;
    clock.advance(LONG);
    store.compact().await;
    assert_eq!((there(&store, pen.slot()).await, store.stats().expired), (None, 1));
    drop(store);
    // The journal may bring back what a compaction removed, but only the newest, which has expired.
    let store = Embedded::open_with(&path, options).unwrap();
    let read = store.read(pen.slot()).await.unwrap();
    assert!(read.value.is_none_or(|record| record.is_removable(read.now)), "never the older one");
}

/// K3: bounded, and never another answer than the disk would give.
#[tokio::test(flavor = "multi_thread")]
async fn k3_hot_replays_come_from_memory_and_cold_ones_say_the_same() {
    let (_kept, path) = folder();
    let front = FrontLimits { records_max: 64, ..FrontLimits::default() };
    let store = Embedded::open_with(&path, Options { front, ..options() }).unwrap();
    let pens: Vec<_> = (0..500).map(|n| Pen::new(&format!("k{n}"))).collect();
    let mut kept = Vec::new();
    for (id, pen) in (1..).zip(&pens) {
        kept.push(won(&store, None, pen.done(id, id, LONG)).await);
    }
    assert!(store.stats().in_memory <= 128, "{} in memory", store.stats().in_memory);
    for (pen, record) in pens.iter().zip(&kept) {
        assert_eq!(lost(&store, pen, 10_000).await.as_ref(), Some(record));
    }
    let (pen, loads) = (&pens[499], store.stats().loads);
    for _ in 0..100 {
        assert_eq!(lost(&store, pen, 10_000).await.as_ref(), Some(&kept[499]));
    }
    assert_eq!(store.stats().loads, loads, "a hot replay asks no disk");
    assert_eq!(store.stats().batches, 500, "and no replay writes");
}

/// K3, X8: what a transaction committed and what has left memory since is replayed from there again
/// once a retry has asked for it.
#[tokio::test(flavor = "multi_thread")]
async fn k3_x8_a_replayed_transaction_comes_back_into_memory() {
    let (_kept, path) = folder();
    let front = FrontLimits { records_max: 64, ..FrontLimits::default() };
    let store = Embedded::open_with(&path, Options { front, ..options() }).unwrap();
    let engine = Engine::new(store.clone());
    let ask = |n: usize| Ask {
        address: address("acme", &format!("t{n}")),
        asked: Asked::raw("the same"),
        policy: Arc::new(Policy::default()),
    };
    let effects = |_: &_| Ok(Effects::new(Outcome::Value("made".into())));
    for n in 0..500 {
        engine.transact(ask(n), effects).await.unwrap();
    }
    let first = ask(0);
    assert!(store.at_hand(first.address.slot()).is_none(), "it has left");
    let again = engine.transact(ask(0), effects).await.unwrap();
    assert!(matches!(again, Answer::Replayed { .. }), "{again:?}");
    assert!(store.at_hand(first.address.slot()).is_some(), "and is back");
}

/// X10: a copy is of one moment, while the store goes on, and is a store of its own.
#[tokio::test(flavor = "multi_thread")]
async fn x10_a_backup_is_taken_while_the_store_goes_on() {
    let (_kept, path) = folder();
    let store = open(&path);
    for id in 1..=200 {
        won(&store, None, Pen::new(&format!("k{id}")).done(id, id, LONG)).await;
    }
    committed(&store, tx(1_000).write(Write::Append(lane("l"), "one".into()))).await;
    let (_copy, to) = folder();
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            for id in 2_000..2_100 {
                won(&store, None, Pen::new(&format!("k{id}")).done(id, id, LONG)).await;
            }
        }
    });
    let copied = store.backup(&to).await.unwrap();
    writing.await.unwrap();
    assert!(copied.values >= 201, "{copied:?}");
    assert!(store.backup(&to).await.is_err(), "nothing is written over");
    let (checked, copy) = (upkeep::check(&to, &options()).unwrap(), open(&to));
    assert!(checked.is_whole(), "{checked:?}");
    for id in 1..=200_u128 {
        let record = there(&copy, Pen::new(&format!("k{id}")).slot()).await;
        assert_eq!(record.map(|record| record.version), Some(version(id)));
    }
    let (_half, half) = crashed(&to);
    fs::remove_file(half.join("FORMAT")).unwrap();
    assert!(Embedded::open(&half).is_err(), "an unfinished copy is no store");
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn contains(path: &Path, secret: &[u8]) -> bool {
    files(path).iter().any(|file| {
        let bytes = fs::read(file).unwrap();
        bytes.windows(secret.len()).any(|window| window == secret)
    })
}

/// X11: neither key nor body lies readable on the disk, and the seal opens with its key only.
#[tokio::test(flavor = "multi_thread")]
async fn x11_a_sealed_store_shows_neither_keys_nor_bodies() {
    let secrets: [&[u8]; 2] = [b"very-secret-key", b"very secret body"];
    let written = async |path: &Path, keys: Vec<MasterKey>| {
        let store = Embedded::open_with(path, Options { keys, ..options() }).unwrap();
        let pen = Pen::new("very-secret-key");
        let outcome = Outcome::Value(Bytes::from_static(b"very secret body"));
        won(&store, None, pen.done_with(1, 1, LONG, outcome)).await;
        committed(&store, tx(2).write(Write::Put(doc("d"), "very secret body".into()))).await;
        store.compact().await;
        store
    };
    let (_kept, plain) = folder();
    drop(written(&plain, Vec::new()).await);
    assert!(secrets.iter().all(|secret| contains(&plain, secret)), "the search finds them");
    let (_kept, path) = folder();
    let store = written(&path, vec![MasterKey::new([1; 32])]).await;
    store.rotate(&MasterKey::new([2; 32])).await.unwrap();
    let after = Pen::new("after-the-rotation");
    won(&store, None, after.done(3, 3, LONG)).await;
    drop(store);
    assert!(!secrets.iter().any(|secret| contains(&path, secret)), "sealed");
    let with = |keys| Embedded::open_with(&path, Options { keys, ..options() });
    let refused = with(Vec::new()).unwrap_err();
    assert!(matches!(refused, OpenError::NoKey { .. }), "{refused}");
    let refused = with(vec![MasterKey::new([1; 32])]).unwrap_err();
    assert!(matches!(refused, OpenError::Sealed { .. }), "{refused}");
    let store = with(vec![MasterKey::new([3; 32]), MasterKey::new([2; 32])]).unwrap();
    assert!(there(&store, Pen::new("very-secret-key").slot()).await.is_some(), "before it");
    assert!(there(&store, after.slot()).await.is_some(), "and after it");
    assert!(store.verify().await.is_whole());
    drop(store);
    let store = with(vec![MasterKey::new([3; 32])]).unwrap();
    assert!(there(&store, after.slot()).await.is_some(), "the newer key was taken over");
    drop(store);
    let refused =
        Embedded::open_with(&plain, Options { keys: vec![MasterKey::new([1; 32])], ..options() });
    assert!(matches!(refused, Err(OpenError::NotSealed { .. })));
}

/// W6: work that nobody could do soon is refused before it piles up, and leaves nothing behind.
#[tokio::test(flavor = "multi_thread")]
async fn w6_a_full_line_of_work_is_refused_at_once() {
    let (_kept, path) = folder();
    let queue = QueueLimits { ops_max: 0, bytes_max: 0 };
    let store = Embedded::open_with(&path, Options { queue, ..options() }).unwrap();
    let pen = Pen::new("k");
    for _ in 0..3 {
        let refused = store.swap(None, pen.claim(1, LONG)).await.unwrap_err();
        assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
    }
    assert_eq!(there(&store, pen.slot()).await, None);
    assert_eq!(store.stats().in_memory, 0, "nothing stays pinned");
}

/// W6: near the end of the disk new keys are refused, held ones are settled, and it ends by itself.
#[tokio::test(flavor = "multi_thread")]
async fn w6_a_disk_that_fills_up_refuses_new_keys_and_settles_held_ones() {
    let (_kept, path) = folder();
    let store = open(&path);
    let pen = Pen::new("held");
    won(&store, None, pen.claim(1, LONG)).await;
    let free = store.stats().free_bytes.expect("this system tells");
    drop(store);
    // Eviction would be of no use here: what is evicted leaves the disk much later.
    let bounds = Bounds { on_full: OnFull::Evict, ..Bounds::default() };
    let with =
        |reserve_bytes| Embedded::open_with(&path, Options { reserve_bytes, bounds, ..options() });
    let store = with(free * 2).unwrap();
    let full = store.swap(None, Pen::new("new").claim(2, LONG)).await.unwrap_err();
    assert_eq!(full, StoreError::Full(Bound::Disk));
    won(&store, Some(version(1)), pen.done(3, 1, LONG)).await;
    drop(store);
    let store = with(free * 100).unwrap();
    let refused = store.swap(Some(version(3)), pen.done(4, 1, LONG)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
    assert!(there(&store, pen.slot()).await.is_some(), "and what is there is still answered");
    drop(store);
    won(&with(1 << 20).unwrap(), None, Pen::new("new").claim(5, LONG)).await;
}

/// Timers are put and deleted for ever; a scan finds the first that is due without walking over all
/// that ever were.
#[tokio::test(flavor = "multi_thread")]
async fn timers_that_were_deleted_hide_none_that_is_put_later() {
    let (_kept, path) = folder();
    let store = open(&path);
    let timer = |n: u32| doc(format!("t/{n:06}"));
    let first = async || {
        let page = store.scan(doc("").space, b"t/", None, 1).await.unwrap().value;
        page.items.first().map(|(doc, _)| doc.key.clone())
    };
    for n in 10..20 {
        committed(&store, tx(u128::from(n)).write(Write::Put(timer(n), "x".into()))).await;
    }
    for n in 10..20 {
        assert_eq!(first().await, Some(timer(n).key));
        let id = 1_000 + u128::from(n);
        committed(&store, tx(id).write(Write::Delete(timer(n)))).await;
    }
    assert_eq!(first().await, None);
    committed(&store, tx(5_000).write(Write::Put(timer(5), "x".into()))).await;
    assert_eq!(first().await, Some(timer(5).key), "also one that is due before all of them");
}
