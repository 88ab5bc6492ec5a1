//! The embedded store on a disk that fails: what was answered survives, what is damaged is said.
//!
//! Every disk here obeys the test: it forgets what was not synced, fails a sync or a write, fills
//! up, or turns bits. The seed of a failing case is in its message.

#![cfg(all(target_os = "linux", feature = "embedded"))]
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod common;
mod disk;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use common::options;
use common::part::{self, Part};
use disk::{Disk, Effect, Fault, Names, files_below, flip};
use onetake_core::{Outcome, Record, Slot};
use onetake_engine::{Commit, Found, Journal, Place, Slots, StoreError, Swap, Tx, Write};
use onetake_stores::seal::MasterKey;
use onetake_stores::{Embedded, OnLoss, OpenError, Options, upkeep};
use onetake_testkit::conformance::hear::{there, won};
use onetake_testkit::make::{LONG, Pen, doc, lane, version};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;

fn home(disk: &Disk) -> PathBuf {
    disk.path().join("store")
}

fn open(disk: &Disk) -> Result<Embedded, OpenError> {
    Embedded::open_with(home(disk), options())
}

/// A disk that takes writes straight from the store, or one that takes them only through the memory
/// of the system. It makes no difference to what is promised.
fn either(is_direct: bool) -> Disk {
    if is_direct { Disk::new() } else { Disk::without_direct_writes() }
}

/// What callers were told, in the order in which they were.
#[derive(Default, Clone)]
struct Heard(Arc<Mutex<Vec<Told>>>);

#[derive(Clone)]
enum Told {
    Record(Arc<Record>),
    /// The document, and the value that was committed with an entry of the lane.
    Committed(u128, Bytes),
}

impl Heard {
    fn hear(&self, told: Told) {
        self.0.lock().unwrap().push(told);
    }

    fn so_far(&self) -> Vec<Told> {
        self.0.lock().unwrap().clone()
    }
}

/// One caller: claims, settles, commits; every answer is heard before it goes on.
async fn caller(store: Embedded, heard: Heard, number: u128, rounds: u128) {
    for round in 0..rounds {
        let id = number * 1_000_000 + round * 10;
        let pen = Pen::new(&format!("k-{number}-{round}"));
        let Swap::Won(claim) = store.swap(None, pen.claim(id + 1, LONG)).await.unwrap().value
        else {
            panic!("a new key is won")
        };
        heard.hear(Told::Record(claim));
        let body = Bytes::from(vec![u8::try_from(round % 251).unwrap(); 300]);
        let done = pen.done_with(id + 2, id + 1, LONG, Outcome::Value(body.clone()));
        let settled = store.swap(Some(version(id + 1)), done).await.unwrap().value;
        let Swap::Won(done) = settled else { panic!("an owner settles") };
        heard.hear(Told::Record(done));
        let tx = Tx::on_doc(id + 3, doc(format!("d-{id}")), None, body.clone())
            .write(Write::Append(lane("l"), body.clone()));
        let commit = store.commit(tx).await.unwrap().value;
        assert!(matches!(commit, Commit::Committed { .. }));
        heard.hear(Told::Committed(id, body));
    }
}

/// Everything that was told is there, byte for byte; a slot may have come further since.
async fn agrees(store: &Embedded, told: &[Told], what: &str) {
    let mut newest: std::collections::HashMap<Slot, &Arc<Record>> =
        std::collections::HashMap::new();
    let mut entries = 0;
    for told in told {
        match told {
            Told::Record(record) => {
                newest.insert(record.address.slot().clone(), record);
            }
            Told::Committed(id, value) => {
                let found = store.fetch(&[Place::Doc(doc(format!("d-{id}")))]).await.unwrap().value;
                let Found::Doc(Some(document)) = &found[0] else { panic!("{what}: no document") };
                assert_eq!(&document.value, value, "{what}");
                entries += 1;
            }
        }
    }
    for (slot, record) in newest {
        let found = there(store, &slot).await.unwrap_or_else(|| panic!("{what}: a record is gone"));
        let is_same =
            found.version.write == { record.version.write } && found.phase == record.phase;
        let is_claim = matches!(record.phase, onetake_core::Phase::Claimed { .. });
        assert!(is_same || (is_claim && found.fence == record.fence), "{what}: {found:?}");
    }
    let kept = store.read_lane(&lane("l"), onetake_engine::Position(0), 10_000).await.unwrap();
    assert!(kept.value.items.len() >= entries, "{what}: {} entries", kept.value.items.len());
    let positions: Vec<_> = kept.value.items.iter().map(|entry| entry.position.0).collect();
    assert_eq!(positions, (1..=positions.len() as u64).collect::<Vec<_>>(), "{what}");
}

