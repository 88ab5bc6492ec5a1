//! The servers of these tests.
#![allow(unused_imports, reason = "each test uses a part of it")]

pub(crate) use onetake_testkit::servers::Server;
