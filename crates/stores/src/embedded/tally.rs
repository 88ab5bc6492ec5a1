//! Counts what the store holds, by tenant and in all, and says when a new key is one too many.
//!
//! Expired records do not exist, so they are not counted, whether or not a compaction has removed
//! them yet. For that, records are counted by when they end, in steps about a thirtieth of their
//! retention wide; a step whose time has passed leaves the count whole. Claims and unknowns never
//! end by themselves and are counted until something replaces them.
//!
//! Only a *new* key can be refused. What is held already may grow past every bound, for an outcome
//! that cannot be recorded is worse than a store that is a little too full.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use onetake_core::{Phase, Record, Tenant, Timestamp};
use onetake_engine::{Bound, OnFull};

use super::open::{noted, read_note};

/// How much a store may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Records of one tenant.
    pub tenant_records_max: u64,
    /// Bytes of one tenant, about.
    pub tenant_bytes_max: u64,
    /// Records in all.
    pub records_max: u64,
    /// Bytes in all, about.
    pub bytes_max: u64,
    /// What a full store does with a new key.
    pub on_full: OnFull,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            tenant_records_max: 10_000_000,
            tenant_bytes_max: 16 << 30,
            records_max: 50_000_000,
            bytes_max: 64 << 30,
            on_full: OnFull::Refuse,
        }
    }
}

/// Why a new record does not fit, and what must go first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoRoom {
    pub(super) bound: Bound,
    pub(super) records: u64,
    pub(super) bytes: u64,
}

/// Signed, because a recount adds old records after newer changes were counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) records: i64,
    pub(super) bytes: i64,
}

impl Sum {
    const fn one(bytes: usize) -> Self {
        Self { records: 1, bytes: bytes.cast_signed() as i64 }
    }

    const fn minus(self) -> Self {
        Self { records: -self.records, bytes: -self.bytes }
    }

    fn add(&mut self, other: Self) {
        self.records += other.records;
        self.bytes += other.bytes;
    }

    /// As numbers that a bound can be compared with.
    pub(super) fn count(self) -> (u64, u64) {
        let whole = |n: i64| u64::try_from(n).unwrap_or(0);
        (whole(self.records), whole(self.bytes))
    }
}

#[derive(Debug, Default)]
struct Own {
    sum: Sum,
    ends: BTreeMap<u64, Sum>,
}

/// How much of what there is.
#[derive(Debug, Default)]
pub(super) struct Tally {
    all: Sum,
    tenants: HashMap<Tenant, Own>,
    /// Every step of every tenant, the next to end first.
    next: BTreeSet<(u64, Tenant)>,
}

/// What the tally needs to know of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) bytes: usize,
    /// When its step of time ends; `None` when it never does.
    step: Option<u64>,
}

impl Counted {
    pub(super) fn of(record: &Record) -> Self {
        let end = match record.phase {
            Phase::Done { expires_at: end, .. } | Phase::Released { until: end } => Some(end),
            Phase::Claimed { .. } | Phase::Unknown { .. } => None,
        };
        Self::new(record.weight(), record.since, end)
    }

    pub(super) fn new(bytes: usize, since: Timestamp, end: Option<Timestamp>) -> Self {
        let step = end.map(|end| {
            let span = end.as_millis().saturating_sub(since.as_millis());
            let width = (span / 32).next_power_of_two().max(1_000);
            end.as_millis().div_ceil(width).saturating_mul(width)
        });
        Self { bytes, step }
    }
}

impl Tally {
    /// Records and bytes in all.
    pub(super) fn all(&mut self, now: Timestamp) -> (u64, u64) {
        self.pass(now);
        self.all.count()
    }

    /// Records and bytes of each tenant.
    pub(super) fn tenants(&mut self, now: Timestamp) -> Vec<(Tenant, u64, u64)> {
        self.pass(now);
        let count = |(tenant, own): (&Tenant, &Own)| {
            let (records, bytes) = own.sum.count();
            (tenant.clone(), records, bytes)
        };
        self.tenants.iter().map(count).collect()
    }