/// K12, W12, X8: whenever the power fails, every answer that was given is still true.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k12_w12_x8_what_was_answered_survives_a_power_cut_at_any_moment() {
    for seed in 0..12_u64 {
        let disk = either(seed % 2 == 0);
        let (store, heard) = (open(&disk).unwrap(), Heard::default());
        let mut callers = JoinSet::new();
        for number in 1..=8 {
            callers.spawn(caller(store.clone(), heard.clone(), number, 8));
        }
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut cuts = Vec::new();
        while !callers.is_empty() {
            for _ in 0..rng.random_range(1..40) {
                tokio::task::yield_now().await;
            }
            if cuts.len() < 4 {
                // What was told comes first: more may be durable than that, never less.
                let told = heard.so_far();
                let names = if cuts.len() % 2 == 0 { Names::AsSynced } else { Names::Kept };
                cuts.push((told, disk.after_power_loss_with(rng.random(), names)));
            }
            while let Some(ended) = callers.try_join_next() {
                ended.unwrap();
            }
        }
        cuts.push((heard.so_far(), disk.after_power_loss(seed)));
        for (number, (told, left)) in cuts.into_iter().enumerate() {
            let what = format!("seed {seed}, cut {number}, {} answers", told.len());
            let store = open(&left).unwrap_or_else(|error| panic!("{what}: {error}"));
            agrees(&store, &told, &what).await;
            // And again: what the opening itself wrote must not hurt either.
            let again = left.after_power_loss(seed);
            let store = open(&again).unwrap_or_else(|error| panic!("{what}, again: {error}"));
            agrees(&store, &told, &what).await;
        }
    }
}

/// A store that is being made when the power fails can be made again.
#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_while_a_store_is_made_leaves_nothing_in_the_way() {
    let calm = Disk::new();
    drop(open(&calm).unwrap());
    let syncs = calm.syncs();
    // The first ones are ours; behind them the engine makes its files, much the same many times.
    let tried = (1..20).chain((20..=syncs).step_by(5));
    for (nth, names) in tried.zip([Names::AsSynced, Names::Kept].into_iter().cycle()) {
        let disk = Disk::new();
        disk.inject(Fault::sync(nth, libc::EIO).and_later());
        let refused = open(&disk);
        let left = disk.after_power_loss_with(nth, names);
        let store = open(&left).unwrap_or_else(|error| panic!("sync {nth}, {names:?}: {error}"));
        won(&store, None, Pen::new("k").claim(1, LONG)).await;
        drop(refused);
    }
}

