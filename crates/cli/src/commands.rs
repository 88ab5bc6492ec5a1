//! The commands, one file each. No command knows another.

pub(crate) mod check;
pub(crate) mod demo;
pub(crate) mod keys;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod serve;
pub(crate) mod store;
pub(crate) mod tenant;
