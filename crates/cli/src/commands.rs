//! The commands, one file each. No command knows another.

pub(crate) mod demo;
