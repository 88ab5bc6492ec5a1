//! The reference store passes the suite that every store passes, and keeps its own bounds.
//!
//! Twice: on a clock that stands still until it is told to move, and on one that runs by itself.

mod on_a_clock_that_stands {
    use onetake_testkit::MemoryRig;

    onetake_testkit::slots_conformance!(MemoryRig::default());
    onetake_testkit::journal_conformance!(MemoryRig::default());
}

mod on_a_clock_that_runs {
    use onetake_testkit::RunningRig;

    onetake_testkit::slots_conformance!(RunningRig);
    onetake_testkit::journal_conformance!(RunningRig);
}

/// W6: the bounds of this store. How much a store may hold is its own affair, so these are not part
/// of the suite.
mod full {
    use std::time::Duration;

    use onetake_core::{Draft, Outcome, Version};
    use onetake_engine::{
        Bound, Check, Found, Journal, Memory, MemoryLimits, OnFull, Place, Slots, StoreError, Swap,
        Tx, Write,
    };
    use onetake_testkit::conformance::hear::{committed, found, there, won};
    use onetake_testkit::make::{BRIEF, LONG, Pen, address, counter, doc, version};
    use onetake_testkit::{MemoryRig, Rig};

    const ROOMY: MemoryLimits = MemoryLimits {
        tenant_records_max: 1_000,
        tenant_bytes_max: 1 << 20,
        records_max: 1_000,
        bytes_max: 1 << 20,
        on_full: OnFull::Refuse,
    };

    fn pen(tenant: &str, key: &str) -> Pen {
        Pen::of(address(tenant, key))
    }

    async fn refused(store: &Memory, bound: Bound, next: Draft) {
        let slot = next.address.slot().clone();
        let reply = store.swap(None, next).await;
        assert_eq!(reply, Err(StoreError::Full(bound)));
        assert_eq!(there(store, &slot).await, None, "a refused key leaves nothing");
    }

    #[tokio::test]
    async fn w6_a_tenant_with_as_many_records_as_it_may_have_is_refused_alone() {
        let store = MemoryRig::with(MemoryLimits { tenant_records_max: 2, ..ROOMY }).open().await;
        won(&store, None, pen("acme", "a").done(1, 1, LONG)).await;
        won(&store, None, pen("acme", "b").done(2, 2, LONG)).await;
        refused(&store, Bound::Tenant, pen("acme", "c").claim(3, LONG)).await;
        won(&store, None, pen("other", "a").claim(4, LONG)).await;
        assert_eq!(store.len(), 3);
    }

    #[tokio::test]
    async fn w6_a_store_with_as_many_records_as_it_may_have_refuses_everybody() {
        let store = MemoryRig::with(MemoryLimits { records_max: 2, ..ROOMY }).open().await;
        won(&store, None, pen("acme", "a").done(1, 1, LONG)).await;
        won(&store, None, pen("acme", "b").done(2, 2, LONG)).await;
        refused(&store, Bound::Total, pen("acme", "c").claim(3, LONG)).await;
        refused(&store, Bound::Total, pen("other", "a").claim(4, LONG)).await;
    }

    fn heavy(tenant: &str, key: &str, id: u128) -> Draft {
        let outcome = Outcome::Value(vec![0; 10_000].into());
        pen(tenant, key).done_with(id, id, LONG, outcome)
    }

    #[tokio::test]
    async fn w6_bytes_are_bounded_for_a_tenant_and_in_all() {
        let tenant = MemoryLimits { tenant_bytes_max: 15_000, ..ROOMY };
        let store = MemoryRig::with(tenant).open().await;
        won(&store, None, heavy("acme", "a", 1)).await;
        refused(&store, Bound::Tenant, heavy("acme", "b", 2)).await;
        won(&store, None, heavy("other", "a", 3)).await;
        let store = MemoryRig::with(MemoryLimits { bytes_max: 15_000, ..ROOMY }).open().await;
        won(&store, None, heavy("acme", "a", 1)).await;
        refused(&store, Bound::Total, heavy("other", "a", 2)).await;
    }

    /// What is held already may be completed, released and claimed again, however full the store
    /// is.
    #[tokio::test]
    async fn w6_the_settling_of_a_claim_is_never_refused() {
        let tight = MemoryLimits { tenant_records_max: 1, tenant_bytes_max: 1_000, ..ROOMY };
        let store = MemoryRig::with(tight).open().await;
        let pen = pen("acme", "a");
        won(&store, None, pen.claim(1, LONG)).await;
        let outcome = Outcome::Value(vec![0; 100_000].into());
        won(&store, Some(version(1)), pen.done_with(2, 1, LONG, outcome)).await;
        won(&store, Some(version(2)), pen.claim(3, LONG)).await;
        let tx = Tx::on_slot(Some(version(3)), pen.done(4, 3, LONG));
        committed(&store, tx.write(Write::Put(doc("d"), "v".into()))).await;
        assert_eq!(store.len(), 1);
    }

    #[tokio::test]
    async fn w6_what_is_swept_makes_room_again() {
        let rig = MemoryRig::with(MemoryLimits { tenant_records_max: 1, ..ROOMY });
        let store = rig.open().await;
        won(&store, None, pen("acme", "a").done(1, 1, BRIEF)).await;
        refused(&store, Bound::Tenant, pen("acme", "b").claim(2, LONG)).await;
        rig.pass(&store, BRIEF).await;
        while !store.sweep(10).await.unwrap().value.done {}
        won(&store, None, pen("acme", "b").claim(3, LONG)).await;
        assert_eq!(store.len(), 1);
    }

