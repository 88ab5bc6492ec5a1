//! Transactions: all or nothing, each kind of check, and copies that change nothing.
//!
//! Which check failed and what is there instead are part of the contract: a caller that computes
//! again must not have to guess.

use bytes::Bytes;
use onetake_core::Phase;
use onetake_engine::{Check, Document, Found, Journal, Place, Position, Slots, Tx, Write};

use super::hear::{all_of, committed, conflict, found, repeated, there, victory, won};
use crate::Rig;
use crate::make::{LONG, Pen, counter, cursor, doc, lane, tx, version};

fn written(id: u128, value: &'static str) -> Found {
    Found::Doc(Some(Document { version: version(id), value: value.into() }))
}

async fn nothing_of_it<S: Journal>(store: &S) {
    assert_eq!(found(store, Place::Doc(doc("effect"))).await, Found::Doc(None));
    assert_eq!(found(store, Place::Counter(counter("effect"))).await, Found::Counter(0));
    let at_zero = Found::Cursor(Position(0));
    assert_eq!(found(store, Place::Cursor(cursor("effect"))).await, at_zero);
    let lane = store.read_lane(&lane("effect"), Position(0), 10).await.unwrap().value;
    assert!(all_of(lane).is_empty(), "a conflict appends nothing");
}

/// One write of every kind.
fn with_effects(tx: Tx) -> Tx {
    tx.write(Write::Put(doc("effect"), "e".into()))
        .write(Write::Append(lane("effect"), "e".into()))
        .write(Write::Add(counter("effect"), 1))
        .write(Write::Advance(cursor("effect"), Position(1)))
}

/// X8: the record and everything that goes with it become visible together.
pub async fn x8_a_record_and_its_effects_are_written_together<R: Rig<Store: Journal>>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    let done = with_effects(Tx::on_slot(None, pen.done(1, 1, LONG)));
    assert_eq!(committed(&store, done).await, [Position(1)]);
    let record = there(&store, pen.slot()).await.expect("the record is there");
    assert!(matches!(record.phase, Phase::Done { .. }));
    assert_eq!(found(&store, Place::Doc(doc("effect"))).await, written(1, "e"));
    assert_eq!(found(&store, Place::Counter(counter("effect"))).await, Found::Counter(1));
    let cursor = found(&store, Place::Cursor(cursor("effect"))).await;
    assert_eq!(cursor, Found::Cursor(Position(1)));
}

/// X8: the last of several checks fails, and nothing at all is written.
pub async fn x8_a_conflict_writes_nothing<R: Rig<Store: Journal>>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    let last = [
        Check::Doc(doc("missing"), Some(version(7))),
        Check::AtLeast(counter("stock"), 1),
        Check::Slot(Pen::new("other").slot().clone(), Some(version(7))),
    ];
    for (id, check) in (1..).zip(last) {
        let tx = Tx::on_slot(None, pen.done(id, id, LONG)).check(Check::Doc(doc("none"), None));
        let (index, _) = conflict(&store, with_effects(tx).check(check)).await;
        assert_eq!(index, 2, "the anchor and the second check hold");
        nothing_of_it(&store).await;
        assert_eq!(there(&store, pen.slot()).await, None, "nor the record");
    }
}

/// A check of a slot holds for exactly the version that is there; a renewal is another one.
pub async fn a_slot_is_checked_by_its_version<R: Rig<Store: Journal>>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    let (n, found) = conflict(&store, Tx::on_slot(Some(version(9)), pen.claim(1, LONG))).await;
    assert_eq!((n, found), (0, Found::Slot(None)), "nothing is there");
    let claim = won(&store, None, pen.claim(1, LONG)).await;
    let (n, found) = conflict(&store, Tx::on_slot(None, pen.done(2, 2, LONG))).await;
    assert_eq!((n, found), (0, Found::Slot(Some(claim))), "a claim is there");
    let renewed = victory(store.renew(pen.slot(), version(1), LONG).await.unwrap().value);
    let late = Tx::on_slot(Some(version(1)), pen.done(3, 1, LONG));
    let (n, found) = conflict(&store, with_effects(late)).await;
    assert_eq!((n, found), (0, Found::Slot(Some(renewed.clone()))), "X2: it was renewed since");
    nothing_of_it(&store).await;
    committed(&store, Tx::on_slot(Some(renewed.version), pen.done(4, 1, LONG))).await;
    let bystander = |expected| tx(5).check(Check::Slot(pen.slot().clone(), expected));
    let (n, _) = conflict(&store, bystander(Some(version(1)))).await;
    assert_eq!(n, 1, "a slot may be checked without being written");
    committed(&store, bystander(Some(version(4)))).await;
}

