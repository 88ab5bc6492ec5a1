//! The bounds that all stores share: what is within them is taken, what is not leaves no trace.
//!
//! How much a store may hold in all is its own affair and tested beside it.

use bytes::Bytes;
use onetake_engine::{Found, Journal, Lane, Place, Position, Tx, Write};

use super::hear::{committed, found, too_large};
use crate::Rig;
use crate::make::{counter, cursor, doc, lane, tx};

fn key(bytes: usize) -> Bytes {
    vec![b'k'; bytes].into()
}

/// As many steps, as long a key and as large a value as is allowed.
pub async fn the_largest_transaction_is_taken<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    let steps = (1..Tx::STEPS_MAX).fold(tx(1), |tx, _| tx.write(Write::Add(counter("c"), 1)));
    committed(&store, steps).await;
    let sum = i64::try_from(Tx::STEPS_MAX).unwrap() - 1;
    assert_eq!(found(&store, Place::Counter(counter("c"))).await, Found::Counter(sum));
    let long = key(Tx::KEY_BYTES_MAX);
    let names = tx(2)
        .write(Write::Put(doc(long.clone()), "v".into()))
        .write(Write::Append(Lane(long.clone()), "v".into()))
        .write(Write::Add(counter(long.clone()), 1))
        .write(Write::Advance(cursor(long.clone()), Position(1)));
    committed(&store, names).await;
    assert_eq!(found(&store, Place::Counter(counter(long))).await, Found::Counter(1));
    let large = Bytes::from(vec![0xab; Tx::VALUE_BYTES_MAX]);
    committed(&store, Tx::on_doc(3, doc("large"), None, large.clone())).await;
    let Found::Doc(Some(there)) = found(&store, Place::Doc(doc("large"))).await else { panic!() };
    assert!(there.value == large, "and comes back whole");
}

/// W6: one too many of anything is refused whole.
pub async fn w6_a_transaction_that_is_too_large_leaves_no_trace<R: Rig<Store: Journal>>(rig: &R) {
    let store = rig.open().await;
    let with = |write| tx(1).write(Write::Add(counter("c"), 1)).write(write);
    let (long, large) = (key(Tx::KEY_BYTES_MAX + 1), Bytes::from(vec![0; Tx::VALUE_BYTES_MAX + 1]));
    for write in [
        Write::Put(doc(long.clone()), "v".into()),
        Write::Delete(doc(long.clone())),
        Write::Append(lane(long.clone()), "v".into()),
        Write::Trim(lane(long.clone()), Position(1)),
        Write::Add(counter(long.clone()), 1),
        Write::Advance(cursor(long), Position(1)),
        Write::Put(doc("d"), large.clone()),
        Write::Append(lane("l"), large),
    ] {
        too_large(&store, with(write)).await;
    }
    let add = || Write::Add(counter("c"), 1);
    too_large(&store, (0..Tx::STEPS_MAX).fold(tx(1), |tx, _| tx.write(add()))).await;
    let check = || onetake_engine::Check::AtLeast(counter("c"), 0);
    let many = (0..Tx::STEPS_MAX).fold(with(add()), |tx, _| tx.check(check()));
    too_large(&store, many).await;
    assert_eq!(found(&store, Place::Counter(counter("c"))).await, Found::Counter(0));
    assert_eq!(found(&store, Place::Doc(doc("d"))).await, Found::Doc(None));
    committed(&store, with(add())).await;
}
