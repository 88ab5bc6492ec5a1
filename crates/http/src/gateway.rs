//! The gateway: the same layer around a reverse proxy.

pub mod forward;
pub mod pattern;
pub mod routes;
pub mod upstream;