/// A check of a document holds for exactly the version that is there, and for absence.
pub async fn a_document_is_checked_by_its_version<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    let put = |id, expected, value: &'static str| {
        Tx::on_doc(id, doc("d"), expected, Bytes::from_static(value.as_bytes()))
    };
    let (n, current) = conflict(&store, put(1, Some(version(9)), "a")).await;
    assert_eq!((n, current), (0, Found::Doc(None)));
    committed(&store, put(2, None, "b")).await;
    for (id, wrong) in [(3, None), (4, Some(version(9)))] {
        let (n, current) = conflict(&store, put(id, wrong, "c")).await;
        assert_eq!((n, current), (0, written(2, "b")), "expecting {wrong:?}");
    }
    committed(&store, put(5, Some(version(2)), "d")).await;
    assert_eq!(found(&store, Place::Doc(doc("d"))).await, written(5, "d"));
    committed(&store, tx(6).write(Write::Delete(doc("d")))).await;
    assert_eq!(found(&store, Place::Doc(doc("d"))).await, Found::Doc(None));
    let (_, current) = conflict(&store, put(7, Some(version(5)), "e")).await;
    assert_eq!(current, Found::Doc(None), "what was deleted is not there");
    committed(&store, put(8, None, "f")).await;
}

/// A demand on a counter is about what it is before the transaction adds to it.
pub async fn a_counter_is_checked_before_it_is_added_to<R: Rig<Store: Journal>>(rig: &R) {
    let (store, stock) = (rig.open().await, || counter("stock"));
    let take = |id, n: i64| tx(id).check(Check::AtLeast(stock(), n)).write(Write::Add(stock(), -n));
    let (n, current) = conflict(&store, tx(1).check(Check::AtLeast(stock(), 1))).await;
    assert_eq!((n, current), (1, Found::Counter(0)), "zero before anything was added");
    let late = tx(2).write(Write::Add(stock(), 10)).check(Check::AtLeast(stock(), 10));
    let (n, _) = conflict(&store, late).await;
    assert_eq!(n, 1, "what it adds itself does not count");
    committed(&store, tx(3).check(Check::AtLeast(stock(), 0)).write(Write::Add(stock(), 5))).await;
    committed(&store, take(4, 3)).await;
    let (n, current) = conflict(&store, take(5, 3)).await;
    assert_eq!((n, current), (1, Found::Counter(2)));
    committed(&store, take(6, 2)).await;
    assert_eq!(found(&store, Place::Counter(stock())).await, Found::Counter(0));
}

/// The first check that does not hold is named, also when later ones do not hold either.
pub async fn the_first_check_that_fails_is_named<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    committed(&store, Tx::on_doc(1, doc("d"), None, "v".into())).await;
    let tx = tx(2)
        .check(Check::Doc(doc("d"), Some(version(1))))
        .check(Check::Doc(doc("d"), None))
        .check(Check::AtLeast(counter("c"), 1));
    assert_eq!(conflict(&store, tx).await, (2, written(1, "v")));
}

/// A transaction whose reply was lost may be repeated for ever: nothing is doubled.
pub async fn a_repeated_transaction_changes_nothing<R: Rig<Store: Journal>>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    let on_slot = with_effects(Tx::on_slot(None, pen.done(1, 1, LONG)));
    committed(&store, on_slot.clone()).await;
    let anchor = doc("anchor");
    let on_doc = with_effects(Tx::on_doc(2, anchor.clone(), None, "a".into()));
    committed(&store, on_doc.clone()).await;
    let record = there(&store, pen.slot()).await;
    for copy in [&on_slot, &on_doc, &on_slot, &on_doc] {
        repeated(&store, copy.clone()).await;
    }
    assert_eq!(there(&store, pen.slot()).await, record, "with the times of the first");
    assert_eq!(found(&store, Place::Doc(doc("effect"))).await, written(2, "e"));
    assert_eq!(found(&store, Place::Counter(counter("effect"))).await, Found::Counter(2));
    let entries = store.read_lane(&lane("effect"), Position(0), 10).await.unwrap().value;
    assert_eq!(all_of(entries).len(), 2);
}

