//! The durable stores of Onetake.
//!
//! A store keeps records, documents, lanes, counters and cursors, and tells the time. It never
//! interprets a rule and knows no door. Each store is one file or folder behind a feature, all of
//! them share one codec, and every one passes the same conformance suite.

#![forbid(unsafe_code)]

pub mod codec;
#[cfg(feature = "embedded")]
mod embedded;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod room;
pub mod seal;

#[cfg(feature = "redis")]
pub use self::redis::{LossError, Redis, RedisError, RedisOptions};
#[cfg(all(feature = "embedded", feature = "crash-points"))]
pub use embedded::crash_point;
#[cfg(feature = "embedded")]
pub use embedded::{
    Bounds, Embedded, FrontLimits, OnLoss, OpenError, Options, QueueLimits, upkeep,
};
#[cfg(feature = "postgres")]
pub use postgres::{
    Postgres, PostgresError, PostgresOptions, PostgresStats, inside, is_schema_name,
};