/// W12: a sync that fails is the end: nobody hears "won", and nothing is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn w12_a_failed_sync_answers_unknown_and_loses_the_store_until_it_is_opened_again() {
    type Make = fn() -> Fault;
    let faults: [(&str, Make); 4] = [
        ("EIO on sync", || Fault::sync(1, libc::EIO).only(".seg")),
        ("EIO on write", || Fault::write(1, Effect::Errno(libc::EIO)).only(".seg")),
        ("no space", || Fault::write(1, Effect::Errno(libc::ENOSPC)).only(".seg").and_later()),
        ("read-only", || Fault::write(1, Effect::Errno(libc::EROFS)).only(".seg").and_later()),
    ];
    for ((name, fault), is_direct) in
        faults.into_iter().flat_map(|fault| [(fault, true), (fault, false)])
    {
        let disk = either(is_direct);
        let store = open(&disk).unwrap();
        let (kept, doubtful) = (Pen::new("kept"), Pen::new("doubtful"));
        let record = won(&store, None, kept.done(1, 1, LONG)).await;
        disk.inject(fault());
        let reply = store.swap(None, doubtful.claim(2, LONG)).await.unwrap();
        assert_eq!(reply.value, Swap::Unknown, "{name}");
        disk.heal();
        for refused in [
            store.swap(None, Pen::new("other").claim(3, LONG)).await.map(drop),
            store.read(kept.slot()).await.map(drop),
            store.scan_slots(None, None, 10).await.map(drop),
        ] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, StoreError::Unavailable(_)), "{name}: {refused}");
        }
        assert!(store.stats().lost.is_some(), "{name}");
        let cut = disk.after_power_loss(7);
        drop(store);
        for disk in [disk, cut] {
            let store = open(&disk).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(there(&store, kept.slot()).await.as_ref(), Some(&record), "{name}");
            // The same write again is won, whether or not the first one arrived.
            let again = store.swap(None, doubtful.claim(2, LONG)).await.unwrap().value;
            assert!(matches!(again, Swap::Won(_)), "{name}: {again:?}");
            // What an opening found is on the disk before anything rests on it.
            for seed in 0..6 {
                let cut = disk.after_power_loss(seed);
                let store = open(&cut).unwrap_or_else(|error| panic!("{name}, {seed}: {error}"));
                assert!(there(&store, kept.slot()).await.is_some(), "{name}, {seed}");
                assert!(there(&store, doubtful.slot()).await.is_some(), "{name}, {seed}");
            }
        }
    }
}

#[test]
fn a_process_that_is_asked_to_plays_its_part() {
    if part::asked().is_none() {
        return;
    }
    let disk = Disk::new();
    let options = Options { on_loss: OnLoss::Stop, ..options() };
    let store = Embedded::open_with(home(&disk), options).unwrap();
    disk.inject(Fault::sync(1, libc::EIO).only(".seg"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let reply = runtime.block_on(store.swap(None, Pen::new("k").claim(1, LONG)));
    part::say(&format!("it went on, and heard {reply:?}"));
}

/// W12: by default the process stops at once, so that nothing is answered from a memory that the
/// disk may not share.
#[test]
fn w12_a_failed_sync_stops_the_process() {
    let (status, said) = Part::start("stop", &[]).end();
    assert_eq!(said, [""; 0], "it says nothing more");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGABRT));
}

/// W12: every answer has waited for a sync, be it the end of the write itself or a call of its own.
#[tokio::test(flavor = "multi_thread")]
async fn w12_whoever_is_answered_has_waited_for_a_sync() {
    for is_direct in [true, false] {
        let disk = either(is_direct);
        let store = open(&disk).unwrap();
        for id in 1..12 {
            let before = disk.syncs();
            won(&store, None, Pen::new(&format!("k-{id}")).claim(id, LONG)).await;
            assert!(disk.syncs() > before, "{is_direct}, {id}");
        }
    }
}

/// Writes that the system takes in parts are none of anyone's business.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_taken_in_parts_is_whole_in_the_end() {
    for is_direct in [true, false] {
        let disk = either(is_direct);
        let (store, heard) = (open(&disk).unwrap(), Heard::default());
        for nth in 1..40 {
            disk.inject(Fault::write(nth, Effect::Short(7)));
        }
        caller(store, heard.clone(), 1, 5).await;
        let left = disk.after_power_loss(1);
        agrees(&open(&left).unwrap(), &heard.so_far(), "short writes").await;
    }
}