    /// Whether a new record of `bytes` fits.
    pub(super) fn room(
        &mut self,
        tenant: &Tenant,
        bytes: usize,
        now: Timestamp,
        bounds: &Bounds,
    ) -> Result<(), NoRoom> {
        self.pass(now);
        let own = self.tenants.get(tenant).map_or(Sum::default(), |own| own.sum);
        let sides = [
            (Bound::Tenant, own.count(), bounds.tenant_records_max, bounds.tenant_bytes_max),
            (Bound::Total, self.all.count(), bounds.records_max, bounds.bytes_max),
        ];
        for (bound, (records, held), records_max, bytes_max) in sides {
            let records = (records + 1).saturating_sub(records_max);
            let bytes = (held + bytes as u64).saturating_sub(bytes_max);
            if records > 0 || bytes > 0 {
                return Err(NoRoom { bound, records, bytes });
            }
        }
        Ok(())
    }

    /// Counts `after` in place of `before`.
    pub(super) fn exchange(
        &mut self,
        tenant: &Tenant,
        before: Option<Counted>,
        after: Option<Counted>,
        now: Timestamp,
    ) {
        self.pass(now);
        if let Some(before) = before {
            self.change(tenant, before.step, Sum::one(before.bytes).minus(), now);
        }
        if let Some(after) = after {
            self.change(tenant, after.step, Sum::one(after.bytes), now);
        }
    }

