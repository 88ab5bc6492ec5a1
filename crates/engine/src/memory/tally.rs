//! Counts what the store holds, by tenant and in all, and says when a new key is one too many.
//!
//! Only a *new* record can be refused. What is held already may grow past every bound, for an
//! outcome that cannot be recorded is worse than a store that is a little too full.

use std::collections::HashMap;

use onetake_core::Tenant;

use crate::store::Bound;

/// What a full store does with a new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFull {
    /// Refuses it.
    #[default]
    Refuse,
    /// Drops the oldest finished records of the same tenant; an evicted key counts as new.
    Evict,
}

/// How much the store may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Records of one tenant.
    pub tenant_records_max: usize,
    /// Bytes of one tenant, about.
    pub tenant_bytes_max: usize,
    /// Records in all.
    pub records_max: usize,
    /// Bytes in all, about.
    pub bytes_max: usize,
    /// What a full store does with a new key.
    pub on_full: OnFull,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self {
            tenant_records_max: 1_000_000,
            tenant_bytes_max: 1 << 30,
            records_max: 4_000_000,
            bytes_max: 4 << 30,
            on_full: OnFull::Refuse,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    records: usize,
    bytes: usize,
}

/// Why a new record does not fit, and what must go first.
#[derive(Debug)]
pub(super) struct NoRoom {
    pub(super) bound: Bound,
    pub(super) tenant: Tenant,
    /// Records that must go.
    pub(super) records: usize,
    /// Bytes that must go.
    pub(super) bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    all: Sum,
    by_tenant: HashMap<Tenant, Sum>,
}

impl Tally {
    pub(super) fn records(&self) -> usize {
        self.all.records
    }

    /// Counts a record of `after` bytes in place of one of `before`, or refuses a new one.
    pub(super) fn exchange(
        &mut self,
        tenant: &Tenant,
        before: Option<usize>,
        after: usize,
        limits: &MemoryLimits,
    ) -> Result<(), NoRoom> {
        let own = self.by_tenant.get(tenant).copied().unwrap_or_default();
        if before.is_none() {
            let bounds = [
                (Bound::Tenant, own, limits.tenant_records_max, limits.tenant_bytes_max),
                (Bound::Total, self.all, limits.records_max, limits.bytes_max),
            ];
            for (bound, sum, records_max, bytes_max) in bounds {
                let records = (sum.records + 1).saturating_sub(records_max);
                let bytes = (sum.bytes + after).saturating_sub(bytes_max);
                if records > 0 || bytes > 0 {
                    return Err(NoRoom { bound, tenant: tenant.clone(), records, bytes });
                }
            }
        }
        let new = usize::from(before.is_none());
        let own = self.by_tenant.entry(tenant.clone()).or_default();
        for sum in [&mut self.all, own] {
            sum.records += new;
            sum.bytes = sum.bytes + after - before.unwrap_or(0);
        }
        Ok(())
    }

    /// Counts a removed record of `bytes` no more.
    pub(super) fn forget(&mut self, tenant: &Tenant, bytes: usize) {
        let Some(own) = self.by_tenant.get_mut(tenant) else { return };
        for sum in [&mut self.all, own] {
            sum.records -= 1;
            sum.bytes -= bytes;
        }
        if self.by_tenant[tenant].records == 0 {
            self.by_tenant.remove(tenant);
        }
    }
}
