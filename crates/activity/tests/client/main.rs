//! Calls over HTTP through the invocation log, against real servers on the loopback that answer,
//! refuse, break off and stream as each test chooses. No test waits for time to pass, except for
//! limits that it set itself.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod failures;
mod results;
mod rig;
mod streams;
mod tls;