    fn change(&mut self, tenant: &Tenant, step: Option<u64>, by: Sum, now: Timestamp) {
        if step.is_some_and(|step| step <= now.as_millis()) {
            return; // Its step has left the count already, or would at once.
        }
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), Own::default());
        }
        let own = self.tenants.get_mut(tenant).expect("invariant: just made sure of");
        own.sum.add(by);
        self.all.add(by);
        if let Some(step) = step {
            own.ends
                .entry(step)
                .or_insert_with(|| {
                    self.next.insert((step, tenant.clone()));
                    Sum::default()
                })
                .add(by);
        }
        if own.sum == Sum::default() && own.ends.values().all(|sum| *sum == Sum::default()) {
            for step in std::mem::take(&mut own.ends).into_keys() {
                self.next.remove(&(step, tenant.clone()));
            }
            self.tenants.remove(tenant);
        }
    }

    /// The count as bytes, true for what the opening `boot` leaves behind.
    pub(super) fn encode(&self, boot: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (tenant, own) in &self.tenants {
            let name = tenant.as_str().as_bytes();
            bytes.push(u8::try_from(name.len()).expect("invariant: names have at most 255 bytes"));
            bytes.extend_from_slice(name);
            let steps = u32::try_from(own.ends.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&steps.to_be_bytes());
            for (step, sum) in std::iter::once((&0, &own.sum)).chain(&own.ends) {
                bytes.extend_from_slice(&step.to_be_bytes());
                bytes.extend_from_slice(&sum.records.to_be_bytes());
                bytes.extend_from_slice(&sum.bytes.to_be_bytes());
            }
        }
        noted(boot, &bytes)
    }

    /// What `encode` made in the opening `boot`; `None` when it is of another, or unreadable: then
    /// everything is counted again.
    pub(super) fn decode(bytes: &[u8], boot: u64) -> Option<Self> {
        let noted = read_note(bytes, boot)?;
        let (mut tally, mut rest) = (Self::default(), &*noted);
        while !rest.is_empty() {
            let tenant = Tenant::new(
                std::str::from_utf8({
                    let length = take::<1>(&mut rest)?[0];
                    let (name, behind) = rest.split_at_checked(usize::from(length))?;
                    rest = behind;
                    name
                })
                .ok()?,
            )
            .ok()?;
            let mut own = Own::default();
            for _ in 0..=u32::from_be_bytes(take(&mut rest)?) {
                let step = u64::from_be_bytes(take(&mut rest)?);
                let records = i64::from_be_bytes(take(&mut rest)?);
                let sum = Sum { records, bytes: i64::from_be_bytes(take(&mut rest)?) };
                if step == 0 {
                    own.sum = sum;
                    tally.all.add(sum);
                } else {
                    own.ends.insert(step, sum);
                    tally.next.insert((step, tenant.clone()));
                }
            }
            tally.tenants.insert(tenant, own);
        }
        Some(tally)
    }

    /// Takes the steps whose time has passed out of the count.
    fn pass(&mut self, now: Timestamp) {
        while self.next.first().is_some_and(|(step, _)| *step <= now.as_millis()) {
            let Some((step, tenant)) = self.next.pop_first() else { return };
            let Some(own) = self.tenants.get_mut(&tenant) else { continue };
            if let Some(ended) = own.ends.remove(&step) {
                own.sum.add(ended.minus());
                self.all.add(ended.minus());
            }
            if own.sum == Sum::default() && own.ends.is_empty() {
                self.tenants.remove(&tenant);
            }
        }
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        tenant_records_max: 2,
        tenant_bytes_max: 1_000,
        records_max: 3,
        bytes_max: 1_500,
        on_full: OnFull::Refuse,
    };

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn claim() -> Counted {
        Counted::new(100, at(0), None)
    }

    fn done(end: u64) -> Counted {
        Counted::new(100, at(0), Some(at(end)))
    }

    /// W6: by tenant and in all, and one tenant's records never use up another's share.
    #[test]
    fn w6_a_bound_names_itself_and_what_is_missing() {
        let (mut tally, a, b) = (Tally::default(), tenant("a"), tenant("b"));
        tally.exchange(&a, None, Some(claim()), at(0));
        tally.exchange(&a, None, Some(claim()), at(0));
        let full = tally.room(&a, 100, at(0), &BOUNDS).unwrap_err();
        assert_eq!(full, NoRoom { bound: Bound::Tenant, records: 1, bytes: 0 });
        assert_eq!(tally.room(&b, 100, at(0), &BOUNDS), Ok(()));
        let large = tally.room(&b, 2_000, at(0), &BOUNDS).unwrap_err();
        assert_eq!(large, NoRoom { bound: Bound::Tenant, records: 0, bytes: 1_000 });
        tally.exchange(&b, None, Some(claim()), at(0));
        let full = tally.room(&b, 100, at(0), &BOUNDS).unwrap_err();
        assert_eq!((full.bound, full.records), (Bound::Total, 1));
    }

    /// D11: what has expired does not exist, so it refuses nobody, removed or not.
    #[test]
    fn d11_w6_what_has_expired_leaves_the_count_by_itself() {
        let (mut tally, a) = (Tally::default(), tenant("a"));
        tally.exchange(&a, None, Some(done(60_000)), at(0));
        tally.exchange(&a, None, Some(claim()), at(0));
        assert_eq!(tally.all(at(59_999)), (2, 200));
        // The step of a minute is two seconds wide.
        assert_eq!(tally.all(at(62_000)), (1, 100), "and the claim stays for ever");
        assert_eq!(tally.all(at(u64::MAX)), (1, 100));
    }

    #[test]
    fn a_record_that_replaces_another_is_counted_once() {
        let (mut tally, a) = (Tally::default(), tenant("a"));
        tally.exchange(&a, None, Some(claim()), at(0));
        tally.exchange(&a, Some(claim()), Some(done(90_000)), at(1));
        assert_eq!(tally.all(at(2)), (1, 100));
        tally.exchange(&a, Some(done(90_000)), Some(claim()), at(200_000));
        assert_eq!(tally.all(at(200_000)), (1, 100), "its step had left already");
        tally.exchange(&a, Some(claim()), None, at(200_000));
        assert_eq!((tally.all(at(200_000)), tally.tenants.len()), ((0, 0), 0));
        assert!(tally.next.is_empty(), "and nothing is left behind");
    }

    /// A recount of an older picture and the changes since then make the present together.
    #[test]
    fn a_recount_may_come_after_the_changes() {
        let (mut tally, a) = (Tally::default(), tenant("a"));
        tally.exchange(&a, Some(claim()), Some(done(90_000)), at(0));
        assert_eq!(tally.all(at(0)), (0, 0));
        tally.exchange(&a, None, Some(claim()), at(0));
        assert_eq!(tally.all(at(0)), (1, 100));
    }

    #[test]
    fn the_steps_of_a_tenant_are_few() {
        let (mut tally, a) = (Tally::default(), tenant("a"));
        for minute in 0..24 * 60 {
            let since = at(minute * 60_000);
            let end = since.after(std::time::Duration::from_secs(24 * 60 * 60));
            tally.exchange(&a, None, Some(Counted::new(1, since, Some(end))), since);
        }
        assert!(tally.tenants[&a].ends.len() <= 66, "{}", tally.tenants[&a].ends.len());
    }
}