/// A copy is recognised by its anchor, so checks that no longer hold do not turn it into a
/// conflict.
pub async fn a_copy_is_recognised_before_its_checks_are_judged<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    let create = tx(1).check(Check::Doc(doc("d"), None)).write(Write::Put(doc("d"), "v".into()));
    committed(&store, create.clone()).await;
    repeated(&store, create.clone()).await;
    committed(&store, Tx::on_doc(2, doc("d"), Some(version(1)), "w".into())).await;
    repeated(&store, create).await;
    assert_eq!(found(&store, Place::Doc(doc("d"))).await, written(2, "w"), "and undoes nothing");
}

/// A late copy whose anchor was replaced meanwhile finds a conflict and does nothing.
pub async fn a_late_copy_cannot_undo_what_came_after<R: Rig<Store: Journal>>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    let first = Tx::on_slot(None, pen.claim(1, LONG)).write(Write::Add(counter("c"), 1));
    committed(&store, first.clone()).await;
    let second = Tx::on_slot(Some(version(1)), pen.done(2, 1, LONG));
    committed(&store, second).await;
    let (n, current) = conflict(&store, first).await;
    assert_eq!((n, current), (0, Found::Slot(there(&store, pen.slot()).await)));
    assert_eq!(found(&store, Place::Counter(counter("c"))).await, Found::Counter(1));
}

/// A swap and a commit see each other's writes: there is one slot, not two.
pub async fn swaps_and_commits_meet_in_the_same_slot<R: Rig<Store: Journal>>(rig: &R) {
    let (store, pen) = (rig.open().await, Pen::new("k"));
    committed(&store, Tx::on_slot(None, pen.claim(1, LONG))).await;
    repeated(&store, Tx::on_slot(None, pen.claim(1, LONG))).await;
    won(&store, None, pen.claim(1, LONG)).await;
    let done = won(&store, Some(version(1)), pen.done(2, 1, LONG)).await;
    let (_, current) = conflict(&store, Tx::on_slot(Some(version(1)), pen.done(3, 1, LONG))).await;
    assert_eq!(current, Found::Slot(Some(done)));
}

/// Writes happen in the order in which they are given.
pub async fn writes_of_one_transaction_happen_in_order<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    let tx = tx(1)
        .write(Write::Put(doc("a"), "1".into()))
        .write(Write::Delete(doc("a")))
        .write(Write::Delete(doc("b")))
        .write(Write::Put(doc("b"), "1".into()))
        .write(Write::Put(doc("b"), "2".into()))
        .write(Write::Append(lane("l"), "1".into()))
        .write(Write::Append(lane("m"), "2".into()))
        .write(Write::Append(lane("l"), "3".into()))
        .write(Write::Trim(lane("l"), Position(1)));
    assert_eq!(committed(&store, tx).await, [Position(1), Position(1), Position(2)]);
    assert_eq!(found(&store, Place::Doc(doc("a"))).await, Found::Doc(None));
    assert_eq!(found(&store, Place::Doc(doc("b"))).await, written(1, "2"));
    let entries = all_of(store.read_lane(&lane("l"), Position(0), 9).await.unwrap().value);
    let entries: Vec<_> =
        entries.iter().map(|entry| (entry.position.0, &entry.value[..])).collect();
    assert_eq!(entries, [(2, &b"3"[..])]);
}

/// X8, P9: several slots in one transaction: all of them, or none.
pub async fn x8_several_slots_in_one_transaction_are_all_or_nothing<R: Rig<Store: Journal>>(
    rig: &R,
) {
    let (store, a, b) = (rig.open().await, Pen::new("a"), Pen::new("b"));
    let both = |id, seen_b| {
        Tx::on_slot(None, a.done(id, id, LONG))
            .check(Check::Slot(b.slot().clone(), seen_b))
            .write(Write::Slot(b.done(id + 1, id, LONG)))
    };
    let (n, _) = conflict(&store, both(1, Some(version(9)))).await;
    assert_eq!(n, 1);
    assert_eq!(there(&store, a.slot()).await, None);
    assert_eq!(there(&store, b.slot()).await, None);
    committed(&store, both(3, None)).await;
    let versions = [
        there(&store, a.slot()).await.map(|record| record.version),
        there(&store, b.slot()).await.map(|record| record.version),
    ];
    assert_eq!(versions, [Some(version(3)), Some(version(4))], "each draft has its own version");
    repeated(&store, both(3, None)).await;
}
