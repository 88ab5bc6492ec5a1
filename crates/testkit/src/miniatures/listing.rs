//! A miniature operator's list: the keys of a tenant by standing and age.
//!
//! It reads pages of records and derives what each means by the time that came with the page; a
//! lapsed claim is listed as unknown although nobody wrote that. It changes nothing.

use std::time::Duration;

use onetake_core::{Fence, Record, Slot, Standing, Tenant, Timestamp};
use onetake_engine::{Journal, StoreError};

use crate::Rig;
use crate::conformance::hear::won;
use crate::make::{BRIEF, LONG, Pen, address, tenant};

/// What a listed key is, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its owner is alive.
    Live,
    /// Nobody can say whether the effect happened.
    Unknown,
    /// It answers further attempts, or may be executed again.
    Done,
    /// Released, or forgotten and not yet swept.
    Free,
}

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Which claim.
    pub fence: Fence,
    /// What it is.
    pub kind: Kind,
    /// For how long.
    pub age: Duration,
}

impl Row {
    fn of(record: &Record, now: Timestamp) -> Self {
        let (kind, since) = match record.standing(now) {
            Standing::Live { .. } => (Kind::Live, record.since),
            Standing::Unknown { since, .. } => (Kind::Unknown, since),
            Standing::Final { .. } | Standing::Retryable(_) => (Kind::Done, record.since),
            Standing::Free => (Kind::Free, record.since),
        };
        Self { fence: record.fence, kind, age: now.since(since) }
    }
}

/// The keys of `tenant` that are `kind` for at least `age`, the oldest first, read in pages.
///
/// # Errors
/// When the store fails.
pub async fn list<S: Journal>(
    store: &S,
    tenant: &Tenant,
    kind: Kind,
    age: Duration,
    page: usize,
) -> Result<Vec<Row>, StoreError> {
    let (mut rows, mut after): (Vec<Row>, Option<Slot>) = (Vec::new(), None);
    loop {
        let read = store.scan_slots(Some(tenant), after.as_ref(), page).await?;
        let found = read.value.items.iter().map(|record| Row::of(record, read.now));
        rows.extend(found.filter(|row| row.kind == kind && row.age >= age));
        after = read.value.items.last().map(|record| record.address.slot().clone());
        if !read.value.more {
            rows.sort_by_key(|row| std::cmp::Reverse(row.age));
            return Ok(rows);
        }
    }
}

/// Writes two of each kind; those with odd numbers are a little older.
async fn filled<R: Rig<Store: Journal>>(rig: &R) -> R::Store {
    let store = rig.open().await;
    for old in [true, false] {
        let id = |n: u128| n * 2 + u128::from(!old);
        let pen = |name: &str| Pen::new(&format!("{name}-{old}"));
        won(&store, None, pen("live").claim(id(1), LONG)).await;
        won(&store, None, pen("lapsed").claim(id(2), Duration::ZERO)).await;
        won(&store, None, pen("unknown").unknown(id(3), id(3))).await;
        won(&store, None, pen("done").done(id(4), id(4), LONG)).await;
        won(&store, None, pen("forgotten").done(id(5), id(5), Duration::ZERO)).await;
        won(&store, None, pen("released").released(id(6), id(6), LONG)).await;
        let other = Pen::of(address("acme-2", &format!("{old}")));
        won(&store, None, other.unknown(id(7), id(7))).await;
        rig.pass(&store, BRIEF).await;
    }
    store
}

async fn fences<S: Journal>(store: &S, kind: Kind, age: Duration) -> Vec<u128> {
    let rows = list(store, &tenant("acme"), kind, age, 5).await.unwrap();
    assert!(rows.is_sorted_by(|a, b| a.age >= b.age), "the oldest first");
    let mut fences: Vec<_> = rows.iter().map(|row| row.fence.0).collect();
    fences.sort_unstable();
    fences
}

/// X10, X3: a lapsed claim is listed as unknown, beside those that were reported so.
pub async fn x10_x3_a_lapsed_claim_is_listed_as_unknown<R: Rig<Store: Journal>>(rig: &R) {
    let store = filled(rig).await;
    assert_eq!(fences(&store, Kind::Unknown, Duration::ZERO).await, [4, 5, 6, 7]);
    assert_eq!(fences(&store, Kind::Live, Duration::ZERO).await, [2, 3]);
}

/// X10, D11: what is forgotten and not yet swept is not listed as done.
pub async fn x10_d11_what_is_forgotten_is_not_listed_as_done<R: Rig<Store: Journal>>(rig: &R) {
    let store = filled(rig).await;
    assert_eq!(fences(&store, Kind::Done, Duration::ZERO).await, [8, 9]);
    assert_eq!(fences(&store, Kind::Free, Duration::ZERO).await, [10, 11, 12, 13]);
}

/// X10: by age, on the store's clock.
pub async fn x10_the_list_is_by_age<R: Rig<Store: Journal>>(rig: &R) {
    let store = filled(rig).await;
    let all = list(&store, &tenant("acme"), Kind::Unknown, Duration::ZERO, 100).await.unwrap();
    let ages: Vec<_> = all.iter().map(|row| row.age).collect();
    assert!(ages[1] >= ages[2] + BRIEF, "{ages:?}");
    let old = fences(&store, Kind::Unknown, ages[1]).await;
    assert_eq!(old, [4, 6], "only those of the first wave");
}

/// X10, W10: nobody else's keys, whatever the size of the pages.
pub async fn x10_w10_the_list_is_one_tenants_in_any_pages<R: Rig<Store: Journal>>(rig: &R) {
    let store = filled(rig).await;
    for page in [1, 2, 3, 100] {
        let rows = list(&store, &tenant("acme"), Kind::Unknown, Duration::ZERO, page).await;
        assert_eq!(rows.unwrap().len(), 4, "pages of {page}");
        let rows = list(&store, &tenant("acme-2"), Kind::Unknown, Duration::ZERO, page).await;
        assert!(rows.unwrap().iter().all(|row| row.fence.0 >= 14), "pages of {page}");
    }
}