/// A flush in the background that fails is noticed although nobody writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_flush_that_fails_in_the_background_loses_the_store_and_nothing_else() {
    let disk = Disk::new();
    let store = open(&disk).unwrap();
    let pen = Pen::new("kept");
    let record = won(&store, None, pen.done(1, 1, LONG)).await;
    disk.inject(Fault::sync(1, libc::EIO).only("/tables/").and_later());
    store.compact().await;
    while store.stats().lost.is_none() {
        tokio::task::yield_now().await;
    }
    drop(store);
    disk.heal();
    assert_eq!(there(&open(&disk).unwrap(), pen.slot()).await, Some(record));
}

#[test]
fn a_read_only_disk_is_refused_with_the_reason() {
    let disk = Disk::new();
    drop(open(&disk).unwrap());
    disk.make_read_only();
    let refused = open(&disk).unwrap_err();
    assert!(matches!(refused, OpenError::Io { .. }), "{refused}");
    disk.heal();
    drop(open(&disk).unwrap());
}

/// C8: what is broken in the middle of the log was whole once, and is never taken for a torn end.
#[tokio::test(flavor = "multi_thread")]
async fn c8_damage_in_the_middle_of_the_log_is_named_and_nothing_is_cut_off() {
    let (disk, heard) = (Disk::new(), Heard::default());
    // So large that nothing of it is taken over.
    let options = Options { log_bytes: 1 << 20, ..options() };
    let store = Embedded::open_with(home(&disk), options.clone()).unwrap();
    caller(store.clone(), heard.clone(), 1, 3).await;
    let open = disk.after_power_loss_with(1, Names::Kept);
    drop(store);
    let closed = disk.after_power_loss_with(1, Names::Kept);
    for left in [open, closed] {
        let log = home(&left).join("log/1.seg");
        // The head of the file, and its first frame: its own head, and its values.
        for at in [0, 30, 512, 520, 530, 540] {
            flip(&log, at);
            let before = std::fs::read(&log).unwrap();
            let refused = Embedded::open_with(home(&left), options.clone()).unwrap_err();
            assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
            let what = if at < 512 { "the head of 1.seg" } else { "1.seg at byte 512" };
            assert!(refused.to_string().contains(what), "{refused}");
            assert!(std::fs::read(&log).unwrap() == before, "and it is left as it is");
            let checked = upkeep::check(home(&left), &options).unwrap();
            assert!(checked.findings[0].what.contains(what), "{:?}", checked.findings);
            flip(&log, at);
        }
        std::fs::File::options().write(true).open(&log).unwrap().set_len(4096).unwrap();
        let refused = Embedded::open_with(home(&left), options.clone()).unwrap_err();
        assert!(refused.to_string().contains("1.seg is cut off"), "{refused}");
        std::fs::copy(home(&disk).join("log/1.seg"), &log).unwrap();
        agrees(
            &Embedded::open_with(home(&left), options.clone()).unwrap(),
            &heard.so_far(),
            "mended",
        )
        .await;
    }
}

/// C8: one flipped bit anywhere is refused or harmless; it never changes an answer and never makes
/// one disappear.
#[tokio::test(flavor = "multi_thread")]
async fn c8_a_flipped_bit_never_changes_an_answer_and_never_hides_one() {
    let calm = Disk::new();
    let store = open(&calm).unwrap();
    let heard = Heard::default();
    caller(store.clone(), heard.clone(), 1, 20).await;
    store.compact().await;
    caller(store.clone(), heard.clone(), 2, 20).await;
    drop(store);
    let (told, mut rng) = (heard.so_far(), SmallRng::seed_from_u64(1));
    let files = files_below(calm.path());
    let (mut refused, mut harmless, mut found) = (0, 0, 0);
    for file in &files {
        for _ in 0..6 {
            let disk = calm.after_power_loss_with(0, Names::Kept);
            let length = std::fs::metadata(disk.path().join(file)).unwrap().len();
            if length == 0 {
                continue;
            }
            // Most of a journal is zeros that were set aside; aim where something is written.
            let offset = rng.random_range(0..length.min(20_000));
            flip(disk.path().join(file), offset);
            let what = format!("{} at {offset}", file.display());
            let checked = upkeep::check(home(&disk), &options());
            match open(&disk) {
                Err(_) => refused += 1,
                Ok(store) if holds(&store, &told, &what).await => harmless += 1,
                Ok(_) => {
                    let checked = checked.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert!(!checked.is_whole(), "{what}: checking found nothing");
                    found += 1;
                }
            }
        }
    }
    assert!(refused > 0 && harmless > 0 && found > 0, "{refused} {harmless} {found}");
}

