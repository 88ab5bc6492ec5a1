//! Reading: many places at one moment, and pages that show everything once.
//!
//! Keys are bytes, so the cases use bytes that text does not have and prefixes that end in 0xff.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use onetake_core::{Phase, Slot, Tenant};
use onetake_engine::{Doc, Found, Journal, Place, Position, Tx, Write};

use super::hear::{all_of, committed, won};
use crate::Rig;
use crate::make::{BRIEF, LONG, Pen, address, counter, cursor, doc, tenant, tx, version};

/// In the order of the places, also for what does not exist, and for one place twice.
pub async fn fetch_answers_place_by_place<R: Rig<Store: Journal>>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    assert!(store.fetch(&[]).await.unwrap().value.is_empty());
    let places = [
        Place::Counter(counter("c")),
        Place::Slot(pen.slot().clone()),
        Place::Doc(doc("d")),
        Place::Cursor(cursor("u")),
        Place::Doc(doc("d")),
    ];
    let empty = store.fetch(&places).await.unwrap().value;
    let (no_doc, no_slot) = (Found::Doc(None), Found::Slot(None));
    let at_zero = [Found::Counter(0), no_slot, no_doc.clone(), Found::Cursor(Position(0)), no_doc];
    assert_eq!(empty, at_zero);
    let tx = Tx::on_slot(None, pen.claim(1, LONG))
        .write(Write::Put(doc("d"), "v".into()))
        .write(Write::Add(counter("c"), 3))
        .write(Write::Advance(cursor("u"), Position(4)));
    committed(&store, tx).await;
    let full = store.fetch(&places).await.unwrap().value;
    assert_eq!((&full[0], &full[3]), (&Found::Counter(3), &Found::Cursor(Position(4))));
    assert!(matches!(&full[1], Found::Slot(Some(claim)) if claim.version == version(1)));
    assert!(matches!(&full[2], Found::Doc(Some(doc)) if doc.version == version(1)));
    assert_eq!(full[2], full[4]);
}

fn together(round: u64) -> Tx {
    let n = u128::from(round);
    let value = Bytes::copy_from_slice(&n.to_be_bytes());
    let expected = (n > 1).then(|| version(n - 1));
    Tx::on_slot(expected, Pen::new("k").claim(n, LONG))
        .write(Write::Put(doc("a"), value.clone()))
        .write(Write::Put(doc("b"), value))
        .write(Write::Add(counter("c"), 1))
        .write(Write::Advance(cursor("u"), Position(round)))
}

/// What is always written together is never seen apart.
pub async fn fetch_sees_one_moment<R: Rig<Store: Journal>>(rig: &R) {
    const ROUNDS: u64 = 300;
    let (store, ended) = (Arc::new(rig.open().await), Arc::new(AtomicBool::new(false)));
    let writer = tokio::spawn({
        let (store, ended) = (Arc::clone(&store), Arc::clone(&ended));
        async move {
            for n in 1..=ROUNDS {
                committed(&*store, together(n)).await;
            }
            ended.store(true, Ordering::SeqCst);
        }
    });
    let slot = Pen::new("k").slot().clone();
    let places = [
        Place::Doc(doc("a")),
        Place::Counter(counter("c")),
        Place::Slot(slot),
        Place::Cursor(cursor("u")),
        Place::Doc(doc("b")),
    ];
    let mut last = 0;
    while last < ROUNDS {
        // Read before the fetch: once the writer has ended, the fetch must show its last round.
        let over = ended.load(Ordering::SeqCst);
        let seen = store.fetch(&places).await.unwrap().value;
        let numbers: Vec<u64> = seen.iter().map(number).collect();
        assert!(numbers.iter().all(|n| *n == numbers[0]), "seen apart: {numbers:?}");
        assert!(numbers[0] >= last && (!over || numbers[0] == ROUNDS), "and never goes back");
        last = numbers[0];
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
}

/// The round that a place was written in.
fn number(found: &Found) -> u64 {
    let write = match found {
        Found::Doc(document) => document.as_ref().map_or(0, |document| document.version.write),
        Found::Slot(record) => record.as_ref().map_or(0, |record| record.version.write),
        Found::Counter(n) => u128::try_from(*n).unwrap(),
        Found::Cursor(position) => u128::from(position.0),
    };
    u64::try_from(write).unwrap()
}

async fn paged<S: Journal>(store: &S, prefix: &[u8], limit: usize) -> Vec<Bytes> {
    let (mut keys, mut after): (Vec<Bytes>, Option<Bytes>) = (Vec::new(), None);
    loop {
        let page = store.scan("testkit", prefix, after.as_deref(), limit).await.unwrap().value;
        assert!(page.items.len() <= limit, "at most {limit}");
        keys.extend(page.items.into_iter().map(|(doc, _)| doc.key));
        if !page.more {
            return keys;
        }
        assert!(after.as_ref() < keys.last(), "every page leads on");
        after = keys.last().cloned();
    }
}

/// Keys in bytewise order, whatever the size of the pages.
pub async fn scan_pages_through_every_document_of_a_prefix<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    let keys: Vec<&'static [u8]> = vec![
        b"",
        b"\0",
        b"a",
        b"a\0",
        b"a\0\0",
        b"a\0\xff",
        b"a0",
        b"aa",
        b"ab",
        b"b",
        b"b\xff",
        b"b\xff\xff",
        b"c",
        b"\xfe",
        b"\xff",
        b"\xff\0",
        b"\xff\xff",
        b"\xff\xffz",
    ];
    for (id, key) in (1..).zip(keys.iter().rev()) {
        committed(&store, Tx::on_doc(id, doc(*key), None, Bytes::from_static(key))).await;
        for (offset, space) in [(100, "elsewhere"), (200, "testki"), (300, "testkit-2")] {
            let elsewhere = Doc { space, key: Bytes::from_static(key) };
            committed(&store, Tx::on_doc(id + offset, elsewhere, None, "other".into())).await;
        }
    }
    let prefixes: [&[u8]; 8] = [b"", b"a", b"a\0", b"b\xff", b"\xff", b"\xff\xff", b"zz", b"ab"];
    for prefix in prefixes {
        let expected: Vec<_> = keys.iter().filter(|key| key.starts_with(prefix)).collect();
        for limit in [1, 2, 3, expected.len().max(1), 100] {
            let found = paged(&store, prefix, limit).await;
            assert!(found.iter().eq(expected.iter().copied()), "{prefix:?} by {limit}: {found:?}");
        }
    }
    let page = store.scan("testkit", b"a", None, 100).await.unwrap().value;
    assert!(page.items.iter().all(|(doc, document)| doc.key == document.value), "with values");
    assert!(page.items.iter().all(|(doc, _)| doc.space == "testkit"));
}

