//! Lanes and cursors: positions without gaps in the order of commits, and readers that miss
//! nothing.
//!
//! A lane that gives a number before its commit is decided fails `a_reader_that_follows_…`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use onetake_engine::{Found, Journal, Lane, Place, Position, Slots, Tx, Write};
use tokio::task::JoinSet;

use super::hear::{all_of, committed, conflict, found};
use crate::Rig;
use crate::make::{BRIEF, Pen, cursor, doc, lane, tx, version};

async fn entries<S: Journal>(store: &S, lane: &Lane, after: u64) -> Vec<(u64, Bytes)> {
    let page = store.read_lane(lane, Position(after), 1_000).await.unwrap().value;
    all_of(page).into_iter().map(|entry| (entry.position.0, entry.value)).collect()
}

fn append(id: u128, name: &'static str) -> Tx {
    tx(id).write(Write::Append(lane(name), id.to_string().into()))
}

/// P12: the first entry stands at 1, and nobody else's lane counts.
pub async fn p12_positions_begin_at_one_and_have_no_gaps<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    assert!(entries(&store, &lane("a"), 0).await.is_empty());
    for n in 1..=5 {
        assert_eq!(committed(&store, append(n.into(), "a")).await, [Position(n)]);
    }
    assert_eq!(committed(&store, append(6, "ab")).await, [Position(1)], "a lane of its own");
    let failed = append(7, "a").check(onetake_engine::Check::Doc(doc("x"), Some(version(1))));
    conflict(&store, failed).await;
    assert_eq!(committed(&store, append(8, "a")).await, [Position(6)], "a conflict leaves no gap");
    let empty = tx(9).write(Write::Append(lane("a"), Bytes::new()));
    assert_eq!(committed(&store, empty).await, [Position(7)], "an entry may be empty");
    let values = entries(&store, &lane("a"), 0).await;
    let expected = (1..=7).zip(["1", "2", "3", "4", "5", "8", ""]).map(|(n, v)| (n, v.into()));
    assert_eq!(values, expected.collect::<Vec<(u64, Bytes)>>());
}

/// Pages of a lane: behind a position, at most so many, and whether there are more.
pub async fn a_lane_is_read_in_pages<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    for id in 1..=7 {
        committed(&store, append(id, "a")).await;
    }
    for (after, limit, expected, more) in [
        (0, 3, vec![1, 2, 3], true),
        (3, 3, vec![4, 5, 6], true),
        (6, 3, vec![7], false),
        (4, 3, vec![5, 6, 7], false),
        (7, 3, vec![], false),
        (99, 3, vec![], false),
    ] {
        let page = store.read_lane(&lane("a"), Position(after), limit).await.unwrap().value;
        let positions: Vec<_> = page.items.iter().map(|entry| entry.position.0).collect();
        assert_eq!((positions, page.more), (expected, more), "behind {after}");
    }
}

/// P12, P4: however a store keeps what one transaction appends, each entry has its own place: pages
/// may begin and end between them, and so may trimming.
pub async fn p12_entries_that_were_appended_together_stand_one_by_one<R: Rig<Store: Journal>>(
    rig: &R,
) {
    let store = rig.open().await;
    let many = |id: u128, names: &[&'static str]| {
        let appends = names.iter().copied().enumerate();
        appends.fold(tx(id), |tx, (n, name)| {
            tx.write(Write::Append(lane(name), format!("{id}.{n}").into()))
        })
    };
    let at = |positions: &[u64]| positions.iter().copied().map(Position).collect::<Vec<_>>();
    let told = committed(&store, many(1, &["a", "a", "b", "a", "b", "b"])).await;
    assert_eq!(told, at(&[1, 2, 1, 3, 2, 3]), "each in the order of the transaction");
    assert_eq!(committed(&store, many(2, &["a"])).await, at(&[4]));
    assert_eq!(committed(&store, many(3, &["a", "a", "a"])).await, at(&[5, 6, 7]));
    let values = ["1.0", "1.1", "1.3", "2.0", "3.0", "3.1", "3.2"];
    let all: Vec<(u64, Bytes)> = (1..).zip(values.map(Bytes::from)).collect();
    for after in 0..=7_usize {
        let behind = Position(after as u64);
        assert_eq!(entries(&store, &lane("a"), behind.0).await, all[after..]);
        for limit in 1..=8 {
            let page = store.read_lane(&lane("a"), behind, limit).await.unwrap().value;
            let read = page.items.iter().map(|entry| (entry.position.0, entry.value.clone()));
            let end = (after + limit).min(7);
            let expected = (all[after..end].to_vec(), end < 7);
            assert_eq!((read.collect(), page.more), expected, "{limit} behind {after}");
        }
    }
    for (id, through) in (4..).zip([1_usize, 2, 5, 6]) {
        let trim = tx(id).write(Write::Trim(lane("a"), Position(through as u64)));
        committed(&store, trim).await;
        assert_eq!(entries(&store, &lane("a"), 0).await, all[through..]);
    }
    assert_eq!(committed(&store, many(9, &["a", "a"])).await, at(&[8, 9]));
    assert_eq!(entries(&store, &lane("b"), 2).await, [(3, "1.5".into())]);
}

