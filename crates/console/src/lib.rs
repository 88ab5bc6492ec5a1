//! The admin surface: what operators look at and do, over HTTP, for people and their tools.
//!
//! A [`Desk`] carries out what the command line and the HTTP routes ask, so both say the same. The
//! routes are behind a [`Guard`]: always a token, only the hosts that this listener is, no page of
//! another origin, bounded in number, time and size. This crate knows no store: whoever puts a
//! program together brings one, with its [`Upkeep`]. Nor does it know a host of workflows: one is
//! brought as [`Runs`].

mod ask;
mod desk;
mod guard;
mod reply;
mod router;
mod runs;
mod serve;
mod token;
mod upkeep;
pub mod wire;

pub use ask::OPERATOR_DEFAULT;
pub use desk::Desk;
pub use guard::{Guard, Hosts};
pub use router::{router, router_with};
pub use runs::{EVENTS_WAIT_MAX, NoRuns, RunPlace, Runs, RunsDesk, RunsError, RunsQuery};
pub use serve::serve;
pub use token::{Token, TokenError};
pub use upkeep::{Backup, Rotated, Stats, Upkeep, UpkeepError};