/// Where to go on from need not exist, and need not lie within the prefix.
pub async fn scan_goes_on_behind_any_key<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    for (id, key) in (1..).zip(["a1", "b1", "b3", "b5", "c1"]) {
        committed(&store, Tx::on_doc(id, doc(key), None, "v".into())).await;
    }
    committed(&store, tx(10).write(Write::Delete(doc("b3")))).await;
    let cases: [(&[u8], &[&str]); 6] = [
        (b"a", &["b1", "b5"]),
        (b"b", &["b1", "b5"]),
        (b"b1", &["b5"]),
        (b"b3", &["b5"]),
        (b"b5", &[]),
        (b"c", &[]),
    ];
    for (after, expected) in cases {
        let page = store.scan("testkit", b"b", Some(after), 10).await.unwrap().value;
        let keys: Vec<_> = all_of(page).into_iter().map(|(doc, _)| doc.key).collect();
        assert_eq!(keys, expected, "behind {after:?}");
    }
}

async fn slots<S: Journal>(store: &S, tenant: Option<&Tenant>, limit: usize) -> Vec<Slot> {
    let (mut slots, mut after): (Vec<Slot>, Option<Slot>) = (Vec::new(), None);
    for _ in 0..1_000 {
        let page = store.scan_slots(tenant, after.as_ref(), limit).await.unwrap().value;
        assert!(page.items.len() <= limit, "at most {limit}");
        slots.extend(page.items.iter().map(|record| record.address.slot().clone()));
        if !page.more {
            return slots;
        }
        after = slots.last().cloned();
    }
    panic!("the pages never end");
}

/// W10: a scan of one tenant never shows another's, also where one name begins with the other.
pub async fn w10_scan_slots_shows_one_tenant_or_all<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    let names = ["acme", "acme-2", "a", "acm", "zeta", "Ünï"];
    for (id, (name, n)) in (1..).zip(names.iter().flat_map(|name| (0..7).map(move |n| (*name, n))))
    {
        won(&store, None, Pen::of(address(name, &format!("k{n}"))).claim(id, LONG)).await;
    }
    for limit in [1, 3, 7, 100] {
        for name in names {
            let mut of = slots(&store, Some(&tenant(name)), limit).await;
            let whole = slots(&store, Some(&tenant(name)), 1_000).await;
            assert_eq!(of, whole, "in one order, whatever the page");
            assert!(of.iter().all(|slot| slot.tenant().as_str() == name), "{name} alone");
            assert_eq!(of.len(), 7, "all of {name}, by {limit}");
            of.sort();
            of.dedup();
            assert_eq!(of.len(), 7, "each once");
        }
        let mut all = slots(&store, None, limit).await;
        assert_eq!(all.len(), 42, "by {limit}");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 42, "each once");
    }
    assert!(slots(&store, Some(&tenant("nobody")), 5).await.is_empty());
}

/// X10: an operator sees what is there, expired or not, exactly as a read would show it.
pub async fn x10_scan_slots_shows_what_has_expired_too<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    let written = [
        won(&store, None, Pen::new("done").done(1, 1, BRIEF)).await,
        won(&store, None, Pen::new("lapsed").claim(2, BRIEF)).await,
        won(&store, None, Pen::new("unknown").unknown(3, 3)).await,
        won(&store, None, Pen::new("free").released(4, 4, BRIEF)).await,
    ];
    rig.pass(&store, BRIEF).await;
    let page = store.scan_slots(Some(&tenant("acme")), None, 10).await.unwrap();
    let listed = all_of(page.value);
    assert_eq!(listed.len(), 4);
    assert!(written.iter().all(|record| listed.contains(record)));
    let removable = listed.iter().filter(|record| record.is_removable(page.now));
    assert!(removable.clone().all(|record| !matches!(record.phase, Phase::Claimed { .. })));
    assert_eq!(removable.count(), 2);
}