/// An entry carries the store's time of its commit.
pub async fn entries_carry_the_time_of_their_commit<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    let mut bounds = Vec::new();
    for id in 1..=3 {
        let before = store.read(Pen::new("clock").slot()).await.unwrap().now;
        bounds.push(before..=store.commit(append(id, "a")).await.unwrap().now);
        rig.pass(&store, BRIEF / 10).await;
    }
    let page = store.read_lane(&lane("a"), Position(0), 10).await.unwrap().value;
    let entries = all_of(page);
    assert_eq!(entries.len(), 3);
    for (entry, bounds) in entries.iter().zip(bounds) {
        assert!(bounds.contains(&entry.at), "{entry:?} within {bounds:?}");
    }
}

/// P4: trimming takes entries, never positions.
pub async fn p4_trimming_keeps_positions<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    let positions = |of: Vec<(u64, Bytes)>| of.into_iter().map(|(n, _)| n).collect::<Vec<_>>();
    let trim = |id, through| tx(id).write(Write::Trim(lane("a"), Position(through)));
    for id in 1..=5 {
        committed(&store, append(id, "a")).await;
    }
    committed(&store, trim(6, 3)).await;
    assert_eq!(positions(entries(&store, &lane("a"), 0).await), [4, 5]);
    committed(&store, trim(7, 2)).await;
    assert_eq!(positions(entries(&store, &lane("a"), 0).await), [4, 5], "less brings none back");
    assert_eq!(committed(&store, append(8, "a")).await, [Position(6)]);
    committed(&store, trim(9, 6)).await;
    assert!(entries(&store, &lane("a"), 0).await.is_empty());
    assert_eq!(committed(&store, append(10, "a")).await, [Position(7)], "an empty lane goes on");
    committed(&store, trim(11, u64::MAX)).await;
    assert_eq!(committed(&store, append(12, "a")).await, [Position(8)], "nothing is skipped");
    assert_eq!(positions(entries(&store, &lane("a"), 0).await), [8]);
    committed(&store, tx(13).write(Write::Trim(lane("never"), Position(9)))).await;
    assert_eq!(committed(&store, append(14, "never")).await, [Position(1)]);
}

const WRITERS: u64 = 8;
const APPENDS: u64 = 50;

/// P12: whoever follows a lane sees every entry once, in order, while others append.
pub async fn p12_a_reader_that_follows_never_misses_an_entry<R: Rig<Store: Journal>>(rig: &R) {
    let store = Arc::new(rig.open().await);
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let mut told = Vec::new();
            for n in 1..=APPENDS {
                let id = writer * 1_000 + n;
                told.push((committed(&*store, append(id.into(), "a")).await[0].0, id));
            }
            assert!(told.is_sorted(), "what is committed later stands later");
            told
        });
    }
    let (mut seen, mut after) = (BTreeMap::new(), 0);
    while after < WRITERS * APPENDS {
        let page = store.read_lane(&lane("a"), Position(after), 7).await.unwrap().value;
        for entry in page.items {
            assert_eq!(entry.position.0, after + 1, "no gap, ever");
            after = entry.position.0;
            seen.insert(after, entry.value);
        }
        tokio::task::yield_now().await;
    }
    for (position, id) in writers.join_all().await.into_iter().flatten() {
        assert_eq!(seen[&position], id.to_string(), "it stands where its writer was told");
    }
    assert!(entries(&*store, &lane("a"), after).await.is_empty());
}

/// P12: an ack of an earlier position changes nothing.
pub async fn p12_cursors_only_go_forward<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    let place = || Place::Cursor(cursor("c"));
    assert_eq!(found(&store, place()).await, Found::Cursor(Position(0)));
    for (id, (to, stands)) in (1..).zip([(5, 5), (3, 5), (5, 5), (0, 5), (9, 9)]) {
        committed(&store, tx(id).write(Write::Advance(cursor("c"), Position(to)))).await;
        assert_eq!(found(&store, place()).await, Found::Cursor(Position(stands)), "to {to}");
    }
    assert_eq!(found(&store, Place::Cursor(cursor("cc"))).await, Found::Cursor(Position(0)));
}

/// P12: also when many acknowledge at once and out of order.
pub async fn p12_cursors_only_go_forward_under_concurrency<R: Rig<Store: Journal>>(rig: &R) {
    let store = Arc::new(rig.open().await);
    let mut acks = JoinSet::new();
    for id in 1..=100_u64 {
        let store = Arc::clone(&store);
        acks.spawn(async move {
            let ack = Write::Advance(cursor("c"), Position(id * 37 % 101));
            committed(&*store, tx(id.into()).write(ack)).await;
        });
    }
    let mut last = Position(0);
    while !acks.is_empty() {
        acks.join_next().await.expect("there are some left").unwrap();
        let Found::Cursor(at) = found(&*store, Place::Cursor(cursor("c"))).await else { panic!() };
        assert!(at >= last, "{at:?} after {last:?}");
        last = at;
    }
    assert_eq!(last, Position(100));
}