/// C8: checking a store comes to an end whatever block of its tables cannot be read.
#[tokio::test(flavor = "multi_thread")]
async fn c8_checking_ends_behind_a_block_that_cannot_be_read() {
    let calm = Disk::new();
    let store = open(&calm).unwrap();
    caller(store.clone(), Heard::default(), 1, 20).await;
    store.compact().await;
    drop(store);
    let files = files_below(calm.path());
    let tables: Vec<_> = files.iter().filter(|file| is_table(file)).collect();
    let mut found = 0;
    for table in &tables {
        let length = std::fs::metadata(calm.path().join(table)).unwrap().len();
        // Fine enough for the smallest block: the list of the others, which every walk reads.
        for nth in 0..60 {
            let disk = calm.after_power_loss_with(0, Names::Kept);
            flip(disk.path().join(table), length * nth / 60);
            let (ended, told) = std::sync::mpsc::channel();
            let folder = home(&disk);
            std::thread::spawn(move || ended.send(upkeep::check(folder, &options()).unwrap()));
            // It takes milliseconds, or for ever.
            let checked = told.recv_timeout(Duration::from_secs(60)).expect("checking ends");
            found += usize::from(!checked.is_whole());
        }
    }
    assert!(tables.len() > 3 && found > tables.len(), "{found} in {} tables", tables.len());
}

fn is_table(file: &Path) -> bool {
    file.components().any(|part| part.as_os_str() == "tables")
}

/// X11: whoever has not the keys of a store that crashed may come again and again, and changes
/// nothing in it.
#[tokio::test(flavor = "multi_thread")]
async fn x11_without_its_keys_a_store_stays_as_it_is() {
    let with = |disk: &Disk, key| {
        let keys = vec![MasterKey::new([key; 32])];
        Embedded::open_with(home(disk), Options { keys, ..options() })
    };
    let calm = Disk::new();
    let (store, heard) = (with(&calm, 1).unwrap(), Heard::default());
    caller(store.clone(), heard.clone(), 1, 20).await;
    let told = heard.so_far();
    let crashed = calm.after_power_loss_with(0, Names::Kept);
    drop(store);
    let closed = calm.after_power_loss_with(0, Names::Kept);
    for disk in [crashed, closed] {
        let tables = || files_below(disk.path()).into_iter().filter(|it| is_table(it));
        // Whoever is first finds what a crash left unfinished, and clears it away.
        assert!(matches!(with(&disk, 2), Err(OpenError::Sealed { .. })));
        let found = tables().count();
        for _ in 0..3 {
            assert!(matches!(with(&disk, 2), Err(OpenError::Sealed { .. })));
            assert!(matches!(open(&disk), Err(OpenError::NoKey { .. })));
            // The engine may merge some that were there; none come to them.
            assert!(tables().count() <= found);
        }
        let store = with(&disk, 1).unwrap();
        assert!(holds(&store, &told, "with its key").await);
    }
}

/// Whether every answer is there; panics when one is another or is gone without a word.
async fn holds(store: &Embedded, told: &[Told], what: &str) -> bool {
    let mut newest = std::collections::HashMap::new();
    for told in told {
        if let Told::Record(record) = told {
            newest.insert(record.address.slot().clone(), record);
        }
    }
    let mut all = true;
    for (slot, record) in newest {
        match store.read(&slot).await {
            Ok(reply) => assert_eq!(reply.value.as_ref(), Some(record), "{what}"),
            Err(StoreError::Corrupt(_) | StoreError::Unavailable(_)) => all = false,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    all
}