    #[tokio::test]
    async fn w6_eviction_drops_the_oldest_finished_record_of_the_same_tenant() {
        let limits = MemoryLimits { tenant_records_max: 3, on_full: OnFull::Evict, ..ROOMY };
        let rig = MemoryRig::with(limits);
        let store = rig.open().await;
        for (id, key) in (1..).zip(["old", "newer", "newest"]) {
            won(&store, None, pen("acme", key).done(id, id, LONG)).await;
            won(&store, None, pen("other", key).done(id + 10, id, LONG)).await;
            rig.pass(&store, Duration::from_millis(1)).await;
        }
        won(&store, None, pen("acme", "one-more").claim(20, LONG)).await;
        assert_eq!(there(&store, pen("acme", "old").slot()).await, None, "counts as new");
        for key in ["newer", "newest", "one-more"] {
            assert!(there(&store, pen("acme", key).slot()).await.is_some(), "{key}");
        }
        assert!(there(&store, pen("other", "old").slot()).await.is_some(), "another tenant's");
    }

    #[tokio::test]
    async fn w6_eviction_never_drops_what_is_live_lapsed_or_unknown() {
        let limits = MemoryLimits { tenant_records_max: 3, on_full: OnFull::Evict, ..ROOMY };
        let rig = MemoryRig::with(limits);
        let store = rig.open().await;
        won(&store, None, pen("acme", "live").claim(1, LONG)).await;
        won(&store, None, pen("acme", "lapsed").claim(2, BRIEF)).await;
        won(&store, None, pen("acme", "unknown").unknown(3, 3)).await;
        won(&store, None, pen("other", "done").done(4, 4, LONG)).await;
        rig.pass(&store, BRIEF).await;
        refused(&store, Bound::Tenant, pen("acme", "new").claim(5, LONG)).await;
        assert_eq!(store.len(), 4);
    }

    /// When the store as a whole is full, a tenant may still make room only from what is its own.
    #[tokio::test]
    async fn w6_eviction_for_the_bound_in_all_never_drops_another_tenants() {
        let limits = MemoryLimits { records_max: 2, on_full: OnFull::Evict, ..ROOMY };
        let store = MemoryRig::with(limits).open().await;
        won(&store, None, pen("acme", "a").done(1, 1, LONG)).await;
        won(&store, None, pen("acme", "b").done(2, 2, LONG)).await;
        refused(&store, Bound::Total, pen("other", "a").claim(3, LONG)).await;
        won(&store, None, pen("acme", "c").claim(4, LONG)).await;
        assert_eq!(store.len(), 2);
    }

    fn three(seen: [Option<Version>; 3]) -> Tx {
        let pens = ["a", "b", "c"].map(|key| pen("acme", key));
        let first = Tx::on_slot(seen[0], pens[0].done(10, 10, LONG));
        let also = |tx: Tx, n: usize| {
            let check = Check::Slot(pens[n].slot().clone(), seen[n]);
            tx.check(check).write(Write::Slot(pens[n].done(10 + n as u128, 10, LONG)))
        };
        let both = also(also(first, 1), 2);
        both.write(Write::Put(doc("d"), "v".into())).write(Write::Add(counter("c"), 1))
    }

    /// W6, X8: the third of three records is one too many; the first two must not stay.
    #[tokio::test]
    async fn w6_a_transaction_whose_last_record_is_refused_leaves_nothing() {
        let store = MemoryRig::with(MemoryLimits { tenant_records_max: 2, ..ROOMY }).open().await;
        let claim = won(&store, None, pen("acme", "a").claim(1, LONG)).await;
        let reply = store.commit(three([Some(version(1)), None, None])).await;
        assert_eq!(reply, Err(StoreError::Full(Bound::Tenant)));
        assert_eq!(there(&store, pen("acme", "a").slot()).await, Some(claim), "as it was");
        assert_eq!(there(&store, pen("acme", "b").slot()).await, None);
        assert_eq!(there(&store, pen("acme", "c").slot()).await, None);
        assert_eq!(found(&store, Place::Doc(doc("d"))).await, Found::Doc(None));
        assert_eq!(found(&store, Place::Counter(counter("c"))).await, Found::Counter(0));
        assert_eq!(store.len(), 1, "and it is not counted either");
        won(&store, None, pen("acme", "z").claim(2, LONG)).await;
        refused(&store, Bound::Tenant, pen("acme", "y").claim(3, LONG)).await;
    }

    /// W6: eviction for a transaction may drop none of the records that it checks without noticing.
    #[tokio::test]
    async fn w6_eviction_makes_room_for_a_transaction_of_several_records() {
        let limits = MemoryLimits { tenant_records_max: 4, on_full: OnFull::Evict, ..ROOMY };
        let store = MemoryRig::with(limits).open().await;
        for (id, key) in (1..).zip(["w", "x", "y", "z"]) {
            won(&store, None, pen("acme", key).done(id, id, LONG)).await;
        }
        committed(&store, three([None; 3])).await;
        assert_eq!(store.len(), 4);
        assert_eq!(found(&store, Place::Counter(counter("c"))).await, Found::Counter(1), "once");
    }

    /// A swap that is lost or repeated needs no room.
    #[tokio::test]
    async fn w6_a_full_store_still_answers() {
        let store = MemoryRig::with(MemoryLimits { records_max: 1, ..ROOMY }).open().await;
        let done = won(&store, None, pen("acme", "a").done(1, 1, LONG)).await;
        assert_eq!(won(&store, None, pen("acme", "a").done(1, 1, LONG)).await, done);
        let lost = store.swap(None, pen("acme", "a").claim(2, LONG)).await.unwrap().value;
        assert_eq!(lost, Swap::Lost(Some(done)));
        let lost = store.swap(Some(version(7)), pen("acme", "b").claim(3, LONG)).await;
        assert_eq!(lost.unwrap().value, Swap::Lost(None));
    }
}
